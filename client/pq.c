/*
 * pq.c
 *		The transport over libpq: three statements, never blocking.
 *
 * Each question is one statement in a transaction of its own.  Its answer
 * counts when the server is ready for the next one, because only then has the
 * transaction been committed.  Results come in binary: no setting of a
 * session or a role changes them.
 *
 * A question that got no answer in time takes its connection with it: what
 * comes late must not be taken for the answer to the next.  The server is not
 * asked to cancel, which could block; its own limits do.
 */
#include "pq.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pq_message.h"

/* A connection that nobody needs for so long is given up. */
#define IDLE_MAX			(60 * SECOND_NS)

/* Microseconds between 1970 and 2000, where the server's times begin. */
#define EPOCH_US			INT64_C(946684800000000)

typedef struct PqTransport
{
	Connector	connector;
	PGconn	   *conn;			/* NULL: none */
} PqTransport;

/* Of the first two statements; the third has a status alone. */
enum
{
	COLUMN_STATUS,
	COLUMN_REASON,
	COLUMN_TOKEN,
	COLUMN_ISSUED_AT,
	COLUMN_RETRY_AT,
	COLUMN_NOW,
	COLUMN_SEAT_ID				/* of a check-out */
};

static const char checkout_sql[] =
	"SELECT status, reason, token, issued_at, retry_at,"
	" pg_catalog.clock_timestamp(), seat_id"
	" FROM keyright_checkout($1::pg_catalog.text, $2::pg_catalog.text,"
	" $3::pg_catalog.interval, $4::pg_catalog.text)";

static const char heartbeat_sql[] =
	"SELECT status, reason, token, issued_at, retry_at,"
	" pg_catalog.clock_timestamp()"
	" FROM keyright_heartbeat($1::pg_catalog.text, $2::pg_catalog.uuid)";

static const char checkin_sql[] =
	"SELECT keyright_checkin($1::pg_catalog.text, $2::pg_catalog.uuid)";

static const char not_in_time[] = "there was no answer in time";
static const char not_understood[] = "the answer was not understood";

static void
drop_connection(PqTransport *transport)
{
	PQfinish(transport->conn);
	transport->conn = NULL;
}

/* ----- reading a row ----- */

static const struct
{
	KeyrightCall call;
	const char *status;
	const char *reason;			/* NULL: any */
	KeyrightStatus means;
}			meanings[] =
{
	{KEYRIGHT_CALL_CHECKOUT, "granted", NULL, KEYRIGHT_STATUS_GRANTED},
	{KEYRIGHT_CALL_CHECKOUT, "no_seats_available", NULL,
	KEYRIGHT_STATUS_NO_SEATS},
	{KEYRIGHT_CALL_HEARTBEAT, "renewed", NULL, KEYRIGHT_STATUS_RENEWED},
	{KEYRIGHT_CALL_HEARTBEAT, "seat_lost", "expired",
	KEYRIGHT_STATUS_LOST_EXPIRED},
	{KEYRIGHT_CALL_HEARTBEAT, "seat_lost", "revoked",
	KEYRIGHT_STATUS_LOST_REVOKED},
	{KEYRIGHT_CALL_HEARTBEAT, "seat_lost", "unknown",
	KEYRIGHT_STATUS_LOST_UNKNOWN},
	{KEYRIGHT_CALL_CHECKIN, "released", NULL, KEYRIGHT_STATUS_RELEASED},
	{KEYRIGHT_CALL_CHECKIN, "not_held", NULL, KEYRIGHT_STATUS_NOT_HELD},
};

/* A status that nobody knows claims to be good; its token will tell. */
static KeyrightStatus
status_of(KeyrightCall call, const char *status, const char *reason)
{
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (meanings[i].call == call &&
			strcmp(meanings[i].status, status) == 0 &&
			(meanings[i].reason == NULL ||
			 strcmp(meanings[i].reason, reason) == 0))
			return meanings[i].means;
	return call == KEYRIGHT_CALL_HEARTBEAT ? KEYRIGHT_STATUS_RENEWED :
		KEYRIGHT_STATUS_GRANTED;
}

