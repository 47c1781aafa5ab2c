/*
 * durable.c
 *		What was promised is still true after a crash; and nobody waits for the
 *		disk under the license's lock.
 *
 * A session may switch synchronous_commit off for itself.  A lease that is
 * given out or renewed so would be forgotten in a crash while its token goes
 * on to verify, and its seat would be sold again.  So a transaction in which
 * we promised something is committed at least as durably as the server's own
 * configuration says, whatever its session, role or database asks for.
 *
 * What the configuration says is known to the processes that have no session:
 * the postmaster puts it into shared memory at its start, the launcher at
 * every reload.
 *
 * A promise can also rest on what others have committed: a beat that has
 * nothing to write on their check-out, a revocation that finds nothing on their
 * check-in.  Such a transaction leaves a mark in the log, so that it has a
 * commit of its own, after theirs.
 *
 * A check-out or check-in gives its lock back as soon as its commit is in the
 * log's buffers, and then waits for the disk (and for synchronous standbys)
 * before its client is answered.  Otherwise the check-outs of a license would
 * wait for one flush after the other; so they share one.  (Early lock release:
 * Johnson et al., Aether, VLDB 2010.)  It is safe because the log is one
 * sequence: whoever builds on such a commit commits after it, so that his own
 * flush covers both; and a refusal promises nothing.
 *
 * Others may act for good upon what they see without writing anything.  So a
 * transaction that has written more than its check-outs and check-ins, be it a
 * revocation or a row of the application's, is on the disk before anybody sees
 * it, as ever: command ids tell whether there was another command that writes.
 * And standbys learn from the commit's own record that somebody waits until it
 * is applied, so with remote_apply the lock is kept as PostgreSQL does.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_control.h"
#include "replication/syncrep.h"
#include "utils/resowner.h"

#include "extension.h"

static bool promised = false;
/* Up to here nobody but us has written; invalid: somebody has. */
static CommandId own_command = FirstCommandId;
static int	owed = SYNCHRONOUS_COMMIT_OFF;	/* to be waited for */
static bool changed = false;
static int	session_level;

void
durable_publish(void)
{
	keyright_shared->synchronous_commit = synchronous_commit;
}

void
durable_commit(void)
{
	promised = true;
}

/* True if a command has written since the last of ours, or is to write yet. */
static bool
another_command(void)
{
	CommandId	before = GetCurrentCommandId(false);

	CommandCounterIncrement();
	return before != own_command || GetCurrentCommandId(false) != before;
}

void
durable_unlock_begin(void)
{
	if (another_command())
		own_command = InvalidCommandId;
}

void
durable_unlock_end(void)
{
	if (own_command != InvalidCommandId)
		own_command = GetCurrentCommandId(false);
}

/* So that there is something to commit, after all that we have seen. */
static void
leave_mark(void)
{
	char		nothing = 0;

	(void) GetCurrentTransactionId();
	XLogBeginInsert();
	XLogRegisterData(&nothing, sizeof(nothing));
	(void) XLogInsert(RM_XLOG_ID, XLOG_NOOP);
}

static void
set_level(int level)
{
	synchronous_commit = level;
	assign_synchronous_commit(level, NULL);
}

/* The last moment: nothing of the session's runs after this. */
static void
before_commit(void)
{
	int			level = synchronous_commit;

	if (promised && keyright_shared != NULL)
		level = Max(level, keyright_shared->synchronous_commit);
	if (promised && level > SYNCHRONOUS_COMMIT_OFF &&
		!TransactionIdIsValid(GetTopTransactionIdIfAny()))
		leave_mark();
	if (own_command != FirstCommandId && !another_command() &&
		level < SYNCHRONOUS_COMMIT_REMOTE_APPLY)
	{
		owed = level;
		level = SYNCHRONOUS_COMMIT_OFF;
	}
	changed = level != synchronous_commit;
	if (changed)
	{
		session_level = synchronous_commit;
		set_level(level);
	}
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
		before_commit();
	else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
			 event == XACT_EVENT_PREPARE)
	{
		if (changed)
			set_level(session_level);
		if (event == XACT_EVENT_ABORT)
			owed = SYNCHRONOUS_COMMIT_OFF;
		promised = changed = false;
		own_command = FirstCommandId;
	}
}

/* Committed and unlocked, and not yet answered. */
static void
at_release(ResourceReleasePhase phase, bool is_commit, bool is_top, void *arg)
{
	int			level = owed;

	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || !is_commit || !is_top ||
		owed == SYNCHRONOUS_COMMIT_OFF)
		return;
	owed = SYNCHRONOUS_COMMIT_OFF;
	session_level = synchronous_commit;
	set_level(level);
	XLogFlush(XactLastCommitEnd);
	SyncRepWaitForLSN(XactLastCommitEnd, true);
	set_level(session_level);
}

void
durable_init(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
	RegisterResourceReleaseCallback(at_release, NULL);
}
