-- Puts helpers.c and keyright into a database; :library is its path.
CREATE EXTENSION keyright;
CREATE FUNCTION bench_seat_id(slot int) RETURNS uuid
  LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS :'library', 'bench_seat_id';
CREATE FUNCTION bench_seat_ids(first int, count int) RETURNS uuid[]
  LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS :'library', 'bench_seat_ids';
-- volatile: each call signs
CREATE FUNCTION bench_sign(size int) RETURNS bytea
  LANGUAGE c VOLATILE STRICT AS :'library', 'bench_sign';

-- Sells licenses named first, first + 1 ... (pgbench makes numbers, no texts)
-- and fills their seats, but for those with slot % every = remainder.
CREATE PROCEDURE bench_sell(first int, licenses int, seats int,
                            every int DEFAULT NULL, remainder int DEFAULT 0,
                            lasts interval DEFAULT '1 hour')
LANGUAGE sql AS $$
  INSERT INTO keyright.license (license_id, seat_count, ttl)
    SELECT k, seats, lasts FROM generate_series(first, first + licenses - 1) k;
  INSERT INTO keyright.seat (license, slot, seat_id, holder, checked_out_at,
                             issued_at, expires_at)
    SELECT l.id, s, lease.*
      FROM keyright.license l
     CROSS JOIN generate_series(1, seats) s
      LEFT JOIN LATERAL (SELECT bench_seat_id(s), 'somebody@workstation',
                                now(), now(),
                                date_trunc('second', now()) + lasts) lease
             ON s % every IS DISTINCT FROM remainder
     WHERE l.license_id::int BETWEEN first AND first + licenses - 1
     ORDER BY l.id, s;
$$;
