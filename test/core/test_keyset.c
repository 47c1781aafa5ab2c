/*
 * test_keyset.c
 *		Sets of keys and their JSON text.
 */
#include "test.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define X					"\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\""
#define ZEROS				"\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\""
#define OKP					"\"kty\":\"OKP\",\"crv\":\"Ed25519\""
#define ONE(members)		"{\"keys\":[{" members "}]}"

/* The number of keys that were read, -1 if the text was refused. */
static int
read_text(KeySet *set, const char *text, size_t size)
{
	char	   *copy = malloc(size > 0 ? size : 1);
	const char *problem;
	bool		done;

	if (copy == NULL)
		abort();
	memcpy(copy, text, size);
	done = keyset_read(set, copy, size, &problem);
	free(copy);

	if (done != (problem == NULL) || (!done && set->count != 0))
		abort();
	return done ? set->count : -1;
}

static void
documents(void)
{
	static const struct
	{
		const char *text;
		int			keys;
	}			cases[] =
	{
		{ONE(OKP ",\"x\":" X), 1},
		{ONE("\"x\":" X "," OKP), 1},
		{" { \"keys\" : [ { " OKP " , \"x\" : " X " } ] } \n", 1},
		{ONE(OKP ",\"x\":" X ",\"use\":\"sig\",\"alg\":\"EdDSA\""), 1},
		{ONE(OKP ",\"x\":" X ",\"key_ops\":[\"verify\"]"), 1},
		{ONE(OKP ",\"x\":" X ",\"key_ops\":[\"sign\",1,\"verify\",{}]"), 1},
		{ONE(OKP ",\"x\":" X ",\"kid\":\"not the name of this key\""), 1},
		{ONE(OKP ",\"x\":" X ",\"kid\":7,\"x5c\":[\"a\",{\"b\":null}]"), 1},
		{ONE("\"k\\u0074y\":\"OK\\u0050\",\"crv\":\"Ed25519\",\"x\":" X), 1},
		{"{\"keys\":[{" OKP ",\"x\":" X "},{" OKP ",\"x\":" X "}]}", 1},
		{"{\"keys\":[{\"kty\":\"RSA\"},{" OKP ",\"x\":" X "}]}", 1},
		{"{\"a\":[1,{}],\"keys\":[{" OKP ",\"x\":" X "}],\"z\":null}", 1},

		{"{\"keys\":[]}", 0},
		{ONE(""), 0},
		{ONE(OKP), 0},
		{ONE("\"crv\":\"Ed25519\",\"x\":" X), 0},
		{ONE("\"kty\":\"OKP\",\"x\":" X), 0},
		{ONE("\"kty\":\"okp\",\"crv\":\"Ed25519\",\"x\":" X), 0},
		{ONE("\"kty\":\"OKP\",\"crv\":\"Ed448\",\"x\":" X), 0},
		{ONE("\"kty\":\"OKP\",\"crv\":\"X25519\",\"x\":" X), 0},
		{ONE("\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":" X ",\"y\":" X), 0},
		{ONE("\"kty\":null,\"crv\":\"Ed25519\",\"x\":" X), 0},
		{ONE("\"kty\":[\"OKP\"],\"crv\":\"Ed25519\",\"x\":" X), 0},
		{ONE(OKP ",\"x\":" X ",\"use\":\"enc\""), 0},
		{ONE(OKP ",\"x\":" X ",\"use\":null"), 0},
		{ONE(OKP ",\"x\":" X ",\"alg\":\"HS256\""), 0},
		{ONE(OKP ",\"x\":" X ",\"alg\":[\"EdDSA\"]"), 0},
		{ONE(OKP ",\"x\":" X ",\"key_ops\":[\"sign\"]"), 0},
		{ONE(OKP ",\"x\":" X ",\"key_ops\":[]"), 0},
		{ONE(OKP ",\"x\":" X ",\"key_ops\":\"verify\""), 0},
		{ONE(OKP ",\"x\":" X ",\"d\":" X), 0},
		{ONE(OKP ",\"d\":null,\"x\":" X), 0},
		{ONE(OKP ",\"x\":" X ",\"use\":\"enc\",\"alg\":\"EdDSA\""), 0},
		{ONE(OKP ",\"x\":" X ",\"alg\":\"HS256\",\"use\":\"sig\""), 0},
		{ONE(OKP ",\"use\":\"enc\",\"key_ops\":[\"verify\"],\"x\":" X), 0},
		{ONE(OKP ",\"key_ops\":[\"sign\"],\"kid\":\"a\",\"x\":" X), 0},
		{ONE(OKP ",\"d\":" X ",\"use\":\"sig\",\"x\":" X), 0},
		{ONE(OKP ",\"d\":" X ",\"kid\":\"a\",\"x\":" X), 0},
		{ONE(OKP ",\"x\":\"\""), 0},
		{ONE(OKP ",\"x\":" ZEROS), 0},
		{ONE(OKP ","
			 "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHUQ\""), 0},
		{ONE(OKP ","
			 "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURoA\""), 0},
		{ONE(OKP ","
			 "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo=\""), 0},
		{ONE(OKP ","
			 "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURp\""), 0},
		{ONE(OKP ","
			 "\"x\":\"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo\""), 0},
		{ONE(OKP ",\"x\":12345"), 0},
		{ONE(OKP ",\"x\":[" X "]"), 0},

		{"", -1},
		{"null", -1},
		{"[]", -1},
		{"\"keys\"", -1},
		{"{}", -1},
		{"{\"Keys\":[]}", -1},
		{"{\"keys\":null}", -1},
		{"{\"keys\":{}}", -1},
		{"{\"keys\":\"\"}", -1},
		{"{\"keys\":[null]}", -1},
		{"{\"keys\":[[]]}", -1},
		{"{\"keys\":[\"a\"]}", -1},
		{"{\"keys\":[{}],}", -1},
		{"{\"keys\":[{},]}", -1},
		{"{\"keys\":[{}]} x", -1},
		{"{\"keys\":[{}]", -1},
		{"{\"keys\":[],\"keys\":[]}", -1},
		{"{\"keys\":[],\"k\\u0065ys\":[]}", -1},
		{"{\"keys\":[],\"a\":1,\"a\":1}", -1},
		{ONE(OKP ",\"x\":" X ",\"x\":" X), -1},
		{ONE(OKP ",\"x\":" X ",\"n\":{\"a\":1,\"a\":2}"), -1},
		{ONE(OKP ",\"x\":\"\377\""), -1},
		{ONE(OKP ",\"x\":\"\\ud800\""), -1},
		{ONE(OKP ",\"x\":" X ",\"n\":[[[[[[]]]]]]"), -1},
		{"{" OKP ",\"x\":" X "}", -1},
	};

	for (size_t i = 0; i < COUNT(cases); i++)
	{
		KeySet		set;
		int			keys = read_text(&set, cases[i].text,
									 strlen(cases[i].text));

		ok(keys == cases[i].keys &&
		   (keys != 1 || memcmp(&set, sample_set(), sizeof(set)) == 0),
		   "keyset_read: document %zu gives %d", i, cases[i].keys);
	}
}

