/*
 * threads.c
 *		One thread keeps the seat and tells of it, whoever asks from wherever:
 *		other threads, callbacks, signal handlers, children of fork().
 *
 * With the transport interface, a server in memory and real clocks; under
 * ThreadSanitizer and AddressSanitizer.  Nothing depends on how quick the
 * machine is: everything waits for its condition.
 */
#include "fake.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int			tap_run;
int			tap_failed;

static int
entries(const char *folder)
{
	DIR		   *dir = opendir(folder);
	int			count = 0;

	while (dir != NULL && readdir(dir) != NULL)
		count++;
	if (dir != NULL)
		closedir(dir);
	return count;
}

static void
end(Fake *fake)
{
	keyright_close(fake->seat);
	ok(!fake->overlapped && !fake->disordered,
	   "one question at a time, events in order from one thread");
	fake_free(fake);
}

static void
test_life(void)
{
	Fake	   *fake = fake_new(2);
	Keyright   *seat = fake_open(fake);
	KeyrightInfo info = {.size = sizeof(info)};
	char		token[KEYRIGHT_TOKEN_SIZE];
	int			beats;

	ok(keyright_may_run(seat) == 0 && keyright_state(seat) == KEYRIGHT_IDLE,
	   "nothing is held before the check-out");
	ok(keyright_checkin(seat, NULL) == KEYRIGHT_OK, "nor is it given back");
	ok(keyright_checkout(seat, NULL) == KEYRIGHT_OK &&
	   keyright_may_run(seat) > 0, "the check-out gives a seat");
	ok(strcmp(fake_story(fake), "waiting held") == 0,
	   "what led there was told before");
	ok(keyright_checkout(seat, NULL) == KEYRIGHT_ERR_MISUSE,
	   "a second one is refused");
	ok(keyright_token(seat, token) == KEYRIGHT_OK && strlen(token) > 100,
	   "there is a token");
	ok(WAIT_FOR(fake_calls(fake, KEYRIGHT_CALL_HEARTBEAT) >= 6) &&
	   keyright_may_run(seat) > 0, "beats keep it for longer than its ttl");
	ok(keyright_info(seat, &info) == KEYRIGHT_OK && info.beats >= 5 &&
	   info.state == KEYRIGHT_HELD && info.slot == 1 && info.trying == 1 &&
	   info.failures == 0 && info.expires_at > info.issued_at &&
	   info.retry_in_ns >= 0, "it can be asked about");
	ok(keyright_checkin(seat, NULL) == KEYRIGHT_OK && !fake_taken(fake) &&
	   keyright_may_run(seat) == 0, "the check-in gives it back");
	ok(keyright_token(seat, token) == KEYRIGHT_OK && token[0] == '\0',
	   "there is no token any more");
	beats = fake_calls(fake, KEYRIGHT_CALL_HEARTBEAT);
	usleep(1500000);
	ok(fake_calls(fake, KEYRIGHT_CALL_HEARTBEAT) == beats &&
	   fake->last == KEYRIGHT_CALL_CHECKIN, "no beat follows");
	ok(keyright_checkout(seat, NULL) == KEYRIGHT_OK && fake->grants == 2,
	   "a handle can check out again");
	ok(strcmp(fake_story(fake),
			  "waiting held released waiting held") == 0, "all was told");
	keyright_close(seat);
	ok(!fake_taken(fake) && fake->closed == 1,
	   "closing gives back and closes the transport");
	fake->seat = NULL;
	end(fake);
}

