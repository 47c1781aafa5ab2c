/*
 * unit.c
 *		Runs the tests that need no thread and no server.  The argument is a
 *		folder to write to.
 */
#include "client_test.h"

int			tap_run;
int			tap_failed;

int
main(int argc, char **argv)
{
	if (argc != 2 || sodium_init() < 0)
	{
		puts("Bail out! usage: unit <folder>");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	random_start();
	test_keeper();
	test_answers();
	test_schedule();
	test_walk();
	test_state_file(argv[1]);
	test_values();
	test_messages();
	return finish();
}
