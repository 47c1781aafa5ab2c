/*
 * test_state_file.c
 *		The file that remembers a seat: only its owner reads it, nothing is
 *		followed or half written, one process at a time uses it, and what is
 *		in it is used only where it fits.
 */
#include "client_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[512];
static char other[512];
static Terms terms;

static void
make_path(char *to, const char *folder, const char *name)
{
	snprintf(to, 512, "%s/%s", folder, name);
}

static void
put_bytes(const char *file, const char *text, size_t size, mode_t mode)
{
	int			fd;

	unlink(file);
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, text, size) != (ssize_t) size)
		abort();
	fchmod(fd, mode);
	close(fd);
}

static void
put(const char *file, const char *text, mode_t mode)
{
	put_bytes(file, text, strlen(text), mode);
}

static bool
reads(const char *request_id)
{
	StateFile	file;
	Remembered	found;
	KeyrightError error;
	bool		same;

	if (!state_file_open(&file, path, &error))
		return false;
	same = state_file_read(&file, &terms, &found, &error) &&
		strcmp(found.request_id, request_id) == 0;
	state_file_close(&file);
	return same;
}

/* To open it or to read it, with these words in the reason. */
static bool
read_fails(const char *words)
{
	StateFile	file;
	Remembered	found;
	KeyrightError error;
	bool		failed;

	failed = !state_file_open(&file, path, &error) ||
		!state_file_read(&file, &terms, &found, &error);
	state_file_close(&file);
	return failed && error.kind == KEYRIGHT_ERR_STATE_FILE &&
		strstr(error.detail, words) != NULL;
}

static void
test_round_trip(void)
{
	StateFile	file;
	KeyrightError error;
	Remembered	kept = {.request_id = "a secret id",
	.seat_id = "00000001-0000-8000-8000-000000000000"};
	Remembered	found;
	struct stat st;

	umask(0);
	ok(state_file_open(&file, path, &error) &&
	   state_file_read(&file, &terms, &found, &error) &&
	   found.request_id[0] == '\0',
	   "a file that is not there remembers nothing");
	ok(state_file_write(&file, &terms, &kept, &error) &&
	   stat(path, &st) == 0 && (st.st_mode & 07777) == 0600,
	   "it is written with mode 0600");
	ok(state_file_read(&file, &terms, &found, &error) &&
	   strcmp(found.request_id, kept.request_id) == 0 &&
	   strcmp(found.seat_id, kept.seat_id) == 0, "and read again");
	kept.seat_id[0] = '\0';
	ok(state_file_write(&file, &terms, &kept, &error) &&
	   state_file_read(&file, &terms, &found, &error) &&
	   found.seat_id[0] == '\0' && found.request_id[0] != '\0',
	   "before the grant without a seat id");
	strcpy(terms.holder, "somebody else");
	ok(read_fails("holder \"zoe@laptop\""), "another holder's is refused");
	strcpy(terms.holder, "zoe@laptop");
	strcpy(terms.license, "acme2");
	ok(read_fails("license \"acme\""), "another license's too");
	strcpy(terms.license, "acme");
	state_file_remove(&file);
	ok(access(path, F_OK) != 0, "it can be removed");
	state_file_close(&file);
}

static void
test_bad_files(void)
{
	static const char *const texts[] = {
		"\n", "a key\n", "keyright state 1", "keyright state 2\n",
		"keyright state 1\nlicense acme\nholder zoe@laptop\nrequest id\n",
		"keyright state 1\nlicense acme\nholder zoe@laptop\nrequest id\n"
		"seat \nmore\n",
		"keyright state 1\nlicense acme\nholder zoe@laptop\nrequest id\n"
		"seat 00000001-0000-8000-8000-00000000000g\n",
		"keyright state 1\nlicense acme\nholder zoe@laptop\nrequest \n"
		"seat \n",
		"keyright state 1\nlicense acme\nholder zoe@laptop\nrequestid\n"
		"seat \n",
	};
	static const char good[] = "keyright state 1\nlicense acme\n"
		"holder zoe@laptop\nrequest id\nseat \n";
	char		long_text[4000];
	char		lock[600];

	for (size_t i = 0; i < COUNT(texts); i++)
	{
		put(path, texts[i], 0600);
		ok(read_fails("no state file"),
		   "what it does not understand it leaves alone (%zu)", i);
	}
	put(path, "", 0600);
	ok(reads(""), "an empty file remembers nothing");
	memset(long_text, 'x', sizeof(long_text));
	long_text[sizeof(long_text) - 1] = '\0';
	put(path, long_text, 0600);
	ok(read_fails("no state file"), "a long file too");
	put_bytes(path, "\0key", 4, 0600);
	ok(read_fails("no state file"), "one that begins with a zero, too");
	put_bytes(path, good, sizeof(good), 0600);
	ok(read_fails("no state file"), "... or ends with one");
	put(path, good, 0600);
	ok(reads("id"), "a good one it reads");
	snprintf(lock, sizeof(lock), "%s.lock", path);
	unlink(lock);
	put(path, good, 0640);
	ok(read_fails("trusted"), "one that the group can read is refused");
	put(other, good, 0600);
	unlink(path);
	if (symlink(other, path) != 0)
		abort();
	ok(read_fails("no link"), "a symbolic link is not followed");
	unlink(path);
	if (mkfifo(path, 0600) != 0)
		abort();
	ok(read_fails("trusted"), "a pipe is refused, without waiting");
	ok(access(lock, F_OK) != 0, "and no lock is put beside them");
	unlink(path);
	unlink(other);
}

