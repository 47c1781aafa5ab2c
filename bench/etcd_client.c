/*
 * etcd_client.c
 *		usage: etcd_client PORT fill | beat | put | grant  FIRST LICENSES SEATS
 *						   CLIENTS SECONDS
 *
 * Floating licenses in etcd, over gRPC as its own clients speak it: a key a
 * seat under a prefix a license, each with a lease of etcd's.
 *
 * beat		keep-alive of a lease, on a stream that stays open.  etcd does not
 *			write it: what it answers does not survive the leader
 * put		the end of the lease written into the key: a beat that lasts
 * grant	check-out: a lease is granted, the keys under the prefix are counted
 *			and the license's guard is read in one transaction, and a second
 *			one puts the seat if the guard is still the same; then check-in:
 *			the lease is revoked, its key goes with it
 *
 * The first half of this file is as much of gRPC and of Protocol Buffers as
 * that takes.
 */
#include "load.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>
#include <unistd.h>

#define TTL				7200
#define BUFFER_SIZE		2048
#define PREFIX_SIZE		5		/* of a gRPC message: flag and length */

/* ---------- Protocol Buffers ---------- */

typedef struct Buffer
{
	size_t		size;
	uint8_t		bytes[BUFFER_SIZE];
} Buffer;

static void
put_bytes(Buffer *to, const void *bytes, size_t size)
{
	if (to->size + size > BUFFER_SIZE)
		die("a message is too long");
	memcpy(to->bytes + to->size, bytes, size);
	to->size += size;
}

static void
put_varint(Buffer *to, uint64_t value)
{
	uint8_t		byte;

	do
	{
		byte = (value & 0x7f) | (value > 0x7f ? 0x80 : 0);
		put_bytes(to, &byte, 1);
		value >>= 7;
	} while (value > 0);
}

static void
put_number(Buffer *to, int field, uint64_t value)
{
	put_varint(to, field << 3);
	put_varint(to, value);
}

static void
put_text(Buffer *to, int field, const void *bytes, size_t size)
{
	put_varint(to, field << 3 | 2);
	put_varint(to, size);
	put_bytes(to, bytes, size);
}

static void
put_string(Buffer *to, int field, const char *string)
{
	put_text(to, field, string, strlen(string));
}

static void
put_message(Buffer *to, int field, const Buffer *message)
{
	put_text(to, field, message->bytes, message->size);
}

typedef struct Field
{
	bool		found;
	uint64_t	number;
	const uint8_t *bytes;		/* and its size is number */
} Field;

static uint64_t
take_varint(const uint8_t **at, const uint8_t *end)
{
	uint64_t	value = 0;

	for (int shift = 0; *at < end && shift < 64; shift += 7)
	{
		uint8_t		byte = *(*at)++;

		value |= (uint64_t) (byte & 0x7f) << shift;
		if (byte < 0x80)
			return value;
	}
	die("etcd's answer is malformed");
	return 0;
}

/* The which-th field of this number, from 0. */
static Field
get_field(const uint8_t *at, size_t size, int number, int which)
{
	const uint8_t *end = at + size;
	Field		none = {false, 0, NULL};

	while (at < end)
	{
		uint64_t	tag = take_varint(&at, end);
		Field		field = {true, take_varint(&at, end), NULL};

		if ((tag & 7) == 2)
		{
			field.bytes = at;
			if (field.number > (uint64_t) (end - at))
				die("etcd's answer is malformed");
			at += field.number;
		}
		else if ((tag & 7) != 0)
			die("etcd's answer is malformed");
		if (tag >> 3 == (uint64_t) number && which-- == 0)
			return field;
	}
	return none;
}

/* ---------- gRPC ---------- */

typedef struct Connection
{
	int			socket;
	nghttp2_session *session;
	Buffer		request;		/* what is still to be sent ... */
	size_t		sent;
	bool		more;			/* ... and that the stream stays open then */
	Buffer		answer;
	bool		closed;
	int32_t		beats;			/* the stream of keep-alives, once opened */
} Connection;

