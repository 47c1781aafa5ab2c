/*
 * seat.c
 *		keyright_checkout(), keyright_checkin(), keyright_interrupt(): the
 *		commands of an application to the thread that keeps its seat.
 *
 * The thread is made by the first check-out and joined by the check-in, so
 * between the two there is exactly one, and after a check-in no beat can
 * follow.  A check-in that is called again after it failed makes another.
 * Both return only when all that led there has been told.
 */
#include "internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long a question that is under way may finish before it is given up. */
#define GRACE_MS			300

static KeyrightErrorKind
answer(KeyrightError *to, const KeyrightError *from)
{
	if (to != NULL)
		*to = *from;
	return from->kind;
}

static KeyrightErrorKind
answer_with(KeyrightError *to, KeyrightErrorKind kind, const char *detail)
{
	KeyrightError error;

	error_set(&error, kind, NULL, NULL, detail);
	return answer(to, &error);
}

/*
 * The two places where nothing may be commanded.  NULL: go on.  "thread" is
 * only compared while it runs, so it can be read by whoever is that thread.
 */
static const char *
misuse(Keyright *seat)
{
	bool		in_callback;

	if (seat == NULL)
		return "there is no handle";
	if (seat->owner != getpid())
		return "the handle belongs to the process that opened it";
	pthread_mutex_lock(&seat->lock);
	in_callback = seat->running &&
		pthread_equal(pthread_self(), seat->thread);
	pthread_mutex_unlock(&seat->lock);
	return in_callback ? "a callback may not call this" : NULL;
}

/*
 * All signals stay blocked in the thread: they are the application's, and
 * none of its handlers may run on our stack.
 */
static bool
start_thread(Keyright *seat)
{
	sigset_t	all;
	sigset_t	before;
	int			result;

	if (seat->running)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	result = pthread_create(&seat->thread, NULL, loop_main, seat);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	seat->running = result == 0;
	return seat->running;
}

static const char *
cannot_ask(const Keyright *seat)
{
	if (seat->asking)
		return "a seat is being asked for";
	if (seat->leave)
		return "the seat is being given back";
	if (keyright_may_run(seat) > 0)
		return "a seat is held already";
	return NULL;
}

KeyrightErrorKind
keyright_checkout(Keyright *seat, KeyrightError *error)
{
	const char *problem = misuse(seat);
	KeyrightError outcome;

	if (problem != NULL)
		return answer_with(error, KEYRIGHT_ERR_MISUSE, problem);
	pthread_mutex_lock(&seat->lock);
	problem = cannot_ask(seat);
	if (problem != NULL || !start_thread(seat))
	{
		pthread_mutex_unlock(&seat->lock);
		if (problem != NULL)
			return answer_with(error, KEYRIGHT_ERR_MISUSE, problem);
		return answer_with(error, KEYRIGHT_ERR_SYSTEM,
						   "could not start a thread");
	}
	atomic_store(&seat->interrupt, false);
	seat->ask = true;
	seat->asking = true;
	loop_wake(seat);
	while (seat->asking)
		pthread_cond_wait(&seat->changed, &seat->lock);
	outcome = seat->outcome;
	pthread_mutex_unlock(&seat->lock);
	return answer(error, &outcome);
}

void
keyright_interrupt(Keyright *seat)
{
	if (seat == NULL || seat->owner != getpid())
		return;
	atomic_store(&seat->interrupt, true);
	loop_wake(seat);
}

/*
 * A question that is under way mostly ends at once, and its connection serves
 * for giving back; one that does not is given up.
 */
static void
await_call(Keyright *seat)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += GRACE_MS * MS_NS;
	until.tv_sec += until.tv_nsec / SECOND_NS;
	until.tv_nsec %= SECOND_NS;
	while (seat->in_call)
		if (pthread_cond_timedwait(&seat->changed, &seat->lock,
								   &until) != 0)
			break;
}

/* With the lock on entry and exit. */
static void
stop_thread(Keyright *seat)
{
	pthread_t	thread = seat->thread;

	seat->leave = true;
	atomic_store(&seat->ends_boot, 0);
	atomic_store(&seat->ends_wall, 0);
	if (seat->asking)
		atomic_store(&seat->interrupt, true);
	await_call(seat);
	loop_wake(seat);
	pthread_mutex_unlock(&seat->lock);
	pthread_join(thread, NULL);
	pthread_mutex_lock(&seat->lock);
	seat->running = false;
	seat->leave = false;
	seat->leaving = false;
}

KeyrightErrorKind
seat_check_in(Keyright *seat, bool again, KeyrightError *error)
{
	const char *problem = misuse(seat);
	KeyrightError outcome;

	if (problem != NULL)
		return answer_with(error, KEYRIGHT_ERR_MISUSE, problem);
	error_set(&outcome, KEYRIGHT_OK, NULL, NULL, NULL);
	pthread_mutex_lock(&seat->returning);
	pthread_mutex_lock(&seat->lock);
	/* Without a thread, the outcome is that of the last time. */
	if (again && seat->keeper.outcome.kind != KEYRIGHT_OK &&
		!start_thread(seat))
		error_set(&outcome, KEYRIGHT_ERR_SYSTEM, NULL, NULL,
				  "could not start a thread");
	else if (seat->running)
	{
		stop_thread(seat);
		outcome = seat->keeper.outcome;
	}
	pthread_mutex_unlock(&seat->lock);
	pthread_mutex_unlock(&seat->returning);
	return answer(error, &outcome);
}

KeyrightErrorKind
keyright_checkin(Keyright *seat, KeyrightError *error)
{
	return seat_check_in(seat, true, error);
}
