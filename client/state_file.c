/*
 * state_file.c
 *		The file that gives a crashed application its own seat back.
 *
 * It holds the request id, which repeated gives the same seat again, and the
 * seat id.  Both are secrets: mode 0600, only a regular file of our own user
 * is read, no symbolic link is followed.  It is written before a check-out is
 * sent, because the crash can come between the two, and replaced by rename(),
 * so it is never half there.
 *
 * Two processes that read one file would share one seat.  A second file, with
 * ".lock" after the name, is locked as long as the handle is open; it stays,
 * because a lock on a file that others remove protects nothing.  A file that
 * is something else, or remembers a seat of another license or holder, is left
 * alone, and nothing is put beside what is not to be trusted.  The lock is
 * one of fcntl(): a child of fork() does not inherit it, so children that
 * outlive a crashed application do not keep it from starting again.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_LINE			"keyright state 1"
#define FILE_MAX			2048

static bool
failed_with(KeyrightError *error, KeyrightErrorKind kind, const char *what,
			const char *why)
{
	char		detail[sizeof(error->detail)];

	text_copy(detail, sizeof(detail),
			  kind == KEYRIGHT_ERR_STATE_FILE ? "" : "state file: ");
	text_add(detail, sizeof(detail), what);
	text_add(detail, sizeof(detail), ": ");
	text_add(detail, sizeof(detail), why);
	error_set(error, kind, NULL, NULL, detail);
	return false;
}

static bool
failed(KeyrightError *error, const char *what, const char *why)
{
	return failed_with(error, KEYRIGHT_ERR_STATE_FILE, what, why);
}

/* What no other file would do better is the system's fault. */
static bool
failed_errno(KeyrightError *error, const char *what)
{
	char		why[128];
	int			number = errno;
	bool		any_file = number == EMFILE || number == ENFILE ||
		number == ENOMEM;

	if (strerror_r(number, why, sizeof(why)) != 0)
		snprintf(why, sizeof(why), "error %d", number);
	return failed_with(error, any_file ? KEYRIGHT_ERR_SYSTEM :
					   KEYRIGHT_ERR_STATE_FILE, what, why);
}

/* ----- the file ----- */

static bool
not_to_be_trusted(KeyrightError *error)
{
	return failed(error, "it is not to be trusted",
				  "it must be a regular file of this user with mode 0600, "
				  "and no link");
}

/*
 * -1 with *error clear: it is not there.  O_NONBLOCK: opening a FIFO that was
 * put there must not hang.
 */
static int
open_to_read(const StateFile *file, KeyrightError *error)
{
	int			fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW |
						  O_NONBLOCK);
	struct stat st;

	error_clear(error);
	if (fd < 0)
	{
		if (errno == ELOOP)
			not_to_be_trusted(error);
		else if (errno != ENOENT)
			failed_errno(error, "could not open it");
		return -1;
	}
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
		st.st_uid == geteuid() && (st.st_mode & 077) == 0)
		return fd;
	close(fd);
	not_to_be_trusted(error);
	return -1;
}

static bool
may_be_used(const StateFile *file, KeyrightError *error)
{
	int			fd = open_to_read(file, error);

	if (fd >= 0)
		close(fd);
	return error->kind == KEYRIGHT_OK;
}

/* ----- opening ----- */

/*
 * Three texts in one.  Both by GNU or POSIX alike: asprintf() would leave the
 * pointer undefined on a failure.
 */
static char *
joined(const char *a, const char *b, const char *c)
{
	size_t		size = strlen(a) + strlen(b) + strlen(c) + 1;
	char	   *whole = malloc(size);

	if (whole != NULL)
		snprintf(whole, size, "%s%s%s", a, b, c);
	return whole;
}

/* An application that goes to another directory keeps its file. */
static char *
absolute(const char *path)
{
	char	   *here;
	char	   *whole;

	if (path[0] == '/')
		return joined(path, "", "");
	here = getcwd(NULL, 0);
	whole = here != NULL ? joined(here, "/", path) : NULL;
	free(here);
	return whole;
}

static bool
take_lock(StateFile *file, const char *path, KeyrightError *error)
{
	struct flock lock;

	file->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
						 0600);
	if (file->lock_fd < 0)
		return failed_errno(error, "could not open its lock");
	memset(&lock, 0, sizeof(lock));
	lock.l_type = F_WRLCK;
	lock.l_whence = SEEK_SET;
	if (fcntl(file->lock_fd, F_SETLK, &lock) == 0)
		return true;
	if (errno == EACCES || errno == EAGAIN)
		return failed(error, "another process uses it",
					  "each needs a file of its own");
	return failed_errno(error, "could not lock it");
}

bool
state_file_open(StateFile *file, const char *path, KeyrightError *error)
{
	char	   *lock_path = NULL;
	bool		ok;

	file->path = NULL;
	file->new_path = NULL;
	file->lock_fd = -1;
	if (path == NULL)
		return true;
	if (path[0] == '\0')
		return failed(error, "it has no name", "an empty text names no file");

	file->path = absolute(path);
	if (file->path != NULL)
	{
		file->new_path = joined(file->path, ".new", "");
		lock_path = joined(file->path, ".lock", "");
	}
	if (file->new_path != NULL && lock_path != NULL)
		ok = may_be_used(file, error) && take_lock(file, lock_path, error);
	else
		ok = failed_errno(error, "could not open it");
	free(lock_path);
	if (!ok)
		state_file_close(file);
	return ok;
}

