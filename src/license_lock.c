/*
 * license_lock.c
 *		The license's lock, then the clock, then the look.
 *
 * Everything that gives a seat to somebody or takes it away happens under an
 * advisory transaction lock of the license, and decides by a clock and a
 * snapshot that were read after the lock was ours:
 *
 * - now() stands still at the start of the transaction: a lease written with
 *   it after a long wait would be born dead.
 * - The transaction's own snapshot does not see what others committed while
 *   we waited: counting with it sells a seat twice, silently, under
 *   REPEATABLE READ always and in any level within one statement.
 *
 * The lock's fourth field is 3.  pg_advisory_lock() reaches 1 and 2 only, so
 * no role can freeze a license by taking its lock from SQL.
 *
 * The lock belongs to the transaction, never to a portal: a cursor's own
 * resource owner would drop it when a FETCH fails, while what was written
 * under it stays.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/snapmgr.h"

#include "extension.h"

/* Shown as classid of these locks in pg_locks; keyright.locks looks for it. */
#define LOCK_CLASS		0x6b72
#define LOCK_FIELD4		3

#ifdef KEYRIGHT_NO_LICENSE_LOCK

/*
 * For one test only: that the rows alone, the second barrier, never let a seat
 * be sold twice.
 */
static bool
acquire(int32 license, bool dont_wait)
{
	hold_begin();
	return true;
}

#else

static bool
acquire(int32 license, bool dont_wait)
{
	LOCKTAG		tag;
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, LOCK_CLASS, (uint32) license,
						 LOCK_FIELD4);
	/* bounded_call() puts the owner back when this fails */
	CurrentResourceOwner = CurTransactionResourceOwner;
	result = LockAcquire(&tag, ExclusiveLock, false, dont_wait);
	CurrentResourceOwner = owner;
	if (result == LOCKACQUIRE_NOT_AVAIL)
		return false;
	hold_begin();
	return true;
}

#endif

void
license_lock(int32 license)
{
	(void) acquire(license, false);
}

bool
license_try_lock(int32 license)
{
	return acquire(license, true);
}

Look
look_begin(void)
{
	Look		look;

	CommandCounterIncrement();
	look.now = GetCurrentTimestamp();
	/* what GetLatestSnapshot() returns is static until it is registered */
	look.snapshot = RegisterSnapshot(GetLatestSnapshot());
	return look;
}

void
look_end(Look *look)
{
	UnregisterSnapshot(look->snapshot);
	look->snapshot = NULL;
	CommandCounterIncrement();
}

void
require_writable(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
}
