/* keyright 0.1.0: floating licenses as signed leases with an expiry */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION keyright" to load this file. \quit

CREATE SCHEMA keyright;
COMMENT ON SCHEMA keyright IS
  'Floating licenses: what was sold, who holds it. The functions that callers use are in the schema of the extension.';

------------------------------------------------------------------------
-- The one predicate, and lengths of time

CREATE FUNCTION keyright_is_live(expires_at timestamptz, tolerance interval, at timestamptz)
RETURNS boolean
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'keyright_is_live';
COMMENT ON FUNCTION keyright_is_live(timestamptz, interval, timestamptz) IS
  'Whether a lease is live: at <= expires_at + tolerance. A day of the tolerance has 24 hours, a month 30 days, whatever the TimeZone. Never raises an error; infinite times and tolerances are compared as such, and a tolerance beyond 292,000 years is infinite.';

CREATE FUNCTION keyright.lapses_at(expires_at timestamptz, tolerance interval)
RETURNS timestamptz
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'keyright_lapses_at';
REVOKE ALL ON FUNCTION keyright.lapses_at(timestamptz, interval) FROM PUBLIC;
COMMENT ON FUNCTION keyright.lapses_at(timestamptz, interval) IS
  'The first instant at which keyright_is_live(expires_at, tolerance, at) is false: a microsecond after expires_at + tolerance; infinity where that is beyond the range of timestamptz.';

CREATE FUNCTION keyright.interval_us(length interval, what text DEFAULT 'interval')
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'keyright_interval_us';
REVOKE ALL ON FUNCTION keyright.interval_us(interval, text) FROM PUBLIC;
COMMENT ON FUNCTION keyright.interval_us(interval, text) IS
  'A length of time in microseconds; a day has 24 hours. Raises 22023, which names what it is the length of, for months, years and infinite intervals, which are no fixed length.';

CREATE FUNCTION keyright.is_whole_second(at timestamptz)
RETURNS boolean
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'keyright_whole_second';
REVOKE ALL ON FUNCTION keyright.is_whole_second(timestamptz) FROM PUBLIC;
COMMENT ON FUNCTION keyright.is_whole_second(timestamptz) IS
  'Whether a time falls on a whole second (or is infinite), as the end of a license must: tokens count in seconds.';

CREATE FUNCTION keyright.is_claim_text(value text)
RETURNS boolean
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'keyright_is_claim_text';
REVOKE ALL ON FUNCTION keyright.is_claim_text(text) FROM PUBLIC;
COMMENT ON FUNCTION keyright.is_claim_text(text) IS
  'Whether a text can stand in a token: 1 to 255 bytes of UTF-8, no control characters.';

------------------------------------------------------------------------
-- What was sold

CREATE TABLE keyright.license (
  id          integer GENERATED ALWAYS AS IDENTITY,
  license_id  text COLLATE "C" NOT NULL,
  seat_count  integer NOT NULL,
  ttl         interval NOT NULL DEFAULT '60 seconds',
  skew        interval NOT NULL DEFAULT '5 seconds',
  reap_grace  interval NOT NULL DEFAULT '15 seconds',
  max_ttl     interval,
  valid_from  timestamptz,
  valid_until timestamptz,
  suspended   boolean NOT NULL DEFAULT false,
  CONSTRAINT license_pkey PRIMARY KEY (id),
  CONSTRAINT license_license_id_key UNIQUE (license_id),
  -- shown and searched in pg_locks as an unsigned number
  CONSTRAINT id_from_1 CHECK (id >= 1),
  CONSTRAINT license_id_is_text CHECK (keyright.is_claim_text(license_id)),
  CONSTRAINT seat_count_not_negative CHECK (seat_count >= 0),
  CONSTRAINT ttl_from_1_second_to_3650_days
    CHECK (keyright.interval_us(ttl, 'ttl') BETWEEN 1000000 AND 315360000000000),
  CONSTRAINT skew_from_0_to_1_day
    CHECK (keyright.interval_us(skew, 'skew') BETWEEN 0 AND 86400000000),
  CONSTRAINT reap_grace_above_skew
    CHECK (keyright.interval_us(reap_grace, 'reap_grace') > keyright.interval_us(skew, 'skew')),
  CONSTRAINT reap_grace_to_3650_days
    CHECK (keyright.interval_us(reap_grace, 'reap_grace') <= 315360000000000),
  CONSTRAINT max_ttl_from_ttl_to_3650_days
    CHECK (keyright.interval_us(max_ttl, 'max_ttl') BETWEEN keyright.interval_us(ttl, 'ttl') AND 315360000000000),
  CONSTRAINT valid_until_on_a_whole_second
    CHECK (keyright.is_whole_second(valid_until)),
  CONSTRAINT valid_until_after_valid_from CHECK (valid_until > valid_from)
);
REVOKE ALL ON keyright.license FROM PUBLIC;
COMMENT ON TABLE keyright.license IS
  'What was sold, a row a license. Managed with plain INSERT, UPDATE and DELETE: INSERT INTO keyright.license (license_id, seat_count) VALUES (''acme'', 10). DELETE is refused while leases are live.';
