/*
 * keyright.h
 *		libkeyright: keeps one seat of a floating license for an application.
 *
 * A seat is held by a lease: a claim that the license server signs and that
 * ends by itself.  This library checks a seat out, renews its lease from a
 * thread of its own, and says at any moment how much longer the application
 * may run.  No bad network ends a lease before the end that was signed, and
 * nothing keeps it alive after it.
 *
 *		KeyrightOptions options;
 *		KeyrightError error;
 *		Keyright   *seat;
 *
 *		keyright_options_init(&options);
 *		options.conninfo = "host=a,b target_session_attrs=read-write";
 *		options.license = "acme";
 *		options.jwks = jwks_text;
 *		if (keyright_open(&seat, &options, &error) == KEYRIGHT_OK &&
 *			keyright_checkout(seat, &error) == KEYRIGHT_OK)
 *			while (work_to_do() && keyright_may_run(seat) > 0)
 *				work();
 *		keyright_close(seat);		(gives the seat back)
 *
 * Threads: a handle may be used from several threads at once, but nothing may
 * be called on it while or after keyright_close() runs.  Different handles
 * share nothing; the library has no state of its own, changes no signal
 * disposition and blocks every signal in its threads.
 *
 * Fork: a handle belongs to the process that opened it.  In a child of
 * fork(), keyright_may_run() and keyright_state() still answer, from the last
 * token that was known at the fork and until its signed end, because the
 * child is a part of the licensed application; the child renews nothing.
 * keyright_close() frees memory there without a word to the server, and every
 * other function returns KEYRIGHT_ERR_MISUSE.  So a daemon checks out after
 * it has left its parent.
 *
 * Times are int64_t: milliseconds where a person sets them, nanoseconds where
 * a program asks.  Texts are UTF-8.  Structures that a caller fills in begin
 * with their size, so that they can grow.
 */
