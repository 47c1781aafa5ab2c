# The promise: a machine all of whose cores are busy for two leases costs
# nobody a seat; heartbeats come before the signed end of what they renew; and
# if the kernel lets a client starve after all, what it says goes by the clocks.
#
# How: processes that do nothing but count, two for each core, run beside
# clients and their server for two leases.  Meanwhile the clients are asked
# again and again whether they may run, the server is sampled for every renewal
# there was, and a process like ours tells how long the kernel lets one wait
# that wants to run.
#
# This file runs alone (see test/run): others would wait for the cores, too.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Cli;
use Holder;
use Test::More;
use Time::HiRes qw(CLOCK_REALTIME clock_gettime sleep);

my $ttl = 5;
my $busy = 2 * $ttl;
# A lease ends on a whole second; beats are due at a third of it.  Whoever
# waited longer than this for a core may have lost his seat by that.
my $starved = $ttl / 3;
my $cores = qx(nproc) || 1;

rename file_of((keyright('jwks'))[1]), $jwks or die;
add_license('busy', 3, $ttl);
my $dsn = "host=$ENV{PGHOST} port=$ENV{PGPORT} user=$ENV{PGUSER}"
  . " dbname=$ENV{PGDATABASE}";
my %holder = map {
	$_ => Holder->new('busy', $dsn, name => $_,
		program => /plain/ ? $ENV{HOLDER_PLAIN} : $ENV{HOLDER})
} qw(plain1 plain2 checked);
ok($holder{$_}->await('held'), "$_: a seat is held") for sort keys %holder;

# Every renewal, as the server counts it.
sql('CREATE TABLE seen (holder text, beat timestamptz, ends timestamptz,
	PRIMARY KEY (holder, beat))');
my $sampler = start({}, 'psql', '-XAtq', '-c', q(
	DO $$ BEGIN LOOP
		INSERT INTO seen SELECT holder, last_beat, expires_at
		FROM keyright.holders ON CONFLICT DO NOTHING;
		COMMIT;
		PERFORM pg_sleep(0.1);
	END LOOP; END $$));

########################################################################
# All cores are busy

# They end by themselves if we are not there to end them.
my @hogs = map {
	start({}, $^X, '-e', 'alarm shift; 1 while 1', $busy + 1)
} 1 .. 2 * $cores;
my $wall = clock_gettime(CLOCK_REALTIME) - monotonic();
my $start = monotonic();
my $last = $start;
my $waited = 0;
while (monotonic() < $start + $busy)
{
	$_->send_command('may') for values %holder;
	$_->send_command('seat') for values %holder;
	sleep 0.1;
	my $now = monotonic();
	$waited = $now - $last - 0.1 if $now - $last - 0.1 > $waited;
	$last = $now;
}
is(scalar(grep { !has_ended($_) } @hogs), 2 * $cores,
	sprintf 'all %d cores were busy for %d s', $cores, $busy);
kill 'KILL', map { $_->{pid} } @hogs;
ends($_) for @hogs;
my $end = monotonic();

########################################################################
# Now they are not: the loops go on

for my $name (sort keys %holder)
{
	my $count = "SELECT count(*) FROM seen WHERE holder = '$name'
		AND beat > to_timestamp($wall + $end)";
	eventually("$name: it goes on", sub { sql($count) > 0 });
}
kill 'TERM', $sampler->{pid};
ends($sampler);
diag(sprintf 'a process had to wait for a core for up to %.2f s', $waited)
  if $waited > 0.5;

for my $name (sort keys %holder)
{
	my $holder = $holder{$name};

	# The seat
	my @lost = $holder->lines('event');
	@lost = grep { $_->[2] eq 'lost' } @lost;
	if ($waited < $starved)
	{
		is($holder->story =~ s/ retrying held//gr, 'waiting held',
			"$name: the seat is not lost")
		  or diag($holder->story, $holder->errors);
	}
	my $late = sql("SELECT count(*) FROM (SELECT beat,
		lag(ends) OVER (ORDER BY beat) AS before
		FROM seen WHERE holder = '$name') x WHERE beat >= before");
	cmp_ok($late, '<=', scalar @lost,
		'... no heartbeat came after the end of what it renewed');
	my $beats = sql("SELECT count(*) FROM seen WHERE holder = '$name'
		AND beat BETWEEN to_timestamp($wall + $start)
		AND to_timestamp($wall + $end)");
	cmp_ok($beats, '>=', 3, '... there were heartbeats all the while')
	  if $waited < $starved;

	# What it said.  Each "may" is followed by the seat that it spoke of, or
	# by the next one.
	my @said = map { [split / /] }
	  grep { /^(?:may|seat) / } slurp("$holder->{name}.out") =~ /^(.*)\n/mg;
	my ($wrong, $beyond, $doubt) = ('', '', 0);
	for my $i (0 .. $#said - 1)
	{
		my ($word, $at, $left, $state) = @{ $said[$i] };
		next unless $word eq 'may' && $said[ $i + 1 ][0] eq 'seat';
		my $signed = $said[ $i + 1 ][4];
		my $says_so = 0 + ($state =~ /^(?:held|retrying|regained)$/);
		# The two are asked one after the other: once they may differ.
		$doubt = ($left > 0 ? 1 : 0) == $says_so ? 0 : $doubt + 1;
		$wrong .= "@{$said[$i]}\n" if $doubt > 1;
		$beyond .= "@{$said[$i]} beyond $signed\n"
		  if $left > 0 && $wall + $at + $left / 1000 > $signed + 0.2;
	}
	cmp_ok(scalar @said, '>', 40, '... it was asked often');
	is($wrong, '', '... it said that it holds one as long as it may run');
	is($beyond, '', '... and never that it may beyond what was signed');
	is($_->[5], 0, '... and that it is lost when it was over') for @lost;
	is($holder->quit, 'ok', '... the seat is given back');
}

done_testing();
