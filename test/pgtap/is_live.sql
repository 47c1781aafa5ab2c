-- The promise: one rule, "at <= expires_at + tolerance", answers everywhere.
--
-- keyright_is_live (the C that the functions, the reaper and the client share)
-- is compared on 10,000 random and boundary points with the rule written once
-- more here in exact decimal arithmetic, and the views and calls with it on
-- 10,000 seats.  And it is what it is marked as: IMMUTABLE, STRICT and
-- PARALLEL SAFE, so that no plan, index or session setting bends it.

\set ECHO none
\set QUIET 1
\set ON_ERROR_STOP 1
\pset format unaligned
\pset tuples_only true
\pset pager off

BEGIN;
SELECT no_plan();

CREATE SCHEMA live;
SET LOCAL search_path = live, public;
-- days of 23 and 25 hours, if anybody should ask
SET LOCAL TimeZone = 'Europe/Berlin';

-- Microseconds, exactly.  A day has 24 hours and a month 30 days.
CREATE FUNCTION micros(i interval) RETURNS numeric LANGUAGE sql IMMUTABLE AS
  $$SELECT CASE WHEN isfinite(i) THEN
      (((extract(year FROM i) * 12 + extract(month FROM i)) * 30
        + extract(day FROM i)) * 24 + extract(hour FROM i)) * 3600000000
      + extract(minute FROM i) * 60000000 + extract(microseconds FROM i)
    WHEN i > interval '0' THEN 'infinity' ELSE '-infinity' END$$;

-- Since 2000.  Not by extract(epoch): in the last 30 years of the range it
-- gives whole seconds.
CREATE FUNCTION micros(t timestamptz) RETURNS numeric LANGUAGE sql IMMUTABLE AS
  $$SELECT CASE WHEN isfinite(t) THEN micros(t - timestamptz '2000-01-01 00:00:00+00')
    WHEN t > timestamptz '2000-01-01 00:00:00+00' THEN 'infinity' ELSE '-infinity' END$$;

-- A tolerance that does not fit into 64 bits, 292,000 years, is for ever.
CREATE FUNCTION tolerance(i interval) RETURNS numeric LANGUAGE sql IMMUTABLE AS
  $$SELECT CASE WHEN micros(i) >= 9223372036854775807 THEN 'infinity'
    WHEN micros(i) <= -9223372036854775808 THEN '-infinity' ELSE micros(i) END$$;

-- The rule.  Who said "for ever" meant it, so plus infinity wins over minus.
CREATE FUNCTION by_hand(e timestamptz, t interval, at timestamptz)
RETURNS boolean LANGUAGE sql IMMUTABLE AS
  $$SELECT micros(at) <= CASE
      WHEN 'infinity' IN (micros(e), tolerance(t)) THEN 'infinity'
      ELSE micros(e) + tolerance(t) END$$;

CREATE FUNCTION at_micros(us bigint) RETURNS timestamptz LANGUAGE sql STABLE AS
  $$SELECT timestamptz '1970-01-01 00:00:00+00' + (us || ' microseconds')::interval$$;

CREATE TABLE point (n integer, e timestamptz, t interval, at timestamptz);

SELECT setseed(0.424242) \gset ignored_

-- Nothing in common: 3,000 points between 1900 and 2200.
INSERT INTO point
  SELECT n, at_micros((random() * 9.4e15)::bigint - 2200000000000000),
         (((random() - 0.3) * 1e11)::bigint || ' microseconds')::interval,
         at_micros((random() * 9.4e15)::bigint - 2200000000000000)
    FROM generate_series(1, 3000) n;

-- At the boundary and beside it: 5,000 points.  The tolerance is spelled in
-- days and microseconds whose signs may differ.
INSERT INTO point
  SELECT n, at_micros(e), (d || ' days ' || us || ' microseconds')::interval,
         at_micros(e + d * 86400000000 + us + delta)
    FROM (SELECT n, (random() * 4e15)::bigint AS e,
                 (random() * 800)::bigint - 400 AS d,
                 ((random() - 0.5) * 2e11)::bigint AS us,
                 (ARRAY[-1000000, -1, 0, 1, 1000000])[n % 5 + 1] AS delta
            FROM generate_series(3001, 8000) n) r;