static void
read_text(char *to, size_t room, const PGresult *result, int column)
{
	int			size = PQgetlength(result, 0, column);

	to[0] = '\0';
	if (column >= PQnfields(result) || (size_t) size >= room)
		return;
	memcpy(to, PQgetvalue(result, 0, column), (size_t) size);
	to[size] = '\0';
}

/* Microseconds since 1970; false when it is null or no time. */
static bool
read_time(int64_t *us, const PGresult *result, int column)
{
	const unsigned char *bytes;
	uint64_t	value = 0;
	int64_t		at;

	if (PQgetisnull(result, 0, column) || PQgetlength(result, 0, column) != 8)
		return false;
	bytes = (const unsigned char *) PQgetvalue(result, 0, column);
	for (int i = 0; i < 8; i++)
		value = value << 8 | bytes[i];
	at = (int64_t) value;
	/* "infinity" among others. */
	if (at < 0 || at > INT64_MAX / 2)
		return false;
	*us = at + EPOCH_US;
	return true;
}

/* How long from the server's now to its retry_at; our clock has no say. */
static void
read_retry(KeyrightAnswer *answer, const PGresult *result)
{
	int64_t		retry_at;
	int64_t		now;

	if (!read_time(&retry_at, result, COLUMN_RETRY_AT) ||
		!read_time(&now, result, COLUMN_NOW))
		return;
	answer->retry_after_ms = retry_at > now ?
		(retry_at - now + 999) / 1000 : 0;
}

static void
read_seat_id(KeyrightAnswer *answer, const PGresult *result)
{
	if (PQnfields(result) > COLUMN_SEAT_ID &&
		PQgetlength(result, 0, COLUMN_SEAT_ID) == SEAT_ID_SIZE)
		seat_id_print(answer->seat_id, (const uint8_t *)
					  PQgetvalue(result, 0, COLUMN_SEAT_ID));
}

static void
read_row(KeyrightAnswer *answer, KeyrightCall call, const PGresult *result)
{
	char		status[32] = "";
	char		reason[32] = "";

	if (PQntuples(result) == 1)
	{
		read_text(status, sizeof(status), result, COLUMN_STATUS);
		if (PQnfields(result) > COLUMN_NOW)
		{
			read_text(reason, sizeof(reason), result, COLUMN_REASON);
			read_text(answer->token, sizeof(answer->token), result,
					  COLUMN_TOKEN);
			if (!read_time(&answer->issued_at_us, result, COLUMN_ISSUED_AT))
				answer->issued_at_us = -1;
			read_retry(answer, result);
			read_seat_id(answer, result);
		}
	}
	answer->status = status_of(call, status, reason);
}

/* ----- reading an error ----- */

static void
tell_silence(KeyrightAnswer *answer, const char *message)
{
	char		ignored[6];

	answer->status = KEYRIGHT_STATUS_FAILED;
	answer->sqlstate[0] = '\0';
	answer->message[0] = '\0';
	pq_message_add(answer->message, sizeof(answer->message), message,
				   ignored);
}

static void
add_sentence(char *to, size_t room, const char *sentence)
{
	size_t		used = strlen(to);

	if (sentence == NULL)
		return;
	if (used > 0)
		text_add(to, room, to[used - 1] == '.' ? " " : ". ");
	text_add(to, room, sentence);
}

/*
 * The server's sentences.  The first is left out where the library's own says
 * the same.  PostgreSQL's hints about syntax and privileges are for those who
 * wrote the statement.
 */
