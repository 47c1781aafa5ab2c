/*
 * reaper.c
 *		Background workers that sweep every database with the extension.
 *
 * Words used here:
 *
 * launcher	static worker, connected to no database, which is why it blocks no
 *			DROP, no RENAME and no CREATE DATABASE ... TEMPLATE
 * visit	a short-lived worker in one database: it sweeps for half a second
 *			at most and exits; what is left is for a visit right after
 * round	keyright.reap_interval: the time between visits of a database that
 *			is known to have the extension; doubled for each failure in a row
 * marked	known to have it: a call of ours, or CREATE EXTENSION, said so in
 *			shared memory, or a visit found it
 * seen		a visit has come to its end there since the server started
 *
 * A visit costs some 26 ms, most of it to start, so databases without the
 * extension are visited once only, one a second: one may have come with a
 * template or a restart, with nobody calling anything in it yet.  They go
 * before those that are due, so that a busy server cannot keep them waiting.
 *
 * The launcher exits with 1 in every case, so that the postmaster starts it
 * again.  Nothing is held across a wait: no transaction, no snapshot.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#include "extension.h"

PGDLLEXPORT void keyright_launcher_main(Datum arg);
PGDLLEXPORT void keyright_visit_main(Datum arg);
PG_FUNCTION_INFO_V1(keyright_reaper_status);

#define RESTART_AFTER	5		/* seconds, for the launcher */
#define VISIT_TIME		500		/* ms */
#define UNSEEN_PACE		1000	/* ms between databases not seen before */
#define NAP_MAX			10000	/* ms */
#define BACKOFF_MAX		10		/* doublings of the round after errors */

static void
setup_signals(void)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
}

/* ---------- the visit: one database, half a second ---------- */

/* What was known of this database when the visit began. */
typedef struct Visit
{
	bool		was_marked;
	Sweep		sweep;
} Visit;

static void
note_result(const Visit *visit, bool has_extension)
{
	const Sweep *sweep = &visit->sweep;
	SharedDatabase *entry;

	LWLockAcquire(keyright_shared->lock, LW_EXCLUSIVE);
	entry = shared_find_database(MyDatabaseId, true);
	if (entry != NULL)
	{
		if (sweep->next_block == 0)
			entry->last_sweep = GetCurrentTimestamp();
		if (entry->next_block == 0)
			entry->last_reaped = 0;
		entry->seen = true;
		/* one that was marked while we looked keeps its mark */
		entry->marked = has_extension ||
			(entry->marked && !visit->was_marked);
		entry->next_block = sweep->next_block;
		entry->last_reaped += sweep->reaped;
		entry->total_reaped += sweep->reaped;
		entry->failures = 0;
	}
	LWLockRelease(keyright_shared->lock);
}

static void
note_error(const char *message)
{
	SharedDatabase *entry;

	LWLockAcquire(keyright_shared->lock, LW_EXCLUSIVE);
	entry = shared_find_database(MyDatabaseId, true);
	if (entry != NULL)
	{
		entry->failures++;
		entry->next_block = 0;
		entry->last_error_at = GetCurrentTimestamp();
		strlcpy(entry->last_error, message, SHARED_ERROR_SIZE);
	}
	LWLockRelease(keyright_shared->lock);
}

static void
begin_visit(Visit *visit)
{
	SharedDatabase *entry;

	memset(visit, 0, sizeof(*visit));
	LWLockAcquire(keyright_shared->lock, LW_SHARED);
	entry = shared_find_database(MyDatabaseId, false);
	if (entry != NULL)
	{
		visit->was_marked = entry->marked;
		visit->sweep.next_block = entry->next_block;
	}
	LWLockRelease(keyright_shared->lock);
}

static bool
has_extension(void)
{
	bool		result;

	StartTransactionCommand();
	result = tables_find_quietly() != NULL;
	CommitTransactionCommand();
	return result;
}

static void
sweep_database(Visit *visit)
{
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													VISIT_TIME);
	bool		present = has_extension();

	pgstat_report_activity(STATE_RUNNING, "keyright: reaping");
	if (present)
		sweep_slice(&visit->sweep, until);
	note_result(visit, present);
}

/* An error counts, unless the extension was dropped under our hands. */
static void
report_error(Visit *visit, ErrorData *error)
{
	if (!has_extension())
	{
		visit->sweep.next_block = 0;
		note_result(visit, false);
		return;
	}
	note_error(error->message);
	ereport(LOG,
			errcode(error->sqlerrcode),
			errmsg("keyright could not reap seats: %s", error->message),
			errhint("Nothing depends on it but tidiness: check-outs take over lapsed seats themselves. It is tried again, ever later while it fails."));
}

