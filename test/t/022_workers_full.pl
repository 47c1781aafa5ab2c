# Promise: a server whose table of workers is full is told so once, however
# long it lasts; check-outs take over lapsed seats meanwhile, and the reaper
# goes on when there is room again.
#
# How: max_worker_processes leaves room for the launcher and PostgreSQL's own
# worker alone, or a query in a parallel worker has what is left.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Test::More;

# The logical replication launcher has a slot as well.
my $node = new_node(
	'full',
	conf => "keyright.reap_interval = '50ms'\n"
	  . "max_worker_processes = 2\n"
	  . 'autovacuum = off');
my $complaint = qr/keyright could not start a worker/;

$node->wait_for_log($complaint);
add_lapsed($node, 'postgres', 'acme', 3);
my @grants = map { checkout($node, 'acme', "h$_") } 1 .. 4;
is(join(' ', map { $_->{status} } @grants),
	'granted granted granted no_seats_available',
	'check-outs take over lapsed seats');
is(heartbeat($node, 'acme', $grants[0]{seat_id})->{status},
	'renewed', 'a beat is renewed');

# Fifty rounds and more, with databases coming and going.
for (1 .. 5)
{
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	$node->safe_psql('other', 'CREATE EXTENSION keyright');
	$node->safe_psql('postgres', 'SELECT pg_sleep(0.5)');
	$node->safe_psql('postgres', 'DROP DATABASE other');
}
is(scalar log_lines($node, $complaint), 1, 'one line in the log');
is_deeply([ log_lines($node, qr/FATAL|PANIC|WARNING/) ],
	[], 'and nothing worse');
my $reaper = row($node, 'SELECT * FROM keyright.reaper');
ok($reaper->{running}, 'the launcher is there');
is($reaper->{last_sweep}, undef, 'no sweep could be made');

# Room again, also for a database in which nobody calls anything: full when
# the server started, it must not be taken for visited.
$node->safe_psql('postgres', 'CREATE DATABASE quiet');
$node->safe_psql('quiet', 'CREATE EXTENSION keyright');
add_lapsed($node, 'quiet', 'acme', 3);
$node->adjust_conf('postgresql.conf', 'max_worker_processes', 3);
$node->restart;
my $log = log_size($node);
wait_emptied($node, 'quiet', 'acme', 'with room for one it works');
is(scalar log_lines($node, $complaint, $log), 0, 'without complaint');

# Full when a database comes that was never seen: it is not forgotten.  The
# last slot is held by a query that is made to run in a parallel worker.
$node->adjust_conf('postgresql.conf', 'keyright.reap_interval', "'1s'");
$node->reload;
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe(
	q(SELECT set_config(name, 'on', false) FROM pg_settings
		WHERE name IN ('force_parallel_mode', 'debug_parallel_query')));
$log = log_size($node);
my $workers = q(SELECT count(*) FROM pg_stat_activity
	WHERE backend_type = 'parallel worker');
wait_until(
	'the last slot',
	sub {
		$session->query_until(qr/sleeping/,
			"\\echo sleeping\nSELECT pg_sleep(300);\n");
		# the worker starts at once, or there was no room for it
		for (1 .. 10)
		{
			return 1 if $node->safe_psql('postgres', $workers) eq '1';
			select undef, undef, undef, 0.05;
		}
		cancel_sleep();
		return 0;
	});
$node->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE quiet');
add_lapsed($node, 'copy', 'copied', 3);
$node->wait_for_log($complaint, $log);
cancel_sleep();
wait_emptied($node, 'copy', 'copied',
	'a database that came while all was full is visited later');
cmp_ok(scalar log_lines($node, $complaint, $log),
	'<', 5, 'a line in the log each time that it was full');

sub cancel_sleep
{
	$node->poll_query_until('postgres',
		q(SELECT count(pg_cancel_backend(pid)) = 0 FROM pg_stat_activity
			WHERE query LIKE 'SELECT pg_sleep(300)%'
			AND backend_type = 'client backend' AND state = 'active'));
	return;
}

$session->quit;
is(crashes($node), 0, 'no crash');
$node->stop;
done_testing();
