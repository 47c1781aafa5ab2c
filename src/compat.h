/*
 * compat.h
 *		Every difference between the PostgreSQL versions that keyright is
 *		written for, 15 to 19, stands here and nowhere else.
 */
#ifndef KEYRIGHT_COMPAT_H
#define KEYRIGHT_COMPAT_H

#include "access/genam.h"
#include "access/tableam.h"

#if PG_VERSION_NUM < 150000
#error "keyright needs PostgreSQL 15 or later"
#endif

/* 16 moves the hooks of settings to a header of their own. */
#if PG_VERSION_NUM >= 160000
#include "utils/guc_hooks.h"
#endif

/* 16 tells which indexes an update touched, not only whether it did. */
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes IndexUpdate;
#define index_update_needed(u)	((u) != TU_None)
#define INDEX_UPDATE_ALL	TU_All
#else
typedef bool IndexUpdate;
#define index_update_needed(u)	(u)
#define INDEX_UPDATE_ALL	true
#endif

#if PG_VERSION_NUM >= 190000
#define insert_index_entries(info, slot, estate, is_update, which) \
	ExecInsertIndexTuples(info, estate, \
						  ((is_update) ? EIIT_IS_UPDATE : 0) | \
						  ((which) == TU_Summarizing ? \
						   EIIT_ONLY_SUMMARIZING : 0), \
						  slot, NIL, NULL)
#elif PG_VERSION_NUM >= 160000
#define insert_index_entries(info, slot, estate, is_update, which) \
	ExecInsertIndexTuples(info, slot, estate, is_update, false, NULL, NIL, \
						  (which) == TU_Summarizing)
#else
#define insert_index_entries(info, slot, estate, is_update, which) \
	ExecInsertIndexTuples(info, slot, estate, is_update, false, NULL, NIL)
#endif

/* 16 renames the name of a relation's file. */
#if PG_VERSION_NUM >= 160000
#define relation_file(rel)	((rel)->rd_locator.relNumber)
#else
#define relation_file(rel)	((rel)->rd_node.relNode)
#endif

/* 19 names a tranche of locks when it is made. */
#if PG_VERSION_NUM >= 190000
#define new_lock_tranche(name)	LWLockNewTrancheId(name)
#else
#define new_lock_tranche(name)	LWLockNewTrancheId()
#endif

/* 19 has flags for updates and scans. */
#if PG_VERSION_NUM >= 190000
#define update_tuple(rel, tid, slot, cid, snapshot, failure, mode, indexes) \
	table_tuple_update(rel, tid, slot, cid, 0, snapshot, InvalidSnapshot, \
					   true, failure, mode, indexes)
#define begin_tid_range_scan(rel, snapshot, from, to) \
	table_beginscan_tidrange(rel, snapshot, from, to, SO_NONE)
#else
#define update_tuple(rel, tid, slot, cid, snapshot, failure, mode, indexes) \
	table_tuple_update(rel, tid, slot, cid, snapshot, InvalidSnapshot, \
					   true, failure, mode, indexes)
#define begin_tid_range_scan(rel, snapshot, from, to) \
	table_beginscan_tidrange(rel, snapshot, from, to)
#endif

/* 18 counts what an index scan does. */
#if PG_VERSION_NUM >= 190000
#define begin_index_scan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, NULL, nkeys, 0, SO_NONE)
#elif PG_VERSION_NUM >= 180000
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
