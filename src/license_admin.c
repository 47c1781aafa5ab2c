/*
 * license_admin.c
 *		What happens to the seats when an administrator changes a license.
 *
 * keyright.license is managed with plain INSERT, UPDATE and DELETE; triggers
 * keep the two tables together.  No foreign key does: rows that are written
 * without SQL fire none, and its row locks would turn into multixacts under
 * the beats.
 *
 * A deletion takes the license's lock, so that no check-out is under way, and
 * then looks with the latest snapshot, not with the statement's.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_delete_license);
PG_FUNCTION_INFO_V1(keyright_license_delete_trigger);
PG_FUNCTION_INFO_V1(keyright_license_update_trigger);
PG_FUNCTION_INFO_V1(keyright_license_truncate_trigger);

static void
raise_in_use(const char *name, int32 live)
{
	ereport(ERROR,
			errcode(ERRCODE_LICENSE_IN_USE),
			errmsg("license \"%s\" has live leases", name),
			errdetail_plural("%d seat is in use.", "%d seats are in use.",
							 live, live),
			errhint("Wait until they are given back, or end them: keyright_delete_license(license_id, force => true)."));
}

/*
 * Deletes the rows of all seats.  A row in use, or one that somebody holds and
 * may be renewing, stops it.
 */
static void
delete_seats(const License *license, Look *look)
{
	SeatTable	table;
	int32		live = 0;

	seat_table_open(&table, look->snapshot);
	seat_scan(&table, license->id, 1, SLOT_MAX);
	while (seat_next(&table, ForwardScanDirection))
	{
		CHECK_FOR_INTERRUPTS();
		if (seat_own(&table, LockWaitBlock) != SEAT_OWNED)
			continue;
		if (seat_live(&table, license->skew, GetCurrentTimestamp()))
			live++;
		else if (live == 0)
			seat_delete(&table);
	}
	seat_table_close(&table);
	if (live > 0)
		raise_in_use(license->name, live);
	durable_commit();
}

/*
 * With SQL, so that what hangs on the row is asked: foreign keys of other
 * tables, triggers, and our own one, which looks at the seats.
 */
static void
delete_row(const License *license)
{
	Oid			types[] = {INT4OID};
	Datum		values[] = {Int32GetDatum(license->id)};

	SPI_connect();
	(void) SPI_execute_with_args("DELETE FROM keyright.license"
								 " WHERE id OPERATOR(pg_catalog.=) $1",
								 1, types, values, NULL, false, 0);
	if (SPI_processed != 1)
		ereport(ERROR,
				errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				errmsg("license \"%s\" was not deleted", license->name),
				errdetail("Its row is older or newer than what this transaction sees, or a trigger keeps it."),
				errhint("Try again, in a transaction of its own."));
	SPI_finish();
}

static Datum
delete_license(FunctionCallInfo fcinfo)
{
	License		license;
	Look		look;
	char	   *license_id = claim_argument(fcinfo, 0, "license_id");

	require_writable("keyright_delete_license()");
	license_lock_and_look(&license, license_id, &look);
	if (!PG_ARGISNULL(1) && PG_GETARG_BOOL(1))
		license_revoke_all(&license, &look);
	look_end(&look);
	delete_row(&license);
	PG_RETURN_VOID();
}

Datum
keyright_delete_license(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, delete_license, license_name_argument);
}

static TriggerData *
trigger_data(FunctionCallInfo fcinfo)
{
	if (!CALLED_AS_TRIGGER(fcinfo) ||
		((TriggerData *) fcinfo->context)->tg_relation->rd_id !=
		tables_find()->license)
		ereport(ERROR,
				errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				errmsg("function was not called by a trigger of keyright.license"));
	return (TriggerData *) fcinfo->context;
}

static int32
id_of(TriggerData *trigger, HeapTuple tuple)
{
	bool		isnull;

	return DatumGetInt32(heap_getattr(tuple, LICENSE_ID,
									  RelationGetDescr(trigger->tg_relation),
									  &isnull));
}

static const char *
name_of_trigger_row(FunctionCallInfo fcinfo)
{
	TriggerData *trigger = trigger_data(fcinfo);

	return SPI_getvalue(trigger->tg_trigtuple,
						RelationGetDescr(trigger->tg_relation),
						LICENSE_LICENSE_ID);
}

static Datum
before_delete(FunctionCallInfo fcinfo)
{
	TriggerData *trigger = trigger_data(fcinfo);
	License		license;
	Look		look;

	license_lock(id_of(trigger, trigger->tg_trigtuple));
	look = look_begin();
	/* gone already: then DELETE itself finds out what to do */
	if (license_get_by_id(&license, id_of(trigger, trigger->tg_trigtuple),
						  look.snapshot))
		delete_seats(&license, &look);
	look_end(&look);
	return PointerGetDatum(trigger->tg_trigtuple);
}

Datum
keyright_license_delete_trigger(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, before_delete, name_of_trigger_row);
}

/* The id is what locks and seats know a license by. */
Datum
keyright_license_update_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = trigger_data(fcinfo);

	if (id_of(trigger, trigger->tg_trigtuple) !=
		id_of(trigger, trigger->tg_newtuple))
		ereport(ERROR,
				errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				errmsg("the id of license \"%s\" cannot be changed",
					   name_of_trigger_row(fcinfo)),
				errhint("The name that callers use is license_id."));
	return PointerGetDatum(trigger->tg_newtuple);
}

Datum
keyright_license_truncate_trigger(PG_FUNCTION_ARGS)
{
	(void) trigger_data(fcinfo);
	ereport(ERROR,
			errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			errmsg("cannot truncate keyright.license"),
			errhint("Use DELETE, which looks at the seats of each license."));
	PG_RETURN_NULL();
}
