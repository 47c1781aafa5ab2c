# How long a lease lives: its ttl from the moment of the answer, its skew more
# as the server counts, and not a second longer, with the reaper or without it.
#
# The clock is read after the lock, so who waits for long gets a whole lease.
# What has lapsed is free at once, without anybody sweeping.  Each lease follows
# the end that its last beat was promised, whatever its license says now.  And
# the seat of a client that was killed comes back when ttl and skew are over.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'life', conf => q(
keyright.lock_timeout = '60 s'
keyright.max_lock_hold = '5 min'
keyright.reap_interval = '1 h'
));

# --- nobody is born expired ---

add_license($node, 'slow', 2, ttl => '2 s', skew => 0);
my $holder = $node->background_psql('postgres');
$holder->query_safe(
	q(BEGIN; SELECT status FROM keyright_checkout('slow', 'holder')));
my $waiter = start_tool($node, 'hold', '-w', 0,
	q(SELECT concat_ws('|', status,
		extract(epoch FROM expires_at), extract(epoch FROM clock_timestamp()))
	  FROM keyright_checkout('slow', 'waiter')));
$node->poll_query_until('postgres',
	'SELECT count(*) = 1 FROM keyright.locks WHERE NOT granted')
  or die 'nobody waits';
# the wait itself is what is tested: longer than the ttl
$holder->query_safe('SELECT pg_sleep(5)');
my $released = $holder->query_safe(
	'SELECT extract(epoch FROM clock_timestamp())');
$holder->query_safe('COMMIT');
$waiter->{run}->finish;
my ($status, $expires, $answered) =
  $waiter->{output} =~ /^1\t\d+\tok\t(\w+)\|([\d.]+)\|([\d.]+)$/m;
is($status, 'granted', 'who waited for 5 s is granted a seat');
cmp_ok($expires, '>=', $released + 2, 'its lease has its whole ttl');
cmp_ok($expires, '<=', $answered + 3, 'and no more than that, rounded up');

