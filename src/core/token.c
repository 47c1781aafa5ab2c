/*
 * token.c
 *		The signed form of a lease: a JWS in compact form (RFC 7515, RFC 7519,
 *		RFC 8037) that any JWT library can verify.
 *
 * The verifier is for tokens of our own making and believes nothing else.
 * Its invariants:
 *
 * - Algorithm, type and keys are fixed by the caller and this file; a header
 *   names one of the caller's keys and has no other say.
 * - Nothing of the payload is read before the signature over it was good.
 * - A token has one spelling: whoever changes a byte of one that verifies has
 *   a text that does not.
 * - What token_verify() would refuse, token_write() does not sign.
 *
 * A payload holds the seat id, and that is the proof of holding the seat: the
 * decoded copies are wiped.
 */
#include "core.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/* 9999-12-31 23:59:59 UTC: later than that is an accident or an attack. */
#define TIME_MAX			INT64_C(253402300799)

#define SIGNATURE_SIZE		crypto_sign_BYTES

/* What a part of a token can hold at most once decoded, and a final zero. */
#define PART_SIZE			(TOKEN_SIZE / 4 * 3 + 1)

/* ----- claims ----- */

bool
claim_text_ok(const char *text, size_t size)
{
	const char *end = text + size;

	if (size < 1 || size > CLAIM_TEXT_MAX)
		return false;

	while (text < end)
	{
		uint32_t	code;
		size_t		length = utf8_decode(&code, text, (size_t) (end - text));

		if (length == 0 || code < 0x20 || code == 0x7f)
			return false;
		text += length;
	}
	return true;
}

static bool
field_ok(const char field[CLAIM_TEXT_MAX + 1])
{
	return claim_text_ok(field, strnlen(field, CLAIM_TEXT_MAX + 1));
}

/* Says which claim is not as it should be, NULL if all are. */
static const char *
claims_problem(const LeaseClaims *claims)
{
	if (claims->issuer[0] != '\0' && !field_ok(claims->issuer))
		return "its \"iss\" is no proper text";
	if (!field_ok(claims->license))
		return "its \"aud\" is no proper text";
	if (!field_ok(claims->holder))
		return "its \"sub\" is no proper text";
	if (claims->slot < 1 || seat_id_slot(claims->seat_id) != claims->slot)
		return "its \"seat\" does not belong to its \"slot\"";
	if (claims->issued_at < 1 || claims->issued_at > TIME_MAX)
		return "its \"iat\" is out of range";
	if (claims->expires_at < 1 || claims->expires_at > TIME_MAX)
		return "its \"exp\" is out of range";
	if (claims->issued_at > claims->expires_at)
		return "its \"exp\" is before its \"iat\"";
	return NULL;
}

/* ----- writing ----- */

/*
 * Three texts of CLAIM_TEXT_MAX bytes, each escaped byte by byte, and less
 * than 256 bytes around them: that always fits, so nobody counts.
 */
#define PAYLOAD_MAX			(3 * 2 * CLAIM_TEXT_MAX + 256)

static char *
put(char *to, const char *text)
{
	size_t		length = strlen(text);

	memcpy(to, text, length);
	return to + length;
}

/* A member and a comma; only quote and backslash need an escape. */
static char *
put_text(char *to, const char *name, const char *text)
{
	to = put(to, name);
	*to++ = '"';
	for (; *text != '\0'; text++)
	{
		if (*text == '"' || *text == '\\')
			*to++ = '\\';
		*to++ = *text;
	}
	return put(to, "\",");
}

