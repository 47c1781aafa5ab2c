/*
 * token_sql.c
 *		keyright_verify and keyright_jwks: the core's tokens and keys in SQL.
 *
 * A token that does not verify is an answer, not an error.  Nothing is
 * written, so both work on a standby.
 */
#include "postgres.h"

#include <sodium.h>

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_verify);
PG_FUNCTION_INFO_V1(keyright_jwks);

enum
{
	VERIFY_STATUS,
	VERIFY_PROBLEM,
	VERIFY_KID,
	VERIFY_ISSUER,
	VERIFY_LICENSE_ID,
	VERIFY_HOLDER,
	VERIFY_SEAT_ID,
	VERIFY_SLOT,
	VERIFY_ISSUED_AT,
	VERIFY_EXPIRES_AT,
	VERIFY_NATTS
};

typedef struct VerifyRow
{
	Datum		values[VERIFY_NATTS];
	bool		nulls[VERIFY_NATTS];
} VerifyRow;

static void
set(VerifyRow *row, int column, Datum value)
{
	row->values[column] = value;
	row->nulls[column] = false;
}

/* UTF-8 in the database's encoding; NULL when that cannot say it. */
static char *
to_server(const char *utf8)
{
	int			size = strlen(utf8);
	int			room = size * MAX_CONVERSION_GROWTH + 1;
	char	   *text;
	Oid			conversion;

	if (GetDatabaseEncoding() == PG_UTF8 ||
		GetDatabaseEncoding() == PG_SQL_ASCII)
		return pg_any_to_server(utf8, size, PG_UTF8);
	conversion = FindDefaultConversionProc(PG_UTF8, GetDatabaseEncoding());
	text = palloc(room);
	if (!OidIsValid(conversion) ||
		pg_do_encoding_conversion_buf(conversion, PG_UTF8,
									  GetDatabaseEncoding(),
									  (unsigned char *) utf8, size,
									  (unsigned char *) text, room,
									  true) != size)
		return NULL;
	return text;
}

/* Claims are UTF-8; NULL for none. */
static void
set_text(VerifyRow *row, int column, const char *utf8)
{
	char	   *text;

	if (utf8 == NULL || utf8[0] == '\0')
		return;
	text = to_server(utf8);
	if (text != NULL)
		set(row, column, CStringGetTextDatum(text));
	else if (row->nulls[VERIFY_PROBLEM])
		set(row, VERIFY_PROBLEM,
			CStringGetTextDatum("a claim cannot be shown in this database's encoding"));
}

static void
set_claims(VerifyRow *row, const LeaseClaims *claims)
{
	pg_uuid_t  *seat_id = palloc(sizeof(pg_uuid_t));

	memcpy(seat_id->data, claims->seat_id, SEAT_ID_SIZE);
	set_text(row, VERIFY_ISSUER, claims->issuer);
	set_text(row, VERIFY_LICENSE_ID, claims->license);
	set_text(row, VERIFY_HOLDER, claims->holder);
	set(row, VERIFY_SEAT_ID, UUIDPGetDatum(seat_id));
	set(row, VERIFY_SLOT, Int32GetDatum(claims->slot));
	set(row, VERIFY_ISSUED_AT,
		TimestampTzGetDatum(time_of_unix_seconds(claims->issued_at)));
	set(row, VERIFY_EXPIRES_AT,
		TimestampTzGetDatum(time_of_unix_seconds(claims->expires_at)));
}

/* The keys to verify with: those given, or the server's own. */
static bool
get_keys(FunctionCallInfo fcinfo, KeySet *keys, const char **problem)
{
	Jsonb	   *jwks;
	char	   *text;

	if (PG_ARGISNULL(1))
	{
		(void) published_keys(keys);
		return true;
	}
	jwks = PG_GETARG_JSONB_P(1);
	text = JsonbToCString(NULL, &jwks->root, VARSIZE(jwks));
	return keyset_read(keys, text, strlen(text), problem);
}

Datum
keyright_verify(PG_FUNCTION_ARGS)
{
	VerifyRow	row;
	TupleDesc	desc;
	KeySet		keys;
	LeaseClaims claims;
	char		kid[KID_SIZE] = "";
	const char *problem = "the token is null";
	TokenStatus status = TOKEN_MALFORMED;
	TimestampTz at = PG_ARGISNULL(2) ? GetCurrentTimestamp() :
		PG_GETARG_TIMESTAMPTZ(2);

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (sodium_init() < 0)
		elog(ERROR, "libsodium could not be initialized");
	memset(row.nulls, true, sizeof(row.nulls));
	if (!get_keys(fcinfo, &keys, &problem))
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("jwks is not a usable JWK Set"),
				errdetail("%s.", problem),
				errhint("Pass what keyright_jwks() returned."));
	if (!PG_ARGISNULL(0))
	{
		text	   *token = PG_GETARG_TEXT_PP(0);

		status = token_verify(VARDATA_ANY(token), VARSIZE_ANY_EXHDR(token),
							  &keys, unix_time(at), &claims, kid, &problem);
	}
	set_text(&row, VERIFY_STATUS, token_status_name(status));
	set_text(&row, VERIFY_PROBLEM, problem);
	set_text(&row, VERIFY_KID, kid);
	if (status == TOKEN_VALID || status == TOKEN_EXPIRED)
		set_claims(&row, &claims);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), row.values,
											 row.nulls));
}

Datum
keyright_jwks(PG_FUNCTION_ARGS)
{
	KeySet		keys;
	char		text[KEYSET_TEXT_SIZE];

	if (!published_keys(&keys))
		(void) signing_key();	/* says why */
	keyset_write(text, &keys);
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(text));
}
