# One free seat and a crowd that wants it: exactly one gets it.
#
# Connections that are all open and ready fire their check-out at the same
# instant, 20, 100 and 500 of them: in autocommit, in transactions whose
# snapshot is older than the race, and through PgBouncer in transaction pooling
# mode.  And a client that repeats its request, many times at once, because no
# answer came: it gets one seat.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('race',
	conf => "max_connections = 600\nkeyright.lock_timeout = '60 s'");

# Three seats, two of which are taken.
add_license($node, 'last', 3, ttl => '1 h');
checkout($node, 'last', 'staff') for 1 .. 2;

my $empty_it = q(SELECT count(*) FROM keyright.holders
	WHERE license_id = 'last' AND holder = 'crowd'
	AND (SELECT count(*) FROM keyright_revoke_holder('last', 'crowd')) = 1);
my $check_out =
  q(SELECT status, seat_id, slot FROM keyright_checkout('last', 'crowd'));

# The rows of a volley that answer its query number $query, by round.
sub by_round
{
	my ($output, $query) = @_;
	my %rounds;
	for my $line (split /\n/, $output)
	{
		my ($number, $round, $connection, $nr, $ms, $state, @values) =
		  split /\t/, $line;
		push @{ $rounds{"$number callers, round $round"} },
		  { state => $state, values => \@values, ms => $ms }
		  if $nr == $query;
	}
	return %rounds;
}

sub volley
{
	my ($where, @arguments) = @_;
	my $tool = start_tool($where, 'volley', @arguments);
	$tool->{run}->finish;
	is($tool->{run}->full_result(0), 0, 'the volley was fired')
	  or diag $tool->{errors};
	return $tool->{output};
}

# Exactly one was granted in each round, all others were refused, in so many
# words: no error is allowed but those in $errors.
sub race
{
	my ($name, $where, $numbers, $rounds, $query, $errors, @arguments) = @_;
	my %rounds = by_round(
		volley($where, '-n', $numbers, '-r', $rounds, '-e', $empty_it,
			@arguments),
		$query);
	my @wrong;
	my $callers = 0;
	for my $round (sort keys %rounds)
	{
		my %seen;
		$seen{ $_->{state} eq 'ok' ? $_->{values}[0] : $_->{state} }++
		  for @{ $rounds{$round} };
		$callers += @{ $rounds{$round} };
		my $granted = delete $seen{granted} // 0;
		delete $seen{no_seats_available};
		my @other = grep { !/$errors/ } keys %seen;
		push @wrong, "$round: $granted granted, others: @other"
		  if $granted != 1 || @other;
	}
	is("@wrong", '', "$name: one grant a round, $callers callers in "
		  . keys(%rounds) . ' rounds');
	cmp_ok($callers, '>', 0, "$name: there was a race");
	is($node->safe_psql(
			'postgres',
			q(SELECT live FROM keyright.pools WHERE license_id = 'last')),
		3, "$name: three live leases");
	return;
}

race('autocommit', $node, '20,100,500', 4, 0, 'none', '-q', $check_out);

for my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	race(
		"transactions, $level", $node, '20,100', 4, 0, 'none',
		'-s', "BEGIN ISOLATION LEVEL $level",
		'-s', 'SELECT now()',
		'-q', $check_out,
		'-q', 'COMMIT');
}

# --- through a pooler ---

my $user = getpwuid $<;
my $pooler_port = PostgreSQL::Test::Cluster::get_free_port();
my $pooler_dir = PostgreSQL::Test::Utils::tempdir_short();

sub start_pooler
{
	PostgreSQL::Test::Utils::append_to_file(
		"$pooler_dir/pgbouncer.ini", qq(
[databases]
postgres = host=@{[$node->host]} port=@{[$node->port]} dbname=postgres user=$user
[pgbouncer]
listen_addr =
unix_socket_dir = $pooler_dir
listen_port = $pooler_port
auth_type = any
logfile = $pooler_dir/log
pidfile = $pooler_dir/pid
pool_mode = transaction
max_client_conn = 600
default_pool_size = 40
));
	# Debian has it in a folder that is not in everybody's PATH.
	local $ENV{PATH} = "$ENV{PATH}:/usr/sbin";
	# Not into a pipe, which nobody would empty.
	my $run = IPC::Run::start(
		[ 'pgbouncer', '-q', "$pooler_dir/pgbouncer.ini" ],
		'<', '/dev/null', '>&', '/dev/null');
	wait_until('the pooler listens',
		sub { -S "$pooler_dir/.s.PGSQL.$pooler_port" });
	return $run;
}

my $pooler = start_pooler();

END
{
	my $status = $?;
	$pooler->kill_kill if $pooler;
	$? = $status;
}

my $through =
  "host=$pooler_dir port=$pooler_port dbname=postgres user=$user";

race('pooler, autocommit', $through, '20,100,500', 3, 0, 'none',
	'-q', $check_out);
race('pooler, transactions', $through, '20,100,500', 3, 1, 'none',
	'-q', 'BEGIN', '-q', $check_out, '-q', 'COMMIT');
$pooler->kill_kill;
undef $pooler;

# --- the same request, ten times at once ---

sub requests
{
	my ($license) = @_;
	my %rounds = by_round(
		volley(
			$node, '-n', 10, '-r', 5, '-q',
			"SELECT status, seat_id, slot FROM keyright_checkout("
			  . "'$license', 'impatient', NULL, 'a secret, round %r')"),
		0);
	return map { $rounds{$_} } sort keys %rounds;
}

sub distinct
{
	my ($column, $answers) = @_;
	my %seen = map { ($_->{values}[$column] // $_->{state}) => 1 } @$answers;
	return join ' ', sort keys %seen;
}

add_license($node, 'request', 5, ttl => '1 h');
for my $answers (requests('request'))
{
	is(distinct(0, $answers), 'granted', 'ten requests at once: all granted');
	unlike(distinct(1, $answers), qr/ /, 'all of them the same seat');
}
is($node->safe_psql(
		'postgres',
		q(SELECT live FROM keyright.pools WHERE license_id = 'request')),
	5, 'one lease a request');

# Now the pool is full, and each of the five comes again.
my $before = $node->safe_psql('postgres',
	q(SELECT seat_id FROM keyright.seat WHERE request_id LIKE 'a secret%'
	  ORDER BY seat_id));
for my $answers (requests('request'))
{
	is(distinct(0, $answers), 'granted', 'at a full pool: granted again');
	unlike(distinct(1, $answers), qr/ /, 'at a full pool: the same seat');
}
is($node->safe_psql(
		'postgres',
		q(SELECT seat_id FROM keyright.seat WHERE request_id LIKE 'a secret%'
		  ORDER BY seat_id)),
	$before, 'at a full pool: the seats of the first time');
is(checkout($node, 'request', 'another')->{status},
	'no_seats_available', 'the pool was full indeed');

# A single seat, which one of ten different requests may have.
add_license($node, 'single', 1, ttl => '1 h');
my %round = by_round(
	volley($node, '-n', 10, '-q',
		"SELECT status FROM keyright_checkout('single', 'x', NULL, 'r%c')"),
	0);
my @granted =
  grep { ($_->{values}[0] // '') eq 'granted' } map { @$_ } values %round;
is(scalar @granted, 1, 'ten requests of ten clients: one seat, one grant');

is(crashes($node), 0, 'no crash');
done_testing();
