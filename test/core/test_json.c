/*
 * test_json.c
 *		The JSON reader: what it takes, what it refuses, and its bounds.
 */
#include "test.h"

#include <stdlib.h>
#include <string.h>

/* Reads a copy of exactly this size, so that a sanitizer sees its ends. */
static bool
accepts(const char *text, size_t size)
{
	char	   *copy = malloc(size > 0 ? size : 1);
	JsonReader	reader;
	bool		accepted;

	if (copy == NULL)
		abort();
	memcpy(copy, text, size);
	jread_open(&reader, copy, size);
	jread_skip(&reader);
	accepted = jread_at_end(&reader);
	free(copy);
	return accepted;
}

static void
documents(void)
{
	static const char *const good[] = {
		"{}", "[]", "\"\"", "0", "-0", "1", "-12", "0.5", "-1.25e+3", "1E5",
		"1e-5", "0e0", "true", "false", "null", " \t\r\n{ } \n",
		"[1,2,3]", "[ 1 , 2 ]", "[[],[[]],{}]", "{\"a\":1}",
		"{\"a\":1,\"b\":[2,{\"a\":3}],\"c\":{\"a\":{}}}",
		"[{\"a\":1},{\"a\":1}]", "{\"\":0}", "{\"a\":0,\"A\":0}",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\u0041\\u00e9\\uD83D\\uDE00\"",
		"\"\303\251 \342\202\254 \360\237\230\200\"",
		"\"\302\200 \337\277 \340\240\200 \357\277\277\"",
		"\"\355\237\277 \356\200\200 \360\220\200\200 \364\217\277\277\"",
		"\"\177\"", "[[[[[[[[]]]]]]]]",
	};
	static const char *const bad[] = {
		"", " ", "{", "}", "[", "]", "\"", "\"a", "{]", "[}", "{}{}", "1 2",
		"{} x", "[[]1]", "[{}1]", "[[][]]",
		"{\"a\":{}\"b\":1}", "[\"a\"1]", "[null 1]",
		"[1,]", "[,1]", "[1 2]", "[,]", "{,}", "{\"a\"}",
		"{\"a\":}", "{\"a\":1,}", "{,\"a\":1}", "{\"a\":1 \"b\":2}",
		"{\"a\" 1}", "{\"a\"::1}", "{a:1}", "{1:1}", "{'a':1}", "{null:1}",
		"'a'", "+1", "-", "01", "-01", "00", "1.", ".5", "1.e5", "1e",
		"1e+", "0x1", "1_0", "--1", "NaN", "nan", "Infinity", "-Infinity",
		"True", "TRUE", "tru", "truex", "nul", "nulll", "fals", "n",
		"undefined", "/**/1", "1//", "\357\273\277{}", "\v1", "\f1",
		"\302\2401", "\"\t\"", "\"\n\"", "\"\037\"", "\"\\", "\"\\\"",
		"\"\\x41\"", "\"\\a\"", "\"\\u\"", "\"\\u12\"", "\"\\u123g\"",
		"\"\\u 041\"", "\"\\U0041\"", "\"\\u0000\"", "\"\\ud800\"",
		"\"\\udc00\"", "\"\\ud800x\"", "\"\\ud800\\n\"", "\"\\ud800\\u\"",
		"\"\\ud800\\u0041\"", "\"\\ud800\\ud800\"", "\"\\udc00\\ud800\"",
		"\"\\ud800\\ue000\"", "\"\\udc00\\udc00\"", "\"\\ud800xudc00\"",
		"\"\\ud800\\ndc00\"", "\"\200\"", "\"\277\"", "\"\300\200\"",
		"\"\301\277\"", "\"\302\"", "\"\302a\"", "\"\340\237\277\"",
		"\"\340\240\"", "\"\355\240\200\"", "\"\355\277\277\"",
		"\"\360\217\277\277\"", "\"\364\220\200\200\"",
		"\"\365\200\200\200\"",
		"\"\370\210\200\200\200\"", "\"\376\"", "\"\377\"", "\377",
		"{\"a\":1,\"a\":1}", "{\"a\":1,\"b\":2,\"a\":3}",
		"{\"a\":1,\"\\u0061\":1}", "{\"\\u0061\":1,\"\\u0061\":1}",
		"{\"/\":1,\"\\/\":2}", "{\"\":1,\"\":2}", "[{\"a\":1,\"a\":2}]",
		"{\"b\":{\"a\":1,\"a\":2}}", "{\"a\":{\"a\":1},\"a\":2}",
		"{\"\360\237\230\200\":1,\"\\ud83d\\ude00\":2}",
		"[[[[[[[[[]]]]]]]]]", "{\"a\":[[[[[[[[]]]]]]]]}",
	};

	for (size_t i = 0; i < COUNT(good); i++)
		ok(accepts(good[i], strlen(good[i])), "json: good %zu", i);
	for (size_t i = 0; i < COUNT(bad); i++)
		ok(!accepts(bad[i], strlen(bad[i])), "json: bad %zu", i);
	ok(!accepts("{}\0", 3), "json: nothing after the end, not even a zero");
	ok(!accepts("\"a\0b\"", 5), "json: no zero in a string");
	ok(!accepts("\"\\\0\"", 4), "json: no escaped zero byte");
}

