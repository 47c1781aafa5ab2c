/*
 * books.c
 *		What the clients of a storm know; see books.h.
 */
#include "books.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define TOLD_VIOLATIONS		20
#define ROLLED_BACK_KEPT	4096

License		licenses[MAX_LICENSES];
int			license_count = 0;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int	violation_count = 0;
static char rolled_back[ROLLED_BACK_KEPT][SEAT_ID_SIZE];
static unsigned rolled_back_count = 0;

int64_t
wall_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void
violation(const char *format, ...)
{
	static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;
	va_list		arguments;

	pthread_mutex_lock(&output);
	if (violation_count++ < TOLD_VIOLATIONS)
	{
		printf("violation: ");
		va_start(arguments, format);
		vprintf(format, arguments);
		va_end(arguments);
		printf("\n");
	}
	pthread_mutex_unlock(&output);
}

int
violations(void)
{
	return violation_count;
}

static bool
certain(const Lease *lease)
{
	return lease->registered && !lease->releasing && !lease->maybe_revoked &&
		!lease->gone;
}

/* The server counts this long; a client's own tolerance would be 0. */
static int64_t
counted_until(const Lease *lease)
{
	return lease->expires + licenses[lease->license].skew;
}

static bool
holds(int license, Ticket ticket)
{
	return ticket.quiet && licenses[license].revokes_running == 0 &&
		licenses[license].revokes_done == ticket.revokes_done;
}

/* Puts it into its slot, where nobody else may be at the same time. */
static void
occupy(Lease *lease)
{
	License    *license = &licenses[lease->license];
	Lease	   *other = license->current[lease->slot];

	if (other != NULL && other != lease &&
		certain(lease) && certain(other) &&
		lease->since <= counted_until(other) &&
		other->since <= counted_until(lease))
		violation("%s: slot %d is held by client %d since %lld until %lld and by client %d since %lld until %lld",
				  license->name, lease->slot,
				  other->client, (long long) other->since,
				  (long long) other->expires,
				  lease->client, (long long) lease->since,
				  (long long) lease->expires);
	if (other == NULL || other->since <= lease->since)
		license->current[lease->slot] = lease;
}

Ticket
books_ticket(int license)
{
	Ticket		ticket;

	pthread_mutex_lock(&mutex);
	ticket.quiet = licenses[license].revokes_running == 0;
	ticket.revokes_done = licenses[license].revokes_done;
	pthread_mutex_unlock(&mutex);
	return ticket;
}

void
books_granted(Lease *lease, Ticket ticket)
{
	pthread_mutex_lock(&mutex);
	lease->registered = true;
	lease->maybe_revoked = !holds(lease->license, ticket);
	occupy(lease);
	pthread_mutex_unlock(&mutex);
}

void
books_renewed(Lease *lease, int64_t expires, Ticket ticket)
{
	pthread_mutex_lock(&mutex);
	if (expires > lease->expires)
		lease->expires = expires;
	/* no beat before this one, whatever its fate, led further */
	lease->unsure_end = false;
	/* it was live then, and nobody has revoked anything since */
	if (holds(lease->license, ticket))
		lease->maybe_revoked = false;
	occupy(lease);
	pthread_mutex_unlock(&mutex);
}

/* Say so before the call is sent. */
void
books_releasing(Lease *lease)
{
	pthread_mutex_lock(&mutex);
	lease->releasing = true;
	pthread_mutex_unlock(&mutex);
}

/* The check-in was rolled back: the seat was nobody else's in between. */
void
books_release_failed(Lease *lease, Ticket ticket)
{
	pthread_mutex_lock(&mutex);
	lease->releasing = false;
	if (lease->registered)
	{
		if (!holds(lease->license, ticket))
			lease->maybe_revoked = true;
		occupy(lease);
	}
	pthread_mutex_unlock(&mutex);
}

