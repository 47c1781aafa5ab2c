/*
 * keeper_answer.c
 *		The state machine of one seat: what an answer means.
 *
 * A table of it, for each phase.  "kind" is what error_kind_of_sqlstate() or
 * judge_answer() made of the answer:
 *
 *				   asking		  keeping			  regaining
 *	 good token	   held			  held (on)			  regained
 *	 no seats	   waits, or idle (not possible)	  degraded
 *	 silence	   waits, or idle retrying			  (on)
 *	 unsigned	   refused		  refused, still held refused, tried on
 *	 answer		   refused		  refused, tried on	  refused, tried on
 *	 seat lost	   (not possible) lost or revoked	  (on) or revoked
 *
 * While returning only the end matters: given back, or not in time.  The same
 * for a useless seat, whose token was unsigned: the outcome is "refused".
 */
#include "keeper.h"

#include <string.h>

static void
set_last_error(Keeper *keeper, KeyrightErrorKind kind, const char *sqlstate,
			   const char *detail)
{
	error_set(&keeper->last_error, kind, keeper->policy->terms.license,
			  sqlstate, detail);
}

/* ----- good news ----- */

static void
adopt(Keeper *keeper, const Lease *lease, const char *token,
	  const Clocks *now)
{
	keeper->lease = *lease;
	text_copy(keeper->token, sizeof(keeper->token), token);
	seat_id_print(keeper->seat_id, lease->seat_id);
	keeper->seat_known = true;
	keeper->in_doubt = false;
	keeper->live = true;
	keeper->clock_doubt = keeper->clock_doubt && lease_left(lease, now) == 0;
	keeper->failed = 0;
	keeper->free_at = TIME_MAX;
	error_clear(&keeper->last_error);
}

/*
 * A lease that the wall clock still calls over (the same token once more, in
 * the same second) is soon asked about again.
 */
static void
plan_beat(Keeper *keeper, bool first, const Clocks *sent, const Clocks *now)
{
	if (keeper->clock_doubt)
		keeper->due = time_add(now->boot, beat_soon_delay(keeper, now));
	else
		keeper->due = beat_due(keeper, first, sent);
}

static void
seat_won(Keeper *keeper, const Lease *lease, const KeyrightAnswer *answer,
		 const Clocks *sent, const Clocks *now)
{
	bool		asked = keeper->phase == PHASE_ASKING;

	adopt(keeper, lease, answer->token, now);
	keeper->phase = PHASE_KEEPING;
	keeper->won = true;
	plan_beat(keeper, true, sent, now);
	error_clear(&keeper->outcome);
	keeper_enter(keeper, asked ? KEYRIGHT_HELD : KEYRIGHT_REGAINED,
				 &keeper->last_error, now);
}

/* Won while it is being given back: it is known now, and goes back next. */
static void
seat_to_return(Keeper *keeper, const Lease *lease, const Clocks *now)
{
	seat_id_print(keeper->seat_id, lease->seat_id);
	keeper->seat_known = true;
	keeper->in_doubt = false;
	keeper->due = now->boot;
}

static void
renewed(Keeper *keeper, const Lease *lease, const KeyrightAnswer *answer,
		const Clocks *sent, const Clocks *now)
{
	adopt(keeper, lease, answer->token, now);
	plan_beat(keeper, false, sent, now);
	if (!keeper->clock_doubt && (keeper->state == KEYRIGHT_RETRYING ||
								 keeper->state == KEYRIGHT_REFUSED))
		keeper_enter(keeper, KEYRIGHT_HELD, &keeper->last_error, now);
}

/* ----- failures ----- */

static bool
asked_in_vain(Keeper *keeper, int64_t delay, const Clocks *now)
{
	if (now->boot >= keeper->deadline)
	{
		keeper_finish_asking(keeper, KEYRIGHT_IDLE, &keeper->last_error, now);
		return true;
	}
	/* One last look when the wait is over. */
	keeper->due = time_add(now->boot, delay);
	if (keeper->due > keeper->deadline)
		keeper->due = keeper->deadline;
	return false;
}