void
state_file_close(StateFile *file)
{
	if (file->lock_fd >= 0)
		close(file->lock_fd);
	free(file->path);
	free(file->new_path);
	file->path = NULL;
	file->new_path = NULL;
	file->lock_fd = -1;
}

/* ----- reading ----- */

/* One that is too long is cut, and then not understood. */
static bool
read_whole(int fd, char text[FILE_MAX], size_t *read_size)
{
	size_t		size = 0;

	while (size < FILE_MAX - 1)
	{
		ssize_t		n = read(fd, text + size, FILE_MAX - 1 - size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		if (n == 0)
			break;
		size += (size_t) n;
	}
	text[size] = '\0';
	*read_size = size;
	return true;
}

/* Takes the line "name value" from the front; NULL: it is not there. */
static const char *
take_line(char **text, const char *name)
{
	char	   *line = *text;
	char	   *end = strchr(line, '\n');
	size_t		size = strlen(name);

	if (end == NULL || strncmp(line, name, size) != 0)
		return NULL;
	*end = '\0';
	*text = end + 1;
	if (line[size] == '\0')
		return line + size;
	return line[size] == ' ' ? line + size + 1 : NULL;
}

static bool
is_text(const char *text)
{
	return claim_text_ok(text, strlen(text));
}

static bool
of_another(const char *license, const char *holder, KeyrightError *error)
{
	char		whose[2 * KEYRIGHT_TEXT_MAX + 64];

	snprintf(whose, sizeof(whose), "license \"%s\", holder \"%s\"; name "
			 "another file, or remove this one", license, holder);
	return failed(error, "it remembers a check-out of another", whose);
}

/* What is something else, or another's, would be lost if it were used. */
static bool
parse(char *text, size_t size, const Terms *terms, Remembered *remembered,
	  KeyrightError *error)
{
	const char *end = text + size;	/* no byte of zero comes before it */
	const char *first = take_line(&text, FIRST_LINE);
	const char *license = first ? take_line(&text, "license") : NULL;
	const char *holder = license ? take_line(&text, "holder") : NULL;
	const char *request_id = holder ? take_line(&text, "request") : NULL;
	const char *seat_id = request_id ? take_line(&text, "seat") : NULL;
	uint8_t		id[SEAT_ID_SIZE];

	if (seat_id == NULL || text != end || !is_text(license) ||
		!is_text(holder) || !is_text(request_id) ||
		(*seat_id != '\0' && !seat_id_parse(id, seat_id, strlen(seat_id))))
		return failed(error, "it is no state file of keyright",
					  "name another file, or remove this one");
	if (strcmp(license, terms->license) != 0 ||
		strcmp(holder, terms->holder) != 0)
		return of_another(license, holder, error);
	text_copy(remembered->request_id, sizeof(remembered->request_id),
			  request_id);
	text_copy(remembered->seat_id, sizeof(remembered->seat_id), seat_id);
	return true;
}

bool
state_file_read(const StateFile *file, const Terms *terms,
				Remembered *remembered, KeyrightError *error)
{
	char		text[FILE_MAX];
	size_t		size;
	int			fd;
	bool		ok;

	memset(remembered, 0, sizeof(*remembered));
	if (file->path == NULL)
		return true;
	fd = open_to_read(file, error);
	if (fd < 0)
		return error->kind == KEYRIGHT_OK;
	ok = read_whole(fd, text, &size);
	if (!ok)
		failed_errno(error, "could not read it");
	close(fd);
	if (ok && size > 0)
		ok = parse(text, size, terms, remembered, error);
	sodium_memzero(text, sizeof(text));
	return ok;
}

/* ----- writing ----- */

static bool
write_whole(int fd, const char *text, size_t size)
{
	while (size > 0)
	{
		ssize_t		n = write(fd, text, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		text += n;
		size -= (size_t) n;
	}
	return fsync(fd) == 0;
}

bool
state_file_write(const StateFile *file, const Terms *terms,
				 const Remembered *remembered, KeyrightError *error)
{
	char		text[FILE_MAX];
	int			size;
	int			fd;
	bool		ok;

	if (file->path == NULL)
		return true;
	size = snprintf(text, sizeof(text), "%s\nlicense %s\nholder %s\n"
					"request %s\nseat %s\n", FIRST_LINE, terms->license,
					terms->holder, remembered->request_id,
					remembered->seat_id);

	/* What a crash left there may be open to others: begin anew. */
	unlink(file->new_path);
	fd = open(file->new_path,
			  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	ok = fd >= 0 && write_whole(fd, text, (size_t) size);
	sodium_memzero(text, sizeof(text));
	if (fd >= 0 && close(fd) != 0)
		ok = false;
	if (ok && rename(file->new_path, file->path) == 0)
		return true;
	failed_errno(error, "could not write it");
	unlink(file->new_path);
	return false;
}

void
state_file_remove(const StateFile *file)
{
	if (file->path != NULL)
		unlink(file->path);
}
