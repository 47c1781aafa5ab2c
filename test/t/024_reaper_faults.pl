# Promise: nothing stops the reaper for good, neither a signal nor an error,
# and no stuck session in one place keeps seats elsewhere from being emptied.
#
# How: launcher and visits are killed in every way, a visit being caught while
# it waits for a table that a session has locked; errors are provoked by the
# same lock; licenses are kept busy by an open transaction.  Each time leases
# that lapsed a day ago must be emptied in the end.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node(
	'faults',
	conf => "keyright.reap_interval = '500ms'\n"
	  . "keyright.max_lock_hold = '120s'\n"
	  . "restart_after_crash = on\n"
	  . 'autovacuum = off');

sub reaper
{
	return row($node, 'SELECT * FROM keyright.reaper');
}

sub pids
{
	my ($type) = @_;
	return split /\n/,
	  $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = '$type'");
}

# A session that keeps visits of "postgres" waiting, and such a visit.
sub lock_table
{
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	$session->query_safe('BEGIN; LOCK TABLE keyright.seat');
	return $session;
}

sub catch_visit
{
	my $pid;
	wait_until('a visit that waits',
		sub { ($pid) = pids('keyright reaper'); return $pid; });
	return $pid;
}

my $count = 0;

sub works_again
{
	my ($what) = @_;
	my $license = 'license-' . ++$count;
	add_lapsed($node, 'postgres', $license, 3);
	return wait_emptied($node, 'postgres', $license, $what);
}

# Both may be gone already when the signal is sent: then it is tried again.
sub end_launcher
{
	my ($how) = @_;
	my $old = reaper()->{pid};
	$how->($old);
	wait_until(
		'another launcher',
		sub {
			my ($code, $pid) =
			  $node->psql('postgres', 'SELECT pid FROM keyright.reaper');
			return $code == 0 && $pid ne '' && $pid != $old;
		});
	return;
}

works_again('it works');

subtest 'the launcher is ended' => sub {
	end_launcher(sub { kill 'TERM', $_[0] });
	works_again('SIGTERM');
	end_launcher(
		sub {
			$node->safe_psql('postgres', "SELECT pg_terminate_backend($_[0])");
		});
	works_again('pg_terminate_backend');
	is(crashes($node), 0, 'without a crash');
};

subtest 'a visit is ended' => sub {
	my $launcher = reaper()->{pid};
	my $session = lock_table();
	# a visit waits for the table for a second at most: one may be over before
	# it is ended, and the next one is caught
	my $ended = 'f';
	for (1 .. 30)
	{
		my $pid = catch_visit();
		$ended = $node->safe_psql('postgres',
			"SELECT pg_terminate_backend($pid)");
		last if $ended eq 't';
	}
	is($ended, 't', 'pg_terminate_backend finds it');
	$session->query_safe('ROLLBACK');
	$session->quit;
	works_again('and the next one does its work');
	is(reaper()->{pid}, $launcher, 'the launcher has gone on');
	is(crashes($node), 0, 'without a crash');
};

