/*
 * seat.c
 *		The rows of keyright.seat, read and written without SQL.
 *
 * A seat's row stays and is written over in place: empty means that seat_id is
 * NULL.  A row is changed only by who has it locked or wins the race for its
 * newest version, and seat_update() says which of the two happened; that makes
 * the row the second barrier against selling a seat twice.
 *
 * No index stands on a column that a check-out, a beat or a check-in changes
 * (request_id apart, for those who use one), so each of them is a HOT update.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "extension.h"

#define SCAN_KEYS	3

void
seat_table_open(SeatTable *table, Snapshot snapshot)
{
	const Tables *tables = tables_find();

	table->rel = tables_open(tables->seat, RowExclusiveLock);
	table->index = index_open(tables->seat_by_slot, AccessShareLock);
	table->snapshot = snapshot;
	table->slot = table_slot_create(table->rel, NULL);
	table->scan = begin_index_scan(table->rel, table->index, snapshot,
								   SCAN_KEYS);
}

/* The lock on the table stays until the transaction ends, as in SQL. */
void
seat_table_close(SeatTable *table)
{
	index_endscan(table->scan);
	ExecDropSingleTupleTableSlot(table->slot);
	index_close(table->index, AccessShareLock);
	table_close(table->rel, NoLock);
}

void
seat_scan(SeatTable *table, int32 license, int32 first, int32 last)
{
	ScanKeyData keys[SCAN_KEYS];

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(license));
	ScanKeyInit(&keys[1], 2, BTGreaterEqualStrategyNumber, F_INT4GE,
				Int32GetDatum(first));
	ScanKeyInit(&keys[2], 2, BTLessEqualStrategyNumber, F_INT4LE,
				Int32GetDatum(last));
	index_rescan(table->scan, keys, SCAN_KEYS, NULL, 0);
}

bool
seat_next(SeatTable *table, ScanDirection direction)
{
	return index_getnext_slot(table->scan, direction, table->slot);
}

bool
seat_fetch(SeatTable *table, int32 license, int32 slot)
{
	seat_scan(table, license, slot, slot);
	return seat_next(table, ForwardScanDirection);
}

bool
seat_fetch_by_request(SeatTable *table, int32 license, const char *request_id)
{
	Relation	index = index_open(tables_find()->seat_by_request,
								   AccessShareLock);
	IndexScanDesc scan = begin_index_scan(table->rel, index,
										  table->snapshot, 2);
	ScanKeyData keys[2];
	bool		found;

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT4EQ,
				Int32GetDatum(license));
	ScanKeyEntryInitialize(&keys[1], 0, 2, BTEqualStrategyNumber, InvalidOid,
						   index->rd_indcollation[1], F_TEXTEQ,
						   CStringGetTextDatum(request_id));
	index_rescan(scan, keys, 2, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, table->slot);
	index_endscan(scan);
	index_close(index, AccessShareLock);
	return found;
}

Datum
seat_column(SeatTable *table, int attnum, bool *isnull)
{
	return slot_getattr(table->slot, attnum, isnull);
}

int32
seat_license(SeatTable *table)
{
	bool		isnull;

	return DatumGetInt32(seat_column(table, SEAT_LICENSE, &isnull));
}

int32
seat_slot(SeatTable *table)
{
	bool		isnull;

	return DatumGetInt32(seat_column(table, SEAT_SLOT, &isnull));
}

bool
seat_taken(SeatTable *table)
{
	bool		isnull;

	(void) seat_column(table, SEAT_SEAT_ID, &isnull);
	return !isnull;
}

static bool
column_is_id(SeatTable *table, int attnum, const pg_uuid_t *seat_id)
{
	bool		isnull;
	Datum		value = seat_column(table, attnum, &isnull);

	return !isnull && seat_id_equal(DatumGetUUIDP(value)->data, seat_id->data);
}

bool
seat_has_id(SeatTable *table, const pg_uuid_t *seat_id)
{
	return column_is_id(table, SEAT_SEAT_ID, seat_id);
}

/* DT_NOBEGIN, so that it is not live, when the seat is empty. */
TimestampTz
seat_expires_at(SeatTable *table)
{
	bool		isnull;
	Datum		value = seat_column(table, SEAT_EXPIRES_AT, &isnull);

	return isnull ? DT_NOBEGIN : DatumGetTimestampTz(value);
}

bool
seat_live(SeatTable *table, int64 tolerance, TimestampTz at)
{
	return seat_taken(table) &&
		lease_is_live(seat_expires_at(table), tolerance, at);
}