/* No cut of a document in brackets is a document. */
static void
cuts(void)
{
	static const char text[] =
		"{\"a\":[1,-2.5e+7,true,false,null,\"\\u00e9\\ud83d\\ude00\\n"
		"\360\237\230\200\"],\"b\":{\"c\":{}}}";
	int			taken = 0;

	ok(accepts(text, strlen(text)), "json: the whole document");
	for (size_t size = 0; size < strlen(text); size++)
		taken += accepts(text, size);
	ok(taken == 0, "json: no document that is cut short");
}

static void
names_bound(void)
{
	char		text[JSON_NAMES_MAX * 16];
	int			length = 1;

	text[0] = '{';
	for (int i = 0; i < JSON_NAMES_MAX; i++)
		length += sprintf(text + length, "%s\"n%d\":%d", i ? "," : "", i, i);
	strcpy(text + length, "}");
	ok(accepts(text, strlen(text)), "json: %d names", JSON_NAMES_MAX);
	strcpy(text + length, ",\"x\":0}");
	ok(!accepts(text, strlen(text)), "json: %d names", JSON_NAMES_MAX + 1);
	strcpy(text + length - 1, "{\"x\":0}}");
	ok(!accepts(text, strlen(text)), "json: one more in an inner object");
}

/* Names of objects that are closed again take no room. */
static void
names_room(void)
{
	char		text[4096] = "[";

	for (int i = 0; i < 200; i++)
		strcat(text, "{\"a\":{\"b\":0}},");
	strcat(text, "0]");
	ok(accepts(text, strlen(text)), "json: any number of objects");
}

static bool
integer(const char *text, int64_t expected)
{
	JsonReader	reader;
	int64_t		value;

	jread_open(&reader, text, strlen(text));
	return jread_integer(&reader, &value) && jread_at_end(&reader) &&
		value == expected;
}

static bool
no_integer(const char *text)
{
	JsonReader	reader;
	int64_t		value;

	jread_open(&reader, text, strlen(text));
	return !(jread_integer(&reader, &value) && jread_at_end(&reader));
}

static void
integers(void)
{
	static const char *const bad[] = {
		"", "-1", "+1", "01", "00", "1.0", "1.", "1e0", "1E2", "0x1", "1 1",
		"\"1\"", "null", "true", "[1]", "9223372036854775808",
		"9223372036854775810", "18446744073709551616",
		"99999999999999999999999999999999999999", "NaN", "-0",
	};

	ok(integer("0", 0), "jread_integer: 0");
	ok(integer(" 17 ", 17), "jread_integer: space around");
	ok(integer("9223372036854775807", INT64_MAX), "jread_integer: largest");
	for (size_t i = 0; i < COUNT(bad); i++)
		ok(no_integer(bad[i]), "jread_integer: not %s", bad[i]);
}

/* Of a document that is one string. */
static JsonText
string_of(const char *document)
{
	JsonReader	reader;
	JsonText	text = {NULL, NULL};

	jread_open(&reader, document, strlen(document));
	jread_string(&reader, &text);
	return text;
}

static void
strings(void)
{
	char		out[8];
	size_t		size;

	ok(jtext_is(string_of("\"abc\""), "abc"), "jtext_is: plain");
	ok(jtext_is(string_of("\"\\u0061b\\u0063\""), "abc"),
	   "jtext_is: escaped");
	ok(jtext_is(string_of("\"\""), ""), "jtext_is: empty");
	ok(!jtext_is(string_of("\"ab\""), "abc"), "jtext_is: shorter");
	ok(!jtext_is(string_of("\"abcd\""), "abc"), "jtext_is: longer");
	ok(!jtext_is(string_of("\"abd\""), "abc"), "jtext_is: different");
	ok(!jtext_is(string_of("\"\\u0161\""), "a"), "jtext_is: all of the code");

	ok(jtext_copy(out, sizeof(out), &size, string_of("\"a\\\"\\n\"")) &&
	   size == 3 && strcmp(out, "a\"\n") == 0, "jtext_copy: escapes");
	ok(jtext_copy(out, sizeof(out), &size,
				  string_of("\"\\u00e9\\u20ac\"")) &&
	   size == 5 && strcmp(out, "\303\251\342\202\254") == 0,
	   "jtext_copy: two and three bytes");
	ok(jtext_copy(out, sizeof(out), &size, string_of("\"\\ud83d\\ude00\"")) &&
	   size == 4 && strcmp(out, "\360\237\230\200") == 0,
	   "jtext_copy: four bytes");
	ok(jtext_copy(out, sizeof(out), &size, string_of("\"1234567\"")) &&
	   size == 7, "jtext_copy: as long as there is room");
	ok(!jtext_copy(out, sizeof(out), &size, string_of("\"12345678\"")),
	   "jtext_copy: one byte longer");
	ok(!jtext_copy(out, sizeof(out), &size, string_of("\"123456\303\251\"")),
	   "jtext_copy: no half character");
}

