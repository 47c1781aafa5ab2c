/*
 * keys.c
 *		keyright keygen, jwks and verify: keys, and what they have signed.
 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_KEY_FILE	"keyright.key"

/* ----- keygen ----- */

static bool
write_all(int fd, const char *text)
{
	size_t		left = strlen(text);

	while (left > 0)
	{
		ssize_t		n = write(fd, text, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		text += n;
		left -= (size_t) n;
	}
	return fsync(fd) == 0 || errno == EINVAL;
}

/*
 * Never over a file that is there: it may be the only copy of a key.  Nothing
 * is left of a file that could not be written.
 */
static bool
write_key_file(const char *path, const char *seed)
{
	char		line[KEYRIGHT_SEED_TEXT_SIZE + 1];
	int			fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW |
						  O_CLOEXEC, 0600);
	bool		ok;

	if (fd < 0 && errno == EEXIST)
		complain("\"%s\" is there already, and a key is never overwritten: "
				 "name another file, or print its public half with --public",
				 path);
	else if (fd < 0)
		complain("could not make \"%s\": %s", path, strerror(errno));
	if (fd < 0)
		return false;
	snprintf(line, sizeof(line), "%s\n", seed);
	ok = fchmod(fd, 0600) == 0 && write_all(fd, line);
	sodium_memzero(line, sizeof(line));
	if (!ok)
	{
		complain("could not write \"%s\": %s", path, strerror(errno));
		unlink(path);
	}
	close(fd);
	return ok;
}

static int
make_key(const char *path, char jwks[KEYRIGHT_JWKS_TEXT_SIZE])
{
	char		seed[KEYRIGHT_SEED_TEXT_SIZE];
	bool		written;

	if (keyright_keygen(seed, jwks) != KEYRIGHT_OK)
	{
		complain("could not make a key");
		return EX_SOFTWARE;
	}
	written = write_key_file(path, seed);
	sodium_memzero(seed, sizeof(seed));
	return written ? EX_OK : EX_CANTCREAT;
}

static int
read_key(const char *path, char jwks[KEYRIGHT_JWKS_TEXT_SIZE])
{
	size_t		size;
	char	   *seed = read_file(path, &size);
	KeyrightErrorKind kind;

	if (seed == NULL)
		return EX_NOINPUT;
	kind = keyright_public(seed, size, jwks);
	sodium_memzero(seed, size);
	free(seed);
	if (kind == KEYRIGHT_OK)
		return EX_OK;
	complain("\"%s\" is no key file", path);
	return EX_DATAERR;
}

/* The value of the only "x" of our own JWK Set. */
static void
print_x(const char *jwks)
{
	const char *x = strstr(jwks, "\"x\"");

	if (x != NULL && (x = strchr(x + 3, '"')) != NULL)
		printf("%.*s\n", (int) strcspn(x + 1, "\""), x + 1);
}

enum
{
	OPT_PUBLIC = 256, OPT_X, OPT_JWKS, OPT_JSON, OPT_DSN
};

int
cmd_keygen(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"public", no_argument, NULL, OPT_PUBLIC},
		{"x", no_argument, NULL, OPT_X},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0}
	};
	char		jwks[KEYRIGHT_JWKS_TEXT_SIZE];
	const char *path = DEFAULT_KEY_FILE;
	bool		public = false;
	bool		only_x = false;
	int			option;
	int			status;

	while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1)
		switch (option)
		{
			case OPT_PUBLIC:
				public = true;
				break;
			case OPT_X:
				only_x = true;
				break;
			case 'h':
				return help("keygen");
			default:
				return usage("keygen");
		}
	if (optind < argc)
		path = argv[optind++];
	if (optind < argc)
		return surplus("keygen", argv[optind]);
	if (!public && strcmp(path, "-") == 0)
	{
		complain("standard output is for the public half: name a file for the "
				 "key");
		return usage("keygen");
	}

	status = public ? read_key(path, jwks) : make_key(path, jwks);
	if (status != EX_OK)
		return status;
	if (only_x)
		print_x(jwks);
	else
		puts(jwks);
	status = finish_output();
	if (status != EX_OK && !public)
		complain("the key is in \"%s\"; --public prints its public half", path);
	return status;
}

/* ----- jwks ----- */

int
cmd_jwks(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"dsn", required_argument, NULL, OPT_DSN},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0}
	};
	const char *dsn = NULL;
	PGconn	   *conn;
	PGresult   *result;
	int			option;
	int			status = EX_OK;

	while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1)
		switch (option)
		{
			case OPT_DSN:
				dsn = optarg;
				break;
			case 'h':
				return help("jwks");
			default:
				return usage("jwks");
		}
	if (optind < argc)
		return surplus("jwks", argv[optind]);
	conn = database_open(dsn, &status);
	if (conn == NULL)
		return status;
	result = database_ask_row(conn, "SELECT keyright_jwks()", 1, 0, NULL,
							  &status);
	if (result != NULL)
	{
		puts(PQgetvalue(result, 0, 0));
		status = finish_output();
	}
	PQclear(result);
	PQfinish(conn);
	return status;
}

/* ----- verify ----- */

