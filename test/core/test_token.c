/*
 * test_token.c
 *		Tokens that are signed, their claims, their times and their texts.
 */
#include "test.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

static bool
same_claims(const LeaseClaims *a, const LeaseClaims *b)
{
	return strcmp(a->issuer, b->issuer) == 0 &&
		strcmp(a->license, b->license) == 0 &&
		strcmp(a->holder, b->holder) == 0 &&
		seat_id_equal(a->seat_id, b->seat_id) && a->slot == b->slot &&
		a->issued_at == b->issued_at && a->expires_at == b->expires_at;
}

/* Signs, verifies and compares. */
static bool
survives(const LeaseClaims *claims)
{
	char		token[TOKEN_SIZE];
	LeaseClaims back;
	size_t		size = token_write(token, claims, sample_key());

	return size > 0 && size == strlen(token) &&
		verify(token, size, claims->expires_at * LEASE_SECOND - 1,
			   &back) == TOKEN_VALID && same_claims(claims, &back);
}

static bool
writes(const LeaseClaims *claims)
{
	char		token[TOKEN_SIZE] = "x";

	return token_write(token, claims, sample_key()) > 0 || token[0] != '\0';
}

/* The whole text of one token, so that no change of its form goes unseen. */
static void
form(void)
{
	static const char payload[] =
		"{\"iss\":\"https://vendor.example\",\"aud\":\"acme\","
		"\"sub\":\"Zo\303\253 @ \\\"host\\\\7\\\"\","
		"\"seat\":\"00000007-5a5a-8a5a-9a5a-5a5a5a5a5a5a\",\"slot\":7,"
		"\"iat\":1749999940,\"exp\":1750000060}";
	char		token[TOKEN_SIZE];
	char		forged[FORGED_SIZE];
	LeaseClaims claims;
	size_t		size;

	sample_claims(&claims);
	token_write(token, &claims, sample_key());
	size = forge(forged, sample_header(), strlen(sample_header()),
				 payload, strlen(payload), sample_key());
	ok(strlen(token) == size && memcmp(token, forged, size) == 0,
	   "token_write: header and payload are what they should be");

	claims.issuer[0] = '\0';
	ok(survives(&claims), "token_write: without an issuer");
}

static void
fill(char text[CLAIM_TEXT_MAX + 1], const char *bytes)
{
	size_t		step = strlen(bytes);

	text[0] = '\0';
	for (size_t size = 0; size + step <= CLAIM_TEXT_MAX; size += step)
		strcat(text, bytes);
}

static void
longest(void)
{
	static const char *const bytes[] = {
		"a", "\"", "\\", "\303\251", "\342\202\254", "\360\237\230\200", "/"
	};
	LeaseClaims claims;
	char		token[TOKEN_SIZE];

	sample_claims(&claims);
	for (size_t i = 0; i < COUNT(bytes); i++)
	{
		fill(claims.issuer, bytes[i]);
		fill(claims.license, bytes[i]);
		fill(claims.holder, bytes[i]);
		ok(survives(&claims), "token_write: longest texts of \"%s\"",
		   bytes[i]);
	}

	fill(claims.issuer, "\"");
	fill(claims.license, "\"");
	fill(claims.holder, "\"");
	claims.slot = SLOT_MAX;
	seat_id_make(claims.seat_id, claims.slot);
	claims.issued_at = claims.expires_at = INT64_C(253402300799);
	ok(survives(&claims), "token_write: the longest token is %zu bytes",
	   token_write(token, &claims, sample_key()));
}

static void
refused_claims(void)
{
	LeaseClaims good;
	LeaseClaims claims;

	sample_claims(&good);
#define REFUSED(change, what) \
	do { \
		claims = good; \
		change; \
		ok(!writes(&claims), "token_write: not " what); \
	} while (0)

	REFUSED(claims.license[0] = '\0', "an empty license");
	REFUSED(claims.holder[0] = '\0', "an empty holder");
	REFUSED(claims.issuer[3] = '\n', "a line feed in the issuer");
	REFUSED(claims.holder[1] = '\177', "a delete in the holder");
	REFUSED(claims.license[1] = '\377', "a license that is no UTF-8");
	REFUSED(memset(claims.holder, 'a', sizeof(claims.holder)),
			"a text without an end");
	REFUSED(claims.slot = 8, "another slot than the seat's");
	REFUSED(claims.slot = 0, "slot 0");
	REFUSED(claims.slot = 0; seat_id_make(claims.seat_id, 0),
			"slot 0 in the seat");
	REFUSED(claims.slot = -7, "a negative slot");
	REFUSED(claims.seat_id[6] = 0x4a, "a seat of version 4");
	REFUSED(claims.issued_at = 0, "1970");
	REFUSED(claims.issued_at = INT64_MIN, "the beginning of time");
	REFUSED(claims.issued_at = claims.expires_at + 1,
			"an end before its start");
	REFUSED(claims.expires_at = INT64_C(253402300800), "the year 10000");
	REFUSED(claims.expires_at = INT64_MAX, "the end of time");
	REFUSED(claims.expires_at = 0; claims.issued_at = 0, "times of 0");
#undef REFUSED

	claims = good;
	claims.issued_at = claims.expires_at = 1;
	ok(survives(&claims), "token_write: the first second there is");
}

