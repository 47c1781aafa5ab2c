/*
 * volley.c
 *		Sends the same statements on many connections at the same instant and
 *		prints what each of them got.
 *
 * usage: volley [option ...] CONNINFO
 *
 *	-n numbers    of connections that fire; several with commas ("20,100,500")
 *	-r rounds     of each number; 0: until SIGTERM (1)
 *	-e SQL        before each round, on a connection of its own
 *	-s SQL        before the volley, on each connection, one after the other
 *	-q SQL        the volley: the first on all connections at once, each further
 *				  one as soon as that connection has its answer
 *	-i ms         pause between rounds (0)
 *
 * -s and -q may be given several times.  In SQL, %c is the number of the
 * connection and %r that of the round.  Prints a line for each answer to a -q:
 *
 *	number round connection query milliseconds state [value ...]
 *
 * separated by tabs; state is "ok" or an SQLSTATE, the values are those of the
 * first row.  Errors of -e and -s end the program with 1.
 */
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_STATEMENTS	8
#define MAX_NUMBERS		8
#define MAX_GUNS		1000
#define SQL_SIZE		2000

typedef struct Statements
{
	const char *sql[MAX_STATEMENTS];
	int			count;
} Statements;

typedef struct Gun
{
	PGconn	   *conn;
	int			next;			/* query that it waits for; -1: all done */
} Gun;

static Gun guns[MAX_GUNS];
static Statements each_round, before, volley;
static int	numbers[MAX_NUMBERS];
static int	number_count = 0;
static int	rounds = 1;
static int	pause_between = 0;
static volatile sig_atomic_t stopped = false;

static void
stop(int signal_number)
{
	stopped = true;
}

static double
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void
fail(const char *what, const char *why)
{
	fflush(stdout);
	fprintf(stderr, "volley: %s: %s\n", what, why);
	exit(1);
}

/* The statement with its %c and %r filled in. */
static const char *
fill_in(const char *sql, int connection, int round)
{
	static char filled[SQL_SIZE];
	size_t		length = 0;

	for (; *sql != '\0' && length < SQL_SIZE - 20; sql++)
		if (sql[0] == '%' && (sql[1] == 'c' || sql[1] == 'r'))
		{
			length += (size_t) sprintf(filled + length, "%d",
									   sql[1] == 'c' ? connection : round);
			sql++;
		}
		else
			filled[length++] = *sql;
	filled[length] = '\0';
	return filled;
}

static void
run(PGconn *conn, const Statements *statements, int connection, int round)
{
	for (int i = 0; i < statements->count; i++)
	{
		const char *sql = fill_in(statements->sql[i], connection, round);
		PGresult   *result = PQexec(conn, sql);

		if (PQresultStatus(result) != PGRES_TUPLES_OK &&
			PQresultStatus(result) != PGRES_COMMAND_OK)
			fail(sql, PQerrorMessage(conn));
		PQclear(result);
	}
}

static PGconn *
connect_gun(const char *conninfo)
{
	PGconn	   *conn = PQconnectdb(conninfo);

	if (PQstatus(conn) != CONNECTION_OK)
		fail("could not connect", PQerrorMessage(conn));
	return conn;
}

static void
print_answer(PGresult *result, int number, int round, int connection,
			 int query, double ms)
{
	ExecStatusType status = PQresultStatus(result);
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		state = "ok";
	printf("%d\t%d\t%d\t%d\t%.0f\t%s", number, round, connection, query, ms,
		   state ? state : "lost");
	for (int i = 0; i < PQnfields(result) && PQntuples(result) > 0; i++)
		printf("\t%s", PQgetvalue(result, 0, i));
	printf("\n");
}

static void
send_query(Gun *gun, int connection, int round)
{
	const char *sql = fill_in(volley.sql[gun->next], connection, round);

	if (!PQsendQuery(gun->conn, sql))
		fail(sql, PQerrorMessage(gun->conn));
}

/* Prints the answer if there is one; true when it was the last of its gun. */
static bool
hear(Gun *gun, int number, int round, int connection, double begun)
{
	PGresult   *result;

	if (!PQconsumeInput(gun->conn))
		fail("connection lost", PQerrorMessage(gun->conn));
	while (!PQisBusy(gun->conn))
	{
		result = PQgetResult(gun->conn);
		if (result != NULL)
		{
			print_answer(result, number, round, connection, gun->next,
						 now_ms() - begun);
			PQclear(result);
			continue;
		}
		if (++gun->next == volley.count)
		{
			gun->next = -1;
			return true;
		}
		send_query(gun, connection, round);
	}
	return false;
}

static void
fire(int number, int round)
{
	static struct pollfd fds[MAX_GUNS];
	int			waiting = number;
	double		begun = now_ms();

	for (int i = 0; i < number; i++)
	{
		guns[i].next = 0;
		send_query(&guns[i], i, round);
	}
	while (waiting > 0)
	{
		for (int i = 0; i < number; i++)
			fds[i] = (struct pollfd)
			{
				guns[i].next < 0 ? -1 : PQsocket(guns[i].conn), POLLIN, 0
			};
		if (poll(fds, (nfds_t) number, 120 * 1000) == 0)
			fail("no answer", "for two minutes");
		for (int i = 0; i < number; i++)
			if (fds[i].fd >= 0 && fds[i].revents != 0 &&
				hear(&guns[i], number, round, i, begun))
				waiting--;
	}
	fflush(stdout);
}

static void
add(Statements *statements, const char *sql)
{
	if (statements->count == MAX_STATEMENTS || strlen(sql) > SQL_SIZE / 2)
		fail(sql, "too many or too long");
	statements->sql[statements->count++] = sql;
}

static void
parse_numbers(const char *list)
{
	number_count = 0;
	while (*list != '\0' && number_count < MAX_NUMBERS)
	{
		numbers[number_count++] = (int) strtol(list, (char **) &list, 10);
		if (*list == ',')
			list++;
	}
}

static void
parse_options(int argc, char **argv)
{
	int			c;

	while ((c = getopt(argc, argv, "n:r:e:s:q:i:")) != -1)
		switch (c)
		{
			case 'n': parse_numbers(optarg); break;
			case 'r': rounds = atoi(optarg); break;
			case 'e': add(&each_round, optarg); break;
			case 's': add(&before, optarg); break;
			case 'q': add(&volley, optarg); break;
			case 'i': pause_between = atoi(optarg); break;
			default: exit(2);
		}
	if (optind != argc - 1 || number_count == 0 || volley.count == 0)
		fail("usage", "volley -n NUMBERS -q SQL [option ...] CONNINFO");
}

int
main(int argc, char **argv)
{
	PGconn	   *own;
	int			most = 0;
	int			round = 0;

	signal(SIGTERM, stop);
	parse_options(argc, argv);
	for (int i = 0; i < number_count; i++)
		most = numbers[i] > most ? numbers[i] : most;
	if (most > MAX_GUNS)
		fail("usage", "too many connections");
	own = connect_gun(argv[optind]);
	for (int i = 0; i < most; i++)
		guns[i].conn = connect_gun(argv[optind]);

	for (int n = 0; n < number_count; n++)
		for (int r = 0; (rounds == 0 || r < rounds) && !stopped; r++)
		{
			run(own, &each_round, 0, ++round);
			for (int i = 0; i < numbers[n]; i++)
				run(guns[i].conn, &before, i, round);
			fire(numbers[n], round);
			usleep((useconds_t) pause_between * 1000);
		}

	for (int i = 0; i < most; i++)
		PQfinish(guns[i].conn);
	PQfinish(own);
	return 0;
}
