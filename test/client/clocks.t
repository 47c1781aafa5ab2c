# The promise: no clock, wrong or set while it runs, by an hour or a day, on
# the client or on the server, makes a lease longer, and none takes a seat from
# who is online.
#
# How: libfaketime moves the wall clock of real processes while they run; the
# clock that counts from boot is left alone.  A proxy cuts the clients off, to
# see when their leases end by then.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Cli;
use Holder;
use Proxy;
use Server;
use Test::More;
use Time::HiRes qw(sleep);

my ($library) = glob '/usr/lib/*/faketime/libfaketimeMT.so.1';
plan skip_all => 'no libfaketime' unless $library;
my $ttl = 5;
my ($hour, $day) = (3600, 86400);

# What a process is to be started with, to be set by a file of seconds.
sub clock_of
{
	my ($file) = @_;
	return (
		LD_PRELOAD => $library,
		FAKETIME_TIMESTAMP_FILE => $file,
		FAKETIME_NO_CACHE => 1,
		FAKETIME_DONT_FAKE_MONOTONIC => 1,
		FAKETIME_DONT_RESET => 1);
}

# Replaced as a whole: it is read at any moment.
sub set_clock
{
	my ($file, $offset) = @_;
	rename file_of(sprintf "%+d\n", $offset), $file or die;
	chmod 0644, $file;
	return;
}

chmod 0755, $dir;
rename file_of((keyright('jwks'))[1]), $jwks or die;

########################################################################
# The client's clock

my @clients;
my $proxy = Proxy->new("$ENV{PGHOST}/.s.PGSQL.$ENV{PGPORT}");
my $dsn = 'host=127.0.0.1 port=' . $proxy->port
  . " user=$ENV{PGUSER} dbname=$ENV{PGDATABASE}";

# Wrong from the beginning, then set by as much again.
for my $leap ($hour, -$hour, $day, -$day)
{
	my $license = "client$leap";
	my $file = "$dir/$license";
	set_clock($file, $leap);
	add_license($license, 1, $ttl);
	push @clients,
	  {
		name => sprintf('client %+d s', $leap),
		leap => $leap,
		file => $file,
		license => $license,
		holder => Holder->new($license, $dsn,
			program => $ENV{HOLDER_PLAIN},
			env => { clock_of($file) })
	  };
}
for my $c (@clients)
{
	ok($c->{holder}->await('held'), "$c->{name}: a seat is held")
	  or diag($c->{holder}->errors);
	$c->{seat} = $c->{holder}->seat_id;
}

# At least two more beats of each.
sub more_beats
{
	my ($proxy, $count) = @_;
	my $before = $proxy->log('reply', 'heartbeat');
	return eventually('heartbeats go on',
		sub { $proxy->log('reply', 'heartbeat') >= $before + $count });
}

set_clock($_->{file}, 2 * $_->{leap}) for @clients;
more_beats($proxy, 12);
for my $c (@clients)
{
	my $left = $c->{holder}->may_run;
	ok($left > 0 && $left <= ($ttl + 1) * 1000,
		"$c->{name}: a leap of the clock takes no seat, and makes none longer");
	unlike($c->{holder}->story, qr/lost/, '... none was lost in between');
	is($c->{holder}->seat_id, $c->{seat}, '... it is the same one');
}

# Cut off, then set back: the end stays where it was.  Set forward: it is over.
$proxy->does('silence');
for my $c (@clients)
{
	$c->{cut} = monotonic();
	$c->{end} = $c->{holder}->may_run_until;
	set_clock($c->{file}, $c->{leap});
}
for my $c (@clients)
{
	my $lost = $c->{holder}->await('lost', $c->{cut});
	ok($lost && $lost->[1] < $c->{end} + 3,
		"$c->{name}: cut off, it is over in time")
	  or diag($c->{holder}->story);
	ok($lost && $lost->[1] > $c->{end} - 0.3, '... and not before')
	  if $c->{leap} > 0;
	is($c->{holder}->may_run, 0, '... nobody may run');
}
$proxy->does('pass');
for my $c (@clients)
{
	ok($c->{holder}->await('regained', $c->{cut}), "$c->{name}: regained");
	$c->{holder}->quit;
}

########################################################################
# The server's clock.  It begins two days ago: with an offset above 0 no timer
# of a server fires.

my $file = "$dir/server-clock";
my $now = -2 * $day;
set_clock($file, $now);
my $server = Server->new({ clock_of($file) }, 'moved');
my $server_jwks = file_of($server->sql('SELECT keyright_jwks()'));
$server->sql("INSERT INTO keyright.license
	(license_id, seat_count, ttl, skew, reap_grace)
	VALUES ('online', 2, '$ttl s', '1 s', '3 s')");
my $line = Proxy->new($server->socket);
my $line_dsn = 'host=127.0.0.1 port=' . $line->port
  . ' user=postgres dbname=postgres sslmode=disable';
my $online = Holder->new('online', $line_dsn, jwks => $server_jwks);
my $run = start({}, $ENV{KEYRIGHT}, 'run', '--license', 'online', '--jwks',
	$server_jwks, '--dsn', $line_dsn, '--', 'sh', '-c',
	'echo ready; exec sleep 1000');
ok($online->await('held'), 'a server of the day before yesterday: held')
  or diag($online->errors);
eventually('... and a command runs', sub { $run->{out}->() =~ /ready/ });

for my $leap ($hour, -$hour, $day, -$day)
{
	my $what = sprintf 'server %+d s', $leap;
	my $since = monotonic();
	$now += $leap;
	set_clock($file, $now);
	more_beats($line, 6);
	# By its own clock the server is right: these leases are over.
	ok($online->await('regained', $since), "$what: a seat is had again")
	  if $leap > 0;
	my $story = $online->story($since);
	is($story, $leap > 0 ? 'lost regained' : '', '... what was told of it');
	my $left = $online->may_run;
	ok($left > 0 && $left <= ($ttl + 1) * 1000,
		"$what: the lease is as long as ever")
	  or diag("$left ms");
	ok(!has_ended($run), '... and the command runs');
}

# Set right after the last one: what was believed ends in time.
$line->does('silence');
my $end = $online->may_run_until;
my $cut = monotonic();
set_clock($file, $now + $day);
my $lost = $online->await('lost', $cut);
ok($lost && $lost->[1] < $end + 3, 'cut off from it, the end stays in reach');
$line->does('pass');
ok($online->await('regained', $cut), '... and all is well again');
is($online->quit, 'ok', '... to the end');
kill 'TERM', $run->{pid};
is(ends($run), 128 + 15, 'the command was never stopped');

done_testing();
