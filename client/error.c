/*
 * error.c
 *		What can go wrong, in numbers, names and sentences.
 *
 * The one place that decides what an SQLSTATE means for a seat.  The rule: an
 * error that can pass by itself is silence; so is every error of a class that
 * speaks of the server's condition, known to us or not.  All the rest is the
 * server's answer.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

typedef struct KindEntry
{
	KeyrightErrorKind kind;
	KeyrightErrorClass class;
	const char *name;
	const char *sentence;
} KindEntry;

/* %s: the license, in quotation marks where there is one. */
static const KindEntry kinds[] = {
	{KEYRIGHT_OK, KEYRIGHT_CLASS_NONE, "ok", ""},
	{KEYRIGHT_ERR_MISUSE, KEYRIGHT_CLASS_LOCAL, "misuse",
	"This call is not possible here."},
	{KEYRIGHT_ERR_OPTIONS, KEYRIGHT_CLASS_LOCAL, "options",
	"An option is not right."},
	{KEYRIGHT_ERR_SYSTEM, KEYRIGHT_CLASS_LOCAL, "system",
	"The operating system refused something that is needed."},
	{KEYRIGHT_ERR_STATE_FILE, KEYRIGHT_CLASS_LOCAL, "state_file",
	"The file that remembers the seat cannot be used."},
	{KEYRIGHT_ERR_INTERRUPTED, KEYRIGHT_CLASS_LOCAL, "interrupted",
	"Waiting for a seat was interrupted."},
	{KEYRIGHT_ERR_UNREACHABLE, KEYRIGHT_CLASS_SILENCE, "unreachable",
	"The license server cannot be reached."},
	{KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE, "busy",
	"The license server cannot answer at the moment."},
	{KEYRIGHT_ERR_NO_SEATS, KEYRIGHT_CLASS_ANSWER, "no_seats",
	"All seats of license %s are taken."},
	{KEYRIGHT_ERR_EXPIRED, KEYRIGHT_CLASS_ANSWER, "expired",
	"The seat of license %s was not renewed in time."},
	{KEYRIGHT_ERR_UNKNOWN_SEAT, KEYRIGHT_CLASS_ANSWER, "unknown_seat",
	"The license server does not know this seat of license %s."},
	{KEYRIGHT_ERR_REVOKED, KEYRIGHT_CLASS_ANSWER, "revoked",
	"An administrator took back this seat of license %s."},
	{KEYRIGHT_ERR_LICENSE, KEYRIGHT_CLASS_ANSWER, "license",
	"License %s cannot be used."},
	{KEYRIGHT_ERR_LOGIN, KEYRIGHT_CLASS_ANSWER, "login",
	"The license server does not accept this login."},
	{KEYRIGHT_ERR_REFUSED, KEYRIGHT_CLASS_ANSWER, "refused",
	"The license server refused the request."},
	{KEYRIGHT_ERR_TOKEN, KEYRIGHT_CLASS_UNSIGNED, "token",
	"The license server's answer is not signed as it must be."},
	{KEYRIGHT_ERR_NO_KEY, KEYRIGHT_CLASS_UNSIGNED, "no_key",
	"The license server has no usable signing key at the moment."},
	{KEYRIGHT_ERR_LAPSED, KEYRIGHT_CLASS_LOCAL, "lapsed",
	"The seat of license %s has lapsed: "
	"it could not be renewed before its end."},
	{KEYRIGHT_ERR_CLOCK, KEYRIGHT_CLASS_LOCAL, "clock",
	"The clock of this computer leapt past the end of the seat "
	"of license %s."},
};

/* What a program may want to tell apart within a kind. */
typedef struct StateEntry
{
	const char *sqlstate;
	KeyrightErrorKind kind;
	const char *sentence;		/* NULL: that of the kind */
	bool		says_it_all;	/* the server's message says no more */
} StateEntry;

static const StateEntry states[] =
{
	{"KR001", KEYRIGHT_ERR_LICENSE,
	"The license server does not know license %s.", true},
	{"KR002", KEYRIGHT_ERR_LICENSE, "License %s is suspended.", true},
	{"KR003", KEYRIGHT_ERR_LICENSE, "License %s is not valid yet.", true},
	{"KR004", KEYRIGHT_ERR_LICENSE, "License %s is not valid any more.", true},
	{"KR005", KEYRIGHT_ERR_NO_KEY, NULL, true},
	{"KR006", KEYRIGHT_ERR_REFUSED,
	"The request id is in use by another holder of license %s.", true},

	/* An upgrade of the server that is half done: it ends. */
	{"KR008", KEYRIGHT_ERR_NO_KEY,
	"The license server is between two versions and cannot sign.",
	false},
	{"25006", KEYRIGHT_ERR_BUSY,
	"The license server is read only at the moment.", false},
	{"40001", KEYRIGHT_ERR_BUSY, NULL, false},
	{"40P01", KEYRIGHT_ERR_BUSY, NULL, false},
	{"55P03", KEYRIGHT_ERR_BUSY, NULL, false},
	{"3D000", KEYRIGHT_ERR_LOGIN,
	"The license server has no such database.", false},
	{"42501", KEYRIGHT_ERR_LOGIN,
	"This login may not ask the license server for a seat.", false},
	{"42883", KEYRIGHT_ERR_REFUSED,
	"The database is no license server: keyright is missing in it.",
	false},
};

