/*
 * model.h
 *		What the parts of the model share: who takes steps, on what, and what
 *		came of it.
 */
#ifndef MODEL_H
#define MODEL_H

#include <libpq-fe.h>
#include <stdbool.h>

#define HISTORY		40

typedef enum Step
{
	CHECK_OUT, FILL, CHECK_IN, BEAT, BEAT_MANY, REVOKE, REVOKE_SLOT,
	REVOKE_HOLDER, REVOKE_ALL, REAP, SEATS, SKEW, TTL, VALIDITY, CUT, STEPS
} Step;

typedef struct License
{
	char		name[16];
	int			seats;
	double		end;			/* of this life */
	int			weights[STEPS];
	bool		in_transactions;
	char		history[HISTORY][300];
	unsigned	written;
} License;

typedef struct Session
{
	int			number;
	PGconn	   *conn;
	const char *level;
	bool		frozen;			/* its snapshot stays for a transaction */
	bool		open;			/* in a transaction block */
	bool		failed;
	int			savepoints;
	License    *license;		/* what its transaction is about */
} Session;

typedef struct Options
{
	const char *conninfo;
	double		seconds;
	unsigned	seed;
	bool		shared;
	bool		tame;
} Options;

/* ---------- model_run.c ---------- */

extern int	wrong;				/* how much */

extern double seconds_now(void);

extern void random_start(unsigned seed);
extern int	below(int limit);
extern bool one_in(int n);

extern void count(const char *name);
extern void print_counters(void);

/* Tells it with the latest steps on the license, whose life ends. */
extern void violation(License *license, const char *finding);

/*
 * Runs a statement and notes it in the license's history (unless NULL).  What
 * fails is counted, and is a violation if no such call may fail like that.
 */
extern PGresult *run(Session *s, License *license, const char *format,...);
extern void call(Session *s, License *license, const char *format,...);

#endif							/* MODEL_H */