static size_t
write_payload(char payload[PAYLOAD_MAX], const LeaseClaims *claims)
{
	char		seat[SEAT_ID_TEXT_SIZE];
	char		numbers[80];
	char	   *to = put(payload, "{");

	if (claims->issuer[0] != '\0')
		to = put_text(to, "\"iss\":", claims->issuer);
	to = put_text(to, "\"aud\":", claims->license);
	to = put_text(to, "\"sub\":", claims->holder);
	seat_id_print(seat, claims->seat_id);
	to = put_text(to, "\"seat\":", seat);
	snprintf(numbers, sizeof(numbers),
			 "\"slot\":%" PRId32 ",\"iat\":%" PRId64 ",\"exp\":%" PRId64 "}",
			 claims->slot, claims->issued_at, claims->expires_at);
	to = put(to, numbers);

	sodium_memzero(seat, sizeof(seat));
	return (size_t) (to - payload);
}

size_t
token_write(char token[TOKEN_SIZE], const LeaseClaims *claims,
			const SigningKey *key)
{
	char		payload[PAYLOAD_MAX];
	uint8_t		signature[SIGNATURE_SIZE];
	char	   *to = token;
	size_t		length;

	*token = '\0';
	if (claims_problem(claims) != NULL)
		return 0;

	length = write_payload(payload, claims);
	to = put(to, key->header);
	*to++ = '.';
	to += b64url_write(to, TOKEN_SIZE - (size_t) (to - token),
					   payload, length);
	sodium_memzero(payload, sizeof(payload));

	crypto_sign_detached(signature, NULL, (const unsigned char *) token,
						 (unsigned long long) (to - token), key->secret);
	*to++ = '.';
	to += b64url_write(to, TOKEN_SIZE - (size_t) (to - token),
					   signature, sizeof(signature));
	return (size_t) (to - token);
}

/* ----- verifying: the parts of a token ----- */

typedef struct Part
{
	const char *at;
	size_t		size;
} Part;

/* Header, payload and signature; false unless there are exactly three. */
static bool
split(Part parts[3], const char *token, size_t size)
{
	const char *end = token + size;

	for (int i = 0; i < 3; i++)
	{
		const char *dot = memchr(token, '.', (size_t) (end - token));

		if ((dot == NULL) != (i == 2))
			return false;
		parts[i].at = token;
		parts[i].size = (size_t) ((dot != NULL ? dot : end) - token);
		token = dot != NULL ? dot + 1 : end;
	}
	return true;
}

/*
 * The kid is handed on only in the form of a thumbprint, so that a caller may
 * print it.  Any other is simply the name of a key that no set has.
 */
static void
copy_kid(char kid[KID_SIZE], JsonText text)
{
	char		hash[crypto_hash_sha256_BYTES + 1];
	size_t		size;
	size_t		hash_size;

	if (!jtext_copy(kid, KID_SIZE, &size, text) ||
		!b64url_read(hash, sizeof(hash), &hash_size, kid, size) ||
		hash_size != crypto_hash_sha256_BYTES)
		kid[0] = '\0';
}

/*
 * Exactly the three members that token_write() gives.  Everything else that
 * RFC 7515 knows either names a key of the sender's choice (jwk, jku, x5u,
 * x5c) or asks for something that is not done here (crit, b64, zip).
 */
static const char *
read_header(char kid[KID_SIZE], const char *json, size_t size)
{
	JsonReader	reader;
	JsonText	name;
	JsonText	value;
	bool		alg = false;
	bool		typ = false;
	bool		named = false;

	jread_open(&reader, json, size);
	jread_object(&reader);
	while (jread_member(&reader, &name) && jread_string(&reader, &value))
	{
		if (jtext_is(name, "alg"))
			alg = jtext_is(value, "EdDSA");
		else if (jtext_is(name, "typ"))
			typ = jtext_is(value, "keyright-lease+jwt");
		else if (jtext_is(name, "kid"))
		{
			copy_kid(kid, value);
			named = true;
		}
		else
			return "its header has a member other than "
				"\"alg\", \"kid\" and \"typ\"";
	}

	if (!jread_at_end(&reader))
		return "its header is not an object of strings in valid JSON";
	if (!alg)
		return "its \"alg\" is not \"EdDSA\"";
	if (!typ)
		return "its \"typ\" is not \"keyright-lease+jwt\"";
	return named ? NULL : "its header has no \"kid\"";
}

