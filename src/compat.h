/*
 * compat.h
 *		Every difference between the PostgreSQL versions that keyright is
 *		written for, 15 to 19, stands here and nowhere else.
 */
#ifndef KEYRIGHT_COMPAT_H
#define KEYRIGHT_COMPAT_H

#if PG_VERSION_NUM < 150000
#error "keyright needs PostgreSQL 15 or later"
#endif

/* 16 tells which indexes an update touched, not only whether it did. */
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes IndexUpdate;
#define index_update_needed(u)	((u) != TU_None)
#define insert_index_entries(rri, slot, estate, is_update, which) \
	ExecInsertIndexTuples(rri, slot, estate, is_update, false, NULL, NIL, \
						  (which) == TU_Summarizing)
#define INDEX_UPDATE_ALL	TU_All
#else
typedef bool IndexUpdate;
#define index_update_needed(u)	(u)
#define insert_index_entries(rri, slot, estate, is_update, which) \
	ExecInsertIndexTuples(rri, slot, estate, is_update, false, NULL, NIL)
#define INDEX_UPDATE_ALL	true
#endif

/* 18 counts what an index scan does. */
#if PG_VERSION_NUM >= 180000
#define begin_index_scan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, NULL, nkeys, 0)
#else
#define begin_index_scan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, nkeys, 0)
#endif

/* 17 knows infinite intervals. */
#if PG_VERSION_NUM >= 170000
#define interval_is_endless(i)	INTERVAL_IS_NOEND(i)
#define interval_is_beginless(i)	INTERVAL_IS_NOBEGIN(i)
#else
#define interval_is_endless(i)	false
#define interval_is_beginless(i)	false
#endif

/* 19 lets a worker give way to DROP DATABASE and its like at once. */
#ifndef BGWORKER_INTERRUPTIBLE
#define BGWORKER_INTERRUPTIBLE	0
#endif

#endif							/* KEYRIGHT_COMPAT_H */
