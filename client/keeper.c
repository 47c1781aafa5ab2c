/*
 * keeper.c
 *		The state machine of one seat: commands, clocks, what to do next.
 *
 * Pure: it knows clock readings and answers (keeper_answer.c) and says what
 * to ask and what to tell.  It never waits.
 *
 *	 REST --ask--> ASKING --granted--> KEEPING --over, lost--> REGAINING
 *	  ^              |                  ^   |                    |   |
 *	  +--- refused --+                  |   |   <--- granted ----+   |
 *	  |                                 |   |                        |
 *	  +---- done --- RETURNING <--------+---+------ give back -------+
 *
 * Invariants:
 *
 * - "live" is set by a verified answer alone and cleared before anything else
 *   is asked once the lease is over; while it is set no check-out is sent, so
 *   two live leases are never held.
 *
 * - A request id is kept until the server has said that its lease is over or
 *   never was.  A lease that our clocks call over may still count there (its
 *   skew): the same id then gives the same seat, not a second one.
 *
 * - A seat that was granted with a token that we cannot use goes back before
 *   anything else is asked.  It is never held, but it is counted; who tries
 *   again and again would take one seat after the other.
 *
 * - Every change of state is one notice, in order.
 */
#include "keeper.h"

#include <string.h>

void
keeper_init(Keeper *keeper, const Policy *policy, uint64_t seed)
{
	memset(keeper, 0, sizeof(*keeper));
	keeper->policy = policy;
	keeper->random = seed;
	keeper->need_id = !policy->own_request_id;
	keeper->free_at = TIME_MAX;
}

void
keeper_resume(Keeper *keeper, const char *seat_id)
{
	keeper->need_id = false;
	keeper->seat_known = seat_id[0] != '\0';
	text_copy(keeper->seat_id, sizeof(keeper->seat_id), seat_id);
}

bool
keeper_trying(const Keeper *keeper)
{
	return keeper->phase == PHASE_ASKING || keeper->phase == PHASE_KEEPING ||
		keeper->phase == PHASE_REGAINING;
}

/* ----- notices ----- */

/*
 * Whoever calls the keeper takes the notices out after each call, and no call
 * makes more than a few: the ring cannot run over.
 */
static void
put_notice(Keeper *keeper, KeyrightState before, const Clocks *now)
{
	int			place = (keeper->notice_first + keeper->notice_count) %
		NOTICES_MAX;
	KeyrightEvent *event = &keeper->notices[place];

	if (keeper->notice_count == NOTICES_MAX)
		return;
	keeper->notice_count++;
	memset(event, 0, sizeof(*event));
	event->number = ++keeper->notice_number;
	event->state = keeper->state;
	event->before = before;
	event->error = keeper->error;
	event->left_ns = keeper->live ? lease_left(&keeper->lease, now) : 0;
	event->trying = keeper_trying(keeper);
	event->retry_in_ns = event->trying ?
		time_left(keeper->due, now->boot) : -1;
	event->slot = keeper->live ? keeper->lease.slot : 0;
}

static bool
same_error(const KeyrightError *a, const KeyrightError *b)
{
	return a->kind == b->kind && strcmp(a->sqlstate, b->sqlstate) == 0;
}

/*
 * A change of the state, or of the error while nothing but an error changes:
 * who waits or is refused wants to know why.
 */
void
keeper_enter(Keeper *keeper, KeyrightState state, const KeyrightError *error,
			 const Clocks *now)
{
	KeyrightState before = keeper->state;
	bool		tells_errors = state == KEYRIGHT_WAITING ||
		state == KEYRIGHT_REFUSED;

	if (state == before &&
		!(tells_errors && !same_error(error, &keeper->error)))
		return;
	keeper->state = state;
	keeper->error = *error;
	put_notice(keeper, before, now);
}

bool
keeper_notice(Keeper *keeper, KeyrightEvent *event)
{
	if (keeper->notice_count == 0)
		return false;
	*event = keeper->notices[keeper->notice_first];
	keeper->notice_first = (keeper->notice_first + 1) % NOTICES_MAX;
	keeper->notice_count--;
	return true;
}

/* ----- what clocks tell ----- */

void
keeper_drop_lease(Keeper *keeper)
{
	keeper->live = false;
	keeper->clock_doubt = false;
	memset(keeper->token, 0, sizeof(keeper->token));
}

/* After a loss: ask for a new lease, or leave it at that. */
void
keeper_regain(Keeper *keeper, int64_t due)
{
	keeper->phase = keeper->policy->keep_trying ? PHASE_REGAINING :
		PHASE_REST;
	keeper->failed = 0;
	keeper->due = due;
}

