/*
 * run.c
 *		keyright run: holds a seat while a command runs.
 *
 * The order matters.  First the guard (guard.c), from a process that is still
 * clean; then the seat; then the command.  In the end the command first, then
 * the seat: nobody else gets it while the command may still be at work.
 *
 * All signals that a command may want are blocked here and read as they
 * come, so nothing is ever done inside of a signal handler.
 */
#include "run.h"

#include "internal.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Giving back is a courtesy: the seat comes back by itself as well. */
#define RELEASE_LIMIT_MS	3000

/* ----- options ----- */

enum
{
	OPT_LICENSE = 256, OPT_JWKS, OPT_HOLDER, OPT_TTL, OPT_WAIT, OPT_STATE,
	OPT_ON_LOST, OPT_GRACE, OPT_REGAIN, OPT_DSN
};

static const struct option long_options[] = {
	{"license", required_argument, NULL, OPT_LICENSE},
	{"jwks", required_argument, NULL, OPT_JWKS},
	{"holder", required_argument, NULL, OPT_HOLDER},
	{"ttl", required_argument, NULL, OPT_TTL},
	{"wait", required_argument, NULL, OPT_WAIT},
	{"state", required_argument, NULL, OPT_STATE},
	{"on-lost", required_argument, NULL, OPT_ON_LOST},
	{"grace", required_argument, NULL, OPT_GRACE},
	{"regain", required_argument, NULL, OPT_REGAIN},
	{"dsn", required_argument, NULL, OPT_DSN},
	{"verbose", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0}
};

static bool
on_lost_option(Run *run, const char *text)
{
	run->guard_policy.stop_on_loss = strcmp(text, "stop") == 0;
	if (run->guard_policy.stop_on_loss || strcmp(text, "warn") == 0)
		return true;
	complain("--on-lost: \"%s\" is neither stop nor warn", text);
	return false;
}

static bool
text_option(const char *name, const char *text, const char **to)
{
	*to = text;
	if (claim_text_ok(text, strlen(text)))
		return true;
	complain("--%s must have 1 to %d bytes in UTF-8 and no control "
			 "characters", name, KEYRIGHT_TEXT_MAX);
	return false;
}

static bool
wait_option(Run *run, const char *text)
{
	if (strcmp(text, "forever") == 0)
	{
		run->options.wait_ms = -1;
		return true;
	}
	if (duration_option("wait", text, 0, &run->options.wait_ms))
		return true;
	complain("--wait: \"forever\" is possible, too");
	return false;
}

/* 0: go on; else what to exit with, or -1 for 0. */
static int
read_option(Run *run, int option)
{
	bool		ok = true;

	switch (option)
	{
		case OPT_LICENSE:
			ok = text_option("license", optarg, &run->options.license);
			break;
		case OPT_JWKS:
			run->jwks_file = optarg;
			break;
		case OPT_HOLDER:
			ok = text_option("holder", optarg, &run->options.holder);
			break;
		case OPT_TTL:
			ok = duration_option("ttl", optarg, TTL_MIN_MS,
								 &run->options.ttl_ms);
			break;
		case OPT_WAIT:
			ok = wait_option(run, optarg);
			break;
		case OPT_STATE:
			run->options.state_file = optarg;
			break;
		case OPT_ON_LOST:
			ok = on_lost_option(run, optarg);
			break;
		case OPT_GRACE:
			ok = duration_option("grace", optarg, 0,
								 &run->guard_policy.grace_ms);
			break;
		case OPT_REGAIN:
			ok = duration_option("regain", optarg, 0,
								 &run->guard_policy.regain_ms);
			break;
		case OPT_DSN:
			run->options.conninfo = optarg;
			break;
		case 'v':
			run->verbose = true;
			break;
		case 'h':
			help("run");
			return -1;
		default:
			return usage("run");
	}
	return ok ? 0 : EX_USAGE;
}

/* The first word that is no option begins the command. */
static int
read_options(Run *run, int argc, char **argv)
{
	int			option;
	int			status;

	while ((option = getopt_long(argc, argv, "+hv", long_options,
								 NULL)) != -1)
		if ((status = read_option(run, option)) != 0)
			return status;
	run->guard_policy.command = argv + optind;
	if (run->options.license == NULL)
		complain("--license is missing");
	else if (run->jwks_file == NULL)
		complain("--jwks is missing: a file with the server's public keys, "
				 "as \"keyright jwks\" prints them");
	else if (optind == argc)
		complain("there is no command to run");
	else
		return 0;
	return usage("run");
}

/* ----- signals ----- */

/*
 * Not those that speak of a fault of our own, nor those by which a terminal
 * stops us, nor what we were told to ignore (by nohup, say).
 */
static bool
is_passed_on(int n)
{
	static const int ours[] = {
		SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP,
		SIGSYS, SIGCHLD, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU, SIGXCPU,
		SIGXFSZ, SIGPROF, SIGVTALRM
	};
	struct sigaction action;

	for (size_t i = 0; i < COUNT(ours); i++)
		if (n == ours[i])
			return false;
	return sigaction(n, NULL, &action) == 0 &&
		action.sa_handler != SIG_IGN;
}

/*
 * Who ignores SIGCHLD (as our caller may) is told of no child's end.  A reader
 * of our messages that is gone must not end the command, nor must a file of
 * them that may not grow any more.  SIGVTALRM is message.c's.
 */
const OurSignal our_signals[OUR_SIGNALS] = {
	{SIGCHLD, SIG_DFL}, {SIGPIPE, SIG_IGN}, {SIGXFSZ, SIG_IGN},
	{SIGVTALRM, SIG_DFL}
};

