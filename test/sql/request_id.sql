-- A reply that was lost costs no second seat: the same request_id gives the
-- same live lease again, and nothing but that.
INSERT INTO keyright.license (license_id, seat_count, reap_grace)
  VALUES ('retry', 2, '1 day'), ('other', 2, '1 day');

SELECT * FROM keyright_checkout('retry', 'anna', request_id => 'secret-a') \gset a_
SELECT * FROM keyright_checkout('retry', 'anna', request_id => 'secret-a') \gset b_
SELECT :'b_status' AS status, :'b_slot' AS slot, :'b_holder' AS holder,
       :'b_seat_id' = :'a_seat_id' AS same_seat,
       :'b_issued_at'::timestamptz > :'a_issued_at'::timestamptz AS fresh,
       (keyright_verify(:'b_token')).status AS token;
-- many times in one transaction
SELECT count(*), count(DISTINCT seat_id) AS seats
  FROM generate_series(1, 10) g,
       LATERAL keyright_checkout('retry', 'anna' || left(g::text, 0), request_id => 'secret-a');
SELECT live, free FROM keyright.pools WHERE license_id = 'retry';

-- at a full pool too
SELECT status FROM keyright_checkout('retry', 'bert');
SELECT status FROM keyright_checkout('retry', 'carl');
SELECT status, seat_id = :'a_seat_id' AS same_seat
  FROM keyright_checkout('retry', 'anna', request_id => 'secret-a');
SELECT status FROM keyright_checkout('retry', 'carl', request_id => 'secret-c');

-- somebody else's: an error, and not a word about the seat
SELECT status FROM keyright_checkout('retry', 'mallory', request_id => 'secret-a');
\echo :SQLSTATE
-- but the same text at another license is another request
SELECT status, seat_id = :'a_seat_id' AS same_seat
  FROM keyright_checkout('other', 'mallory', request_id => 'secret-a');

-- it is a renewal: later, never shorter, with a ttl of its own
UPDATE keyright.license SET max_ttl = '1 hour' WHERE license_id = 'retry';
SELECT status, seat_id = :'a_seat_id' AS same_seat,
       expires_at - issued_at BETWEEN '1 hour' AND '1 hour 1 s' AS as_asked
  FROM keyright_checkout('retry', 'anna', '1 hour', 'secret-a');
SELECT status, expires_at - issued_at > '59 minutes' AS not_shortened
  FROM keyright_checkout('retry', 'anna', '1 s', 'secret-a');

-- within skew the lease is live
UPDATE keyright.seat SET expires_at = clock_timestamp() - interval '1 s'
 WHERE seat_id = :'a_seat_id';
UPDATE keyright.license SET skew = '1 hour' WHERE license_id = 'retry';
SELECT status, seat_id = :'a_seat_id' AS same_seat
  FROM keyright_checkout('retry', 'anna', request_id => 'secret-a');
UPDATE keyright.license SET skew = '5 s' WHERE license_id = 'retry';

-- lapsed, and nobody took the seat: an ordinary check-out, another seat id
UPDATE keyright.seat SET expires_at = clock_timestamp() - interval '10 s'
 WHERE seat_id = :'a_seat_id';
SELECT * FROM keyright_checkout('retry', 'anna', request_id => 'secret-a') \gset c_
SELECT :'c_status' AS status, :'c_slot' AS slot, :'c_seat_id' <> :'a_seat_id' AS other_seat;
SELECT status, reason FROM keyright_heartbeat('retry', :'a_seat_id');

-- lapsed, with the holder changed: no error, since nobody holds it
UPDATE keyright.seat SET expires_at = clock_timestamp() - interval '10 s'
 WHERE seat_id = :'c_seat_id';
SELECT status, holder FROM keyright_checkout('retry', 'anton', request_id => 'secret-a');

-- lapsed, and another took the seat: at a full pool it is refused
UPDATE keyright.seat SET expires_at = clock_timestamp() - interval '10 s'
 WHERE request_id = 'secret-a' AND holder = 'anton';
SELECT status, slot FROM keyright_checkout('retry', 'dora', request_id => 'secret-d');
SELECT status FROM keyright_checkout('retry', 'anton', request_id => 'secret-a');
-- ... and with a free seat it gets that one
UPDATE keyright.license SET seat_count = 3 WHERE license_id = 'retry';
SELECT status, slot FROM keyright_checkout('retry', 'anton', request_id => 'secret-a');
SELECT seats, live, free FROM keyright.pools WHERE license_id = 'retry';

-- lapsed above seat_count, where no seat may be taken: cleared, not stumbled over
UPDATE keyright.license SET seat_count = 2 WHERE license_id = 'retry';
UPDATE keyright.seat SET expires_at = clock_timestamp() - interval '10 s'
 WHERE request_id = 'secret-a' AND holder = 'anton';
SELECT status FROM keyright_checkout('retry', 'anton', request_id => 'secret-a');
SELECT count(*) FROM keyright_revoke_holder('retry', 'bert');
SELECT status, slot FROM keyright_checkout('retry', 'anton', request_id => 'secret-a');

-- given back or revoked: the id is free again
SELECT seat_id FROM keyright.seat WHERE request_id = 'secret-d' \gset
SELECT keyright_checkin('retry', :'seat_id');
SELECT status, seat_id <> :'seat_id' AS other_seat
  FROM keyright_checkout('retry', 'dora', request_id => 'secret-d');
SELECT count(*) FROM keyright_revoke_holder('retry', 'dora');
SELECT status FROM keyright_checkout('retry', 'eva', request_id => 'secret-d');

-- rolled back: as if it had not been
BEGIN;
SELECT count(*) FROM keyright_revoke_all('retry');
SELECT status, slot FROM keyright_checkout('retry', 'fred', request_id => 'secret-f');
ROLLBACK;
SELECT status FROM keyright_checkout('retry', 'fred', request_id => 'secret-f');

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