static TokenStatus
check_signature(const Part *signed_part, const Part *signature,
				const PublicKey *key, const char **problem)
{
	char		bytes[SIGNATURE_SIZE + 1];
	size_t		size;

	if (!b64url_read(bytes, sizeof(bytes), &size,
					 signature->at, signature->size) ||
		size != SIGNATURE_SIZE)
	{
		*problem = "its signature is not 64 bytes in base64url";
		return TOKEN_MALFORMED;
	}
	if (crypto_sign_verify_detached((const unsigned char *) bytes,
									(const unsigned char *) signed_part->at,
									signed_part->size, key->bytes) != 0)
	{
		*problem = "its signature is not that of the key that it names";
		return TOKEN_BAD_SIGNATURE;
	}
	return TOKEN_VALID;
}

/* ----- verifying: the payload ----- */

/* The members with a meaning; a token has to have those before MEMBER_ISS. */
enum
{
	MEMBER_AUD,
	MEMBER_SUB,
	MEMBER_SEAT,
	MEMBER_SLOT,
	MEMBER_IAT,
	MEMBER_EXP,
	MEMBER_ISS,
	MEMBER_NBF,
	MEMBERS
};

static const char *const member_names[MEMBERS] = {
	"aud", "sub", "seat", "slot", "iat", "exp", "iss", "nbf"
};

#define REQUIRED_MEMBERS	((1u << MEMBER_ISS) - 1)

static bool
read_text(JsonReader *reader, char text[CLAIM_TEXT_MAX + 1])
{
	JsonText	value;
	size_t		size;

	return jread_string(reader, &value) &&
		jtext_copy(text, CLAIM_TEXT_MAX + 1, &size, value) && size > 0;
}

static bool
read_seat(JsonReader *reader, uint8_t id[SEAT_ID_SIZE])
{
	JsonText	value;
	char		text[SEAT_ID_TEXT_SIZE];
	size_t		size;
	bool		ok;

	ok = jread_string(reader, &value) &&
		jtext_copy(text, sizeof(text), &size, value) &&
		seat_id_parse(id, text, size);
	sodium_memzero(text, sizeof(text));
	return ok;
}

static bool
read_slot(JsonReader *reader, int32_t *slot)
{
	int64_t		value;

	if (!jread_integer(reader, &value) || value > SLOT_MAX)
		return false;
	*slot = (int32_t) value;
	return true;
}

/*
 * Takes the value of one member.  As RFC 7519 wants it, members without a
 * meaning are passed over; "nbf" has one, but no lease begins in the future,
 * so a token with it is none of ours.
 */
static bool
read_member(JsonReader *reader, LeaseClaims *claims, int member)
{
	switch (member)
	{
		case MEMBER_AUD:
			return read_text(reader, claims->license);
		case MEMBER_SUB:
			return read_text(reader, claims->holder);
		case MEMBER_SEAT:
			return read_seat(reader, claims->seat_id);
		case MEMBER_SLOT:
			return read_slot(reader, &claims->slot);
		case MEMBER_IAT:
			return jread_integer(reader, &claims->issued_at);
		case MEMBER_EXP:
			return jread_integer(reader, &claims->expires_at);
		case MEMBER_ISS:
			return read_text(reader, claims->issuer);
		case MEMBER_NBF:
			return false;
		default:
			return jread_skip(reader);
	}
}

