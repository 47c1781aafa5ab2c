-- A beat renews a live lease and does nothing else: it never makes a seat
-- live that is not, never changes the count, never shortens what was signed.
-- Leases are made old by a superuser's UPDATE, not by waiting.
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('beat', 3, '1 day');
CREATE FUNCTION pg_temp.age(id uuid, since interval) RETURNS void
LANGUAGE sql AS 'UPDATE keyright.seat SET expires_at = clock_timestamp() - since WHERE seat_id = id';
CREATE VIEW pg_temp.pool AS SELECT live, free, lapsed FROM keyright.pools WHERE license_id = 'beat';

SELECT * FROM keyright_checkout('beat', 'anna') \gset a_
SELECT * FROM keyright_checkout('beat', 'bert') \gset b_
TABLE pool;

-- renewed: the same lease, later, with a new token
SELECT pg_temp.age(:'a_seat_id', '-10 s');
SELECT * FROM keyright_heartbeat('beat', :'a_seat_id') \gset h_
SELECT :'h_status' AS status, :'h_license_id' AS license_id, :'h_slot' AS slot,
       :'h_holder' AS holder, :'h_seat_count' AS seat_count,
       :'h_seat_id' = :'a_seat_id' AS same_seat,
       :'h_issued_at'::timestamptz > :'a_issued_at'::timestamptz AS issued_later,
       :'h_expires_at'::timestamptz - :'h_issued_at'::timestamptz
         BETWEEN '60 s' AND '61 s' AS as_long_as_ttl,
       (keyright_verify(:'h_token')).status AS token;
SELECT expires_at = :'h_expires_at'::timestamptz AS stored,
       checked_out_at = :'a_issued_at'::timestamptz AS same_check_out
  FROM keyright.seat WHERE seat_id = :'a_seat_id';
SELECT reason IS NULL AS no_reason, retry_at IS NULL AS no_retry_at
  FROM keyright_heartbeat('beat', :'a_seat_id');
TABLE pool;

-- a second beat within the second has nothing to write
UPDATE keyright.seat SET expires_at = date_trunc('second', clock_timestamp()) + interval '1 day'
 WHERE seat_id = :'b_seat_id'
RETURNING xmin AS x, ctid AS c, expires_at AS e \gset
SELECT status, expires_at = :'e'::timestamptz AS not_shortened
  FROM keyright_heartbeat('beat', :'b_seat_id');
SELECT xmin = :'x' AND ctid = :'c' AS untouched
  FROM keyright.seat WHERE seat_id = :'b_seat_id';

-- ended, but within skew: renewed
UPDATE keyright.license SET skew = '1 hour' WHERE license_id = 'beat';
SELECT pg_temp.age(:'a_seat_id', '59 minutes');
SELECT status, expires_at > clock_timestamp() AS ahead
  FROM keyright_heartbeat('beat', :'a_seat_id');
TABLE pool;

-- after skew: lost, although nobody took the seat; asked again: still lost
SELECT pg_temp.age(:'a_seat_id', '61 minutes');
TABLE pool;
SELECT status, reason, license_id, slot, seat_id = :'a_seat_id' AS seat_asked_for, holder, issued_at,
       expires_at, token, seat_count, retry_at
  FROM keyright_heartbeat('beat', :'a_seat_id');
SELECT status, reason FROM keyright_heartbeat('beat', :'a_seat_id');
TABLE pool;

-- lost also when somebody took it, and he is left alone
SELECT c.status, c.slot, c.holder, c.seat_id = :'a_seat_id' AS same_id
  FROM generate_series(1, 2) g, keyright_checkout('beat', 'carl ' || g) c;
SELECT status, reason FROM keyright_heartbeat('beat', :'a_seat_id');
SELECT slot, holder, state FROM keyright.holders WHERE license_id = 'beat' ORDER BY slot;
TABLE pool;

