/*
 * test_messages.c
 *		libpq's messages, as one readable line.
 */
#include "client_test.h"

#include "pq_message.h"

#define CONNECTION(host)	"connection to server at \"" host "\", port 1 failed: "

static void
becomes(const char *message, const char *wanted, const char *wanted_sqlstate,
		const char *what)
{
	char		text[512] = "";
	char		sqlstate[6];
	bool		good;

	pq_message_add(text, sizeof(text), message, sqlstate);
	good = strcmp(text, wanted) == 0 &&
		strcmp(sqlstate, wanted_sqlstate) == 0;
	ok(good, "%s", what);
	if (!good)
		printf("# %s: \"%s\"\n", sqlstate, text);
}

static void
test_lines(void)
{
	becomes("", "", "", "no message is none");
	becomes("one\n", "one", "", "one line stays one");
	becomes(CONNECTION("a") "Connection refused\n"
			"\tIs the server running on that host and accepting TCP/IP"
			" connections?\n",
			CONNECTION("a") "Connection refused", "",
			"libpq's guesses are left out");
	becomes(CONNECTION("a") "FATAL:  28P01: password authentication failed\n"
			"LOCATION:  auth_failed, auth.c:338\n",
			CONNECTION("a") "FATAL:  password authentication failed",
			"28P01", "what is for developers is left out");
	becomes(CONNECTION("a") "FATAL:  28P01: kein Passwort\n"
			"ORT:  auth_failed, auth.c:338\n",
			CONNECTION("a") "FATAL:  kein Passwort",
			"28P01", "in other languages, too");
	becomes(CONNECTION("a") "FATAL:  57P03: the database system is starting"
			" up\nDETAIL:  Soon.\nLOCATION:  ProcessStartupPacket,"
			" postmaster.c:2336\n" CONNECTION("b") "Connection refused\n",
			CONNECTION("a") "FATAL:  the database system is starting up; "
			"DETAIL:  Soon.; " CONNECTION("b") "Connection refused",
			"57P03", "each host has its say");
	becomes(CONNECTION("a") "no\n" CONNECTION("a") "no\n",
			CONNECTION("a") "no", "", "nothing is said twice");
	becomes("the file b.c: 7 lines\na.c\nb.c:\nb.c:7a\n",
			"the file b.c: 7 lines; a.c; b.c:; b.c:7a", "",
			"what only looks like it stays");
}

static void
test_room(void)
{
	char		text[12] = "";
	char		sqlstate[6];
	char		message[5000];

	pq_message_add(text, sizeof(text), "12345\n12345678", sqlstate);
	ok(strcmp(text, "12345; 1234") == 0, "what does not fit is cut");
	pq_message_add(text, sizeof(text), "more", sqlstate);
	ok(strcmp(text, "12345; 1234") == 0, "and more is nothing");
	text[0] = '\0';
	pq_message_add(text, sizeof(text), "1234567890\303\244", sqlstate);
	ok(strcmp(text, "1234567890") == 0, "where a character begins");
	memset(message, 'x', sizeof(message) - 1);
	message[sizeof(message) - 1] = '\0';
	text[0] = '\0';
	pq_message_add(text, sizeof(text), message, sqlstate);
	ok(strcmp(text, "xxxxxxxxxxx") == 0, "however long");
}

void
test_messages(void)
{
	test_lines();
	test_room();
}
