/*
 * test_answers.c
 *		Silence keeps a seat until its signed end, an answer acts at once, and
 *		an answer that is not signed does neither; and the loop goes on after
 *		every one of them.
 *
 * The table is printed, so that a log shows what each error led to and when.
 */
#include "client_test.h"

typedef struct Case
{
	const char *sqlstate;		/* empty: nobody answers */
	KeyrightErrorKind kind;
	KeyrightErrorClass class;
} Case;

static const Case cases[] = {
	{"", KEYRIGHT_ERR_UNREACHABLE, KEYRIGHT_CLASS_SILENCE},
	{"08000", KEYRIGHT_ERR_UNREACHABLE, KEYRIGHT_CLASS_SILENCE},
	{"08006", KEYRIGHT_ERR_UNREACHABLE, KEYRIGHT_CLASS_SILENCE},
	{"08P01", KEYRIGHT_ERR_UNREACHABLE, KEYRIGHT_CLASS_SILENCE},
	{"25006", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"40001", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"40P01", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"53100", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"53300", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"55P03", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"57014", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"57P01", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"57P02", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"57P03", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"57P99", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"58030", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"XX000", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"XX001", KEYRIGHT_ERR_BUSY, KEYRIGHT_CLASS_SILENCE},
	{"KR005", KEYRIGHT_ERR_NO_KEY, KEYRIGHT_CLASS_UNSIGNED},
	{"KR008", KEYRIGHT_ERR_NO_KEY, KEYRIGHT_CLASS_UNSIGNED},
	{"KR001", KEYRIGHT_ERR_LICENSE, KEYRIGHT_CLASS_ANSWER},
	{"KR002", KEYRIGHT_ERR_LICENSE, KEYRIGHT_CLASS_ANSWER},
	{"KR003", KEYRIGHT_ERR_LICENSE, KEYRIGHT_CLASS_ANSWER},
	{"KR004", KEYRIGHT_ERR_LICENSE, KEYRIGHT_CLASS_ANSWER},
	{"KR006", KEYRIGHT_ERR_REFUSED, KEYRIGHT_CLASS_ANSWER},
	{"28000", KEYRIGHT_ERR_LOGIN, KEYRIGHT_CLASS_ANSWER},
	{"28P01", KEYRIGHT_ERR_LOGIN, KEYRIGHT_CLASS_ANSWER},
	{"3D000", KEYRIGHT_ERR_LOGIN, KEYRIGHT_CLASS_ANSWER},
	{"42501", KEYRIGHT_ERR_LOGIN, KEYRIGHT_CLASS_ANSWER},
	{"42883", KEYRIGHT_ERR_REFUSED, KEYRIGHT_CLASS_ANSWER},
	{"22023", KEYRIGHT_ERR_REFUSED, KEYRIGHT_CLASS_ANSWER},
	{"P0001", KEYRIGHT_ERR_REFUSED, KEYRIGHT_CLASS_ANSWER},
};

static const char *
name(const Case *c)
{
	return c->sqlstate[0] != '\0' ? c->sqlstate : "(none)";
}

static void
test_kinds(void)
{
	for (size_t i = 0; i < COUNT(cases); i++)
	{
		const Case *c = &cases[i];
		KeyrightErrorKind kind = error_kind_of_sqlstate(c->sqlstate);

		ok(kind == c->kind && keyright_error_class(kind) == c->class,
		   "%s is %s", name(c), keyright_error_name(c->kind));
	}
}

static const KeyrightEvent *
event(const Sim *sim, int number)
{
	static const KeyrightEvent none;

	return sim->event_count >= number ? &sim->events[number - 1] : &none;
}

