-- A lease is live if and only if at <= expires_at + tolerance, to the
-- microsecond, whatever the session's settings; the predicate never raises.
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
SELECT provolatile = 'i' AS immutable, proisstrict AS strict, proparallel = 's' AS parallel_safe
  FROM pg_proc WHERE proname = 'keyright_is_live';

-- the boundary
SELECT d AS us, keyright_is_live('2030-01-01 00:00:00.123456Z', t::interval,
         '2030-01-01 00:00:00.123456Z'::timestamptz + t::interval + d * interval '1 us') AS live,
       t AS tolerance
  FROM unnest(ARRAY['0', '5 s', '-5 s', '0.000001 s', '24 hours']) WITH ORDINALITY u(t, n),
       generate_series(-1, 1) d
 ORDER BY n, d;
-- and where it lapses: a microsecond after its last instant
SELECT t AS tolerance, l.at, keyright_is_live('2030-01-01Z', t::interval, l.at) AS live,
       keyright_is_live('2030-01-01Z', t::interval, l.at - interval '1 us') AS before
  FROM unnest(ARRAY['0', '5 s', '-1 day', '1 month', '1 year 1 us']) t,
       LATERAL (SELECT keyright.lapses_at('2030-01-01Z', t::interval) AS at) l;

-- strict
SELECT keyright_is_live(NULL, '0', now()) IS NULL AS a, keyright_is_live(now(), NULL, now()) IS NULL AS b,
       keyright_is_live(now(), '0', NULL) IS NULL AS c;

-- the ends of the range, and beyond it
SELECT e AS expires_at, a AS at, keyright_is_live(e::timestamptz, '5 s', a::timestamptz) AS live
  FROM unnest(ARRAY['-infinity', '4714-11-24 00:00:00 BC', '294276-12-31 23:59:59.999999', 'infinity'])
       WITH ORDINALITY x(e, i),
       unnest(ARRAY['-infinity', '4714-11-24 00:00:00 BC', '2030-01-01', '294276-12-31 23:59:59.999999', 'infinity'])
       WITH ORDINALITY y(a, j)
 ORDER BY i, j;
SELECT t AS tolerance,
       keyright_is_live('294276-12-31 23:59:59.999999Z', t::interval, '294276-12-31 23:59:59.999999Z') AS at_the_end,
       keyright_is_live('4714-11-24 00:00:00Z BC', t::interval, '4714-11-24 00:00:00Z BC') AS at_the_beginning,
       keyright_is_live('2030-01-01Z', t::interval, 'infinity') AS for_ever,
       keyright.lapses_at('-infinity', t::interval) AS never,
       keyright.lapses_at('294276-12-31 23:59:59.999999Z', t::interval) AS last
  FROM unnest(ARRAY['1 us', '-1 us', '178000000 years', '-178000000 years', '2147483647 days',
                    '-2147483648 days', '2147483647 months 2147483647 days',
                    '-2147483648 months -2147483648 days', '2562047788 hours', '-2562047788 hours']) t;

-- what TimeZone makes of a day is nothing to us: PostgreSQL's own sum over a
-- change to daylight saving time differs by an hour, ours does not
SET timezone = 'America/New_York';
SELECT t AS tolerance,
       keyright_is_live('2024-03-10 00:30:00-05', t::interval, '2024-03-11 00:30:00.000000-05') AS at_24_hours,
       keyright_is_live('2024-03-10 00:30:00-05', t::interval, '2024-03-11 00:30:00.000001-05') AS after,
       '2024-03-11 00:30:00-05' <= '2024-03-10 00:30:00-05'::timestamptz + t::interval AS by_postgresql
  FROM unnest(ARRAY['1 day', '24 hours', '23:59:59.999999']) t;
SELECT t AS tolerance,
       keyright_is_live('2024-11-03 00:30:00-04', t::interval, '2024-11-04 00:30:00.000000-04') AS at_24_hours,
       keyright_is_live('2024-11-03 00:30:00-04', t::interval, '2024-11-04 00:30:00.000001-04') AS after
  FROM unnest(ARRAY['1 day', '24 hours']) t;
