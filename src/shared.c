/*
 * shared.c
 *		What all processes of the server share: which databases are worth a
 *		sweep, and what the last sweep of each came to.
 *
 * Nothing here decides anything: all of it can be lost at any moment, and is
 * at every restart.  A database that finds no entry because all are taken is
 * visited at the pace of those that were never seen.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_mark_database);

Shared	   *keyright_shared = NULL;

static SharedDatabase *mine = NULL; /* this backend's database */
static bool mark_at_commit = false;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void
request_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(MAXALIGN(sizeof(Shared)) + hints_size());
	RequestNamedLWLockTranche("keyright", 1);
}

static void
startup_memory(void)
{
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	keyright_shared = ShmemInitStruct("keyright", sizeof(Shared), &found);
	if (!found)
	{
		memset(keyright_shared, 0, sizeof(Shared));
		durable_publish();
		keyright_shared->lock = &GetNamedLWLockTranche("keyright")->lock;
	}
	hints_startup();
	LWLockRelease(AddinShmemInitLock);
}

SharedDatabase *
shared_find_database(Oid oid, bool create)
{
	SharedDatabase *unused = NULL;

	for (int i = 0; i < SHARED_DATABASES; i++)
	{
		SharedDatabase *entry = &keyright_shared->databases[i];

		if (entry->oid == oid)
			return entry;
		if (entry->oid == InvalidOid && unused == NULL)
			unused = entry;
	}
	if (!create || unused == NULL)
		return NULL;
	memset(unused, 0, sizeof(SharedDatabase));
	unused->oid = oid;
	return unused;
}

static void
mark_database(void)
{
	SharedDatabase *entry;

	LWLockAcquire(keyright_shared->lock, LW_EXCLUSIVE);
	entry = shared_find_database(MyDatabaseId, true);
	if (entry != NULL)
	{
		entry->marked = true;
		mine = entry;
	}
	if (keyright_shared->launcher_latch != NULL)
		SetLatch(keyright_shared->launcher_latch);
	LWLockRelease(keyright_shared->lock);
}

/* At the commit: a visit before it would not see CREATE EXTENSION's work. */
static void
at_transaction_end(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	if (mark_at_commit && event == XACT_EVENT_COMMIT)
		mark_database();
	mark_at_commit = false;
}

void
shared_init(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_memory;
	hints_init();
	RegisterXactCallback(at_transaction_end, NULL);
}

void
shared_mark_database(void)
{
	if (keyright_shared == NULL)
		return;
	/* unlocked: ours can neither vanish nor become another's while we live */
	if (mine != NULL && mine->oid == MyDatabaseId && mine->marked)
		return;
	mark_at_commit = true;
}

/* Called by the installation script. */
Datum
keyright_mark_database(PG_FUNCTION_ARGS)
{
	if (keyright_shared != NULL)
		mark_at_commit = true;
	PG_RETURN_VOID();
}
