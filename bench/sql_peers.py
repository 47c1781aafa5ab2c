"""What people write in SQL instead of keyright: two shapes of our own.

app     as license servers on top of PostgreSQL do it: the application locks
        the row of the license, counts the sessions that have not expired,
        inserts one and commits, a statement at a time
plpgsql the same in one function, under an advisory lock

Both have the indexes that make their counting fast.  Neither signs anything.
"""

from common import sql

TABLES = """
CREATE TABLE {peer}_license (
  id int PRIMARY KEY, name text UNIQUE NOT NULL, seats int NOT NULL);
CREATE TABLE {peer}_session (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(), license int NOT NULL,
  holder text NOT NULL, started timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL);
"""

SETUP = TABLES.format(peer="app") + TABLES.format(peer="plpgsql") + """
CREATE INDEX ON app_session (license);
CREATE INDEX ON app_session (expires_at);
CREATE INDEX ON plpgsql_session (license, expires_at);

CREATE FUNCTION plpgsql_checkout(wanted text, who text) RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
  sold plpgsql_license;
  used bigint;
  session uuid;
BEGIN
  SELECT * INTO sold FROM plpgsql_license WHERE name = wanted;
  PERFORM pg_advisory_xact_lock(sold.id);
  SELECT count(*) INTO used FROM plpgsql_session
   WHERE license = sold.id AND expires_at > clock_timestamp();
  IF used >= sold.seats THEN
    RETURN NULL;
  END IF;
  INSERT INTO plpgsql_session (license, holder, expires_at)
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

PLPGSQL_GRANT = r"""
SELECT plpgsql_checkout(:license, 'somebody@workstation') AS session \gset
DELETE FROM plpgsql_session WHERE id = :session;
"""


def create():
    sql(SETUP)


def sell(first, licenses, seats, used):
    """As common.sell(); a session's id comes from its license and number."""
    for peer in "app", "plpgsql":
        sql(f"""
            INSERT INTO {peer}_license
              SELECT k, k, {seats}
                FROM generate_series({first}, {first + licenses - 1}) k;
            INSERT INTO {peer}_session (id, license, holder, expires_at)
              SELECT bench_seat_id(k * 100000 + s), k, 'somebody@workstation',
                     now() + interval '1 hour'
                FROM generate_series({first}, {first + licenses - 1}) k,
                     generate_series(1, {used}) s;""")
