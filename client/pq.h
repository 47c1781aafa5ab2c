/*
 * pq.h
 *		What the files of the libpq transport share.
 */
#ifndef KEYRIGHT_PQ_H
#define KEYRIGHT_PQ_H

#include <libpq-fe.h>

#include "internal.h"

/* ----- pq_wait.c: waiting for a descriptor, never for too long ----- */

/*
 * For so many bytes on a connection while one question is asked: a greeting,
 * notices, an answer.  It is many times what they need.
 */
#define PATIENCE_ROOM		(64 * 1024)

/* Until when, on the boot clock, and what makes us give up before that. */
typedef struct Patience
{
	int64_t		until;
	int			give_up_fd;
	int64_t    *room;			/* for so many bytes more; below 0: too many */
} Patience;

/*
 * Waits until fd is ready for the poll() events.  False: the time is over, too
 * much has come, or somebody wants us to give up.
 */
extern bool patience_wait(const Patience *patience, int fd, short events);

/* The same until what was asked is sent, or until there is a result. */
extern bool patience_flush(const Patience *patience, PGconn *conn);
extern bool patience_result(const Patience *patience, PGconn *conn);

/*
 * An answer is one result; an error may be followed by another.  More are
 * without an end: there is no waiting for what libpq has read already.
 */
#define RESULTS_MAX			4

/* Why, in words. */
extern const char *patience_lost(const Patience *patience,
								 const char *not_in_time);

/* What is left of it, 0: nothing. */
extern int64_t patience_left(const Patience *patience);

/* One of "parts" equal parts of what is left. */
extern Patience patience_share(const Patience *patience, int parts);

/* ----- pq_resolve.c: host names, without being held up by them ----- */

#define ADDRESSES_MAX		8
#define ADDRESS_SIZE		64

typedef struct Addresses
{
	int			count;
	char		text[ADDRESSES_MAX][ADDRESS_SIZE];
} Addresses;

typedef struct Lookup Lookup;

/* The addresses of a host that is a number already, else count 0. */
extern void addresses_of_number(Addresses *addresses, const char *host);

/*
 * Looks a name up.  *lookup is NULL or a lookup of the same name that was not
 * done in time; it is one such again when the answer is false with count 0
 * and *problem "not in time".
 */
extern bool lookup_host(Lookup **lookup, Addresses *addresses,
						const char *host, const Patience *patience,
						const char **problem);

/* Never waits: a lookup that is under way ends by itself. */
extern void lookup_forget(Lookup **lookup);

/* ----- pq_connect.c: connecting to one of several hosts ----- */

#define TARGETS_MAX			16

typedef struct Target
{
	char	   *host;			/* these three may be NULL: libpq's default */
	char	   *hostaddr;
	char	   *port;
	Addresses	known;			/* that the name had last */
	Lookup	   *lookup;
} Target;

typedef struct Connector
{
	PQconninfoOption *options;	/* as given, without hosts and ports */
	int			target_count;
	int			first;			/* where to begin: the last that was good */
	int			connect_timeout;	/* seconds, 0: none; as asked for */
	bool		any_server;		/* read only ones too, unless said otherwise */
	PGconn	   *begun;			/* was not made in time; NULL: none */
	PostgresPollingStatusType begun_status;
	int			begun_target;
	Target		targets[TARGETS_MAX];
} Connector;

extern bool connector_open(Connector *connector, const char *conninfo,
						   KeyrightError *error);
extern void connector_close(Connector *connector);

/* In a child of fork(): the connection that was begun is the parent's. */
extern void connector_forget(Connector *connector);

/*
 * A connection that works, or NULL with sqlstate and message of *answer
 * filled in.
 */
extern PGconn *connector_connect(Connector *connector,
								 const Patience *patience,
								 KeyrightAnswer *answer);

/* The last one was not the right one: begin with the next. */
extern void connector_avoid(Connector *connector);

#endif							/* KEYRIGHT_PQ_H */