/* Once during a beat, and then health. */
static void
test_once(const Case *c)
{
	Sim		   *sim = sim_new();
	KeyrightState then = c->class == KEYRIGHT_CLASS_SILENCE ?
		KEYRIGHT_RETRYING : KEYRIGHT_REFUSED;
	bool		kept = c->class != KEYRIGHT_CLASS_ANSWER;
	const KeyrightEvent *fall;
	const KeyrightEvent *rise;

	sim_checkout(sim);
	sim_fault_sqlstate(sim, c->sqlstate);
	sim_run(sim, 10 * 60 * SECOND_NS);
	fall = event(sim, 3);
	rise = event(sim, 4);
	ok(fall->state == then && fall->error.kind == c->kind &&
	   strcmp(fall->error.sqlstate, c->sqlstate) == 0,
	   "%s during a beat leads to %s", name(c), keyright_state_name(then));
	ok((fall->left_ns > 0) == kept, "%s: %s", name(c),
	   kept ? "the seat is still held" : "it acts at once");
	ok(rise->state == (kept ? KEYRIGHT_HELD : KEYRIGHT_REGAINED) &&
	   rise->left_ns > 0, "%s: the loop goes on", name(c));
	ok(sim->event_count == 4 && sim->grant_count == 1 &&
	   sim->broken == NULL, "%s: with the same seat", name(c));
	sim_free(sim);
}

/* For longer than the lease. */
static void
test_for_long(const Case *c)
{
	Sim		   *sim = sim_new();
	int64_t		ends;
	const KeyrightEvent *end;

	sim_checkout(sim);
	sim->endless = true;
	sim_fault_sqlstate(sim, c->sqlstate);
	ends = sim->keeper.lease.ends_boot;
	while (sim_left(sim) > 0)
		sim_run(sim, 10 * MS_NS);
	ok((sim->t >= ends) == (c->class != KEYRIGHT_CLASS_ANSWER) &&
	   sim->t < ends + SECOND_NS,
	   "%s again and again: the right to run ends %s", name(c),
	   sim->t >= ends ? "with the lease" : "at once");
	printf("# %-6s %-12s %-9s left %5.1f s after the first error\n",
		   name(c), keyright_error_name(c->kind),
		   keyright_state_name(event(sim, 3)->state),
		   (double) event(sim, 3)->left_ns / 1e9);
	end = event(sim, c->class == KEYRIGHT_CLASS_ANSWER ? 3 : 4);
	ok(end->left_ns == 0 && end->state == (c->class == KEYRIGHT_CLASS_ANSWER ?
										   KEYRIGHT_REFUSED : KEYRIGHT_LOST),
	   "%s: that is told", name(c));
	sim_heal(sim);
	sim_run(sim, 120 * SECOND_NS);
	ok(sim_left(sim) > 0 && sim->keeper.state == KEYRIGHT_REGAINED &&
	   sim->broken == NULL && sim_live(sim) == 1,
	   "%s: regained when it is over", name(c));
	sim_free(sim);
}

static void
test_at_checkout(const Case *c)
{
	Sim		   *sim = sim_new();
	bool		awaited = c->class == KEYRIGHT_CLASS_SILENCE;

	sim->policy.wait = 30 * SECOND_NS;
	sim_fault_sqlstate(sim, c->sqlstate);
	ok(sim_checkout(sim) == (awaited ? KEYRIGHT_OK : c->kind),
	   "%s at the check-out is %s", name(c),
	   awaited ? "awaited" : "its answer");
	ok(awaited || sim->keeper.state == KEYRIGHT_REFUSED,
	   "%s: the state says so", name(c));
	sim_free(sim);
}

/* Silence does not mend what was refused, nor does it make it worse. */
static void
test_mixed(void)
{
	Sim		   *sim = sim_new();

	sim_checkout(sim);
	sim_fault_sqlstate(sim, "KR002");
	for (int i = 0; i < 5; i++)
		sim_fault(sim, FAULT_NO_CONNECTION, 0);
	sim_fault_sqlstate(sim, "28P01");
	sim_run(sim, 300 * SECOND_NS);
	sim_ok(sim, "waiting held refused refused regained",
		   "a new reason for a refusal is told, silence is not");
	ok(event(sim, 4)->error.kind == KEYRIGHT_ERR_LOGIN, "and which it is");
	sim_free(sim);

	/* One kind of error, two reasons: each has its own sentence. */
	sim = sim_new();
	sim_checkout(sim);
	sim_fault_sqlstate(sim, "KR002");
	sim_fault_sqlstate(sim, "KR001");
	sim_fault_sqlstate(sim, "KR001");
	sim_run(sim, 300 * SECOND_NS);
	sim_ok(sim, "waiting held refused refused regained",
		   "so is another SQLSTATE of the same kind, and each once");
	ok(strcmp(event(sim, 4)->error.sqlstate, "KR001") == 0,
	   "and which it is");
	sim_free(sim);
}

