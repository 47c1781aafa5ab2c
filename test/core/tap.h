/*
 * tap.h
 *		The Test Anything Protocol, as much of it as these tests speak.
 *
 * ok() prints one line for each check; a loop over thousands of cases counts
 * its failures and reports once.  finish() prints the plan and says what the
 * program returns.
 */
#ifndef TAP_H
#define TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

extern int	tap_run;
extern int	tap_failed;

__attribute__((format(printf, 2, 3)))
static inline bool
ok(bool passed, const char *format,...)
{
	va_list		args;

	printf("%sok %d - ", passed ? "" : "not ", ++tap_run);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	tap_failed += !passed;
	return passed;
}

static inline int
finish(void)
{
	printf("1..%d\n", tap_run);
	return tap_failed > 0;
}

#endif							/* TAP_H */
