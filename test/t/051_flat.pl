# A check-out costs the same whatever the size of the pool: a refusal at a full
# pool of 10,000 seats writes nothing and reads as few blocks as one of 10 does,
# and so does the grant of a seat that was just freed.  What makes it so are
# hints in shared memory; without them (after a restart, a crash) the answers
# are the same, only the first of them is dear.
#
# Blocks and WAL records are those that EXPLAIN counts, in one warm session; no
# time is measured.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use JSON::PP ();
use Keyright;
use PostgreSQL::Test::Utils;
use Test::More;

use constant SEATS => 10_000;
# How many blocks more a call may read than the same call on a small pool:
# levels of the index.
use constant LEVELS => 10;

my $node = new_node('flat', conf => 'keyright.max_lock_hold = 10min');
my $session;
my $customer = 0;

sub connect_session
{
	$session->quit if $session;
	$session = $node->background_psql('postgres');
	# reads the catalog once
	cost('small', 'warm up');
	return;
}

sub fill
{
	my ($license, $seats) = @_;
	$node->safe_psql(
		'postgres', qq(
		SELECT count(*) FROM generate_series(1, $seats) g,
			LATERAL keyright_checkout('$license', 'holder ' || g)));
	return;
}

# What a check-out costs: blocks read or found in memory, WAL records.
sub cost
{
	my ($license, $holder) = @_;
	my $json = $session->query_safe(
		"EXPLAIN (ANALYZE, BUFFERS, WAL, TIMING OFF, FORMAT JSON)
		SELECT * FROM keyright_checkout('$license', '$holder')");
	my $plan = JSON::PP::decode_json($json)->[0]{Plan};
	return ($plan->{'Shared Hit Blocks'} + $plan->{'Shared Read Blocks'},
		$plan->{'WAL Records'});
}

# The same for one that is granted, with the slot that it got.
sub grant_cost
{
	my ($license) = @_;
	my $holder = 'customer ' . ++$customer;
	my ($blocks) = cost($license, $holder);
	my $slot = $session->query_safe(
		"SELECT slot FROM keyright.holders WHERE license_id = '$license'
			AND holder = '$holder'");
	return ($blocks, $slot);
}

sub refused
{
	my ($license, $what) = @_;
	is(checkout($node, $license, 'one too many')->{status},
		'no_seats_available', $what);
	return;
}

sub free
{
	my ($license, @slots) = @_;
	$node->safe_psql('postgres',
		"SELECT * FROM keyright_revoke_slot('$license', $_)")
	  for @slots;
	return;
}

for ([ 'small', 10 ], [ 'big', SEATS ])
{
	my ($license, $seats) = @$_;
	add_license($node, $license, $seats, ttl => '1 hour');
	fill($license, $seats);
}
$node->safe_psql('postgres', 'VACUUM ANALYZE');
connect_session();

# Refusals.
my ($small) = cost('small', 'refused');
my ($first) = cost('big', 'refused');
cmp_ok($first, '>', SEATS / 100, "the first refusal reads the pool ($first blocks)");
for my $what ('second', 'third')
{
	my ($blocks, $wal) = cost('big', 'refused');
	cmp_ok($blocks, '<=', $small + LEVELS,
		"the $what reads $blocks blocks, a small pool's $small");
	is($wal, 0, "the $what writes no WAL");
}
is( $session->query_safe(
		q(BEGIN; SELECT status, pg_current_xact_id_if_assigned() IS NULL
		FROM keyright_checkout('big', 'refused'); COMMIT)),
	'no_seats_available|t',
	'a refusal takes no transaction id');
is( $session->query_safe(
		q(SELECT c.retry_at = keyright.lapses_at(
			(SELECT min(expires_at) FROM keyright.seat s WHERE s.license = l.id), l.skew)
		FROM keyright.license l, keyright_checkout('big', 'refused') c
		WHERE l.license_id = 'big')),
	't',
	'and tells when the first lease of the pool can end');

# Beats leave it so.
$node->safe_psql(
	'postgres', q(
	SELECT h.status FROM keyright.seat s JOIN keyright.license l ON l.id = s.license,
		LATERAL keyright_heartbeat('big', s.seat_id) h
	WHERE l.license_id = 'big' AND s.slot IN (1, 77, 9999)));
my ($blocks) = cost('big', 'refused');
cmp_ok($blocks, '<=', $small + LEVELS, "after beats too ($blocks blocks)");

# Grants.
sub check_grant
{
	my ($license, $most, $what, @slots) = @_;
	my ($cost, $slot) = grant_cost($license);
	ok(scalar(grep { $_ eq $slot } @slots), "$what: that seat is granted");
	cmp_ok($cost, '<=', $most, "$what: for $cost blocks");
	return $slot;
}

free('small', 5);
# Most of it is for the first time: what writing a row asks the catalog.
grant_cost('small');
free('small', 6);
my ($small_grant) = grant_cost('small');
my $most = $small_grant + LEVELS;
note "a grant of a small pool: $small_grant blocks";

for my $slot (1, 4321, SEATS)
{
	free('big', $slot);
	check_grant('big', $most, "seat $slot freed", $slot);
	refused('big', "then it is full again");
}

my %freed = map { $_ => 1 } (17, 5000, 9876);
free('big', keys %freed);
delete $freed{ check_grant('big', $most, "three freed", keys %freed) }
  while %freed;
refused('big', 'then it is full again');

# A grant that is rolled back leaves the seat where it can be found: also when
# its own transaction has looked again and saw it taken.
for my $end ('ROLLBACK', 'ROLLBACK TO s; COMMIT')
{
	free('big', 2345);
	$session->query_safe(
		"BEGIN; SAVEPOINT s;
		SELECT * FROM keyright_checkout('big', 'fickle');
		SELECT * FROM keyright_checkout('big', 'fickle');
		$end");
	check_grant('big', $most, "granted, then $end", 2345);
	refused('big', 'then it is full again');
}

# Given back and given out in one transaction.
$session->query_safe(
	q(BEGIN; SELECT * FROM keyright_revoke_slot('big', 3456)));
check_grant('big', $most, 'freed by the same transaction', 3456);
$session->query_safe('ROLLBACK');
refused('big', 'rolled back, it is full as before');

# More than the list holds.
free('big', map { $_ * 11 } 1 .. 40);
my %slots = map { (grant_cost('big'))[1] => 1 } 1 .. 40;
is( join(' ', sort { $a <=> $b } keys %slots),
	join(' ', map { $_ * 11 } 1 .. 40),
	'forty freed, forty granted');
refused('big', 'then it is full again');

# Without hints.
for my $mode ('fast', 'immediate')
{
	free('big', 1234);
	$node->stop($mode);
	$node->start;
	$session = undef;
	connect_session();
	my (undef, $slot) = grant_cost('big');
	is($slot, 1234, "after a restart ($mode): the seat freed before is granted");
	refused('big', "after a restart ($mode): then it is full again");
	my ($again) = cost('big', 'refused');
	cmp_ok($again, '<=', $small + LEVELS,
		"after a restart ($mode): refusals are cheap again ($again blocks)");
}

$session->quit;
is(crashes($node), 0, 'no crash');
done_testing();
