-- The promise: nobody can do, see or set more than what is listed here.
--
-- Every object of the extension is counted, with what each of the three levels
-- and PUBLIC may do with it, and every setting with who may change it.  The
-- lists are compared as a whole: what is new fails here until somebody has
-- thought about who may use it, and has written it down.

\set ECHO none
\set QUIET 1
\set ON_ERROR_STOP 1
\pset format unaligned
\pset tuples_only true
\pset pager off

BEGIN;
SELECT no_plan();

CREATE ROLE client;
CREATE ROLE monitor;
CREATE ROLE administrator;
CREATE ROLE nobody;
SELECT keyright_grant('client', 'client'),
       keyright_grant('monitor', 'monitor'),
       keyright_grant('administrator', 'administrator') \gset ignored_

-- What the extension is made of, under names that do not depend on the schema
-- that its functions were installed into.
CREATE TEMP VIEW member AS
  SELECT d.classid, d.objid, i.type,
         replace(replace(replace(i.identity, 'pg_catalog.', ''),
                         e.extnamespace::regnamespace || '.', ''),
                 'timestamp with time zone', 'timestamptz') AS name
    FROM pg_extension e
    JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass
                    AND d.refobjid = e.oid AND d.deptype = 'e',
         pg_identify_object(d.classid, d.objid, 0) i
   WHERE e.extname = 'keyright';

------------------------------------------------------------------------
-- What there is

SELECT bag_eq(
  'SELECT type, name FROM member',
  $$VALUES
    ('schema', 'keyright'),
    ('table', 'keyright.license'),
    ('table', 'keyright.seat'),
    ('sequence', 'keyright.license_id_seq'),
    ('view', 'keyright.holders'),
    ('view', 'keyright.locks'),
    ('view', 'keyright.pools'),
    ('view', 'keyright.reaper'),
    ('view', 'keyright.wraparound'),
    ('function', 'keyright_checkin(text,uuid)'),
    ('function', 'keyright_checkout(text,text,interval,text)'),
    ('function', 'keyright_delete_license(text,boolean)'),
    ('function', 'keyright_grant(text,regrole)'),
    ('function', 'keyright_heartbeat(text,uuid)'),
    ('function', 'keyright_heartbeat_many(text,uuid[])'),
    ('function', 'keyright_is_live(timestamptz,interval,timestamptz)'),
    ('function', 'keyright_jwks()'),
    ('function', 'keyright_reap()'),
    ('function', 'keyright_revoke(text,uuid)'),
    ('function', 'keyright_revoke_all(text)'),
    ('function', 'keyright_revoke_holder(text,text)'),
    ('function', 'keyright_revoke_slot(text,integer)'),
    ('function', 'keyright_verify(text,jsonb,timestamptz)'),
    ('function', 'keyright_version()'),
    ('function', 'keyright.interval_us(interval,text)'),
    ('function', 'keyright.is_claim_text(text)'),
    ('function', 'keyright.is_whole_second(timestamptz)'),
    ('function', 'keyright.lapses_at(timestamptz,interval)'),
    ('function', 'keyright.license_before_delete()'),
    ('function', 'keyright.license_before_truncate()'),
    ('function', 'keyright.license_before_update()'),
    ('function', 'keyright.license_locks()'),
    ('function', 'keyright.mark_database()'),
    ('function', 'keyright.reaper_status()')$$,
  'the extension has these members');

SELECT bag_eq(
  $$SELECT c.relname::text, c.relkind::text
      FROM pg_class c WHERE c.relnamespace = 'keyright'::regnamespace$$,
  $$VALUES
    ('license', 'r'), ('license_id_seq', 'S'),
    ('license_pkey', 'i'), ('license_license_id_key', 'i'),
    ('seat', 'r'), ('seat_pkey', 'i'), ('seat_request_id_key', 'i'),
    ('holders', 'v'), ('locks', 'v'), ('pools', 'v'), ('reaper', 'v'),
    ('wraparound', 'v')$$,
  'the schema keyright has these relations');

SELECT bag_eq(
  $$SELECT t.typname::text FROM pg_type t
     WHERE t.typnamespace = 'keyright'::regnamespace$$,
  $$VALUES ('license'), ('_license'), ('seat'), ('_seat'),
    ('holders'), ('_holders'), ('locks'), ('_locks'),
    ('pools'), ('_pools'), ('reaper'), ('_reaper'),
    ('wraparound'), ('_wraparound')$$,
  'the schema keyright has no types but those of its relations');

