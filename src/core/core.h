/*
 * core.h
 *		What keyright's server and its client share: the arithmetic of a
 *		lease, the seat id and the signed token.
 *
 * Pure C on top of libc and libsodium.  Nothing here knows PostgreSQL, reads
 * a clock, opens a file or allocates memory; every buffer is the caller's and
 * of a fixed size.  Call sodium_init() once before any function of jwk.c or
 * token.c.
 */
#ifndef KEYRIGHT_CORE_H
#define KEYRIGHT_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ----- lease.c: when a lease is live, and until when it may run ----- */

/*
 * Times and lengths are microseconds; which epoch does not matter as long as
 * it begins on a whole second.  The two ends of the range mean "for ever".
 */
#define LEASE_SECOND		INT64_C(1000000)
#define LEASE_FOREVER		INT64_MAX
#define LEASE_NEVER			INT64_MIN

/*
 * Rule 1: live if and only if at <= expires_at + tolerance, as whole numbers
 * that cannot overflow.  If expires_at or tolerance is LEASE_FOREVER, so is
 * the sum; else if one of them is LEASE_NEVER, so is the sum; else the sum is
 * finite, and at = LEASE_FOREVER is after it.  At LEASE_NEVER all are live.
 */
extern bool lease_is_live(int64_t expires_at, int64_t tolerance, int64_t at);

/*
 * The first instant at which lease_is_live() is false: for every finite at, a
 * lease is live if and only if at < lease_lapses_at().  LEASE_FOREVER when
 * that is no finite instant.
 */
extern int64_t lease_lapses_at(int64_t expires_at, int64_t tolerance);

/*
 * Where a lease of this length ends that is given out or renewed now: on a
 * whole second, rounded up, and never after the license's own end (rounded
 * down to a whole second, should it not be on one).  A sum after the last
 * whole second is LEASE_FOREVER, one before the first instant LEASE_NEVER.
 */
extern int64_t lease_end(int64_t now, int64_t ttl, int64_t license_end);

/* ----- seat_id.c: a UUID of version 8 with the slot inside ----- */

#define SEAT_ID_SIZE		16
#define SEAT_ID_TEXT_SIZE	37	/* canonical text and its final zero */
#define SLOT_MAX			INT32_MAX

/*
 * Turns 16 random bytes into a seat id of that slot (1 or more): 91 random
 * bits stay.
 */
extern void seat_id_make(uint8_t id[SEAT_ID_SIZE], int32_t slot);

/* The slot that a seat id names; 0 when it is not one of seat_id_make()'s. */
extern int32_t seat_id_slot(const uint8_t id[SEAT_ID_SIZE]);

/* Equality in constant time: knowing a seat id is the proof of holding it. */
extern bool seat_id_equal(const uint8_t a[SEAT_ID_SIZE],
						  const uint8_t b[SEAT_ID_SIZE]);

extern void seat_id_print(char text[SEAT_ID_TEXT_SIZE],
						  const uint8_t id[SEAT_ID_SIZE]);

/* Canonical form only: lower case, hyphens in their places. */
extern bool seat_id_parse(uint8_t id[SEAT_ID_SIZE],
						  const char *text, size_t size);

/* ----- jwk.c: keys and their public form (RFC 7517, 7638, 8037) ----- */

#define SEED_SIZE			32
#define PUBLIC_KEY_SIZE		32
#define KID_SIZE			44	/* RFC 7638 thumbprint and its final zero */
#define TOKEN_HEADER_SIZE	160

typedef struct PublicKey
{
	uint8_t		bytes[PUBLIC_KEY_SIZE];
	char		kid[KID_SIZE];
} PublicKey;

/* Holds a secret: keep it in sodium_malloc() memory. */
typedef struct SigningKey
{
	uint8_t		secret[64];		/* libsodium's form: seed, then public key */
	PublicKey	public;
	char		header[TOKEN_HEADER_SIZE];	/* base64url of the JWS header */
} SigningKey;

#define KEYSET_MAX			16

typedef struct KeySet
{
	int			count;
	PublicKey	keys[KEYSET_MAX];
} KeySet;

/*
 * Reads the base64 of a 32-byte seed (RFC 4648 section 4, padded), with white
 * space allowed around it.  False for anything else, and for a seed that is
 * all zero.  The caller wipes seed.
 */
extern bool seed_decode(uint8_t seed[SEED_SIZE],
						const char *text, size_t size);

extern void signing_key_init(SigningKey *key, const uint8_t seed[SEED_SIZE]);

/*
 * Computes the kid.  False when the bytes are no point that a signature may
 * be trusted under: not canonical, not on the curve, or of small order (all
 * zero among them).
 */
extern bool public_key_init(PublicKey *key,
							const uint8_t bytes[PUBLIC_KEY_SIZE]);

/* The "x" of a JWK: base64url without padding of 32 bytes. */
extern bool public_key_decode(PublicKey *key, const char *x, size_t size);

/* Adds a key once; false when the set is full. */
extern bool keyset_add(KeySet *set, const PublicKey *key);

extern const PublicKey *keyset_find(const KeySet *set,
									const char *kid, size_t size);

/*
 * Reads a JWK Set (RFC 7517, section 5).  Keys not usable here (another
 * kty, crv, use or alg; key_ops without "verify"; no x, or one that is no
 * usable key; a "d") are passed over, as the RFC says, so the set may come
 * out empty.  A text that is no JWK Set is refused, and so is one with more
 * than KEYSET_MAX usable keys or of more than KEYSET_SOURCE_MAX bytes: the
 * set is then empty and *problem, a sentence fragment, says what was wrong
 * (NULL otherwise).  The kid is always computed, never taken from the text.
 */