subtest 'an error' => sub {
	my $log = log_size($node);
	my @at = (time());
	add_lapsed($node, 'postgres', 'behind an error', 3);
	my $session = lock_table();
	my $last = reaper()->{last_error_at} // '';
	for (1 .. 4)
	{
		wait_until('an error',
			sub { (reaper()->{last_error_at} // '') ne $last });
		$last = reaper()->{last_error_at};
		push @at, time();
	}
	like(reaper()->{last_error}, qr/lock timeout/, 'the view shows it');
	# Without back-off it would be a second, the time of the wait itself.
	cmp_ok($at[4] - $at[3], '>', 1.6, 'and it is tried less and less often');
	my @lines = log_lines($node, qr/ERROR|FATAL/, $log);
	is(scalar(grep { !/canceling statement due to lock timeout/ } @lines),
		0, 'nothing else is in the log');
	$session->query_safe('ROLLBACK');
	$session->quit;
	wait_emptied($node, 'postgres', 'behind an error', 'it recovers');
	works_again('and goes on');
};

subtest 'a license in the hands of a stuck session' => sub {
	my $log = log_size($node);
	add_license($node, 'stuck', 5, ttl => '1 s', skew => '0',
		reap_grace => '1 s');
	is(checkout($node, 'stuck', 'dead')->{status}, 'granted', 'a lease');
	my $session = $node->background_psql('postgres');
	$session->query_safe('BEGIN');
	$session->query_safe("SELECT * FROM keyright_checkout('stuck', 'idle')");
	sleep 2;
	works_again('others are reaped');
	is( row($node,
			"SELECT count(*) AS n FROM keyright.holders
			WHERE license_id = 'stuck' AND holder = 'dead'
				AND state = 'lapsed'")->{n},
		1,
		'that one is not');
	is_deeply([ log_lines($node, qr/(?:ERROR|FATAL):/, $log) ],
		[], 'which is no error');
	$session->query_safe('ROLLBACK');
	$session->quit;
	wait_emptied($node, 'postgres', 'stuck', 'until it is let go');
};

# A quarter of a second for each of them would be half a minute.
subtest 'many licenses in the hands of a stuck session' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
	$node->safe_psql('elsewhere', 'CREATE EXTENSION keyright');
	my $session = $node->background_psql('postgres');
	$session->query_safe('BEGIN');
	$session->query_safe(
		q(INSERT INTO keyright.license (license_id, seat_count)
			SELECT 'many-' || g, 2 FROM generate_series(1, 120) g));
	$session->query_safe('COMMIT');
	$session->query_safe('BEGIN');
	$session->query_safe(
		q(SELECT count(*) FROM generate_series(1, 120) g,
			LATERAL keyright_checkout('many-' || g, 'idle')));
	# Lapsed leases from another session, so that there is work to be done.
	$node->safe_psql(
		'postgres', q(
		INSERT INTO keyright.seat (license, slot, seat_id, holder, expires_at)
		SELECT id, 2, gen_random_uuid(), 'dead', now() - interval '1 day'
		FROM keyright.license WHERE license_id LIKE 'many-%'));
	wait_until('a visit', sub { pids('keyright reaper') });
	add_lapsed($node, 'elsewhere', 'acme', 3);
	my $start = time();
	wait_emptied($node, 'elsewhere', 'acme',
		'another database is not held up');
	cmp_ok(time() - $start, '<', 12, 'for long');
	$session->query_safe('ROLLBACK');
	$session->quit;
	ok( $node->poll_query_until(
			'postgres',
			q(SELECT count(*) = 0 FROM keyright.seat s
				JOIN keyright.license l ON l.id = s.license
				WHERE l.license_id LIKE 'many-%' AND s.seat_id IS NOT NULL)),
		'all are emptied when it is over');
};

# An administrator may search holders with SQL of his own.
subtest 'an index that asks' => sub {
	$node->safe_psql('postgres', q(
		CREATE FUNCTION asks(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
			'BEGIN RETURN (SELECT upper($1)); END';
		CREATE INDEX asked ON keyright.seat (asks(holder))));
	works_again('with SQL in an index');
	$node->safe_psql('postgres', 'DROP INDEX keyright.asked');
};

# DROP DATABASE leaves such a one behind when it is interrupted.
subtest 'a broken database' => sub {
	add_lapsed($node, 'elsewhere', 'before', 1);
	wait_emptied($node, 'elsewhere', 'before', 'it was visited');
	my $log = log_size($node);
	$node->safe_psql('postgres',
		q(UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'elsewhere')
	);
	works_again('others are reaped');
	works_again('and again');
	$node->safe_psql('postgres', 'DROP DATABASE elsewhere');
	is_deeply([ log_lines($node, qr/ERROR|FATAL/, $log) ],
		[], 'nobody complains');
};

subtest 'SIGKILL' => sub {
	is(crashes($node), 0, 'no crash before');
	end_launcher(sub { kill 'KILL', $_[0] });
	works_again('of the launcher');
	my $session = lock_table();
	my $old = reaper()->{pid};
	# one that is over already is not killed: the next one is
	for (1 .. 30)
	{
		last if kill 'KILL', catch_visit();
	}
	wait_until(
		'the restart of the server',
		sub {
			my ($code, $new) =
			  $node->psql('postgres', 'SELECT pid FROM keyright.reaper');
			return $code == 0 && $new ne '' && $new != $old;
		});
	eval { $session->quit };
	works_again('of a visit');
};

$node->stop;

# What a server's processes take for the time: a file says how far off it is.
my $clock_source = <<'C';
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
int gettimeofday(struct timeval *now, void *zone)
{
	char	offset[16] = "0";
	int		file = open(getenv("CLOCK_FILE"), O_RDONLY | O_CLOEXEC);

	if (file >= 0 && read(file, offset, sizeof(offset) - 1) < 0)
		abort();
	close(file);
	syscall(SYS_gettimeofday, now, zone);
	now->tv_sec += atol(offset);
	return 0;
}
C

subtest 'a clock that was set back' => sub {
	my $ahead = new_node(
		'ahead',
		start => 0,
		conf => "keyright.reap_interval = '500ms'\nautovacuum = off");
	my $clock = $ahead->basedir . '/clock';
	my $set = sub {
		PostgreSQL::Test::Utils::append_to_file("$clock.new", "$_[0]\n");
		rename "$clock.new", $clock or die "$clock: $!";
	};
	PostgreSQL::Test::Utils::append_to_file("$clock.c", $clock_source);
	system('gcc', '-shared', '-fPIC', '-o', "$clock.so", "$clock.c") == 0
	  or die 'gcc failed';
	$set->(86400);
	{
		local $ENV{LD_PRELOAD} = "$clock.so";
		local $ENV{CLOCK_FILE} = $clock;
		$ahead->start;
	}
	$ahead->safe_psql('postgres', 'CREATE EXTENSION keyright');
	add_lapsed($ahead, 'postgres', 'before', 1);
	wait_emptied($ahead, 'postgres', 'before', 'a day ahead it reaps');
	is($ahead->safe_psql('postgres',
			"SELECT last_sweep > to_timestamp(@{[time() + 80000]})
			FROM keyright.reaper"),
		't', '(it is a day ahead)');
	$set->(0);
	add_lapsed($ahead, 'postgres', 'after', 1);
	wait_emptied($ahead, 'postgres', 'after', 'and when that is corrected');
	$ahead->stop;
};
done_testing();
