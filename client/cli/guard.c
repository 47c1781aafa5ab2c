/*
 * guard.c
 *		The process that stands between "keyright run" and its command.
 *
 * It is there for the case that we are not: killed, or stopped for good.
 *
 *		keyright run	asks the server, holds the seat, decides
 *		  guard			starts the command, passes signals on, ends it
 *			command
 *
 * Rules:
 *	- The guard is made before the library is used, so it has no connection,
 *	  no thread and no secret.
 *	- Its end of the socket closes when we die, however we die: then it ends
 *	  the command, and does so before the lease is over.
 *	- We write down until when the lease runs, in memory that both share.  If
 *	  that is over for too long, and we have said nothing, then we are stopped
 *	  or stuck, and the guard ends the command.
 *	- Control-Z stops us and the command, but not the guard: a command can be
 *	  deaf to it, or out of its reach.  While we are stopped the guard stops,
 *	  when the lease is over, whatever still runs.  It ends nothing then: after
 *	  "fg" all go on, and we have the time that we need to ask for a seat.
 *	- If the guard is killed, the kernel kills the command, and we kill what
 *	  the command had started.
 *	- If the guard is stopped alone, we let it go on; if we are killed then, the
 *	  kernel does.
 *
 * All stay in one process group, so that a terminal treats them as one.  What
 * is sent to the whole group (control-C) reaches the command by itself; then
 * the guard has it too, and does not pass it on a second time.  So the guard
 * has a name of its own: who looks for "keyright" means us alone.
 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* What did not end after SIGKILL for that long cannot be ended by us. */
#define KILL_LIMIT			(5 * SECOND_NS)

#define GUARD_NAME			"kr-guard"

/* How much longer than we may the guard believes in a lease: seconds. */
#define SLACK				5

/* We, who may be slow, ask for a group's signal to be passed on until then. */
#define SAME_SIGNAL			(5 * SECOND_NS)

typedef enum NoteKind
{
	NOTE_START,					/* to the guard */
	NOTE_SIGNAL,
	NOTE_STOP,
	NOTE_ENDED,					/* from the guard */
	NOTE_STOPPED,
	NOTE_NOT_STARTED
} NoteKind;

typedef struct Note
{
	NoteKind	kind;
	int			value;
} Note;

/* The guard's own. */
typedef struct Watch
{
	const GuardPolicy *policy;
	pid_t		owner;			/* keyright run */
	_Atomic int64_t *licensed_until;
	int			socket;
	int			signal_fd;
	pid_t		command;		/* 0: not started */
	bool		ended;
	int			status;			/* then: as waitpid() says */
	bool		stopping;
	int64_t		kill_at;
	int64_t		overdue;		/* seconds */
	int64_t		suspended_at;	/* by the terminal, as a job; 0: not */
	bool		held;			/* we have stopped the command */
	int64_t		seen[NSIG];		/* signals that reached us */
} Watch;

