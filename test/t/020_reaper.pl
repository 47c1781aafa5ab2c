# Promise: seats whose holders died are emptied in every database that has the
# extension, however it came by it, with nothing to configure; databases
# without it are left alone.
#
# How: leases lapse, or have lapsed, in databases in which no function of
# keyright's is called afterwards (counting rows is no call), so it is the
# reaper that finds them.  A database that a visit has been to is told by its
# count of committed transactions.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Test::More;

my $node = new_node(
	'reaper',
	extension => 0,
	conf => "keyright.reap_interval = '200ms'\n"
	  . "max_prepared_transactions = 2\n"
	  . "autovacuum = off");

sub sql
{
	my ($dbname, $query) = @_;
	return $node->safe_psql($dbname, $query);
}

sub create
{
	my ($dbname) = @_;
	sql('postgres', "CREATE DATABASE $dbname");
	return;
}

sub commits
{
	my ($dbname) = @_;
	return sql('postgres',
		"SELECT coalesce(sum(xact_commit), 0) FROM pg_stat_database"
		  . " WHERE datname = '$dbname'");
}

# Call it before anything else has connected.
sub wait_visited
{
	my ($dbname, $before) = @_;
	wait_until("a visit of $dbname", sub { commits($dbname) > $before });
	return;
}

sub reaper
{
	my ($dbname) = @_;
	return row($node, 'SELECT * FROM keyright.reaper', $dbname);
}

