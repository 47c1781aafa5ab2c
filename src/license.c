/*
 * license.c
 *		Reads what was sold: a row of keyright.license.
 *
 * The functions never write that row and never wait for it, so that an
 * administrator's open transaction holds nobody up.  It is read twice: once
 * to find the id whose lock is to be taken, and again under the lock, by that
 * id, because only what is read then may decide.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_collation.h"
#include "executor/tuptable.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "extension.h"

static int64
get_length(TupleTableSlot *slot, int attnum, int64 when_null)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attnum, &isnull);

	return isnull ? when_null : interval_span(DatumGetIntervalP(value));
}

static TimestampTz
get_time(TupleTableSlot *slot, int attnum, TimestampTz when_null)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, attnum, &isnull);

	return isnull ? when_null : DatumGetTimestampTz(value);
}

static void
fill(License *license, TupleTableSlot *slot)
{
	bool		isnull;
	text	   *name;

	license->id = DatumGetInt32(slot_getattr(slot, LICENSE_ID, &isnull));
	name = DatumGetTextPP(slot_getattr(slot, LICENSE_LICENSE_ID, &isnull));
	text_to_cstring_buffer(name, license->name, sizeof(license->name));
	license->seat_count =
		DatumGetInt32(slot_getattr(slot, LICENSE_SEAT_COUNT, &isnull));
	license->ttl = get_length(slot, LICENSE_TTL, 0);
	license->skew = get_length(slot, LICENSE_SKEW, 0);
	license->reap_grace = get_length(slot, LICENSE_REAP_GRACE, 0);
	license->max_ttl = get_length(slot, LICENSE_MAX_TTL, license->ttl);
	license->valid_from = get_time(slot, LICENSE_VALID_FROM, DT_NOBEGIN);
	license->valid_until = get_time(slot, LICENSE_VALID_UNTIL, DT_NOEND);
	license->suspended =
		DatumGetBool(slot_getattr(slot, LICENSE_SUSPENDED, &isnull));
}

static bool
get(License *license, Oid index_oid, RegProcedure equals, Datum key,
	Snapshot snapshot)
{
	Relation	rel = tables_open(tables_find()->license, AccessShareLock);
	Relation	index = index_open(index_oid, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = begin_index_scan(rel, index, snapshot, 1);
	ScanKeyData scankey;
	bool		found;

	ScanKeyEntryInitialize(&scankey, 0, 1, BTEqualStrategyNumber, InvalidOid,
						   index->rd_indcollation[0], equals, key);
	index_rescan(scan, &scankey, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, slot);
	if (found)
		fill(license, slot);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	return found;
}

bool
license_get_by_id(License *license, int32 id, Snapshot snapshot)
{
	return get(license, tables_find()->license_by_id, F_INT4EQ,
			   Int32GetDatum(id), snapshot);
}

static void
raise_unknown(const char *name)
{
	ereport(ERROR,
			errcode(ERRCODE_LICENSE_UNKNOWN),
			errmsg("license \"%s\" does not exist", name),
			errdetail("The table keyright.license has no row with this license_id."),
			errhint("Check the spelling; an administrator sells seats with INSERT INTO keyright.license (license_id, seat_count) VALUES (...)."));
}

void
license_get_by_name(License *license, const char *name, const Look *look)
{
	if (!get(license, tables_find()->license_by_name, F_TEXTEQ,
			 CStringGetTextDatum(name), look->snapshot))
		raise_unknown(name);
}

void
license_lock_and_look(License *license, const char *name, Look *look)
{
	Look		before = look_begin();

	license_get_by_name(license, name, &before);
	look_end(&before);
	license_lock(license->id);
	*look = look_begin();
	/* deleted or renamed while we waited: then it is no more */
	if (!license_get_by_id(license, license->id, look->snapshot) ||
		strcmp(license->name, name) != 0)
		raise_unknown(name);
}

void
license_require_usable(const License *license, TimestampTz now)
{
	if (license->suspended)
		ereport(ERROR,
				errcode(ERRCODE_LICENSE_SUSPENDED),
				errmsg("license \"%s\" is suspended", license->name),
				errdetail("No seat of it is given out or renewed. Holders learn that with their next heartbeat; their seats are counted until the leases end."),
				errhint("An administrator lifts this with UPDATE keyright.license SET suspended = false WHERE license_id = %s.",
						quote_literal_cstr(license->name)));
	if (now < license->valid_from)
		ereport(ERROR,
				errcode(ERRCODE_LICENSE_NOT_YET),
				errmsg("license \"%s\" is not yet valid", license->name),
				errdetail("It is valid from %s.",
						  timestamptz_to_str(license->valid_from)),
				errhint("An administrator can change keyright.license.valid_from."));
	if (!lease_is_live(license->valid_until, 0, now))
		ereport(ERROR,
				errcode(ERRCODE_LICENSE_OVER),
				errmsg("license \"%s\" is no longer valid", license->name),
				errdetail("It was valid until %s.",
						  timestamptz_to_str(license->valid_until)),
				errhint("Renew the license, then change keyright.license.valid_until."));
}
