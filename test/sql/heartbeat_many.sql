-- One call beats for many seats of a license: a row for each distinct seat id,
-- what keyright_heartbeat() would answer to it, and one that is lost costs the
-- others nothing.  What an open transaction of others does to it is in
-- test/specs.
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('many', 30, '1 day'), ('other', 3, '1 day');
CREATE FUNCTION pg_temp.age(id uuid, since interval) RETURNS void
LANGUAGE sql AS 'UPDATE keyright.seat SET expires_at = clock_timestamp() - since WHERE seat_id = id';
CREATE FUNCTION pg_temp.tell(statement text) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE statement;
  RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
  RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
CREATE TEMP TABLE mine AS
  SELECT h, c.slot, c.seat_id, c.token, c.issued_at FROM generate_series(1, 9) h,
    LATERAL keyright_checkout('many', 'holder ' || h, request_id => 'secret ' || h) c;

-- the row's shape is that of a single beat
SELECT string_agg(proname, ' ' ORDER BY proname) AS same_columns
  FROM pg_proc WHERE proname IN ('keyright_heartbeat', 'keyright_heartbeat_many')
 GROUP BY proargnames[3:], proallargtypes[3:], proargmodes[3:];

-- all good: the same leases, later, with new tokens
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '10 s';
SELECT h.status, h.reason, h.license_id, h.slot = m.slot AS slot, h.holder = 'holder ' || m.h AS holder,
       h.issued_at > m.issued_at AS issued_later,
       h.expires_at - h.issued_at BETWEEN '60 s' AND '61 s' AS as_long_as_ttl,
       v.status AS token, v.seat_id = m.seat_id AND v.expires_at = h.expires_at AND v.license_id = 'many' AS of_this_lease,
       h.seat_count, h.retry_at, count(*)
  FROM mine m JOIN keyright_heartbeat_many('many', ARRAY(SELECT seat_id FROM mine)) h USING (seat_id),
       LATERAL keyright_verify(h.token) v
 GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11;
SELECT count(*) AS stored FROM keyright.seat s JOIN mine m USING (seat_id)
 WHERE s.expires_at > clock_timestamp() + interval '50 s' AND s.request_id = 'secret ' || m.h;

-- good and bad, some of them twice, in any order and any shape of array: 2 was
-- given back, 3 revoked, 4 lapsed, 5 lapsed and taken by another, and two are
-- of another license or of nobody
SELECT keyright_checkin('many', seat_id) FROM mine WHERE h = 2;
SELECT r.slot, r.holder FROM mine, LATERAL keyright_revoke('many', seat_id) r WHERE h = 3;
SELECT pg_temp.age(seat_id, '1 hour') FROM mine WHERE h = 5;
SELECT count(*) AS taken FROM generate_series(1, 24) h, LATERAL keyright_checkout('many', 'carl ' || h) c
 WHERE c.slot = 5;
SELECT pg_temp.age(seat_id, '1 hour') FROM mine WHERE h = 4;
SELECT * FROM keyright_checkout('other', 'holder 10') \gset other_
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '10 s'
 WHERE seat_id IN (SELECT seat_id FROM mine WHERE h NOT IN (4, 5));
CREATE TEMP TABLE asked AS
  SELECT h, seat_id FROM mine, generate_series(1, 3) WHERE h <= 6
  UNION ALL SELECT 10, :'other_seat_id'
  UNION ALL SELECT 11, '00000001-0000-8000-8000-000000000000'
  UNION ALL SELECT 12, 'ffffffff-ffff-ffff-ffff-ffffffffffff';
SELECT a.h, h.status, h.reason, h.license_id, h.slot, h.holder, h.issued_at > now() AS issued,
       h.expires_at > clock_timestamp() + interval '50 s' AS renewed, h.token IS NOT NULL AS token, h.seat_count, h.retry_at
  FROM keyright_heartbeat_many('many', (SELECT ARRAY[array_agg(seat_id ORDER BY md5(seat_id::text)),
                                                     array_agg(seat_id ORDER BY seat_id DESC)] FROM asked)) h
  LEFT JOIN (SELECT DISTINCT * FROM asked) a USING (seat_id)
 ORDER BY a.h;
-- only who was asked for was renewed
SELECT m.h, s.expires_at > clock_timestamp() + interval '50 s' AS renewed
  FROM mine m JOIN keyright.seat s USING (seat_id) ORDER BY 1;
-- another's lease is left alone
SELECT left(holder, 5) AS holder, state FROM keyright.holders WHERE license_id = 'many' AND slot = 5;
SELECT holder, expires_at = :'other_expires_at'::timestamptz AS untouched FROM keyright.holders WHERE license_id = 'other';

-- the same words as one by one, and a license of one's own alone
SELECT count(*) AS asked, count(*) FILTER (WHERE (b.status, b.reason) IS NOT DISTINCT FROM (o.status, o.reason)) AS same
  FROM keyright_heartbeat_many('many', ARRAY(SELECT seat_id FROM asked)) b,
       LATERAL keyright_heartbeat('many', b.seat_id) o;
