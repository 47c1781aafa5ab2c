/*
 * run_command.c
 *		keyright run: the command while it runs, and when its seat is lost.
 *
 * "Finally lost" is: the lease is over, and either the server has said that
 * there is no other, or none was to be had for a while (--regain).  A laptop
 * that wakes up, or a network that comes back a bit too late, has that time.
 */
#include "run.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How often the lease's end and the guard are looked at, at most, least: ms. */
#define LOOK_MIN			100
#define LOOK_MAX			1000

typedef struct Course
{
	Run		   *run;
	bool		over;			/* the lease is */
	int64_t		over_since;		/* on the boot clock */
	bool		lost;			/* finally; it was told */
	int			status;			/* the reason, if the command is stopped */
} Course;

/* ----- the seat ----- */

/* The server's word, which is signed or none, or nobody asks any more. */
static bool
no_other_seat(const KeyrightInfo *info)
{
	return !info->trying || info->state == KEYRIGHT_DEGRADED ||
		info->state == KEYRIGHT_REVOKED ||
		(info->state == KEYRIGHT_REFUSED &&
		 keyright_error_class(info->error.kind) != KEYRIGHT_CLASS_UNSIGNED);
}

static void
finally_lost(Course *course, const KeyrightInfo *info)
{
	const char *advice = run_advice(&info->error);
	char		more[256];

	course->lost = true;
	snprintf(more, sizeof(more), "%s%sThe seat is lost; %s", advice,
			 advice[0] ? " " : "", course->run->guard_policy.stop_on_loss ?
			 "stopping the command." : "the command goes on without one.");
	if (course->run->guard_policy.stop_on_loss)
	{
		course->status = exit_status_of(info->error.kind);
		guard_stop_command(&course->run->guard);
	}
	complain_of(&info->error, more);
}

static void
is_held(Course *course, int64_t left)
{
	atomic_store(course->run->guard.licensed_until, boot_clock() + left);
	course->over = false;
	if (course->lost && course->status == 0)
	{
		course->lost = false;
		complain("A seat is held again.");
	}
}

static void
is_not_held(Course *course)
{
	KeyrightInfo info = {.size = sizeof(info)};
	int64_t		now = boot_clock();
	int64_t		regain = course->run->guard_policy.regain_ms;

	if (!course->over)
	{
		course->over = true;
		course->over_since = now;
	}
	if (course->lost ||
		keyright_info(course->run->seat, &info) != KEYRIGHT_OK ||
		info.left_ns > 0)
		return;
	if (no_other_seat(&info) ||
		(now - course->over_since) / MS_NS >= regain)
		finally_lost(course, &info);
}

/* Returns after how many ms to look again; an event comes sooner. */
static int
look_at_seat(Course *course)
{
	int64_t		left = keyright_may_run(course->run->seat);
	int64_t		next = left / MS_NS / 4;

	if (left > 0)
		is_held(course, left);
	else
		is_not_held(course);
	if (course->lost)
		return LOOK_MAX;
	return next < LOOK_MIN ? LOOK_MIN : next > LOOK_MAX ? LOOK_MAX :
		(int) next;
}

/* ----- the command ----- */

static int
not_started(const Course *course, int problem)
{
	complain("could not run \"%s\": %s",
			 course->run->guard_policy.command[0], strerror(problem));
	return problem == ENOENT || problem == ENOTDIR ? EXIT_NOT_FOUND :
		EXIT_NOT_EXECUTABLE;
}

static int
ended(int status)
{
	return WIFSIGNALED(status) ? EXIT_SIGNAL(WTERMSIG(status)) :
		WEXITSTATUS(status);
}

/* What it had started is now ours; the kernel has killed the command. */
static int
guard_is_gone(const Course *course)
{
	bool		stops = course->run->guard_policy.stop_on_loss;

	complain("%s%s", GUARD_KILLED, stops ? "" :
			 "; the command goes on without a seat");
	if (stops)
		for (int i = 0; i < 20; i++)
		{
			family_signal(SIGKILL);
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
			if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
				break;
			usleep(50000);
		}
	return EX_SOFTWARE;
}

int
run_command(Run *run)
{
	Course		course = {.run = run};
	int			pause_ms;
	int			value = 0;
	int			n;

	look_at_seat(&course);
	guard_start_command(&run->guard);
	for (;;)
	{
		pause_ms = look_at_seat(&course);
		guard_keep_awake(&run->guard);
		run_pause(run, pause_ms);
		while ((n = run_next_signal(run)) != 0)
			guard_pass_on(&run->guard, n);
		switch (guard_news(&run->guard, &value))
		{
			case GUARD_NOTHING:
				break;
			case GUARD_ENDED:
				return course.status != 0 ? course.status : ended(value);
			case GUARD_STOPPED:
				return course.status != 0 ? course.status : EX_UNAVAILABLE;
			case GUARD_NOT_STARTED:
				return not_started(&course, value);
			case GUARD_GONE:
				return guard_is_gone(&course);
		}
	}
}