SELECT bag_eq(
  $$SELECT t.tgrelid::regclass::text, t.tgname::text, t.tgfoid::regproc::text,
           t.tgenabled::text
      FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
     WHERE c.relnamespace = 'keyright'::regnamespace$$,
  $$VALUES
    ('keyright.license', 'before_delete', 'keyright.license_before_delete', 'A'),
    ('keyright.license', 'before_truncate', 'keyright.license_before_truncate', 'A'),
    ('keyright.license', 'before_update', 'keyright.license_before_update', 'A')$$,
  'these triggers, in force on replicas too');

SELECT is_empty(
  $$SELECT m.name FROM member m WHERE m.type = 'function'
     AND (m.name LIKE 'keyright.%') <>
         ((SELECT p.pronamespace FROM pg_proc p WHERE p.oid = m.objid) =
          'keyright'::regnamespace)$$,
  'functions are in the schema keyright or in the extension''s own');

SELECT is_empty(
  $$SELECT polname FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
     WHERE c.relnamespace = 'keyright'::regnamespace
    UNION ALL
    SELECT relname FROM pg_class
     WHERE relnamespace = 'keyright'::regnamespace
       AND (relrowsecurity OR relforcerowsecurity)
    UNION ALL
    SELECT rulename FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
     WHERE c.relnamespace = 'keyright'::regnamespace AND c.relkind <> 'v'$$,
  'no rules and no row level security');

SELECT bag_eq(
  $$SELECT c.oid::regclass::text, cond
      FROM pg_extension e, unnest(e.extconfig, e.extcondition) AS x(rel, cond)
      JOIN pg_class c ON c.oid = x.rel WHERE e.extname = 'keyright'$$,
  $$VALUES ('keyright.license', ''), ('keyright.seat', ''),
           ('keyright.license_id_seq', '')$$,
  'a dump takes the rows of the tables and the state of the sequence along');

------------------------------------------------------------------------
-- Of what kind the functions are

SELECT bag_eq(
  $$SELECT m.name, l.lanname::text, p.provolatile::text, p.proparallel::text,
           p.proisstrict, p.prosecdef, p.proleakproof, p.proconfig
      FROM member m JOIN pg_proc p ON p.oid = m.objid
      JOIN pg_language l ON l.oid = p.prolang
     WHERE m.classid = 'pg_proc'::regclass$$,
  $$SELECT v.*, false, NULL::text[] FROM (VALUES
    -- language, volatility, parallel safety, strict, security definer
    ('keyright_checkin(text,uuid)',                            'c', 'v', 'u', false, false),
    ('keyright_checkout(text,text,interval,text)',             'c', 'v', 'u', false, false),
    ('keyright_delete_license(text,boolean)',                  'c', 'v', 'u', false, false),
    ('keyright_heartbeat(text,uuid)',                          'c', 'v', 'u', false, false),
    ('keyright_heartbeat_many(text,uuid[])',                   'c', 'v', 'u', false, false),
    ('keyright_is_live(timestamptz,interval,timestamptz)',     'c', 'i', 's', true,  false),
    ('keyright_jwks()',                                        'c', 'v', 'u', false, false),
    ('keyright_reap()',                                        'c', 'v', 'u', false, false),
    ('keyright_revoke(text,uuid)',                             'c', 'v', 'u', false, false),
    ('keyright_revoke_all(text)',                              'c', 'v', 'u', false, false),
    ('keyright_revoke_holder(text,text)',                      'c', 'v', 'u', false, false),
    ('keyright_revoke_slot(text,integer)',                     'c', 'v', 'u', false, false),
    ('keyright_verify(text,jsonb,timestamptz)',                'c', 'v', 'u', false, false),
    ('keyright_version()',                                     'c', 'v', 'u', false, false),
    ('keyright.interval_us(interval,text)',                    'c', 'i', 's', true,  false),
    ('keyright.is_claim_text(text)',                           'c', 'i', 's', true,  false),
    ('keyright.is_whole_second(timestamptz)',                  'c', 'i', 's', true,  false),
    ('keyright.lapses_at(timestamptz,interval)',               'c', 'i', 's', true,  false),
    ('keyright.license_before_delete()',                       'c', 'v', 'u', false, false),
    ('keyright.license_before_truncate()',                     'c', 'v', 'u', false, false),
    ('keyright.license_before_update()',                       'c', 'v', 'u', false, false),
    ('keyright.license_locks()',                               'sql', 'v', 'u', false, true),
    ('keyright.mark_database()',                               'c', 'v', 'u', false, false),
    ('keyright.reaper_status()',                               'c', 'v', 'u', false, false)
  ) v
  UNION ALL
  -- an administrator's helper, not called often: it can afford a path
  SELECT 'keyright_grant(text,regrole)', 'plpgsql', 'v', 'u', false, false,
         false, ARRAY['search_path=pg_catalog, pg_temp']$$,
  'functions are of these kinds; one runs with the rights of its owner');

