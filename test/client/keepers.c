/*
 * keepers.c
 *		Many seats kept at once, through the public interface of libkeyright
 *		alone, and a line for everything that happens to one of them.
 *
 * usage: keepers -l license -j jwks [-n count] [-t ttl_ms] [-p] [-b]
 *		[-s seconds] [conninfo]
 *
 *	-n	so many seats, one after the other (default 1)
 *	-p	each in a process of its own
 *	-b	tells of beats too, within 10 ms
 *	-s	ends after that many seconds; else at SIGTERM.  Either way all seats
 *		are given back
 *
 * Lines: "MILLISECONDS NUMBER PID STATE ERROR" since 1970 for a transition,
 * "MILLISECONDS NUMBER PID beat COUNT"; "ready COUNT" when all seats were
 * asked for, COUNT of them are held.  Without -p at the end, for what many
 * seats in one process cost:
 *
 *	"before | held | after  threads N  descriptors N  kilobytes N"
 *	"cpu_ms N  wall_ms N"		while they were held
 *
 * Exit status 0: all seats were had and given back.
 */
#include <keyright.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct Keeper
{
	int			number;
	Keyright   *seat;
	uint64_t	beats;
} Keeper;

static KeyrightOptions options;
static char jwks[16384];
static int	count = 1;
static int	seconds = -1;
static int	tell_beats;
static int	processes;

