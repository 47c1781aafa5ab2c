/*
 * model.c
 *		A random model of the hints in shared memory: whatever is done to
 *		licenses, in whatever transactions, a check-out refuses only when the
 *		pool is full.  model.sql has what it calls, and the judge.
 *
 * usage: model [option ...] CONNINFO
 *
 *	-d seconds    10
 *	-s seed       of the random numbers
 *	-n            one session, of several programs on the same licenses
 *	-t            tame: seat counts only grow, skews stay
 *
 * A few sessions, in all isolation levels, take random steps on some licenses,
 * one step at a time: check-outs, beats, check-ins, revocations, sweeps, DML on
 * the licenses, new files for the table; alone or in transactions with
 * savepoints.  Time passes, leases of one second lapse.  Prints what happened,
 * a name and a number a line; "violation: " and "error: " tell what should not
 * be, with the steps that led to it.  Exits with 1 when there was one.
 *
 * A license lives for some seconds, then another takes its name.  Each life has
 * its own mix of steps: what one kind of step would mend is missing in some of
 * them.  Leases lapse by real time, so the same seed gives similar runs only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

#define LICENSES	24
#define SESSIONS	4
#define TOLD		5			/* violations: then it is enough */

static Options options = {.seconds = 10, .seed = 1};
static Session sessions[SESSIONS];
static int	session_count = SESSIONS;
static License licenses[LICENSES];

/* ---------- transactions ---------- */

static void
start_transaction(Session *s, License *license)
{
	call(s, license, "BEGIN");
	s->open = true;
	s->savepoints = 0;
	s->license = license;
}

static void
end_transaction(Session *s, const char *how)
{
	if (!s->open)
		return;
	call(s, s->license, how);
	count(s->failed ? "rollbacks_of_failed" : how);
	s->open = s->failed = false;
}

/* True when this was a step of its own. */
static bool
transaction_step(Session *s)
{
	if (s->failed || one_in(8))
	{
		if (s->savepoints > 0 && !one_in(3))
		{
			call(s, s->license, "ROLLBACK TO s");
			s->failed = false;
			count("rollbacks_to");
			if (one_in(2))
			{
				call(s, s->license, "RELEASE s");
				s->savepoints--;
			}
		}
		else
			end_transaction(s, one_in(2) ? "ROLLBACK" : "COMMIT");
		return true;
	}
	if (one_in(8))
	{
		call(s, s->license, "SAVEPOINT s");
		s->savepoints++;
		return true;
	}
	if (one_in(10))
	{
		end_transaction(s, "COMMIT");
		return true;
	}
	return false;
}

/* ---------- steps on one license ---------- */

static const char *const step_names[STEPS] = {
	"check_outs", "fills", "check_ins", "beats", "batches", "revocations",
	"revocations_of_slot", "revocations_of_holder", "revocations_of_all",
	"sweeps", "seat_counts", "skews", "ttls", "validities", "cuts"
};

/*
 * Most do without a request id; the others share a few, to repeat.  Answers in
 * a snapshot that is older than others' last commit are not judged.
 */
static void
check_out(Session *s, License *license)
{
	static const char *const ttls[] = {"NULL", "NULL", "'1 s'", "'1 hour'"};
	bool		judged = !s->frozen || !(s->open || options.shared);
	char		who[60];
	PGresult   *result;

	if (one_in(3))
		snprintf(who, sizeof(who), "'holder', %s, 'request %d'",
				 ttls[below(4)], below(3));
	else
		snprintf(who, sizeof(who), "'holder %d', %s, NULL", below(3),
				 ttls[below(4)]);
	result = run(s, license, "SELECT status, judged, finding"
				 " FROM model.check_out('%s', %s, %s)", license->name, who,
				 judged ? "true" : "false");
	if (result == NULL)
		return;
	count(PQgetvalue(result, 0, 0));
	if (strcmp(PQgetvalue(result, 0, 1), "t") == 0)
		count("judged");
	if (!PQgetisnull(result, 0, 2))
		violation(license, PQgetvalue(result, 0, 2));
	PQclear(result);
}

/* On a whole second, one to three from now, far away, or none. */
static const char *
some_end(void)
{
	static char sql[100];

	if (one_in(3))
		return "NULL";
	snprintf(sql, sizeof(sql),
			 "date_trunc('second', clock_timestamp()) + interval '%d s'",
			 one_in(4) ? 86400 : 1 + below(3));
	return sql;
}

