-- Licenses are managed with plain DML: what makes no sense is refused by a
-- constraint, and no statement leaves seats behind or changes who is who.
INSERT INTO keyright.license (license_id, seat_count) VALUES ('acme', 10);
SELECT license_id, seat_count, ttl, skew, reap_grace, max_ttl, valid_from, valid_until, suspended
  FROM keyright.license;

-- every bad value for every column; nothing is inserted
\set VERBOSITY terse
INSERT INTO keyright.license (license_id, seat_count) VALUES ('acme', 1);
INSERT INTO keyright.license (license_id, seat_count) VALUES (NULL, 1);
INSERT INTO keyright.license (license_id, seat_count) VALUES ('', 1);
INSERT INTO keyright.license (license_id, seat_count) VALUES (E'tab\there', 1);
INSERT INTO keyright.license (license_id, seat_count) VALUES (repeat('x', 256), 1);
INSERT INTO keyright.license (license_id, seat_count) VALUES (repeat(U&'\00e9', 128), 1);
INSERT INTO keyright.license (license_id, seat_count) VALUES ('bad', NULL);
INSERT INTO keyright.license (license_id, seat_count) VALUES ('bad', -1);
INSERT INTO keyright.license (license_id, seat_count) VALUES ('bad', -2147483648);
INSERT INTO keyright.license (license_id, seat_count) VALUES ('bad', 2147483648);
INSERT INTO keyright.license (license_id, seat_count, ttl) VALUES ('bad', 1, NULL);
INSERT INTO keyright.license (license_id, seat_count, ttl) VALUES ('bad', 1, '0');
INSERT INTO keyright.license (license_id, seat_count, ttl) VALUES ('bad', 1, '0.999999 s');
INSERT INTO keyright.license (license_id, seat_count, ttl) VALUES ('bad', 1, '-1 hour');
INSERT INTO keyright.license (license_id, seat_count, ttl) VALUES ('bad', 1, '1 month');
INSERT INTO keyright.license (license_id, seat_count, ttl) VALUES ('bad', 1, '1 year');
INSERT INTO keyright.license (license_id, seat_count, ttl) VALUES ('bad', 1, '-1 month 60 days');
INSERT INTO keyright.license (license_id, seat_count, ttl) VALUES ('bad', 1, '3650 days 00:00:00.000001');
INSERT INTO keyright.license (license_id, seat_count, ttl) VALUES ('bad', 1, '2147483647 days');
INSERT INTO keyright.license (license_id, seat_count, skew) VALUES ('bad', 1, NULL);
INSERT INTO keyright.license (license_id, seat_count, skew) VALUES ('bad', 1, '-0.000001 s');
INSERT INTO keyright.license (license_id, seat_count, skew, reap_grace) VALUES ('bad', 1, '1 day 0.000001 s', '2 days');
INSERT INTO keyright.license (license_id, seat_count, skew) VALUES ('bad', 1, '1 month');
INSERT INTO keyright.license (license_id, seat_count, skew) VALUES ('bad', 1, '15 s');
INSERT INTO keyright.license (license_id, seat_count, skew) VALUES ('bad', 1, '16 s');
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('bad', 1, NULL);
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('bad', 1, '5 s');
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('bad', 1, '4 s');
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('bad', 1, '1 month');
INSERT INTO keyright.license (license_id, seat_count, reap_grace) VALUES ('bad', 1, '3650 days 0.000001 s');
INSERT INTO keyright.license (license_id, seat_count, max_ttl) VALUES ('bad', 1, '59.999999 s');
INSERT INTO keyright.license (license_id, seat_count, max_ttl) VALUES ('bad', 1, '1 month');
INSERT INTO keyright.license (license_id, seat_count, max_ttl) VALUES ('bad', 1, '3651 days');
INSERT INTO keyright.license (license_id, seat_count, valid_until) VALUES ('bad', 1, '2101-01-01 00:00:00.000001Z');
INSERT INTO keyright.license (license_id, seat_count, valid_until) VALUES ('bad', 1, '2101-01-01 00:00:00.5Z');
INSERT INTO keyright.license (license_id, seat_count, valid_from, valid_until) VALUES ('bad', 1, '2101-01-01Z', '2101-01-01Z');
INSERT INTO keyright.license (license_id, seat_count, valid_from, valid_until) VALUES ('bad', 1, '2101-01-02Z', '2101-01-01Z');
INSERT INTO keyright.license (license_id, seat_count, suspended) VALUES ('bad', 1, NULL);
INSERT INTO keyright.license (id, license_id, seat_count) VALUES (7, 'bad', 1);
-- the same by UPDATE
UPDATE keyright.license SET seat_count = -1;
UPDATE keyright.license SET seat_count = NULL;
UPDATE keyright.license SET ttl = '1 month';
UPDATE keyright.license SET ttl = '2 minutes', max_ttl = '1 minute';
UPDATE keyright.license SET skew = '20 s';
UPDATE keyright.license SET valid_until = '2101-01-01 00:00:00.5Z';
SELECT count(*), max(seat_count) FROM keyright.license;

