/*
 * test_schedule.c
 *		Beats come at a third of the window, jitter only makes it shorter, and
 *		many clients do not come at once.
 */
#include "client_test.h"

#define ROUNDS				2000

static void
test_beats(void)
{
	Sim		   *sim = sim_new();
	Clocks		sent = sim_clocks(sim);
	int64_t		low[2] = {TIME_MAX, TIME_MAX};
	int64_t		high[2] = {0, 0};

	sim->keeper.lease.window = 60 * SECOND_NS;
	for (int i = 0; i < ROUNDS; i++)
		for (int first = 0; first < 2; first++)
		{
			int64_t		due = beat_due(&sim->keeper, first, &sent) -
				sent.boot;

			if (due < low[first])
				low[first] = due;
			if (due > high[first])
				high[first] = due;
		}
	ok(high[0] <= 20 * SECOND_NS && low[0] >= 16 * SECOND_NS,
	   "a beat comes at a third of the window, a fifth sooner at most");
	ok(high[0] - low[0] > 3 * SECOND_NS, "not always at the same time");
	ok(high[1] <= 20 * SECOND_NS && low[1] >= 5 * SECOND_NS &&
	   high[1] - low[1] > 14 * SECOND_NS, "the first one least of all");
	sim_free(sim);
}

/* A pause after a failure: never none, never longer than it may be. */
static void
test_pauses(void)
{
	Sim		   *sim = sim_new();
	Clocks		now = sim_clocks(sim);
	Keeper	   *keeper = &sim->keeper;
	bool		good = true;
	int64_t		beats = 0;
	int64_t		retries = 0;

	for (int failed = 1; failed < 100; failed++)
	{
		keeper->failed = failed;
		keeper->lease.window = 60 * SECOND_NS;
		keeper->lease.ends_boot = now.boot + 30 * SECOND_NS;
		good = good && beat_retry_delay(keeper, &now) <= 15 * SECOND_NS &&
			beat_retry_delay(keeper, &now) >= 10 * SECOND_NS &&
			beat_soon_delay(keeper, &now) <= 15 * SECOND_NS &&
			beat_soon_delay(keeper, &now) >= 500 * MS_NS &&
			silence_delay(keeper) <= 15 * SECOND_NS &&
			silence_delay(keeper) >= 250 * MS_NS &&
			refused_delay(keeper) <= 60 * SECOND_NS &&
			refused_delay(keeper) >= 500 * MS_NS &&
			no_seats_delay(keeper, -1) <= 15 * SECOND_NS &&
			no_seats_delay(keeper, -1) >= 500 * MS_NS &&
			no_seats_delay(keeper, 0) >= 500 * MS_NS &&
			no_seats_delay(keeper, INT64_MAX) <= 15 * SECOND_NS;
	}
	ok(good, "pauses stay within their bounds after 1 to 99 failures");
	keeper->failed = 1;
	keeper->lease.ends_boot = now.boot + 40 * SECOND_NS;
	for (int i = 0; i < ROUNDS; i++)
	{
		beats += beat_due(keeper, false, &now) - now.boot;
		retries += beat_retry_delay(keeper, &now);
	}
	ok(retries < beats / 10 * 9,
	   "the one after a beat in vain is shorter than the usual one, mostly");
	ok(silence_delay(keeper) <= 500 * MS_NS, "the first one is short");
	ok(beat_soon_delay(keeper, &now) <= SECOND_NS,
	   "so is that of a beat after a conflict");
	keeper->failed = 6;
	ok(silence_delay(keeper) > 5 * SECOND_NS &&
	   beat_soon_delay(keeper, &now) > 5 * SECOND_NS, "later ones are longer");
	keeper->lease.window = 6 * SECOND_NS;
	ok(silence_delay(keeper) <= 2 * SECOND_NS,
	   "but not longer than a third of the lease");
	sim_free(sim);
}

/* Half of a thousand in the same tenth of a second would be a stampede. */
static void
test_spread(void)
{
	int			count[256] = {0};
	int			most = 0;

	for (int i = 0; i < 1000; i++)
	{
		Sim		   *sim = sim_new();

		sim_checkout(sim);
		count[(sim->keeper.due - sim->t) / (100 * MS_NS)]++;
		sim_free(sim);
	}
	for (size_t i = 0; i < COUNT(count); i++)
		if (count[i] > most)
			most = count[i];
	ok(most < 30, "of 1000 clients that begin at once at most %d beat in the "
	   "same tenth of a second", most);
}

/*
 * The beats of many clients after an outage, by the time since its end.  All
 * beat before it, each at its own time.
 */
#define SLOT				(500 * MS_NS)
#define SLOTS				40		/* a third of the window of 60 s */

static void
count_beats(int count[SLOTS], int64_t outage)
{
	Sim		   *sim = sim_new();
	uint64_t	beats;

	sim_checkout(sim);
	sim_run(sim, 60 * SECOND_NS +
			(int64_t) random_number((uint64_t) (20 * SECOND_NS)));
	sim_endless(sim, FAULT_NO_CONNECTION);
	sim_run(sim, outage);
	sim_heal(sim);
	beats = sim->keeper.beats;
	for (int i = 0; i < SLOTS; i++)
	{
		sim_run(sim, SLOT);
		count[i] += (int) (sim->keeper.beats - beats);
		beats = sim->keeper.beats;
	}
	sim_free(sim);
}

/*
 * With 1000 clients that beat every 18 s there are 28 beats in half a second.
 * Chance alone makes 45 of that now and then.
 */
static void
test_return(void)
{
	static const int64_t outages[] = {3, 12, 24};

	for (size_t o = 0; o < COUNT(outages); o++)
	{
		int			count[SLOTS] = {0};
		int			most = 0;

		for (int i = 0; i < 1000; i++)
			count_beats(count, outages[o] * SECOND_NS);
		for (int i = 0; i < SLOTS; i++)
			if (count[i] > most)
				most = count[i];
		ok(most <= 3 * 28, "after an outage of %d s 1000 clients beat %d times "
		   "in half a second at most, which is %.1f times the mean",
		   (int) outages[o], most, most / 27.8);
	}
}

void
test_schedule(void)
{
	test_beats();
	test_pauses();
	test_spread();
	test_return();
}
