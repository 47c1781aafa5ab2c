/*
 * seat.c: works for some seconds, with a seat of a license.
 *
 *	cc seat.c $(pkg-config --cflags --libs libkeyright) -o seat
 *	(after "sudo ldconfig", once, when the library was installed to /usr/local)
 *	./seat LICENSE JWKS-FILE SECONDS		(the server: PGHOST, PGUSER ...)
 */
#include <keyright.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int
main(int argc, char **argv)
{
	static char jwks[65536];	/* an application has it built in */
	KeyrightOptions options;
	KeyrightError error;
	Keyright   *seat;
	int			seconds = argc == 4 ? atoi(argv[3]) : 0;
	FILE	   *file;

	if (seconds <= 0)
		return fprintf(stderr, "usage: seat LICENSE JWKS-FILE SECONDS\n"), 64;
	file = fopen(argv[2], "r");
	if (file == NULL || fread(jwks, 1, sizeof(jwks) - 1, file) == 0)
		return fprintf(stderr, "\"%s\" cannot be read\n", argv[2]), 66;
	keyright_options_init(&options);
	options.license = argv[1];
	options.jwks = jwks;
	options.wait_ms = 10000;
	if (keyright_open(&seat, &options, &error) != KEYRIGHT_OK ||
		keyright_checkout(seat, &error) != KEYRIGHT_OK)
		return fprintf(stderr, "%s\n%s\n", error.message, error.detail), 1;

	/* The seat is kept in the background; what is left to do is to ask. */
	for (int i = 0; i < seconds && keyright_may_run(seat) > 0; i++)
	{
		printf("working, for %lld ms more if the server is silent\n",
			   (long long) (keyright_may_run(seat) / 1000000));
		fflush(stdout);
		sleep(1);
	}
	if (keyright_may_run(seat) == 0)
		return fprintf(stderr, "the seat is lost: work is saved\n"), 2;
	keyright_close(seat);		/* gives the seat back */
	return 0;
}
