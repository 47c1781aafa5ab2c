-- A seat is given back once, by who knows its seat id while the lease is live;
-- anything else is "not_held" and touches nobody.
INSERT INTO keyright.license (license_id, seat_count, reap_grace)
  VALUES ('back', 2, '1 day'), ('other', 2, '1 day');
CREATE FUNCTION pg_temp.age(id uuid, since interval) RETURNS void
LANGUAGE sql AS 'UPDATE keyright.seat SET expires_at = clock_timestamp() - since WHERE seat_id = id';

SELECT * FROM keyright_checkout('back', 'anna', request_id => 'secret') \gset a_
SELECT * FROM keyright_checkout('back', 'bert') \gset b_
SELECT keyright_checkin('back', :'a_seat_id');
SELECT keyright_checkin('back', :'a_seat_id');
-- nothing of it stays in the row
SELECT slot, num_nonnulls(s.*) AS columns_set, ended_reason
  FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
 WHERE license_id = 'back' ORDER BY slot;
SELECT live, free, lapsed FROM keyright.pools WHERE license_id = 'back';

-- repeated when another has the seat: he keeps it
SELECT * FROM keyright_checkout('back', 'carl') \gset c_
SELECT :'c_slot' AS slot, :'c_seat_id' <> :'a_seat_id' AS other_id;
SELECT keyright_checkin('back', :'a_seat_id');
SELECT status FROM keyright_heartbeat('back', :'c_seat_id');

-- at another license, at one that does not exist, with ids that are none
SELECT status FROM keyright_checkout('other', 'anna');
SELECT keyright_checkin('other', :'c_seat_id');
SELECT keyright_checkin('nowhere', :'c_seat_id');
SELECT keyright_checkin('back', '00000001-0000-8000-8000-000000000000');
SELECT keyright_checkin('back', '00000000-0000-0000-0000-000000000000');
SELECT keyright_checkin('back', 'ffffffff-ffff-ffff-ffff-ffffffffffff');
SELECT license_id, live FROM keyright.pools ORDER BY license_id;

-- within skew the seat is held; after it, it is not
UPDATE keyright.license SET skew = '1 hour' WHERE license_id = 'back';
SELECT pg_temp.age(:'c_seat_id', '59 minutes');
SELECT pg_temp.age(:'b_seat_id', '61 minutes');
SELECT keyright_checkin('back', :'c_seat_id');
SELECT keyright_checkin('back', :'b_seat_id');
SELECT status, reason FROM keyright_heartbeat('back', :'b_seat_id');

-- revoked: not held
SELECT * FROM keyright_checkout('back', 'dora') \gset d_
SELECT holder FROM keyright_revoke('back', :'d_seat_id');
SELECT keyright_checkin('back', :'d_seat_id');

-- giving back always works: suspended, before and after validity
SELECT seat_id AS s FROM keyright_checkout('back', 'eva') \gset
UPDATE keyright.license SET suspended = true WHERE license_id = 'back';
SELECT keyright_checkin('back', :'s');
UPDATE keyright.license SET suspended = false WHERE license_id = 'back';
SELECT seat_id AS s FROM keyright_checkout('back', 'eva') \gset
UPDATE keyright.license SET valid_until = '2001-01-01' WHERE license_id = 'back';
SELECT keyright_checkin('back', :'s');
UPDATE keyright.license SET valid_until = NULL WHERE license_id = 'back';
SELECT seat_id AS s FROM keyright_checkout('back', 'eva') \gset
UPDATE keyright.license SET valid_from = '2101-01-01' WHERE license_id = 'back';
SELECT keyright_checkin('back', :'s');
UPDATE keyright.license SET valid_from = NULL WHERE license_id = 'back';

-- the last seat, back and forth
INSERT INTO keyright.license (license_id, seat_count) VALUES ('one', 1);
DO $$
DECLARE
  c record;
BEGIN
  FOR i IN 1..100 LOOP
    SELECT * INTO STRICT c FROM keyright_checkout('one', 'holder ' || i);
    ASSERT c.status = 'granted' AND c.slot = 1;
    ASSERT (SELECT status FROM keyright_checkout('one', 'too many')) = 'no_seats_available';
    ASSERT keyright_checkin('one', c.seat_id) = 'released';
    ASSERT keyright_checkin('one', c.seat_id) = 'not_held';
  END LOOP;
END;
$$;
SELECT seats, live, free FROM keyright.pools WHERE license_id = 'one';

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
