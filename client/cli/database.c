/*
 * database.c
 *		One connection, as psql would make it, for what only reads.
 *
 * A failure becomes a line and an exit status: not to be reached (69), or an
 * answer that repeating won't mend (77).
 */
#include "cli.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "pq_message.h"

/* As in psql with connect_timeout, which counts if it is set. */
#define CONNECT_LIMIT		(15 * SECOND_NS)

#define MESSAGE_SIZE		1536

/* ----- errors ----- */

static int
status_of(const char *sqlstate)
{
	static const char *const passing[] = {
		"08", "53", "57", "58", "XX", "25006", "40", "55P03"
	};

	if (sqlstate[0] == '\0')
		return EX_UNAVAILABLE;
	for (size_t i = 0; i < COUNT(passing); i++)
		if (strncmp(sqlstate, passing[i], strlen(passing[i])) == 0)
			return EX_UNAVAILABLE;
	return EX_NOPERM;
}

static const char *
hint_for(const char *sqlstate)
{
	if (strcmp(sqlstate, "42501") == 0)
		return " (keyright_grant() gives a role what it needs)";
	if (strcmp(sqlstate, "42P01") == 0 || strcmp(sqlstate, "42883") == 0)
		return " (is the extension keyright in this database?)";
	return "";
}

/* problem: what libpq does not know, may be empty. */
static int
complain_of_connection(PGconn *conn, const char *problem)
{
	char		text[MESSAGE_SIZE] = "";
	char		sqlstate[6];

	pq_message_add(text, sizeof(text), PQerrorMessage(conn), sqlstate);
	if (problem[0] != '\0')
		pq_message_add(text, sizeof(text), problem, sqlstate);
	complain("%s", text);
	return status_of(sqlstate);
}

/* ----- connecting ----- */

static int64_t
time_limit(PGconn *conn)
{
	PQconninfoOption *options = PQconninfo(conn);
	int64_t		limit = CONNECT_LIMIT;

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
		if (strcmp(o->keyword, "connect_timeout") == 0 && o->val != NULL &&
			atoi(o->val) > 0)
			limit = atoi(o->val) * SECOND_NS;
	PQconninfoFree(options);
	return limit;
}

/* NULL, or why not; an empty text: libpq's message says it. */
static const char *
connect_within(PGconn *conn, int64_t limit)
{
	int64_t		end = boot_clock() + limit;
	PostgresPollingStatusType wanted = PGRES_POLLING_WRITING;

	while (wanted != PGRES_POLLING_OK)
	{
		struct pollfd fd = {
			.fd = PQsocket(conn),
			.events = wanted == PGRES_POLLING_READING ? POLLIN : POLLOUT
		};
		int64_t		left = end - boot_clock();

		if (wanted == PGRES_POLLING_FAILED)
			return "";
		if (left <= 0)
			return "the server did not answer in time";
		poll(&fd, 1, left / MS_NS > 1000 ? 1000 : (int) (left / MS_NS) + 1);
		if (fd.revents != 0)
			wanted = PQconnectPoll(conn);
	}
	return NULL;
}

/* The later of two values counts, so ours come first. */
static PGconn *
begin_connecting(const char *dsn)
{
	const char *keywords[] = {
		"fallback_application_name", "client_encoding", "dbname", NULL
	};
	const char *values[] = {"keyright", "UTF8", dsn, NULL};

	return PQconnectStartParams(keywords, values, 1);
}

PGconn *
database_open(const char *dsn, int *status)
{
	PGconn	   *conn = begin_connecting(dsn);
	const char *problem = "";

	if (conn != NULL)
		PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
	if (conn != NULL && PQstatus(conn) != CONNECTION_BAD)
		problem = connect_within(conn, time_limit(conn));
	if (conn == NULL)
	{
		complain("out of memory");
		*status = EX_SOFTWARE;
	}
	else if (problem == NULL)
		return conn;
	else
		*status = complain_of_connection(conn, problem);
	PQfinish(conn);
	return NULL;
}

PGresult *
database_ask(PGconn *conn, const char *query, int count,
			 const char *const *values, int *status)
{
	PGresult   *result;
	const char *sqlstate;
	const char *primary;

	result = PQexecParams(conn, query, count, NULL, values, NULL, NULL, 0);
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		return result;
	sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	if (sqlstate != NULL && primary != NULL)
	{
		complain("%s%s", primary, hint_for(sqlstate));
		*status = status_of(sqlstate);
	}
	else
		*status = complain_of_connection(conn, "");
	PQclear(result);
	return NULL;
}
