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

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_heartbeat);
PG_FUNCTION_INFO_V1(keyright_heartbeat_many);

/* Told apart by its address: no decision, neither good nor bad. */
static const char BUSY[] = "busy";

typedef struct Beat
{
	const pg_uuid_t *seat_id;
	License		license;
	Look		look;
	SeatTable	table;
	bool		locked;			/* the license's lock is ours */
	LockWaitPolicy policy;		/* for rows that others hold */
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
	Datum		value = beat->row.values[SEAT_EXPIRES_AT - 1];
	TimestampTz end = DatumGetTimestampTz(value);

	/* a second beat within a second, or a clock that was set back */
	if (end == seat_expires_at(&beat->table))
		return true;
	return seat_update(&beat->table, &beat->row);
}

/* Makes the current row ours: NULL, or why that cannot be. */
static const char *
own(Beat *beat)
{
	switch (seat_own(&beat->table, beat->policy))
	{
		case SEAT_OWNED:
			return NULL;
		case SEAT_BUSY:
			return BUSY;
		default:
			return "unknown";
	}
}

/* NULL when the lease is renewed, which is a promise; else why it cannot be. */
static const char *
renew(Beat *beat)
{
	SeatTable  *table = &beat->table;
	const char *reason = NULL;
	bool		owned;

	if (!seat_fetch(table, beat->license.id,
					seat_id_slot(beat->seat_id->data)))
		return "unknown";
	/* who waits for nobody cannot write first and see: that would wait */
	owned = seat_has_id(table, beat->seat_id) &&
		(beat->policy == LockWaitSkip || seat_contended(table));
	if (owned)
		reason = own(beat);
	while (reason == NULL &&
		   (reason = judge(beat, GetCurrentTimestamp())) == NULL)
	{
		if (write_row(beat))
		{
			if (!owned)
				require_still_live(beat);
			break;
		}
		/* somebody was faster: wait for him and judge the newest version */
		owned = true;
		reason = own(beat);
	}
	if (reason == NULL)
		durable_commit();
	return reason;
}

static void
open_table(Beat *beat)
{
	/* said even to who holds no seat of it */
	license_require_usable(&beat->license, beat->look.now);
	seat_table_open(&beat->table, beat->look.snapshot);
}

static void
let_go(Beat *beat)
{
	seat_table_close(&beat->table);
	look_end(&beat->look);
}

static void
begin(Beat *beat, const char *license_id, LockWaitPolicy policy)
{
	(void) signing_key();
	shared_mark_database();
	beat->locked = false;
	beat->policy = policy;
	beat->look = look_begin();
	license_get_by_name(&beat->license, license_id, &beat->look);
	open_table(beat);
}

/* The columns of the answer to one beat; they point into the table's slot. */
static Answer
make_answer(const Beat *beat, const char *reason)
{
	Answer		answer = {
		.status = "renewed",
		.license = &beat->license,
		.seat_id = beat->seat_id
	};

	if (reason == NULL)
		answer.row = &beat->row;
	else if (reason == BUSY)
		answer.status = BUSY;
	else
	{
		answer.status = "seat_lost";
		answer.reason = reason;
	}
	return answer;
}

static Datum
heartbeat(FunctionCallInfo fcinfo)
{
	Beat		beat;
	Answer		answer;
	Datum		result;
	const char *reason;
	char	   *license_id = claim_argument(fcinfo, 0, "license_id");

	beat.seat_id = seat_id_argument(fcinfo, 1);
	require_writable("keyright_heartbeat()");
	begin(&beat, license_id, LockWaitBlock);
	reason = renew(&beat);
	if (reason != NULL)
	{
		let_go(&beat);
		beat.locked = true;
		license_lock_and_look(&beat.license, license_id, &beat.look);
		open_table(&beat);
		reason = renew(&beat);
	}
	answer = make_answer(&beat, reason);
	/* the row\'s values point into the table\'s slot */
	result = answer_datum(&answer);
	let_go(&beat);
	return result;
}

Datum
keyright_heartbeat(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, heartbeat, license_name_argument);
}

/* ---------- many at once ---------- */

#define MANY_MAX	10000

/* By slot, so that two batches lock their rows in the same order. */
static int
compare_ids(const void *a, const void *b)
{
	const pg_uuid_t *left = DatumGetUUIDP(*(const Datum *) a);
	const pg_uuid_t *right = DatumGetUUIDP(*(const Datum *) b);
	int32		left_slot = seat_id_slot(left->data);
	int32		right_slot = seat_id_slot(right->data);

	if (left_slot != right_slot)
		return left_slot < right_slot ? -1 : 1;
	return memcmp(left->data, right->data, UUID_LEN);
}

/* The ids in order, each once. */
static Datum *
ids_argument(FunctionCallInfo fcinfo, int arg, int *count)
{
	Datum	   *ids;
	int			given;
	int			kept = 0;

	if (PG_ARGISNULL(arg) || array_contains_nulls(PG_GETARG_ARRAYTYPE_P(arg)))
		ereport(ERROR,
				errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("seat_ids must not be null or contain nulls"));
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(arg), UUIDOID, UUID_LEN, false,
					  TYPALIGN_CHAR, &ids, NULL, &given);
	if (given > MANY_MAX)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("seat_ids has %d elements, at most %d are allowed",
					   given, MANY_MAX));
	qsort(ids, given, sizeof(Datum), compare_ids);
	for (int i = 0; i < given; i++)
		if (kept == 0 || compare_ids(&ids[kept - 1], &ids[i]) != 0)
			ids[kept++] = ids[i];
	*count = kept;
	return ids;
}

/*
 * One pass over the ids: what is renewed is answered.  The others are left in
 * ids when they are to be judged again under the lock, else answered as well.
 */
static int
beat_all(Beat *beat, Datum *ids, int count, bool final, ReturnSetInfo *result)
{
	int			left = 0;

	for (int i = 0; i < count; i++)
	{
		const char *reason;

		CHECK_FOR_INTERRUPTS();
		beat->seat_id = DatumGetUUIDP(ids[i]);
		reason = renew(beat);
		if (reason == NULL || final)
		{
			/* bad news only under the license's lock */
			Answer		answer = make_answer(beat, reason && !beat->locked ?
											 BUSY : reason);

			answer_add_row(result, &answer);
		}
		else
			ids[left++] = ids[i];
	}
	return left;
}

/*
 * Nothing is waited for: one bad seat, or one that somebody else holds up, must
 * not cost the others their leases.  It is answered "busy" and asked again.
 */
static Datum
heartbeat_many(FunctionCallInfo fcinfo)
{
	Beat		beat;
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *license_id = claim_argument(fcinfo, 0, "license_id");
	int			count;
	Datum	   *ids = ids_argument(fcinfo, 1, &count);

	require_writable("keyright_heartbeat_many()");
	InitMaterializedSRF(fcinfo, 0);
	begin(&beat, license_id, LockWaitSkip);
	count = beat_all(&beat, ids, count, false, result);
	if (count > 0)
	{
		int32		id = beat.license.id;
		bool		locked = license_try_lock(id);

		let_go(&beat);
		beat.look = look_begin();
		license_get_by_name(&beat.license, license_id, &beat.look);
		beat.locked = locked && beat.license.id == id;
		open_table(&beat);
		beat_all(&beat, ids, count, true, result);
	}
	let_go(&beat);
	return (Datum) 0;
}

Datum
keyright_heartbeat_many(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, heartbeat_many, license_name_argument);
}