/* The private half in the place of the public one is the likeliest mistake. */
char *
read_jwks_file(const char *path, size_t *size)
{
	char		jwks[KEYRIGHT_JWKS_TEXT_SIZE];
	char	   *text = read_file(path, size);
	const char *problem;

	if (text == NULL ||
		keyright_verify("", 0, text, *size, KEYRIGHT_NOW, NULL,
						&problem) != KEYRIGHT_TOKEN_BAD_JWKS)
		return text;
	if (keyright_public(text, *size, jwks) == KEYRIGHT_OK)
		complain("--jwks: \"%s\" is a signing key, which is to stay secret, "
				 "and no JWK Set; \"keyright keygen --public\" prints the one "
				 "that belongs to it", path);
	else
		complain("--jwks: \"%s\" is no JWK Set, as \"keyright jwks\" and "
				 "\"keyright keygen\" print it: %s", path, problem);
	sodium_memzero(text, *size);
	free(text);
	return NULL;
}

static void
print_claim(const char *name, const char *text)
{
	char		tamed[KEYRIGHT_TEXT_MAX + 1];

	snprintf(tamed, sizeof(tamed), "%s", text);
	tame(tamed);
	printf("%-8s %s\n", name, tamed);
}

/* Whoever has the token has the seat id; it need not stand here too. */
static void
print_claims(const KeyrightClaims *claims)
{
	char		at[LOCAL_TIME_SIZE];

	print_claim("license", claims->license);
	print_claim("holder", claims->holder);
	printf("slot     %d\n", claims->slot);
	if (claims->issuer[0] != '\0')
		print_claim("issuer", claims->issuer);
	print_local_time(at, "%F %T %z", claims->issued_at);
	printf("issued   %s\n", at);
	print_local_time(at, "%F %T %z", claims->expires_at);
	printf("expires  %s\n", at);
}

static void
print_text(const char *name, const char *text)
{
	printf(",\"%s\":", name);
	if (text != NULL && text[0] != '\0')
		print_json_text(stdout, text);
	else
		fputs("null", stdout);
}

/* The names are those of keyright_verify() in SQL. */
static void
print_json(KeyrightVerdict verdict, const KeyrightClaims *claims,
		   const char *problem)
{
	printf("{\"status\":\"%s\"", keyright_verdict_name(verdict));
	print_text("problem", problem);
	print_text("kid", claims->kid);
	if (claims->slot > 0)
	{
		print_text("issuer", claims->issuer);
		print_text("license_id", claims->license);
		print_text("holder", claims->holder);
		printf(",\"slot\":%d,\"issued_at\":%lld,\"expires_at\":%lld",
			   claims->slot, (long long) claims->issued_at,
			   (long long) claims->expires_at);
	}
	puts("}");
}

static int
status_of(KeyrightVerdict verdict)
{
	switch (verdict)
	{
		case KEYRIGHT_TOKEN_VALID:
			return EX_OK;
		case KEYRIGHT_TOKEN_EXPIRED:
			return EXIT_EXPIRED;
		case KEYRIGHT_TOKEN_MALFORMED:
			return EXIT_MALFORMED;
		case KEYRIGHT_TOKEN_UNKNOWN_KEY:
			return EXIT_UNKNOWN_KEY;
		case KEYRIGHT_TOKEN_BAD_SIGNATURE:
			return EXIT_BAD_SIGNATURE;
		default:
			return EX_CONFIG;
	}
}

static int
verify(const char *token, size_t token_size, const char *jwks,
	   size_t jwks_size, bool json)
{
	KeyrightClaims claims;
	KeyrightVerdict verdict;
	const char *problem;
	int			written;

	/* A file ends with a line's end; a token does not. */
	while (token_size > 0 && (token[token_size - 1] == '\n' ||
							  token[token_size - 1] == '\r'))
		token_size--;
	verdict = keyright_verify(token, token_size, jwks, jwks_size,
							  KEYRIGHT_NOW, &claims, &problem);
	/* As psql writes it for a check-out that was refused. */
	if (token_size == 0)
		problem = "it is empty: was a seat granted?";
	if (json)
		print_json(verdict, &claims, problem);
	else
	{
		printf("%s%s%s\n", keyright_verdict_name(verdict),
			   problem != NULL ? ": " : "", problem != NULL ? problem : "");
		if (claims.slot > 0)
			print_claims(&claims);
	}
	written = finish_output();
	return written != EX_OK ? written : status_of(verdict);
}

static int
verify_files(const char *token_file, const char *jwks_file, bool json)
{
	size_t		token_size;
	size_t		jwks_size;
	char	   *jwks;
	char	   *token;
	int			status = EX_NOINPUT;

	if (strcmp(token_file, "-") == 0 && strcmp(jwks_file, "-") == 0)
	{
		complain("only one of the two can come from standard input");
		return usage("verify");
	}
	jwks = read_jwks_file(jwks_file, &jwks_size);
	if (jwks == NULL)
		return EX_CONFIG;
	token = read_file(token_file, &token_size);
	if (token != NULL)
		status = verify(token, token_size, jwks, jwks_size, json);
	free(token);
	free(jwks);
	return status;
}

int
cmd_verify(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"jwks", required_argument, NULL, OPT_JWKS},
		{"json", no_argument, NULL, OPT_JSON},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0}
	};
	const char *jwks_file = NULL;
	bool		json = false;
	int			option;

	while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1)
		switch (option)
		{
			case OPT_JWKS:
				jwks_file = optarg;
				break;
			case OPT_JSON:
				json = true;
				break;
			case 'h':
				return help("verify");
			default:
				return usage("verify");
		}
	if (jwks_file == NULL)
		complain("--jwks is missing: a file with the server's public keys, "
				 "as \"keyright jwks\" prints them");
	else if (optind == argc)
		complain("the token is missing: a file that holds it, or - for "
				 "standard input");
	else if (optind + 1 < argc)
		return surplus("verify", argv[optind + 1]);
	else
		return verify_files(argv[optind], jwks_file, json);
	return usage("verify");
}
