/*
 * loop.c
 *		The thread that keeps a seat: it does what the keeper says.
 *
 * All questions, all callbacks and all writing of the state file happen here,
 * one after the other.  The lock guards the keeper and the commands; it is
 * held during neither of those three.
 *
 * Two ends and the state are published for readers without a lock.  Two loads
 * of two numbers can mix an old and a new lease, but each end is an upper
 * bound by itself, of a lease that was signed, and a lease that is dropped
 * publishes an end that is over in both places: the smaller of the two is
 * never too long.
 *
 * Sleep is poll() on the wake-up descriptor.  poll() does not count the time
 * that a machine sleeps and does not notice a wall clock that leaps, so it is
 * never longer than a slice; only telling waits for its end, because
 * keyright_may_run() asks the clocks itself.
 */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define SLICE				(2 * SECOND_NS)

void
request_id_make(char id[REQUEST_ID_SIZE])
{
	uint8_t		bytes[REQUEST_ID_BYTES];

	randombytes_buf(bytes, sizeof(bytes));
	b64url_write(id, REQUEST_ID_SIZE, bytes, sizeof(bytes));
	sodium_memzero(bytes, sizeof(bytes));
}

/* Async-signal-safe, and leaves errno as it was. */
void
loop_wake(Keyright *seat)
{
	uint64_t	one = 1;
	int			saved_errno = errno;
	ssize_t		n = write(seat->wake_fd, &one, sizeof(one));

	/* It fails only when the counter is full: then it is readable anyway. */
	(void) n;
	errno = saved_errno;
}

static void
drain(Keyright *seat)
{
	uint64_t	count;
	ssize_t		n = read(seat->wake_fd, &count, sizeof(count));

	(void) n;
}

/* Once giving back has begun nobody may run, whatever comes in. */
static void
publish(Keyright *seat)
{
	const Keeper *keeper = &seat->keeper;
	bool		live = keeper->live && !seat->leave;

	atomic_store(&seat->ends_boot, live ? keeper->lease.ends_boot : 0);
	atomic_store(&seat->ends_wall, live ? keeper->lease.ends_wall : 0);
	atomic_store(&seat->state, (int) keeper->state);
}

/* ----- the three that are done without the lock ----- */

static bool
tell(Keyright *seat)
{
	KeyrightEvent event;

	if (!keeper_notice(&seat->keeper, &event))
		return false;
	if (seat->on_event != NULL)
	{
		pthread_mutex_unlock(&seat->lock);
		seat->on_event(seat->event_arg, &event);
		pthread_mutex_lock(&seat->lock);
	}
	return true;
}

/*
 * The request id is on disk before it is sent: after a crash between the two
 * the next run repeats it.
 */
static bool
remember_request(Keyright *seat, bool fresh_id, KeyrightError *error)
{
	Remembered *remembered = &seat->remembered;

	if (fresh_id)
	{
		request_id_make(remembered->request_id);
		remembered->seat_id[0] = '\0';
		seat->written = false;
	}
	if (!seat->written)
		seat->written = state_file_write(&seat->state_file,
										 &seat->policy.terms, remembered,
										 error);
	return seat->written;
}

/*
 * After an answer.  A seat id that cannot be written down is no reason to
 * give the seat up: the request id is there, and is what counts.
 */
static void
remember_answer(Keyright *seat, const char *seat_id, bool given_back)
{
	Remembered *remembered = &seat->remembered;
	KeyrightError ignored;

	if (given_back)
	{
		state_file_remove(&seat->state_file);
		remembered->seat_id[0] = '\0';
		seat->written = false;
	}
	else if (seat_id[0] != '\0' && strcmp(remembered->seat_id, seat_id) != 0)
	{
		text_copy(remembered->seat_id, sizeof(remembered->seat_id), seat_id);
		state_file_write(&seat->state_file, &seat->policy.terms, remembered,
						 &ignored);
	}
}

static void
ask(Keyright *seat, const Action *action, const char *seat_id,
	KeyrightAnswer *answer)
{
	KeyrightRequest request = {
		.size = sizeof(request),
		.call = action->call,
		.license = seat->policy.terms.license,
		.holder = seat->policy.terms.holder,
		.request_id = seat->remembered.request_id,
		.seat_id = seat_id,
		.ttl_ms = seat->ttl_ms,
		.limit_ns = action->limit,
		.give_up_fd = seat->wake_fd
	};

	memset(answer, 0, sizeof(*answer));
	answer->size = sizeof(*answer);
	answer->issued_at_us = -1;
	answer->retry_after_ms = -1;
	seat->transport.call(seat->transport.self, &request, answer);

	/* A transport of the application's may forget the final zeros. */
	answer->token[sizeof(answer->token) - 1] = '\0';
	answer->sqlstate[sizeof(answer->sqlstate) - 1] = '\0';
	answer->message[sizeof(answer->message) - 1] = '\0';
	answer->seat_id[sizeof(answer->seat_id) - 1] = '\0';
}

/* ----- commands ----- */

