/*
 * load.h
 *		Load on a store by so many clients for so long, for the clients of
 *		other stores than PostgreSQL.  Like pgbench: a client asks again as
 *		soon as it was answered.
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Client
{
	int			number;
	pthread_t	thread;
	uint64_t	random;
	long		done;			/* pieces of work */
	void	   *connection;
} Client;

/* What a store must give: both end the program on any failure. */
static void connect_client(Client *client);
static void work(Client *client);

static volatile bool load_over = false;

static void
die(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

/* 0 to below; xorshift is random enough to choose a license. */
static uint64_t
random_below(Client *client, uint64_t below)
{
	client->random ^= client->random << 13;
	client->random ^= client->random >> 7;
	client->random ^= client->random << 17;
	return client->random % below;
}

static double
seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void *
run_client(void *argument)
{
	Client	   *client = argument;

	while (!load_over)
	{
		work(client);
		client->done++;
	}
	return NULL;
}

/* Prints how many pieces of work were done a second. */
static void
run_load(int clients, double seconds)
{
	Client	   *all = calloc(clients, sizeof(Client));
	struct timespec pause = {(time_t) seconds,
	(long) ((seconds - (time_t) seconds) * 1e9)};
	double		begin;
	double		took;
	long		done = 0;

	for (int i = 0; i < clients; i++)
	{
		all[i].number = i;
		all[i].random = 88172645463325252ULL + 7919ULL * i + time(NULL);
		connect_client(&all[i]);
	}
	begin = seconds_now();
	for (int i = 0; i < clients; i++)
		if (pthread_create(&all[i].thread, NULL, run_client, &all[i]) != 0)
			die("could not start a thread");
	nanosleep(&pause, NULL);
	load_over = true;
	for (int i = 0; i < clients; i++)
	{
		pthread_join(all[i].thread, NULL);
		done += all[i].done;
	}
	took = seconds_now() - begin;
	printf("%.1f\n", done / took);
	free(all);
}

#endif							/* BENCH_LOAD_H */
