/*
 * message.c
 *		What is told on standard error, which must never hold us up.
 *
 * Nobody may read there any more, or not for now: a full pipe, a terminal
 * after control-S.  poll() cannot tell, as a terminal with room for one byte is
 * ready, and O_NONBLOCK would be set for all who share the file.  So a write
 * that takes too long is interrupted by a signal that a timer sends to this
 * thread alone: again and again, lest it comes just before the write.  Where
 * no timer can be had (RLIMIT_SIGPENDING, no memory), poll() is asked after all.
 */
#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* Older headers have only the longer name, see sigevent(3type). */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define WRITE_AGAIN			(100 * MS_NS)

/* Of those that are not passed on to a command (run.c), one of no use here. */
#define WRITE_SIGNAL		SIGVTALRM

static void
interrupt(int signal_number)
{
	(void) signal_number;
}

static bool
set_timer(timer_t *timer)
{
	struct sigaction action = {.sa_handler = interrupt};
	struct sigevent event = {
		.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = WRITE_SIGNAL
	};
	struct itimerspec times = {
		.it_value = {.tv_sec = TELL_LIMIT / SECOND_NS},
		.it_interval = {.tv_nsec = WRITE_AGAIN}
	};

	event.sigev_notify_thread_id = gettid();
	if (sigaction(WRITE_SIGNAL, &action, NULL) < 0 ||
		timer_create(CLOCK_MONOTONIC, &event, timer) < 0)
		return false;
	if (timer_settime(*timer, 0, &times, NULL) == 0)
		return true;
	timer_delete(*timer);
	return false;
}

static void
write_until(int64_t end, bool timed, const char *text, size_t size)
{
	struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};

	while (size > 0 && boot_clock() < end)
	{
		ssize_t		n;

		if (!timed && poll(&ready, 1, WRITE_AGAIN / MS_NS) <= 0)
			continue;
		n = write(STDERR_FILENO, text, size);
		if (n >= 0)
		{
			text += n;
			size -= (size_t) n;
		}
		/* Somebody else has set O_NONBLOCK. */
		else if (errno == EAGAIN)
			poll(&ready, 1, WRITE_AGAIN / MS_NS);
		else if (errno != EINTR)
			break;
	}
}

void
tell(const char *text)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	sigset_t	ours;
	sigset_t	before;
	timer_t		timer;
	bool		timed;

	sigemptyset(&ours);
	sigaddset(&ours, WRITE_SIGNAL);
	pthread_mutex_lock(&one_at_a_time);
	timed = set_timer(&timer);
	pthread_sigmask(SIG_UNBLOCK, &ours, &before);
	write_until(boot_clock() + TELL_LIMIT, timed, text, strlen(text));
	if (timed)
		timer_delete(timer);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_mutex_unlock(&one_at_a_time);
}

/*
 * U+0080 to U+009F are as good as an escape character, and so are their single
 * bytes to some terminals.
 */
static size_t
tame_character(char *at, uint32_t code, size_t length)
{
	unsigned char byte = (unsigned char) *at;

	if (length == 2 && code < 0xa0)
		memcpy(at, " ?", 2);
	else if (*at == '\n' || *at == '\t')
		*at = ' ';
	else if (byte < 0x20 || byte == 0x7f ||
			 (length == 0 && byte >= 0x80 && byte < 0xa0))
		*at = '?';
	return length > 0 ? length : 1;
}

/* All that can be printed stays, in any locale: a log may be read in another. */
void
tame(char *line)
{
	uint32_t	code = 0;

	while (*line != '\0')
	{
		size_t		length = utf8_decode(&code, line, strlen(line));

		line += tame_character(line, code, length);
	}
}

void
complain(const char *format, ...)
{
	char		text[2048];
	char		line[sizeof(text) + 16];
	va_list		args;
	size_t		size;

	va_start(args, format);
	if (vsnprintf(text, sizeof(text), format, args) < 0)
		text[0] = '\0';
	va_end(args);
	size = strlen(text);
	while (size > 0 && text[size - 1] == '\n')
		text[--size] = '\0';
	tame(text);
	snprintf(line, sizeof(line), "keyright: %s\n", text);
	tell(line);
}

void
complain_of(const KeyrightError *error, const char *more)
{
	char		detail[sizeof(error->detail)];
	size_t		size = strlen(error->detail);

	memcpy(detail, error->detail, size + 1);
	while (size > 0 && detail[size - 1] == '\n')
		detail[--size] = '\0';
	complain("%s%s%s%s%s%s", error->message, more[0] ? " " : "", more,
			 size > 0 ? " (" : "", detail, size > 0 ? ")" : "");
}