static ssize_t
on_send(nghttp2_session *session, const uint8_t *data, size_t size, int flags,
		void *user)
{
	Connection *connection = user;
	ssize_t		written = write(connection->socket, data, size);

	(void) session, (void) flags;
	return written < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : written;
}

static ssize_t
on_read_request(nghttp2_session *session, int32_t stream, uint8_t *to,
				size_t size, uint32_t *flags, nghttp2_data_source *source,
				void *user)
{
	Connection *connection = user;
	size_t		left = connection->request.size - connection->sent;

	(void) session, (void) stream, (void) source;
	if (left == 0 && connection->more)
		return NGHTTP2_ERR_DEFERRED;
	if (size > left)
		size = left;
	memcpy(to, connection->request.bytes + connection->sent, size);
	connection->sent += size;
	if (size == left && !connection->more)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return size;
}

static int
on_data(nghttp2_session *session, uint8_t flags, int32_t stream,
		const uint8_t *data, size_t size, void *user)
{
	Connection *connection = user;

	(void) session, (void) flags, (void) stream;
	put_bytes(&connection->answer, data, size);
	return 0;
}

static int
on_header(nghttp2_session *session, const nghttp2_frame *frame,
		  const uint8_t *name, size_t name_size, const uint8_t *value,
		  size_t value_size, uint8_t flags, void *user)
{
	(void) session, (void) frame, (void) flags, (void) user;
	if (name_size == 11 && memcmp(name, "grpc-status", 11) == 0 &&
		!(value_size == 1 && value[0] == '0'))
		die("etcd answered with an error");
	return 0;
}

static int
on_close(nghttp2_session *session, int32_t stream, uint32_t code, void *user)
{
	(void) session, (void) stream, (void) code;
	((Connection *) user)->closed = true;
	return 0;
}

static Connection *
open_connection(int port)
{
	Connection *connection = calloc(1, sizeof(Connection));
	nghttp2_session_callbacks *callbacks;
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	int			on = 1;

	connection->socket = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(connection->socket, (struct sockaddr *) &address,
				sizeof(address)) != 0)
		die("could not connect to etcd");
	setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	nghttp2_session_callbacks_new(&callbacks);
	nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks,
															  on_data);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks,
														   on_close);
	nghttp2_session_client_new(&connection->session, callbacks, connection);
	nghttp2_session_callbacks_del(callbacks);
	nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, NULL, 0);
	return connection;
}

static void
set_request(Connection *connection, const Buffer *message, bool more)
{
	uint8_t		prefix[PREFIX_SIZE] = {0};

	for (int i = 1; i < PREFIX_SIZE; i++)
		prefix[i] = message->size >> (8 * (PREFIX_SIZE - 1 - i));
	connection->request.size = connection->sent = 0;
	put_bytes(&connection->request, prefix, sizeof(prefix));
	put_bytes(&connection->request, message->bytes, message->size);
	connection->more = more;
	connection->answer.size = 0;
	connection->closed = false;
}

static int32_t
open_stream(Connection *connection, const char *method)
{
#define HEADER(n, v) \
	{(uint8_t *) (n), (uint8_t *) (v), strlen(n), strlen(v), \
	NGHTTP2_NV_FLAG_NONE}
	nghttp2_nv	headers[] = {
		HEADER(":method", "POST"), HEADER(":scheme", "http"),
		HEADER(":path", method), HEADER(":authority", "localhost"),
		HEADER("content-type", "application/grpc"), HEADER("te", "trailers")
	};
	nghttp2_data_provider provider = {.read_callback = on_read_request};
	int32_t		stream = nghttp2_submit_request(connection->session, NULL,
												headers, 6, &provider, NULL);

	if (stream < 0)
		die("could not ask etcd");
	return stream;
}

/* Of a call the end of its stream, of a beat a message. */
static bool
has_answer(Connection *connection)
{
	Buffer	   *answer = &connection->answer;

	if (!connection->more)
		return connection->closed;
	/* none is longer than 255 bytes */
	return answer->size >= PREFIX_SIZE &&
		answer->size - PREFIX_SIZE >= answer->bytes[PREFIX_SIZE - 1];
}

