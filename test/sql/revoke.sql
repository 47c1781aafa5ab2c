-- An administrator ends leases: by seat id, by slot, by holder, all. What is
-- ended is told, is free at once, and its holder learns why.
INSERT INTO keyright.license (license_id, seat_count, reap_grace)
  VALUES ('r', 4, '1 day'), ('other', 4, '1 day');
CREATE FUNCTION pg_temp.fill() RETURNS void LANGUAGE sql AS $$
  -- a new one gives its slots out in order
  SELECT keyright_delete_license('r', force => true);
  INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('r', 4, '1 day');
  SELECT count(*) FROM keyright_checkout('r', 'anna') UNION ALL
  SELECT count(*) FROM keyright_checkout('r', 'bert') UNION ALL
  SELECT count(*) FROM keyright_checkout('r', 'anna') UNION ALL
  SELECT count(*) FROM keyright_checkout('r', 'carl');
$$;
CREATE VIEW pg_temp.held AS
  SELECT slot, holder, state FROM keyright.holders WHERE license_id = 'r' ORDER BY slot;
SELECT status FROM keyright_checkout('other', 'anna');

-- by seat id
SELECT pg_temp.fill();
SELECT seat_id AS b FROM keyright.seat WHERE holder = 'bert' \gset
SELECT license_id, slot, holder, checked_out_at <= clock_timestamp() AS since,
       expires_at > clock_timestamp() AS until
  FROM keyright_revoke('r', :'b');
SELECT license_id, slot FROM keyright_revoke('r', :'b');
SELECT status, reason FROM keyright_heartbeat('r', :'b');
SELECT license_id, slot FROM keyright_revoke('other', :'b');
SELECT license_id, slot FROM keyright_revoke('r', '00000001-0000-8000-8000-000000000000');
TABLE held;
-- free at once; the old holder still hears "revoked"
SELECT status, slot FROM keyright_checkout('r', 'dora');
SELECT status, reason FROM keyright_heartbeat('r', :'b');

-- by slot
SELECT pg_temp.fill();
SELECT license_id, slot, holder FROM keyright_revoke_slot('r', 4);
SELECT license_id, slot, holder FROM keyright_revoke_slot('r', 4);
SELECT license_id, slot, holder FROM keyright_revoke_slot('r', 5);
SELECT license_id, slot, holder FROM keyright_revoke_slot('r', 2147483647);
SELECT license_id, slot, holder FROM keyright_revoke_slot('r', 0);
SELECT license_id, slot, holder FROM keyright_revoke_slot('r', -1);
SELECT license_id, slot, holder FROM keyright_revoke_slot('r', NULL);
TABLE held;

-- by holder: exactly that text
SELECT pg_temp.fill();
SELECT license_id, slot, holder FROM keyright_revoke_holder('r', 'Anna');
SELECT license_id, slot, holder FROM keyright_revoke_holder('r', 'ann');
SELECT license_id, slot, holder FROM keyright_revoke_holder('r', 'anna') ORDER BY slot;
SELECT license_id, slot, holder FROM keyright_revoke_holder('r', 'anna');
TABLE held;

-- all, of this license only
SELECT pg_temp.fill();
SELECT license_id, slot, holder FROM keyright_revoke_all('r') ORDER BY slot;
SELECT license_id, slot, holder FROM keyright_revoke_all('r');
SELECT license_id, seats, live, free FROM keyright.pools ORDER BY license_id;

-- a lapsed lease is none: nothing is told, and its holder heard of a lapse
SELECT pg_temp.fill();
SELECT seat_id AS c FROM keyright.seat WHERE holder = 'carl' \gset
UPDATE keyright.seat SET expires_at = clock_timestamp() - interval '1 minute' WHERE seat_id = :'c';
SELECT license_id, slot, holder FROM keyright_revoke('r', :'c');
SELECT license_id, slot, holder FROM keyright_revoke_slot('r', 4);
SELECT license_id, slot, holder FROM keyright_revoke_holder('r', 'carl');
SELECT license_id, slot, holder FROM keyright_revoke_all('r') ORDER BY slot;
SELECT status, reason FROM keyright_heartbeat('r', :'c');

-- suspended or over: an administrator can still clear it
SELECT pg_temp.fill();
UPDATE keyright.license SET suspended = true, valid_until = '2001-01-01' WHERE license_id = 'r';
SELECT count(*) FROM keyright_revoke_all('r');
UPDATE keyright.license SET suspended = false, valid_until = NULL WHERE license_id = 'r';

-- rolled back: the lease goes on
SELECT pg_temp.fill();
SELECT seat_id AS b FROM keyright.seat WHERE holder = 'bert' \gset
BEGIN;
SELECT count(*) FROM keyright_revoke_all('r');
SELECT status, reason FROM keyright_heartbeat('r', :'b');
ROLLBACK;
SELECT status FROM keyright_heartbeat('r', :'b');

-- a license that does not exist, arguments that are none
SELECT * FROM keyright_revoke('nowhere', :'b');
SELECT * FROM keyright_revoke_slot('nowhere', 1);
SELECT * FROM keyright_revoke_holder('nowhere', 'anna');
SELECT * FROM keyright_revoke_all('nowhere');
SELECT * FROM keyright_revoke('r', NULL);
SELECT * FROM keyright_revoke_holder('r', NULL);
SELECT * FROM keyright_revoke_holder('r', '');
SELECT * FROM keyright_revoke_all(NULL);

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