# Beats in one transaction, whose now() stands still: rising ends.
add_license($node, 'beats', 1, ttl => '5 s', skew => 0);
my @ends = map { /^\d+\t\d+\tok\trenewed (\S+)$/ ? $1 : () } do
{
	my $beats = start_tool(
		$node, 'hold', '-w', 0, 'BEGIN',
		q(SELECT status FROM keyright_checkout('beats', 'x')),
		map {
			(   'SELECT pg_sleep(1)',
				q(SELECT status || ' ' || extract(epoch FROM expires_at)
				  FROM keyright_heartbeat('beats', (SELECT seat_id
					FROM keyright.seat WHERE holder = 'x'))))
		} 1 .. 7);
	$beats->{run}->finish;
	split /\n/, $beats->{output};
};
is(scalar @ends, 7, 'beats in one transaction, longer than the ttl: renewed');
is(scalar(grep { $ends[$_] <= $ends[ $_ - 1 ] } 1 .. $#ends),
	0, 'each of them leads further');
$holder->quit;

# --- what lapsed is free, and nobody has swept ---

add_license($node, 'lapsing', 20, ttl => '1 s', skew => 0,
	max_ttl => '1 h');
$node->safe_psql('postgres',
	q(SELECT keyright_checkout('lapsing', 'h' || i)
	  FROM generate_series(1, 20) i));
$node->poll_query_until('postgres',
	q(SELECT live = 0 FROM keyright.pools WHERE license_id = 'lapsing'))
  or die 'they live for ever';
is($node->safe_psql(
		'postgres',
		q(SELECT lapsed FROM keyright.pools WHERE license_id = 'lapsing')),
	20, 'all have lapsed and nobody emptied the seats');
is($node->safe_psql(
		'postgres', q(
		SELECT count(*) FILTER (WHERE status = 'granted')
		FROM generate_series(1, 20) i,
			keyright_checkout('lapsing', 'new ' || i, '1 h'))),
	20, 'all are granted again at once');
is(checkout($node, 'lapsing', 'one more')->{status},
	'no_seats_available', 'and no more than those');

# --- another ttl under live leases ---

add_license($node, 'changed', 2, ttl => '10 min', skew => 0);
my $first = checkout($node, 'changed', 'first');
my $second = checkout($node, 'changed', 'second');
$node->safe_psql('postgres',
	q(UPDATE keyright.license SET ttl = '20 min'
	  WHERE license_id = 'changed'));
my $beaten = heartbeat($node, 'changed', $first->{seat_id});

sub end_of
{
	my ($holder) = @_;
	return $node->safe_psql(
		'postgres', "SELECT extract(epoch FROM expires_at)::bigint
			FROM keyright.seat WHERE holder = '$holder'");
}

sub epoch
{
	my ($time) = @_;
	return $node->safe_psql('postgres',
		"SELECT extract(epoch FROM '$time'::timestamptz)::bigint");
}

is(end_of('second'), epoch($second->{expires_at}),
	'who has not beaten keeps the end that he was promised');
cmp_ok(end_of('first') - epoch($first->{expires_at}),
	'>=', 600, 'who beats gets the new ttl');
$node->safe_psql('postgres',
	q(UPDATE keyright.license SET ttl = '1 s' WHERE license_id = 'changed'));
is(end_of('first'), epoch($beaten->{expires_at}),
	'a shorter ttl takes nothing from who holds a seat');
is(heartbeat($node, 'changed', $first->{seat_id})->{expires_at},
	$beaten->{expires_at}, 'nor does his next beat');
is(checkout($node, 'changed', 'third')->{status},
	'no_seats_available', 'their seats are not free');

# --- the seat of a client that was killed ---

# Waits in the server, one call a transaction, until a seat is granted; when
# it was granted is the row's checked_out_at.
sub wait_for_seat
{
	my ($license) = @_;
	$node->safe_psql(
		'postgres',
		"DO \$\$ DECLARE answer text; BEGIN LOOP
			SELECT status INTO answer FROM keyright_checkout('$license', 'next');
			COMMIT;
			EXIT WHEN answer = 'granted';
			PERFORM pg_sleep(0.02);
		END LOOP; END \$\$");
	return;
}

sub killed_holder
{
	my ($license) = @_;
	my $client = start_tool(
		$node, 'hold', '-w', 60,
		"SELECT status FROM keyright_checkout('$license', 'killed')",
		'SELECT pg_sleep(1.1)',
		"SELECT status FROM keyright_heartbeat('$license', (SELECT seat_id
			FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
			WHERE l.license_id = '$license'))");
	wait_until(
		'a beat',
		sub {
			$client->{run}->pump_nb;
			return $client->{output} =~ /^3\t\d+\tok\trenewed$/m;
		});
	$client->{run}->signal('KILL');
	eval { $client->{run}->finish };
	my ($beat, $end) = split /\|/, $node->safe_psql(
		'postgres', "SELECT extract(epoch FROM issued_at),
				extract(epoch FROM expires_at)
			FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
			WHERE l.license_id = '$license'");
	return ($beat, $end);
}

sub check_return
{
	my ($ttl, $killed) = @_;
	my ($license, $skew, $name, $beat, $end) =
	  @$killed{qw(license skew name beat end)};
	wait_for_seat($license);
	my $granted = $node->safe_psql(
		'postgres', "SELECT extract(epoch FROM checked_out_at)
			FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
			WHERE l.license_id = '$license'");
	cmp_ok($end - $beat, '>=', $ttl, "$name: the beat gave a ttl");
	cmp_ok($end - $beat, '<', $ttl + 1, "$name: rounded up");
	cmp_ok($granted, '>', $end + $skew,
		"$name: the seat was free not before");
	cmp_ok($granted, '<', $end + $skew + 1.5, "$name: nor much later");
	return;
}

my @ttls = $ENV{KEYRIGHT_LONG_TESTS} ? (5, 30) : (5);
my $number = 0;
for my $interval ('1 s', '1 h')
{
	$node->append_conf('postgresql.conf',
		"keyright.reap_interval = '$interval'");
	$node->reload;
	for my $ttl (@ttls)
	{
		my @killed = map { {
			license => 'killed ' . ++$number,
			skew => $_,
			name => "ttl $ttl s, skew $_ s, a sweep every $interval"
		} } (0, 2);
		for my $k (@killed)
		{
			add_license($node, $k->{license}, 1, ttl => "$ttl s",
				skew => "$k->{skew} s", reap_grace => ($k->{skew} + 1) . ' s');
			@$k{qw(beat end)} = killed_holder($k->{license});
		}
		check_return($ttl, $_) for @killed;
	}
}

is(crashes($node), 0, 'no crash');
done_testing();
