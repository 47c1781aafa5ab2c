"""What people write in SQL instead of keyright: shapes of our own.

app      as license servers on top of PostgreSQL do it: the application locks
         the row of the license, counts the sessions that have not expired,
         inserts one and commits, a statement at a time; indexes on the license
         and on the expiry of the sessions
plpgsql  the same tables, and one function with an advisory lock
tuned    the same function, with one index that has all that it counts by

None of them signs what it hands out.
"""

from common import sql

PEERS = ("app", "plpgsql", "tuned")

TABLES = """
CREATE TABLE {peer}_license (
  id int PRIMARY KEY, name text UNIQUE NOT NULL, seats int NOT NULL);
CREATE TABLE {peer}_session (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(), license int NOT NULL,
  holder text NOT NULL, started timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL);
"""

INDEXES = """
CREATE INDEX ON app_session (license);
CREATE INDEX ON app_session (expires_at);
CREATE INDEX ON plpgsql_session (license);
CREATE INDEX ON plpgsql_session (expires_at);
CREATE INDEX ON tuned_session (license, expires_at);
"""

FUNCTION = """
CREATE FUNCTION {peer}_checkout(wanted text, who text) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
  sold {peer}_license;
  used bigint;
  session uuid;
BEGIN
  SELECT * INTO sold FROM {peer}_license WHERE name = wanted;
  PERFORM pg_advisory_xact_lock(sold.id);
  SELECT count(*) INTO used FROM {peer}_session
   WHERE license = sold.id AND expires_at > clock_timestamp();
  IF used >= sold.seats THEN
    RETURN NULL;
  END IF;
  INSERT INTO {peer}_session (license, holder, expires_at)
  VALUES (sold.id, who, clock_timestamp() + interval '1 hour')
  RETURNING id INTO session;
  RETURN session;
END $$;
"""

APP_GRANT = r"""
BEGIN;
SELECT id AS sold, seats FROM app_license WHERE name = :license FOR UPDATE \gset
SELECT count(*) AS used FROM app_session
 WHERE license = :sold AND expires_at > now() \gset
\if :used < :seats
INSERT INTO app_session (license, holder, expires_at)
VALUES (:sold, 'somebody@workstation', now() + interval '1 hour')
RETURNING id AS session \gset
\endif
COMMIT;
DELETE FROM app_session WHERE id = :session;
"""

APP_BEAT = """
UPDATE app_session SET expires_at = now() + interval '1 hour'
 WHERE id = bench_seat_id(:license * 100000 + :slot) AND expires_at > now();
"""

FUNCTION_GRANT = r"""
SELECT {peer}_checkout(:license, 'somebody@workstation') AS session \gset
DELETE FROM {peer}_session WHERE id = :session;
"""
PLPGSQL_GRANT = FUNCTION_GRANT.format(peer="plpgsql")
TUNED_GRANT = FUNCTION_GRANT.format(peer="tuned")


def create():
    sql("".join(TABLES.format(peer=peer) for peer in PEERS) + INDEXES
        + "".join(FUNCTION.format(peer=peer) for peer in PEERS[1:]))


def sell(first, licenses, seats, used):
    """As common.sell(); a session's id comes from its license and number."""
    for peer in PEERS:
        sql(f"""
            INSERT INTO {peer}_license
              SELECT k, k, {seats}
                FROM generate_series({first}, {first + licenses - 1}) k;
            INSERT INTO {peer}_session (id, license, holder, expires_at)
              SELECT bench_seat_id(k * 100000 + s), k, 'somebody@workstation',
                     now() + interval '1 hour'
                FROM generate_series({first}, {first + licenses - 1}) k,
                     generate_series(1, {used}) s;""")
