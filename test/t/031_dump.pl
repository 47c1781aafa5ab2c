# Promise: a dump holds licenses, leases and the counter of license ids, in
# every form that pg_dump knows; restored, leases go on or have lapsed, no seat
# is sold twice, and the signing key is in no dump.
#
# How: a database with a full set of rows is dumped as text, as INSERTs, in
# custom form, data only and schema only, restored into new databases and into
# a new server with another key, compared row by row, and used.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use MIME::Base64 qw(decode_base64);
use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;

my $seed = new_key();
my $node = new_node(
	'source',
	key => $seed,
	conf => "keyright.reap_interval = '500ms'\nautovacuum = off");
my $dir = PostgreSQL::Test::Utils::tempdir();

# Leases live and lapsed, ended ones, a pool that was shrunk, every column of
# the policy, a gap in the ids.
add_license($node, 'gone', 1);
$node->safe_psql('postgres', q(SELECT keyright_delete_license('gone')));
add_license(
	$node, 'acme', 5,
	ttl => '2 h',
	max_ttl => '1 day',
	skew => '3 s',
	valid_from => '2020-01-01 00:00:00+00',
	valid_until => '2100-01-01 00:00:00+00');
add_license($node, q(odd 'name' \ "é"), 3, suspended => 'true',
	reap_grace => '3650 days');
my @leases =
  map { checkout($node, 'acme', "holder $_", '1 h', "request-$_") } 1 .. 4;
checkin($node, 'acme', $leases[0]{seat_id});
$node->safe_psql('postgres',
	"SELECT * FROM keyright_revoke('acme', '$leases[1]{seat_id}')");
# Lapsed yesterday, and with this grace no reaper takes them.
$node->safe_psql(
	'postgres', q(
	WITH l AS (
		INSERT INTO keyright.license (license_id, seat_count, reap_grace)
		VALUES ('old', 2, '3650 days') RETURNING id)
	INSERT INTO keyright.seat (license, slot, seat_id, holder, request_id,
		checked_out_at, issued_at, expires_at)
	SELECT l.id, g, gen_random_uuid(), E'tab\\tless', 'request-' || g, t, t, t
	FROM l, generate_series(1, 2) g,
		(SELECT now() - interval '1 day' AS t) u;
	CREATE ROLE app;
	SELECT keyright_grant('client', 'app')));

# What must come back, to the microsecond.
my $content = q(
	SELECT 'license' AS of, l::text AS row FROM keyright.license l
	UNION ALL SELECT 'seat', s::text FROM keyright.seat s
	UNION ALL SELECT 'sequence', last_value || ' ' || is_called
		FROM keyright.license_id_seq
	ORDER BY 1, 2);
my @before = rows($node, $content);
cmp_ok(scalar @before, '>', 9, 'there is something to dump');

sub dump_to
{
	my ($file, @options) = @_;
	$node->command_ok(
		[ 'pg_dump', '-f', "$dir/$file", @options, 'postgres' ],
		"pg_dump to $file");
	return;
}

dump_to('plain.sql');
dump_to('inserts.sql', '--inserts', '--rows-per-insert=2');
dump_to('custom', '-Fc', '-Z0');
dump_to('data.sql', '--data-only');
dump_to('schema.sql', '--schema-only');
$node->command_ok([ 'pg_dumpall', '-f', "$dir/all.sql" ], 'pg_dumpall');

