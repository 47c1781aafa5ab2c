/*
 * reap.c
 *		Empties seats whose lease lapsed a while ago.
 *
 * Housekeeping, never needed for a right count: a check-out takes a lapsed
 * seat over by itself.  The table is read in slices of physical order to find
 * candidates, without any lock of a license; then, license by license, under
 * its lock and by a new clock, each candidate is judged again, its row locked
 * if that can be had at once, judged once more and only then emptied.  The
 * tolerance is reap_grace, which a constraint keeps above skew, so nothing is
 * removed that the counter would count.
 *
 * Rows above seat_count, left over from before a shrink, are deleted when they
 * are empty.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_reap);

#define SLICE_BLOCKS		512 /* read in one transaction */
#define SLICE_CANDIDATES	500 /* emptied in about as many rows' time */
#define LOCK_WAIT			250 /* ms, for the lock of a busy license */

typedef struct Candidate
{
	int32		license;
	int32		slot;
} Candidate;

typedef struct Candidates
{
	int			count;
	int			size;
	Candidate  *items;
	HTAB	   *licenses;		/* policies, by id */
} Candidates;

typedef struct Policy
{
	int32		id;				/* hash key */
	bool		exists;
	int32		seat_count;
	int64		reap_grace;
} Policy;

static Candidates *
make_candidates(void)
{
	Candidates *candidates = palloc0(sizeof(Candidates));
	HASHCTL		control = {
		.keysize = sizeof(int32),
		.entrysize = sizeof(Policy),
		.hcxt = CurrentMemoryContext
	};

	candidates->size = SLICE_CANDIDATES;
	candidates->items = palloc(candidates->size * sizeof(Candidate));
	candidates->licenses = hash_create("keyright policies", 64, &control,
									   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	return candidates;
}

static const Policy *
get_policy(Candidates *candidates, int32 id, Snapshot snapshot)
{
	bool		known;
	License		license;
	Policy	   *policy = hash_search(candidates->licenses, &id, HASH_ENTER,
									 &known);

	if (known)
		return policy;
	policy->exists = license_get_by_id(&license, id, snapshot);
	policy->seat_count = policy->exists ? license.seat_count : 0;
	policy->reap_grace = policy->exists ? license.reap_grace : 0;
	return policy;
}

static bool
reapable(SeatTable *table, int32 seat_count, int64 reap_grace,
		 TimestampTz now)
{
	if (!seat_taken(table))
		return seat_slot(table) > seat_count;
	return !seat_live(table, reap_grace, now);
}

static void
consider(Candidates *candidates, SeatTable *table, TimestampTz now)
{
	const Policy *policy = get_policy(candidates, seat_license(table),
									  table->snapshot);
	Candidate  *item;

	if (!policy->exists ||
		!reapable(table, policy->seat_count, policy->reap_grace, now))
		return;
	if (candidates->count == candidates->size)
	{
		candidates->size *= 2;
		candidates->items = repalloc_huge(candidates->items,
										  candidates->size * sizeof(Candidate));
	}
	item = &candidates->items[candidates->count++];
	item->license = seat_license(table);
	item->slot = seat_slot(table);
}

/*
 * Collects candidates from blocks first to last; stops at the end of a block
 * once there are enough.  Returns the block to go on with.
 */
static BlockNumber
collect(Candidates *candidates, BlockNumber first, BlockNumber last,
		int enough, Snapshot snapshot)
{
	SeatTable	table;
	TableScanDesc scan;
	ItemPointerData from;
	ItemPointerData to;
	TimestampTz now = GetCurrentTimestamp();

	seat_table_open(&table, snapshot);
	ItemPointerSet(&from, first, FirstOffsetNumber);
	ItemPointerSet(&to, last, MaxOffsetNumber);
	scan = begin_tid_range_scan(table.rel, snapshot, &from, &to);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection,
										   table.slot))
	{
		BlockNumber block = ItemPointerGetBlockNumber(&table.slot->tts_tid);

		if (candidates->count >= enough && block > first)
		{
			last = block - 1;
			break;
		}
		first = block;
		consider(candidates, &table, now);
	}
	table_endscan(scan);
	seat_table_close(&table);
	return last + 1;
}

static bool
reap_seat(SeatTable *table, const License *license, int32 slot)
{
	if (!seat_fetch(table, license->id, slot) ||
		!reapable(table, license->seat_count, license->reap_grace,
				  GetCurrentTimestamp()) ||
		seat_own(table, LockWaitSkip) != SEAT_OWNED ||
		!reapable(table, license->seat_count, license->reap_grace,
				  GetCurrentTimestamp()))
		return false;
	if (!seat_taken(table))
	{
		seat_delete(table);
		return false;
	}
	seat_empty(table, ENDED_EXPIRED);
	return true;
}