/* False: there is no room now.  That nobody is there is noticed elsewhere. */
static bool
send_note(int socket, NoteKind kind, int value)
{
	Note		note = {.kind = kind, .value = value};

	while (send(socket, &note, sizeof(note), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		if (errno != EINTR)
			return errno != EAGAIN;
	return true;
}

/* ----- the command ----- */

/* In the child: becomes the command, or returns with errno set. */
static void
become_command(const GuardPolicy *policy, pid_t parent)
{
	if (policy->stop_on_loss)
	{
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(EX_SOFTWARE);
	}
	for (size_t i = 0; i < OUR_SIGNALS; i++)
		signal(our_signals[i].number, policy->before[i]);
	sigprocmask(SIG_SETMASK, policy->original, NULL);
	execvp(policy->command[0], policy->command);
}

/* 0, or the errno of what failed: the pipe closes when exec() succeeds. */
static int
start_command(Watch *watch)
{
	pid_t		parent = getpid();
	int			pipes[2];
	int			problem = 0;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return errno;
	watch->command = fork();
	if (watch->command == 0)
	{
		become_command(watch->policy, parent);
		problem = errno;
		if (write(pipes[1], &problem, sizeof(problem)) < 0)
			problem = errno;
		_exit(EXIT_NOT_FOUND);
	}
	if (watch->command < 0)
		problem = errno;
	close(pipes[1]);
	if (problem == 0 &&
		read(pipes[0], &problem, sizeof(problem)) != sizeof(problem))
		problem = 0;
	close(pipes[0]);
	return problem;
}

static void
reap(Watch *watch)
{
	int			status;
	pid_t		pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == watch->command)
		{
			watch->ended = true;
			watch->status = status;
		}
}

/* Orphans come to us, so without children there are no descendants. */
static bool
all_are_gone(void)
{
	siginfo_t	info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 &&
		errno == ECHILD;
}

/*
 * SIGTERM to all that the command has started, too: a shell that ends does
 * not end what it waits for.  A stopped process must run to end.  Without
 * time for that all are killed as they stand.  False: that was done before.
 */
static bool
stop_command(Watch *watch, int64_t grace)
{
	if (watch->stopping)
		return false;
	watch->stopping = true;
	watch->kill_at = boot_clock() + grace;
	family_signal(grace > 0 ? SIGTERM : SIGKILL);
	if (grace > 0)
		family_signal(SIGCONT);
	return true;
}

/* ----- signals ----- */

/* Those by which a terminal, or who acts for it, stops a job. */
static const int job_stops[] = {SIGTSTP, SIGTTIN, SIGTTOU};

static bool
is_job_stop(uint32_t n)
{
	for (size_t i = 0; i < COUNT(job_stops); i++)
		if (n == (uint32_t) job_stops[i])
			return true;
	return false;
}

static void
read_signals(Watch *watch)
{
	struct signalfd_siginfo info;

	while (read(watch->signal_fd, &info, sizeof(info)) == sizeof(info))
	{
		/* From our owner it is for us alone: guard_keep_awake(). */
		if (info.ssi_signo < NSIG && (pid_t) info.ssi_pid != watch->owner)
			watch->seen[info.ssi_signo] = boot_clock();
		if (is_job_stop(info.ssi_signo))
			watch->suspended_at = boot_clock();
		else if (info.ssi_signo == SIGCONT)
			watch->suspended_at = 0;
	}
}

/* A command that left our group has not got what the group got. */
static bool
has_got_it(Watch *watch, int n)
{
	int64_t		seen;

	read_signals(watch);
	seen = watch->seen[n];
	watch->seen[n] = 0;
	return seen != 0 && boot_clock() - seen < SAME_SIGNAL &&
		getpgid(watch->command) == getpgrp();
}

static void
pass_on(Watch *watch, int n)
{
	if (n > 0 && n < NSIG && watch->command > 0 && !watch->ended &&
		!has_got_it(watch, n))
		kill(watch->command, n);
}

/* ----- the one who decides ----- */

/*
 * Nobody renews the lease any more: the command ends within it, though saying
 * so can keep us for a while.
 */
static void
owner_is_gone(Watch *watch)
{
	int64_t		left = *watch->licensed_until - boot_clock() - TELL_LIMIT;
	int64_t		grace = watch->policy->grace_ms * MS_NS;

	if (watch->command <= 0 || watch->ended)
		_exit(EX_SOFTWARE);
	if (!watch->policy->stop_on_loss)
	{
		complain("\"keyright run\" was killed; "
				 "the command goes on without a seat");
		_exit(EX_SOFTWARE);
	}
	close(watch->socket);
	watch->socket = -1;
	if (stop_command(watch, left < 0 ? 0 : left < grace ? left : grace))
		complain("\"keyright run\" was killed; stopping the command");
}

static void
read_note(Watch *watch)
{
	Note		note;
	ssize_t		size = recv(watch->socket, &note, sizeof(note), MSG_DONTWAIT);
	int			problem;

	if (size < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (size != sizeof(note))
	{
		owner_is_gone(watch);
		return;
	}
	switch (note.kind)
	{
		case NOTE_START:
			problem = start_command(watch);
			if (problem != 0)
			{
				send_note(watch->socket, NOTE_NOT_STARTED, problem);
				_exit(EX_SOFTWARE);
			}
			break;
		case NOTE_SIGNAL:
			pass_on(watch, note.value);
			break;
		case NOTE_STOP:
			stop_command(watch, watch->policy->grace_ms * MS_NS);
			break;
		default:
			break;
	}
}

/* ----- the time ----- */

static bool
is_licensed(const Watch *watch)
{
	return boot_clock() < *watch->licensed_until;
}

/*
 * Who is stopped asks for no seat.  Once more each time that we look: what is
 * being started while the others are stopped can be missed.
 */
static void
hold_command(Watch *watch)
{
	bool		held = !is_licensed(watch) && is_stopped(watch->owner);

	if (held)
		family_signal(SIGSTOP);
	else if (watch->held)
		family_signal(SIGCONT);
	watch->held = held;
}

/*
 * Who ignores the terminal's signal, or was made to go on alone, is no
 * suspended job; who does not, stops soon.
 */
static bool
is_suspended(Watch *watch)
{
	if (watch->suspended_at != 0 && !is_stopped(watch->owner) &&
		boot_clock() - watch->suspended_at > SAME_SIGNAL)
		watch->suspended_at = 0;
	return watch->suspended_at != 0;
}

/* Once a second.  Whom we hold may not run again: another can have the seat. */
static void
watch_owner(Watch *watch)
{
	bool		suspended = is_suspended(watch);

	if (is_licensed(watch) || (watch->held && suspended))
		watch->overdue = 0;
	else if (++watch->overdue > watch->policy->regain_ms / 1000 + SLACK &&
			 stop_command(watch, watch->held ? 0 :
						  watch->policy->grace_ms * MS_NS))
		complain("\"keyright run\" does not move and its seat is over; "
				 "stopping the command");
}

/*
 * Whether the story is over.  What does not end after SIGKILL is not ours to
 * end: another user's, or stuck in the kernel.
 */
static bool
is_over(Watch *watch)
{
	int64_t		now = boot_clock();

	reap(watch);
	if (!watch->stopping)
		return watch->ended;
	if (all_are_gone() || now >= watch->kill_at + KILL_LIMIT)
		return true;
	if (now >= watch->kill_at)
		family_signal(SIGKILL);
	return false;
}

/*
 * The end of a process wakes us anyway.  Not for long: the clock of poll()
 * stands still while the machine sleeps, and the lease does not.
 */
static int
pause_ms(const Watch *watch)
{
	int64_t		left;

	/* What starts others faster than we look could outrun us. */
	if (watch->stopping)
		return boot_clock() < watch->kill_at ? 50 : 5;
	if (watch->command == 0 || !watch->policy->stop_on_loss)
		return -1;
	left = *watch->licensed_until - boot_clock();
	return left <= 0 || left >= SECOND_NS ? 1000 : (int) (left / MS_NS) + 1;
}

static void
keep_watch(Watch *watch)
{
	int64_t		last_look = boot_clock();

	while (watch->command == 0 || !is_over(watch))
	{
		struct pollfd fds[2] = {
			{.fd = watch->signal_fd, .events = POLLIN},
			{.fd = watch->socket, .events = POLLIN}
		};

		poll(fds, 2, pause_ms(watch));
		read_signals(watch);
		if (fds[1].revents != 0)
			read_note(watch);
		if (watch->command == 0 || !watch->policy->stop_on_loss ||
			watch->stopping)
			continue;
		hold_command(watch);
		if (boot_clock() - last_look >= SECOND_NS)
		{
			last_look = boot_clock();
			watch_owner(watch);
		}
	}
	if (watch->socket >= 0)
		send_note(watch->socket, watch->stopping ? NOTE_STOPPED : NOTE_ENDED,
				  watch->status);
}

/*
 * What ps(1) and pkill(1) show of us must not fit to what they show of the
 * owner.  The words of a command line lie side by side, from the first to the
 * last; those of the command are still wanted.
 */
static void
take_own_name(const GuardPolicy *policy)
{
	char	   *name = policy->program;
	char	   *end = name;

	for (char **word = policy->command; *word != NULL; word++)
	{
		end = *word + strlen(*word);
		*word = strdup(*word);
		if (*word == NULL)
			_exit(EX_SOFTWARE);
	}
	prctl(PR_SET_NAME, GUARD_NAME);
	if (end - name < (ptrdiff_t) strlen(GUARD_NAME))
		return;
	memset(name, 0, (size_t) (end - name));
	memcpy(name, GUARD_NAME, strlen(GUARD_NAME));
}

static void
guard_main(const GuardPolicy *policy, pid_t owner,
		   _Atomic int64_t *licensed_until, int socket)
{
	Watch		watch = {
		.policy = policy,
		.owner = owner,
		.licensed_until = licensed_until,
		.socket = socket
	};
	sigset_t	mask = *policy->passed_on;

	take_own_name(policy);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGCONT);
	if (getppid() != owner)
		_exit(EX_SOFTWARE);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGCONT);
	for (size_t i = 0; i < COUNT(job_stops); i++)
		sigaddset(&mask, job_stops[i]);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	watch.signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (watch.signal_fd < 0)
		_exit(EX_SOFTWARE);
	keep_watch(&watch);
	_exit(EX_OK);
}

