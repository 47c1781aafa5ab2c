-- A license that shrinks below its use throws nobody out and sells nothing
-- until fewer are live than it has seats; free is never negative.
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('s', 10, '1 day');
CREATE VIEW pg_temp.pool AS
  SELECT seats, live, free, retry_at IS NOT NULL AS retry FROM keyright.pools WHERE license_id = 's';
CREATE FUNCTION pg_temp.back(who text) RETURNS text LANGUAGE sql AS
  $$ SELECT keyright_checkin('s', seat_id) FROM keyright.seat WHERE holder = who $$;
CREATE FUNCTION pg_temp.beat(who text) RETURNS text LANGUAGE sql AS
  $$ SELECT status FROM keyright_heartbeat('s', (SELECT seat_id FROM keyright.seat WHERE holder = who)) $$;

SELECT count(*) FILTER (WHERE status = 'granted')
  FROM generate_series(1, 8) g, keyright_checkout('s', 'h' || g);
UPDATE keyright.license SET seat_count = 3 WHERE license_id = 's';
TABLE pool;
SELECT status, seat_count, retry_at > clock_timestamp() AS retry FROM keyright_checkout('s', 'new');
-- the holders go on, above and below the new count
SELECT g, pg_temp.beat('h' || g) FROM generate_series(1, 8) g ORDER BY g;
-- at 7, 6, 5, 4, 3 live, nothing new
DO $$
BEGIN
  FOR g IN 1..5 LOOP
    ASSERT (SELECT keyright_checkin('s', seat_id) FROM keyright.seat WHERE holder = 'h' || g) = 'released';
    ASSERT (SELECT status FROM keyright_checkout('s', 'new')) = 'no_seats_available', g;
    ASSERT (SELECT free FROM keyright.pools WHERE license_id = 's') = 0;
  END LOOP;
END;
$$;
TABLE pool;
SELECT slot, holder FROM keyright.holders WHERE license_id = 's' ORDER BY slot;
-- at 2 live: one, and no more
SELECT pg_temp.back('h6');
TABLE pool;
SELECT status, slot <= 3 AS within FROM keyright_checkout('s', 'new');
SELECT status, slot FROM keyright_checkout('s', 'newer');
TABLE pool;

-- when the seats above lapse, their places are sold again, not more
UPDATE keyright.seat SET expires_at = clock_timestamp() - interval '10 s' WHERE holder = 'h7';
-- by hand: the refusal before is to be forgotten
VACUUM FULL keyright.seat;
TABLE pool;
SELECT count(*) FILTER (WHERE status = 'granted')
  FROM generate_series(1, 5) g, keyright_checkout('s', 'newer ' || g);
TABLE pool;
SELECT pg_temp.beat('h7'), pg_temp.beat('h8');

-- to zero, and grown again: exactly what is missing can be had
UPDATE keyright.license SET seat_count = 0 WHERE license_id = 's';
TABLE pool;
SELECT status, retry_at FROM keyright_checkout('s', 'nobody');
SELECT pg_temp.beat('h8');
UPDATE keyright.license SET seat_count = 10 WHERE license_id = 's';
TABLE pool;
SELECT count(*) FILTER (WHERE status = 'granted') AS granted, count(DISTINCT slot) AS slots
  FROM generate_series(1, 12) g, keyright_checkout('s', 'grown ' || g);
TABLE pool;

-- the time to try again is when enough of them can have lapsed
UPDATE keyright.license SET seat_count = 2 WHERE license_id = 's';
UPDATE keyright.seat SET expires_at = '2100-01-01 00:00:00Z'::timestamptz + slot * interval '1 day';
VACUUM FULL keyright.seat;
SET timezone = 'UTC';
SET datestyle = 'ISO';
SELECT status, retry_at FROM keyright_checkout('s', 'new');
SELECT live, free, retry_at FROM keyright.pools WHERE license_id = 's';
RESET timezone;
RESET datestyle;

-- the reaper takes away the empty rows above, and only those
SELECT count(*) FROM keyright_revoke_slot('s', 9);
SELECT keyright_reap();
SELECT count(*) AS rows, max(slot), count(seat_id) AS leases
  FROM keyright.seat s JOIN keyright.license l ON l.id = s.license WHERE license_id = 's';

-- a big license, whose free seats are sought at random
INSERT INTO keyright.license (license_id, seat_count) VALUES ('big', 500);
SELECT count(*) FILTER (WHERE status = 'granted')
  FROM generate_series(1, 501) g, keyright_checkout('big', 'h' || g);
UPDATE keyright.license SET seat_count = 300 WHERE license_id = 'big';
SELECT count(r.slot) FROM generate_series(1, 201) g, LATERAL keyright_revoke_slot('big', g) r;
SELECT live FROM keyright.pools WHERE license_id = 'big';
SELECT count(*) FILTER (WHERE status = 'granted') AS granted, max(slot) <= 300 AS within
  FROM generate_series(1, 5) g, keyright_checkout('big', 'new ' || g);
SELECT live, free FROM keyright.pools WHERE license_id = 'big';

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