static void
test_outage(void)
{
	Fake	   *fake = fake_new(2);
	Keyright   *seat = fake_open(fake);

	keyright_checkout(seat, NULL);
	fake_set(fake, FAKE_DOWN);
	ok(WAIT_FOR(keyright_state(seat) == KEYRIGHT_RETRYING) &&
	   keyright_may_run(seat) > 0, "silence: retrying, and still held");
	fake_set(fake, FAKE_HEALTHY);
	ok(WAIT_FOR(keyright_state(seat) == KEYRIGHT_HELD), "health: held");
	fake_set(fake, FAKE_STUCK);
	ok(WAIT_FOR(keyright_may_run(seat) == 0), "silence for long: it ends");
	ok(WAIT_FOR(keyright_state(seat) == KEYRIGHT_LOST), "and is lost");
	fake_set(fake, FAKE_FULL);
	ok(WAIT_FOR(keyright_state(seat) == KEYRIGHT_DEGRADED),
	   "all seats taken: degraded");
	fake_set(fake, FAKE_HEALTHY);
	ok(WAIT_FOR(keyright_state(seat) == KEYRIGHT_REGAINED) &&
	   keyright_may_run(seat) > 0, "a free one: regained");
	fake_set(fake, FAKE_REVOKED);
	ok(WAIT_FOR(keyright_state(seat) == KEYRIGHT_REVOKED) &&
	   keyright_may_run(seat) == 0, "taken back: revoked");
	ok(strcmp(fake_story(fake), "waiting held retrying held retrying lost "
			  "degraded regained revoked") == 0, "each was told once");
	end(fake);
}

/* ----- many ask ----- */

static atomic_bool stop_asking;

static void *
asker(void *arg)
{
	Keyright   *seat = arg;
	KeyrightInfo info = {.size = sizeof(info)};
	char		token[KEYRIGHT_TOKEN_SIZE];
	long		bad = 0;

	while (!atomic_load(&stop_asking))
	{
		bad += keyright_may_run(seat) < 0;
		bad += (unsigned) keyright_state(seat) > KEYRIGHT_RELEASED;
		bad += keyright_info(seat, &info) != KEYRIGHT_OK;
		bad += keyright_token(seat, token) != KEYRIGHT_OK;
		usleep(100);
	}
	return (void *) bad;
}

static void
test_many_ask(void)
{
	Fake	   *fake = fake_new(2);
	Keyright   *seat = fake_open(fake);
	pthread_t	threads[4];
	long		bad = 0;

	atomic_store(&stop_asking, false);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, asker, seat);
	for (int i = 0; i < 3; i++)
	{
		int			beats = fake_calls(fake, KEYRIGHT_CALL_HEARTBEAT);

		keyright_checkout(seat, NULL);
		WAIT_FOR(fake_calls(fake, KEYRIGHT_CALL_HEARTBEAT) > beats);
		keyright_checkin(seat, NULL);
	}
	atomic_store(&stop_asking, true);
	for (int i = 0; i < 4; i++)
	{
		void	   *result;

		pthread_join(threads[i], &result);
		bad += (long) result;
	}
	ok(bad == 0, "four threads ask while seats come and go");
	end(fake);
}

/* ----- commands from everywhere ----- */

static void *
checkout_main(void *seat)
{
	return (void *) (long) keyright_checkout(seat, NULL);
}

static void *
checkin_main(void *seat)
{
	return (void *) (long) keyright_checkin(seat, NULL);
}

static long
joined(pthread_t thread)
{
	void	   *result;

	pthread_join(thread, &result);
	return (long) result;
}

static Keyright *
open_waiting(Fake *fake)
{
	KeyrightOptions options;

	fake_options(fake, &options);
	options.wait_ms = -1;
	if (keyright_open(&fake->seat, &options, NULL) != KEYRIGHT_OK)
		abort();
	return fake->seat;
}

static void
test_interrupt(void)
{
	Fake	   *fake = fake_new(2);
	Keyright   *seat = open_waiting(fake);
	pthread_t	thread;

	fake_set(fake, FAKE_FULL);
	pthread_create(&thread, NULL, checkout_main, seat);
	WAIT_FOR(fake_calls(fake, KEYRIGHT_CALL_CHECKOUT) > 0);
	ok(keyright_checkout(seat, NULL) == KEYRIGHT_ERR_MISUSE,
	   "two cannot ask at once");
	keyright_interrupt(seat);
	ok(joined(thread) == KEYRIGHT_ERR_INTERRUPTED,
	   "who sleeps for a seat can be interrupted");

	fake_set(fake, FAKE_STUCK);
	pthread_create(&thread, NULL, checkout_main, seat);
	WAIT_FOR(keyright_state(seat) == KEYRIGHT_WAITING);
	usleep(50000);
	keyright_interrupt(seat);
	ok(joined(thread) == KEYRIGHT_ERR_INTERRUPTED,
	   "so can who waits for a stuck server");

	fake_set(fake, FAKE_FULL);
	pthread_create(&thread, NULL, checkout_main, seat);
	WAIT_FOR(keyright_state(seat) == KEYRIGHT_WAITING);
	ok(keyright_checkin(seat, NULL) == KEYRIGHT_OK &&
	   joined(thread) == KEYRIGHT_ERR_INTERRUPTED,
	   "a check-in interrupts a check-out");
	end(fake);
}