void
books_ended(Lease *lease)
{
	pthread_mutex_lock(&mutex);
	lease->gone = true;
	pthread_mutex_unlock(&mutex);
}

void
books_unsure(Lease *lease)
{
	pthread_mutex_lock(&mutex);
	lease->unsure_end = true;
	pthread_mutex_unlock(&mutex);
}

void
books_rolled_back(const char *seat_id)
{
	pthread_mutex_lock(&mutex);
	strcpy(rolled_back[rolled_back_count++ % ROLLED_BACK_KEPT], seat_id);
	pthread_mutex_unlock(&mutex);
}

bool
books_was_rolled_back(const char *seat_id)
{
	bool		found = false;

	pthread_mutex_lock(&mutex);
	for (int i = 0; i < ROLLED_BACK_KEPT && !found; i++)
		found = strcmp(rolled_back[i], seat_id) == 0;
	pthread_mutex_unlock(&mutex);
	return found;
}

void
books_revoke_begin(int license, int slot, int client)
{
	pthread_mutex_lock(&mutex);
	licenses[license].revokes_running++;
	for (int i = 1; i <= MAX_SLOTS; i++)
	{
		Lease	   *lease = licenses[license].current[i];

		if (lease != NULL && (slot == 0 || slot == i) &&
			(client < 0 || client == lease->client))
			lease->maybe_revoked = true;
	}
	pthread_mutex_unlock(&mutex);
}

void
books_revoke_end(int license)
{
	pthread_mutex_lock(&mutex);
	licenses[license].revokes_running--;
	licenses[license].revokes_done++;
	pthread_mutex_unlock(&mutex);
}

void
books_told_lost(Lease *lease, const char *by, const char *reason,
				int64_t received)
{
	pthread_mutex_lock(&mutex);
	/* its own transaction knows a lease before it is registered */
	if (!lease->releasing && !lease->maybe_revoked && !lease->gone &&
		received <= counted_until(lease))
		violation("%s: %s of client %d on slot %d is told \"%s\" %lld ms before the lease lapses",
				  licenses[lease->license].name, by, lease->client,
				  lease->slot, reason,
				  (long long) (counted_until(lease) - received) / 1000);
	pthread_mutex_unlock(&mutex);
}

void
books_told_renewed(Lease *lease, int64_t expires, int64_t sent)
{
	pthread_mutex_lock(&mutex);
	if (lease->gone)
		violation("%s: a lease on slot %d that had ended was renewed",
				  licenses[lease->license].name, lease->slot);
	else if (!lease->unsure_end && sent > counted_until(lease))
		violation("%s: a lease on slot %d was renewed %lld ms after it had lapsed",
				  licenses[lease->license].name, lease->slot,
				  (long long) (sent - counted_until(lease)) / 1000);
	if (expires < lease->expires)
		violation("%s: a beat on slot %d shortened the lease",
				  licenses[lease->license].name, lease->slot);
	pthread_mutex_unlock(&mutex);
}

int
books_claims(Claim *claims, int size)
{
	int			count = 0;

	pthread_mutex_lock(&mutex);
	for (int l = 0; l < license_count; l++)
		for (int i = 1; i <= MAX_SLOTS && count < size; i++)
		{
			Lease	   *lease = licenses[l].current[i];

			if (lease != NULL && certain(lease))
				claims[count++] = (Claim) {lease, lease->expires, false};
		}
	pthread_mutex_unlock(&mutex);
	return count;
}

/* It was certain before keyright.seat was read: was it still so afterwards? */
void
books_missing(const Claim *claim, int64_t received)
{
	pthread_mutex_lock(&mutex);
	if (certain(claim->lease) && received <= counted_until(claim->lease))
		violation("%s: the lease on slot %d, committed until %lld, is not in keyright.seat",
				  licenses[claim->lease->license].name, claim->lease->slot,
				  (long long) claim->expires);
	pthread_mutex_unlock(&mutex);
}