static void
read_error(KeyrightAnswer *answer, const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	char	   *to = answer->message;
	size_t		room = sizeof(answer->message);

	if (sqlstate == NULL)
	{
		tell_silence(answer, PQresultErrorMessage(result));
		return;
	}
	answer->status = KEYRIGHT_STATUS_FAILED;
	text_copy(answer->sqlstate, sizeof(answer->sqlstate), sqlstate);
	answer->message[0] = '\0';
	if (!error_says_it_all(sqlstate))
		add_sentence(to, room, PQresultErrorField(result,
												  PG_DIAG_MESSAGE_PRIMARY));
	if (strncmp(sqlstate, "42", 2) == 0)
		return;
	add_sentence(to, room, PQresultErrorField(result,
											  PG_DIAG_MESSAGE_DETAIL));
	add_sentence(to, room, PQresultErrorField(result, PG_DIAG_MESSAGE_HINT));
}

/* ----- one statement ----- */

static bool
send_statement(PGconn *conn, const KeyrightRequest *request)
{
	char		ttl[32];
	const char *values[4] = {request->license};

	if (request->call != KEYRIGHT_CALL_CHECKOUT)
	{
		values[1] = request->seat_id;
		return PQsendQueryParams(conn,
								 request->call == KEYRIGHT_CALL_HEARTBEAT ?
								 heartbeat_sql : checkin_sql,
								 2, NULL, values, NULL, NULL, 1) == 1;
	}
	snprintf(ttl, sizeof(ttl), "%lld milliseconds",
			 (long long) request->ttl_ms);
	values[1] = request->holder;
	values[2] = request->ttl_ms > 0 ? ttl : NULL;
	values[3] = request->request_id;
	return PQsendQueryParams(conn, checkout_sql, 4, NULL, values, NULL, NULL,
							 1) == 1;
}

/*
 * The first error counts: what follows an error of the statement is one of the
 * connection.  False: nothing but rows and errors answers our statements.
 */
static bool
take_result(const PGresult *result, const KeyrightRequest *request,
			bool *has_error, KeyrightAnswer *answer)
{
	switch (PQresultStatus(result))
	{
		case PGRES_TUPLES_OK:
			if (!*has_error)
				read_row(answer, request->call, result);
			return true;
		case PGRES_FATAL_ERROR:
		case PGRES_BAD_RESPONSE:
			if (!*has_error)
				read_error(answer, result);
			*has_error = true;
			return true;
		default:
			return false;
	}
}

/*
 * All results up to the one that says "ready".  NULL: that is an answer; else
 * why it is none.  For COPY libpq gives the same result again and again, and
 * what it has read already it gives without waiting: so no more than a few.
 */
static const char *
read_results(PGconn *conn, const KeyrightRequest *request,
			 const Patience *patience, KeyrightAnswer *answer)
{
	bool		has_error = false;

	for (int i = 0; i < RESULTS_MAX; i++)
	{
		PGresult   *result;
		bool		understood;

		if (!patience_result(patience, conn))
			return has_error ? NULL : not_in_time;
		result = PQgetResult(conn);
		if (result == NULL)
			return has_error || PQstatus(conn) == CONNECTION_OK ? NULL :
				not_in_time;
		understood = take_result(result, request, &has_error, answer);
		PQclear(result);
		if (!understood)
			return not_understood;
	}
	return has_error ? NULL : not_understood;
}

/* False: there was no answer, and nothing is known. */
static bool
run_statement(PGconn *conn, const KeyrightRequest *request,
			  const Patience *patience, KeyrightAnswer *answer)
{
	const char *problem = not_in_time;

	tell_silence(answer, "there was no answer");
	if (send_statement(conn, request) && patience_flush(patience, conn))
		problem = read_results(conn, request, patience, answer);
	if (problem == NULL)
		return true;
	tell_silence(answer, PQstatus(conn) == CONNECTION_BAD ?
				 PQerrorMessage(conn) : patience_lost(patience, problem));
	return false;
}

/* ----- the transport ----- */

