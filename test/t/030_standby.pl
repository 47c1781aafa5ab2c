# Promise: on a standby everything that only reads works, everything that
# writes says 25006, and nothing fills the log; when it is promoted, seats are
# sold and reaped there without a restart, and leases carry over.
#
# How: a streaming standby with a sweep every 10 ms is left alone for a while,
# every function is called there, and it is promoted with a lapsed and a live
# lease in it.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Test::More;

my $primary = new_node(
	'primary',
	init => { allows_streaming => 1 },
	conf => "keyright.reap_interval = '10ms'\nautovacuum = off");
my $standby = new_standby($primary);

add_license($primary, 'acme', 2, ttl => '1 h');
my $lease = checkout($primary, 'acme', 'alice');
my $jwks = $primary->safe_psql('postgres', 'SELECT keyright_jwks()');
$primary->wait_for_catchup($standby);
my $log = log_size($standby);

subtest 'what writes' => sub {
	my $id = "'$lease->{seat_id}'";
	my %writers = (
		keyright_checkout => "'acme', 'bob'",
		keyright_heartbeat => "'acme', $id",
		keyright_heartbeat_many => "'acme', ARRAY[$id]::uuid[]",
		keyright_checkin => "'acme', $id",
		keyright_revoke => "'acme', $id",
		keyright_revoke_slot => "'acme', 1",
		keyright_revoke_holder => "'acme', 'alice'",
		keyright_revoke_all => "'acme'",
		keyright_delete_license => "'acme', true",
		keyright_reap => '');
	for my $name (sort keys %writers)
	{
		is(sqlstate($standby, "SELECT * FROM $name($writers{$name})"),
			'25006', $name);
	}
	is(sqlstate($standby, 'DELETE FROM keyright.license'),
		'25006', 'DELETE FROM keyright.license');

	# None may be forgotten: what is not above is below.
	my @readers = qw(keyright_is_live keyright_verify keyright_jwks
	  keyright_version keyright_grant);
	is( $standby->safe_psql(
			'postgres',
			q(SELECT string_agg(DISTINCT proname, ' ' ORDER BY proname)
			FROM pg_proc WHERE proname LIKE 'keyright\_%'
			AND pronamespace = 'public'::regnamespace)),
		join(' ', sort(keys %writers, @readers)),
		'these are all functions that there are');
	is(sqlstate($standby, q(SELECT keyright_grant('client', 'pg_monitor'))),
		'25006', 'keyright_grant');
};

subtest 'what reads' => sub {
	my $claims = row($standby,
		"SELECT * FROM keyright_verify('$lease->{token}')");
	is($claims->{status}, 'valid', 'a token of the primary verifies');
	is($claims->{seat_id}, $lease->{seat_id}, 'with its claims');
	is($standby->safe_psql('postgres', 'SELECT keyright_jwks()'),
		$jwks, 'the public keys');
	is( $standby->safe_psql(
			'postgres', q(SELECT keyright_is_live(now(), '1 s', now()))),
		't',
		'keyright_is_live');
	my $version = row($standby, 'SELECT * FROM keyright_version()');
	is($version->{library}, $version->{sql}, 'the version');
	is( row($standby, 'SELECT * FROM keyright.holders')->{holder},
		'alice', 'keyright.holders');
	is(row($standby, 'SELECT * FROM keyright.pools')->{free},
		1, 'keyright.pools');
	is(scalar rows($standby, 'SELECT * FROM keyright.locks'),
		0, 'keyright.locks');
	ok( !row($standby,
			q(SELECT * FROM keyright.wraparound WHERE database = 'postgres'))
		  ->{warning},
		'keyright.wraparound');
	my $reaper = row($standby, 'SELECT * FROM keyright.reaper');
	ok($reaper->{preloaded}, 'keyright.reaper: preloaded');
	ok(!$reaper->{running}, 'but not running');
};

subtest 'silence' => sub {
	# What the primary reaps is replayed; the standby does nothing itself.
	add_lapsed($primary, 'postgres', 'lapsed', 3);
	wait_emptied($primary, 'postgres', 'lapsed', 'the primary reaps');
	$primary->wait_for_catchup($standby);
	wait_emptied($standby, 'postgres', 'lapsed', 'the standby follows');
	$standby->safe_psql('postgres', 'SELECT pg_sleep(3)');
	is_deeply(
		[
			grep { !/cannot execute/ } log_lines($standby,
				qr/(?:ERROR|FATAL|WARNING):|LOG: .*(?:worker|keyright)/, $log)
		],
		[],
		'the log of the standby says nothing');
};

subtest 'promotion' => sub {
	# As if the primary had died with a lapsed lease: its reaper is held off.
	my $session = $primary->background_psql('postgres');
	$session->query_safe('BEGIN; LOCK TABLE keyright.seat IN SHARE MODE');
	$session->query_safe(
		q(INSERT INTO keyright.license (license_id, seat_count)
			VALUES ('gone', 2)));
	$session->query_safe(
		q(INSERT INTO keyright.seat (license, slot, seat_id, holder, expires_at)
			SELECT id, g, gen_random_uuid(), 'dead', now() - interval '1 day'
			FROM keyright.license, generate_series(1, 2) g
			WHERE license_id = 'gone'));
	$primary->adjust_conf('postgresql.conf', 'keyright.reap_interval',
		"'1 h'");
	$primary->reload;
	$session->query_safe('COMMIT');
	$primary->wait_for_catchup($standby);
	$session->quit;
	$primary->stop('immediate');
	$standby->promote;

	wait_emptied($standby, 'postgres', 'gone',
		'reaping starts without a restart');
	my $beat = heartbeat($standby, 'acme', $lease->{seat_id});
	is($beat->{status}, 'renewed', 'the lease has carried over');
	is($beat->{slot}, $lease->{slot}, 'with its slot');
	is( row($standby,
			"SELECT status FROM keyright_verify('$beat->{token}', '$jwks')")
		->{status},
		'valid',
		'signed with the same key');
	my @more = map { checkout($standby, 'acme', $_)->{status} } qw(bob carol);
	is("@more", 'granted no_seats_available',
		'the seats that are left are sold, no more');
	is(scalar oversold($standby), 0, 'never too many');
};

is(crashes($standby), 0, 'no crash');
$standby->stop;
done_testing();
