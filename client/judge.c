/*
 * judge.c
 *		Does an answer renew a lease, and until when?
 *
 * Nothing that is not signed makes a lease longer.  A token is good when one
 * of the application's keys signed it for this license, this holder and (for
 * a beat) this seat, and when it is newer than the one that it replaces.
 *
 * The end by our clocks.  The signature says from when (iat) until when (exp)
 * by the server's clock, which need not agree with ours; only the length
 * counts.  The server's clock cannot have read "issued at" before we sent the
 * question, so "sent + length" is never after the end that the server keeps:
 * a reply that was two seconds on its way has two seconds less to live.  iat
 * is cut to whole seconds.  The time with fractions that comes beside the
 * token mends that, and is believed only within its second; without it the
 * second is taken off.
 *
 * The same token twice extends nothing: else a recorded answer would be a
 * lease without end.
 */
#include "internal.h"

#include <string.h>

/* About a hundred years: longer windows do not fit in 64 bits everywhere. */
#define WINDOW_MAX_S		INT64_C(3000000000)

static int64_t
signed_window(int64_t iat, int64_t exp, int64_t issued_at_us)
{
	int64_t		length = exp - iat;
	int64_t		fraction_us;

	if (length > WINDOW_MAX_S)
		return WINDOW_MAX_S * SECOND_NS;

	fraction_us = issued_at_us / LEASE_SECOND == iat ?
		issued_at_us % LEASE_SECOND : -1;
	if (fraction_us >= 0)
		return length * SECOND_NS - fraction_us * 1000;
	if (length > 2)
		length--;
	return length * SECOND_NS;
}

/*
 * A wall clock that is behind the signature when the answer is here is wrong.
 * It is left out, so that setting it right costs nobody a seat.
 */
static bool
wall_is_trusted(const Clocks *now, int64_t iat)
{
	return now->wall / SECOND_NS >= iat;
}

/*
 * A server whose clock was set back does not shorten what it signed: it signs
 * the same end again, hours away by that clock.  When the clock is set right
 * that end is near.  So an end that is no later than the one before is worth
 * no more than that was when it came, and the next beat is not hours away.
 */
static bool
is_no_later(const Lease *lease, const Lease *old)
{
	return old != NULL && seat_id_equal(lease->seat_id, old->seat_id) &&
		lease->expires_at <= old->expires_at;
}

static void
set_ends(Lease *lease, const Lease *old, int64_t issued_at_us,
		 const Clocks *sent, const Clocks *now)
{
	lease->window = signed_window(lease->issued_at, lease->expires_at,
								  issued_at_us);
	if (is_no_later(lease, old) && lease->window > old->window)
		lease->window = old->window;
	lease->ends_boot = time_add(sent->boot, lease->window);
	lease->ends_wall = wall_is_trusted(now, lease->issued_at) ?
		time_add(sent->wall, lease->window) : TIME_MAX;
}

/*
 * Is it older than the old one?  The server can cut a lease short when the
 * license ends sooner than it did; then its newer signature says so.
 */
static bool
is_stale(const LeaseClaims *claims, const Lease *old)
{
	return claims->expires_at < old->expires_at &&
		claims->issued_at <= old->issued_at;
}

static const char *
claims_problem(const LeaseClaims *claims, const Terms *terms,
			   const Lease *old, bool same_seat)
{
	bool		is_old_seat = old != NULL &&
		seat_id_equal(claims->seat_id, old->seat_id);

	if (strcmp(claims->license, terms->license) != 0)
		return "it is for another license";
	if (strcmp(claims->holder, terms->holder) != 0)
		return "it is for another holder";
	if (same_seat && !is_old_seat)
		return "it is for another seat";
	if (is_old_seat && is_stale(claims, old))
		return "it is older than the one that it was to replace";
	return NULL;
}

static bool
is_same_token(const Lease *lease, const Lease *old)
{
	return old != NULL && seat_id_equal(lease->seat_id, old->seat_id) &&
		lease->issued_at == old->issued_at &&
		lease->expires_at == old->expires_at;
}

Judgement
judge_answer(Lease *lease, const Terms *terms, const Lease *old,
			 bool same_seat, const KeyrightAnswer *answer,
			 const Clocks *sent, const Clocks *now, const char **problem)
{
	LeaseClaims claims;
	char		kid[KID_SIZE];

	/*
	 * At instant 0 no token has expired: whether it is over is asked below,
	 * by clocks that need not agree with the server's.
	 */
	if (token_verify(answer->token,
					 strnlen(answer->token, KEYRIGHT_TOKEN_SIZE),
					 &terms->keys, 0, &claims, kid, problem) != TOKEN_VALID)
		return JUDGED_BAD;
	*problem = claims_problem(&claims, terms, old, same_seat);
	if (*problem != NULL)
		return JUDGED_BAD;

	memset(lease, 0, sizeof(*lease));
	memcpy(lease->seat_id, claims.seat_id, SEAT_ID_SIZE);
	lease->slot = claims.slot;
	lease->issued_at = claims.issued_at;
	lease->expires_at = claims.expires_at;
	if (is_same_token(lease, old))
		*lease = *old;
	else
		set_ends(lease, old, answer->issued_at_us, sent, now);

	if (time_left(lease->ends_boot, now->boot) > 0)
		return JUDGED_GOOD;
	*problem = "it was over when it came";
	return JUDGED_LATE;
}

int64_t
lease_left(const Lease *lease, const Clocks *now)
{
	int64_t		boot = time_left(lease->ends_boot, now->boot);
	int64_t		wall = time_left(lease->ends_wall, now->wall);

	return wall < boot ? wall : boot;
}
