/*
 * test_values.c
 *		What a caller passes in is checked and what it gets is a value:
 *		options, errors, names, tokens and keys without a server.
 */
#include "client_test.h"

#include <stdio.h>

static char jwks[KEYSET_TEXT_SIZE];
static int	closed;

static void
no_call(void *self, const KeyrightRequest *request, KeyrightAnswer *answer)
{
	(void) self;
	(void) request;
	(void) answer;
}

static void
count_close(void *self)
{
	(void) self;
	closed++;
}

static KeyrightTransport transport = {
	.size = sizeof(transport),
	.call = no_call,
	.close = count_close
};

static void
good_options(KeyrightOptions *options)
{
	keyright_options_init(options);
	options->license = "acme";
	options->jwks = jwks;
	options->transport = &transport;
}

/* Opens and closes; prints what was refused. */
static KeyrightErrorKind
open_with(const KeyrightOptions *options)
{
	Keyright   *seat;
	KeyrightError error;
	KeyrightErrorKind kind = keyright_open(&seat, options, &error);

	if (kind != error.kind || (kind == KEYRIGHT_OK) != (seat != NULL) ||
		(kind != KEYRIGHT_OK && error.message[0] == '\0'))
		abort();
	if (kind != KEYRIGHT_OK)
		printf("# %s (%s)\n", error.message, error.detail);
	keyright_close(seat);
	return kind;
}

