# The promise: no session, whatever its settings are and whatever it locks,
# changes how a lease is counted, how long it lives or how long others wait.
#
# What one transaction can try is in test/pgtap/privileges.sql; here is what
# takes real sessions: settings that come with the connection, with the role or
# with the database, waits that are longer or shorter than keyright's, locks
# that are meant to freeze a license, and a crash.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# No background process writes to disk what a session need not.
my $node = new_node('primary', preload => 0, key => undef, conf => <<'END_OF_CONF');
keyright.max_lock_hold = 5min
keyright.lock_timeout = 300ms
wal_writer_delay = 10s
bgwriter_delay = 10s
autovacuum = off
END_OF_CONF
my $bound = '300ms';

# As this role, with these settings: what is said, and the SQLSTATE or ''.
sub as_role
{
	my ($role, $sql, $options) = @_;
	local $ENV{PGOPTIONS} = $options // '';
	my ($out, $err) = ('', '');
	$node->psql(
		'postgres', "\\set VERBOSITY sqlstate\n$sql",
		stdout => \$out,
		stderr => \$err,
		extra_params => [ '-U', $role ]);
	return ($out, $err =~ /(?:ERROR|FATAL): +(\w{5})/ ? $1 : $err);
}

sub session_of
{
	my ($role) = @_;
	return $node->background_psql('postgres', on_error_stop => 0,
		extra_params => [ '-U', $role ]);
}

########################################################################
# Settings that were made while the library was not there to refuse them

$node->safe_psql('postgres', <<'END_OF_SQL');
CREATE ROLE client LOGIN;
CREATE ROLE client_2 LOGIN;
CREATE ROLE ordinary LOGIN;
SELECT keyright_grant('client', 'client'), keyright_grant('client', 'client_2');
ALTER DATABASE postgres SET keyright.reap_interval = '1h';
CREATE ROLE before LOGIN;
ALTER ROLE before SET keyright.lock_timeout = '1h';
ALTER ROLE before IN DATABASE postgres SET keyright.max_lock_hold = '1h';
SELECT keyright_grant('client', 'before');
END_OF_SQL
is((as_role('before', "SET keyright.lock_timeout = '2h'; SHOW keyright.lock_timeout"))[0],
	'2h', 'without the library PostgreSQL lets everybody set what they want');

write_key($node, new_key());
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'keyright'");
$node->restart;
is((as_role('before', 'SHOW keyright.lock_timeout'))[0], $bound,
	'with the library, what was set for a role has no effect');
is((as_role('before', 'SHOW keyright.max_lock_hold'))[0], '5min',
	'nor has what was set for a role in a database');
is((as_role('before', 'SHOW keyright.reap_interval'))[0], '30s',
	'nor what was set for the database');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET ALL; ALTER ROLE before RESET ALL; ALTER ROLE before IN DATABASE postgres RESET ALL');

########################################################################
# Settings that come with the connection

for my $setting ('keyright.lock_timeout=1h', 'keyright.max_lock_hold=1h',
	'keyright.reap_interval=1h', 'keyright.issuer=evil', 'keyright.retired_keys=',
	'keyright.signing_key_file=/etc/passwd', 'keyright.something=1')
{
	for my $role ('ordinary', 'client', scalar getpwuid $<)
	{
		my ($out, $state) = as_role($role, 'SELECT 1', "-c $setting");
		isnt($state, '', "$role cannot connect with $setting");
		is($out, '', 'and gets no session');
	}
}
for my $sql ("ALTER SYSTEM SET keyright.lock_timeout = '1h'",
	'ALTER SYSTEM RESET keyright.lock_timeout', 'SELECT pg_reload_conf()')
{
	is((as_role($_, $sql))[1], '42501', "$_ may not: $sql") for 'ordinary', 'client';
}

########################################################################
# A stranger's locks

add_license($node, 'acme', 3, ttl => '1 hour');
my $id = $node->safe_psql('postgres', "SELECT id FROM keyright.license WHERE license_id = 'acme'");
my $stranger = session_of('ordinary');
$stranger->query(<<END_OF_SQL);
SELECT pg_advisory_lock(27506, $id), pg_advisory_lock((27506::bigint << 32) | $id),
	pg_advisory_lock($id), pg_advisory_lock($id, 27506), pg_advisory_lock($id, 3),
	pg_advisory_lock_shared(27506, $id);
BEGIN;
SELECT pg_advisory_xact_lock(27506, $id), pg_advisory_xact_lock((27506::bigint << 32) | $id),
	pg_try_advisory_xact_lock(27506, $id), pg_advisory_xact_lock_shared(27506, $id);
SELECT count(*) FROM pg_locks;
END_OF_SQL
is($node->safe_psql('postgres', "SELECT count(*) >= 5 FROM pg_locks WHERE locktype = 'advisory' AND granted"),
	't', 'a stranger holds every advisory lock that SQL can take');
