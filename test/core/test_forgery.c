/*
 * test_forgery.c
 *		Texts that look like tokens.  Most are signed with the right key, so
 *		that it is not the signature that saves the day.
 */
#include "test.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define RFC_KID				"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
#define KID					"\"kid\":\"" RFC_KID "\""
#define TYP					"\"typ\":\"keyright-lease+jwt\""
#define ALG					"\"alg\":\"EdDSA\""
#define SEAT \
	"\"seat\":\"00000001-0000-8000-8000-000000000000\""

static void
headers(void)
{
	static const char *const malformed[] = {
		"", "{}", "[]", "null", "\"EdDSA\"",
		"{" ALG "," TYP "}", "{" ALG "," KID "}", "{" KID "," TYP "}",
		"{\"alg\":\"none\"," KID "," TYP "}",
		"{\"alg\":\"None\"," KID "," TYP "}",
		"{\"alg\":\"NONE\"," KID "," TYP "}",
		"{\"alg\":\"\"," KID "," TYP "}",
		"{\"alg\":\"HS256\"," KID "," TYP "}",
		"{\"alg\":\"ES256\"," KID "," TYP "}",
		"{\"alg\":\"Ed25519\"," KID "," TYP "}",
		"{\"alg\":\"eddsa\"," KID "," TYP "}",
		"{\"alg\":\"EdDSA \"," KID "," TYP "}",
		"{\"alg\":[\"EdDSA\"]," KID "," TYP "}",
		"{\"alg\":{\"EdDSA\":1}," KID "," TYP "}",
		"{\"alg\":null," KID "," TYP "}", "{\"alg\":1," KID "," TYP "}",
		"{\"Alg\":\"EdDSA\"," KID "," TYP "}",
		"{" ALG "," KID ",\"typ\":\"JWT\"}",
		"{" ALG "," KID ",\"typ\":\"KEYRIGHT-LEASE+JWT\"}",
		"{" ALG "," KID ",\"typ\":\"application/keyright-lease+jwt\"}",
		"{" ALG "," KID ",\"typ\":null}",
		"{" ALG ",\"kid\":null," TYP "}", "{" ALG ",\"kid\":0," TYP "}",
		"{" ALG ",\"kid\":[\"" RFC_KID "\"]," TYP "}",
		"{" ALG "," KID "," TYP ",\"jwk\":{\"kty\":\"OKP\"}}",
		"{" ALG "," KID "," TYP ",\"jwk\":\"x\"}",
		"{" ALG "," KID "," TYP ",\"jku\":\"file:///etc/passwd\"}",
		"{" ALG "," KID "," TYP ",\"x5u\":\"https://vendor.example/\"}",
		"{" ALG "," KID "," TYP ",\"x5c\":[\"AA\"]}",
		"{" ALG "," KID "," TYP ",\"crit\":[\"exp\"]}",
		"{" ALG "," KID "," TYP ",\"crit\":[]}",
		"{" ALG "," KID "," TYP ",\"b64\":false}",
		"{" ALG "," KID "," TYP ",\"zip\":\"DEF\"}",
		"{" ALG "," KID "," TYP ",\"cty\":\"JWT\"}",
		"{" ALG "," KID "," TYP ",\"\":\"\"}",
		"{" ALG "," KID "," TYP "," ALG "}",
		"{\"alg\":\"none\"," KID "," TYP "," ALG "}",
		"{" ALG "," KID "," TYP ",\"\\u0061lg\":\"EdDSA\"}",
		"{" ALG "," KID "," KID "," TYP "}",
		"{" ALG "," KID "," TYP ",}", "{" ALG "," KID "," TYP "}}",
		"{" ALG "," KID "," TYP "} {}", "{" ALG "," KID "," TYP,
		"[" ALG "," KID "," TYP "]", "{" ALG "," KID "," TYP "}\001",
		"\357\273\277{" ALG "," KID "," TYP "}",
	};
	static const char *const unknown[] = {
		"", "x", "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4",
		"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4l",
		"kprk_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
		RFC_KID "k", RFC_KID " ", (" " RFC_KID),
		"../../../../../../etc/passwd", "/dev/zero", "file:///dev/random",
		"' OR 1=1; --", "%s%n", "\\u00e9", "\\\"",
		"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
	};

	for (size_t i = 0; i < COUNT(malformed); i++)
		ok(verify_forged(malformed[i], NULL) == TOKEN_MALFORMED,
		   "token_verify: malformed header %zu", i);
	for (size_t i = 0; i < COUNT(unknown); i++)
	{
		char		header[256];

		snprintf(header, sizeof(header), "{" ALG ",\"kid\":\"%s\"," TYP "}",
				 unknown[i]);
		ok(verify_forged(header, NULL) == TOKEN_UNKNOWN_KEY,
		   "token_verify: unknown key %zu", i);
	}

	ok(verify_forged(NULL, NULL) == TOKEN_VALID,
	   "token_verify: the header that all of these are made from");
	ok(verify_forged(" {\n" TYP ",\"k\\u0069d\" : \"" RFC_KID "\"," ALG
					 "} ", NULL) == TOKEN_VALID,
	   "token_verify: the same header, spelled and signed in another way");
}