-- Every combination of the ends of the ranges: 2,000 points and more.
CREATE TABLE edge_time AS SELECT v FROM unnest(ARRAY[
  '-infinity', '4714-11-24 00:00:00+00 BC', '4714-11-24 00:00:00.000001+00 BC',
  '1970-01-01 00:00:00+00', '1999-12-31 23:59:59.999999+00',
  '2000-01-01 00:00:00+00', '2026-03-29 00:59:59.999999+00',
  '2026-03-29 01:00:00+00', '2026-10-25 01:00:00+00',
  '294276-12-31 23:59:59.999998+00', '294276-12-31 23:59:59.999999+00',
  'infinity']::timestamptz[]) v;
CREATE TABLE edge_length AS SELECT v FROM unnest(ARRAY[
  '0', '1 microsecond', '-1 microsecond', '1 day', '24 hours', '-1 day',
  '1 day -24 hours', '1 month', '30 days', '-1 month 30 days', '1000 years',
  '178000000 years', '-178000000 years', '2147483647 days',
  '-2147483648 days', '9223372036854775807 microseconds',
  '-9223372036854775807 microseconds',
  '2147483647 months 2147483647 days 9223372036854775807 microseconds',
  '-2147483648 months -2147483648 days -9223372036854775807 microseconds']
  ::interval[]) v;
SELECT current_setting('server_version_num')::int >= 170000 AS infinite_intervals \gset
\if :infinite_intervals
INSERT INTO edge_length VALUES ('infinity'), ('-infinity');
\endif
INSERT INTO point
  SELECT 8000 + row_number() OVER (), e.v, t.v, at.v
    FROM edge_time e, edge_length t, edge_time at;

SELECT cmp_ok((SELECT count(*) FROM point), '>=', 10000::bigint,
              'there are 10,000 points and more');
SELECT cmp_ok(
  (SELECT least(count(*) FILTER (WHERE by_hand(e, t, at)),
                count(*) FILTER (WHERE NOT by_hand(e, t, at))) FROM point),
  '>=', 3000::bigint, 'enough of them live, enough not');
SELECT is_empty(
  'SELECT * FROM point WHERE keyright_is_live(e, t, at) IS DISTINCT FROM by_hand(e, t, at)',
  'C and exact arithmetic give the same answer on every point');

------------------------------------------------------------------------
-- What follows from the rule

SELECT is_empty(
  $$SELECT a.n, b.n FROM point a JOIN point b ON b.n = a.n + 1
     WHERE keyright_is_live(least(a.e, b.e), a.t, a.at)
       AND NOT keyright_is_live(greatest(a.e, b.e), a.t, a.at)$$,
  'a later expiry never ends a lease');
SELECT is_empty(
  $$SELECT a.n, b.n FROM point a JOIN point b ON b.n = a.n + 1
     WHERE keyright_is_live(a.e, least(a.t, b.t), a.at)
       AND NOT keyright_is_live(a.e, greatest(a.t, b.t), a.at)$$,
  'a greater tolerance never ends a lease');
SELECT is_empty(
  $$SELECT a.n, b.n FROM point a JOIN point b ON b.n = a.n + 1
     WHERE keyright_is_live(a.e, a.t, greatest(a.at, b.at))
       AND NOT keyright_is_live(a.e, a.t, least(a.at, b.at))$$,
  'what lapsed stays so');

-- The first instant of not being live, wherever a timestamp can say it.
SELECT is_empty(
  $$SELECT n, e, t FROM point
     WHERE CASE WHEN micros(e) + tolerance(t) + 1 BETWEEN
                     micros(timestamptz '4714-11-24 00:00:00.000001+00 BC') AND
                     micros(timestamptz '294276-12-31 23:59:59.999999+00')
           THEN keyright_is_live(e, t, keyright.lapses_at(e, t))
             OR NOT keyright_is_live(e, t, keyright.lapses_at(e, t) - interval '1 microsecond')
           END$$,
  'lapses_at is the first microsecond at which a lease is not live');
