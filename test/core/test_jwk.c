/*
 * test_jwk.c
 *		Seeds, public keys and base64url, with the example of RFC 8037.
 */
#include "test.h"

#include <sodium.h>
#include <string.h>

#define RFC_X				"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
#define RFC_KID				"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
#define ZEROS_X				"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

/* RFC 8037, appendix A.1 to A.5: key, thumbprint, signature, validation. */
static void
rfc_8037(void)
{
	static const char input[] =
		"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
	static const char expected[] =
		"hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5B"
		"hVsPt9g7sVvpAr_MuM0KAg";
	const SigningKey *key = sample_key();
	uint8_t		signature[crypto_sign_BYTES];
	char		text[128];
	char		made[128];
	size_t		size;

	b64url_write(text, sizeof(text), key->public.bytes, PUBLIC_KEY_SIZE);
	ok(strcmp(text, RFC_X) == 0, "RFC 8037 A.1 and A.2: the public key");
	ok(strcmp(key->public.kid, RFC_KID) == 0, "RFC 8037 A.3: the thumbprint");

	size = b64url_write(made, sizeof(made), "{\"alg\":\"EdDSA\"}", 15);
	made[size++] = '.';
	b64url_write(made + size, sizeof(made) - size,
				 "Example of Ed25519 signing", 26);
	ok(strcmp(made, input) == 0, "RFC 8037 A.4: the signing input");

	crypto_sign_detached(signature, NULL, (const uint8_t *) made,
						 strlen(made), key->secret);
	b64url_write(text, sizeof(text), signature, sizeof(signature));
	ok(strcmp(text, expected) == 0, "RFC 8037 A.4: the signature");

	ok(b64url_read(text, sizeof(text), &size, expected, strlen(expected)) &&
	   size == crypto_sign_BYTES &&
	   crypto_sign_verify_detached((const uint8_t *) text,
								   (const uint8_t *) input, strlen(input),
								   key->public.bytes) == 0,
	   "RFC 8037 A.5: the validation");
}

/* RFC 7638: the hash of the required members, sorted, without space. */
static void
thumbprint(void)
{
	char		text[] = "{\"crv\":\"Ed25519\",\"kty\":\"OKP\","
		"\"x\":\"" RFC_X "\"}";
	uint8_t		hash[crypto_hash_sha256_BYTES];
	char		kid[KID_SIZE];
	PublicKey	key;

	crypto_hash_sha256(hash, (const uint8_t *) text, strlen(text));
	b64url_write(kid, sizeof(kid), hash, sizeof(hash));
	ok(public_key_decode(&key, RFC_X, strlen(RFC_X)) &&
	   strcmp(key.kid, kid) == 0, "RFC 7638: the rule of the thumbprint");
}

static bool
seed_ok(const char *text, size_t size)
{
	uint8_t		seed[SEED_SIZE];

	return seed_decode(seed, text, size);
}

static void
seeds(void)
{
#define SEED				"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="
	static const char *const good[] = {
		SEED, SEED "\n", SEED "\r\n", " \t\r\n" SEED " \t\r\n",
		"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=",
	};
	static const char *const bad[] = {
		"", " ", "\n", "=", ZEROS_X "=",
		"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
		"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2B=",
		"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A==",
		"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=",
		"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZ\ncDusAxyuf2A=",
		"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyufw==",
		"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2Ch",
		"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
		SEED "x", SEED SEED, "\v" SEED, "\302\240" SEED, "\"" SEED "\"",
	};
	uint8_t		seed[SEED_SIZE];

	for (size_t i = 0; i < COUNT(good); i++)
		ok(seed_ok(good[i], strlen(good[i])), "seed_decode: good %zu", i);
	for (size_t i = 0; i < COUNT(bad); i++)
		ok(!seed_ok(bad[i], strlen(bad[i])), "seed_decode: bad %zu", i);
	ok(!seed_ok(SEED, strlen(SEED) + 1), "seed_decode: no zero at the end");
	ok(seed_decode(seed, SEED, strlen(SEED)) &&
	   memcmp(seed, sample_key()->secret, SEED_SIZE) == 0,
	   "seed_decode: the bytes of the seed");
}

/* Every point whose order divides 8, in every encoding. */
static const char *const small_points[] = {
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"0000000000000000000000000000000000000000000000000000000000000080",
	"0100000000000000000000000000000000000000000000000000000000000080",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
};

static void
bytes_of(uint8_t bytes[PUBLIC_KEY_SIZE], const char *hex)
{
	sodium_hex2bin(bytes, PUBLIC_KEY_SIZE, hex, strlen(hex),
				   NULL, NULL, NULL);
}

