# Promise: the extension can be created, dropped and created again under
# sessions that use it, in any schema and encoding, and says clearly why it
# cannot work where it cannot: tables that do not fit, a library that is not
# preloaded, a schema that is in the way.
#
# How: each is done, and what callers are told is looked at by SQLSTATE.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use JSON::PP ();
use MIME::Base64 qw(decode_base64url);
use Test::More;

my $node = new_node('extension',
	conf => "keyright.reap_interval = '200ms'\nautovacuum = off");

sub fresh_database
{
	my ($dbname, $options) = @_;
	$node->safe_psql('postgres',
		"CREATE DATABASE $dbname " . ($options // ''));
	return $dbname;
}

# The SQLSTATE of an error in a session that goes on.
sub state_in
{
	my ($session, $query) = @_;
	$session->{stderr} = '';
	$session->query("\\set VERBOSITY sqlstate\n$query");
	my $error = $session->{stderr};
	$session->{stderr} = '';
	return $error =~ /ERROR:  (\w{5})/ ? $1 : $error;
}

sub out_of
{
	my ($session, $query) = @_;
	$session->{stderr} = '';
	my $out = $session->query($query);
	diag("$query: $session->{stderr}") if $session->{stderr} ne '';
	return $out;
}

my $sell = q(INSERT INTO keyright.license (license_id, seat_count)
	VALUES ('acme', 2));
my $take = q(SELECT status FROM keyright_checkout('acme', 'me'));

subtest 'dropped and created under a session' => sub {
	my $db = fresh_database('again');
	my $admin = $node->background_psql($db, on_error_stop => 0);
	my $user = $node->background_psql($db, on_error_stop => 0);
	out_of($admin, "CREATE EXTENSION keyright; $sell");
	out_of($user, "PREPARE take AS $take");
	is(out_of($user, 'EXECUTE take'), 'granted', 'a seat by a prepared plan');
	is(out_of($admin, $take), 'granted', 'and another');

	out_of($admin, 'DROP EXTENSION keyright');
	is(state_in($user, 'EXECUTE take'), '42883',
		'dropped: the function is gone');
	is(state_in($admin, $take), '42883', 'for whoever dropped it, too');

	out_of($admin, 'CREATE EXTENSION keyright');
	is(state_in($user, 'EXECUTE take'), 'KR001',
		'created: the license is gone');
	out_of($admin, $sell);
	is(out_of($user, 'EXECUTE take'), 'granted', 'sold again');
	is(out_of($admin, $take), 'granted', 'for both');
	is(out_of($user, 'EXECUTE take'), 'no_seats_available', 'not too often');

	# All of it in a transaction that comes to nothing.
	out_of($admin, 'BEGIN');
	out_of($admin, 'DROP EXTENSION keyright');
	out_of($admin, "CREATE EXTENSION keyright; $sell");
	is(out_of($admin, $take), 'granted', 'in the transaction: a fresh pool');
	out_of($admin, 'ROLLBACK');
	is(out_of($admin, $take), 'no_seats_available',
		'rolled back: the old one');
	is(out_of($user, 'EXECUTE take'), 'no_seats_available', 'for both');

	# The same by a savepoint, after which the transaction goes on.
	out_of($admin, 'BEGIN; SAVEPOINT s; DROP EXTENSION keyright');
	out_of($admin, "CREATE EXTENSION keyright; $sell");
	is(out_of($admin, $take), 'granted', 'under a savepoint: a fresh pool');
	out_of($admin, 'ROLLBACK TO s');
	is(out_of($admin, $take), 'no_seats_available', 'gone back: the old one');
	out_of($admin, 'COMMIT');
	is( out_of($user,
			q(SELECT live FROM keyright.pools WHERE license_id = 'acme')),
		2,
		'two are live in the end');
	$_->quit for $admin, $user;
};

# Sessions with cached plans that go on calling all the while.  What they meet
# is either an answer or an error that says what is the matter.
subtest 'dropped and created under load' => sub {
	my $db = 'postgres';
	$node->safe_psql(
		$db, q(
		CREATE TABLE public.met (state text);
		CREATE FUNCTION public.call() RETURNS void LANGUAGE plpgsql AS $$
		DECLARE
			r record;
		BEGIN
			SELECT * INTO r FROM keyright_checkout('acme', 'load');
			PERFORM keyright_heartbeat('acme', r.seat_id)
				WHERE r.seat_id IS NOT NULL;
			PERFORM keyright_checkin('acme', r.seat_id)
				WHERE r.seat_id IS NOT NULL;
			INSERT INTO public.met VALUES (r.status);
		EXCEPTION WHEN OTHERS THEN
			INSERT INTO public.met VALUES (SQLSTATE
				|| CASE WHEN SQLSTATE LIKE 'XX%' THEN ' ' || SQLERRM ELSE '' END);
		END $$;
		INSERT INTO keyright.license (license_id, seat_count)
		VALUES ('acme', 2)));
	my $load = start_clients($node, 4, 8, "SELECT public.call();\n");
	my $changes = 0;
	my $admin = $node->background_psql($db, on_error_stop => 0);
	my $end = time() + 7;
	while (time() < $end)
	{
		# Whoever loses a deadlock is told so; here it may be the admin.
		my $undo = $changes % 3 == 1 ? 'ROLLBACK' : 'COMMIT';
		$admin->query('BEGIN; DROP EXTENSION keyright');
		$admin->query('COMMIT') if $changes % 3 == 0;
		$admin->query("CREATE EXTENSION keyright; $sell");
		$admin->query($undo);
		$changes++;
		select undef, undef, undef, 0.1;
	}
	$admin->quit;
	is(finish_clients($load)->{status}, 0, 'no session was lost');
	my %met = map { $_->{state} => $_->{n} } rows($node,
		'SELECT state, count(*) AS n FROM public.met GROUP BY state');
	note "$changes changes; " . join ', ',
	  map { "$met{$_} times $_" } sort keys %met;
	cmp_ok($met{granted} // 0, '>', 10, 'seats were given out');
	delete @met{qw(granted no_seats_available)};
	# no function, no license yet, no fitting tables, busy, a deadlock
	delete @met{qw(42883 KR001 KR008 55P03 40P01)};
	is_deeply(\%met, {}, 'all errors are such as a caller can understand');
};

subtest 'another schema, an odd search_path' => sub {
	my $db = fresh_database('elsewhere');
	# Names like ours in front of it, for all that the script calls.
	$node->safe_psql(
		$db, q(
		CREATE SCHEMA "My App";
		CREATE SCHEMA decoy;
		CREATE FUNCTION decoy.keyright_is_live(timestamptz, interval,
			timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT false';
		CREATE FUNCTION decoy.count() RETURNS bigint LANGUAGE sql
			AS 'SELECT 0::bigint';
		CREATE FUNCTION decoy.not_equal(int, int) RETURNS boolean LANGUAGE sql
			AS 'SELECT true';
		CREATE OPERATOR decoy.= (FUNCTION = decoy.not_equal,
			LEFTARG = int, RIGHTARG = int);
		CREATE TABLE decoy.seat (x int);
		CREATE ROLE clerk;
		SET search_path = decoy, pg_catalog;
		CREATE EXTENSION keyright SCHEMA "My App";
		SELECT "My App".keyright_grant('client', 'clerk');
		SET search_path = '';
		INSERT INTO keyright.license (license_id, seat_count)
		VALUES ('acme', 1);
		SET ROLE clerk;
		SELECT * FROM "My App".keyright_checkout('acme', 'me')));
	for my $path (q(''), 'decoy, pg_catalog', '"My App", decoy')
	{
		is( $node->safe_psql(
				$db, qq(SET search_path = $path;
				SELECT live, free FROM keyright.pools;
				SELECT state FROM keyright.holders;
				SELECT status FROM "My App".keyright_checkout('acme', 'me'))),
			"1|0\nlive\nno_seats_available",
			"with search_path $path");
	}
	$node->safe_psql($db,
		q(UPDATE keyright.seat SET expires_at = now() - interval '1 day'));
	wait_emptied($node, $db, 'acme', 'the reaper works there');
	is(sqlstate($node, 'ALTER EXTENSION keyright SET SCHEMA public', $db),
		'0A000', 'it stays where it is');
	is($node->safe_psql($db, 'DROP EXTENSION keyright; SELECT 1'),
		1, 'it can be dropped');
};

subtest 'what is in the way' => sub {
	my $db = fresh_database('taken');
	$node->safe_psql($db, 'CREATE ROLE owner; CREATE SCHEMA keyright');
	$node->safe_psql('postgres', 'GRANT CREATE ON DATABASE taken TO owner');
	my ($out, $err);
	$node->psql($db, 'CREATE EXTENSION keyright', stderr => \$err);
	like($err, qr/schema "keyright" already exists/, 'a schema of that name');
	$node->safe_psql($db, 'DROP SCHEMA keyright');
	is( sqlstate($node, 'SET ROLE owner; CREATE EXTENSION keyright', $db),
		'42501', 'no superuser');
};

subtest 'tables that do not fit' => sub {
	my $db = fresh_database('newer');
	$node->safe_psql($db, "CREATE EXTENSION keyright; $sell");
	my $session = $node->background_psql($db, on_error_stop => 0);
	my $seat = out_of($session,
		q(SELECT seat_id FROM keyright_checkout('acme', 'me')));
	my $log = log_size($node);
	my $works = sub {
		my ($what) = @_;
		is( out_of($session, "SELECT status FROM keyright_heartbeat('acme', '$seat')"),
			'renewed', $what);
		is(out_of($session, "SELECT status FROM keyright_checkout('acme', 'you')"),
			'granted', '... for who takes another seat, too');
		out_of($session, "SELECT * FROM keyright_revoke_holder('acme', 'you')");
		return;
	};
	out_of($session, "BEGIN; ALTER TABLE keyright.seat ADD COLUMN x int; SAVEPOINT s");
	for my $call (
		$take,
		"SELECT * FROM keyright_heartbeat('acme', '$seat')",
		"SELECT keyright_checkin('acme', '$seat')",
		"SELECT * FROM keyright_revoke_all('acme')",
		'SELECT keyright_reap()',
		q(DELETE FROM keyright.license))
	{
		is(state_in($session, $call), 'KR008', "a column more in seat: $call");
		out_of($session, 'ROLLBACK TO s');
	}
	out_of($session, 'ROLLBACK');
	$works->('it works when that is taken back');
	out_of($session, 'ALTER TABLE keyright.seat ADD COLUMN x int;
		ALTER TABLE keyright.seat DROP COLUMN x');
	$works->('and when the column is dropped again');
	out_of($session, "ALTER TABLE keyright.license
		ADD COLUMN customer text NOT NULL DEFAULT 'somebody'");
	$works->('a license may have columns of the administrator\'s');
	out_of($session, 'ALTER TABLE keyright.license DROP COLUMN customer');
	$works->('and be without them again');

	# The reaper leaves such a database alone; one to whom it does not fit.
	$node->safe_psql($db,
		q(UPDATE keyright.seat SET expires_at = now() - interval '1 day';
		ALTER TABLE keyright.seat ADD COLUMN x int));
	is(state_in($session, $take), 'KR008', 'for other sessions too');
	add_lapsed($node, 'postgres', 'meanwhile', 1);
	wait_emptied($node, 'postgres', 'meanwhile', 'the reaper goes on');
	$session->quit;

	$node->safe_psql($db,
		q(UPDATE pg_extension SET extversion = '9.9'
			WHERE extname = 'keyright'));
	is(sqlstate($node, 'SELECT * FROM keyright_version()', $db),
		'KR008', 'versions that do not fit');
	my ($err);
	$node->psql($db, 'SELECT * FROM keyright_version()', stderr => \$err);
	like($err, qr/library is of version \d\S+, .*of version 9\.9.*ALTER EXTENSION/s,
		'with both named, and what to do');
	is( scalar(
			grep { !/ does not work with|9\.9|not those that/ }
			  log_lines($node, qr/ERROR: .*(?:relation|column)|FATAL:/, $log)),
		0,
		'without noise');
};

subtest 'other encodings' => sub {
	my $claims = sub {
		my ($token) = @_;
		return JSON::PP->new->utf8->decode(
			decode_base64url((split /\./, $token)[1]));
	};
	for my $encoding (qw(LATIN1 SQL_ASCII))
	{
		my $db = fresh_database(lc $encoding,
			"TEMPLATE template0 ENCODING '$encoding'"
			  . " LC_COLLATE 'C' LC_CTYPE 'C'");
		my $client = $encoding eq 'LATIN1' ? 'UTF8' : 'SQL_ASCII';
		my $set = "SET client_encoding = '$client'";
		# bytes of UTF-8 here; the server converts for LATIN1
		my ($license, $holder) = ("M\xc3\xbcller", "Zo\xc3\xab");
		$node->safe_psql($db, "$set; CREATE EXTENSION keyright;
			INSERT INTO keyright.license (license_id, seat_count)
			VALUES ('$license', 3)");
		my $token = $node->safe_psql($db,
			"$set; SELECT token FROM keyright_checkout('$license', '$holder')"
		);
		my $seen = $claims->($token);
		is($seen->{aud}, "M\x{fc}ller", "$encoding: aud is UTF-8");
		is($seen->{sub}, "Zo\x{eb}", 'sub is UTF-8');
		is( $node->safe_psql(
				$db, "$set; SELECT status, license_id, holder,
					holder = '$holder' FROM keyright_verify('$token')"),
			"valid|$license|$holder|t",
			'and comes back as it was');
		is( $node->safe_psql(
				$db, "$set; SELECT license_id, holder FROM keyright.holders"),
			"$license|$holder",
			'it stands in the view');
		is( sqlstate(
				$node,
				"$set; SELECT * FROM keyright_checkout('$license',
					repeat('$holder', 64))", $db),
			'22023',
			'255 bytes of UTF-8 are the limit');
		is($node->safe_psql($db,
				"$set; SELECT status FROM keyright_checkout('$license',
					repeat('$holder', 63))"),
			'granted', 'and not less');
	}
	my $bad = q(E'Zo\\xeb');
	my $err;
	for my $call (
		"SELECT * FROM keyright_checkout('x', $bad)",
		"INSERT INTO keyright.license (license_id, seat_count)
			VALUES ($bad, 1)")
	{
		$node->psql('sql_ascii', $call, stderr => \$err);
		like(
			$err,
			qr/ERROR:  invalid byte sequence for encoding "UTF8": 0xeb/,
			'bytes that are no UTF-8 are refused');
	}

	# What one database cannot write, it cannot tell; the token is good.
	my $token = $node->safe_psql(
		'elsewhere', "CREATE EXTENSION keyright; $sell;
			SELECT token FROM keyright_checkout('acme', U&'\\4e2d')");
	is($claims->($token)->{sub}, "\x{4e2d}", 'a holder beyond LATIN1');
	is( $node->safe_psql('latin1',
			"SELECT status, license_id, holder, problem
			FROM keyright_verify('$token')"),
		"valid|acme||a claim cannot be shown in this database's encoding",
		'cannot be told in LATIN1, and that is said');

	# Where letters take more room than in UTF-8.
	my $wide = fresh_database('euc_jp', "TEMPLATE template0 ENCODING 'EUC_JP'
		LC_COLLATE 'C' LC_CTYPE 'C'");
	is( $node->safe_psql($wide, q(SET client_encoding = 'UTF8';
			CREATE EXTENSION keyright;
			INSERT INTO keyright.license (license_id, seat_count)
			VALUES (repeat(U&'\0101', 127), 2);
			SELECT status FROM keyright_checkout(repeat(U&'\0101', 127), 'me'))),
		'granted', 'a license_id of 254 bytes in UTF-8, 381 in EUC_JP');
};

subtest 'not preloaded' => sub {
	my $plain = new_node('plain', preload => 0);
	add_license($plain, 'acme', 2);
	my $id = '00000001-0000-8000-8000-000000000000';
	my %states = (
		"SELECT * FROM keyright_checkout('acme', 'me')" => 'KR005',
		"SELECT * FROM keyright_heartbeat('acme', '$id')" => 'KR005',
		'SELECT keyright_jwks()' => 'KR005',
		"SELECT keyright_checkin('acme', '$id')" => '',
		"SELECT * FROM keyright_revoke_all('acme')" => '',
		'SELECT keyright_reap()' => '',
		"SELECT * FROM keyright_verify('x')" => '',
		'SELECT * FROM keyright_version()' => '',
		'SELECT * FROM keyright.pools' => '',
		'SELECT * FROM keyright.locks' => '',
		"SELECT keyright_delete_license('acme')" => '');
	for my $load ('', "LOAD 'keyright'; ")
	{
		for my $call (sort keys %states)
		{
			next if $call =~ /delete/ && $load eq '';
			my ($out, $err) = ('', '');
			$plain->psql(
				'postgres',
				"\\set VERBOSITY sqlstate\n$load$call",
				stdout => \$out,
				stderr => \$err);
			is($err =~ /ERROR:  (\w{5})/ ? $1 : '',
				$states{$call}, "$load$call");
		}
	}
	my $reaper = row($plain, 'SELECT * FROM keyright.reaper');
	ok(!$reaper->{preloaded} && !$reaper->{running}, 'the view says so');
	my $err;
	$plain->psql('postgres', q(SELECT * FROM keyright_checkout('acme', 'me')),
		stderr => \$err);
	like($err, qr/shared_preload_libraries/, 'and so does the error');
	# Half a remedy: the key would be anybody's to read.
	$plain->append_conf('postgresql.conf',
		"session_preload_libraries = 'keyright'");
	$plain->reload;
	add_license($plain, 'acme', 2);
	is(sqlstate($plain, "SELECT * FROM keyright_checkout('acme', 'me')"),
		'KR005', 'session_preload_libraries does not help');
	is(crashes($plain), 0, 'no crash');
	$plain->stop;
};

is(crashes($node), 0, 'no crash');
$node->stop;
done_testing();
