/*
 * server.c
 *		The library against a real server, over libpq: what was simulated
 *		elsewhere is what PostgreSQL does.
 *
 * The server is that of the PG* variables, with keyright in its database.
 * The argument is a folder to write to.  Everything waits for its condition.
 */
#include "client_test.h"

#include <libpq-fe.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake.h"

int			tap_run;
int			tap_failed;

static PGconn *admin;
static char jwks[KEYSET_TEXT_SIZE];

/* ----- the administrator ----- */

/* Runs a statement; its first value, or an empty text. */
static const char *
sql(const char *statement)
{
	static char value[KEYSET_TEXT_SIZE];
	PGresult   *result = PQexec(admin, statement);
	ExecStatusType status = PQresultStatus(result);

	value[0] = '\0';
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
	{
		printf("Bail out! %s: %s", statement, PQerrorMessage(admin));
		exit(2);
	}
	if (PQntuples(result) > 0)
		snprintf(value, sizeof(value), "%s", PQgetvalue(result, 0, 0));
	PQclear(result);
	return value;
}

static void
connect_admin(void)
{
	admin = PQconnectdb("");
	if (PQstatus(admin) != CONNECTION_OK)
	{
		printf("Bail out! %s", PQerrorMessage(admin));
		exit(2);
	}
	strcpy(jwks, sql("SELECT keyright_jwks()"));
}

static int
live(const char *license)
{
	char		query[256];

	snprintf(query, sizeof(query), "SELECT live FROM keyright.pools"
			 " WHERE license_id = '%s'", license);
	return atoi(sql(query));
}

static void
new_license(const char *license, int seats, int ttl)
{
	char		statement[256];

	snprintf(statement, sizeof(statement), "INSERT INTO keyright.license"
			 " (license_id, seat_count, ttl, skew, reap_grace)"
			 " VALUES ('%s', %d, '%d s', '1 s', '3 s')",
			 license, seats, ttl);
	sql(statement);
}

/* ----- the application ----- */

typedef struct App
{
	KeyrightOptions options;
	Keyright   *seat;
	pthread_mutex_t lock;
	char		story[512];
	KeyrightError last;
} App;

static void
on_event(void *arg, const KeyrightEvent *event)
{
	App		   *app = arg;
	size_t		used;

	pthread_mutex_lock(&app->lock);
	used = strlen(app->story);
	snprintf(app->story + used, sizeof(app->story) - used, "%s%s",
			 used > 0 ? " " : "", keyright_state_name(event->state));
	app->last = event->error;
	pthread_mutex_unlock(&app->lock);
}

static App *
app_new(const char *license)
{
	App		   *app = calloc(1, sizeof(*app));

	if (app == NULL)
		abort();
	pthread_mutex_init(&app->lock, NULL);
	keyright_options_init(&app->options);
	app->options.license = license;
	app->options.holder = "zoe";
	app->options.jwks = jwks;
	app->options.on_event = on_event;
	app->options.event_arg = app;
	return app;
}

static KeyrightErrorKind
app_checkout(App *app, KeyrightError *error)
{
	KeyrightErrorKind kind = keyright_open(&app->seat, &app->options, error);

	if (kind == KEYRIGHT_OK)
		kind = keyright_checkout(app->seat, error);
	if (kind != KEYRIGHT_OK && error != NULL)
		printf("# %s: %s (%s) %s\n", keyright_error_name(kind),
			   error->message, error->sqlstate, error->detail);
	return kind;
}

static bool
told(App *app, const char *story)
{
	bool		same;

	pthread_mutex_lock(&app->lock);
	same = strcmp(app->story, story) == 0;
	pthread_mutex_unlock(&app->lock);
	return same;
}

static void
app_free(App *app)
{
	keyright_close(app->seat);
	pthread_mutex_destroy(&app->lock);
	free(app);
}

static uint64_t
beats(App *app)
{
	KeyrightInfo info = {.size = sizeof(info)};

	keyright_info(app->seat, &info);
	return info.beats;
}

