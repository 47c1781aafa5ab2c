/*
 * cli.h
 *		The inner contract of the command "keyright", grouped by file.
 *
 * What goes wrong is told on standard error and shows in the exit status;
 * the statuses are those of sysexits.h, and the man page explains each.
 */
#ifndef KEYRIGHT_CLI_H
#define KEYRIGHT_CLI_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <keyright.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <sysexits.h>

#define COUNT(array)		(sizeof(array) / sizeof((array)[0]))

#define MS_NS				INT64_C(1000000)
#define SECOND_NS			INT64_C(1000000000)

/* What "verify" found; 0 is valid, and 1 and 2 mean failure to shells. */
#define EXIT_EXPIRED		3
#define EXIT_MALFORMED		4
#define EXIT_UNKNOWN_KEY	5
#define EXIT_BAD_SIGNATURE	6

/* As a shell says it. */
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND		127
#define EXIT_SIGNAL(n)		(128 + (n))

/* ----- one function for each command ----- */

extern int	cmd_run(int argc, char **argv);
extern int	cmd_status(int argc, char **argv);
extern int	cmd_verify(int argc, char **argv);
extern int	cmd_keygen(int argc, char **argv);
extern int	cmd_jwks(int argc, char **argv);

/* ----- main.c ----- */

/* Prints the help of a command; returns 0. */
extern int	help(const char *command);

/* Points to the help after a wrong use; returns EX_USAGE. */
extern int	usage(const char *command);

/* Likewise, for a word that is one too many. */
extern int	surplus(const char *command, const char *word);

/* ----- keys.c ----- */

/*
 * As read_file(), of the file of --jwks: it holds a JWK Set, or there was a
 * complaint.
 */
extern char *read_jwks_file(const char *path, size_t *size);

/* ----- message.c ----- */

/* Writes on standard error; what is not taken in time is dropped.  Any thread. */
#define TELL_LIMIT			SECOND_NS
extern void tell(const char *text);

/* Leaves no control character, which a terminal would obey. */
extern void tame(char *line);

/* A line on standard error, as one write, without control characters. */
extern void complain(const char *format, ...)
			__attribute__((format(printf, 1, 2)));

/* The sentence and, where there are any, the server's or system's words. */
extern void complain_of(const KeyrightError *error, const char *more);

/* ----- text.c ----- */

/* "90", "90s", "500ms", "2m", "1h", "1d"; false: it is no length of time. */
extern bool parse_duration(const char *text, int64_t *ms);

/* As for an option, from so much on; on a failure it has complained. */
extern bool duration_option(const char *name, const char *text,
							int64_t least_ms, int64_t *ms);

/* "48 s", "3 min 5 s", "2 h 10 min", "4 d 3 h". */
#define DURATION_SIZE		64
extern void print_duration(char text[DURATION_SIZE], int64_t seconds);

/* As strftime() does, or "?" for what is no date; seconds since 1970. */
#define LOCAL_TIME_SIZE		64
extern void print_local_time(char text[LOCAL_TIME_SIZE], const char *format,
							 int64_t seconds)
			__attribute__((format(strftime, 2, 0)));

/*
 * The whole of a file ("-": standard input) with a zero behind it; NULL after
 * a complaint.  The caller frees it.
 */
extern char *read_file(const char *path, size_t *size);

extern int	exit_status_of(KeyrightErrorKind kind);

/* JSON, with its quotation marks. */
extern void print_json_text(FILE *to, const char *text);

/* Flushes standard output; EX_IOERR after a complaint when that fails. */
extern int	finish_output(void);

/* ----- database.c ----- */

/* What helps against SQLSTATE 42501. */
#define GRANT_HINT(level) \
	"SELECT keyright_grant('" level "', role) lets a role do that"

/*
 * Whether --dsn, or the PG* variables where it is NULL, can be read: EX_OK, or
 * after a complaint what to exit with.
 */
extern int	check_dsn(const char *dsn);

/* NULL after a complaint, with *status for exit(). */
extern PGconn *database_open(const char *dsn, int *status);

/*
 * Likewise; values: count texts, NULL among them for SQL's.  The result has
 * as many columns as that, and of the second function one row.
 */
extern PGresult *database_ask(PGconn *conn, const char *query, int columns,
							  int count, const char *const *values,
							  int *status);
extern PGresult *database_ask_row(PGconn *conn, const char *query,
								  int columns, int count,
								  const char *const *values, int *status);

/* ----- table.c ----- */

typedef enum ColumnKind
{
	COLUMN_TEXT,
	COLUMN_NUMBER,
	COLUMN_TIME,				/* seconds since 1970: local time */
	COLUMN_AGO,					/* seconds: "12 s ago" */
	COLUMN_IN					/* seconds: "in 12 s" */
} ColumnKind;

typedef struct Column
{
	const char *title;
	ColumnKind	kind;
} Column;

/* One column for each of the result's. */
extern void table_print(FILE *to, const Column *columns,
						const PGresult *result);

/* ----- guard.c: the process between us and the command ----- */

/* What we set these to is not for the command. */
typedef struct OurSignal
{
	int			number;
	void		(*handler) (int);
} OurSignal;

#define OUR_SIGNALS			4
extern const OurSignal our_signals[OUR_SIGNALS];

typedef struct GuardPolicy
{
	char	   *program;		/* argv[0]; the guard writes over it all */
	char	  **command;
	bool		stop_on_loss;
	int64_t		grace_ms;		/* between SIGTERM and SIGKILL */
	int64_t		regain_ms;		/* how long a lease may be over */
	const sigset_t *passed_on;	/* blocked in us; the guard looks at them */
	const sigset_t *original;	/* what the command starts with ... */
	void		(*before[OUR_SIGNALS]) (int);	/* ... and for our_signals */
} GuardPolicy;

typedef struct Guard
{
	pid_t		pid;
	int			socket;
	_Atomic int64_t *licensed_until;	/* on the boot clock; shared */
} Guard;

typedef enum GuardNews
{
	GUARD_NOTHING,
	GUARD_ENDED,				/* by itself; value: as waitpid() says */
	GUARD_STOPPED,				/* by us or by the guard */
	GUARD_NOT_STARTED,			/* value: errno */
	GUARD_GONE					/* killed; from then on */
} GuardNews;

/* Call it while the process has one thread and knows no secret. */
extern bool guard_open(Guard *guard, const GuardPolicy *policy);
extern void guard_start_command(Guard *guard);
extern void guard_pass_on(Guard *guard, int signal_number);
extern void guard_stop_command(Guard *guard);

/* Who runs needs a guard that does: one that was stopped alone goes on. */
extern void guard_keep_awake(const Guard *guard);

#define GUARD_KILLED		"the process that guards the command was killed"
extern GuardNews guard_news(Guard *guard, int *value);

/* ----- family.c ----- */

/* Sends a signal to every process that descends from this one. */
extern void family_signal(int signal_number);

/* Not where /proc is not mounted, or of another process namespace. */
extern bool family_is_visible(void);

/* Whether a process is stopped, as by SIGSTOP. */
extern bool is_stopped(pid_t pid);

/* ----- clock ----- */

extern int64_t boot_clock(void);

#endif							/* KEYRIGHT_CLI_H */