/* A payload with these last members, after three that are good. */
static TokenStatus
with(const char *members)
{
	char		payload[2 * TOKEN_SIZE];

	snprintf(payload, sizeof(payload),
			 "{\"aud\":\"a\",\"sub\":\"s\"," SEAT "%s}", members);
	return verify_forged(NULL, payload);
}

/* Both times have the same rules: each bad spelling in place of either. */
static void
bad_times(void)
{
	static const char *const spellings[] = {
		"null", "\"1750000001\"", "true", "false", "-1", "-0", "0", "1.5",
		"1750000001.0", "175000000.1e1", "1e19", "1e9", "1E9",
		"9007199254740993", "9223372036854775807", "9223372036854775808",
		"18446744073709551616", "18446744075459551617",
		"99999999999999999999999999999999999999999", "253402300800",
		"NaN", "Infinity", "-Infinity", "nan", "01750000001", "00",
		"+1750000001", " ", "", "0x684f0000", "1_750_000_001", "[]", "{}",
		"[1750000001]", "17500\\u00300001", "1750000001n",
	};

	for (size_t i = 0; i < COUNT(spellings); i++)
	{
		char		members[256];

		snprintf(members, sizeof(members),
				 ",\"slot\":1,\"iat\":1750000000,\"exp\":%s", spellings[i]);
		ok(with(members) == TOKEN_MALFORMED, "token_verify: exp of %s",
		   spellings[i]);
		snprintf(members, sizeof(members),
				 ",\"slot\":1,\"iat\":%s,\"exp\":1750000001", spellings[i]);
		ok(with(members) == TOKEN_MALFORMED, "token_verify: iat of %s",
		   spellings[i]);
	}
}

#define SLOT				",\"slot\":1"
#define IAT					",\"iat\":1750000000"
#define EXP					",\"exp\":1750000001"

static void
member_table(void)
{
	static const char *const bad[] = {
		"", SLOT IAT, SLOT EXP, IAT EXP, SLOT IAT EXP EXP,
		SLOT IAT EXP ",\"exp\":1750000002",
		SLOT IAT EXP ",\"e\\u0078p\":1750000002",
		SLOT IAT EXP ",\"aud\":\"b\"", SLOT SLOT IAT EXP,
		SLOT ",\"iat\":1750000002" EXP,
		",\"slot\":2" IAT EXP, ",\"slot\":0" IAT EXP, ",\"slot\":-1" IAT EXP,
		",\"slot\":1.0" IAT EXP, ",\"slot\":\"1\"" IAT EXP,
		",\"slot\":4294967297" IAT EXP, ",\"slot\":2147483648" IAT EXP,
		",\"slot\":01" IAT EXP, ",\"slot\":null" IAT EXP,
		SLOT IAT EXP ",\"iss\":\"\"", SLOT IAT EXP ",\"iss\":null",
		SLOT IAT EXP ",\"iss\":\"a\\u0000\"", SLOT IAT EXP ",\"iss\":\"\\n\"",
		SLOT IAT EXP ",\"iss\":\"\\u007f\"", SLOT IAT EXP ",\"iss\":[\"a\"]",
		SLOT IAT EXP ",\"nbf\":1", SLOT IAT EXP ",\"nbf\":null",
		SLOT IAT EXP ",\"x\":\"\377\"", SLOT IAT EXP ",\"x\":\"\\ud800\"",
		SLOT IAT EXP ",\"x\":\"\\u0000\"", SLOT IAT EXP ",\"x\":1,\"x\":2",
		SLOT IAT EXP ",\"x\":{\"y\":1,\"y\":2}", SLOT IAT EXP ",\"x\":01",
		SLOT IAT EXP ",\"x\":[[[[[[[[]]]]]]]]", SLOT IAT EXP ",",
		SLOT IAT EXP "}", SLOT IAT EXP "}{", SLOT IAT EXP "]",
		SLOT IAT EXP ",\"x\"", SLOT IAT EXP ",\"x\":",
	};
	static const char *const good[] = {
		SLOT IAT EXP, EXP IAT SLOT, SLOT ",\"iat\":1750000001" EXP,
		SLOT IAT EXP ",\"iss\":\"vendor\"", SLOT IAT EXP ",\"jti\":\"x\"",
		SLOT IAT EXP ",\"x\":[1,{\"y\":null,\"z\":[true]},-2.5e-7]",
		SLOT IAT EXP ",\"exp \":0,\"Exp\":0,\"\":0",
		SLOT IAT EXP ",\"x\":[[[[[[[]]]]]]]", SLOT IAT EXP " ",
	};

	for (size_t i = 0; i < COUNT(bad); i++)
		ok(with(bad[i]) == TOKEN_MALFORMED,
		   "token_verify: bad members %zu", i);
	for (size_t i = 0; i < COUNT(good); i++)
		ok(with(good[i]) == TOKEN_VALID, "token_verify: good members %zu", i);
}

