/*
 * fuzz_signed.c
 *		token_verify() on headers and payloads that are signed with the right
 *		key, so that the parsers behind the signature are reached.
 *
 * The input is a payload, after a line with a header if there is one.
 */
#include "fuzz.h"

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	return sodium_init() < 0;
}

/* No byte of a document that was taken may be cut off its end. */
static void
check_cut(const char *header, size_t header_size,
		  const char *payload, size_t size)
{
	char		token[FORGED_SIZE];
	LeaseClaims claims;

	while (size > 0 && strchr(" \t\r\n", payload[size - 1]) != NULL)
		size--;
	size = forge(token, header, header_size, payload, size - 1, sample_key());
	MUST(verify(token, size, SAMPLE_NOW, &claims) == TOKEN_MALFORMED);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char		token[FORGED_SIZE];
	LeaseClaims claims;
	const char *payload = (const char *) data;
	const char *header = sample_header();
	size_t		header_size = strlen(header);
	const char *line = memchr(payload, '\n', size);
	size_t		length;
	TokenStatus status;

	/* What is longer in base64 than a token can be goes no way at all. */
	if (size > TOKEN_SIZE)
		return 0;
	if (line != NULL)
	{
		header = payload;
		header_size = (size_t) (line - header);
		size -= header_size + 1;
		payload = line + 1;
	}

	length = forge(token, header, header_size, payload, size, sample_key());
	status = verify(token, length, SAMPLE_NOW, &claims);
	MUST(status != TOKEN_BAD_SIGNATURE);
	MUST(line != NULL || status != TOKEN_UNKNOWN_KEY);
	if (status == TOKEN_VALID || status == TOKEN_EXPIRED)
	{
		check_claims(&claims);
		check_cut(header, header_size, payload, size);
	}
	return 0;
}