------------------------------------------------------------------------
-- Who may do what

-- Rights of others than the owner, a grant option with a star.
CREATE TEMP VIEW granted AS
  WITH acl AS (
    SELECT m.type, m.name, p.proowner AS owner,
           coalesce(p.proacl, acldefault('f', p.proowner)) AS acl
      FROM member m JOIN pg_proc p
        ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
    UNION ALL
    SELECT m.type, m.name, c.relowner,
           coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's'
                                         ELSE 'r' END::"char", c.relowner))
      FROM member m JOIN pg_class c
        ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
    UNION ALL
    SELECT m.type, m.name || '.' || a.attname, c.relowner, a.attacl
      FROM member m JOIN pg_class c
        ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attacl IS NOT NULL
    UNION ALL
    SELECT m.type, m.name, n.nspowner,
           coalesce(n.nspacl, acldefault('n', n.nspowner))
      FROM member m JOIN pg_namespace n
        ON m.classid = 'pg_namespace'::regclass AND n.oid = m.objid
  )
  SELECT a.type, a.name,
         CASE x.grantee WHEN 0 THEN 'PUBLIC'
         ELSE pg_get_userbyid(x.grantee)::text END AS who,
         string_agg(x.privilege_type || CASE WHEN x.is_grantable THEN '*'
                                        ELSE '' END, ' '
                    ORDER BY x.privilege_type) AS may
    FROM acl a, aclexplode(a.acl) x
   WHERE x.grantee <> a.owner
   GROUP BY a.type, a.name, x.grantee;

SELECT bag_eq(
  'SELECT type, name, who, may FROM granted',
  $$VALUES
    ('function', 'keyright_is_live(timestamptz,interval,timestamptz)', 'PUBLIC', 'EXECUTE'),
    ('function', 'keyright_verify(text,jsonb,timestamptz)', 'PUBLIC', 'EXECUTE'),

    ('function', 'keyright_checkout(text,text,interval,text)', 'client', 'EXECUTE'),
    ('function', 'keyright_heartbeat(text,uuid)', 'client', 'EXECUTE'),
    ('function', 'keyright_heartbeat_many(text,uuid[])', 'client', 'EXECUTE'),
    ('function', 'keyright_checkin(text,uuid)', 'client', 'EXECUTE'),
    ('function', 'keyright_jwks()', 'client', 'EXECUTE'),
    ('function', 'keyright_version()', 'client', 'EXECUTE'),

    ('function', 'keyright_version()', 'monitor', 'EXECUTE'),
    ('function', 'keyright.lapses_at(timestamptz,interval)', 'monitor', 'EXECUTE'),
    ('function', 'keyright.license_locks()', 'monitor', 'EXECUTE'),
    ('function', 'keyright.reaper_status()', 'monitor', 'EXECUTE'),
    ('schema', 'keyright', 'monitor', 'USAGE'),
    ('view', 'keyright.holders', 'monitor', 'SELECT'),
    ('view', 'keyright.locks', 'monitor', 'SELECT'),
    ('view', 'keyright.pools', 'monitor', 'SELECT'),
    ('view', 'keyright.reaper', 'monitor', 'SELECT'),
    ('view', 'keyright.wraparound', 'monitor', 'SELECT'),

    ('function', 'keyright_version()', 'administrator', 'EXECUTE'),
    ('function', 'keyright_revoke(text,uuid)', 'administrator', 'EXECUTE'),
    ('function', 'keyright_revoke_slot(text,integer)', 'administrator', 'EXECUTE'),
    ('function', 'keyright_revoke_holder(text,text)', 'administrator', 'EXECUTE'),
    ('function', 'keyright_revoke_all(text)', 'administrator', 'EXECUTE'),
    ('function', 'keyright_delete_license(text,boolean)', 'administrator', 'EXECUTE'),
    ('function', 'keyright_reap()', 'administrator', 'EXECUTE'),
    ('function', 'keyright.interval_us(interval,text)', 'administrator', 'EXECUTE'),
    ('function', 'keyright.is_whole_second(timestamptz)', 'administrator', 'EXECUTE'),
    ('function', 'keyright.is_claim_text(text)', 'administrator', 'EXECUTE'),
    ('function', 'keyright.lapses_at(timestamptz,interval)', 'administrator', 'EXECUTE'),
    ('function', 'keyright.license_locks()', 'administrator', 'EXECUTE'),
    ('function', 'keyright.reaper_status()', 'administrator', 'EXECUTE'),
    ('schema', 'keyright', 'administrator', 'USAGE'),
    ('table', 'keyright.license', 'administrator', 'DELETE INSERT SELECT UPDATE'),
    ('view', 'keyright.holders', 'administrator', 'SELECT'),
    ('view', 'keyright.locks', 'administrator', 'SELECT'),
    ('view', 'keyright.pools', 'administrator', 'SELECT'),
    ('view', 'keyright.reaper', 'administrator', 'SELECT'),
    ('view', 'keyright.wraparound', 'administrator', 'SELECT')$$,
  'the three levels and PUBLIC may do this, nobody may do more');

