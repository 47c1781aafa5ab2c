/*
 * fake.c
 *		A server in memory, see fake.h.
 */
#include "fake.h"

#include <poll.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

Fake *
fake_new(int64_t ttl_s)
{
	Fake	   *fake = calloc(1, sizeof(*fake));

	if (fake == NULL)
		abort();
	pthread_mutex_init(&fake->lock, NULL);
	fake->ttl_s = ttl_s;
	sample_key();
	return fake;
}

void
fake_free(Fake *fake)
{
	pthread_mutex_destroy(&fake->lock);
	free(fake);
}

void
fake_set(Fake *fake, FakeMode mode)
{
	pthread_mutex_lock(&fake->lock);
	fake->mode = mode;
	pthread_mutex_unlock(&fake->lock);
}

int
fake_calls(Fake *fake, KeyrightCall call)
{
	int			calls;

	pthread_mutex_lock(&fake->lock);
	calls = fake->calls[call];
	pthread_mutex_unlock(&fake->lock);
	return calls;
}

bool
fake_taken(Fake *fake)
{
	bool		taken;

	pthread_mutex_lock(&fake->lock);
	taken = fake->taken && time(NULL) < fake->exp;
	pthread_mutex_unlock(&fake->lock);
	return taken;
}

const char *
fake_story(Fake *fake)
{
	static char copy[512];

	pthread_mutex_lock(&fake->lock);
	strcpy(copy, fake->story);
	pthread_mutex_unlock(&fake->lock);
	return copy;
}

/* ----- the server ----- */

static void
sign(Fake *fake, const char *holder, KeyrightAnswer *answer)
{
	LeaseClaims claims;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	fake->exp = now.tv_sec + fake->ttl_s + 1;
	memset(&claims, 0, sizeof(claims));
	strcpy(claims.license, "acme");
	strcpy(claims.holder, holder);
	memcpy(claims.seat_id, fake->seat_id, SEAT_ID_SIZE);
	claims.slot = 1;
	claims.issued_at = now.tv_sec;
	claims.expires_at = fake->exp;
	answer->issued_at_us = now.tv_sec * LEASE_SECOND + now.tv_nsec / 1000;
	token_write(answer->token, &claims, sample_key());
}

static void
checkout(Fake *fake, const KeyrightRequest *request, KeyrightAnswer *answer)
{
	bool		live = fake->taken && time(NULL) < fake->exp;
	bool		same = live &&
		strcmp(fake->request_id, request->request_id) == 0;

	/* Full for the same request too: ours may be counted a moment longer. */
	if (fake->mode == FAKE_FULL || (live && !same))
	{
		answer->status = KEYRIGHT_STATUS_NO_SEATS;
		return;
	}
	if (!same)
	{
		randombytes_buf(fake->seat_id, SEAT_ID_SIZE);
		seat_id_make(fake->seat_id, 1);
		strcpy(fake->request_id, request->request_id);
		fake->grants++;
	}
	fake->taken = true;
	answer->status = KEYRIGHT_STATUS_GRANTED;
	sign(fake, "zoe", answer);
}

static bool
is_seat(Fake *fake, const KeyrightRequest *request)
{
	char		text[SEAT_ID_TEXT_SIZE];

	seat_id_print(text, fake->seat_id);
	return fake->taken && strcmp(text, request->seat_id) == 0;
}

static void
serve(Fake *fake, const KeyrightRequest *request, KeyrightAnswer *answer)
{
	switch (request->call)
	{
		case KEYRIGHT_CALL_CHECKOUT:
			checkout(fake, request, answer);
			break;
		case KEYRIGHT_CALL_HEARTBEAT:
			answer->status = KEYRIGHT_STATUS_LOST_EXPIRED;
			if (fake->mode == FAKE_REVOKED)
			{
				answer->status = KEYRIGHT_STATUS_LOST_REVOKED;
				fake->taken = false;
			}
			else if (is_seat(fake, request) && time(NULL) < fake->exp)
			{
				answer->status = KEYRIGHT_STATUS_RENEWED;
				sign(fake, "zoe", answer);
			}
			break;
		case KEYRIGHT_CALL_CHECKIN:
			answer->status = is_seat(fake, request) ?
				KEYRIGHT_STATUS_RELEASED : KEYRIGHT_STATUS_NOT_HELD;
			if (is_seat(fake, request))
				fake->taken = false;
			break;
	}
}

static void
call(void *self, const KeyrightRequest *request, KeyrightAnswer *answer)
{
	Fake	   *fake = self;
	struct pollfd give_up = {.fd = request->give_up_fd, .events = POLLIN};
	FakeMode	mode;

	pthread_mutex_lock(&fake->lock);
	fake->overlapped |= fake->in_call++ > 0;
	fake->calls[request->call]++;
	fake->last = request->call;
	mode = fake->mode;
	if (mode != FAKE_DOWN && mode != FAKE_STUCK)
		serve(fake, request, answer);
	pthread_mutex_unlock(&fake->lock);

	if (mode == FAKE_STUCK || mode == FAKE_SLOW)
		poll(&give_up, 1, (int) (request->limit_ns / MS_NS));
	if (mode == FAKE_SLOW)
	{
		answer->status = KEYRIGHT_STATUS_FAILED;
		answer->token[0] = '\0';
	}
	pthread_mutex_lock(&fake->lock);
	fake->in_call--;
	pthread_mutex_unlock(&fake->lock);
}

static void
close_fake(void *self)
{
	Fake	   *fake = self;

	pthread_mutex_lock(&fake->lock);
	fake->closed++;
	pthread_mutex_unlock(&fake->lock);
}

/* ----- the application ----- */

static void
on_event(void *arg, const KeyrightEvent *event)
{
	Fake	   *fake = arg;
	const char *name = keyright_state_name(event->state);

	pthread_mutex_lock(&fake->lock);
	fake->disordered |= event->number != fake->last_number + 1 ||
		(fake->events > 0 && event->before != KEYRIGHT_RELEASED &&
		 event->before != KEYRIGHT_IDLE &&
		 !pthread_equal(fake->teller, pthread_self()));
	fake->last_number = event->number;
	fake->teller = pthread_self();
	fake->events++;
	if (strlen(fake->story) + strlen(name) + 2 < sizeof(fake->story))
	{
		if (fake->story[0] != '\0')
			strcat(fake->story, " ");
		strcat(fake->story, name);
	}
	pthread_mutex_unlock(&fake->lock);
	if (fake->also != NULL)
		fake->also(fake, event);
}

void
fake_options(Fake *fake, KeyrightOptions *options)
{
	static char jwks[KEYSET_TEXT_SIZE];
	static KeyrightTransport transport;

	transport.size = sizeof(transport);
	transport.call = call;
	transport.close = close_fake;
	transport.self = fake;
	keyset_write(jwks, sample_set());
	keyright_options_init(options);
	options->license = "acme";
	options->holder = "zoe";
	options->jwks = jwks;
	options->transport = &transport;
	options->on_event = on_event;
	options->event_arg = fake;
}

Keyright *
fake_open(Fake *fake)
{
	KeyrightOptions options;
	KeyrightError error;

	fake_options(fake, &options);
	if (keyright_open(&fake->seat, &options, &error) != KEYRIGHT_OK)
	{
		printf("Bail out! %s (%s)\n", error.message, error.detail);
		exit(2);
	}
	return fake->seat;
}
