-- The promise: whoever you are and whatever you have set or created, you can do
-- what you were granted, and nothing of yours changes what is decided.
--
-- Each of the three levels and a role without any grant try every function,
-- every way to touch the tables and every way to change a setting.  Then each
-- does what it may do with objects of its own in front of PostgreSQL's: tables
-- in pg_temp, functions, operators, types and casts in a schema that comes
-- first.  (What needs several sessions is in the TAP tests.)

\set ECHO none
\set QUIET 1
\set ON_ERROR_STOP 1
\pset format unaligned
\pset tuples_only true
\pset pager off

BEGIN;
SELECT no_plan();

CREATE ROLE ordinary;
CREATE ROLE client;
CREATE ROLE monitor;
CREATE ROLE administrator;
GRANT CREATE ON SCHEMA public TO PUBLIC;
SELECT keyright_grant('client', 'client'),
       keyright_grant('monitor', 'monitor'),
       keyright_grant('administrator', 'administrator') \gset ignored_

INSERT INTO keyright.license (license_id, seat_count) VALUES ('acme', 10);
SELECT seat_id, token FROM keyright_checkout('acme', 'alice', NULL, 'request-of-alice') \gset
SELECT seat_id AS seat_id_2 FROM keyright_checkout('acme', 'bob', NULL, 'request-of-bob') \gset
SELECT seat_id AS seat_id_3 FROM keyright_checkout('acme', 'carol') \gset
-- one that ended and is remembered
SELECT count(*) FROM keyright_revoke('acme', :'seat_id_3') \gset ignored_
CREATE TABLE before AS SELECT * FROM keyright.seat;