-- The same by PostgreSQL's own word, for roles without any grant.
SELECT bag_eq(
  $$SELECT m.name FROM member m WHERE m.type = 'function'
       AND has_function_privilege('nobody', m.objid, 'EXECUTE')$$,
  $$VALUES ('keyright_is_live(timestamptz,interval,timestamptz)'),
           ('keyright_verify(text,jsonb,timestamptz)')$$,
  'a role without a grant may call two functions');
SELECT is_empty(
  $$SELECT r.rolname, m.name, a.attname, p.privilege
      FROM pg_roles r, member m
      JOIN pg_attribute a ON a.attrelid = m.objid,
      unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) p(privilege)
     WHERE m.name = 'keyright.seat'
       AND r.rolname IN ('client', 'monitor', 'administrator', 'nobody')
       AND has_column_privilege(r.oid, m.objid, a.attnum, p.privilege)$$,
  'no level may read or write a column of keyright.seat');

SELECT is_empty(
  $$SELECT parname FROM pg_parameter_acl WHERE parname LIKE 'keyright%'$$,
  'no setting of keyright was granted to anybody');
SELECT is_empty(
  $$SELECT r.rolname, a.defaclobjtype FROM pg_default_acl a
      JOIN pg_roles r ON r.oid = a.defaclrole
     WHERE a.defaclnamespace = 'keyright'::regnamespace$$,
  'the extension leaves no default privileges behind');
SELECT is(
  (SELECT count(DISTINCT o.owner) FROM (
     SELECT p.proowner FROM member m JOIN pg_proc p
       ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
     UNION ALL
     SELECT c.relowner FROM pg_class c
      WHERE c.relnamespace = 'keyright'::regnamespace
     UNION ALL
     SELECT nspowner FROM pg_namespace WHERE nspname = 'keyright'
     UNION ALL
     SELECT extowner FROM pg_extension WHERE extname = 'keyright') o(owner)),
  1::bigint, 'one role owns all of it');

SELECT throws_ok($$SELECT keyright_grant('owner', 'client')$$, '22023', NULL,
  'keyright_grant knows three levels');
SELECT throws_ok($$SELECT keyright_grant(NULL, 'client')$$, '22004', NULL,
  'keyright_grant refuses no level');
SELECT throws_ok($$SELECT keyright_grant('client', NULL)$$, '22004', NULL,
  'and no role');
SELECT throws_ok($$SELECT keyright_grant('client', 'public')$$, '42704', NULL,
  'keyright_grant cannot grant to PUBLIC');

------------------------------------------------------------------------
-- What can be seen through the views and functions

SELECT bag_eq(
  $$SELECT c.relname::text, string_agg(a.attname, ' ' ORDER BY a.attnum)
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
     WHERE c.relnamespace = 'keyright'::regnamespace AND c.relkind = 'v'
       AND a.attnum > 0
     GROUP BY c.relname$$,
  $$VALUES
    ('holders', 'license_id slot holder since last_beat expires_at state'),
    ('locks', 'license_id pid granted since duration role application_name state'),
    ('pools', 'license_id seats live free lapsed retry_at suspended valid_from valid_until'),
    ('reaper', 'preloaded running pid reap_interval last_sweep last_reaped total_reaped last_error last_error_at'),
    ('wraparound', 'database transaction_ids_used freeze_max_age transaction_ids_limit warning')$$,
  'the views have these columns: no seat id, no request id');

