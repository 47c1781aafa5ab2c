/*
 * hints.c
 *		What spares a check-out from reading a whole pool: kept in shared
 *		memory, of a fixed size, and true or lost, never wrong.
 *
 * Two facts are kept of a license, by whoever holds its lock:
 *
 * proof	that the pool is full: every seat up to this many is live until this
 *			raw expiry at least.  Only a transaction that has written nothing
 *			states it (what others see is what it sees).  It holds while the
 *			license has no more seats than that and the expiry is live, both as
 *			read now.  Beats move expiries later only; everything that removes
 *			or shortens a lease does so under the license's lock and withdraws
 *			the proof in the same call, before it commits.
 *
 * free		slots that were emptied.  A removal adds its slot, which is a
 *			suggestion: it may be rolled back, or the seat be taken again.  A
 *			slot leaves the list only when a holder of the lock sees its lease
 *			live, and not of his own making, which may be rolled back too.  A
 *			list that overflows is cleared.
 *
 * An entry may be thrown out at any moment to make room for another license:
 * then the pool is read again.  Relations are known by their file, so that
 * a table that was made anew, truncated or restored has no hints; and a new
 * database, which may be a copy with the number of one that was dropped, begins
 * without any.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_database.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/rel.h"

#include "extension.h"

#define BUCKETS			1024
#define BUCKET_ENTRIES	4
#define FREE_SLOTS		16
#define NONE			0

typedef struct HintKey
{
	Oid			database;
	Oid			file;
	int32		license;
} HintKey;

typedef struct Hint
{
	HintKey		key;
	int32		proven_seats;	/* NONE: no proof */
	TimestampTz proven_until;
	int32		free_count;
	int32		free[FREE_SLOTS];
} Hint;

typedef struct Bucket
{
	LWLock		lock;
	uint32		victim;			/* next entry to be thrown out */
	Hint		hints[BUCKET_ENTRIES];
} Bucket;

static Bucket *buckets = NULL;
static object_access_hook_type previous_access_hook = NULL;

Size
hints_size(void)
{
	return MAXALIGN(sizeof(Bucket) * BUCKETS);
}

void
hints_startup(void)
{
	bool		found;
	int			tranche;

	buckets = ShmemInitStruct("keyright hints", hints_size(), &found);
	if (found)
		return;
	memset(buckets, 0, hints_size());
	tranche = new_lock_tranche("keyright hints");
	for (int i = 0; i < BUCKETS; i++)
		LWLockInitialize(&buckets[i].lock, tranche);
}

static void
forget_database(Oid database)
{
	for (int i = 0; i < BUCKETS; i++)
	{
		LWLockAcquire(&buckets[i].lock, LW_EXCLUSIVE);
		for (int j = 0; j < BUCKET_ENTRIES; j++)
			if (buckets[i].hints[j].key.database == database)
				memset(&buckets[i].hints[j], 0, sizeof(Hint));
		LWLockRelease(&buckets[i].lock);
	}
}

/* A database is being made: nobody is in it yet. */
static void
at_access(ObjectAccessType access, Oid class, Oid object, int column, void *arg)
{
	if (previous_access_hook)
		previous_access_hook(access, class, object, column, arg);
	if (access == OAT_POST_CREATE && class == DatabaseRelationId)
		forget_database(object);
}

void
hints_init(void)
{
	previous_access_hook = object_access_hook;
	object_access_hook = at_access;
}

static HintKey
make_key(SeatTable *table, int32 license)
{
	HintKey		key;

	key.database = MyDatabaseId;
	key.file = relation_file(table->rel);
	key.license = license;
	return key;
}

/* The bucket of a license, locked; NULL when there is no shared memory. */
static Bucket *
lock_bucket(const HintKey *key)
{
	Bucket	   *bucket;

	if (buckets == NULL)
		return NULL;
	bucket = &buckets[hash_bytes((const unsigned char *) key,
								 sizeof(*key)) % BUCKETS];
	LWLockAcquire(&bucket->lock, LW_EXCLUSIVE);
#ifdef KEYRIGHT_LOSE_HINTS
	/* for one test only: that hints can be lost at any moment */
	if (random() % 4 == 0)
		memset(bucket->hints, 0, sizeof(bucket->hints));
#endif
	return bucket;
}