void
keeper_lapse(Keeper *keeper, KeyrightErrorKind kind, const char *detail,
			 const Clocks *now)
{
	KeyrightError error;

	error_set(&error, kind, keeper->policy->terms.license, NULL, detail);
	keeper->last_error = error;
	keeper_drop_lease(keeper);
	keeper_regain(keeper, now->boot);
	keeper_enter(keeper, KEYRIGHT_LOST, &error, now);
}

/*
 * The boot clock is believed: the lease is over.  If the wall clock alone
 * says so, it was set forward, or the machine was frozen with its boot clock.
 * Until the server has spoken nobody may run; one question is asked at once.
 */
static void
doubt_clock(Keeper *keeper, const Clocks *now)
{
	KeyrightError error;

	keeper->clock_doubt = true;
	keeper->due = now->boot;
	error_set(&error, KEYRIGHT_ERR_CLOCK, keeper->policy->terms.license,
			  NULL, NULL);
	keeper->last_error = error;
	keeper_enter(keeper, KEYRIGHT_RETRYING, &error, now);
}

void
keeper_time(Keeper *keeper, const Clocks *now)
{
	if (keeper->phase != PHASE_KEEPING)
		return;
	if (time_left(keeper->lease.ends_boot, now->boot) == 0)
		keeper_lapse(keeper, KEYRIGHT_ERR_LAPSED,
					 keeper->last_error.message, now);
	else if (!keeper->clock_doubt && lease_left(&keeper->lease, now) == 0)
		doubt_clock(keeper, now);
}

/* ----- commands ----- */

/*
 * Callbacks may have kept us from looking at the clocks.  Who asks while one
 * is in doubt held nothing: the same request id gives the same seat again.
 */
void
keeper_ask(Keeper *keeper, const Clocks *now)
{
	KeyrightError none;

	keeper_time(keeper, now);
	if (keeper->clock_doubt)
		keeper_lapse(keeper, KEYRIGHT_ERR_CLOCK, NULL, now);
	if (keeper->live || keeper->phase == PHASE_RETURNING)
		return;
	error_clear(&none);
	keeper->phase = PHASE_ASKING;
	keeper->failed = 0;
	keeper->due = now->boot;
	keeper->deadline = time_add(now->boot, keeper->policy->wait);
	keeper->outcome = none;
	keeper->interrupted = false;
	keeper->won = false;
	keeper->useless = false;
	keeper->free_at = TIME_MAX;
	keeper->outdated = keeper->calling;
	keeper_enter(keeper, KEYRIGHT_WAITING, &none, now);
}

void
keeper_finish_asking(Keeper *keeper, KeyrightState state,
					 const KeyrightError *error, const Clocks *now)
{
	keeper->phase = PHASE_REST;
	keeper->outcome = *error;
	keeper_enter(keeper, state, error, now);
}

/*
 * Who held nothing and heard nothing waits for little: a program whose server
 * is gone wants to end.
 */
static void
start_returning(Keeper *keeper, const Clocks *now)
{
	int64_t		limit = keeper->policy->release_limit;

	if (!keeper->live && keeper->failed > 0 && limit > SECOND_NS)
		limit = SECOND_NS;
	keeper_drop_lease(keeper);
	keeper->useless = false;
	keeper->phase = PHASE_RETURNING;
	keeper->failed = 0;
	keeper->due = now->boot;
	keeper->deadline = time_add(now->boot, limit);
	error_clear(&keeper->outcome);
}

/* A seat goes back that a lost answer or a useless one may have given us. */
void
keeper_interrupt(Keeper *keeper, const Clocks *now)
{
	KeyrightError error;

	if (keeper->phase != PHASE_ASKING)
		return;
	error_set(&error, KEYRIGHT_ERR_INTERRUPTED, NULL, NULL, NULL);
	if (!keeper->in_doubt && !keeper->useless)
	{
		keeper_finish_asking(keeper, KEYRIGHT_IDLE, &error, now);
		return;
	}
	start_returning(keeper, now);
	keeper->interrupted = true;
}

void
keeper_give_back(Keeper *keeper, const Clocks *now)
{
	if (keeper->phase == PHASE_RETURNING)
		return;
	start_returning(keeper, now);
	keeper->interrupted = false;
}

/*
 * Ends with the outcome of giving back.  Who interrupted a check-out is told
 * that, not how the tidying went.
 */