void
keyright_visit_main(Datum arg)
{
	MemoryContext context;
	Visit		visit;

	setup_signals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg),
											  InvalidOid, 0);
	/* no wait, for a table say, may hold up whoever drops this database */
	SetConfigOption("lock_timeout", "1s", PGC_SUSET, PGC_S_OVERRIDE);
	/* what is swept may be lost in a crash: the next sweep does it again */
	SetConfigOption("synchronous_commit", "off", PGC_SUSET, PGC_S_OVERRIDE);
	context = CurrentMemoryContext;
	begin_visit(&visit);
	PG_TRY();
	{
		sweep_database(&visit);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		AbortCurrentTransaction();
		report_error(&visit, error);
	}
	PG_END_TRY();
	pgstat_report_stat(true);
	proc_exit(0);
}

/* ---------- the launcher: which database is next ---------- */

static bool
start_visit(Oid database, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION | BGWORKER_INTERRUPTIBLE,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "keyright",
		.bgw_function_name = "keyright_visit_main",
		.bgw_name = "keyright reaper",
		.bgw_type = "keyright reaper",
		.bgw_main_arg = ObjectIdGetDatum(database),
		.bgw_notify_pid = MyProcPid
	};

	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/* The databases that one can connect to. */
static List *
list_databases(void)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *databases = NIL;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);

		/* a limit of -2 is what an interrupted DROP DATABASE leaves */
		if (database->datallowconn && database->datconnlimit != -2)
		{
			MemoryContext old = MemoryContextSwitchTo(context);

			databases = lappend_oid(databases, database->oid);
			MemoryContextSwitchTo(old);
		}
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return databases;
}

/* When the next visit is due, by the settings as they are now. */
static TimestampTz
due_at(const SharedDatabase *entry)
{
	int			doublings = Min(entry->failures, BACKOFF_MAX);

	/* never visited, or in the middle of a sweep */
	if (entry->last_visit == 0 || entry->next_block != 0)
		return entry->last_visit;
	return TimestampTzPlusMilliseconds(entry->last_visit,
									   ((int64) keyright_reap_interval) <<
									   doublings);
}

/* Makes entries for new databases and frees those of dropped ones. */
static void
update_entries(List *databases)
{
	ListCell   *cell;

	for (int i = 0; i < SHARED_DATABASES; i++)
		if (!list_member_oid(databases, keyright_shared->databases[i].oid))
			keyright_shared->databases[i].oid = InvalidOid;
	foreach(cell, databases)
		(void) shared_find_database(lfirst_oid(cell), true);
}

/*
 * The entry whose visit is due for the longest time, among those that are
 * marked or among those not yet seen; NULL when none is.  *wake becomes the
 * time at which one will be, if that is sooner.
 */
static SharedDatabase *
longest_due(bool seen, TimestampTz now, TimestampTz *wake)
{
	SharedDatabase *chosen = NULL;

	for (int i = 0; i < SHARED_DATABASES; i++)
	{
		SharedDatabase *entry = &keyright_shared->databases[i];

		if (entry->oid == InvalidOid || entry->seen != seen ||
			(seen && !entry->marked))
			continue;
		if (due_at(entry) > now)
			*wake = Min(*wake, due_at(entry));
		else if (chosen == NULL || due_at(entry) < due_at(chosen))
			chosen = entry;
	}
	return chosen;
}

/*
 * With more databases than entries: the next one without, in the order of
 * their numbers.  It is one of those that nothing is known of.
 */
static Oid
next_without_entry(List *databases)
{
	static Oid	last = InvalidOid;
	Oid			next = InvalidOid;
	ListCell   *cell;

	foreach(cell, databases)
	{
		Oid			oid = lfirst_oid(cell);

		if (oid > last && (next == InvalidOid || oid < next) &&
			shared_find_database(oid, false) == NULL)
			next = oid;
	}
	last = next;
	return next;
}

/* After the clock was set back: what was to come counts as never. */
static void
forget_future(TimestampTz now)
{
	for (int i = 0; i < SHARED_DATABASES; i++)
		if (keyright_shared->databases[i].last_visit > now)
			keyright_shared->databases[i].last_visit = 0;
}

/*
 * The database to visit now: at most once a second one that was not seen yet,
 * else one that is due.  Without one, *wake says when to look again.
 */
