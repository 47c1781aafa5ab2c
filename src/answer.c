/*
 * answer.c
 *		The one row that check-out and heartbeat answer with, and the checks
 *		of what callers pass in.
 *
 * The token is made here, from the row that was just written, so that what is
 * signed is what is stored.  Its texts are UTF-8 whatever the encoding of the
 * database.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_is_claim_text);

enum
{
	ANSWER_STATUS,
	ANSWER_REASON,
	ANSWER_LICENSE_ID,
	ANSWER_SLOT,
	ANSWER_SEAT_ID,
	ANSWER_HOLDER,
	ANSWER_ISSUED_AT,
	ANSWER_EXPIRES_AT,
	ANSWER_TOKEN,
	ANSWER_SEAT_COUNT,
	ANSWER_RETRY_AT,
	ANSWER_NATTS
};

static const struct
{
	const char *name;
	Oid			type;
}			answer_columns[ANSWER_NATTS] =
{
	{"status", TEXTOID},
	{"reason", TEXTOID},
	{"license_id", TEXTOID},
	{"slot", INT4OID},
	{"seat_id", UUIDOID},
	{"holder", TEXTOID},
	{"issued_at", TIMESTAMPTZOID},
	{"expires_at", TIMESTAMPTZOID},
	{"token", TEXTOID},
	{"seat_count", INT4OID},
	{"retry_at", TIMESTAMPTZOID}
};

/* Made once a session: looking up the function's result type costs 2 us. */
static TupleDesc
answer_desc(void)
{
	static TupleDesc desc = NULL;
	TupleDesc	made;
	MemoryContext old;

	if (desc != NULL)
		return desc;
	old = MemoryContextSwitchTo(TopMemoryContext);
	made = CreateTemplateTupleDesc(ANSWER_NATTS);
	for (int i = 0; i < ANSWER_NATTS; i++)
		TupleDescInitEntry(made, i + 1, answer_columns[i].name,
						   answer_columns[i].type, -1, 0);
	MemoryContextSwitchTo(old);
	desc = BlessTupleDesc(made);
	return desc;
}

#define UNIX_EPOCH_OFFSET \
	((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (int64) SECS_PER_DAY)

int64
unix_time(TimestampTz at)
{
	int64		result;

	if (TIMESTAMP_NOT_FINITE(at))
		return at;
	if (__builtin_add_overflow(at, UNIX_EPOCH_OFFSET * USECS_PER_SEC, &result))
		return LEASE_FOREVER;
	return result;
}

static int64
unix_seconds(TimestampTz at)
{
	int64		us = unix_time(at);

	/* towards the past: what was signed is never later than what is stored */
	return us / USECS_PER_SEC - (us % USECS_PER_SEC < 0);
}

TimestampTz
time_of_unix_seconds(int64 seconds)
{
	return (seconds - UNIX_EPOCH_OFFSET) * USECS_PER_SEC;
}

/* False when it may not stand in a claim. */
static bool
to_claim(char claim[CLAIM_TEXT_MAX + 1], const char *text)
{
	char	   *utf8 = pg_server_to_any(text, strlen(text), PG_UTF8);

	if (!claim_text_ok(utf8, strlen(utf8)))
		return false;
	strcpy(claim, utf8);
	return true;
}

static void
require_claim(const char *text, const char *what)
{
	char		claim[CLAIM_TEXT_MAX + 1];

	if (!to_claim(claim, text))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("invalid %s", what),
				errdetail("It must have 1 to %d bytes in UTF-8 and no control characters.",
						  CLAIM_TEXT_MAX));
}

/* For the constraint on keyright.license.license_id. */
Datum
keyright_is_claim_text(PG_FUNCTION_ARGS)
{
	char		claim[CLAIM_TEXT_MAX + 1];

	PG_RETURN_BOOL(to_claim(claim, text_to_cstring(PG_GETARG_TEXT_PP(0))));
}

static void
require_argument(FunctionCallInfo fcinfo, int arg, const char *what)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				errmsg("%s must not be null", what));
}

char *
claim_argument(FunctionCallInfo fcinfo, int arg, const char *what)
{
	char	   *value;

	require_argument(fcinfo, arg, what);
	value = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	require_claim(value, what);
	return value;
}