static void
no_seats(Keeper *keeper, const KeyrightAnswer *answer, const Clocks *now)
{
	int64_t		delay;

	/* The server has no live lease under our request id. */
	keeper->in_doubt = false;
	keeper->seat_known = false;
	if (keeper->phase == PHASE_RETURNING)
		return;

	set_last_error(keeper, KEYRIGHT_ERR_NO_SEATS, NULL, NULL);
	keeper->free_at = answer->retry_after_ms < 0 ||
		answer->retry_after_ms > TIME_MAX / MS_NS ? TIME_MAX :
		time_add(now->boot, answer->retry_after_ms * MS_NS);
	keeper->failed++;
	delay = no_seats_delay(keeper, answer->retry_after_ms);
	if (keeper->phase == PHASE_REGAINING)
	{
		keeper->due = time_add(now->boot, delay);
		keeper_enter(keeper, KEYRIGHT_DEGRADED, &keeper->last_error, now);
	}
	else if (!asked_in_vain(keeper, delay, now))
		keeper_enter(keeper, KEYRIGHT_WAITING, &keeper->last_error, now);
}

static int64_t
silent_beat_delay(Keeper *keeper, const Clocks *now)
{
	return error_is_conflict(keeper->last_error.sqlstate) ?
		beat_soon_delay(keeper, now) : beat_retry_delay(keeper, now);
}

static void
silence(Keeper *keeper, const Clocks *now)
{
	switch (keeper->phase)
	{
		case PHASE_ASKING:
			if (!asked_in_vain(keeper, silence_delay(keeper), now))
				keeper_enter(keeper, KEYRIGHT_WAITING, &keeper->last_error,
							 now);
			break;
		case PHASE_KEEPING:
			keeper->due = time_add(now->boot, silent_beat_delay(keeper, now));
			keeper_enter(keeper, KEYRIGHT_RETRYING, &keeper->last_error, now);
			break;
		case PHASE_REGAINING:
			keeper->due = time_add(now->boot, silence_delay(keeper));
			break;
		case PHASE_RETURNING:
			keeper->due = time_add(now->boot, release_delay(keeper));
			keeper->outcome = keeper->last_error;
			break;
		case PHASE_REST:
			break;
	}
}

/* The server has spoken, or somebody in its place who cannot sign. */
static void
refused(Keeper *keeper, bool is_signed, const Clocks *now)
{
	switch (keeper->phase)
	{
		case PHASE_ASKING:
			keeper->outcome = keeper->last_error;
			if (!keeper->useless)
				keeper_finish_asking(keeper, KEYRIGHT_REFUSED,
									 &keeper->last_error, now);
			return;
		case PHASE_KEEPING:
			if (is_signed)
			{
				keeper_drop_lease(keeper);
				keeper_regain(keeper, 0);
				keeper->failed = 1;
				keeper->due = time_add(now->boot, refused_delay(keeper));
			}
			else
				keeper->due = time_add(now->boot,
									   beat_retry_delay(keeper, now));
			break;
		case PHASE_REGAINING:
			keeper->due = time_add(now->boot, is_signed ?
								   refused_delay(keeper) :
								   silence_delay(keeper));
			break;
		case PHASE_RETURNING:
			keeper_finish_returning(keeper, &keeper->last_error, now);
			return;
		case PHASE_REST:
			return;
	}
	keeper_enter(keeper, KEYRIGHT_REFUSED, &keeper->last_error, now);
}

/*
 * last_error says what happened.  In doubt of the clock one unanswered
 * question is enough: who cannot ask must stop.
 */
static void
failed(Keeper *keeper, const Clocks *now)
{
	KeyrightErrorClass class = keyright_error_class(keeper->last_error.kind);

	keeper->failures++;
	keeper->failed++;
	if (keeper->clock_doubt && class != KEYRIGHT_CLASS_ANSWER)
		keeper_lapse(keeper, KEYRIGHT_ERR_CLOCK, keeper->last_error.message,
					 now);
	else if (class == KEYRIGHT_CLASS_SILENCE)
		silence(keeper, now);
	else
		refused(keeper, class == KEYRIGHT_CLASS_ANSWER, now);
}

static void
failed_with(Keeper *keeper, KeyrightErrorKind kind, const char *detail,
			const Clocks *now)
{
	set_last_error(keeper, kind, NULL, detail);
	failed(keeper, now);
}

static void
failed_answer(Keeper *keeper, const KeyrightAnswer *answer,
			  const Clocks *now)
{
	set_last_error(keeper, error_kind_of_sqlstate(answer->sqlstate),
				   answer->sqlstate, answer->message);
	failed(keeper, now);
}

/* A good token that was over when it came is no better than none. */
static bool
is_good(Keeper *keeper, Judgement judgement, const char *problem,
		const Clocks *now)
{
	if (judgement == JUDGED_GOOD)
		return true;
	failed_with(keeper, judgement == JUDGED_LATE ? KEYRIGHT_ERR_UNREACHABLE :
				KEYRIGHT_ERR_TOKEN, problem, now);
	return false;
}

