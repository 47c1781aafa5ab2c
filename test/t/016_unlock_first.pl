# Nobody waits for the disk, or for a standby, under the license's lock; and
# nobody is answered before what he did is there.
#
# While a synchronous standby does not answer, a check-out has committed and is
# not told so; another one on its license is refused at once, because it sees
# the seat taken and writes nothing itself.  A revocation is seen by nobody before
# the standby has it, and a beat that waits for it is not told "renewed".  Who
# promises something because of what he sees waits too, even if he writes nothing:
# a second beat, a revocation that finds nobody.  And what else was written in
# the transaction of a check-out is seen by nobody.
# When the standby is back the first one is answered.  A server that is stopped
# at once afterwards still has the lease.  (That the disk is waited for too is
# what 015_crash shows: clients that were answered look for their leases.)

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Test::More;

my $primary = new_node(
	'primary',
	init => { allows_streaming => 1 },
	# who waited for the lock would be told 55P03 long before the test ends
	conf => "keyright.max_lock_hold = '10 min'\nautovacuum = off");
my $standby = new_standby($primary);
add_license($primary, 'acme', 2, ttl => '1 h');
my $first = checkout($primary, 'acme', 'first');

$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$primary->reload;
$primary->poll_query_until('postgres',
	q(SELECT sync_state = 'sync' FROM pg_stat_replication))
  or die 'the standby is not synchronous';
$standby->stop;

# Asks in a session of its own; the function returns what it was told so far.
sub ask
{
	my ($sql) = @_;
	my $session = $primary->background_psql('postgres');
	$session->query_until(qr/asked/, "\\echo asked\n$sql;\n\\echo answered\n");
	return ($session, sub {
		$session->{run}->pump_nb;
		return $session->{stdout};
	});
}

