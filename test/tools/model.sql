-- The steps of test/tools/model.c, and the judge of its check-outs: in the
-- server, one call a step, with plans that are kept.
CREATE SCHEMA model;

-- A check-out that is judged by counting, right after it, in its transaction.
--
-- Refused: at the clock read just before the call at least seat_count leases
-- must have been live.  Granted, and not a lease again that was live: now not
-- more than seat_count may be.  Counted afterwards, because then the license's
-- lock is held: nobody has added or removed a lease since the answer.  Beats may have moved ends later; that
-- makes no lease count at the earlier clock that did not.
--
-- A lease that has lapsed counts as live while somebody else has its row: a
-- beat may be about to renew it.  Such a beat may be over when we count, so a
-- refusal is called wrong only when it is repeated: a hint that is wrong stays
-- so, a beat does not.
--
-- Not to be judged: with a snapshot that was taken before others' last commit.
-- "finding" says what is wrong; "judged" is NULL when the license was changed
-- meanwhile.
CREATE FUNCTION model.check_out(
  pool text, holder text, ttl interval, request_id text,
  INOUT judged boolean, OUT status text, OUT finding text)
LANGUAGE plpgsql AS $$
DECLARE
  started timestamptz;
  version text;
  given uuid;
  seen record;
  held bigint;
BEGIN
  FOR i IN 1 .. 5 LOOP
    finding := NULL;
    SELECT clock_timestamp(), concat(l.xmin, l.ctid) INTO started, version
      FROM keyright.license l WHERE l.license_id = pool;
    SELECT c.status, c.seat_id INTO status, given
      FROM keyright_checkout(pool, holder, ttl, request_id) c;
    IF NOT judged THEN
      RETURN;
    END IF;
    SELECT l.seat_count AS seats, l.version,
           count(*) FILTER (WHERE keyright_is_live(s.expires_at, l.skew, started)) AS live_before,
           count(*) FILTER (WHERE keyright_is_live(s.expires_at, l.skew, clock_timestamp())) AS live,
           bool_or(s.seat_id = given AND s.checked_out_at < started) AS again
      INTO seen
      FROM (SELECT *, concat(xmin, ctid) AS version FROM keyright.license) l
      LEFT JOIN keyright.seat s ON s.license = l.id AND s.seat_id IS NOT NULL
     WHERE l.license_id = pool
     GROUP BY l.id, l.seat_count, l.version;
    IF seen.version IS DISTINCT FROM version THEN
      judged := NULL;
      RETURN;
    END IF;
    IF status = 'granted' THEN
      IF seen.live > seen.seats AND NOT seen.again THEN
        finding := format('%s of %s seats live', seen.live, seen.seats);
      END IF;
      RETURN;
    END IF;
    IF seen.live_before >= seen.seats THEN
      RETURN;
    END IF;
    WITH lapsed AS MATERIALIZED (
      SELECT s.slot FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
       WHERE l.license_id = pool
         AND NOT keyright_is_live(s.expires_at, l.skew, started)),
    ours AS MATERIALIZED (
      SELECT s.slot FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
       WHERE l.license_id = pool
         AND NOT keyright_is_live(s.expires_at, l.skew, started)
         FOR NO KEY UPDATE OF s SKIP LOCKED)
    SELECT (SELECT count(*) FROM lapsed) - (SELECT count(*) FROM ours) INTO held;
    IF seen.live_before + held >= seen.seats THEN
      RETURN;
    END IF;
    finding := format('%s of %s seats live, %s held', seen.live_before, seen.seats, held);
  END LOOP;
END;
$$;

CREATE FUNCTION model.fill(pool text, seats integer) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT count(c.slot) FROM generate_series(1, seats) g,
            LATERAL keyright_checkout(pool, 'holder ' || g % 3) c);
END;
$$;

-- A seat id that is in use, from that slot on; NULL when there is none.
CREATE FUNCTION model.seat(pool text, first integer) RETURNS uuid
LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT s.seat_id
            FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
           WHERE l.license_id = pool AND s.slot >= first AND s.seat_id IS NOT NULL
           ORDER BY s.slot LIMIT 1);
END;
$$;

CREATE FUNCTION model.check_in(pool text, first integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  id uuid := model.seat(pool, first);
BEGIN
  RETURN CASE WHEN id IS NOT NULL THEN keyright_checkin(pool, id) END;
END;
$$;

CREATE FUNCTION model.beat(pool text, first integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  id uuid := model.seat(pool, first);
BEGIN
  RETURN (SELECT h.status FROM keyright_heartbeat(pool, id) h WHERE id IS NOT NULL);
END;
$$;

CREATE FUNCTION model.beat_many(pool text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  ids uuid[] := ARRAY(SELECT s.seat_id
                        FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
                       WHERE l.license_id = pool AND s.seat_id IS NOT NULL);
BEGIN
  RETURN (SELECT string_agg(DISTINCT h.status, ', ') FROM keyright_heartbeat_many(pool, ids) h);
END;
$$;

-- The license is to end soon, which shortens the leases that are renewed
-- meanwhile, and then it is not.
CREATE FUNCTION model.cut(pool text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  told text;
BEGIN
  UPDATE keyright.license
     SET valid_until = date_trunc('second', clock_timestamp()) + interval '2 s'
   WHERE license_id = pool;
  told := model.beat_many(pool);
  UPDATE keyright.license SET valid_until = NULL WHERE license_id = pool;
  RETURN told;
END;
$$;

CREATE FUNCTION model.revoke(pool text, first integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  id uuid := model.seat(pool, first);
BEGIN
  RETURN CASE WHEN id IS NOT NULL
              THEN (SELECT count(*) FROM keyright_revoke(pool, id)) END;
END;
$$;

-- The end of a life and the beginning of the next; with the same integer id it
-- is as if an administrator had restored the row.
CREATE FUNCTION model.replace(pool text, same boolean, seats integer, ttl interval,
                              skew interval, reap_grace interval) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  old_id integer;
BEGIN
  SELECT l.id INTO old_id FROM keyright.license l WHERE l.license_id = pool;
  BEGIN
    DELETE FROM keyright.license l WHERE l.id = old_id;
  EXCEPTION WHEN SQLSTATE 'KR007' THEN
    PERFORM keyright_delete_license(pool, force => true);
  END;
  INSERT INTO keyright.license (id, license_id, seat_count, ttl, max_ttl, skew, reap_grace)
  OVERRIDING SYSTEM VALUE
  SELECT CASE WHEN same AND old_id IS NOT NULL THEN old_id
              ELSE nextval('keyright.license_id_seq') END,
         pool, seats, ttl, '1 hour', skew, reap_grace;
END;
$$;