SELECT bag_eq(
  $$SELECT m.name, array_to_string(p.proargnames[p.pronargs + 1:], ' ')
      FROM member m JOIN pg_proc p ON p.oid = m.objid
     WHERE m.classid = 'pg_proc'::regclass AND p.proargmodes IS NOT NULL$$,
  $$VALUES
    ('keyright_checkout(text,text,interval,text)', 'status reason license_id slot seat_id holder issued_at expires_at token seat_count retry_at'),
    ('keyright_heartbeat(text,uuid)', 'status reason license_id slot seat_id holder issued_at expires_at token seat_count retry_at'),
    ('keyright_heartbeat_many(text,uuid[])', 'status reason license_id slot seat_id holder issued_at expires_at token seat_count retry_at'),
    ('keyright_verify(text,jsonb,timestamptz)', 'status problem kid issuer license_id holder seat_id slot issued_at expires_at'),
    ('keyright_version()', 'library sql'),
    ('keyright_revoke(text,uuid)', 'license_id slot holder checked_out_at expires_at'),
    ('keyright_revoke_slot(text,integer)', 'license_id slot holder checked_out_at expires_at'),
    ('keyright_revoke_holder(text,text)', 'license_id slot holder checked_out_at expires_at'),
    ('keyright_revoke_all(text)', 'license_id slot holder checked_out_at expires_at'),
    ('keyright.license_locks()', 'license pid granted since role application_name state'),
    ('keyright.reaper_status()', 'preloaded running pid last_sweep last_reaped total_reaped last_error last_error_at')$$,
  'the functions answer with these columns: an administrator sees no seat id');

------------------------------------------------------------------------
-- Settings

SELECT bag_eq(
  $$SELECT name, context, vartype, unit, boot_val, min_val, max_val
      FROM pg_settings WHERE name LIKE 'keyright%'$$,
  $$VALUES
    ('keyright.issuer',           'sighup', 'string',  NULL, '',      NULL,  NULL),
    ('keyright.retired_keys',     'sighup', 'string',  NULL, '',      NULL,  NULL),
    ('keyright.signing_key_file', 'sighup', 'string',  NULL, '',      NULL,  NULL),
    ('keyright.lock_timeout',     'sighup', 'integer', 'ms', '2000',  '1',   '3600000'),
    ('keyright.max_lock_hold',    'sighup', 'integer', 'ms', '10000', '100', '3600000'),
    ('keyright.reap_interval',    'sighup', 'integer', 'ms', '30000', '10',  '86400000')$$,
  'these settings can be seen; none can be set by a session');

SELECT is(pg_settings_get_flags('keyright.signing_key'),
          ARRAY['NO_SHOW_ALL', 'NOT_IN_SAMPLE'],
          'keyright.signing_key exists and hides from SHOW ALL and pg_settings');
SELECT is(current_setting('keyright.signing_key'), '********',
          'keyright.signing_key shows a constant, set or not');
SELECT throws_ok('SET keyright.something_new = 1', '42602', NULL,
                 'the prefix is reserved: no other setting can be made up');

SET LOCAL ROLE nobody;
SELECT bag_eq(
  $$SELECT name FROM pg_settings WHERE name LIKE 'keyright%'$$,
  $$VALUES ('keyright.issuer'), ('keyright.retired_keys'),
           ('keyright.lock_timeout'), ('keyright.max_lock_hold'),
           ('keyright.reap_interval')$$,
  'the path of the key file is not for everybody');
SELECT throws_ok('SHOW keyright.signing_key', '42501', NULL,
                 'nobody is shown even the constant');
SELECT throws_ok('SHOW keyright.signing_key_file', '42501', NULL,
                 'nobody is shown the path of the key file');
SELECT throws_ok($$SELECT current_setting('keyright.signing_key', true)$$,
                 '42501', NULL, 'nor by current_setting');
RESET ROLE;

------------------------------------------------------------------------
-- Everything that a person can see says what it is

SELECT is_empty(
  $$SELECT m.type, m.name FROM member m
     WHERE coalesce(obj_description(m.objid, m.classid::regclass::name), '') = ''
    UNION ALL
    SELECT 'column', c.relname || '.' || a.attname
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
     WHERE c.relnamespace = 'keyright'::regnamespace
       AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
       AND coalesce(col_description(c.oid, a.attnum), '') = ''
    UNION ALL
    SELECT 'extension', extname FROM pg_extension
     WHERE extname = 'keyright'
       AND coalesce(obj_description(oid, 'pg_extension'), '') = ''
    UNION ALL
    SELECT 'setting', name FROM pg_settings
     WHERE name LIKE 'keyright%' AND coalesce(short_desc, '') = ''$$,
  'every member, column and setting has its comment');

