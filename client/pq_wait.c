/*
 * pq_wait.c
 *		Waiting for a descriptor, never for too long nor for too much.
 *
 * poll() goes by a clock that stands still while the machine sleeps.  So it
 * is asked for short slices, and the boot clock for the time that is left.
 *
 * libpq believes a message that says that it is 1 GB long, and reads as much of
 * it as there is.  So what is there to be read is counted before it is read.
 * What libpq leaves is counted again, which an answer of the usual length can
 * well afford.
 */
#include "pq.h"

#include <poll.h>
#include <sys/ioctl.h>

#define SLICE				(250 * MS_NS)

int64_t
patience_left(const Patience *patience)
{
	Clocks		now;

	clocks_read(&now);
	return time_left(patience->until, now.boot);
}

Patience
patience_share(const Patience *patience, int parts)
{
	Patience	share = *patience;
	Clocks		now;

	clocks_read(&now);
	share.until = now.boot +
		time_left(patience->until, now.boot) / (parts > 0 ? parts : 1);
	return share;
}

const char *
patience_lost(const Patience *patience, const char *not_in_time)
{
	return *patience->room < 0 ? "what the server sends is too long" :
		not_in_time;
}

static bool
is_too_much(const Patience *patience, int fd)
{
	int			size = 0;

	if (ioctl(fd, FIONREAD, &size) == 0)
		*patience->room -= size;
	return *patience->room < 0;
}

bool
patience_wait(const Patience *patience, int fd, short events)
{
	for (;;)
	{
		struct pollfd fds[2] = {
			{.fd = fd, .events = events},
			{.fd = patience->give_up_fd, .events = POLLIN}
		};
		int64_t		left = patience_left(patience);

		if (left == 0)
			return false;
		if (left > SLICE)
			left = SLICE;
		if (poll(fds, 2, (int) ((left + MS_NS - 1) / MS_NS)) < 0)
			continue;
		if (fds[1].revents != 0)
			return false;
		/* An error of the descriptor is for libpq to find. */
		if (fds[0].revents != 0)
			return !is_too_much(patience, fd);
	}
}

/* While sending, too, the server may have something to say. */
bool
patience_flush(const Patience *patience, PGconn *conn)
{
	int			left;

	while ((left = PQflush(conn)) == 1)
		if (!patience_wait(patience, PQsocket(conn), POLLIN | POLLOUT) ||
			PQconsumeInput(conn) == 0)
			return false;
	return left == 0;
}

bool
patience_result(const Patience *patience, PGconn *conn)
{
	while (PQisBusy(conn))
		if (!patience_wait(patience, PQsocket(conn), POLLIN) ||
			PQconsumeInput(conn) == 0)
			return false;
	return true;
}
