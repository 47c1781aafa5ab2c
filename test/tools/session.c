/*
 * session.c
 *		One client of a storm: random check-outs, beats, check-ins and
 *		revocations, in autocommit and in transactions with savepoints, some of
 *		which are rolled back or cut off.
 *
 * What a transaction did is kept as events until its fate is known; only then
 * it goes into the books.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "storm.h"

#define MAX_HELD	5
#define MAX_EVENTS	32
#define MAX_ENDED	8

typedef enum EventKind
{
	EVENT_GRANTED,
	EVENT_RENEWED,
	EVENT_RELEASED
} EventKind;

typedef struct Event
{
	EventKind	kind;
	Lease	   *lease;
	int64_t		expires;
	Ticket		ticket;
} Event;

typedef struct Session
{
	int			number;
	Random		random;
	PGconn	   *conn;
	Lease	   *held[MAX_HELD];
	int			held_count;
	Lease	   *ended[MAX_ENDED];	/* to beat after their end */
	unsigned	ended_count;
	bool		in_transaction;
	bool		cut;			/* by ourselves: connect again */
	Event		events[MAX_EVENTS];
	int			event_count;
} Session;

typedef enum Fate
{
	FATE_COMMITTED,
	FATE_ROLLED_BACK,
	FATE_UNKNOWN
} Fate;

/* ---------- what it holds ---------- */

static void
drop(Session *s, Lease *lease)
{
	for (int i = 0; i < s->held_count; i++)
		if (s->held[i] == lease)
		{
			s->held[i] = s->held[--s->held_count];
			return;
		}
}

static void
end(Session *s, Lease *lease)
{
	books_ended(lease);
	drop(s, lease);
	s->ended[s->ended_count++ % MAX_ENDED] = lease;
}

static bool
careless(Session *s)
{
	return options.careless && s->number % 2 == 1;
}

static void
settle_committed(Session *s, Event *event)
{
	switch (event->kind)
	{
		case EVENT_GRANTED:
			books_granted(event->lease, event->ticket);
			/* one too many is a client that died: nobody will beat for it */
			if (s->held_count < MAX_HELD)
				s->held[s->held_count++] = event->lease;
			break;
		case EVENT_RENEWED:
			books_renewed(event->lease, event->expires, event->ticket);
			break;
		case EVENT_RELEASED:
			/* what is given back carelessly may be back after a crash */
			if (careless(s))
				drop(s, event->lease);
			else
				end(s, event->lease);
			break;
	}
}

static void
settle_rolled_back(Event *event)
{
	if (event->kind == EVENT_GRANTED)
		books_rolled_back(event->lease->seat_id);
	else if (event->kind == EVENT_RELEASED)
		books_release_failed(event->lease, event->ticket);
}

static void
settle_unknown(Session *s, Event *event)
{
	if (event->kind == EVENT_RELEASED)
		drop(s, event->lease);
}

static void
settle(Session *s, int from, Fate fate)
{
	if (fate == FATE_ROLLED_BACK)
		for (int i = s->event_count - 1; i >= from; i--)
			settle_rolled_back(&s->events[i]);
	else
		for (int i = from; i < s->event_count; i++)
		{
			if (fate == FATE_COMMITTED)
				settle_committed(s, &s->events[i]);
			else
				settle_unknown(s, &s->events[i]);
		}
	s->event_count = from;
}

static void
happened(Session *s, EventKind kind, Lease *lease, int64_t expires,
		 Ticket ticket)
{
	s->events[s->event_count++] = (Event) {kind, lease, expires, ticket};
	if (!s->in_transaction)
		settle(s, 0, FATE_COMMITTED);
}

/* ---------- talking to the server ---------- */

static bool
connect_session(Session *s)
{
	char		sql[200];

	for (;;)
	{
		s->conn = connect_as("storm");
		if (s->conn == NULL)
			return false;
		snprintf(sql, sizeof(sql), "SET default_transaction_isolation = '%s'%s",
				 options.isolation,
				 careless(s) ? "; SET synchronous_commit = off" : "");
		PQclear(PQexec(s->conn, sql));
		if (PQstatus(s->conn) == CONNECTION_OK)
		{
			count(CONNECTIONS);
			s->cut = false;
			return true;
		}
		PQfinish(s->conn);
	}
}

