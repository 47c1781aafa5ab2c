/*
 * run_check_out.c
 *		keyright run: getting a seat, and what is seen while waiting for it.
 *
 * keyright_checkout() waits in a thread of its own, so that signals and the
 * line on the terminal are served meanwhile.
 */
#include "run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

typedef struct Asking
{
	Run		   *run;
	KeyrightError error;
	atomic_bool done;
	bool		terminal;
	int64_t		give_up_at;		/* on the boot clock; 0: never */
} Asking;

static void *
ask(void *arg)
{
	Asking	   *asking = arg;

	keyright_checkout(asking->run->seat, &asking->error);
	atomic_store(&asking->done, true);
	run_wake(asking->run);
	return NULL;
}

static bool
start_asking(Asking *asking, pthread_t *thread)
{
	sigset_t	all;
	sigset_t	before;
	int			result;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	result = pthread_create(thread, NULL, ask, asking);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return result == 0;
}

/* ----- the line ----- */

#define NO_LINE				"\r\033[K"

void
run_hide_line(Run *run)
{
	if (atomic_exchange(&run->line_shown, false))
		tell(NO_LINE);
}

/* A line that wraps could not be taken back. */
static void
fit_terminal(char *line)
{
	struct winsize size;
	size_t		room = 79;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
		room = size.ws_col - 1;
	if (strlen(line) <= room)
		return;
	/* Not amid a character. */
	while (room > 0 && ((unsigned char) line[room] & 0xc0) == 0x80)
		room--;
	line[room] = '\0';
}

/* Rounded up. */
static int64_t
whole_seconds(int64_t ns)
{
	return (ns + SECOND_NS - 1) / SECOND_NS;
}

/* What may not fit comes last. */
static void
make_line(char *line, size_t room, const Asking *asking,
		  const KeyrightInfo *info)
{
	int64_t		left = asking->give_up_at - boot_clock();
	bool		full = info->error.kind == KEYRIGHT_ERR_NO_SEATS;
	char		maybe[DURATION_SIZE + 16] = "";
	char		limit[DURATION_SIZE + 16] = "";
	char		when[DURATION_SIZE];

	if (full && info->free_in_ns >= 0)
	{
		print_duration(when, whole_seconds(info->free_in_ns));
		snprintf(maybe, sizeof(maybe), ", maybe in %s", when);
	}
	if (asking->give_up_at > 0)
	{
		print_duration(when, whole_seconds(left > 0 ? left : 0));
		snprintf(limit, sizeof(limit), "; giving up in %s", when);
	}
	snprintf(line, room, "keyright: %s%s%s%s (license \"%s\")",
			 full ? "waiting for a seat" : info->error.message,
			 full ? "" : " Trying on", maybe, limit,
			 asking->run->options.license);
	fit_terminal(line);
}

/* Shown only when there is something to wait for. */
static void
show_line(Asking *asking)
{
	KeyrightInfo info = {.size = sizeof(info)};
	char		line[1024];
	char		text[sizeof(line) + sizeof(NO_LINE)];

	if (!asking->terminal || atomic_load(&asking->done) ||
		keyright_info(asking->run->seat, &info) != KEYRIGHT_OK ||
		info.error.kind == KEYRIGHT_OK || !info.trying)
		return;
	make_line(line, sizeof(line), asking, &info);
	snprintf(text, sizeof(text), NO_LINE "%s", line);
	atomic_store(&asking->run->line_shown, true);
	tell(text);
}

/* ----- the end ----- */

/*
 * "... One can be free in 42 s, at 14:03:10."  The server names no time where
 * no waiting helps, which is where there is nothing to wait for.
 */
void
print_no_seat(char text[NO_SEAT_SIZE], const Run *run,
			  const KeyrightError *error)
{
	KeyrightInfo info = {.size = sizeof(info)};
	char		when[DURATION_SIZE];
	char		at[LOCAL_TIME_SIZE];
	int64_t		seconds;

	if (keyright_info(run->seat, &info) != KEYRIGHT_OK)
		snprintf(text, NO_SEAT_SIZE, "%s", error->message);
	else if (info.free_in_ns < 0)
		snprintf(text, NO_SEAT_SIZE, "License \"%s\" has no seats.",
				 run->options.license);
	else
	{
		seconds = whole_seconds(info.free_in_ns);
		print_local_time(at, seconds < 43200 ? "%T" : "%F %R",
						 time(NULL) + seconds);
		print_duration(when, seconds);
		snprintf(text, NO_SEAT_SIZE, "%s One can be free in %s, at %s.",
				 error->message, when, at);
	}
}

/* Those that merely tell something do not end the waiting. */
static bool
ends_waiting(int n)
{
	return n != SIGWINCH && n != SIGCONT && n != SIGURG;
}

int
run_check_out(Run *run)
{
	Asking		asking = {
		.run = run,
		.terminal = run->options.wait_ms != 0 && isatty(STDERR_FILENO),
		.give_up_at = run->options.wait_ms < 0 ? 0 :
		boot_clock() + run->options.wait_ms * MS_NS
	};
	pthread_t	thread;
	bool		alone = false;	/* nobody would start the command */
	int			came = 0;
	int			value;
	int			n;

	if (!start_asking(&asking, &thread))
	{
		complain("could not start a thread");
		return EX_SOFTWARE;
	}
	while (!atomic_load(&asking.done))
	{
		run_pause(run, asking.terminal ? 1000 : -1);
		while ((n = run_next_signal(run)) != 0)
			if (came == 0 && ends_waiting(n))
				came = n;
		alone = alone || guard_news(&run->guard, &value) == GUARD_GONE;
		if (came != 0 || alone)
			keyright_interrupt(run->seat);
		show_line(&asking);
	}
	pthread_join(thread, NULL);
	run_hide_line(run);
	if (alone)
	{
		complain(GUARD_KILLED);
		return EX_SOFTWARE;
	}
	if (came != 0)
		return EXIT_SIGNAL(came);
	if (asking.error.kind == KEYRIGHT_OK)
		return EX_OK;
	return run_complain(run, &asking.error);
}
