/*
 * extension.h
 *		The inner contract of the server side, grouped by the file that keeps
 *		each part of it.  src/README.md shows how the parts play together.
 */
#ifndef KEYRIGHT_EXTENSION_H
#define KEYRIGHT_EXTENSION_H

#include "access/genam.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "nodes/execnodes.h"
#include "nodes/lockoptions.h"
#include "storage/lwlock.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "compat.h"
#include "core.h"

/* ---------- SQLSTATEs of keyright's own: class KR ---------- */

#define ERRCODE_LICENSE_UNKNOWN		MAKE_SQLSTATE('K','R','0','0','1')
#define ERRCODE_LICENSE_SUSPENDED	MAKE_SQLSTATE('K','R','0','0','2')
#define ERRCODE_LICENSE_NOT_YET		MAKE_SQLSTATE('K','R','0','0','3')
#define ERRCODE_LICENSE_OVER		MAKE_SQLSTATE('K','R','0','0','4')
#define ERRCODE_NO_SIGNING_KEY		MAKE_SQLSTATE('K','R','0','0','5')
#define ERRCODE_REQUEST_ID_TAKEN	MAKE_SQLSTATE('K','R','0','0','6')
#define ERRCODE_LICENSE_IN_USE		MAKE_SQLSTATE('K','R','0','0','7')
#define ERRCODE_VERSION_MISMATCH	MAKE_SQLSTATE('K','R','0','0','8')

/* ---------- keyright.c: settings and start ---------- */

extern int	keyright_lock_timeout;	/* ms */
extern int	keyright_max_lock_hold; /* ms */
extern int	keyright_reap_interval; /* ms */
extern char *keyright_issuer;
extern bool keyright_preloaded;

/* ---------- bounded.c: no wait and no hold without a bound ---------- */

/*
 * Runs the body of an SQL-callable function with every lock wait in it bounded
 * by keyright.lock_timeout (or the caller's lock_timeout, if that is shorter);
 * a wait that was too long is raised as 55P03 with the name of the license.
 */
extern Datum bounded_call(FunctionCallInfo fcinfo, PGFunction body,
						  const char *(*license_name) (FunctionCallInfo));

/* The license's name when it is the function's first argument. */
extern const char *license_name_argument(FunctionCallInfo fcinfo);

/* The same for a piece of code that is no SQL function (the reaper's). */
extern int	bound_waits(int milliseconds);
extern void restore_waits(int saved);

/*
 * From now on this transaction holds a lock of keyright's: if it has not ended
 * keyright.max_lock_hold later, its statement is cancelled and half a second
 * after that its session ended.
 */
extern void hold_begin(void);
extern void hold_init(void);

/* ---------- durable.c: what was promised survives a crash ---------- */

/*
 * This transaction's commit is to be at least as durable as the server's
 * configuration says, whatever the session does; and what it has seen, too.
 */
extern void durable_commit(void);

/*
 * What is written between the two may be seen by others before it is on the
 * disk.  If this transaction writes nothing else, its locks are given back
 * then; its client is answered when it is on the disk, as always.
 */
extern void durable_unlock_begin(void);
extern void durable_unlock_end(void);

/* Tells the others what it says: by the postmaster and by the launcher. */
extern void durable_publish(void);
extern void durable_init(void);

/* ---------- license_lock.c: the license's lock, then clock, then look ------ */

/*
 * Waits for the license's lock and keeps it until the (sub)transaction ends.
 * Bound the wait with bounded_call().
 */
extern void license_lock(int32 license);

/* False at once when somebody else has it. */
extern bool license_try_lock(int32 license);

/*
 * What a decision is taken on: a clock and a snapshot that were read after the
 * locks that it needs.  Ends with look_end(), after which everything written
 * in between is visible to the transaction itself.
 */
typedef struct Look
{
	TimestampTz now;
	Snapshot	snapshot;
} Look;

