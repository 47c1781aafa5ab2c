/*
 * handle.c
 *		Opening and closing a handle, and asking it.
 *
 * In a child of fork() the locks may be held by threads that are not there.
 * So every function asks first whose handle it is, and only the atomic
 * variables are read in a child.
 */
#include "handle.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

const char *
keyright_version(void)
{
	return KEYRIGHT_VERSION;
}

/* ----- opening ----- */

static KeyrightErrorKind
system_error(KeyrightError *error, const char *detail)
{
	error_set(error, KEYRIGHT_ERR_SYSTEM, NULL, NULL, detail);
	return KEYRIGHT_ERR_SYSTEM;
}

static bool
open_wake(Keyright *seat, KeyrightError *error)
{
	seat->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (seat->wake_fd >= 0)
		return true;
	system_error(error, "could not open an event descriptor");
	return false;
}

/* Waiting goes by a clock that nobody sets. */
static bool
make_locks(Keyright *seat, KeyrightError *error)
{
	pthread_condattr_t attr;
	bool		ok;

	if (pthread_condattr_init(&attr) == 0)
	{
		ok = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
			pthread_cond_init(&seat->changed, &attr) == 0;
		pthread_condattr_destroy(&attr);
		if (ok)
		{
			pthread_mutex_init(&seat->lock, NULL);
			pthread_mutex_init(&seat->returning, NULL);
			return true;
		}
	}
	system_error(error, "could not make a lock");
	return false;
}

static bool
open_transport(Keyright *seat, const KeyrightOptions *options,
			   KeyrightError *error)
{
	const KeyrightTransport *given = options->transport;

	if (given == NULL)
		return pq_transport_open(&seat->transport, options->conninfo, error);
	if (seat->transport.call != NULL)
		return true;
	error_set(error, KEYRIGHT_ERR_OPTIONS, NULL, NULL,
			  "the transport is not complete");
	return false;
}

static bool
open_state_file(Keyright *seat, const char *path, KeyrightError *error)
{
	Remembered	found;

	if (!state_file_open(&seat->state_file, path, error) ||
		!state_file_read(&seat->state_file, &seat->policy.terms, &found,
						 error))
		return false;

	/* Of a seat that was taken with another id we know nothing any more. */
	if (found.request_id[0] == '\0' ||
		(seat->policy.own_request_id &&
		 strcmp(found.request_id, seat->remembered.request_id) != 0))
		return true;
	seat->remembered = found;
	seat->written = true;
	keeper_resume(&seat->keeper, found.seat_id);
	return true;
}

static bool
open_parts(Keyright *seat, const KeyrightOptions *options,
		   KeyrightError *error)
{
	uint64_t	seed;

	if (!options_read(seat, options, error) ||
		!open_wake(seat, error) || !open_transport(seat, options, error))
		return false;
	randombytes_buf(&seed, sizeof(seed));
	keeper_init(&seat->keeper, &seat->policy, seed);
	return open_state_file(seat, options->state_file, error) &&
		make_locks(seat, error);
}

static void
close_transport(KeyrightTransport *transport)
{
	if (transport->close != NULL)
		transport->close(transport->self);
}

/* Everything but the locks. */
static void
free_handle(Keyright *seat)
{
	close_transport(&seat->transport);
	state_file_close(&seat->state_file);
	if (seat->wake_fd >= 0)
		close(seat->wake_fd);
	sodium_memzero(seat, sizeof(*seat));
	free(seat);
}

/* A transport that is shorter than ours lacks what came later. */
static void
copy_transport(KeyrightTransport *to, const KeyrightTransport *from)
{
	if (from != NULL)
		memcpy(to, from, from->size < sizeof(*to) ? from->size :
			   sizeof(*to));
}

KeyrightErrorKind
keyright_open(Keyright **seat, const KeyrightOptions *options,
			  KeyrightError *error)
{
	KeyrightOptions copy;
	KeyrightError unwanted;
	KeyrightTransport transport = {.size = 0};
	Keyright   *new;
	bool		ok;

	*seat = NULL;
	if (error == NULL)
		error = &unwanted;
	error_clear(error);
	ok = options_copy(&copy, options, error);
	copy_transport(&transport, copy.transport);
	if (!ok)
	{
		close_transport(&transport);
		return error->kind;
	}
	new = sodium_init() < 0 ? NULL : calloc(1, sizeof(*new));
	if (new == NULL)
	{
		close_transport(&transport);
		return system_error(error, "out of memory");
	}
	new->owner = getpid();
	new->transport = transport;
	new->wake_fd = -1;
	new->state_file.lock_fd = -1;
	if (!open_parts(new, &copy, error))
	{
		free_handle(new);
		return error->kind;
	}
	*seat = new;
	return KEYRIGHT_OK;
}