SELECT is_empty(
  $$SELECT n, e, t FROM point
     WHERE ('infinity' IN (micros(e), tolerance(t))
         OR micros(e) + tolerance(t) >= micros(timestamptz '294276-12-31 23:59:59.999999+00'))
       AND keyright.lapses_at(e, t) <> 'infinity'$$,
  'what lives for ever, or to the end of time, never lapses');
SELECT lives_ok(
  $$SELECT max(keyright.lapses_at(e, t)::text) FROM point$$,
  'lapses_at is always a time that can be shown');

SELECT bag_eq(
  $$SELECT e::text, t, a::text, keyright_is_live(e, t, a) FROM (VALUES
      (timestamptz 'infinity', interval '0', timestamptz 'infinity'),
      ('infinity', '-178000000 years', 'infinity'),
      ('-infinity', '178000000 years', '-infinity'),
      ('-infinity', '200000 years', '4714-11-24 00:00:00+00 BC'),
      ('294276-12-31 23:59:59.999999+00', '178000000 years', 'infinity'),
      ('294276-12-31 23:59:59.999999+00', '200000 years', 'infinity'),
      ('294276-12-31 23:59:59.999999+00', '0', '294276-12-31 23:59:59.999999+00')
    ) v(e, t, a)$$,
  $$SELECT e::timestamptz::text, t, a::timestamptz::text, live FROM (VALUES
      ('infinity', interval '0', 'infinity', true),
      ('infinity', '-178000000 years', 'infinity', true),
      ('-infinity', '178000000 years', '-infinity', true),
      ('-infinity', '200000 years', '4714-11-24 00:00:00+00 BC', false),
      ('294276-12-31 23:59:59.999999+00', '178000000 years', 'infinity', true),
      ('294276-12-31 23:59:59.999999+00', '200000 years', 'infinity', false),
      ('294276-12-31 23:59:59.999999+00', '0', '294276-12-31 23:59:59.999999+00', true)
    ) v(e, t, a, live)$$,
  'infinities and the last instant');
\if :infinite_intervals
SELECT ok(keyright_is_live('-infinity', 'infinity', 'infinity'),
          'an infinite tolerance is infinite');
SELECT ok(NOT keyright_is_live('2030-01-01', '-infinity', '2000-01-01'),
          'so is a negative one');
\endif

------------------------------------------------------------------------
-- IMMUTABLE, STRICT, PARALLEL SAFE: so marked, and so it is

SELECT results_eq(
  $$SELECT provolatile::text, proparallel::text, proisstrict FROM pg_proc
     WHERE oid = 'keyright_is_live(timestamptz, interval, timestamptz)'::regprocedure$$,
  $$VALUES ('i', 's', true)$$, 'it is marked');
SELECT ok(keyright_is_live(NULL, '0', now()) IS NULL
      AND keyright_is_live(now(), NULL, now()) IS NULL
      AND keyright_is_live(now(), '0', NULL) IS NULL, 'NULL gives NULL');

-- Two places where PostgreSQL wants IMMUTABLE and believes it.
ALTER TABLE point ADD COLUMN stored boolean
  GENERATED ALWAYS AS (keyright_is_live(e, t, at)) STORED;
CREATE INDEX point_live ON point (keyright_is_live(e, t, at), n);
CREATE INDEX point_soon ON point (n)
  WHERE keyright_is_live(e, '5 seconds', '2030-01-01 00:00:00+00');
CREATE TABLE part (LIKE point) PARTITION BY LIST (keyright_is_live(e, t, at));
CREATE TABLE part_live PARTITION OF part FOR VALUES IN (true);
CREATE TABLE part_over PARTITION OF part FOR VALUES IN (false);
INSERT INTO part SELECT * FROM point;
ANALYZE point, part;

