/*
 * checkin.c
 *		keyright_checkin: the holder gives the seat back.
 *
 * Under the license's lock.  A late or a repeated one finds its seat id gone,
 * or its lease lapsed, and touches nothing.  It works on a suspended license
 * and on one that is over, and needs no signing key: giving back always goes.
 */
#include "postgres.h"

#include "utils/builtins.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_checkin);

static bool
release(SeatTable *table, const License *license, const pg_uuid_t *seat_id)
{
	if (!seat_fetch(table, license->id, seat_id_slot(seat_id->data)) ||
		!seat_has_id(table, seat_id))
		return false;
	/* a beat of the same holder may be under way: wait for it */
	if (seat_own(table, LockWaitBlock) != SEAT_OWNED ||
		!seat_live(table, license->skew, GetCurrentTimestamp()))
		return false;
	seat_empty(table, NULL);
	return true;
}

static Datum
checkin(FunctionCallInfo fcinfo)
{
	License		license;
	Look		look;
	SeatTable	table;
	bool		released;
	char	   *license_id = claim_argument(fcinfo, 0, "license_id");
	const pg_uuid_t *seat_id = seat_id_argument(fcinfo, 1);

	require_writable("keyright_checkin()");
	shared_mark_database();
	durable_unlock_begin();
	license_lock_and_look(&license, license_id, &look);
	seat_table_open(&table, look.snapshot);
	released = release(&table, &license, seat_id);
	seat_table_close(&table);
	look_end(&look);
	durable_unlock_end();
	return CStringGetTextDatum(released ? "released" : "not_held");
}

Datum
keyright_checkin(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, checkin, license_name_argument);
}
