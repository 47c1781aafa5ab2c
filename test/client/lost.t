# The promise: a command does not go on without its seat, whatever happens to
# the seat or to "keyright run" itself; and no seat is given to another while
# the command of the first runs.
#
# How: keyright, its guard and its seat are killed, stopped, revoked and cut
# off.  The command is a shell that started a child, and another in a session
# of its own, all deaf to SIGTERM where that matters; they tell their process
# ids.  An outage is a folder whose socket is a link that is taken away.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Cli;
use IO::Handle;
use IO::Pty;
use Test::More;
use Time::HiRes qw(sleep);

my $live = "SELECT live FROM keyright.pools WHERE license_id =";

rename file_of((keyright('jwks'))[1]), $jwks or die;

# Prints "PID ..." of all that the command consists of, then "ready".
# $0 is a file to write to.
my $family = q(
	sleep 1000 & a=$!
	setsid sleep 1000 & b=$!
	echo $$ $a $b ready
	while :; do wait; sleep 1; done);
my $deaf = q(
	trap '' TERM
	(sleep 1000) & a=$!
	setsid sleep 1000 & b=$!
	echo $$ $a $b ready
	while :; do wait; sleep 1; done);

sub run_family
{
	my ($license, $script, @options) = @_;
	my $program =
	  run_seat({}, $license, @options, '--', 'sh', '-c', $script, "$dir/ticks");
	eventually('a family of processes runs',
		sub { $program->{out}->() =~ /ready/ });
	my @pids = $program->{out}->() =~ /(\d+)/g;
	return ($program, @pids);
}

sub all_gone
{
	my ($what, @pids) = @_;
	eventually($what, sub { !grep { alive($_) } @pids })
	  or kill 'KILL', @pids;
	return;
}

# The guard is the only child of keyright.
sub guard_of
{
	my ($program) = @_;
	my ($pid) = `ps -o pid= --ppid $program->{pid}` =~ /(\d+)/;
	return $pid;
}

########################################################################
# keyright is killed: its command ends, and its seat comes back

add_license('killed', 1, 4);
my ($program, @pids) = run_family('killed', $deaf);
my $guard = guard_of($program);
my $second = run_seat({}, 'killed', '--wait', '10m', '--', 'sh', '-c',
	'for p; do kill -0 $p 2>/dev/null && echo $p lives; done; echo started',
	'sh', @pids);
