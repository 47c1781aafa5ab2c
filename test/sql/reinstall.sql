-- DROP EXTENSION and CREATE EXTENSION in one session, and in a transaction
-- that is rolled back, leave a library that works: nothing that a session
-- remembers of the old tables may be used for the new ones.
INSERT INTO keyright.license (license_id, seat_count) VALUES ('r', 2);
SELECT * FROM keyright_checkout('r', 'anna') \gset a_
SELECT status FROM keyright_heartbeat('r', :'a_seat_id');

-- dropped, and the drop rolled back: all is as it was
BEGIN;
DROP EXTENSION keyright;
SELECT to_regclass('keyright.license') IS NULL AS gone, to_regproc('keyright_checkout') IS NULL AS gone;
ROLLBACK;
SELECT status FROM keyright_heartbeat('r', :'a_seat_id');
SELECT status, slot FROM keyright_checkout('r', 'bert');
SELECT keyright_checkin('r', :'a_seat_id');

-- dropped and made again in a transaction that is rolled back
BEGIN;
DROP EXTENSION keyright;
CREATE EXTENSION keyright;
SELECT count(*) FROM keyright.license;
INSERT INTO keyright.license (license_id, seat_count) VALUES ('r', 1);
SELECT status, slot FROM keyright_checkout('r', 'carl');
SELECT status FROM keyright_checkout('r', 'dora');
SELECT seats, live FROM keyright.pools;
ROLLBACK;
SELECT license_id, slot, holder FROM keyright.holders;
SELECT status, slot FROM keyright_checkout('r', 'eva');
SELECT status FROM keyright_checkout('r', 'fred');

-- dropped in a savepoint
BEGIN;
SAVEPOINT s;
DROP EXTENSION keyright;
CREATE EXTENSION keyright;
SELECT count(*) FROM keyright.license;
ROLLBACK TO s;
SELECT status FROM keyright_checkout('r', 'fred');
COMMIT;

-- dropped for good and made again
DROP EXTENSION keyright;
SELECT nspname FROM pg_namespace WHERE nspname = 'keyright';
SELECT proname FROM pg_proc WHERE proname LIKE 'keyright%';
CREATE EXTENSION keyright;
SELECT library = sql AS fit FROM keyright_version();
SELECT status FROM keyright_checkout('r', 'anna');
INSERT INTO keyright.license (license_id, seat_count) VALUES ('r', 1);
SELECT * FROM keyright_checkout('r', 'anna') \gset b_
SELECT :'b_status' AS status, :'b_slot' AS slot;
SELECT status, reason FROM keyright_heartbeat('r', :'a_seat_id');
SELECT status FROM keyright_heartbeat('r', :'b_seat_id');
SELECT status FROM keyright_verify(:'b_token');
SELECT status FROM keyright_verify(:'a_token');
DELETE FROM keyright.license;
SELECT keyright_delete_license('r', true);

-- in a schema of its own
DROP EXTENSION keyright;
CREATE SCHEMA elsewhere;
CREATE EXTENSION keyright SCHEMA elsewhere;
INSERT INTO keyright.license (license_id, seat_count) VALUES ('r', 1);
SELECT status FROM elsewhere.keyright_checkout('r', 'anna');
SELECT live, free FROM keyright.pools;
SELECT holder, state FROM keyright.holders;
SELECT elsewhere.keyright_delete_license('r', true);
DROP EXTENSION keyright;
DROP SCHEMA elsewhere;

-- a schema keyright of somebody's own: the extension does not take it over,
-- and the library touches nothing in it
CREATE SCHEMA keyright;
CREATE EXTENSION keyright;
CREATE TABLE keyright.license (id int);
CREATE FUNCTION pg_temp.checkout(text, text, interval, text,
  OUT status text, OUT reason text, OUT license_id text, OUT slot integer, OUT seat_id uuid, OUT holder text,
  OUT issued_at timestamptz, OUT expires_at timestamptz, OUT token text, OUT seat_count integer, OUT retry_at timestamptz)
LANGUAGE c AS '$libdir/keyright', 'keyright_checkout';
SELECT status FROM pg_temp.checkout('r', 'anna', NULL, NULL);
\echo :SQLSTATE
DROP SCHEMA keyright CASCADE;
SELECT status FROM pg_temp.checkout('r', 'anna', NULL, NULL);
\echo :SQLSTATE
CREATE EXTENSION keyright;
INSERT INTO keyright.license (license_id, seat_count) VALUES ('r', 1);
SELECT status FROM pg_temp.checkout('r', 'anna', NULL, NULL);
SELECT keyright_delete_license('r', true);
