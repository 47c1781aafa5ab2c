/*
 * verify.c
 *		Tokens and keys without a server: the core, for applications.
 */
#include "internal.h"

#include <sodium.h>
#include <string.h>

/* The header's numbers are the core's. */
_Static_assert(KEYRIGHT_TEXT_MAX == CLAIM_TEXT_MAX, "longest text");
_Static_assert(KEYRIGHT_TOKEN_SIZE == TOKEN_SIZE, "longest token");
_Static_assert(sizeof(((KeyrightClaims *) 0)->kid) == KID_SIZE, "kid");
_Static_assert(sizeof(((KeyrightClaims *) 0)->seat_id) == SEAT_ID_TEXT_SIZE,
			   "seat id");
_Static_assert(sizeof(((KeyrightAnswer *) 0)->seat_id) == SEAT_ID_TEXT_SIZE,
			   "seat id of an answer");
_Static_assert(KEYRIGHT_SEED_TEXT_SIZE ==
			   sodium_base64_ENCODED_LEN(SEED_SIZE,
										 sodium_base64_VARIANT_ORIGINAL),
			   "seed");
_Static_assert((int) KEYRIGHT_TOKEN_VALID == (int) TOKEN_VALID &&
			   (int) KEYRIGHT_TOKEN_EXPIRED == (int) TOKEN_EXPIRED &&
			   (int) KEYRIGHT_TOKEN_MALFORMED == (int) TOKEN_MALFORMED &&
			   (int) KEYRIGHT_TOKEN_UNKNOWN_KEY == (int) TOKEN_UNKNOWN_KEY &&
			   (int) KEYRIGHT_TOKEN_BAD_SIGNATURE == (int) TOKEN_BAD_SIGNATURE,
			   "verdicts");

static void
copy_claims(KeyrightClaims *to, const LeaseClaims *from)
{
	text_copy(to->issuer, sizeof(to->issuer), from->issuer);
	text_copy(to->license, sizeof(to->license), from->license);
	text_copy(to->holder, sizeof(to->holder), from->holder);
	seat_id_print(to->seat_id, from->seat_id);
	to->slot = from->slot;
	to->issued_at = from->issued_at;
	to->expires_at = from->expires_at;
}

KeyrightVerdict
keyright_verify(const char *token, size_t token_size,
				const char *jwks, size_t jwks_size,
				int64_t at_us, KeyrightClaims *claims, const char **problem)
{
	KeySet		set;
	LeaseClaims lease;
	Clocks		now;
	KeyrightClaims unwanted_claims;
	const char *unwanted_problem;
	TokenStatus status;

	if (claims == NULL)
		claims = &unwanted_claims;
	if (problem == NULL)
		problem = &unwanted_problem;
	memset(claims, 0, sizeof(*claims));
	*problem = "the cryptographic library does not start";
	if (sodium_init() < 0 || !keyset_read(&set, jwks, jwks_size, problem))
		return KEYRIGHT_TOKEN_BAD_JWKS;
	if (at_us == KEYRIGHT_NOW)
	{
		clocks_read(&now);
		at_us = now.wall / 1000;
	}
	status = token_verify(token, token_size, &set, at_us, &lease,
						  claims->kid, problem);
	if (status == TOKEN_VALID || status == TOKEN_EXPIRED)
		copy_claims(claims, &lease);
	return (KeyrightVerdict) status;
}

const char *
keyright_verdict_name(KeyrightVerdict verdict)
{
	if (verdict == KEYRIGHT_TOKEN_BAD_JWKS)
		return "bad_jwks";
	return token_status_name((TokenStatus) verdict);
}

static void
write_public(const uint8_t seed[SEED_SIZE],
			 char jwks[KEYRIGHT_JWKS_TEXT_SIZE])
{
	SigningKey	key;
	KeySet		set = {.count = 0};
	char		text[KEYSET_TEXT_SIZE];

	signing_key_init(&key, seed);
	keyset_add(&set, &key.public);
	sodium_memzero(&key, sizeof(key));
	keyset_write(text, &set);
	text_copy(jwks, KEYRIGHT_JWKS_TEXT_SIZE, text);
}

KeyrightErrorKind
keyright_keygen(char seed[KEYRIGHT_SEED_TEXT_SIZE],
				char jwks[KEYRIGHT_JWKS_TEXT_SIZE])
{
	uint8_t		bytes[SEED_SIZE];

	if (sodium_init() < 0)
		return KEYRIGHT_ERR_SYSTEM;
	randombytes_buf(bytes, sizeof(bytes));
	sodium_bin2base64(seed, KEYRIGHT_SEED_TEXT_SIZE, bytes, sizeof(bytes),
					  sodium_base64_VARIANT_ORIGINAL);
	write_public(bytes, jwks);
	sodium_memzero(bytes, sizeof(bytes));
	return KEYRIGHT_OK;
}

KeyrightErrorKind
keyright_public(const char *seed, size_t seed_size,
				char jwks[KEYRIGHT_JWKS_TEXT_SIZE])
{
	uint8_t		bytes[SEED_SIZE];

	if (sodium_init() < 0)
		return KEYRIGHT_ERR_SYSTEM;
	if (!seed_decode(bytes, seed, seed_size))
		return KEYRIGHT_ERR_OPTIONS;
	write_public(bytes, jwks);
	sodium_memzero(bytes, sizeof(bytes));
	return KEYRIGHT_OK;
}
