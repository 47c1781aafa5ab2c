/*
 * options.c
 *		The application's options: defaults, checks, copies.
 */
#include "handle.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_MIN_MS		100
#define LIMIT_MAX_MS		600000

/* A hundred years: what is longer does not fit in 64 bits everywhere. */
#define TTL_MAX_MS			INT64_C(3155760000000)

/* Everything up to on_event was there from the beginning. */
#define OLDEST_SIZE			offsetof(KeyrightOptions, on_event)

void
keyright_options_init_sized(KeyrightOptions *options, size_t size)
{
	KeyrightOptions defaults = {
		.size = size,
		.request_limit_ms = 5000,
		.release_limit_ms = 5000,
		.keep_trying = 1
	};

	memset(options, 0, size);
	memcpy(options, &defaults, size < sizeof(defaults) ? size :
		   sizeof(defaults));
}

static bool
refuse(KeyrightError *error, const char *detail)
{
	error_set(error, KEYRIGHT_ERR_OPTIONS, NULL, NULL, detail);
	return false;
}

/*
 * The caller's struct may be older (shorter: the rest has its default) or
 * newer (longer: the rest must be unused, or it would be silently ignored).
 */
bool
options_copy(KeyrightOptions *to, const KeyrightOptions *from,
			 KeyrightError *error)
{
	const char *bytes = (const char *) from;

	keyright_options_init(to);
	if (from == NULL || from->size < OLDEST_SIZE || from->size > 65536)
		return refuse(error, "keyright_options_init() was not called");
	memcpy(to, from, from->size < sizeof(*to) ? from->size : sizeof(*to));
	to->size = sizeof(*to);
	for (size_t i = sizeof(*to); i < from->size; i++)
		if (bytes[i] != 0)
			return refuse(error, "an option is newer than this library");
	return true;
}

static bool
claim_option(char to[KEYRIGHT_TEXT_MAX + 1], const char *from)
{
	if (!claim_text_ok(from, strnlen(from, KEYRIGHT_TEXT_MAX + 1)))
		return false;
	text_copy(to, KEYRIGHT_TEXT_MAX + 1, from);
	return true;
}

/* user@host; the numbers of both, where there are no names that can stand. */
static void
default_holder(char holder[KEYRIGHT_TEXT_MAX + 1])
{
	char		buffer[4096];
	char		host[128] = "";
	struct passwd entry;
	struct passwd *found = NULL;

	if (gethostname(host, sizeof(host)) != 0 || host[0] == '\0')
		text_copy(host, sizeof(host), "localhost");
	host[sizeof(host) - 1] = '\0';
	if (getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found) != 0)
		found = NULL;
	if (found != NULL)
	{
		snprintf(holder, KEYRIGHT_TEXT_MAX + 1, "%.100s@%s",
				 found->pw_name, host);
		if (claim_text_ok(holder, strlen(holder)))
			return;
	}
	snprintf(holder, KEYRIGHT_TEXT_MAX + 1, "%lu@host-%lx",
			 (unsigned long) geteuid(), (unsigned long) gethostid());
}

static bool
read_terms(Terms *terms, const KeyrightOptions *options, KeyrightError *error)
{
	const char *problem;

	if (options->license == NULL)
		return refuse(error, "license is missing");
	if (!claim_option(terms->license, options->license))
		return refuse(error, "license must have 1 to 255 bytes in UTF-8 and "
					  "no control characters");
	if (options->holder == NULL)
		default_holder(terms->holder);
	else if (!claim_option(terms->holder, options->holder))
		return refuse(error, "holder must have 1 to 255 bytes in UTF-8 and "
					  "no control characters");
	if (options->jwks == NULL)
		return refuse(error, "jwks is missing");
	if (!keyset_read(&terms->keys, options->jwks, strlen(options->jwks),
					 &problem))
	{
		refuse(error, problem);
		error_prefix(error, "jwks: ");
		return false;
	}
	if (terms->keys.count == 0)
		return refuse(error, "jwks has no Ed25519 key to verify with");
	return true;
}

static bool
read_limits(Keyright *seat, const KeyrightOptions *options,
			KeyrightError *error)
{
	Policy	   *policy = &seat->policy;

	if (options->ttl_ms != 0 &&
		(options->ttl_ms < TTL_MIN_MS || options->ttl_ms > TTL_MAX_MS))
		return refuse(error, "ttl_ms must be 0, or 1000 to 3155760000000");
	if (options->wait_ms < -1)
		return refuse(error, "wait_ms must be -1, 0 or more");
	if (options->request_limit_ms < LIMIT_MIN_MS ||
		options->request_limit_ms > LIMIT_MAX_MS)
		return refuse(error, "request_limit_ms must be 100 to 600000");
	if (options->release_limit_ms < 0 ||
		options->release_limit_ms > LIMIT_MAX_MS)
		return refuse(error, "release_limit_ms must be 0 to 600000");

	seat->ttl_ms = options->ttl_ms;
	policy->wait = options->wait_ms == -1 ||
		options->wait_ms > TTL_MAX_MS ? TIME_MAX : options->wait_ms * MS_NS;
	policy->request_limit = options->request_limit_ms * MS_NS;
	policy->release_limit = options->release_limit_ms * MS_NS;
	policy->keep_trying = options->keep_trying != 0;
	return true;
}

static bool
read_request_id(Keyright *seat, const KeyrightOptions *options,
				KeyrightError *error)
{
	if (options->request_id == NULL)
		return true;
	if (!claim_option(seat->remembered.request_id, options->request_id))
		return refuse(error, "request_id must have 1 to 255 bytes in UTF-8 "
					  "and no control characters");
	seat->policy.own_request_id = true;
	return true;
}

bool
options_read(Keyright *seat, const KeyrightOptions *options,
			 KeyrightError *error)
{
	seat->on_event = options->on_event;
	seat->event_arg = options->event_arg;
	return read_terms(&seat->policy.terms, options, error) &&
		read_limits(seat, options, error) &&
		read_request_id(seat, options, error);
}