/* ----- tests ----- */

static void
test_life(void)
{
	App		   *app = app_new("life");
	char		token[KEYRIGHT_TOKEN_SIZE];
	KeyrightClaims claims;

	new_license("life", 1, 3);
	ok(app_checkout(app, NULL) == KEYRIGHT_OK && live("life") == 1,
	   "a seat is had");
	ok(WAIT_FOR(beats(app) >= 8) && keyright_may_run(app->seat) > 0 &&
	   live("life") == 1, "and kept for longer than its ttl");
	keyright_token(app->seat, token);
	ok(keyright_verify(token, strlen(token), jwks, strlen(jwks),
					   KEYRIGHT_NOW, &claims, NULL) == KEYRIGHT_TOKEN_VALID &&
	   strcmp(claims.license, "life") == 0, "its token verifies offline");
	ok(keyright_checkin(app->seat, NULL) == KEYRIGHT_OK && live("life") == 0,
	   "given back, nobody holds it");
	ok(told(app, "waiting held released"), "three events");
	app_free(app);
}

static void
test_terminated(void)
{
	App		   *app = app_new("ended");
	uint64_t	before;

	new_license("ended", 1, 4);
	app_checkout(app, NULL);
	for (int i = 0; i < 3; i++)
	{
		before = beats(app);
		sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
			" WHERE application_name = 'keyright'");
		WAIT_FOR(beats(app) > before + 1);
	}
	ok(told(app, "waiting held") && live("ended") == 1,
	   "a connection that ends between two beats is not even noticed");
	app_free(app);
}

static void
test_waiting(void)
{
	App		   *first = app_new("one");
	App		   *second = app_new("one");
	KeyrightError error;

	new_license("one", 1, 3);
	app_checkout(first, NULL);
	ok(app_checkout(second, &error) == KEYRIGHT_ERR_NO_SEATS,
	   "a second application has no seat");
	app_free(second);
	second = app_new("one");
	second->options.wait_ms = 60000;
	sql("SELECT count(*) FROM keyright_revoke_all('one')");
	ok(WAIT_FOR(keyright_state(first->seat) == KEYRIGHT_REVOKED),
	   "a revocation is told");
	ok(keyright_may_run(first->seat) == 0, "and acts");
	ok(app_checkout(second, NULL) == KEYRIGHT_OK && live("one") == 1,
	   "then the second has it");
	app_free(first);
	ok(keyright_may_run(second->seat) > 0 && live("one") == 1,
	   "the first takes nothing with it when it ends");
	app_free(second);
}

/* What a crash leaves behind: a seat that nobody gives back. */
static void
crash_with_seat(const char *license, const char *state_file)
{
	pid_t		child;
	int			status;

	fflush(stdout);
	child = fork();
	if (child == 0)
	{
		App		   *app = app_new(license);

		app->options.state_file = state_file;
		if (app_checkout(app, NULL) == KEYRIGHT_OK)
			kill(getpid(), SIGKILL);
		_exit(1);
	}
	waitpid(child, &status, 0);
	ok(WIFSIGNALED(status), "an application crashes while it holds a seat");
}

static void
test_crash(const char *folder)
{
	char		file[512];
	App		   *app = app_new("crash");
	KeyrightError error;

	new_license("crash", 1, 4);
	snprintf(file, sizeof(file), "%s/crash-state", folder);
	crash_with_seat("crash", file);
	app->options.state_file = file;
	ok(app_checkout(app, &error) == KEYRIGHT_OK && live("crash") == 1,
	   "with a state file it has its own seat again at once");
	ok(access(file, F_OK) == 0, "the file is there while the seat is held");
	app_free(app);
	ok(live("crash") == 0 && access(file, F_OK) != 0,
	   "and gone when it was given back");

	crash_with_seat("crash", NULL);
	app = app_new("crash");
	ok(app_checkout(app, &error) == KEYRIGHT_ERR_NO_SEATS,
	   "without one it is locked out");
	app_free(app);
	app = app_new("crash");
	app->options.wait_ms = 60000;
	ok(app_checkout(app, &error) == KEYRIGHT_OK,
	   "until the lease has lapsed, if it waits");
	app_free(app);
}

