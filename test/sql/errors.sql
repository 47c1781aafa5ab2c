-- Every error that a caller can meet has an SQLSTATE of its own and says what
-- to do; none of them quotes a seat id, a request id, a key or a token.
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('e', 2, '1 day'), ('f', 2, '1 day');
SELECT * FROM keyright_checkout('e', 'anna', request_id => 'secret-request') \gset a_

-- runs a call and shows its error; an error must not quote what is secret
CREATE FUNCTION pg_temp.try(call text, VARIADIC secrets text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  d text; h text; c text; all_of_it text;
BEGIN
  EXECUTE call;
  RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT, c = PG_EXCEPTION_CONTEXT;
  all_of_it := concat_ws(' ', SQLERRM, d, h);
  FOR i IN 1..cardinality(secrets) LOOP
    IF position(secrets[i] IN all_of_it) > 0 THEN
      RETURN 'the error quotes a secret';
    END IF;
  END LOOP;
  RETURN concat(SQLSTATE, ' ', SQLERRM, E'\n  ' || nullif(d, ''), E'\n  ' || nullif(h, ''));
END;
$$;
CREATE FUNCTION pg_temp.tell(call text) RETURNS text LANGUAGE sql AS $$
  SELECT pg_temp.try(call, VARIADIC array_agg(x)) FROM (
    SELECT seat_id::text FROM keyright.seat WHERE seat_id IS NOT NULL UNION ALL
    SELECT request_id FROM keyright.seat WHERE request_id IS NOT NULL) s(x)
$$;
\pset format unaligned
\pset tuples_only on
SET timezone = 'UTC';
SET datestyle = 'ISO';

-- NULL arguments
SELECT pg_temp.tell($$SELECT keyright_checkout(NULL, 'anna')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', NULL)$$);
SELECT pg_temp.tell($$SELECT keyright_heartbeat(NULL, gen_random_uuid())$$);
SELECT pg_temp.tell($$SELECT keyright_heartbeat('e', NULL)$$);
SELECT pg_temp.tell($$SELECT keyright_checkin(NULL, gen_random_uuid())$$);
SELECT pg_temp.tell($$SELECT keyright_checkin('e', NULL)$$);
SELECT pg_temp.tell($$SELECT keyright_revoke(NULL, gen_random_uuid())$$);
SELECT pg_temp.tell($$SELECT keyright_revoke('e', NULL)$$);
SELECT pg_temp.tell($$SELECT keyright_revoke_slot('e', NULL)$$);
SELECT pg_temp.tell($$SELECT keyright_revoke_holder('e', NULL)$$);
SELECT pg_temp.tell($$SELECT keyright_revoke_all(NULL)$$);
SELECT pg_temp.tell($$SELECT keyright_delete_license(NULL)$$);

-- texts that cannot stand in a token
SELECT pg_temp.tell($$SELECT keyright_checkout('', 'anna')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', '')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', E'an\nna')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', E'an\x7fna')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', repeat('x', 256))$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', repeat('x', 1000000))$$);
SELECT pg_temp.tell($$SELECT keyright_checkout(repeat('x', 256), 'anna')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', 'anna', request_id => '')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', 'anna', request_id => repeat('x', 256))$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', 'anna', request_id => E'a\tb')$$);
SELECT pg_temp.tell($$SELECT keyright_heartbeat('', gen_random_uuid())$$);
SELECT pg_temp.tell($$SELECT keyright_checkin(repeat('x', 256), gen_random_uuid())$$);

-- lengths of time
SELECT pg_temp.tell($$SELECT keyright_checkout('e', 'anna', '1 month')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', 'anna', '61 s')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', 'anna', '999 ms')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', 'anna', '-1 s')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', 'anna', '2147483647 days')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e', 'anna', '-2147483648 days')$$);

-- the license
SELECT pg_temp.tell($$SELECT keyright_checkout('nowhere', 'anna')$$);
SELECT pg_temp.tell($$SELECT keyright_heartbeat('nowhere', gen_random_uuid())$$);
SELECT pg_temp.tell($$SELECT keyright_checkin('nowhere', gen_random_uuid())$$);
SELECT pg_temp.tell($$SELECT keyright_revoke('nowhere', gen_random_uuid())$$);
SELECT pg_temp.tell($$SELECT keyright_revoke_slot('nowhere', 1)$$);
SELECT pg_temp.tell($$SELECT keyright_revoke_holder('nowhere', 'anna')$$);
SELECT pg_temp.tell($$SELECT keyright_revoke_all('nowhere')$$);
SELECT pg_temp.tell($$SELECT keyright_delete_license('nowhere', true)$$);
-- names are compared as they are
SELECT pg_temp.tell($$SELECT keyright_checkout('E', 'anna')$$);
SELECT pg_temp.tell($$SELECT keyright_checkout('e ', 'anna')$$);
UPDATE keyright.license SET suspended = true WHERE license_id = 'f';
SELECT pg_temp.tell($$SELECT keyright_checkout('f', 'anna')$$);
-- the statement of the HINT is for this license alone, whatever its name
UPDATE keyright.license SET license_id = $$f's$$ WHERE license_id = 'f';
SELECT pg_temp.tell($$SELECT keyright_checkout('f''s', 'anna')$$);
UPDATE keyright.license SET license_id = 'f' WHERE license_id = 'f''s';
UPDATE keyright.license SET suspended = false, valid_from = '2100-01-01Z' WHERE license_id = 'f';
SELECT pg_temp.tell($$SELECT keyright_checkout('f', 'anna')$$);
UPDATE keyright.license SET valid_from = NULL, valid_until = '2001-01-01Z' WHERE license_id = 'f';
SELECT pg_temp.tell($$SELECT keyright_checkout('f', 'anna')$$);

