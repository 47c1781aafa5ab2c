/*
 * main.c
 *		The command "keyright": finds the command within it, and helps.
 */
#include "cli.h"

#include <fcntl.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

typedef struct Command
{
	const char *name;
	int			(*function) (int argc, char **argv);
	const char *help;
} Command;

#define CONNECTION_HELP \
"  --dsn CONNINFO    where the server is: a libpq connection string or URI;\n" \
"                    otherwise PGHOST, PGUSER ... as for psql\n"

static const Command commands[] = {
	{"run", cmd_run,
"usage: keyright run --license ID --jwks FILE [option ...] [--] COMMAND ...\n"
"\n"
"Holds a seat of a license while COMMAND runs.  Signals are passed on, and\n"
"the exit status is COMMAND's.\n"
"\n"
"  --license ID      the license\n"
"  --jwks FILE       the server's public keys, as \"keyright jwks\" prints them\n"
"  --holder TEXT     who holds the seat, for people to read (user@host)\n"
"  --ttl LENGTH      length of the lease (the license's own)\n"
"  --wait LENGTH     how long to wait for a seat or the server, or \"forever\"\n"
"                    (0: ask once)\n"
"  --state FILE      remembers the seat in FILE: after a crash the next run has\n"
"                    it back at once, and need not wait for its lease to end\n"
"  --on-lost ACTION  when the seat is lost for good: stop (COMMAND) or warn\n"
"                    (stop)\n"
"  --grace LENGTH    from SIGTERM to SIGKILL, when COMMAND is stopped (10s)\n"
"  --regain LENGTH   how long COMMAND may go on when its lease is over and the\n"
"                    server, which may be silent, is asked for a new one (10s)\n"
CONNECTION_HELP
"  -v, --verbose     tell every change of the seat's state\n"
"\n"
"A LENGTH is a whole number with ms, s, m (min), h or d; without, it is of\n"
"seconds.\n"
"Exit status: 75 no seat is free, 69 no server, 77 refused, 76 not signed,\n"
"78 wrong settings, 70 internal, 64 wrong use, 126 and 127 COMMAND cannot be\n"
"run, else COMMAND's own (128 + n when signal n ended it).\n"},

	{"status", cmd_status,
"usage: keyright status [--license ID] [--json] [--watch [LENGTH]]\n"
"\n"
"Shows how full each license is, and who holds a seat.  The role needs the\n"
"level \"monitor\" of keyright_grant().\n"
"\n"
"  --license ID      only this license\n"
"  --json            one line of JSON: at, pools, holders\n"
"  --watch [LENGTH]  again and again, every 2 s or LENGTH, which is 1 s or more\n"
CONNECTION_HELP},

	{"verify", cmd_verify,
"usage: keyright verify FILE|- --jwks FILE [--json]\n"
"\n"
"Checks a token against public keys, without a server.\n"
"\n"
"  --jwks FILE       the public keys, as \"keyright jwks\" prints them\n"
"  --json            one line of JSON\n"
"\n"
"Exit status: 0 valid, 3 expired, 4 malformed, 5 unknown key, 6 bad\n"
"signature, 64 wrong use, 66 no token file, 78 the keys cannot be read.\n"},

	{"keygen", cmd_keygen,
"usage: keyright keygen [--public] [--x] [FILE]\n"
"\n"
"Makes a signing key for keyright.signing_key_file and prints its public half\n"
"as a JWK Set.  FILE (keyright.key) gets mode 0600; one that is there already\n"
"is never overwritten.\n"
"\n"
"  --public          make nothing: print the public half of FILE\n"
"  --x               print only the \"x\", as keyright.retired_keys wants it\n"},

	{"jwks", cmd_jwks,
"usage: keyright jwks [--dsn CONNINFO]\n"
"\n"
"Prints the server's public keys, for --jwks.  The role needs the level\n"
"\"client\" of keyright_grant().\n"
"\n"
CONNECTION_HELP}
};

static const char general_help[] =
"usage: keyright COMMAND [option ...]\n"
"\n"
"  run      hold a seat of a license while a program runs\n"
"  status   how full the licenses are, and who holds a seat\n"
"  verify   check a token, without a server\n"
"  keygen   make a signing key\n"
"  jwks     print the server's public keys\n"
"\n"
"\"keyright COMMAND --help\" or \"keyright help COMMAND\" says more, and so\n"
"does keyright(1).  \"keyright --version\" or \"-V\" prints the version.\n";

static const Command *
find(const char *name)
{
	for (size_t i = 0; i < COUNT(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

int
help(const char *command)
{
	fputs(find(command)->help, stdout);
	return finish_output();
}

int
usage(const char *command)
{
	char		line[80];

	snprintf(line, sizeof(line), "Try \"keyright %s --help\".\n", command);
	tell(line);
	return EX_USAGE;
}

int
surplus(const char *command, const char *word)
{
	complain("there is nothing to do with \"%s\"", word);
	return usage(command);
}

static int
general(const char *word)
{
	if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
		printf("keyright %s\n", keyright_version());
	else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
			 strcmp(word, "help") == 0)
		fputs(general_help, stdout);
	else
	{
		complain("\"%s\" is no command of keyright", word);
		tell(general_help);
		return EX_USAGE;
	}
	return finish_output();
}

/*
 * What we open must not take the place of standard error and the like.  Nor
 * may output vanish that was closed to us: what stands there is open the
 * wrong way round, and its use fails as that of a closed one does.
 */
static void
fill_standard_files(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
			open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			_exit(EX_SOFTWARE);
}

int
main(int argc, char **argv)
{
	const Command *command;

	fill_standard_files();
	setlocale(LC_CTYPE, "");
	setlocale(LC_MESSAGES, "");
	if (argc < 2)
	{
		tell(general_help);
		return EX_USAGE;
	}
	if (strcmp(argv[1], "help") == 0 && argc > 2)
		return find(argv[2]) != NULL ? help(argv[2]) : general(argv[2]);
	command = find(argv[1]);
	if (command == NULL)
		return general(argv[1]);
	/* getopt() names argv[0] in its messages. */
	argv[1] = argv[0];
	return command->function(argc - 1, argv + 1);
}