extern Look look_begin(void);
extern void look_end(Look *look);

/* Refuses to run on a standby, read only, or in a parallel worker. */
extern void require_writable(const char *function);

/* ---------- tables.c: keyright's own tables, found safely ---------- */

typedef struct Tables
{
	Oid			license;
	Oid			license_by_id;
	Oid			license_by_name;
	Oid			seat;
	Oid			seat_by_slot;
	Oid			seat_by_request;
} Tables;

/* Raises KR008 when what is there is not what this library works with. */
extern const Tables *tables_find(void);

/* Opens one of them; raises KR008 when it has just been dropped. */
extern Relation tables_open(Oid relid, LOCKMODE mode);

/* As tables_find(), but NULL when the extension is not in this database. */
extern const Tables *tables_find_quietly(void);

/* ---------- license.c: what was sold ---------- */

enum
{
	LICENSE_ID = 1,
	LICENSE_LICENSE_ID,
	LICENSE_SEAT_COUNT,
	LICENSE_TTL,
	LICENSE_SKEW,
	LICENSE_REAP_GRACE,
	LICENSE_MAX_TTL,
	LICENSE_VALID_FROM,
	LICENSE_VALID_UNTIL,
	LICENSE_SUSPENDED,
	LICENSE_NATTS = LICENSE_SUSPENDED
};

typedef struct License
{
	int32		id;
	/* in the server's encoding, in which it may be longer than in UTF-8 */
	char		name[CLAIM_TEXT_MAX * MAX_CONVERSION_GROWTH + 1];
	int32		seat_count;
	int64		ttl;			/* lengths in microseconds */
	int64		skew;
	int64		reap_grace;
	int64		max_ttl;
	TimestampTz valid_from;
	TimestampTz valid_until;
	bool		suspended;
} License;

/* Raises KR001 when there is none. */
extern void license_get_by_name(License *license, const char *name,
								const Look *look);

/*
 * Takes the lock of a license and then looks: what is in *license and *look
 * on return is the latest that is committed, and nobody can change a seat's
 * occupation until this transaction ends.  Raises KR001, 55P03.
 */
extern void license_lock_and_look(License *license, const char *name,
								  Look *look);

/* By the integer id; false when there is none. */
extern bool license_get_by_id(License *license, int32 id, Snapshot snapshot);

/* Raises KR002, KR003 or KR004 unless seats may be given out and renewed. */
extern void license_require_usable(const License *license, TimestampTz now);

/* ---------- interval.c: lengths of time ---------- */

/* Days are 24 hours; infinite ones give LEASE_FOREVER or LEASE_NEVER. */
extern int64 interval_span(const Interval *interval);

/* The same, but raises 22023 for months and for infinite ones. */
extern int64 interval_length(const Interval *interval, const char *what);

extern Interval *interval_from_length(int64 length);

/* ---------- seat.c: the rows of keyright.seat ---------- */

enum
{
	SEAT_LICENSE = 1,
	SEAT_SLOT,
	SEAT_SEAT_ID,
	SEAT_HOLDER,
	SEAT_REQUEST_ID,
	SEAT_TTL,
	SEAT_CHECKED_OUT_AT,
	SEAT_ISSUED_AT,
	SEAT_EXPIRES_AT,
	SEAT_ENDED_SEAT_ID,
	SEAT_ENDED_REASON,
	SEAT_NATTS = SEAT_ENDED_REASON
};

/* The open table with a cursor: one row at a time stands in slot. */
typedef struct SeatTable
{
	Relation	rel;
	Relation	index;			/* the primary key */
	Snapshot	snapshot;
	IndexScanDesc scan;
	TupleTableSlot *slot;
} SeatTable;

extern void seat_table_open(SeatTable *table, Snapshot snapshot);
extern void seat_table_close(SeatTable *table);

/* Starts a pass over the slots first to last of a license, in this order. */
extern void seat_scan(SeatTable *table, int32 license, int32 first,
					  int32 last);