static void
payloads(void)
{
#define REST				SLOT IAT EXP "}"
	static const char *const bad[] = {
		"", "{}", "[]", "null", "0", "{",
		"{\"sub\":\"s\"," SEAT REST, "{\"aud\":\"a\"," SEAT REST,
		"{\"aud\":\"a\",\"sub\":\"s\"" REST,
		"{\"aud\":\"\",\"sub\":\"s\"," SEAT REST,
		"{\"aud\":\"a\",\"sub\":\"\"," SEAT REST,
		"{\"aud\":[\"a\"],\"sub\":\"s\"," SEAT REST,
		"{\"aud\":null,\"sub\":\"s\"," SEAT REST,
		"{\"aud\":\"a\",\"sub\":\"\\t\"," SEAT REST,
		"{\"aud\":\"a\",\"sub\":\"\\u0000\"," SEAT REST,
		"{\"aud\":\"a\",\"sub\":1," SEAT REST,
		"{\"aud\":\"a\",\"sub\":\"s\",\"seat\":null" REST,
		"{\"aud\":\"a\",\"sub\":\"s\",\"seat\":\"\"" REST,
		"{\"aud\":\"a\",\"sub\":\"s\","
		"\"seat\":\"00000001-0000-4000-8000-000000000000\"" REST,
		"{\"aud\":\"a\",\"sub\":\"s\","
		"\"seat\":\"00000001-0000-8000-c000-000000000000\"" REST,
		"{\"aud\":\"a\",\"sub\":\"s\","
		"\"seat\":\"00000002-0000-8000-8000-000000000000\"" REST,
		"{\"aud\":\"a\",\"sub\":\"s\","
		"\"seat\":\"00000001-0000-8000-8000-00000000000A\"" REST,
		"{\"aud\":\"a\",\"sub\":\"s\","
		"\"seat\":\"00000001-0000-8000-8000-0000000000000\"" REST,
		"{\"aud\":\"a\",\"sub\":\"s\","
		"\"seat\":\"00000001000080008000000000000000\"" REST,
		"{\"aud\":\"a\",\"sub\":\"s\"," SEAT REST "\n.",
	};
	char		payload[1024];

	for (size_t i = 0; i < COUNT(bad); i++)
		ok(verify_forged(NULL, bad[i]) == TOKEN_MALFORMED,
		   "token_verify: bad payload %zu", i);
	ok(verify_forged(NULL, " \n{\"aud\":\"a\",\"sub\":\"\\u00e9\"," SEAT REST
					 "\n") == TOKEN_VALID,
	   "token_verify: the payload that all of these are made from");

	for (int size = CLAIM_TEXT_MAX; size <= CLAIM_TEXT_MAX + 1; size++)
	{
		snprintf(payload, sizeof(payload),
				 "{\"aud\":\"a\",\"sub\":\"%0*d\"," SEAT REST, size, 0);
		ok(verify_forged(NULL, payload) ==
		   (size == CLAIM_TEXT_MAX ? TOKEN_VALID : TOKEN_MALFORMED),
		   "token_verify: sub of %d bytes", size);
	}
#undef REST
}

