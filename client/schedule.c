/*
 * schedule.c
 *		When the next question is due.
 *
 * Beats come at a third of the signed window; jitter only makes it shorter.
 * After a failure they come sooner.  A question may take half of what is left,
 * so an answer counts that is late by 30 % of the lease, and a pause half of
 * the rest: however long the lease is, a quarter of what was left before a try
 * is left after it.  Three tries always fit, and more in practice.
 *
 * A thousand applications that were started together, or lost their server
 * together, must not come together: everything is jittered, the first beat
 * most of all.  While a server is away, everybody whose beat was due waits in
 * a pause.  When it returns they come as fast as their pauses are short, and
 * beside them those whose beats are due only now.  So a pause after silence is
 * not much shorter than that between two beats, from the first one on: most
 * come when few of the others, whose beats are due, are still to come, and
 * there are less than twice as many beats as ever; after an outage of more than
 * a third of the lease, when second pauses are over too, twice as many.  Pauses
 * that begin short and double make that six times.  Short ones are for a server
 * that is there and had others in the way.
 */
#include "schedule.h"

#define RETRY_MIN			(100 * MS_NS)
#define RETRY_MAX			(300 * SECOND_NS)
#define LIMIT_MIN			(10 * MS_NS)

#define SILENCE_MIN			(500 * MS_NS)
#define SILENCE_MAX			(15 * SECOND_NS)
#define REFUSED_MIN			SECOND_NS
#define REFUSED_MAX			(60 * SECOND_NS)
#define RELEASE_MIN			(100 * MS_NS)
#define RELEASE_MAX			SECOND_NS

/* A seat can be given back before the server thinks that one can be free. */
#define NO_SEATS_MIN		(500 * MS_NS)
#define NO_SEATS_MAX		(15 * SECOND_NS)

static int64_t
smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t
between(int64_t value, int64_t low, int64_t high)
{
	return value < low ? low : smaller(value, high);
}

/* splitmix64; no secret depends on it. */
static uint64_t
next_random(Keeper *keeper)
{
	uint64_t	mixed = keeper->random += UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
	return mixed ^ mixed >> 31;
}

/* A random part of a length, at least so many hundredths of it. */
static int64_t
shortened(Keeper *keeper, int64_t length, int least)
{
	int64_t		low = length / 100 * least;

	if (length <= low)
		return length;
	return low + (int64_t) (next_random(keeper) % (uint64_t) (length - low));
}

static int64_t
doubled(int64_t delay, int times, int64_t most)
{
	while (times-- > 0 && delay < most)
		delay *= 2;
	return smaller(delay, most);
}

/* The number of the pause after so many failures in a row: 0, 1, 2 ... */
static int
pauses(const Keeper *keeper)
{
	return keeper->failed > 1 ? keeper->failed - 1 : 0;
}

int64_t
beat_due(Keeper *keeper, bool first, const Clocks *sent)
{
	int64_t		third = keeper->lease.window / 3;

	return time_add(sent->boot, shortened(keeper, third, first ? 25 : 80));
}

/*
 * What the boot clock has left counts: if the wall clock leapt, there is
 * nothing left by it, and the question is asked to find out.
 */
int64_t
beat_limit(const Keeper *keeper, const Clocks *now)
{
	int64_t		left = time_left(keeper->lease.ends_boot, now->boot);
	int64_t		limit = smaller(left / 2, keeper->policy->request_limit);

	return limit < LIMIT_MIN ? 0 : limit;
}

/* No pause is longer than half of what is left. */
static int64_t
in_time(Keeper *keeper, int64_t delay, int least, const Clocks *now)
{
	int64_t		left = time_left(keeper->lease.ends_boot, now->boot);

	return shortened(keeper, smaller(delay, left / 2), least);
}

int64_t
beat_retry_delay(Keeper *keeper, const Clocks *now)
{
	return in_time(keeper, smaller(keeper->lease.window / 10 * 3, RETRY_MAX),
				   67, now);
}

int64_t
beat_soon_delay(Keeper *keeper, const Clocks *now)
{
	int64_t		delay = between(keeper->lease.window / 60, RETRY_MIN,
								SECOND_NS);

	return in_time(keeper, doubled(delay, pauses(keeper), RETRY_MAX), 50, now);
}

/* For who had a lease not longer than the time between two beats. */
int64_t
silence_delay(Keeper *keeper)
{
	int64_t		third = keeper->lease.window / 3;
	int64_t		most = third == 0 ? SILENCE_MAX :
		between(third, SECOND_NS, SILENCE_MAX);

	return shortened(keeper, doubled(SILENCE_MIN, pauses(keeper), most), 50);
}

int64_t
refused_delay(Keeper *keeper)
{
	return shortened(keeper, doubled(REFUSED_MIN, pauses(keeper),
									 REFUSED_MAX), 50);
}

int64_t
release_delay(Keeper *keeper)
{
	return shortened(keeper, doubled(RELEASE_MIN, pauses(keeper),
									 RELEASE_MAX), 50);
}

/*
 * Just after the time that the server named, if that is near: before it the
 * question is in vain.  If it is far, or not known, we look now and then.
 */
int64_t
no_seats_delay(Keeper *keeper, int64_t retry_after_ms)
{
	int64_t		most = NO_SEATS_MAX / MS_NS;

	if (retry_after_ms < 0)
		return shortened(keeper, doubled(2 * NO_SEATS_MIN, pauses(keeper),
										 NO_SEATS_MAX), 50);
	if (retry_after_ms > most)
		return shortened(keeper, NO_SEATS_MAX, 75);
	return between(retry_after_ms * MS_NS, NO_SEATS_MIN, NO_SEATS_MAX) +
		shortened(keeper, 500 * MS_NS, 0);
}