/* ----- one function for each question ----- */

/*
 * A seat with a token that is of no use.  The next question with the same
 * request id would give the same one; but who runs us may not ask again, or
 * ask with a new id each time.
 */
static void
checkout_useless(Keeper *keeper, const KeyrightAnswer *answer,
				 const char *problem, const Clocks *now)
{
	uint8_t		id[SEAT_ID_SIZE];

	keeper->in_doubt = false;
	if (seat_id_parse(id, answer->seat_id, strlen(answer->seat_id)))
	{
		seat_id_print(keeper->seat_id, id);
		keeper->seat_known = true;
		keeper->useless = keeper->phase != PHASE_RETURNING &&
			keeper->policy->release_limit > 0;
	}
	if (keeper->phase == PHASE_RETURNING && keeper->seat_known)
		keeper->due = now->boot;
	else
		failed_with(keeper, KEYRIGHT_ERR_TOKEN, problem, now);
}

static void
checkout_granted(Keeper *keeper, const KeyrightAnswer *answer,
				 const Clocks *sent, const Clocks *now)
{
	Lease		lease;
	const Lease *old = keeper->lease.slot > 0 ? &keeper->lease : NULL;
	const char *problem;
	Judgement	judgement;

	judgement = judge_answer(&lease, &keeper->policy->terms, old, false,
							 answer, sent, now, &problem);
	if (judgement == JUDGED_BAD)
		checkout_useless(keeper, answer, problem, now);
	else if (!is_good(keeper, judgement, problem, now))
		return;
	else if (keeper->phase == PHASE_RETURNING)
		seat_to_return(keeper, &lease, now);
	else
		seat_won(keeper, &lease, answer, sent, now);
}

/*
 * An error with an SQLSTATE took no seat, but a question before it, whose
 * answer was lost, may have.  An answer ends that doubt too.
 */
static void
checkout_failed(Keeper *keeper, const KeyrightAnswer *answer,
				const Clocks *now)
{
	KeyrightErrorKind kind = error_kind_of_sqlstate(answer->sqlstate);

	if (keyright_error_class(kind) != KEYRIGHT_CLASS_SILENCE)
		keeper->in_doubt = false;
	else if (answer->sqlstate[0] != '\0')
		keeper->in_doubt = keeper->was_in_doubt;
	failed_answer(keeper, answer, now);
}

static void
checkout_answered(Keeper *keeper, const KeyrightAnswer *answer,
				  const Clocks *sent, const Clocks *now)
{
	switch (answer->status)
	{
		case KEYRIGHT_STATUS_GRANTED:
			checkout_granted(keeper, answer, sent, now);
			break;
		case KEYRIGHT_STATUS_NO_SEATS:
			no_seats(keeper, answer, now);
			break;
		case KEYRIGHT_STATUS_FAILED:
			checkout_failed(keeper, answer, now);
			break;
		default:
			checkout_useless(keeper, answer,
							 "the answer does not fit the question", now);
	}
}

/*
 * The phase may have moved on while the question was on its way: the lease
 * lapsed by our clocks.  A renewal that came all the same, and in time by the
 * server's, is a seat regained.
 */
static void
beat_renewed(Keeper *keeper, const KeyrightAnswer *answer,
			 const Clocks *sent, const Clocks *now)
{
	Lease		lease;
	const char *problem;
	Judgement	judgement;

	judgement = judge_answer(&lease, &keeper->policy->terms, &keeper->lease,
							 true, answer, sent, now, &problem);
	if (keeper->phase == PHASE_KEEPING)
	{
		if (is_good(keeper, judgement, problem, now))
		{
			keeper->beats++;
			renewed(keeper, &lease, answer, sent, now);
		}
	}
	else if (keeper->phase == PHASE_REGAINING && judgement == JUDGED_GOOD)
	{
		keeper->beats++;
		seat_won(keeper, &lease, answer, sent, now);
	}
}

static void
beat_lost(Keeper *keeper, KeyrightErrorKind kind, const Clocks *now)
{
	bool		revoked = kind == KEYRIGHT_ERR_REVOKED;

	keeper->seat_known = false;
	keeper->need_id = true;
	if (keeper->phase != PHASE_KEEPING &&
		!(revoked && keeper->phase == PHASE_REGAINING))
		return;

	keeper_drop_lease(keeper);
	set_last_error(keeper, kind, NULL, NULL);
	keeper_regain(keeper, now->boot);
	if (revoked)
		keeper->phase = PHASE_REST;
	keeper_enter(keeper, revoked ? KEYRIGHT_REVOKED : KEYRIGHT_LOST,
				 &keeper->last_error, now);
}