/* Another process, because a lock is a process's. */
static bool
child_can_open(void)
{
	int			status = 0;
	pid_t		child = fork();

	if (child == 0)
	{
		StateFile	file;
		KeyrightError error;

		_exit(state_file_open(&file, path, &error) ? 0 :
			  error.kind == KEYRIGHT_ERR_STATE_FILE ? 1 : 2);
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void
test_lock(void)
{
	StateFile	file;
	KeyrightError error;
	struct stat st;
	char		lock[600];

	snprintf(lock, sizeof(lock), "%s.lock", path);
	ok(state_file_open(&file, path, &error) && stat(lock, &st) == 0 &&
	   (st.st_mode & 07777) == 0600, "its lock has mode 0600 too");
	ok(!child_can_open(), "a second process is refused while it is open");
	state_file_close(&file);
	ok(child_can_open(), "and not when it is closed");
}

/* The file and its lock stay where they were when the process moves. */
static void
test_moved(const char *folder)
{
	StateFile	file;
	KeyrightError error;
	Remembered	kept = {.request_id = "a secret id"};
	Remembered	found;
	char	   *here = getcwd(NULL, 0);
	bool		opened;

	if (here == NULL || chdir(folder) != 0)
		abort();
	opened = state_file_open(&file, "state", &error);
	if (chdir("/") != 0)
		abort();
	ok(opened && state_file_write(&file, &terms, &kept, &error) &&
	   access(path, F_OK) == 0,
	   "a relative path is one of the folder in which it was opened");
	ok(!child_can_open(), "its lock stands beside it");
	ok(state_file_read(&file, &terms, &found, &error) &&
	   strcmp(found.request_id, kept.request_id) == 0, "it is read from there");
	state_file_remove(&file);
	ok(access(path, F_OK) != 0, "and removed");
	state_file_close(&file);
	if (chdir(here) != 0)
		abort();
	free(here);
}

static void
test_unwritable(void)
{
	StateFile	file;
	KeyrightError error;
	char		missing[600];

	snprintf(missing, sizeof(missing), "%s/none/state", path);
	ok(!state_file_open(&file, missing, &error) &&
	   error.kind == KEYRIGHT_ERR_STATE_FILE && error.detail[0] != '\0',
	   "a folder that is not there is an error at once");
}

static void
test_no_descriptors(void)
{
	StateFile	file;
	KeyrightError error;
	struct rlimit all;
	struct rlimit none = {.rlim_cur = 0};

	getrlimit(RLIMIT_NOFILE, &all);
	none.rlim_max = all.rlim_max;
	setrlimit(RLIMIT_NOFILE, &none);
	ok(!state_file_open(&file, path, &error) &&
	   error.kind == KEYRIGHT_ERR_SYSTEM && error.detail[0] != '\0',
	   "that no more files can be opened is no fault of the file");
	setrlimit(RLIMIT_NOFILE, &all);
}

void
test_state_file(const char *folder)
{
	mode_t		mask = umask(022);

	make_path(path, folder, "state");
	make_path(other, folder, "other");
	strcpy(terms.license, "acme");
	strcpy(terms.holder, "zoe@laptop");
	test_round_trip();
	test_bad_files();
	test_lock();
	test_moved(folder);
	test_unwritable();
	test_no_descriptors();
	umask(mask);
}
