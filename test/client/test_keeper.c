/*
 * test_keeper.c
 *		A seat is kept through silence, dropped at its end, and never two of
 *		it: the state machine in a simulated world.
 *
 * Every case is a story of states; besides, the simulation looks after each
 * step that the keeper never runs longer than the server counts.
 */
#include "client_test.h"

#define MINUTE				(60 * SECOND_NS)
#define HOUR				(60 * MINUTE)
#define DAY					(24 * HOUR)

static Sim *
held(void)
{
	Sim		   *sim = sim_new();

	if (sim_checkout(sim) != KEYRIGHT_OK)
		abort();
	return sim;
}

/* Runs up to just before the next beat. */
static void
run_to_beat(Sim *sim)
{
	sim_run(sim, sim->keeper.due - sim->t - 1);
}

static void
test_quiet_life(void)
{
	Sim		   *sim = held();
	int			beats;

	sim_run(sim, HOUR);
	beats = sim->calls[KEYRIGHT_CALL_HEARTBEAT];
	ok(beats >= 180 && beats <= 230, "an hour at a ttl of 60 s has about 200 "
	   "beats: %d", beats);
	ok(sim_left(sim) > 35 * SECOND_NS, "there is always much time left");
	ok(sim_checkin(sim) == KEYRIGHT_OK && sim_live(sim) == 0,
	   "the check-in gives the seat back");
	ok(sim->calls[KEYRIGHT_CALL_CHECKIN] == 1, "with one question");
	sim_run(sim, HOUR);
	ok(sim->calls[KEYRIGHT_CALL_HEARTBEAT] == beats,
	   "no beat comes after a check-in");
	sim_ok(sim, "waiting held released", "a quiet life is three events");
	sim_free(sim);
}

static void
test_lost_beats(void)
{
	for (int lost = 1; lost <= 3; lost++)
	{
		FaultKind	kinds[] = {FAULT_NO_CONNECTION, FAULT_LOST_REQUEST,
		FAULT_LOST_REPLY};

		for (size_t k = 0; k < COUNT(kinds); k++)
		{
			Sim		   *sim = held();

			for (int i = 0; i < lost; i++)
				sim_fault(sim, kinds[k], 0);
			sim_run(sim, 5 * MINUTE);
			sim_ok(sim, "waiting held retrying held",
				   "beats that fail are tried again, the seat stays");
			ok(sim->grant_count == 1 &&
			   sim->keeper.failures == (uint64_t) lost,
			   "%d beats lost, one lease", lost);
			sim_free(sim);
		}
	}
}

static int64_t
time_to_next_beat(Sim *sim)
{
	int64_t		failed_at = sim->t;
	uint64_t	beats = sim->keeper.beats;

	while (sim->keeper.beats == beats)
		sim_run(sim, 10 * MS_NS);
	return sim->t - failed_at;
}

static void
test_retry_comes_sooner(void)
{
	Sim		   *sim = held();
	int64_t		longest = 0;

	for (int i = 0; i < 100; i++)
	{
		int64_t		delay;

		run_to_beat(sim);
		sim_fault(sim, FAULT_NO_CONNECTION, 0);
		delay = time_to_next_beat(sim);
		if (delay > longest)
			longest = delay;
	}
	/* The end is a whole second, so the window can be 61 s. */
	ok(longest <= 61 * SECOND_NS / 10 * 3 + 20 * MS_NS,
	   "after a failure the next try comes sooner than a beat would have");
	run_to_beat(sim);
	sim_fault_sqlstate(sim, "55P03");
	ok(time_to_next_beat(sim) <= 2 * SECOND_NS,
	   "after a conflict it comes within 2 s");
	sim_free(sim);
}