/* ----- tokens ----- */

static LeaseClaims
claims_of(Sim *sim)
{
	LeaseClaims claims;
	Grant	   *grant = sim_grant(sim);

	memset(&claims, 0, sizeof(claims));
	strcpy(claims.license, "acme");
	strcpy(claims.holder, "zoe@laptop");
	memcpy(claims.seat_id, grant->id, SEAT_ID_SIZE);
	claims.slot = grant->slot;
	claims.issued_at = grant->issued_us / LEASE_SECOND;
	claims.expires_at = grant->exp_us / LEASE_SECOND;
	return claims;
}

static void
no_token(Sim *sim, KeyrightAnswer *answer)
{
	(void) sim;
	answer->token[0] = '\0';
}

static void
noise(Sim *sim, KeyrightAnswer *answer)
{
	(void) sim;
	random_bytes((uint8_t *) answer->token, sizeof(answer->token));
	answer->token[sizeof(answer->token) - 1] = '\0';
}

static void
changed_token(Sim *sim, KeyrightAnswer *answer)
{
	size_t		size = strlen(answer->token);

	(void) sim;
	if (size > 10)
		answer->token[size - 10] ^= 1;
}

static void
other_key(Sim *sim, KeyrightAnswer *answer)
{
	LeaseClaims claims = claims_of(sim);
	uint8_t		seed[SEED_SIZE] = {1};
	SigningKey	key;

	signing_key_init(&key, seed);
	token_write(answer->token, &claims, &key);
}

static void
other_license(Sim *sim, KeyrightAnswer *answer)
{
	LeaseClaims claims = claims_of(sim);

	strcpy(claims.license, "acme2");
	token_write(answer->token, &claims, sample_key());
}

static void
other_holder(Sim *sim, KeyrightAnswer *answer)
{
	LeaseClaims claims = claims_of(sim);

	strcpy(claims.holder, "max@laptop");
	token_write(answer->token, &claims, sample_key());
}

static void
other_seat(Sim *sim, KeyrightAnswer *answer)
{
	LeaseClaims claims = claims_of(sim);

	claims.seat_id[15] ^= 1;
	token_write(answer->token, &claims, sample_key());
}

static void
older(Sim *sim, KeyrightAnswer *answer)
{
	LeaseClaims claims = claims_of(sim);

	claims.issued_at = sim->keeper.lease.issued_at - 1;
	claims.expires_at = sim->keeper.lease.expires_at - 1;
	token_write(answer->token, &claims, sample_key());
}

static void
wrong_status(Sim *sim, KeyrightAnswer *answer)
{
	(void) sim;
	answer->status = KEYRIGHT_STATUS_RELEASED;
}

static const struct
{
	const char *what;
	void		(*alter) (Sim *, KeyrightAnswer *);
	bool		at_checkout;	/* bad there too */
}			forgeries[] =
{
	{"no token", no_token, true},
	{"noise", noise, true},
	{"a changed token", changed_token, true},
	{"a token of another key", other_key, true},
	{"a token for another license", other_license, true},
	{"a token for another holder", other_holder, true},
	{"a token for another seat", other_seat, false},
	{"a token that is older than ours", older, false},
	{"an answer that does not fit", wrong_status, true},
};

