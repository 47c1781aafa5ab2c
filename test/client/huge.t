# The promise: a server that announces a huge answer, that does not end its
# answer or gives one of another kind holds nobody up for longer than any other
# silence, and costs a small part of the memory.
#
# How: a proxy answers heartbeats with the beginning of a message of 1 GB.  Then
# it says nothing, or a byte now and then, or it sends as much as there is room
# for.  Or it begins to copy, or sends results without an end.  The clients are
# built without sanitizers, which set memory aside in their own way.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Cli;
use Holder;
use Proxy;
use Test::More;

my $ttl = 12;
# A question may take a quarter of what is left; a busy machine adds to it.
my $patience = ($ttl + 1) / 4 + 2;
my @faults = qw(announce drip flood copy_out copy_in copy_both results errors);

# The most memory that a process ever had, in MB.
sub memory_of
{
	my ($holder) = @_;
	my ($kb) =
	  slurp('/proc/' . $holder->pid . '/status') =~ /^VmHWM:\s+(\d+) kB/m;
	return $kb / 1024;
}

rename file_of((keyright('jwks'))[1]), $jwks or die;
my (%proxy, %holder, %seat, %memory);
for my $fault (@faults)
{
	add_license($fault, 2, $ttl);
	my $proxy = $proxy{$fault} =
	  Proxy->new("$ENV{PGHOST}/.s.PGSQL.$ENV{PGPORT}");
	$holder{$fault} = Holder->new($fault,
		'host=127.0.0.1 port=' . $proxy->port
		  . " user=$ENV{PGUSER} dbname=$ENV{PGDATABASE} sslmode=disable",
		program => $ENV{HOLDER_PLAIN});
}
for my $fault (@faults)
{
	ok($holder{$fault}->await('held'), "$fault: a seat is held");
	$seat{$fault} = $holder{$fault}->seat_id;
	$memory{$fault} = memory_of($holder{$fault});
}
# Three tries always fit into a lease; the third one is well.
$proxy{$_}->does($_, 2) for @faults;

for my $fault (@faults)
{
	my ($holder, $proxy) = ($holder{$fault}, $proxy{$fault});
	my $noticed = $holder->await('retrying', undef, 3 * $ttl);
	unless (ok($noticed, "$fault: it is noticed"))
	{
		diag($holder->story, $holder->errors);
		$holder->forget;
		delete $holder{$fault};
		next;
	}
	is("@$noticed[3, 4]",
		$fault eq 'errors' ? 'busy 40001' : 'unreachable -',
		'... as silence');
	cmp_ok($noticed->[5], '>', 0, '... the seat is still held');
	my ($asked) = map { $_->[0] }
	  grep { $_->[0] < $noticed->[1] } reverse $proxy->log('ask', 'heartbeat');
	cmp_ok($noticed->[1] - $asked, '<', $patience,
		'... no later than when nothing is answered');
	my $more = memory_of($holder) - $memory{$fault};
	# Of the first bytes it depends on who is faster how many are read.
	cmp_ok($more, '<', 64, sprintf '... it costs %.1f MB', $more);
}

for my $fault (grep { $holder{$_} } @faults)
{
	my $holder = $holder{$fault};
	ok($holder->await('held', $holder->seen('retrying')->[1]),
		"$fault: held again when all is well");
	is($holder->seat_id, $seat{$fault}, '... it is the same seat');
	is($holder->story, 'waiting held retrying held',
		'... it was never lost');
	is($holder->quit, 'ok', '... the seat is given back');
}

done_testing();
