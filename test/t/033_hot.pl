# Promise: beats, check-outs and check-ins are HOT updates in place: table and
# indexes stay as small as they are, without vacuum.
#
# How: pgbench's clients make 100,000 calls, each a transaction of its own;
# more than 95 % must be HOT by the server's own statistics, the table in no
# more pages at the end than after the first tenth, and the indexes no bigger.
#
# Pages in use are counted, not the file's size: one update that needs a page
# while others wait for one makes PostgreSQL add 20 for each who waits.  A few
# updates need one whenever a session stands still with its snapshot for long
# enough to fill a page; 1 % of this table are more pages than those.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use PostgreSQL::Test::Utils ();
use Test::More;

my $clients = 8;

# A sampler, or a vacuum, would bring in a snapshot that keeps dead rows or
# do what should not be needed.
my $node = new_node('hot',
	conf => "autovacuum = off\nsynchronous_commit = off\n"
	  . "keyright.max_lock_hold = '1 min'");

# So many leases that hardly one is renewed twice within a second: a beat that
# leaves the end where it is writes nothing.
$node->safe_psql(
	'postgres', q(
	CREATE EXTENSION pageinspect;
	INSERT INTO keyright.license (license_id, seat_count, ttl)
	SELECT 'pool-' || g, 1000, '1 h' FROM generate_series(1, 4) g;
	INSERT INTO keyright.license (license_id, seat_count, ttl)
	VALUES ('beaten', 60000, '1 h');
	CREATE TABLE public.mine (n int PRIMARY KEY, seat_id uuid);
	INSERT INTO public.mine
	SELECT g, c.seat_id FROM generate_series(1, 60000) g,
		LATERAL keyright_checkout('beaten', 'h' || g) c;
	SELECT count(*) FROM generate_series(1, 3600) g,
		LATERAL keyright_checkout('pool-' || (1 + g % 4), 'h' || g) c;
	ANALYZE public.mine));

my $beat = q(\set n random(1, 60000)
SELECT status FROM public.mine m, keyright_heartbeat('beaten', m.seat_id)
WHERE m.n = :n;
);
my $cycle = q(\set n random(1, 4)
SELECT seat_id FROM keyright_checkout('pool-' || :n::int, 'client') \gset
SELECT keyright_checkin('pool-' || :n::int, :seat_id);
);
my $dir = PostgreSQL::Test::Utils::tempdir();
PostgreSQL::Test::Utils::append_to_file("$dir/beat.sql", $beat);
PostgreSQL::Test::Utils::append_to_file("$dir/cycle.sql", $cycle);

# Two transactions of pgbench in three are a beat, one is two calls.
sub run_calls
{
	my ($calls) = @_;
	my $each = int($calls * 3 / 4 / $clients);
	return $node->command_ok(
		[
			'pgbench', '-n', '-M', 'prepared',
			'-c', $clients, '-j', 2, '-t', $each,
			'-f', "$dir/beat.sql\@2", '-f', "$dir/cycle.sql\@1",
			'postgres'
		],
		"$calls calls");
}

sub seen
{
	return row($node,
		q(SELECT (SELECT count(*)
				FROM generate_series(1, pg_relation_size('keyright.seat') /
					current_setting('block_size')::bigint) n,
					LATERAL page_header(
						get_raw_page('keyright.seat', n::int - 1)) p
				-- 24: behind the header, where no row was ever put
				WHERE p.lower > 24) AS pages,
			pg_indexes_size('keyright.seat') AS indexes,
			n_tup_upd AS updates, n_tup_hot_upd AS hot, n_tup_ins AS inserts
		FROM pg_stat_user_tables WHERE relid = 'keyright.seat'::regclass));
}

run_calls(10_000);
my $first = seen();
run_calls(90_000);
my $last = seen();

note "updates $last->{updates}, HOT $last->{hot}, pages $first->{pages}"
  . " to $last->{pages}, indexes $first->{indexes} to $last->{indexes}";
cmp_ok($last->{updates}, '>', 70_000, 'most calls wrote');
cmp_ok($last->{hot} / $last->{updates},
	'>', 0.95, 'more than 95 % of the updates were HOT');
cmp_ok($last->{pages}, '<=', $first->{pages} * 1.01, 'the table is flat');
cmp_ok($last->{indexes}, '<=', $first->{indexes} * 1.01,
	'the indexes are flat');
is( $node->safe_psql(
		'postgres', q(SELECT count(*) FROM keyright.seat
			WHERE seat_id IS NOT NULL)),
	63600,
	'no seat was lost or kept');
is(crashes($node), 0, 'no crash');
$node->stop;
done_testing();