/* However long the lease and however slow the silence. */
static void
test_three_tries(void)
{
	static const int64_t ttls[] = {
		SECOND_NS, 2 * SECOND_NS, 3 * SECOND_NS, 5 * SECOND_NS,
		30 * SECOND_NS, MINUTE, HOUR, 30 * DAY
	};
	FaultKind	kinds[] = {FAULT_NO_CONNECTION, FAULT_LOST_REQUEST};

	for (size_t i = 0; i < COUNT(ttls); i++)
		for (size_t k = 0; k < COUNT(kinds); k++)
		{
			Sim		   *sim = sim_new();
			int			tries;

			sim->ttl = ttls[i];
			sim->policy.request_limit = 600 * SECOND_NS;
			sim_checkout(sim);
			sim_endless(sim, kinds[k]);
			while (sim->keeper.phase == PHASE_KEEPING)
				sim_run(sim, ttls[i] / 100);
			tries = sim->calls[KEYRIGHT_CALL_HEARTBEAT];
			ok(tries >= 3 && sim->broken == NULL,
			   "a ttl of %lld s leaves room for three tries: %d",
			   (long long) (ttls[i] / SECOND_NS), tries);
			sim_free(sim);
		}
}

static void
test_late_replies(void)
{
	Sim		   *sim = held();
	int64_t		left;

	run_to_beat(sim);
	sim_fault(sim, FAULT_LATE_REPLY, 2 * SECOND_NS);
	sim_run(sim, 3 * SECOND_NS);
	left = sim_left(sim);
	ok(sim->keeper.beats == 1 && left <= 57 * SECOND_NS + SECOND_NS &&
	   left > 55 * SECOND_NS,
	   "a reply that took 2 s has 2 s less to live");
	for (int i = 0; i < 50; i++)
		sim_fault(sim, FAULT_LATE_REPLY, 2 * SECOND_NS);
	sim_run(sim, 10 * MINUTE);
	sim_ok(sim, "waiting held",
		   "replies that always are 2 s late cost nothing");
	sim_free(sim);

	sim = held();
	for (int i = 0; i < 50; i++)
		sim_fault(sim, FAULT_SLOW_REQUEST, 2 * SECOND_NS);
	sim_run(sim, 10 * MINUTE);
	sim_ok(sim, "waiting held", "nor do questions that are 2 s on their way");
	sim_free(sim);

	/* A short lease: a third of it is gone when the beat is sent. */
	sim = sim_new();
	sim->ttl = 6 * SECOND_NS;
	sim_checkout(sim);
	for (int i = 0; i < 500; i++)
		sim_fault(sim, FAULT_LATE_REPLY, 6 * SECOND_NS / 100 * 30);
	sim_run(sim, 10 * MINUTE);
	sim_ok(sim, "waiting held",
		   "nor do replies that are late by 30 % of the lease");
	sim_free(sim);
}

static void
test_outages(void)
{
	Sim		   *sim = held();

	run_to_beat(sim);
	sim_endless(sim, FAULT_LOST_REQUEST);
	while (sim_left(sim) > 2 * SECOND_NS)
		sim_run(sim, 100 * MS_NS);
	sim_heal(sim);
	sim_run(sim, 2 * MINUTE);
	sim_ok(sim, "waiting held retrying held",
		   "an outage that ends 2 s before the lease costs nothing");
	ok(sim->grant_count == 1, "it is the same lease");
	sim_free(sim);

	sim = held();
	run_to_beat(sim);
	sim_endless(sim, FAULT_LOST_REQUEST);
	sim_run(sim, 80 * SECOND_NS);
	ok(sim_left(sim) == 0, "a longer one ends the right to run");
	ok(sim->events[sim->event_count - 1].error.kind == KEYRIGHT_ERR_LAPSED,
	   "and the lapse is told as such");
	sim_heal(sim);
	sim_run(sim, MINUTE);
	sim_ok(sim, "waiting held retrying lost regained",
		   "after it there is one fresh seat");
	ok(sim->grant_count == 2 && sim_live(sim) == 1, "and only one");
	sim_free(sim);
}

