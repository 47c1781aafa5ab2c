/*
 * seat_id.c
 *		The seat id: a UUID of version 8 (RFC 9562) with the slot inside.
 *
 * Bytes 0 to 3, big endian, are one random bit and the 31 bits of the slot;
 * the version nibble 8 and the variant bits 10 are at the places that the RFC
 * gives them; the other 91 bits are random.  So a seat's row is found by the
 * primary key of its table, which needs no index on a column that changes.
 *
 * The slot is no secret, the random bits are: knowing them is the proof of
 * holding the seat.  Ids are compared in constant time.
 */
#include "core.h"

#include <sodium.h>

#define VERSION_BYTE		6
#define VARIANT_BYTE		8

static const char digits[] = "0123456789abcdef";

void
seat_id_make(uint8_t id[SEAT_ID_SIZE], int32_t slot)
{
	uint32_t	bits = (uint32_t) slot;

	id[0] = (uint8_t) ((id[0] & 0x80) | ((bits >> 24) & 0x7f));
	id[1] = (uint8_t) (bits >> 16);
	id[2] = (uint8_t) (bits >> 8);
	id[3] = (uint8_t) bits;
	id[VERSION_BYTE] = (uint8_t) ((id[VERSION_BYTE] & 0x0f) | 0x80);
	id[VARIANT_BYTE] = (uint8_t) ((id[VARIANT_BYTE] & 0x3f) | 0x80);
}

int32_t
seat_id_slot(const uint8_t id[SEAT_ID_SIZE])
{
	if ((id[VERSION_BYTE] & 0xf0) != 0x80 ||
		(id[VARIANT_BYTE] & 0xc0) != 0x80)
		return 0;

	return (int32_t) (((uint32_t) (id[0] & 0x7f) << 24) |
					  ((uint32_t) id[1] << 16) |
					  ((uint32_t) id[2] << 8) |
					  (uint32_t) id[3]);
}

bool
seat_id_equal(const uint8_t a[SEAT_ID_SIZE], const uint8_t b[SEAT_ID_SIZE])
{
	return sodium_memcmp(a, b, SEAT_ID_SIZE) == 0;
}

/* Does a hyphen follow the byte of this number? */
static bool
before_hyphen(int byte)
{
	return byte == 3 || byte == 5 || byte == 7 || byte == 9;
}

void
seat_id_print(char text[SEAT_ID_TEXT_SIZE], const uint8_t id[SEAT_ID_SIZE])
{
	for (int i = 0; i < SEAT_ID_SIZE; i++)
	{
		*text++ = digits[id[i] >> 4];
		*text++ = digits[id[i] & 0x0f];
		if (before_hyphen(i))
			*text++ = '-';
	}
	*text = '\0';
}

/* The value of a lower case hexadecimal digit, -1 for another character. */
static int
digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/*
 * One spelling only, so that two texts of the same seat id are the same text
 * and a token can be compared as bytes.
 */
bool
seat_id_parse(uint8_t id[SEAT_ID_SIZE], const char *text, size_t size)
{
	if (size != SEAT_ID_TEXT_SIZE - 1)
		return false;

	for (int i = 0; i < SEAT_ID_SIZE; i++)
	{
		int			high = digit_value(*text++);
		int			low = digit_value(*text++);

		if (high < 0 || low < 0)
			return false;
		if (before_hyphen(i) && *text++ != '-')
			return false;
		id[i] = (uint8_t) (high * 16 + low);
	}
	return true;
}