#ifndef KEYRIGHT_H
#define KEYRIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C"
{
#endif

#define KEYRIGHT_API __attribute__((visibility("default")))

/* The longest license id, holder and request id: bytes without the zero. */
#define KEYRIGHT_TEXT_MAX	255

/* The longest token, with its final zero. */
#define KEYRIGHT_TOKEN_SIZE 4096

/* ----- errors ----- */

/*
 * What went wrong.  Numbers never change; new ones are added.
 *
 * Three kinds of failure must not be confused, see keyright_error_class():
 * silence (nobody who may decide has spoken), an answer (the server has
 * decided), and an answer that the server's key did not sign.
 */
typedef enum KeyrightErrorKind
{
	KEYRIGHT_OK = 0,

	/* The caller's side. */
	KEYRIGHT_ERR_MISUSE = 1,	/* in a callback, after fork, twice ... */
	KEYRIGHT_ERR_OPTIONS = 2,	/* an option is missing or out of range */
	KEYRIGHT_ERR_SYSTEM = 3,	/* no memory, no thread, no descriptor */
	KEYRIGHT_ERR_STATE_FILE = 4,	/* in use by another process, unwritable */
	KEYRIGHT_ERR_INTERRUPTED = 5,	/* by keyright_interrupt() or a check-in */

	/* Silence. */
	KEYRIGHT_ERR_UNREACHABLE = 10,	/* no connection, or no answer in time */
	KEYRIGHT_ERR_BUSY = 11,		/* restarting, full, locked, read only ... */

	/* Answers. */
	KEYRIGHT_ERR_NO_SEATS = 20, /* all seats are taken */
	KEYRIGHT_ERR_EXPIRED = 21,	/* the lease had ended; a seat is lost */
	KEYRIGHT_ERR_UNKNOWN_SEAT = 22, /* the server knows no such lease */
	KEYRIGHT_ERR_REVOKED = 23,	/* an administrator took the seat back */
	KEYRIGHT_ERR_LICENSE = 24,	/* unknown, suspended, outside validity */
	KEYRIGHT_ERR_LOGIN = 25,	/* password, role, database or privilege */
	KEYRIGHT_ERR_REFUSED = 26,	/* any other error that repeating won't mend */

	/* Answers that the server's key did not sign. */
	KEYRIGHT_ERR_TOKEN = 30,	/* the token is not good for this seat */
	KEYRIGHT_ERR_NO_KEY = 31,	/* the server says that it cannot sign */

	/* What this side finds out by itself. */
	KEYRIGHT_ERR_LAPSED = 40,	/* the lease's signed end has passed */
	KEYRIGHT_ERR_CLOCK = 41		/* the wall clock leapt past that end */
} KeyrightErrorKind;

typedef enum KeyrightErrorClass
{
	KEYRIGHT_CLASS_NONE = 0,	/* KEYRIGHT_OK */
	KEYRIGHT_CLASS_LOCAL = 1,	/* this side */
	KEYRIGHT_CLASS_SILENCE = 2, /* ends no lease before its signed end */
	KEYRIGHT_CLASS_ANSWER = 3,	/* acts at once */
	KEYRIGHT_CLASS_UNSIGNED = 4 /* ends no lease, renews none either */
} KeyrightErrorClass;

/* An error is a value: copy it as you like.  It holds no secret. */
typedef struct KeyrightError
{
	KeyrightErrorKind kind;
	char		sqlstate[6];	/* of the server, or empty */
	char		message[256];	/* a sentence for the user, in English */
	char		detail[512];	/* for support: the server's or system's words,
								 * may be empty */
} KeyrightError;

/*
 * The class of a kind; a name for it such as "no_seats" (static storage,
 * never NULL, "unknown" for a number that is no kind).  Both from any thread
 * and any signal handler.
 */
extern KEYRIGHT_API KeyrightErrorClass
			keyright_error_class(KeyrightErrorKind kind);
extern KEYRIGHT_API const char *
			keyright_error_name(KeyrightErrorKind kind);

/* ----- states ----- */

/*
 * Where a handle stands.  Whether the application may run is not a question
 * of the state: ask keyright_may_run().
 *
 *		idle	  no seat was asked for, or none was had in time
 *		waiting	  keyright_checkout() is at work
 *		held	  all is well
 *		retrying  the last beat failed; still held, tried again soon
 *		lost	  the lease is over; a new one is asked for, if so wished
 *		regained  as held, after lost, degraded or refused
 *		degraded  the lease is over and all seats are taken; tried on
 *		revoked	  an administrator took the seat; nothing more is tried
 *		refused	  the server said no.  After an error of the class UNSIGNED
 *				  the old lease is still good until its end; else not.
 *				  Tried on, but not when it was keyright_checkout()'s answer
 *		released  given back by keyright_checkin()
 */
typedef enum KeyrightState
{
	KEYRIGHT_IDLE = 0,
	KEYRIGHT_WAITING = 1,
	KEYRIGHT_HELD = 2,
	KEYRIGHT_RETRYING = 3,
	KEYRIGHT_LOST = 4,
	KEYRIGHT_REGAINED = 5,
	KEYRIGHT_DEGRADED = 6,
	KEYRIGHT_REVOKED = 7,
	KEYRIGHT_REFUSED = 8,
	KEYRIGHT_RELEASED = 9
} KeyrightState;

/* "held" and so on; static storage, never NULL. */
extern KEYRIGHT_API const char *keyright_state_name(KeyrightState state);

/*
 * A change of state, or of the error within waiting or refused.  Only valid
 * during the callback; new members are added at the end.
 *
 * Events come in order, each once, one at a time, from the handle's own
 * thread and with no lock held.  What led to the return of
 * keyright_checkout() or keyright_checkin() was told before they return.  A
 * lapse is always told, even when the seat is regained at once.
 */
typedef struct KeyrightEvent
{
	uint64_t	number;			/* 1, 2, 3 ... in the life of the handle */
	KeyrightState state;
	KeyrightState before;
	KeyrightError error;		/* why; KEYRIGHT_OK for good news */
	int64_t		left_ns;		/* as keyright_may_run() when it happened */
	int			trying;			/* 1: the library goes on asking by itself */
	int64_t		retry_in_ns;	/* until it asks again, -1: not known */
	int32_t		slot;			/* the seat's number, 0: none */
} KeyrightEvent;

/*
 * May call keyright_may_run(), keyright_state(), keyright_info(),
 * keyright_token() and keyright_interrupt(); the rest answers
 * KEYRIGHT_ERR_MISUSE.  Beats wait while it runs: it should return soon.
 */
typedef void (*KeyrightCallback) (void *arg, const KeyrightEvent *event);

/* ----- transport: how questions reach the server ----- */

typedef enum KeyrightCall
{
	KEYRIGHT_CALL_CHECKOUT = 1,
	KEYRIGHT_CALL_HEARTBEAT = 2,
	KEYRIGHT_CALL_CHECKIN = 3
} KeyrightCall;

typedef enum KeyrightStatus
{
	KEYRIGHT_STATUS_FAILED = 0, /* sqlstate, if any, and message say why */
	KEYRIGHT_STATUS_GRANTED = 1,
	KEYRIGHT_STATUS_NO_SEATS = 2,
	KEYRIGHT_STATUS_RENEWED = 3,
	KEYRIGHT_STATUS_LOST_EXPIRED = 4,
	KEYRIGHT_STATUS_LOST_REVOKED = 5,
	KEYRIGHT_STATUS_LOST_UNKNOWN = 6,
	KEYRIGHT_STATUS_RELEASED = 7,
	KEYRIGHT_STATUS_NOT_HELD = 8
} KeyrightStatus;

/*
 * One question.  All three may be repeated without harm: a check-out with
 * the same request id gives the same seat again.
 */
typedef struct KeyrightRequest
{
	size_t		size;
	KeyrightCall call;
	const char *license;
	const char *holder;			/* check-out */
	const char *request_id;		/* check-out; a secret */
	const char *seat_id;		/* the other two; a secret */
	int64_t		ttl_ms;			/* check-out; 0: the license's own */
	int64_t		limit_ns;		/* give up after this, more than 0 */
	int			give_up_fd;		/* give up as soon as poll() finds it
								 * readable; never read from it */
} KeyrightRequest;

/*
 * Its answer.  The library zeroes it and presets the two unknown times.  A
 * FAILED without an sqlstate is silence, and so is an answer with an
 * sqlstate of the kinds that pass (08..., 53..., 57..., 58..., XX..., 25006,
 * 40001, 40P01, 55P03).  Report an answer that cannot be understood as what
 * it claims to be, with its token as it came: tokens are checked here.
 */
typedef struct KeyrightAnswer
{
	size_t		size;
	KeyrightStatus status;
	char		token[KEYRIGHT_TOKEN_SIZE];
	int64_t		issued_at_us;	/* the server's clock when it renewed,
								 * microseconds since 1970; -1: not known.
								 * Believed only where it fits the token */
	int64_t		retry_after_ms; /* NO_SEATS: when one can be free; -1: ? */
	char		sqlstate[6];
	char		message[512];	/* becomes the detail of the error: what its
								 * sentence does not say */

	/*
	 * GRANTED: the seat's id in its canonical form, as it stands beside the
	 * token; may be left empty.  It makes no seat ours: it serves to give
	 * one back whose token is of no use here, because other keys are in use
	 * there, say.  Without it such a seat is taken until its lease lapses.
	 */
	char		seat_id[37];
} KeyrightAnswer;

/*
 * For an application whose server stands behind a service of its own.  All
 * functions are called with self and never two at once; call() and idle()
 * from the handle's own thread, the others from the caller's.
 */
typedef struct KeyrightTransport
{
	size_t		size;
	void	   *self;

	/*
	 * Asks and waits for the answer, no longer than the request allows.
	 * Reconnects by itself.  "granted" and "renewed" mean: committed.
	 */
	void		(*call) (void *self, const KeyrightRequest *request,
						 KeyrightAnswer *answer);

	/* No call is expected for that long; may be NULL. */
	void		(*idle) (void *self, int64_t for_ns);

	/* keyright_close(), or a keyright_open() that failed; may be NULL. */
	void		(*close) (void *self);

	/*
	 * keyright_close() in a child of fork(): connections are the parent's, no
	 * word may be said on them; may be NULL.
	 */
	void		(*forget) (void *self);
} KeyrightTransport;

/* ----- options ----- */

/* Everything is copied by keyright_open(), the transport's struct too. */
typedef struct KeyrightOptions
{
	size_t		size;			/* set by keyright_options_init() */

	/*
	 * libpq connection string or URI; several hosts are tried in order, each
	 * within its share of the time.  NULL: the PG* variables and defaults.
	 * What libpq does not accept is an error of keyright_open() already.
	 * target_session_attrs is read-write unless the string or the variable
	 * says otherwise.  Not used with a transport of your own.
	 */
	const char *conninfo;

	const char *license;		/* 1 to 255 bytes; required */
	const char *holder;			/* for display; NULL: user@host */

	/*
	 * The public keys that the application was built with, as a JWK Set (RFC
	 * 7517) with at least one Ed25519 key (RFC 8037).  Required: nothing else
	 * makes an answer believed.
	 */
	const char *jwks;

	/*
	 * The secret that makes a repeated check-out give the same seat.  NULL: a
	 * random one for each lease.  An id of your own is for one running
	 * application at a time: two with the same id share one seat.
	 */
	const char *request_id;

	/*
	 * A file that remembers request id and seat, so that an application that
	 * crashed gets its own seat back when it starts again.  Mode 0600, never
	 * followed through a symbolic link, replaced as a whole by a file with
	 * ".new" added to its name; one with ".lock" keeps a second process from
	 * sharing the seat.  Who has a copy of it, or another link to it, can
	 * share the seat.  It is removed when the seat was given back.  A file
	 * that is something else, or remembers a check-out of another license or
	 * holder, is left alone: KEYRIGHT_ERR_STATE_FILE.  NULL: none.  Open it
	 * once in a process at a time.
	 */
	const char *state_file;

	int64_t		ttl_ms;			/* 0: the license's; else 1000 or more, whole
								 * or not; the server caps it */
	int64_t		wait_ms;		/* how long keyright_checkout() may wait for a
								 * seat or a server; 0: asks once; -1: for
								 * ever.  Default 0 */
	int64_t		request_limit_ms;	/* the longest that one question may take,
									 * 100 to 600000, default 5000; a beat
									 * takes no more than half of what is
									 * left of the lease */
	int64_t		release_limit_ms;	/* the longest that giving back may take,
									 * 0 to 600000, default 5000 */
	int			keep_trying;	/* 1 (default): check out again after a loss;
								 * 0: stay lost or refused */

	KeyrightCallback on_event;	/* NULL: none */
	void	   *event_arg;

	const KeyrightTransport *transport; /* NULL: libpq */
} KeyrightOptions;

/*
 * Fills in the defaults.  Call it before setting anything; the second form is
 * for callers in other languages.
 */
#define keyright_options_init(options) \
	keyright_options_init_sized((options), sizeof(KeyrightOptions))
extern KEYRIGHT_API void
			keyright_options_init_sized(KeyrightOptions *options, size_t size);

/* ----- a seat ----- */

typedef struct Keyright Keyright;

/*
 * Makes a handle and checks the options; asks no server.  On an error *seat
 * is NULL and *error, unless error is NULL, says why: OPTIONS, SYSTEM,
 * STATE_FILE.  A transport of the caller's is closed by the library from here
 * on, on an error too.
 */
extern KEYRIGHT_API KeyrightErrorKind
			keyright_open(Keyright **seat, const KeyrightOptions *options,
						  KeyrightError *error);

/*
 * Checks a seat out and keeps it from then on.  Waits up to wait_ms when all
 * seats are taken or nobody answers; an answer that waiting cannot mend
 * (class ANSWER or UNSIGNED, NO_SEATS apart) returns at once.
 *
 * KEYRIGHT_OK: a seat was had and is kept from then on.  Otherwise nothing is
 * held and nothing goes on in the background; NO_SEATS, UNREACHABLE and BUSY
 * after the wait, INTERRUPTED, LICENSE, LOGIN, REFUSED, TOKEN, NO_KEY,
 * STATE_FILE, SYSTEM, MISUSE (a seat is held already, or is being asked for),
 * LAPSED (without keep_trying: the callback outlasted the lease).  After a
 * loss it may be called again, at any time.
 */
extern KEYRIGHT_API KeyrightErrorKind
			keyright_checkout(Keyright *seat, KeyrightError *error);

/*
 * May the application run?  For how many nanoseconds more, if nothing is
 * heard from the server any more; 0: it may not.
 *
 * Compares the clocks itself, so it is right at once after the process was
 * stopped or the machine slept.  Time left is the smaller of what the wall
 * clock and the boot clock (which counts sleep) have left of the signed
 * window since the question was sent; a wall clock that was behind the
 * signature is left out.
 *
 * From any thread and from signal handlers: two loads and two clock readings,
 * no lock, no memory, no system call where clocks need none.  NULL: 0.
 */
extern KEYRIGHT_API int64_t keyright_may_run(const Keyright *seat);

/*
 * The state, by the clocks: "held" becomes "lost" here the moment that the
 * lease is over, maybe before the event is told.  Any thread, any signal
 * handler.
 */
extern KEYRIGHT_API KeyrightState keyright_state(const Keyright *seat);

typedef struct KeyrightInfo
{
	size_t		size;			/* set by the caller */
	KeyrightState state;		/* as of the last event */
	KeyrightError error;		/* the last failure; OK after a success, for
								 * as long as its lease lasts */
	int64_t		left_ns;
	int			trying;			/* the library asks by itself */
	int64_t		retry_in_ns;	/* until its next question; -1: none */
	int32_t		slot;			/* 0: no lease */
	int64_t		issued_at;		/* seconds since 1970 by the server's clock */
	int64_t		expires_at;		/* likewise; as signed */
	uint64_t	events;			/* told so far */
	uint64_t	beats;			/* answered with a renewal */
	uint64_t	failures;		/* questions that failed */
	int64_t		free_in_ns;		/* all seats are taken: when the server thinks
								 * that one can be free; -1: not known */
} KeyrightInfo;

/*
 * Fills in *info up to info->size.  Any thread; takes a lock for a moment.
 * KEYRIGHT_OK or MISUSE (in a child of fork()).
 */
extern KEYRIGHT_API KeyrightErrorKind
			keyright_info(const Keyright *seat, KeyrightInfo *info);

/*
 * Copies the newest token (RFC 7519), KEYRIGHT_TOKEN_SIZE bytes with its
 * zero; empty when no lease is held.  It is as good as the seat: show it to
 * nobody whom you would not lend the seat.
 */
extern KEYRIGHT_API KeyrightErrorKind
			keyright_token(const Keyright *seat,
						   char token[KEYRIGHT_TOKEN_SIZE]);

/*
 * Makes a keyright_checkout() that is at work return INTERRUPTED soon; a seat
 * that it gets in that moment is given back.  Does nothing when none is at
 * work.  Any thread, any signal handler.
 */
extern KEYRIGHT_API void keyright_interrupt(Keyright *seat);

/*
 * Gives the seat back: stops the beats, tells the server, waits for the
 * thread to end.  keyright_may_run() is 0 as soon as this is called.
 *
 * KEYRIGHT_OK: the seat is free, or there was none.  UNREACHABLE, BUSY or
 * another error: it will be free when its lease has lapsed; nothing is held
 * here either way.  Called again it tries again.  MISUSE: in a callback, or in
 * a child of fork().
 */
extern KEYRIGHT_API KeyrightErrorKind
			keyright_checkin(Keyright *seat, KeyrightError *error);

/*
 * Frees the handle; checks in first, unless that was tried in vain.  NULL is
 * ignored.  In a callback it does nothing.
 */
extern KEYRIGHT_API void keyright_close(Keyright *seat);

/* ----- tokens and keys, without a server ----- */

typedef enum KeyrightVerdict
{
	KEYRIGHT_TOKEN_VALID = 0,
	KEYRIGHT_TOKEN_EXPIRED = 1, /* all well, but its time is over */
	KEYRIGHT_TOKEN_MALFORMED = 2,
	KEYRIGHT_TOKEN_UNKNOWN_KEY = 3,
	KEYRIGHT_TOKEN_BAD_SIGNATURE = 4,
	KEYRIGHT_TOKEN_BAD_JWKS = 5 /* it is jwks that cannot be read */
} KeyrightVerdict;

/* The claims of a token (RFC 7519). */
typedef struct KeyrightClaims
{
	char		issuer[KEYRIGHT_TEXT_MAX + 1];	/* "iss", may be empty */
	char		license[KEYRIGHT_TEXT_MAX + 1]; /* "aud" */
	char		holder[KEYRIGHT_TEXT_MAX + 1];	/* "sub" */
	char		seat_id[37];
	int32_t		slot;
	int64_t		issued_at;		/* "iat", seconds since 1970 */
	int64_t		expires_at;		/* "exp", likewise: the first second after */
	char		kid[44];		/* RFC 7638 thumbprint of the key */
} KeyrightClaims;

#define KEYRIGHT_NOW		INT64_MIN

/*
 * Checks a token (JWS compact form, RFC 7515; EdDSA, RFC 8037) against a JWK
 * Set at an instant, microseconds since 1970, or KEYRIGHT_NOW.  *claims,
 * unless NULL, is filled in for VALID and EXPIRED, else zero but for a kid
 * that could be read.  *problem, unless NULL, is NULL for VALID, else a
 * sentence fragment in static storage; it never quotes the token.  Any
 * thread.
 */
extern KEYRIGHT_API KeyrightVerdict
			keyright_verify(const char *token, size_t token_size,
							const char *jwks, size_t jwks_size,
							int64_t at_us, KeyrightClaims *claims,
							const char **problem);

/* "valid", "expired", "malformed", "unknown_key", "bad_signature" ... */
extern KEYRIGHT_API const char *keyright_verdict_name(KeyrightVerdict verdict);

#define KEYRIGHT_SEED_TEXT_SIZE		45	/* base64 of 32 bytes, final zero */
#define KEYRIGHT_JWKS_TEXT_SIZE		512 /* a set of one key */

/*
 * Makes a key: what the server's keyright.signing_key_file holds, and the JWK
 * Set with its public half.  Wipe seed after use.
 */
extern KEYRIGHT_API KeyrightErrorKind
			keyright_keygen(char seed[KEYRIGHT_SEED_TEXT_SIZE],
							char jwks[KEYRIGHT_JWKS_TEXT_SIZE]);

/* The JWK Set of a seed that was made before; OPTIONS: it is no seed. */
extern KEYRIGHT_API KeyrightErrorKind
			keyright_public(const char *seed, size_t seed_size,
							char jwks[KEYRIGHT_JWKS_TEXT_SIZE]);

/* "0.1.0": the version of the library that runs. */
extern KEYRIGHT_API const char *keyright_version(void);

#ifdef __cplusplus
}
#endif

#endif							/* KEYRIGHT_H */
