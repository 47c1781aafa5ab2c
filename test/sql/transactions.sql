-- The calls are parts of the caller's transaction, wherever it makes them:
-- what is rolled back has not been, what follows in it is seen, and a license
-- stays locked as long as something was written under its lock.
INSERT INTO keyright.license (license_id, seat_count) VALUES ('t', 2);
CREATE VIEW pg_temp.my_locks AS
  SELECT license_id, granted FROM keyright.locks WHERE pid = pg_backend_pid();
CREATE VIEW pg_temp.held AS
  SELECT holder FROM keyright.holders WHERE license_id = 't' ORDER BY holder;

-- rolled back
BEGIN;
SELECT status, slot FROM keyright_checkout('t', 'anna');
SELECT status, slot FROM keyright_checkout('t', 'bert');
SELECT status, slot FROM keyright_checkout('t', 'carl');
TABLE held;
ROLLBACK;
TABLE held;

-- savepoints: the lock goes with what was written under it, and not before
BEGIN;
SELECT status FROM keyright_checkout('t', 'anna');
SAVEPOINT a;
SELECT status FROM keyright_checkout('t', 'bert');
SELECT status FROM keyright_checkout('t', 'carl');
ROLLBACK TO a;
TABLE my_locks;
SELECT status FROM keyright_checkout('t', 'dora');
COMMIT;
TABLE held;
SELECT count(*) FROM keyright_revoke_all('t');
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT status FROM keyright_checkout('t', 'anna');
RELEASE b;
TABLE my_locks;
ROLLBACK TO a;
TABLE my_locks;
TABLE held;
SELECT status FROM keyright_checkout('t', 'bert');
RELEASE a;
TABLE my_locks;
COMMIT;
TABLE held;
TABLE my_locks;
SELECT count(*) FROM keyright_revoke_all('t');

-- a cursor: a FETCH that fails after a savepoint takes back its own, and the
-- lock stays for what the FETCH before it had written
BEGIN;
DECLARE c CURSOR FOR
  SELECT 1 / (2 - g) AS n, status FROM generate_series(1, 2) g, LATERAL keyright_checkout('t', 'row ' || g);
FETCH 1 FROM c;
TABLE my_locks;
SAVEPOINT s;
FETCH 1 FROM c;
ROLLBACK TO s;
TABLE my_locks;
TABLE held;
CLOSE c;
TABLE my_locks;
COMMIT;
TABLE held;
TABLE my_locks;
SELECT count(*) FROM keyright_revoke_all('t');
-- closed, the lock stays as well
BEGIN;
DECLARE c CURSOR FOR SELECT status FROM keyright_checkout('t', 'anna');
FETCH ALL FROM c;
CLOSE c;
TABLE my_locks;
COMMIT;
-- a cursor that outlives its transaction has been run to its end by then
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT status, holder FROM keyright_checkout('t', 'bert');
COMMIT;
TABLE held;
FETCH ALL FROM c;
CLOSE c;
SELECT count(*) FROM keyright_revoke_all('t');

-- blocks with an exception handler
DO $$
BEGIN
  BEGIN
    PERFORM keyright_checkout('t', 'anna');
    RAISE EXCEPTION 'no';
  EXCEPTION WHEN raise_exception THEN
    NULL;
  END;
  ASSERT (SELECT live FROM keyright.pools WHERE license_id = 't') = 0;
  PERFORM keyright_checkout('t', 'bert');
END;
$$;
TABLE held;

-- a procedure that commits between calls
CREATE PROCEDURE pg_temp.three() LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..3 LOOP
    RAISE NOTICE '%', (SELECT status FROM keyright_checkout('t', 'proc ' || i));
    COMMIT;
    ASSERT NOT EXISTS (TABLE my_locks);
  END LOOP;
END;
$$;
CALL pg_temp.three();
TABLE held;
SELECT count(*) FROM keyright_revoke_all('t');

