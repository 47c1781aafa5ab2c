/*
 * test_lease.c
 *		The predicate, against a table of its edges and against arithmetic of
 *		128 bits; the end of a lease likewise.
 */
#include "test.h"

#define FOREVER				LEASE_FOREVER
#define NEVER				LEASE_NEVER
#define SECOND				LEASE_SECOND
#define ROUNDS				1000000

__extension__ typedef __int128 Wide;

/* Well beyond any finite sum of two numbers of 64 bits. */
#define INFINITE			((Wide) 1 << 100)

static Wide
widen(int64_t x)
{
	return x == FOREVER ? INFINITE : x == NEVER ? -INFINITE : (Wide) x;
}

static Wide
wide_sum(int64_t a, int64_t b)
{
	if (a == FOREVER || b == FOREVER)
		return INFINITE;
	if (a == NEVER || b == NEVER)
		return -INFINITE;
	return (Wide) a + b;
}

static int64_t
narrow(Wide x)
{
	return x >= FOREVER ? FOREVER : x <= NEVER ? NEVER : (int64_t) x;
}

static Wide
wide_floor(Wide x)
{
	Wide		quotient = x / SECOND;

	if (x % SECOND < 0)
		quotient--;
	return x == INFINITE || x == -INFINITE ? x : quotient * SECOND;
}

