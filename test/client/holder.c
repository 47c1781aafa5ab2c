/*
 * holder.c
 *		An application that holds a seat and tells what it sees, line by line.
 *
 *		holder <license> <file of keys> <conninfo> [holder]
 *
 * Every line of output begins with a word and the seconds of CLOCK_MONOTONIC:
 *
 *		event <t> <state> <error> <sqlstate or -> <ms left> <trying>
 *		checkout <t> <error>
 *		may <t> <ms left> <state>
 *		seat <t> <seat id> <issued at> <expires at>
 *		cont <ms left>				from the handler of SIGCONT: no time
 *		child <t> <ms left>			see "fork"
 *		checkin <t> <error>
 *
 * Every line of input is a command: may, seat, fork (a child that is there
 * until it may not run any more, and says so), quit.  The end of input means
 * to check in, too.
 */
#include <keyright.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS_NS				1000000
#define TEXT_SIZE			8192

static Keyright *seat;

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

static long long
left_ms(void)
{
	return (long long) (keyright_may_run(seat) / MS_NS);
}

static void
on_event(void *arg, const KeyrightEvent *event)
{
	(void) arg;
	printf("event %.6f %s %s %s %lld %d\n", now(),
		   keyright_state_name(event->state),
		   keyright_error_name(event->error.kind),
		   event->error.sqlstate[0] ? event->error.sqlstate : "-",
		   (long long) (event->left_ns / MS_NS), event->trying);
	if (event->error.kind != KEYRIGHT_OK)
		fprintf(stderr, "%s (%s)\n", event->error.message,
				event->error.detail);
}

/* The very first thing that this process does when it goes on. */
static void
on_cont(int signal_number)
{
	char		line[32] = "cont ";
	size_t		size = 5;
	long long	left = left_ms();
	char		digits[24];
	int			count = 0;

	(void) signal_number;
	do
		digits[count++] = (char) ('0' + left % 10);
	while ((left /= 10) > 0);
	while (count > 0)
		line[size++] = digits[--count];
	line[size++] = '\n';
	if (write(STDOUT_FILENO, line, size) < 0)
		_exit(3);
}

static void
tell_seat(void)
{
	char		token[KEYRIGHT_TOKEN_SIZE];
	KeyrightInfo info = {.size = sizeof(info)};
	char	   *claims;

	/* The seat id is in the token alone. */
	keyright_token(seat, token);
	keyright_info(seat, &info);
	claims = strchr(token, '.');
	printf("seat %.6f %s %lld %lld\n", now(), claims ? claims + 1 : "none",
		   (long long) info.issued_at, (long long) info.expires_at);
}

static void
be_a_child(void)
{
	long long	left = 1;

	while (left > 0)
	{
		left = left_ms();
		printf("child %.6f %lld\n", now(), left);
		usleep(200000);
	}
	keyright_close(seat);
	exit(0);
}

static void
obey(const char *command)
{
	if (strcmp(command, "may\n") == 0)
		printf("may %.6f %lld %s\n", now(), left_ms(),
			   keyright_state_name(keyright_state(seat)));
	else if (strcmp(command, "seat\n") == 0)
		tell_seat();
	else if (strcmp(command, "fork\n") == 0)
	{
		fflush(stdout);
		if (fork() == 0)
			be_a_child();
	}
}

static char *
text_of(const char *path)
{
	static char text[TEXT_SIZE];
	FILE	   *file = fopen(path, "r");
	size_t		size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	if (file != NULL)
		fclose(file);
	text[size] = '\0';
	return text;
}

int
main(int argc, char **argv)
{
	KeyrightOptions options;
	KeyrightError error;
	char		line[64];
	struct sigaction action = {.sa_handler = on_cont, .sa_flags = SA_RESTART};

	if (argc < 4)
		return 64;
	setvbuf(stdout, NULL, _IOLBF, 0);
	keyright_options_init(&options);
	options.license = argv[1];
	options.jwks = text_of(argv[2]);
	options.conninfo = argv[3];
	options.holder = argc > 4 ? argv[4] : "holder";
	options.wait_ms = 20000;
	options.on_event = on_event;
	if (keyright_open(&seat, &options, &error) != KEYRIGHT_OK)
	{
		fprintf(stderr, "%s (%s)\n", error.message, error.detail);
		return 78;
	}
	printf("checkout %.6f %s\n", now(),
		   keyright_error_name(keyright_checkout(seat, &error)));
	sigaction(SIGCONT, &action, NULL);
	while (fgets(line, sizeof(line), stdin) != NULL &&
		   strcmp(line, "quit\n") != 0)
		obey(line);
	printf("checkin %.6f %s\n", now(),
		   keyright_error_name(keyright_checkin(seat, &error)));
	keyright_close(seat);
	return 0;
}
