/*
 * tables.c
 *		Finds keyright's own tables and indexes, whatever the search_path.
 *
 * They are found by name in the schema keyright and then asked whether they
 * belong to the extension: a schema of the same name that somebody made for
 * himself is never touched.  The answer is kept until PostgreSQL says that one
 * of them has changed.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "extension.h"

static Tables tables;
static bool tables_valid = false;
static bool callback_registered = false;

static void
forget(Datum arg, Oid relid)
{
	if (relid == InvalidOid ||
		relid == tables.license || relid == tables.seat ||
		relid == tables.license_by_id || relid == tables.license_by_name ||
		relid == tables.seat_by_slot || relid == tables.seat_by_request)
		tables_valid = false;
}

/*
 * Whether it begins with our columns.  After them a license may have others, of
 * an administrator's, a seat only such as were dropped.
 */
static bool
has_columns(Oid relid, int natts, bool may_have_more)
{
	Relation	rel = try_table_open(relid, AccessShareLock);
	TupleDesc	desc;
	bool		result;

	/* dropped while we waited for its lock */
	if (rel == NULL)
		return false;
	desc = RelationGetDescr(rel);
	result = desc->natts >= natts;
	for (int i = 0; result && i < desc->natts; i++)
	{
		bool		dropped = TupleDescAttr(desc, i)->attisdropped;

		result = i < natts ? !dropped : dropped || may_have_more;
	}
	table_close(rel, AccessShareLock);
	return result;
}

static bool
find(Oid extension)
{
	Oid			schema = get_namespace_oid("keyright", true);
	Tables		t;
	bool		ours;

	if (!OidIsValid(schema))
		return false;
	t.license = get_relname_relid("license", schema);
	t.license_by_id = get_relname_relid("license_pkey", schema);
	t.license_by_name = get_relname_relid("license_license_id_key", schema);
	t.seat = get_relname_relid("seat", schema);
	t.seat_by_slot = get_relname_relid("seat_pkey", schema);
	t.seat_by_request = get_relname_relid("seat_request_id_key", schema);
	if (!OidIsValid(t.license) || !OidIsValid(t.license_by_id) ||
		!OidIsValid(t.license_by_name) || !OidIsValid(t.seat) ||
		!OidIsValid(t.seat_by_slot) || !OidIsValid(t.seat_by_request))
		return false;
	if (getExtensionOfObject(RelationRelationId, t.license) != extension ||
		getExtensionOfObject(RelationRelationId, t.seat) != extension)
		return false;

	/*
	 * Opening a table takes in what others report, an ANALYZE of it say, and
	 * then forget() clears tables_valid: these are ours all the same, and the
	 * next call looks again.
	 */
	tables = t;
	tables_valid = true;
	ours = has_columns(t.license, LICENSE_NATTS, true) &&
		has_columns(t.seat, SEAT_NATTS, false);
	if (!ours)
		tables_valid = false;
	return ours;
}

const Tables *
tables_find_quietly(void)
{
	Oid			extension;

	if (tables_valid)
		return &tables;
	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(forget, (Datum) 0);
		callback_registered = true;
	}
	extension = get_extension_oid("keyright", true);
	if (!OidIsValid(extension) || !find(extension))
		return NULL;
	return &tables;
}

static void
raise_mismatch(void)
{
	ereport(ERROR,
			errcode(ERRCODE_VERSION_MISMATCH),
			errmsg("keyright's tables are not those that its library works with"),
			errhint("Run ALTER EXTENSION keyright UPDATE, or restart the server after an upgrade; keyright_version() shows both versions. A column that was added to keyright.seat must be dropped."));
}

const Tables *
tables_find(void)
{
	const Tables *found = tables_find_quietly();

	if (found == NULL)
		raise_mismatch();
	return found;
}

Relation
tables_open(Oid relid, LOCKMODE mode)
{
	Relation	rel = try_table_open(relid, mode);

	/* DROP EXTENSION was committed while we waited for the lock */
	if (rel == NULL)
		raise_mismatch();
	return rel;
}
