/*
 * main.c
 *		Runs the tests of the core.  The argument is the corpus folder.
 */
#include "test.h"

#include <sodium.h>

int			tap_run;
int			tap_failed;

int
main(int argc, char **argv)
{
	if (argc != 2 || sodium_init() < 0)
	{
		puts("Bail out! usage: core_test <corpus folder>");
		return 2;
	}

	random_start();
	test_lease();
	test_seat_id();
	test_json();
	test_jwk();
	test_keyset();
	test_token();
	test_forgery();
	test_corpus(argv[1]);
	return finish();
}
