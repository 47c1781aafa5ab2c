/*
 * fuzz_token.c
 *		token_verify() on texts that nobody signed.
 *
 * The only key in the set is the sample's, so a text that verifies has to be
 * one of the corpus, byte by byte what token_write() makes of its claims.
 */
#include "fuzz.h"

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	return sodium_init() < 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	LeaseClaims claims;
	LeaseClaims later;
	char		token[TOKEN_SIZE];
	TokenStatus status = verify((const char *) data, size, SAMPLE_NOW,
								&claims);
	TokenStatus end = verify((const char *) data, size, INT64_MAX, &later);

	/* Time changes one verdict only. */
	MUST(end == (status == TOKEN_VALID ? TOKEN_EXPIRED : status));
	if (status != TOKEN_VALID && status != TOKEN_EXPIRED)
		return 0;

	MUST(memcmp(&claims, &later, sizeof(claims)) == 0);
	check_claims(&claims);
	MUST(token_write(token, &claims, sample_key()) == size);
	MUST(memcmp(token, data, size) == 0);
	return 0;
}
