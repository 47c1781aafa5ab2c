/*
 * storm.c
 *		Many clients at once on a server with keyright, with somebody who ends
 *		sessions at random and vacuums, and three who watch: the sampler, that
 *		no license is ever oversold; the auditor, that what the clients know is
 *		true; and at the end, that every seat can be had again.
 *
 * usage: storm [option ...] CONNINFO
 *
 *	-c clients    200
 *	-d seconds    20; SIGTERM ends it earlier
 *	-t ms         mean pause of a client between two steps (20)
 *	-k ms         mean pause between two ended sessions (80); 0: none is ended
 *	-i level      isolation level of the clients (read committed)
 *	-a list       SQLSTATEs that are no failure
 *	-z            seat counts of licenses named storm-resized... change
 *	-x            the server goes down meanwhile: keep on trying
 *	-y            every other client sets synchronous_commit = off
 *	-n            do not take every seat at the end
 *	-s seed       of the random numbers
 *
 * The licenses are those whose name begins with "storm" (at most 64, of at
 * most 64 seats).  Prints what happened, a name and a number a line; a line
 * that begins with "violation: " or "error: " tells what should not be.  Exits
 * with 1 when there was one.
 */
#include "storm.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

Options		options = {
	.clients = 200, .seconds = 20, .think_ms = 20, .kill_ms = 80,
	.isolation = "read committed", .allowed = "40001,55P03,57P01,40P01",
	.reclaim = true, .seed = 1
};
volatile bool over = false;
volatile bool watch_over = false;

/* ---------- counters ---------- */

static const char *const counter_names[COUNTERS] = {
	"granted", "refused", "renewed", "lost_expired", "lost_revoked",
	"lost_unknown", "released", "not_held", "revocations", "leases_revoked",
	"commits", "rollbacks", "rollbacks_to", "commits_unknown", "connections",
	"connections_lost", "connections_cut", "kills", "samples", "full_samples",
	"audits", "audited_leases", "audited_after_crash", "resizes"
};

#define MAX_STATES	30
#define TOLD_ERRORS	10

static int64_t counters[COUNTERS];
static struct
{
	char		sqlstate[6];
	int			number;
}			states[MAX_STATES];
static int	told_errors = 0;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

void
count_many(enum Counter counter, int64_t by)
{
	__atomic_add_fetch(&counters[counter], by, __ATOMIC_RELAXED);
}

void
count(enum Counter counter)
{
	count_many(counter, 1);
}

void
count_error(const char *sqlstate, const char *message)
{
	int			i = 0;

	pthread_mutex_lock(&counting);
	while (i < MAX_STATES - 1 && states[i].number > 0 &&
		   strcmp(states[i].sqlstate, sqlstate) != 0)
		i++;
	snprintf(states[i].sqlstate, sizeof(states[i].sqlstate), "%s", sqlstate);
	states[i].number++;
	if (strstr(options.allowed, sqlstate) == NULL)
	{
		if (told_errors++ < TOLD_ERRORS)
			printf("error: %s %s", sqlstate, message);
	}
	pthread_mutex_unlock(&counting);
}

static void
print_summary(void)
{
	for (int i = 0; i < COUNTERS; i++)
		printf("%s %lld\n", counter_names[i], (long long) counters[i]);
	for (int i = 0; i < MAX_STATES && states[i].number > 0; i++)
		printf("sqlstate_%s %d\n", states[i].sqlstate, states[i].number);
	printf("errors_not_allowed %d\n", told_errors);
	printf("violations %d\n", violations());
}

/* ---------- random numbers and pauses ---------- */

void
random_start(Random *random, unsigned number)
{
	random->state = (uint64_t) options.seed * 1000003 + number;
}

/* splitmix64 */
int
random_below(Random *random, int limit)
{
	uint64_t	z = (random->state += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	z ^= z >> 31;
	return (int) (z % (uint64_t) limit);
}

void
pause_ms(int milliseconds)
{
	struct timespec length = {
		milliseconds / 1000, milliseconds % 1000 * 1000000L
	};

	nanosleep(&length, NULL);
}

void
random_pause(Random *random, int mean_ms)
{
	pause_ms(random_below(random, 2 * mean_ms + 1));
}

/* ---------- connections ---------- */

static void
ignore_notice(void *arg, const PGresult *notice)
{
}

PGconn *
connect_as(const char *name)
{
	int64_t		limit = wall_clock() + 60 * 1000000;
	bool		client = strcmp(name, "storm") == 0;

	while (!(client ? over : watch_over))
	{
		const char *const keys[] = {
			"dbname", "application_name", "connect_timeout", NULL
		};
		const char *const values[] = {options.conninfo, name, "30", NULL};
		PGconn	   *conn = PQconnectdbParams(keys, values, 1);

		if (PQstatus(conn) == CONNECTION_OK)
		{
			PQsetNoticeReceiver(conn, ignore_notice, NULL);
			return conn;
		}
		if (wall_clock() > limit)
		{
			violation("the server cannot be reached: %s",
					  PQerrorMessage(conn));
			PQfinish(conn);
			return NULL;
		}
		PQfinish(conn);
		pause_ms(30);
	}
	return NULL;
}

PGresult *
query(PGconn **conn, const char *name, const char *sql)
{
	PGresult   *result = PQexec(*conn, sql);

	if (PQresultStatus(result) == PGRES_TUPLES_OK ||
		PQresultStatus(result) == PGRES_COMMAND_OK)
		return result;
	if (!options.crash)
		violation("the %s's query failed: %s", name,
				  PQresultErrorMessage(result));
	PQclear(result);
	PQfinish(*conn);
	*conn = connect_as(name);
	return NULL;
}

int64_t
ask_number(PGconn *conn, const char *sql)
{
	PGresult   *result = PQexec(conn, sql);
	int64_t		number = -1;

	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) > 0)
		number = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	PQclear(result);
	return number;
}

