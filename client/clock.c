/*
 * clock.c
 *		The two clocks and the time that is left.
 *
 * CLOCK_BOOTTIME counts the time that the machine slept, as CLOCK_MONOTONIC
 * does not, and nobody can set it.  CLOCK_REALTIME also goes on where the
 * whole machine was frozen and its boot clock with it: a virtual machine that
 * was paused and has had its clock set since.  So both are asked and the one
 * that says less is believed.
 */
#include "internal.h"

#include <time.h>

static int64_t
clock_ns(clockid_t clock)
{
	struct timespec now;

	/* Cannot fail for these two. */
	clock_gettime(clock, &now);
	return now.tv_sec * SECOND_NS + now.tv_nsec;
}

void
clocks_read(Clocks *now)
{
	now->wall = clock_ns(CLOCK_REALTIME);
	now->boot = clock_ns(CLOCK_BOOTTIME);
}

/*
 * Rule 1 with a tolerance of 0.  The end of a token is exclusive, so the last
 * instant of the lease is the one before; its unit does not matter.
 */
int64_t
time_left(int64_t end, int64_t now)
{
	return lease_is_live(end - 1, 0, now) ? end - now : 0;
}

int64_t
time_add(int64_t a, int64_t b)
{
	return b > TIME_MAX - a ? TIME_MAX : a + b;
}