static long long
now_ms(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* A line is one write(): those of several threads and processes do not mix. */
__attribute__((format(printf, 1, 2)))
static void
tell(const char *format,...)
{
	char		line[512];
	va_list		values;
	int			size;

	va_start(values, format);
	size = vsnprintf(line, sizeof(line), format, values);
	va_end(values);
	if (size < 0 || (size_t) size >= sizeof(line) ||
		write(STDOUT_FILENO, line, (size_t) size) != size)
		_exit(3);
}

static void
tell_of(const Keeper *keeper, const char *what, const char *more)
{
	tell("%lld %d %d %s %s\n", now_ms(CLOCK_REALTIME), keeper->number,
		 (int) getpid(), what, more);
}

static void
on_event(void *arg, const KeyrightEvent *event)
{
	tell_of(arg, keyright_state_name(event->state),
			keyright_error_name(event->error.kind));
}

/* ----- what it costs ----- */

static int
entries(const char *folder)
{
	DIR		   *dir = opendir(folder);
	int			n = 0;

	if (dir == NULL)
		return -1;
	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	/* ".", ".." */
	return n - 2;
}

static long
resident_kb(void)
{
	FILE	   *file = fopen("/proc/self/statm", "r");
	long		pages = -1;

	if (file == NULL)
		return -1;
	if (fscanf(file, "%*s %ld", &pages) != 1)
		pages = -1;
	fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void
measure(const char *when)
{
	if (!processes)
		tell("%s threads %d descriptors %d kilobytes %ld\n", when,
			 entries("/proc/self/task"), entries("/proc/self/fd") - 1,
			 resident_kb());
}

static long long
cpu_ms(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000LL +
		(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/* ----- the life of some keepers ----- */

static int
check_out(Keeper *keeper)
{
	char		holder[64];
	KeyrightError error;

	snprintf(holder, sizeof(holder), "keeper %d", keeper->number);
	options.holder = holder;
	options.event_arg = keeper;
	if (keyright_open(&keeper->seat, &options, &error) == KEYRIGHT_OK &&
		keyright_checkout(keeper->seat, &error) == KEYRIGHT_OK)
		return 1;
	fprintf(stderr, "keeper %d: %s (%s %s)\n", keeper->number,
			error.message, error.sqlstate, error.detail);
	return 0;
}

static void
look_for_beats(Keeper *keepers, int n)
{
	KeyrightInfo info = {.size = sizeof(info)};
	char		text[32];

	for (int i = 0; i < n; i++)
	{
		if (keyright_info(keepers[i].seat, &info) != KEYRIGHT_OK ||
			info.beats == keepers[i].beats)
			continue;
		keepers[i].beats = info.beats;
		snprintf(text, sizeof(text), "%llu", (unsigned long long) info.beats);
		tell_of(&keepers[i], "beat", text);
	}
}

static void
hold(Keeper *keepers, int n)
{
	struct timespec slice = {.tv_nsec = 10000000};
	long long	until = now_ms(CLOCK_MONOTONIC) + seconds * 1000LL;
	sigset_t	set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	if (!tell_beats)
		slice.tv_nsec *= 10;
	while (sigtimedwait(&set, NULL, &slice) != SIGTERM)
	{
		if (tell_beats)
			look_for_beats(keepers, n);
		if (seconds >= 0 && now_ms(CLOCK_MONOTONIC) >= until)
			break;
	}
}

/* Keepers first, first + 1 ...; whether all went well. */
static int
keep(int first, int n)
{
	Keeper	   *keepers = calloc((size_t) n, sizeof(*keepers));
	int			held = 0;
	int			returned = 0;
	long long	began;
	long long	cpu;

	if (keepers == NULL)
		return 0;
	measure("before");
	for (int i = 0; i < n; i++)
	{
		keepers[i].number = first + i;
		held += check_out(&keepers[i]);
	}
	if (!processes)
		tell("ready %d\n", held);
	began = now_ms(CLOCK_MONOTONIC);
	cpu = cpu_ms();
	hold(keepers, n);
	if (!processes)
		tell("cpu_ms %lld wall_ms %lld\n", cpu_ms() - cpu,
			 now_ms(CLOCK_MONOTONIC) - began);
	measure("held");
	for (int i = 0; i < n; i++)
	{
		returned += keyright_checkin(keepers[i].seat, NULL) == KEYRIGHT_OK;
		keyright_close(keepers[i].seat);
	}
	/* A thread that was joined may be listed a moment longer. */
	for (int i = 0; i < 1000 && !processes && entries("/proc/self/task") > 1;
		 i++)
		usleep(1000);
	measure("after");
	free(keepers);
	return held == n && returned == n;
}

/* ----- a process for each ----- */

static pid_t
start(int number)
{
	pid_t		parent = getpid();
	pid_t		child = fork();

	if (child != 0)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(3);
	_exit(keep(number, 1) ? 0 : 1);
}

/* SIGTERM is passed on; a child may be killed by whoever wants to. */
static int
keep_in_processes(void)
{
	pid_t	   *children = calloc((size_t) count, sizeof(*children));
	struct timespec slice = {.tv_nsec = 100000000};
	int			left = count;
	int			bad = 0;
	int			status;
	sigset_t	set;

	if (children == NULL)
		return 0;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	for (int i = 0; i < count; i++)
		children[i] = start(i + 1);
	while (left > 0)
	{
		pid_t		ended;

		if (sigtimedwait(&set, NULL, &slice) == SIGTERM)
			for (int i = 0; i < count; i++)
				if (children[i] > 0)
					kill(children[i], SIGTERM);
		while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
		{
			for (int i = 0; i < count; i++)
				if (children[i] == ended)
					children[i] = 0;
			left--;
			bad += status != 0;
		}
		if (ended < 0 && errno == ECHILD)
			break;
	}
	free(children);
	return bad == 0;
}

/* ----- the command line ----- */

static void
die(const char *what)
{
	fprintf(stderr, "keepers: %s\n", what);
	exit(2);
}

static void
read_jwks(const char *path)
{
	FILE	   *file = fopen(path, "r");
	size_t		size = file == NULL ? 0 : fread(jwks, 1, sizeof(jwks) - 1, file);

	if (size == 0 || size == sizeof(jwks) - 1)
		die("could not read the public keys");
	fclose(file);
	options.jwks = jwks;
}

static void
read_options(int argc, char **argv)
{
	int			option;

	keyright_options_init(&options);
	options.wait_ms = 30000;
	options.on_event = on_event;
	while ((option = getopt(argc, argv, "l:j:n:t:s:pb")) != -1)
		switch (option)
		{
			case 'l':
				options.license = optarg;
				break;
			case 'j':
				read_jwks(optarg);
				break;
			case 'n':
				count = atoi(optarg);
				break;
			case 't':
				options.ttl_ms = atoll(optarg);
				break;
			case 's':
				seconds = atoi(optarg);
				break;
			case 'p':
				processes = 1;
				break;
			case 'b':
				tell_beats = 1;
				break;
			default:
				exit(2);
		}
	if (options.license == NULL || options.jwks == NULL || count < 1)
		die("-l and -j are needed");
	options.conninfo = argv[optind];
}

int
main(int argc, char **argv)
{
	sigset_t	set;

	read_options(argc, argv);
	/* Nothing outlives a test that was given up. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Before there is any thread: it is waited for. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return (processes ? keep_in_processes() : keep(1, count)) ? 0 : 1;
}
