/*
 * fuzz_keyset.c
 *		keyset_read() and the JSON reader on anything.
 */
#include "fuzz.h"

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void) argc;
	(void) argv;
	return sodium_init() < 0;
}

/* A set that was read: proper keys, all different, written and read alike. */
static void
check_set(const KeySet *set)
{
	char		text[KEYSET_TEXT_SIZE];
	const char *problem;
	KeySet		back;
	size_t		size;

	MUST(set->count >= 0 && set->count <= KEYSET_MAX);
	for (int i = 0; i < set->count; i++)
	{
		PublicKey	key;

		MUST(public_key_init(&key, set->keys[i].bytes));
		MUST(memcmp(&key, &set->keys[i], sizeof(key)) == 0);
		MUST(keyset_find(set, key.kid, KID_SIZE - 1) == &set->keys[i]);
	}

	size = keyset_write(text, set);
	MUST(size == strlen(text));
	MUST(keyset_read(&back, text, size, &problem));
	MUST(memcmp(&back, set, sizeof(back)) == 0);
}

/* A document that is JSON: all of it is UTF-8, whatever stands in it. */
static void
check_json(const char *text, size_t size)
{
	JsonReader	reader;
	uint32_t	code;
	size_t		length;

	jread_open(&reader, text, size);
	jread_skip(&reader);
	if (!jread_at_end(&reader))
		return;

	MUST(reader.depth == 0 && reader.names_open == 0);
	for (size_t at = 0; at < size; at += length)
	{
		length = utf8_decode(&code, text + at, size - at);
		MUST(length > 0 && code != 0);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	KeySet		set;
	const char *problem;

	if (keyset_read(&set, (const char *) data, size, &problem))
	{
		MUST(problem == NULL);
		check_set(&set);
	}
	else
		MUST(problem != NULL && set.count == 0);

	check_json((const char *) data, size);
	return 0;
}
