/*
 * run.h
 *		What the files of "keyright run" share.
 */
#ifndef KEYRIGHT_RUN_H
#define KEYRIGHT_RUN_H

#include "cli.h"

#include <stdatomic.h>

typedef struct Run
{
	KeyrightOptions options;
	const char *jwks_file;
	bool		verbose;
	GuardPolicy guard_policy;

	sigset_t	passed_on;		/* blocked, and read from signal_fd */
	sigset_t	original;
	int			signal_fd;
	int			wake_fd;		/* an eventfd: something happened */
	atomic_bool line_shown;		/* that tells of waiting, on a terminal */

	Guard		guard;
	Keyright   *seat;
} Run;

/* ----- run.c ----- */

/* Complains in the user's words, not in C's; what to exit with. */
extern int	run_complain(const Run *run, const KeyrightError *error);

/* What may help the one who started us; may be empty. */
extern const char *run_advice(const KeyrightError *error);

/* A signal that came; 0: none. */
extern int	run_next_signal(Run *run);

extern void run_wake(Run *run);
extern void run_pause(Run *run, int timeout_ms);

/* ----- run_check_out.c ----- */

/* EX_OK: a seat is held; else what to exit with, after a complaint. */
extern int	run_check_out(Run *run);

/* Makes room for a message.  Any thread. */
extern void run_hide_line(Run *run);

/* That no seat is free, and when one can be. */
#define NO_SEAT_SIZE		512
extern void print_no_seat(char text[NO_SEAT_SIZE], const Run *run,
						  const KeyrightError *error);

/* ----- run_command.c ----- */

/* Runs the command with the seat that is held; what to exit with. */
extern int	run_command(Run *run);

#endif							/* KEYRIGHT_RUN_H */
