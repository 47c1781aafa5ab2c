/*
 * seat_search.c
 *		Where a free seat is: the part of a check-out that decides.
 *
 * The license's lock is held and the snapshot was taken under it, so nobody
 * else can fill a seat meanwhile; what can happen at the same time is a beat,
 * which holds its row.  A row that cannot be locked is therefore counted as
 * live: the beat judged it before us.
 *
 * Rows are made one slot after another, so slots 1 to the highest one with a
 * row are looked at, and the next one is fresh.  A big license is sampled
 * first, a few neighbours at each of many random places: going on from one
 * place to the next free seat finds clusters, and would read 22 rows on the
 * average at 90 % load where this reads 10.  The full pass comes last; the
 * hints spare it where a seat was just emptied, and where the pool is full.
 */
#include "postgres.h"

#include "common/pg_prng.h"

#include "extension.h"

#define SMALL_POOL		128		/* below this a full pass is as good */
#define SAMPLES			24
#define SAMPLE_LENGTH	4

/* The current row, made ours if a new lease may be put into it. */
static bool
take_row(SeatTable *table, const License *license, const Look *look)
{
	if (!seat_taken(table))
		return true;
	if (seat_live(table, license->skew, look->now))
		return false;
	if (seat_own(table, LockWaitSkip) != SEAT_OWNED)
		return false;
	return !seat_live(table, license->skew, look->now);
}

/*
 * One pass over first to last; *soonest becomes the earliest expiry in it.
 */
static SeatFound
pass(SeatTable *table, const License *license, const Look *look,
	 int32 first, int32 last, SeatSearch *search, TimestampTz *soonest)
{
	int32		expected = first;

	seat_scan(table, license->id, first, last);
	while (seat_next(table, ForwardScanDirection))
	{
		TimestampTz expires_at = seat_expires_at(table);

		if (seat_slot(table) > expected)
			break;
		if (take_row(table, license, look))
			return SEAT_FOUND_ROW;
		*soonest = Min(*soonest, expires_at);
		if (expected == last)
			return SEAT_FOUND_NONE;
		expected++;
	}
	search->slot = expected;
	return SEAT_FOUND_GAP;
}

static SeatFound
sample(SeatTable *table, const License *license, const Look *look,
	   int32 top, SeatSearch *search)
{
	TimestampTz soonest = DT_NOEND;

	for (int i = 0; i < SAMPLES; i++)
	{
		int32		first = 1 + pg_prng_uint64_range(&pg_global_prng_state,
													 0, top - SAMPLE_LENGTH);
		SeatFound	found = pass(table, license, look, first,
								 first + SAMPLE_LENGTH - 1, search, &soonest);

		if (found != SEAT_FOUND_NONE)
			return found;
	}
	return SEAT_FOUND_NONE;
}

/*
 * The slots that were emptied lately.  One whose lease is live is taken off
 * the list, unless this transaction has put that lease there: if it is rolled
 * back, the slot is free again.
 */
static SeatFound
try_free_slots(SeatTable *table, const License *license, const Look *look)
{
	int			which = 0;
	int32		slot;

	while ((slot = hint_free_slot(table, license->id, which)) != 0)
	{
		if (slot > license->seat_count ||
			!seat_fetch(table, license->id, slot))
			which++;
		else if (!seat_live(table, license->skew, look->now))
		{
			if (take_row(table, license, look))
				return SEAT_FOUND_ROW;
			which++;
		}
		else if (seat_is_own_work(table))
			which++;
		else
			hint_not_free(table, license->id, slot);
	}
	return SEAT_FOUND_NONE;
}

/* When a lease with this expiry gives its seat free, seen from now. */
static TimestampTz
free_at(TimestampTz expires_at, const License *license, const Look *look)
{
	/* lapsed, but in the hands of a beat, which will have moved it on */
	return Max(lease_lapses_at(expires_at, license->skew), look->now);
}

static int
compare_times(const void *a, const void *b)
{
	TimestampTz left = *(const TimestampTz *) a;
	TimestampTz right = *(const TimestampTz *) b;

	return (left > right) - (left < right);
}

/*
 * After a shrink, leases may sit above seat_count.  Then the pool is full
 * until fewer than seat_count are live in all; *until is the expiry after
 * which that can be.
 */
static bool
overfull(SeatTable *table, const License *license, const Look *look,
		 TimestampTz *until)
{
	int			size = 64;
	int			live = 0;
	TimestampTz *ends = palloc(size * sizeof(TimestampTz));

	seat_scan(table, license->id, 1, SLOT_MAX);
	while (seat_next(table, ForwardScanDirection))
	{
		TimestampTz expires_at = seat_expires_at(table);

		if (take_row(table, license, look))
			continue;
		if (live == size)
		{
			size *= 2;
			ends = repalloc_huge(ends, size * sizeof(TimestampTz));
		}
		ends[live++] = expires_at;
	}
	if (live < license->seat_count)
		return false;
	qsort(ends, live, sizeof(TimestampTz), compare_times);
	*until = ends[live - license->seat_count];
	return true;
}

/* Reads as much of the pool as it takes; *until as for overfull(). */
static SeatFound
search_pool(SeatTable *table, const License *license, const Look *look,
			SeatSearch *search, TimestampTz *until)
{
	int32		highest;
	int32		top;
	SeatFound	found;

	seat_scan(table, license->id, 1, SLOT_MAX);
	highest = seat_next(table, BackwardScanDirection) ? seat_slot(table) : 0;
	if (highest > license->seat_count && overfull(table, license, look, until))
		return SEAT_FOUND_NONE;

	found = try_free_slots(table, license, look);
	top = Min(highest, license->seat_count);
	if (found == SEAT_FOUND_NONE && top > SMALL_POOL)
		found = sample(table, license, look, top, search);
	if (found == SEAT_FOUND_NONE && top > 0 &&
		(top <= SMALL_POOL || top == license->seat_count))
		found = pass(table, license, look, 1, top, search, until);
	if (found == SEAT_FOUND_NONE && top < license->seat_count)
	{
		search->slot = top + 1;
		found = SEAT_FOUND_GAP;
	}
	return found;
}

SeatFound
seat_search(SeatTable *table, const License *license, const Look *look,
			SeatSearch *search)
{
	TimestampTz until = DT_NOEND;

	search->retry_at = DT_NOEND;
	if (license->seat_count == 0)
		return SEAT_FOUND_NONE;
	if (!hint_is_full(table, license, look->now, &until))
	{
		SeatFound	found = search_pool(table, license, look, search, &until);

		if (found != SEAT_FOUND_NONE)
			return found;
		hint_set_full(table, license, until);
	}
	search->retry_at = free_at(until, license, look);
	return SEAT_FOUND_NONE;
}
