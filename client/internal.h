/*
 * internal.h
 *		The inner contract of libkeyright, grouped by file.
 *
 * Two halves that know nothing of each other's means: what decides is pure
 * (judge.c, keeper.c: clock readings and answers in, actions and notices
 * out; no thread, no clock, no I/O) and what acts decides nothing (loop.c and
 * below).  All times are nanoseconds unless a name says otherwise.
 */
#ifndef KEYRIGHT_INTERNAL_H
#define KEYRIGHT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "core.h"
#include "keyright.h"

#define SECOND_NS			INT64_C(1000000000)
#define MS_NS				INT64_C(1000000)
#define TIME_MAX			INT64_MAX

/* What a lease may last at least, here and on the server. */
#define TTL_MIN_MS			1000

/* Base64url of 18 random bytes. */
#define REQUEST_ID_BYTES	18
#define REQUEST_ID_SIZE		(KEYRIGHT_TEXT_MAX + 1)

/* ----- clock.c ----- */

typedef struct Clocks
{
	int64_t		wall;			/* CLOCK_REALTIME */
	int64_t		boot;			/* CLOCK_BOOTTIME: counts sleep */
} Clocks;

/* Async-signal-safe. */
extern void clocks_read(Clocks *now);

/*
 * What is left until an end that is not part of the lease any more; 0: it is
 * over.  Async-signal-safe.
 */
extern int64_t time_left(int64_t end, int64_t now);

/* A sum of times not before 1970 that stops at TIME_MAX. */
extern int64_t time_add(int64_t a, int64_t b);

/* ----- error.c ----- */

extern void error_clear(KeyrightError *error);

/* license: for the sentence, may be NULL; sqlstate, detail: likewise. */
extern void error_set(KeyrightError *error, KeyrightErrorKind kind,
					  const char *license, const char *sqlstate,
					  const char *detail);

/* Puts words before the detail. */
extern void error_prefix(KeyrightError *error, const char *words);

/* The kind of a question that failed with this SQLSTATE, empty: none. */
extern KeyrightErrorKind error_kind_of_sqlstate(const char *sqlstate);

/* The sentence of this SQLSTATE says what the server's message does. */
extern bool error_says_it_all(const char *sqlstate);

/* The server is well, but others were in the way of this statement. */
extern bool error_is_conflict(const char *sqlstate);

/* A copy that always ends with a zero, cut where a character begins. */
extern void text_copy(char *to, size_t room, const char *from);

/* The same behind what stands in it. */
extern void text_add(char *to, size_t room, const char *from);

/* ----- judge.c: does an answer renew a lease? ----- */

/* A signed claim on a seat, with its end by the clocks of this machine. */
typedef struct Lease
{
	uint8_t		seat_id[SEAT_ID_SIZE];
	int32_t		slot;
	int64_t		issued_at;		/* seconds, the server's clock; as signed */
	int64_t		expires_at;
	int64_t		window;			/* from the question to the end */
	int64_t		ends_boot;
	int64_t		ends_wall;		/* TIME_MAX: the wall clock is not trusted */
} Lease;

/* What a token must say to be of use here. */
typedef struct Terms
{
	KeySet		keys;
	char		license[KEYRIGHT_TEXT_MAX + 1];
	char		holder[KEYRIGHT_TEXT_MAX + 1];
} Terms;

typedef enum Judgement
{
	JUDGED_GOOD,
	JUDGED_LATE,				/* good, but over before it was here */
	JUDGED_BAD
} Judgement;

/*
 * Fills in *lease from the token of an answer to a question that was sent at
 * "sent" and answered by "now".  old: the lease that it is to replace, or
 * NULL; same_seat: only that seat will do.  *problem is a sentence fragment
 * unless the answer is good.
 */
extern Judgement judge_answer(Lease *lease, const Terms *terms,
							  const Lease *old, bool same_seat,
							  const KeyrightAnswer *answer,
							  const Clocks *sent, const Clocks *now,
							  const char **problem);

/* The smaller of the two clocks' answers. */
extern int64_t lease_left(const Lease *lease, const Clocks *now);

/* ----- keeper.c: the state machine ----- */

typedef struct Policy
{
	Terms		terms;
	int64_t		wait;			/* TIME_MAX: for ever */
	int64_t		request_limit;
	int64_t		release_limit;
	bool		keep_trying;
	bool		own_request_id; /* the application's: never replaced */
} Policy;

typedef enum Phase
{
	PHASE_REST,					/* nothing to do */
	PHASE_ASKING,				/* keyright_checkout() waits */
	PHASE_KEEPING,				/* a live lease, at least by our clocks */
	PHASE_REGAINING,			/* the lease is gone, a new one is wanted */
	PHASE_RETURNING				/* giving back */
} Phase;

typedef enum ActionKind
{
	ACTION_REST,				/* until something is commanded */
	ACTION_SLEEP,				/* until "until" on the boot clock */
	ACTION_CALL
} ActionKind;

typedef struct Action
{
	ActionKind	kind;
	int64_t		until;
	KeyrightCall call;
	int64_t		limit;
	bool		fresh_id;		/* make a new request id for it */
} Action;

#define NOTICES_MAX			8

