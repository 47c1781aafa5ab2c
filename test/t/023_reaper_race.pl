# Promise: a lease that is live once a beat has committed is never emptied by
# the reaper, and the two never deadlock.
#
# How: thousands of leases end on the same whole seconds.  Clients renew most
# of theirs in the last milliseconds before, and commit at random up to some
# time after, while the reaper sweeps every 10 ms with the smallest grace that
# there can be and other sessions call keyright_reap().  What the clients were
# told is kept in a table that commits together with the beats: a sampler
# joins it with the seats in one snapshot, and each client checks that what it
# is told to be lost had lapsed.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Test::More;

my $seconds = 15;
my $clients = 8;
my $each = 250;

my $node = new_node(
	'race',
	conf => "keyright.reap_interval = '10ms'\n"
	  . "keyright.lock_timeout = '30s'\n"
	  . "keyright.max_lock_hold = '60s'\n"
	  . "deadlock_timeout = '1s'\n"
	  . "log_lock_waits = off\n"
	  . "synchronous_commit = off\n"
	  . 'autovacuum = off');

$node->safe_psql(
	'postgres', qq(
	INSERT INTO keyright.license
		(license_id, seat_count, ttl, skew, reap_grace)
	SELECT 'pool-' || g, @{[ $clients * $each ]}, '1 s', '0', '1 us'
	FROM generate_series(1, 4) g;
	CREATE SCHEMA race;
	CREATE TABLE race.lease (client int, n int, license text, license_no int,
		slot int, seat_id uuid, expires_at timestamptz,
		PRIMARY KEY (client, n)) WITH (fillfactor = 50);
	INSERT INTO race.lease (client, n, license)
	SELECT c, n, 'pool-' || (1 + n % 4)
	FROM generate_series(0, @{[ $clients - 1 ]}) c,
		generate_series(1, $each) n;
	UPDATE race.lease r SET license_no = l.id FROM keyright.license l
	WHERE l.license_id = r.license;
	CREATE TABLE race.renewed (client int, renewed int, lost int);
	CREATE TABLE race.wrong (what text)));

# In the order of the licenses: a beat that finds its lease lost takes the
# license's lock, and several of them in one transaction would deadlock among
# themselves otherwise.
$node->safe_psql(
	'postgres', q(
	CREATE FUNCTION race.beat(me int) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		l record; r record; renewed int := 0; lost int := 0;
		boundary timestamptz := date_trunc('second', clock_timestamp())
			+ interval '1 s';
	BEGIN
		PERFORM pg_sleep(extract(epoch FROM boundary - clock_timestamp())
			- 0.15 * random());
		FOR l IN SELECT * FROM race.lease
			WHERE client = me AND seat_id IS NOT NULL AND random() < 0.7
			ORDER BY license_no
		LOOP
			SELECT * INTO r FROM keyright_heartbeat(l.license, l.seat_id);
			IF r.status = 'renewed' THEN
				UPDATE race.lease SET expires_at = r.expires_at
				WHERE client = me AND n = l.n;
				renewed := renewed + 1;
			ELSE
				-- told after the clock was read: still within means wrong
				IF clock_timestamp() <= l.expires_at THEN
					INSERT INTO race.wrong VALUES (format('client %s lease %s '
						'until %s: %s', me, l.n, l.expires_at, r.reason));
				END IF;
				UPDATE race.lease SET seat_id = NULL
				WHERE client = me AND n = l.n;
				lost := lost + 1;
			END IF;
		END LOOP;
		INSERT INTO race.renewed VALUES (me, renewed, lost);
		PERFORM pg_sleep(0.1 * random());
	END $$;
	CREATE FUNCTION race.check_out(me int) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		l record; r record;
	BEGIN
		FOR l IN SELECT * FROM race.lease
			WHERE client = me AND seat_id IS NULL ORDER BY license_no
		LOOP
			SELECT * INTO STRICT r
			FROM keyright_checkout(l.license, 'client ' || me);
			UPDATE race.lease SET seat_id = r.seat_id, slot = r.slot,
				expires_at = r.expires_at
			WHERE client = me AND n = l.n;
		END LOOP;
	END $$));

# Both tables in one snapshot, and only then the clock.
my $sampler = $node->background_psql('postgres');
$sampler->query_until(
	qr/sampling/, q(\echo sampling
	DO $$
	DECLARE
		missing text; samples int := 0; stop boolean := false;
	BEGIN
		WHILE NOT stop LOOP
			SELECT string_agg(format('client %s lease %s', client, n), ' ')
			INTO missing
			FROM (SELECT r.client, r.n, r.expires_at FROM race.lease r
				LEFT JOIN keyright.seat s ON s.license = r.license_no
					AND s.slot = r.slot AND s.seat_id = r.seat_id
				WHERE r.seat_id IS NOT NULL AND s.seat_id IS NULL OFFSET 0) m
			WHERE m.expires_at >= clock_timestamp();
			IF missing IS NOT NULL THEN
				INSERT INTO race.wrong VALUES ('emptied: ' || missing);
			END IF;
			samples := samples + 1;
			COMMIT;
			PERFORM pg_sleep(0.02);
			SELECT count(*) > 0 INTO stop FROM race.wrong WHERE what = 'stop';
		END LOOP;
		INSERT INTO race.wrong VALUES ('samples: ' || samples);
	END $$;
));
my $log = log_size($node);
my $by_hand = start_clients($node, 2, $seconds,
	"SELECT keyright_reap();\n\\sleep 10 ms\n");
my $beats = start_clients(
	$node, $clients, $seconds,
	"SELECT race.check_out(:client_id);\nSELECT race.beat(:client_id);\n",
	'--max-tries=100');
is(finish_clients($beats)->{status}, 0, 'no beat and no check-out failed');
is(finish_clients($by_hand)->{status}, 0, 'nor did a sweep by hand');
$node->safe_psql('postgres', q(INSERT INTO race.wrong VALUES ('stop')));
$node->poll_query_until('postgres',
	q(SELECT count(*) = 1 FROM race.wrong WHERE what LIKE 'samples%'));
$sampler->quit;

my $wrong = q(SELECT what FROM race.wrong
	WHERE what <> 'stop' AND what NOT LIKE 'samples%');
is_deeply([ map { $_->{what} } rows($node, "$wrong LIMIT 5") ],
	[], 'no live lease was emptied');
my $done = row($node,
	'SELECT sum(renewed) AS renewed, sum(lost) AS lost FROM race.renewed');
my $reaped = row($node, 'SELECT total_reaped FROM keyright.reaper');
note "$done->{renewed} renewed, $done->{lost} lost, "
  . "$reaped->{total_reaped} reaped by the worker, "
  . row($node, q(SELECT what FROM race.wrong WHERE what LIKE 'samples%'))
  ->{what};
cmp_ok($done->{renewed}, '>', 500, 'many were renewed');
cmp_ok($done->{lost}, '>', 100, 'many lapsed');
cmp_ok($reaped->{total_reaped}, '>', 50, 'the reaper was at work');
# A beat that was held up until its lease lapsed says so and is repeated.
is_deeply(
	[
		grep { !/could not renew the lease in time/ }
		  log_lines($node, qr/(?:ERROR|FATAL|PANIC):|deadlock/, $log)
	],
	[],
	'no deadlock, and nothing else in the log');

ok( $node->poll_query_until(
		'postgres', 'SELECT count(seat_id) = 0 FROM keyright.seat'),
	'in the end all are emptied');
is(crashes($node), 0, 'no crash');
$node->stop;
done_testing();