static void
times(void)
{
	static const struct
	{
		int64_t		offset;
		TokenStatus status;
	}			cases[] =
	{
		{-LEASE_SECOND, TOKEN_VALID}, {-1, TOKEN_VALID},
		{0, TOKEN_EXPIRED}, {1, TOKEN_EXPIRED}, {LEASE_SECOND, TOKEN_EXPIRED},
	};
	char		token[TOKEN_SIZE];
	LeaseClaims claims;
	LeaseClaims back;
	int64_t		end;
	size_t		size;

	sample_claims(&claims);
	size = token_write(token, &claims, sample_key());
	end = claims.expires_at * LEASE_SECOND;
	for (size_t i = 0; i < COUNT(cases); i++)
		ok(verify(token, size, end + cases[i].offset, &back) ==
		   cases[i].status && same_claims(&claims, &back),
		   "token_verify: %s %d us from the end",
		   token_status_name(cases[i].status), (int) cases[i].offset);

	ok(verify(token, size, INT64_MIN, &back) == TOKEN_VALID &&
	   verify(token, size, INT64_MAX, &back) == TOKEN_EXPIRED,
	   "token_verify: at the ends of time");

	claims.expires_at = INT64_C(253402300799);
	size = token_write(token, &claims, sample_key());
	ok(verify(token, size, INT64_MAX, &back) == TOKEN_EXPIRED,
	   "token_verify: the latest end is before the end of time");
}

/* The server counts at least as long as any verifier accepts. */
static void
server_counts_longer(void)
{
	int			wrong = 0;

	for (int i = 0; i < 2000; i++)
	{
		char		token[TOKEN_SIZE];
		LeaseClaims claims;
		LeaseClaims back;
		int64_t		end;
		int64_t		at;
		size_t		size;

		sample_claims(&claims);
		end = lease_end(SAMPLE_NOW + random_number(1000000),
						1 + random_number(5000000), LEASE_FOREVER);
		claims.expires_at = end / LEASE_SECOND;
		size = token_write(token, &claims, sample_key());
		at = end + (int64_t) random_number(9) - 4;
		wrong += verify(token, size, at, &back) == TOKEN_VALID &&
			!lease_is_live(end, 0, at);
	}
	ok(wrong == 0, "token_verify: no token outlives its row");
}

static void
texts(void)
{
	static const struct
	{
		const char *text;
		bool		fit;
	}			cases[] =
	{
		{"a", true}, {" ", true}, {"~", true}, {"\303\251", true},
		{"\302\200", true}, {"\342\200\250", true}, {"\357\277\277", true},
		{"\360\220\200\200", true}, {"\364\217\277\277", true},
		{"", false}, {"\001", false}, {"\t", false}, {"a\n", false},
		{"\037", false}, {"\177", false}, {"\200", false}, {"a\303", false},
		{"\300\200", false}, {"\340\200\200", false}, {"\355\240\200", false},
		{"\364\220\200\200", false}, {"\370\210\200\200\200", false},
		{"\377", false},
	};
	char		text[CLAIM_TEXT_MAX + 1];

	for (size_t i = 0; i < COUNT(cases); i++)
		ok(claim_text_ok(cases[i].text, strlen(cases[i].text)) ==
		   cases[i].fit, "claim_text_ok: text %zu", i);

	ok(!claim_text_ok("a\0b", 3), "claim_text_ok: no zero inside");
	memset(text, 'a', sizeof(text));
	ok(claim_text_ok(text, CLAIM_TEXT_MAX), "claim_text_ok: longest");
	ok(!claim_text_ok(text, CLAIM_TEXT_MAX + 1), "claim_text_ok: too long");
}

static void
names(void)
{
	ok(strcmp(token_status_name(TOKEN_VALID), "valid") == 0 &&
	   strcmp(token_status_name(TOKEN_EXPIRED), "expired") == 0 &&
	   strcmp(token_status_name(TOKEN_MALFORMED), "malformed") == 0 &&
	   strcmp(token_status_name(TOKEN_UNKNOWN_KEY), "unknown_key") == 0 &&
	   strcmp(token_status_name(TOKEN_BAD_SIGNATURE), "bad_signature") == 0,
	   "token_status_name: all five");
	ok(strcmp(token_status_name((TokenStatus) 7), "malformed") == 0,
	   "token_status_name: any other number is not valid");
}

/* Two keys in the set, then one of them: what rotation looks like. */
static void
rotation(void)
{
	SigningKey	old;
	KeySet		set = *sample_set();
	uint8_t		seed[SEED_SIZE];
	char		token[TOKEN_SIZE];
	char		kid[KID_SIZE];
	const char *problem;
	LeaseClaims claims;
	size_t		size;

	random_bytes(seed, sizeof(seed));
	signing_key_init(&old, seed);
	sample_claims(&claims);
	size = token_write(token, &claims, &old);

	ok(token_verify(token, size, &set, SAMPLE_NOW, &claims, kid,
					&problem) == TOKEN_UNKNOWN_KEY &&
	   strcmp(kid, old.public.kid) == 0, "token_verify: key not in the set");
	keyset_add(&set, &old.public);
	ok(token_verify(token, size, &set, SAMPLE_NOW, &claims, kid,
					&problem) == TOKEN_VALID &&
	   strcmp(kid, old.public.kid) == 0, "token_verify: key in the set");

	/* The right name, another key's signature. */
	memcpy(old.header, sample_key()->header, sizeof(old.header));
	size = token_write(token, &claims, &old);
	ok(token_verify(token, size, &set, SAMPLE_NOW, &claims, kid,
					&problem) == TOKEN_BAD_SIGNATURE &&
	   strcmp(kid, sample_key()->public.kid) == 0,
	   "token_verify: signed by another key than it names");

	memset(&set, 0, sizeof(set));
	ok(token_verify(token, size, &set, SAMPLE_NOW, &claims, kid,
					&problem) == TOKEN_UNKNOWN_KEY,
	   "token_verify: no keys at all");
}

void
test_token(void)
{
	form();
	longest();
	refused_claims();
	times();
	server_counts_longer();
	texts();
	names();
	rotation();
}