-- in an SQL function, a CTE, a trigger
CREATE FUNCTION pg_temp.take(who text) RETURNS text LANGUAGE sql VOLATILE AS
  $$ SELECT status FROM keyright_checkout('t', who) $$;
SELECT pg_temp.take('anna');
WITH a AS MATERIALIZED (SELECT status FROM keyright_checkout('t', 'bert')),
     b AS MATERIALIZED (SELECT c.status FROM keyright_checkout('t', 'carl') c, a)
SELECT a.status, b.status FROM a, b;
TABLE held;
SELECT count(*) FROM keyright_revoke_all('t');
CREATE TABLE pg_temp.users (name text);
CREATE FUNCTION pg_temp.on_login() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (SELECT status FROM keyright_checkout('t', NEW.name)) <> 'granted' THEN
    RAISE EXCEPTION 'no seat for %', NEW.name;
  END IF;
  RETURN NEW;
END;
$$;
CREATE TRIGGER t BEFORE INSERT ON pg_temp.users FOR EACH ROW EXECUTE FUNCTION pg_temp.on_login();
\set VERBOSITY terse
INSERT INTO pg_temp.users VALUES ('anna'), ('bert'), ('carl');
\set VERBOSITY default
TABLE held;
INSERT INTO pg_temp.users VALUES ('anna'), ('bert');
TABLE held;
SELECT count(*) FROM keyright_revoke_all('t');

-- every isolation level, several calls in one transaction
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT status FROM keyright_checkout('t', 'anna');
SELECT status FROM keyright_checkout('t', 'bert');
SELECT status FROM keyright_checkout('t', 'carl');
SELECT keyright_checkin('t', seat_id) FROM keyright.seat WHERE holder = 'bert';
SELECT status FROM keyright_checkout('t', 'carl');
COMMIT;
TABLE held;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT keyright_checkin('t', seat_id) FROM keyright.seat WHERE holder = 'carl';
SELECT status FROM keyright_checkout('t', 'dora');
SELECT status FROM keyright_heartbeat('t', (SELECT seat_id FROM keyright.seat WHERE holder = 'dora'));
SELECT status FROM keyright_checkout('t', 'emil');
COMMIT;
TABLE held;

-- a prepared transaction would keep the license locked: refused
BEGIN;
SELECT status FROM keyright_checkout('t', 'emil');
PREPARE TRANSACTION 'p';
TABLE my_locks;
BEGIN;
SELECT keyright_checkin('t', seat_id) FROM keyright.seat WHERE holder = 'dora';
PREPARE TRANSACTION 'p';
BEGIN;
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '1 s' WHERE holder = 'dora';
SELECT status FROM keyright_heartbeat('t', (SELECT seat_id FROM keyright.seat WHERE holder = 'dora'));
PREPARE TRANSACTION 'p';
SELECT count(*) FROM pg_prepared_xacts;
TABLE held;

-- the caller's lock_timeout, search_path and snapshots come back as they were
SET lock_timeout = '7 s';
SET search_path = pg_temp;
SELECT status FROM public.keyright_checkout('t', 'emil');
SELECT public.keyright_checkin('nowhere', pg_catalog.gen_random_uuid());
SHOW lock_timeout;
SHOW search_path;
RESET lock_timeout;
RESET search_path;

-- things of the caller's with our names and operators change nothing
CREATE SCHEMA shadow;
CREATE FUNCTION shadow.always(integer, integer) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
CREATE OPERATOR shadow.= (leftarg = integer, rightarg = integer, function = shadow.always);
CREATE OPERATOR shadow.>= (leftarg = integer, rightarg = integer, function = shadow.always);
CREATE TABLE shadow.license (LIKE keyright.license);
CREATE TABLE shadow.seat (LIKE keyright.seat);
SET search_path = shadow, pg_catalog, public;
SELECT status FROM keyright_checkout('t', 'emil');
SELECT license_id, seats, live, free FROM keyright.pools;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA shadow CASCADE;
RESET client_min_messages;

SELECT keyright_delete_license('t', true);