/* Our end comes before the server's, by the skew: the same seat is renewed. */
static void
test_regains_within_skew(void)
{
	Sim		   *sim = held();

	run_to_beat(sim);
	sim_endless(sim, FAULT_NO_CONNECTION);
	while (sim->keeper.phase == PHASE_KEEPING)
		sim_run(sim, 100 * MS_NS);
	sim_heal(sim);
	sim_run(sim, SECOND_NS);
	sim_ok(sim, "waiting held retrying lost regained",
		   "a lapse is told even if the seat is regained at once");
	ok(sim->grant_count == 1, "the same request id gives the same seat");
	sim_free(sim);
}

/* As after SIGSTOP and SIGCONT, or the lid of a laptop. */
static void
test_sleep(void)
{
	Sim		   *sim = held();

	sim_run(sim, MINUTE);
	sim->t += 2 * MINUTE;
	ok(sim_left(sim) == 0, "after sleeping for two ttl the first answer is "
	   "\"may not run\"");
	sim->others = 1;
	sim_run(sim, SECOND_NS);
	sim_ok(sim, "waiting held lost degraded", "then the lapse is told");
	ok(sim->events[2].error.kind == KEYRIGHT_ERR_LAPSED, "with its reason");
	sim->others = 0;
	sim_run(sim, MINUTE);
	sim_ok(sim, "waiting held lost degraded regained",
		   "a seat that is free again is taken");
	sim_free(sim);

	sim = held();
	run_to_beat(sim);
	sim->t += 10 * SECOND_NS;
	sim_run(sim, MINUTE);
	sim_ok(sim, "waiting held", "a sleep that is shorter costs nothing");
	sim_free(sim);
}

/* The beat was sent and answered, and then the machine slept. */
static void
test_sleep_during_beat(void)
{
	Sim		   *sim = held();

	run_to_beat(sim);
	sim_fault(sim, FAULT_SLEEP, 2 * MINUTE);
	sim_run(sim, MINUTE);
	sim_run(sim, MINUTE);
	sim_ok(sim, "waiting held lost regained",
		   "a renewal that was read after its own end renews nothing");
	ok(sim->grant_count == 2 && sim_live(sim) == 1, "one fresh lease");
	sim_free(sim);

	sim = held();
	run_to_beat(sim);
	sim_fault(sim, FAULT_SLEEP, 58 * SECOND_NS);
	sim_run(sim, MINUTE);
	sim_ok(sim, "waiting held lost regained",
		   "one that was read in time, after the old end, regains the seat");
	ok(sim->grant_count == 1, "which is the same");
	sim_free(sim);
}

/* A clock that is wrong from the beginning. */
static void
test_wrong_clocks(void)
{
	static const int64_t offsets[] = {
		HOUR, -HOUR, DAY, -DAY, 30 * SECOND_NS, -30 * SECOND_NS, 20000 * DAY,
		-20000 * DAY
	};

	for (size_t i = 0; i < COUNT(offsets); i++)
	{
		Sim		   *sim = sim_new();

		sim->wall_offset = offsets[i];
		sim_checkout(sim);
		sim_run(sim, 10 * MINUTE);
		sim_ok(sim, "waiting held",
			   "a wall clock that is off throws nobody out");
		sim_endless(sim, FAULT_LOST_REQUEST);
		sim_run(sim, 2 * MINUTE);
		ok(sim_left(sim) == 0 && sim->broken == NULL,
		   "nor does it make a lease longer (%lld s)",
		   (long long) (offsets[i] / SECOND_NS));
		sim_free(sim);
	}
}

