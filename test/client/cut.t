# The promise: a network that fails for a while costs nobody a seat, and one
# that fails for longer costs one seat and not two.
#
# How: a proxy stands between real clients and the real server.  It cuts the
# line for less and for more than a lease; it loses exactly one and two
# heartbeats; it holds answers back; a process is stopped and forked.  The
# server is sampled all the while: at no time it counts two seats of one
# client.  All of it happens at once, each on a license of its own.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Cli;
use Holder;
use Proxy;
use Test::More;
use Time::HiRes qw(sleep);

# The license that is cut for long is the one whose lease is shortest.
my ($ttl, $skew) = (9, 1);
my %length = (long => 4, stopped => 4, forked => 4, two => 18, late => 8);
my $live = "SELECT live FROM keyright.pools WHERE license_id =";

rename file_of((keyright('jwks'))[1]), $jwks or die;

my (%proxy, %holder);
my $server = "$ENV{PGHOST}/.s.PGSQL.$ENV{PGPORT}";
for my $name (qw(short long one two late stopped forked))
{
	# A second seat is free: who would take one by mistake gets it.
	add_license($name, 2, $length{$name} // $ttl);
	$proxy{$name} = Proxy->new($server);
	$holder{$name} = Holder->new($name,
		"host=127.0.0.1 port=" . $proxy{$name}->port
		  . " user=$ENV{PGUSER} dbname=$ENV{PGDATABASE}");
}

# The most that the server ever counted for each license.
sql('CREATE TABLE seen (license_id text, live int, at timestamptz)');
my $sampler = start({}, 'psql', '-XAtq', '-c', q(
	DO $$ BEGIN LOOP
		INSERT INTO seen SELECT license_id, live, clock_timestamp()
		FROM keyright.pools;
		COMMIT;
		PERFORM pg_sleep(0.02);
	END LOOP; END $$));

# A license's own story: its part of what follows, as a list of [when, what];
# "when" is in seconds since all hold their seats.
my %seat;
for my $name (sort keys %holder)
{
	ok($holder{$name}->await('held'), "$name: a seat is held");
	$seat{$name} = $holder{$name}->seat_id;
}
my $start = monotonic();
my @plan;

sub plan_at { push @plan, [@_]; return; }

########################################################################
# Cut for 0.8 ttl, right after a beat: nothing is lost.

my %cut;

sub wait_for_reply
{
	my ($name) = @_;
	my $proxy = $proxy{$name};
	my $before = $proxy->log('reply', 'heartbeat');
	eventually("$name: a beat is answered",
		sub { $proxy->log('reply', 'heartbeat') > $before });
	return;
}

plan_at(0, sub {
	wait_for_reply('short');
	$cut{short} = monotonic();
	$proxy{short}->does('silence');
	plan_at($cut{short} - $start + 0.8 * $ttl, sub { $proxy{short}->does('pass') });
});

########################################################################
# Cut for ttl + skew + 5 s: lost at the signed end, then one fresh seat.

plan_at(0, sub {
	$cut{long} = monotonic();
	$proxy{long}->does('silence');
	$cut{long_end} = $holder{long}->may_run_until;
});
plan_at($length{long} + $skew + 5, sub { $proxy{long}->does('pass') });

########################################################################
# One and two beats are lost, exactly

plan_at(0, sub { $proxy{one}->does('drop_requests', 1) });
plan_at(0, sub { $proxy{two}->does('drop_replies', 2) });

########################################################################
# Answers are 2 s late: what is left counts from the question, not from them

plan_at(0, sub { $proxy{late}->does('delay', 2) });

########################################################################
# Stopped for two leases, and cut off from then on

plan_at(0, sub { kill 'STOP', $holder{stopped}->pid });
plan_at(2 * $length{stopped}, sub {
	$proxy{stopped}->does('silence');
	$holder{stopped}->send_command('may');
	$cut{stopped} = monotonic();
	$cut{asked} = $proxy{stopped}->log('ask');
	kill 'CONT', $holder{stopped}->pid;
	$holder{stopped}->await('lost');
	$proxy{stopped}->does('pass');
});

########################################################################
# A child that outlives its parent

plan_at(0, sub {
	# The parent may beat before or after it forks: the end known at the fork
	# is one of these two, or both.
	$cut{forked_from} = $holder{forked}->may_run_until;
	$holder{forked}->send_command('fork');
	eventually('a child of the application runs',
		sub { $holder{forked}->lines('child') > 0 });
	$cut{forked_end} = $holder{forked}->may_run_until;
	$holder{forked}->forget;
	$cut{forked} = monotonic();
});

while (@plan)
{
	@plan = sort { $a->[0] <=> $b->[0] } @plan;
	my ($when, $what) = @{ shift @plan };
	my $left = $start + $when - monotonic();
	if ($left > 0.05)
	{
		unshift @plan, [$when, $what];
		sleep $left > 0.2 ? 0.2 : $left;
		next;
	}
	$what->();
}

########################################################################
# What came of it

# short
ok($holder{short}->await('held', $cut{short}), 'cut for 0.8 ttl: held again');
is($holder{short}->story, 'waiting held retrying held',
	'... it was retrying in between, and never lost');
is($holder{short}->seat_id, $seat{short}, '... it is the same seat');

# long
my $lost = $holder{long}->await('lost', $cut{long});
ok($lost && $lost->[1] >= $cut{long_end} - 0.3,
	'cut for longer than the lease: lost, not before its signed end');
ok($lost && $lost->[1] <= $cut{long_end} + 3, '... nor long after it');
ok($holder{long}->await('regained', $cut{long}),
	'... a seat is had when the network is back');
is($holder{long}->story, 'waiting held retrying lost regained',
	'... once, and all of it was told');
isnt($holder{long}->seat_id, $seat{long}, '... it is a fresh one');
is(scalar($proxy{long}->log('reply', 'checkout')), 2,
	'... which was asked for once');

# one, two
for my $case ([ one => 1 ], [ two => 2 ])
{
	my ($name, $count) = @$case;
	my $proxy = $proxy{$name};
	my $dropped = $holder{$name}->await('retrying');
	ok($dropped, "$count lost: it is noticed");
	my $held = $holder{$name}->await('held', $dropped->[1]);
	ok($held, '... and mended');
	is($holder{$name}->story, 'waiting held retrying held',
		'... the seat survives');
	is($holder{$name}->seat_id, $seat{$name}, '... it is the same one');
	# What got no answer takes its connection with it.
	is(scalar($proxy->log('connect')), 1 + $count,
		"... and exactly $count had no answer");
	# From each failure to the next try: no longer than between heartbeats.
	my ($next) = grep { $_->[0] > $dropped->[1] } $proxy->log('connect');
	my $pause = $next->[0] - $dropped->[1];
	ok($pause < (($length{$name} // $ttl) + 1) / 3 + 1,
		sprintf '... soon: tried again after %.1f s', $pause);
}
# late
my $before = $proxy{late}->log('reply', 'heartbeat');
eventually('late answers: another beat is on its way',
	sub { $proxy{late}->log('reply', 'heartbeat') > $before });
my ($sent) = map { $_->[0] } ($proxy{late}->log('ask', 'heartbeat'))[-1];
sleep 2.3 - (monotonic() - $sent) if monotonic() - $sent < 2.3;
my $until = $holder{late}->may_run_until;
# A lease ends on a whole second: up to one more than its length.
ok($until <= $sent + $length{late} + 1.1 && $until > $sent,
	'... what is left counts from when it was sent, not from its answer');
is($holder{late}->story, 'waiting held', '... and nobody is worried');

# stopped
my ($cont) = $holder{stopped}->lines('cont');
my ($first) = slurp("$holder{stopped}{name}.out") =~ /^cont (\d+)$/m;
is($first, 0, 'stopped for two leases: its first answer is "may not"');
my ($may) = $holder{stopped}->lines('may', $cut{stopped});
is($may && $may->[2], 0, '... and the next one');
is($may && $may->[3], 'lost', '... the state says so too');
ok($holder{stopped}->await('regained', $cut{stopped}),
	'... it has a seat again when the network is back');
like($holder{stopped}->story, qr/^waiting held lost regained$/,
	'... and all of it was told');

# forked
eventually('forked: the child may not run for ever', sub {
	my @lines = $holder{forked}->lines('child');
	$lines[-1][2] == 0;
});
my @child = $holder{forked}->lines('child');
ok( $child[-1][1] <= $cut{forked_end} + 3 &&
	  $child[-1][1] >= $cut{forked_from} - 0.3,
	'... but to the end that its parent knew of');
is(scalar(grep { $_->[0] > $cut{forked} + 0.1 } $proxy{forked}->log('ask')),
	0, '... it asks nothing');
eventually('... and the seat comes back',
	sub { sql("$live 'forked'") == 0 });

########################################################################
# The end

for my $name (sort keys %holder)
{
	next if $name eq 'forked';
	is($holder{$name}->quit, 'ok', "$name: the seat is given back");
	is(sql("$live '$name'"), 0, '... and no other is left');
}
kill 'TERM', $sampler->{pid};
ends($sampler);
is(sql('SELECT coalesce(string_agg(DISTINCT license_id, $$ $$), $$$$)
		FROM seen WHERE live > 1'),
	'', 'at no time the server counted two seats of one client');
cmp_ok(sql('SELECT count(*) FROM seen'), '>', 100, '... it was looked at often');

done_testing();
