/*
 * books.h
 *		What the clients of a storm know of their leases, and what follows from
 *		it.
 *
 * A client that was told "granted" and saw its transaction commit knows that
 * it holds a seat until the lease's end, unless it gives it back or somebody
 * revokes it; and everybody who could do that is in this program.  So whatever
 * the server says later can be judged:
 *
 * - no slot is given to somebody while the books say that another holds it;
 * - a beat or a check-in of a held lease is not told that it is lost;
 * - what was given back, or has lapsed, is never renewed;
 * - what was committed is in keyright.seat, with that end or a later one, and
 *   what was rolled back is not.
 *
 * In doubt (a commit whose answer was lost, a revocation under way) a lease is
 * not certain and nothing is concluded, so that whatever is reported is wrong
 * indeed.  Client and server read the same clock.
 */
#ifndef BOOKS_H
#define BOOKS_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_LICENSES	64
#define MAX_SLOTS		64
#define SEAT_ID_SIZE	37

typedef struct Lease
{
	int			license;		/* index into licenses */
	int			slot;
	int			client;
	char		seat_id[SEAT_ID_SIZE];
	int64_t		since;			/* microseconds since 1970 */
	int64_t		expires;		/* of the last commit that is known */
	bool		registered;		/* its grant was committed */
	bool		releasing;		/* a check-in was sent */
	bool		maybe_revoked;
	bool		unsure_end;		/* a beat's fate is not known */
	bool		gone;			/* it ended, for sure */
} Lease;

typedef struct License
{
	char		name[64];
	int			id;
	int			seat_count;
	int64_t		ttl;
	int64_t		skew;
	bool		resized;		/* its seat_count changes meanwhile */
	int			revokes_running;
	unsigned	revokes_done;
	Lease	   *current[MAX_SLOTS + 1];
} License;

/* Taken before a call; holds unless a revocation overlapped. */
typedef struct Ticket
{
	unsigned	revokes_done;
	bool		quiet;
} Ticket;

/* A copy of what must be in keyright.seat. */
typedef struct Claim
{
	Lease	   *lease;
	int64_t		expires;
	bool		found;
} Claim;

extern License licenses[MAX_LICENSES];
extern int	license_count;

extern int64_t wall_clock(void);

/* Counts and, for the first few, tells what should never happen. */
extern void violation(const char *format, ...)
			__attribute__((format(printf, 1, 2)));
extern int	violations(void);

extern Ticket books_ticket(int license);
extern void books_granted(Lease *lease, Ticket ticket);
extern void books_renewed(Lease *lease, int64_t expires, Ticket ticket);
extern void books_releasing(Lease *lease);
extern void books_release_failed(Lease *lease, Ticket ticket);
extern void books_ended(Lease *lease);
extern void books_unsure(Lease *lease);
extern void books_rolled_back(const char *seat_id);

/* Slot 0: all; client -1: all. */
extern void books_revoke_begin(int license, int slot, int client);
extern void books_revoke_end(int license);

/* What the server answered, at a time before "received". */
extern void books_told_lost(Lease *lease, const char *by, const char *reason,
							int64_t received);
extern void books_told_renewed(Lease *lease, int64_t expires, int64_t sent);

/* All that is certain; then judge what was not found. */
extern int	books_claims(Claim *claims, int size);
extern void books_missing(const Claim *claim, int64_t received);
extern bool books_was_rolled_back(const char *seat_id);

#endif							/* BOOKS_H */