/* A computer whose clock was wrong when it started, and is set right then. */
static void
test_clock_set_right(void)
{
	Sim		   *sim = sim_new();

	sim->wall_offset = -20000 * DAY;
	sim_checkout(sim);
	sim->wall_offset = 0;
	ok(sim_left(sim) > 50 * SECOND_NS,
	   "setting a clock right that was behind costs nothing");
	sim_run(sim, MINUTE);
	sim_ok(sim, "waiting held", "not even a question");
	sim->wall_offset = HOUR;
	ok(sim_left(sim) == 0, "once it is right it is trusted");
	sim_free(sim);
}

/* A clock that is set while a lease is held. */
static void
test_clock_set_back(void)
{
	static const int64_t leaps[] = {-HOUR, -DAY, -30 * SECOND_NS};

	for (size_t i = 0; i < COUNT(leaps); i++)
	{
		Sim		   *sim = held();

		sim_run(sim, 5 * SECOND_NS);
		sim_endless(sim, FAULT_LOST_REQUEST);
		sim->wall_offset += leaps[i];
		sim_run(sim, 53 * SECOND_NS);
		ok(sim_left(sim) > 0, "a wall clock that is set back ends nothing");
		sim_run(sim, 3 * SECOND_NS);
		ok(sim_left(sim) == 0 && sim->broken == NULL,
		   "and makes no lease longer");
		sim_free(sim);
	}
}

static void
test_clock_set_forward(void)
{
	static const int64_t leaps[] = {HOUR, DAY, 70 * SECOND_NS};

	for (size_t i = 0; i < COUNT(leaps); i++)
	{
		Sim		   *sim = held();

		sim_run(sim, 2 * SECOND_NS);
		sim->wall_offset += leaps[i];
		ok(sim_left(sim) == 0,
		   "a wall clock that leaps past the end ends the right to run");
		sim_run(sim, SECOND_NS);
		ok(sim_left(sim) > 50 * SECOND_NS,
		   "until the server has said that the lease lives");
		sim_run(sim, 5 * MINUTE);
		sim_ok(sim, "waiting held retrying held", "nobody is thrown out");
		ok(sim->events[2].error.kind == KEYRIGHT_ERR_CLOCK,
		   "the clock is named as the reason");
		sim_free(sim);

		sim = held();
		sim_run(sim, 2 * SECOND_NS);
		sim->wall_offset += leaps[i];
		sim_fault(sim, FAULT_LOST_REQUEST, 0);
		sim_run(sim, 30 * SECOND_NS);
		sim_ok(sim, "waiting held retrying lost regained",
			   "if the server does not answer the seat is lost");
		ok(sim->grant_count == 1, "and the same is regained later");
		sim_free(sim);

		sim = held();
		sim_run(sim, 2 * SECOND_NS);
		sim->wall_offset += leaps[i];
		ok(sim_checkout(sim) == KEYRIGHT_OK && sim_left(sim) > 50 * SECOND_NS,
		   "who checks out before the leap was noticed has a seat");
		sim_ok(sim, "waiting held retrying lost waiting held",
			   "and hears what happened");
		ok(sim->grant_count == 1, "the same one");
		sim_free(sim);
	}
}

/* In the same second the server signs the same token once more. */
static void
test_clock_leap_right_after_beat(void)
{
	Sim		   *sim = sim_new();

	/* At the beginning of a second by the server's clock. */
	sim->server_offset = -(sim_clocks(sim).wall % SECOND_NS);
	sim_checkout(sim);
	sim->wall_offset += HOUR;
	sim_run(sim, 100 * MS_NS);
	ok(sim_left(sim) == 0, "the same token once more clears no doubt");
	sim_run(sim, 3 * SECOND_NS);
	ok(sim_left(sim) > 50 * SECOND_NS, "a newer one does");
	sim_ok(sim, "waiting held retrying held", "without a loss");
	sim_free(sim);
}

