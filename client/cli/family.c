/*
 * family.c
 *		All descendants of a process, to end them together.
 *
 * A shell script that is ended leaves behind what it had started, and a
 * program can leave its process group and session.  But no descendant of a
 * "child subreaper" (see prctl(2)) is ever handed on to another process while
 * that one lives: so the chain of parents, as /proc shows it, finds them all.
 */
#include "cli.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Process
{
	pid_t		pid;
	pid_t		parent;
	bool		ours;
} Process;

typedef struct Processes
{
	Process    *list;
	size_t		count;
	size_t		room;
} Processes;

/*
 * What proc(5) tells of a process: "PID (NAME) STATE PARENT ..."; the name may
 * hold anything.  False: it is gone.
 */
static bool
read_stat(pid_t pid, char *state, pid_t *parent)
{
	char		path[64];
	char		text[512];
	const char *behind;
	ssize_t		size;
	int			fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	size = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (size <= 0)
		return false;
	text[size] = '\0';
	behind = strrchr(text, ')');
	if (behind == NULL || strlen(behind) < 5)
		return false;
	*state = behind[2];
	*parent = (pid_t) strtol(behind + 4, NULL, 10);
	return true;
}

bool
is_stopped(pid_t pid)
{
	char		state;
	pid_t		parent;

	return read_stat(pid, &state, &parent) && state == 'T';
}

bool
family_is_visible(void)
{
	char		self[32] = "";

	return readlink("/proc/self", self, sizeof(self) - 1) > 0 &&
		strtol(self, NULL, 10) == getpid();
}

static void
add(Processes *all, pid_t pid, pid_t parent)
{
	if (all->count == all->room)
	{
		size_t		room = all->room > 0 ? 2 * all->room : 512;
		Process    *list = realloc(all->list, room * sizeof(*list));

		if (list == NULL)
			return;
		all->list = list;
		all->room = room;
	}
	all->list[all->count++] = (Process) {
		.pid = pid, .parent = parent
	};
}

static void
read_processes(Processes *all)
{
	DIR		   *dir = opendir("/proc");
	struct dirent *entry;

	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
		{
			pid_t		pid = (pid_t) strtol(entry->d_name, NULL, 10);
			pid_t		parent;
			char		state;

			if (read_stat(pid, &state, &parent))
				add(all, pid, parent);
		}
	closedir(dir);
}

static bool
is_ours(const Processes *all, pid_t pid)
{
	if (pid == getpid())
		return true;
	for (size_t i = 0; i < all->count; i++)
		if (all->list[i].pid == pid)
			return all->list[i].ours;
	return false;
}

/* Generation by generation, until nobody is added. */
static void
mark_ours(Processes *all)
{
	bool		more = true;

	while (more)
	{
		more = false;
		for (size_t i = 0; i < all->count; i++)
			if (!all->list[i].ours && is_ours(all, all->list[i].parent))
				more = all->list[i].ours = true;
	}
}

void
family_signal(int signal_number)
{
	Processes	all = {.list = NULL};

	read_processes(&all);
	mark_ours(&all);
	for (size_t i = 0; i < all.count; i++)
		if (all.list[i].ours)
			kill(all.list[i].pid, signal_number);
	free(all.list);
}