void
keeper_finish_returning(Keeper *keeper, const KeyrightError *error,
						const Clocks *now)
{
	keeper->phase = PHASE_REST;
	if (keeper->interrupted)
	{
		KeyrightError interrupted;

		error_set(&interrupted, KEYRIGHT_ERR_INTERRUPTED, NULL, NULL, NULL);
		keeper->outcome = interrupted;
		keeper_enter(keeper, KEYRIGHT_IDLE, &interrupted, now);
		return;
	}
	keeper->outcome = *error;
	if (keeper->won)
		keeper_enter(keeper, KEYRIGHT_RELEASED, error, now);
}

void
keeper_fail(Keeper *keeper, KeyrightErrorKind kind, const char *detail,
			const Clocks *now)
{
	KeyrightError error;

	error_set(&error, kind, keeper->policy->terms.license, NULL, detail);
	keeper->calling = false;
	keeper->last_error = error;
	keeper->failures++;
	keeper->in_doubt = keeper->was_in_doubt;
	if (keeper->phase == PHASE_ASKING)
		keeper_finish_asking(keeper, KEYRIGHT_IDLE, &error, now);
	else
	{
		keeper->failed++;
		keeper->due = time_add(now->boot, silence_delay(keeper));
	}
}

/* ----- what to do next ----- */

static Action
sleep_until(int64_t until)
{
	Action		action = {.kind = ACTION_SLEEP, .until = until};

	return action;
}

static Action
call_now(Keeper *keeper, KeyrightCall call, int64_t limit)
{
	Action		action = {.kind = ACTION_CALL, .call = call, .limit = limit};

	keeper->calling = true;
	keeper->outdated = false;
	if (call == KEYRIGHT_CALL_CHECKOUT)
	{
		action.fresh_id = keeper->need_id &&
			!keeper->policy->own_request_id;
		keeper->need_id = false;
		keeper->was_in_doubt = keeper->in_doubt;
		keeper->in_doubt = true;
	}
	return action;
}

/*
 * When not even a short question fits before the end, the end is awaited.
 */
static Action
next_beat(Keeper *keeper, const Clocks *now)
{
	int64_t		limit = beat_limit(keeper, now);

	if (now->boot < keeper->due)
		return sleep_until(keeper->due < keeper->lease.ends_boot ?
						   keeper->due : keeper->lease.ends_boot);
	if (limit == 0)
		return sleep_until(keeper->lease.ends_boot);
	return call_now(keeper, KEYRIGHT_CALL_HEARTBEAT, limit);
}

/* One try to give a useless seat back; keyright_checkin() makes more. */
static Action
next_useless(Keeper *keeper)
{
	const Policy *policy = keeper->policy;

	return call_now(keeper, KEYRIGHT_CALL_CHECKIN,
					policy->release_limit < policy->request_limit ?
					policy->release_limit : policy->request_limit);
}

static Action
next_checkout(Keeper *keeper, const Clocks *now)
{
	if (keeper->useless)
		return next_useless(keeper);
	if (now->boot < keeper->due)
		return sleep_until(keeper->due);
	return call_now(keeper, KEYRIGHT_CALL_CHECKOUT,
					keeper->policy->request_limit);
}

/*
 * A seat that we know of is given back; one that we may have without knowing
 * is first asked for again, with the same request id.
 */
static Action
next_return(Keeper *keeper, const Clocks *now)
{
	int64_t		left = time_left(keeper->deadline, now->boot);
	int64_t		limit = left < keeper->policy->request_limit ? left :
		keeper->policy->request_limit;
	Action		rest = {.kind = ACTION_REST};

	if (!keeper->seat_known && !keeper->in_doubt)
		error_clear(&keeper->outcome);
	else if (left > 0)
	{
		if (now->boot < keeper->due)
			return sleep_until(keeper->due < keeper->deadline ?
							   keeper->due : keeper->deadline);
		return call_now(keeper, keeper->seat_known ? KEYRIGHT_CALL_CHECKIN :
						KEYRIGHT_CALL_CHECKOUT, limit);
	}
	else if (keeper->outcome.kind == KEYRIGHT_OK)
		error_set(&keeper->outcome, KEYRIGHT_ERR_UNREACHABLE, NULL, NULL,
				  "there was no time to give the seat back");
	keeper_finish_returning(keeper, &keeper->outcome, now);
	return rest;
}

Action
keeper_next(Keeper *keeper, const Clocks *now)
{
	Action		rest = {.kind = ACTION_REST};

	switch (keeper->phase)
	{
		case PHASE_KEEPING:
			return next_beat(keeper, now);
		case PHASE_ASKING:
		case PHASE_REGAINING:
			return next_checkout(keeper, now);
		case PHASE_RETURNING:
			return next_return(keeper, now);
		case PHASE_REST:
			break;
	}
	return rest;
}
