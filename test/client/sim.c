/*
 * sim.c
 *		A world for the keeper, see sim.h.
 */
#include "sim.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define BOOT				(INT64_C(5000) * SECOND_NS)
#define EPOCH				(SAMPLE_NOW * 1000 - BOOT)	/* true 1970 time */
#define ROUND_TRIP			(2 * MS_NS)

Sim *
sim_new(void)
{
	Sim		   *sim = calloc(1, sizeof(*sim));

	if (sim == NULL)
		abort();
	sim->t = BOOT;
	sim->seats = 1;
	sim->ttl = 60 * SECOND_NS;
	sim->skew = 5 * SECOND_NS;
	sim->valid_until_us = INT64_MAX / 4;
	sim->shortest_gap = TIME_MAX;
	sim->policy.terms.keys = *sample_set();
	strcpy(sim->policy.terms.license, "acme");
	strcpy(sim->policy.terms.holder, "zoe@laptop");
	sim->policy.request_limit = 5 * SECOND_NS;
	sim->policy.release_limit = 5 * SECOND_NS;
	sim->policy.keep_trying = true;
	sample_key();
	keeper_init(&sim->keeper, &sim->policy, random_number(0));
	return sim;
}

void
sim_free(Sim *sim)
{
	free(sim);
}

Clocks
sim_clocks(const Sim *sim)
{
	Clocks		now = {
		.wall = EPOCH + sim->t + sim->wall_offset,
		.boot = sim->t
	};

	return now;
}

int64_t
sim_left(const Sim *sim)
{
	Clocks		now = sim_clocks(sim);

	return sim->keeper.live ? lease_left(&sim->keeper.lease, &now) : 0;
}

/* ----- the server ----- */

static int64_t
server_us(const Sim *sim)
{
	return (EPOCH + sim->t + sim->server_offset) / 1000;
}

static bool
grant_live(const Sim *sim, const Grant *grant)
{
	return !grant->revoked && !grant->returned &&
		lease_is_live(grant->exp_us, sim->skew / 1000, server_us(sim));
}

int
sim_live(const Sim *sim)
{
	int			live = 0;

	for (int i = 0; i < sim->grant_count; i++)
		live += grant_live(sim, &sim->grants[i]);
	return live;
}

Grant *
sim_grant(Sim *sim)
{
	return sim->grant_count > 0 ? &sim->grants[sim->grant_count - 1] : NULL;
}

static void
sign(Sim *sim, Grant *grant, KeyrightAnswer *answer)
{
	LeaseClaims claims;

	memset(&claims, 0, sizeof(claims));
	strcpy(claims.license, sim->policy.terms.license);
	strcpy(claims.holder, sim->policy.terms.holder);
	memcpy(claims.seat_id, grant->id, SEAT_ID_SIZE);
	claims.slot = grant->slot;
	claims.issued_at = grant->issued_us / LEASE_SECOND;
	claims.expires_at = grant->exp_us / LEASE_SECOND;
	answer->issued_at_us = grant->issued_us;
	seat_id_print(answer->seat_id, grant->id);
	if (token_write(answer->token, &claims, sample_key()) == 0)
		abort();
}

static void
renew(Sim *sim, Grant *grant)
{
	int64_t		end = lease_end(server_us(sim), sim->ttl / 1000,
								sim->valid_until_us);

	if (end < grant->exp_us)
		end = grant->exp_us;
	if (end > sim->valid_until_us)
		end = sim->valid_until_us / LEASE_SECOND * LEASE_SECOND;
	grant->issued_us = server_us(sim);
	grant->exp_us = end;
}

static void
server_checkout(Sim *sim, KeyrightAnswer *answer)
{
	Grant	   *grant = sim_grant(sim);

	answer->status = KEYRIGHT_STATUS_GRANTED;
	for (int i = 0; i < sim->grant_count; i++)
		if (sim->grants[i].request == sim->request &&
			grant_live(sim, &sim->grants[i]))
		{
			renew(sim, &sim->grants[i]);
			sign(sim, &sim->grants[i], answer);
			return;
		}
	if (sim_live(sim) + sim->others >= sim->seats ||
		sim->grant_count == GRANTS_MAX)
	{
		answer->status = KEYRIGHT_STATUS_NO_SEATS;
		answer->retry_after_ms = sim_live(sim) > 0 ?
			(grant->exp_us - server_us(sim)) / 1000 + sim->skew / MS_NS : -1;
		return;
	}
	grant = &sim->grants[sim->grant_count++];
	memset(grant, 0, sizeof(*grant));
	grant->slot = 1 + sim->others;
	randombytes_buf(grant->id, SEAT_ID_SIZE);
	seat_id_make(grant->id, grant->slot);
	grant->request = sim->request;
	renew(sim, grant);
	sign(sim, grant, answer);
}

static Grant *
find_grant(Sim *sim)
{
	uint8_t		id[SEAT_ID_SIZE];

	if (!seat_id_parse(id, sim->keeper.seat_id, strlen(sim->keeper.seat_id)))
		abort();
	for (int i = 0; i < sim->grant_count; i++)
		if (seat_id_equal(sim->grants[i].id, id))
			return &sim->grants[i];
	return NULL;
}

