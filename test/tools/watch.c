/*
 * watch.c
 *		Those who watch a storm: the sampler and the auditor.
 */
#include <stdlib.h>
#include <string.h>

#include "storm.h"

/* ---------- the sampler: no license is oversold ---------- */

/*
 * The clock is read after the snapshot was taken, so what is counted was live
 * together at the snapshot: a sample that breaks the rule is no mistake.
 */
#define SAMPLE \
	"SELECT l.id, l.seat_count, count(s.slot)" \
	" FROM keyright.license l LEFT JOIN keyright.seat s" \
	" ON s.license = l.id AND s.seat_id IS NOT NULL" \
	" AND keyright_is_live(s.expires_at, l.skew, clock_timestamp())" \
	" WHERE l.license_id LIKE 'storm%'" \
	" GROUP BY l.id, l.seat_count ORDER BY l.id"

typedef struct Seen
{
	int			live;
	int			resizing;
} Seen;

/* False when there is nothing to compare with. */
static bool
limit_of(const Seen *seen, int now, int seat_count, int *limit)
{
	if (now % 2 == 0 || now != resizing || now != seen->resizing)
		return false;
	*limit = seat_count > seen->live ? seat_count : seen->live;
	return true;
}

static void
check_sample(PGresult *sample, Seen *seen, int resizing_before)
{
	for (int i = 0; i < PQntuples(sample); i++)
	{
		int			seat_count = atoi(PQgetvalue(sample, i, 1));
		int			live = atoi(PQgetvalue(sample, i, 2));
		int			limit = seat_count;

		if ((!licenses[i].resized ||
			 limit_of(&seen[i], resizing_before, seat_count, &limit)) &&
			live > limit)
			violation("%s: %d live leases, %d seats", licenses[i].name, live,
					  seat_count);
		if (live >= seat_count)
			count(FULL_SAMPLES);
		seen[i] = (Seen) {live, resizing_before};
	}
}

void *
run_sampler(void *unused)
{
	PGconn	   *conn = connect_as("sampler");
	Seen	   *seen = calloc(MAX_LICENSES, sizeof(Seen));

	while (!watch_over && conn != NULL)
	{
		int			resizing_before = resizing;
		PGresult   *sample = query(&conn, "sampler", SAMPLE);

		if (sample != NULL)
		{
			check_sample(sample, seen, resizing_before);
			count(SAMPLES);
		}
		PQclear(sample);
		pause_ms(10);
	}
	PQfinish(conn);
	free(seen);
	return NULL;
}

/* ---------- the auditor: what the clients know is true ---------- */

#define AUDIT \
	"SELECT license, slot, seat_id," \
	" (extract(epoch FROM expires_at) * 1000000)::bigint" \
	" FROM keyright.seat WHERE seat_id IS NOT NULL"

static void
audit_row(PGresult *rows, int row, Claim *claims, int claim_count)
{
	const char *seat_id = PQgetvalue(rows, row, 2);

	for (int i = 0; i < claim_count; i++)
		if (strcmp(claims[i].lease->seat_id, seat_id) == 0)
			claims[i].found = claims[i].expires <=
				atoll(PQgetvalue(rows, row, 3));
	if (books_was_rolled_back(seat_id))
		violation("a lease that was rolled back is in keyright.seat");
}

static void
audit(PGconn **conn, int64_t connected_at)
{
	static Claim claims[MAX_LICENSES * MAX_SLOTS];
	int			claim_count = books_claims(claims, MAX_LICENSES * MAX_SLOTS);
	PGresult   *rows = query(conn, "auditor", AUDIT);
	int64_t		received = wall_clock();

	if (rows == NULL)
		return;
	for (int i = 0; i < PQntuples(rows); i++)
		audit_row(rows, i, claims, claim_count);
	for (int i = 0; i < claim_count; i++)
		if (!claims[i].found)
			books_missing(&claims[i], received);
		else if (connected_at > 0 && claims[i].lease->since < connected_at)
			count(AUDITED_AFTER_CRASH);
	count(AUDITS);
	count_many(AUDITED_LEASES, claim_count);
	PQclear(rows);
}

void *
run_auditor(void *unused)
{
	PGconn	   *conn = connect_as("auditor");
	int64_t		connected_at = 0;	/* after the server went down */

	while (!watch_over && conn != NULL)
	{
		PGconn	   *before = conn;

		audit(&conn, connected_at);
		if (conn != before)
			connected_at = wall_clock();
		pause_ms(100);
	}
	PQfinish(conn);
	return NULL;
}