-- Does it as that role, undoes it, and says what became of it.
CREATE FUNCTION attempt(who text, statement text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  PERFORM set_config('role', who, true);
  BEGIN
    EXECUTE statement;
    RAISE EXCEPTION 'undo' USING ERRCODE = 'ZZ000';
  EXCEPTION
    WHEN SQLSTATE 'ZZ000' THEN result := 'ok';
    WHEN OTHERS THEN result := SQLSTATE;
  END;
  PERFORM set_config('role', 'none', true);
  RETURN result;
END $$;

------------------------------------------------------------------------
-- Every function and every way to the tables

-- "-" is 42501, insufficient privilege.
CREATE TABLE trial (statement text, ordinary text, client text, monitor text, administrator text);
INSERT INTO trial VALUES
  -- everybody's
  ('SELECT keyright_is_live(now(), ''0'', now())', 'ok', 'ok', 'ok', 'ok'),
  (format('SELECT * FROM keyright_verify(%L)', :'token'), 'ok', 'ok', 'ok', 'ok'),
  -- a client's
  ('SELECT * FROM keyright_checkout(''acme'', ''x'')', '-', 'ok', '-', '-'),
  (format('SELECT * FROM keyright_heartbeat(''acme'', %L)', :'seat_id'), '-', 'ok', '-', '-'),
  (format('SELECT * FROM keyright_heartbeat_many(''acme'', ARRAY[%L]::uuid[])', :'seat_id'), '-', 'ok', '-', '-'),
  (format('SELECT * FROM keyright_checkin(''acme'', %L)', :'seat_id'), '-', 'ok', '-', '-'),
  ('SELECT keyright_jwks()', '-', 'ok', '-', '-'),
  ('SELECT * FROM keyright_version()', '-', 'ok', 'ok', 'ok'),
  -- an administrator's
  (format('SELECT * FROM keyright_revoke(''acme'', %L)', :'seat_id'), '-', '-', '-', 'ok'),
  ('SELECT * FROM keyright_revoke_slot(''acme'', 1)', '-', '-', '-', 'ok'),
  ('SELECT * FROM keyright_revoke_holder(''acme'', ''alice'')', '-', '-', '-', 'ok'),
  ('SELECT * FROM keyright_revoke_all(''acme'')', '-', '-', '-', 'ok'),
  ('SELECT keyright_delete_license(''acme'', true)', '-', '-', '-', 'ok'),
  ('SELECT keyright_reap()', '-', '-', '-', 'ok'),
  ('SELECT keyright.interval_us(''1 s'')', '-', '-', '-', 'ok'),
  ('SELECT keyright.is_whole_second(now())', '-', '-', '-', 'ok'),
  ('SELECT keyright.is_claim_text(''x'')', '-', '-', '-', 'ok'),
  -- who may look at the views may look behind them
  ('SELECT keyright.lapses_at(now(), ''0'')', '-', '-', 'ok', 'ok'),
  ('SELECT * FROM keyright.license_locks()', '-', '-', 'ok', 'ok'),
  ('SELECT * FROM keyright.reaper_status()', '-', '-', 'ok', 'ok'),
  ('SELECT * FROM keyright.holders', '-', '-', 'ok', 'ok'),
  ('SELECT * FROM keyright.pools', '-', '-', 'ok', 'ok'),
  ('SELECT * FROM keyright.locks', '-', '-', 'ok', 'ok'),
  ('SELECT * FROM keyright.reaper', '-', '-', 'ok', 'ok'),
  ('SELECT * FROM keyright.wraparound', '-', '-', 'ok', 'ok'),
  -- the owner's
  ('SELECT keyright_grant(''client'', ''ordinary'')', '-', '-', '-', '-'),
  ('SELECT keyright.mark_database()', '-', '-', '-', '-'),
  ('SELECT keyright.license_before_delete()', '-', '-', '-', '-'),
  ('SELECT keyright.license_before_update()', '-', '-', '-', '-'),
  ('SELECT keyright.license_before_truncate()', '-', '-', '-', '-'),
  -- licenses
  ('SELECT * FROM keyright.license', '-', '-', '-', 'ok'),
  ('SELECT count(*) FROM keyright.license', '-', '-', '-', 'ok'),
  ('SELECT * FROM keyright.license FOR UPDATE', '-', '-', '-', 'ok'),
  ('INSERT INTO keyright.license (license_id, seat_count) VALUES (''x'', 1)', '-', '-', '-', 'ok'),
  ('UPDATE keyright.license SET seat_count = 99', '-', '-', '-', 'ok'),
  ('DELETE FROM keyright.license', '-', '-', '-', 'KR007'),
  ('TRUNCATE keyright.license', '-', '-', '-', '-'),
  ('ALTER TABLE keyright.license DISABLE TRIGGER ALL', '-', '-', '-', '-'),
  ('ALTER TABLE keyright.license ADD COLUMN x int', '-', '-', '-', '-'),
  ('DROP TABLE keyright.license', '-', '-', '-', '-'),
  ('CREATE TRIGGER t BEFORE INSERT ON keyright.license EXECUTE FUNCTION suppress_redundant_updates_trigger()', '-', '-', '-', '-'),
  ('CREATE RULE r AS ON INSERT TO keyright.license DO INSTEAD NOTHING', '-', '-', '-', '-'),
  ('CREATE TABLE public.x (l int REFERENCES keyright.license)', '-', '-', '-', '-'),
  ('LOCK TABLE keyright.license IN ACCESS EXCLUSIVE MODE', '-', '-', '-', 'ok'),
  ('SELECT nextval(''keyright.license_id_seq'')', '-', '-', '-', '-'),
  ('SELECT setval(''keyright.license_id_seq'', 1)', '-', '-', '-', '-'),
  ('SELECT last_value FROM keyright.license_id_seq', '-', '-', '-', '-'),
  -- seats: nobody's
  ('SELECT * FROM keyright.seat', '-', '-', '-', '-'),
  ('SELECT count(*) FROM keyright.seat', '-', '-', '-', '-'),
  ('SELECT slot FROM keyright.seat', '-', '-', '-', '-'),
  ('SELECT FROM keyright.seat', '-', '-', '-', '-'),
  ('SELECT ctid FROM keyright.seat FOR KEY SHARE', '-', '-', '-', '-'),
  ('INSERT INTO keyright.seat (license, slot) VALUES (1, 9)', '-', '-', '-', '-'),
  ('UPDATE keyright.seat SET expires_at = ''infinity''', '-', '-', '-', '-'),
  ('DELETE FROM keyright.seat', '-', '-', '-', '-'),
  ('TRUNCATE keyright.seat', '-', '-', '-', '-'),
  ('TRUNCATE keyright.license, keyright.seat', '-', '-', '-', '-'),
  ('MERGE INTO keyright.seat s USING (SELECT 1) x ON true WHEN MATCHED THEN DELETE', '-', '-', '-', '-'),
  ('COPY keyright.seat TO ''/dev/null''', '-', '-', '-', '-'),
  ('COPY keyright.seat FROM ''/dev/null''', '-', '-', '-', '-'),
  ('LOCK TABLE keyright.seat IN ACCESS SHARE MODE', '-', '-', '-', '-'),
  ('LOCK TABLE keyright.seat IN ACCESS EXCLUSIVE MODE', '-', '-', '-', '-'),
  ('CREATE TRIGGER t BEFORE UPDATE ON keyright.seat EXECUTE FUNCTION suppress_redundant_updates_trigger()', '-', '-', '-', '-'),
  ('CREATE INDEX ON keyright.seat (seat_id)', '-', '-', '-', '-'),
  ('CREATE STATISTICS pg_temp.x ON slot, holder FROM keyright.seat', '-', '-', '-', '-'),
  ('ALTER TABLE keyright.seat SET (fillfactor = 100)', '-', '-', '-', '-'),
  ('CREATE TABLE pg_temp.heir () INHERITS (keyright.seat)', '-', '-', '-', '-'),
  -- views are for reading
  ('LOCK TABLE keyright.holders IN ACCESS SHARE MODE', '-', '-', 'ok', 'ok'),
  ('LOCK TABLE keyright.holders IN ROW EXCLUSIVE MODE', '-', '-', '-', '-'),
  ('LOCK TABLE keyright.pools IN ACCESS EXCLUSIVE MODE', '-', '-', '-', '-'),
  ('SELECT * FROM keyright.holders FOR UPDATE', '-', '-', '-', '-'),
  ('SELECT * FROM keyright.holders FOR KEY SHARE', '-', '-', '-', '-'),
  ('DELETE FROM keyright.holders', '-', '-', '55000', '55000'),
  ('CREATE OR REPLACE VIEW keyright.holders AS SELECT 1', '-', '-', '-', '-'),
  -- the rest
  ('CREATE TABLE keyright.x (i int)', '-', '-', '-', '-'),
  ('CREATE FUNCTION keyright.x() RETURNS int LANGUAGE sql AS ''SELECT 1''', '-', '-', '-', '-'),
  ('CREATE OR REPLACE FUNCTION public.keyright_is_live(timestamptz, interval, timestamptz) RETURNS bool LANGUAGE sql AS ''SELECT true''', '-', '-', '-', '-'),
  ('ALTER FUNCTION keyright_verify(text, jsonb, timestamptz) STABLE', '-', '-', '-', '-'),
  ('ALTER EXTENSION keyright UPDATE', '-', '-', '-', '-'),
  ('DROP EXTENSION keyright', '-', '-', '-', '-'),
  ('GRANT SELECT ON keyright.seat TO PUBLIC', '-', '-', '-', '-'),
  ('GRANT EXECUTE ON FUNCTION keyright.mark_database() TO PUBLIC', '-', '-', '-', '-'),
  ('CREATE FUNCTION pg_temp.mine() RETURNS void LANGUAGE c AS ''keyright'', ''keyright_mark_database''', '-', '-', '-', '-');

SELECT is(
  concat_ws(', ', attempt('ordinary', statement), attempt('client', statement),
                  attempt('monitor', statement), attempt('administrator', statement)),
  replace(concat_ws(', ', ordinary, client, monitor, administrator), '-', '42501'),
  statement)
  FROM (SELECT *, row_number() OVER () FROM trial ORDER BY row_number) t;

SELECT is_empty(
  $$SELECT p.proname FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
     WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
       AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'keyright')
       AND NOT EXISTS (SELECT FROM trial t WHERE t.statement ~ ('\m' || p.proname || '\('))$$,
  'no function of the extension was left out');
