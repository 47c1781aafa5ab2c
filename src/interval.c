/*
 * interval.c
 *		Lengths of time as integer microseconds.
 *
 * PostgreSQL's "timestamptz + interval" asks the session's TimeZone how long a
 * day is.  A lease must not: here a day is 24 hours for everybody, and a month,
 * which is no length at all, is refused wherever a policy is set.
 */
#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/builtins.h"

#include "extension.h"

PG_FUNCTION_INFO_V1(keyright_is_live);
PG_FUNCTION_INFO_V1(keyright_lapses_at);
PG_FUNCTION_INFO_V1(keyright_interval_us);
PG_FUNCTION_INFO_V1(keyright_whole_second);

/*
 * Total, as the predicate must be: a month counts as 30 days, as it does when
 * PostgreSQL compares intervals, and what does not fit into 64 bits, 292,000
 * years, is for ever.  No policy of ours can hold either.
 */
int64
interval_span(const Interval *interval)
{
	__int128	days;
	__int128	span;

	if (interval_is_endless(interval))
		return LEASE_FOREVER;
	if (interval_is_beginless(interval))
		return LEASE_NEVER;
	days = (__int128) interval->month * DAYS_PER_MONTH + interval->day;
	span = days * USECS_PER_DAY + interval->time;
	if (span >= LEASE_FOREVER)
		return LEASE_FOREVER;
	if (span <= LEASE_NEVER)
		return LEASE_NEVER;
	return (int64) span;
}

int64
interval_length(const Interval *interval, const char *what)
{
	int64		span = interval_span(interval);

	if (interval->month != 0 || span == LEASE_FOREVER || span == LEASE_NEVER)
		ereport(ERROR,
				errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s is not a fixed length of time", what),
				errhint("Give it in days (of 24 hours), hours, minutes and seconds; months and years are not all equally long."));
	return span;
}

Interval *
interval_from_length(int64 length)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = length;
	return interval;
}

Datum
keyright_is_live(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(lease_is_live(PG_GETARG_TIMESTAMPTZ(0),
								 interval_span(PG_GETARG_INTERVAL_P(1)),
								 PG_GETARG_TIMESTAMPTZ(2)));
}

Datum
keyright_lapses_at(PG_FUNCTION_ARGS)
{
	int64		at = lease_lapses_at(PG_GETARG_TIMESTAMPTZ(0),
									 interval_span(PG_GETARG_INTERVAL_P(1)));

	/* the type ends before its 64 bits do */
	if (at >= END_TIMESTAMP)
		PG_RETURN_TIMESTAMPTZ(DT_NOEND);
	if (at < MIN_TIMESTAMP)
		PG_RETURN_TIMESTAMPTZ(DT_NOBEGIN);
	PG_RETURN_TIMESTAMPTZ(at);
}

Datum
keyright_interval_us(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(interval_length(PG_GETARG_INTERVAL_P(0),
									text_to_cstring(PG_GETARG_TEXT_PP(1))));
}

Datum
keyright_whole_second(PG_FUNCTION_ARGS)
{
	TimestampTz at = PG_GETARG_TIMESTAMPTZ(0);

	PG_RETURN_BOOL(TIMESTAMP_NOT_FINITE(at) || at % USECS_PER_SEC == 0);
}