# Waits until the reaper has been to a database a few times more.
sub wait_rounds
{
	my ($dbname, $rounds) = @_;
	for (1 .. $rounds)
	{
		my $before = reaper($dbname)->{last_sweep} // '';
		wait_until("a sweep of $dbname",
			sub { (reaper($dbname)->{last_sweep} // '') ne $before });
	}
	return;
}

create($_) for qw(one two plain);
sql($_, 'CREATE EXTENSION keyright') for qw(one two);

subtest 'two databases with the extension, one without' => sub {
	my $lapse = q(max(s.expires_at + l.reap_grace));
	my %end;
	for my $db (qw(one two))
	{
		sql(
			$db, q(
			INSERT INTO keyright.license
				(license_id, seat_count, ttl, skew, reap_grace)
			VALUES ('acme', 5, '1 s', '0', '1 s');
			SELECT count(*) FROM generate_series(1, 5) g,
				LATERAL keyright_checkout('acme', 'h' || g) c
			WHERE c.status = 'granted'));
		$end{$db} = row($node,
			"SELECT count(s.seat_id) AS taken, $lapse AS until
			FROM keyright.seat s, keyright.license l", $db);
		is($end{$db}{taken}, 5, "five seats are taken in $db");
	}

	# Rows are counted before the clock is read: an empty one seen while the
	# clock is not past the grace was emptied too early.
	my $early = 0;
	for my $db (qw(one two))
	{
		wait_until(
			"$db is emptied",
			sub {
				my $seen = row($node,
					"SELECT n AS taken, clock_timestamp() > '$end{$db}{until}'
						AS over
					FROM (SELECT count(seat_id) AS n FROM keyright.seat
						OFFSET 0) c", $db);
				$early++ if $seen->{taken} < 5 && !$seen->{over};
				return $seen->{taken} == 0;
			});
	}
	is($early, 0, 'not before reap_grace is over');
	for my $db (qw(one two))
	{
		is( sql($db,
				"SELECT count(*), count(seat_id), count(holder),
					count(expires_at), string_agg(DISTINCT ended_reason, ' ')
				FROM keyright.seat"),
			'5|0|0|0|expired',
			"the rows of $db stay, empty");
	}
};

subtest 'what the view says' => sub {
	wait_rounds('one', 1);
	my $before = reaper('one');
	ok($before->{preloaded}, 'preloaded');
	ok($before->{running}, 'running');
	is($before->{reap_interval}, '200ms', 'the interval');
	is( sql('one',
			"SELECT backend_type FROM pg_stat_activity
			WHERE pid = $before->{pid}"),
		'keyright launcher',
		'the pid is the launcher\'s');
	add_lapsed($node, 'one', 'counted', 3);
	wait_emptied($node, 'one', 'counted', 'three more are emptied');
	is(reaper('one')->{total_reaped},
		$before->{total_reaped} + 3, 'they are counted once');
	wait_rounds('one', 2);
	is(reaper('one')->{last_reaped}, 0, 'then there is nothing to do');
	is(reaper('one')->{last_error}, undef, 'and there was no error');
	is(reaper('two')->{total_reaped}, 5, 'each database counts its own');
};

subtest 'CREATE EXTENSION in a new database' => sub {
	create('late');
	# It has been seen without the extension: only a word from there helps.
	wait_visited('late', 0);
	sql('late', 'CREATE EXTENSION keyright');
	add_lapsed($node, 'late', 'acme', 3);
	wait_emptied($node, 'late', 'acme', 'is picked up without a restart');
};

subtest 'CREATE EXTENSION in a long transaction' => sub {
	create('restored');
	wait_visited('restored', 0);
	my $session = $node->background_psql('restored');
	$session->query_safe('BEGIN');
	$session->query_safe('CREATE EXTENSION keyright');
	# A visit now would see a database without it.
	wait_rounds('one', 3);
	$session->query_safe('COMMIT');
	$session->quit;
	add_lapsed($node, 'restored', 'acme', 3);
	wait_emptied($node, 'restored', 'acme', 'is picked up when it commits');
};

subtest 'a copy of a database with leases' => sub {
	sql(
		'late', q(
		INSERT INTO keyright.license
			(license_id, seat_count, ttl, skew, reap_grace)
		VALUES ('short', 3, '3 s', '0', '1 s')));
	is( sql('late',
			q(SELECT count(*) FROM generate_series(1, 3) g,
				LATERAL keyright_checkout('short', 'h' || g) c
			WHERE status = 'granted')),
		3,
		'leases in the template');
	sql('postgres', 'CREATE DATABASE copy TEMPLATE late');
	is(sql('copy', 'SELECT count(seat_id) FROM keyright.seat'),
		3, 'they are copied');
	wait_emptied($node, 'copy', 'short',
		'and emptied, though nobody calls anything there');
};

subtest 'a schema of the same name' => sub {
	# As alike as can be, but nobody's extension.
	my $ddl = q(
		CREATE SCHEMA keyright;
		CREATE TABLE keyright.license (id integer, license_id text COLLATE "C",
			seat_count integer, ttl interval, skew interval,
			reap_grace interval, max_ttl interval, valid_from timestamptz,
			valid_until timestamptz, suspended boolean,
			CONSTRAINT license_pkey PRIMARY KEY (id),
			CONSTRAINT license_license_id_key UNIQUE (license_id));
		CREATE TABLE keyright.seat (license integer, slot integer, seat_id uuid,
			holder text COLLATE "C", request_id text COLLATE "C", ttl interval,
			checked_out_at timestamptz, issued_at timestamptz,
			expires_at timestamptz, ended_seat_id uuid,
			ended_reason text COLLATE "C",
			CONSTRAINT seat_pkey PRIMARY KEY (license, slot));
		CREATE UNIQUE INDEX seat_request_id_key
			ON keyright.seat (license, request_id);
		INSERT INTO keyright.license
			VALUES (1, 'mine', 3, '1 s', '0', '1 s', null, null, null, false);
		INSERT INTO keyright.seat SELECT 1, g, gen_random_uuid(), 'me', null,
			null, t, t, t FROM generate_series(1, 3) g,
			(SELECT now() - interval '1 day' AS t) u);
	sql('plain', $ddl);
	# Being a member of some extension is not enough either.
	create('other');
	sql('other', $ddl);
	sql('other', 'ALTER EXTENSION plpgsql ADD TABLE keyright.seat');
	sql('other', 'ALTER EXTENSION plpgsql ADD TABLE keyright.license');

	my %before = map { $_ => commits($_) } qw(plain other);
	$node->restart;
	wait_visited($_, $before{$_}) for qw(plain other);
	wait_rounds('one', 3);
	for my $db (qw(plain other))
	{
		is(sql($db, 'SELECT count(seat_id) FROM keyright.seat'),
			3, "the look-alike in $db is not touched");
	}
};

subtest 'a restart' => sub {
	# Leases that lapse when the server is back.  In one database the first
	# visit fails, because somebody has locked the table.
	for my $db (qw(one two))
	{
		sql(
			$db, q(
			WITH l AS (
				INSERT INTO keyright.license
					(license_id, seat_count, skew, reap_grace)
				VALUES ('restart', 2, '0', '1 s') RETURNING id)
			INSERT INTO keyright.seat
				(license, slot, seat_id, holder, expires_at)
			SELECT id, 1, gen_random_uuid(), 'nobody', now() + '2 s' FROM l));
	}
	sql(
		'two', q(
		BEGIN;
		LOCK TABLE keyright.seat;
		PREPARE TRANSACTION 'stuck'));
	my $log = log_size($node);
	$node->restart;
	wait_emptied($node, 'one', 'restart',
		'databases are found again without a call');
	$node->wait_for_log(qr/canceling statement due to lock timeout/, $log);
	sql('two', q(ROLLBACK PREPARED 'stuck'));
	wait_emptied($node, 'two', 'restart',
		'also one whose first visit failed');
};

subtest 'DROP EXTENSION' => sub {
	my $pid = reaper('one')->{pid};
	my $log = log_size($node);
	sql('two', 'DROP EXTENSION keyright');
	wait_rounds('one', 3);
	sql('two', 'CREATE EXTENSION keyright');
	add_lapsed($node, 'two', 'acme', 3);
	wait_emptied($node, 'two', 'acme', 'created again it works again');
	is(reaper('one')->{pid}, $pid, 'the launcher has not been restarted');
	is_deeply([ log_lines($node, qr/ERROR|FATAL|WARNING|keyright/, $log) ],
		[], 'and nobody has complained');
};

subtest 'a new interval' => sub {
	# Taken when the next visits are over: then they are an hour apart.
	sql('postgres', "ALTER SYSTEM SET keyright.reap_interval = '1 h'");
	$node->reload;
	wait_until('the reload', sub { reaper('one')->{reap_interval} eq '1h' });
	wait_until(
		'the last visit',
		sub {
			my $before = commits('one');
			select undef, undef, undef, 1;
			return commits('one') == $before;
		});
	add_lapsed($node, 'one', 'interval', 3);
	my $idle = sql(
		'one', q(
		WITH RECURSIVE sample(n, held) AS (
			SELECT 0, 0
			UNION ALL
			SELECT n + 1, (SELECT count(*)::int
				FROM pg_stat_get_activity(NULL) a, pg_sleep(0.01 + 0 * n)
				WHERE a.backend_type LIKE 'keyright %'
				AND (a.xact_start IS NOT NULL OR a.backend_xmin IS NOT NULL))
			FROM sample WHERE n < 100)
		SELECT sum(held) FROM sample));
	cmp_ok($idle, '<', 10,
		'between sweeps no transaction and no xmin is held');
	is( sql('one', 'SELECT count(seat_id) FROM keyright.seat'),
		3, 'an hour has not passed');
	sql('postgres', "ALTER SYSTEM SET keyright.reap_interval = '100ms'");
	$node->reload;
	wait_emptied($node, 'one', 'interval', 'a shorter one counts at once');
};

subtest 'rows above seat_count' => sub {
	sql(
		'one', q(
		INSERT INTO keyright.license (license_id, seat_count)
		VALUES ('shrunk', 5)));
	my @leases = rows(
		$node,
		q(SELECT c.slot, c.seat_id FROM generate_series(1, 5) g,
			LATERAL keyright_checkout('shrunk', 'h' || g) c), 'one');
	my ($fifth) = grep { $_->{slot} == 5 } @leases;
	for my $lease (grep { $_->{slot} != 5 } @leases)
	{
		sql('one', "SELECT keyright_checkin('shrunk', '$lease->{seat_id}')");
	}
	my $slots = q(
		SELECT string_agg(s.slot::text, ' ' ORDER BY s.slot)
		FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
		WHERE l.license_id = 'shrunk');
	wait_rounds('one', 2);
	is(sql('one', $slots), '1 2 3 4 5', 'rows stay while they may be used');
	sql('one', q(UPDATE keyright.license SET seat_count = 2
		WHERE license_id = 'shrunk'));
	ok( $node->poll_query_until('one', "SELECT ($slots) = '1 2 5'"),
		'after a shrink the empty ones above go');
	is( row($node,
			"SELECT status FROM
			keyright_heartbeat('shrunk', '$fifth->{seat_id}')", 'one')
		->{status},
		'renewed',
		'the one in use goes on');
	sql('one', "SELECT keyright_checkin('shrunk', '$fifth->{seat_id}')");
	ok($node->poll_query_until('one', "SELECT ($slots) = '1 2'"),
		'and goes when it was given back');
};

is(crashes($node), 0, 'no crash');
$node->stop;
done_testing();
