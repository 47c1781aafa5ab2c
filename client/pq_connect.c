/*
 * pq_connect.c
 *		Connecting to one of several hosts, each within its share of time.
 *
 * libpq would go through the hosts by itself, but in its non-blocking form it
 * knows no time limit for each: a host that swallows packets would take all
 * the time there is, at every try, and the good one behind it would never be
 * asked.  So each host is a connection string of its own, and the one that
 * was good last is first.  As in libpq, a host that answers with an authority
 * (a wrong password) ends the search; one that is restarting, full or read
 * only does not.
 *
 * A connection that was not made in time is not thrown away when the server
 * has taken it: it may be made while we pause, and then the next question uses
 * it.  A server to which everybody returns at once is slow; if all gave up and
 * came again, it would be busy with those who have gone.  But a part of the
 * time is kept for another try, since whoever is silent now may stay so.
 */
#include "pq.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pq_message.h"

#define PARAMS_MAX			80

/* Seconds; more is no other thing. */
#define CONNECT_TIMEOUT_MAX 86400

/* The kernel's, in bytes; an answer fits. */
#define RECEIVE_BUFFER		(16 * 1024)

/* ----- reading the connection string ----- */

static PQconninfoOption *
find_option(PQconninfoOption *options, const char *keyword)
{
	for (; options != NULL && options->keyword != NULL; options++)
		if (strcmp(options->keyword, keyword) == 0)
			return options;
	return NULL;
}

/* As given, else (if asked for) what the environment says. */
static const char *
option_value(Connector *connector, PQconninfoOption *defaults,
			 const char *keyword)
{
	PQconninfoOption *option = find_option(connector->options, keyword);

	if (option == NULL || option->val == NULL || option->val[0] == '\0')
		option = find_option(defaults, keyword);
	return option != NULL && option->val != NULL && option->val[0] != '\0' ?
		option->val : NULL;
}

static int
count_items(const char *list)
{
	int			count = list != NULL;

	for (; list != NULL && *list != '\0'; list++)
		count += *list == ',';
	return count;
}

/* A copy of one item of a list; NULL: empty, or no memory (*ok is false). */
static char *
copy_item(const char *list, int number, bool *ok)
{
	char	   *copy;
	size_t		size;

	if (list == NULL)
		return NULL;
	for (; number > 0; number--)
		list += strcspn(list, ",") + 1;
	size = strcspn(list, ",");
	if (size == 0)
		return NULL;
	copy = malloc(size + 1);
	if (copy == NULL)
	{
		*ok = false;
		return NULL;
	}
	memcpy(copy, list, size);
	copy[size] = '\0';
	return copy;
}

static const char *
split_targets(Connector *connector, PQconninfoOption *defaults)
{
	const char *host = option_value(connector, defaults, "host");
	const char *hostaddr = option_value(connector, defaults, "hostaddr");
	const char *port = option_value(connector, defaults, "port");
	int			hosts = count_items(host);
	int			hostaddrs = count_items(hostaddr);
	int			ports = count_items(port);
	int			count = hosts > hostaddrs ? hosts : hostaddrs;
	bool		ok = true;

	if (count == 0)
		count = 1;
	if (count > TARGETS_MAX)
		return "there are more than 16 hosts";
	if ((hosts > 0 && hostaddrs > 0 && hosts != hostaddrs) ||
		(ports > 1 && ports != count))
		return "the numbers of hosts, addresses and ports do not match";

	connector->target_count = count;
	for (int i = 0; i < count; i++)
	{
		Target	   *target = &connector->targets[i];

		target->host = copy_item(host, i, &ok);
		target->hostaddr = copy_item(hostaddr, i, &ok);
		target->port = copy_item(port, ports > 1 ? i : 0, &ok);
	}
	return ok ? NULL : "out of memory";
}

/*
 * With "service" the hosts may stand in a file that only libpq reads: then
 * those of the environment do not count, and libpq is left alone with it.
 */
static bool
read_conninfo(Connector *connector, const char *conninfo,
			  char detail[512])
{
	PQconninfoOption *defaults = NULL;
	char	   *message = NULL;
	const char *problem;

	connector->options = PQconninfoParse(conninfo ? conninfo : "", &message);
	if (connector->options == NULL)
	{
		text_copy(detail, 512, message ? message : "out of memory");
		PQfreemem(message);
		return false;
	}
	if (option_value(connector, NULL, "service") == NULL)
		defaults = PQconndefaults();
	problem = split_targets(connector, defaults);
	PQconninfoFree(defaults);
	if (problem != NULL)
		text_copy(detail, 512, problem);
	return problem == NULL;
}

