# Seats are sold N times, never N + 1 times, and every one of them comes back,
# whatever the clients do.
#
# For each isolation level 200 sessions take, keep alive, give back and revoke
# seats of 20 licenses, alone and in transactions with savepoints, some of which
# are rolled back; some clients vanish in the middle of it, and sessions are
# ended at random.  Three licenses more grow and shrink.  Meanwhile a sampler
# counts live leases every 10 ms, and everything that a client is told is judged
# by what it knows (see test/tools/books.h).  At the end every seat must be had
# again after ttl and skew, once with the reaper at work all the while, once with
# none.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my %reap_interval = (
	'read committed' => '100 ms',
	'repeatable read' => '1 h',
	'serializable' => '100 ms');
my $seconds = storm_seconds(20);

my $node = new_node('storm', conf => 'max_connections = 400');
add_storm_licenses($node);
add_license($node, "storm-resized-$_", 12, ttl => '2 s', skew => '1 s',
	reap_grace => '1.2 s', max_ttl => '10 min')
  for 1 .. 3;

for my $level ('read committed', 'repeatable read', 'serializable')
{
	$node->append_conf('postgresql.conf',
		"keyright.reap_interval = '$reap_interval{$level}'");
	$node->reload;
	my $seen = run_storm($node, '-d', $seconds, '-i', $level, '-z');
	check_storm($seen, $level);
	cmp_ok($seen->{kills}, '>', 0, "$level: sessions were ended");
	cmp_ok($seen->{resizes}, '>', 0, "$level: seat counts changed");
	$node->safe_psql('postgres',
		'SELECT keyright_revoke_all(license_id) FROM keyright.license');
}

is(crashes($node), 0, 'no crash');
done_testing();
