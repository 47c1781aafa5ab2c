-- Seats are given out and renewed only while the license is valid and not
-- suspended, and no lease, nor its token, outlives the license.
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('v', 2, '1 day');
SELECT * FROM keyright_checkout('v', 'anna', request_id => 'secret') \gset a_

-- suspended
UPDATE keyright.license SET suspended = true WHERE license_id = 'v';
SELECT status FROM keyright_checkout('v', 'bert');
\echo :SQLSTATE
SELECT status FROM keyright_checkout('v', 'anna', request_id => 'secret');
\echo :SQLSTATE
SELECT status FROM keyright_heartbeat('v', :'a_seat_id');
\echo :SQLSTATE
-- said to anybody, whatever he holds
SELECT status FROM keyright_heartbeat('v', '00000001-0000-8000-8000-000000000000');
\echo :SQLSTATE
SELECT live, free, suspended FROM keyright.pools WHERE license_id = 'v';
-- lifted: the holder goes on with the same lease
UPDATE keyright.license SET suspended = false WHERE license_id = 'v';
SELECT status FROM keyright_heartbeat('v', :'a_seat_id');

-- not yet; the messages' times are in the session's time zone
SET timezone = 'UTC';
SET datestyle = 'ISO';
UPDATE keyright.license SET valid_from = '2100-01-01Z' WHERE license_id = 'v';
SELECT status FROM keyright_checkout('v', 'bert');
\echo :SQLSTATE
SELECT status FROM keyright_heartbeat('v', :'a_seat_id');
\echo :SQLSTATE
-- no longer
UPDATE keyright.license SET valid_from = NULL, valid_until = '2001-01-01Z' WHERE license_id = 'v';
SELECT status FROM keyright_checkout('v', 'bert');
\echo :SQLSTATE
SELECT status FROM keyright_heartbeat('v', :'a_seat_id');
\echo :SQLSTATE
RESET timezone;
RESET datestyle;
-- suspended comes first when several hold
UPDATE keyright.license SET suspended = true WHERE license_id = 'v';
SELECT status FROM keyright_checkout('v', 'bert');
\echo :SQLSTATE
UPDATE keyright.license SET suspended = false, valid_until = NULL WHERE license_id = 'v';

-- a lease ends with its license: row, token and verifier agree
INSERT INTO keyright.license (license_id, seat_count, ttl, valid_until)
  VALUES ('ending', 5, '1 hour', date_trunc('second', clock_timestamp()) + interval '10 minutes');
SELECT valid_until AS until FROM keyright.license WHERE license_id = 'ending' \gset
SELECT * FROM keyright_checkout('ending', 'anna', request_id => 'secret') \gset a_
SELECT :'a_status' AS status, :'a_expires_at'::timestamptz = :'until' AS ends_with_it;
SELECT status, expires_at = :'until' AS ends_with_it FROM keyright_heartbeat('ending', :'a_seat_id');
SELECT status, expires_at = :'until' AS ends_with_it
  FROM keyright_checkout('ending', 'anna', request_id => 'secret');
SELECT expires_at = :'until' AS ends_with_it,
       (keyright_verify(:'a_token', at => :'until'::timestamptz - interval '1 us')).status AS before,
       (keyright_verify(:'a_token', at => :'until')).status AS after
  FROM keyright_verify(:'a_token');
-- prolonged: the next beat follows
UPDATE keyright.license SET valid_until = NULL WHERE license_id = 'ending';
SELECT status, expires_at - issued_at BETWEEN '1 hour' AND '1 hour 1 s' AS full_ttl
  FROM keyright_heartbeat('ending', :'a_seat_id');
-- shortened under a live lease: the next beat follows that too, although it
-- shortens what was signed
UPDATE keyright.license SET valid_until = :'until' WHERE license_id = 'ending';
SELECT status, expires_at = :'until' AS ends_with_it FROM keyright_heartbeat('ending', :'a_seat_id');

-- the instant itself is still valid, what comes after is not: until then the
-- call succeeds and after that it says KR004, never anything else
UPDATE keyright.license SET skew = '0', ttl = '1 s',
       valid_until = date_trunc('second', clock_timestamp()) + interval '2 s'
 WHERE license_id = 'ending';
DO $$
DECLARE
  until timestamptz := (SELECT valid_until FROM keyright.license WHERE license_id = 'ending');
  wrong int := 0;
  state text;
  started timestamptz;
BEGIN
  LOOP
    started := clock_timestamp();
    BEGIN
      PERFORM FROM keyright_checkout('ending', 'poll', request_id => 'poll');
      state := 'ok';
    EXCEPTION WHEN OTHERS THEN
      state := SQLSTATE;
    END;
    -- a call that spans the end may give either answer
    IF (clock_timestamp() <= until AND state <> 'ok') OR
       (started > until AND state <> 'KR004') THEN
      wrong := wrong + 1;
    END IF;
    EXIT WHEN started > until;
    PERFORM pg_sleep(0.02);
  END LOOP;
  RAISE NOTICE 'wrong answers: %', wrong;
END;
$$;
-- what was given out since then has ended with it; one seat was signed for
-- before the license was shortened, and counts until the end of its token
SELECT holder, state, expires_at = :'until' AS as_signed FROM keyright.holders
 WHERE license_id = 'ending' ORDER BY holder;

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