/* ----- errors, as PostgreSQL and libpq really tell them ----- */

static void
refused(const char *conninfo, const char *license, KeyrightErrorKind kind,
		const char *sqlstate, const char *what)
{
	App		   *app = app_new(license);
	KeyrightError error;

	app->options.conninfo = conninfo;
	ok(app_checkout(app, &error) == kind &&
	   strcmp(error.sqlstate, sqlstate) == 0 && error.message[0] != '\0',
	   "%s: %s", what, keyright_error_name(kind));
	app_free(app);
}

/* What is for support: all that was said, once and on one line. */
static void
detail_is(const char *conninfo, const char *license, const char *wanted,
		  const char *what)
{
	App		   *app = app_new(license);
	KeyrightError error;

	app->options.conninfo = conninfo;
	app_checkout(app, &error);
	ok(strcmp(error.detail, wanted) == 0, "%s", what);
	app_free(app);
}

#define NOT_THERE(folder)	"connection to server on socket \"" folder \
	"/.s.PGSQL.5\" failed: No such file or directory"

static void
test_details(void)
{
	detail_is(NULL, "asleep", "No seat of it is given out or renewed. "
			  "Holders learn that with their next heartbeat; their seats are "
			  "counted until the leases end. An administrator lifts this with "
			  "UPDATE keyright.license SET suspended = false WHERE license_id "
			  "= 'asleep'.",
			  "what the message says is not said again");
	detail_is("user=nobody_special", "errors",
			  "permission denied for function keyright_checkout",
			  "what else the server says is there");
	detail_is("host=/nowhere,/elsewhere port=5", "errors",
			  NOT_THERE("/nowhere") "; " NOT_THERE("/elsewhere"),
			  "each host's reason is told");
	detail_is("host=/nowhere,/nowhere port=5", "errors",
			  NOT_THERE("/nowhere"), "but once");
}

static void
test_errors(void)
{
	new_license("errors", 1, 60);
	new_license("asleep", 1, 60);
	sql("UPDATE keyright.license SET suspended = true"
		" WHERE license_id = 'asleep'");
	sql("CREATE ROLE nobody_special LOGIN");
	sql("CREATE ROLE guest LOGIN CONNECTION LIMIT 0");
	sql("CREATE DATABASE bare");
	sql("CREATE ROLE reader LOGIN");
	sql("SELECT keyright_grant('client', 'reader')");
	sql("ALTER ROLE reader SET default_transaction_read_only = on");

	refused(NULL, "nix", KEYRIGHT_ERR_LICENSE, "KR001", "unknown license");
	refused(NULL, "asleep", KEYRIGHT_ERR_LICENSE, "KR002", "suspended");
	refused("dbname=none", "errors", KEYRIGHT_ERR_LOGIN, "3D000",
			"no such database");
	refused("user=no_such_user", "errors", KEYRIGHT_ERR_LOGIN, "28000",
			"no such user");
	refused("user=nobody_special", "errors", KEYRIGHT_ERR_LOGIN, "42501",
			"no privilege");
	refused("dbname=bare", "errors", KEYRIGHT_ERR_REFUSED, "42883",
			"no keyright");
	refused("user=guest", "errors", KEYRIGHT_ERR_BUSY, "53300",
			"too many connections");
	refused("user=reader target_session_attrs=any", "errors",
			KEYRIGHT_ERR_BUSY, "25006", "read only");
	refused("host=/nowhere", "errors", KEYRIGHT_ERR_UNREACHABLE, "",
			"no server");
	refused("host=no-such-host.invalid", "errors", KEYRIGHT_ERR_UNREACHABLE,
			"", "no such host");
	test_details();
	ok(live("errors") == 0, "none of them took a seat");
	sql("DROP DATABASE bare");
}