static void
drop_begun(Connector *connector)
{
	PQfinish(connector->begun);
	connector->begun = NULL;
}

void
connector_close(Connector *connector)
{
	drop_begun(connector);
	for (int i = 0; i < TARGETS_MAX; i++)
	{
		Target	   *target = &connector->targets[i];

		free(target->host);
		free(target->hostaddr);
		free(target->port);
		lookup_forget(&target->lookup);
	}
	PQconninfoFree(connector->options);
	connector->options = NULL;
}

void
connector_forget(Connector *connector)
{
	if (connector->begun != NULL && PQsocket(connector->begun) >= 0)
		close(PQsocket(connector->begun));
	connector->begun = NULL;
}

void
connector_avoid(Connector *connector)
{
	connector->first = (connector->first + 1) % connector->target_count;
}

/* ----- as libpq wants it ----- */

typedef struct Params
{
	int			count;
	const char *keywords[PARAMS_MAX + 1];
	const char *values[PARAMS_MAX + 1];
} Params;

static void
add_param(Params *params, const char *keyword, const char *value)
{
	if (value == NULL || params->count == PARAMS_MAX)
		return;
	params->keywords[params->count] = keyword;
	params->values[params->count] = value;
	params->count++;
	params->keywords[params->count] = NULL;
	params->values[params->count] = NULL;
}

/* Later ones win in libpq. */
static void
fill_params(Params *params, Connector *connector, const Target *target,
			const char *address)
{
	memset(params, 0, sizeof(*params));
	add_param(params, "fallback_application_name", "keyright");
	/* A server that cannot be written to has no seats to give. */
	if (!connector->any_server && getenv("PGTARGETSESSIONATTRS") == NULL)
		add_param(params, "target_session_attrs", "read-write");
	for (PQconninfoOption *o = connector->options; o->keyword != NULL; o++)
		if (o->val != NULL && strcmp(o->keyword, "host") != 0 &&
			strcmp(o->keyword, "hostaddr") != 0 &&
			strcmp(o->keyword, "port") != 0)
			add_param(params, o->keyword, o->val);
	add_param(params, "host", target->host);
	add_param(params, "hostaddr", address ? address : target->hostaddr);
	add_param(params, "port", target->port);
	add_param(params, "client_encoding", "UTF8");
}

/* ----- what libpq thinks of it ----- */

/* No folder: a connection that is tried there fails at once, and names it. */
#define NOWHERE				"/dev/null"

/* With a service's file or several addresses, its words can be about those. */
static bool
is_plain(Connector *connector)
{
	return option_value(connector, NULL, "service") == NULL &&
		getenv("PGSERVICE") == NULL && getenv("PGHOSTADDR") == NULL;
}

/* libpq fills the defaults in when it has read all that there is. */
static bool
was_read(PGconn *conn)
{
	PQconninfoOption *options = PQconninfo(conn);
	PQconninfoOption *sslmode = find_option(options, "sslmode");
	bool		read = sslmode != NULL && sslmode->val != NULL;

	PQconninfoFree(options);
	return read;
}

/*
 * libpq looks at most of the values only when it connects, where a wrong port
 * is a server that is not there.  So it connects once to where nobody is.
 */
static bool
is_accepted(Connector *connector, const Target *target, char detail[512])
{
	char		nowhere[] = NOWHERE;
	Target		probe = {.host = nowhere, .port = target->port};
	char		ignored[6];
	Params		params;
	PGconn	   *conn;
	bool		ok;

	fill_params(&params, connector, &probe, NULL);
	conn = PQconnectStartParams(params.keywords, params.values, 0);
	ok = conn == NULL || PQstatus(conn) != CONNECTION_BAD ||
		strstr(PQerrorMessage(conn), NOWHERE) != NULL ||
		(!is_plain(connector) && was_read(conn));
	detail[0] = '\0';
	if (!ok)
		pq_message_add(detail, 512, PQerrorMessage(conn), ignored);
	PQfinish(conn);
	return ok;
}

/* libpq would only see it when it connects, and it is not probed with it. */
static bool
is_address(const char *hostaddr, char detail[512])
{
	Addresses	addresses;

	addresses_of_number(&addresses, hostaddr);
	if (addresses.count == 0)
		snprintf(detail, 512, "hostaddr is no address: \"%.200s\"", hostaddr);
	return addresses.count > 0;
}