/* A set of this many random keys, at most KEYSET_MAX. */
static void
random_set(KeySet *set, int count)
{
	memset(set, 0, sizeof(*set));
	while (set->count < count)
	{
		SigningKey	key;
		uint8_t		seed[SEED_SIZE];

		random_bytes(seed, sizeof(seed));
		signing_key_init(&key, seed);
		keyset_add(set, &key.public);
	}
}

static void
round_trip(void)
{
	char		text[KEYSET_TEXT_SIZE];
	KeySet		set;
	KeySet		back;

	for (int count = 0; count <= KEYSET_MAX; count += KEYSET_MAX / 2)
	{
		size_t		size;

		random_set(&set, count);
		size = keyset_write(text, &set);
		ok(size == strlen(text) && read_text(&back, text, size) == count &&
		   memcmp(&set, &back, sizeof(set)) == 0,
		   "keyset_write: %d keys, read again", count);
	}
}

/* One more key than a set can hold, put before the others in the text. */
static void
too_many(void)
{
	static const char more[] = "{\"keys\":[{" OKP ",\"x\":" X "},";
	char		text[KEYSET_TEXT_SIZE];
	char		longer[KEYSET_TEXT_SIZE + sizeof(more)];
	KeySet		set;
	KeySet		back;
	const char *problem;

	random_set(&set, KEYSET_MAX);
	keyset_write(text, &set);
	snprintf(longer, sizeof(longer), "%s%s", more, text + 9);
	ok(!keyset_read(&back, longer, strlen(longer), &problem) &&
	   back.count == 0 &&
	   strcmp(problem, "it has more than 16 usable keys") == 0,
	   "keyset_read: not %d keys", KEYSET_MAX + 1);
	ok(!keyset_add(&set, &sample_key()->public), "keyset_add: full");
	ok(keyset_add(&set, &set.keys[3]) && set.count == KEYSET_MAX,
	   "keyset_add: a key that is there fits into a full set");
}

static void
large(void)
{
	static const char head[] = ONE(OKP ",\"x\":" X);
	char	   *text = malloc(KEYSET_SOURCE_MAX + 1);
	KeySet		set;

	if (text == NULL)
		abort();
	memset(text, ' ', KEYSET_SOURCE_MAX + 1);
	memcpy(text, head, strlen(head));
	ok(read_text(&set, text, KEYSET_SOURCE_MAX) == 1,
	   "keyset_read: %d bytes", KEYSET_SOURCE_MAX);
	ok(read_text(&set, text, KEYSET_SOURCE_MAX + 1) == -1,
	   "keyset_read: not %d bytes", KEYSET_SOURCE_MAX + 1);
	free(text);
}

static void
finding(void)
{
	KeySet		set;
	const PublicKey *key;
	int			wrong = 0;

	random_set(&set, KEYSET_MAX);
	for (int i = 0; i < KEYSET_MAX; i++)
	{
		key = &set.keys[i];
		wrong += keyset_find(&set, key->kid, KID_SIZE - 1) != key ||
			keyset_find(&set, key->kid, KID_SIZE - 2) != NULL ||
			keyset_find(&set, key->kid, KID_SIZE) != NULL;
	}
	ok(wrong == 0, "keyset_find: every key by its whole name");
	ok(keyset_find(&set, "", 0) == NULL, "keyset_find: not by no name");
	ok(keyset_find(&set, sample_key()->public.kid, KID_SIZE - 1) == NULL,
	   "keyset_find: not a key that is not there");
}

void
test_keyset(void)
{
	documents();
	round_trip();
	too_many();
	large();
	finding();
}