/* Accepts connections and says nothing; returns its port. */
static int
silent_server(int *fd)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)
	};
	socklen_t	size = sizeof(address);

	*fd = socket(AF_INET, SOCK_STREAM, 0);
	if (*fd < 0 || bind(*fd, (struct sockaddr *) &address, size) != 0 ||
		listen(*fd, 16) != 0 ||
		getsockname(*fd, (struct sockaddr *) &address, &size) != 0)
		abort();
	return ntohs(address.sin_port);
}

static void
test_silence(void)
{
	App		   *app = app_new("silence");
	KeyrightError error;
	char		conninfo[512];
	Clocks		began;
	Clocks		ended;
	int			fd;
	int			port = silent_server(&fd);

	new_license("silence", 1, 4);
	snprintf(conninfo, sizeof(conninfo), "host=localhost port=%d", port);
	app->options.conninfo = conninfo;
	app->options.request_limit_ms = 700;
	clocks_read(&began);
	ok(app_checkout(app, &error) == KEYRIGHT_ERR_UNREACHABLE,
	   "a server that accepts and says nothing is silence");
	clocks_read(&ended);
	ok(ended.boot - began.boot >= 600 * MS_NS, "its time limit is waited for");
	app_free(app);

	app = app_new("silence");
	snprintf(conninfo, sizeof(conninfo), "host=localhost,%s port=%d,%s",
			 getenv("PGHOST"), port, getenv("PGPORT"));
	app->options.conninfo = conninfo;
	ok(app_checkout(app, &error) == KEYRIGHT_OK,
	   "a silent host does not hide a good one behind it");
	ok(WAIT_FOR(beats(app) >= 3) && told(app, "waiting held"),
	   "nor when beats are due");
	app_free(app);
	close(fd);
}

/* ----- a server that is slow to let people in ----- */

#define SLOWNESS_US			1200000

static int
connect_to_server(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int			fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/.s.PGSQL.%s",
			 getenv("PGHOST"), getenv("PGPORT"));
	if (fd < 0 || connect(fd, (struct sockaddr *) &address,
						  sizeof(address)) != 0)
		abort();
	return fd;
}

/* Passes on what there is to read; false: that was all. */
static bool
pass_on(int from, int to)
{
	char		bytes[8192];
	ssize_t		size = read(from, bytes, sizeof(bytes));

	return size > 0 &&
		send(to, bytes, (size_t) size, MSG_NOSIGNAL) == size;
}

static void *
relay(void *arg)
{
	struct pollfd fds[2] = {
		{.fd = (int) (intptr_t) arg, .events = POLLIN},
		{.fd = connect_to_server(), .events = POLLIN}
	};
	bool		open = true;

	usleep(SLOWNESS_US);
	while (open && poll(fds, 2, -1) > 0)
	{
		if (fds[0].revents != 0)
			open = pass_on(fds[0].fd, fds[1].fd);
		if (open && fds[1].revents != 0)
			open = pass_on(fds[1].fd, fds[0].fd);
	}
	close(fds[0].fd);
	close(fds[1].fd);
	return NULL;
}

/* Runs until its socket is shut down. */
static void *
slow_server(void *arg)
{
	int			listener = *(int *) arg;
	int			fd;
	pthread_t	thread;

	while ((fd = accept(listener, NULL, NULL)) >= 0)
	{
		pthread_create(&thread, NULL, relay, (void *) (intptr_t) fd);
		pthread_detach(thread);
	}
	return NULL;
}