my $waiting = sub {
	my ($count) = @_;
	return $primary->poll_query_until('postgres',
		"SELECT count(*) = $count FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
};

for my $level ('on', 'remote_write')
{
	my ($session, $told) = ask("SET synchronous_commit = $level;
		SELECT status FROM keyright_checkout('acme', '$level')");
	ok($waiting->(1), "$level: a check-out waits for the standby");
	is(checkout($primary, 'acme', 'late')->{status}, 'no_seats_available',
		'meanwhile another is refused at once');
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM keyright.locks'),
		0, 'nobody holds the lock of the license');

	my ($revoker) =
	  ask(q(SELECT slot FROM keyright_revoke_holder('acme', 'first')));
	ok($waiting->(2), 'a revocation waits for the standby too');
	is( sqlstate($primary, "SELECT * FROM keyright_heartbeat('acme',
			'$first->{seat_id}')"),
		'55P03', 'its holder does not hear of it yet');
	unlike($told->(), qr/granted|answered/, 'nothing was answered yet');

	$standby->start;
	wait_until('the check-out is answered', sub { $told->() =~ /answered/ });
	like($told->(), qr/granted/, 'granted, once the standby has it');
	$session->quit;
	$revoker->quit;
	is($standby->safe_psql('postgres',
			"SELECT count(*) FROM keyright.holders WHERE holder = '$level'"),
		1, 'and it has');
	# a full pool for the next round
	$first = checkout($primary, 'acme', 'first');
	is($first->{status}, 'granted', 'the revoked seat can be had');
	$primary->safe_psql('postgres',
		"SELECT * FROM keyright_revoke_holder('acme', '$level')");
	$primary->wait_for_catchup($standby);
	$standby->stop;
}

# The bound on holding a lock does not cut the wait off: the answer would tell of
# a renewal that no standby has.
$primary->append_conf('postgresql.conf', "keyright.max_lock_hold = '1 s'");
$primary->reload;
# A beat within the second of the check-out has nothing to write.
$primary->poll_query_until('postgres', "SELECT issued_at < clock_timestamp()
	- interval '1 s' FROM keyright.seat WHERE holder = 'first'")
  or die 'no second passed';
my ($beat, $told) = ask(
	"SELECT status FROM keyright_heartbeat('acme', '$first->{seat_id}')");
ok($waiting->(1), 'a beat waits for the standby');
$primary->safe_psql('postgres', 'SELECT pg_sleep(3)');
is($primary->safe_psql('postgres',
		q(SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep')),
	1, 'for longer than keyright.max_lock_hold too');
unlike($told->(), qr/renewed|answered/, 'and is not answered');
$standby->start;
wait_until('the beat is answered', sub { $told->() =~ /renewed/ });
$beat->quit;
$primary->append_conf('postgresql.conf', "keyright.max_lock_hold = '10 min'");
$primary->reload;
$primary->wait_for_catchup($standby);
$standby->stop;

# Who asks for more than PostgreSQL can tell before the lock is gone keeps it.
$primary->append_conf('postgresql.conf', "keyright.lock_timeout = '1 s'");
$primary->reload;
my ($session) = ask(q(SET synchronous_commit = remote_apply;
	SELECT status FROM keyright_checkout('acme', 'remote_apply')));
ok($waiting->(1), 'remote_apply: a check-out waits for the standby');
is( sqlstate($primary, q(SELECT * FROM keyright_checkout('acme', 'late'))),
	'55P03', 'and keeps the lock');
$standby->start;
$session->quit;
$primary->wait_for_catchup($standby);

# A promise that writes nothing.  The ends of these leases are the license's, so
# a beat leaves them as they are.
add_license($primary, 'end', 2, max_ttl => '1 day',
	valid_until => $primary->safe_psql('postgres',
		q(SELECT date_trunc('second', now() + '1 hour'))));
my $gone = checkout($primary, 'end', 'gone');
$primary->wait_for_catchup($standby);
$standby->stop;
sub end_of
{
	return "SELECT status FROM keyright_checkout('end', '$_[0]', '1 day')";
}
my @sessions = map { [ ask($_) ] } (end_of('me'),
	"SELECT keyright_checkin('end', '$gone->{seat_id}')");
ok($waiting->(2), 'a check-out and a check-in wait for the standby');
my $mine = $primary->safe_psql('postgres',
	q(SELECT seat_id FROM keyright.seat WHERE holder = 'me'));
push @sessions, [ ask("SELECT status FROM keyright_heartbeat('end', '$mine')") ],
  [ ask("SELECT count(*) FROM keyright_revoke_holder('end', 'gone')") ];
ok($waiting->(4), 'and so do a beat and a revocation that build on them');
unlike($_->[1]->(), qr/answered/, 'without an answer') for @sessions;
$standby->start;
wait_until('they are answered', sub { $_->[1]->() =~ /answered/ }) for @sessions;
like($sessions[2][1]->(), qr/renewed/, 'renewed');
like($sessions[3][1]->(), qr/^0$/m, 'nobody to revoke');
$_->[0]->quit for @sessions;

# What else is written in the same transaction is seen when it is there.
$primary->safe_psql('postgres', q(
	CREATE TABLE invoice (number int);
	CREATE FUNCTION order_seat(number int) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE answer text;
	BEGIN
		SELECT status INTO answer FROM keyright_checkout('more', 'f');
		INSERT INTO invoice VALUES (number);
		RETURN answer;
	END $$;
	CREATE FUNCTION invoice_first(number int) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO invoice VALUES (number);
		RETURN (SELECT status FROM keyright_checkout('more', 'g'));
	END $$));
add_license($primary, 'more', 20);
add_license($primary, 'others', 20);
my %orders = (
	'before it' => q(BEGIN; INSERT INTO invoice VALUES (1);
		SELECT status FROM keyright_checkout('more', 'a'); COMMIT),
	'after it' => q(BEGIN; SELECT status FROM keyright_checkout('more', 'b');
		INSERT INTO invoice VALUES (2); COMMIT),
	'with it' => q(INSERT INTO invoice
		SELECT slot FROM keyright_checkout('more', 'c')),
	'in a function' => q(SELECT order_seat(4)),
	'in a function, first' => q(SELECT invoice_first(5)),
	'in a CTE' => q(WITH i AS (INSERT INTO invoice VALUES (6) RETURNING number)
		SELECT status FROM i, keyright_checkout('more', 'd')));
for my $where (sort keys %orders)
{
	$primary->wait_for_catchup($standby);
	$standby->stop;
	my ($order) = ask($orders{$where});
	ok($waiting->(1), "a check-out with an invoice $where waits");
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM invoice'), 0,
		'... and the invoice is not seen');
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM keyright.locks'),
		1, '... nor is the seat given away');
	$standby->start;
	$order->quit;
	is($primary->safe_psql('postgres', 'WITH d AS (DELETE FROM invoice
			RETURNING 1) SELECT count(*) FROM d'), 1, '... before it is there');
}
# Several calls, and nothing else: as one.
$primary->wait_for_catchup($standby);
$standby->stop;
my ($many) = ask(q(BEGIN;
	SELECT count(*) FROM generate_series(1, 3) i, keyright_checkout('others', 'h' || i);
	SAVEPOINT s;
	SELECT status FROM keyright_checkout('others', 'last'); COMMIT));
ok($waiting->(1), 'check-outs in a block of their own wait');
is($primary->safe_psql('postgres', 'SELECT count(*) FROM keyright.locks'), 0,
	'and hold no lock');
$standby->start;
$many->quit;

$primary->stop('immediate');
$primary->start;
is($primary->safe_psql('postgres',
		q(SELECT string_agg(holder, ' ' ORDER BY holder) FROM keyright.holders
			WHERE license_id = 'acme')),
	'first remote_apply', 'a crash loses nothing of it');
is(crashes($primary), 0, 'no crash but ours');
done_testing();
