/*
 * fuzz.h
 *		What the fuzz targets share.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "test.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition) \
	do { \
		if (!(condition)) \
		{ \
			fprintf(stderr, "broken: %s\n", #condition); \
			abort(); \
		} \
	} while (0)

extern int	LLVMFuzzerInitialize(int *argc, char ***argv);
extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * What holds for the claims of every token that verifies: they are proper,
 * they can be signed again, and the token that comes out says the same and
 * ends at the same instant.
 */
static inline void
check_claims(const LeaseClaims *claims)
{
	char		token[TOKEN_SIZE];
	LeaseClaims back;
	int64_t		end = claims->expires_at * LEASE_SECOND;
	size_t		size = token_write(token, claims, sample_key());

	MUST(size > 0 && size == strlen(token));
	MUST(verify(token, size, end - 1, &back) == TOKEN_VALID);
	MUST(memcmp(claims, &back, sizeof(back)) == 0);
	MUST(verify(token, size, end, &back) == TOKEN_EXPIRED);

	MUST(claim_text_ok(claims->license, strlen(claims->license)));
	MUST(claim_text_ok(claims->holder, strlen(claims->holder)));
	MUST(claims->slot >= 1);
	MUST(seat_id_slot(claims->seat_id) == claims->slot);
	MUST(claims->issued_at <= claims->expires_at);
}

#endif							/* FUZZ_H */