static void
server_heartbeat(Sim *sim, KeyrightAnswer *answer)
{
	Grant	   *grant = find_grant(sim);

	if (grant == NULL || grant->returned)
		answer->status = KEYRIGHT_STATUS_LOST_UNKNOWN;
	else if (grant->revoked)
		answer->status = KEYRIGHT_STATUS_LOST_REVOKED;
	else if (!grant_live(sim, grant))
		answer->status = KEYRIGHT_STATUS_LOST_EXPIRED;
	else
	{
		answer->status = KEYRIGHT_STATUS_RENEWED;
		renew(sim, grant);
		sign(sim, grant, answer);
	}
}

static void
server_checkin(Sim *sim, KeyrightAnswer *answer)
{
	Grant	   *grant = find_grant(sim);
	bool		live = grant != NULL && grant_live(sim, grant);

	answer->status = live ? KEYRIGHT_STATUS_RELEASED :
		KEYRIGHT_STATUS_NOT_HELD;
	if (live)
		grant->returned = true;
}

static void
server(Sim *sim, KeyrightCall call, KeyrightAnswer *answer)
{
	if (call == KEYRIGHT_CALL_CHECKOUT)
		server_checkout(sim, answer);
	else if (call == KEYRIGHT_CALL_HEARTBEAT)
		server_heartbeat(sim, answer);
	else
		server_checkin(sim, answer);
}

/* ----- what goes wrong ----- */

static Fault *
add_fault(Sim *sim, FaultKind kind)
{
	Fault	   *fault = &sim->faults[(sim->fault_first + sim->fault_count++) %
									 FAULTS_MAX];

	memset(fault, 0, sizeof(*fault));
	fault->kind = kind;
	return fault;
}

void
sim_fault(Sim *sim, FaultKind kind, int64_t delay)
{
	add_fault(sim, kind)->delay = delay;
}

/* From now on every question. */
void
sim_endless(Sim *sim, FaultKind kind)
{
	sim_fault(sim, kind, 0);
	sim->endless = true;
}

void
sim_heal(Sim *sim)
{
	sim->fault_count = 0;
	sim->endless = false;
}

void
sim_fault_sqlstate(Sim *sim, const char *sqlstate)
{
	add_fault(sim, FAULT_SQLSTATE)->sqlstate = sqlstate;
}

void
sim_fault_status(Sim *sim, KeyrightStatus status)
{
	add_fault(sim, FAULT_STATUS)->status = status;
}

void
sim_fault_altered(Sim *sim, void (*alter) (Sim *, KeyrightAnswer *))
{
	add_fault(sim, FAULT_ALTERED)->alter = alter;
}

static Fault
take_fault(Sim *sim)
{
	Fault		fault = {.kind = FAULT_NONE};

	if (sim->fault_count > 0)
	{
		fault = sim->faults[sim->fault_first];
		if (sim->endless && sim->fault_count == 1)
			return fault;
		sim->fault_first = (sim->fault_first + 1) % FAULTS_MAX;
		sim->fault_count--;
	}
	return fault;
}

static void
silence(Sim *sim, KeyrightAnswer *answer, int64_t after)
{
	memset(answer, 0, sizeof(*answer));
	answer->issued_at_us = answer->retry_after_ms = -1;
	sim->t += after;
}

/* One question and its way there and back. */
static void
ask(Sim *sim, const Action *action, KeyrightAnswer *answer)
{
	Fault		fault = take_fault(sim);
	int64_t		limit = action->limit;

	silence(sim, answer, ROUND_TRIP / 2);
	if (fault.kind == FAULT_SLOW_REQUEST)
	{
		if (fault.delay > limit)
		{
			silence(sim, answer, limit);
			return;
		}
		sim->t += fault.delay;
	}
	switch (fault.kind)
	{
		case FAULT_NO_CONNECTION:
			return;
		case FAULT_LOST_REQUEST:
			silence(sim, answer, limit);
			return;
		case FAULT_SQLSTATE:
			strcpy(answer->sqlstate, fault.sqlstate);
			return;
		case FAULT_STATUS:
			answer->status = fault.status;
			return;
		default:
			break;
	}
	server(sim, action->call, answer);
	if (fault.kind == FAULT_LOST_REPLY ||
		(fault.kind == FAULT_LATE_REPLY && fault.delay > limit))
		silence(sim, answer, limit);
	else if (fault.kind == FAULT_LATE_REPLY || fault.kind == FAULT_SLEEP)
		sim->t += fault.delay;
	else if (fault.kind == FAULT_ALTERED)
		fault.alter(sim, answer);
	sim->last_answer = *answer;
	sim->t += ROUND_TRIP / 2;
}

/* ----- what must always hold ----- */

static void
break_promise(Sim *sim, const char *what)
{
	if (sim->broken == NULL)
		sim->broken = what;
}

/*
 * Whoever may run has a lease that the server counts, and the server counts
 * no other of ours; it goes on counting it until our own end.  The server's
 * clock may have been set meanwhile: then the first rule does not bind us.
 */