/* A final zero is a byte like any other, and one too many. */
static void
final_zero(void)
{
	static const char payload[] =
		"{\"aud\":\"a\",\"sub\":\"s\"," SEAT SLOT IAT EXP "}";
	char		token[FORGED_SIZE];
	LeaseClaims claims;
	size_t		size;

	size = forge(token, sample_header(), strlen(sample_header()),
				 payload, sizeof(payload), sample_key());
	ok(verify(token, size, SAMPLE_NOW, &claims) == TOKEN_MALFORMED,
	   "token_verify: a zero after the payload");
	size = forge(token, sample_header(), strlen(sample_header()) + 1,
				 payload, strlen(payload), sample_key());
	ok(verify(token, size, SAMPLE_NOW, &claims) == TOKEN_MALFORMED,
	   "token_verify: a zero after the header");
}

/* A member that means nothing, so long that the token has just this size. */
static void
size_bound(void)
{
	for (size_t size = TOKEN_SIZE - 1; size <= TOKEN_SIZE + 1; size++)
	{
		char		payload[2 * TOKEN_SIZE];
		char		token[FORGED_SIZE];
		LeaseClaims claims;
		size_t		length = 0;
		int			pad = 2000;

		while (length < size)
		{
			snprintf(payload, sizeof(payload),
					 "{\"aud\":\"a\",\"sub\":\"s\"," SEAT SLOT IAT EXP
					 ",\"x\":\"%0*d\"}", ++pad, 0);
			length = forge(token, sample_header(), strlen(sample_header()),
						   payload, strlen(payload), sample_key());
		}
		ok(verify(token, length, SAMPLE_NOW, &claims) ==
		   (length < TOKEN_SIZE ? TOKEN_VALID : TOKEN_MALFORMED),
		   "token_verify: a token of %zu bytes", length);
	}
}

static void
huge(void)
{
	size_t		size = 1 << 20;
	char	   *text = malloc(size);
	LeaseClaims claims;

	if (text == NULL)
		abort();
	memset(text, 'A', size);
	ok(verify(text, size, 0, &claims) == TOKEN_MALFORMED, "1 MB");
	text[100] = text[200] = '.';
	ok(verify(text, size, 0, &claims) == TOKEN_MALFORMED, "1 MB signature");
	memset(text, '.', size);
	ok(verify(text, size, 0, &claims) == TOKEN_MALFORMED, "1 MB of dots");
	free(text);
}

/* Signed with what everybody has: the public key as the secret of an HMAC. */
static void
hs256(void)
{
	static const char header[] = "{\"alg\":\"HS256\"," KID "," TYP "}";
	char		token[FORGED_SIZE];
	LeaseClaims claims;
	uint8_t		mac[crypto_auth_hmacsha256_BYTES];
	size_t		size;

	size = forge(token, header, strlen(header), "{}", 2, sample_key());
	size -= 86;
	crypto_auth_hmacsha256(mac, (const uint8_t *) token, size - 1,
						   sample_key()->public.bytes);
	size += b64url_write(token + size, FORGED_SIZE - size, mac, sizeof(mac));
	ok(verify(token, size, SAMPLE_NOW, &claims) == TOKEN_MALFORMED,
	   "token_verify: HS256 with the public key");
}

static void
shapes(void)
{
	static const char *const bad[] = {
		"", ".", "..", "...", "a", "a.b", "a.b.c", "a.b.c.d", "a..c", ".b.",
		"e30.e30.", "e30.e30", "{}.{}.{}", "Bearer e30.e30.e30",
	};
	LeaseClaims claims;

	for (size_t i = 0; i < COUNT(bad); i++)
		ok(verify(bad[i], strlen(bad[i]), 0, &claims) == TOKEN_MALFORMED,
		   "token_verify: \"%s\" is no token", bad[i]);
}

