/*
 * pq_message.c
 *		libpq's messages as one readable line.
 *
 * libpq does not tell the SQLSTATE of a failed connection.  It is in the text
 * of the message, in a form that no translation changes, when the verbosity
 * is "verbose":
 *
 *		connection to server at "a", port 1 failed: Connection refused
 *			Is the server running on that host and accepting ...?
 *		connection to server at "b", port 1 failed: FATAL:  28P01: password ...
 *		LOCATION:  auth_failed, auth.c:338
 *
 * So what follows the code is the server's message, and a line that ends with
 * a file of C and a number is for its developers.  Lines that begin with a tab
 * guess at causes.  All the rest is kept, because each host that was tried has
 * a line.
 */
#include "pq_message.h"

#include <string.h>

#include "internal.h"

/* More than there is room for anywhere. */
#define LINE_SIZE			2048

/* ----- appending ----- */

/* As a whole, as far as the marks between two lines tell. */
static bool
is_said(const char *text, const char *line)
{
	size_t		size = strlen(line);

	for (const char *at = text; (at = strstr(at, line)) != NULL; at++)
		if ((at == text || at[-1] == ' ') &&
			(at[size] == '\0' || at[size] == ';'))
			return true;
	return false;
}

static void
add_line(char *to, size_t room, const char *line)
{
	if (line[0] == '\0' || is_said(to, line))
		return;
	if (to[0] != '\0')
		text_add(to, room, "; ");
	text_add(to, room, line);
}

/* ----- one line ----- */

/* "...: auth_failed, auth.c:338", whatever the words before it. */
static bool
is_location(const char *line)
{
	const char *at = strrchr(line, ':');

	return at != NULL && at - line > 2 && strncmp(at - 2, ".c", 2) == 0 &&
		at[1] != '\0' && at[1 + strspn(at + 1, "0123456789")] == '\0';
}

/* Takes the "28P01: " out of "FATAL:  28P01: password ...". */
static void
take_sqlstate(char *line, char sqlstate[6])
{
	static const char code[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

	for (char *at = line; (at = strstr(at, ":  ")) != NULL; at += 3)
		if (strspn(at + 3, code) == 5 && at[8] == ':' && at[9] == ' ')
		{
			memcpy(sqlstate, at + 3, 5);
			sqlstate[5] = '\0';
			memmove(at + 3, at + 10, strlen(at + 10) + 1);
			return;
		}
}

void
pq_message_add(char *to, size_t room, const char *message, char sqlstate[6])
{
	char		line[LINE_SIZE];

	sqlstate[0] = '\0';
	for (; *message != '\0'; message += *message != '\0')
	{
		size_t		size = strcspn(message, "\n");
		size_t		kept = size < LINE_SIZE ? size : LINE_SIZE - 1;

		memcpy(line, message, kept);
		line[kept] = '\0';
		message += size;
		if (line[0] == '\t' || is_location(line))
			continue;
		take_sqlstate(line, sqlstate);
		add_line(to, room, line);
	}
}
