/*
 * test.h
 *		What the tests of the core share.
 */
#ifndef TEST_H
#define TEST_H

#include "core.h"
#include "tap.h"

#define COUNT(array)		(sizeof(array) / sizeof((array)[0]))

extern void test_lease(void);
extern void test_seat_id(void);
extern void test_json(void);
extern void test_jwk(void);
extern void test_keyset(void);
extern void test_token(void);
extern void test_forgery(void);
extern void test_corpus(const char *corpus);

/* ----- sample.c: one key, one lease and what can be made of them ----- */

#define SAMPLE_NOW			(INT64_C(1750000000) * LEASE_SECOND)

/* The key of RFC 8037, appendix A, and the set with nothing else in it. */
extern const SigningKey *sample_key(void);
extern const KeySet *sample_set(void);

/* Live at SAMPLE_NOW. */
extern void sample_claims(LeaseClaims *claims);

/* The header of every token under the sample key, as JSON. */
extern const char *sample_header(void);

/* Signs any header and payload; the result may be longer than a token. */
#define FORGED_SIZE			(4 * TOKEN_SIZE)
extern size_t forge(char token[FORGED_SIZE],
					const void *header, size_t header_size,
					const void *payload, size_t payload_size,
					const SigningKey *signer);

/* Verifies a copy of exactly this size, so that a sanitizer sees its ends. */
extern TokenStatus verify(const char *token, size_t size, int64_t at,
						  LeaseClaims *claims);

/* The two together, at SAMPLE_NOW; NULL stands for the sample's own. */
extern TokenStatus verify_forged(const char *header, const char *payload);

/* Random numbers; below the limit, if that is not 0. */
extern void random_start(void);
extern uint64_t random_number(uint64_t limit);
extern void random_bytes(uint8_t *bytes, size_t size);

/* A random number that is often at one of the ends of something. */
extern int64_t edgy_number(void);

#endif							/* TEST_H */