static void
read_licenses(void)
{
	PGconn	   *conn = connect_as("reader");
	PGresult   *rows = PQexec(conn,
							  "SELECT license_id, id, seat_count,"
							  " keyright.interval_us(ttl),"
							  " keyright.interval_us(skew)"
							  " FROM keyright.license"
							  " WHERE license_id LIKE 'storm%' ORDER BY id");

	license_count = PQntuples(rows);
	if (license_count == 0 || license_count > MAX_LICENSES)
	{
		fprintf(stderr, "no licenses, or too many: %s", PQerrorMessage(conn));
		exit(2);
	}
	for (int i = 0; i < license_count; i++)
	{
		License    *license = &licenses[i];

		snprintf(license->name, sizeof(license->name), "%s",
				 PQgetvalue(rows, i, 0));
		license->id = atoi(PQgetvalue(rows, i, 1));
		license->seat_count = atoi(PQgetvalue(rows, i, 2));
		license->ttl = atoll(PQgetvalue(rows, i, 3));
		license->skew = atoll(PQgetvalue(rows, i, 4));
		license->resized = options.resize &&
			strncmp(license->name, "storm-resized", 13) == 0;
	}
	PQclear(rows);
	PQfinish(conn);
}

/* ---------- those who disturb ---------- */

volatile int resizing = 0;

/* One of all, or of those that are in a call or in a transaction. */
static const char *const kill_one[] = {
	"SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
	" WHERE application_name = 'storm' ORDER BY random() LIMIT 1) one",
	"SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
	" WHERE application_name = 'storm' AND state <> 'idle'"
	" ORDER BY random() LIMIT 1) one"
};

static void *
run_killer(void *unused)
{
	PGconn	   *conn = connect_as("killer");
	Random		random;

	random_start(&random, 1000000);
	while (!over && conn != NULL)
	{
		PGresult   *killed =
			query(&conn, "killer", kill_one[random_below(&random, 4) > 0]);

		if (killed != NULL && PQntuples(killed) == 1)
			count(KILLS);
		PQclear(killed);
		/* as autovacuum does: who has just connected hears of it at once */
		if (conn != NULL)
			PQclear(query(&conn, "killer", "VACUUM (ANALYZE) keyright.seat"));
		random_pause(&random, options.kill_ms);
	}
	PQfinish(conn);
	return NULL;
}

/* Waits for the end of all transactions of clients that run now. */
static void
wait_for_transactions(PGconn *conn)
{
	char		sql[200];

	snprintf(sql, sizeof(sql), "SELECT count(*) FROM pg_stat_activity"
			 " WHERE application_name = 'storm'"
			 " AND xact_start <= to_timestamp(%.6f)", wall_clock() / 1e6);
	while (!over && ask_number(conn, sql) != 0)
		pause_ms(20);
}

static void *
run_resizer(void *unused)
{
	PGconn	   *conn = connect_as("resizer");
	Random		random;

	random_start(&random, 1000001);
	while (!over && conn != NULL)
	{
		char		sql[200];

		snprintf(sql, sizeof(sql),
				 "UPDATE keyright.license SET seat_count = %d"
				 " WHERE license_id LIKE 'storm-resized%%'",
				 random_below(&random, RESIZED_BELOW));
		PQclear(query(&conn, "resizer", sql));
		count(RESIZES);
		wait_for_transactions(conn);
		resizing++;
		for (int i = 0; i < 20 && !over; i++)
			pause_ms(100);
		resizing++;
	}
	PQfinish(conn);
	return NULL;
}

/* ---------- afterwards: every seat can be had again ---------- */

/* A client that was cut off may have a call under way in the server. */
static void
wait_for_backends(PGconn *conn)
{
	int64_t		limit = wall_clock() + 60 * 1000000;

	while (ask_number(conn, "SELECT count(*) FROM pg_stat_activity"
					  " WHERE application_name = 'storm'") != 0)
	{
		if (wall_clock() > limit)
		{
			violation("sessions of clients that ended are still there");
			return;
		}
		pause_ms(20);
	}
}

