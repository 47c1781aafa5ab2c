-- A license of N seats sells N at a time, never one more, and a seat that was
-- given back exactly once: counted for several N, in one statement and in a
-- transaction for each call.
CREATE VIEW pg_temp.sizes AS SELECT unnest(ARRAY[1, 2, 3, 10, 1000]) AS n;
INSERT INTO keyright.license (license_id, seat_count)
  SELECT 'checkout-' || n, n FROM sizes;

SELECT n, count(*) FILTER (WHERE c.status = 'granted') AS granted,
       count(*) FILTER (WHERE c.status = 'no_seats_available') AS refused,
       count(DISTINCT c.seat_id) AS seat_ids,
       count(DISTINCT c.slot) AS slots, min(c.slot), max(c.slot)
  FROM sizes, generate_series(1, n + 5) g,
       LATERAL keyright_checkout('checkout-' || n, 'holder ' || g) c
 GROUP BY n ORDER BY n;

-- one in the middle comes back: one more, and only one
SELECT n, keyright_checkin('checkout-' || n, s.seat_id)
  FROM sizes
  JOIN keyright.license l ON l.license_id = 'checkout-' || n
  JOIN keyright.seat s ON s.license = l.id AND s.slot = n / 2 + 1
 ORDER BY n;
SELECT n, count(*) FILTER (WHERE c.status = 'granted') AS granted,
       min(c.slot) AS slot
  FROM sizes, generate_series(1, 3) g,
       LATERAL keyright_checkout('checkout-' || n, 'again ' || g) c
 GROUP BY n ORDER BY n;
SELECT license_id, seats, live, free, lapsed
  FROM keyright.pools WHERE license_id LIKE 'checkout-%' ORDER BY seats;

