/*
 * revoke.c
 *		An administrator ends leases: one seat id, one slot, one holder, all.
 *
 * Under the license's lock and, unlike a check-out, waiting for each row: a
 * revocation wins over every beat that has not committed before it.  So rows
 * that look lapsed are waited for too, in case a beat has just renewed them.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_revoke);
PG_FUNCTION_INFO_V1(keyright_revoke_slot);
PG_FUNCTION_INFO_V1(keyright_revoke_holder);
PG_FUNCTION_INFO_V1(keyright_revoke_all);

/* What to end: the first of these that is set, or every lease. */
typedef struct Target
{
	const pg_uuid_t *seat_id;
	int32		slot;
	const char *holder;
} Target;

static bool
matches(SeatTable *table, const Target *target)
{
	if (!seat_taken(table))
		return false;
	if (target->seat_id != NULL)
		return seat_has_id(table, target->seat_id);
	if (target->holder != NULL)
		return strcmp(seat_text(table, SEAT_HOLDER), target->holder) == 0;
	return true;
}

/* What the caller is told of a lease that was ended. */
static void
report(ReturnSetInfo *result, const License *license, SeatTable *table)
{
	static const int columns[] = {
		SEAT_SLOT, SEAT_HOLDER, SEAT_CHECKED_OUT_AT, SEAT_EXPIRES_AT
	};
	Datum		values[1 + lengthof(columns)];
	bool		nulls[1 + lengthof(columns)];

	if (result == NULL)
		return;
	values[0] = CStringGetTextDatum(license->name);
	nulls[0] = false;
	for (int i = 0; i < lengthof(columns); i++)
		values[1 + i] = seat_column(table, columns[i], &nulls[1 + i]);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static void
end_lease(ReturnSetInfo *result, const License *license, SeatTable *table,
		  const Target *target)
{
	if (!matches(table, target) ||
		seat_own(table, LockWaitBlock) != SEAT_OWNED ||
		!matches(table, target) ||
		!seat_live(table, license->skew, GetCurrentTimestamp()))
		return;
	report(result, license, table);
	seat_empty(table, ENDED_REVOKED);
}

static void
end_leases(ReturnSetInfo *result, const License *license, Look *look,
		   const Target *target)
{
	SeatTable	table;
	int32		slot = target->seat_id ? seat_id_slot(target->seat_id->data) :
		target->slot;

	seat_table_open(&table, look->snapshot);
	if (target->seat_id != NULL || target->slot != 0)
		seat_scan(&table, license->id, slot, slot);
	else
		seat_scan(&table, license->id, 1, SLOT_MAX);
	while (seat_next(&table, ForwardScanDirection))
	{
		CHECK_FOR_INTERRUPTS();
		end_lease(result, license, &table, target);
	}
	seat_table_close(&table);
	durable_commit();
}

void
license_revoke_all(const License *license, Look *look)
{
	Target		target = {0};

	end_leases(NULL, license, look, &target);
}

static Datum
revoke_target(FunctionCallInfo fcinfo, const Target *target)
{
	License		license;
	Look		look;
	char	   *license_id = claim_argument(fcinfo, 0, "license_id");

	require_writable("keyright_revoke()");
	InitMaterializedSRF(fcinfo, 0);
	shared_mark_database();
	license_lock_and_look(&license, license_id, &look);
	end_leases((ReturnSetInfo *) fcinfo->resultinfo, &license, &look, target);
	look_end(&look);
	return (Datum) 0;
}

static Datum
revoke_seat(FunctionCallInfo fcinfo)
{
	Target		target = {.seat_id = seat_id_argument(fcinfo, 1)};

	return revoke_target(fcinfo, &target);
}

static Datum
revoke_slot(FunctionCallInfo fcinfo)
{
	Target		target = {0};

	if (PG_ARGISNULL(1) || PG_GETARG_INT32(1) < 1)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("slot must be 1 or more"));
	target.slot = PG_GETARG_INT32(1);
	return revoke_target(fcinfo, &target);
}

static Datum
revoke_holder(FunctionCallInfo fcinfo)
{
	Target		target = {.holder = claim_argument(fcinfo, 1, "holder")};

	return revoke_target(fcinfo, &target);
}

static Datum
revoke_all(FunctionCallInfo fcinfo)
{
	Target		target = {0};

	return revoke_target(fcinfo, &target);
}

Datum
keyright_revoke(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, revoke_seat, license_name_argument);
}

Datum
keyright_revoke_slot(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, revoke_slot, license_name_argument);
}

Datum
keyright_revoke_holder(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, revoke_holder, license_name_argument);
}

Datum
keyright_revoke_all(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, revoke_all, license_name_argument);
}