extern bool seat_next(SeatTable *table, ScanDirection direction);

/* One row; false when that slot has none. */
extern bool seat_fetch(SeatTable *table, int32 license, int32 slot);
extern bool seat_fetch_by_request(SeatTable *table, int32 license,
								  const char *request_id);

/* The current row. */
extern int32 seat_license(SeatTable *table);
extern int32 seat_slot(SeatTable *table);
extern bool seat_taken(SeatTable *table);
extern bool seat_has_id(SeatTable *table, const pg_uuid_t *seat_id);
extern bool seat_live(SeatTable *table, int64 tolerance, TimestampTz at);
extern TimestampTz seat_expires_at(SeatTable *table);
extern Datum seat_column(SeatTable *table, int attnum, bool *isnull);
extern char *seat_text(SeatTable *table, int attnum);
extern const char *seat_ended(SeatTable *table, const pg_uuid_t *seat_id);

/* Whether this transaction wrote the current row. */
extern bool seat_is_own_work(SeatTable *table);

/* Whether somebody has, or had, a lock on the current row's version. */
extern bool seat_contended(SeatTable *table);

/*
 * Locks the current row and makes its newest version the current one.
 */
typedef enum SeatOwned
{
	SEAT_OWNED,
	SEAT_BUSY,					/* somebody has it and we do not wait */
	SEAT_GONE					/* deleted */
} SeatOwned;

extern SeatOwned seat_own(SeatTable *table, LockWaitPolicy policy);

/* A row to be written, begun from the current row or from an empty seat. */
typedef struct SeatRow
{
	Datum		values[SEAT_NATTS];
	bool		nulls[SEAT_NATTS];
} SeatRow;

extern void seat_row_copy(SeatRow *row, SeatTable *table);
extern void seat_row_new(SeatRow *row, int32 license, int32 slot);
extern void seat_row_set(SeatRow *row, int attnum, Datum value);
extern void seat_row_clear(SeatRow *row, int attnum);

/* Takes the lease out of the row; a reason keeps its id for late beats. */
#define ENDED_EXPIRED	"expired"
#define ENDED_REVOKED	"revoked"
extern void seat_row_end(SeatRow *row, const char *reason);

/*
 * Writes over the current row.  False, with nothing written, when the version
 * that stands in the table's slot is no longer the newest.
 */
extern bool seat_update(SeatTable *table, SeatRow *row);
extern void seat_insert(SeatTable *table, SeatRow *row);

/* Empties the current row, which must be owned; a reason as above. */
extern void seat_empty(SeatTable *table, const char *reason);

/* Removes the current row, which must be owned. */
extern void seat_delete(SeatTable *table);

/* ---------- hints.c: what spares a check-out reading the whole pool -------- */

extern Size hints_size(void);
extern void hints_startup(void);
extern void hints_init(void);

/*
 * For all of these the license's lock is held.  hint_is_full() is true while
 * the pool is proven to be full; a lease in it may end at *until, not earlier.
 */
extern bool hint_is_full(SeatTable *table, const License *license,
						 TimestampTz now, TimestampTz *until);

/* Every seat was seen live, and the first of them ends at until. */
extern void hint_set_full(SeatTable *table, const License *license,
						  TimestampTz until);

/* A lease was shortened; the slot of one was emptied. */
extern void hint_not_full(SeatTable *table, int32 license);
extern void hint_freed(SeatTable *table, int32 license, int32 slot);

/* The which-th slot, from 0, that may be free; 0 when there are no more. */
extern int32 hint_free_slot(SeatTable *table, int32 license, int which);
extern void hint_not_free(SeatTable *table, int32 license, int32 slot);

/* ---------- seat_search.c: where a free seat is ---------- */

typedef enum SeatFound
{
	SEAT_FOUND_ROW,				/* the current row, empty or lapsed and owned */
	SEAT_FOUND_GAP,				/* a slot without a row */
	SEAT_FOUND_NONE
} SeatFound;

