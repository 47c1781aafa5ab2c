# A server that crashes loses no lease that it has promised, sells none twice
# and goes on where it was.
#
# The storm of 010, with leases that outlive a restart, while the server is
# stopped at once and started again, twice.  Its clients connect again and go
# on: who saw his check-out or his beat commit must find his lease with that end
# or a later one (the auditor looks for all of them), and may renew it.  Half of
# them set synchronous_commit = off: the promise is not theirs to weaken.

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

# It ends when we say so.
my $storm =
  start_storm($node, '-x', '-y', '-n', '-d', 300, '-c', 100, '-k', 200);

# Leases that this server itself has given out, and renewed.
my $under_way = q(SELECT count(*) >= 20 AND
		count(*) FILTER (WHERE issued_at > checked_out_at) >= 5
	FROM keyright.seat
	WHERE checked_out_at > pg_postmaster_start_time());

for my $crash (1 .. 2)
{
	$node->poll_query_until('postgres', $under_way)
	  or die "no storm before crash $crash";
	$node->stop('immediate');
	$node->start;
	is($node->safe_psql(
			'postgres', q(SELECT count(*) >= 20 FROM keyright.seat
				WHERE checked_out_at < pg_postmaster_start_time()
				AND expires_at > clock_timestamp())),
		't', "crash $crash: leases of before are there");
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