static void
change(Session *s, License *license, const char *column, const char *value)
{
	call(s, license,
		 "UPDATE keyright.license SET %s = %s WHERE license_id = '%s'",
		 column, value, license->name);
}

static void
change_seats(Session *s, License *license)
{
	char		value[60];

	if (options.tame)
		snprintf(value, sizeof(value), "seat_count + %d", below(2));
	else if (one_in(2))
		snprintf(value, sizeof(value), "%d", license->seats);
	else
		snprintf(value, sizeof(value), "greatest(0, seat_count + %d)",
				 below(5) - 2);
	change(s, license, "seat_count", value);
}

/* reap_grace goes with it, just above. */
static void
change_skew(Session *s, License *license)
{
	static const char *const skews[] = {
		"'0', reap_grace = '0.1 s'", "'0', reap_grace = '0.1 s'",
		"'1 s', reap_grace = '1.1 s'", "'1 hour', reap_grace = '2 hours'"
	};

	if (!options.tame)
		change(s, license, "skew", skews[below(4)]);
}

static void
change_ttl(Session *s, License *license)
{
	static const char *const ttls[] = {"'1 s'", "'2 s'", "'1 hour'"};

	change(s, license, "ttl", ttls[below(3)]);
}

static void
license_step(Session *s, License *license, Step step)
{
	const char *name = license->name;
	int			slot = 1 + below(license->seats);

	count(step_names[step]);
	switch (step)
	{
		case CHECK_OUT:
			check_out(s, license);
			break;
		case FILL:
			call(s, license, "SELECT model.fill('%s', %d)", name, slot);
			break;
		case CHECK_IN:
			call(s, license, "SELECT model.check_in('%s', %d)", name, slot);
			break;
		case BEAT:
			call(s, license, "SELECT model.beat('%s', %d)", name, slot);
			break;
		case BEAT_MANY:
			call(s, license, "SELECT model.beat_many('%s')", name);
			break;
		case REVOKE:
			call(s, license, "SELECT model.revoke('%s', %d)", name, slot);
			break;
		case REVOKE_SLOT:
			call(s, license, "SELECT count(*) FROM keyright_revoke_slot("
				 "'%s', %d)", name, slot);
			break;
		case REVOKE_HOLDER:
			call(s, license, "SELECT count(*) FROM keyright_revoke_holder("
				 "'%s', 'holder %d')", name, below(3));
			break;
		case REVOKE_ALL:
			call(s, license, "SELECT count(*) FROM keyright_revoke_all('%s')",
				 name);
			break;
		case REAP:
			call(s, license, "SELECT keyright_reap()");
			break;
		case SEATS:
			change_seats(s, license);
			break;
		case SKEW:
			change_skew(s, license);
			break;
		case TTL:
			change_ttl(s, license);
			break;
		case VALIDITY:
			change(s, license, "valid_until", some_end());
			break;
		case CUT:
			call(s, license, "SELECT model.cut('%s')", name);
			break;
		case STEPS:
			break;
	}
}

static Step
some_step(License *license)
{
	int			sum = 0;
	int			n;

	for (int i = 0; i < STEPS; i++)
		sum += license->weights[i];
	n = below(sum);
	for (int i = 0; i < STEPS; i++)
		if ((n -= license->weights[i]) < 0)
			return i;
	return CHECK_OUT;
}

/* ---------- the lives of a license ---------- */

static void
mix(License *license)
{
	static const int weights[] = {0, 0, 0, 1, 4};

	for (int i = 0; i < STEPS; i++)
		license->weights[i] = weights[below(5)];
	/* each of these withdraws a proof, right or wrong */
	if (one_in(2))
		for (int i = CHECK_IN; i <= REAP; i++)
			if (i != BEAT && i != BEAT_MANY)
				license->weights[i] = 0;
	license->weights[CHECK_OUT] = 4 + below(10);
	/* a whole pool at once */
	license->weights[FILL] = license->seats > 20 ? 1 : one_in(2);
	license->in_transactions = one_in(2);
}