static void
check(Sim *sim)
{
	int64_t		left = sim_left(sim);
	Grant	   *grant;

	if (left == 0 || sim->server_offset != 0)
		return;
	grant = find_grant(sim);
	if (grant == NULL)
		break_promise(sim, "runs on a lease that the server never gave");
	else if (!grant->revoked && !grant->returned &&
			 server_us(sim) + left / 1000 > grant->exp_us)
		break_promise(sim, "runs longer than the server counts");
	else if (sim_live(sim) > 1)
		break_promise(sim, "holds two leases");
}

static void
take_notices(Sim *sim)
{
	KeyrightEvent event;

	while (keeper_notice(&sim->keeper, &event))
	{
		const KeyrightEvent *last = &sim->last;

		if (event.number != last->number + 1 ||
			event.before != last->state ||
			(event.state == event.before &&
			 event.error.kind == last->error.kind &&
			 strcmp(event.error.sqlstate, last->error.sqlstate) == 0))
			break_promise(sim, "an event is out of order or told twice");
		sim->last = event;
		if (sim->event_count < EVENTS_MAX)
			sim->events[sim->event_count++] = event;
	}
	check(sim);
}

/* ----- time goes on ----- */

static void
do_call(Sim *sim, const Action *action)
{
	KeyrightAnswer answer;
	Clocks		sent = sim_clocks(sim);
	Clocks		now;

	if (action->call == KEYRIGHT_CALL_CHECKOUT && action->fresh_id)
		sim->request++;
	if (action->call == KEYRIGHT_CALL_CHECKOUT && sim_left(sim) > 0)
		break_promise(sim, "asks for a seat while it holds one");
	if (sim->last_call_at > 0 &&
		sim->t - sim->last_call_at < sim->shortest_gap)
		sim->shortest_gap = sim->t - sim->last_call_at;
	if (action->limit > sim->longest_limit)
		sim->longest_limit = action->limit;
	if (action->limit <= 0)
		break_promise(sim, "a question without time");
	if (action->call == KEYRIGHT_CALL_HEARTBEAT &&
		sim->t + action->limit >= sim->keeper.lease.ends_boot)
		break_promise(sim, "a beat that may outlast the lease");
	sim->calls[action->call]++;
	ask(sim, action, &answer);
	now = sim_clocks(sim);
	sim->last_call_at = sim->t;
	keeper_answer(&sim->keeper, action->call, &answer, &sent, &now);
	take_notices(sim);
}

static bool
step(Sim *sim, int64_t until)
{
	Clocks		now = sim_clocks(sim);
	Action		action;

	keeper_time(&sim->keeper, &now);
	take_notices(sim);
	action = keeper_next(&sim->keeper, &now);
	take_notices(sim);
	switch (action.kind)
	{
		case ACTION_REST:
			return false;
		case ACTION_SLEEP:
			if (action.until <= sim->t)
				break_promise(sim, "sleeps until a time that is past");
			sim->t = action.until < until ? action.until : until;
			break;
		case ACTION_CALL:
			do_call(sim, &action);
			break;
	}
	return true;
}

void
sim_run(Sim *sim, int64_t time)
{
	int64_t		until = sim->t + time;

	while (sim->t < until)
		if (!step(sim, until))
			sim->t = until;
	{
		Clocks		now = sim_clocks(sim);

		keeper_time(&sim->keeper, &now);
		take_notices(sim);
	}
}

static void
run_command(Sim *sim)
{
	take_notices(sim);
	while ((sim->keeper.phase == PHASE_ASKING ||
			sim->keeper.phase == PHASE_RETURNING) && step(sim, TIME_MAX))
		;
	take_notices(sim);
}

KeyrightErrorKind
sim_checkout(Sim *sim)
{
	Clocks		now = sim_clocks(sim);

	keeper_ask(&sim->keeper, &now);
	run_command(sim);
	return sim->keeper.outcome.kind;
}

KeyrightErrorKind
sim_checkin(Sim *sim)
{
	Clocks		now = sim_clocks(sim);

	keeper_give_back(&sim->keeper, &now);
	run_command(sim);
	return sim->keeper.outcome.kind;
}

/* ----- telling ----- */

const char *
sim_story(const Sim *sim, int from)
{
	static char story[1024];

	story[0] = '\0';
	for (int i = from; i < sim->event_count; i++)
	{
		const char *name = keyright_state_name(sim->events[i].state);

		if (strlen(story) + strlen(name) + 2 > sizeof(story))
			break;
		if (story[0] != '\0')
			strcat(story, " ");
		strcat(story, name);
	}
	return story;
}

bool
sim_ok(Sim *sim, const char *story, const char *what)
{
	const char *real = sim_story(sim, 0);
	bool		good = strcmp(real, story) == 0 && sim->broken == NULL;

	ok(good, "%s", what);
	if (strcmp(real, story) != 0)
		printf("# expected: %s\n# happened: %s\n", story, real);
	if (sim->broken != NULL)
		printf("# broken: %s\n", sim->broken);
	return good;
}