------------------------------------------------------------------------
-- The function that runs with its owner's rights

-- Its body is parsed once, when it is created.  What it uses of others than
-- PostgreSQL would stand here as a dependency.
SELECT bag_eq(
  $$SELECT (pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid)).type,
           (pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid)).identity
      FROM pg_depend d
     WHERE d.classid = 'pg_proc'::regclass
       AND d.objid = 'keyright.license_locks()'::regprocedure
       AND (pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid)).identity
           NOT LIKE 'pg_catalog.%'$$,
  $$VALUES ('schema', 'keyright'), ('extension', 'keyright')$$,
  'license_locks() uses nothing but PostgreSQL''s own');
SELECT ok(
  (SELECT p.prosqlbody IS NOT NULL FROM pg_proc p
    WHERE p.oid = 'keyright.license_locks()'::regprocedure),
  'its body was parsed when it was created, not when it is called');

-- And by trial: everything it names stands first on its caller's path, in a
-- form that would give the caller away the owner's rights.
INSERT INTO keyright.license (license_id, seat_count) VALUES ('census', 1);
SELECT status AS granted FROM keyright_checkout('census', 'x') \gset
SELECT is(:'granted'::text, 'granted', 'a license is locked by this transaction');

GRANT CREATE ON SCHEMA public TO monitor;
CREATE SCHEMA trap AUTHORIZATION monitor;
SET LOCAL ROLE monitor;
CREATE FUNCTION trap.caught() RETURNS boolean LANGUAGE plpgsql AS
  $$BEGIN RAISE EXCEPTION 'caught as %', current_user; END$$;
CREATE VIEW trap.pg_locks AS
  SELECT 'advisory'::text AS locktype, 0::oid AS database, 27506::oid AS classid,
         1::oid AS objid, 3::int2 AS objsubid, 1 AS pid, true AS granted,
         now() AS waitstart WHERE trap.caught();
CREATE VIEW trap.pg_stat_activity AS
  SELECT 1 AS pid, now() AS xact_start, 'x'::name AS usename,
         'x' AS application_name, 'x' AS state WHERE trap.caught();
CREATE FUNCTION trap.current_database() RETURNS name LANGUAGE plpgsql AS
  $$BEGIN PERFORM trap.caught(); RETURN 'x'; END$$;
CREATE FUNCTION trap.equal(text, text) RETURNS boolean LANGUAGE plpgsql AS
  $$BEGIN RETURN trap.caught(); END$$;
CREATE FUNCTION trap.equal(oid, oid) RETURNS boolean LANGUAGE plpgsql AS
  $$BEGIN RETURN trap.caught(); END$$;
CREATE FUNCTION trap.equal(int4, int4) RETURNS boolean LANGUAGE plpgsql AS
  $$BEGIN RETURN trap.caught(); END$$;
CREATE FUNCTION trap.equal(int2, int2) RETURNS boolean LANGUAGE plpgsql AS
  $$BEGIN RETURN trap.caught(); END$$;
CREATE FUNCTION trap.equal(name, name) RETURNS boolean LANGUAGE plpgsql AS
  $$BEGIN RETURN trap.caught(); END$$;
CREATE OPERATOR trap.= (FUNCTION = trap.equal, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR trap.= (FUNCTION = trap.equal, LEFTARG = oid, RIGHTARG = oid);
CREATE OPERATOR trap.= (FUNCTION = trap.equal, LEFTARG = int4, RIGHTARG = int4);
CREATE OPERATOR trap.= (FUNCTION = trap.equal, LEFTARG = int2, RIGHTARG = int2);
CREATE OPERATOR trap.= (FUNCTION = trap.equal, LEFTARG = name, RIGHTARG = name);
CREATE DOMAIN trap.int8 AS pg_catalog.int8 CHECK (trap.caught());
SET LOCAL search_path = trap, pg_temp, pg_catalog;
SELECT pg_catalog.count(*) AS locks FROM keyright.license_locks() \gset
RESET search_path;
RESET ROLE;
SELECT is(:'locks'::text, '1', 'license_locks() finds the lock whatever the path');

SELECT * FROM finish();
ROLLBACK;
