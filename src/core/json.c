/*
 * json.c
 *		A strict reader for small JSON documents (RFC 8259).
 *
 * The reader walks over the text once, front to back, and copies nothing: a
 * string is handed out as a stretch of the text whose characters are known to
 * be good.  What it holds to:
 *
 * - Nothing before `at` is read again except names of objects that are open,
 *   and nothing at or after `end` is read at all.
 * - The first failure is final: from then on every function says false.
 * - The names of one object are different, however they are spelled.  Two
 *   readers of one document must never see two documents.
 * - Depth and the number of names in open objects are bounded, so that the
 *   recursion is shallow and the work is linear in the size of the text.
 * - Strings hold valid UTF-8, no U+0000 and no lone surrogate.
 */
#include "core.h"

#include <string.h>

/* Says false, for good. */
static bool
fail(JsonReader *reader)
{
	reader->failed = true;
	return false;
}

static void
skip_space(JsonReader *reader)
{
	while (reader->at < reader->end &&
		   (*reader->at == ' ' || *reader->at == '\t' ||
			*reader->at == '\n' || *reader->at == '\r'))
		reader->at++;
}

/* Takes this character if it is the next one, white space apart. */
static bool
take(JsonReader *reader, char c)
{
	if (jread_peek(reader) != c)
		return false;
	reader->at++;
	return true;
}

void
jread_open(JsonReader *reader, const char *text, size_t size)
{
	memset(reader, 0, sizeof(*reader));
	reader->at = text;
	reader->end = text + size;
}

bool
jread_at_end(JsonReader *reader)
{
	if (reader->failed)
		return false;
	skip_space(reader);
	return reader->at == reader->end;
}

char
jread_peek(JsonReader *reader)
{
	if (reader->failed)
		return '\0';
	skip_space(reader);
	return reader->at < reader->end ? *reader->at : '\0';
}

/* ----- characters ----- */

/* The smallest character that needs a sequence of this length. */
static const uint32_t utf8_least[] = {0, 0, 0x80, 0x800, 0x10000};

static size_t
utf8_length(uint8_t lead)
{
	if (lead < 0x80)
		return 1;
	if (lead >= 0xc2 && lead <= 0xdf)
		return 2;
	if (lead >= 0xe0 && lead <= 0xef)
		return 3;
	if (lead >= 0xf0 && lead <= 0xf4)
		return 4;
	return 0;
}

size_t
utf8_decode(uint32_t *code, const char *text, size_t size)
{
	uint8_t		lead = size > 0 ? (uint8_t) text[0] : 0xff;
	size_t		length = utf8_length(lead);

	if (length == 0 || length > size)
		return 0;

	*code = length == 1 ? lead : lead & (0x7fu >> length);
	for (size_t i = 1; i < length; i++)
	{
		if (((uint8_t) text[i] & 0xc0) != 0x80)
			return 0;
		*code = (*code << 6) | ((uint8_t) text[i] & 0x3f);
	}

	if (*code < utf8_least[length] || *code > 0x10ffff ||
		(*code >= 0xd800 && *code <= 0xdfff))
		return 0;
	return length;
}

static size_t
utf8_encode(char out[4], uint32_t code)
{
	size_t		length = code < 0x80 ? 1 : code < 0x800 ? 2 :
		code < 0x10000 ? 3 : 4;

	for (size_t i = length - 1; i > 0; i--)
	{
		out[i] = (char) (0x80 | (code & 0x3f));
		code >>= 6;
	}
	out[0] = (char) (length == 1 ? code : (0xf00u >> length & 0xff) | code);
	return length;
}

