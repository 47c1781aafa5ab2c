/*
 * bounded.c
 *		No wait and no hold of a lock without a bound.
 *
 * Waiting: a call that cannot get a lock of keyright's (a license's, a row's,
 * a table's, another inserter's) gives up after keyright.lock_timeout, so that
 * one stuck session never freezes a customer's fleet.  LockTimeout, the
 * variable behind PostgreSQL's lock_timeout, is lowered for the time of the
 * call, on whatever path the call is left.
 *
 * Holding: a transaction that has taken such a lock must end within
 * keyright.max_lock_hold.  The timers are our own, because every setting that
 * could do this (idle_in_transaction_session_timeout and its like) can be
 * changed by the very session that it should bound.  They run from the first
 * lock to the commit (what that waits for, the disk and standbys, is not ours
 * to bound) or to the end of the subtransaction that took it: first the
 * statement is cancelled, which ends a transaction that is busy, then the
 * session, which ends an idle one.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/timeout.h"

#include "extension.h"

#define END_AFTER_CANCEL	500 /* ms */

static int	hold_level = 0;		/* nesting level of the first lock; 0: none */
static TimestampTz hold_until;
static volatile sig_atomic_t hold_cancelled = false;
static TimeoutId cancel_timeout;
static TimeoutId end_timeout;
static bool timeouts_registered = false;

int
bound_waits(int milliseconds)
{
	int			saved = LockTimeout;

	if (LockTimeout == 0 || LockTimeout > milliseconds)
		LockTimeout = milliseconds;
	return saved;
}

void
restore_waits(int saved)
{
	LockTimeout = saved;
}

const char *
license_name_argument(FunctionCallInfo fcinfo)
{
	if (fcinfo->nargs < 1 || PG_ARGISNULL(0))
		return "";
	return text_to_cstring(PG_GETARG_TEXT_PP(0));
}

static void
raise_busy(const char *name)
{
	ereport(ERROR,
			errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			errmsg("license \"%s\" is busy", name),
			errdetail("Its lock, or the row of a seat, was not to be had in time."),
			errhint("Try again. The view keyright.locks shows who holds it; \"keyright.lock_timeout\" bounds the wait."));
}

Datum
bounded_call(FunctionCallInfo fcinfo, PGFunction body,
			 const char *(*license_name) (FunctionCallInfo))
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	int			saved = bound_waits(keyright_lock_timeout);
	volatile Datum result = (Datum) 0;

	PG_TRY();
	{
		result = body(fcinfo);
		restore_waits(saved);
	}
	PG_CATCH();
	{
		restore_waits(saved);
		CurrentResourceOwner = owner;
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		raise_busy(license_name(fcinfo));
	}
	PG_END_TRY();
	return result;
}

/* Both handlers run in the signal handler: flags and the latch, no more. */
static void
cancel_statement(void)
{
	if (hold_level == 0)
		return;
	hold_cancelled = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

static void
end_session(void)
{
	if (hold_level == 0)
		return;
	hold_cancelled = true;
	InterruptPending = true;
	ProcDiePending = true;
	SetLatch(MyLatch);
}

static void
arm(void)
{
	EnableTimeoutParams timers[2];

	memset(timers, 0, sizeof(timers));
	timers[0].id = end_timeout;
	timers[0].type = TMPARAM_AT;
	timers[0].fin_time = TimestampTzPlusMilliseconds(hold_until,
													 END_AFTER_CANCEL);
	timers[1].id = cancel_timeout;
	timers[1].type = TMPARAM_AT;
	timers[1].fin_time = hold_until;
	enable_timeouts(timers, hold_cancelled ? 1 : 2);
}

static void
disarm(void)
{
	hold_level = 0;
	disable_timeout(cancel_timeout, false);
	disable_timeout(end_timeout, false);
}

void
hold_begin(void)
{
	if (hold_level > 0)
		return;
	if (!timeouts_registered)
	{
		cancel_timeout = RegisterTimeout(USER_TIMEOUT, cancel_statement);
		end_timeout = RegisterTimeout(USER_TIMEOUT, end_session);
		timeouts_registered = true;
	}
	hold_level = GetCurrentTransactionNestLevel();
	hold_until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
											 keyright_max_lock_hold);
	hold_cancelled = false;
	arm();
}

static void
hold_end(void)
{
	disarm();
	if (hold_cancelled)
	{
		hold_cancelled = false;
		ereport(WARNING,
				errmsg("transaction held a license's lock for longer than \"keyright.max_lock_hold\" and was ended"),
				errhint("Commit soon after a check-out, a heartbeat or a check-in."));
	}
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	if (hold_level == 0)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			ereport(ERROR,
					errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("cannot PREPARE a transaction that holds a license's lock"),
					errhint("Use COMMIT: a prepared transaction would keep the license locked until somebody ends it."));
			break;
		case XACT_EVENT_PRE_COMMIT:
			/* it must not cancel the wait for a standby: that would commit */
			hold_end();
			CHECK_FOR_INTERRUPTS();
			break;
		case XACT_EVENT_ABORT:
			hold_end();
			break;
		default:
			break;
	}
}

/*
 * Locks go where PostgreSQL takes them: up to the parent when a subtransaction
 * commits, away when it aborts.  An error that a savepoint survives has
 * switched off every timer of the session, ours too.
 */
static void
at_subtransaction_event(SubXactEvent event, SubTransactionId self,
						SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	if (hold_level == 0)
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB && hold_level == level)
		hold_level--;
	else if (event == SUBXACT_EVENT_ABORT_SUB && hold_level == level)
		hold_end();
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		arm();
}

void
hold_init(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
	RegisterSubXactCallback(at_subtransaction_event, NULL);
}
