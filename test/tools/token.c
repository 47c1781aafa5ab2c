/*
 * token.c
 *		Reads the claims of a token, without verifying it: enough to see that
 *		it says what the row beside it says.
 */
#include <stdio.h>
#include <string.h>

#include "storm.h"

#define PAYLOAD_SIZE	2048

static int
sextet(char c)
{
	static const char alphabet[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const char *at = strchr(alphabet, c);

	return c == '\0' || at == NULL ? -1 : (int) (at - alphabet);
}

/* The part between the two dots, decoded. */
static bool
payload(const char *token, char *to)
{
	const char *from = strchr(token, '.');
	unsigned	bits = 0;
	int			have = 0;
	int			length = 0;

	if (from == NULL)
		return false;
	for (from++; *from != '.'; from++)
	{
		int			six = sextet(*from);

		if (six < 0 || length >= PAYLOAD_SIZE - 1)
			return false;
		bits = bits << 6 | (unsigned) six;
		have += 6;
		if (have >= 8)
		{
			have -= 8;
			to[length++] = (char) (bits >> have & 0xff);
		}
	}
	to[length] = '\0';
	return true;
}

bool
token_fits(const char *token, const char *license, int slot,
		   const char *seat_id, int64_t expires)
{
	char		claims[PAYLOAD_SIZE];
	char		wanted[4][128];

	if (!payload(token, claims))
		return false;
	snprintf(wanted[0], sizeof(wanted[0]), "\"aud\":\"%s\"", license);
	snprintf(wanted[1], sizeof(wanted[1]), "\"slot\":%d", slot);
	snprintf(wanted[2], sizeof(wanted[2]), "\"seat\":\"%s\"", seat_id);
	snprintf(wanted[3], sizeof(wanted[3]), "\"exp\":%lld",
			 (long long) (expires / 1000000));
	for (int i = 0; i < 4; i++)
		if (strstr(claims, wanted[i]) == NULL)
			return false;
	return expires % 1000000 == 0;
}