/* Each try is too short for it, but what one has begun serves the next. */
static void
test_slow(void)
{
	App		   *app = app_new("slow");
	KeyrightError error;
	char		conninfo[512];
	int			fd;
	int			port = silent_server(&fd);
	pthread_t	thread;

	new_license("slow", 1, 60);
	pthread_create(&thread, NULL, slow_server, &fd);
	snprintf(conninfo, sizeof(conninfo), "host=localhost port=%d", port);
	app->options.conninfo = conninfo;
	app->options.request_limit_ms = 800;
	app->options.wait_ms = 30000;
	ok(app_checkout(app, &error) == KEYRIGHT_OK && live("slow") == 1,
	   "a server that needs longer than a question may take is reached");
	app_free(app);
	ok(live("slow") == 0, "and told of the end");
	shutdown(fd, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(fd);
}

/* Somebody else's server: it answers, but not with our vendor's signature. */
static void
test_other_key(void)
{
	App		   *app = app_new("other");
	App		   *apps[10];
	char		seed[KEYRIGHT_SEED_TEXT_SIZE];
	char		others[KEYRIGHT_JWKS_TEXT_SIZE];
	KeyrightError error;

	new_license("other", 1, 60);
	keyright_keygen(seed, others);
	app->options.jwks = others;
	ok(app_checkout(app, &error) == KEYRIGHT_ERR_TOKEN &&
	   keyright_error_class(error.kind) == KEYRIGHT_CLASS_UNSIGNED,
	   "a seat that another key signed is none");
	ok(live("other") == 0, "and taken from nobody");
	app_free(app);

	/* An application that does not find out, and is started again. */
	new_license("outdated", 2, 60);
	for (int i = 0; i < 10; i++)
	{
		apps[i] = app_new("outdated");
		apps[i]->options.jwks = others;
		ok(app_checkout(apps[i], &error) == KEYRIGHT_ERR_TOKEN &&
		   keyright_may_run(apps[i]->seat) == 0 &&
		   told(apps[i], "waiting refused"),
		   "attempt %d with old keys is refused", i + 1);
	}
	ok(live("outdated") == 0, "ten of them empty no pool: %d seats are taken",
	   live("outdated"));
	app = app_new("outdated");
	ok(app_checkout(app, &error) == KEYRIGHT_OK,
	   "who has the right keys has a seat");
	app_free(app);
	for (int i = 0; i < 10; i++)
		app_free(apps[i]);
}

/* While beats are refused for a while, by name. */
static void
test_suspended(void)
{
	App		   *app = app_new("pause");

	new_license("pause", 1, 3);
	app_checkout(app, NULL);
	sql("UPDATE keyright.license SET suspended = true"
		" WHERE license_id = 'pause'");
	ok(WAIT_FOR(keyright_state(app->seat) == KEYRIGHT_REFUSED) &&
	   keyright_may_run(app->seat) == 0, "a suspended license stops at once");
	sql("UPDATE keyright.license SET suspended = false"
		" WHERE license_id = 'pause'");
	ok(WAIT_FOR(keyright_state(app->seat) == KEYRIGHT_REGAINED) &&
	   live("pause") == 1, "and goes on when it is valid again");
	app_free(app);
}

static void
test_busy(void)
{
	App		   *app = app_new("busy");

	new_license("busy", 2, 4);
	app_checkout(app, NULL);
	sql("BEGIN");
	sql("SELECT status FROM keyright_checkout('busy', 'stuck')");
	sleep(5);
	ok(keyright_may_run(app->seat) > 0 && told(app, "waiting held"),
	   "a colleague's stuck check-out disturbs no beat");
	sql("ROLLBACK");
	app_free(app);
	ok(live("busy") == 0, "nobody is left");
}

static void
test_fork(void)
{
	App		   *app = app_new("fork");
	static const char backend[] = "SELECT pid FROM pg_stat_activity"
		" WHERE application_name = 'keyright'";
	pid_t		child;
	int			status;
	uint64_t	before;
	char		pid[32];

	new_license("fork", 1, 4);
	app_checkout(app, NULL);
	snprintf(pid, sizeof(pid), "%s", sql(backend));
	fflush(stdout);
	child = fork();
	if (child == 0)
	{
		bool		good = keyright_may_run(app->seat) > 0;

		keyright_close(app->seat);
		_exit(good ? 0 : 1);
	}
	waitpid(child, &status, 0);
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	   "a child may run and can close its copy");
	before = beats(app);
	ok(WAIT_FOR(beats(app) > before + 1) && told(app, "waiting held") &&
	   strcmp(pid, sql(backend)) == 0, "the parent's connection goes on");
	app_free(app);
}