static Keyright *handler_seat;
static volatile int64_t handler_left = -1;

static void
handler(int number)
{
	(void) number;
	handler_left = keyright_may_run(handler_seat);
	keyright_interrupt(handler_seat);
}

static void
test_signals(void)
{
	Fake	   *fake = fake_new(2);
	Keyright   *seat = open_waiting(fake);
	struct sigaction action = {.sa_handler = handler};
	struct sigaction before;
	struct sigaction after;
	sigset_t	set;
	sigset_t	pending;

	handler_seat = seat;
	fake_set(fake, FAKE_FULL);
	sigaction(SIGALRM, &action, NULL);
	alarm(1);
	ok(keyright_checkout(seat, NULL) == KEYRIGHT_ERR_INTERRUPTED &&
	   handler_left == 0, "a signal handler can ask and interrupt");

	fake_set(fake, FAKE_HEALTHY);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGPIPE, NULL, &before);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	keyright_checkout(seat, NULL);
	kill(getpid(), SIGUSR1);
	usleep(100000);
	sigpending(&pending);
	ok(sigismember(&pending, SIGUSR1) == 1,
	   "no signal of the application is taken by the keeper's thread");
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	ok(handler_left > 0, "it comes to the application");
	sigaction(SIGPIPE, NULL, &after);
	ok(before.sa_handler == after.sa_handler, "no handler was changed");
	signal(SIGUSR1, SIG_DFL);
	signal(SIGALRM, SIG_DFL);
	end(fake);
}

static void
call_everything(Fake *fake, const KeyrightEvent *event)
{
	KeyrightInfo info = {.size = sizeof(info)};

	if (event->state != KEYRIGHT_HELD)
		return;
	fake->answers[0] = keyright_checkout(fake->seat, NULL);
	fake->answers[1] = keyright_checkin(fake->seat, NULL);
	keyright_close(fake->seat);
	fake->answers[2] = keyright_info(fake->seat, &info);
	fake->answers[3] = keyright_may_run(fake->seat) > 0 ? KEYRIGHT_OK :
		KEYRIGHT_ERR_LAPSED;
}

static void
test_callback(void)
{
	Fake	   *fake = fake_new(2);
	Keyright   *seat = fake_open(fake);

	fake->also = call_everything;
	ok(keyright_checkout(seat, NULL) == KEYRIGHT_OK &&
	   fake->answers[0] == KEYRIGHT_ERR_MISUSE &&
	   fake->answers[1] == KEYRIGHT_ERR_MISUSE,
	   "a callback cannot command, and nothing hangs");
	ok(fake->answers[2] == KEYRIGHT_OK && fake->answers[3] == KEYRIGHT_OK,
	   "but ask");
	end(fake);
}

static bool
is_asking(Keyright *seat)
{
	bool		asking;

	pthread_mutex_lock(&seat->lock);
	asking = seat->asking;
	pthread_mutex_unlock(&seat->lock);
	return asking;
}

/* Blocks once, beyond the end of the lease and until somebody checks out. */
static void
outlast(Fake *fake, const KeyrightEvent *event)
{
	KeyrightInfo info = {.size = sizeof(info)};

	if (event->state == KEYRIGHT_HELD || event->state == KEYRIGHT_RETRYING)
	{
		fake->also = NULL;
		WAIT_FOR(keyright_may_run(fake->seat) == 0 && is_asking(fake->seat));
		keyright_info(fake->seat, &info);
		fake->answers[0] = info.error.kind;
	}
}