static const char *
read_payload(LeaseClaims *claims, const char *json, size_t size)
{
	static const char *const bad_member[MEMBERS] = {
		"its \"aud\" is no proper text",
		"its \"sub\" is no proper text",
		"its \"seat\" is no UUID in canonical form",
		"its \"slot\" is no integer in range",
		"its \"iat\" is no integer in range",
		"its \"exp\" is no integer in range",
		"its \"iss\" is no proper text",
		"it has an \"nbf\""
	};
	JsonReader	reader;
	JsonText	name;
	unsigned	seen = 0;

	jread_open(&reader, json, size);
	jread_object(&reader);
	while (jread_member(&reader, &name))
	{
		int			member = 0;

		while (member < MEMBERS && !jtext_is(name, member_names[member]))
			member++;
		seen |= 1u << member;
		if (!read_member(&reader, claims, member) && member < MEMBERS)
			return bad_member[member];
	}

	if (!jread_at_end(&reader))
		return "its payload is not an object in valid JSON "
			"with different names";
	if ((seen & REQUIRED_MEMBERS) != REQUIRED_MEMBERS)
		return "one of \"aud\", \"sub\", \"seat\", \"slot\", "
			"\"iat\" and \"exp\" is missing";
	return claims_problem(claims);
}

/* ----- verifying: the whole ----- */

static const char *
decode_header(char kid[KID_SIZE], const Part *part)
{
	char		json[PART_SIZE];
	size_t		size;

	if (!b64url_read(json, sizeof(json), &size, part->at, part->size))
		return "its header is not in base64url";
	return read_header(kid, json, size);
}

static const char *
decode_payload(LeaseClaims *claims, const Part *part)
{
	char		json[PART_SIZE];
	size_t		size;
	const char *problem = "its payload is not in base64url";

	if (b64url_read(json, sizeof(json), &size, part->at, part->size))
		problem = read_payload(claims, json, size);
	sodium_memzero(json, sizeof(json));
	return problem;
}

/* Everything but the time; fills in claims and kid as far as it comes. */
static TokenStatus
check(LeaseClaims *claims, char kid[KID_SIZE], const char **problem,
	  const char *token, size_t size, const KeySet *set)
{
	Part		parts[3];
	Part		signed_part;
	TokenStatus status;
	const PublicKey *key;

	if (size >= TOKEN_SIZE)
		*problem = "it is longer than 4095 bytes";
	else if (!split(parts, token, size))
		*problem = "it does not have three parts with dots between them";
	else
		*problem = decode_header(kid, &parts[0]);
	if (*problem != NULL)
	{
		kid[0] = '\0';
		return TOKEN_MALFORMED;
	}

	key = keyset_find(set, kid, strlen(kid));
	if (key == NULL)
	{
		*problem = "its \"kid\" names none of the keys";
		return TOKEN_UNKNOWN_KEY;
	}

	signed_part.at = token;
	signed_part.size = parts[0].size + 1 + parts[1].size;
	status = check_signature(&signed_part, &parts[2], key, problem);
	if (status != TOKEN_VALID)
		return status;

	*problem = decode_payload(claims, &parts[1]);
	return *problem == NULL ? TOKEN_VALID : TOKEN_MALFORMED;
}

TokenStatus
token_verify(const char *token, size_t size, const KeySet *set, int64_t at,
			 LeaseClaims *claims, char kid[KID_SIZE], const char **problem)
{
	TokenStatus status;

	memset(claims, 0, sizeof(*claims));
	memset(kid, 0, KID_SIZE);
	status = check(claims, kid, problem, token, size, set);
	if (status != TOKEN_VALID)
	{
		sodium_memzero(claims, sizeof(*claims));
		return status;
	}

	/* "exp" is exclusive, and small enough for the product by TIME_MAX. */
	if (at >= claims->expires_at * LEASE_SECOND)
	{
		*problem = "its time is over";
		return TOKEN_EXPIRED;
	}
	return TOKEN_VALID;
}

const char *
token_status_name(TokenStatus status)
{
	switch (status)
	{
		case TOKEN_VALID:
			return "valid";
		case TOKEN_EXPIRED:
			return "expired";
		case TOKEN_MALFORMED:
			return "malformed";
		case TOKEN_UNKNOWN_KEY:
			return "unknown_key";
		case TOKEN_BAD_SIGNATURE:
			return "bad_signature";
	}
	return "malformed";
}
