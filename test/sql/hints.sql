-- A refusal is remembered in shared memory, so that the next one need not read
-- the pool again; never for longer than it is true. Here each event that makes
-- it untrue comes between two check-outs: one that is refused, and one that
-- must then be granted (or, where nothing has changed, refused again).
-- the reaper would withdraw what must be withdrawn by others
CREATE FUNCTION pg_temp.sell(pool text, seats int, ttl interval, skew interval DEFAULT '0') RETURNS void
LANGUAGE sql AS $$
  INSERT INTO keyright.license (license_id, seat_count, ttl, max_ttl, skew, reap_grace)
  VALUES (pool, seats, ttl, '1 hour', skew, '1 day')
$$;
CREATE FUNCTION pg_temp.take(pool text, who text DEFAULT 'new', ttl interval DEFAULT NULL) RETURNS text
LANGUAGE sql AS 'SELECT status FROM keyright_checkout(pool, who, ttl)';
-- all seats, and one more is asked for; this is one transaction, which may not
-- remember its refusal, so another is asked for after it
CREATE FUNCTION pg_temp.fill(pool text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. 1000 LOOP
    IF pg_temp.take(pool, 'h' || i) <> 'granted' THEN
      RETURN i - 1 || ' granted, then refused';
    END IF;
  END LOOP;
END $$;
CREATE FUNCTION pg_temp.seat(pool text, who text) RETURNS uuid LANGUAGE sql AS $$
  SELECT s.seat_id FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
   WHERE l.license_id = pool AND s.holder = who
$$;
CREATE FUNCTION pg_temp.until_live(pool text, most int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  now_live int;
BEGIN
  FOR i IN 1 .. 3000 LOOP
    SELECT live INTO now_live FROM keyright.pools WHERE license_id = pool;
    EXIT WHEN now_live <= most;
    PERFORM pg_sleep(0.02);
  END LOOP;
  RETURN now_live;
END $$;
SELECT pg_temp.sell('a', 3, '1 hour');

-- given back, revoked
SELECT pg_temp.fill('a');
SELECT pg_temp.take('a');
SELECT keyright_checkin('a', pg_temp.seat('a', 'h2'));
SELECT pg_temp.take('a', 'h2');
SELECT pg_temp.take('a');
SELECT holder FROM keyright_revoke('a', pg_temp.seat('a', 'h1'));
SELECT pg_temp.take('a', 'h1');
SELECT pg_temp.take('a');
SELECT count(*) FROM keyright_revoke_slot('a', 3);
SELECT pg_temp.take('a', 'h3');
SELECT pg_temp.take('a');
SELECT holder FROM keyright_revoke_holder('a', 'h1');
SELECT pg_temp.take('a', 'h1');
SELECT pg_temp.take('a');
SELECT count(*) FROM keyright_revoke_all('a');
SELECT pg_temp.fill('a');
SELECT pg_temp.take('a');
-- rolled back: full as before
BEGIN;
SELECT count(*) FROM keyright_revoke_all('a');
ROLLBACK;
SELECT pg_temp.take('a');
BEGIN;
SAVEPOINT s;
SELECT count(*) FROM keyright_revoke_slot('a', 3);
ROLLBACK TO s;
SELECT pg_temp.take('a');
COMMIT;
SELECT pg_temp.take('a');

-- refused because of what the same transaction had taken, and took back
SELECT count(*) FROM keyright_revoke_slot('a', 3);
BEGIN;
SELECT pg_temp.take('a');
SELECT pg_temp.take('a');
ROLLBACK;
SELECT pg_temp.take('a');
SELECT pg_temp.take('a');
SELECT count(*) FROM keyright_revoke_slot('a', 3);
BEGIN;
SAVEPOINT s;
SELECT pg_temp.take('a');
SELECT pg_temp.take('a');
ROLLBACK TO s;
SELECT pg_temp.take('a', 'h3');
SELECT pg_temp.take('a');
COMMIT;
SELECT pg_temp.take('a');

-- more seats, fewer, more
UPDATE keyright.license SET seat_count = 4 WHERE license_id = 'a';
SELECT pg_temp.take('a', 'h4');
SELECT pg_temp.take('a');
UPDATE keyright.license SET seat_count = 2 WHERE license_id = 'a';
SELECT pg_temp.take('a');
UPDATE keyright.license SET seat_count = 4 WHERE license_id = 'a';
SELECT pg_temp.take('a');
UPDATE keyright.license SET seat_count = 5 WHERE license_id = 'a';
SELECT pg_temp.take('a', 'h5');
SELECT pg_temp.take('a');
-- not committed: for who sees it
BEGIN;
UPDATE keyright.license SET seat_count = 6 WHERE license_id = 'a';
SELECT pg_temp.take('a');
SELECT pg_temp.take('a');
ROLLBACK;
SELECT pg_temp.take('a');

-- the table anew: read again, and as it was where it was rolled back
VACUUM FULL keyright.seat;
SELECT pg_temp.take('a');
BEGIN;
TRUNCATE keyright.seat;
SELECT pg_temp.take('a');
ROLLBACK;
SELECT pg_temp.take('a');
TRUNCATE keyright.seat;
SELECT pg_temp.fill('a');
SELECT pg_temp.take('a');

-- What follows is about time: all is prepared, then they lapse together.

-- the first of them to lapse counts
SELECT pg_temp.sell('first', 2, '1 hour');
SELECT pg_temp.take('first', 'h1');
SELECT pg_temp.take('first', 'h2', '3 s');
SELECT pg_temp.take('first');
-- shrunk below use: when few enough are live, not when all have lapsed
SELECT pg_temp.sell('shrunk', 3, '1 hour');
SELECT pg_temp.take('shrunk', 'h1', '3 s');
SELECT pg_temp.take('shrunk', 'h2', '3 s');
SELECT pg_temp.take('shrunk', 'h3');
UPDATE keyright.license SET seat_count = 2 WHERE license_id = 'shrunk';
SELECT pg_temp.take('shrunk');
-- a smaller skew
SELECT pg_temp.sell('skew', 1, '3 s', '1 hour');
SELECT pg_temp.fill('skew');
SELECT pg_temp.take('skew');
UPDATE keyright.license SET skew = '0' WHERE license_id = 'skew';
-- reaped or deleted after they lapsed; a larger skew later cannot revive them
SELECT pg_temp.sell('reaped', 1, '3 s'), pg_temp.sell('deleted', 1, '3 s');
SELECT pg_temp.fill('reaped');
SELECT pg_temp.take('reaped');
SELECT pg_temp.fill('deleted');
SELECT pg_temp.take('deleted');
-- shortened to an end of the license that did not last, by each way to renew
SELECT pg_temp.sell('beat', 1, '1 hour'), pg_temp.sell('batch', 1, '1 hour');
SELECT pg_temp.sell('again', 1, '1 hour');
SELECT pg_temp.fill('beat');
SELECT pg_temp.take('beat');
SELECT pg_temp.fill('batch');
SELECT pg_temp.take('batch');
SELECT status FROM keyright_checkout('again', 'h1', request_id => 'x');
SELECT pg_temp.take('again');
BEGIN;
UPDATE keyright.license SET valid_until = date_trunc('second', clock_timestamp()) + interval '6 s'
 WHERE license_id IN ('beat', 'batch', 'again');
SELECT status FROM keyright_heartbeat('beat', pg_temp.seat('beat', 'h1'));
SELECT status FROM keyright_heartbeat_many('batch', ARRAY[pg_temp.seat('batch', 'h1')]);
SELECT status FROM keyright_checkout('again', 'h1', request_id => 'x');
UPDATE keyright.license SET valid_until = NULL;
COMMIT;

SELECT pg_temp.until_live('first', 1), pg_temp.until_live('shrunk', 1), pg_temp.until_live('skew', 0),
       pg_temp.until_live('reaped', 0), pg_temp.until_live('deleted', 0), pg_temp.until_live('beat', 0),
       pg_temp.until_live('batch', 0), pg_temp.until_live('again', 0);
UPDATE keyright.license SET reap_grace = '0.001 s' WHERE license_id = 'reaped';
DO $$
BEGIN
  WHILE EXISTS (SELECT FROM keyright.holders WHERE license_id = 'reaped') LOOP
    PERFORM keyright_reap();
  END LOOP;
END $$;
UPDATE keyright.license SET skew = '1 hour', reap_grace = '2 hours' WHERE license_id = 'reaped';
SELECT id FROM keyright.license WHERE license_id = 'deleted' \gset
DELETE FROM keyright.license WHERE license_id = 'deleted';
INSERT INTO keyright.license (id, license_id, seat_count, skew, reap_grace)
  OVERRIDING SYSTEM VALUE VALUES (:id, 'deleted', 1, '1 hour', '2 hours');
SELECT l AS license, pg_temp.take(l), pg_temp.take(l, 'newer') AS another
  FROM unnest(ARRAY['first', 'shrunk', 'skew', 'reaped', 'deleted', 'beat', 'batch', 'again']) l;

-- What the functions do not know of: a seat that is changed by hand. The
-- refusal lasts as long as the leases that it saw would have, or until the
-- table is made anew.
SELECT pg_temp.fill('a');
SELECT pg_temp.take('a');
DELETE FROM keyright.seat s USING keyright.license l WHERE l.id = s.license AND l.license_id = 'a';
SELECT pg_temp.take('a');
VACUUM FULL keyright.seat;
SELECT pg_temp.fill('a');
SELECT pg_temp.take('a');

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