static Hint *
find(Bucket *bucket, const HintKey *key)
{
	for (int i = 0; i < BUCKET_ENTRIES; i++)
		if (memcmp(&bucket->hints[i].key, key, sizeof(*key)) == 0)
			return &bucket->hints[i];
	return NULL;
}

static Hint *
make(Bucket *bucket, const HintKey *key)
{
	Hint	   *hint = &bucket->hints[bucket->victim++ % BUCKET_ENTRIES];

	memset(hint, 0, sizeof(*hint));
	hint->key = *key;
	return hint;
}

/*
 * The entry of a license, its bucket locked: close_hint() unlocks it.  NULL,
 * and nothing is locked, when there is none and none is wanted, or no memory.
 */
static Hint *
open_hint(SeatTable *table, int32 license, bool wanted, Bucket **bucket)
{
	HintKey		key = make_key(table, license);
	Hint	   *hint;

	*bucket = lock_bucket(&key);
	if (*bucket == NULL)
		return NULL;
	hint = find(*bucket, &key);
	if (hint == NULL && wanted)
		hint = make(*bucket, &key);
	if (hint == NULL)
		LWLockRelease(&(*bucket)->lock);
	return hint;
}

static void
close_hint(Bucket *bucket)
{
	LWLockRelease(&bucket->lock);
}

bool
hint_is_full(SeatTable *table, const License *license, TimestampTz now,
			 TimestampTz *until)
{
	Bucket	   *bucket;
	Hint	   *hint = open_hint(table, license->id, false, &bucket);
	bool		full;

	if (hint == NULL)
		return false;
	full = hint->proven_seats != NONE &&
		hint->proven_seats >= license->seat_count &&
		lease_is_live(hint->proven_until, license->skew, now);
	if (full)
		*until = hint->proven_until;
	close_hint(bucket);
	return full;
}

void
hint_set_full(SeatTable *table, const License *license, TimestampTz until)
{
	Bucket	   *bucket;
	Hint	   *hint;

	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	hint = open_hint(table, license->id, true, &bucket);
	if (hint == NULL)
		return;
	hint->proven_seats = license->seat_count;
	hint->proven_until = until;
	close_hint(bucket);
}

void
hint_not_full(SeatTable *table, int32 license)
{
	Bucket	   *bucket;
	Hint	   *hint = open_hint(table, license, false, &bucket);

	if (hint == NULL)
		return;
	hint->proven_seats = NONE;
	close_hint(bucket);
}

/* Where the slot stands in the list; free_count when it does not. */
static int
place_of(const Hint *hint, int32 slot)
{
	int			i = 0;

	while (i < hint->free_count && hint->free[i] != slot)
		i++;
	return i;
}

void
hint_freed(SeatTable *table, int32 license, int32 slot)
{
	Bucket	   *bucket;
	Hint	   *hint = open_hint(table, license, true, &bucket);

	if (hint == NULL)
		return;
	if (place_of(hint, slot) == hint->free_count)
	{
		if (hint->free_count == FREE_SLOTS)
			hint->free_count = 0;
		hint->free[hint->free_count++] = slot;
	}
	close_hint(bucket);
}

int32
hint_free_slot(SeatTable *table, int32 license, int which)
{
	Bucket	   *bucket;
	Hint	   *hint = open_hint(table, license, false, &bucket);
	int32		slot = 0;

	if (hint == NULL)
		return 0;
	/* the newest first: its row is the one most likely cached */
	if (which < hint->free_count)
		slot = hint->free[hint->free_count - 1 - which];
	close_hint(bucket);
	return slot;
}

void
hint_not_free(SeatTable *table, int32 license, int32 slot)
{
	Bucket	   *bucket;
	Hint	   *hint = open_hint(table, license, false, &bucket);
	int			place;

	if (hint == NULL)
		return;
	place = place_of(hint, slot);
	if (place < hint->free_count)
	{
		hint->free_count--;
		memmove(&hint->free[place], &hint->free[place + 1],
				(hint->free_count - place) * sizeof(int32));
	}
	close_hint(bucket);
}