static void
test_forgery_in_beat(size_t i)
{
	Sim		   *sim = sim_new();

	sim_checkout(sim);
	sim_fault_altered(sim, forgeries[i].alter);
	sim_run(sim, 120 * SECOND_NS);
	sim_ok(sim, "waiting held refused held", forgeries[i].what);
	ok(event(sim, 3)->error.kind == KEYRIGHT_ERR_TOKEN &&
	   event(sim, 3)->left_ns > 0,
	   "%s is told apart from silence and keeps the old one",
	   forgeries[i].what);
	sim_free(sim);

	sim = sim_new();
	sim_checkout(sim);
	sim->endless = true;
	sim_fault_altered(sim, forgeries[i].alter);
	sim_run(sim, 59 * SECOND_NS);
	ok(sim_left(sim) > 0, "%s does not end the old one", forgeries[i].what);
	sim_run(sim, 3 * SECOND_NS);
	ok(event(sim, 4)->state == KEYRIGHT_LOST,
	   "%s does not make it longer", forgeries[i].what);
	sim_free(sim);
}

static void
test_forgeries(void)
{
	for (size_t i = 0; i < COUNT(forgeries); i++)
	{
		Sim		   *sim;

		test_forgery_in_beat(i);
		if (!forgeries[i].at_checkout)
			continue;
		sim = sim_new();
		sim_fault_altered(sim, forgeries[i].alter);
		ok(sim_checkout(sim) == KEYRIGHT_ERR_TOKEN && sim_left(sim) == 0,
		   "%s gives no seat", forgeries[i].what);
		ok(sim->grant_count == 1 && sim_live(sim) == 0,
		   "%s takes none either", forgeries[i].what);
		sim_ok(sim, "waiting refused", "the seat is never told of");
		sim_free(sim);
	}
}

static void
no_seat_id(Sim *sim, KeyrightAnswer *answer)
{
	other_key(sim, answer);
	answer->seat_id[0] = '\0';
}

static void
odd_seat_id(Sim *sim, KeyrightAnswer *answer)
{
	other_key(sim, answer);
	memset(answer->seat_id, 'x', sizeof(answer->seat_id) - 1);
}

/* A transport that does not tell which seat it is: the request id is kept. */
static void
test_useless_unnamed(void)
{
	void		(*alter[]) (Sim *, KeyrightAnswer *) = {
		no_seat_id, odd_seat_id
	};

	for (size_t i = 0; i < COUNT(alter); i++)
	{
		Sim		   *sim = sim_new();

		sim->seats = 2;
		sim->endless = true;
		sim_fault_altered(sim, alter[i]);
		for (int tries = 0; tries < 3; tries++)
			sim_checkout(sim);
		ok(sim_live(sim) == 1 && sim->request == 1 && sim->broken == NULL,
		   "a seat of no use that is not named is taken once at most");
		sim_heal(sim);
		ok(sim_checkout(sim) == KEYRIGHT_OK && sim->grant_count == 1,
		   "and held when its token is good");
		sim_free(sim);
	}
}

/* An application with old keys that is started again and again. */
static void
test_useless_again_and_again(void)
{
	Sim		   *sim = sim_new();

	sim->seats = 2;
	sim->endless = true;
	sim_fault_altered(sim, other_key);
	for (int i = 0; i < 10; i++)
	{
		sim_checkout(sim);
		ok(sim_live(sim) == 0, "attempt %d leaves no seat taken", i + 1);
		keeper_init(&sim->keeper, &sim->policy, random_number(0));
		memset(&sim->last, 0, sizeof(sim->last));
	}
	ok(sim->request == 10, "though each has a request id of its own");
	sim_free(sim);
}

static void
test_useless_in_trouble(void)
{
	Sim		   *sim = sim_new();

	sim_fault_altered(sim, other_key);
	sim_fault(sim, FAULT_LOST_REQUEST, 0);
	ok(sim_checkout(sim) == KEYRIGHT_ERR_TOKEN && sim_live(sim) == 1 &&
	   sim->calls[KEYRIGHT_CALL_CHECKIN] == 1,
	   "a seat of no use that cannot be given back is tried once");
	ok(sim_checkout(sim) == KEYRIGHT_OK && sim->grant_count == 1,
	   "to ask again gives the same one");
	sim_free(sim);

	sim = sim_new();
	sim_fault_altered(sim, other_key);
	sim_fault(sim, FAULT_LOST_REQUEST, 0);
	sim_checkout(sim);
	ok(sim_checkin(sim) == KEYRIGHT_OK && sim_live(sim) == 0,
	   "or it goes back with a check-in");
	sim_ok(sim, "waiting refused", "that tells of no seat");
	sim_free(sim);

	sim = sim_new();
	sim->policy.release_limit = 0;
	sim_fault_altered(sim, other_key);
	ok(sim_checkout(sim) == KEYRIGHT_ERR_TOKEN &&
	   sim->calls[KEYRIGHT_CALL_CHECKIN] == 0,
	   "with no time for it the server is not told");
	sim_free(sim);
}

