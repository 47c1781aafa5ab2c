/*
 * durable.c
 *		What was promised is still true after a crash.
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
 */
#include "postgres.h"

#include "access/xact.h"
#include "replication/syncrep.h"

#include "extension.h"

static bool promised = false;
static bool raised = false;
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

static void
set_level(int level)
{
	synchronous_commit = level;
	assign_synchronous_commit(level, NULL);
}

static void
at_transaction_event(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT)
	{
		/* the last moment: nothing of the session's runs after this */
		raised = promised && keyright_shared != NULL &&
			synchronous_commit < keyright_shared->synchronous_commit;
		if (raised)
		{
			session_level = synchronous_commit;
			set_level(keyright_shared->synchronous_commit);
		}
	}
	else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
	{
		if (raised)
			set_level(session_level);
		raised = promised = false;
	}
}

void
durable_init(void)
{
	RegisterXactCallback(at_transaction_event, NULL);
}