-- the ends of the ranges are good; a day has 24 hours
INSERT INTO keyright.license (license_id, seat_count, ttl, skew, reap_grace, max_ttl, valid_from, valid_until)
  VALUES ('least', 0, '1 s', '0', '0.000001 s', '1 s', '-infinity', 'infinity'),
         ('most', 2147483647, '3650 days', '24 hours', '87600 hours', '3650 days', '2001-01-01 00:00:00.5Z', '9999-12-31 23:59:59Z'),
         (repeat(U&'\00e9', 127), 1, DEFAULT, DEFAULT, DEFAULT, NULL, NULL, NULL);
SELECT status, slot, seat_count FROM keyright_checkout('most', 'anna');
SELECT seats, live, free FROM keyright.pools WHERE license_id = 'most';
SELECT status FROM keyright_checkout('least', 'anna');
UPDATE keyright.license SET seat_count = 1 WHERE license_id = 'least';
SELECT status, expires_at - issued_at BETWEEN '1 s' AND '2 s' AS a_second
  FROM keyright_checkout('least', 'anna');
SELECT status FROM keyright_checkout(repeat(U&'\00e9', 127), 'anna');

-- ids begin at 1, also where somebody overrides the identity
INSERT INTO keyright.license (id, license_id, seat_count) OVERRIDING SYSTEM VALUE VALUES (0, 'bad', 1);
INSERT INTO keyright.license (id, license_id, seat_count) OVERRIDING SYSTEM VALUE VALUES (-1, 'bad', 1);
\set VERBOSITY default

-- the id stays what it is
UPDATE keyright.license SET id = DEFAULT WHERE license_id = 'acme';
UPDATE keyright.license SET license_id = 'acme 2' WHERE license_id = 'acme';
SELECT status FROM keyright_checkout('acme', 'anna');
SELECT status, license_id FROM keyright_checkout('acme 2', 'anna');

-- with live leases nothing deletes it, and nothing is deleted of it
SELECT seat_id AS a FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
 WHERE license_id = 'acme 2' \gset
DELETE FROM keyright.license WHERE license_id = 'acme 2';
SELECT keyright_delete_license('acme 2');
SELECT keyright_delete_license('acme 2', false);
SELECT keyright_delete_license('acme 2', NULL);
TRUNCATE keyright.license;
TRUNCATE keyright.license CASCADE;
SET session_replication_role = replica;
DELETE FROM keyright.license WHERE license_id = 'acme 2';
TRUNCATE keyright.license;
UPDATE keyright.license SET id = DEFAULT WHERE license_id = 'acme 2';
RESET session_replication_role;
SELECT status FROM keyright_heartbeat('acme 2', :'a');
SELECT status FROM keyright_checkout('acme 2', 'bert');
DELETE FROM keyright.license WHERE license_id = 'acme 2';
-- one statement for several is all or nothing
\set VERBOSITY sqlstate
DELETE FROM keyright.license;
\set VERBOSITY default
SELECT count(*) FROM keyright.license;