-- every zone that the server knows gives one answer
DO $$
DECLARE
  zone text;
  answers text[] := ARRAY[]::text[];
  answer text;
BEGIN
  FOR zone IN SELECT name FROM pg_timezone_names ORDER BY name LOOP
    PERFORM set_config('timezone', zone, true);
    answer := concat(keyright_is_live('2024-03-10 00:30:00Z', '1 day', '2024-03-11 00:30:00Z'),
                     keyright_is_live('2024-03-10 00:30:00Z', '1 day', '2024-03-11 00:30:00.000001Z'),
                     extract(epoch FROM keyright.lapses_at('2024-03-31 00:30:00Z', '3 days')));
    IF NOT answer = ANY (answers) THEN
      answers := answers || answer;
    END IF;
  END LOOP;
  RAISE NOTICE 'answers: %', answers;
END;
$$;
-- a license's lengths count the same: its constraint and its lease
SELECT keyright.interval_us('1 day'), keyright.interval_us('24 hours'), keyright.interval_us('1440 minutes');
INSERT INTO keyright.license (license_id, seat_count, ttl, max_ttl) VALUES ('dst', 400, '24 hours', '1 day');
SELECT bool_and(extract(epoch FROM expires_at - issued_at) BETWEEN 86400 AND 86401) AS a_day
  FROM generate_series(1, 10) g, keyright_checkout('dst', 'anna ' || g, '1 day');
SELECT keyright_delete_license('dst', true);
SET timezone = 'UTC';

-- it is immutable, but nothing of the clock is folded into a plan
SET plan_cache_mode = force_generic_plan;
CREATE TEMP TABLE lease AS SELECT clock_timestamp() + interval '2 s' AS expires_at;
PREPARE from_table AS SELECT keyright_is_live(expires_at, '0', clock_timestamp()) AS live FROM lease;
PREPARE from_now AS SELECT keyright_is_live(expires_at, '0', now()) AS live FROM lease;
PREPARE from_parameter (timestamptz, timestamptz) AS SELECT keyright_is_live($1, '0', $2) AS live;
EXECUTE from_table;
EXECUTE from_now;
DO $$ BEGIN WHILE clock_timestamp() <= (SELECT expires_at FROM lease) LOOP PERFORM pg_sleep(0.02); END LOOP; END $$;
EXECUTE from_table;
EXECUTE from_now;
EXECUTE from_parameter ('2030-01-01', '2030-01-01');
EXECUTE from_parameter ('2030-01-01', '2030-01-01 00:00:00.000001');
EXPLAIN (COSTS OFF) EXECUTE from_parameter ('2030-01-01', '2030-01-01');
-- with constants alone it is folded, as an immutable function may be
EXPLAIN (COSTS OFF, VERBOSE) SELECT keyright_is_live('2030-01-01Z', '0', '2030-01-01Z');
-- and it can stand in an index
CREATE TEMP TABLE indexed (e timestamptz);
CREATE INDEX ON indexed (keyright_is_live(e, '5 s', '2030-01-01Z'));

-- months: the predicate counts 30 days, lengths of a policy refuse them
SELECT keyright_is_live('2030-01-01Z', '1 month', '2030-01-31Z') AS at_30_days,
       keyright_is_live('2030-01-01Z', '1 month', '2030-01-31 00:00:00.000001Z') AS after;
SELECT keyright.interval_us('1 month');
SELECT keyright.interval_us('1 month -30 days');
SELECT keyright.interval_us('2147483647 days');
SELECT keyright.is_whole_second('2030-01-01Z') AS a, keyright.is_whole_second('2030-01-01 00:00:00.000001Z') AS b,
       keyright.is_whole_second('1969-12-31 23:59:59.999999Z') AS c, keyright.is_whole_second('-infinity') AS d;