my ($out, $state) = as_role('client', "SELECT status FROM keyright_checkout('acme', 'x')");
is("$out$state", 'granted', 'and nobody waits for him');
$stranger->quit;

# Nor can one's own lock be let go of before the transaction ends.
my $holder = session_of('client');
$holder->query("BEGIN; SELECT status FROM keyright_checkout('acme', 'holder');");
$holder->query(<<END_OF_SQL);
SELECT pg_advisory_unlock_all();
SELECT pg_advisory_unlock(27506, $id), pg_advisory_unlock((27506::bigint << 32) | $id),
	pg_advisory_unlock_shared(27506, $id);
SAVEPOINT s;
SELECT 1/0;
ROLLBACK TO s;
END_OF_SQL
is((as_role('client_2', "SELECT status FROM keyright_checkout('acme', 'x')"))[1],
	'55P03', 'pg_advisory_unlock does not let go of a license');

########################################################################
# Waits: the shorter of the session's bound and keyright's counts

# Neither is asserted to the millisecond: one is a fraction of a second, the
# other far longer than this test will take.
sub waited
{
	my ($sql, $options) = @_;
	my $start = time();
	my ($out, $state) = as_role('client_2', $sql, $options);
	return ($state, time() - $start);
}
my $call = "SELECT status FROM keyright_checkout('acme', 'x')";
for my $case (
	[ 'lock_timeout=0', '55P03' ], [ 'lock_timeout=10min', '55P03' ],
	[ 'lock_timeout=1ms', '55P03' ], [ 'deadlock', '55P03' ],
	[ 'statement_timeout=10min', '55P03' ])
{
	my ($setting, $expected) = @$case;
	my ($state, $seconds) = waited($call, $setting eq 'deadlock' ? '' : "-c $setting");
	is($state, $expected, "$setting: busy");
	cmp_ok($seconds, '<', 60, 'after keyright.lock_timeout');
}
is((waited($call, '-c statement_timeout=50ms'))[0], '57014',
	'a shorter statement_timeout ends the call in its own way');

$node->append_conf('postgresql.conf', 'keyright.lock_timeout = 1h');
$node->reload;
$node->poll_query_until('postgres',
	"SELECT current_setting('keyright.lock_timeout') = '1h'");
my ($seconds);
($state, $seconds) = waited($call, '-c lock_timeout=100ms');
is($state, '55P03', 'a shorter lock_timeout of the session counts');
cmp_ok($seconds, '<', 60, 'and not keyright.lock_timeout');
($state, $seconds) = waited("SET lock_timeout = '100ms'; BEGIN; SAVEPOINT s; $call");
is($state, '55P03', 'also in a transaction');
$node->append_conf('postgresql.conf', "keyright.lock_timeout = $bound");
$node->reload;
$node->poll_query_until('postgres',
	"SELECT current_setting('keyright.lock_timeout') = '$bound'");

# Afterwards the session's own bound is what it was: here none.
my $waiter = session_of('client_2');
$waiter->query("$call;");
like($waiter->query('SHOW lock_timeout'), qr/^0$/m, 'the session\'s setting stays');
$node->safe_psql('postgres', 'CREATE TABLE thing (); GRANT ALL ON thing TO client, client_2');
$holder->query('LOCK TABLE thing');
$waiter->query_until(qr/waiting/, "\\echo waiting\nBEGIN; LOCK TABLE thing; COMMIT;\n");
ok( $node->poll_query_until(
		'postgres', "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'client_2' AND wait_event_type = 'Lock' AND clock_timestamp() > query_start + interval '1 s')"),
	'a wait of the session\'s own, after a busy license, is longer than keyright.lock_timeout');