-- given back, it goes, and its seats go with it
SELECT count(*) FROM keyright_revoke_holder('acme 2', 'bert');
SELECT keyright_checkin('acme 2', :'a');
SELECT id AS old_id FROM keyright.license WHERE license_id = 'acme 2' \gset
DELETE FROM keyright.license WHERE license_id = 'acme 2';
SELECT count(*) AS seats_left FROM keyright.seat WHERE license = :old_id;
SELECT keyright_checkin('acme 2', :'a');
-- a license of the same name is another license
INSERT INTO keyright.license (license_id, seat_count) VALUES ('acme 2', 1);
SELECT id > :old_id AS new_id FROM keyright.license WHERE license_id = 'acme 2';
SELECT status, reason FROM keyright_heartbeat('acme 2', :'a');
SELECT status FROM keyright_checkout('acme 2', 'carl');

-- leases that lapsed do not hold it
UPDATE keyright.seat s SET expires_at = clock_timestamp() - interval '6 s'
  FROM keyright.license l WHERE l.id = s.license AND license_id = 'acme 2';
SELECT keyright_delete_license('acme 2');
SELECT keyright_delete_license('acme 2');

-- forced: the leases end in the same transaction
INSERT INTO keyright.license (license_id, seat_count) VALUES ('forced', 3);
SELECT seat_id AS a FROM keyright_checkout('forced', 'anna') \gset
BEGIN;
SELECT keyright_delete_license('forced', force => true);
SELECT count(*) FROM keyright.license WHERE license_id = 'forced';
SELECT status FROM keyright_heartbeat('forced', :'a');
ROLLBACK;
SELECT status FROM keyright_heartbeat('forced', :'a');
SELECT keyright_delete_license('forced', true);
SELECT status FROM keyright_heartbeat('forced', :'a');
SELECT status FROM keyright_checkout('forced', 'anna');
SELECT keyright_delete_license('forced', true);
SELECT keyright_delete_license(NULL);

-- what an administrator has hung on the row is asked, as by a plain DELETE
CREATE TABLE invoice (license_id text REFERENCES keyright.license (license_id));
CREATE TABLE note (license integer REFERENCES keyright.license (id) ON DELETE CASCADE, note text);
CREATE TABLE audit (deleted text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
  $$BEGIN INSERT INTO audit VALUES (OLD.license_id); RETURN OLD; END$$;
CREATE TRIGGER audit AFTER DELETE ON keyright.license FOR EACH ROW EXECUTE FUNCTION audit();
INSERT INTO keyright.license (license_id, seat_count) VALUES ('sold', 2);
INSERT INTO note SELECT id, 'a customer' FROM keyright.license WHERE license_id = 'sold';
INSERT INTO invoice VALUES ('sold');
SELECT seat_id AS a FROM keyright_checkout('sold', 'anna') \gset
\set VERBOSITY sqlstate
SELECT keyright_delete_license('sold', force => true);
\set VERBOSITY default
SELECT status FROM keyright_heartbeat('sold', :'a');
TRUNCATE invoice;
SELECT keyright_delete_license('sold', force => true);
SELECT * FROM note;
SELECT * FROM audit;
-- one that says no keeps seats and leases
CREATE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$;
CREATE TRIGGER veto BEFORE DELETE ON keyright.license FOR EACH ROW EXECUTE FUNCTION veto();
INSERT INTO keyright.license (license_id, seat_count) VALUES ('kept', 2);
SELECT seat_id AS a FROM keyright_checkout('kept', 'anna') \gset
SELECT keyright_delete_license('kept', force => true);
SELECT status FROM keyright_heartbeat('kept', :'a');
DROP TRIGGER veto ON keyright.license;
DROP TRIGGER audit ON keyright.license;
DROP TABLE invoice, note, audit;
DROP FUNCTION audit, veto;

SELECT count(keyright_delete_license(license_id, force => true)) FROM keyright.license;
SELECT count(*) AS seats_left FROM keyright.seat;
