# The promise: status, verify, keygen, jwks and the help do what keyright(1)
# says, to people and to scripts: each exit status is seen once.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Cli;
use Encode ();
use JSON::PP ();
use POSIX ();
use Proxy;
use Test::More;
use Time::HiRes qw(time);

my ($status, $out, $err);
my $program;

########################################################################
# jwks

($status, $out, $err) = keyright('jwks');
is($status, 0, 'jwks: 0');
is($err, '', '... quietly');
is_deeply(
	JSON::PP::decode_json($out),
	JSON::PP::decode_json(sql('SELECT keyright_jwks()')),
	'... prints what the server says');
rename file_of($out), $jwks or die;
is((keyright('jwks', '--dsn', "host=$dir"))[0], 69, 'jwks, no server: 69');
sql('CREATE ROLE nobody_much LOGIN');
($status, $out, $err) = keyright('jwks', '--dsn', 'user=nobody_much');
is($status, 77, 'jwks, no privilege: 77');
like($err, qr/keyright_grant\('client', role\)/, '... and which level helps');
($status, $out, $err) = keyright('jwks', '--dsn', 'user=no_such_role');
is($status, 77, 'jwks, no such role: 77');
like($err, qr/FATAL:  role "no_such_role" does not exist$/m,
	'... without what only developers want to see');
is((keyright('jwks', '--dsn', "host=/nowhere,/elsewhere port=5"))[2],
	'keyright: ' . join('; ', map {
		"connection to server on socket \"$_/.s.PGSQL.5\" failed: "
		  . 'No such file or directory' } qw(/nowhere /elsewhere)) . "\n",
	'jwks, several hosts: what each of them said');