static void
new_life(Session *s, License *license)
{
	static const int seats[] = {1, 1, 3, 3, 20};
	static const char *const ttls[] = {"1 s", "1 s", "2 s", "1 hour"};
	static const char *const skews[] = {
		"'0', '0.1 s'", "'0', '0.1 s'", "'1 s', '1.1 s'", "'1 hour', '2 hours'"
	};

	/* big ones, which are searched in another way, take their time */
	license->seats = one_in(20) ? 300 : seats[below(5)];
	license->end = seconds_now() + 0.5 * (1 << below(4));
	mix(license);
	call(s, license, "SELECT model.replace('%s', %s, %d, '%s', %s)",
		 license->name, one_in(2) ? "true" : "false", license->seats,
		 ttls[below(4)], skews[below(4)]);
	count("lives");
	if (!one_in(3))
		call(s, license, "SELECT model.fill('%s', %d)", license->name,
			 license->seats);
}

/* ---------- steps on the table ---------- */

/* Nothing is open then: these want the table for themselves. */
static void
new_file(Session *s, License *license)
{
	for (int i = 0; i < session_count; i++)
		end_transaction(&sessions[i], one_in(2) ? "COMMIT" : "ROLLBACK");
	if (one_in(3))
	{
		call(s, license, "VACUUM FULL keyright.seat");
		count("vacuums");
		return;
	}
	start_transaction(s, license);
	call(s, license, one_in(2) ? "TRUNCATE keyright.seat" :
		  "CLUSTER keyright.seat USING seat_pkey");
	for (int i = below(4); i > 0 && !s->failed; i--)
		license_step(s, license, some_step(license));
	count("files");
	end_transaction(s, one_in(2) ? "COMMIT" : "ROLLBACK");
}

/* ---------- the whole ---------- */

static void
step(void)
{
	Session    *s = &sessions[below(session_count)];
	License    *license = &licenses[below(LICENSES)];

	if (s->open)
	{
		if (transaction_step(s))
			return;
		if (!one_in(10))
			license = s->license;
	}
	else if (one_in(options.shared ? 5000 : 250))
	{
		new_file(s, license);
		return;
	}
	else if (license->in_transactions && one_in(4))
	{
		start_transaction(s, license);
		return;
	}
	if (seconds_now() > license->end)
		new_life(s, license);
	else
		license_step(s, license, some_step(license));
}

static void
quiet(void *arg, const char *message)
{
}

static void
connect_session(Session *s)
{
	s->conn = PQconnectdb(options.conninfo);
	if (PQstatus(s->conn) != CONNECTION_OK)
	{
		fprintf(stderr, "%s", PQerrorMessage(s->conn));
		exit(2);
	}
	PQsetNoticeProcessor(s->conn, quiet, NULL);
	s->frozen = strcmp(s->level, "read committed") != 0;
	/* alone, who has the lock is idle: waiting for him is of no use */
	call(s, NULL, "SET lock_timeout = %d", options.shared ? 50 : 1);
	call(s, NULL, "SET default_transaction_isolation = '%s'", s->level);
}

static void
read_options(int argc, char **argv)
{
	int			c;

	while ((c = getopt(argc, argv, "d:s:nt")) != -1)
		switch (c)
		{
			case 'd':
				options.seconds = atof(optarg);
				break;
			case 's':
				options.seed = strtoul(optarg, NULL, 10);
				break;
			case 'n':
				options.shared = true;
				break;
			case 't':
				options.tame = true;
				break;
			default:
				exit(2);
		}
	if (optind != argc - 1)
	{
		fprintf(stderr, "usage: model [-d seconds] [-s seed] [-n] [-t] CONNINFO\n");
		exit(2);
	}
	options.conninfo = argv[optind];
}

int
main(int argc, char **argv)
{
	static const char *const levels[SESSIONS] = {
		"read committed", "read committed", "repeatable read", "serializable"
	};
	double		end;

	read_options(argc, argv);
	random_start(options.seed);
	if (options.shared)
		session_count = 1;
	for (int i = 0; i < session_count; i++)
	{
		sessions[i].number = i;
		sessions[i].level = levels[options.shared ? (int) (options.seed % SESSIONS) : i];
		connect_session(&sessions[i]);
	}
	for (int i = 0; i < LICENSES; i++)
	{
		snprintf(licenses[i].name, sizeof(licenses[i].name), "model %d", i);
		new_life(&sessions[0], &licenses[i]);
	}
	end = seconds_now() + options.seconds;
	while (seconds_now() < end && wrong < TOLD)
		step();
	for (int i = 0; i < session_count; i++)
		end_transaction(&sessions[i], "ROLLBACK");
	print_counters();
	return wrong > 0;
}