static bool
take_signals(Run *run)
{
	sigemptyset(&run->passed_on);
	for (int n = 1; n < NSIG; n++)
		if (is_passed_on(n))
			sigaddset(&run->passed_on, n);
	sigprocmask(SIG_BLOCK, &run->passed_on, &run->original);
	run->guard_policy.passed_on = &run->passed_on;
	run->guard_policy.original = &run->original;
	for (size_t i = 0; i < OUR_SIGNALS; i++)
		run->guard_policy.before[i] = signal(our_signals[i].number,
											 our_signals[i].handler);
	run->signal_fd = signalfd(-1, &run->passed_on,
							  SFD_CLOEXEC | SFD_NONBLOCK);
	run->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (run->signal_fd >= 0 && run->wake_fd >= 0)
		return true;
	complain("could not prepare: %s", strerror(errno));
	return false;
}

int
run_next_signal(Run *run)
{
	struct signalfd_siginfo info;

	if (read(run->signal_fd, &info, sizeof(info)) != sizeof(info))
		return 0;
	return (int) info.ssi_signo;
}

void
run_wake(Run *run)
{
	uint64_t	one = 1;
	ssize_t		n = write(run->wake_fd, &one, sizeof(one));

	(void) n;
}

/* Until something happened: a signal, an event, news of the guard. */
void
run_pause(Run *run, int timeout_ms)
{
	struct pollfd fds[3] = {
		{.fd = run->signal_fd, .events = POLLIN},
		{.fd = run->wake_fd, .events = POLLIN},
		{.fd = run->guard.socket, .events = POLLIN}
	};
	uint64_t	count;
	ssize_t		n;

	poll(fds, COUNT(fds), timeout_ms);
	n = read(run->wake_fd, &count, sizeof(count));
	(void) n;
}

/* ----- what the library says ----- */

/* In the library's thread. */
static void
on_event(void *arg, const KeyrightEvent *event)
{
	Run		   *run = arg;
	char		text[NO_SEAT_SIZE];

	if (run->verbose)
	{
		if (event->error.kind == KEYRIGHT_ERR_NO_SEATS)
			print_no_seat(text, run, &event->error);
		else
			snprintf(text, sizeof(text), "%s", event->error.message);
		run_hide_line(run);
		complain("%s%s%s", keyright_state_name(event->state),
				 event->error.kind != KEYRIGHT_OK ? ": " : "", text);
	}
	run_wake(run);
}

static int
complain_of_options(const Run *run, const KeyrightError *error)
{
	int			status = check_dsn(run->options.conninfo);

	if (status != EX_OK)
		return status;
	complain("--jwks: \"%s\" cannot be used: %s", run->jwks_file,
			 error->detail);
	return EX_CONFIG;
}

const char *
run_advice(const KeyrightError *error)
{
	if (error->kind == KEYRIGHT_ERR_TOKEN)
		return "Is the file of --jwks too old, or another server's?";
	if (strcmp(error->sqlstate, "42501") == 0 &&
		strstr(error->detail, "keyright") != NULL)
		return GRANT_HINT("client") ".";
	return "";
}

int
run_complain(const Run *run, const KeyrightError *error)
{
	char		text[NO_SEAT_SIZE];

	switch (error->kind)
	{
		case KEYRIGHT_ERR_OPTIONS:
			return complain_of_options(run, error);
		case KEYRIGHT_ERR_STATE_FILE:
			complain("--state: \"%s\" cannot be used: %s",
					 run->options.state_file, error->detail);
			break;
		case KEYRIGHT_ERR_NO_SEATS:
			print_no_seat(text, run, error);
			complain("%s", text);
			break;
		default:
			complain_of(error, run_advice(error));
	}
	return exit_status_of(error->kind);
}

/* ----- the seat ----- */

static int
open_seat(Run *run)
{
	KeyrightError error;

	run->options.on_event = on_event;
	run->options.event_arg = run;
	run->options.release_limit_ms = RELEASE_LIMIT_MS;
	if (keyright_open(&run->seat, &run->options, &error) == KEYRIGHT_OK)
		return EX_OK;
	return run_complain(run, &error);
}

/* Who has no seat, or one that is over, is not told when it will be free. */
static void
give_back(Run *run)
{
	bool		held = keyright_may_run(run->seat) > 0;
	KeyrightError error;

	if (keyright_checkin(run->seat, &error) != KEYRIGHT_OK && held &&
		(run->verbose || isatty(STDERR_FILENO)))
		complain_of(&error, "The seat will be free when its lease is over.");
	keyright_close(run->seat);
}

/* ----- in order ----- */

static int
run_all(Run *run)
{
	int			status;

	if (!take_signals(run) || !guard_open(&run->guard, &run->guard_policy))
		return EX_SOFTWARE;
	status = open_seat(run);
	if (status != EX_OK)
		return status;
	status = run_check_out(run);
	if (status == EX_OK)
		status = run_command(run);
	give_back(run);
	return status;
}

int
cmd_run(int argc, char **argv)
{
	Run			run = {
		.guard_policy = {
			.stop_on_loss = true,
			.grace_ms = 10000,
			.regain_ms = 10000
		}
	};
	size_t		size;
	char	   *jwks;
	int			status;

	keyright_options_init(&run.options);
	run.guard_policy.program = argv[0];
	status = read_options(&run, argc, argv);
	if (status != 0)
		return status < 0 ? EX_OK : status;
	jwks = read_jwks_file(run.jwks_file, &size);
	if (jwks == NULL)
		return EX_CONFIG;
	run.options.jwks = jwks;
	status = run_all(&run);
	free(jwks);
	return status;
}
