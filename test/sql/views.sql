-- The views tell people who holds what and who is in the way, and never a
-- seat id, a request id or a token.
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('v', 3, '1 day'), ('empty', 2, '1 day');
SELECT table_name, string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position) AS columns
  FROM information_schema.columns WHERE table_schema = 'keyright' AND table_name IN
       (SELECT viewname FROM pg_views WHERE schemaname = 'keyright')
 GROUP BY table_name ORDER BY table_name;

SELECT seat_id AS a FROM keyright_checkout('v', 'anna', request_id => 'secret') \gset
SELECT seat_id AS b FROM keyright_checkout('v', 'bert') \gset
SELECT license_id, slot, holder, since = last_beat AS no_beat_yet,
       expires_at - last_beat BETWEEN '60 s' AND '61 s' AS as_long_as_ttl, state
  FROM keyright.holders ORDER BY slot;
UPDATE keyright.seat SET expires_at = clock_timestamp() - interval '6 s' WHERE seat_id = :'b';
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '1 s' WHERE seat_id = :'a';
SELECT status FROM keyright_heartbeat('v', :'a');
SELECT license_id, slot, holder, since < last_beat AS beaten, state FROM keyright.holders ORDER BY slot;
SELECT * FROM keyright.pools WHERE retry_at IS NULL ORDER BY license_id;

-- retry_at is when the first of a full pool lapses, as check-out says
SELECT c.status FROM generate_series(1, 2) g, keyright_checkout('v', 'carl ' || g) c;
SELECT p.free, p.lapsed, p.retry_at = c.retry_at AS the_same,
       p.retry_at = (SELECT min(expires_at) + interval '5.000001 s' FROM keyright.holders) AS first_to_lapse
  FROM keyright.pools p, keyright_checkout('v', 'dora') c WHERE p.license_id = 'v';
-- an expired license, a suspended one: shown as they are
UPDATE keyright.license SET suspended = true WHERE license_id = 'empty';
SELECT license_id, seats, live, free, suspended FROM keyright.pools ORDER BY license_id;

CREATE VIEW pg_temp.my_locks AS SELECT * FROM keyright.locks WHERE pid = pg_backend_pid();
-- locks: none, then those of this transaction, for as long as it is open
SELECT count(*) FROM my_locks;
BEGIN;
SELECT keyright_checkin('v', :'a');
SELECT license_id, granted, since = now() AS since_begin,
       duration >= '0' AS duration, role = current_user AS role, application_name, state
  FROM my_locks;
SAVEPOINT s;
SELECT count(*) FROM keyright_revoke_all('empty');
SELECT license_id, granted FROM my_locks ORDER BY license_id;
ROLLBACK TO s;
SELECT license_id, granted FROM my_locks ORDER BY license_id;
COMMIT;
SELECT count(*) FROM my_locks;
-- a beat takes no lock of a license
UPDATE keyright.license SET suspended = false;
SELECT seat_id AS c FROM keyright_checkout('empty', 'eva') \gset
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '1 s' WHERE seat_id = :'c';
BEGIN;
SELECT status FROM keyright_heartbeat('empty', :'c');
SELECT count(*) FROM my_locks;
COMMIT;
-- other people's advisory locks are none of ours, even with our class
BEGIN;
SELECT pg_advisory_xact_lock(27506, id) FROM keyright.license WHERE license_id = 'v';
SELECT count(*) FROM my_locks;
SELECT status FROM keyright_checkout('v', 'fred');
COMMIT;

-- the reaper: running, and it has been here, or will be soon
SELECT preloaded, running, pid IS NOT NULL AS pid FROM keyright.reaper;
DO $$ BEGIN WHILE (SELECT last_sweep FROM keyright.reaper) IS NULL LOOP PERFORM pg_sleep(0.02); END LOOP; END $$;
SELECT last_sweep <= clock_timestamp() AS been_here, last_reaped >= 0 AS last, total_reaped >= last_reaped AS total,
       last_error, last_error_at, reap_interval = current_setting('keyright.reap_interval') AS setting
  FROM keyright.reaper;

-- versions
SELECT library = sql AS fit, library = extversion AS installed
  FROM keyright_version(), pg_extension WHERE extname = 'keyright';

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
