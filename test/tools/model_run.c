/*
 * model_run.c
 *		Time, random numbers, statements and their outcome for the model.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "model.h"

int			wrong = 0;

/* What a call may raise when another has the lock or the license is over. */
static const char allowed[] = "55P03 40001 40P01 KR001 KR004 KR006 KR007 "
	"23505 23514 25P02";

/* ---------- time, random numbers, counters ---------- */

double
seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static uint64_t state;

void
random_start(unsigned seed)
{
	state = seed * UINT64_C(1000003);
}

/* splitmix64 */
int
below(int limit)
{
	uint64_t	z = (state += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	z ^= z >> 31;
	return (int) (z % (uint64_t) limit);
}

bool
one_in(int n)
{
	return below(n) == 0;
}

#define COUNTERS	60

static struct
{
	char		name[32];
	int			number;
}			counters[COUNTERS];

void
count(const char *name)
{
	int			i = 0;

	while (i < COUNTERS - 1 && counters[i].number > 0 &&
		   strcmp(counters[i].name, name) != 0)
		i++;
	snprintf(counters[i].name, sizeof(counters[i].name), "%s", name);
	counters[i].number++;
}

void
print_counters(void)
{
	for (int i = 0; i < COUNTERS && counters[i].number > 0; i++)
		printf("%s %d\n", counters[i].name, counters[i].number);
	printf("violations %d\n", wrong);
}

/* ---------- what was done, and what was wrong ---------- */

static void
note(License *license, Session *s, const char *sql, const char *outcome)
{
	char	   *line;

	if (license == NULL)
		return;
	line = license->history[license->written++ % HISTORY];
	snprintf(line, sizeof(license->history[0]), "session %d%s: %.190s -> %.70s",
			 s->number, s->open ? " (in transaction)" : "", sql, outcome);
}

void
violation(License *license, const char *finding)
{
	wrong++;
	license->end = 0;
	printf("violation: %s: %s\n", license->name, finding);
	for (unsigned i = 0; i < HISTORY; i++)
		if (license->history[(license->written + i) % HISTORY][0])
			printf("  %s\n", license->history[(license->written + i) % HISTORY]);
}

static void
failed(Session *s, PGresult *result)
{
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	char		counter[32];

	snprintf(counter, sizeof(counter), "sqlstate_%s", code ? code : "none");
	count(counter);
	s->failed = s->open;
	if (code == NULL || strstr(allowed, code) == NULL)
	{
		wrong++;
		printf("error: %s", PQresultErrorMessage(result));
	}
}

/* Runs it and notes it in the license's history; NULL when it failed. */
static PGresult *
run_list(Session *s, License *license, const char *format, va_list args)
{
	char		sql[600];
	PGresult   *result;
	ExecStatusType status;
	const char *outcome = "done";

	vsnprintf(sql, sizeof(sql), format, args);
	result = PQexec(s->conn, sql);
	status = PQresultStatus(result);
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
	{
		note(license, s, sql, PQresultErrorMessage(result));
		failed(s, result);
		PQclear(result);
		return NULL;
	}
	if (status == PGRES_TUPLES_OK && PQntuples(result) > 0)
		outcome = PQgetvalue(result, 0, 0);
	note(license, s, sql, outcome);
	return result;
}

PGresult *
run(Session *s, License *license, const char *format,...)
{
	va_list		args;
	PGresult   *result;

	va_start(args, format);
	result = run_list(s, license, format, args);
	va_end(args);
	return result;
}

void
call(Session *s, License *license, const char *format,...)
{
	va_list		args;

	va_start(args, format);
	PQclear(run_list(s, license, format, args));
	va_end(args);
}