static void
live_table(void)
{
	static const struct
	{
		int64_t		expires_at;
		int64_t		tolerance;
		int64_t		at;
		bool		live;
		const char *what;
	}			cases[] =
	{
		{1000, 10, 1009, true, "1 us before the end"},
		{1000, 10, 1010, true, "at the end"},
		{1000, 10, 1011, false, "1 us after the end"},
		{1000, 0, 1000, true, "no tolerance, at the end"},
		{1000, 0, 1001, false, "no tolerance, 1 us after the end"},
		{1000, -10, 990, true, "negative tolerance, at the end"},
		{1000, -10, 991, false, "negative tolerance, after the end"},
		{-1000, 10, -990, true, "before the epoch, at the end"},
		{-1000, 10, -989, false, "before the epoch, after the end"},
		{FOREVER - 1, 0, FOREVER - 1, true, "last finite instant"},
		{FOREVER - 1, 0, FOREVER, false, "for ever is after a finite end"},
		{FOREVER - 1, 1, FOREVER, false, "... when the sum is the limit"},
		{FOREVER - 1, FOREVER - 1, FOREVER, false, "... and beyond it"},
		{FOREVER - 1, FOREVER - 1, FOREVER - 1, true, "sum beyond the range"},
		{NEVER + 1, NEVER + 1, NEVER + 1, false, "sum below the range"},
		{NEVER + 1, -1, NEVER + 1, false, "sum at the lower limit"},
		{NEVER + 1, -1, NEVER, true, "never is before every end"},
		{NEVER + 1, NEVER + 1, NEVER, true, "... below the range as well"},
		{NEVER + 1, 0, NEVER + 1, true, "first finite instant"},
		{FOREVER, 0, FOREVER, true, "endless expiry"},
		{FOREVER, NEVER, FOREVER, true, "endless expiry wins"},
		{NEVER, FOREVER, FOREVER, true, "endless tolerance wins"},
		{0, FOREVER, FOREVER, true, "endless tolerance"},
		{NEVER, 0, NEVER, true, "never at never"},
		{NEVER, 0, NEVER + 1, false, "never at the first instant"},
		{NEVER, FOREVER - 1, NEVER + 1, false, "never, large tolerance"},
		{0, NEVER, NEVER, true, "tolerance of never at never"},
		{0, NEVER, NEVER + 1, false, "tolerance of never"},
		{NEVER, NEVER, NEVER, true, "never twice at never"},
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		ok(lease_is_live(cases[i].expires_at, cases[i].tolerance,
						 cases[i].at) == cases[i].live,
		   "lease_is_live: %s", cases[i].what);
}

static void
lapse_table(void)
{
	ok(lease_lapses_at(1000, 10) == 1011, "lease_lapses_at: plain");
	ok(lease_lapses_at(FOREVER, 0) == FOREVER, "lease_lapses_at: endless");
	ok(lease_lapses_at(FOREVER - 1, 0) == FOREVER,
	   "lease_lapses_at: no finite instant is left");
	ok(lease_lapses_at(FOREVER - 2, 0) == FOREVER - 1,
	   "lease_lapses_at: one finite instant is left");
	ok(lease_lapses_at(NEVER, 5) == NEVER + 1, "lease_lapses_at: never");
	ok(lease_lapses_at(NEVER + 1, -7) == NEVER + 1,
	   "lease_lapses_at: below the range");
}

static void
live_random(void)
{
	long		wrong_live = 0;
	long		wrong_lapse = 0;
	long		wrong_step = 0;

	for (int i = 0; i < ROUNDS; i++)
	{
		int64_t		expires_at = edgy_number();
		int64_t		tolerance = edgy_number();
		int64_t		lapse = lease_lapses_at(expires_at, tolerance);
		int64_t		at = edgy_number();
		bool		live;

		/* Half of the time right beside the end. */
		if (i % 2 == 0)
			at = narrow((Wide) lapse + at % 3);
		live = lease_is_live(expires_at, tolerance, at);

		wrong_live += live != (widen(at) <= wide_sum(expires_at, tolerance));
		wrong_lapse += at != FOREVER && live != (at < lapse);
		wrong_step += lapse != FOREVER &&
			(lease_is_live(expires_at, tolerance, lapse) ||
			 !lease_is_live(expires_at, tolerance, lapse - 1));
	}
	ok(wrong_live == 0, "lease_is_live: as with 128 bits, %d times", ROUNDS);
	ok(wrong_lapse == 0, "lease_lapses_at: live if and only if before it");
	ok(wrong_step == 0, "lease_lapses_at: the first instant that is not");
}

static void
end_table(void)
{
	static const struct
	{
		int64_t		now;
		int64_t		ttl;
		int64_t		license_end;
		int64_t		end;
		const char *what;
	}			cases[] =
	{
		{0, 5 * SECOND, FOREVER, 5 * SECOND, "whole"},
		{1, 5 * SECOND, FOREVER, 6 * SECOND, "rounded up by almost all"},
		{SECOND - 1, 5 * SECOND, FOREVER, 6 * SECOND, "... by 1 us"},
		{0, 1, FOREVER, SECOND, "a short lease lasts to the next second"},
		{-1, 0, FOREVER, 0, "up to zero"},
		{-SECOND - 1, 0, FOREVER, -SECOND, "up before the epoch"},
		{-SECOND + 1, 0, FOREVER, 0, "up to zero from far"},
		{0, 60 * SECOND, 10 * SECOND, 10 * SECOND, "license ends first"},
		{0, 60 * SECOND, 60 * SECOND, 60 * SECOND, "both at once"},
		{0, 60 * SECOND, 10 * SECOND + 1, 10 * SECOND, "odd license end"},
		{0, 60 * SECOND, -10 * SECOND - 1, -11 * SECOND, "... in the past"},
		{5, SECOND, NEVER, NEVER, "license without a life"},
		{FOREVER, SECOND, FOREVER, FOREVER, "endless now"},
		{0, FOREVER, FOREVER, FOREVER, "endless ttl"},
		{0, FOREVER, 9 * SECOND, 9 * SECOND, "endless ttl, bounded license"},
		{FOREVER - 1, FOREVER - 1, FOREVER, FOREVER, "beyond the range"},
		{FOREVER - 1, 0, FOREVER, FOREVER, "no whole second above"},
		{NEVER + 1, -5, FOREVER, NEVER, "below the range"},
		{NEVER, SECOND, FOREVER, NEVER, "never"},
		{0, SECOND, NEVER + 1, NEVER, "no whole second below"},
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		ok(lease_end(cases[i].now, cases[i].ttl, cases[i].license_end) ==
		   cases[i].end, "lease_end: %s", cases[i].what);
}

static void
end_random(void)
{
	long		wrong = 0;
	long		broken = 0;
	long		late = 0;

	for (int i = 0; i < ROUNDS; i++)
	{
		int64_t		now = edgy_number();
		int64_t		ttl = edgy_number();
		int64_t		bound = i % 2 == 0 ? FOREVER : edgy_number();
		int64_t		end = lease_end(now, ttl, bound);
		Wide		sum = widen(narrow(wide_sum(now, ttl)));
		int64_t		up = narrow(-wide_floor(-sum));
		int64_t		down = narrow(wide_floor(widen(bound)));

		wrong += end != (up < down ? up : down);
		broken += end != FOREVER && end != NEVER && end % SECOND != 0;
		late += end > bound;
	}
	ok(wrong == 0, "lease_end: as with 128 bits, %d times", ROUNDS);
	ok(broken == 0, "lease_end: always on a whole second");
	ok(late == 0, "lease_end: never after the license's end");
}

void
test_lease(void)
{
	live_table();
	lapse_table();
	live_random();
	end_table();
	end_random();
}
