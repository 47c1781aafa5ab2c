/*
 * redis_client.c
 *		usage: redis_client SOCKET fill | beat | grant | sign  FIRST LICENSES
 *							SEATS CLIENTS SECONDS
 *
 * Floating licenses in Redis: a sorted set a license, members are seat ids and
 * scores the ends of their leases; Lua scripts decide, as they run one at a
 * time.  "sign" is beat with each lease signed by the client, which is what an
 * application server would have to do in front of Redis.
 */
#include "load.h"

#include <hiredis/hiredis.h>
#include <sodium.h>

#define SIGNED_SIZE		313		/* as many bytes as a token of keyright's */
#define LEASE			3600

static const char checkout_script[] =
	"local now = tonumber(redis.call('TIME')[1]) "
	"redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. now) "
	"if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end "
	"redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3]) "
	"return now + ARGV[2]";

static const char beat_script[] =
	"local now = tonumber(redis.call('TIME')[1]) "
	"local ends = redis.call('ZSCORE', KEYS[1], ARGV[2]) "
	"if not ends or tonumber(ends) < now then return 0 end "
	"redis.call('ZADD', KEYS[1], 'XX', now + ARGV[1], ARGV[2]) "
	"return now + ARGV[1]";

static const char *path;
static const char *mode;
static int	first;
static int	licenses;
static int	seats;
static int	clients;
static char checkout_hash[64];
static char beat_hash[64];
static unsigned char secret[crypto_sign_SECRETKEYBYTES];

static redisContext *
open_connection(void)
{
	redisContext *redis = redisConnectUnix(path);

	if (redis == NULL || redis->err)
		die("could not connect to Redis");
	return redis;
}

/* The integer that was answered; texts are copied. */
static long long
take(redisReply *reply, char *text)
{
	long long	answer;

	if (reply == NULL)
		die("Redis is gone");
	if (reply->type == REDIS_REPLY_ERROR)
		die(reply->str);
	if (text != NULL)
		strcpy(text, reply->str);
	answer = reply->integer;
	freeReplyObject(reply);
	return answer;
}

static void
connect_client(Client *client)
{
	client->connection = open_connection();
}

static void
sign_lease(void)
{
	unsigned char message[SIGNED_SIZE] = "a lease";
	unsigned char signature[crypto_sign_BYTES];

	crypto_sign_detached(signature, NULL, message, sizeof(message), secret);
}

static void
beat(Client *client)
{
	int			license = first + random_below(client, licenses);
	int			seat = random_below(client, seats);

	if (take(redisCommand(client->connection,
						  "EVALSHA %s 1 license:%d %d seat-%d-%d", beat_hash,
						  license, LEASE, license, seat), NULL) == 0)
		die("a lease was lost");
	if (strcmp(mode, "sign") == 0)
		sign_lease();
}

static void
grant(Client *client)
{
	int			license = first + random_below(client, licenses);
	unsigned	id = random_below(client, 1u << 31);

	if (take(redisCommand(client->connection,
						  "EVALSHA %s 1 license:%d %d %d new-%d-%u",
						  checkout_hash, license, seats, LEASE,
						  client->number, id), NULL) == 0)
		die("a check-out was refused");
	if (take(redisCommand(client->connection, "ZREM license:%d new-%d-%u",
						  license, client->number, id), NULL) == 0)
		die("a lease was lost");
}

static void
work(Client *client)
{
	if (strcmp(mode, "grant") == 0)
		grant(client);
	else
		beat(client);
}

/* 9 of 10 seats are in use; of them all beat. */
static void
fill(void)
{
	redisContext *redis = open_connection();
	long		ends = time(NULL) + 2 * LEASE;
	int			used = seats - seats / 10;

	for (int i = 0; i < licenses * used; i++)
		redisAppendCommand(redis, "ZADD license:%d %ld seat-%d-%d",
						   first + i / used, ends, first + i / used, i % used);
	for (int i = 0; i < licenses * used; i++)
	{
		void	   *reply;

		if (redisGetReply(redis, &reply) != REDIS_OK)
			die("Redis is gone");
		take(reply, NULL);
	}
}

int
main(int argc, char **argv)
{
	unsigned char public[crypto_sign_PUBLICKEYBYTES];
	redisContext *redis;

	if (argc != 8)
		die("see the head of redis_client.c");
	path = argv[1];
	mode = argv[2];
	first = atoi(argv[3]);
	licenses = atoi(argv[4]);
	seats = atoi(argv[5]);
	clients = atoi(argv[6]);
	if (strcmp(mode, "fill") == 0)
	{
		fill();
		return 0;
	}
	if (sodium_init() < 0)
		die("libsodium could not be initialized");
	crypto_sign_keypair(public, secret);
	redis = open_connection();
	take(redisCommand(redis, "SCRIPT LOAD %s", checkout_script), checkout_hash);
	take(redisCommand(redis, "SCRIPT LOAD %s", beat_script), beat_hash);
	if (strcmp(mode, "grant") != 0)
		seats -= seats / 10;
	run_load(clients, atof(argv[7]));
	return 0;
}
