/*
 * checkout.c
 *		keyright_checkout: takes a free seat, or refuses.
 *
 * Under the license's lock, by a clock and a snapshot read after it.  Who
 * repeats a request id whose lease is live gets that lease again, renewed: a
 * reply that was lost on the way must not cost a second seat.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_checkout);

typedef struct Request
{
	License		license;
	Look		look;
	SeatTable	table;
	char	   *holder;
	char	   *request_id;		/* or NULL */
	int64		asked_ttl;		/* 0: the license's */
	int64		ttl;
} Request;

static void
resolve_ttl(Request *request)
{
	const License *license = &request->license;

	request->ttl = request->asked_ttl ? request->asked_ttl : license->ttl;
	if (request->ttl > license->max_ttl)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("ttl is longer than license \"%s\" allows",
					   license->name),
				errdetail("At most %lld seconds may be asked for.",
						  (long long) (license->max_ttl / USECS_PER_SEC)),
				errhint("An administrator can raise keyright.license.max_ttl."));
}

static int64
ttl_argument(FunctionCallInfo fcinfo, int arg)
{
	int64		ttl;

	if (PG_ARGISNULL(arg))
		return 0;
	ttl = interval_length(PG_GETARG_INTERVAL_P(arg), "ttl");
	if (ttl < USECS_PER_SEC)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("ttl must be at least one second"));
	return ttl;
}

static void
new_seat_id(pg_uuid_t *seat_id, int32 slot)
{
	if (!pg_strong_random(seat_id->data, UUID_LEN))
		ereport(ERROR,
				errcode(ERRCODE_INTERNAL_ERROR),
				errmsg("could not generate random values"));
	seat_id_make(seat_id->data, slot);
}

/* Sets what a renewal changes too; never shortens but to the license's end. */
static void
set_window(Request *request, SeatRow *row, TimestampTz old_end)
{
	TimestampTz end = lease_end(request->look.now, request->ttl,
								request->license.valid_until);

	end = Min(Max(end, old_end), request->license.valid_until);
	seat_row_set(row, SEAT_ISSUED_AT, TimestampTzGetDatum(request->look.now));
	seat_row_set(row, SEAT_EXPIRES_AT, TimestampTzGetDatum(end));
	if (request->asked_ttl)
		seat_row_set(row, SEAT_TTL,
					 IntervalPGetDatum(interval_from_length(request->ttl)));
}

/*
 * The lease of this request id again, if it is live.  One that has lapsed is
 * cleared, so that the id is free for the seat that is looked for next.
 */
static bool
repeat_request(Request *request, SeatRow *row)
{
	SeatTable  *table = &request->table;

	if (!seat_fetch_by_request(table, request->license.id,
							   request->request_id))
		return false;
	if (seat_own(table, LockWaitBlock) != SEAT_OWNED)
		elog(ERROR, "a seat vanished under the lock of its license");
	request->look.now = GetCurrentTimestamp();
	license_require_usable(&request->license, request->look.now);
	if (!seat_live(table, request->license.skew, request->look.now))
	{
		seat_empty(table, ENDED_EXPIRED);
		return false;
	}
	if (strcmp(seat_text(table, SEAT_HOLDER), request->holder) != 0)
		ereport(ERROR,
				errcode(ERRCODE_REQUEST_ID_TAKEN),
				errmsg("request_id is in use by another holder"),
				errhint("A request_id is the secret of one client: make a random one for each check-out, and repeat it only to repeat that call."));
	seat_row_copy(row, table);
	set_window(request, row, seat_expires_at(table));
	if (!seat_update(table, row))
		elog(ERROR, "an owned seat could not be written");
	return true;
}

static void
fill_row(Request *request, SeatRow *row, int32 slot)
{
	pg_uuid_t  *seat_id = palloc(sizeof(pg_uuid_t));

	new_seat_id(seat_id, slot);
	seat_row_set(row, SEAT_SEAT_ID, UUIDPGetDatum(seat_id));
	seat_row_set(row, SEAT_HOLDER, CStringGetTextDatum(request->holder));
	if (request->request_id != NULL)
		seat_row_set(row, SEAT_REQUEST_ID,
					 CStringGetTextDatum(request->request_id));
	seat_row_set(row, SEAT_CHECKED_OUT_AT,
				 TimestampTzGetDatum(request->look.now));
	set_window(request, row, DT_NOBEGIN);
}

/* False, with nothing written, when the seat that was found is gone again. */
static bool
take(Request *request, SeatFound found, int32 slot, SeatRow *row)
{
	SeatTable  *table = &request->table;

	if (found == SEAT_FOUND_GAP)
	{
		seat_row_new(row, request->license.id, slot);
		fill_row(request, row, slot);
		seat_insert(table, row);
		return true;
	}
	seat_row_copy(row, table);
	seat_row_end(row, seat_taken(table) ? ENDED_EXPIRED : NULL);
	fill_row(request, row, seat_slot(table));
	return seat_update(table, row);
}

/* Looks again, with what this transaction has just written. */
static void
look_again(Request *request)
{
	seat_table_close(&request->table);
	look_end(&request->look);
	request->look = look_begin();
	seat_table_open(&request->table, request->look.snapshot);
}

static bool
grant(Request *request, SeatRow *row, TimestampTz *retry_at)
{
	SeatFound	found;
	SeatSearch	search;

	if (request->request_id != NULL)
	{
		if (repeat_request(request, row))
			return true;
		look_again(request);
	}
	for (;;)
	{
		found = seat_search(&request->table, &request->license,
							&request->look, &search);
		if (found == SEAT_FOUND_NONE)
		{
			*retry_at = search.retry_at == DT_NOEND ? 0 : search.retry_at;
			return false;
		}
		if (take(request, found, search.slot, row))
			return true;
		/* cannot happen while everybody takes the license's lock */
		CHECK_FOR_INTERRUPTS();
		look_again(request);
	}
}

static Datum
checkout(FunctionCallInfo fcinfo)
{
	Request		request;
	SeatRow		row;
	Answer		answer = {"granted"};
	Datum		result;
	char	   *license_id = claim_argument(fcinfo, 0, "license_id");

	request.holder = claim_argument(fcinfo, 1, "holder");
	request.asked_ttl = ttl_argument(fcinfo, 2);
	request.request_id = PG_ARGISNULL(3) ? NULL :
		claim_argument(fcinfo, 3, "request_id");
	require_writable("keyright_checkout()");
	(void) signing_key();
	shared_mark_database();

	durable_unlock_begin();
	license_lock_and_look(&request.license, license_id, &request.look);
	license_require_usable(&request.license, request.look.now);
	resolve_ttl(&request);
	seat_table_open(&request.table, request.look.snapshot);
	answer.license = &request.license;
	if (grant(&request, &row, &answer.retry_at))
	{
		answer.row = &row;
		durable_commit();
	}
	else
		answer.status = "no_seats_available";
	/* the row's values may point into the table's slot */
	result = answer_datum(&answer);
	seat_table_close(&request.table);
	look_end(&request.look);
	durable_unlock_end();
	return result;
}

Datum
keyright_checkout(PG_FUNCTION_ARGS)
{
	return bounded_call(fcinfo, checkout, license_name_argument);
}