static void
test_server_clock(void)
{
	static const int64_t leaps[] = {-HOUR, -DAY, -3 * SECOND_NS,
	3 * SECOND_NS};

	for (size_t i = 0; i < COUNT(leaps); i++)
	{
		Sim		   *sim = held();

		sim_run(sim, MINUTE);
		sim->server_offset = leaps[i];
		sim_run(sim, 10 * MINUTE);
		sim_ok(sim, "waiting held",
			   "a server's clock that is set throws nobody out");
		ok(sim_left(sim) <= 61 * SECOND_NS,
		   "nor does it make a lease longer than it was");
		sim_free(sim);
	}
	for (int i = 0; i < 2; i++)
	{
		Sim		   *sim = held();

		sim_run(sim, MINUTE);
		sim->server_offset = i ? HOUR : DAY;
		sim_run(sim, 10 * MINUTE);
		sim_ok(sim, "waiting held lost regained",
			   "when it leaps past the end, the server says so");
		ok(sim->events[2].error.kind == KEYRIGHT_ERR_EXPIRED,
		   "as \"expired\"");
		sim_free(sim);
	}
}

static void
test_losses(void)
{
	static const struct
	{
		KeyrightStatus status;
		KeyrightErrorKind kind;
	}			losses[] =
	{
		{KEYRIGHT_STATUS_LOST_EXPIRED, KEYRIGHT_ERR_EXPIRED},
		{KEYRIGHT_STATUS_LOST_UNKNOWN, KEYRIGHT_ERR_UNKNOWN_SEAT},
	};

	for (size_t i = 0; i < COUNT(losses); i++)
	{
		Sim		   *sim = held();
		int			request = sim->request;

		sim_grant(sim)->returned = true;
		sim_fault_status(sim, losses[i].status);
		sim_run(sim, MINUTE);
		sim_ok(sim, "waiting held lost regained", "a lost seat is replaced");
		ok(sim->events[2].error.kind == losses[i].kind &&
		   sim->events[2].left_ns == 0, "the reason is told: %s",
		   keyright_error_name(losses[i].kind));
		ok(sim->request != request, "with a new request id");
		sim_free(sim);

		sim = sim_new();
		sim->policy.keep_trying = false;
		sim_checkout(sim);
		sim_fault_status(sim, losses[i].status);
		sim_run(sim, HOUR);
		sim_ok(sim, "waiting held lost", "or not, if that is not wished");
		ok(sim->calls[KEYRIGHT_CALL_CHECKOUT] == 1, "nothing is asked then");
		sim_free(sim);
	}
}

static void
test_revoked(void)
{
	Sim		   *sim = held();

	sim_grant(sim)->revoked = true;
	sim_run(sim, HOUR);
	sim_ok(sim, "waiting held revoked", "a revoked seat is not taken again");
	ok(sim_left(sim) == 0 && sim->calls[KEYRIGHT_CALL_CHECKOUT] == 1 &&
	   !sim->events[2].trying, "nothing is asked any more");
	ok(sim_checkout(sim) == KEYRIGHT_OK,
	   "the application may ask again by itself");
	sim_ok(sim, "waiting held revoked waiting held", "and has a new seat");
	sim_checkin(sim);
	ok(sim_live(sim) == 0 && sim->grant_count == 2, "that it gives back");
	sim_free(sim);
}

static void
test_waiting(void)
{
	Sim		   *sim = sim_new();
	int64_t		began = sim->t;

	sim->others = 1;
	ok(sim_checkout(sim) == KEYRIGHT_ERR_NO_SEATS &&
	   sim->calls[KEYRIGHT_CALL_CHECKOUT] == 1,
	   "without waiting one question is asked");
	sim_ok(sim, "waiting idle", "and nothing is held");
	sim_free(sim);

	sim = sim_new();
	sim->others = 1;
	sim->policy.wait = 30 * SECOND_NS;
	ok(sim_checkout(sim) == KEYRIGHT_ERR_NO_SEATS, "waiting may be in vain");
	ok(sim->t - began >= 30 * SECOND_NS && sim->t - began < 31 * SECOND_NS,
	   "it lasts as long as it was wished");
	ok(sim->calls[KEYRIGHT_CALL_CHECKOUT] >= 3 &&
	   sim->calls[KEYRIGHT_CALL_CHECKOUT] <= 15,
	   "without asking all the time: %d",
	   sim->calls[KEYRIGHT_CALL_CHECKOUT]);
	sim_ok(sim, "waiting waiting idle", "the wait and its reason are told");
	sim_free(sim);

	sim = sim_new();
	sim->policy.wait = TIME_MAX;
	for (int i = 0; i < 20; i++)
		sim_fault(sim, FAULT_NO_CONNECTION, 0);
	ok(sim_checkout(sim) == KEYRIGHT_OK,
	   "a server that is not there is awaited");
	sim_ok(sim, "waiting waiting held", "this is told, too");
	sim_free(sim);
}

