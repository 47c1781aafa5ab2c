/*
 * key.c
 *		The signing key, and the public keys that are published.
 *
 * The key is a 32-byte seed, from a file that keyright.signing_key_file names
 * or from the setting keyright.signing_key.  What is wrong with it never stops
 * the server and never leads to another key: signing refuses and names the
 * setting.
 *
 * The setting must not be seen.  A check hook that refuses a value would print
 * it, and a value that a reload changes is logged; so any text is accepted, at
 * server start only, shown as a constant, and read when it is first needed.
 * All this needs shared_preload_libraries: before the library is loaded the
 * setting is a mere placeholder that every role can SHOW.
 *
 * Each backend reads the key for itself when it first signs and after every
 * reload of the configuration, so a new key and the retired public key that
 * goes with it come into force together.  In memory the key lies in
 * sodium_malloc()'s guarded, locked pages, and copies on the way are wiped.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include "utils/builtins.h"
#include "utils/guc.h"

#include "extension.h"

#define KEY_FILE_MAX	1024

static const char not_a_seed[] =
"The file that \"keyright.signing_key_file\" names does not hold the base64 of 32 bytes.";

static char *signing_key_file = NULL;
static char *signing_key_text = NULL;
static char *retired_keys = NULL;

static SigningKey *loaded_key = NULL;
static const char *key_problem = NULL;
static TimestampTz key_read_at = DT_NOBEGIN;	/* the reload it belongs to */

static const char *
hide(void)
{
	return "********";
}

/*
 * The system's words do not tell the path, which is not for everybody who is
 * shown them.
 */
static const char *
system_problem(const char *what)
{
	static char problem[256];

	snprintf(problem, sizeof(problem),
			 "The file that \"keyright.signing_key_file\" names could not be %s: %s.",
			 what, strerror(errno));
	return problem;
}

/*
 * Reads a key file of the server's own user (or root's) that nobody else can
 * read or write.  Returns what is wrong with it, or NULL.
 */