/* ----- our side ----- */

bool
guard_open(Guard *guard, const GuardPolicy *policy)
{
	int			sockets[2];
	pid_t		owner = getpid();

	if (policy->stop_on_loss && !family_is_visible())
	{
		complain("/proc does not show this process, and without it what the "
				 "command starts cannot be ended: mount it, or use "
				 "\"--on-lost warn\"");
		return false;
	}
	guard->licensed_until = mmap(NULL, sizeof(*guard->licensed_until),
								 PROT_READ | PROT_WRITE,
								 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (guard->licensed_until == MAP_FAILED ||
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
	{
		complain("could not prepare: %s", strerror(errno));
		return false;
	}
	/* For what the guard leaves behind if it is killed. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	guard->pid = fork();
	if (guard->pid < 0)
	{
		complain("could not start a process: %s", strerror(errno));
		return false;
	}
	if (guard->pid == 0)
	{
		close(sockets[0]);
		guard_main(policy, owner, guard->licensed_until, sockets[1]);
	}
	close(sockets[1]);
	guard->socket = sockets[0];
	return true;
}

void
guard_keep_awake(const Guard *guard)
{
	if (is_stopped(guard->pid))
		kill(guard->pid, SIGCONT);
}

/* A guard that was stopped alone reads nothing until it goes on. */
static void
tell_guard(const Guard *guard, NoteKind kind, int value)
{
	while (!send_note(guard->socket, kind, value))
	{
		guard_keep_awake(guard);
		usleep(10000);
	}
}

void
guard_start_command(Guard *guard)
{
	tell_guard(guard, NOTE_START, 0);
}

void
guard_pass_on(Guard *guard, int signal_number)
{
	tell_guard(guard, NOTE_SIGNAL, signal_number);
}

void
guard_stop_command(Guard *guard)
{
	tell_guard(guard, NOTE_STOP, 0);
}

GuardNews
guard_news(Guard *guard, int *value)
{
	Note		note;
	ssize_t		size = recv(guard->socket, &note, sizeof(note), MSG_DONTWAIT);

	if (size < 0 && (errno == EAGAIN || errno == EINTR))
		return GUARD_NOTHING;
	if (size != sizeof(note))
	{
		/* Its end would be news again and again. */
		if (guard->socket >= 0)
			close(guard->socket);
		guard->socket = -1;
		return GUARD_GONE;
	}
	*value = note.value;
	return note.kind == NOTE_ENDED ? GUARD_ENDED :
		note.kind == NOTE_STOPPED ? GUARD_STOPPED : GUARD_NOT_STARTED;
}