#define REFUSED(member, value) \
	do { \
		KeyrightOptions o; \
		good_options(&o); \
		o.member = value; \
		ok(open_with(&o) == KEYRIGHT_ERR_OPTIONS, \
		   "%s = %s is refused", #member, #value); \
	} while (0)

#define ACCEPTED(member, value) \
	do { \
		KeyrightOptions o; \
		good_options(&o); \
		o.member = value; \
		ok(open_with(&o) == KEYRIGHT_OK, "%s = %s", #member, #value); \
	} while (0)

static void
test_options(void)
{
	KeyrightOptions options;
	char		longest[KEYRIGHT_TEXT_MAX + 2];
	int			before;

	memset(longest, 'x', sizeof(longest));
	longest[KEYRIGHT_TEXT_MAX + 1] = '\0';
	REFUSED(license, NULL);
	REFUSED(license, "");
	REFUSED(license, "a\nb");
	REFUSED(license, "\xff");
	REFUSED(license, longest);
	REFUSED(holder, "");
	REFUSED(holder, longest);
	REFUSED(request_id, "");
	REFUSED(request_id, longest);
	REFUSED(jwks, NULL);
	REFUSED(jwks, "");
	REFUSED(jwks, "{\"keys\":[]}");
	REFUSED(ttl_ms, 999);
	REFUSED(ttl_ms, -1);
	REFUSED(ttl_ms, INT64_MAX);
	REFUSED(wait_ms, -2);
	REFUSED(request_limit_ms, 0);
	REFUSED(request_limit_ms, 600001);
	REFUSED(release_limit_ms, -1);
	longest[KEYRIGHT_TEXT_MAX] = '\0';
	ACCEPTED(license, longest);
	ACCEPTED(holder, longest);
	ACCEPTED(request_id, longest);
	ACCEPTED(ttl_ms, 1000);
	ACCEPTED(wait_ms, -1);
	ACCEPTED(wait_ms, INT64_MAX);
	ACCEPTED(release_limit_ms, 0);

	good_options(&options);
	options.license = NULL;
	before = closed;
	open_with(&options);
	ok(closed == before + 1, "a transport is closed when opening fails");

	good_options(&options);
	options.transport = NULL;
	options.conninfo = "nonsense";
	ok(open_with(&options) == KEYRIGHT_ERR_OPTIONS,
	   "so is a connection string that is none");
	options.conninfo = "host=a,b,c port=1,2";
	ok(open_with(&options) == KEYRIGHT_ERR_OPTIONS,
	   "or that does not fit together");
	options.conninfo = "host=a,b port=1,2 dbname=x";
	ok(open_with(&options) == KEYRIGHT_OK, "opening asks no server");
}

/* Callers that were compiled with an older or a newer header. */
static void
test_sizes(void)
{
	KeyrightOptions options;
	struct
	{
		KeyrightOptions options;
		char		more[64];
	}			newer;
	int			before;

	good_options(&options);
	options.size = 0;
	ok(open_with(&options) == KEYRIGHT_ERR_OPTIONS, "options without a size");
	memset(&newer, 0, sizeof(newer));
	keyright_options_init_sized(&newer.options, sizeof(newer));
	good_options(&newer.options);
	newer.options.size = sizeof(newer);
	ok(open_with(&newer.options) == KEYRIGHT_OK,
	   "options of a newer header, if nothing new is used");
	newer.more[60] = 1;
	before = closed;
	ok(open_with(&newer.options) == KEYRIGHT_ERR_OPTIONS &&
	   closed == before + 1, "else they are refused, not ignored");
}

static void
test_names(void)
{
	bool		good = true;

	for (int kind = 0; kind < 100; kind++)
	{
		KeyrightError error;
		const char *name = keyright_error_name((KeyrightErrorKind) kind);

		error_set(&error, (KeyrightErrorKind) kind, "acme", NULL, NULL);
		if (strcmp(name, "unknown") != 0 && kind != KEYRIGHT_OK)
			good = good && error.message[0] != '\0' &&
				strchr(error.message, '%') == NULL &&
				error.message[strlen(error.message) - 1] == '.';
	}
	ok(good, "every kind of error has a sentence");
	ok(strcmp(keyright_state_name(KEYRIGHT_RELEASED), "released") == 0 &&
	   strcmp(keyright_state_name((KeyrightState) 99), "unknown") == 0,
	   "states have names");
	ok(keyright_version()[0] != '\0', "so has the version");
}

static void
test_error_values(void)
{
	KeyrightError error;
	char		text[8];
	char		license[KEYRIGHT_TEXT_MAX + 1];

	error_set(&error, KEYRIGHT_ERR_LICENSE, "acme", "KR002",
			  "two\nlines \n and\tblanks\n");
	ok(strcmp(error.message, "License \"acme\" is suspended.") == 0,
	   "a sentence names the license");
	ok(strcmp(error.detail, "two lines and blanks") == 0,
	   "a detail is one line");
	error_set(&error, KEYRIGHT_ERR_LICENSE, "100%s", "KR001", error.message);
	ok(strcmp(error.message,
			  "The license server does not know license \"100%s\".") == 0 &&
	   strcmp(error.detail, "License \"acme\" is suspended.") == 0,
	   "whatever its name is");
	error_set(&error, KEYRIGHT_ERR_UNREACHABLE, NULL, NULL,
			  "type \"\xdc\" or \"\xc3\xbc\x9b\xe2\x82\"");
	ok(strcmp(error.detail, "type \"?\" or \"\xc3\xbc?\?\?\"") == 0,
	   "and UTF-8, whatever bytes came");
	memset(license, 'x', sizeof(license));
	license[KEYRIGHT_TEXT_MAX] = '\0';
	error_set(&error, KEYRIGHT_ERR_LAPSED, license, NULL, NULL);
	ok(error.message[strlen(error.message) - 1] == '.',
	   "and however long");
	text_copy(text, sizeof(text), "abcdef\303\251");
	ok(strcmp(text, "abcdef") == 0, "a text is cut between characters");
}

static void
test_verify(void)
{
	LeaseClaims claims;
	KeyrightClaims told;
	char		token[TOKEN_SIZE];
	const char *problem;
	size_t		size;

	sample_claims(&claims);
	size = token_write(token, &claims, sample_key());
	ok(keyright_verify(token, size, jwks, strlen(jwks), SAMPLE_NOW, &told,
					   &problem) == KEYRIGHT_TOKEN_VALID && problem == NULL,
	   "a good token verifies");
	ok(strcmp(told.license, "acme") == 0 && told.slot == 7 &&
	   told.expires_at == claims.expires_at && strlen(told.seat_id) == 36 &&
	   strcmp(told.kid, sample_key()->public.kid) == 0, "with its claims");
	ok(keyright_verify(token, size, jwks, strlen(jwks),
					   claims.expires_at * LEASE_SECOND - 1, NULL, NULL) ==
	   KEYRIGHT_TOKEN_VALID &&
	   keyright_verify(token, size, jwks, strlen(jwks),
					   claims.expires_at * LEASE_SECOND, NULL, NULL) ==
	   KEYRIGHT_TOKEN_EXPIRED, "up to its last microsecond");
	ok(keyright_verify(token, size, jwks, strlen(jwks), KEYRIGHT_NOW, &told,
					   NULL) == KEYRIGHT_TOKEN_EXPIRED && told.slot == 7,
	   "now it is long over");
	ok(keyright_verify(token, size, "{\"keys\":[]}", 11, SAMPLE_NOW, &told,
					   &problem) == KEYRIGHT_TOKEN_UNKNOWN_KEY &&
	   problem != NULL && told.kid[0] != '\0' && told.slot == 0,
	   "without its key nothing is said but the kid");
	ok(keyright_verify(token, size, "x", 1, SAMPLE_NOW, NULL, &problem) ==
	   KEYRIGHT_TOKEN_BAD_JWKS && problem != NULL, "keys can be bad, too");
	token[size - 5] ^= 1;
	ok(keyright_verify(token, size, jwks, strlen(jwks), SAMPLE_NOW, NULL,
					   NULL) == KEYRIGHT_TOKEN_BAD_SIGNATURE,
	   "a changed token does not verify");
	ok(strcmp(keyright_verdict_name(KEYRIGHT_TOKEN_BAD_JWKS),
			  "bad_jwks") == 0 &&
	   strcmp(keyright_verdict_name(KEYRIGHT_TOKEN_UNKNOWN_KEY),
			  "unknown_key") == 0, "verdicts have names");
}

static void
test_keys(void)
{
	char		seed[KEYRIGHT_SEED_TEXT_SIZE];
	char		own[KEYRIGHT_JWKS_TEXT_SIZE];
	char		again[KEYRIGHT_JWKS_TEXT_SIZE];
	KeySet		set;
	const char *problem;

	ok(keyright_keygen(seed, own) == KEYRIGHT_OK && strlen(seed) == 44 &&
	   keyset_read(&set, own, strlen(own), &problem) && set.count == 1,
	   "a new key comes with its set");
	ok(keyright_public(seed, strlen(seed), again) == KEYRIGHT_OK &&
	   strcmp(own, again) == 0, "that its seed gives again");
	ok(keyright_public("x", 1, again) == KEYRIGHT_ERR_OPTIONS,
	   "what is no seed gives none");
}

static void
test_nothing(void)
{
	KeyrightError error;

	ok(keyright_may_run(NULL) == 0 && keyright_state(NULL) == KEYRIGHT_IDLE &&
	   keyright_checkout(NULL, &error) == KEYRIGHT_ERR_MISUSE &&
	   keyright_checkin(NULL, NULL) == KEYRIGHT_ERR_MISUSE,
	   "no handle, no crash");
	keyright_interrupt(NULL);
	keyright_close(NULL);
}

void
test_values(void)
{
	keyset_write(jwks, sample_set());
	test_options();
	test_sizes();
	test_names();
	test_error_values();
	test_verify();
	test_keys();
	test_nothing();
}
