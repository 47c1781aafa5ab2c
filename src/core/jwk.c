/*
 * jwk.c
 *		Keys and their public form (RFC 7517, RFC 7638, RFC 8037).
 *
 * A key's name (kid) is its RFC 7638 thumbprint, always computed here and
 * never believed: two keys cannot share a name, and no document can give the
 * name of one key to another.
 *
 * Every PublicKey was made by public_key_init(), so whoever holds one may
 * verify under it.
 */
#include "core.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define KID_LENGTH			(KID_SIZE - 1)

/* ----- base64url ----- */

size_t
b64url_write(char *out, size_t room, const void *data, size_t size)
{
	sodium_bin2base64(out, room, data, size,
					  sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	return strlen(out);
}

/*
 * libsodium refuses padding, foreign characters and spare bits that are set.
 * One sentence says all of that, "encoding it again gives the same text", so
 * that is what is checked as well, whatever libsodium accepts.
 */
bool
b64url_read(char *out, size_t room, size_t *size,
			const char *text, size_t text_size)
{
	char		again[TOKEN_SIZE];
	bool		same;

	if (text_size >= sizeof(again) ||
		sodium_base642bin((unsigned char *) out, room - 1, text, text_size,
						  NULL, size, NULL,
						  sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0)
		return false;

	out[*size] = '\0';
	same = b64url_write(again, sizeof(again), out, *size) == text_size &&
		memcmp(again, text, text_size) == 0;
	sodium_memzero(again, sizeof(again));
	return same;
}

/* ----- one key ----- */

static bool
is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool
seed_decode(uint8_t seed[SEED_SIZE], const char *text, size_t size)
{
	size_t		length = 0;

	while (size > 0 && is_space(text[size - 1]))
		size--;
	while (size > 0 && is_space(*text))
	{
		text++;
		size--;
	}

	/* Spare bits and missing padding are refused by libsodium. */
	return sodium_base642bin(seed, SEED_SIZE, text, size, NULL, &length, NULL,
							 sodium_base64_VARIANT_ORIGINAL) == 0 &&
		length == SEED_SIZE && !sodium_is_zero(seed, SEED_SIZE);
}

/* The thumbprint: the required members alone, in the order of their names. */
static void
name_key(PublicKey *key)
{
	char		x[KID_SIZE];
	char		text[128];
	uint8_t		hash[crypto_hash_sha256_BYTES];
	int			length;

	b64url_write(x, sizeof(x), key->bytes, PUBLIC_KEY_SIZE);
	length = snprintf(text, sizeof(text),
					  "{\"crv\":\"Ed25519\",\"kty\":\"OKP\",\"x\":\"%s\"}",
					  x);
	crypto_hash_sha256(hash, (const unsigned char *) text,
					   (unsigned long long) length);
	b64url_write(key->kid, sizeof(key->kid), hash, sizeof(hash));
}

/*
 * libsodium's test asks for a canonical encoding of a point on the curve, not
 * of small order, in the prime order subgroup.  The first three are needed:
 * under a point of small order anybody can sign anything.  The last is more
 * than is needed (a point with a small component has a secret all the same)
 * and some versions of libsodium let a few such points pass; since no honest
 * key lies outside the subgroup, nothing depends on it either way.
 */
bool
public_key_init(PublicKey *key, const uint8_t bytes[PUBLIC_KEY_SIZE])
{
	memset(key, 0, sizeof(*key));
	if (crypto_core_ed25519_is_valid_point(bytes) != 1)
		return false;

	memcpy(key->bytes, bytes, PUBLIC_KEY_SIZE);
	name_key(key);
	return true;
}

bool
public_key_decode(PublicKey *key, const char *x, size_t size)
{
	char		bytes[PUBLIC_KEY_SIZE + 1];
	size_t		length = 0;

	memset(key, 0, sizeof(*key));
	return b64url_read(bytes, sizeof(bytes), &length, x, size) &&
		length == PUBLIC_KEY_SIZE &&
		public_key_init(key, (const uint8_t *) bytes);
}

/*
 * The header of every token under this key is the same: encoded once, here.
 * A seed's own public key needs no test.  It is the base point times a number
 * between 2^254 and 2^255 that 8 divides, and no such number is a multiple of
 * the subgroup's order: so it lies in the subgroup and is not the identity.
 */
void
signing_key_init(SigningKey *key, const uint8_t seed[SEED_SIZE])
{
	char		header[TOKEN_HEADER_SIZE];
	int			length;

	memset(key, 0, sizeof(*key));
	crypto_sign_seed_keypair(key->public.bytes, key->secret, seed);
	name_key(&key->public);

	length = snprintf(header, sizeof(header), "{\"alg\":\"EdDSA\","
					  "\"kid\":\"%s\",\"typ\":\"keyright-lease+jwt\"}",
					  key->public.kid);
	b64url_write(key->header, sizeof(key->header), header, (size_t) length);
}

/* ----- sets of keys ----- */

bool
keyset_add(KeySet *set, const PublicKey *key)
{
	if (keyset_find(set, key->kid, KID_LENGTH) != NULL)
		return true;
	if (set->count == KEYSET_MAX)
		return false;

	set->keys[set->count++] = *key;
	return true;
}

const PublicKey *
keyset_find(const KeySet *set, const char *kid, size_t size)
{
	if (size != KID_LENGTH)
		return NULL;

	for (int i = 0; i < set->count; i++)
	{
		if (memcmp(set->keys[i].kid, kid, KID_LENGTH) == 0)
			return &set->keys[i];
	}
	return NULL;
}

size_t
keyset_write(char text[KEYSET_TEXT_SIZE], const KeySet *set)
{
	size_t		length = 0;

	length += (size_t) snprintf(text, KEYSET_TEXT_SIZE, "{\"keys\":[");
	for (int i = 0; i < set->count; i++)
	{
		const PublicKey *key = &set->keys[i];
		char		x[KID_SIZE];

		b64url_write(x, sizeof(x), key->bytes, PUBLIC_KEY_SIZE);
		length += (size_t) snprintf(text + length, KEYSET_TEXT_SIZE - length,
									"%s{\"kty\":\"OKP\",\"crv\":\"Ed25519\","
									"\"use\":\"sig\",\"alg\":\"EdDSA\","
									"\"kid\":\"%s\",\"x\":\"%s\"}",
									i > 0 ? "," : "", key->kid, x);
	}
	length += (size_t) snprintf(text + length, KEYSET_TEXT_SIZE - length,
								"]}");
	return length;
}

/* ----- reading a JWK Set ----- */

/* Takes a value and says whether it is this word; another kind is not. */
static bool
value_is(JsonReader *reader, const char *word)
{
	JsonText	text;

	if (jread_peek(reader) != '"')
	{
		jread_skip(reader);
		return false;
	}
	return jread_string(reader, &text) && jtext_is(text, word);
}

static bool
value_is_key(JsonReader *reader, PublicKey *key)
{
	JsonText	text;
	char		x[KID_SIZE];
	size_t		size;

	if (jread_peek(reader) != '"')
	{
		jread_skip(reader);
		return false;
	}
	return jread_string(reader, &text) &&
		jtext_copy(x, sizeof(x), &size, text) &&
		public_key_decode(key, x, size);
}

static bool
value_has_verify(JsonReader *reader)
{
	bool		found = false;

	if (jread_peek(reader) != '[')
	{
		jread_skip(reader);
		return false;
	}
	jread_array(reader);
	while (jread_element(reader))
		found |= value_is(reader, "verify");
	return found;
}

/*
 * Reads one JWK; true when it is a key to verify with.  A "d" makes it a
 * private key: whoever publishes that has no key left to trust.
 */
static bool
read_key(JsonReader *reader, PublicKey *key)
{
	bool		kty = false;
	bool		crv = false;
	bool		x = false;
	bool		usable = true;
	JsonText	name;

	jread_object(reader);
	while (jread_member(reader, &name))
	{
		if (jtext_is(name, "kty"))
			kty = value_is(reader, "OKP");
		else if (jtext_is(name, "crv"))
			crv = value_is(reader, "Ed25519");
		else if (jtext_is(name, "x"))
			x = value_is_key(reader, key);
		else if (jtext_is(name, "use"))
			usable &= value_is(reader, "sig");
		else if (jtext_is(name, "alg"))
			usable &= value_is(reader, "EdDSA");
		else if (jtext_is(name, "key_ops"))
			usable &= value_has_verify(reader);
		else
		{
			usable &= !jtext_is(name, "d");
			jread_skip(reader);
		}
	}
	return !reader->failed && kty && crv && x && usable;
}

/* The value of "keys"; false when there are too many. */
static bool
read_keys(JsonReader *reader, KeySet *set)
{
	PublicKey	key;

	jread_array(reader);
	while (jread_element(reader))
	{
		if (read_key(reader, &key) && !keyset_add(set, &key))
			return false;
	}
	return true;
}

/* Says what was wrong, NULL if nothing was. */
static const char *
read_set(KeySet *set, const char *json, size_t size)
{
	JsonReader	reader;
	JsonText	name;
	bool		found = false;

	if (size > KEYSET_SOURCE_MAX)
		return "it is longer than 65536 bytes";

	jread_open(&reader, json, size);
	jread_object(&reader);
	while (jread_member(&reader, &name))
	{
		if (!jtext_is(name, "keys"))
			jread_skip(&reader);
		else if (!read_keys(&reader, set))
			return "it has more than 16 usable keys";
		else
			found = true;
	}

	if (!jread_at_end(&reader))
		return "it is not valid JSON or not an object with an array "
			"\"keys\" of objects";
	return found ? NULL : "it has no \"keys\"";
}

bool
keyset_read(KeySet *set, const char *json, size_t size, const char **problem)
{
	memset(set, 0, sizeof(*set));
	*problem = read_set(set, json, size);
	if (*problem != NULL)
		memset(set, 0, sizeof(*set));
	return *problem == NULL;
}
