/*
 * storm.h
 *		What the parts of the storm share: its options, counters, connections.
 */
#ifndef STORM_H
#define STORM_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "books.h"

typedef struct Options
{
	const char *conninfo;
	int			clients;
	double		seconds;
	int			think_ms;		/* mean pause between two steps */
	int			kill_ms;		/* mean pause between two kills; 0: none */
	const char *isolation;
	const char *allowed;		/* SQLSTATEs that do not fail the test */
	bool		resize;
	bool		crash;			/* the server goes down meanwhile */
	bool		careless;
	bool		reclaim;
	unsigned	seed;
} Options;

/* Licenses that change have fewer seats than this. */
#define RESIZED_BELOW	20

extern Options options;
extern volatile bool over;		/* no new step begins */
extern volatile bool watch_over;	/* the last client has gone */

/*
 * While more are live than a license that was shrunk has seats, nobody may be
 * added.  That is so when the transactions are over that may have looked before
 * the shrink: then the resizer makes this number odd.
 */
extern volatile int resizing;

enum Counter
{
	GRANTED, REFUSED, RENEWED, LOST_EXPIRED, LOST_REVOKED, LOST_UNKNOWN,
	RELEASED, NOT_HELD, REVOCATIONS, LEASES_REVOKED, COMMITS, ROLLBACKS,
	ROLLBACKS_TO, COMMITS_UNKNOWN, CONNECTIONS, CONNECTIONS_LOST,
	CONNECTIONS_CUT, KILLS, SAMPLES, FULL_SAMPLES, AUDITS, AUDITED_LEASES,
	AUDITED_AFTER_CRASH, RESIZES, COUNTERS
};

extern void count(enum Counter counter);
extern void count_many(enum Counter counter, int64_t by);

/* Counts it by SQLSTATE; one that is not allowed is a violation. */
extern void count_error(const char *sqlstate, const char *message);

/* Random numbers, one sequence a thread. */
typedef struct Random
{
	uint64_t	state;
} Random;

extern void random_start(Random *random, unsigned number);
extern int	random_below(Random *random, int limit);
extern void random_pause(Random *random, int mean_ms);
extern void pause_ms(int milliseconds);

/* NULL when the storm ended before the server could be reached. */
extern PGconn *connect_as(const char *name);

/* The first column of the first row; -1 when the query failed. */
extern int64_t ask_number(PGconn *conn, const char *sql);

/* NULL when the query failed; then the connection is a new one. */
extern PGresult *query(PGconn **conn, const char *name, const char *sql);

/* watch.c, until "watch_over" */
extern void *run_sampler(void *unused);
extern void *run_auditor(void *unused);

/* session.c: one client, until "over" */
extern void *run_session(void *number);

/* token.c: whether the token's claims are those of the answer beside it */
extern bool token_fits(const char *token, const char *license, int slot,
					   const char *seat_id, int64_t expires);

#endif							/* STORM_H */