static void
failure_is_final(void)
{
	JsonReader	reader;
	JsonText	text;
	int64_t		value;

	jread_open(&reader, "[1]", 3);
	ok(!jread_object(&reader), "json: an array is no object");
	ok(!jread_array(&reader) && !jread_skip(&reader) &&
	   !jread_string(&reader, &text) && !jread_integer(&reader, &value) &&
	   !jread_at_end(&reader) && jread_peek(&reader) == '\0',
	   "json: after a failure nothing is read");
}

/* Every code there is, once in bytes and once in escapes. */
static void
all_codes(void)
{
	int			wrong = 0;

	for (uint32_t code = 1; code < 0x110000; code++)
	{
		bool		surrogate = code >= 0xd800 && code < 0xe000;
		uint32_t	rest = code - 0x10000;
		uint32_t	back = 0;
		char		text[16];
		char		out[5];
		size_t		size;

		if (code < 0x10000)
			sprintf(text, "\"\\u%04x\"", (unsigned) code);
		else
			sprintf(text, "\"\\u%04X\\u%04x\"",
					(unsigned) (0xd800 + (rest >> 10)),
					(unsigned) (0xdc00 + (rest & 0x3ff)));
		if (surrogate)
			wrong += accepts(text, strlen(text));
		else
			wrong += !jtext_copy(out, sizeof(out), &size, string_of(text)) ||
				utf8_decode(&back, out, size) != size || back != code;
	}
	ok(wrong == 0, "json: every code in escapes and in UTF-8");
}

/*
 * The well-formed sequences as the Unicode standard lists them: ranges of the
 * first and of the second byte; all others are 80 to BF.
 */
static size_t
listed_length(const uint8_t *bytes, size_t size)
{
	static const struct
	{
		uint8_t		first[2];
		uint8_t		second[2];
		size_t		length;
	}			rows[] =
	{
		{{0x00, 0x7f}, {0x00, 0xff}, 1}, {{0xc2, 0xdf}, {0x80, 0xbf}, 2},
		{{0xe0, 0xe0}, {0xa0, 0xbf}, 3}, {{0xe1, 0xec}, {0x80, 0xbf}, 3},
		{{0xed, 0xed}, {0x80, 0x9f}, 3}, {{0xee, 0xef}, {0x80, 0xbf}, 3},
		{{0xf0, 0xf0}, {0x90, 0xbf}, 4}, {{0xf1, 0xf3}, {0x80, 0xbf}, 4},
		{{0xf4, 0xf4}, {0x80, 0x8f}, 4},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
	{
		size_t		length = rows[i].length;
		bool		fits = size >= length &&
			bytes[0] >= rows[i].first[0] && bytes[0] <= rows[i].first[1];

		if (fits && length > 1)
			fits = bytes[1] >= rows[i].second[0] &&
				bytes[1] <= rows[i].second[1];
		for (size_t j = 2; fits && j < length; j++)
			fits = bytes[j] >= 0x80 && bytes[j] <= 0xbf;
		if (fits)
			return length;
	}
	return 0;
}

static void
all_sequences(void)
{
	static const uint8_t edges[] = {
		0x00, 0x22, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff
	};
	size_t		tails = COUNT(edges) * COUNT(edges) * COUNT(edges);
	int			wrong = 0;

	for (size_t i = 0; i < 256 * tails; i++)
	{
		uint8_t		bytes[4];
		uint32_t	code;

		bytes[0] = (uint8_t) (i / tails);
		bytes[1] = edges[i % COUNT(edges)];
		bytes[2] = edges[i / COUNT(edges) % COUNT(edges)];
		bytes[3] = edges[i % tails / COUNT(edges) / COUNT(edges)];
		for (size_t size = 0; size <= 4; size++)
			wrong += utf8_decode(&code, (const char *) bytes, size) !=
				listed_length(bytes, size);
	}
	ok(wrong == 0, "utf8_decode: the sequences that Unicode lists, no other");
}

void
test_json(void)
{
	documents();
	cuts();
	names_bound();
	names_room();
	integers();
	strings();
	failure_is_final();
	all_codes();
	all_sequences();
}