/* ----- asking ----- */

int64_t
keyright_may_run(const Keyright *seat)
{
	Clocks		now;
	int64_t		boot;
	int64_t		wall;

	if (seat == NULL)
		return 0;
	boot = atomic_load(&seat->ends_boot);
	wall = atomic_load(&seat->ends_wall);
	/* Last, so that what is said was true when it was said. */
	clocks_read(&now);
	boot = time_left(boot, now.boot);
	wall = time_left(wall, now.wall);
	return wall < boot ? wall : boot;
}

/*
 * An end of 0 is published with the state that explains it; any other end can
 * pass before the thread has noticed.
 */
KeyrightState
keyright_state(const Keyright *seat)
{
	KeyrightState state;
	int64_t		end;
	Clocks		now;

	if (seat == NULL)
		return KEYRIGHT_IDLE;
	end = atomic_load(&seat->ends_boot);
	state = (KeyrightState) atomic_load(&seat->state);
	clocks_read(&now);
	if (end != 0 && time_left(end, now.boot) == 0)
		return KEYRIGHT_LOST;
	return state;
}

static bool
is_ours(const Keyright *seat)
{
	return seat != NULL && seat->owner == getpid();
}

/* A lock that is no part of what the handle says. */
static pthread_mutex_t *
lock_of(const Keyright *seat)
{
	return &((Keyright *) seat)->lock;
}

static void
fill_info(KeyrightInfo *info, const Keyright *seat)
{
	const Keeper *keeper = &seat->keeper;
	bool		trying = keeper_trying(keeper);
	Clocks		now;

	clocks_read(&now);
	info->state = keeper->state;
	info->error = keeper->last_error;
	info->left_ns = keyright_may_run(seat);
	/* The clocks know it before the thread does. */
	if (keeper->live && !seat->leave && info->left_ns == 0 &&
		info->error.kind == KEYRIGHT_OK)
		error_set(&info->error, KEYRIGHT_ERR_LAPSED,
				  seat->policy.terms.license, NULL, NULL);
	info->trying = trying;
	info->retry_in_ns = trying ? time_left(keeper->due, now.boot) : -1;
	if (keeper->live)
	{
		info->slot = keeper->lease.slot;
		info->issued_at = keeper->lease.issued_at;
		info->expires_at = keeper->lease.expires_at;
	}
	info->events = keeper->notice_number;
	info->beats = keeper->beats;
	info->failures = keeper->failures;
	info->free_in_ns = keeper->free_at == TIME_MAX ? -1 :
		time_left(keeper->free_at, now.boot);
}

KeyrightErrorKind
keyright_info(const Keyright *seat, KeyrightInfo *info)
{
	KeyrightInfo all = {.size = sizeof(all)};
	size_t		size = info->size;

	if (!is_ours(seat) || size < sizeof(size))
		return KEYRIGHT_ERR_MISUSE;
	pthread_mutex_lock(lock_of(seat));
	fill_info(&all, seat);
	pthread_mutex_unlock(lock_of(seat));
	memset(info, 0, size);
	memcpy(info, &all, size < sizeof(all) ? size : sizeof(all));
	info->size = size;
	return KEYRIGHT_OK;
}

KeyrightErrorKind
keyright_token(const Keyright *seat, char token[KEYRIGHT_TOKEN_SIZE])
{
	token[0] = '\0';
	if (!is_ours(seat))
		return KEYRIGHT_ERR_MISUSE;
	pthread_mutex_lock(lock_of(seat));
	if (seat->keeper.live && !seat->leave)
		text_copy(token, KEYRIGHT_TOKEN_SIZE, seat->keeper.token);
	pthread_mutex_unlock(lock_of(seat));
	return KEYRIGHT_OK;
}

/* ----- closing ----- */

void
keyright_close(Keyright *seat)
{
	if (seat == NULL)
		return;

	/* A child of fork(): its descriptors are copies, its locks are not. */
	if (!is_ours(seat))
	{
		if (seat->transport.forget != NULL)
			seat->transport.forget(seat->transport.self);
		seat->transport.close = NULL;
		free_handle(seat);
		return;
	}
	if (seat_check_in(seat, false, NULL) == KEYRIGHT_ERR_MISUSE)
		return;
	pthread_mutex_destroy(&seat->lock);
	pthread_mutex_destroy(&seat->returning);
	pthread_cond_destroy(&seat->changed);
	free_handle(seat);
}
