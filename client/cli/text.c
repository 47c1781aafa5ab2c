/*
 * text.c
 *		What the commands share: lengths of time, files, statuses.
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A hundred years, as in the library; in nanoseconds it fits in 64 bits. */
#define DURATION_MAX_MS		INT64_C(3155760000000)

/* No file that is read here is anywhere near that. */
#define FILE_MAX			(1024 * 1024)

bool
parse_duration(const char *text, int64_t *ms)
{
	static const struct
	{
		const char *unit;
		int64_t		ms;
	}			units[] = {
		{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"min", 60000},
		{"h", 3600000}, {"d", 86400000}
	};
	char	   *end;
	long long	number;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	number = strtoll(text, &end, 10);
	if (errno != 0 || number > DURATION_MAX_MS)
		return false;
	for (size_t i = 0; i < COUNT(units); i++)
		if (strcmp(end, units[i].unit) == 0)
		{
			if (number > DURATION_MAX_MS / units[i].ms)
				return false;
			*ms = number * units[i].ms;
			return true;
		}
	return false;
}

bool
duration_option(const char *name, const char *text, int64_t least_ms,
				int64_t *ms)
{
	if (!parse_duration(text, ms))
		complain("--%s: \"%s\" is no length of time: a whole number with ms, "
				 "s, m, h or d, such as 30s, up to 36525d", name, text);
	else if (*ms < least_ms)
		complain("--%s: \"%s\" is too short, %lld s is the least", name, text,
				 (long long) (least_ms / 1000));
	else
		return true;
	return false;
}

void
print_duration(char text[DURATION_SIZE], int64_t seconds)
{
	static const struct
	{
		int64_t		seconds;
		int64_t		part;
		const char *names[2];
	}			units[] = {
		{86400, 3600, {"d", "h"}},
		{3600, 60, {"h", "min"}},
		{60, 1, {"min", "s"}}
	};

	for (size_t i = 0; i < COUNT(units); i++)
	{
		long long	whole = seconds / units[i].seconds;
		long long	rest = seconds % units[i].seconds / units[i].part;

		if (whole > 0 && rest > 0)
			snprintf(text, DURATION_SIZE, "%lld %s %lld %s", whole,
					 units[i].names[0], rest, units[i].names[1]);
		else if (whole > 0)
			snprintf(text, DURATION_SIZE, "%lld %s", whole,
					 units[i].names[0]);
		if (whole > 0)
			return;
	}
	snprintf(text, DURATION_SIZE, "%lld s", (long long) seconds);
}

/* A date beyond all years is a hostile server's: not to be relied on. */
void
print_local_time(char text[LOCAL_TIME_SIZE], const char *format,
				 int64_t seconds)
{
	time_t		then = seconds;
	struct tm	local;

	if (localtime_r(&then, &local) == NULL ||
		strftime(text, LOCAL_TIME_SIZE, format, &local) == 0)
		strcpy(text, "?");
}

static char *
read_stream(FILE *from, const char *path, size_t *size)
{
	char	   *text = malloc(FILE_MAX + 1);

	if (text == NULL)
	{
		complain("out of memory");
		return NULL;
	}
	*size = fread(text, 1, FILE_MAX + 1, from);
	if (ferror(from))
		complain("could not read \"%s\": %s", path, strerror(errno));
	else if (*size > FILE_MAX)
		complain("\"%s\" is too long", path);
	else
	{
		text[*size] = '\0';
		return text;
	}
	free(text);
	return NULL;
}

char *
read_file(const char *path, size_t *size)
{
	FILE	   *from;
	char	   *text;

	if (strcmp(path, "-") == 0)
		return read_stream(stdin, "standard input", size);
	from = fopen(path, "re");
	if (from == NULL)
	{
		/* A token in the place of its file's name is not to be shown. */
		if (errno == ENAMETOOLONG)
			complain("that is no file's name, it is too long: a token is read "
					 "from a file, or with - from standard input");
		else
			complain("could not open \"%s\": %s", path, strerror(errno));
		return NULL;
	}
	text = read_stream(from, path, size);
	fclose(from);
	return text;
}

/*
 * Why there is no seat, in classes that a script can act on: later (75), when
 * the server is there (69), after a look at who one is (77), at the settings
 * (78) or at who answers (76).
 */
int
exit_status_of(KeyrightErrorKind kind)
{
	switch (kind)
	{
		case KEYRIGHT_OK:
			return EX_OK;
		case KEYRIGHT_ERR_NO_SEATS:
		case KEYRIGHT_ERR_EXPIRED:
		case KEYRIGHT_ERR_UNKNOWN_SEAT:
			return EX_TEMPFAIL;
		case KEYRIGHT_ERR_UNREACHABLE:
		case KEYRIGHT_ERR_BUSY:
		case KEYRIGHT_ERR_LAPSED:
		case KEYRIGHT_ERR_CLOCK:
			return EX_UNAVAILABLE;
		case KEYRIGHT_ERR_REVOKED:
		case KEYRIGHT_ERR_LICENSE:
		case KEYRIGHT_ERR_LOGIN:
		case KEYRIGHT_ERR_REFUSED:
			return EX_NOPERM;
		case KEYRIGHT_ERR_TOKEN:
		case KEYRIGHT_ERR_NO_KEY:
			return EX_PROTOCOL;
		case KEYRIGHT_ERR_OPTIONS:
		case KEYRIGHT_ERR_STATE_FILE:
			return EX_CONFIG;
		default:
			return EX_SOFTWARE;
	}
}

void
print_json_text(FILE *to, const char *text)
{
	putc('"', to);
	for (; *text != '\0'; text++)
	{
		unsigned char c = (unsigned char) *text;

		if (c == '"' || c == '\\')
			fprintf(to, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(to, "\\u%04x", c);
		else
			putc(c, to);
	}
	putc('"', to);
}

int
finish_output(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EX_OK;
	complain("could not write to standard output: %s", strerror(errno));
	return EX_IOERR;
}

int64_t
boot_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec * SECOND_NS + now.tv_nsec;
}