static void
say_retry_in_7_s(Sim *sim, KeyrightAnswer *answer)
{
	(void) sim;
	answer->retry_after_ms = 7000;
}

static void
test_retry_at(void)
{
	Sim		   *sim = sim_new();

	sim->others = 1;
	sim->policy.wait = 6 * SECOND_NS;
	sim_fault_altered(sim, say_retry_in_7_s);
	sim_checkout(sim);
	ok(sim->calls[KEYRIGHT_CALL_CHECKOUT] == 2 &&
	   sim->shortest_gap >= 5 * SECOND_NS,
	   "nothing is asked before the time that the server named, "
	   "but for a last look");
	sim_free(sim);
}

static void
test_lost_checkout_reply(void)
{
	Sim		   *sim = sim_new();

	sim->policy.wait = MINUTE;
	sim_fault(sim, FAULT_LOST_REPLY, 0);
	ok(sim_checkout(sim) == KEYRIGHT_OK && sim->grant_count == 1,
	   "a lost reply costs no second seat, and locks nobody out");
	sim_free(sim);

	sim = sim_new();
	sim_fault(sim, FAULT_LOST_REPLY, 0);
	ok(sim_checkout(sim) == KEYRIGHT_ERR_UNREACHABLE && sim_live(sim) == 1,
	   "a seat may be ours without our knowing");
	ok(sim_checkin(sim) == KEYRIGHT_OK && sim_live(sim) == 0,
	   "it is given back all the same");
	sim_free(sim);

	sim = sim_new();
	sim_fault(sim, FAULT_LOST_REPLY, 0);
	sim_checkout(sim);
	ok(sim_checkout(sim) == KEYRIGHT_OK && sim->grant_count == 1,
	   "or had by asking again");
	sim_free(sim);

	/* After a lapse: the old seat is known, its successor is not. */
	sim = held();
	sim->t += 2 * MINUTE;
	sim_fault(sim, FAULT_LOST_REPLY, 0);
	sim_run(sim, SECOND_NS);
	ok(sim->grant_count == 2 && sim_left(sim) == 0 && sim_live(sim) == 1,
	   "the seat of a lost reply has a successor that nobody knows of");
	ok(sim_checkin(sim) == KEYRIGHT_OK && sim_live(sim) == 0,
	   "which is given back as well");
	sim_free(sim);
}

static void
test_interrupt(void)
{
	Sim		   *sim = sim_new();
	Clocks		now;

	sim->others = 1;
	sim->policy.wait = TIME_MAX;
	now = sim_clocks(sim);
	keeper_ask(&sim->keeper, &now);
	sim_run(sim, 20 * SECOND_NS);
	now = sim_clocks(sim);
	keeper_interrupt(&sim->keeper, &now);
	sim_run(sim, SECOND_NS);
	ok(sim->keeper.outcome.kind == KEYRIGHT_ERR_INTERRUPTED,
	   "waiting can be interrupted");
	sim_ok(sim, "waiting waiting idle", "and then is over");
	sim_free(sim);

	sim = sim_new();
	sim->policy.wait = TIME_MAX;
	sim_fault(sim, FAULT_LOST_REPLY, 0);
	now = sim_clocks(sim);
	keeper_ask(&sim->keeper, &now);
	sim_run(sim, SECOND_NS);
	now = sim_clocks(sim);
	keeper_interrupt(&sim->keeper, &now);
	sim_run(sim, SECOND_NS);
	ok(sim->keeper.outcome.kind == KEYRIGHT_ERR_INTERRUPTED &&
	   sim->grant_count == 1 && sim_live(sim) == 0,
	   "a seat that was won unknowingly goes back then");
	sim_free(sim);
}

