/*
 * test_walk.c
 *		Random faults, sleeps, clocks and commands for a long time: what must
 *		always hold holds, and in the end nothing is left behind.
 */
#include "client_test.h"

#define WALKS				400
#define STEPS				60

static void
spoil(Sim *sim, KeyrightAnswer *answer)
{
	(void) sim;
	answer->token[0] = '\0';
}

static void
random_fault(Sim *sim)
{
	static const char *const states[] = {
		"57P01", "55P03", "40001", "25006", "KR002", "KR005", "28P01"
	};

	switch (random_number(10))
	{
		case 9:
			sim_fault_altered(sim, spoil);
			break;
		case 0:
			sim_fault_sqlstate(sim, states[random_number(COUNT(states))]);
			break;
		case 1:
			sim_fault(sim, FAULT_LOST_REPLY, 0);
			break;
		case 2:
			sim_fault(sim, FAULT_LOST_REQUEST, 0);
			break;
		case 3:
			sim_fault(sim, FAULT_LATE_REPLY,
					  (int64_t) random_number(6 * SECOND_NS));
			break;
		case 4:
			sim_fault(sim, FAULT_SLOW_REQUEST,
					  (int64_t) random_number(6 * SECOND_NS));
			break;
		case 5:
			sim_fault(sim, FAULT_SLEEP,
					  (int64_t) random_number(100 * SECOND_NS));
			break;
		default:
			sim_fault(sim, FAULT_NO_CONNECTION, 0);
	}
}

static void
random_step(Sim *sim)
{
	switch (random_number(8))
	{
		case 0:
			for (uint64_t n = random_number(12); n > 0; n--)
				random_fault(sim);
			break;
		case 1:
			sim_heal(sim);
			break;
		case 2:
			/* The machine sleeps. */
			sim->t += (int64_t) random_number(3 * sim->ttl);
			break;
		case 3:
			sim->wall_offset += (int64_t) random_number(200 * SECOND_NS) -
				100 * SECOND_NS;
			break;
		case 4:
			sim->others = (int) random_number(2);
			break;
		case 5:
			if (random_number(8) == 0 && sim_grant(sim) != NULL)
				sim_grant(sim)->revoked = true;
			break;
		default:
			break;
	}
	sim_run(sim, (int64_t) random_number(sim->ttl));
}

static void
random_command(Sim *sim)
{
	bool		resting = sim->keeper.phase == PHASE_REST;

	if (resting && !sim->keeper.live)
		sim_checkout(sim);
	else if (random_number(10) == 0)
		sim_checkin(sim);
}

static const char *
walk(void)
{
	Sim		   *sim = sim_new();
	const char *broken;

	sim->ttl = (int64_t) (2 + random_number(100)) * SECOND_NS +
		(int64_t) random_number(SECOND_NS);
	sim->skew = (int64_t) random_number(6) * SECOND_NS;
	sim->seats = 1 + (int) random_number(2);
	sim->policy.wait = (int64_t) random_number(30) * SECOND_NS;
	for (int i = 0; i < STEPS && sim->broken == NULL; i++)
	{
		random_command(sim);
		random_step(sim);
	}

	/* Health, and then the end. */
	sim_heal(sim);
	sim->others = 0;
	sim_run(sim, 3 * sim->ttl + 200 * SECOND_NS);
	if (sim->keeper.phase == PHASE_REGAINING)
		sim->broken = "does not regain its seat";
	sim_checkin(sim);
	if (sim->keeper.outcome.kind != KEYRIGHT_OK || sim_left(sim) != 0)
		sim->broken = "cannot give its seat back";
	if (sim_live(sim) > 0 && sim->broken == NULL)
		sim->broken = "leaves a seat behind";
	broken = sim->broken;
	sim_free(sim);
	return broken;
}

void
test_walk(void)
{
	const char *first = NULL;
	int			broken = 0;

	for (int i = 0; i < WALKS; i++)
	{
		const char *what = walk();

		if (what != NULL)
		{
			broken++;
			first = first ? first : what;
		}
	}
	ok(broken == 0, "%d random walks: %d broken%s%s", WALKS, broken,
	   first ? ", " : "", first ? first : "");
}