static const struct
{
	const char *prefix;
	KeyrightErrorKind kind;
}			classes[] =
{
	{"08", KEYRIGHT_ERR_UNREACHABLE},
	{"28", KEYRIGHT_ERR_LOGIN},
	{"53", KEYRIGHT_ERR_BUSY},
	{"57", KEYRIGHT_ERR_BUSY},
	{"58", KEYRIGHT_ERR_BUSY},
	{"XX", KEYRIGHT_ERR_BUSY},
};

#define COUNT(array)		(sizeof(array) / sizeof((array)[0]))

static const StateEntry *
find_state(const char *sqlstate)
{
	for (size_t i = 0; i < COUNT(states); i++)
		if (strcmp(sqlstate, states[i].sqlstate) == 0)
			return &states[i];
	return NULL;
}

KeyrightErrorKind
error_kind_of_sqlstate(const char *sqlstate)
{
	const StateEntry *state = find_state(sqlstate);

	if (sqlstate[0] == '\0')
		return KEYRIGHT_ERR_UNREACHABLE;
	if (state != NULL)
		return state->kind;
	for (size_t i = 0; i < COUNT(classes); i++)
		if (strncmp(sqlstate, classes[i].prefix, 2) == 0)
			return classes[i].kind;
	return KEYRIGHT_ERR_REFUSED;
}

bool
error_says_it_all(const char *sqlstate)
{
	const StateEntry *state = find_state(sqlstate);

	return state != NULL && state->says_it_all;
}

bool
error_is_conflict(const char *sqlstate)
{
	return strcmp(sqlstate, "40001") == 0 ||
		strcmp(sqlstate, "40P01") == 0 || strcmp(sqlstate, "55P03") == 0;
}

static const KindEntry *
find_kind(KeyrightErrorKind kind)
{
	for (size_t i = 0; i < COUNT(kinds); i++)
		if (kinds[i].kind == kind)
			return &kinds[i];
	return NULL;
}

KeyrightErrorClass
keyright_error_class(KeyrightErrorKind kind)
{
	const KindEntry *entry = find_kind(kind);

	return entry != NULL ? entry->class : KEYRIGHT_CLASS_LOCAL;
}

const char *
keyright_error_name(KeyrightErrorKind kind)
{
	const KindEntry *entry = find_kind(kind);

	return entry != NULL ? entry->name : "unknown";
}

void
text_copy(char *to, size_t room, const char *from)
{
	size_t		size = strnlen(from, room);

	if (size == room)
	{
		size--;
		while (size > 0 && ((unsigned char) from[size] & 0xc0) == 0x80)
			size--;
	}
	memmove(to, from, size);
	to[size] = '\0';
}

void
text_add(char *to, size_t room, const char *from)
{
	size_t		used = strlen(to);

	text_copy(to + used, room - used, from);
}

/* The sentence of an SQLSTATE, if it has one of its own in this kind. */
static const char *
find_sentence(KeyrightErrorKind kind, const char *sqlstate)
{
	const KindEntry *entry = find_kind(kind);

	const StateEntry *state = find_state(sqlstate);

	if (state != NULL && state->kind == kind && state->sentence != NULL)
		return state->sentence;
	return entry != NULL ? entry->sentence : "";
}

/* Puts the license where the sentence has its %s. */
static void
write_sentence(char *to, size_t room, const char *sentence,
			   const char *license)
{
	const char *gap = strstr(sentence, "%s");
	char		name[128] = "";

	if (gap == NULL)
	{
		text_copy(to, room, sentence);
		return;
	}
	if (license != NULL)
		text_copy(name, sizeof(name), license);
	snprintf(to, room, "%.*s\"%s\"%s", (int) (gap - sentence), sentence,
			 name, gap + 2);
}

/* libpq repeats bytes of what it did not understand. */
static void
make_utf8(char *text)
{
	while (*text != '\0')
	{
		uint32_t	code;
		size_t		length = utf8_decode(&code, text, strlen(text));

		if (length == 0)
			*text = '?';
		text += length > 0 ? length : 1;
	}
}

/* A transport's message may have several lines; here they are one. */
static void
on_one_line(char *text)
{
	char	   *to = text;

	for (; *text != '\0'; text++)
	{
		bool		blank = (unsigned char) *text <= ' ';

		if (!blank)
			*to++ = *text;
		else if (text[1] != '\0' && (unsigned char) text[1] > ' ')
			*to++ = ' ';
	}
	*to = '\0';
}

void
error_clear(KeyrightError *error)
{
	memset(error, 0, sizeof(*error));
}

void
error_set(KeyrightError *error, KeyrightErrorKind kind, const char *license,
		  const char *sqlstate, const char *detail)
{
	KeyrightError new;

	/* The arguments may point into *error. */
	memset(&new, 0, sizeof(new));
	new.kind = kind;
	if (sqlstate != NULL)
		text_copy(new.sqlstate, sizeof(new.sqlstate), sqlstate);
	if (detail != NULL)
		text_copy(new.detail, sizeof(new.detail), detail);
	make_utf8(new.detail);
	on_one_line(new.detail);
	write_sentence(new.message, sizeof(new.message),
				   find_sentence(kind, new.sqlstate), license);
	*error = new;
}

void
error_prefix(KeyrightError *error, const char *words)
{
	char		detail[sizeof(error->detail)];

	text_copy(detail, sizeof(detail), words);
	text_add(detail, sizeof(detail), error->detail);
	text_copy(error->detail, sizeof(error->detail), detail);
}

const char *
keyright_state_name(KeyrightState state)
{
	static const char *const names[] = {
		"idle", "waiting", "held", "retrying", "lost", "regained",
		"degraded", "revoked", "refused", "released"
	};

	if ((size_t) state >= COUNT(names))
		return "unknown";
	return names[state];
}