#define KEYSET_SOURCE_MAX	65536
extern bool keyset_read(KeySet *set, const char *json, size_t size,
						const char **problem);

/* Writes the JWK Set as JSON text with a final zero; returns its length. */
#define KEYSET_TEXT_SIZE	(32 + KEYSET_MAX * 224)
extern size_t keyset_write(char text[KEYSET_TEXT_SIZE], const KeySet *set);

/* Base64url without padding; both end out with a zero. */
extern size_t b64url_write(char *out, size_t room,
						   const void *data, size_t size);

/*
 * One spelling only.  False also for more than room - 1 bytes and for a text
 * of TOKEN_SIZE characters or more.
 */
extern bool b64url_read(char *out, size_t room, size_t *size,
						const char *text, size_t text_size);

/* ----- token.c: the signed form of a lease (RFC 7515, 7519, 8037) ----- */

#define CLAIM_TEXT_MAX		255 /* bytes of UTF-8 */
#define TOKEN_SIZE			4096	/* the longest token and its final zero */

typedef struct LeaseClaims
{
	char		issuer[CLAIM_TEXT_MAX + 1]; /* empty: no "iss" */
	char		license[CLAIM_TEXT_MAX + 1];	/* "aud" */
	char		holder[CLAIM_TEXT_MAX + 1]; /* "sub" */
	uint8_t		seat_id[SEAT_ID_SIZE];	/* "seat" */
	int32_t		slot;			/* "slot", 1 or more */
	int64_t		issued_at;		/* "iat", seconds since 1970 */
	int64_t		expires_at;		/* "exp", seconds since 1970, exclusive */
} LeaseClaims;

typedef enum TokenStatus
{
	TOKEN_VALID,
	TOKEN_EXPIRED,				/* all well, but its time is over */
	TOKEN_MALFORMED,			/* not a token of ours, whoever signed it */
	TOKEN_UNKNOWN_KEY,			/* signed under a kid that the set lacks */
	TOKEN_BAD_SIGNATURE
} TokenStatus;

/*
 * True when the text may stand in a claim: valid UTF-8, 1 to CLAIM_TEXT_MAX
 * bytes, no control character (U+0000 to U+001F, U+007F).
 */
extern bool claim_text_ok(const char *text, size_t size);

/*
 * Signs the claims; returns the token's length.  Claims that token_verify()
 * would call malformed are not signed: it returns 0 and leaves token empty.
 */
extern size_t token_write(char token[TOKEN_SIZE], const LeaseClaims *claims,
						  const SigningKey *key);

/*
 * Checks a token against a set of keys at an instant (microseconds since
 * 1970).  Claims are filled in for TOKEN_VALID and TOKEN_EXPIRED only, else
 * all zero; kid (final zero included) whenever the header could be read and
 * names a key by a thumbprint, else empty: it is safe to print.  *problem is
 * a sentence fragment that says which check failed, NULL for TOKEN_VALID; it
 * never quotes the token.
 */
extern TokenStatus token_verify(const char *token, size_t size,
								const KeySet *set, int64_t at,
								LeaseClaims *claims, char kid[KID_SIZE],
								const char **problem);

/* "valid", "expired", "malformed", "unknown_key", "bad_signature" */
extern const char *token_status_name(TokenStatus status);

/* ----- json.c: a strict reader for small documents (RFC 8259) ----- */

#define JSON_DEPTH_MAX		8
#define JSON_NAMES_MAX		64	/* in all objects that are open at once */

/* The inside of a string as it stands in the document, escapes and all. */
typedef struct JsonText
{
	const char *at;
	const char *end;
} JsonText;

/*
 * A cursor over a document.  Every function moves it on and says whether the
 * document was as expected; after the first failure all of them say false, so
 * it is enough to look at the end.
 */
typedef struct JsonReader
{
	const char *at;
	const char *end;
	bool		failed;
	bool		fresh;			/* just behind an opening bracket */
	int			depth;
	int			base[JSON_DEPTH_MAX];	/* names_open before that bracket */
	int			names_open;
	JsonText	names[JSON_NAMES_MAX];
} JsonReader;

extern void jread_open(JsonReader *reader, const char *text, size_t size);

/* True at the end of the document, white space apart, with no failure. */
extern bool jread_at_end(JsonReader *reader);

/* The first character of what comes next; '\0' at the end and on failure. */
extern char jread_peek(JsonReader *reader);

/*
 * An object is read member by member: jread_object() enters it,
 * jread_member() gives the next name (false behind the closing brace), then
 * one of the functions below takes the value.  A name that stood in this
 * object before is a failure.  Arrays likewise, with jread_element().
 */
extern bool jread_object(JsonReader *reader);
extern bool jread_member(JsonReader *reader, JsonText *name);
extern bool jread_array(JsonReader *reader);
extern bool jread_element(JsonReader *reader);

extern bool jread_string(JsonReader *reader, JsonText *value);

/* Digits only: no sign, fraction, exponent or leading zero. */
extern bool jread_integer(JsonReader *reader, int64_t *value);

/* Passes over a value of any kind, checking it all the same. */
extern bool jread_skip(JsonReader *reader);

/* Does the string say this ASCII word, however it is escaped? */
extern bool jtext_is(JsonText text, const char *word);

/* Decodes into out with a final zero; false when it is longer than room. */
extern bool jtext_copy(char *out, size_t room, size_t *size, JsonText text);

/* The length of the character at the front of text; 0 if it is not valid. */
extern size_t utf8_decode(uint32_t *code, const char *text, size_t size);

#endif							/* KEYRIGHT_CORE_H */
