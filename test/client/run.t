# The promise: a program under "keyright run" behaves as without it, but for
# having a seat: input, output, exit status and signals are its own.  Without a
# seat it is not started, and status and sentence say why.
#
# How: real programs against a real server; each refusal is brought about
# once.  The waits are for what the programs write and the views show.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Cli;
use IO::Pty;
use IPC::Run ();
use Proxy;
use Test::More;

my $live = "SELECT live FROM keyright.pools WHERE license_id =";
my ($status, $out, $err);

($status, $out, $err) = keyright('jwks');
is($status, 0, 'the public keys can be had');
rename file_of($out), $jwks or die;

add_license('acme', 20, 60);
add_license('one', 1, 8);
add_license('none', 0, 60);

########################################################################
# Input, output, exit status

my $program = run_seat({ in => "the input\n" },
	'acme', '--', 'sh', '-c', 'cat; echo to stderr >&2; exit 42');
is(ends($program), 42, "the command's exit status is passed on");
is($program->{out}->(), "the input\n", '... input and output are its own');
is($program->{err}->(), "to stderr\n", '... and nothing is added');
is(ends(run_seat({}, 'acme', 'true')), 0, 'no "--" is needed');
is(ends(run_seat({}, 'acme', '--', 'sh', '-c', 'kill -KILL $$')),
	128 + 9, 'a command that a signal ended: 128 + its number');
is(ends(run_seat({}, 'acme', '--', "$dir/missing")),
	127, 'a command that does not exist: 127');
is(ends(run_seat({}, 'acme', '--', $jwks)),
	126, 'a command that cannot be executed: 126');
# A caller that cares for no child, or closed all that it could.
is(ends(run_seat({ ignore => 'CHLD' }, 'acme', '--', 'sh', '-c', 'exit 42')),
	42, 'the exit status is passed on where SIGCHLD is ignored');
is(ends(start({}, 'sh', '-c', 'exec "$@" <&- >&- 2>&-', 'sh',
		$ENV{KEYRIGHT}, 'run', '-v', '--license', 'acme', '--jwks', $jwks,
		'--', 'sh', '-c', 'exit 42')),
	42, '... and where input, output and errors are closed');
# What keyright ignores for itself.
for my $ignored ('', 'PIPE', 'XFSZ', 'CHLD', 'VTALRM')
{
	$program = run_seat({ ignore => $ignored }, 'acme', '-v', '--', 'grep',
		'SigIgn', '/proc/self/status');
	ends($program);
	my ($mask) = $program->{out}->() =~ /([0-9a-f]{8})$/;
	is( join(' ', grep { hex($mask) & 1 << signal_of($_) - 1 }
			  qw(PIPE XFSZ CHLD VTALRM)),
		$ignored,
		'the command ignores ' . ($ignored || 'nothing') . ', as its caller');
}
is(sql("$live 'acme'"), 0, 'all seats were given back');

$program = run_seat({ in => '' },
	'acme', '--holder', 'zoe', '--ttl', '10m', '--',
	'sh', '-c', 'until [ -e "$0" ]; do sleep 0.1; done', "$dir/go");
eventually('a seat is held while the command runs',
	sub { sql("$live 'acme'") == 1 });