static void
wait_for_answer(Connection *connection)
{
	uint8_t		data[16384];

	while (!has_answer(connection))
	{
		ssize_t		size;

		if (nghttp2_session_send(connection->session) != 0 ||
			(size = read(connection->socket, data, sizeof(data))) <= 0 ||
			nghttp2_session_mem_recv(connection->session, data, size) != size)
			die("etcd is gone");
	}
	if (connection->answer.size < PREFIX_SIZE)
		die("etcd answered nothing");
}

static Field
answered(Connection *connection, int number)
{
	return get_field(connection->answer.bytes + PREFIX_SIZE,
					 connection->answer.size - PREFIX_SIZE, number, 0);
}

static void
call(Connection *connection, const char *method, const Buffer *message)
{
	set_request(connection, message, false);
	open_stream(connection, method);
	wait_for_answer(connection);
}

/* ---------- licenses in etcd ---------- */

static int	port;
static const char *mode;
static int	first;
static int	licenses;
static int	seats;
static int	clients;

static void
connect_client(Client *client)
{
	client->connection = open_connection(port);
}

/* 0: etcd chooses.  Returns the lease's id. */
static uint64_t
grant_lease(Connection *etcd, uint64_t id)
{
	Buffer		request = {.size = 0};

	put_number(&request, 1, TTL);
	put_number(&request, 2, id);
	call(etcd, "/etcdserverpb.Lease/LeaseGrant", &request);
	return answered(etcd, 2).number;
}

static void
revoke_lease(Connection *etcd, uint64_t id)
{
	Buffer		request = {.size = 0};

	put_number(&request, 1, id);
	call(etcd, "/etcdserverpb.Lease/LeaseRevoke", &request);
}

static void
keep_alive(Connection *etcd, uint64_t id)
{
	Buffer		request = {.size = 0};
	Field		message;

	put_number(&request, 1, id);
	set_request(etcd, &request, true);
	if (etcd->beats == 0)
		etcd->beats = open_stream(etcd, "/etcdserverpb.Lease/LeaseKeepAlive");
	else
		nghttp2_session_resume_data(etcd->session, etcd->beats);
	wait_for_answer(etcd);
	message = answered(etcd, 3);
	if (!message.found || message.number == 0)
		die("a lease was lost");
}

static void
put_seat_request(Buffer *to, int license, uint64_t lease)
{
	char		key[64];
	char		ends[32];

	snprintf(key, sizeof(key), "seat/%d/%llx", license,
			 (unsigned long long) lease);
	snprintf(ends, sizeof(ends), "%ld", (long) time(NULL) + TTL);
	put_string(to, 1, key);
	put_string(to, 2, ends);
	put_number(to, 3, lease);
}

static void
put_seat(Connection *etcd, int license, uint64_t lease)
{
	Buffer		request = {.size = 0};

	put_seat_request(&request, license, lease);
	call(etcd, "/etcdserverpb.KV/Put", &request);
}

/* An operation of a transaction: one of those that RequestOp has. */
static void
add_operation(Buffer *transaction, int kind, const Buffer *request)
{
	Buffer		operation = {0};

	put_message(&operation, kind, request);
	put_message(transaction, 2, &operation);
}