SELECT status, count(*) FROM keyright_heartbeat_many('other', ARRAY(SELECT seat_id FROM asked)) GROUP BY 1 ORDER BY 1;

-- the policy is that of a beat: the ttl that was asked for, the license's end
INSERT INTO keyright.license (license_id, seat_count, max_ttl) VALUES ('policy', 2, '1 hour');
SELECT * FROM keyright_checkout('policy', 'anna', '30 minutes') \gset a_
SELECT * FROM keyright_checkout('policy', 'bert') \gset b_
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '10 s' WHERE seat_id IN (:'a_seat_id', :'b_seat_id');
SELECT holder, extract(epoch FROM expires_at - issued_at)::int BETWEEN 1799 AND 1801 AS half_an_hour
  FROM keyright_heartbeat_many('policy', ARRAY[:'a_seat_id', :'b_seat_id']::uuid[]) ORDER BY 1;
UPDATE keyright.license SET valid_until = date_trunc('second', clock_timestamp()) + interval '20 s' WHERE license_id = 'policy';
SELECT h.holder, h.status, h.expires_at <= l.valid_until AS cut
  FROM keyright_heartbeat_many('policy', ARRAY[:'a_seat_id', :'b_seat_id']::uuid[]) h JOIN keyright.license l USING (license_id)
 ORDER BY 1;

-- nothing asked, nothing answered
SELECT count(*) FROM keyright_heartbeat_many('many', '{}');
-- errors
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many(NULL, '{}')$$);
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many('many', NULL)$$);
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many('many', ARRAY[gen_random_uuid(), NULL])$$);
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many('', '{}')$$);
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many('nowhere', '{}')$$);
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many('many', ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 10001)))$$);
SELECT count(*), count(DISTINCT status || reason) AS answers, min(reason) AS reason
  FROM keyright_heartbeat_many('many', ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 10000)));
UPDATE keyright.license SET suspended = true WHERE license_id = 'many';
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many('many', ARRAY(SELECT seat_id FROM mine))$$);
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many('many', '{}')$$);
UPDATE keyright.license SET suspended = false, valid_from = now() + interval '1 day' WHERE license_id = 'many';
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many('many', ARRAY(SELECT seat_id FROM mine))$$) ~ '^KR003 ' AS kr003;
UPDATE keyright.license SET valid_from = NULL, valid_until = date_trunc('second', now()) - interval '1 day' WHERE license_id = 'many';
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many('many', ARRAY(SELECT seat_id FROM mine))$$) ~ '^KR004 ' AS kr004;
UPDATE keyright.license SET valid_until = NULL WHERE license_id = 'many';
BEGIN READ ONLY;
SELECT pg_temp.tell($$SELECT keyright_heartbeat_many('many', '{}')$$);
COMMIT;

-- one transaction, whatever the number
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '10 s' WHERE holder LIKE 'carl %';
SELECT status, count(*) FROM keyright_heartbeat_many('many', ARRAY(SELECT seat_id FROM keyright.seat WHERE holder LIKE 'carl %')) GROUP BY 1;
SELECT count(*) AS renewed, count(DISTINCT xmin::text) AS transactions FROM keyright.seat
 WHERE holder LIKE 'carl %' AND expires_at > clock_timestamp() + interval '50 s';

-- rolled back, it is as if it had not been
UPDATE keyright.seat SET expires_at = clock_timestamp() + interval '10 s' WHERE holder LIKE 'carl %';
BEGIN;
SELECT status, count(*) FROM keyright_heartbeat_many('many', ARRAY(SELECT seat_id FROM keyright.seat WHERE holder LIKE 'carl %')) GROUP BY 1;
ROLLBACK;
SELECT count(*) AS renewed FROM keyright.seat WHERE holder LIKE 'carl %' AND expires_at > clock_timestamp() + interval '20 s';

-- the warning before transaction ids run out: a row a database
SELECT transaction_ids_used BETWEEN 1 AND freeze_max_age AS used,
       freeze_max_age = current_setting('autovacuum_freeze_max_age')::int AS freeze_max_age,
       transaction_ids_limit, warning
  FROM keyright.wraparound WHERE database = current_database();
SELECT count(*) = (SELECT count(*) FROM pg_database) AS all_databases FROM keyright.wraparound;
-- it comes when freezing is a fifth late; of ages that are made up
CREATE FUNCTION pg_temp.of_age(ids bigint) RETURNS SETOF boolean LANGUAGE plpgsql AS $$
BEGIN
  UPDATE pg_database
     SET datfrozenxid = mod(pg_current_xact_id()::text::bigint - ids + 4294967296, 4294967296)::text::xid
   WHERE datname = current_database();
  RETURN QUERY SELECT w.warning FROM keyright.wraparound w
                WHERE w.database = current_database() AND w.transaction_ids_used = ids;
END $$;
BEGIN;
SELECT pg_temp.of_age(current_setting('autovacuum_freeze_max_age')::bigint * 12 / 10) AS warning;
SELECT pg_temp.of_age(current_setting('autovacuum_freeze_max_age')::bigint * 12 / 10 + 1) AS warning;
ROLLBACK;

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
