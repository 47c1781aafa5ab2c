# A server that crashes loses no lease that it has promised, sells none twice
# and goes on where it was.
#
# The storm of 010, with leases that outlive a restart, while the server is
# stopped at once and started again, twice.  Its clients connect again and go
# on: who saw his check-out or his beat commit must find his lease with that end
# or a later one (the auditor looks for all of them), and may renew it.  Half of
# them set synchronous_commit = off: the promise is not theirs to weaken.
#
# Twenty leases are ours, on a license that the storm leaves alone: renewed
# just before each crash, they must be there after it, exactly as promised.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'crash',
	conf => "max_connections = 400\nkeyright.reap_interval = '100 ms'");
add_storm_licenses(
	$node,
	ttl => "interval '1 min'",
	skew => "interval '1 s'",
	reap_grace => "interval '2 s'");
$node->safe_psql(
	'postgres', q(
	INSERT INTO keyright.license (license_id, seat_count, ttl)
	VALUES ('ours', 20, '10 min');
	SELECT FROM generate_series(1, 20) n,
		LATERAL keyright_checkout('ours', 'holder ' || n)));

# It ends when we say so.
my $storm =
  start_storm($node, '-x', '-y', '-n', '-d', 300, '-c', 100, '-k', 200);

# Leases that this server itself has given out, and renewed.
my $under_way = q(SELECT count(*) >= 20 AND
		count(*) FILTER (WHERE issued_at > checked_out_at) >= 5
	FROM keyright.seat
	WHERE checked_out_at > pg_postmaster_start_time());

# As the server promises them.
my $ours = q(keyright.seat s JOIN keyright.license l ON l.id = s.license
	AND l.license_id = 'ours');
my $renewed = qq(SELECT h.seat_id, h.expires_at
	FROM $ours, keyright_heartbeat('ours', s.seat_id) h
	WHERE h.status = 'renewed' ORDER BY h.seat_id);
my $there = qq(SELECT s.seat_id, s.expires_at FROM $ours ORDER BY s.seat_id);

for my $crash (1 .. 2)
{
	$node->poll_query_until('postgres', $under_way)
	  or die "no storm before crash $crash";
	my $promised = $node->safe_psql('postgres', $renewed);
	$node->stop('immediate');
	$node->start;
	is(scalar(split /\n/, $promised), 20, "crash $crash: renewed before it");
	is($node->safe_psql('postgres', $there),
		$promised, "crash $crash: all are there, with the promised ends");
}
$node->poll_query_until('postgres', $under_way)
  or die 'no storm after the crashes';
pass('the storm goes on');
$storm->{run}->signal('TERM');
my $seen = finish_storm($storm);
check_storm($seen, 'two crashes');
cmp_ok($seen->{audited_after_crash}, '>', 100,
	'what clients knew of before a crash was looked for after it');

is(crashes($node), 0, 'no crash but ours');
done_testing();