/* While a callback blocks, the thread does not notice that a lease is over. */
static void
test_slow_callback(void)
{
	Fake	   *fake = fake_new(2);
	KeyrightOptions options;
	KeyrightError error;

	fake_options(fake, &options);
	options.keep_trying = 0;
	keyright_open(&fake->seat, &options, NULL);
	fake->also = outlast;
	ok(keyright_checkout(fake->seat, &error) == KEYRIGHT_ERR_LAPSED &&
	   error.message[0] != '\0' && keyright_may_run(fake->seat) == 0,
	   "whose lease is over before that it is won was told has no seat");
	ok(fake->answers[0] == KEYRIGHT_ERR_LAPSED,
	   "why, could be asked before");
	ok(strcmp(fake_story(fake), "waiting held lost") == 0, "as was told");
	ok(keyright_checkout(fake->seat, NULL) == KEYRIGHT_OK &&
	   keyright_may_run(fake->seat) > 0, "but with the next check-out");
	end(fake);

	fake = fake_new(2);
	fake_open(fake);
	keyright_checkout(fake->seat, NULL);
	fake->also = outlast;
	fake_set(fake, FAKE_DOWN);
	ok(WAIT_FOR(keyright_may_run(fake->seat) == 0) &&
	   strcmp(fake_story(fake), "waiting held retrying") == 0,
	   "a lease is over, which nobody could tell yet");
	fake_set(fake, FAKE_HEALTHY);
	ok(keyright_checkout(fake->seat, NULL) == KEYRIGHT_OK &&
	   keyright_may_run(fake->seat) > 0, "a check-out gets a seat then");
	ok(strcmp(fake_story(fake), "waiting held retrying lost waiting held") == 0,
	   "and the loss is told");
	end(fake);
}

/* OK means that the seat is free, however often it took to say it. */
static void
test_check_in_again(void)
{
	Fake	   *fake = fake_new(30);
	KeyrightOptions options;
	KeyrightError error;

	fake_options(fake, &options);
	options.release_limit_ms = 500;
	keyright_open(&fake->seat, &options, NULL);
	keyright_checkout(fake->seat, NULL);
	fake_set(fake, FAKE_DOWN);
	ok(keyright_checkin(fake->seat, NULL) == KEYRIGHT_ERR_UNREACHABLE &&
	   keyright_checkin(fake->seat, &error) == KEYRIGHT_ERR_UNREACHABLE &&
	   error.message[0] != '\0' && fake_taken(fake),
	   "a seat that cannot be given back cannot the second time either");
	fake_set(fake, FAKE_HEALTHY);
	ok(keyright_checkin(fake->seat, NULL) == KEYRIGHT_OK && !fake_taken(fake),
	   "it is given back when the server is there again");
	ok(keyright_checkin(fake->seat, NULL) == KEYRIGHT_OK &&
	   fake->last == KEYRIGHT_CALL_CHECKIN && keyright_may_run(fake->seat) == 0,
	   "then there is none");
	ok(strcmp(fake_story(fake), "waiting held released") == 0,
	   "it was told once");

	keyright_checkout(fake->seat, NULL);
	fake_set(fake, FAKE_DOWN);
	keyright_checkin(fake->seat, NULL);
	fake_set(fake, FAKE_HEALTHY);
	ok(keyright_checkout(fake->seat, NULL) == KEYRIGHT_OK &&
	   fake->grants == 2 && keyright_checkin(fake->seat, NULL) == KEYRIGHT_OK &&
	   !fake_taken(fake), "a check-out gets that seat again, not one more");
	end(fake);
}

/*
 * Who hears that the seat is lost asks at once, while the library's own
 * question is under way.
 */