static void
points(void)
{
	uint8_t		bytes[PUBLIC_KEY_SIZE];
	PublicKey	key;
	int			off = 0;

	for (size_t i = 0; i < COUNT(small_points); i++)
	{
		bytes_of(bytes, small_points[i]);
		ok(!public_key_init(&key, bytes) && key.kid[0] == '\0',
		   "public_key_init: not the small point %zu", i);
	}

	/* p + 3, 2^255 - 1: y coordinates that are not reduced. */
	bytes_of(bytes, "f0ffffffffffffffffffffffffffffffffffffffffffffffffffffff"
			 "ffffff7f");
	ok(!public_key_init(&key, bytes), "public_key_init: y is p + 3");
	memset(bytes, 0xff, sizeof(bytes));
	ok(!public_key_init(&key, bytes), "public_key_init: all ones");

	/* About half of all numbers are no y of a point of the curve. */
	for (int i = 0; i < 64; i++)
	{
		memset(bytes, 0, sizeof(bytes));
		bytes[0] = (uint8_t) (i + 2);
		off += !public_key_init(&key, bytes);
	}
	ok(off >= 16, "public_key_init: %d of 64 are no proper points", off);
}

static void
honest_keys(void)
{
	int			wrong = 0;

	for (int i = 0; i < 64; i++)
	{
		SigningKey	signer;
		PublicKey	key;
		uint8_t		seed[SEED_SIZE];

		random_bytes(seed, sizeof(seed));
		signing_key_init(&signer, seed);
		wrong += !public_key_init(&key, signer.public.bytes) ||
			memcmp(&key, &signer.public, sizeof(key)) != 0;
	}
	ok(wrong == 0, "public_key_init: takes the key of every seed");
}

/* An honest key moved by a point of order 8 lies outside the subgroup. */
static void
mixed_order(void)
{
	uint8_t		small[PUBLIC_KEY_SIZE];
	uint8_t		mixed[PUBLIC_KEY_SIZE];
	PublicKey	key;

	bytes_of(small, small_points[2]);
	ok(crypto_core_ed25519_add(mixed, sample_key()->public.bytes,
							   small) == 0 &&
	   !public_key_init(&key, mixed),
	   "public_key_init: not outside the prime order subgroup");
}

static void
decoding(void)
{
	static const char *const bad[] = {
		"", ZEROS_X, RFC_X "=", RFC_X "A", " " RFC_X, RFC_X "\n",
		"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURp",
		"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo",
		"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHUQ",
		"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURoA",
	};
	PublicKey	key;

	ok(public_key_decode(&key, RFC_X, strlen(RFC_X)) &&
	   memcmp(&key, &sample_key()->public, sizeof(key)) == 0,
	   "public_key_decode: the example");
	for (size_t i = 0; i < COUNT(bad); i++)
		ok(!public_key_decode(&key, bad[i], strlen(bad[i])),
		   "public_key_decode: bad %zu", i);
}

/* All short texts: what reads is exactly what can be written. */
static void
base64url(void)
{
	static const char some[] = "ABQgwz019-_=+/. \n";
	char		text[5];
	char		out[8];
	char		back[8];
	char		tight[3];
	size_t		size;
	int			wrong = 0;
	int			read = 0;

	for (size_t i = 0; i < 17 * 17 * 17 * 17; i++)
	{
		size_t		length = i % 5;
		size_t		rest = i;

		for (size_t j = 0; j < length; j++, rest /= 17)
			text[j] = some[rest % 17];
		if (!b64url_read(out, sizeof(out), &size, text, length))
			continue;
		read++;
		wrong += b64url_write(back, sizeof(back), out, size) != length ||
			memcmp(back, text, length) != 0;
	}
	ok(read > 1000 && wrong == 0, "b64url_read: one spelling (%d read)",
	   read);

	ok(b64url_read(tight, sizeof(tight), &size, "YWI", 3) && size == 2 &&
	   strcmp(tight, "ab") == 0, "b64url_read: fills the room");
	ok(!b64url_read(tight, sizeof(tight), &size, "YWJj", 4),
	   "b64url_read: not beyond the room");
}

static void
base64url_size(void)
{
	static char out[2 * TOKEN_SIZE];
	static char text[2 * TOKEN_SIZE];
	size_t		size;

	memset(text, 'A', sizeof(text));
	ok(b64url_read(out, sizeof(out), &size, text, TOKEN_SIZE - 1) &&
	   size == TOKEN_SIZE / 4 * 3 - 1, "b64url_read: longest text");
	ok(!b64url_read(out, sizeof(out), &size, text, TOKEN_SIZE),
	   "b64url_read: one character more");
	ok(!b64url_read(out, sizeof(out), &size, text, sizeof(text)),
	   "b64url_read: far more");
}

void
test_jwk(void)
{
	rfc_8037();
	thumbprint();
	seeds();
	points();
	honest_keys();
	mixed_order();
	decoding();
	base64url();
	base64url_size();
}