-- Results of one query under one set of settings.
CREATE FUNCTION answers(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE result text;
BEGIN
  EXECUTE 'SELECT count(*) || '' '' || coalesce(sum(n), 0) FROM point WHERE '
          || query INTO result;
  RETURN result;
END $$;
CREATE FUNCTION plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; result text := '';
BEGIN
  FOR line IN EXECUTE 'EXPLAIN (COSTS off) ' || query LOOP
    result := result || line || E'\n';
  END LOOP;
  RETURN result;
END $$;

SELECT answers('by_hand(e, t, at)') AS expected,
       answers('by_hand(e, ''5 seconds'', ''2030-01-01 00:00:00+00'')') AS expected_soon \gset

SET LOCAL enable_seqscan = off;
SELECT ok(plan('SELECT n FROM point WHERE keyright_is_live(e, t, at)') ~ 'point_live',
          'an index on it is used');
SELECT is(answers('keyright_is_live(e, t, at)'), :'expected', 'and is right');
SELECT ok(plan($$SELECT n FROM point WHERE keyright_is_live(e, '5 seconds', '2030-01-01 00:00:00+00')$$) ~ 'point_soon',
          'a partial index with it is used');
SELECT is(answers($$keyright_is_live(e, '5 seconds', '2030-01-01 00:00:00+00')$$),
          :'expected_soon', 'and is right');
SET LOCAL enable_seqscan = on;

SELECT is((SELECT count(*) FROM part_live WHERE NOT by_hand(e, t, at))
        + (SELECT count(*) FROM part_over WHERE by_hand(e, t, at)),
          0::bigint, 'partitions by it hold what they should');
SELECT ok(plan('SELECT n FROM part WHERE keyright_is_live(e, t, at)') ~ 'part_live'
      AND plan('SELECT n FROM part WHERE keyright_is_live(e, t, at) = true') !~ 'part_over',
          'and are pruned by it');

SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL max_parallel_workers_per_gather = 2;
SET LOCAL enable_indexscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT ok(plan('SELECT count(*) FROM point WHERE keyright_is_live(e, t, at)') ~ 'Gather',
          'a parallel plan asks it in its workers');
SELECT is(answers('keyright_is_live(e, t, at)'), :'expected', 'and is right');
RESET enable_indexscan;
RESET enable_bitmapscan;
RESET max_parallel_workers_per_gather;

-- What was stored was computed under one set of settings: compute it again.
CREATE FUNCTION under(settings text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE setting text; result bigint;
BEGIN
  FOREACH setting IN ARRAY settings LOOP
    PERFORM set_config(split_part(setting, '=', 1), split_part(setting, '=', 2), true);
  END LOOP;
  SELECT count(*) INTO result FROM point
   WHERE stored IS DISTINCT FROM keyright_is_live(e, t, at)
      OR (n <= 8000 AND stored IS DISTINCT FROM keyright_is_live(e, t::text::interval, at));
  RETURN result;
END $$;
SELECT is(under(s), 0::bigint, 'the same answers with ' || s::text)
  FROM (VALUES
    (ARRAY['TimeZone=UTC']),
    (ARRAY['TimeZone=America/New_York', 'DateStyle=German, DMY']),
    (ARRAY['TimeZone=Asia/Kolkata', 'IntervalStyle=iso_8601']),
    (ARRAY['TimeZone=Pacific/Apia', 'DateStyle=ISO, MDY', 'IntervalStyle=postgres_verbose']),
    (ARRAY['TimeZone=<+14>-14', 'extra_float_digits=-15', 'row_security=off'])) v(s);

SET LOCAL TimeZone = 'Europe/Berlin';
SET LOCAL DateStyle = 'ISO, MDY';
SET LOCAL IntervalStyle = 'postgres';
SELECT ok(
  (SELECT bool_and(keyright_is_live(e, '1 day', at) = keyright_is_live(e, '24 hours', at))
     FROM (SELECT timestamptz '2026-03-28 12:00:00+00' AS e,
                  timestamptz '2026-03-29 11:00:00+00' + m * interval '1 minute' AS at
             FROM generate_series(0, 180) m) x)
  AND timestamptz '2026-03-28 12:00:00+00' + interval '1 day'
   <> timestamptz '2026-03-28 12:00:00+00' + interval '24 hours',
  'a day is 24 hours, also over the night on which PostgreSQL''s has 23');

------------------------------------------------------------------------
-- Time is not folded into a plan

INSERT INTO keyright.license (license_id, seat_count, skew)
  VALUES ('soon', 1, '0');
INSERT INTO keyright.seat (license, slot, seat_id, holder, checked_out_at, issued_at, expires_at)
  SELECT id, 1, '00000001-0000-8000-8000-000000000001', 'x', now(), now(),
         clock_timestamp() + interval '400 milliseconds'
    FROM keyright.license WHERE license_id = 'soon';
SELECT expires_at AS soon FROM keyright.holders WHERE license_id = 'soon' \gset

SET LOCAL plan_cache_mode = force_generic_plan;
PREPARE is_live(timestamptz) AS
  SELECT keyright_is_live($1, '0', clock_timestamp());
PREPARE state(text) AS
  SELECT h.state || ' ' || p.live FROM keyright.holders h
    JOIN keyright.pools p USING (license_id) WHERE license_id = $1;
PREPARE points(timestamptz, interval) AS
  SELECT count(*) FROM point WHERE keyright_is_live(e, $2, $1) <> by_hand(e, $2, $1);

CREATE FUNCTION prepared(text) RETURNS text LANGUAGE plpgsql AS
  $$DECLARE result text; BEGIN EXECUTE 'EXECUTE ' || $1 INTO result; RETURN result; END$$;
SELECT prepared(format('is_live(%L)', :'soon')) AS live_before,
       prepared('state(''soon'')') AS state_before,
       clock_timestamp() < :'soon'::timestamptz AS in_time \gset
DO $$
BEGIN
  WHILE EXISTS (SELECT FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
                 WHERE l.license_id = 'soon' AND s.expires_at >= clock_timestamp()) LOOP
    PERFORM pg_sleep(0.02);
  END LOOP;
END $$;
-- A machine that took longer than the lease to come here has seen nothing.
SELECT ok(NOT :'in_time' OR (:'live_before' = 'true' AND :'state_before' = 'live 1'),
          'prepared with a generic plan: live before the end');
SELECT is(prepared(format('is_live(%L)', :'soon')), 'false',
          'the same plan afterwards: not live');
SELECT is(prepared('state(''soon'')'), 'lapsed 0',
          'the same plan of a view, in the same transaction: lapsed');
SELECT is(prepared($$points('2026-10-25 01:00:00+00', '1 day')$$), '0',
          'and a generic plan with parameters is right on every point');
RESET plan_cache_mode;

------------------------------------------------------------------------
-- Views and calls: 10,000 seats around now

INSERT INTO keyright.license (license_id, seat_count, skew, reap_grace)
  SELECT 'agree ' || k, 500, s, s + interval '1 second'
    FROM unnest(ARRAY['0', '1 microsecond', '0.5 seconds', '5 seconds',
                      '1 hour', '1 day', '23 hours 59 minutes', '90 seconds',
                      '0', '5 seconds']::interval[]) WITH ORDINALITY u(s, k);
INSERT INTO keyright.license (license_id, seat_count, skew, reap_grace)
  SELECT replace(license_id, 'agree', 'agree too'), seat_count, skew, reap_grace
    FROM keyright.license WHERE license_id LIKE 'agree%';
-- From a hundredth of a second to a year before and after the lapse.
INSERT INTO keyright.seat (license, slot, seat_id, holder, checked_out_at, issued_at, expires_at)
  SELECT l.id, s, (lpad(to_hex(s), 8, '0') || '-0000-8000-8000-000000000000')::uuid,
         'x', now() - interval '2 years', now() - interval '2 years',
         clock_timestamp() - (micros(l.skew) || ' microseconds')::interval
         + (((random() < 0.5)::int * 2 - 1) * 10 ^ (random() * 9.5 + 4))::bigint
           * interval '1 microsecond'
    FROM keyright.license l, generate_series(1, 500) s
   WHERE l.license_id LIKE 'agree%';

ANALYZE keyright.license, keyright.seat;

-- The clock is read before and after the views: who is live at both readings
-- must be live in them, who is at neither must not be.
CREATE TABLE seen AS
  WITH before AS MATERIALIZED (SELECT clock_timestamp() AS at),
       view AS MATERIALIZED (
         SELECT h.license_id, h.slot, h.state, b.at FROM before b, keyright.holders h
          WHERE h.license_id LIKE 'agree%'),
       after AS MATERIALIZED (
         SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM view) x)
  SELECT v.license_id, v.slot, s.seat_id, s.expires_at, l.skew, v.state,
         by_hand(s.expires_at, l.skew, v.at) AS live_before,
         by_hand(s.expires_at, l.skew, a.at) AS live_after
    FROM view v CROSS JOIN after a
    JOIN keyright.license l USING (license_id)
    JOIN keyright.seat s ON s.license = l.id AND s.slot = v.slot;
SELECT is((SELECT count(*) FROM seen), 10000::bigint,
          'keyright.holders shows 10,000 seats');
SELECT is_empty(
  $$SELECT * FROM seen WHERE live_before = live_after
       AND state <> CASE WHEN live_before THEN 'live' ELSE 'lapsed' END$$,
  'keyright.holders says of each what the rule says');
SELECT cmp_ok(
  (SELECT least(count(*) FILTER (WHERE live_before AND live_after),
                count(*) FILTER (WHERE NOT live_before AND NOT live_after)) FROM seen),
  '>=', 2000::bigint, 'some thousands live, some thousands not');

SELECT is_empty(
  $$WITH before AS MATERIALIZED (SELECT clock_timestamp() AS at),
        view AS MATERIALIZED (SELECT p.*, b.at FROM before b, keyright.pools p
                               WHERE p.license_id LIKE 'agree%'),
        after AS MATERIALIZED (SELECT clock_timestamp() AS at FROM (SELECT count(*) FROM view) x),
        truth AS (
          SELECT l.license_id, count(*) AS rows,
                 count(*) FILTER (WHERE by_hand(s.expires_at, l.skew, v.at)) AS live_before,
                 count(*) FILTER (WHERE by_hand(s.expires_at, l.skew, a.at)) AS live_after
            FROM view v CROSS JOIN after a JOIN keyright.license l USING (license_id)
            JOIN keyright.seat s ON s.license = l.id GROUP BY l.license_id)
    SELECT v.*, t.* FROM view v JOIN truth t USING (license_id)
     WHERE v.live NOT BETWEEN t.live_after AND t.live_before
        OR v.live + v.lapsed <> t.rows OR v.free <> v.seats - v.live
        OR v.retry_at IS NOT NULL$$,
  'keyright.pools counts as the rule does');

-- What a call decides: odd slots are given back, even ones renewed.
CREATE TABLE answered AS
  SELECT s.license_id, s.slot, s.expires_at, s.skew, clock_timestamp() AS before,
         CASE WHEN s.slot % 2 = 1 THEN keyright_checkin(s.license_id, s.seat_id)
         ELSE (SELECT b.status FROM keyright_heartbeat(s.license_id, s.seat_id) b)
         END AS answer,
         clock_timestamp() AS after
    FROM seen s;
SELECT bag_eq('SELECT DISTINCT answer FROM answered',
  $$VALUES ('released'), ('not_held'), ('renewed'), ('seat_lost')$$,
  '10,000 seats were given back or renewed, or it was too late');
SELECT is_empty(
  $$SELECT * FROM answered
     WHERE by_hand(expires_at, skew, before) = by_hand(expires_at, skew, after)
       AND by_hand(expires_at, skew, before) <> (answer IN ('released', 'renewed'))$$,
  'keyright_checkin and keyright_heartbeat decide as the rule does');

SELECT * FROM finish();
ROLLBACK;