typedef struct SeatSearch
{
	int32		slot;			/* for SEAT_FOUND_GAP */
	TimestampTz retry_at;		/* for SEAT_FOUND_NONE; DT_NOEND: never */
} SeatSearch;

/* The license's lock is held and look was taken under it. */
extern SeatFound seat_search(SeatTable *table, const License *license,
							 const Look *look, SeatSearch *search);

/* ---------- answer.c: what check-out and heartbeat answer ---------- */

typedef struct Answer
{
	const char *status;
	const char *reason;			/* or NULL */
	const License *license;
	const pg_uuid_t *seat_id;	/* the one that was asked for, or NULL */
	const SeatRow *row;			/* NULL when there is no seat to show */
	TimestampTz retry_at;		/* 0: none */
} Answer;

/* Signs the token of the row, if there is one. */
extern Datum answer_datum(const Answer *answer);
extern void answer_add_row(ReturnSetInfo *result, const Answer *answer);

/* Raises 22004 or 22023 unless the text may stand in a claim. */
extern char *claim_argument(FunctionCallInfo fcinfo, int arg,
							const char *what);
extern const pg_uuid_t *seat_id_argument(FunctionCallInfo fcinfo, int arg);

/* Microseconds since 1970, as the core counts them. */
extern int64 unix_time(TimestampTz at);
extern TimestampTz time_of_unix_seconds(int64 seconds);

/* ---------- key.c: the signing key and the published keys ---------- */

extern void key_init(void);

/* Raises KR005 when there is no usable key. */
extern const SigningKey *signing_key(void);

/* Current and retired public keys; false when the current one is unusable. */
extern bool published_keys(KeySet *set);

/* ---------- revoke.c ---------- */

/* Ends every lease; the lock is held and the look was taken under it. */
extern void license_revoke_all(const License *license, Look *look);

/* ---------- reap.c: one sweep over one database ---------- */

typedef struct Sweep
{
	BlockNumber next_block;		/* where to go on; 0 when it is through */
	int64		reaped;
	int64		busy;			/* licenses whose lock was not to be had */
} Sweep;

/* Runs outside any transaction, until done or the deadline. */
extern void sweep_slice(Sweep *sweep, TimestampTz deadline);

/* ---------- shared.c: what all processes of the server share ---------- */

#define SHARED_DATABASES	1024
#define SHARED_ERROR_SIZE	256

typedef struct SharedDatabase
{
	Oid			oid;			/* InvalidOid: this entry is free */
	bool		seen;			/* a visit has come to its end there */
	bool		marked;			/* has the extension: visited every round */
	TimestampTz last_visit;		/* when it began; 0: never */
	TimestampTz last_sweep;		/* when one came to its end; 0: never */
	int64		last_reaped;
	int64		total_reaped;
	BlockNumber next_block;		/* where the sweep goes on; 0: at the start */
	int			failures;		/* in a row */
	TimestampTz last_error_at;
	char		last_error[SHARED_ERROR_SIZE];
} SharedDatabase;

typedef struct Shared
{
	LWLock	   *lock;			/* over everything here */
	pid_t		launcher_pid;	/* 0: not running */
	struct Latch *launcher_latch;
	int			synchronous_commit; /* as the server is configured */
	SharedDatabase databases[SHARED_DATABASES];
} Shared;

extern Shared *keyright_shared; /* NULL when the library is not preloaded */

extern void shared_init(void);

/* The caller holds the lock, exclusively if the entry may be made. */
extern SharedDatabase *shared_find_database(Oid oid, bool create);

/* Tells the launcher of this database when the transaction commits. */
extern void shared_mark_database(void);

/* ---------- reaper.c: the launcher and its workers ---------- */

extern void reaper_init(void);

#endif							/* KEYRIGHT_EXTENSION_H */
