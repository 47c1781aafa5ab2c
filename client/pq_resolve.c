/*
 * pq_resolve.c
 *		Host names, without being held up by them.
 *
 * getaddrinfo() knows no time limit: with a name server that does not answer
 * it takes half a minute, longer than many a lease.  It runs in a thread of
 * its own, which is left to itself when we cannot wait any more: whoever of
 * the two is last frees what they share.  There is at most one such thread
 * for a host of a handle.  The shared library stays in memory once it is
 * loaded (-z nodelete), so the thread's code cannot vanish under it.
 */
#include "pq.h"

#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct Lookup
{
	atomic_int	users;
	atomic_bool done;			/* what follows may be read ... */
	int			done_fd;		/* ... and this is readable */
	int			result;			/* of getaddrinfo() */
	Addresses	addresses;
	char		host[];
};

static void
lookup_release(Lookup *lookup)
{
	if (atomic_fetch_sub(&lookup->users, 1) > 1)
		return;
	close(lookup->done_fd);
	free(lookup);
}

static void
keep_addresses(Addresses *addresses, const struct addrinfo *list)
{
	addresses->count = 0;
	for (; list != NULL && addresses->count < ADDRESSES_MAX;
		 list = list->ai_next)
		if (getnameinfo(list->ai_addr, list->ai_addrlen,
						addresses->text[addresses->count], ADDRESS_SIZE,
						NULL, 0, NI_NUMERICHOST) == 0)
			addresses->count++;
}

static int
look_up(Addresses *addresses, const char *host, int flags)
{
	struct addrinfo hints;
	struct addrinfo *list;
	int			result;

	memset(&hints, 0, sizeof(hints));
	hints.ai_family = AF_UNSPEC;
	hints.ai_socktype = SOCK_STREAM;
	hints.ai_flags = flags;
	addresses->count = 0;
	result = getaddrinfo(host, NULL, &hints, &list);
	if (result == 0)
	{
		keep_addresses(addresses, list);
		freeaddrinfo(list);
	}
	return result;
}

void
addresses_of_number(Addresses *addresses, const char *host)
{
	look_up(addresses, host, AI_NUMERICHOST);
}

static void *
lookup_main(void *arg)
{
	Lookup	   *lookup = arg;
	uint64_t	one = 1;
	ssize_t		n;

	lookup->result = look_up(&lookup->addresses, lookup->host, 0);
	atomic_store(&lookup->done, true);
	n = write(lookup->done_fd, &one, sizeof(one));
	(void) n;
	lookup_release(lookup);
	return NULL;
}

/* The keeper's thread calls this, with all signals blocked: so are ours. */
static bool
start_thread(Lookup *lookup)
{
	pthread_attr_t attr;
	pthread_t	thread;
	bool		ok;

	if (pthread_attr_init(&attr) != 0)
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	atomic_store(&lookup->users, 2);
	ok = pthread_create(&thread, &attr, lookup_main, lookup) == 0;
	pthread_attr_destroy(&attr);
	return ok;
}

static Lookup *
lookup_start(const char *host)
{
	Lookup	   *lookup = calloc(1, sizeof(*lookup) + strlen(host) + 1);

	if (lookup == NULL)
		return NULL;
	strcpy(lookup->host, host);
	lookup->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (lookup->done_fd >= 0 && start_thread(lookup))
		return lookup;
	if (lookup->done_fd >= 0)
		close(lookup->done_fd);
	free(lookup);
	return NULL;
}

void
lookup_forget(Lookup **lookup)
{
	if (*lookup != NULL)
		lookup_release(*lookup);
	*lookup = NULL;
}

bool
lookup_host(Lookup **lookup, Addresses *addresses, const char *host,
			const Patience *patience, const char **problem)
{
	addresses->count = 0;
	if (*lookup == NULL)
		*lookup = lookup_start(host);
	*problem = "out of memory or threads";
	if (*lookup == NULL)
		return false;
	*problem = "not in time";
	if (!patience_wait(patience, (*lookup)->done_fd, POLLIN) ||
		!atomic_load(&(*lookup)->done))
		return false;

	*addresses = (*lookup)->addresses;
	*problem = gai_strerror((*lookup)->result);
	lookup_forget(lookup);
	return addresses->count > 0;
}