-- the seat
SELECT pg_temp.tell($$SELECT keyright_checkout('e', 'bert', request_id => 'secret-request')$$);
SELECT pg_temp.tell($$SELECT keyright_delete_license('e')$$);
SELECT pg_temp.tell($$DELETE FROM keyright.license WHERE license_id = 'e'$$);
SELECT pg_temp.tell($$TRUNCATE keyright.license$$);
SELECT pg_temp.tell($$UPDATE keyright.license SET id = DEFAULT$$);
SELECT pg_temp.tell($$SELECT keyright_revoke_slot('e', 0)$$);
SELECT pg_temp.tell($$SELECT keyright_verify('x', '{}')$$);
SELECT pg_temp.tell($$SELECT keyright_grant('owner', 'pg_monitor')$$);

-- read only
\pset tuples_only off
\pset format aligned
SET default_transaction_read_only = on;
\set VERBOSITY sqlstate
SELECT keyright_checkout('e', 'anna');
SELECT keyright_heartbeat('e', :'a_seat_id');
SELECT keyright_checkin('e', :'a_seat_id');
SELECT * FROM keyright_revoke('e', :'a_seat_id');
SELECT * FROM keyright_revoke_slot('e', 1);
SELECT * FROM keyright_revoke_holder('e', 'anna');
SELECT * FROM keyright_revoke_all('e');
SELECT keyright_delete_license('e');
SELECT keyright_reap();
-- which name the call
\set VERBOSITY default
SELECT keyright_checkout('e', 'anna');
SELECT keyright_heartbeat('e', :'a_seat_id');
SELECT keyright_checkin('e', :'a_seat_id');
SELECT keyright_reap();
-- what only reads goes on
SELECT status FROM keyright_verify(:'a_token');
SELECT jsonb_typeof(keyright_jwks());
SELECT license_id, live FROM keyright.pools ORDER BY license_id;
SELECT count(*) FROM keyright.holders;
SELECT count(*) FROM keyright.locks;
RESET default_transaction_read_only;

-- the trigger functions are for their triggers alone
CREATE TABLE pg_temp.mine (LIKE keyright.license);
CREATE TRIGGER t BEFORE DELETE ON pg_temp.mine FOR EACH ROW EXECUTE FUNCTION keyright.license_before_delete();
CREATE TRIGGER u BEFORE UPDATE ON pg_temp.mine FOR EACH ROW EXECUTE FUNCTION keyright.license_before_update();
CREATE TRIGGER v BEFORE TRUNCATE ON pg_temp.mine EXECUTE FUNCTION keyright.license_before_truncate();
INSERT INTO pg_temp.mine SELECT * FROM keyright.license;
DELETE FROM pg_temp.mine;
UPDATE pg_temp.mine SET id = 0;
TRUNCATE pg_temp.mine;
SELECT keyright.license_before_delete();

-- settings: not by a session, a role or a database, not out of range
\set VERBOSITY sqlstate
SET keyright.lock_timeout = '1 h';
SET LOCAL keyright.max_lock_hold = '1 h';
SET keyright.reap_interval = '1 h';
SET keyright.issuer = 'me';
SET keyright.retired_keys = '';
SET keyright.signing_key_file = '/etc/passwd';
SET keyright.signing_key = 'x';
SET keyright.nonsense = 'x';
ALTER SYSTEM SET keyright.signing_key = 'x';
ALTER SYSTEM SET keyright.lock_timeout = 0;
ALTER SYSTEM SET keyright.max_lock_hold = 0;
ALTER SYSTEM SET keyright.reap_interval = 0;
ALTER SYSTEM SET keyright.issuer = E'a\nb';
ALTER SYSTEM SET keyright.retired_keys = 'nonsense';
\set VERBOSITY default
SHOW keyright.signing_key;

-- after all that, the seat is there
SELECT status FROM keyright_heartbeat('e', :'a_seat_id');
SELECT license_id, live FROM keyright.pools ORDER BY license_id;
SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