$holder->query('COMMIT');
ok( $node->poll_query_until(
		'postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'client_2' AND wait_event_type = 'Lock')"),
	'and ends when it can');
$waiter->quit;
$holder->quit;

########################################################################
# Settings that come with the role

my %roles = (
	zone => [ "TimeZone = 'America/New_York'", "DateStyle = 'German'", "IntervalStyle = 'iso_8601'" ],
	repeatable => ["default_transaction_isolation = 'repeatable read'"],
	serializable => [
		"default_transaction_isolation = 'serializable'",
		'default_transaction_deferrable = on'
	],
	hasty => [ 'lock_timeout = 1', 'row_security = off', 'synchronous_commit = off',
		'enable_indexscan = off', 'plan_cache_mode = force_generic_plan' ],
	path => ["search_path = 'pg_temp'"]);
for my $role (sort keys %roles)
{
	$node->safe_psql('postgres', join ';', "CREATE ROLE $role LOGIN",
		"SELECT keyright_grant('client', '$role')", 'GRANT SELECT ON pg_class TO PUBLIC');
	is((as_role($role, join ';', map { "ALTER ROLE $role SET $_" } @{ $roles{$role} }))[1],
		'', "$role sets defaults for itself");
	add_license($node, "of $role", 1, ttl => '1 day');

	($out, $state) = as_role($role, <<END_OF_SQL);
SELECT extract(epoch FROM expires_at) - ceil(extract(epoch FROM issued_at))
	FROM public.keyright_checkout('of $role', 'x');
END_OF_SQL
	is($out + 0, 86400, "$role: a day has 86400 seconds") or diag($state);
	is((as_role($role, "SELECT status FROM public.keyright_checkout('of $role', 'x')"))[0],
		'no_seats_available', "$role: one seat is one seat");

	# A snapshot that is older than the sale of the last seat.
	add_license($node, "old $role", 1);
	my $session = session_of($role);
	$session->query('BEGIN; SELECT count(*) FROM pg_class;');
	is(checkout($node, "old $role", 'faster')->{status}, 'granted', 'somebody is faster');
	$session->query('\\set VERBOSITY sqlstate');
	my $answer = $session->query("SELECT status FROM public.keyright_checkout('old $role', 'x')");
	$answer .= $session->{stderr};
	like($answer, qr/no_seats_available|40001/,
		"$role: a snapshot from before sees the seat that was sold");
	unlike($answer, qr/granted/, "$role: and does not sell it again");
	$session->quit;
}
is(oversold($node), 0, 'nothing was oversold');

$node->safe_psql('postgres', "ALTER ROLE client_2 SET default_transaction_read_only = on");
for my $call ("keyright_checkout('acme', 'x')", "keyright_heartbeat('acme', gen_random_uuid())",
	"keyright_checkin('acme', gen_random_uuid())")
{
	is((as_role('client_2', "SELECT * FROM $call"))[1], '25006', "read only: $call");
}
$node->safe_psql('postgres', 'ALTER ROLE client_2 RESET ALL');

########################################################################
# Guessing: whoever does not know the seat id to the last bit has no seat

add_license($node, 'guess', 2, ttl => '1 hour');
my $lease = checkout($node, 'guess', 'owner');
my $flips = <<END_OF_SQL;
(SELECT encode(set_bit(uuid_send('$lease->{seat_id}'), bit, 1 - get_bit(uuid_send('$lease->{seat_id}'), bit)), 'hex')::uuid AS id
	FROM generate_series(0, 127) bit) guesses
END_OF_SQL
my $seat = "SELECT s.* FROM keyright.seat s JOIN keyright.license l ON l.id = s.license WHERE l.license_id = 'guess'";
my $before = $node->safe_psql('postgres', $seat);
is((as_role('client', "SELECT count(*), min(b.status || b.reason), max(b.status || b.reason) FROM $flips, keyright_heartbeat('guess', guesses.id) b"))[0],
	'128|seat_lostunknown|seat_lostunknown', 'a seat id with one wrong bit is unknown to a heartbeat');
is((as_role('client', "SELECT count(*), min(c), max(c) FROM $flips, keyright_checkin('guess', guesses.id) c"))[0],
	'128|not_held|not_held', 'and to a check-in');
is((as_role('client', "SELECT b.status FROM keyright_heartbeat('acme', '$lease->{seat_id}') b"))[0],
	'seat_lost', 'a seat id is good for its own license only');
is($node->safe_psql('postgres', $seat), $before, 'the seat is as it was');
is((as_role('client', "SELECT b.status FROM keyright_heartbeat('guess', '$lease->{seat_id}') b"))[0],
	'renewed', 'its owner has it');

########################################################################
# A crash: what was granted was committed, whatever the session thinks of disks

add_license($node, 'crash', 3, ttl => '1 hour', max_ttl => '2 hours');
my $early = checkout($node, 'crash', 'early', '10 minutes');
$node->safe_psql('postgres', "UPDATE keyright.license SET ttl = '2 hours' WHERE license_id = 'crash'; CHECKPOINT");
my $late = session_of('client');
$late->query('SET synchronous_commit = off');
my $granted = $late->query("SELECT seat_id FROM keyright_checkout('crash', 'late')");
my $renewed = $late->query("SELECT extract(epoch FROM expires_at) FROM keyright_heartbeat('crash', '$early->{seat_id}')");
$node->stop('immediate');
$node->start;
my ($seat_id) = $granted =~ /([-0-9a-f]{36})/;
is($node->safe_psql('postgres', "SELECT holder FROM keyright.seat WHERE seat_id = '$seat_id'"),
	'late', 'a lease that was granted counts after a crash');
my ($expires) = $renewed =~ /(\d{10})/;
is($node->safe_psql('postgres', "SELECT extract(epoch FROM expires_at)::bigint FROM keyright.seat WHERE seat_id = '$early->{seat_id}'"),
	$expires, 'and one that was renewed ends when its token does');
eval { $late->quit };

is(crashes($node), 0, 'no crash but our own');
done_testing();
