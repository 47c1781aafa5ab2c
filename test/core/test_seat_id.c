/*
 * test_seat_id.c
 *		The seat id: its layout, its slot, its one spelling.
 */
#include "test.h"

#include <sodium.h>
#include <string.h>

static void
layout(void)
{
	uint8_t		id[SEAT_ID_SIZE];
	char		text[SEAT_ID_TEXT_SIZE];

	memset(id, 0xff, sizeof(id));
	seat_id_make(id, 1);
	seat_id_print(text, id);
	ok(strcmp(text, "80000001-ffff-8fff-bfff-ffffffffffff") == 0,
	   "seat_id_make: random bits of one stay (%s)", text);

	memset(id, 0, sizeof(id));
	seat_id_make(id, SLOT_MAX);
	seat_id_print(text, id);
	ok(strcmp(text, "7fffffff-0000-8000-8000-000000000000") == 0,
	   "seat_id_make: random bits of zero stay (%s)", text);
}

/* Over many ids every bit but those of slot and form takes both values. */
static void
random_bits(void)
{
	uint8_t		ones[SEAT_ID_SIZE] = {0};
	uint8_t		zeros[SEAT_ID_SIZE] = {0};
	int			both = 0;

	for (int i = 0; i < 1000; i++)
	{
		uint8_t		id[SEAT_ID_SIZE];

		random_bytes(id, sizeof(id));
		seat_id_make(id, 0x1234567);
		for (int j = 0; j < SEAT_ID_SIZE; j++)
		{
			ones[j] |= id[j];
			zeros[j] |= (uint8_t) ~id[j];
		}
	}
	for (int j = 0; j < SEAT_ID_SIZE * 8; j++)
		both += (ones[j / 8] & zeros[j / 8]) >> (j % 8) & 1;
	ok(both == 91, "seat_id_make: %d random bits", both);
}

static void
slots(void)
{
	static const int32_t edges[] = {
		1, 2, 127, 128, 255, 256, 65535, 65536, 0x7fffff, 0x800000, 0xffffff,
		0x1000000, 0x40000000, SLOT_MAX - 1, SLOT_MAX
	};
	uint8_t		id[SEAT_ID_SIZE];
	int			wrong = 0;

	for (int i = 0; i < 100000; i++)
	{
		int32_t		slot = (size_t) i < COUNT(edges) ? edges[i] :
			1 + (int32_t) random_number(SLOT_MAX);

		random_bytes(id, sizeof(id));
		seat_id_make(id, slot);
		wrong += seat_id_slot(id) != slot;
	}
	ok(wrong == 0, "seat_id_slot: gives back what seat_id_make put in");

	wrong = 0;
	for (int i = 0; i < 64; i++)
	{
		random_bytes(id, sizeof(id));
		seat_id_make(id, 5);
		id[6] = (uint8_t) ((id[6] & 0x0f) | (i & 0x0f) << 4);
		id[8] = (uint8_t) ((id[8] & 0x3f) | (i >> 4) << 6);
		wrong += seat_id_slot(id) != (i == 0x28 ? 5 : 0);
	}
	ok(wrong == 0, "seat_id_slot: 0 for every other version and variant");

	random_bytes(id, sizeof(id));
	seat_id_make(id, 0);
	ok(seat_id_slot(id) == 0, "seat_id_slot: 0 for slot 0");
}

static void
equality(void)
{
	uint8_t		a[SEAT_ID_SIZE];
	uint8_t		b[SEAT_ID_SIZE];
	int			wrong = 0;

	random_bytes(a, sizeof(a));
	memcpy(b, a, sizeof(b));
	ok(seat_id_equal(a, b), "seat_id_equal: same");
	for (int i = 0; i < SEAT_ID_SIZE * 8; i++)
	{
		b[i / 8] ^= (uint8_t) (1 << i % 8);
		wrong += seat_id_equal(a, b);
		b[i / 8] ^= (uint8_t) (1 << i % 8);
	}
	ok(wrong == 0, "seat_id_equal: no bit is passed over");
}

static bool
parses(const char *text)
{
	uint8_t		id[SEAT_ID_SIZE];

	return seat_id_parse(id, text, strlen(text));
}

static void
spelling(void)
{
	static const char *const refused[] = {
		"",
		"0000000a-0000-8000-8000-00000000000",
		"0000000a-0000-8000-8000-0000000000000",
		"0000000A-0000-8000-8000-000000000000",
		"0000000g-0000-8000-8000-000000000000",
		"0000000a-0000-8000-8000-00000000000G",
		"0000000a00000-8000-8000-000000000000",
		"0000000a-0000-8000-80000-00000000000",
		"0000000a-0000-8000-8000_000000000000",
		"0000000a000080008000000000000000",
		"{0000000a-0000-8000-8000-0000000000}",
		" 000000a-0000-8000-8000-000000000000",
		"0000000a-0000-8000-8000-00000000000 ",
		"\303\251000000-0000-8000-8000-000000000000",
	};
	uint8_t		id[SEAT_ID_SIZE];
	uint8_t		back[SEAT_ID_SIZE];
	char		text[SEAT_ID_TEXT_SIZE];
	int			wrong = 0;

	for (int i = 0; i < 10000; i++)
	{
		random_bytes(id, sizeof(id));
		seat_id_print(text, id);
		wrong += strlen(text) != SEAT_ID_TEXT_SIZE - 1 ||
			!seat_id_parse(back, text, strlen(text)) ||
			!seat_id_equal(id, back);
	}
	ok(wrong == 0, "seat_id_parse: reads what seat_id_print writes");
	for (size_t i = 0; i < COUNT(refused); i++)
		ok(!parses(refused[i]), "seat_id_parse: not \"%s\"", refused[i]);

	/* Of all that differ in one byte only other ids in lower case remain. */
	wrong = 0;
	for (int i = 0; i < SEAT_ID_TEXT_SIZE - 1; i++)
	{
		char		good = text[i];

		for (int c = 0; c < 256; c++)
		{
			bool		hex = (c >= '0' && c <= '9') ||
				(c >= 'a' && c <= 'f');

			text[i] = (char) c;
			wrong += seat_id_parse(back, text, SEAT_ID_TEXT_SIZE - 1) !=
				(good == '-' ? c == '-' : hex);
		}
		text[i] = good;
	}
	ok(wrong == 0, "seat_id_parse: every byte is checked");
}

void
test_seat_id(void)
{
	layout();
	random_bits();
	slots();
	equality();
	spelling();
}
