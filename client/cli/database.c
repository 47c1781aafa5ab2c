/*
 * database.c
 *		One connection, as psql would make it, for what only reads.
 *
 * A failure becomes a line and an exit status, the one that "keyright run" has
 * for the same SQLSTATE.
 */
#include "cli.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "pq.h"
#include "pq_message.h"

/* For all hosts together, unless connect_timeout is set: that is for each. */
#define CONNECT_LIMIT		(15 * SECOND_NS)

/* For each question: so long, and so many bytes. */
#define ANSWER_LIMIT		(30 * SECOND_NS)
#define ANSWER_ROOM			(256 * 1024 * 1024)

#define MESSAGE_SIZE		1536

static const char not_understood[] = "the answer was not understood";

/* ----- errors ----- */

static int
status_of(const char *sqlstate)
{
	return exit_status_of(error_kind_of_sqlstate(sqlstate));
}

/* What helps here, where the server does not know it; NULL: it does. */
static const char *
hint_for(const char *sqlstate, const char *message)
{
	if (strcmp(sqlstate, "42501") == 0)
		return strstr(message, "keyright_jwks") != NULL ?
			GRANT_HINT("client") : GRANT_HINT("monitor");
	if (strcmp(sqlstate, "42P01") == 0 || strcmp(sqlstate, "42883") == 0)
		return "is the extension keyright in this database?";
	return NULL;
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
time_limit(const Connector *connector)
{
	if (connector->connect_timeout == 0)
		return CONNECT_LIMIT;
	return connector->connect_timeout * SECOND_NS * connector->target_count;
}

/* What is wrong without --dsn, too, is not its fault. */
static bool
is_of_dsn(const char *dsn, const KeyrightError *error)
{
	Connector	connector;
	KeyrightError without;

	if (dsn == NULL)
		return false;
	if (!connector_open(&connector, NULL, &without))
		return strcmp(without.detail, error->detail) != 0;
	connector_close(&connector);
	return true;
}

static int
complain_of_dsn(const char *dsn, const KeyrightError *error)
{
	if (is_of_dsn(dsn, error))
	{
		complain("--dsn: %s", error->detail);
		return EX_USAGE;
	}
	complain("the PG* variables are not right: %s", error->detail);
	return EX_CONFIG;
}

int
check_dsn(const char *dsn)
{
	Connector	connector;
	KeyrightError error;

	if (!connector_open(&connector, dsn, &error))
		return complain_of_dsn(dsn, &error);
	connector_close(&connector);
	return EX_OK;
}

/*
 * As the library does it: one host after the other, each within its share of
 * the time.  A server that is read only can be looked at, too.
 */
PGconn *
database_open(const char *dsn, int *status)
{
	Connector	connector;
	KeyrightError error;
	KeyrightAnswer answer = {.size = sizeof(answer)};
	int64_t		room = PATIENCE_ROOM;
	Patience	patience = {.give_up_fd = -1, .room = &room};
	PGconn	   *conn;

	if (!connector_open(&connector, dsn, &error))
	{
		*status = complain_of_dsn(dsn, &error);
		return NULL;
	}
	connector.any_server = true;
	patience.until = boot_clock() + time_limit(&connector);
	conn = connector_connect(&connector, &patience, &answer);
	connector_close(&connector);
	if (conn == NULL)
	{
		complain("%s", answer.message);
		*status = status_of(answer.sqlstate);
	}
	return conn;
}

/* ----- asking ----- */

/*
 * The first of the results, up to the one that says "ready".  NULL: there is
 * one; else why there is none, an empty text: libpq's message says it.
 */
static const char *
read_answer(PGconn *conn, const Patience *patience, PGresult **answer)
{
	for (int i = 0; i < RESULTS_MAX; i++)
	{
		PGresult   *result;

		if (!patience_result(patience, conn))
			return PQstatus(conn) != CONNECTION_OK ? "" :
				patience_lost(patience, "the server did not answer in time");
		result = PQgetResult(conn);
		if (result == NULL)
			return PQstatus(conn) == CONNECTION_OK ? NULL : "";
		if (*answer == NULL)
			*answer = result;
		else
			PQclear(result);
	}
	return not_understood;
}

/* All that the server has to say, on one line. */
static void
complain_of_error(const PGresult *result, const char *sqlstate,
				  const char *primary)
{
	const char *detail = PQresultErrorField(result,
											PG_DIAG_MESSAGE_DETAIL);
	const char *hint = hint_for(sqlstate, primary);

	if (hint == NULL)
		hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
	if (detail == NULL && hint == NULL)
		complain("%s", primary);
	else
		complain("%s (%s%s%s)", primary, detail != NULL ? detail : "",
				 detail != NULL && hint != NULL ? " " : "",
				 hint != NULL ? hint : "");
}

static int
complain_of_answer(PGconn *conn, const PGresult *result, const char *problem)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *primary = PQresultErrorField(result,
											 PG_DIAG_MESSAGE_PRIMARY);

	if (sqlstate != NULL && primary != NULL)
	{
		complain_of_error(result, sqlstate, primary);
		return status_of(sqlstate);
	}
	if (problem == NULL && PQresultErrorMessage(result)[0] == '\0')
		problem = not_understood;
	return complain_of_connection(conn, problem != NULL ? problem : "");
}

PGresult *
database_ask(PGconn *conn, const char *query, int columns, int count,
			 const char *const *values, int *status)
{
	int64_t		room = ANSWER_ROOM;
	Patience	patience = {
		.until = boot_clock() + ANSWER_LIMIT, .give_up_fd = -1, .room = &room
	};
	PGresult   *result = NULL;
	const char *problem = "";

	if (PQsendQueryParams(conn, query, count, NULL, values, NULL, NULL,
						  0) == 1 && patience_flush(&patience, conn))
		problem = read_answer(conn, &patience, &result);
	if (problem == NULL && PQresultStatus(result) == PGRES_TUPLES_OK &&
		PQnfields(result) == columns)
		return result;
	*status = complain_of_answer(conn, result, problem);
	PQclear(result);
	return NULL;
}

/* A query that gives one row, whatever there is. */
PGresult *
database_ask_row(PGconn *conn, const char *query, int columns, int count,
				 const char *const *values, int *status)
{
	PGresult   *result = database_ask(conn, query, columns, count, values,
									  status);

	if (result == NULL || PQntuples(result) == 1)
		return result;
	*status = complain_of_connection(conn, not_understood);
	PQclear(result);
	return NULL;
}