SELECT results_eq('TABLE keyright.seat', 'TABLE before', 'and the seats are as they were');

------------------------------------------------------------------------
-- Every way to change a setting that needs no session of its own

CREATE TABLE setting_before AS
  SELECT name, setting, source, sourcefile FROM pg_settings WHERE name LIKE 'keyright.%';
CREATE ROLE owner;
DO $$BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO owner', current_database()); END$$;

CREATE TABLE change (name text, value text);
INSERT INTO change VALUES
  ('keyright.lock_timeout', '1'), ('keyright.max_lock_hold', '3600000'),
  ('keyright.reap_interval', '86400000'), ('keyright.issuer', 'evil'),
  ('keyright.retired_keys', ''), ('keyright.signing_key_file', '/tmp/evil'),
  ('keyright.signing_key', 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=');
SELECT is_empty(
  $$SELECT name FROM pg_settings WHERE name LIKE 'keyright.%'
    EXCEPT SELECT name FROM change$$, 'every setting is tried');

-- 55P02: cannot be changed now.  A superuser is no exception.
SELECT is(
  (SELECT string_agg(DISTINCT attempt(who, statement), ' ')
     FROM unnest(ARRAY['ordinary', 'client', 'monitor', 'administrator', 'owner', 'postgres']) who,
          unnest(ARRAY[
            format('SET %s = %L', name, value),
            format('SET LOCAL %s = %L', name, value),
            format('SET SESSION %s = %L', name, value),
            format('SET %s TO DEFAULT', name),
            format('RESET %s', name),
            format('SELECT set_config(%L, %L, false)', name, value),
            format('SELECT set_config(%L, %L, true)', name, value),
            format('ALTER ROLE CURRENT_USER SET %s = %L', name, value),
            format('ALTER ROLE CURRENT_USER SET %s FROM CURRENT', name),
            format('CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql SET %s = %L AS ''SELECT 1''', name, value)
          ]) statement
    WHERE NOT (name LIKE '%.signing_key%' AND statement ~ 'FROM CURRENT')),
  '55P02', name || ' is changed by no session, role or function')
  FROM change;
SELECT is(
  (SELECT string_agg(DISTINCT attempt(who, format('ALTER DATABASE %I SET %s = %L', current_database(), name, value)), ' ')
     FROM unnest(ARRAY['owner', 'postgres']) who),
  '55P02', name || ' is changed for no database')
  FROM change;
SELECT is(
  (SELECT string_agg(DISTINCT attempt(who, format('UPDATE pg_settings SET setting = %L WHERE name = %L', value, name)), ' ')
     FROM unnest(ARRAY['ordinary', 'postgres']) who),
  CASE name WHEN 'keyright.signing_key' THEN 'ok'   -- no row, nothing done
            WHEN 'keyright.signing_key_file' THEN '55P02 ok' ELSE '55P02' END,
  name || ' is not changed through pg_settings')
  FROM change;
SELECT is_empty(
  $$SELECT setconfig FROM pg_db_role_setting WHERE setconfig::text LIKE '%keyright%'$$,
  'no role or database keeps one');
SELECT results_eq(
  $$SELECT name, setting, source, sourcefile FROM pg_settings
     WHERE name LIKE 'keyright.%' ORDER BY name$$,
  'SELECT * FROM setting_before ORDER BY name', 'and all are as they were');

------------------------------------------------------------------------
-- Nothing shows a seat id, a request id or a token

ANALYZE keyright.seat;
CREATE FUNCTION secrets_in(text) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(s, ' ') FROM (
    SELECT unnest(ARRAY[seat_id::text, ended_seat_id::text, request_id,
                        replace(seat_id::text, '-', ''), encode(uuid_send(seat_id), 'base64')]) s
      FROM before) x
   WHERE s <> '' AND position(s IN $1) > 0 $$;
GRANT EXECUTE ON FUNCTION secrets_in(text) TO PUBLIC;
SELECT cmp_ok(secrets_in((SELECT string_agg(b::text, ' ') FROM before b)), '<>', '',
              'they would be recognized');

-- What a role can see by one query, as text.
CREATE FUNCTION seen_by(who text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE line text; result text := '';
BEGIN
  PERFORM set_config('role', who, true);
  FOR line IN EXECUTE query LOOP
    result := result || line || E'\n';
  END LOOP;
  PERFORM set_config('role', 'none', true);
  RETURN result;
END $$;
SELECT is(secrets_in(seen_by(who, query)), NULL, who || ': ' || query)
  FROM unnest(ARRAY['monitor', 'administrator']) who,
       unnest(ARRAY[
         'SELECT h::text FROM keyright.holders h',
         'SELECT p::text FROM keyright.pools p',
         'SELECT l::text FROM keyright.locks l',
         'SELECT r::text FROM keyright.reaper r',
         'SELECT w::text FROM keyright.wraparound w',
         'EXPLAIN (ANALYZE, VERBOSE, BUFFERS, SETTINGS) SELECT * FROM keyright.holders',
         'EXPLAIN (ANALYZE, VERBOSE, BUFFERS, SETTINGS) SELECT * FROM keyright.pools']) query;
SELECT isnt(seen_by('monitor', 'SELECT h::text FROM keyright.holders h'), '',
            'holders showed something');
SELECT is(secrets_in(seen_by(who, query)), NULL, who || ': ' || query)
  FROM unnest(ARRAY['ordinary', 'client', 'monitor', 'administrator']) who,
       unnest(ARRAY[
         'SELECT s::text FROM pg_stats s WHERE schemaname = ''keyright''',
         'SELECT s::text FROM pg_stats_ext s',
         'SELECT a::text FROM pg_stat_activity a',
         'SELECT l::text FROM pg_locks l',
         'SELECT p::text FROM pg_prepared_statements p',
         'SELECT s::text FROM pg_settings s']) query;
SELECT is(attempt('monitor', 'SELECT * FROM pg_statistic'), '42501',
          'nobody but a superuser reads pg_statistic');
SELECT is(
  secrets_in(seen_by('administrator', 'SELECT r::text FROM keyright_revoke_all(''acme'') r')),
  NULL, 'revocation names holders and slots, no seat ids');
SELECT is((SELECT count(*) FROM keyright.seat WHERE seat_id IS NOT NULL), 0::bigint,
          'it did revoke');

-- A filter of the caller's runs before the views' own if it is cheap enough.
CREATE TABLE leaked (what text);
GRANT INSERT ON leaked TO monitor;
SELECT token, seat_id FROM keyright_checkout('acme', 'dora', NULL, 'request-of-dora') \gset
DELETE FROM before;
INSERT INTO before SELECT * FROM keyright.seat;
SET LOCAL ROLE monitor;
CREATE FUNCTION public.leak(anyelement) RETURNS boolean COST 0.0000001 LANGUAGE plpgsql AS
  $$BEGIN INSERT INTO public.leaked VALUES ($1::text); RETURN true; END$$;
SELECT count(*) FROM keyright.holders h WHERE leak(h) AND leak(h.holder) AND leak(h.slot) \gset ignored_
SELECT count(*) FROM keyright.pools p WHERE leak(p) AND leak(p.live) \gset ignored_
RESET ROLE;
SELECT cmp_ok((SELECT count(*) FROM leaked), '>', 0::bigint, 'a leaky function saw rows');
SELECT is(secrets_in((SELECT string_agg(what, ' ') FROM leaked)), NULL, 'but no secret');

------------------------------------------------------------------------
-- Objects of one's own in front of PostgreSQL's

-- Whoever is caught counts on a sequence: a rollback does not undo that.
CREATE SCHEMA evil;
GRANT ALL ON SCHEMA evil TO PUBLIC;
CREATE SEQUENCE evil.trap;
GRANT ALL ON SEQUENCE evil.trap TO PUBLIC;
CREATE FUNCTION evil.spring() RETURNS boolean LANGUAGE plpgsql VOLATILE AS
  $$BEGIN PERFORM pg_catalog.nextval('evil.trap'); RETURN false; END$$;
DO $$
DECLARE
  type text; op text; name text; arguments text;
BEGIN
  -- every comparison on every type that keyright uses, and some arithmetic
  FOREACH type IN ARRAY ARRAY['text', 'int2', 'int4', 'int8', 'uuid', 'interval', 'timestamptz',
                              'oid', 'name', 'bool', 'regrole'] LOOP
    EXECUTE format('CREATE FUNCTION evil.compare(pg_catalog.%1$I, pg_catalog.%1$I) RETURNS boolean LANGUAGE plpgsql AS ''BEGIN RETURN evil.spring(); END''', type);
    FOREACH op IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>='] LOOP
      EXECUTE format('CREATE OPERATOR evil.%s (FUNCTION = evil.compare, LEFTARG = pg_catalog.%I, RIGHTARG = pg_catalog.%I)', op, type, type);
    END LOOP;
  END LOOP;
  EXECUTE 'CREATE FUNCTION evil.compare(int8, int4) RETURNS boolean LANGUAGE plpgsql AS ''BEGIN RETURN evil.spring(); END''';
  FOREACH op IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>='] LOOP
    EXECUTE format('CREATE OPERATOR evil.%s (FUNCTION = evil.compare, LEFTARG = int8, RIGHTARG = int4)', op);
  END LOOP;
  EXECUTE 'CREATE FUNCTION evil.add(timestamptz, interval) RETURNS timestamptz LANGUAGE plpgsql AS ''BEGIN PERFORM evil.spring(); RETURN $1; END''';
  EXECUTE 'CREATE OPERATOR evil.+ (FUNCTION = evil.add, LEFTARG = timestamptz, RIGHTARG = interval)';
  EXECUTE 'CREATE FUNCTION evil.subtract(timestamptz, timestamptz) RETURNS interval LANGUAGE plpgsql AS ''BEGIN PERFORM evil.spring(); RETURN NULL; END''';
  EXECUTE 'CREATE OPERATOR evil.- (FUNCTION = evil.subtract, LEFTARG = timestamptz, RIGHTARG = timestamptz)';
  EXECUTE 'CREATE FUNCTION evil.concat(text, text) RETURNS text LANGUAGE plpgsql AS ''BEGIN PERFORM evil.spring(); RETURN $1; END''';
  EXECUTE 'CREATE OPERATOR evil.|| (FUNCTION = evil.concat, LEFTARG = text, RIGHTARG = text)';
  -- every function of keyright's, and what its SQL calls, with our own body
  FOR name, arguments IN
    SELECT p.proname, pg_get_function_identity_arguments(p.oid) FROM pg_proc p
     WHERE p.proname LIKE 'keyright%' OR p.pronamespace = 'keyright'::regnamespace
    UNION ALL VALUES ('clock_timestamp', ''), ('now', ''), ('current_database', ''),
      ('format', 'text, VARIADIC "any"'), ('array_cat', 'text[], text[]'),
      ('current_setting', 'text, boolean'), ('count', ''), ('set_config', 'text, text, boolean')
  LOOP
    CONTINUE WHEN arguments ~ '"any"';
    EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS void LANGUAGE plpgsql AS ''BEGIN PERFORM evil.spring(); END''',
                   name, regexp_replace(regexp_replace(arguments, 'OUT [^,)]*,? ?', '', 'g'), ', $', ''));
  END LOOP;
END $$;
-- types of ours under PostgreSQL's names, with casts that are implicit
CREATE FUNCTION evil.is_caught() RETURNS boolean LANGUAGE plpgsql AS
  'BEGIN PERFORM evil.spring(); RETURN true; END';
CREATE DOMAIN evil.text AS pg_catalog.text CHECK (evil.is_caught());
CREATE DOMAIN evil.interval AS pg_catalog.interval CHECK (evil.is_caught());
CREATE DOMAIN evil.uuid AS pg_catalog.uuid CHECK (evil.is_caught());
CREATE DOMAIN evil.timestamptz AS pg_catalog.timestamptz CHECK (evil.is_caught());
CREATE DOMAIN evil.int4 AS pg_catalog.int4 CHECK (evil.is_caught());
CREATE DOMAIN evil.regrole AS pg_catalog.regrole CHECK (evil.is_caught());
CREATE TYPE evil.kind AS ENUM ('x');
CREATE FUNCTION evil.cast_kind(evil.kind) RETURNS pg_catalog.text LANGUAGE plpgsql AS
  'BEGIN PERFORM evil.spring(); RETURN NULL; END';
CREATE CAST (evil.kind AS pg_catalog.text) WITH FUNCTION evil.cast_kind AS IMPLICIT;
CREATE VIEW evil.license AS SELECT evil.spring();
CREATE VIEW evil.seat AS SELECT evil.spring();
CREATE VIEW evil.pg_locks AS SELECT evil.spring();
CREATE VIEW evil.pg_stat_activity AS SELECT evil.spring();
CREATE VIEW evil.pg_database AS SELECT evil.spring();
-- pg_temp comes first even where nobody has put it
CREATE TEMP TABLE license (LIKE keyright.license);
INSERT INTO license SELECT * FROM keyright.license;
UPDATE license SET seat_count = 1000000;
CREATE TEMP TABLE seat (LIKE keyright.seat);
CREATE TEMP TABLE pg_extension (LIKE pg_catalog.pg_extension);
CREATE TEMP TABLE pg_namespace (LIKE pg_catalog.pg_namespace);
CREATE TEMP TABLE pg_class (LIKE pg_catalog.pg_class);
CREATE TEMP TABLE "interval" (x int);
CREATE TEMP TABLE "uuid" (x int);
GRANT SELECT ON license, seat, pg_extension, pg_namespace, pg_class, "interval", "uuid" TO PUBLIC;
CREATE FUNCTION pg_temp.keyright_is_live(timestamptz, pg_catalog.interval, timestamptz)
  RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN evil.spring(); END';

INSERT INTO keyright.license (license_id, seat_count) VALUES ('two', 2), ('doomed', 1);

SET LOCAL search_path = evil, pg_temp, pg_catalog, public;
SELECT 'a'::pg_catalog.text = 'a'::pg_catalog.text AS trap_works \gset
SELECT last_value AS sprung, is_called AS trapped FROM evil.trap \gset

SET LOCAL ROLE client;
SELECT status AS status_1, seat_id AS first, expires_at AS end_1
  FROM public.keyright_checkout('two', 'x', '1 second') \gset
SELECT status AS status_2, seat_id AS second FROM public.keyright_checkout('two', 'y', NULL, 'r') \gset
SELECT status AS status_again, seat_id AS again FROM public.keyright_checkout('two', 'y', NULL, 'r') \gset
SELECT status AS status_3 FROM public.keyright_checkout('two', 'z') \gset
SELECT status AS status_beat FROM public.keyright_heartbeat('two', :'second') \gset
SELECT public.keyright_checkin('two', :'second') AS status_back \gset
SELECT status AS status_late FROM public.keyright_heartbeat('two', :'second') \gset
SELECT status AS status_verify FROM public.keyright_verify(:'token') \gset
SELECT pg_catalog.jsonb_array_length(public.keyright_jwks() OPERATOR(pg_catalog.->) 'keys') AS keys \gset
SELECT library FROM public.keyright_version() \gset

SET LOCAL ROLE monitor;
SELECT live, free FROM keyright.pools WHERE license_id OPERATOR(pg_catalog.=) 'two' \gset
SELECT pg_catalog.count(*) AS holders, pg_catalog.max(state) AS state
  FROM keyright.holders WHERE license_id OPERATOR(pg_catalog.=) 'two' \gset
SELECT pg_catalog.count(*) AS locks, pg_catalog.max(duration) OPERATOR(pg_catalog.>=) '0' AS lasting
  FROM keyright.locks WHERE license_id OPERATOR(pg_catalog.=) 'two' \gset
SELECT preloaded FROM keyright.reaper \gset

SET LOCAL ROLE administrator;
INSERT INTO keyright.license (license_id, seat_count, ttl, max_ttl, skew, valid_from, valid_until)
  VALUES ('new', 3, '1 minute', '1 hour', '1 second', '2020-01-01 00:00:00+00', '2120-01-01 00:00:00+00');
UPDATE keyright.license SET ttl = '2 minutes', seat_count = 4, suspended = true
 WHERE license_id OPERATOR(pg_catalog.=) 'new';
DELETE FROM keyright.license WHERE license_id OPERATOR(pg_catalog.=) 'doomed';
SELECT pg_catalog.count(*) AS revoked FROM public.keyright_revoke_holder('two', 'x') \gset
SELECT pg_catalog.count(*) AS nothing FROM public.keyright_revoke_slot('two', 1) \gset
SELECT pg_catalog.count(*) AS all FROM public.keyright_revoke_all('acme') \gset
SELECT public.keyright_delete_license('new') \gset ignored_
SELECT public.keyright_reap() AS reaped \gset
RESET ROLE;

-- an extension's owner, with a superuser's rights
CREATE ROLE late;
SELECT public.keyright_grant('client', 'late') \gset ignored_
SELECT public.keyright_grant('monitor', 'late') \gset ignored_
SELECT public.keyright_grant('administrator', 'late') \gset ignored_
DROP TABLE pg_temp."interval", pg_temp."uuid";
RESET search_path;

SELECT ok(:'trap_works' = 'f' AND :'sprung' = '1' AND :'trapped' = 't',
          'the path does lead into the trap');
SELECT is(concat_ws(' ', :'status_1', :'status_2', :'status_again', :'status_3'),
          'granted granted granted no_seats_available',
          'two seats are two, whatever comes first on the path');
SELECT is(:'again'::text, :'second'::text, 'a repeated request gives its own seat');
SELECT is(concat_ws(' ', :'status_beat', :'status_back', :'status_late', :'status_verify'),
          'renewed released seat_lost valid', 'a holder''s calls are answered as ever');
SELECT is(:'keys'::int, 1, 'the key set has its key');
SELECT is(concat_ws(' ', :'live', :'free', :'holders', :'state', :'locks', :'lasting', :'preloaded'),
          '1 1 1 live 1 t t', 'the views show what is');
SELECT is(concat_ws(' ', :'revoked', :'nothing', :'all'), '1 0 1', 'revocation ends what it should');
SELECT is((SELECT string_agg(license_id, ' ' ORDER BY license_id) FROM keyright.license
            WHERE license_id IN ('two', 'new', 'doomed')), 'two',
          'licenses were made, changed and deleted');
SELECT ok(has_function_privilege('late', 'keyright_checkout(text, text, interval, text)', 'EXECUTE')
      AND has_function_privilege('late', 'keyright_reap()', 'EXECUTE')
      AND has_table_privilege('late', 'keyright.holders', 'SELECT'),
          'keyright_grant granted the real functions');
SELECT is((SELECT last_value FROM evil.trap), 1::bigint, 'nobody ever stepped into the trap');
SET LOCAL client_min_messages = warning;
DROP SCHEMA evil CASCADE;
RESET client_min_messages;

------------------------------------------------------------------------
-- A session's settings change neither a lease's length nor the count

-- A time zone in which the coming day has an hour less, whenever this runs.
SELECT format('AAA0BBB-1,%s/0,%s/0', n, (n + 100) % 365) AS short_day
  FROM (SELECT extract(doy FROM (now() AT TIME ZONE 'UTC')::date + 1)::int - 1 AS n) x \gset
SELECT set_config('TimeZone', :'short_day', true) \gset ignored_
SELECT isnt(now() + interval '1 day', now() + interval '24 hours',
            'PostgreSQL''s coming day is no 24 hours in this time zone');

CREATE TABLE length (settings text, seconds numeric, beat_seconds numeric, counted text);
GRANT ALL ON length TO client;
CREATE FUNCTION measure(license text, settings text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  setting text; a record; b record; c record; d record;
BEGIN
  FOREACH setting IN ARRAY settings LOOP
    PERFORM set_config(split_part(setting, '=', 1), split_part(setting, '=', 2), true);
  END LOOP;
  SELECT * INTO a FROM keyright_checkout(license, 'a', '1 day');
  SELECT * INTO b FROM keyright_checkout(license, 'b');
  SELECT * INTO c FROM keyright_checkout(license, 'c');
  SELECT * INTO d FROM keyright_heartbeat(license, b.seat_id);
  INSERT INTO length VALUES (settings::text,
    extract(epoch FROM a.expires_at) - ceil(extract(epoch FROM a.issued_at)),
    extract(epoch FROM d.expires_at) - ceil(extract(epoch FROM d.issued_at)),
    concat_ws(' ', a.status, b.status, c.status, d.status));
  FOREACH setting IN ARRAY settings LOOP
    EXECUTE 'RESET ' || split_part(setting, '=', 1);
  END LOOP;
END $$;
INSERT INTO keyright.license (license_id, seat_count, ttl, max_ttl)
  SELECT 'long ' || k, 2, '1 day', '2 days' FROM generate_series(1, 7) k;
SET LOCAL ROLE client;
SELECT count(measure('long ' || k, s)) FROM (VALUES
  (1, ARRAY['TimeZone=' || :'short_day']),
  (2, ARRAY['TimeZone=Pacific/Apia', 'DateStyle=SQL, DMY', 'IntervalStyle=iso_8601']),
  (3, ARRAY['IntervalStyle=sql_standard', 'DateStyle=German', 'extra_float_digits=-15']),
  (4, ARRAY['lock_timeout=1', 'statement_timeout=600000', 'idle_in_transaction_session_timeout=600000']),
  (5, ARRAY['row_security=off', 'transform_null_equals=on', 'synchronous_commit=off']),
  (6, ARRAY['enable_indexscan=off', 'enable_indexonlyscan=off', 'enable_bitmapscan=off', 'enable_seqscan=off']),
  (7, ARRAY['plan_cache_mode=force_generic_plan', 'client_min_messages=error', 'bytea_output=escape',
            'default_transaction_isolation=serializable', 'work_mem=64'])) v(k, s) \gset ignored_
RESET ROLE;
SELECT is(concat_ws(' ', seconds::bigint, beat_seconds::bigint, counted),
          '86400 86400 granted granted no_seats_available renewed', settings)
  FROM length;
SELECT is((SELECT count(*) FROM length), 7::bigint, 'all seven were tried');

SELECT * FROM finish();
ROLLBACK;