typedef struct Keeper
{
	const Policy *policy;
	uint64_t	random;			/* state of a small generator, for jitter */

	Phase		phase;
	KeyrightState state;
	KeyrightError error;		/* of the last notice */

	Lease		lease;
	bool		live;			/* lease may be used until its end */
	bool		seat_known;		/* seat_id may still be ours on the server */
	bool		useless;		/* its token is of no use: it goes back next */
	char		seat_id[SEAT_ID_TEXT_SIZE];
	char		token[KEYRIGHT_TOKEN_SIZE];
	bool		in_doubt;		/* a check-out was sent, its answer is lost */
	bool		was_in_doubt;	/* before the check-out that is under way */
	bool		need_id;		/* the request id has served its lease */
	bool		clock_doubt;	/* the wall clock alone says: over */
	bool		calling;		/* a question is under way ... */
	bool		outdated;		/* ... from before keyright_checkout() */

	int64_t		due;			/* of the next question, on the boot clock */
	int			failed;			/* questions in a row */
	int64_t		deadline;		/* of asking, of returning */
	KeyrightError outcome;		/* of asking, of returning */
	bool		interrupted;	/* returning, because asking was cut short */
	bool		won;			/* a seat, since it was last asked for one */

	KeyrightError last_error;	/* for keyright_info() */
	uint64_t	beats;
	uint64_t	failures;
	int64_t		free_at;		/* a seat can be free; TIME_MAX: not known */

	KeyrightEvent notices[NOTICES_MAX];
	int			notice_first;
	int			notice_count;
	uint64_t	notice_number;
} Keeper;

extern void keeper_init(Keeper *keeper, const Policy *policy, uint64_t seed);

/* A seat that an earlier run of the application may still hold. */
extern void keeper_resume(Keeper *keeper, const char *seat_id);

/* Commands of the application. */
extern void keeper_ask(Keeper *keeper, const Clocks *now);
extern void keeper_interrupt(Keeper *keeper, const Clocks *now);
extern void keeper_give_back(Keeper *keeper, const Clocks *now);

/* Notices what the clocks alone tell; call it before asking anything else. */
extern void keeper_time(Keeper *keeper, const Clocks *now);

/* What to do now.  A CALL must be made, and answered by keeper_answer(). */
extern Action keeper_next(Keeper *keeper, const Clocks *now);
extern void keeper_answer(Keeper *keeper, KeyrightCall call,
						  const KeyrightAnswer *answer,
						  const Clocks *sent, const Clocks *now);

/* The question could not even be asked: a failure of this side. */
extern void keeper_fail(Keeper *keeper, KeyrightErrorKind kind,
						const char *detail, const Clocks *now);

/* Takes the oldest notice that was not told yet. */
extern bool keeper_notice(Keeper *keeper, KeyrightEvent *event);

extern bool keeper_trying(const Keeper *keeper);

/* ----- state_file.c ----- */

typedef struct StateFile
{
	char	   *path;			/* NULL: there is none */
	char	   *new_path;
	int			lock_fd;
} StateFile;

/* What an earlier run left; empty texts: nothing. */
typedef struct Remembered
{
	char		request_id[REQUEST_ID_SIZE];
	char		seat_id[SEAT_ID_TEXT_SIZE];
} Remembered;

/*
 * All return false with *error set on a failure.  It is one to read what is of
 * another license or holder, or what is not understood.
 */
extern bool state_file_open(StateFile *file, const char *path,
							KeyrightError *error);
extern bool state_file_read(const StateFile *file, const Terms *terms,
							Remembered *remembered, KeyrightError *error);
extern bool state_file_write(const StateFile *file, const Terms *terms,
							 const Remembered *remembered,
							 KeyrightError *error);
extern void state_file_remove(const StateFile *file);
extern void state_file_close(StateFile *file);

/* ----- pq.c: the transport over libpq ----- */

extern bool pq_transport_open(KeyrightTransport *transport,
							  const char *conninfo, KeyrightError *error);

/* ----- handle.c, loop.c ----- */

struct Keyright
{
	/* Never change after keyright_open(). */
	pid_t		owner;			/* the process that may do more than ask */
	Policy		policy;
	KeyrightTransport transport;
	KeyrightCallback on_event;
	void	   *event_arg;
	int64_t		ttl_ms;
	int			wake_fd;		/* an eventfd: look at the commands */
	StateFile	state_file;

	/* Read without a lock, in signal handlers too: see loop.c. */
	_Atomic int64_t ends_boot;
	_Atomic int64_t ends_wall;
	_Atomic int state;
	atomic_bool interrupt;

	/* Held through keyright_checkin(): two must not join one thread. */
	pthread_mutex_t returning;

	/* Guards what follows; never held during a call or a callback. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	Keeper		keeper;
	bool		running;		/* thread is to be joined */
	pthread_t	thread;
	bool		ask;			/* command: check out */
	bool		asking;			/* somebody waits for its outcome ... */
	KeyrightError outcome;		/* ... which is here when he does no more */
	bool		leave;			/* command: give back and end */
	bool		leaving;		/* it was taken */
	bool		in_call;

	/* The thread's alone, or the opener's before there is one. */
	Remembered	remembered;
	bool		written;		/* the state file has the request id */
};

/* The thread. */
extern void *loop_main(void *arg);

/* keyright_checkin().  again: also a seat that was not given back before. */
extern KeyrightErrorKind seat_check_in(Keyright *seat, bool again,
									   KeyrightError *error);

/* Makes the thread look at its commands, and a call give up. */
extern void loop_wake(Keyright *seat);

/* A secret of 144 random bits. */
extern void request_id_make(char id[REQUEST_ID_SIZE]);

#endif							/* KEYRIGHT_INTERNAL_H */
