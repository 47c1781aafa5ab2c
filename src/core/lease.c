/*
 * lease.c
 *		When a lease is live, and until when it may run.
 *
 * Every question "does this lease still count?" in the server, the reaper and
 * the client ends here, each with a tolerance of its own.  Two rules keep the
 * answers the same everywhere:
 *
 * - The arithmetic is that of the whole numbers extended by minus and plus
 *   infinity, for every input: nothing wraps around, nothing raises.  An
 *   expiry or a tolerance of LEASE_FOREVER wins over the other being
 *   LEASE_NEVER: who said "for ever" meant it.
 *
 * - A sum of two finite numbers stays finite, also when it does not fit into
 *   64 bits.  So the instant "for ever" is after the end of every lease that
 *   has one, however late.
 */
#include "core.h"

/*
 * The last instant at which a lease is live.  A finite sum beyond the range
 * becomes the last finite instant (every finite time is before it, "for ever"
 * is not); one below the range becomes LEASE_NEVER (no finite time is live).
 */
static int64_t
last_instant(int64_t expires_at, int64_t tolerance)
{
	if (expires_at == LEASE_FOREVER || tolerance == LEASE_FOREVER)
		return LEASE_FOREVER;
	if (expires_at == LEASE_NEVER || tolerance == LEASE_NEVER)
		return LEASE_NEVER;

	if (tolerance > 0 && expires_at > LEASE_FOREVER - 1 - tolerance)
		return LEASE_FOREVER - 1;
	if (tolerance < 0 && expires_at < LEASE_NEVER - tolerance)
		return LEASE_NEVER;

	return expires_at + tolerance;
}

/* Down to a whole second; LEASE_NEVER if there is none below. */
static int64_t
second_floor(int64_t at)
{
	int64_t		rest = at % LEASE_SECOND;

	if (at == LEASE_FOREVER || at == LEASE_NEVER)
		return at;
	if (rest < 0)
		rest += LEASE_SECOND;
	if (at < LEASE_NEVER + rest)
		return LEASE_NEVER;

	return at - rest;
}

/* Up to a whole second; LEASE_FOREVER if there is none above. */
static int64_t
second_ceil(int64_t at)
{
	int64_t		rest = at % LEASE_SECOND;

	if (at == LEASE_FOREVER || at == LEASE_NEVER || rest == 0)
		return at;
	if (rest < 0)
		return at - rest;
	if (at > LEASE_FOREVER - (LEASE_SECOND - rest))
		return LEASE_FOREVER;

	return at + (LEASE_SECOND - rest);
}

bool
lease_is_live(int64_t expires_at, int64_t tolerance, int64_t at)
{
	return at <= last_instant(expires_at, tolerance);
}

int64_t
lease_lapses_at(int64_t expires_at, int64_t tolerance)
{
	int64_t		last = last_instant(expires_at, tolerance);

	return last == LEASE_FOREVER ? LEASE_FOREVER : last + 1;
}

int64_t
lease_end(int64_t now, int64_t ttl, int64_t license_end)
{
	int64_t		end = second_ceil(last_instant(now, ttl));
	int64_t		bound = second_floor(license_end);

	return end < bound ? end : bound;
}