COMMENT ON COLUMN keyright.license.id IS 'Made by the server, never changed and never used again: locks and seats know the license by it.';
COMMENT ON COLUMN keyright.license.license_id IS 'The name that callers use; the "aud" of tokens. 1 to 255 bytes.';
COMMENT ON COLUMN keyright.license.seat_count IS 'How many seats can be in use at a time; 0: none. Lowered below use, holders go on and nobody is added until fewer are live.';
COMMENT ON COLUMN keyright.license.ttl IS 'How long a lease lasts from its check-out or its last heartbeat. 1 second to 3650 days, fixed lengths only.';
COMMENT ON COLUMN keyright.license.skew IS 'How long the server still counts a lease after its end, for clocks that are not the same. 0 to 1 day.';
COMMENT ON COLUMN keyright.license.reap_grace IS 'How long after its end a lease that lapsed is removed by the reaper; more than skew.';
COMMENT ON COLUMN keyright.license.max_ttl IS 'The longest ttl that a caller may ask for (a borrowed seat); NULL: ttl.';
COMMENT ON COLUMN keyright.license.valid_from IS 'Before this no seat is given out; NULL: always.';
COMMENT ON COLUMN keyright.license.valid_until IS 'After this no seat is given out or renewed, and no lease ends later; NULL: for ever. On a whole second.';
COMMENT ON COLUMN keyright.license.suspended IS 'While true no seat is given out or renewed.';

------------------------------------------------------------------------
-- Who holds it. Only the functions write here, in place and without SQL.

CREATE TABLE keyright.seat (
  license        integer NOT NULL,
  slot           integer NOT NULL,
  seat_id        uuid,
  holder         text COLLATE "C",
  request_id     text COLLATE "C",
  ttl            interval,
  checked_out_at timestamptz,
  issued_at      timestamptz,
  expires_at     timestamptz,
  ended_seat_id  uuid,
  ended_reason   text COLLATE "C",
  CONSTRAINT seat_pkey PRIMARY KEY (license, slot),
  CONSTRAINT slot_from_1 CHECK (slot >= 1)
) WITH (fillfactor = 50);
-- no other index: what a beat changes must stand in none, so that it is HOT
CREATE UNIQUE INDEX seat_request_id_key ON keyright.seat (license, request_id)
  WHERE request_id IS NOT NULL;
REVOKE ALL ON keyright.seat FROM PUBLIC;
COMMENT ON TABLE keyright.seat IS
  'The seats of each license, a row a slot; empty where seat_id is NULL. Written by the functions only. Do not grant: who reads a seat_id can use that seat. The view keyright.holders shows what people may see.';
COMMENT ON COLUMN keyright.seat.license IS 'keyright.license.id';
COMMENT ON COLUMN keyright.seat.slot IS 'Number of the seat, 1 to seat_count.';
COMMENT ON COLUMN keyright.seat.seat_id IS 'A UUID of version 8 made at check-out, the slot inside; knowing it is the proof of holding the seat.';
COMMENT ON COLUMN keyright.seat.holder IS 'Free text for display, never an identity.';
COMMENT ON COLUMN keyright.seat.request_id IS 'The secret under which the client may repeat its check-out.';
COMMENT ON COLUMN keyright.seat.ttl IS 'The ttl that was asked for; NULL: the license''s.';
COMMENT ON COLUMN keyright.seat.checked_out_at IS 'Since when this lease runs.';
COMMENT ON COLUMN keyright.seat.issued_at IS 'When it was last given out or renewed.';
COMMENT ON COLUMN keyright.seat.expires_at IS 'Until when it runs; live as long as keyright_is_live(expires_at, skew, now) says.';
COMMENT ON COLUMN keyright.seat.ended_seat_id IS 'The last lease here that did not end by its holder''s own check-in.';
COMMENT ON COLUMN keyright.seat.ended_reason IS 'How that one ended: expired or revoked.';