char *
seat_text(SeatTable *table, int attnum)
{
	bool		isnull;
	Datum		value = seat_column(table, attnum, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

/*
 * How the last lease that did not end by its holder's own hand ended, when it
 * is the one with this id; NULL otherwise.
 */
const char *
seat_ended(SeatTable *table, const pg_uuid_t *seat_id)
{
	if (!column_is_id(table, SEAT_ENDED_SEAT_ID, seat_id))
		return NULL;
	return seat_text(table, SEAT_ENDED_REASON);
}

static HeapTupleHeader
tuple_header(SeatTable *table)
{
	return ((BufferHeapTupleTableSlot *) table->slot)->base.tuple->t_data;
}

bool
seat_is_own_work(SeatTable *table)
{
	TransactionId xmin = HeapTupleHeaderGetXmin(tuple_header(table));

	return TransactionIdIsCurrentTransactionId(xmin);
}

bool
seat_contended(SeatTable *table)
{
	return (tuple_header(table)->t_infomask & HEAP_XMAX_INVALID) == 0;
}

SeatOwned
seat_own(SeatTable *table, LockWaitPolicy policy)
{
	ItemPointerData tid = table->slot->tts_tid;
	TM_FailureData failure;
	TM_Result	result;

	hold_begin();
	result = table_tuple_lock(table->rel, &tid, table->snapshot, table->slot,
							  GetCurrentCommandId(true),
							  LockTupleNoKeyExclusive, policy,
							  TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure);
	switch (result)
	{
		case TM_Ok:
			return SEAT_OWNED;
		case TM_WouldBlock:
			return SEAT_BUSY;
		case TM_Deleted:
			return SEAT_GONE;
		default:
			elog(ERROR, "unexpected result %d of locking a seat", result);
	}
	return SEAT_GONE;			/* keeps compilers quiet */
}

void
seat_row_copy(SeatRow *row, SeatTable *table)
{
	slot_getallattrs(table->slot);
	memcpy(row->values, table->slot->tts_values, sizeof(row->values));
	memcpy(row->nulls, table->slot->tts_isnull, sizeof(row->nulls));
}

void
seat_row_new(SeatRow *row, int32 license, int32 slot)
{
	memset(row->values, 0, sizeof(row->values));
	memset(row->nulls, true, sizeof(row->nulls));
	seat_row_set(row, SEAT_LICENSE, Int32GetDatum(license));
	seat_row_set(row, SEAT_SLOT, Int32GetDatum(slot));
}

void
seat_row_set(SeatRow *row, int attnum, Datum value)
{
	row->values[attnum - 1] = value;
	row->nulls[attnum - 1] = false;
}

void
seat_row_clear(SeatRow *row, int attnum)
{
	row->values[attnum - 1] = (Datum) 0;
	row->nulls[attnum - 1] = true;
}

void
seat_row_end(SeatRow *row, const char *reason)
{
	if (reason != NULL)
	{
		seat_row_set(row, SEAT_ENDED_SEAT_ID, row->values[SEAT_SEAT_ID - 1]);
		seat_row_set(row, SEAT_ENDED_REASON, CStringGetTextDatum(reason));
	}
	seat_row_clear(row, SEAT_SEAT_ID);
	seat_row_clear(row, SEAT_HOLDER);
	seat_row_clear(row, SEAT_REQUEST_ID);
	seat_row_clear(row, SEAT_TTL);
	seat_row_clear(row, SEAT_CHECKED_OUT_AT);
	seat_row_clear(row, SEAT_ISSUED_AT);
	seat_row_clear(row, SEAT_EXPIRES_AT);
}

static TupleTableSlot *
make_tuple(SeatTable *table, SeatRow *row)
{
	TupleDesc	desc = RelationGetDescr(table->rel);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
	Datum	   *values = palloc0(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc(desc->natts * sizeof(bool));

	/* columns that somebody has added and dropped again */
	memset(nulls, true, desc->natts * sizeof(bool));
	memcpy(values, row->values, sizeof(row->values));
	memcpy(nulls, row->nulls, sizeof(row->nulls));
	ExecStoreHeapTuple(heap_form_tuple(desc, values, nulls), slot, true);
	pfree(values);
	pfree(nulls);
	return slot;
}

static void
insert_into_indexes(SeatTable *table, TupleTableSlot *tuple, bool is_update,
					IndexUpdate which)
{
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *info = makeNode(ResultRelInfo);

	InitResultRelInfo(info, table->rel, 0, NULL, 0);
	ExecOpenIndices(info, false);
	list_free(insert_index_entries(info, tuple, estate, is_update, which));
	ExecCloseIndices(info);
	FreeExecutorState(estate);
}

/* Whether a lease that stands in the current row ends sooner in the new one. */
static bool
shortens(SeatTable *table, const SeatRow *row)
{
	return seat_taken(table) &&
		(row->nulls[SEAT_EXPIRES_AT - 1] ||
		 DatumGetTimestampTz(row->values[SEAT_EXPIRES_AT - 1]) <
		 seat_expires_at(table));
}

bool
seat_update(SeatTable *table, SeatRow *row)
{
	ItemPointerData tid = table->slot->tts_tid;
	TupleTableSlot *tuple = make_tuple(table, row);
	TM_FailureData failure;
	LockTupleMode mode;
	IndexUpdate indexes;
	TM_Result	result;

	hold_begin();
	result = update_tuple(table->rel, &tid, tuple, GetCurrentCommandId(true),
						  table->snapshot, &failure, &mode, &indexes);
	if (result == TM_Ok && index_update_needed(indexes))
		insert_into_indexes(table, tuple, true, indexes);
	if (result == TM_Ok && shortens(table, row))
		hint_not_full(table, seat_license(table));
	ExecDropSingleTupleTableSlot(tuple);
	if (result != TM_Ok && result != TM_Updated && result != TM_Deleted)
		elog(ERROR, "unexpected result %d of writing a seat", result);
	return result == TM_Ok;
}

void
seat_insert(SeatTable *table, SeatRow *row)
{
	TupleTableSlot *tuple = make_tuple(table, row);

	hold_begin();
	table_tuple_insert(table->rel, tuple, GetCurrentCommandId(true), 0, NULL);
	insert_into_indexes(table, tuple, false, INDEX_UPDATE_ALL);
	ExecDropSingleTupleTableSlot(tuple);
}

void
seat_empty(SeatTable *table, const char *reason)
{
	SeatRow		row;

	seat_row_copy(&row, table);
	seat_row_end(&row, reason);
	if (!seat_update(table, &row))
		elog(ERROR, "an owned seat could not be written");
	hint_freed(table, seat_license(table), seat_slot(table));
}

void
seat_delete(SeatTable *table)
{
	ItemPointerData tid = table->slot->tts_tid;

	hold_begin();
	hint_not_full(table, seat_license(table));
	simple_table_tuple_delete(table->rel, &tid, table->snapshot);
}
