# Hints may be lost at any moment: the storm of 010 on a build that drops them
# at random, a quarter of them whenever one is looked for.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds = storm_seconds(8);

my $node = new_node(
	'losehints',
	losehints => 1,
	conf => "max_connections = 400\nkeyright.reap_interval = '100 ms'");
add_storm_licenses($node);
add_license($node, "storm-resized-$_", 12, ttl => '2 s', skew => '1 s',
	reap_grace => '1.2 s', max_ttl => '10 min')
  for 1 .. 3;
check_storm(
	run_storm($node, '-d', $seconds, '-i', 'read committed', '-z'),
	'without lasting hints');
is(crashes($node), 0, 'no crash');
done_testing();
