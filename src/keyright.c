/*
 * keyright.c
 *		Start of the library: settings, hooks, versions.
 *
 * All settings belong to the server's administrator: none can be changed by a
 * session, a role or a database, so that nobody's session changes how long a
 * lease lives or how long a license may be locked.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/rel.h"

#include "extension.h"

#define LIBRARY_VERSION "0.1.0"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);
PG_FUNCTION_INFO_V1(keyright_version);

int			keyright_lock_timeout;
int			keyright_max_lock_hold;
int			keyright_reap_interval;
char	   *keyright_issuer;
bool		keyright_preloaded = false;

static bool
check_issuer(char **newval, void **extra, GucSource source)
{
	if ((*newval)[0] == '\0' || claim_text_ok(*newval, strlen(*newval)))
		return true;
	GUC_check_errdetail("It must be UTF-8 of at most %d bytes without control characters.",
						CLAIM_TEXT_MAX);
	return false;
}

static void
define_settings(void)
{
	DefineCustomIntVariable("keyright.lock_timeout",
							"Longest wait of a call for the lock of a license or of a seat's row.",
							"A shorter lock_timeout of the session counts instead.",
							&keyright_lock_timeout, 2000, 1, 3600 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("keyright.max_lock_hold",
							"Longest time that a transaction may hold the lock of a license or of a seat's row.",
							"After it the statement is cancelled, half a second later the session ended.",
							&keyright_max_lock_hold, 10000, 100, 3600 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("keyright.reap_interval",
							"Time between two sweeps of a database.",
							NULL,
							&keyright_reap_interval, 30000, 10, 24 * 3600 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomStringVariable("keyright.issuer",
							   "The \"iss\" claim of every token; empty for none.",
							   NULL,
							   &keyright_issuer, "", PGC_SIGHUP, 0,
							   check_issuer, NULL, NULL);
}

void
_PG_init(void)
{
	keyright_preloaded = process_shared_preload_libraries_in_progress;
	define_settings();
	key_init();
	MarkGUCPrefixReserved("keyright");
	hold_init();
	durable_init();
	if (keyright_preloaded)
	{
		shared_init();
		reaper_init();
	}
}

/* extversion of the extension in this database; NULL without it. */
static char *
installed_version(void)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *version = NULL;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber,
				F_NAMEEQ, CStringGetDatum("keyright"));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		value = heap_getattr(tuple, Anum_pg_extension_extversion,
										 RelationGetDescr(rel), &isnull);

		version = TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return version;
}

Datum
keyright_version(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	Datum		values[2];
	bool		nulls[2] = {0};
	char	   *sql = installed_version();

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = CStringGetTextDatum(LIBRARY_VERSION);
	values[1] = CStringGetTextDatum(sql ? sql : "");
	if (sql == NULL || strcmp(sql, LIBRARY_VERSION) != 0)
		ereport(ERROR,
				errcode(ERRCODE_VERSION_MISMATCH),
				errmsg("keyright's library is of version %s, its SQL objects are of version %s",
					   LIBRARY_VERSION, sql ? sql : "none"),
				errhint("Run ALTER EXTENSION keyright UPDATE, or restart the server after an upgrade."));
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values,
											 nulls));
}