is(sql("SELECT holder, expires_at - since > '9 min'
		FROM keyright.holders WHERE license_id = 'acme'"),
	'zoe|t', '... with the holder and the length that were asked for');
open my $go, '>', "$dir/go" or die;
close $go;
is(ends($program), 0, '... which ends well');
is(sql("$live 'acme'"), 0, '... and gives it back');
my $me = getpwuid($<) . '@' . (POSIX::uname())[1];
$program = run_seat({}, 'acme', '--', 'psql', '-XAtc',
	"SELECT holder FROM keyright.holders WHERE license_id = 'acme'");
ends($program);
is($program->{out}->(), "$me\n", 'without --holder it is user@host');

########################################################################
# Signals.  The command tells each that it gets; END is the last that is sent.

my @names = qw(HUP INT QUIT USR1 USR2 ALRM TERM CONT WINCH);
my $listener = q(
	$| = 1;
	for my $n (qw(HUP INT QUIT USR1 USR2 ALRM TERM CONT WINCH)) {
		$SIG{$n} = sub { print "$n\n"; };
	}
	print "ready\n";
	until (-e $ARGV[0]) { select(undef, undef, undef, 0.05); }
);

sub listen_for_signals
{
	my ($options, $end) = @_;
	my $command = run_seat($options, 'acme', '--', $^X, '-e', $listener, $end);
	eventually('the command runs', sub { $command->{out}->() =~ /ready/ });
	return $command;
}

my $end = "$dir/end1";
$program = listen_for_signals({}, $end);
for my $name (@names)
{
	kill $name, $program->{pid};
	eventually("SIG$name is passed on",
		sub { $program->{out}->() =~ /^\Q$name\E$/m });
}
open $go, '>', $end or die;
close $go;
is(ends($program), 0, '... and ended nobody');
is($program->{out}->(), join("\n", 'ready', @names) . "\n",
	'... each once');

# Who looks for a word of its command line means keyright, not its guard.
$program = run_seat({}, 'acme', '--holder', "one of $dir", '--', 'sh', '-c',
	'trap "exit 7" TERM; echo ready; while :; do sleep 0.1; done');
eventually('a command runs', sub { $program->{out}->() =~ /ready/ });
is(system('pkill', '-TERM', '-f', "holder one of $dir"),
	0, 'keyright is found by its command line');
is(ends($program), 7, '... and the signal passed on');

# Control-C sends to the whole group; so do supervisors.  keyright is held up,
# lest the two copies become one before the command looks.
$end = "$dir/end2";
$program = listen_for_signals({ group => 1 }, $end);
kill 'STOP', $program->{pid};
eventually('keyright is held up',
	sub { states_of($program->{pid}) eq 'T' });
kill '-INT', $program->{pid};
eventually('a signal to the whole group arrives',
	sub { $program->{out}->() =~ /^INT$/m });
kill 'CONT', $program->{pid};
kill 'USR1', $program->{pid};
eventually('... another follows', sub { $program->{out}->() =~ /^USR1$/m });
is(() = $program->{out}->() =~ /^INT$/mg, 1, '... the first came once');
open $go, '>', $end or die;
close $go;
is(ends($program), 0, '... and ended nobody');

# As under nohup.
$end = "$dir/end3";
$program = listen_for_signals({ ignore => 'HUP' }, $end);
kill 'HUP', $program->{pid};
kill 'USR1', $program->{pid};
eventually('after an ignored signal comes the next',
	sub { $program->{out}->() =~ /^USR1$/m });
unlike($program->{out}->(), qr/HUP/, '... the ignored one is not passed on');
open $go, '>', $end or die;
close $go;
ends($program);

for my $name (qw(HUP INT QUIT TERM USR1))
{
	$program = run_seat({}, 'acme', '--', 'sh', '-c',
		'echo ready; exec sleep 1000');
	eventually('a command runs', sub { $program->{out}->() =~ /ready/ });
	kill $name, $program->{pid};
	is(ends($program), 128 + signal_of($name),
		"... SIG$name ends it, and shows in the status");
}

########################################################################
# No seat

my $first = run_seat({}, 'one', '--', 'sh', '-c', 'echo ready; exec sleep 1000');
eventually('the only seat is taken', sub { $first->{out}->() =~ /ready/ });
$program = run_seat({}, 'one', '--', 'echo', 'started');
is(ends($program), 75, 'no seat is free: 75');
is($program->{out}->(), '', '... the command was not started');
like(
	$program->{err}->(),
	qr/^keyright: All seats of license "one" are taken\. One can be free in \d+ s, at \d\d:\d\d:\d\d\.\n\z/,
	'... and a sentence says when one can be free');

$program = run_seat({}, 'none', '--wait', '500ms', '--', 'true');
is(ends($program), 75, 'a license without seats: 75, when the wait is over');
is($program->{err}->(), qq(keyright: License "none" has no seats.\n),
	'... and a sentence says that it has none');

$program = run_seat({}, 'one', '--wait', '10m', '-v', '--', 'true');
eventually('-v tells when a seat can be free, where no terminal is', sub {
	$program->{err}->() =~
	  /^keyright: waiting: All seats of license "one" are taken\. One can be free in \d+ s, at \d\d:\d\d:\d\d\.$/m;
});
unlike($program->{err}->(), qr/giving up/, '... and shows no progress');
kill 'TERM', $program->{pid};
is(ends($program), 128 + 15, '... until it is ended');

# Waiting, on a terminal.
my ($in, $screen) = ('', '');
my $waiter = IPC::Run::start(
	[ $ENV{KEYRIGHT}, 'run', '--license', 'one', '--jwks', $jwks,
		'--wait', '10m', '--', 'echo', 'it', 'started' ],
	'<pty<', \$in, '>pty>', \$screen);
eventually('on a terminal a line tells of the waiting', sub {
	$waiter->pump_nb;
	$screen =~ /waiting for a seat, maybe in \d+ s; giving up in \d/;
});
unlike($screen, qr/started/, '... the command is not started yet');
kill 'TERM', $first->{pid};
is(ends($first), 128 + 15, 'the first ends');
# The one who waits asks when the lease that it knew of is over, at the latest.
eventually('... and the second starts', sub {
	$waiter->pump_nb;
	$screen =~ /it started/;
}, 120);
like($screen, qr/\r\e\[Kit started/, '... the line is gone');
$waiter->finish;
is($waiter->result(0), 0, '... its status is passed on');

# On a terminal with nothing to wait for: a sentence, and no more than that.
# It does not always show at once, so more than once.
for my $i (1 .. 5)
{
	my ($in, $screen) = ('', '');
	IPC::Run::run(
		[ $ENV{KEYRIGHT}, 'run', '--license', 'acme', '--jwks', $jwks, '--dsn',
			"host=$dir", '--', 'true' ],
		'<pty<', \$in, '>pty>', \$screen);
	like($screen, qr/\Akeyright: The license server cannot be reached\. \(.*\)\r\n\z/,
		"on a terminal without a server, $i: one sentence");
}

# Each message has a line of its own, and so has the waiting.
add_license('taken', 1, 60);
sql("SELECT 1 FROM keyright_checkout('taken', 'somebody')");
{
	my ($in, $screen) = ('', '');
	IPC::Run::run(
		[ $ENV{KEYRIGHT}, 'run', '--license', 'taken', '--jwks', $jwks,
			'--wait', '2s', '-v', '--', 'true' ],
		'<pty<', \$in, '>pty>', \$screen);
	like($screen, qr/waiting for a seat, maybe/, 'a line tells of the waiting');
	like($screen, qr/keyright: idle: /, '... and -v of the end of it');
	unlike("\n$screen", qr/(?<!\n)(?<!\e\[K)keyright: /, '... each by itself');
	($in, $screen) = ('', '');
	IPC::Run::run(
		[ $ENV{KEYRIGHT}, 'run', '--license', 'taken', '--jwks', $jwks,
			'--wait', '2s', '--dsn', "host=$dir", '--', 'true' ],
		'<pty<', \$in, '>pty>', \$screen);
	like($screen, qr/cannot be reached\. Trying on; giving up in \d/,
		'... and of a server that is awaited');
}

# The seat that is not given back.
my $proxy = Proxy->new("$ENV{PGHOST}/.s.PGSQL.$ENV{PGPORT}");
$program = run_seat({}, 'acme', '-v', '--dsn', 'sslmode=disable host=127.0.0.1 port='
	  . $proxy->port, '--', 'sh', '-c', 'echo ready; read line; exit 5');
is(ends($program), 5, 'a seat is given back');
unlike($program->{err}->(), qr/will be free/, '... of which nothing is told');
$program = run_seat({}, 'acme', '-v', '--holder', 'gone', '--dsn',
	'sslmode=disable host=127.0.0.1 port=' . $proxy->port, '--', 'sh', '-c',
	'echo ready; until [ -e "$0" ]; do sleep 0.1; done', "$dir/server_gone");
eventually('a seat is held', sub { $program->{out}->() =~ /ready/ });
$proxy->does('refuse');
close(do { open my $f, '>', "$dir/server_gone" or die; $f });
is(ends($program), 0, 'the server is gone when the command ends');
like($program->{err}->(), qr/The seat will be free when its lease is over/,
	'... which is told of a seat that was held');
sql("SELECT keyright_revoke_holder('acme', 'gone')");

# Signals while waiting.
$program = run_seat({}, 'none', '--wait', 'forever', '-v', '--', 'true');
eventually('one waits for ever',
	sub { $program->{err}->() =~ /waiting: License "none" has no seats/ });
kill 'WINCH', $program->{pid};
kill 'INT', $program->{pid};
is(ends($program), 128 + 2, '... SIGINT ends that: 130');

# The guard is killed while nobody has a command to guard.
$program = run_seat({}, 'none', '--wait', 'forever', '-v', '--', 'true');
eventually('another waits',
	sub { $program->{err}->() =~ /waiting: License "none" has no seats/ });
my ($guard) = `ps -o pid= --ppid $program->{pid}` =~ /(\d+)/;
kill 'KILL', $guard;
is(ends($program), 70, '... until its guard is killed: 70');
like($program->{err}->(), qr/guards the command was killed/,
	'... and a sentence says so');

# Waiting on a terminal that control-S has stopped.
add_license('stopped', 1, 6);
$first = run_seat({}, 'stopped', '--', 'sh', '-c', 'echo ready; exec sleep 1000');
eventually('the only seat is taken', sub { $first->{out}->() =~ /ready/ });
my $pty = IO::Pty->new;
POSIX::tcflow(fileno $pty->slave, POSIX::TCOOFF()) or die "no control-S: $!";
my @waiting = map {
	run_seat({ err => $pty->slave }, 'stopped', '--wait', '10m', '--', 'sh', '-c',
		'echo started; sleep 1000')
} 1, 2;
my $waits_there = "SELECT count(*) FROM pg_stat_activity
	WHERE datname = current_database() AND query LIKE '%keyright_checkout%'
	AND pid <> pg_backend_pid()";
eventually('two wait on a stopped terminal', sub { sql($waits_there) >= 2 });
sleep 3;
kill 'TERM', $waiting[0]->{pid};
is(ends($waiting[0]), 128 + 15, '... SIGTERM ends one');
kill 'TERM', $first->{pid};
ends($first);
eventually('... the other starts when the seat is free',
	sub { $waiting[1]->{out}->() =~ /started/ });
kill 'TERM', $waiting[1]->{pid};
is(ends($waiting[1]), 128 + 15, '... and ends');

########################################################################
# Other reasons

sub refused_with
{
	my ($wanted, $pattern, $what, @arguments) = @_;
	my ($status, $out, $err) =
	  keyright('run', '--jwks', $jwks, @arguments, '--', 'echo', 'started');
	is($status, $wanted, "$what: $wanted");
	like($err, $pattern, '... and a sentence');
	is($out, '', '... and no command');
	return;
}

add_license('asleep', 1, 60);
add_license('unsigned', 1, 60);
sql("UPDATE keyright.license SET suspended = true
	WHERE license_id = 'asleep'");
sql("CREATE ROLE stranger LOGIN");
my $other_jwks = file_of((keyright('keygen', "$dir/other.key"))[1]);

refused_with(77, qr/does not know license "nosuch"/,
	'unknown license', '--license', 'nosuch');
refused_with(77, qr/^keyright: License "asleep" is suspended\. \(No seat .* end\. An .* WHERE license_id = 'asleep'\.\)$/,
	'suspended license', '--license', 'asleep');
refused_with(77, qr/may not ask.*keyright_grant\('client', role\)/,
	'a role without privilege',
	'--license', 'acme', '--dsn', 'user=stranger');
refused_with(77, qr/no such database/, 'no such database',
	'--license', 'acme', '--dsn', 'dbname=nosuch');
refused_with(69, qr/cannot be reached\. \(connection to .*: No such file or directory\)$/, 'no server',
	'--license', 'acme', '--dsn', "host=$dir");
# That seat cannot be given back: its id is only in what is not believed.
refused_with(76, qr/not signed.*file of --jwks too old/, "another server's keys",
	'--license', 'unsigned', '--jwks', $other_jwks);
refused_with(78, qr/--jwks: ".*" is no JWK Set/,
	'no JWK Set', '--license', 'acme', '--jwks', file_of('nonsense'));
refused_with(78, qr/is a signing key.*keygen --public/,
	'a key file', '--license', 'acme', '--jwks', "$dir/other.key");
refused_with(78, qr/--jwks: ".*" cannot be used: .*no Ed25519 key/,
	'no key in it', '--license', 'acme', '--jwks', file_of('{"keys":[]}'));
refused_with(78, qr/could not open/, 'no file of keys',
	'--license', 'acme', '--jwks', "$dir/missing");
refused_with(64, qr/--dsn: missing "="/, 'a connection string that is none',
	'--license', 'acme', '--dsn', 'nonsense');
refused_with(64, qr/--ttl: "$_" is too short/, "a ttl that is too short, $_",
	'--license', 'acme', '--ttl', $_)
  for '0', '999ms';
refused_with(64, qr/--$_ must have 1 to 255 bytes/, "an empty $_",
	'--license', 'acme', "--$_", '')
  for 'holder', 'license';
refused_with(78, qr{--state: "/nowhere/state" cannot be used: .*: No such file or directory$},
	'a state file in no folder', '--license', 'acme', '--state',
	'/nowhere/state');
{
	local $ENV{PGPORT} = '1,2,3';
	local $ENV{PGHOST} = '/a,/b';
	refused_with(78, qr/the PG\* variables are not right: /,
		'variables that do not fit together', '--license', 'acme');
}
# It would be waited for as an outage is.
refused_with(64, qr/--dsn: .*"bogus"/, 'a setting that libpq refuses',
	'--license', 'acme', '--wait', 'forever', '--dsn', 'sslmode=bogus');
# Without /proc nobody could end what the command has started.
SKIP:
{
	my @foreign = qw(unshare --user --pid --fork);
	skip 'no PID namespace to be had', 4 if system("@foreign true >/dev/null 2>&1");
	$program = start({}, @foreign, $ENV{KEYRIGHT}, 'run', '--license', 'acme',
		'--jwks', $jwks, '--', 'true');
	is(ends($program), 70, 'no run, the /proc of other processes: 70');
	like($program->{err}->(), qr{/proc does not show this process}, '... and why');
	$program = start({}, @foreign, $ENV{KEYRIGHT}, 'run', '--license', 'acme',
		'--jwks', $jwks, '--on-lost', 'warn', '--', 'sh', '-c', 'exit 7');
	is(ends($program), 7, '... but with --on-lost warn');
	is($program->{err}->(), '', '... quietly');
}
# One limit or another is met when the file is opened.
my %few;
for my $limit (4 .. 20)
{
	$program = start({}, 'sh', '-c', 'ulimit -n "$0"; exec "$@"', $limit,
		$ENV{KEYRIGHT}, 'run', '--license', 'none', '--jwks', $jwks,
		'--state', "$dir/few.state", '--', 'true');
	my $status = ends($program);
	$few{$status} = 1 if $program->{err}->() =~ /\(state file: /;
}
is(join(' ', keys %few), 70, 'too few descriptors for --state: 70');
refused_with(77, qr/refused/, 'a ttl that is longer than the license allows',
	'--license', 'acme', '--ttl', '2h');
refused_with(64, qr/no length of time.*"forever" is possible/s,
	'a length that is none', '--license', 'acme', '--wait', 'soon');
refused_with(64, qr/neither stop nor warn/, 'an action that is none',
	'--license', 'acme', '--on-lost', 'cry');
refused_with(64, qr/unrecognized option/, 'an option that is none',
	'--license', 'acme', '--nonsense');
refused_with(64, qr/--license is missing/, 'no license');
is((keyright('run', '--license', 'acme', '--', 'true'))[0],
	64, 'no --jwks: 64');
is((keyright('run', '--license', 'acme', '--jwks', $jwks))[0],
	64, 'no command: 64');
is(sql("$live 'acme'"), 0, 'nobody of all these left a seat behind');

done_testing();