sleep 1;
is(sql("$live 'killed'"), 1, 'the second waits');
is($second->{out}->(), '', '... and was not started');
kill 'KILL', $program->{pid};
is(ends($program), -9, 'keyright is killed');
my $ends = sql("SELECT expires_at FROM keyright.holders
	WHERE license_id = 'killed' AND state = 'live'");
all_gone('... its command is gone, though deaf to SIGTERM', @pids);
all_gone('... and the guard', $guard);
is(ends($second), 0, 'then the second starts');
is($second->{out}->(), "started\n", '... after all of the first were gone');
like($program->{err}->(), qr/was killed; stopping the command/,
	'... and somebody said so');

# A command that listens to SIGTERM has the time to.
add_license('polite', 1, 60);
($program, @pids) = run_family('polite',
	'trap "echo goodbye; exit" TERM; echo $$ ready; while :; do sleep 0.1; done');
kill 'KILL', $program->{pid};
all_gone('a command whose keyright was killed ends', @pids);
like($program->{out}->(), qr/goodbye/, '... in its own way');
ends($program);

# The seat may be had again at once by who remembers it.
add_license('state', 1, 60);
my @state = ('--state', "$dir/state");
($program, @pids) = run_family('state', $family, @state);
is((stat "$dir/state")[2] & 07777, 0600, 'a state file is private');
kill 'KILL', $program->{pid};
ends($program);
all_gone('keyright with a state file was killed, and its command', @pids);
is(ends(run_seat({}, 'state', '--', 'true')), 75, 'others get no seat');
is(ends(run_seat({}, 'state', @state, '--', 'true')),
	0, '... the next run gets its own again');
ok(!-e "$dir/state", '... and gives it back, with which the file goes');

########################################################################
# keyright is stopped, its guard is killed

add_license('stopped', 1, 4);
($program, @pids) = run_family('stopped', $family, '--regain', '1s');
kill 'STOP', $program->{pid};
all_gone('a stopped keyright: its command ends', @pids);
kill 'CONT', $program->{pid};
is(ends($program), 69, '... and keyright ends when it goes on');
like($program->{err}->(), qr/does not move/, '... and somebody said so');

# Whoever gets the seat of one that is stopped does not share it, even with a
# command that is deaf to SIGTERM while it is ended.
add_license('stopped2', 1, 4);
($program, @pids) = run_family('stopped2',
	q(trap '' TERM
	setsid sh -c 'trap "" TERM; while :; do echo >>"$0"; sleep 0.1; done' "$0" &
	echo $$ $! ready
	while :; do wait; sleep 1; done), '--regain', '1s');
kill 'STOP', $program->{pid};
$second = run_seat({}, 'stopped2', '--wait', '10m', '--', 'sh', '-c',
	'a=$(wc -c <"$0"); sleep 12; test "$a" = "$(wc -c <"$0")"', "$dir/ticks");
is(ends($second), 0, 'the next holder is alone for as long as he works');
all_gone('... the command of the one that is stopped has ended', @pids);
kill 'CONT', $program->{pid};
is(ends($program), 69, '... and keyright ends when it goes on');

# The guard is no command's: stopped alone, it goes on.
add_license('asleep', 1, 4);
($program, @pids) = run_family('asleep', $family);
kill 'STOP', guard_of($program);
sql("SELECT keyright_revoke_all('asleep')");
is(ends($program), 77, 'a stopped guard ends the command when it has to');
all_gone('... and all that it had started', @pids);

# If nobody is there who lets it go on, the kernel does.
($program, @pids) = run_family('asleep', $deaf);
$guard = guard_of($program);
kill 'STOP', $guard;
kill 'KILL', $program->{pid};
all_gone('a guard that is stopped when keyright is killed ends the command',
	@pids, $guard);
ends($program);

# Nor is it waited for when more signals come than it has room for.
$program = run_seat({}, 'asleep', '--wait', '1m', '--', $^X, '-e', '$| = 1;
	$SIG{RTMIN} = "IGNORE"; $SIG{USR1} = sub { exit 7 };
	print "ready\n"; select(undef, undef, undef, 0.1) while 1');
eventually('a command runs', sub { $program->{out}->() =~ /ready/ });
$guard = guard_of($program);
kill 'STOP', $program->{pid};
kill POSIX::SIGRTMIN(), $program->{pid} for 1 .. 2000;
kill 'STOP', $guard;
kill 'CONT', $program->{pid};
eventually('... its guard, which was stopped, goes on',
	sub { states_of($guard) ne 'T' });
kill 'USR1', $program->{pid};
is(ends($program), 7, '... and the command gets its signals');

# Told to go on alone, keyright has the command and its guard go on.
add_license('woken', 1, 60);
$program = run_seat({ group => 1 }, 'woken', '--', $^X, '-e', '$| = 1;
	print "$$ ready"; select(undef, undef, undef, 0.1) until -e $ARGV[0];
	exit 7', "$dir/woken");
eventually('a command runs', sub { $program->{out}->() =~ /ready/ });
@pids = ($program->{out}->() =~ /(\d+)/, guard_of($program));
kill '-STOP', $program->{pid};
eventually('... is stopped with all of its group',
	sub { states_of($program->{pid}, @pids) eq 'TTT' });
kill 'CONT', $program->{pid};
eventually('... goes on with keyright, and so does the guard',
	sub { states_of(@pids) !~ /T/ });
close(do { open my $woken, '>', "$dir/woken" or die; $woken });
is(ends($program), 7, '... and ends in its own way');

# A terminal's signal that keyright ignores makes no suspended job of it.
add_license('unmoved', 1, 3);
$program = run_seat({ group => 1, ignore => 'TSTP' }, 'unmoved',
	'--regain', '1s', '--', 'sh', '-c', 'echo $$ ready; exec sleep 1000');
eventually('a command runs that ignores control-Z, as keyright does',
	sub { $program->{out}->() =~ /ready/ });
@pids = $program->{out}->() =~ /(\d+)/;
kill '-TSTP', $program->{pid};
sleep 7;
kill 'STOP', $program->{pid};
all_gone('... and ends when keyright is stopped otherwise', @pids);
kill 'CONT', $program->{pid};
is(ends($program), 69, '... and keyright when it goes on');

# Control-Z, a long pause, "fg".
add_license('paused', 1, 3);
$program = run_seat({ group => 1 }, 'paused', '-v', '--', 'sh', '-c',
	'echo ready; until [ -e "$0" ]; do sleep 0.1; done; exit 7', "$dir/fg");
eventually('a command runs', sub { $program->{out}->() =~ /ready/ });
kill '-TSTP', $program->{pid};
eventually('... is stopped with its keyright until the lease is over', sub {
	sql("SELECT coalesce(bool_and(state = 'lapsed'), true)
		FROM keyright.holders WHERE license_id = 'paused'") eq 't';
});
kill '-CONT', $program->{pid};
eventually('... gets a seat when both go on',
	sub { $program->{err}->() =~ /lost.*regained/s });
close(do { open my $fg, '>', "$dir/fg" or die; $fg });
is(ends($program), 7, '... and ends in its own way');

# A command can be deaf to control-Z, and what it started out of its reach.
add_license('suspended', 1, 4);
$program = run_seat({ group => 1 }, 'suspended', '-v', '--regain', '3s', '--',
	'sh', '-c',
	'trap "" TSTP
	setsid sh -c "while :; do sleep 0.1; done" & a=$!
	echo $$ $a ready
	until [ -e "$0" ]; do sleep 0.1; done
	kill $a
	exit 7', "$dir/resumed");
eventually('a command runs that control-Z does not stop',
	sub { $program->{out}->() =~ /ready/ });
@pids = $program->{out}->() =~ /(\d+)/g;
kill '-TSTP', $program->{pid};
eventually('... its keyright stops', sub { states_of($program->{pid}) eq 'T' });
is(states_of(@pids) =~ tr/T//, 0,
	'... the command goes on within its lease');
$second = run_seat({}, 'suspended', '--wait', '10m', '--', 'sh', '-c',
	'for p; do s=$(ps -o state= -p $p); [ "$s" = T ] || echo $p "$s"; done
	echo started; sleep 12', 'sh', @pids);
eventually('... the seat is another\'s when it is over',
	sub { $second->{out}->() =~ /started/ });
is($second->{out}->(), "started\n", '... who starts after all of it stopped');
is(ends($second), 0, '... and keeps it for as long as he likes');
is(states_of(@pids), 'TT', '... it is still there');
kill '-CONT', $program->{pid};
eventually('... gets a seat when keyright goes on',
	sub { $program->{err}->() =~ /lost.*regained/s });
eventually('... and goes on with all that it had started',
	sub { states_of(@pids) !~ /T/ });
close(do { open my $resumed, '>', "$dir/resumed" or die; $resumed });
is(ends($program), 7, '... and ends in its own way');

add_license('guard', 1, 60);
($program, @pids) = run_family('guard', $deaf);
is(slurp('/proc/' . guard_of($program) . '/comm'), "kr-guard\n",
	'the guard has a name of its own');
like(slurp('/proc/' . guard_of($program) . '/cmdline'), qr/\Akr-guard\0*\z/,
	'... and no other words');
kill 'KILL', guard_of($program);
is(ends($program), 70, 'the guard is killed: 70');
all_gone('... and so is all of the command', @pids);
is(sql("$live 'guard'"), 0, '... and the seat is given back');

########################################################################
# The server takes the seat

add_license('revoked', 1, 3);
($program, @pids) = run_family('revoked', $family);
sql("SELECT keyright_revoke_all('revoked')");
is(ends($program), 77, 'a revoked seat ends the command: 77');
all_gone('... and all that it had started', @pids);
like($program->{err}->(), qr/took back .* stopping the command/,
	'... and a sentence says why');

($program, @pids) = run_family('revoked', $deaf, '--grace', '1s');
sql("SELECT keyright_revoke_all('revoked')");
is(ends($program), 77, 'a command that is deaf to SIGTERM ends too');
all_gone('... with all that it had started', @pids);

# Who reads its messages may have stopped to do so.  A terminal that is ready
# need not have room for a line.
sub fill
{
	my ($to, $size) = @_;
	my $filled = 0;
	$to->blocking(0);
	while ($filled < $size)
	{
		my $n = syswrite $to, 'x' or last;
		$filled += $n;
	}
	$to->blocking(1);
	return $filled;
}

pipe my $reads, my $pipe or die;
fill($pipe, 9**9);
my @terminals = (IO::Pty->new, IO::Pty->new);
my $room = fill($terminals[0]->slave, 9**9);
fill($terminals[1]->slave, $room - 20);

for my $unread ([ 'a pipe', $pipe ], [ 'a terminal', $terminals[1]->slave ])
{
	my ($what, $to) = @$unread;
	$program =
	  run_seat({ err => $to }, 'revoked', '--', 'sh', '-c', $family);
	eventually("a command runs, and nobody reads $what for its messages",
		sub { $program->{out}->() =~ /ready/ });
	@pids = $program->{out}->() =~ /(\d+)/g;
	sql("SELECT keyright_revoke_all('revoked')");
	is(ends($program), 77, '... it ends when its seat is revoked');
	all_gone('... with all that it had started', @pids);
}

# Nobody reads, and no timer can be had; or the messages' file may not grow.
my $full = file_of('x' x 1024);
open my $to_full, '>>', $full or die;
add_license('limited', 2, 4);
for my $limit ([ 'without a timer', 'ulimit -i 0', $pipe ],
	[ 'with a full file for messages', 'ulimit -f 1', $to_full ])
{
	my ($what, $ulimit, $to) = @$limit;
	$program = start({ err => $to }, 'bash', '-c', "$ulimit && exec \"\$@\"",
		'bash', $ENV{KEYRIGHT}, 'run', '--license', 'limited', '--jwks', $jwks,
		'--', 'sh', '-c', $deaf);
	eventually("a command runs, $what",
		sub { $program->{out}->() =~ /ready/ });
	@pids = $program->{out}->() =~ /(\d+)/g;
	kill 'KILL', $program->{pid};
	all_gone('... it ends when keyright is killed, with all it had started',
		@pids);
	ends($program);
}
is(-s $full, 1024, '... which did not grow');
close $reads;

add_license('shut', 1, 3);
($program, @pids) = run_family('shut', $family);
sql("UPDATE keyright.license SET suspended = true WHERE license_id = 'shut'");
is(ends($program), 77, 'a suspended license ends the command: 77');
all_gone('... and all that it had started', @pids);

add_license('warned', 1, 3);
$program = run_seat({}, 'warned', '--on-lost', 'warn', '--', 'sh', '-c',
	'echo ready; until [ -e "$0" ]; do sleep 0.1; done; exit 7', "$dir/go");
eventually('a command runs with --on-lost warn',
	sub { $program->{out}->() =~ /ready/ });
sql("SELECT keyright_revoke_all('warned')");
eventually('... is warned when its seat is revoked',
	sub { $program->{err}->() =~ /goes on without one/ });
ok(!has_ended($program), '... goes on');
close(do { open my $go, '>', "$dir/go" or die; $go });
is(ends($program), 7, '... and its status is its own');

($program, @pids) = run_family('guard', $family, '--on-lost', 'warn');
kill 'KILL', $program->{pid};
ends($program);
eventually('with it, a killed keyright is told, too',
	sub { $program->{err}->() =~ /goes on without a seat/ });
is(scalar(grep { alive($_) } @pids), 3, '... and ends nobody');
kill 'KILL', @pids;
($program, @pids) = run_family('warned', $family, '--on-lost', 'warn');
kill 'KILL', guard_of($program);
is(ends($program), 70, '... nor does a killed guard: 70');
like($program->{err}->(), qr/was killed; the command goes on without a seat/,
	'... which is told, too');
is(scalar(grep { alive($_) } @pids), 3, '... and ends nobody');
kill 'KILL', @pids;

########################################################################
# The server is silent

my $host = "$dir/s";
mkdir $host or die;
sql("CREATE ROLE traveller LOGIN");
sql("SELECT keyright_grant('client', 'traveller')");

sub connect_host
{
	symlink "$ENV{PGHOST}/.s.PGSQL.$ENV{PGPORT}",
	  "$host/.s.PGSQL.$ENV{PGPORT}"
	  or die "no link: $!";
	return;
}

sub cut_off
{
	unlink "$host/.s.PGSQL.$ENV{PGPORT}" or die;
	sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE usename = 'traveller'");
	return;
}

# A command that has had the time of --regain.
sub is_kept
{
	my ($program, @pids) = @_;
	eventually('... and is kept when a seat can be had',
		sub { $program->{err}->() =~ /^keyright: regained/m });
	ok(alive($pids[0]), '... it never noticed');
	kill 'TERM', $program->{pid};
	ends($program);
	kill 'KILL', @pids;
	return;
}

my @away = ('--dsn', "host=$host user=traveller");
connect_host();
add_license('silent', 1, 8);
add_license('warned2', 1, 3);
($program, @pids) = run_family('silent', $family, '--regain', '1s', @away, '-v');
my $since = sql("SELECT since FROM keyright.holders
	WHERE license_id = 'silent'");
cut_off();
eventually('a silent server is noticed',
	sub { $program->{err}->() =~ /^keyright: retrying/m });
ok(alive($pids[0]), '... the command goes on');
connect_host();
eventually('... and renewed when it is back',
	sub { $program->{err}->() =~ /retrying.*^keyright: held/ms });
is(sql("SELECT since FROM keyright.holders WHERE license_id = 'silent'"),
	$since, '... with the same seat');

my $warned = run_seat({}, 'warned2', '--on-lost', 'warn', '--regain', '0',
	@away, '--', 'sh', '-c', 'echo ready; exec sleep 1000');
eventually('another that is only warned runs',
	sub { $warned->{out}->() =~ /ready/ });
cut_off();
is(ends($program), 69, 'silence beyond the lease ends the command: 69');
all_gone('... and all that it had started', @pids);
like($program->{err}->(), qr/^keyright: lost/m, '... the seat was lost');
eventually('the other is warned',
	sub { $warned->{err}->() =~ /goes on without one/ });
connect_host();
eventually('... and told when it has a seat again',
	sub { $warned->{err}->() =~ /A seat is held again/ });
kill 'TERM', $warned->{pid};
is(ends($warned), 128 + 15, '... it went on all the while');

# Who cannot sign has not said that there is no other seat.
add_license('unsigned', 1, 3);
sql("CREATE SCHEMA keyless");
sql("GRANT USAGE ON SCHEMA keyless TO traveller");
sql("CREATE FUNCTION keyless.refuse() RETURNS void LANGUAGE plpgsql AS
	\$\$BEGIN RAISE EXCEPTION 'no key' USING ERRCODE = 'KR005'; END\$\$");
my $row = 'TABLE (status text, reason text, token text, issued_at timestamptz,
	retry_at timestamptz, seat_id uuid) LANGUAGE sql';
my $no_row = 'SELECT NULL, NULL, NULL, now(), now(), gen_random_uuid()
	FROM keyless.refuse()';
sql("CREATE FUNCTION keyless.keyright_checkout(text, text, interval, text)
	RETURNS $row AS '$no_row'");
sql("CREATE FUNCTION keyless.keyright_heartbeat(text, uuid)
	RETURNS $row AS '$no_row'");
($program, @pids) = run_family('unsigned', $family, '--regain', '10m', @away,
	'-v');
sql("ALTER ROLE traveller SET search_path = keyless, public");
cut_off();
connect_host();
eventually('a lease is over while the server cannot sign', sub {
	$program->{err}->() =~ /^keyright: lost.*^keyright: refused: .*no usable/ms;
});
ok(alive($pids[0]), '... the command has the time of --regain');
sql("ALTER ROLE traveller RESET search_path");
cut_off();
connect_host();
is_kept($program, @pids);

# Lost and regained in time.
add_license('brief', 1, 3);
($program, @pids) = run_family('brief', $family, '--regain', '10m', @away, '-v');
cut_off();
eventually('a lease is over while the server is silent',
	sub { $program->{err}->() =~ /^keyright: lost/m });
ok(alive($pids[0]), '... the command has the time of --regain');
connect_host();
is_kept($program, @pids);

done_testing();
