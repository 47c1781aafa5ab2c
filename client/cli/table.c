/*
 * table.c
 *		A table whose columns stand under their titles.
 *
 * Holders choose their names, and a terminal obeys what it reads: whatever
 * cannot be printed is shown as "?".
 */
#include "cli.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

#define CELL_SIZE			1024

/* Copies what can be printed; returns how many columns it takes. */
static int
printable(char to[CELL_SIZE], const char *from)
{
	mbstate_t	state = {0};
	size_t		left = strlen(from);
	size_t		used = 0;
	int			width = 0;

	while (left > 0 && used + MB_CUR_MAX < CELL_SIZE - 1)
	{
		wchar_t		c;
		size_t		size = mbrtowc(&c, from, left, &state);
		bool		valid = size != (size_t) -1 && size != (size_t) -2 &&
			size > 0;
		int			columns = valid && iswprint((wint_t) c) ? wcwidth(c) : -1;

		if (!valid)
		{
			size = 1;
			memset(&state, 0, sizeof(state));
		}
		if (columns >= 0)
			memcpy(to + used, from, size);
		else
			to[used] = '?';
		used += columns >= 0 ? size : 1;
		width += columns >= 0 ? columns : 1;
		from += size;
		left -= size;
	}
	to[used] = '\0';
	return width;
}

static void
show_value(char text[CELL_SIZE], ColumnKind kind, const char *value)
{
	char		length[DURATION_SIZE];
	long long	seconds = strtoll(value, NULL, 10);

	switch (kind)
	{
		case COLUMN_TEXT:
		case COLUMN_NUMBER:
			snprintf(text, CELL_SIZE, "%s", value);
			break;
		case COLUMN_TIME:
			print_local_time(text, "%F %T", seconds);
			break;
		case COLUMN_AGO:
		case COLUMN_IN:
			print_duration(length, seconds >= 0 ? seconds :
						   seconds == LLONG_MIN ? LLONG_MAX : -seconds);
			if ((kind == COLUMN_AGO) == (seconds >= 0))
				snprintf(text, CELL_SIZE, "%s ago", length);
			else
				snprintf(text, CELL_SIZE, "in %s", length);
			break;
	}
}

/* Returns the width. */
static int
make_cell(char text[CELL_SIZE], const Column *column,
		  const PGresult *result, int row, int number)
{
	char		raw[CELL_SIZE] = "-";

	if (!PQgetisnull(result, row, number))
		show_value(raw, column->kind, PQgetvalue(result, row, number));
	return printable(text, raw);
}

static int
column_width(const Column *column, const PGresult *result, int number)
{
	char		text[CELL_SIZE];
	int			widest = (int) strlen(column->title);

	for (int row = 0; row < PQntuples(result); row++)
	{
		int			width = make_cell(text, column, result, row, number);

		if (width > widest)
			widest = width;
	}
	return widest;
}

/* No spaces at the end of a line. */
static void
print_cell(FILE *to, const char *text, int width, int room, bool right,
		   bool last)
{
	int			spaces = room - width;

	if (right)
		fprintf(to, "%*s", spaces, "");
	fputs(text, to);
	if (!last)
		fprintf(to, "%*s", right ? 2 : spaces + 2, "");
}

void
table_print(FILE *to, const Column *columns, const PGresult *result)
{
	int			count = PQnfields(result);
	int		   *rooms = calloc((size_t) count, sizeof(int));
	char		text[CELL_SIZE];

	if (rooms == NULL)
		return;
	for (int c = 0; c < count; c++)
		rooms[c] = column_width(&columns[c], result, c);
	for (int row = -1; row < PQntuples(result); row++)
	{
		for (int c = 0; c < count; c++)
		{
			int			width = row < 0 ?
				printable(text, columns[c].title) :
				make_cell(text, &columns[c], result, row, c);

			print_cell(to, text, width, rooms[c],
					   columns[c].kind == COLUMN_NUMBER, c == count - 1);
		}
		putc('\n', to);
	}
	free(rooms);
}
