# One stuck session does not stop a customer's fleet.
#
# While somebody sits on a license's lock, who wants a seat of it is told so
# soon (55P03), other licenses know nothing of it and every holder goes on
# beating.  And nobody sits there for longer than keyright.max_lock_hold,
# however he does it and whatever he sets in his session; while who ends his
# transactions in time is never disturbed afterwards.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $hold_ms = 2500;

# At first nobody is ended and a wait is short: what callers are told then is
# not due to the end of the stuck session.
my $node = new_node(
	'stuck', conf => q(
max_connections = 300
max_prepared_transactions = 5
keyright.max_lock_hold = '10 min'
keyright.lock_timeout = '2 s'
));

sub settings
{
	my (%settings) = @_;
	while (my ($name, $value) = each %settings)
	{
		$node->append_conf('postgresql.conf', "keyright.$name = '$value'");
	}
	$node->reload;
	while (my ($name, $value) = each %settings)
	{
		$node->poll_query_until('postgres',
			"SELECT current_setting('keyright.$name')::interval = '$value'")
		  or die "keyright.$name was not set";
	}
	return;
}

sub seat_of
{
	my ($holder) = @_;
	return "(SELECT seat_id FROM keyright.seat WHERE holder = '$holder')";
}

# The states of all answers of a volley, each with its number.
sub states
{
	my ($tool) = @_;
	$tool->{run}->finish;
	my %seen;
	for my $line (split /\n/, $tool->{output})
	{
		my @fields = split /\t/, $line;
		$seen{ join ' ', @fields[ 5 .. $#fields ] }++;
	}
	note $tool->{errors} if $tool->{errors};
	return join ', ', map { "$_: $seen{$_}" } sort keys %seen;
}

sub wait_for_output
{
	my ($tool, $pattern) = @_;
	return wait_until(
		"output like $pattern",
		sub {
			$tool->{run}->pump_nb;
			return $tool->{output} =~ $pattern;
		});
}

# --- who is hindered and who is not ---

add_license($node, 'stuck', 100, ttl => '1 h');
add_license($node, 'other', 200, ttl => '1 h');
$node->safe_psql('postgres',
	q(SELECT keyright_checkout('stuck', 'holder ' || i)
	  FROM generate_series(0, 49) i));

my $beat = 'SELECT status FROM keyright_heartbeat('
  . "'stuck', @{[ seat_of('holder %c') ]})";
my $beats =
  start_tool($node, 'volley', '-n', 50, '-r', 0, '-i', 100, '-q', $beat);
wait_for_output($beats, qr/^50\t1\t49\t/m);

my $stuck = start_tool($node, 'hold', '-w', 600, 'BEGIN',
	q(SELECT status FROM keyright_checkout('stuck', 'a stuck session')));
wait_for_output($stuck, qr/^waiting$/m);
like($stuck->{output}, qr/granted/, 'a session holds the lock');

my $callers = start_tool(
	$node, 'volley', '-n', 50,
	'-q', q(SELECT status FROM keyright_checkout('stuck', 'caller')));
my $free = start_tool(
	$node, 'volley', '-n', 50,
	# a session's first call takes its time on a busy machine
	'-s', q(SELECT status FROM keyright_checkout('other', 'caller')),
	'-q', q(SELECT status FROM keyright_checkout('other', 'caller')));
is(states($callers), '55P03: 50', 'callers on that license are told soon');
is(states($free), 'ok granted: 50', 'another license knows nothing of it');

my $proud = start_tool(
	$node, 'volley', '-n', 5,
	'-s', 'SET lock_timeout = 0',
	'-s', 'SET statement_timeout = 0',
	'-q', q(SELECT status FROM keyright_checkout('stuck', 'caller')));
is(states($proud), '55P03: 5', 'a lock_timeout of 0 makes nobody wait longer');

my ($ret, $out, $err) = $node->psql('postgres',
	q(SELECT keyright_checkout('stuck', 'caller')));
like($err, qr/license "stuck" is busy/, 'the error names the license');

# Rounds of beats go on, and one that began now ends.
$beats->{run}->pump_nb;
my ($round) = $beats->{output} =~ /.*^50\t(\d+)\t/ms;
$round += 2;
wait_for_output($beats, qr/^50\t$round\t/m);
$beats->{run}->signal('TERM');
like(states($beats), qr/^ok renewed: \d+$/, 'every beat got through');

is($node->safe_psql(
		'postgres',
		q(SELECT license_id, granted, state FROM keyright.locks)),
	'stuck|t|idle in transaction',
	'keyright.locks shows who it is');
$node->safe_psql('postgres',
	'SELECT pg_terminate_backend(pid) FROM keyright.locks');
$stuck->{run}->finish;
is($node->safe_psql(
		'postgres', q(SELECT live FROM keyright.pools
			WHERE license_id = 'stuck')),
	50, 'what it had taken is free again');

# --- a waiter that is cancelled leaves nothing ---

settings(lock_timeout => '10 min');
$stuck = start_tool($node, 'hold', '-w', 600, 'BEGIN',
	q(SELECT status FROM keyright_checkout('stuck', 'a stuck session')));
wait_for_output($stuck, qr/^waiting$/m);

my $locks = q(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()
	AND (locktype IN ('advisory', 'tuple')
		OR relation = 'keyright.seat'::regclass));
my $waiter = start_tool(
	$node, 'hold', '-w', 0,
	'SET lock_timeout = 12345',
	q(SELECT status FROM keyright_checkout('stuck', 'waiter')),
	$locks,
	'SHOW lock_timeout',
	q(SELECT status FROM keyright_checkout('other', 'waiter')),
	# the same, survived by a savepoint
	'BEGIN',
	'SAVEPOINT s',
	q(SELECT status FROM keyright_checkout('stuck', 'waiter')),
	'ROLLBACK TO s',
	$locks,
	'SHOW lock_timeout',
	q(SELECT status FROM keyright_checkout('other', 'waiter')),
	'COMMIT');
# keyright.locks tells nothing of the other waits
my $waiting = q(SELECT count(*) = 1 FROM keyright.locks WHERE NOT granted);
my $cancel =
  q(SELECT pg_cancel_backend(pid) FROM keyright.locks WHERE NOT granted);
for my $statement (2, 8)
{
	wait_for_output($waiter, qr/^@{[ $statement - 1 ]}\t/m);
	$node->poll_query_until('postgres', $waiting);
	$node->safe_psql('postgres', $cancel);
	wait_for_output($waiter, qr/^$statement\t/m);
}
$waiter->{run}->finish;
my @states = $waiter->{output} =~ /^\d+\t\d+\t(.*)$/mg;
s/\t/ / for @states;
is_deeply(
	\@states,
	[
		'ok', '57014', 'ok 0', 'ok 12345ms', 'ok granted',
		'ok', 'ok', '57014', 'ok', 'ok 0', 'ok 12345ms', 'ok granted', 'ok'
	],
	'a cancelled waiter holds nothing and goes on');
is($node->safe_psql('postgres',
		q(SELECT count(*) FROM keyright.locks WHERE NOT granted)),
	0, 'nobody waits');
$node->safe_psql('postgres',
	'SELECT pg_terminate_backend(pid) FROM keyright.locks');
$stuck->{run}->finish;

# --- nobody holds it for ever ---

settings(lock_timeout => '30 s', max_lock_hold => "$hold_ms ms");

# Ways to hold a license's lock: name => [ what ends it, arguments of hold ].
# "closed": the session is ended; a number: that statement is cancelled.  %l is
# a license of its own, in which "holder" has a seat.
my $check_out = q(SELECT status FROM keyright_checkout('%l', 'x'));
my $seat = q((SELECT seat_id FROM keyright.seat s JOIN keyright.license l
	ON l.id = s.license WHERE l.license_id = '%l' AND s.holder = 'holder'));
my %stuck = (
	'idle in transaction' => [ 'closed', 'BEGIN', $check_out ],
	'in a long statement' =>
	  [ 3, 'BEGIN', $check_out, 'SELECT pg_sleep(60)' ],
	'in the statement that took it' => [
		1, q(SELECT pg_sleep(60), status
			FROM keyright_checkout('%l', 'x')) ],
	'in a pipeline without Sync' => [ 'closed', '-p', $check_out ],
	'in a pipeline with BEGIN' => [ 'closed', '-p', 'BEGIN', $check_out ],
	'after an error that a savepoint caught' => [
		'closed', 'BEGIN', $check_out, 'SAVEPOINT s', 'SELECT 1 / 0',
		'ROLLBACK TO s' ],
	'in a failed subtransaction' =>
	  [ 'closed', 'BEGIN', $check_out, 'SAVEPOINT s', 'SELECT 1 / 0' ],
	'taken in a savepoint that was released' =>
	  [ 'closed', 'BEGIN', 'SAVEPOINT s', $check_out, 'RELEASE s' ],
	'taken before a savepoint with a second one' => [
		'closed', 'BEGIN', $check_out, 'SAVEPOINT s',
		q(SELECT status FROM keyright_checkout('other', 'x')),
		'ROLLBACK TO s' ],
	'taken in two nested savepoints' => [
		'closed', 'BEGIN', 'SAVEPOINT a', $check_out, 'SAVEPOINT b',
		'SELECT 1 / 0', 'ROLLBACK TO b', 'RELEASE a' ],
	'in a loop that catches errors' => [
		3, 'BEGIN', $check_out, q(DO $$ BEGIN LOOP BEGIN
			PERFORM 1 / 0; EXCEPTION WHEN OTHERS THEN
			PERFORM pg_sleep(0.01); END; END LOOP; END $$) ],
	'in a loop that catches the cancel too' => [
		'closed', 'BEGIN', $check_out, q(DO $$ BEGIN LOOP BEGIN
			PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN
			PERFORM 1; END; END LOOP; END $$) ],
	'by a cursor' => [
		'closed', 'BEGIN',
		q(DECLARE c CURSOR FOR SELECT * FROM keyright_checkout('%l', 'x')),
		'FETCH c' ],
	# within the second of the check-out it would write nothing
	'by a beat' => [
		'closed', 'SELECT pg_sleep(1.1)', 'BEGIN',
		"SELECT status FROM keyright_heartbeat('%l', $seat)" ],
	'by a check-in' =>
	  [ 'closed', 'BEGIN', "SELECT keyright_checkin('%l', $seat)" ],
	'by a revocation' =>
	  [ 'closed', 'BEGIN', q(SELECT * FROM keyright_revoke_all('%l')) ],
	'by a deletion' =>
	  [ 'closed', 'BEGIN', q(SELECT keyright_delete_license('%l', true)) ],
	'in spite of all settings' => [
		'closed',
		'SET lock_timeout = 0',
		'SET statement_timeout = 0',
		'SET idle_in_transaction_session_timeout = 0',
		'SET idle_session_timeout = 0',
		'BEGIN',
		'SET LOCAL idle_in_transaction_session_timeout = 0',
		$check_out,
		'RESET ALL' ],
	'in spite of settings, in a statement' => [
		4, 'SET statement_timeout = 0', 'BEGIN', $check_out,
		'SELECT pg_sleep(60)' ],);

# Who ends in time: the last statement runs for longer than max_lock_hold and
# is not disturbed, nor is the session.
my $sleep = 'SELECT pg_sleep(' . ($hold_ms / 1000 + 1.5) . ')';
my %fine = (
	'after a commit' => [ 'BEGIN', $check_out, 'COMMIT', $sleep ],
	'after a rollback' => [ 'BEGIN', $check_out, 'ROLLBACK', $sleep ],
	'after an error' =>
	  [ 'BEGIN', $check_out, 'SELECT 1 / 0', 'ROLLBACK', $sleep ],
	'after autocommit' => [ $check_out, $sleep ],
	'in a later transaction' =>
	  [ 'BEGIN', $check_out, 'COMMIT', 'BEGIN', $sleep ],
	'after a savepoint that gave the lock back' =>
	  [ 'BEGIN', 'SAVEPOINT s', $check_out, 'ROLLBACK TO s', $sleep ],
	'after a caught error and a commit' => [
		'BEGIN', $check_out, 'SAVEPOINT s', 'SELECT 1 / 0', 'ROLLBACK TO s',
		'COMMIT', $sleep ],
	'after many short transactions' => [ ($check_out) x 20, $sleep ],
	'with transactions that are short, one after the other' => [
		q(DO $$ BEGIN FOR i IN 1 .. 40 LOOP
			PERFORM keyright_revoke_all('%l');
			PERFORM keyright_checkout('%l', 'x'); COMMIT;
			PERFORM pg_sleep(0.1); COMMIT; END LOOP; END $$) ],
	'with a beat in time' => [
		'SELECT pg_sleep(1.1)', 'BEGIN', "SELECT status FROM keyright_heartbeat('%l', $seat)",
		'COMMIT', $sleep ],);

sub start_hold
{
	my ($license, $seconds, @arguments) = @_;
	s/%l/$license/g for @arguments;
	my @options = $arguments[0] eq '-p' ? shift @arguments : ();
	add_license($node, $license, 25, ttl => '1 h');
	checkout($node, $license, 'holder');
	return start_tool($node, 'hold', @options, '-w', $seconds, @arguments);
}

my (%tools, $number);
for my $name (sort keys %stuck)
{
	my ($end, @arguments) = @{ $stuck{$name} };
	$tools{$name} =
	  start_hold('held ' . ++$number, $end eq 'closed' ? 60 : 0, @arguments);
}
for my $name (sort keys %fine)
{
	$tools{$name} = start_hold('fine ' . ++$number, 0, @{ $fine{$name} });
}

for my $name (sort keys %stuck)
{
	my ($end) = @{ $stuck{$name} };
	$tools{$name}{run}->finish;
	my ($ms, $state) = $tools{$name}{output} =~ /^$end\t(\d+)\t(\S+)/m;
	$ms //= 0;
	note "$name: $end after $ms ms";
	ok($ms >= $hold_ms && $ms < $hold_ms + 20_000,
		"held $name: ended in time, not before")
	  or diag $tools{$name}{output};
	# a session that is not idle has no ear for the reason
	like($state // '', $end eq 'closed' ? qr/^(57P01|-)$/ : qr/^57014$/,
		"held $name: told why");
}
for my $name (sort keys %fine)
{
	$tools{$name}{run}->finish;
	my @failed =
	  grep { $_ ne 'ok' && $_ ne '22012' }
	  $tools{$name}{output} =~ /^\S+\t\d+\t(\S+)/mg;
	is("@failed", '', "not disturbed: $name");
	like($tools{$name}{output}, qr/^open/m, "still connected: $name");
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM keyright.locks'),
	0, 'nobody holds a lock any more');
like(slurp_file($node->logfile), qr/longer than "keyright.max_lock_hold"/,
	'the log tells of it');

# --- a prepared transaction would have no session to end ---

for my $call (q(keyright_checkout('other', 'x')),
	"keyright_heartbeat('stuck', @{[ seat_of('holder 1') ]})",
	q(keyright_revoke_all('other')))
{
	($ret, $out, $err) = $node->psql('postgres',
		"\\set VERBOSITY verbose\n"
		  . "BEGIN; SELECT * FROM $call; PREPARE TRANSACTION 'p';");
	like($err, qr/ERROR:  0A000: .*license/,
		'PREPARE TRANSACTION is refused');
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM pg_prepared_xacts'),
	0, 'no transaction is prepared');
$node->safe_psql('postgres',
	q(BEGIN; SELECT count(*) FROM keyright.pools;
	  PREPARE TRANSACTION 'harmless'; ROLLBACK PREPARED 'harmless'));
pass('who holds no lock may prepare');

is(crashes($node), 0, 'no crash');
done_testing();