($status, $out, $err) = keyright('jwks', '--dsn', 'dbname=template1');
is($status, 77, 'jwks, a database without keyright: 77');
($status, $out, $err) = keyright('jwks', 'more');
is($status, 64, 'jwks, wrong use: 64');
like($err, qr/^keyright: there is nothing to do with "more"$/m, '... and why');
# The server's key is that of other files too: here another speaks for it.
sql('CREATE SCHEMA keyless');
sql('CREATE FUNCTION keyless.keyright_jwks() RETURNS jsonb LANGUAGE plpgsql AS
	$$BEGIN
		RAISE EXCEPTION USING ERRCODE = $a$KR005$a$,
			MESSAGE = $a$keyright has no usable signing key$a$,
			DETAIL = $a$The file is away.$a$, HINT = $a$Put it back.$a$;
	END$$');
($status, $out, $err) =
  keyright('jwks', '--dsn', 'options=-csearch_path=keyless');
is($status, 76, 'jwks, the server has no key: 76');
is( $err,
	"keyright: keyright has no usable signing key (The file is away. Put it back.)\n",
	'... and all that the server says of it');
SKIP:
{
	skip 'no /dev/full', 1 unless -c '/dev/full';
	is(ends(start({}, 'sh', '-c', '"$KEYRIGHT" jwks >/dev/full')),
		74, 'jwks, the output cannot be written: 74');
}

########################################################################
# Servers that are no good, for all commands that ask one

my $socket = "$ENV{PGHOST}/.s.PGSQL.$ENV{PGPORT}";
my $rest = "user=$ENV{PGUSER} dbname=$ENV{PGDATABASE} sslmode=disable";
my $proxy = Proxy->new($socket);
my $dsn = 'host=127.0.0.1 port=' . $proxy->port . " $rest";
my %words = (
	copy_out => qr/not understood/,
	copy_in => qr/not understood/,
	copy_both => qr/not understood/,
	results => qr/not understood/,
	# What a terminal would obey is not shown.
	errors => qr/^keyright: this\?\[2J error was made up \?$/m,
	cut_reply => qr/closed the connection/);
for my $fault (sort keys %words)
{
	for my $command ('jwks', 'status')
	{
		$proxy->does($fault, 1);
		$program = start({}, $ENV{KEYRIGHT}, $command, '--dsn', $dsn);
		is(ends($program, 25), 69, "$command, $fault: 69")
		  or kill 'KILL', $program->{pid};
		like($program->{err}->(), $words{$fault}, '... and why');
		$proxy->does('pass');
	}
}
# It ends while the rest goes on.
$proxy->does('drop_replies', 1);
my $patient = start({}, $ENV{KEYRIGHT}, 'jwks', '--dsn', $dsn);
my $began = time();

my $silent = Proxy->new($socket);
$silent->does('silence');
my ($folder, $number) = $socket =~ m{(.*)/\.s\.PGSQL\.(\d+)};
$dsn = "host=127.0.0.1,$folder port=" . $silent->port . ",$number $rest";
for my $command ('jwks', 'status')
{
	is((keyright($command, '--dsn', "$dsn connect_timeout=2"))[0],
		0, "$command: behind a host that is silent there is another");
	ok(scalar $silent->log('connect'), '... which came first');
}
is(ends(start({}, $ENV{KEYRIGHT}, 'jwks', '--dsn', $dsn)),
	0, '... without a limit that was asked for, too');
($status, $out, $err) = keyright('status', '--dsn', 'nonsense');
is($status, 64, 'status, no connection string: 64');
like($err, qr/^keyright: --dsn: missing "="/, '... and which option it is');
{
	local $ENV{PGPORT} = '1,2,3';
	local $ENV{PGHOST} = '/a,/b';
	is((keyright('status'))[0],
		78, 'status, variables that do not fit together: 78');
}
for my $bad ([ PGCONNECT_TIMEOUT => 'soon', qr/"soon"/ ],
	[ PGSERVICE => 'nosuch', qr/service "nosuch"|service file/ ],
	[ PGPORT => 'abc', qr/"abc"/ ], [ PGSSLMODE => 'bogus', qr/"bogus"/ ],
	[ PGHOSTADDR => 'nowhere', qr/"nowhere"/ ])
{
	my ($name, $value, $pattern) = @$bad;
	local $ENV{$name} = $value;
	($status, $out, $err) = keyright('jwks', '--dsn', 'application_name=it');
	is($status, 78, "$name=$value: 78, beside a --dsn, too");
	like($err, qr/^keyright: the PG\* variables are not right: .*$pattern/,
		'... and what is wrong');
}
($status, $out, $err) = keyright('jwks', '--dsn', 'sslmode=bogus');
is($status, 64, 'a --dsn that libpq would refuse only later: 64');
like($err, qr/^keyright: --dsn: .*"bogus"/, '... and what is wrong');
# A service can have more than one server, which are libpq's to choose from.
{
	local $ENV{PGSERVICEFILE} = file_of("[two]\nhost=/nowhere,$folder\n"
		  . "port=1,$number\nuser=$ENV{PGUSER}\ndbname=$ENV{PGDATABASE}\n");
	is((keyright('status', '--dsn', 'service=two'))[0],
		0, 'a service of several hosts');
	local $ENV{PGSERVICE} = 'two';
	is((keyright('status'))[0], 0, '... by the variable, too');
}

########################################################################
# status

($status, $out, $err) = keyright('status');
is("$status $out", "0 no licenses\n", 'status without a license');

add_license('acme', 3, 3600);
add_license('full', 1, 3600);
add_license('later', 1, 60);
sql("UPDATE keyright.license SET valid_from = now() + interval '1 day'
	WHERE license_id = 'later'");
# U+009B begins a command to a terminal.
sql("SELECT 1 FROM keyright_checkout('acme', U&'z\\00F6e \\009B31m')");
sql("SELECT 1 FROM keyright_checkout('full', 'bob')");

my $utf8 = { env => { LC_ALL => 'C.UTF-8' } };
$program = start($utf8, $ENV{KEYRIGHT}, 'status');
is(ends($program), 0, 'status: 0');
$out = Encode::decode('UTF-8', $program->{out}->());
like(
	$out,
	qr/^LICENSE  SEATS  LIVE  FREE  STATE          NEXT FREE
acme         3     1     2  open           -
full         1     1     0  full           in (?:1 h|59 min(?: \d+ s)?)(?: 1 min)?
later        1     0     1  not yet valid  -

LICENSE  SLOT  HOLDER    SINCE                LAST BEAT  ENDS +STATE
acme +1  z\x{f6}e \?31m  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  \d+ s ago +in .*  live
full +1  bob       \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  \d+ s ago +in .*  live
\z/,
	'... tables whose columns are aligned, with nothing that bends a terminal');

# A holder who came half a second ago did not come in the future.
my @since = $out =~ /(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)/g;
my @came = split /\n/, sql("SELECT floor(extract(epoch FROM since))
	FROM keyright.holders ORDER BY license_id");
is_deeply(\@since,
	[ map { POSIX::strftime('%F %T', localtime $_) } @came ],
	'... and the seconds in which the holders came');

($status, $out) = keyright('status', '--license', 'full');
like($out, qr/^full/m, 'status of one license');
unlike($out, qr/acme|later/, '... only');
($status, $out) = keyright('status', '--license', 'later');
like($out, qr/\nnobody holds a seat\n\z/, 'status without a holder');
($status, $out, $err) = keyright('status', '--license', 'nosuch');
is($status, 77, 'status of a license that is none: 77');
is($err, qq(keyright: license "nosuch" does not exist\n), '... and why');

($status, $out) = keyright('status', '--json');
is($status, 0, 'status --json: 0');
like($out, qr/^\{[^\n]*\}\n\z/, '... one line');
my $json = JSON::PP::decode_json($out);
is_deeply([ map { $_->{license_id} } @{ $json->{pools} } ],
	[qw(acme full later)], '... the pools');
is_deeply([ map { "$_->{license_id} $_->{slot} $_->{state}" }
		@{ $json->{holders} } ],
	[ 'acme 1 live', 'full 1 live' ], '... the holders');
unlike($out, qr/seat_id/, '... and no seat id');
$json = JSON::PP::decode_json(
	(keyright('status', '--json', '--license', 'later'))[1]);
is(scalar @{ $json->{pools} }, 1, '... of one license');
is_deeply($json->{holders}, [], '... without holders');
is((keyright('status', '--json', '--license', 'nosuch'))[0],
	77, '... of none: 77');

($status, $out, $err) = keyright('status', '--dsn', 'user=nobody_much');
is($status, 77, 'status, no privilege: 77');
like($err, qr/keyright_grant\('monitor', role\)/, '... and which level helps');
sql("SELECT keyright_grant('monitor', 'nobody_much')");
is((keyright('status', '--dsn', 'user=nobody_much'))[0],
	0, '... the level "monitor" is enough');
is((keyright('status', '--dsn', "host=$dir"))[0],
	69, 'status, no server: 69');
is((keyright('status', 'acme'))[0], 64, 'status, wrong use: 64');
is((keyright('status', '--watch', 'often'))[0],
	64, 'status, no length of time: 64');
for my $length ('0', '999ms')
{
	($status, $out, $err) = keyright('status', '--watch', $length);
	is($status, 64, "status --watch, less than a second, $length: 64");
	like($err, qr/^keyright: --watch: "$length" is too short/, '... and why');
}
for my $length ('36526d', '3155760001s', '9223372036854775807ms', '1' x 30)
{
	is((keyright('status', '--watch', $length))[0],
		64, "status, a length that is too long, $length: 64");
}
is((keyright('status', '--watch', '--dsn', "host=$dir"))[0],
	69, 'status --watch, no server from the beginning: 69');

for my $watch ([ '--watch', '1s' ], ['--watch=1000ms'])
{
	$program = start({}, $ENV{KEYRIGHT}, 'status', '--json', @$watch);
	eventually("status --json @$watch: line after line",
		sub { (() = $program->{out}->() =~ /\n/g) >= 3 });
	kill 'INT', $program->{pid};
	is(ends($program), -2, '... until it is interrupted');
}
$program = start({}, $ENV{KEYRIGHT}, 'status', '--watch', '1', '--dsn',
	'user=nobody_much');
eventually('status --watch: table after table',
	sub { (() = $program->{out}->() =~ /^LICENSE  SEATS/mg) >= 2 });
unlike($program->{out}->(), qr/\e/, '... no terminal, no codes for one');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE usename = 'nobody_much'");
my $seen = () = $program->{out}->() =~ /^LICENSE  SEATS/mg;
eventually('... and goes on when the server was away',
	sub { (() = $program->{out}->() =~ /^LICENSE  SEATS/mg) >= $seen + 2 });
kill 'TERM', $program->{pid};
ends($program);

########################################################################
# verify

my $token = sql("SELECT token FROM keyright_checkout('acme', 'eve')");
my $token_file = file_of("$token\n");
my $head = qr/^valid\nlicense  acme\nholder   eve\nslot     2\n/;
my @keys = ('--jwks', $jwks);

($status, $out, $err) = keyright('verify', $token_file, @keys);
is($status, 0, 'verify, a good token: 0');
like($out, $head, '... and its claims');
like($out, qr/^expires  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}$/m,
	'... with its end');
is(ends(start({ in => $token }, $ENV{KEYRIGHT}, 'verify', '-', @keys)),
	0, '... from standard input, without a line end');
$json = JSON::PP::decode_json(
	(keyright('verify', '--json', @keys, $token_file))[1]);
my $row = JSON::PP::decode_json(
	sql("SELECT to_json(v) FROM keyright_verify('$token') v"));
is_deeply([ @$json{qw(status problem kid issuer license_id holder slot)} ],
	[ @$row{qw(status problem kid issuer license_id holder slot)} ],
	'... --json says what keyright_verify() says');

my $short = file_of(
	sql("SELECT token FROM keyright_checkout('acme', 'x', '1 s')"));
add_license('bent', 1, 60);
my $bent = file_of(sql(q(SELECT token FROM keyright_checkout('bent',
	U&'a\009b31m'))));
($status, $out) = keyright('verify', $bent, @keys);
is($status, 0, 'verify, a holder who would bend the terminal: 0');
like($out, qr/^holder   a \?31m$/m, '... but does not');

eventually('verify, an expired token: 3',
	sub { (keyright('verify', $short, @keys))[0] == 3 });
like((keyright('verify', $short, @keys))[1],
	qr/^expired.*^holder   x$/ms, '... and its claims');
$json = JSON::PP::decode_json((keyright('verify', '--json', $short, @keys))[1]);
is("$json->{status} $json->{slot}", 'expired 3', '... in JSON, too');

sub not_good
{
	my ($wanted, $word, $token, @keys) = @_;
	my $file = file_of($token);
	my ($status, $out) = keyright('verify', $file, @keys);
	is($status, $wanted, "verify, $word: $wanted");
	like($out, qr/^\Q$word\E: .+\n\z/, '... and why, without claims');
	($status, $out) = keyright('verify', '--json', $file, @keys);
	is($status, $wanted, '... with --json too');
	my $json = JSON::PP::decode_json($out);
	is($json->{status}, $word, '... which says so');
	ok(!exists $json->{holder}, '... without claims');
	return;
}

my ($header, $claims, $signature) = split /\./, $token;
# the first character: all its bits count
(my $forged = $signature) =~ s/^(.)/$1 eq 'A' ? 'B' : 'A'/e;
not_good(4, 'malformed', 'nonsense', @keys);
not_good(4, 'malformed', '', @keys);
like((keyright('verify', file_of("\n"), @keys))[1],
	qr/^malformed: it is empty: was a seat granted\?$/, '... an empty file');
not_good(4, 'malformed', "$token ", @keys);
not_good(6, 'bad_signature', "$header.$claims.$forged", @keys);
my $other = file_of((keyright('keygen', "$dir/other.key"))[1]);
not_good(5, 'unknown_key', $token, '--jwks', $other);

is((keyright('verify', "$dir/missing", @keys))[0],
	66, 'verify, no such file: 66');
($status, $out, $err) = keyright('verify', $token, @keys);
is($status, 66, 'verify, a token for the name of its file: 66');
unlike("$out$err", qr/\Q$claims\E/, '... which is not shown');
is((keyright('verify', $token_file, '--jwks', "$dir/missing"))[0],
	78, 'verify, no file of keys: 78, as of run');
is((keyright('verify', $token_file, '--jwks', file_of('nonsense')))[0],
	78, 'verify, no JWK Set: 78');
($status, $out, $err) = keyright('verify', $token_file, '--jwks',
	"$dir/other.key");
is($status, 78, 'verify, a signing key for a JWK Set: 78');
like($err, qr/is a signing key.*keygen --public/, '... and what to do');
is((keyright('verify', $token_file))[0], 64, 'verify, no --jwks: 64');
($status, $out, $err) = keyright('verify', @keys);
is($status, 64, 'verify, no token: 64');
like($err, qr/^keyright: the token is missing/, '... and why');
($status, $out, $err) = keyright('verify', @keys, $token_file, 'more');
is($status, 64, 'verify, a word too many: 64');
like($err, qr/^keyright: there is nothing to do with "more"$/m, '... and why');
is((keyright('verify', '-', '--jwks', '-'))[0],
	64, 'verify, both from standard input: 64');

########################################################################
# keygen

my $key = "$dir/new.key";
my $umask = umask 0;
($status, $out, $err) = keyright('keygen', $key);
umask $umask;
is("$status $err", '0 ', 'keygen: 0, quietly');
is((stat $key)[2] & 07777, 0600, '... the file is private, umask or not');
like(slurp($key), qr/^[A-Za-z0-9+\/]{43}=\n\z/, '... and holds a seed');
my $new = JSON::PP::decode_json($out);
is(scalar @{ $new->{keys} }, 1, '... the public half is printed');
unlike($out, qr/"d"/, '... and no more');
is((keyright('keygen', '--public', $key))[1],
	$out, '... and once more from the file');
is((keyright('keygen', '--public', '--x', $key))[1],
	"$new->{keys}[0]{x}\n", '... the "x" alone');

my $before = slurp($key);
($status, $out, $err) = keyright('keygen', $key);
is($status, 73, 'keygen, the file is there: 73');
like($err, qr/ is there already, .*never overwritten/, '... and why');
is(slurp($key), $before, '... and is not touched');
symlink "$dir/elsewhere", "$dir/link" or die;
is((keyright('keygen', "$dir/link"))[0], 73, 'keygen, a link to nowhere: 73');
ok(!-e "$dir/elsewhere", '... leads nowhere still');
is((keyright('keygen', "$dir/none/new.key"))[0],
	73, 'keygen, no such folder: 73');
is((keyright('keygen', '--public', "$dir/missing"))[0],
	66, 'keygen --public, no such file: 66');
is((keyright('keygen', '--public', $token_file))[0],
	65, 'keygen --public, no key file: 65');
($status, $out, $err) = keyright('keygen', '-');
is($status, 64, 'keygen, to standard output: 64');
ok(!-e '-', '... nor is there a file of that name');
($status, $out, $err) = keyright('keygen', 'a', 'b');
is($status, 64, 'keygen, wrong use: 64');
like($err, qr/^keyright: there is nothing to do with "b"$/m, '... and why');

# The server's own key is read as well; and the server takes the "x".
my $server_key = sql('SHOW keyright.signing_key_file');
is_deeply(
	JSON::PP::decode_json((keyright('keygen', '--public', $server_key))[1]),
	JSON::PP::decode_json(slurp($jwks)),
	"keygen --public of the server's key is what the server publishes");
sql("ALTER SYSTEM SET keyright.retired_keys = '$new->{keys}[0]{x}'");
sql('SELECT pg_reload_conf()');
eventually('the server publishes an "x" of keygen as a retired key', sub {
	(keyright('jwks'))[1] =~ /\Q$new->{keys}[0]{kid}\E/;
});
sql('ALTER SYSTEM RESET keyright.retired_keys');
sql('SELECT pg_reload_conf()');

# What is closed is not written to; nor does a file that is opened later get
# what was meant for it.
for my $closed ('>&-', '<&- >&-', '>&- 2>&-')
{
	my $name = "$dir/closed" . length $closed;
	is(ends(start({}, 'sh', '-c', "exec \"\$0\" \"\$\@\" $closed",
				$ENV{KEYRIGHT}, 'keygen', $name)),
		74, "keygen, $closed: 74");
	like(slurp($name), qr/^[A-Za-z0-9+\/]{43}=\n\z/, '... the key is whole');
}

########################################################################
# Help, manual, completion

($status, $out, $err) = keyright('--version');
like($out, qr/^keyright \d+\.\d+\.\d+\n\z/, '--version');
is((keyright('-V'))[1], $out, '... and -V');
($status, $out, $err) = keyright('--help');
is("$status $err", '0 ', '--help: 0');
for my $command (qw(run status verify keygen jwks))
{
	like($out, qr/^  $command /m, "... names $command");
	my ($status, $help, $err) = keyright($command, '--help');
	is("$status $err", '0 ', "$command --help: 0");
	like($help, qr/^usage: keyright $command /, '... and how to use it');
	is((keyright('help', $command))[1], $help, "... as help $command says");
	is(scalar(grep { length > 78 } split /\n/, $help),
		0, '... in lines that fit');
}
is((keyright())[0], 64, 'no command: 64');
is((keyright('nonsense'))[0], 64, 'a command that is none: 64');
is((keyright('help', 'nonsense'))[0], 64, '... nor is there help for it: 64');

my $page = "$ENV{KEYRIGHT_ROOT}/usr/share/man/man1/keyright.1";
ok(-s $page, 'the manual page is installed');
SKIP:
{
	skip 'no groff', 1 unless grep { -x "$_/groff" } split /:/, $ENV{PATH};
	is(`groff -mdoc -ww -z '$page' 2>&1`, '', '... and is well-formed');
}
my $manual = slurp($page);
for my $command (qw(run status verify keygen jwks))
{
	my $help = (keyright($command, '--help'))[1];
	for my $option ($help =~ /^  (?:-\w, )?--(\w[\w-]*)/mg)
	{
		next if $option eq 'help';
		like($manual, qr/-\Q$option\E\b/, "... and knows --$option");
	}
}

my $completion =
  "$ENV{KEYRIGHT_ROOT}/usr/share/bash-completion/completions/keyright";

sub completed
{
	my (@words) = @_;
	my $script = 'source "$1"; shift; COMP_WORDS=("$@");'
	  . ' COMP_CWORD=$(($# - 1)); _keyright; printf "%s " "${COMPREPLY[@]}"';
	open my $bash, '-|', 'bash', '-c', $script, 'bash', $completion,
	  'keyright', @words
	  or die;
	local $/;
	return <$bash>;
}
mkdir "$dir/bin" or die;
close(do { open my $f, '>', "$dir/bin/keyright-only-here" or die; $f });
chmod 0755, "$dir/bin/keyright-only-here";
$ENV{PATH} .= ":$dir/bin";
is(completed('st'), 'status ', 'completion: a command');
is(completed('help', 'ver'), 'verify ', '... after help, too');
is(completed('run', '--li'), '--license ', '... an option');
is(completed('run', '--on-lost', ''), 'stop warn ', '... its values');
is(completed('run', '--license', 'acme', '--', 'keyright-only'),
	'keyright-only-here ', '... a program to run');
for my $command (qw(run status verify keygen jwks))
{
	my $help = (keyright($command, '--help'))[1];
	my %known = map { $_ => 1 } split / /, completed($command, '--');
	my @missing = grep { !$known{$_} } $help =~ /^  (?:-\w, )?(--\w[\w-]*)/mg;
	is("@missing", '', "... all options of $command");
}

########################################################################
# The end of patience

is(ends($patient, 90), 69, 'jwks, no answer: 69');
cmp_ok(time() - $began, '>', 20, '... after patience');
like($patient->{err}->(), qr/in time/, '... and why');

done_testing();