static void
test_checkout_while_regaining(void)
{
	Fake	   *fake = fake_new(2);
	Keyright   *seat = fake_open(fake);

	keyright_checkout(seat, NULL);
	fake_set(fake, FAKE_SLOW);
	ok(WAIT_FOR(fake_calls(fake, KEYRIGHT_CALL_CHECKOUT) == 2) &&
	   keyright_state(seat) == KEYRIGHT_LOST,
	   "a lost seat is asked for, the answer takes its time");
	fake_set(fake, FAKE_HEALTHY);
	ok(keyright_checkout(seat, NULL) == KEYRIGHT_OK &&
	   keyright_may_run(seat) > 0, "an application that asks meanwhile gets "
	   "an answer of its own");
	ok(fake->grants == 1 && fake_calls(fake, KEYRIGHT_CALL_CHECKOUT) == 3,
	   "and the seat that the other question had taken");
	ok(keyright_checkin(seat, NULL) == KEYRIGHT_OK && !fake_taken(fake),
	   "of which none is left");
	ok(strstr(fake_story(fake), "lost waiting held released") != NULL,
	   "as was told");
	end(fake);
}

static void
test_stuck_checkin(void)
{
	/* Long enough that the stuck beat is still under way at the check-in. */
	Fake	   *fake = fake_new(15);
	Keyright   *seat = fake_open(fake);
	int			beats;

	keyright_checkout(seat, NULL);
	fake_set(fake, FAKE_STUCK);
	beats = fake_calls(fake, KEYRIGHT_CALL_HEARTBEAT);
	WAIT_FOR(fake_calls(fake, KEYRIGHT_CALL_HEARTBEAT) > beats);
	fake_set(fake, FAKE_HEALTHY);
	ok(keyright_checkin(seat, NULL) == KEYRIGHT_OK && !fake_taken(fake),
	   "a beat that is stuck does not hold up a check-in");
	ok(strcmp(fake_story(fake), "waiting held released") == 0,
	   "and one that was given up for it has not failed");

	end(fake);
}

static void
test_many_check_in(void)
{
	Fake	   *fake = fake_new(15);
	KeyrightOptions options;
	pthread_t	others[3];
	long		results = 0;

	fake_options(fake, &options);
	options.request_limit_ms = 500;
	if (keyright_open(&fake->seat, &options, NULL) != KEYRIGHT_OK)
		abort();
	keyright_checkout(fake->seat, NULL);
	/* Slow enough that all three meet. */
	fake_set(fake, FAKE_STUCK);
	for (int i = 0; i < 3; i++)
		pthread_create(&others[i], NULL, checkin_main, fake->seat);
	WAIT_FOR(fake_calls(fake, KEYRIGHT_CALL_CHECKIN) > 0);
	fake_set(fake, FAKE_HEALTHY);
	for (int i = 0; i < 3; i++)
		results += joined(others[i]);
	ok(results == 0 && !fake_taken(fake), "three may check in at once");
	end(fake);
}

/* ----- processes ----- */

