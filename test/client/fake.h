/*
 * fake.h
 *		A server in memory behind the transport interface, with real clocks
 *		and real threads, that does as it is told.
 */
#ifndef FAKE_H
#define FAKE_H

#include "internal.h"
#include "test.h"

typedef enum FakeMode
{
	FAKE_HEALTHY,
	FAKE_DOWN,					/* silence at once */
	FAKE_STUCK,					/* silence until the limit, or give up */
	FAKE_SLOW,					/* likewise, but it does its part */
	FAKE_FULL,
	FAKE_REVOKED				/* of beats; else healthy */
} FakeMode;

typedef struct Fake
{
	pthread_mutex_t lock;
	FakeMode	mode;
	int64_t		ttl_s;
	bool		taken;
	int64_t		exp;
	char		request_id[KEYRIGHT_TEXT_MAX + 1];
	uint8_t		seat_id[SEAT_ID_SIZE];
	int			calls[4];
	int			grants;
	int			closed;
	int			in_call;
	bool		overlapped;		/* two calls at once: never allowed */
	KeyrightCall last;

	/* What the callback saw. */
	int			events;
	char		story[512];
	bool		disordered;
	uint64_t	last_number;
	pthread_t	teller;
	void		(*also) (struct Fake *fake, const KeyrightEvent *event);
	Keyright   *seat;
	KeyrightErrorKind answers[4];	/* for "also" */
} Fake;

extern Fake *fake_new(int64_t ttl_s);
extern void fake_free(Fake *fake);
extern void fake_set(Fake *fake, FakeMode mode);
extern int	fake_calls(Fake *fake, KeyrightCall call);
extern bool fake_taken(Fake *fake);
extern const char *fake_story(Fake *fake);

/* Options for a seat of it, with its callback. */
extern void fake_options(Fake *fake, KeyrightOptions *options);

/* Opens a seat with them, or ends the test. */
extern Keyright *fake_open(Fake *fake);

/* Waits until a condition holds, 20 s at most. */
#define WAIT_FOR(condition) \
	({ \
		int tries_ = 2000; \
		while (!(condition) && tries_-- > 0) \
			usleep(10000); \
		(bool) (condition); \
	})

#endif							/* FAKE_H */
