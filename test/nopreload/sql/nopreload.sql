-- On a server that does not preload the library nothing crashes: what needs
-- the key says so, with a hint, and what does not need it works.
SHOW shared_preload_libraries;
INSERT INTO keyright.license (license_id, seat_count) VALUES ('n', 2);
SELECT status FROM keyright_checkout('n', 'anna');
\echo :SQLSTATE
SELECT status FROM keyright_heartbeat('n', '00000001-0000-8000-8000-000000000000');
\echo :SQLSTATE
SELECT keyright_jwks();
\echo :SQLSTATE

-- seats that were sold when the library was preloaded
INSERT INTO keyright.seat (license, slot, seat_id, holder, checked_out_at, issued_at, expires_at)
  SELECT id, slot, ('0000000' || slot || '-0000-8000-8000-000000000000')::uuid, 'holder ' || slot,
         clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 hour'
    FROM keyright.license, generate_series(1, 2) slot WHERE license_id = 'n';
SELECT license_id, slot, holder, state FROM keyright.holders ORDER BY slot;
SELECT seats, live, free, lapsed FROM keyright.pools;
DELETE FROM keyright.license;
-- giving back and revoking go on
SELECT keyright_checkin('n', '00000001-0000-8000-8000-000000000000');
SELECT keyright_checkin('n', '00000001-0000-8000-8000-000000000000');
SELECT slot, holder FROM keyright_revoke_slot('n', 2);
SELECT count(*) FROM keyright_revoke_all('n');
SELECT keyright_reap();
BEGIN;
SELECT keyright_checkin('n', '00000002-0000-8000-8000-000000000000');
SELECT license_id, granted FROM keyright.locks;
COMMIT;

-- nobody sweeps, and the view says so
SELECT preloaded, running, pid, last_sweep, last_reaped, total_reaped, last_error FROM keyright.reaper;
SELECT library = sql AS fit FROM keyright_version();

-- tokens are checked with keys that are given, here the one of RFC 8037
SELECT status FROM keyright_verify('a.b.c');
SELECT status FROM keyright_verify('a.b.c', '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}');
SELECT keyright_is_live('2030-01-01', '5 s', '2030-01-01 00:00:05') AS live;

-- the key's settings do not exist, so no role can read or set them; nor can a
-- session change the others
SELECT name, setting IS NOT NULL AS set FROM pg_settings WHERE name LIKE 'keyright.%' ORDER BY name COLLATE "C";
\set VERBOSITY sqlstate
SHOW keyright.signing_key;
SHOW keyright.signing_key_file;
SET keyright.signing_key = 'x';
SET keyright.signing_key_file = 'x';
SET keyright.lock_timeout = '1 h';
SELECT set_config('keyright.signing_key', 'x', false);
\set VERBOSITY default

-- in a new session, before any call, the library is not loaded; a value that
-- was set there for the key is dropped when it is, and signs nothing
\c
SET keyright.signing_key = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=';
SELECT status FROM keyright_checkout('n', 'anna');
\set VERBOSITY sqlstate
SHOW keyright.signing_key;
\set VERBOSITY default

DELETE FROM keyright.license;
SELECT count(*) AS seats_left FROM keyright.seat;
DROP EXTENSION keyright;
CREATE EXTENSION keyright;
SELECT count(*) FROM keyright.pools;