/* libpq has the connect_timeout checked by a function that is not used here. */
static bool
read_time_limit(Connector *connector, char detail[512])
{
	const char *text = option_value(connector, NULL, "connect_timeout");
	char	   *end;
	long		seconds;

	if (text == NULL)
		text = getenv("PGCONNECT_TIMEOUT");
	if (text == NULL || text[0] == '\0')
		return true;
	seconds = strtol(text, &end, 10);
	if (end == text || end[strspn(end, " \t")] != '\0')
	{
		snprintf(detail, 512, "connect_timeout is no whole number: \"%.200s\"",
				 text);
		return false;
	}
	connector->connect_timeout = seconds < 0 ? 0 :
		seconds > CONNECT_TIMEOUT_MAX ? CONNECT_TIMEOUT_MAX : (int) seconds;
	return true;
}

static bool
check_conninfo(Connector *connector, char detail[512])
{
	for (int i = 0; i < connector->target_count; i++)
	{
		const Target *target = &connector->targets[i];

		if (!is_accepted(connector, target, detail) ||
			(target->hostaddr != NULL &&
			 !is_address(target->hostaddr, detail)))
			return false;
	}
	return read_time_limit(connector, detail);
}

bool
connector_open(Connector *connector, const char *conninfo,
			   KeyrightError *error)
{
	char		detail[512];

	memset(connector, 0, sizeof(*connector));
	if (read_conninfo(connector, conninfo, detail) &&
		check_conninfo(connector, detail))
		return true;
	error_set(error, KEYRIGHT_ERR_OPTIONS, NULL, NULL, detail);
	connector_close(connector);
	return false;
}

/* ----- one connection ----- */

static void
ignore_notice(void *arg, const PGresult *result)
{
	(void) arg;
	(void) result;
}

/* Beside what other hosts, or other addresses of this one, have said. */
static void
add_reason(KeyrightAnswer *answer, const char *reason)
{
	pq_message_add(answer->message, sizeof(answer->message), reason,
				   answer->sqlstate);
}

static void
tell_failure(KeyrightAnswer *answer, PGconn *conn)
{
	add_reason(answer, conn != NULL ? PQerrorMessage(conn) :
			   "out of memory");
	/* The server asked for a password and there is none to give. */
	if (conn != NULL && answer->sqlstate[0] == '\0' &&
		PQconnectionNeedsPassword(conn))
		memcpy(answer->sqlstate, "28000", 6);
}

static void
tell_giving_up(KeyrightAnswer *answer, const PGconn *conn,
			   const Patience *patience)
{
	char		reason[512];

	snprintf(reason, sizeof(reason),
			 "connection to server at \"%.255s\", port %.16s failed: %s",
			 PQhost(conn), PQport(conn),
			 patience_lost(patience, "it was not there in time"));
	add_reason(answer, reason);
}

/* Is it done, one way or the other?  False: not in time. */
static bool
poll_connection(PGconn *conn, PostgresPollingStatusType *status,
				const Patience *patience)
{
	if (PQstatus(conn) == CONNECTION_BAD)
		*status = PGRES_POLLING_FAILED;
	while (*status == PGRES_POLLING_READING ||
		   *status == PGRES_POLLING_WRITING)
	{
		if (!patience_wait(patience, PQsocket(conn),
						   *status == PGRES_POLLING_READING ?
						   POLLIN : POLLOUT))
			return false;
		*status = PQconnectPoll(conn);
	}
	return true;
}

/*
 * Before the server's side of the socket is there, nothing is lost by
 * beginning anew, and much of time may be: a packet that got lost is repeated
 * later and later.
 */
static bool
is_worth_keeping(const PGconn *conn)
{
	return PQstatus(conn) != CONNECTION_BAD &&
		PQstatus(conn) != CONNECTION_NEEDED &&
		PQstatus(conn) != CONNECTION_STARTED;
}

/* Takes conn: returns it, keeps it for the next time, or ends it. */
static PGconn *
finish_connecting(Connector *connector, const Target *target, PGconn *conn,
				  PostgresPollingStatusType status,
				  const Patience *patience, KeyrightAnswer *answer)
{
	if (!poll_connection(conn, &status, patience))
	{
		tell_giving_up(answer, conn, patience);
		if (*patience->room >= 0 && is_worth_keeping(conn))
		{
			drop_begun(connector);
			connector->begun = conn;
			connector->begun_status = status;
			connector->begun_target = (int) (target - connector->targets);
			return NULL;
		}
	}
	else if (status == PGRES_POLLING_OK && PQsetnonblocking(conn, 1) == 0)
		return conn;
	else
		tell_failure(answer, conn);
	PQfinish(conn);
	return NULL;
}

