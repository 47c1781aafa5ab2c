/*
 * status.c
 *		keyright status: how full the pools are, and who holds a seat.
 *
 * Reads the views keyright.pools and keyright.holders.  Lengths of time are
 * computed by the server, so the clock of this machine does not bend them.
 */
#include "cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The views look at every seat; nobody reads faster than that. */
#define WATCH_MIN_MS		1000

typedef struct Status
{
	const char *license;		/* NULL: all */
	const char *dsn;
	bool		json;
	int64_t		watch_ms;		/* 0: once */
} Status;

/* ----- tables ----- */

static const Column pool_columns[] = {
	{"LICENSE", COLUMN_TEXT}, {"SEATS", COLUMN_NUMBER},
	{"LIVE", COLUMN_NUMBER}, {"FREE", COLUMN_NUMBER},
	{"STATE", COLUMN_TEXT}, {"NEXT FREE", COLUMN_IN}
};

static const char pool_query[] =
"SELECT license_id, seats, live, free,"
" CASE WHEN suspended THEN 'suspended'"
" WHEN valid_from > pg_catalog.clock_timestamp() THEN 'not yet valid'"
" WHEN valid_until <= pg_catalog.clock_timestamp() THEN 'over'"
" WHEN free = 0 THEN 'full' ELSE 'open' END,"
" pg_catalog.ceil(extract(epoch FROM retry_at"
"  - pg_catalog.clock_timestamp()))::bigint"
" FROM keyright.pools WHERE $1::text IS NULL OR license_id = $1"
" ORDER BY license_id COLLATE \"C\"";

static const Column holder_columns[] = {
	{"LICENSE", COLUMN_TEXT}, {"SLOT", COLUMN_NUMBER},
	{"HOLDER", COLUMN_TEXT}, {"SINCE", COLUMN_TIME},
	{"LAST BEAT", COLUMN_AGO}, {"ENDS", COLUMN_IN}, {"STATE", COLUMN_TEXT}
};

static const char holder_query[] =
"SELECT license_id, slot, holder,"
" pg_catalog.floor(extract(epoch FROM since))::bigint,"
" pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()"
"  - last_beat))::bigint,"
" pg_catalog.ceil(extract(epoch FROM expires_at"
"  - pg_catalog.clock_timestamp()))::bigint, state"
" FROM keyright.holders WHERE $1::text IS NULL OR license_id = $1"
" ORDER BY license_id COLLATE \"C\", slot";

static int
no_license(const Status *status)
{
	if (status->license == NULL)
	{
		puts("no licenses");
		return EX_OK;
	}
	complain("license \"%s\" does not exist", status->license);
	return EX_NOPERM;
}

static int
show_tables(PGconn *conn, const Status *status)
{
	int			exit_status = EX_OK;
	PGresult   *pools = database_ask(conn, pool_query, COUNT(pool_columns),
									 1, &status->license, &exit_status);
	PGresult   *holders = pools == NULL ? NULL :
		database_ask(conn, holder_query, COUNT(holder_columns), 1,
					 &status->license, &exit_status);

	if (holders != NULL && PQntuples(pools) == 0)
		exit_status = no_license(status);
	else if (holders != NULL)
	{
		table_print(stdout, pool_columns, pools);
		putchar('\n');
		if (PQntuples(holders) > 0)
			table_print(stdout, holder_columns, holders);
		else
			puts("nobody holds a seat");
	}
	PQclear(holders);
	PQclear(pools);
	return exit_status;
}

/* ----- JSON ----- */

/* jsonb is one line, which "--watch" wants. */
static const char json_query[] =
"SELECT pg_catalog.jsonb_build_object('at', pg_catalog.clock_timestamp(),"
" 'pools', (SELECT coalesce(pg_catalog.jsonb_agg(p ORDER BY p.license_id"
"   COLLATE \"C\"), '[]') FROM keyright.pools p"
"  WHERE $1::text IS NULL OR p.license_id = $1),"
" 'holders', (SELECT coalesce(pg_catalog.jsonb_agg(h ORDER BY h.license_id"
"   COLLATE \"C\", h.slot), '[]') FROM keyright.holders h"
"  WHERE $1::text IS NULL OR h.license_id = $1)),"
" $1::text IS NULL OR EXISTS (SELECT FROM keyright.pools p"
"  WHERE p.license_id = $1)";