static void
test_checkin_in_trouble(void)
{
	Sim		   *sim = held();
	int64_t		began;

	sim_fault(sim, FAULT_NO_CONNECTION, 0);
	sim_fault_sqlstate(sim, "55P03");
	ok(sim_checkin(sim) == KEYRIGHT_OK && sim_live(sim) == 0,
	   "giving back is tried again");
	sim_free(sim);

	sim = held();
	sim_endless(sim, FAULT_NO_CONNECTION);
	began = sim->t;
	ok(sim_checkin(sim) == KEYRIGHT_ERR_UNREACHABLE &&
	   sim->t - began <= 5 * SECOND_NS + 100 * MS_NS,
	   "but not longer than it may take");
	sim_ok(sim, "waiting held released", "it is released here either way");
	sim_free(sim);

	sim = held();
	sim_run(sim, MINUTE);
	sim->t += HOUR;
	ok(sim_checkin(sim) == KEYRIGHT_OK,
	   "a lapsed seat is given back in peace");
	sim_free(sim);

	sim = held();
	sim->policy.release_limit = 0;
	ok(sim_checkin(sim) == KEYRIGHT_ERR_UNREACHABLE &&
	   sim->calls[KEYRIGHT_CALL_CHECKIN] == 0,
	   "with no time for it the server is not told");
	sim_free(sim);
}

/* The license ends: the server signs a sooner end than before. */
static void
test_license_ends(void)
{
	Sim		   *sim = held();

	sim_run(sim, 30 * SECOND_NS);
	sim->valid_until_us = sim_clocks(sim).wall / 1000 + 35 * LEASE_SECOND;
	sim->keeper.due = sim->t;
	sim_run(sim, SECOND_NS);
	ok(sim_left(sim) < 35 * SECOND_NS, "a newer, shorter lease replaces a "
	   "longer one");
	sim_run(sim, 3 * SECOND_NS);
	ok(sim->broken == NULL, "so nobody runs past the end of a license");
	sim_free(sim);
}

/* Leases of months and of seconds alike. */
static void
test_lengths(void)
{
	static const int64_t ttls[] = {SECOND_NS, 2 * SECOND_NS, 5 * SECOND_NS,
	HOUR, 7 * DAY, 3650 * DAY};

	for (size_t i = 0; i < COUNT(ttls); i++)
	{
		Sim		   *sim = sim_new();

		sim->ttl = ttls[i];
		sim_checkout(sim);
		sim_run(sim, 20 * ttls[i]);
		sim_ok(sim, "waiting held", "kept for twenty times its length");
		sim_free(sim);
	}
}

void
test_keeper(void)
{
	test_quiet_life();
	test_lost_beats();
	test_retry_comes_sooner();
	test_three_tries();
	test_late_replies();
	test_outages();
	test_regains_within_skew();
	test_sleep();
	test_sleep_during_beat();
	test_wrong_clocks();
	test_clock_set_right();
	test_clock_set_back();
	test_clock_set_forward();
	test_clock_leap_right_after_beat();
	test_server_clock();
	test_losses();
	test_revoked();
	test_waiting();
	test_retry_at();
	test_lost_checkout_reply();
	test_interrupt();
	test_checkin_in_trouble();
	test_license_ends();
	test_lengths();
}