-- revoked, given back, reaped, never had
SELECT seat_id AS c FROM keyright.seat WHERE holder = 'carl 1' \gset
SELECT slot, holder FROM keyright_revoke('beat', :'c');
SELECT status, reason FROM keyright_heartbeat('beat', :'c');
SELECT seat_id AS c FROM keyright.seat WHERE holder = 'carl 2' \gset
SELECT keyright_checkin('beat', :'c');
SELECT status, reason FROM keyright_heartbeat('beat', :'c');
BEGIN;
SELECT pg_temp.age(:'b_seat_id', '2 days');
SELECT keyright_reap();
SELECT status, reason FROM keyright_heartbeat('beat', :'b_seat_id');
COMMIT;
SELECT status, reason FROM keyright_heartbeat('beat', :'b_seat_id');
SELECT status, reason FROM keyright_heartbeat('beat', '00000001-0000-8000-8000-000000000000');
SELECT status, reason FROM keyright_heartbeat('beat', '00000000-0000-0000-0000-000000000000');
SELECT status, reason FROM keyright_heartbeat('beat', 'ffffffff-ffff-8fff-bfff-ffffffffffff');
SELECT status, reason FROM keyright_heartbeat('beat', 'ffffffff-ffff-ffff-ffff-ffffffffffff');
TABLE pool;

-- a seat id with one bit changed is nobody's
SELECT * FROM keyright_checkout('beat', 'dora') \gset d_
SELECT count(DISTINCT h.status) AS answers, min(h.reason) AS reason
  FROM generate_series(0, 127) bit,
       LATERAL (SELECT decode(replace(:'d_seat_id', '-', ''), 'hex') AS id) i,
       LATERAL (SELECT encode(set_bit(i.id, bit, 1 - get_bit(i.id, bit)), 'hex')::uuid AS id) j,
       LATERAL keyright_heartbeat('beat', j.id) h;
SELECT status FROM keyright_heartbeat('beat', :'d_seat_id');
-- and the right one is nobody's at another license
INSERT INTO keyright.license (license_id, seat_count) VALUES ('other', 3);
SELECT status FROM keyright_checkout('other', 'dora');
SELECT status, reason FROM keyright_heartbeat('other', :'d_seat_id');

-- ten in one transaction: the clock does not stand still, each is later
BEGIN;
DO $$
DECLARE
  mine uuid := (SELECT seat_id FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
                 WHERE holder = 'dora' AND license_id = 'beat');
  h record;
  last timestamptz := now();
  rising int := 0;
BEGIN
  FOR i IN 1..10 LOOP
    UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '1 s' WHERE seat_id = mine;
    SELECT * INTO h FROM keyright_heartbeat('beat', mine);
    IF h.issued_at > last AND h.expires_at > clock_timestamp() + interval '59 s' THEN
      rising := rising + 1;
    END IF;
    last := h.issued_at;
  END LOOP;
  RAISE NOTICE '% of 10 rising', rising;
END;
$$;
COMMIT;
-- the same with real time between them: until three ends were seen
BEGIN;
DO $$
DECLARE
  mine uuid := (SELECT seat_id FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
                 WHERE holder = 'dora' AND license_id = 'beat');
  ends timestamptz[] := ARRAY[]::timestamptz[];
  h record;
BEGIN
  WHILE cardinality(ends) < 3 LOOP
    SELECT * INTO h FROM keyright_heartbeat('beat', mine);
    IF cardinality(ends) = 0 OR h.expires_at > ends[cardinality(ends)] THEN
      ends := ends || h.expires_at;
    ELSIF h.expires_at < ends[cardinality(ends)] THEN
      RAISE EXCEPTION 'a beat shortened a lease';
    END IF;
    PERFORM pg_sleep(0.05);
  END LOOP;
  RAISE NOTICE 'at least a second later each: %', ends[3] - ends[1] >= interval '2 s';
END;
$$;
ROLLBACK;

-- a beat that is rolled back is as if it had not been
SELECT pg_temp.age(:'d_seat_id', '-30 s');
SELECT expires_at AS e FROM keyright.seat WHERE seat_id = :'d_seat_id' \gset
BEGIN;
SELECT status FROM keyright_heartbeat('beat', :'d_seat_id');
ROLLBACK;
SELECT expires_at = :'e'::timestamptz AS as_before FROM keyright.seat WHERE seat_id = :'d_seat_id';

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