static const char *
read_key_file(char *text, ssize_t *size)
{
	/* non-blocking, so that a FIFO cannot hang a backend */
	int			fd = open(signing_key_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	const char *problem = NULL;

	if (fd < 0)
		return system_problem("opened");
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
	{
		close(fd);
		return "What \"keyright.signing_key_file\" names is not a regular file.";
	}
	if (st.st_uid != geteuid() && st.st_uid != 0)
	{
		close(fd);
		return "The file that \"keyright.signing_key_file\" names is not owned by the server's user or root.";
	}
	if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
	{
		close(fd);
		return "The file that \"keyright.signing_key_file\" names is open to its group or to others; its mode must be 0600 or less.";
	}
	*size = read(fd, text, KEY_FILE_MAX + 1);
	if (*size < 0)
		problem = system_problem("read");
	else if (*size > KEY_FILE_MAX)
		problem = not_a_seed;
	close(fd);
	return problem;
}

static const char *
use_seed_text(const char *text, size_t size, const char *malformed)
{
	uint8_t		seed[SEED_SIZE];
	bool		ok = seed_decode(seed, text, size);

	if (ok && loaded_key == NULL)
		loaded_key = sodium_malloc(sizeof(SigningKey));
	if (ok && loaded_key != NULL)
		signing_key_init(loaded_key, seed);
	sodium_memzero(seed, sizeof(seed));
	if (ok && loaded_key == NULL)
		return "There is not enough memory for it.";
	return ok ? NULL : malformed;
}

static const char *
load_from_file(void)
{
	char		text[KEY_FILE_MAX + 1];
	ssize_t		size = 0;
	const char *problem = read_key_file(text, &size);

	if (problem == NULL)
		problem = use_seed_text(text, size, not_a_seed);
	sodium_memzero(text, sizeof(text));
	return problem;
}

static const char *
load_key(void)
{
	bool		has_file = signing_key_file != NULL && signing_key_file[0];
	bool		has_text = signing_key_text != NULL && signing_key_text[0];

	if (!keyright_preloaded)
		return "The library keyright is not in \"shared_preload_libraries\".";
	if (sodium_init() < 0)
		return "libsodium could not be initialized.";
	if (has_file && has_text)
		return "Both \"keyright.signing_key_file\" and \"keyright.signing_key\" are set.";
	if (has_file)
		return load_from_file();
	if (has_text)
		return use_seed_text(signing_key_text, strlen(signing_key_text),
							 "The setting \"keyright.signing_key\" is not the base64 of 32 bytes.");
	return "Neither \"keyright.signing_key_file\" nor \"keyright.signing_key\" is set.";
}

static bool
key_usable(void)
{
	/* by the clock of the reload: the file may have changed, its name not */
	if (key_read_at != PgReloadTime)
	{
		key_problem = load_key();
		if (key_problem != NULL && loaded_key != NULL)
		{
			sodium_free(loaded_key);
			loaded_key = NULL;
		}
		key_read_at = PgReloadTime;
	}
	return key_problem == NULL;
}

const SigningKey *
signing_key(void)
{
	if (!key_usable())
		ereport(ERROR,
				errcode(ERRCODE_NO_SIGNING_KEY),
				errmsg("keyright has no usable signing key"),
				errdetail("%s", key_problem),
				keyright_preloaded ?
				errhint("Make a key with \"keyright keygen FILE\" or \"openssl rand -base64 32\" only where there never was one, in a file of mode 0600 that the server's user owns; else put the old one back, because applications know its public half. Set \"keyright.signing_key_file\" to its path and reload the configuration.") :
				errhint("Add keyright to \"shared_preload_libraries\" and restart the server."));
	return loaded_key;
}

/*
 * Calls use for each word of a list; false at the first that it refuses.
 */
static bool
each_retired_key(const char *list, KeySet *set)
{
	static const char separators[] = ", \t\n";

	while (*(list += strspn(list, separators)) != '\0')
	{
		size_t		size = strcspn(list, separators);
		PublicKey	key;

		if (!public_key_decode(&key, list, size) || !keyset_add(set, &key))
			return false;
		list += size;
	}
	return true;
}

static bool
check_retired_keys(char **newval, void **extra, GucSource source)
{
	KeySet		set = {0};

	if (sodium_init() >= 0 && each_retired_key(*newval, &set) &&
		set.count < KEYSET_MAX)
		return true;
	/* say so without the value: it might be a seed, pasted by mistake */
	GUC_check_errmsg("invalid value for parameter \"keyright.retired_keys\"");
	GUC_check_errdetail("It is a list of at most %d public keys, each the \"x\" of a key, as keyright_jwks() and \"keyright keygen --x\" show it, separated by commas.",
						KEYSET_MAX - 1);
	return false;
}

bool
published_keys(KeySet *set)
{
	bool		usable = key_usable();

	set->count = 0;
	if (usable)
		(void) keyset_add(set, &loaded_key->public);
	if (retired_keys != NULL && sodium_init() >= 0)
		(void) each_retired_key(retired_keys, set);
	return usable;
}

void
key_init(void)
{
	DefineCustomStringVariable("keyright.retired_keys",
							   "Public keys that are published besides the current one.",
							   "The \"x\" of each, separated by commas: old keys until the last token that they signed has expired, and a new one before it is used.",
							   &retired_keys, "", PGC_SIGHUP, 0,
							   check_retired_keys, NULL, NULL);
	/* without preload these would be readable by all, so they do not exist */
	if (!keyright_preloaded)
		return;
	DefineCustomStringVariable("keyright.signing_key_file",
							   "File with the base64 of the 32-byte seed that signs leases.",
							   "Owned by the server's user or root, mode 0600. Read anew at each reload.",
							   &signing_key_file, "", PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY,
							   NULL, NULL, NULL);
	DefineCustomStringVariable("keyright.signing_key",
							   "The base64 of the 32-byte seed that signs leases.",
							   "A file is the better place: see keyright.signing_key_file.",
							   &signing_key_text, "", PGC_POSTMASTER,
							   GUC_SUPERUSER_ONLY | GUC_NO_SHOW_ALL |
							   GUC_NOT_IN_SAMPLE |
							   GUC_DISALLOW_IN_AUTO_FILE,
							   NULL, NULL, hide);
}