/* What was begun the last time, if it is this target's. */
static PGconn *
connect_begun(Connector *connector, const Target *target,
			  const Patience *patience, KeyrightAnswer *answer)
{
	Patience	part = patience_share(patience, 3);
	PGconn	   *conn = connector->begun;

	if (conn == NULL || connector->begun_target != target - connector->targets)
		return NULL;
	connector->begun = NULL;
	return finish_connecting(connector, target, conn,
							 connector->begun_status, &part, answer);
}

/*
 * libpq reads on while there is something to be read, so that a server that
 * sends faster than it reads would keep it for as long as it likes.  With a
 * small buffer that is over soon, and patience_wait() is asked.
 */
static void
make_buffer_small(const PGconn *conn)
{
	int			size = RECEIVE_BUFFER;

	if (PQsocket(conn) >= 0)
		setsockopt(PQsocket(conn), SOL_SOCKET, SO_RCVBUF, &size,
				   sizeof(size));
}

static PGconn *
connect_to(Connector *connector, const Target *target, const char *address,
		   const Patience *patience, KeyrightAnswer *answer)
{
	Params		params;
	PGconn	   *conn;

	*patience->room = PATIENCE_ROOM;
	fill_params(&params, connector, target, address);
	conn = PQconnectStartParams(params.keywords, params.values, 0);
	if (conn == NULL)
	{
		tell_failure(answer, conn);
		return NULL;
	}
	PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
	PQsetNoticeReceiver(conn, ignore_notice, NULL);
	make_buffer_small(conn);
	return finish_connecting(connector, target, conn, PGRES_POLLING_WRITING,
							 patience, answer);
}

/* ----- one host ----- */

static bool
needs_lookup(const Target *target)
{
	return target->hostaddr == NULL && target->host != NULL &&
		target->host[0] != '/' && target->host[0] != '@';
}

/* Addresses that a name had before are better than none. */
static bool
find_addresses(Target *target, Addresses *addresses,
			   const Patience *patience, KeyrightAnswer *answer)
{
	Patience	half = patience_share(patience, 2);
	const char *problem;
	char		reason[512];

	addresses_of_number(addresses, target->host);
	if (addresses->count > 0)
		return true;
	if (lookup_host(&target->lookup, addresses, target->host, &half,
					&problem))
		target->known = *addresses;
	else
		*addresses = target->known;
	if (addresses->count > 0)
		return true;
	snprintf(reason, sizeof(reason),
			 "could not find the address of \"%.255s\": %s",
			 target->host, problem);
	add_reason(answer, reason);
	return false;
}

static bool
is_final(const KeyrightAnswer *answer)
{
	KeyrightErrorKind kind = error_kind_of_sqlstate(answer->sqlstate);

	return keyright_error_class(kind) != KEYRIGHT_CLASS_SILENCE;
}

static PGconn *
connect_to_target(Connector *connector, Target *target,
				  const Patience *patience, KeyrightAnswer *answer)
{
	Addresses	addresses;
	PGconn	   *conn = connect_begun(connector, target, patience, answer);

	if (conn != NULL)
		return conn;
	if (!needs_lookup(target))
		return connect_to(connector, target, NULL, patience, answer);
	if (!find_addresses(target, &addresses, patience, answer))
		return NULL;
	for (int i = 0; i < addresses.count && conn == NULL; i++)
	{
		Patience	share = patience_share(patience, addresses.count - i);

		if (i > 0 && is_final(answer))
			break;
		conn = connect_to(connector, target, addresses.text[i], &share,
						  answer);
	}
	return conn;
}

PGconn *
connector_connect(Connector *connector, const Patience *patience,
				  KeyrightAnswer *answer)
{
	int			count = connector->target_count;

	answer->message[0] = '\0';
	for (int i = 0; i < count; i++)
	{
		int			number = (connector->first + i) % count;
		Patience	share = patience_share(patience, count - i);
		PGconn	   *conn;

		if (i > 0 && (is_final(answer) || patience_left(patience) == 0))
			break;
		conn = connect_to_target(connector, &connector->targets[number],
								 &share, answer);
		if (conn != NULL)
		{
			connector->first = number;
			drop_begun(connector);
			return conn;
		}
	}
	return NULL;
}
