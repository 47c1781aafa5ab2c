/*
 * sample.c
 *		One key, one lease and what can be made of them.
 */
#include "test.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static SigningKey key;
static KeySet set;

const SigningKey *
sample_key(void)
{
	static const char seed_text[] =
		"nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
	uint8_t		seed[SEED_SIZE];

	if (set.count == 0)
	{
		if (!seed_decode(seed, seed_text, strlen(seed_text)))
			abort();
		signing_key_init(&key, seed);
		keyset_add(&set, &key.public);
	}
	return &key;
}

const KeySet *
sample_set(void)
{
	sample_key();
	return &set;
}

void
sample_claims(LeaseClaims *claims)
{
	memset(claims, 0, sizeof(*claims));
	strcpy(claims->issuer, "https://vendor.example");
	strcpy(claims->license, "acme");
	strcpy(claims->holder, "Zo\303\253 @ \"host\\7\"");
	memset(claims->seat_id, 0x5a, SEAT_ID_SIZE);
	claims->slot = 7;
	seat_id_make(claims->seat_id, claims->slot);
	claims->issued_at = SAMPLE_NOW / LEASE_SECOND - 60;
	claims->expires_at = SAMPLE_NOW / LEASE_SECOND + 60;
}

const char *
sample_header(void)
{
	return "{\"alg\":\"EdDSA\","
		"\"kid\":\"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k\","
		"\"typ\":\"keyright-lease+jwt\"}";
}

size_t
forge(char token[FORGED_SIZE], const void *header, size_t header_size,
	  const void *payload, size_t payload_size, const SigningKey *signer)
{
	uint8_t		signature[crypto_sign_BYTES];
	size_t		size;

	size = b64url_write(token, FORGED_SIZE, header, header_size);
	token[size++] = '.';
	size += b64url_write(token + size, FORGED_SIZE - size,
						 payload, payload_size);
	crypto_sign_detached(signature, NULL, (const unsigned char *) token,
						 size, signer->secret);
	token[size++] = '.';
	size += b64url_write(token + size, FORGED_SIZE - size,
						 signature, sizeof(signature));
	return size;
}

TokenStatus
verify(const char *token, size_t size, int64_t at, LeaseClaims *claims)
{
	char	   *copy = malloc(size > 0 ? size : 1);
	char		kid[KID_SIZE];
	const char *problem;
	TokenStatus status;

	if (copy == NULL)
		abort();
	memcpy(copy, token, size);
	status = token_verify(copy, size, sample_set(), at, claims, kid,
						  &problem);
	free(copy);

	/* What holds for every answer, whatever the token. */
	if ((status == TOKEN_VALID) != (problem == NULL) ||
		(strlen(kid) != 0 && strlen(kid) != KID_SIZE - 1) ||
		(status != TOKEN_VALID && status != TOKEN_EXPIRED &&
		 !sodium_is_zero((const uint8_t *) claims, sizeof(*claims))))
		abort();
	return status;
}

TokenStatus
verify_forged(const char *header, const char *payload)
{
	static const char usual[] =
		"{\"aud\":\"a\",\"sub\":\"s\","
		"\"seat\":\"00000001-0000-8000-8000-000000000000\",\"slot\":1,"
		"\"iat\":1750000000,\"exp\":1750000001}";
	char		token[FORGED_SIZE];
	LeaseClaims claims;
	size_t		size;

	if (header == NULL)
		header = sample_header();
	if (payload == NULL)
		payload = usual;
	size = forge(token, header, strlen(header), payload, strlen(payload),
				 sample_key());
	return verify(token, size, SAMPLE_NOW, &claims);
}

/*
 * A generator of our own (splitmix64): quick, and a run that failed can be
 * had again with the number that it printed.
 */
static uint64_t state;

void
random_start(void)
{
	const char *given = getenv("TEST_SEED");

	if (given != NULL)
		state = strtoull(given, NULL, 10);
	else
		randombytes_buf(&state, sizeof(state));
	printf("# TEST_SEED=%" PRIu64 "\n", state);
}

uint64_t
random_number(uint64_t limit)
{
	uint64_t	mixed = state += UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	mixed ^= mixed >> 31;
	return limit > 0 ? mixed % limit : mixed;
}

void
random_bytes(uint8_t *bytes, size_t size)
{
	while (size-- > 0)
		*bytes++ = (uint8_t) random_number(256);
}

int64_t
edgy_number(void)
{
	static const int64_t edges[] = {
		INT64_MIN, INT64_MIN / 2, INT64_MIN / LEASE_SECOND * LEASE_SECOND,
		-LEASE_SECOND, 0, LEASE_SECOND, SAMPLE_NOW,
		INT64_MAX / LEASE_SECOND * LEASE_SECOND, INT64_MAX / 2, INT64_MAX
	};
	uint64_t	number = random_number(0);

	switch (random_number(3))
	{
		case 0:
			return (int64_t) number;
		case 1:
			return (int64_t) (number >> (1 + random_number(63))) *
				(number & 1 ? 1 : -1);
		default:
			return (int64_t) ((uint64_t) edges[number % COUNT(edges)] +
							  random_number(7) - 3);
	}
}
