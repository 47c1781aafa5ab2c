/*
 * heartbeat.c
 *		keyright_heartbeat: renews a live lease.
 *
 * Good news under the row's lock, bad news under the license's.  Renewing a
 * live lease changes nobody's count, so its row is enough: no stuck check-out
 * of a colleague can make a holder lapse.  That a seat is lost is said only
 * under the license's lock, by a fresh look: what seems to be lost may be a
 * take-over that is about to be rolled back.
 *
 * The license's end may have been moved to before a lease's own since its last
 * beat; the beat that then shortens the lease takes the license's lock too, so
 * that expiries only ever move later behind the back of who holds the lock.
 *
 * The old expiry is judged by a clock that was read after the row was ours.
 * A beat that waited for the row while its lease lapsed must not renew it.
 */
#include "postgres.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_heartbeat);

typedef struct Beat
{
	const pg_uuid_t *seat_id;
	License		license;
	Look		look;
	SeatTable	table;
	bool		locked;			/* the license's lock is ours */
	SeatRow		row;			/* as renewed */
} Beat;

static int64
lease_ttl(Beat *beat)
{
	bool		isnull;
	Datum		ttl = seat_column(&beat->table, SEAT_TTL, &isnull);

	if (isnull)
		return beat->license.ttl;
	return Min(interval_span(DatumGetIntervalP(ttl)), beat->license.max_ttl);
}

/* Where the lease ends after a beat now. */
static TimestampTz
renewed_end(Beat *beat, TimestampTz now)
{
	TimestampTz license_end = beat->license.valid_until;
	TimestampTz end = lease_end(now, lease_ttl(beat), license_end);

	/* a clock that was set back shortens nothing, the license's end does */
	return Min(Max(end, seat_expires_at(&beat->table)), license_end);
}

/*
 * The row was written at once, without locking it first, which spares a beat
 * half its work.  If we were held up in between until the lease lapsed, what
 * was written must not stand.
 */
static void
require_still_live(Beat *beat)
{
	if (!seat_live(&beat->table, beat->license.skew, GetCurrentTimestamp()))
		ereport(ERROR,
				errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				errmsg("could not renew the lease in time"),
				errhint("Repeat the call: its answer will be authoritative."));
}

/*
 * Judges the current row by this clock: NULL, with the row as it is after the
 * beat, when it can be renewed, else why it cannot.
 */
static const char *
judge(Beat *beat, TimestampTz now)
{
	SeatTable  *table = &beat->table;
	TimestampTz end;

	if (!seat_has_id(table, beat->seat_id))
	{
		const char *ended = seat_ended(table, beat->seat_id);

		return ended ? ended : "unknown";
	}
	license_require_usable(&beat->license, now);
	if (!seat_live(table, beat->license.skew, now))
		return ENDED_EXPIRED;
	end = renewed_end(beat, now);
	if (end < seat_expires_at(table) && !beat->locked)
		return "shortened";		/* never shown: judged again, locked */
	seat_row_copy(&beat->row, table);
	seat_row_set(&beat->row, SEAT_ISSUED_AT, TimestampTzGetDatum(now));
	seat_row_set(&beat->row, SEAT_EXPIRES_AT, TimestampTzGetDatum(end));
	return NULL;
}

/* False when nothing was written: the row has changed since it was judged. */
static bool
write_row(Beat *beat)
{
	Datum		end = beat->row.values[SEAT_EXPIRES_AT - 1];

	/* a second beat within a second, or a clock that was set back */
	if (DatumGetTimestampTz(end) == seat_expires_at(&beat->table))
		return true;
	return seat_update(&beat->table, &beat->row);
}

/* NULL when the lease is renewed, else why it cannot be. */
static const char *
renew(Beat *beat)
{
	SeatTable  *table = &beat->table;
	const char *reason;
	bool		owned;

	if (!seat_fetch(table, beat->license.id,
					seat_id_slot(beat->seat_id->data)))
		return "unknown";
	owned = seat_has_id(table, beat->seat_id) && seat_contended(table);
	if (owned && seat_own(table, LockWaitBlock) == SEAT_GONE)
		return "unknown";
	while ((reason = judge(beat, GetCurrentTimestamp())) == NULL)
	{
		if (write_row(beat))
		{
			if (!owned)
				require_still_live(beat);
			break;
		}
		/* somebody was faster: wait for him and judge the newest version */
		if (seat_own(table, LockWaitBlock) == SEAT_GONE)
			return "unknown";
		owned = true;
	}
	return reason;
}

static const char *
try_renew(Beat *beat)
{
	/* said even to who holds no seat of it */
	license_require_usable(&beat->license, beat->look.now);
	seat_table_open(&beat->table, beat->look.snapshot);
	return renew(beat);
}

static void
let_go(Beat *beat)
{
	seat_table_close(&beat->table);
	look_end(&beat->look);
}

static Datum
heartbeat(FunctionCallInfo fcinfo)
{
	Beat		beat;
	Answer		answer = {"renewed"};
	Datum		result;
	char	   *license_id = claim_argument(fcinfo, 0, "license_id");

	beat.seat_id = seat_id_argument(fcinfo, 1);
	require_writable("keyright_heartbeat()");
	(void) signing_key();
	shared_mark_database();

	beat.look = look_begin();
	license_get_by_name(&beat.license, license_id, &beat.look);
	beat.locked = false;
	answer.reason = try_renew(&beat);
	if (answer.reason != NULL)
	{
		let_go(&beat);
		beat.locked = true;
		license_lock_and_look(&beat.license, license_id, &beat.look);
		answer.reason = try_renew(&beat);
	}
	answer.license = &beat.license;
	if (answer.reason == NULL)
	{
		answer.row = &beat.row;
		durable_commit();
	}
	else
		answer.status = "seat_lost";
	/* the row's values point into the table's slot */
	result = answer_datum(&answer);
	let_go(&beat);
	return result;
}

Datum
keyright_heartbeat(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, heartbeat, license_name_argument);
}
