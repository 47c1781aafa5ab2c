# Promise: the reaper pins no database.  Whoever drops, renames, copies or
# moves one waits for a visit at most, whether the extension is in it or not.
#
# How: with a sweep every 10 ms each command is given many times.  PostgreSQL
# itself waits five seconds for others to leave a database, then gives up.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Test::More;
use Time::HiRes qw(time);

my $rounds = 50;
my $limit = 5;

my $node = new_node(
	'databases',
	conf => "keyright.reap_interval = '10ms'\nautovacuum = off");
mkdir $node->basedir . '/space' or die "no folder for a tablespace: $!";
$node->safe_psql('postgres',
	"CREATE TABLESPACE space LOCATION '" . $node->basedir . "/space'");
$node->safe_psql('postgres', 'CREATE DATABASE original');
$node->safe_psql('original', 'CREATE EXTENSION keyright');
add_lapsed($node, 'original', 'acme', 10);
wait_emptied($node, 'original', 'acme', 'the reaper works');

my $session = $node->background_psql('postgres', on_error_stop => 0);
my %slowest;
my %failed;

# One command, timed.
sub command
{
	my ($kind, $sql) = @_;
	my $start = time();
	$session->query($sql);
	my $took = time() - $start;
	$slowest{$kind} = $took if $took > ($slowest{$kind} // 0);
	if ($session->{stderr} ne '')
	{
		$failed{$kind}++;
		diag("$sql: $session->{stderr}");
		$session->{stderr} = '';
	}
	return;
}

my $log = log_size($node);
my $name = 'original';
my $began = time();
my $done = 0;
for my $round (1 .. $rounds)
{
	# a machine that is too slow for all of them
	last if $round > $rounds / 2 && time() - $began > 90;
	$done++;
	my $other = $name eq 'original' ? 'renamed' : 'original';
	my $space = $round % 2 ? 'space' : 'pg_default';
	command('CREATE', "CREATE DATABASE copy TEMPLATE $name");
	command('RENAME', "ALTER DATABASE $name RENAME TO $other");
	$name = $other;
	command('SET TABLESPACE', "ALTER DATABASE $name SET TABLESPACE $space");
	command('DROP', 'DROP DATABASE copy');
	next if $round % 5;
	command('CREATE without the extension', 'CREATE DATABASE other');
	command('DROP without the extension', 'DROP DATABASE other');
}
note "$done rounds";
for my $kind (sort keys %slowest)
{
	is($failed{$kind} // 0, 0, "$kind never failed");
	cmp_ok($slowest{$kind}, '<', $limit,
		sprintf('%s took %.1f s at most', $kind, $slowest{$kind}));
}

# The launcher saw a database and a visit of it started when it was gone.
my $gone = qr/FATAL:  database (?:"\w+"|\d+) does not exist/;
my @complaints = log_lines($node, qr/ERROR|FATAL|PANIC/, $log);
is_deeply([ grep { !/$gone/ } @complaints ],
	[], 'nothing in the log but visits that came too late');
note scalar(@complaints) . ' visits came too late';

add_lapsed($node, $name, 'after', 10);
wait_emptied($node, $name, 'after', 'the reaper still works');

# DROP DATABASE waits for every process of the server to answer, those that
# sleep and those that were never near that database.
$node->safe_psql('postgres', "ALTER SYSTEM SET keyright.reap_interval = '1 h'");
$node->reload;
%slowest = ();
for (1 .. 3)
{
	command('CREATE', 'CREATE DATABASE other');
	# the visit of a new database comes and goes
	$node->safe_psql('postgres', 'SELECT pg_sleep(1.5)');
	command('DROP', 'DROP DATABASE other');
}
is($failed{DROP} // 0, 0, 'DROP did not fail while the reaper sleeps');
cmp_ok($slowest{DROP}, '<', $limit,
	sprintf('nor did it take long: %.1f s', $slowest{DROP}));

# A copy whose number and files are those of a database that is gone knows
# nothing of the leases there.
$node->safe_psql($name, q(
	INSERT INTO keyright.license (license_id, seat_count)
	VALUES ('hinted', 1)));
for my $copy ('first', 'second')
{
	command('CREATE', "CREATE DATABASE again TEMPLATE $name OID 50000");
	is( $node->safe_psql('again', q(
			SELECT status FROM keyright_checkout('hinted', 'me');
			SELECT status FROM keyright_checkout('hinted', 'you'))),
		"granted
no_seats_available",
		"the $copy of two databases with one number has its seat");
	command('DROP', 'DROP DATABASE again');
}
$session->quit;
is(crashes($node), 0, 'no crash');
$node->stop;
done_testing();