-- a transaction for each call
INSERT INTO keyright.license (license_id, seat_count) VALUES ('calls', 3);
SELECT 'SELECT status, slot, holder, seat_count FROM keyright_checkout(''calls'', ''' || h || ''')'
  FROM unnest(ARRAY['anna', 'bert', 'carl', 'dora', 'emil']) h \gexec
SELECT seat_id FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
 WHERE license_id = 'calls' AND holder = 'bert' \gset
SELECT keyright_checkin('calls', :'seat_id');
SELECT 'SELECT status, slot, holder, seat_count FROM keyright_checkout(''calls'', ''' || h || ''')'
  FROM unnest(ARRAY['dora', 'emil']) h \gexec

-- what a grant says, and what a refusal says
INSERT INTO keyright.license (license_id, seat_count) VALUES ('shape', 1);
SELECT *, reason IS NULL AS no_reason, retry_at IS NULL AS no_retry_at
  FROM keyright_checkout('shape', 'anna') \gset g_
SELECT :'g_status' AS status, :'g_license_id' AS license_id, :'g_slot' AS slot,
       :'g_holder' AS holder, :'g_seat_count' AS seat_count,
       :'g_no_reason' AS no_reason, :'g_no_retry_at' AS no_retry_at,
       substr(:'g_seat_id', 15, 1) AS uuid_version,
       array_length(string_to_array(:'g_token', '.'), 1) AS token_parts;
-- it ends on a whole second, 60 to 61 seconds from its beginning
SELECT extract(second FROM :'g_expires_at'::timestamptz) % 1 = 0 AS whole,
       :'g_expires_at'::timestamptz - :'g_issued_at'::timestamptz
         BETWEEN '60 s' AND '61 s' AS as_long_as_ttl,
       :'g_issued_at'::timestamptz <= clock_timestamp() AS begun;
SELECT status, reason, license_id, slot, seat_id, holder, issued_at, expires_at,
       token, seat_count, retry_at > :'g_expires_at'::timestamptz + '5 s' AND
       retry_at < :'g_expires_at'::timestamptz + '6 s' AS retry_when_it_lapses
  FROM keyright_checkout('shape', 'bert');

-- no seats, nobody; no time at which there will be one
INSERT INTO keyright.license (license_id, seat_count) VALUES ('nothing', 0);
SELECT status, slot, seat_count, retry_at FROM keyright_checkout('nothing', 'anna');

-- a seat whose lease lapsed is sold at once, reaper or not; skew counts
INSERT INTO keyright.license (license_id, seat_count, skew, reap_grace)
  VALUES ('lapse', 2, '1 hour', '2 hours');
SELECT status, slot FROM keyright_checkout('lapse', 'anna');
SELECT status, slot FROM keyright_checkout('lapse', 'bert');
UPDATE keyright.seat s SET expires_at = clock_timestamp() - interval '59 minutes'
  FROM keyright.license l WHERE l.id = s.license AND l.license_id = 'lapse';
SELECT status FROM keyright_checkout('lapse', 'carl');
UPDATE keyright.seat s SET expires_at = clock_timestamp() - interval '61 minutes'
  FROM keyright.license l WHERE l.id = s.license AND l.license_id = 'lapse';
-- a refusal is remembered until the leases that it saw can end; they were
-- changed by hand, so it is to be forgotten
VACUUM FULL keyright.seat;
SELECT status, slot, holder
  FROM generate_series(1, 3) g, keyright_checkout('lapse', 'new ' || g)
 ORDER BY slot;

-- a license that is changed under live leases: each follows what its last
-- beat wrote, not the new ttl
INSERT INTO keyright.license (license_id, seat_count, ttl) VALUES ('policy', 1, '1 hour');
SELECT status FROM keyright_checkout('policy', 'anna');
UPDATE keyright.license SET ttl = '1 s', skew = '0' WHERE license_id = 'policy';
SELECT status FROM keyright_checkout('policy', 'bert');
SELECT state, expires_at - last_beat > '59 minutes' AS unchanged
  FROM keyright.holders WHERE license_id = 'policy';

-- a ttl of one's own: up to max_ttl, which is ttl where it is not set
INSERT INTO keyright.license (license_id, seat_count) VALUES ('short', 10);
INSERT INTO keyright.license (license_id, seat_count, max_ttl, skew, reap_grace)
  VALUES ('borrow', 10, '30 days', '1 hour', '2 hours');
SELECT status, expires_at - issued_at BETWEEN '10 s' AND '11 s' AS asked_for
  FROM keyright_checkout('short', 'anna', '10 s');
SELECT status, expires_at - issued_at BETWEEN '60 s' AND '61 s' AS asked_for
  FROM keyright_checkout('short', 'anna', '1 minute');
SELECT status FROM keyright_checkout('short', 'anna', '61 s');
SELECT status, extract(epoch FROM expires_at - issued_at)
               BETWEEN 30 * 86400 AND 30 * 86400 + 1 AS asked_for
  FROM keyright_checkout('borrow', 'anna', '30 days');
SELECT status, extract(epoch FROM expires_at - issued_at)
               BETWEEN 30 * 86400 AND 30 * 86400 + 1 AS asked_for
  FROM keyright_checkout('borrow', 'anna', '720 hours');
SELECT status FROM keyright_checkout('borrow', 'anna', '30 days 00:00:00.000001');
SELECT status, expires_at - issued_at BETWEEN '60 s' AND '61 s' AS license_ttl
  FROM keyright_checkout('borrow', 'anna');
SELECT status FROM keyright_checkout('borrow', 'anna', '1 month');
SELECT status FROM keyright_checkout('borrow', 'anna', '0.999999 s');
SELECT status FROM keyright_checkout('borrow', 'anna', '-1 day');
SELECT status FROM keyright_checkout('borrow', 'anna', '0');
SELECT status FROM keyright_checkout('borrow', 'anna', '1 s');
-- what was refused took no seat
SELECT license_id, live FROM keyright.pools
 WHERE license_id IN ('short', 'borrow') ORDER BY license_id;

-- a beat keeps the ttl that was asked for, up to what max_ttl is by then
SELECT * FROM keyright_checkout('borrow', 'long', '10 days') \gset
SELECT status, expires_at - issued_at > '9 days' AS borrowed
  FROM keyright_heartbeat('borrow', :'seat_id');
UPDATE keyright.license SET max_ttl = '20 days' WHERE license_id = 'borrow';
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '1 hour'
 WHERE seat_id = :'seat_id';
SELECT status, expires_at - issued_at > '9 days' AS borrowed
  FROM keyright_heartbeat('borrow', :'seat_id');
UPDATE keyright.license SET max_ttl = '2 days' WHERE license_id = 'borrow';
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '1 hour'
 WHERE seat_id = :'seat_id';
SELECT status, extract(epoch FROM expires_at - issued_at)
               BETWEEN 2 * 86400 AND 2 * 86400 + 1 AS capped
  FROM keyright_heartbeat('borrow', :'seat_id');

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