static int
show_json(PGconn *conn, const Status *status)
{
	int			exit_status = EX_OK;
	PGresult   *result = database_ask_row(conn, json_query, 2, 1,
										  &status->license, &exit_status);

	if (result == NULL)
		return exit_status;
	if (strcmp(PQgetvalue(result, 0, 1), "t") == 0)
		puts(PQgetvalue(result, 0, 0));
	else
		exit_status = no_license(status);
	PQclear(result);
	return exit_status;
}

/* ----- once, or again and again ----- */

static int
show(PGconn *conn, const Status *status)
{
	int			exit_status;

	exit_status = status->json ? show_json(conn, status) :
		show_tables(conn, status);
	if (exit_status == EX_OK)
		exit_status = finish_output();
	return exit_status;
}

static int
show_once(const Status *status)
{
	int			exit_status = EX_OK;
	PGconn	   *conn = database_open(status->dsn, &exit_status);

	if (conn != NULL)
		exit_status = show(conn, status);
	PQfinish(conn);
	return exit_status;
}

/* On a terminal each look takes the place of the last. */
static void
begin_look(const Status *status)
{
	char		at[LOCAL_TIME_SIZE];

	if (status->json)
		return;
	print_local_time(at, "%F %T", time(NULL));
	printf("%s%s\n\n", isatty(STDOUT_FILENO) ? "\033[H\033[2J" : "", at);
}

static void
end_look(const Status *status)
{
	if (!status->json && !isatty(STDOUT_FILENO))
		putchar('\n');
	fflush(stdout);
}

/*
 * Only what no waiting mends ends it; a server that restarts does not, once
 * it was there.
 */
static int
show_on_and_on(const Status *status)
{
	struct timespec pause = {
		.tv_sec = status->watch_ms / 1000,
		.tv_nsec = status->watch_ms % 1000 * MS_NS
	};
	PGconn	   *conn = NULL;
	bool		was_there = false;

	for (;;)
	{
		int			exit_status = EX_OK;

		begin_look(status);
		if (conn == NULL)
			conn = database_open(status->dsn, &exit_status);
		if (conn != NULL)
			exit_status = show(conn, status);
		end_look(status);
		/* Nor is one of use on which an answer has not ended. */
		if (conn != NULL && PQtransactionStatus(conn) != PQTRANS_IDLE)
		{
			PQfinish(conn);
			conn = NULL;
		}
		was_there = was_there || exit_status == EX_OK;
		if (exit_status != EX_OK &&
			(exit_status != EX_UNAVAILABLE || !was_there))
			return exit_status;
		nanosleep(&pause, NULL);
	}
}

/* ----- options ----- */

enum
{
	OPT_LICENSE = 256, OPT_JSON, OPT_WATCH, OPT_DSN
};

static const struct option long_options[] = {
	{"license", required_argument, NULL, OPT_LICENSE},
	{"json", no_argument, NULL, OPT_JSON},
	{"watch", optional_argument, NULL, OPT_WATCH},
	{"dsn", required_argument, NULL, OPT_DSN},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0}
};

static bool
watch_option(Status *status, const char *text)
{
	status->watch_ms = 2000;
	return text == NULL ||
		duration_option("watch", text, WATCH_MIN_MS, &status->watch_ms);
}

int
cmd_status(int argc, char **argv)
{
	Status		status = {.license = NULL};
	int			option;

	while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1)
		switch (option)
		{
			case OPT_LICENSE:
				status.license = optarg;
				break;
			case OPT_JSON:
				status.json = true;
				break;
			case OPT_WATCH:
				/* "--watch 5" too, though getopt takes only "--watch=5". */
				if (optarg == NULL && optind < argc && argv[optind][0] != '-')
					optarg = argv[optind++];
				if (!watch_option(&status, optarg))
					return EX_USAGE;
				break;
			case OPT_DSN:
				status.dsn = optarg;
				break;
			case 'h':
				return help("status");
			default:
				return usage("status");
		}
	if (optind < argc)
		return surplus("status", argv[optind]);
	return status.watch_ms > 0 ? show_on_and_on(&status) : show_once(&status);
}