/* The key was changed under a holder: he keeps what he has, then lets go. */
static void
test_useless_after_lapse(void)
{
	Sim		   *sim = sim_new();

	sim_checkout(sim);
	sim->endless = true;
	sim_fault_altered(sim, other_key);
	sim_run(sim, 59 * SECOND_NS);
	ok(sim_left(sim) > 0 && sim->calls[KEYRIGHT_CALL_CHECKIN] == 0,
	   "what was signed before is kept");
	sim_run(sim, 5 * SECOND_NS);
	ok(sim_left(sim) == 0 && sim_live(sim) == 0,
	   "after its end the seat is free for others");
	sim_run(sim, 300 * SECOND_NS);
	sim_heal(sim);
	sim_run(sim, 16 * SECOND_NS);
	sim_ok(sim, "waiting held refused lost refused regained",
		   "and had again soon when the tokens are good");
	sim_free(sim);
}

/* Given up while the seat goes back, and known by asking a second time. */
static void
test_useless_and_commands(void)
{
	Sim		   *sim = sim_new();
	Clocks		now;

	now = sim_clocks(sim);
	keeper_ask(&sim->keeper, &now);
	sim_fault_altered(sim, other_key);
	sim_run(sim, MS_NS);
	now = sim_clocks(sim);
	keeper_interrupt(&sim->keeper, &now);
	sim_run(sim, SECOND_NS);
	ok(sim->keeper.outcome.kind == KEYRIGHT_ERR_INTERRUPTED &&
	   sim->grant_count == 1 && sim_live(sim) == 0,
	   "who interrupts then leaves no seat behind");
	sim_free(sim);

	sim = sim_new();
	sim_fault(sim, FAULT_LOST_REPLY, 0);
	sim_checkout(sim);
	sim_fault_altered(sim, other_key);
	ok(sim_checkin(sim) == KEYRIGHT_OK && sim->grant_count == 1 &&
	   sim_live(sim) == 0, "nor does who never knew which seat it was");
	sim_free(sim);
}

/*
 * A new check-out makes the question that is under way be given up: that one
 * said nothing, and decides nothing.
 */
static void
test_useless_and_asked_again(void)
{
	Sim		   *sim = sim_new();
	KeyrightAnswer nothing;
	Clocks		now;

	sim_checkout(sim);
	sim_grant(sim)->returned = true;
	sim_fault_status(sim, KEYRIGHT_STATUS_LOST_EXPIRED);
	sim_fault_altered(sim, other_key);
	while (!sim->keeper.useless)
		sim_run(sim, MS_NS / 2);
	now = sim_clocks(sim);
	ok(keeper_next(&sim->keeper, &now).call == KEYRIGHT_CALL_CHECKIN,
	   "a seat of no use is being given back");
	keeper_ask(&sim->keeper, &now);
	memset(&nothing, 0, sizeof(nothing));
	keeper_answer(&sim->keeper, KEYRIGHT_CALL_CHECKIN, &nothing, &now, &now);
	ok(sim->keeper.phase == PHASE_ASKING, "who asks then is still asking");
	sim_run(sim, SECOND_NS);
	ok(sim->keeper.outcome.kind == KEYRIGHT_OK && sim_left(sim) > 0 &&
	   sim->grant_count == 2 && sim_live(sim) == 1,
	   "and has that seat, when its token is good");
	sim_ok(sim, "waiting held lost refused waiting held", "as is told");
	sim_free(sim);
}

