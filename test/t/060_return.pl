# Promise: a server that restarts, crashes, or is replaced by its standby costs
# nobody a seat whose lease lived through it, and its return is no stampede:
# within a tenth of a second (at a ttl of 8 s) there are at most three times as
# many beats as there are on the average.
#
# Every keeper has to connect again, which takes a small machine up to 40 ms,
# and a busy one longer.  So that it can do that within a third of the ttl, this
# is 48 s and all is six times as slow: a slot is 600 ms.  (In shorter ones there
# would be three beats on the average, and nine now and then by chance alone.)
#
# How: 200 keepers in one process, which know a primary and its streaming
# standby.  Beats are counted where they arrive: a beat that renews writes its
# time (issued_at, microseconds by the server's clock) into its seat's row.
# The rows are looked at more often than a keeper beats, so none is missed.
# What is counted is one full period, a third of the ttl, from the first beat
# after the return on: peak and mean are those of its slots.  Meanwhile another
# session samples that no license is oversold.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keepers;
use Keyright;
use List::Util qw(max min sum);
use Test::More;
use Time::HiRes qw(sleep time);

use constant { KEEPERS => 200, TTL => 48 };
use constant SLOT => TTL / 80;

my $primary = new_node('primary', init => { allows_streaming => 1 });
my $standby = new_standby($primary);
add_license(
	$primary, 'acme', KEEPERS,
	ttl => TTL . ' s',
	skew => '1 s',
	reap_grace => '3 s');

my $conninfo = sprintf 'host=%s,%s port=%d,%d dbname=postgres'
  . ' target_session_attrs=read-write',
  $primary->host, $standby->host, $primary->port, $standby->port;
my $keepers =
  start_keepers($conninfo, 'acme', write_jwks($primary), KEEPERS);

# Asks until there is an answer: a server to which everybody returns may be too
# busy for us.
sub ask
{
	my ($node, $sql) = @_;
	my $answer;
	wait_until($node->name . ' answers',
		sub { $node->psql('postgres', $sql, stdout => \$answer) == 0 })
	  or die;
	return $answer;
}

sub all_beat_since
{
	my ($node, $when) = @_;
	return wait_until(
		'all keepers beat',
		sub {
			sleep 0.2;
			return ask($node, "SELECT count(*) FROM keyright.seat
				WHERE issued_at > '$when'") == KEEPERS;
		});
}

# The times of all beats in one period after the first one since $returned, in
# seconds after that.
sub beats_of_a_period
{
	my ($node, $returned) = @_;
	my %seen;
	my $first = time();
	my $over = 0;
	until ($over)
	{
		sleep TTL / 18;
		$over = time() > $first + TTL / 3;
		for my $line (split /\n/,
			ask($node, "SELECT slot, extract(epoch FROM issued_at)
				FROM keyright.seat WHERE issued_at > '$returned'"))
		{
			$seen{$line} = (split /\|/, $line)[1];
		}
		$first = min(values %seen) // $first;
	}
	return grep { $_ < TTL / 3 } map { $_ - $first } values %seen;
}

# What happens, and the server that is there afterwards.
sub outage
{
	my ($name, $node, $happens) = @_;
	my $told = scalar(transitions($keepers, qr/./));
	my $began = time();
	$happens->();
	my $returned = ask($node, 'SELECT clock_timestamp()');
	my $lasted = time() - $began;

	# Whose lease is nearly over by now need not have come through.
	my %doomed = map { $_ => 1 } split /\n/, ask(
		$node, "SELECT holder FROM keyright.seat
			WHERE issued_at < '$returned'
			AND expires_at < timestamptz '$returned' + interval '1 s'");
	my $sampler = start_sampler($node);

	my @beats = beats_of_a_period($node, $returned);
	# The last one would be a part.
	my @slots = (0) x int(TTL / 3 / SLOT);
	$slots[ $_ / SLOT ]++ for grep { $_ / SLOT < @slots } @beats;
	my ($peak, $mean) = (max(@slots), sum(@slots) / @slots);
	note sprintf '%s: away for %.1f s, then %d beats in %d s: %s', $name,
	  $lasted, scalar(@beats), TTL / 3, "@slots";
	cmp_ok(scalar(@beats), '>=', KEEPERS / 2, "$name: the keepers return");
	cmp_ok($peak, '<=', 3 * $mean,
		sprintf '%s: %d beats in %d ms at most, %.1f times the mean of %.1f',
		$name, $peak, 1000 * SLOT, $peak / $mean, $mean);

	# Everybody is back and beats again.
	ok(all_beat_since($node, $returned), "$name: all beat again");
	my @all = transitions($keepers, qr/./);
	my @bad = grep {
		$_->{state} !~ /^(?:held|retrying)$/
		  && !$doomed{"keeper $_->{number}"}
	} @all[ $told .. $#all ];
	is_deeply(\@bad, [],
		"$name: nobody lost a seat that lived through it");
	cmp_ok(scalar(keys %doomed), '<', KEEPERS / 10,
		"$name: it was short enough to tell");
	my $noticed =
	  grep { $_->{state} eq 'retrying' } @all[ $told .. $#all ];
	cmp_ok($noticed, '>', 0, "$name: $noticed beats failed meanwhile");

	my $seen = stop_sampler($sampler);
	is($seen->{violations}, 0,
		"$name: never too many, in $seen->{samples} samples");
}

# Somebody has to notice each outage.  It is a second longer than it need be, in
# which some 12 beats are due; but not soon after the keepers have begun.
ok(all_beat_since($primary, ask($primary, 'SELECT clock_timestamp()')),
	'the keepers keep their seats');
sleep TTL / 9;
outage('restart', $primary,
	sub { $primary->stop('fast'); sleep 1; $primary->start; });
outage('crash', $primary,
	sub { $primary->stop('immediate'); sleep 1; $primary->start; });
$primary->wait_for_catchup($standby);
outage('failover', $standby,
	sub { $primary->stop('fast'); sleep 1; $standby->promote; });

is(stop_keepers($keepers), 0, 'all seats are given back');
is(row($standby, 'SELECT live FROM keyright.pools')->{live},
	0, 'so none is held');
my %cost = $keepers->{output} =~ /^(before|held|after) (threads.*)$/mg;
note "$_: $cost{$_}" for sort keys %cost;
like($cost{held}, qr/^threads 201 /, 'a seat is a thread');
is( ($cost{after} =~ /(threads \d+ descriptors \d+)/)[0],
	($cost{before} =~ /(threads \d+ descriptors \d+)/)[0],
	'no thread and no descriptor is left');
is(crashes($_), 0, 'no crash of the ' . $_->name)
  for $primary, $standby;
done_testing();