static int
exit_status(pid_t child)
{
	int			status = 0;

	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* 0: all as promised. */
static int
in_child(Fake *fake)
{
	Keyright   *seat = fake->seat;
	KeyrightInfo info = {.size = sizeof(info)};
	char		token[KEYRIGHT_TOKEN_SIZE];

	if (keyright_may_run(seat) <= 0 || keyright_state(seat) != KEYRIGHT_HELD)
		return 1;
	if (keyright_checkout(seat, NULL) != KEYRIGHT_ERR_MISUSE ||
		keyright_checkin(seat, NULL) != KEYRIGHT_ERR_MISUSE ||
		keyright_info(seat, &info) != KEYRIGHT_ERR_MISUSE ||
		keyright_token(seat, token) != KEYRIGHT_ERR_MISUSE)
		return 2;
	keyright_interrupt(seat);
	/* The parent's beats do not reach us: our copy ends by itself. */
	if (!WAIT_FOR(keyright_may_run(seat) == 0))
		return 3;
	if (keyright_state(seat) != KEYRIGHT_LOST)
		return 4;
	keyright_close(seat);
	return fake->closed == 0 ? 0 : 5;
}

static void
test_fork(void)
{
	Fake	   *fake = fake_new(2);
	Keyright   *seat = fake_open(fake);
	pid_t		child;

	keyright_checkout(seat, NULL);
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(in_child(fake));
	ok(exit_status(child) == 0, "a child asks until the end that it knows, "
	   "renews nothing and can be closed");
	ok(keyright_may_run(seat) > 0 && keyright_checkin(seat, NULL) ==
	   KEYRIGHT_OK && !fake_taken(fake), "the parent does not notice");
	end(fake);
}

static int	told_pipe;

/* The first thing that runs after SIGCONT. */
static void
on_continue(int number)
{
	int64_t		left = keyright_may_run(handler_seat);
	ssize_t		n = write(told_pipe, &left, sizeof(left));

	(void) n;
	(void) number;
}

static void
be_stopped(void)
{
	Fake	   *fake = fake_new(2);
	Keyright   *seat = fake_open(fake);
	struct sigaction action = {.sa_handler = on_continue};
	int64_t		left;
	ssize_t		n;

	handler_seat = seat;
	sigaction(SIGCONT, &action, NULL);
	keyright_checkout(seat, NULL);
	/* Beats go on, but no new seat can be had before we have looked. */
	fake_set(fake, FAKE_FULL);
	left = keyright_may_run(seat);
	n = write(told_pipe, &left, sizeof(left));
	(void) n;
	WAIT_FOR(strcmp(fake_story(fake), "waiting held lost degraded") == 0);
	fake_set(fake, FAKE_HEALTHY);
	left = WAIT_FOR(strcmp(fake_story(fake),
						   "waiting held lost degraded regained") == 0) ?
		keyright_may_run(seat) : -1;
	n = write(told_pipe, &left, sizeof(left));
	_exit(0);
}

static int64_t
read_told(int fd)
{
	int64_t		left = -2;
	struct pollfd ready = {.fd = fd, .events = POLLIN};

	if (poll(&ready, 1, 30000) != 1 ||
		read(fd, &left, sizeof(left)) != sizeof(left))
		return -2;
	return left;
}

static void
test_stop(void)
{
	int			fds[2];
	pid_t		child;

	if (pipe(fds) != 0)
		abort();
	fflush(stdout);
	child = fork();
	if (child == 0)
	{
		told_pipe = fds[1];
		be_stopped();
	}
	ok(read_told(fds[0]) > 0, "a process holds a seat");
	kill(child, SIGSTOP);
	sleep(6);
	kill(child, SIGCONT);
	ok(read_told(fds[0]) == 0, "stopped for two ttl and continued, its first "
	   "answer is \"may not run\"");
	ok(read_told(fds[0]) > 0,
	   "then the loss is told, and the seat is regained");
	ok(exit_status(child) == 0, "it ends well");
	close(fds[0]);
	close(fds[1]);
}

/* ----- nothing is left ----- */

static void
test_nothing_left(void)
{
	enum
	{
		MANY = 50
	};
	Fake	   *fakes[MANY];
	int			threads = entries("/proc/self/task");
	int			descriptors = entries("/proc/self/fd");
	int			held = 0;

	for (int i = 0; i < MANY; i++)
	{
		fakes[i] = fake_new(5);
		held += keyright_checkout(fake_open(fakes[i]), NULL) == KEYRIGHT_OK;
	}
	ok(held == MANY && entries("/proc/self/task") == threads + MANY &&
	   entries("/proc/self/fd") == descriptors + MANY,
	   "%d handles are %d threads and %d descriptors", MANY, MANY, MANY);
	for (int i = 0; i < MANY; i++)
	{
		keyright_close(fakes[i]->seat);
		fake_free(fakes[i]);
	}
	ok(WAIT_FOR(entries("/proc/self/task") == threads) &&
	   entries("/proc/self/fd") == descriptors, "of which none is left");
}

int
main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	test_life();
	test_outage();
	test_many_ask();
	test_interrupt();
	test_signals();
	test_callback();
	test_slow_callback();
	test_checkout_while_regaining();
	test_check_in_again();
	test_stuck_checkin();
	test_many_check_in();
	test_fork();
	test_stop();
	test_nothing_left();
	return finish();
}