/* What the server said while nobody listened: mostly that it goes away. */
static bool
is_alive(PGconn *conn)
{
	return PQconsumeInput(conn) == 1 && PQstatus(conn) == CONNECTION_OK;
}

/* Errors after which the same connection may serve the next question. */
static bool
may_stay(const KeyrightAnswer *answer)
{
	return answer->status != KEYRIGHT_STATUS_FAILED ||
		error_is_conflict(answer->sqlstate);
}

/* A connection on which more is to come would answer the next one with it. */
static void
after_answer(PqTransport *transport, const KeyrightAnswer *answer)
{
	if (may_stay(answer) &&
		PQtransactionStatus(transport->conn) == PQTRANS_IDLE)
		return;
	drop_connection(transport);
	if (strcmp(answer->sqlstate, "25006") == 0)
		connector_avoid(&transport->connector);
}

/*
 * On a connection of before.  False: it is gone, which says nothing about the
 * server; every question may be asked twice, so it is, on a new connection.
 */
static bool
call_on_old(PqTransport *transport, const KeyrightRequest *request,
			const Patience *patience, KeyrightAnswer *answer)
{
	bool		answered;

	if (transport->conn == NULL)
		return false;
	answered = is_alive(transport->conn) &&
		run_statement(transport->conn, request, patience, answer);
	if (PQstatus(transport->conn) == CONNECTION_BAD)
	{
		drop_connection(transport);
		return false;
	}
	if (!answered)
		drop_connection(transport);
	else
		after_answer(transport, answer);
	return true;
}

static void
pq_call(void *self, const KeyrightRequest *request, KeyrightAnswer *answer)
{
	PqTransport *transport = self;
	int64_t		room = PATIENCE_ROOM;
	Patience	patience = {
		.give_up_fd = request->give_up_fd, .room = &room
	};
	Clocks		now;

	clocks_read(&now);
	patience.until = time_add(now.boot, request->limit_ns);
	if (call_on_old(transport, request, &patience, answer))
		return;

	answer->status = KEYRIGHT_STATUS_FAILED;
	transport->conn = connector_connect(&transport->connector, &patience,
										answer);
	if (transport->conn == NULL)
		return;
	if (run_statement(transport->conn, request, &patience, answer))
		after_answer(transport, answer);
	else
		drop_connection(transport);
}

static void
pq_idle(void *self, int64_t for_ns)
{
	PqTransport *transport = self;

	if (transport->conn != NULL && for_ns > IDLE_MAX)
		drop_connection(transport);
}

static void
pq_close(void *self)
{
	PqTransport *transport = self;

	drop_connection(transport);
	connector_close(&transport->connector);
	free(transport);
}

/*
 * The socket is a copy, the connection is not: PQfinish() would say good-bye
 * in the parent's name.  What libpq has allocated is left.
 */
static void
pq_forget(void *self)
{
	PqTransport *transport = self;

	if (transport->conn != NULL && PQsocket(transport->conn) >= 0)
		close(PQsocket(transport->conn));
	transport->conn = NULL;
	connector_forget(&transport->connector);
}

bool
pq_transport_open(KeyrightTransport *transport, const char *conninfo,
				  KeyrightError *error)
{
	PqTransport *self = calloc(1, sizeof(*self));

	memset(transport, 0, sizeof(*transport));
	if (self == NULL)
	{
		error_set(error, KEYRIGHT_ERR_SYSTEM, NULL, NULL, "out of memory");
		return false;
	}
	if (!connector_open(&self->connector, conninfo, error))
	{
		/* The variables can be wrong where there is a string, too. */
		error_prefix(error, conninfo != NULL ?
					 "conninfo or the PG* variables: " : "the PG* variables: ");
		free(self);
		return false;
	}
	transport->size = sizeof(*transport);
	transport->self = self;
	transport->call = pq_call;
	transport->idle = pq_idle;
	transport->close = pq_close;
	transport->forget = pq_forget;
	return true;
}