const pg_uuid_t *
seat_id_argument(FunctionCallInfo fcinfo, int arg)
{
	require_argument(fcinfo, arg, "seat_id");
	return PG_GETARG_UUID_P(arg);
}

static char *
sign(const License *license, const SeatRow *row)
{
	static char token[TOKEN_SIZE];
	LeaseClaims claims;

	strlcpy(claims.issuer, keyright_issuer, sizeof(claims.issuer));
	/* both were checked when they came in */
	if (!to_claim(claims.license, license->name) ||
		!to_claim(claims.holder,
				  TextDatumGetCString(row->values[SEAT_HOLDER - 1])))
		elog(ERROR, "license or holder cannot stand in a token");
	memcpy(claims.seat_id, DatumGetUUIDP(row->values[SEAT_SEAT_ID - 1])->data,
		   SEAT_ID_SIZE);
	claims.slot = DatumGetInt32(row->values[SEAT_SLOT - 1]);
	claims.issued_at = unix_seconds(
		DatumGetTimestampTz(row->values[SEAT_ISSUED_AT - 1]));
	claims.expires_at = unix_seconds(
		DatumGetTimestampTz(row->values[SEAT_EXPIRES_AT - 1]));
	if (token_write(token, &claims, signing_key()) == 0)
		elog(ERROR, "the lease cannot stand in a token");
	return token;
}

static void
answer_seat(Datum *values, bool *nulls, const License *license,
			const SeatRow *row)
{
	static const int from[][2] = {
		{ANSWER_SLOT, SEAT_SLOT},
		{ANSWER_SEAT_ID, SEAT_SEAT_ID},
		{ANSWER_HOLDER, SEAT_HOLDER},
		{ANSWER_ISSUED_AT, SEAT_ISSUED_AT},
		{ANSWER_EXPIRES_AT, SEAT_EXPIRES_AT}
	};

	for (int i = 0; i < lengthof(from); i++)
	{
		values[from[i][0]] = row->values[from[i][1] - 1];
		nulls[from[i][0]] = row->nulls[from[i][1] - 1];
	}
	values[ANSWER_TOKEN] = CStringGetTextDatum(sign(license, row));
	nulls[ANSWER_TOKEN] = false;
}

static void
fill_columns(Datum *values, bool *nulls, const Answer *answer)
{
	memset(values, 0, ANSWER_NATTS * sizeof(Datum));
	memset(nulls, true, ANSWER_NATTS * sizeof(bool));
	values[ANSWER_STATUS] = CStringGetTextDatum(answer->status);
	nulls[ANSWER_STATUS] = false;
	if (answer->reason != NULL)
	{
		values[ANSWER_REASON] = CStringGetTextDatum(answer->reason);
		nulls[ANSWER_REASON] = false;
	}
	values[ANSWER_LICENSE_ID] = CStringGetTextDatum(answer->license->name);
	nulls[ANSWER_LICENSE_ID] = false;
	values[ANSWER_SEAT_COUNT] = Int32GetDatum(answer->license->seat_count);
	nulls[ANSWER_SEAT_COUNT] = false;
	if (answer->seat_id != NULL)
	{
		values[ANSWER_SEAT_ID] = UUIDPGetDatum(answer->seat_id);
		nulls[ANSWER_SEAT_ID] = false;
	}
	if (answer->row != NULL)
		answer_seat(values, nulls, answer->license, answer->row);
	if (answer->retry_at != 0)
	{
		values[ANSWER_RETRY_AT] = TimestampTzGetDatum(answer->retry_at);
		nulls[ANSWER_RETRY_AT] = false;
	}
}

Datum
answer_datum(const Answer *answer)
{
	Datum		values[ANSWER_NATTS];
	bool		nulls[ANSWER_NATTS];

	fill_columns(values, nulls, answer);
	return HeapTupleGetDatum(heap_form_tuple(answer_desc(), values, nulls));
}

void
answer_add_row(ReturnSetInfo *result, const Answer *answer)
{
	Datum		values[ANSWER_NATTS];
	bool		nulls[ANSWER_NATTS];

	fill_columns(values, nulls, answer);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}