subtest 'the key is in none of them' => sub {
	my $raw = decode_base64($seed);
	my $hex = unpack 'H*', $raw;
	my $url = $seed =~ tr{+/=}{-_}dr;
	for my $file (glob "$dir/*")
	{
		my $dump = slurp_file($file);
		my $name = $file =~ s/.*\///r;
		next unless $dump =~ /keyright/;
		is( scalar(
				grep { index(lc $dump, lc $_) >= 0 }
				  ($seed =~ s/=+$//r, $hex, $url, $raw)),
			0,
			"not in $name");
		unlike($dump, qr/signing_key/, "nor its setting in $name");
	}
};

# Restores into a new database and tells its name.
sub restore
{
	my ($to, $dbname, $file, @prepare) = @_;
	$to->safe_psql('postgres', "CREATE DATABASE $dbname TEMPLATE template0");
	$to->safe_psql($dbname, $_) for @prepare;
	my @command =
	  $file eq 'custom'
	  ? ('pg_restore', '--single-transaction', '-d', $dbname, "$dir/$file")
	  : (
		'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-o', "$dir/out",
		'-f', "$dir/$file", $dbname);
	$to->command_ok(\@command, "$file is restored");
	return $dbname;
}

sub call
{
	my ($on, $dbname, $function, @arguments) = @_;
	my $list = join ', ', map { "'$_'" } @arguments;
	return row($on, "SELECT * FROM $function($list)", $dbname);
}

sub next_id
{
	my ($on, $dbname, $license) = @_;
	return $on->safe_psql($dbname,
		"INSERT INTO keyright.license (license_id, seat_count)"
		  . " VALUES ('$license', 1) RETURNING id");
}

# A dump of a pool in use, restored, is a pool in use.
sub works
{
	my ($on, $dbname) = @_;
	is_deeply([ rows($on, $content, $dbname) ],
		\@before, 'every row and the counter are as they were');
	is( call($on, $dbname, 'keyright_heartbeat', 'acme',
			$leases[2]{seat_id})->{status},
		'renewed',
		'a lease goes on');
	is( call($on, $dbname, 'keyright_heartbeat', 'acme',
			$leases[1]{seat_id})->{reason},
		'revoked',
		'one that was revoked is remembered');
	my @new = map { call($on, $dbname, 'keyright_checkout', 'acme', $_) }
	  qw(a b c d);
	is( join(' ', map { $_->{status} } @new),
		'granted granted granted no_seats_available',
		'the free seats are sold, no more');
	my @old =
	  map { call($on, $dbname, 'keyright_checkout', 'old', $_)->{status} }
	  qw(a b c);
	is("@old", 'granted granted no_seats_available',
		'leases that had lapsed are free seats');
	is(scalar oversold($on, $dbname), 0, 'never too many');
	is(next_id($on, $dbname, 'new'),
		$before[-1]{row} =~ s/ .*//r + 1, 'the next license has a new id');
	is( call($on, $dbname, 'keyright_verify', $new[0]{token})->{status},
		'valid', 'a new token verifies');
	return;
}

for my $file (qw(plain.sql inserts.sql custom))
{
	subtest $file => sub {
		my $dbname = restore($node, $file =~ s/\W.*//r, $file);
		works($node, $dbname);
		is( $node->safe_psql(
				$dbname, q(SELECT has_function_privilege('app',
				'keyright_checkout(text, text, interval, text)', 'EXECUTE'),
				has_function_privilege('app', 'keyright_reap()', 'EXECUTE'))),
			't|f',
			'what was granted is granted');
	};
}
subtest 'data only' => sub {
	works($node,
		restore($node, 'data', 'data.sql', 'CREATE EXTENSION keyright'));
};
subtest 'schema only' => sub {
	my $dbname = restore($node, 'schema', 'schema.sql');
	is( $node->safe_psql(
			$dbname, 'SELECT count(*) FROM keyright.license, keyright.seat'),
		0,
		'nothing is in it');
	is(next_id($node, $dbname, 'first'), 1, 'a license can be added');
	is(call($node, $dbname, 'keyright_checkout', 'first', 'a')->{status},
		'granted', 'and a seat checked out');
};

subtest 'another server, with another key' => sub {
	my $other = new_node('other', extension => 0,
		conf => "keyright.reap_interval = '500ms'");
	$other->command_ok(
		[
			'psql', '-Xq', '-o', "$dir/out", '-v', 'ON_ERROR_STOP=1',
			'-c', 'CREATE ROLE app', 'postgres'
		],
		'a role');
	my $dbname = restore($other, 'moved', 'custom');
	works($other, $dbname);
	is( call($other, $dbname, 'keyright_verify', $leases[2]{token})->{status},
		'unknown_key',
		'a token of the old server does not');
	# The reaper finds what was restored: here the grace is over at last.
	$other->safe_psql($dbname,
		q(UPDATE keyright.license SET reap_grace = '1 min'));
	$other->safe_psql($dbname,
		q(UPDATE keyright.seat SET expires_at = now() - interval '1 day'));
	wait_emptied($other, $dbname, 'acme', 'its reaper reaps them');
	is(crashes($other), 0, 'no crash');
	$other->stop;
};

# Restored on the day after, with nobody calling anything.
subtest 'pg_dumpall' => sub {
	my $new = new_node('all', extension => 0,
		conf => "keyright.reap_interval = '500ms'");
	my $script = slurp_file("$dir/all.sql") =~
	  s/\t3650 days\t/\t00:01:00\t/gr;
	PostgreSQL::Test::Utils::append_to_file("$dir/all-short.sql", $script);
	$new->command_ok(
		[ 'psql', '-Xq', '-o', "$dir/out", '-f', "$dir/all-short.sql",
			'postgres' ],
		'is restored');
	is( $new->safe_psql(
			'postgres', 'SELECT count(*) FROM keyright.license'),
		3,
		'with its licenses');
	wait_emptied($new, 'postgres', 'old', 'lapsed leases are reaped there');
	is( heartbeat($new, 'acme', $leases[2]{seat_id})->{status},
		'renewed', 'live ones go on');
	$new->stop;
};

is(crashes($node), 0, 'no crash');
$node->stop;
done_testing();