/* ----- the boundary: the client's answer and the server's ----- */

static bool
sql_says(const char *format, ...)
{
	char		query[1024];
	va_list		args;

	va_start(args, format);
	vsnprintf(query, sizeof(query), format, args);
	va_end(args);
	return strcmp(sql(query), "t") == 0;
}

/* Microseconds since 1970, exactly, whatever the session's time zone. */
#define AT "'epoch'::timestamptz + %lld * interval '1 us'"

/*
 * Rule 1 around its boundary, with the same numbers on both sides; 1 us is
 * what the smallest unit of either can tell.
 */
static void
test_rule_1(int64_t expires_at)
{
	static const int64_t tolerances[] = {0, 1, 5000000, -1};
	bool		same = true;
	bool		sharp = true;

	for (size_t i = 0; i < sizeof(tolerances) / sizeof(tolerances[0]); i++)
		for (int64_t d = -1; d <= 1; d++)
		{
			int64_t		at = expires_at + tolerances[i] + d;
			bool		live = lease_is_live(expires_at, tolerances[i], at);

			sharp = sharp && live == (d <= 0);
			same = same && live ==
				sql_says("SELECT keyright_is_live(" AT
						 ", %lld * interval '1 us', " AT ")",
						 (long long) expires_at, (long long) tolerances[i],
						 (long long) at);
		}
	ok(sharp, "a lease is live up to its end and tolerance, 1 us no longer");
	ok(same, "so says the server, of the same numbers");
}

/* The end of a token is exclusive: no verifier counts longer than the seat. */
static void
test_token_end(const char *token, int64_t expires_at)
{
	bool		same = true;
	bool		sharp = true;

	for (int64_t d = -1; d <= 1; d++)
	{
		int64_t		at = expires_at + d;
		KeyrightVerdict verdict = keyright_verify(token, strlen(token), jwks,
												  strlen(jwks), at, NULL,
												  NULL);

		sharp = sharp && verdict ==
			(d < 0 ? KEYRIGHT_TOKEN_VALID : KEYRIGHT_TOKEN_EXPIRED);
		sharp = sharp && (time_left(expires_at, at) > 0) == (d < 0);
		same = same &&
			sql_says("SELECT status = '%s' FROM keyright_verify('%s', NULL, "
					 AT ")", keyright_verdict_name(verdict), token,
					 (long long) at);
	}
	ok(sharp, "a token is valid until 1 us before its end");
	ok(same, "so says the server, of the same token");
}

static void
test_boundary(void)
{
	App		   *app = app_new("boundary");
	char		token[KEYRIGHT_TOKEN_SIZE];
	KeyrightInfo info = {.size = sizeof(info)};
	int64_t		expires_at;

	new_license("boundary", 1, 60);
	app_checkout(app, NULL);
	keyright_token(app->seat, token);
	keyright_info(app->seat, &info);
	expires_at = info.expires_at * INT64_C(1000000);
	ok(sql_says("SELECT expires_at = " AT " FROM keyright.seat s"
				" JOIN keyright.license l ON l.id = s.license"
				" WHERE license_id = 'boundary'", (long long) expires_at),
	   "token and row end at the same microsecond");
	test_rule_1(expires_at);
	/* Fractional seconds, which a lease never has, but the rule knows. */
	test_rule_1(expires_at + 123457);
	test_token_end(token, expires_at);
	app_free(app);
}

int
main(int argc, char **argv)
{
	if (argc != 2 || sodium_init() < 0)
	{
		puts("Bail out! usage: server <folder>");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	connect_admin();
	test_life();
	test_terminated();
	test_waiting();
	test_crash(argv[1]);
	test_errors();
	test_silence();
	test_slow();
	test_other_key();
	test_suspended();
	test_busy();
	test_fork();
	test_boundary();
	PQfinish(admin);
	return finish();
}