static bool
hex4(JsonText *text, uint32_t *value)
{
	if (text->end - text->at < 4)
		return false;

	*value = 0;
	for (int i = 0; i < 4; i++)
	{
		char		c = *text->at++;

		*value *= 16;
		if (c >= '0' && c <= '9')
			*value += (uint32_t) (c - '0');
		else if (c >= 'a' && c <= 'f')
			*value += (uint32_t) (c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			*value += (uint32_t) (c - 'A' + 10);
		else
			return false;
	}
	return true;
}

/* After "\u": one character, of two escapes when the first is a surrogate. */
static bool
unicode_escape(JsonText *text, uint32_t *code)
{
	uint32_t	low;

	if (!hex4(text, code) || *code == 0)
		return false;
	if (*code < 0xd800 || *code > 0xdfff)
		return true;

	if (*code > 0xdbff || text->end - text->at < 2 ||
		text->at[0] != '\\' || text->at[1] != 'u')
		return false;
	text->at += 2;
	if (!hex4(text, &low) || low < 0xdc00 || low > 0xdfff)
		return false;

	*code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
	return true;
}

/* After a backslash. */
static bool
escape(JsonText *text, uint32_t *code)
{
	static const char letters[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	const char *letter;

	if (text->at >= text->end || *text->at == '\0')
		return false;
	if (*text->at == 'u')
	{
		text->at++;
		return unicode_escape(text, code);
	}

	letter = strchr(letters, *text->at++);
	if (letter == NULL)
		return false;
	*code = (uint8_t) meanings[letter - letters];
	return true;
}

/* Takes one character; false if it may not stand in a string. */
static bool
next_code(JsonText *text, uint32_t *code)
{
	size_t		length;

	if (text->at < text->end && *text->at == '\\')
	{
		text->at++;
		return escape(text, code);
	}

	length = utf8_decode(code, text->at, (size_t) (text->end - text->at));
	text->at += length;
	return length > 0 && *code >= 0x20;
}

/* ----- strings ----- */

bool
jread_string(JsonReader *reader, JsonText *value)
{
	JsonText	rest;
	uint32_t	code;

	if (!take(reader, '"'))
		return fail(reader);

	rest.at = reader->at;
	rest.end = reader->end;
	while (rest.at < rest.end && *rest.at != '"')
	{
		if (!next_code(&rest, &code))
			return fail(reader);
	}
	if (rest.at == rest.end)
		return fail(reader);

	value->at = reader->at;
	value->end = rest.at;
	reader->at = rest.at + 1;
	reader->fresh = false;
	return true;
}

/* Do two strings say the same, whatever escapes they use? */
static bool
same_text(JsonText a, JsonText b)
{
	while (a.at < a.end && b.at < b.end)
	{
		uint32_t	x;
		uint32_t	y;

		if (!next_code(&a, &x) || !next_code(&b, &y) || x != y)
			return false;
	}
	return a.at == a.end && b.at == b.end;
}

bool
jtext_is(JsonText text, const char *word)
{
	while (text.at < text.end && *word != '\0')
	{
		uint32_t	code;

		if (!next_code(&text, &code) || code != (uint8_t) *word++)
			return false;
	}
	return text.at == text.end && *word == '\0';
}

bool
jtext_copy(char *out, size_t room, size_t *size, JsonText text)
{
	*size = 0;
	while (text.at < text.end)
	{
		char		bytes[4];
		uint32_t	code;
		size_t		length;

		if (!next_code(&text, &code))
			return false;
		length = utf8_encode(bytes, code);
		if (length >= room - *size)
			return false;
		memcpy(out + *size, bytes, length);
		*size += length;
	}
	out[*size] = '\0';
	return true;
}

/* ----- objects and arrays ----- */

static bool
enter(JsonReader *reader, char bracket)
{
	if (!take(reader, bracket) || reader->depth == JSON_DEPTH_MAX)
		return fail(reader);

	reader->base[reader->depth++] = reader->names_open;
	reader->fresh = true;
	return true;
}

bool
jread_object(JsonReader *reader)
{
	return enter(reader, '{');
}

bool
jread_array(JsonReader *reader)
{
	return enter(reader, '[');
}

/*
 * Goes to the next member or element of the innermost object or array.  False
 * after its closing bracket, and when there is neither that nor a comma where
 * one has to be.
 */
static bool
advance(JsonReader *reader, char bracket)
{
	if (take(reader, bracket))
	{
		reader->names_open = reader->base[--reader->depth];
		reader->fresh = false;
		return false;
	}
	if (!reader->fresh && !take(reader, ','))
		return fail(reader);
	reader->fresh = false;
	return !reader->failed;
}

bool
jread_element(JsonReader *reader)
{
	return advance(reader, ']');
}

bool
jread_member(JsonReader *reader, JsonText *name)
{
	if (!advance(reader, '}'))
		return false;
	if (!jread_string(reader, name) || !take(reader, ':'))
		return fail(reader);

	for (int i = reader->base[reader->depth - 1]; i < reader->names_open; i++)
	{
		if (same_text(reader->names[i], *name))
			return fail(reader);
	}
	if (reader->names_open == JSON_NAMES_MAX)
		return fail(reader);
	reader->names[reader->names_open++] = *name;
	return true;
}

/* ----- numbers and what is passed over ----- */

static bool
is_digit(const JsonReader *reader)
{
	return reader->at < reader->end &&
		*reader->at >= '0' && *reader->at <= '9';
}

/*
 * What follows the digits is left to the next call, which wants a comma or a
 * bracket there: that refuses fractions, exponents and leading zeros.
 */
bool
jread_integer(JsonReader *reader, int64_t *value)
{
	bool		zero = jread_peek(reader) == '0';

	*value = 0;
	if (reader->failed || !is_digit(reader))
		return fail(reader);
	do
	{
		int			digit = *reader->at++ - '0';

		if (*value > (INT64_MAX - digit) / 10)
			return fail(reader);
		*value = *value * 10 + digit;
	} while (!zero && is_digit(reader));

	reader->fresh = false;
	return true;
}

static bool
skip_digits(JsonReader *reader)
{
	if (!is_digit(reader))
		return fail(reader);
	while (is_digit(reader))
		reader->at++;
	return true;
}

/* Takes one of these two characters if it stands here, white space or not. */
static bool
take_here(JsonReader *reader, char a, char b)
{
	if (reader->at == reader->end || (*reader->at != a && *reader->at != b))
		return false;
	reader->at++;
	return true;
}

static bool
skip_number(JsonReader *reader)
{
	take_here(reader, '-', '-');
	if (!take_here(reader, '0', '0') && !skip_digits(reader))
		return false;
	if (take_here(reader, '.', '.') && !skip_digits(reader))
		return false;
	if (take_here(reader, 'e', 'E'))
	{
		take_here(reader, '+', '-');
		return skip_digits(reader);
	}
	return true;
}

static bool
skip_word(JsonReader *reader, const char *word)
{
	size_t		length = strlen(word);

	if ((size_t) (reader->end - reader->at) < length ||
		memcmp(reader->at, word, length) != 0)
		return fail(reader);
	reader->at += length;
	return true;
}

static bool
skip_scalar(JsonReader *reader, char first)
{
	reader->fresh = false;
	switch (first)
	{
		case 't':
			return skip_word(reader, "true");
		case 'f':
			return skip_word(reader, "false");
		case 'n':
			return skip_word(reader, "null");
		default:
			return skip_number(reader);
	}
}

/* Calls itself at most JSON_DEPTH_MAX deep: enter() counts. */
bool
jread_skip(JsonReader *reader)
{
	char		first = jread_peek(reader);
	JsonText	text;

	if (reader->failed)
		return false;
	if (first == '"')
		return jread_string(reader, &text);
	if (first != '{' && first != '[')
		return skip_scalar(reader, first);

	if (!enter(reader, first))
		return false;
	while (first == '{' ? jread_member(reader, &text) : jread_element(reader))
	{
		if (!jread_skip(reader))
			return false;
	}
	return !reader->failed;
}
