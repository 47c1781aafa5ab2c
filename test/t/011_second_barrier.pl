# The second barrier alone: that a seat's row changes hands only under its own
# lock is enough to never sell a seat twice.
#
# The storm of 010 on a build whose license lock is compiled out.  No seat count
# is lowered meanwhile: leases above it are what the license lock is for.  Two
# sessions may then make the row of the same slot at once (23505).

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
	'nolock',
	nolock => 1,
	conf => "max_connections = 400\nkeyright.reap_interval = '100 ms'");
add_storm_licenses($node);

# What makes this a test of the second barrier: there is no first.
$node->psql('postgres',
	q(BEGIN; SELECT * FROM keyright_checkout('storm-20', 'x');
	  CREATE TABLE held AS TABLE keyright.locks; COMMIT));
is($node->safe_psql('postgres', 'SELECT count(*) FROM held'),
	0, 'this build takes no license lock');

for my $level ('read committed', 'repeatable read', 'serializable')
{
	my $seen = run_storm($node, '-d', $seconds, '-i', $level,
		'-a', '40001,55P03,57P01,40P01,23505');
	check_storm($seen, $level);
	$node->safe_psql('postgres',
		'SELECT keyright_revoke_all(license_id) FROM keyright.license');
}

is(crashes($node), 0, 'no crash');
done_testing();