static void
take_commands(Keyright *seat, const Clocks *now)
{
	Keeper	   *keeper = &seat->keeper;

	/* Before the flags are read: what comes later wakes us again. */
	drain(seat);
	if (seat->ask)
	{
		seat->ask = false;
		keeper_ask(keeper, now);
	}
	if (atomic_exchange(&seat->interrupt, false))
		keeper_interrupt(keeper, now);
	/* Who waits for a seat gets his answer first, see settle(). */
	if (seat->leave && !seat->leaving && !seat->asking)
	{
		seat->leaving = true;
		keeper_give_back(keeper, now);
	}
}

/* ----- one question, with the lock on entry and exit ----- */

static void
take_answer(Keyright *seat, const Action *action,
			const KeyrightAnswer *answer, const Clocks *sent)
{
	Keeper	   *keeper = &seat->keeper;
	Clocks		now;
	char		seat_id[SEAT_ID_TEXT_SIZE];
	bool		given_back;

	clocks_read(&now);

	/*
	 * Commands first: a question that was given up because of one has not
	 * failed, and a seat that was won in this moment goes back.
	 */
	take_commands(seat, &now);
	keeper_answer(keeper, action->call, answer, sent, &now);
	publish(seat);

	given_back = !keeper->seat_known && !keeper->in_doubt &&
		(action->call == KEYRIGHT_CALL_CHECKIN || seat->leaving);
	text_copy(seat_id, sizeof(seat_id),
			  keeper->seat_known ? keeper->seat_id : "");
	pthread_mutex_unlock(&seat->lock);
	remember_answer(seat, seat_id, given_back);
	pthread_mutex_lock(&seat->lock);
}

static void
call(Keyright *seat, const Action *action, KeyrightAnswer *answer)
{
	char		seat_id[SEAT_ID_TEXT_SIZE];
	KeyrightError error;
	Clocks		sent;
	bool		ready = true;

	text_copy(seat_id, sizeof(seat_id), seat->keeper.seat_id);
	seat->in_call = true;
	pthread_mutex_unlock(&seat->lock);

	if (action->call == KEYRIGHT_CALL_CHECKOUT)
		ready = remember_request(seat, action->fresh_id, &error);
	clocks_read(&sent);
	if (ready)
		ask(seat, action, seat_id, answer);

	pthread_mutex_lock(&seat->lock);
	seat->in_call = false;
	pthread_cond_broadcast(&seat->changed);
	if (ready)
		take_answer(seat, action, answer, &sent);
	else
		keeper_fail(&seat->keeper, error.kind, error.detail, &sent);
}

/* ----- the loop ----- */

/* until: on the boot clock, TIME_MAX: for as long as nothing is commanded. */
static void
sleep_until(Keyright *seat, int64_t until, const Clocks *now)
{
	struct pollfd wake = {.fd = seat->wake_fd, .events = POLLIN};
	int64_t		left = until - now->boot;
	int			timeout = -1;

	if (until != TIME_MAX)
	{
		if (left > SLICE)
			left = SLICE;
		timeout = (int) ((left + MS_NS - 1) / MS_NS);
	}
	pthread_mutex_unlock(&seat->lock);
	if (seat->transport.idle != NULL)
		seat->transport.idle(seat->transport.self, until - now->boot);
	poll(&wake, 1, timeout);
	pthread_mutex_lock(&seat->lock);
}

/*
 * Everything was told: who waits for the outcome of a check-out may go on.
 * Callbacks can outlast the lease that was won; if nothing more is tried then,
 * that is the outcome.
 */
static bool
settle(Keyright *seat)
{
	if (!seat->asking || seat->ask ||
		seat->keeper.phase == PHASE_ASKING ||
		seat->keeper.phase == PHASE_RETURNING)
		return false;
	seat->asking = false;
	seat->outcome = seat->keeper.outcome;
	if (seat->outcome.kind == KEYRIGHT_OK && seat->keeper.phase == PHASE_REST)
		seat->outcome = seat->keeper.error;
	pthread_cond_broadcast(&seat->changed);
	return true;
}

static void
loop(Keyright *seat, KeyrightAnswer *answer)
{
	for (;;)
	{
		Clocks		now;
		Action		action;

		clocks_read(&now);
		take_commands(seat, &now);
		keeper_time(&seat->keeper, &now);
		publish(seat);
		if (tell(seat) || settle(seat))
			continue;

		action = keeper_next(&seat->keeper, &now);
		if (action.kind == ACTION_CALL)
			call(seat, &action, answer);
		else if (action.kind == ACTION_SLEEP)
			sleep_until(seat, action.until, &now);
		else if (seat->keeper.notice_count > 0)
			continue;
		else if (seat->leaving)
			return;
		else
			sleep_until(seat, TIME_MAX, &now);
	}
}

void *
loop_main(void *arg)
{
	Keyright   *seat = arg;
	KeyrightAnswer answer;

	pthread_mutex_lock(&seat->lock);
	loop(seat, &answer);
	pthread_mutex_unlock(&seat->lock);
	sodium_memzero(&answer, sizeof(answer));
	return NULL;
}