static Oid
choose(List *databases, TimestampTz now, TimestampTz *wake)
{
	static TimestampTz unseen_at = 0;
	SharedDatabase *chosen;
	Oid			result = InvalidOid;

	LWLockAcquire(keyright_shared->lock, LW_EXCLUSIVE);
	update_entries(databases);
	forget_future(now);
	unseen_at = Min(unseen_at, TimestampTzPlusMilliseconds(now, UNSEEN_PACE));
	chosen = longest_due(false, now, wake);
	if (chosen != NULL && now < unseen_at)
	{
		*wake = Min(*wake, unseen_at);
		chosen = NULL;
	}
	else if (now >= unseen_at)
	{
		if (chosen == NULL)
			result = next_without_entry(databases);
		unseen_at = TimestampTzPlusMilliseconds(now, UNSEEN_PACE);
	}
	if (chosen == NULL && !OidIsValid(result))
		chosen = longest_due(true, now, wake);
	if (chosen != NULL)
	{
		chosen->last_visit = now;
		result = chosen->oid;
	}
	LWLockRelease(keyright_shared->lock);
	return result;
}

static void
run_visit(Oid database)
{
	static bool complained = false;
	BackgroundWorkerHandle *handle;

	if (start_visit(database, &handle))
	{
		complained = false;
		(void) WaitForBackgroundWorkerShutdown(handle);
		return;
	}
	/* once, however long it lasts */
	if (!complained)
		ereport(LOG,
				errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				errmsg("keyright could not start a worker to reap seats"),
				errhint("Raise \"max_worker_processes\". Check-outs are not affected: they take over lapsed seats themselves."));
	complained = true;
}

static void
nap(TimestampTz until)
{
	long		ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
													 until);

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(ms, NAP_MAX), PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	/* also answers the barriers that DROP DATABASE waits for */
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		durable_publish();
	}
}

/* Visits one database, if it is time for one; returns when to look again. */
static TimestampTz
launch(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz wake = TimestampTzPlusMilliseconds(now, NAP_MAX);
	List	   *databases = list_databases();
	Oid			database = choose(databases, now, &wake);

	list_free(databases);
	if (!OidIsValid(database))
		return wake;
	run_visit(database);
	return now;					/* another one may be due */
}

static void
launcher_gone(int code, Datum arg)
{
	LWLockAcquire(keyright_shared->lock, LW_EXCLUSIVE);
	keyright_shared->launcher_pid = 0;
	keyright_shared->launcher_latch = NULL;
	LWLockRelease(keyright_shared->lock);
}

void
keyright_launcher_main(Datum arg)
{
	MemoryContext context;

	setup_signals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	before_shmem_exit(launcher_gone, (Datum) 0);
	LWLockAcquire(keyright_shared->lock, LW_EXCLUSIVE);
	keyright_shared->launcher_pid = MyProcPid;
	keyright_shared->launcher_latch = MyLatch;
	durable_publish();
	LWLockRelease(keyright_shared->lock);
	context = AllocSetContextCreate(TopMemoryContext, "keyright launcher",
									ALLOCSET_DEFAULT_SIZES);
	for (;;)
	{
		MemoryContextSwitchTo(context);
		nap(launch());
		MemoryContextReset(context);
	}
}

void
reaper_init(void)
{
	BackgroundWorker worker = {
		.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = RESTART_AFTER,
		.bgw_library_name = "keyright",
		.bgw_function_name = "keyright_launcher_main",
		.bgw_name = "keyright launcher",
		.bgw_type = "keyright launcher"
	};

	RegisterBackgroundWorker(&worker);
}

/* ---------- the view keyright.reaper ---------- */

static Datum
time_or_null(TimestampTz at, bool *isnull)
{
	*isnull = at == 0;
	return TimestampTzGetDatum(at);
}

Datum
keyright_reaper_status(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	Datum		values[8] = {0};
	bool		nulls[8] = {0};
	SharedDatabase entry = {0};
	pid_t		pid = 0;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (keyright_shared != NULL)
	{
		SharedDatabase *found;

		LWLockAcquire(keyright_shared->lock, LW_SHARED);
		pid = keyright_shared->launcher_pid;
		found = shared_find_database(MyDatabaseId, false);
		if (found != NULL)
			entry = *found;
		LWLockRelease(keyright_shared->lock);
	}
	values[0] = BoolGetDatum(keyright_shared != NULL);
	values[1] = BoolGetDatum(pid != 0);
	values[2] = Int32GetDatum(pid);
	nulls[2] = pid == 0;
	values[3] = time_or_null(entry.last_sweep, &nulls[3]);
	values[4] = Int64GetDatum(entry.last_reaped);
	values[5] = Int64GetDatum(entry.total_reaped);
	values[6] = CStringGetTextDatum(entry.last_error);
	nulls[6] = entry.last_error[0] == '\0';
	values[7] = time_or_null(entry.last_error_at, &nulls[7]);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values,
											 nulls));
}