static void
beat_answered(Keeper *keeper, const KeyrightAnswer *answer,
			  const Clocks *sent, const Clocks *now)
{
	switch (answer->status)
	{
		case KEYRIGHT_STATUS_RENEWED:
			beat_renewed(keeper, answer, sent, now);
			return;
		case KEYRIGHT_STATUS_LOST_EXPIRED:
			beat_lost(keeper, KEYRIGHT_ERR_EXPIRED, now);
			return;
		case KEYRIGHT_STATUS_LOST_REVOKED:
			beat_lost(keeper, KEYRIGHT_ERR_REVOKED, now);
			return;
		case KEYRIGHT_STATUS_LOST_UNKNOWN:
			beat_lost(keeper, KEYRIGHT_ERR_UNKNOWN_SEAT, now);
			return;
		default:
			break;
	}
	/* A late failure says nothing about the lease that is wanted now. */
	if (keeper->phase != PHASE_KEEPING)
		return;
	if (answer->status == KEYRIGHT_STATUS_FAILED)
		failed_answer(keeper, answer, now);
	else
		failed_with(keeper, KEYRIGHT_ERR_TOKEN,
					"the answer does not fit the question", now);
}

static void
returned(Keeper *keeper, const Clocks *now)
{
	keeper->in_doubt = false;
	keeper->need_id = true;
	error_clear(&keeper->last_error);
	keeper_finish_returning(keeper, &keeper->last_error, now);
}

/*
 * If it could not be given back, its request id stays: the next check-out
 * gets the same seat, not one more.
 */
static void
useless_answered(Keeper *keeper, const KeyrightAnswer *answer,
				 const Clocks *now)
{
	keeper->useless = false;
	if (answer->status == KEYRIGHT_STATUS_RELEASED ||
		answer->status == KEYRIGHT_STATUS_NOT_HELD)
	{
		keeper->seat_known = false;
		keeper->need_id = true;
	}
	else
		keeper->failures++;
	if (keeper->phase == PHASE_ASKING && !keeper->outdated)
		keeper_finish_asking(keeper, KEYRIGHT_REFUSED, &keeper->outcome, now);
}

/*
 * A seat that was not held any more can have a successor that we do not know
 * of: a check-out whose answer was lost.  One that was released cannot, for
 * its request id had given the same seat again.
 */
static void
checkin_answered(Keeper *keeper, const KeyrightAnswer *answer,
				 const Clocks *now)
{
	switch (answer->status)
	{
		case KEYRIGHT_STATUS_RELEASED:
			keeper->seat_known = false;
			returned(keeper, now);
			break;
		case KEYRIGHT_STATUS_NOT_HELD:
			keeper->seat_known = false;
			if (keeper->in_doubt)
				keeper->due = now->boot;
			else
				returned(keeper, now);
			break;
		case KEYRIGHT_STATUS_FAILED:
			failed_answer(keeper, answer, now);
			break;
		default:
			failed_with(keeper, KEYRIGHT_ERR_TOKEN,
						"the answer does not fit the question", now);
	}
}

/*
 * A question of before keyright_checkout(), which made it be given up: that is
 * no failure of the check-out, which asks itself now, with the same request id
 * if it is in doubt.  A real answer serves it well.
 */
static bool
was_given_up(const Keeper *keeper, const KeyrightAnswer *answer)
{
	return keeper->outdated && keeper->phase == PHASE_ASKING &&
		answer->status == KEYRIGHT_STATUS_FAILED &&
		answer->sqlstate[0] == '\0';
}

/* What the clocks tell comes first: a lapse is told even if it is mended. */
void
keeper_answer(Keeper *keeper, KeyrightCall call,
			  const KeyrightAnswer *answer,
			  const Clocks *sent, const Clocks *now)
{
	keeper->calling = false;
	keeper_time(keeper, now);
	if (was_given_up(keeper, answer))
		return;
	switch (call)
	{
		case KEYRIGHT_CALL_CHECKOUT:
			checkout_answered(keeper, answer, sent, now);
			break;
		case KEYRIGHT_CALL_HEARTBEAT:
			beat_answered(keeper, answer, sent, now);
			break;
		case KEYRIGHT_CALL_CHECKIN:
			if (keeper->phase == PHASE_RETURNING)
				checkin_answered(keeper, answer, now);
			else
				useless_answered(keeper, answer, now);
			break;
	}
}
