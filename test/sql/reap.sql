-- A sweep by hand empties what lapsed more than reap_grace ago and nothing
-- else; the count was right before it and is the same after it.
-- Aging and sweeping share a transaction, so the background worker, which
-- does the same, cannot come first.
INSERT INTO keyright.license (license_id, seat_count, skew, reap_grace)
  VALUES ('a', 4, '1 minute', '1 hour'), ('b', 2, '0', '1 day');
SELECT count(*) FROM generate_series(1, 4) g, keyright_checkout('a', 'holder ' || g, request_id => 'r' || g);
SELECT count(*) FROM generate_series(1, 2) g, keyright_checkout('b', 'holder ' || g);
CREATE VIEW pg_temp.rows AS
  SELECT l.license_id, s.slot, s.holder, s.request_id, s.ended_reason, s.ended_seat_id IS NOT NULL AS ended
    FROM keyright.seat s JOIN keyright.license l ON l.id = s.license;

BEGIN;
-- live; ended but within skew; lapsed within the grace; beyond it
UPDATE keyright.seat s SET expires_at = clock_timestamp() -
       (ARRAY['-1 hour', '30 s', '59 minutes', '61 minutes']::interval[])[slot]
  FROM keyright.license l WHERE l.id = s.license AND license_id = 'a';
UPDATE keyright.seat s SET expires_at = clock_timestamp() - interval '23 hours'
  FROM keyright.license l WHERE l.id = s.license AND license_id = 'b';
SELECT license_id, live, free, lapsed FROM keyright.pools ORDER BY license_id;
SELECT keyright_reap();
SELECT license_id, live, free, lapsed FROM keyright.pools ORDER BY license_id;
TABLE rows ORDER BY 1, 2;
SELECT keyright_reap();
COMMIT;

-- the boundary is the license's, as it is now
BEGIN;
UPDATE keyright.license SET reap_grace = '50 minutes' WHERE license_id = 'a';
SELECT keyright_reap();
TABLE rows ORDER BY 1, 2;
COMMIT;

-- what was reaped is lost to its holder, and its request id is free
SELECT status, slot FROM keyright_checkout('a', 'other', request_id => 'r4');
-- two licenses at once; a suspended license and one that is over are swept too
BEGIN;
UPDATE keyright.license SET suspended = true WHERE license_id = 'a';
UPDATE keyright.license SET valid_until = '2001-01-01' WHERE license_id = 'b';
UPDATE keyright.seat SET expires_at = clock_timestamp() - interval '2 days' WHERE seat_id IS NOT NULL;
SELECT keyright_reap();
SELECT license_id, live, free, lapsed FROM keyright.pools ORDER BY license_id;
ROLLBACK;

-- rows above seat_count: kept while a lease is in them, gone when empty
BEGIN;
UPDATE keyright.license SET seat_count = 1, skew = '0', reap_grace = '1 s' WHERE license_id = 'a';
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '1 hour' WHERE holder = 'other';
SELECT keyright_reap();
TABLE rows ORDER BY 1, 2;
SELECT count(*) FROM keyright_revoke_holder('a', 'other');
SELECT keyright_reap();
TABLE rows ORDER BY 1, 2;
ROLLBACK;

-- a thousand at once
INSERT INTO keyright.license (license_id, seat_count) VALUES ('many', 2000);
SELECT count(*) FILTER (WHERE status = 'granted') FROM generate_series(1, 2000) g, keyright_checkout('many', 'h' || g);
BEGIN;
UPDATE keyright.seat s SET expires_at = clock_timestamp() - interval '1 minute'
  FROM keyright.license l WHERE l.id = s.license AND license_id = 'many' AND slot % 2 = 0;
SELECT keyright_reap();
SELECT live, free, lapsed FROM keyright.pools WHERE license_id = 'many';
COMMIT;
SELECT count(*) FILTER (WHERE status = 'granted') FROM generate_series(1, 1001) g, keyright_checkout('many', 'again ' || g);

-- rows of a license that is not there are left alone, and do no harm
INSERT INTO keyright.seat (license, slot, seat_id, holder, expires_at)
  VALUES (2147483647, 1, gen_random_uuid(), 'ghost', '2001-01-01');
SELECT keyright_reap();
DELETE FROM keyright.seat WHERE license = 2147483647;

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