static KeyrightAnswer recorded;

static void
replay(Sim *sim, KeyrightAnswer *answer)
{
	(void) sim;
	*answer = recorded;
}

/* The same good answer over and over, from somebody who is not the server. */
static void
test_replay(void)
{
	Sim		   *sim = sim_new();

	sim_checkout(sim);
	sim_run(sim, 30 * SECOND_NS);
	recorded = sim->last_answer;
	sim->endless = true;
	sim_fault_altered(sim, replay);
	sim_grant(sim)->exp_us -= 1000 * LEASE_SECOND;
	sim_run(sim, 70 * SECOND_NS);
	ok(sim_left(sim) == 0, "a recorded answer renews nothing");
	sim_free(sim);
}

/* ----- the window ----- */

static Judgement
judge(Sim *sim, int64_t iat, int64_t exp, int64_t issued_us, int64_t on_way,
	  Lease *lease)
{
	KeyrightAnswer answer;
	LeaseClaims claims = claims_of(sim);
	Clocks		sent = sim_clocks(sim);
	Clocks		now = sent;
	const char *problem;

	memset(&answer, 0, sizeof(answer));
	claims.issued_at = iat;
	claims.expires_at = exp;
	answer.issued_at_us = issued_us;
	if (token_write(answer.token, &claims, sample_key()) == 0)
		abort();
	now.wall += on_way;
	now.boot += on_way;
	return judge_answer(lease, &sim->policy.terms, NULL, false, &answer,
						&sent, &now, &problem);
}

static void
test_window(void)
{
	Sim		   *sim = sim_new();
	int64_t		t = SAMPLE_NOW / LEASE_SECOND;
	Lease		lease;
	Clocks		end;

	sim_checkout(sim);
	judge(sim, t, t + 60, t * LEASE_SECOND + 250000, 0, &lease);
	ok(lease.window == 60 * SECOND_NS - 250 * MS_NS,
	   "the fraction of the second is taken off");
	judge(sim, t, t + 60, -1, 0, &lease);
	ok(lease.window == 59 * SECOND_NS,
	   "a whole second, when the fraction is not known");
	judge(sim, t, t + 60, (t - 5) * LEASE_SECOND, 0, &lease);
	ok(lease.window == 59 * SECOND_NS,
	   "a fraction of another second is not believed");
	ok(judge(sim, t, t + 2, t * LEASE_SECOND, 2 * SECOND_NS, &lease) ==
	   JUDGED_LATE, "what was over when it came is late");
	ok(judge(sim, t, t + 2, t * LEASE_SECOND, 2 * SECOND_NS - 1, &lease) ==
	   JUDGED_GOOD, "one nanosecond earlier it is not");
	ok(judge(sim, 1, INT64_C(253402300799), -1, 0, &lease) == JUDGED_GOOD &&
	   lease.ends_boot > sim->t && lease.ends_wall > lease.ends_boot,
	   "the longest window does not run over");

	judge(sim, t, t + 60, t * LEASE_SECOND, 0, &lease);
	end.boot = lease.ends_boot - 1;
	end.wall = lease.ends_wall - 1;
	ok(lease_left(&lease, &end) == 1, "the last nanosecond counts");
	end.boot++;
	ok(lease_left(&lease, &end) == 0, "the end does not, by the boot clock");
	end.boot--;
	end.wall++;
	ok(lease_left(&lease, &end) == 0, "nor by the wall clock");
	sim_free(sim);
}

void
test_answers(void)
{
	test_kinds();
	for (size_t i = 0; i < COUNT(cases); i++)
	{
		test_once(&cases[i]);
		test_for_long(&cases[i]);
		test_at_checkout(&cases[i]);
	}
	test_mixed();
	test_forgeries();
	test_useless_unnamed();
	test_useless_again_and_again();
	test_useless_in_trouble();
	test_useless_after_lapse();
	test_useless_and_commands();
	test_useless_and_asked_again();
	test_replay();
	test_window();
}