/* The lock of the license is held. */
static int64
reap_license(const Candidate *items, int count)
{
	Look		look = look_begin();
	License		license;
	SeatTable	table;
	int64		reaped = 0;

	/* for SQL in an index that an administrator has made */
	PushActiveSnapshot(look.snapshot);
	seat_table_open(&table, look.snapshot);
	if (license_get_by_id(&license, items[0].license, look.snapshot))
		for (int i = 0; i < count; i++)
		{
			CHECK_FOR_INTERRUPTS();
			reaped += reap_seat(&table, &license, items[i].slot);
		}
	seat_table_close(&table);
	PopActiveSnapshot();
	look_end(&look);
	return reaped;
}

static int
compare_candidates(const void *a, const void *b)
{
	const Candidate *left = a;
	const Candidate *right = b;

	if (left->license != right->license)
		return left->license < right->license ? -1 : 1;
	return (left->slot > right->slot) - (left->slot < right->slot);
}

/* How many of the items from the first on are of its license. */
static int
run_length(const Candidate *items, int count)
{
	int			n = 1;

	while (n < count && items[n].license == items[0].license)
		n++;
	return n;
}

static void
sort_candidates(Candidates *candidates)
{
	qsort(candidates->items, candidates->count, sizeof(Candidate),
		  compare_candidates);
}

static BlockNumber
seat_blocks(void)
{
	Relation	rel = tables_open(tables_find()->seat, AccessShareLock);
	BlockNumber blocks = RelationGetNumberOfBlocks(rel);

	table_close(rel, AccessShareLock);
	return blocks;
}

/*
 * The lock of a busy license is waited for once in a sweep, for a quarter of a
 * second: one stuck session may hold many, and others' databases are waiting.
 */
static bool
lock_patiently(Sweep *sweep, int32 license)
{
	if (sweep->busy > 0)
		return license_try_lock(license);
	license_lock(license);
	return true;
}

/* One license in a transaction of its own; busy, it is left to next time. */
static void
reap_license_alone(Sweep *sweep, const Candidate *items, int count)
{
	MemoryContext context = CurrentMemoryContext;
	int			saved = bound_waits(LOCK_WAIT);

	StartTransactionCommand();
	PG_TRY();
	{
		bool		locked = lock_patiently(sweep, items[0].license);

		restore_waits(saved);
		if (locked)
			sweep->reaped += reap_license(items, count);
		else
			sweep->busy++;
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		restore_waits(saved);
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		FlushErrorState();
		AbortCurrentTransaction();
		sweep->busy++;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}

/* Reads some blocks and empties what is to be emptied in them. */
static void
sweep_blocks(Sweep *sweep)
{
	MemoryContext context = CurrentMemoryContext;
	Candidates *candidates = make_candidates();
	BlockNumber blocks;

	StartTransactionCommand();
	MemoryContextSwitchTo(context);
	PushActiveSnapshot(GetTransactionSnapshot());
	blocks = seat_blocks();
	if (sweep->next_block < blocks)
		sweep->next_block = collect(candidates, sweep->next_block,
									Min(sweep->next_block + SLICE_BLOCKS,
										blocks) - 1,
									SLICE_CANDIDATES, GetActiveSnapshot());
	if (sweep->next_block >= blocks)
		sweep->next_block = 0;
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);

	sort_candidates(candidates);
	for (int i = 0, n; i < candidates->count; i += n)
	{
		n = run_length(candidates->items + i, candidates->count - i);
		reap_license_alone(sweep, candidates->items + i, n);
	}
}

void
sweep_slice(Sweep *sweep, TimestampTz deadline)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "keyright sweep",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	do
	{
		CHECK_FOR_INTERRUPTS();
		sweep_blocks(sweep);
		MemoryContextReset(context);
	} while (sweep->next_block != 0 && GetCurrentTimestamp() < deadline);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* By hand: all of it in the caller's transaction; busy licenses are skipped. */
static Datum
reap(FunctionCallInfo fcinfo)
{
	Look		look;
	Candidates *candidates = make_candidates();
	int64		reaped = 0;
	BlockNumber blocks;

	require_writable("keyright_reap()");
	shared_mark_database();
	look = look_begin();
	blocks = seat_blocks();
	if (blocks > 0)
		(void) collect(candidates, 0, blocks - 1, INT_MAX, look.snapshot);
	look_end(&look);
	sort_candidates(candidates);
	for (int i = 0, n; i < candidates->count; i += n)
	{
		n = run_length(candidates->items + i, candidates->count - i);
		if (license_try_lock(candidates->items[i].license))
			reaped += reap_license(candidates->items + i, n);
	}
	PG_RETURN_INT64(reaped);
}

static const char *
no_license_name(FunctionCallInfo fcinfo)
{
	return "(any)";
}

Datum
keyright_reap(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, reap, no_license_name);
}