/* One token that is valid, and everything that is one change away from it. */
static void
changes(void)
{
	char		token[TOKEN_SIZE];
	char		changed[TOKEN_SIZE + 1];
	LeaseClaims claims;
	int			accepted = 0;
	size_t		size;

	/* Short, because most of these texts cost the check of a signature. */
	sample_claims(&claims);
	claims.issuer[0] = '\0';
	strcpy(claims.holder, "h");
	size = token_write(token, &claims, sample_key());
	ok(verify(token, size, SAMPLE_NOW, &claims) == TOKEN_VALID,
	   "token_verify: the token that is changed now");

	memcpy(changed, token, size);
	for (size_t i = 0; i < size; i++)
	{
		for (int byte = 0; byte < 256; byte++)
		{
			changed[i] = (char) byte;
			accepted += changed[i] != token[i] &&
				verify(changed, size, SAMPLE_NOW, &claims) == TOKEN_VALID;
		}
		changed[i] = token[i];
	}
	ok(accepted == 0, "token_verify: none with another byte");

	for (size_t i = 0; i <= size; i++)
	{
		static const char extra[] = "A.=\n \t\r_-+/\"";

		memcpy(changed, token, i);
		memcpy(changed + i + 1, token + i, size - i);
		for (size_t j = 0; j < sizeof(extra); j++)
		{
			changed[i] = extra[j];
			accepted += verify(changed, size + 1, SAMPLE_NOW,
							   &claims) == TOKEN_VALID;
		}
	}
	ok(accepted == 0, "token_verify: none with one byte more");

	for (size_t i = 0; i < size; i++)
	{
		memcpy(changed, token, i);
		memcpy(changed + i, token + i + 1, size - i - 1);
		accepted += verify(changed, size - 1, SAMPLE_NOW,
						   &claims) == TOKEN_VALID;
		accepted += verify(token, i, SAMPLE_NOW, &claims) == TOKEN_VALID;
	}
	ok(accepted == 0, "token_verify: none with one byte less, none cut");
}

/* Signs the first two parts as they stand and puts the signature behind. */
static size_t
sign_text(char token[FORGED_SIZE], size_t size)
{
	uint8_t		signature[crypto_sign_BYTES];

	crypto_sign_detached(signature, NULL, (const uint8_t *) token, size,
						 sample_key()->secret);
	token[size++] = '.';
	return size + b64url_write(token + size, FORGED_SIZE - size,
							   signature, sizeof(signature));
}

/*
 * The other spellings of the last character of a part, and padding.  For the
 * payload they are signed as they stand, so only the decoder can refuse them.
 */
static void
spare_bits(void)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
		"abcdefghijklmnopqrstuvwxyz0123456789-_+/=";
	int			valid = 0;
	int			tried = 0;

	for (int pad = 1; pad <= 3; pad++)
	{
		char		token[FORGED_SIZE];
		char		holder[8] = "hhhhhh";
		LeaseClaims claims;
		size_t		size;
		size_t		cut;
		char		last;

		sample_claims(&claims);
		holder[pad] = '\0';
		strcpy(claims.holder, holder);
		size = token_write(token, &claims, sample_key());

		/* The signature: two characters that carry 4 spare bits. */
		last = token[size - 1];
		for (const char *c = alphabet; *c != '\0'; c++, tried++)
		{
			token[size - 1] = *c;
			valid += verify(token, size, SAMPLE_NOW, &claims) == TOKEN_VALID;
		}
		token[size - 1] = last;

		/* The payload. */
		cut = size - 87;
		last = token[cut - 1];
		for (const char *c = alphabet; *c != '\0'; c++, tried++)
		{
			LeaseClaims back;
			TokenStatus status;

			token[cut - 1] = *c;
			size = sign_text(token, cut);
			status = verify(token, size, SAMPLE_NOW, &back);
			valid += status == TOKEN_VALID;
			if (status != TOKEN_VALID && status != TOKEN_MALFORMED)
				valid += 1000;
		}
		token[cut - 1] = last;
		token[cut] = '=';
		size = sign_text(token, cut + 1);
		valid += 1000 * (verify(token, size, SAMPLE_NOW,
								&claims) != TOKEN_MALFORMED);
	}

	/* Three signatures and three payloads, each in its one spelling. */
	ok(valid == 6, "token_verify: one spelling (%d of %d)", valid, tried);
}

/* S and S + L are the same number to a careless verifier. */
static void
malleable(void)
{
	static const uint8_t order[32] = {
		0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
		0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0x10
	};
	char		token[FORGED_SIZE];
	char		signature[crypto_sign_BYTES + 1];
	LeaseClaims claims;
	size_t		size;
	size_t		decoded;

	sample_claims(&claims);
	size = token_write(token, &claims, sample_key());
	if (!b64url_read(signature, sizeof(signature), &decoded,
					 token + size - 86, 86))
		abort();
	sodium_add((uint8_t *) signature + 32, order, sizeof(order));
	b64url_write(token + size - 86, 87, signature, decoded);
	ok(verify(token, size, SAMPLE_NOW, &claims) == TOKEN_BAD_SIGNATURE,
	   "token_verify: no second signature for the same claims");
}

void
test_forgery(void)
{
	headers();
	bad_times();
	member_table();
	payloads();
	final_zero();
	size_bound();
	huge();
	hs256();
	shapes();
	changes();
	spare_bits();
	malleable();
}