/*
 * NULL when there is no answer: the statement failed, and with it the
 * transaction, or the connection is gone.
 */
static PGresult *
ask(Session *s, const char *sql, const char *a, const char *b)
{
	const char *const values[] = {a, b};
	PGresult   *result = PQexecParams(s->conn, sql, a ? b ? 2 : 1 : 0, NULL,
									  values, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(result);
	const char *sqlstate;

	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return result;
	sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	if (sqlstate != NULL)
		count_error(sqlstate, PQresultErrorMessage(result));
	if (sqlstate != NULL && strcmp(sqlstate, "55P03") == 0 &&
		strstr(PQresultErrorMessage(result), "license \"storm") == NULL)
		violation("an error that does not name the license: %s",
				  PQresultErrorMessage(result));
	PQclear(result);
	return NULL;
}

static bool
connected(Session *s)
{
	return PQstatus(s->conn) == CONNECTION_OK;
}

static bool
command(Session *s, const char *sql)
{
	PGresult   *result = ask(s, sql, NULL, NULL);

	PQclear(result);
	return result != NULL;
}

/* The client's machine loses power: no Terminate message is sent. */
static void
cut_off(Session *s)
{
	count(CONNECTIONS_CUT);
	s->cut = true;
	shutdown(PQsocket(s->conn), SHUT_RDWR);
}

/* ---------- the calls ---------- */

#define ANSWER \
	"SELECT status, reason, slot, seat_id," \
	" (extract(epoch FROM issued_at) * 1000000)::bigint," \
	" (extract(epoch FROM expires_at) * 1000000)::bigint, token FROM "

enum
{
	A_STATUS, A_REASON, A_SLOT, A_SEAT_ID, A_ISSUED, A_EXPIRES, A_TOKEN
};

static int64_t
number_at(PGresult *answer, int column)
{
	return strtoll(PQgetvalue(answer, 0, column), NULL, 10);
}

static bool
status_is(PGresult *answer, const char *status)
{
	return strcmp(PQgetvalue(answer, 0, A_STATUS), status) == 0;
}

static void
check_answer(PGresult *answer, const Lease *lease)
{
	const License *license = &licenses[lease->license];
	int64_t		expires = number_at(answer, A_EXPIRES);

	if (!token_fits(PQgetvalue(answer, 0, A_TOKEN), license->name,
					lease->slot, lease->seat_id, expires))
		violation("%s: the token does not fit to its row", license->name);
	if (expires < number_at(answer, A_ISSUED) + license->ttl)
		violation("%s: a lease shorter than its ttl", license->name);
	if (lease->slot < 1 ||
		(lease->slot > license->seat_count && !license->resized))
		violation("%s: slot %d of %d seats", license->name, lease->slot,
				  license->seat_count);
}

static Lease *
new_lease(Session *s, int license, PGresult *answer)
{
	/* never freed: the books may speak of it until the end */
	Lease	   *lease = calloc(1, sizeof(Lease));

	lease->license = license;
	lease->client = s->number;
	lease->slot = (int) number_at(answer, A_SLOT);
	lease->since = number_at(answer, A_ISSUED);
	lease->expires = number_at(answer, A_EXPIRES);
	snprintf(lease->seat_id, SEAT_ID_SIZE, "%s",
			 PQgetvalue(answer, 0, A_SEAT_ID));
	check_answer(answer, lease);
	return lease;
}

static bool
check_out(Session *s, int license)
{
	Ticket		ticket = books_ticket(license);
	char		holder[20];
	PGresult   *answer;

	snprintf(holder, sizeof(holder), "client %d", s->number);
	answer = ask(s, ANSWER "keyright_checkout($1, $2)",
				 licenses[license].name, holder);
	if (answer == NULL)
		return false;
	if (status_is(answer, "granted"))
	{
		count(GRANTED);
		happened(s, EVENT_GRANTED, new_lease(s, license, answer), 0, ticket);
	}
	else
		count(REFUSED);
	PQclear(answer);
	return true;
}

static void
told_lost(Session *s, Lease *lease, const char *reason, int64_t received)
{
	count(strcmp(reason, "expired") == 0 ? LOST_EXPIRED :
		  strcmp(reason, "revoked") == 0 ? LOST_REVOKED : LOST_UNKNOWN);
	books_told_lost(lease, "a beat", reason, received);
	/* in a transaction it may be its own doing, and be undone */
	if (!s->in_transaction && !lease->gone)
		end(s, lease);
}

static bool
beat(Session *s, Lease *lease)
{
	Ticket		ticket = books_ticket(lease->license);
	int64_t		sent = wall_clock();
	PGresult   *answer = ask(s, ANSWER "keyright_heartbeat($1, $2)",
							 licenses[lease->license].name, lease->seat_id);

	if (answer == NULL)
	{
		books_unsure(lease);
		return false;
	}
	if (status_is(answer, "renewed"))
	{
		int64_t		expires = number_at(answer, A_EXPIRES);

		count(RENEWED);
		check_answer(answer, lease);
		books_told_renewed(lease, expires, sent);
		/* until the commit, which may never be */
		books_unsure(lease);
		happened(s, EVENT_RENEWED, lease, expires, ticket);
	}
	else
		told_lost(s, lease, PQgetvalue(answer, 0, A_REASON), wall_clock());
	PQclear(answer);
	return true;
}

static bool
check_in(Session *s, Lease *lease)
{
	Ticket		ticket = books_ticket(lease->license);
	bool		again = lease->releasing;	/* in the same transaction */
	bool		released;
	PGresult   *answer;

	books_releasing(lease);
	answer = ask(s, "SELECT keyright_checkin($1, $2)",
				 licenses[lease->license].name, lease->seat_id);
	if (answer == NULL)
	{
		if (s->in_transaction ? !again : connected(s))
			books_release_failed(lease, ticket);
		else if (!s->in_transaction)
			drop(s, lease);
		return false;
	}
	released = strcmp(PQgetvalue(answer, 0, 0), "released") == 0;
	count(released ? RELEASED : NOT_HELD);
	PQclear(answer);
	if (released && again)
		violation("a seat was given back twice");
	else if (released)
		happened(s, EVENT_RELEASED, lease, 0, ticket);
	else if (!again)
	{
		int64_t		received = wall_clock();

		books_release_failed(lease, ticket);
		books_told_lost(lease, "a check-in", "not_held", received);
	}
	return true;
}

static int
most_seats(int license)
{
	return licenses[license].resized ? RESIZED_BELOW :
		licenses[license].seat_count;
}

/* In autocommit only, so that the books know when it is over. */
static void
revoke(Session *s, int license)
{
	char		text[50];
	const char *sql;
	int			slot = 0;
	int			client = -1;
	PGresult   *answer;

	switch (random_below(&s->random, 8))
	{
		case 0:
			sql = "SELECT * FROM keyright_revoke_all($1)";
			break;
		case 1:
		case 2:
		case 3:
			client = random_below(&s->random, options.clients);
			snprintf(text, sizeof(text), "client %d", client);
			sql = "SELECT * FROM keyright_revoke_holder($1, $2)";
			break;
		default:
			slot = 1 + random_below(&s->random, most_seats(license));
			snprintf(text, sizeof(text), "%d", slot);
			sql = "SELECT * FROM keyright_revoke_slot($1, $2)";
			break;
	}
	books_revoke_begin(license, slot, client);
	answer = ask(s, sql, licenses[license].name,
				 slot == 0 && client < 0 ? NULL : text);
	books_revoke_end(license);
	if (answer != NULL)
	{
		count(REVOCATIONS);
		count_many(LEASES_REVOKED, PQntuples(answer));
	}
	PQclear(answer);
}

/* ---------- what it does next ---------- */

/* Small licenses more often: there is the crowd. */
static int
any_license(Session *s)
{
	int			a = random_below(&s->random, license_count);
	int			b = random_below(&s->random, license_count);

	return licenses[a].seat_count < licenses[b].seat_count ? a : b;
}

/* One that it holds, or that its transaction has just been granted. */
static Lease *
any_lease(Session *s)
{
	Lease	   *found[MAX_HELD + MAX_EVENTS];
	int			n = s->held_count;

	memcpy(found, s->held, n * sizeof(Lease *));
	for (int i = 0; i < s->event_count; i++)
		if (s->events[i].kind == EVENT_GRANTED)
			found[n++] = s->events[i].lease;
	return n == 0 ? NULL : found[random_below(&s->random, n)];
}

/* False when the transaction has failed. */
static bool
step(Session *s)
{
	Lease	   *lease = any_lease(s);
	int			dice = random_below(&s->random, 100);

	if (s->event_count >= MAX_EVENTS - 1)
		return true;
	if (lease == NULL || (dice < 35 && s->held_count < MAX_HELD))
		return check_out(s, any_license(s));
	if (dice < 80)
		return beat(s, lease);
	return check_in(s, lease);
}

static bool
savepoint(Session *s)
{
	int			events = s->event_count;
	bool		done;

	if (!command(s, "SAVEPOINT s"))
		return false;
	done = step(s) && step(s);
	if (!connected(s))
		return false;
	if (done && random_below(&s->random, 2) == 0)
		return command(s, "RELEASE s");
	settle(s, events, FATE_ROLLED_BACK);
	count(ROLLBACKS_TO);
	return command(s, "ROLLBACK TO s");
}

static bool
steps(Session *s)
{
	/* an old snapshot, where the isolation level keeps one */
	if (random_below(&s->random, 5) == 0 &&
		!command(s, "SELECT count(*) FROM keyright.seat"))
		return false;
	for (int i = random_below(&s->random, 3); i >= 0; i--)
		if (!(random_below(&s->random, 3) == 0 ? savepoint(s) : step(s)))
			return false;
	return true;
}

static void
commit(Session *s)
{
	if (command(s, "COMMIT"))
	{
		count(COMMITS);
		settle(s, 0, FATE_COMMITTED);
	}
	else if (connected(s))
		settle(s, 0, FATE_ROLLED_BACK);
	else
	{
		count(COMMITS_UNKNOWN);
		settle(s, 0, FATE_UNKNOWN);
	}
}

static void
transaction(Session *s)
{
	int			dice = random_below(&s->random, 100);

	if (!command(s, "BEGIN"))
		return;
	s->in_transaction = true;
	if (steps(s) && dice < 75)
		commit(s);
	else
	{
		if (dice < 95)
			(void) command(s, "ROLLBACK");
		else
			cut_off(s);
		count(ROLLBACKS);
		settle(s, 0, FATE_ROLLED_BACK);
	}
	s->in_transaction = false;
}

/* The answer of a call is never heard. */
static void
call_and_cut_off(Session *s)
{
	const char *values[] = {licenses[any_license(s)].name, "a deaf client"};

	(void) PQsendQueryParams(s->conn,
							 "SELECT * FROM keyright_checkout($1, $2)",
							 2, NULL, values, NULL, NULL, 0);
	(void) PQflush(s->conn);
	cut_off(s);
}

static void
act(Session *s)
{
	int			dice = random_below(&s->random, 1000);

	if (dice < 750)
		(void) step(s);
	else if (dice < 930)
		transaction(s);
	else if (dice < 940)
		revoke(s, any_license(s));
	else if (dice < 960 && s->ended_count > 0)
		(void) beat(s, s->ended[random_below(&s->random,
											 s->ended_count < MAX_ENDED ?
											 s->ended_count : MAX_ENDED)]);
	else if (dice < 980 && s->held_count > 0)
		/* its application died: the lease lapses */
		drop(s, any_lease(s));
	else if (dice < 985)
		call_and_cut_off(s);
	else if (dice < 990)
		cut_off(s);
}

void *
run_session(void *number)
{
	Session		s = {.number = (int) (intptr_t) number};

	random_start(&s.random, s.number + 1);
	if (!connect_session(&s))
		return NULL;
	while (!over)
	{
		act(&s);
		if (s.cut || !connected(&s))
		{
			if (!s.cut)
				count(CONNECTIONS_LOST);
			PQfinish(s.conn);
			if (!connect_session(&s))
				return NULL;
		}
		random_pause(&s.random, options.think_ms);
	}
	PQfinish(s.conn);
	return NULL;
}