static bool
take_seat(PGconn *conn, const License *license)
{
	char		sql[200];
	PGresult   *answer;
	bool		granted;

	snprintf(sql, sizeof(sql), "SELECT status FROM keyright_checkout('%s',"
			 " 'the last client', '10 min')", license->name);
	answer = PQexec(conn, sql);
	if (PQresultStatus(answer) != PGRES_TUPLES_OK)
		violation("%s: check-out afterwards failed: %s", license->name,
				  PQresultErrorMessage(answer));
	granted = PQntuples(answer) == 1 &&
		strcmp(PQgetvalue(answer, 0, 0), "granted") == 0;
	PQclear(answer);
	return granted;
}

/*
 * "since" is when the last client was gone.  A lease of then ends a ttl later,
 * rounded up to a second, and is counted for the skew; the rest is for a slow
 * machine.
 */
static void
reclaim(PGconn *conn, License *license, int64_t since)
{
	int64_t		limit = since + license->ttl + license->skew + 4 * 1000000;
	int			taken = 0;

	while (taken < license->seat_count)
	{
		bool		late = wall_clock() > limit;

		if (take_seat(conn, license))
			taken++;
		else if (late)
		{
			violation("%s: only %d of %d seats can be had again",
					  license->name, taken, license->seat_count);
			return;
		}
		else
			pause_ms(10);
	}
	if (take_seat(conn, license))
		violation("%s: one seat too many can be had", license->name);
}

static void
reclaim_all(void)
{
	PGconn	   *conn = connect_as("last");
	int64_t		since;

	wait_for_backends(conn);
	since = wall_clock();
	read_licenses();			/* their seat counts as they are now */
	for (int i = 0; i < license_count; i++)
		reclaim(conn, &licenses[i], since);
	printf("reclaimed_ms %lld\n", (long long) (wall_clock() - since) / 1000);
	PQfinish(conn);
}

/* ---------- main ---------- */

static void
parse_options(int argc, char **argv)
{
	int			c;

	while ((c = getopt(argc, argv, "c:d:t:k:i:a:zxyns:")) != -1)
		switch (c)
		{
			case 'c': options.clients = atoi(optarg); break;
			case 'd': options.seconds = atof(optarg); break;
			case 't': options.think_ms = atoi(optarg); break;
			case 'k': options.kill_ms = atoi(optarg); break;
			case 'i': options.isolation = optarg; break;
			case 'a': options.allowed = optarg; break;
			case 'z': options.resize = true; break;
			case 'x': options.crash = true; break;
			case 'y': options.careless = true; break;
			case 'n': options.reclaim = false; break;
			case 's': options.seed = (unsigned) atoi(optarg); break;
			default: exit(2);
		}
	if (optind != argc - 1)
	{
		fprintf(stderr, "usage: storm [option ...] CONNINFO\n");
		exit(2);
	}
	options.conninfo = argv[optind];
}

static pthread_t
start(void *(*routine) (void *), void *argument)
{
	pthread_attr_t attributes;
	pthread_t	thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 512 * 1024);
	if (pthread_create(&thread, &attributes, routine, argument) != 0)
	{
		perror("could not start a thread");
		exit(2);
	}
	pthread_attr_destroy(&attributes);
	return thread;
}

static void
end_storm(int signal_number)
{
	over = true;
}

int
main(int argc, char **argv)
{
	pthread_t	watchers[4];
	pthread_t  *clients;
	int			n = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGTERM, end_storm);
	signal(SIGPIPE, SIG_IGN);
	parse_options(argc, argv);
	read_licenses();
	watchers[n++] = start(run_sampler, NULL);
	watchers[n++] = start(run_auditor, NULL);
	if (options.kill_ms > 0)
		watchers[n++] = start(run_killer, NULL);
	if (options.resize)
		watchers[n++] = start(run_resizer, NULL);

	clients = calloc(options.clients, sizeof(pthread_t));
	for (int i = 0; i < options.clients; i++)
		clients[i] = start(run_session, (void *) (intptr_t) i);
	/* the time runs when all are there; a busy machine takes its time */
	while (!over && counters[CONNECTIONS] < options.clients &&
		   violations() == 0)
		pause_ms(10);
	for (int64_t end = wall_clock() + (int64_t) (options.seconds * 1e6);
		 !over && wall_clock() < end;)
		pause_ms(10);
	over = true;
	for (int i = 0; i < options.clients; i++)
		pthread_join(clients[i], NULL);
	watch_over = true;
	for (int i = 0; i < n; i++)
		pthread_join(watchers[i], NULL);
	watch_over = false;
	if (options.reclaim)
		reclaim_all();
	if (!options.crash && counters[CONNECTIONS_LOST] > counters[KILLS])
		violation("more sessions ended than were told to");
	print_summary();
	free(clients);
	return violations() > 0 || told_errors > 0;
}