SELECT pg_catalog.pg_extension_config_dump('keyright.license', '');
SELECT pg_catalog.pg_extension_config_dump('keyright.license_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('keyright.seat', '');
REVOKE ALL ON SEQUENCE keyright.license_id_seq FROM PUBLIC;
COMMENT ON SEQUENCE keyright.license_id_seq IS 'Makes keyright.license.id; part of every dump.';

CREATE FUNCTION keyright.license_before_delete() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'keyright_license_delete_trigger';
REVOKE ALL ON FUNCTION keyright.license_before_delete() FROM PUBLIC;
COMMENT ON FUNCTION keyright.license_before_delete() IS
  'Trigger: takes the license''s lock, raises KR007 while leases are live, else removes the seats. Raises 55P03 when the license is busy.';
CREATE TRIGGER before_delete BEFORE DELETE ON keyright.license
  FOR EACH ROW EXECUTE FUNCTION keyright.license_before_delete();

CREATE FUNCTION keyright.license_before_update() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'keyright_license_update_trigger';
REVOKE ALL ON FUNCTION keyright.license_before_update() FROM PUBLIC;
COMMENT ON FUNCTION keyright.license_before_update() IS
  'Trigger: raises 0A000 when the id of a license would change.';
CREATE TRIGGER before_update BEFORE UPDATE ON keyright.license
  FOR EACH ROW EXECUTE FUNCTION keyright.license_before_update();

CREATE FUNCTION keyright.license_before_truncate() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'keyright_license_truncate_trigger';
REVOKE ALL ON FUNCTION keyright.license_before_truncate() FROM PUBLIC;
COMMENT ON FUNCTION keyright.license_before_truncate() IS
  'Trigger: raises 0A000, because TRUNCATE would not look at the seats.';
CREATE TRIGGER before_truncate BEFORE TRUNCATE ON keyright.license
  FOR EACH STATEMENT EXECUTE FUNCTION keyright.license_before_truncate();
-- also where session_replication_role is replica
ALTER TABLE keyright.license ENABLE ALWAYS TRIGGER before_delete;
ALTER TABLE keyright.license ENABLE ALWAYS TRIGGER before_update;
ALTER TABLE keyright.license ENABLE ALWAYS TRIGGER before_truncate;

------------------------------------------------------------------------
-- The calls of a client

CREATE FUNCTION keyright_checkout(
  license_id text, holder text, ttl interval DEFAULT NULL, request_id text DEFAULT NULL,
  OUT status text, OUT reason text, OUT license_id text, OUT slot integer,
  OUT seat_id uuid, OUT holder text, OUT issued_at timestamptz,
  OUT expires_at timestamptz, OUT token text, OUT seat_count integer,
  OUT retry_at timestamptz)
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_checkout';
REVOKE ALL ON FUNCTION keyright_checkout(text, text, interval, text) FROM PUBLIC;
COMMENT ON FUNCTION keyright_checkout(text, text, interval, text) IS
  'Takes a free seat: status "granted", with the seat and its token, or "no_seats_available", with retry_at, the earliest time at which one can be free. ttl: 1 second to the license''s max_ttl, NULL for its ttl. request_id: a secret of the client; repeated while its lease is live it gives the same seat again. Call it as SELECT * FROM keyright_checkout(...). Raises 22004, 22023 (arguments), KR001 (unknown license), KR002 (suspended), KR003, KR004 (outside validity), KR005 (no signing key), KR006 (request_id of another holder), 55P03 (busy), 25006 (read only).';

CREATE FUNCTION keyright_heartbeat(
  license_id text, seat_id uuid,
  OUT status text, OUT reason text, OUT license_id text, OUT slot integer,
  OUT seat_id uuid, OUT holder text, OUT issued_at timestamptz,
  OUT expires_at timestamptz, OUT token text, OUT seat_count integer,
  OUT retry_at timestamptz)
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_heartbeat';
REVOKE ALL ON FUNCTION keyright_heartbeat(text, uuid) FROM PUBLIC;
COMMENT ON FUNCTION keyright_heartbeat(text, uuid) IS
  'Renews a live lease: status "renewed", with a new token, or "seat_lost" with the reason "expired", "revoked" or "unknown". Never makes a seat live that is not. Raises 22004, KR001 (unknown license), KR002 (suspended), KR003, KR004 (outside validity), KR005 (no signing key), 55P03 (busy), 40001 (held up until the lease lapsed: repeat), 25006 (read only).';

CREATE FUNCTION keyright_heartbeat_many(
  license_id text, seat_ids uuid[],
  OUT status text, OUT reason text, OUT license_id text, OUT slot integer,
  OUT seat_id uuid, OUT holder text, OUT issued_at timestamptz,
  OUT expires_at timestamptz, OUT token text, OUT seat_count integer,
  OUT retry_at timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_heartbeat_many';
REVOKE ALL ON FUNCTION keyright_heartbeat_many(text, uuid[]) FROM PUBLIC;
COMMENT ON FUNCTION keyright_heartbeat_many(text, uuid[]) IS
  'Renews up to 10,000 leases of one license in one transaction, for a gateway that keeps many seats: a row for each distinct seat id, in no particular order, "renewed" or "seat_lost" as keyright_heartbeat() says, or "busy" when that seat could not be decided at once: ask again. Waits for nobody. Raises what keyright_heartbeat() does, and 22004 for nulls, 22023 for too many.';

CREATE FUNCTION keyright_checkin(license_id text, seat_id uuid)
RETURNS text
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_checkin';
REVOKE ALL ON FUNCTION keyright_checkin(text, uuid) FROM PUBLIC;
COMMENT ON FUNCTION keyright_checkin(text, uuid) IS
  'Gives a seat back: "released", or "not_held" when that lease has ended already. Works on suspended licenses too. Raises 22004, KR001 (unknown license), 55P03 (busy), 25006 (read only).';

CREATE FUNCTION keyright_verify(
  token text, jwks jsonb DEFAULT NULL, at timestamptz DEFAULT NULL,
  OUT status text, OUT problem text, OUT kid text, OUT issuer text,
  OUT license_id text, OUT holder text, OUT seat_id uuid, OUT slot integer,
  OUT issued_at timestamptz, OUT expires_at timestamptz)
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_verify';
COMMENT ON FUNCTION keyright_verify(text, jsonb, timestamptz) IS
  'Checks a token (RFC 7515, 7519, 8037) against a JWK Set, NULL for the server''s own, at a time, NULL for now: status "valid" or "expired" with its claims, "malformed", "unknown_key" or "bad_signature" with the problem. A bad token is no error. Works on standbys. Raises 22023 when jwks is no JWK Set.';

CREATE FUNCTION keyright_jwks()
RETURNS jsonb
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_jwks';
REVOKE ALL ON FUNCTION keyright_jwks() FROM PUBLIC;
COMMENT ON FUNCTION keyright_jwks() IS
  'The public keys as a JWK Set (RFC 7517): the current one and those of keyright.retired_keys; kid is the RFC 7638 thumbprint. Raises KR005 without a usable signing key.';

CREATE FUNCTION keyright_version(OUT library text, OUT sql text)
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_version';
REVOKE ALL ON FUNCTION keyright_version() FROM PUBLIC;
COMMENT ON FUNCTION keyright_version() IS
  'Versions of the library and of its SQL objects. Raises KR008 when they do not fit.';

------------------------------------------------------------------------
-- The calls of an administrator

CREATE FUNCTION keyright_revoke(
  license_id text, seat_id uuid,
  OUT license_id text, OUT slot integer, OUT holder text,
  OUT checked_out_at timestamptz, OUT expires_at timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_revoke';
REVOKE ALL ON FUNCTION keyright_revoke(text, uuid) FROM PUBLIC;
COMMENT ON FUNCTION keyright_revoke(text, uuid) IS
  'Ends the lease with this seat id and returns it; no row when it was not live. Wins over every heartbeat that has not committed before it. The holder''s token verifies offline until its "exp". Raises 22004, KR001 (unknown license), 55P03 (busy), 25006 (read only).';

CREATE FUNCTION keyright_revoke_slot(
  license_id text, slot integer,
  OUT license_id text, OUT slot integer, OUT holder text,
  OUT checked_out_at timestamptz, OUT expires_at timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_revoke_slot';
REVOKE ALL ON FUNCTION keyright_revoke_slot(text, integer) FROM PUBLIC;
COMMENT ON FUNCTION keyright_revoke_slot(text, integer) IS
  'Ends the lease in this slot (1 or more, as keyright.holders shows it) and returns it. Raises 22023, KR001 (unknown license), 55P03 (busy), 25006 (read only).';

CREATE FUNCTION keyright_revoke_holder(
  license_id text, holder text,
  OUT license_id text, OUT slot integer, OUT holder text,
  OUT checked_out_at timestamptz, OUT expires_at timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_revoke_holder';
REVOKE ALL ON FUNCTION keyright_revoke_holder(text, text) FROM PUBLIC;
COMMENT ON FUNCTION keyright_revoke_holder(text, text) IS
  'Ends every lease of this license whose holder is exactly this text and returns them. Raises 22004, 22023, KR001 (unknown license), 55P03 (busy), 25006 (read only).';

CREATE FUNCTION keyright_revoke_all(
  license_id text,
  OUT license_id text, OUT slot integer, OUT holder text,
  OUT checked_out_at timestamptz, OUT expires_at timestamptz)
RETURNS SETOF record
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_revoke_all';
REVOKE ALL ON FUNCTION keyright_revoke_all(text) FROM PUBLIC;
COMMENT ON FUNCTION keyright_revoke_all(text) IS
  'Ends every lease of this license and returns them. Raises 22004, KR001 (unknown license), 55P03 (busy), 25006 (read only).';

CREATE FUNCTION keyright_delete_license(license_id text, force boolean DEFAULT false)
RETURNS void
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_delete_license';
REVOKE ALL ON FUNCTION keyright_delete_license(text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION keyright_delete_license(text, boolean) IS
  'Deletes a license and its seats, with a DELETE of the caller''s: foreign keys and triggers are asked. Raises KR007 while leases are live, unless forced: then it ends them in the same transaction. Raises 22004, KR001 (unknown license), 23503 (rows of yours refer to it), 40001 (a trigger keeps it, or the transaction is too old to see it), 42501, 55P03 (busy), 25006 (read only).';

CREATE FUNCTION keyright_reap()
RETURNS bigint
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_reap';
REVOKE ALL ON FUNCTION keyright_reap() FROM PUBLIC;
COMMENT ON FUNCTION keyright_reap() IS
  'One sweep of this database by hand, in the caller''s transaction: empties seats whose lease lapsed more than reap_grace ago and returns how many. Licenses that are busy are left to the next sweep. Raises 25006 (read only).';

------------------------------------------------------------------------
-- Views for people. None shows a seat id or a request id.

CREATE FUNCTION keyright.reaper_status(
  OUT preloaded boolean, OUT running boolean, OUT pid integer,
  OUT last_sweep timestamptz, OUT last_reaped bigint, OUT total_reaped bigint,
  OUT last_error text, OUT last_error_at timestamptz)
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_reaper_status';
REVOKE ALL ON FUNCTION keyright.reaper_status() FROM PUBLIC;
COMMENT ON FUNCTION keyright.reaper_status() IS
  'What the view keyright.reaper shows, from shared memory.';

-- who runs a view calls the functions in it: pg_stat_activity shows a plain
-- role nothing of others, so the owner of the extension looks for it
CREATE FUNCTION keyright.license_locks()
RETURNS TABLE (license integer, pid integer, granted boolean,
               since timestamptz, role name, application_name text,
               state text)
LANGUAGE sql VOLATILE SECURITY DEFINER
BEGIN ATOMIC
  SELECT l.objid::pg_catalog.int8::pg_catalog.int4, l.pid, l.granted,
         CASE WHEN l.granted THEN a.xact_start ELSE l.waitstart END,
         a.usename, a.application_name, a.state
    FROM pg_catalog.pg_locks l
    LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) l.pid
   WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory'::pg_catalog.text
     AND l.classid OPERATOR(pg_catalog.=) 27506::pg_catalog.oid
     AND l.objsubid OPERATOR(pg_catalog.=) 3::pg_catalog.int2
     AND l.database OPERATOR(pg_catalog.=)
         (SELECT d.oid FROM pg_catalog.pg_database d
           WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database());
END;
REVOKE ALL ON FUNCTION keyright.license_locks() FROM PUBLIC;
COMMENT ON FUNCTION keyright.license_locks() IS
  'What the view keyright.locks shows: the advisory locks of class 27506 and field 3, which are the licenses''.';

CREATE VIEW keyright.holders AS
  SELECT l.license_id, s.slot, s.holder, s.checked_out_at AS since,
         s.issued_at AS last_beat, s.expires_at,
         CASE WHEN @extschema@.keyright_is_live(s.expires_at, l.skew, pg_catalog.clock_timestamp())
              THEN 'live' ELSE 'lapsed' END AS state
    FROM keyright.seat s
    JOIN keyright.license l ON l.id OPERATOR(pg_catalog.=) s.license
   WHERE s.seat_id IS NOT NULL;
REVOKE ALL ON keyright.holders FROM PUBLIC;
COMMENT ON VIEW keyright.holders IS
  'Who holds which seat: since when, last beat, until when, live or lapsed.';
COMMENT ON COLUMN keyright.holders.license_id IS 'The license.';
COMMENT ON COLUMN keyright.holders.slot IS 'Number of the seat; what keyright_revoke_slot() takes.';
COMMENT ON COLUMN keyright.holders.holder IS 'Free text of who holds it.';
COMMENT ON COLUMN keyright.holders.since IS 'When it was checked out.';
COMMENT ON COLUMN keyright.holders.last_beat IS 'When it was last given out or renewed.';
COMMENT ON COLUMN keyright.holders.expires_at IS 'Until when the lease runs.';
COMMENT ON COLUMN keyright.holders.state IS 'live, or lapsed: over by more than skew, and not yet emptied.';

CREATE VIEW keyright.pools AS
  SELECT l.license_id, l.seat_count AS seats, u.live,
         GREATEST(l.seat_count OPERATOR(pg_catalog.-) u.live, 0) AS free,
         u.lapsed,
         CASE WHEN l.seat_count OPERATOR(pg_catalog.>) 0
              THEN u.lapse_times[u.live OPERATOR(pg_catalog.-) l.seat_count OPERATOR(pg_catalog.+) 1]
         END AS retry_at,
         l.suspended, l.valid_from, l.valid_until
    FROM keyright.license l
    CROSS JOIN LATERAL (
      SELECT pg_catalog.count(*) FILTER (WHERE s.is_live)::integer AS live,
             pg_catalog.count(*) FILTER (WHERE NOT s.is_live)::integer AS lapsed,
             pg_catalog.array_agg(s.lapses_at ORDER BY s.lapses_at)
               FILTER (WHERE s.is_live) AS lapse_times
        FROM (SELECT @extschema@.keyright_is_live(s.expires_at, l.skew, pg_catalog.clock_timestamp()) AS is_live,
                     keyright.lapses_at(s.expires_at, l.skew) AS lapses_at
                FROM keyright.seat s
               WHERE s.license OPERATOR(pg_catalog.=) l.id
                 AND s.seat_id IS NOT NULL) s) u;
REVOKE ALL ON keyright.pools FROM PUBLIC;
COMMENT ON VIEW keyright.pools IS
  'How full each license is. lapsed: rows whose lease is over but which are not emptied yet; they count as free. retry_at: when a seat can be free at the earliest; NULL while one is.';
COMMENT ON COLUMN keyright.pools.license_id IS 'The license.';
COMMENT ON COLUMN keyright.pools.seats IS 'How many were sold: seat_count.';
COMMENT ON COLUMN keyright.pools.live IS 'Leases that are live now.';
COMMENT ON COLUMN keyright.pools.free IS 'Seats that can be had now; 0 while more are live than sold.';
COMMENT ON COLUMN keyright.pools.lapsed IS 'Rows whose lease is over but which are not emptied yet.';
COMMENT ON COLUMN keyright.pools.retry_at IS 'Earliest time at which a seat can be free; NULL while one is, and for licenses of 0 seats.';
COMMENT ON COLUMN keyright.pools.suspended IS 'While true no seat is given out or renewed.';
COMMENT ON COLUMN keyright.pools.valid_from IS 'Before this no seat is given out.';
COMMENT ON COLUMN keyright.pools.valid_until IS 'After this no seat is given out or renewed.';

CREATE VIEW keyright.locks AS
  SELECT l.license_id, k.pid, k.granted, k.since,
         pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) k.since AS duration,
         k.role, k.application_name, k.state
    FROM keyright.license_locks() k
    LEFT JOIN keyright.license l ON l.id OPERATOR(pg_catalog.=) k.license;
REVOKE ALL ON keyright.locks FROM PUBLIC;
COMMENT ON VIEW keyright.locks IS
  'Who holds (granted) or waits for the lock of a license. since: of a waiter when its wait began, of a holder when its transaction began. End a holder with pg_terminate_backend(pid); keyright.max_lock_hold does so by itself.';
COMMENT ON COLUMN keyright.locks.license_id IS 'The license; NULL when it was deleted or is not committed yet.';
COMMENT ON COLUMN keyright.locks.pid IS 'The session; what pg_terminate_backend() takes.';
COMMENT ON COLUMN keyright.locks.granted IS 'true: holds the lock; false: waits for it.';
COMMENT ON COLUMN keyright.locks.since IS 'Since when it waits, or since when the holder''s transaction runs.';
COMMENT ON COLUMN keyright.locks.duration IS 'How long that is.';
COMMENT ON COLUMN keyright.locks.role IS 'The role of the session.';
COMMENT ON COLUMN keyright.locks.application_name IS 'What the session calls itself.';
COMMENT ON COLUMN keyright.locks.state IS 'What the session does: active, idle in transaction ...';

CREATE VIEW keyright.reaper AS
  SELECT r.preloaded, r.running, r.pid,
         pg_catalog.current_setting('keyright.reap_interval', true) AS reap_interval,
         r.last_sweep, r.last_reaped, r.total_reaped, r.last_error, r.last_error_at
    FROM keyright.reaper_status() r;
REVOKE ALL ON keyright.reaper FROM PUBLIC;
COMMENT ON VIEW keyright.reaper IS
  'The background worker as seen from this database: preloaded and running, its last sweep here, what it has removed since the server started, its last error.';
COMMENT ON COLUMN keyright.reaper.preloaded IS 'Whether the server has keyright in shared_preload_libraries.';
COMMENT ON COLUMN keyright.reaper.running IS 'Whether the launcher runs.';
COMMENT ON COLUMN keyright.reaper.pid IS 'The launcher.';
COMMENT ON COLUMN keyright.reaper.reap_interval IS 'The setting keyright.reap_interval.';
COMMENT ON COLUMN keyright.reaper.last_sweep IS 'When this database was last swept to its end; NULL: not since the server started.';
COMMENT ON COLUMN keyright.reaper.last_reaped IS 'How many seats that sweep emptied.';
COMMENT ON COLUMN keyright.reaper.total_reaped IS 'How many since the server started.';
COMMENT ON COLUMN keyright.reaper.last_error IS 'Message of the last error of a sweep here.';
COMMENT ON COLUMN keyright.reaper.last_error_at IS 'When that was.';

CREATE VIEW keyright.wraparound AS
  SELECT d.datname AS database,
         pg_catalog.age(d.datfrozenxid) AS transaction_ids_used,
         s.freeze_max_age, 2147483647 AS transaction_ids_limit,
         pg_catalog.age(d.datfrozenxid) OPERATOR(pg_catalog.>)
           (s.freeze_max_age OPERATOR(pg_catalog.*) 1.2) AS warning
    FROM pg_catalog.pg_database d
    CROSS JOIN (SELECT pg_catalog.current_setting('autovacuum_freeze_max_age')::integer AS freeze_max_age) s;
REVOKE ALL ON keyright.wraparound FROM PUBLIC;
COMMENT ON VIEW keyright.wraparound IS
  'Whether transaction ids are used faster than they are frozen: single heartbeats take one each, 432 million a day at 5,000 a second. See keyright_heartbeat_many().';
COMMENT ON COLUMN keyright.wraparound.database IS 'A database of this cluster; the oldest one counts for all.';
COMMENT ON COLUMN keyright.wraparound.transaction_ids_used IS 'Age of its oldest transaction id that is not frozen.';
COMMENT ON COLUMN keyright.wraparound.freeze_max_age IS 'The setting autovacuum_freeze_max_age, at which freezing is forced.';
COMMENT ON COLUMN keyright.wraparound.transaction_ids_limit IS 'Where the server stops, some three million earlier in fact.';
COMMENT ON COLUMN keyright.wraparound.warning IS 'true: more than a fifth over freeze_max_age, so freezing does not keep up.';

------------------------------------------------------------------------
-- Privileges in one call

CREATE FUNCTION keyright_grant(level text, to_role regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE
-- run by superusers: what a session puts into their path must not bend it
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  client CONSTANT text[] := ARRAY[
    '@extschema@.keyright_checkout(text, text, interval, text)',
    '@extschema@.keyright_heartbeat(text, uuid)',
    '@extschema@.keyright_heartbeat_many(text, uuid[])',
    '@extschema@.keyright_checkin(text, uuid)',
    '@extschema@.keyright_jwks()',
    '@extschema@.keyright_version()'];
  administrator CONSTANT text[] := ARRAY[
    '@extschema@.keyright_revoke(text, uuid)',
    '@extschema@.keyright_revoke_slot(text, integer)',
    '@extschema@.keyright_revoke_holder(text, text)',
    '@extschema@.keyright_revoke_all(text)',
    '@extschema@.keyright_delete_license(text, boolean)',
    '@extschema@.keyright_reap()',
    'keyright.interval_us(interval, text)',
    'keyright.is_whole_second(timestamptz)',
    'keyright.is_claim_text(text)'];
  monitor CONSTANT text[] := ARRAY[
    '@extschema@.keyright_version()',
    'keyright.lapses_at(timestamptz, interval)',
    'keyright.license_locks()',
    'keyright.reaper_status()'];
  functions text[];
  function text;
BEGIN
  IF level IS NULL OR to_role IS NULL THEN
    RAISE EXCEPTION 'level and role must not be null'
      USING ERRCODE = 'null_value_not_allowed';
  END IF;
  CASE level
    WHEN 'client' THEN functions := client;
    WHEN 'administrator' THEN functions := pg_catalog.array_cat(administrator, monitor);
    WHEN 'monitor' THEN functions := monitor;
    ELSE
      RAISE EXCEPTION 'level "%" does not exist', level
        USING ERRCODE = 'invalid_parameter_value',
              HINT = 'The levels are client, monitor and administrator.';
  END CASE;
  FOREACH function IN ARRAY functions LOOP
    EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION %s TO %s', function, to_role);
  END LOOP;
  EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA %s TO %s', '@extschema@', to_role);
  IF level OPERATOR(pg_catalog.=) 'client' THEN
    RETURN;
  END IF;
  EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA keyright TO %s', to_role);
  EXECUTE pg_catalog.format('GRANT SELECT ON keyright.holders, keyright.pools, keyright.locks, keyright.reaper, keyright.wraparound TO %s', to_role);
  IF level OPERATOR(pg_catalog.=) 'administrator' THEN
    EXECUTE pg_catalog.format('GRANT SELECT, INSERT, UPDATE, DELETE ON keyright.license TO %s', to_role);
  END IF;
END;
$$;
REVOKE ALL ON FUNCTION keyright_grant(text, regrole) FROM PUBLIC;
COMMENT ON FUNCTION keyright_grant(text, regrole) IS
  'Grants a role what a level needs: client (check-out, heartbeat, check-in, public keys), monitor (the views), administrator (monitor, and licenses, revocations, reaping). No level can read the signing key or a seat id. Raises 22004 for nulls, 22023 for another level; the caller needs the right to grant.';

------------------------------------------------------------------------
-- The reaper learns of this database at once

CREATE FUNCTION keyright.mark_database()
RETURNS void
LANGUAGE c VOLATILE
AS 'MODULE_PATHNAME', 'keyright_mark_database';
REVOKE ALL ON FUNCTION keyright.mark_database() FROM PUBLIC;
COMMENT ON FUNCTION keyright.mark_database() IS
  'Tells the reaper that this database has the extension; every other call does so too.';
SELECT keyright.mark_database();
