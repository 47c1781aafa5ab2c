/*
 * hold.c
 *		A client that runs its statements and then sits there until the server
 *		ends the session.
 *
 * usage: hold [-p] [-w seconds] SQL ... CONNINFO
 *
 *	-p            sends all in a pipeline that is never synchronized, so that
 *				  the server is in a transaction without a transaction block
 *	-w seconds    how long it waits after the last statement (60)
 *
 * Prints for each statement
 *
 *	number milliseconds state [value]
 *
 * separated by tabs: when its answer came, counted from the start of the first
 * statement; "ok" or an SQLSTATE; the first value of the first row.  Then
 * "waiting", and at last "closed milliseconds state" or "open milliseconds ok".
 */
#include <libpq-fe.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double started;
static char fatal_state[6] = "-";

static double
elapsed_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6 - started;
}

/* What an idle session is told at its end comes as a notice. */
static void
hear_notice(void *arg, const PGresult *notice)
{
	const char *severity =
		PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *state = PQresultErrorField(notice, PG_DIAG_SQLSTATE);

	if (severity != NULL && state != NULL && strcmp(severity, "FATAL") == 0)
		snprintf(fatal_state, sizeof(fatal_state), "%s", state);
}

static void
print_answer(const char *name, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		state = "ok";
	printf("%s\t%.0f\t%s", name, elapsed_ms(), state ? state : fatal_state);
	if (PQntuples(result) > 0)
		printf("\t%s", PQgetvalue(result, 0, 0));
	printf("\n");
}

static PGresult *
ask(PGconn *conn, const char *sql, bool pipeline)
{
	PGresult   *result;

	if (!pipeline)
		return PQexec(conn, sql);
	if (!PQsendQueryParams(conn, sql, 0, NULL, NULL, NULL, NULL, 0) ||
		!PQsendFlushRequest(conn) || PQflush(conn) != 0)
		return NULL;
	result = PQgetResult(conn);
	PQclear(PQgetResult(conn));	/* the end of this query's results */
	return result;
}

static void
wait_for_end(PGconn *conn, double seconds)
{
	double		until = elapsed_ms() + seconds * 1e3;

	while (PQstatus(conn) == CONNECTION_OK && elapsed_ms() < until)
	{
		struct pollfd fd = {PQsocket(conn), POLLIN, 0};

		if (poll(&fd, 1, 100) > 0 && !PQconsumeInput(conn))
			break;
		/* reads what was said, which may be the notice of the end */
		(void) PQisBusy(conn);
	}
	if (PQstatus(conn) == CONNECTION_OK)
		printf("open\t%.0f\tok\n", elapsed_ms());
	else
		printf("closed\t%.0f\t%s\n", elapsed_ms(), fatal_state);
}

int
main(int argc, char **argv)
{
	bool		pipeline = false;
	double		seconds = 60;
	PGconn	   *conn;
	int			c;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((c = getopt(argc, argv, "pw:")) != -1)
		switch (c)
		{
			case 'p': pipeline = true; break;
			case 'w': seconds = atof(optarg); break;
			default: return 2;
		}
	conn = PQconnectdb(argc > optind ? argv[argc - 1] : "");
	if (PQstatus(conn) != CONNECTION_OK)
	{
		fprintf(stderr, "hold: %s", PQerrorMessage(conn));
		return 1;
	}
	PQsetNoticeReceiver(conn, hear_notice, NULL);
	if (pipeline)
		(void) PQenterPipelineMode(conn);
	started = elapsed_ms();
	for (int i = optind; i < argc - 1; i++)
	{
		PGresult   *result = ask(conn, argv[i], pipeline);
		char		name[20];

		snprintf(name, sizeof(name), "%d", i - optind + 1);
		print_answer(name, result);
		PQclear(result);
	}
	printf("waiting\n");
	wait_for_end(conn, seconds);
	PQfinish(conn);
	return 0;
}
