/*
 * sim.h
 *		A world for the keeper: two clocks, a server and what can go wrong
 *		between them, all under the test's hand and none of it real.
 *
 * The world has one true time.  The client's boot clock is it; its wall clock
 * and the server's clock are off by amounts that a test may change at any
 * moment.  The server is a model of keyright's with one license; every answer
 * is signed for real.
 *
 * After every step of the keeper the simulation asks what must always hold,
 * see sim_check(), and counts what did not.
 */
#ifndef SIM_H
#define SIM_H

#include "keeper.h"
#include "test.h"

typedef enum FaultKind
{
	FAULT_NONE,
	FAULT_NO_CONNECTION,		/* silence at once, nothing was sent */
	FAULT_LOST_REQUEST,			/* silence for the whole time limit */
	FAULT_LOST_REPLY,			/* likewise, but the server did its part */
	FAULT_LATE_REPLY,			/* after "delay", or lost */
	FAULT_SLOW_REQUEST,			/* reaches the server after "delay" */
	FAULT_SLEEP,				/* the machine sleeps before it reads it */
	FAULT_SQLSTATE,
	FAULT_STATUS,				/* the server answers this and no more */
	FAULT_ALTERED				/* the answer goes through "alter" */
} FaultKind;

typedef struct Sim Sim;

typedef struct Fault
{
	FaultKind	kind;
	int64_t		delay;
	const char *sqlstate;
	KeyrightStatus status;
	void		(*alter) (Sim *sim, KeyrightAnswer *answer);
} Fault;

typedef struct Grant
{
	uint8_t		id[SEAT_ID_SIZE];
	int32_t		slot;
	int			request;
	int64_t		issued_us;
	int64_t		exp_us;
	bool		revoked;
	bool		returned;
} Grant;

#define GRANTS_MAX			512
#define FAULTS_MAX			64
#define EVENTS_MAX			64	/* the first ones are kept */

struct Sim
{
	int64_t		t;				/* the true time since boot */
	int64_t		wall_offset;	/* the client's wall clock is off by */
	int64_t		server_offset;

	/* The server. */
	int			seats;
	int			others;			/* seats that others hold */
	int64_t		ttl;
	int64_t		skew;
	int64_t		valid_until_us;
	int			grant_count;
	Grant		grants[GRANTS_MAX];
	KeyrightAnswer last_answer;

	Fault		faults[FAULTS_MAX]; /* of the next questions, in order */
	int			fault_first;
	int			fault_count;
	bool		endless;		/* the last of them stays */

	/* The client. */
	Policy		policy;
	Keeper		keeper;
	int			request;		/* stands for its request id */
	int			calls[4];		/* by KeyrightCall */
	int64_t		last_call_at;
	int64_t		shortest_gap;	/* between two questions */
	int64_t		longest_limit;

	int			event_count;
	KeyrightEvent events[EVENTS_MAX];
	KeyrightEvent last;
	const char *broken;			/* the first thing that did not hold */
};

/* A world with one seat, a ttl of 60 s and a keeper that was just opened. */
extern Sim *sim_new(void);
extern void sim_free(Sim *sim);
extern Clocks sim_clocks(const Sim *sim);

extern void sim_fault(Sim *sim, FaultKind kind, int64_t delay);
extern void sim_endless(Sim *sim, FaultKind kind);
extern void sim_fault_sqlstate(Sim *sim, const char *sqlstate);
extern void sim_fault_status(Sim *sim, KeyrightStatus status);
extern void sim_fault_altered(Sim *sim,
							  void (*alter) (Sim *, KeyrightAnswer *));

extern void sim_heal(Sim *sim);

/* Lets the world go on for that long, or until the keeper rests. */
extern void sim_run(Sim *sim, int64_t time);

/* As keyright_checkout() and keyright_checkin(). */
extern KeyrightErrorKind sim_checkout(Sim *sim);
extern KeyrightErrorKind sim_checkin(Sim *sim);

/* As keyright_may_run(). */
extern int64_t sim_left(const Sim *sim);

/* Leases of ours that the server counts now. */
extern int	sim_live(const Sim *sim);
extern Grant *sim_grant(Sim *sim);

/* The states of the events from a number on, as "held retrying held". */
extern const char *sim_story(const Sim *sim, int from);

/* Is that the story since the beginning, and was nothing broken? */
extern bool sim_ok(Sim *sim, const char *story, const char *what);

#endif							/* SIM_H */