/* How many seats are in use, and the revision of the guard; 0: none yet. */
static uint64_t
count_seats(Connection *etcd, int license, uint64_t *revision)
{
	Buffer		transaction = {0};
	Buffer		range = {0};
	Buffer		guard = {0};
	char		key[64];
	Field		ranges[2];
	Field		pair;
	Field		field;

	snprintf(key, sizeof(key), "seat/%d/", license);
	put_string(&range, 1, key);
	key[strlen(key) - 1]++;		/* the end of all that begin so */
	put_string(&range, 2, key);
	put_number(&range, 9, true);
	add_operation(&transaction, 1, &range);
	snprintf(key, sizeof(key), "guard/%d", license);
	put_string(&guard, 1, key);
	add_operation(&transaction, 1, &guard);
	call(etcd, "/etcdserverpb.KV/Txn", &transaction);
	for (int i = 0; i < 2; i++)
	{
		field = get_field(etcd->answer.bytes + PREFIX_SIZE,
						  etcd->answer.size - PREFIX_SIZE, 3, i);
		ranges[i] = get_field(field.bytes, field.number, 1, 0);
	}
	pair = get_field(ranges[1].bytes, ranges[1].number, 2, 0);
	*revision = pair.found ? get_field(pair.bytes, pair.number, 3, 0).number : 0;
	return get_field(ranges[0].bytes, ranges[0].number, 4, 0).number;
}

/* False when somebody else took a seat of this license meanwhile. */
static bool
take_seat(Connection *etcd, int license, uint64_t lease, uint64_t revision)
{
	Buffer		transaction = {0};
	Buffer		compare = {0};
	Buffer		seat = {0};
	Buffer		guard = {0};
	char		key[64];

	snprintf(key, sizeof(key), "guard/%d", license);
	put_number(&compare, 2, 2); /* its revision of last change is equal to */
	put_string(&compare, 3, key);
	put_number(&compare, 6, revision);
	put_message(&transaction, 1, &compare);
	put_seat_request(&seat, license, lease);
	add_operation(&transaction, 2, &seat);
	put_string(&guard, 1, key);
	add_operation(&transaction, 2, &guard);
	call(etcd, "/etcdserverpb.KV/Txn", &transaction);
	return answered(etcd, 2).number == 1;
}

static void
grant(Client *client)
{
	Connection *etcd = client->connection;
	int			license = first + random_below(client, licenses);
	uint64_t	lease = grant_lease(etcd, 0);
	uint64_t	revision;

	do
	{
		if (count_seats(etcd, license, &revision) >= (uint64_t) seats)
			die("a check-out was refused");
	} while (!take_seat(etcd, license, lease, revision));
	revoke_lease(etcd, lease);
}

static uint64_t
filled_lease(int license, int seat)
{
	return (uint64_t) license * 1000000 + seat + 1;
}

static void
work(Client *client)
{
	int			license;
	uint64_t	lease;

	if (strcmp(mode, "grant") == 0)
	{
		grant(client);
		return;
	}
	license = first + random_below(client, licenses);
	lease = filled_lease(license, random_below(client, seats - seats / 10));
	if (strcmp(mode, "beat") == 0)
		keep_alive(client->connection, lease);
	else
		put_seat(client->connection, license, lease);
}

/* 9 of 10 seats are in use; every client fills its part of them. */
static void *
fill_part(void *argument)
{
	Client	   *client = argument;
	int			used = seats - seats / 10;

	for (int i = client->number; i < licenses * used; i += clients)
	{
		int			license = first + i / used;
		uint64_t	lease = filled_lease(license, i % used);

		grant_lease(client->connection, lease);
		put_seat(client->connection, license, lease);
	}
	return NULL;
}

static void
fill(void)
{
	Client	   *all = calloc(clients, sizeof(Client));

	for (int i = 0; i < clients; i++)
	{
		all[i].number = i;
		connect_client(&all[i]);
		if (pthread_create(&all[i].thread, NULL, fill_part, &all[i]) != 0)
			die("could not start a thread");
	}
	for (int i = 0; i < clients; i++)
		pthread_join(all[i].thread, NULL);
	free(all);
}

int
main(int argc, char **argv)
{
	if (argc != 8)
		die("see the head of etcd_client.c");
	port = atoi(argv[1]);
	mode = argv[2];
	first = atoi(argv[3]);
	licenses = atoi(argv[4]);
	seats = atoi(argv[5]);
	clients = atoi(argv[6]);
	if (strcmp(mode, "fill") == 0)
		fill();
	else
		run_load(clients, atof(argv[7]));
	return 0;
}
