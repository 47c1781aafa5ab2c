# The promise: the seed that signs leases is seen by nobody who cannot read the
# server's files, and a key that cannot be used stops signing and nothing else.
#
# A server that logs everything there is to log runs through its days, first
# with the seed in postgresql.conf, then with it in a file; and then the seed is
# hunted in all that came out of it: its log, its data folder, dumps, and what
# four roles are shown through every channel that PostgreSQL has.  The hunt
# knows the seed's spellings, and proves first that it would find them.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use File::Find ();
use MIME::Base64 qw(decode_base64 encode_base64);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# With characters by which the two alphabets of base64 differ.
sub new_seed
{
	my $seed;
	do { $seed = new_key() } until $seed =~ m{^.{0,30}[+/]};
	return $seed;
}

# How the seed can be spelled.  40 characters of base64 are 30 bytes: the
# secret key of libsodium and of PKCS 8, which begin and end with the seed,
# are found by the seed's own spellings.
sub spellings
{
	my ($seed) = @_;
	my $raw = decode_base64($seed);
	my $hex = unpack 'H*', $raw;
	my $b64 = substr $seed, 0, 40;
	(my $url = $b64) =~ tr{+/}{-_};
	return (
		base64 => $b64,
		base64url => $url,
		hex => $hex,
		HEX => uc $hex,
		raw => $raw,
		# as psql, od and C would escape it
		octal => join('', map { sprintf '\\%03o', $_ } unpack 'C*', $raw),
		bytes => join(', ', unpack 'C*', $raw));
}

my $superuser = getpwuid $<;
my @hunted;

sub hunt_for { push @hunted, { spellings(@_) }; return; }

# The spellings that a text has in it.
sub found_in
{
	my ($text) = @_;
	my %found;
	for my $needles (@hunted)
	{
		$found{$_}++ for grep { index($text, $needles->{$_}) >= 0 } keys %$needles;
	}
	return join ' ', sort keys %found;
}

sub unseen_in
{
	my ($what, $text) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(found_in($text), '', "no seed in $what");
}

# All that psql says, as a role of this name, to one script or more.
sub said_to
{
	my ($node, $user, @scripts) = @_;
	local $ENV{PGOPTIONS} = '-c client_min_messages=debug5';
	my $all = '';
	for my $script (@scripts)
	{
		my ($out, $err) = ('', '');
		$node->psql(
			'postgres', $script,
			on_error_stop => 0,
			stdout => \$out,
			stderr => \$err,
			extra_params => [ '-U', $user ]);
		$all .= "$out\n$err\n";
	}
	return $all;
}

my @roles = qw(plain client monitor reader);
my $everything = <<'END_OF_CONF';
shared_preload_libraries = 'keyright, auto_explain, pg_stat_statements'
log_statement = all
log_min_messages = debug5
log_min_error_statement = debug5
log_error_verbosity = verbose
log_duration = on
log_connections = on
log_disconnections = on
log_replication_commands = on
log_parser_stats = on
debug_print_parse = on
debug_print_rewritten = on
debug_print_plan = on
log_parameter_max_length_on_error = -1
auto_explain.log_min_duration = 0
auto_explain.log_analyze = on
auto_explain.log_verbose = on
auto_explain.log_settings = on
auto_explain.log_nested_statements = on
pg_stat_statements.track = all
track_activity_query_size = 10000
keyright.reap_interval = 1s
END_OF_CONF

# Every channel through which a server shows something of itself.
my $shown = <<'END_OF_SQL';
SHOW ALL;
SHOW keyright.signing_key;
SHOW keyright.signing_key_file;
SELECT * FROM pg_settings;
SELECT * FROM pg_show_all_settings();
SELECT current_setting('keyright.signing_key', true);
SELECT current_setting('keyright.signing_key_file', true);
SELECT * FROM pg_stat_activity;
SELECT * FROM pg_stat_statements;
SELECT * FROM pg_db_role_setting;
SELECT * FROM pg_proc WHERE probin LIKE '%keyright%';
SELECT * FROM keyright_jwks();
SELECT * FROM keyright_version();
SELECT * FROM keyright_checkout('acme', current_user);
SELECT * FROM keyright.reaper;
SELECT * FROM keyright.locks;
EXPLAIN (ANALYZE, VERBOSE, SETTINGS, BUFFERS, WAL) SELECT * FROM keyright_checkout('acme', 'x');
EXPLAIN (ANALYZE, VERBOSE, SETTINGS) SELECT keyright_jwks();
SET force_parallel_mode = on;
SET debug_parallel_query = on;
SELECT keyright_is_live(now(), '0', now()), current_setting('keyright.signing_key', true);
RESET ALL;
RESET keyright.signing_key;
DISCARD ALL;
SHOW keyright.signing_key;
SELECT pg_read_file('postgresql.conf');
SELECT * FROM pg_hba_file_rules;
SELECT * FROM pg_shmem_allocations;
SELECT * FROM pg_backend_memory_contexts;
SELECT pg_log_backend_memory_contexts(pg_backend_pid());
END_OF_SQL

# A superuser reads the server's files in many ways; these channels are no file.
my $shown_to_superuser = join "\n",
  grep { !/pg_read_file/ } split /\n/, $shown;
my $catalogs = <<'END_OF_SQL';
DO $$
DECLARE r regclass; line text;
BEGIN
	FOR r IN SELECT c.oid FROM pg_class c
		WHERE c.relkind IN ('r', 'v', 'm', 't')
		AND c.oid NOT IN ('pg_file_settings'::regclass, 'pg_statistic'::regclass)
	LOOP
		FOR line IN EXECUTE format('SELECT t::text FROM %s t', r) LOOP
			RAISE INFO '%', line;
		END LOOP;
	END LOOP;
END $$;
END_OF_SQL

# Everything that can be tried with a value; never the seed itself, which would
# then be in the log as what somebody typed.
my $decoy = new_seed();
my @attempts = map { s/DECOY/$decoy/gr } split /\n/, <<'END_OF_SQL';
SET keyright.signing_key = 'DECOY'
SELECT set_config('keyright.signing_key', 'DECOY', false)
ALTER SYSTEM SET keyright.signing_key = 'DECOY'
ALTER ROLE CURRENT_USER SET keyright.signing_key = 'DECOY'
ALTER DATABASE postgres SET keyright.signing_key = 'DECOY'
ALTER ROLE plain SET keyright.signing_key_file = '/DECOY'
SET keyright.signing_key_file = '/DECOY'
SELECT keyright_verify('DECOY', '{"keys": "DECOY"}')
END_OF_SQL

sub running { return $_[0]->safe_psql('postgres', 'SELECT 1') eq '1'; }

# Messages of the attempts: as the client is told, without what it typed.
sub attempts_are_refused
{
	my ($node) = @_;
	for my $statement (@attempts)
	{
		my ($out, $err) = ('', '');
		my $status = $node->psql(
			'postgres', "\\set VERBOSITY verbose\n$statement;",
			stdout => \$out, stderr => \$err);
		(my $name = $statement) =~ s/\Q$decoy\E/.../g;
		isnt($status, 0, "refused: $name");
		unlike("$out$err", qr/\Q$decoy\E/, 'and the answer does not quote it');
	}
	unlike(slurp_file($node->data_dir . '/postgresql.auto.conf'),
		qr/keyright/, 'nothing came into postgresql.auto.conf');
	local $ENV{PGOPTIONS} = "-c keyright.signing_key=$decoy";
	my ($out, $err) = ('', '');
	isnt($node->psql('postgres', 'SELECT 1', stdout => \$out, stderr => \$err),
		0, 'refused: PGOPTIONS');
	unlike($err, qr/\Q$decoy\E/, 'and the answer does not quote it');
	return;
}

# What the server's folder has in it, but for the file that is the seed's home.
sub data_files
{
	my ($node, @home) = @_;
	my %home = map { $_ => 1 } @home;
	my ($all, $files) = ('', 0);
	File::Find::find(
		{
			no_chdir => 1,
			wanted => sub {
				return if !-f $_ || $home{$_};
				$files++;
				my $found = found_in(scalar slurp_file($_));
				$all .= "$_: $found\n" if $found ne '';
			}
		},
		$node->basedir);
	return ($all, $files);
}

# The command lines and environments of the server's processes.
sub processes
{
	my ($node) = @_;
	my $pid = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
	my $all = '';
	for my $dir (glob '/proc/[0-9]*')
	{
		my $parent = eval { slurp_file("$dir/stat") } // next;
		next unless $parent =~ /^$pid / || $parent =~ /^\d+ \(.*\) \S $pid /;
		$all .= (eval { slurp_file("$dir/$_") } // '') for qw(cmdline environ);
	}
	return $all;
}

sub dumps
{
	my ($node) = @_;
	my $all = '';
	for my $command ([ 'pg_dumpall' ], [ 'pg_dump', 'postgres' ],
		[ 'pg_dump', '-Fc', 'postgres' ])
	{
		my ($out, $err) = run_command(
			[ @$command[ 0 ], '-h', $node->host, '-p', $node->port, @$command[ 1 .. $#$command ] ]);
		$all .= "$out\n$err\n";
	}
	return $all;
}

sub prepare
{
	my ($node) = @_;
	$node->safe_psql('postgres', <<'END_OF_SQL');
CREATE EXTENSION pg_stat_statements;
CREATE ROLE plain LOGIN;
CREATE ROLE client LOGIN;
CREATE ROLE monitor LOGIN IN ROLE pg_monitor;
CREATE ROLE reader LOGIN IN ROLE pg_read_all_settings, pg_read_all_data, pg_read_all_stats;
SELECT keyright_grant('client', 'client'), keyright_grant('client', 'plain'),
	keyright_grant('administrator', 'monitor'), keyright_grant('client', 'monitor'),
	keyright_grant('client', 'reader'), keyright_grant('monitor', 'reader');
END_OF_SQL
	add_license($node, 'acme', 100, ttl => '1 hour');
	return;
}

sub hunt
{
	my ($node, $where, @home) = @_;
	is(checkout($node, 'acme', 'hunter')->{status},
		'granted', "the seed $where signs");
	like(found_in(join ' ', map { slurp_file($_) } @home),
		qr/base64/, 'and the hunt knows it');

	for my $role (@roles)
	{
		my $said = said_to($node, $role, $shown, $catalogs);
		like($said, qr/keyright/, "$role was shown something");
		unseen_in("what $role can see", $said);
	}
	my $said = said_to($node, $superuser, $shown_to_superuser, $catalogs);
	like($said, qr/\Q********\E/, 'a superuser is shown a constant');
	unseen_in('what a superuser can see but in files', $said);

	attempts_are_refused($node);
	unseen_in('dumps', dumps($node));
	unseen_in('command lines and environments', processes($node));

	# The statistics of statements go to a file when the server stops.
	$node->restart;
	my ($found, $files) = data_files($node, @home);
	is($found, '', 'no seed in the server\'s folder');
	cmp_ok($files, '>', 500, 'which has many files');
	my $log = slurp_file($node->logfile);
	like($log, qr/DEBUG:  /, 'the log tells everything');
	like($log, qr/Query Text/, 'auto_explain wrote to it');
	unseen_in('the log', $log);
	return;
}

# Of the server at hand: its key set and a token, seats to give back.
my ($jwks, $token, @seats);

# Calls that need no key go on; those that do say what is wrong, without
# quoting it.
sub key_is_refused
{
	my ($node, $label, $setting, $detail) = @_;
	my $seat = shift @seats;
	my ($out, $err) = ('', '');
	$node->psql(
		'postgres', <<END_OF_SQL,
\\set VERBOSITY verbose
SELECT status FROM keyright_checkout('acme', 'x');
SELECT status FROM keyright_heartbeat('acme', '$seat');
SELECT keyright_jwks();
SELECT keyright_checkin('acme', '$seat');
SELECT status FROM keyright_verify('$token', '$jwks');
SELECT status FROM keyright_verify('$token');
SELECT count(*) FROM keyright.pools;
END_OF_SQL
		on_error_stop => 0,
		stdout => \$out,
		stderr => \$err);
	is($out, "released\nvalid\nunknown_key\n1",
		"$label: check-in, verification and views go on");
	my @states = $err =~ /ERROR:  (\w{5}): /g;
	is("@states", 'KR005 KR005 KR005',
		"$label: check-out, heartbeat and the key set refuse");
	my @details = $err =~ /DETAIL:  (.*)/g;
	is(scalar(grep { /$detail/ && /"keyright\.$setting"/ } @details),
		3, "$label: they say what is wrong with $setting")
	  or diag($err);
	like($err, qr/HINT:  Make a key with "keyright keygen FILE" or "openssl/,
		"$label: and how to make a key");
	unseen_in("these messages", $err);
	return;
}

########################################################################
# The hunt finds what it should

my $seed = new_seed();
hunt_for($seed);
my $raw = decode_base64($seed);
is(found_in("x$seed"), 'base64', 'base64 would be found');
is(found_in(encode_base64($raw . 'y' x 32, '')),
	'base64', 'so would the 64 bytes of a secret key');
is(found_in(encode_base64($raw, '') =~ tr{+/}{-_}r), 'base64url', 'base64url');
is(found_in('\\x' . unpack('H*', $raw)), 'hex', 'hexadecimal digits');
is(found_in("\0$raw\0"), 'raw', 'bytes');

########################################################################
# The seed in postgresql.conf

my $node = new_node('primary', key => undef, start => 0, conf => $everything);
my $conf = $node->data_dir . '/postgresql.conf';
$node->append_conf('postgresql.conf', "keyright.signing_key = '$seed'");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION keyright');
prepare($node);

$jwks = $node->safe_psql('postgres', 'SELECT keyright_jwks()');
unlike($jwks, qr/"d"/, 'the key set has no private member');
$token = checkout($node, 'acme', 'first')->{token};

# Another seed in the file, and a reload: refused, because it takes a restart.
my $second = new_seed();
hunt_for($second);
my $log_before = log_size($node);
$node->append_conf('postgresql.conf', "keyright.signing_key = '$second'");
$node->reload;
ok( wait_until(
		'the log tells of the reload',
		sub { log_lines($node, 'parameter "keyright.signing_key" cannot be changed', $log_before) }),
	'a reload does not change the seed and says so');
is($node->safe_psql('postgres', 'SELECT keyright_jwks()'),
	$jwks, 'the first seed still signs');
for my $role (@roles)
{
	unseen_in("$role\'s view of a seed that waits for a restart",
		said_to($node, $role, $shown . "SELECT * FROM pg_file_settings;\n"));
}
hunt($node, 'in postgresql.conf', $conf);
isnt($node->safe_psql('postgres', 'SELECT keyright_jwks()'),
	$jwks, 'after the restart the second seed signs');

@seats = map { checkout($node, 'acme', "holder $_")->{seat_id} } 1 .. 20;

my $url = $second =~ tr{+/}{-_}r;
for my $bad (
	[ 'url-safe', $url ],
	[ 'without padding', $second =~ s/=//r ],
	[ 'two lines', "$second\\n$second" ],
	[ 'something behind it', "$second x" ],
	[ 'all zero', encode_base64("\0" x 32, '') ],
	[ 'no base64', 'correct horse battery staple' ],
	[ 'much too long', $second x 100 ])
{
	my ($label, $value) = @$bad;
	$node->append_conf('postgresql.conf', "keyright.signing_key = '$value'");
	$node->restart;
	key_is_refused($node, "signing_key $label", 'signing_key',
		qr/^The setting "keyright.signing_key" is not the base64 of 32 bytes\.$/);
}
$node->append_conf('postgresql.conf', "keyright.signing_key = ''");
$node->restart;
key_is_refused($node, 'no key', 'signing_key',
	qr/^Neither .* nor .* is set\.$/);

my $file = $node->basedir . '/signing.key';
write_key($node, $seed, $file);
$node->append_conf('postgresql.conf', "keyright.signing_key = '$second'");
$node->restart;
key_is_refused($node, 'a key in both places', 'signing_key', qr/^Both .* are set\.$/);

$node->append_conf('postgresql.conf', "keyright.signing_key = '  $seed\\n'\nkeyright.signing_key_file = ''");
$node->restart;
is($node->safe_psql('postgres', 'SELECT keyright_jwks()'),
	$jwks, 'white space around it does no harm');
unseen_in('the log, after all of this', slurp_file($node->logfile));

########################################################################
# The seed in a file

my $third = new_seed();
hunt_for($third);
$file = write_key($node, $third);
$node->append_conf('postgresql.conf', "keyright.signing_key = ''");
$node->restart;
($jwks, $token) = (
	$node->safe_psql('postgres', 'SELECT keyright_jwks()'),
	checkout($node, 'acme', 'second')->{token});
unlike($jwks, qr/"d"/, 'the key set has no private member');
$node->reload;
hunt($node, 'in a file', $file, $conf);
@seats = map { checkout($node, 'acme', "holder $_")->{seat_id} } 1 .. 25;

# Plans and parse trees have been seen; they cost more than all the rest.
$node->append_conf('postgresql.conf', <<'END_OF_CONF');
debug_print_parse = off
debug_print_rewritten = off
debug_print_plan = off
log_parser_stats = off
END_OF_CONF
$node->reload;

sub set_file
{
	my ($name) = @_;
	$node->append_conf('postgresql.conf', "keyright.signing_key_file = '$name'");
	return;
}

# A file of our making, with this mode.
my $made = 0;

sub make_file
{
	my ($content, $mode) = @_;
	my $name = $node->basedir . '/key' . $made++;
	open my $out, '>:raw', $name or die "could not write $name: $!";
	print $out $content;
	close $out or die "could not write $name: $!";
	chmod $mode // 0600, $name or die "chmod: $!";
	set_file($name);
	return $name;
}

# A session that lives through all of it.
my $session = $node->background_psql('postgres', on_error_stop => 0);
my $not_base64 = qr/does not hold the base64 of 32 bytes\.$/;
my $open = qr/is open to its group or to others; its mode must be 0600 or less\.$/;
# No path in it: it is not for everybody who is refused a seat.
my $no_file = qr/^The file that "keyright\.signing_key_file" names could not be opened: No such file or directory\.$/;
my $fifo = $node->basedir . '/fifo';
POSIX::mkfifo($fifo, 0600) or die "mkfifo: $!";
my $link = $node->basedir . '/link';
my $files = 0;

my @cases = (
	[ 'missing', sub { set_file('/does/not/exist') }, $no_file ],
	[ 'a relative path to nothing', sub { set_file('nothing') }, $no_file ],
	[ 'a directory', sub { set_file($node->data_dir) }, qr/is not a regular file\.$/ ],
	[ 'a FIFO', sub { set_file($fifo) }, qr/is not a regular file\.$/ ],
	[ 'a device', sub { set_file('/dev/zero') }, qr/is not a regular file\.$/ ],
	[ 'root\'s, for all to read', sub { set_file('/etc/passwd') }, $open ],
	[ 'unreadable', sub { make_file($third, 0000) },
		$< == 0 ? $not_base64 : qr/could not be opened: Permission denied\.$/ ],
	[ 'readable for the group', sub { make_file($third, 0640) }, $open ],
	[ 'readable for all', sub { make_file($third, 0604) }, $open ],
	[ 'writable for the group', sub { make_file($third, 0620) }, $open ],
	[ 'a link to one that all can read', sub {
			my $target = make_file($third, 0644);
			symlink $target, $link or die "symlink: $!";
			set_file($link);
		}, $open ],
	[ 'empty', sub { make_file('') }, $not_base64 ],
	[ 'white space', sub { make_file("\n\n  \n") }, $not_base64 ],
	[ 'all zero', sub { make_file(encode_base64("\0" x 32)) }, $not_base64 ],
	[ 'raw bytes', sub { make_file(decode_base64($third)) }, $not_base64 ],
	[ 'url-safe', sub { make_file($third =~ tr{+/}{-_}r) }, $not_base64 ],
	[ 'two keys', sub { make_file("$third\n$third\n") }, $not_base64 ],
	[ 'a key and a zero byte', sub { make_file("$third\0") }, $not_base64 ],
	[ 'PEM', sub { make_file("-----BEGIN PRIVATE KEY-----\n$third\n-----END PRIVATE KEY-----\n") }, $not_base64 ],
	[ 'too long', sub { make_file("$third\n" . "x\n" x 10000) }, $not_base64 ],
	[ 'a key, and far behind it something', sub { make_file($third . "\n" x 3000 . 'x') }, $not_base64 ]);
for my $case (@cases)
{
	my ($label, $prepare, $detail) = @$case;
	$prepare->();
	# By reload mostly; every fifth time it must also let the server start.
	if ($files++ % 5 == 0)
	{
		$session->quit;
		$node->restart;
		$session = $node->background_psql('postgres', on_error_stop => 0);
	}
	else
	{
		$node->reload;
		ok( wait_until(
				'the session learns of it',
				sub {
					$session->query("SELECT 'still a key' FROM keyright_jwks()") !~ /still a key/;
				}),
			"key file $label: a session that has signed signs no more");
	}
	key_is_refused($node, "key file $label", 'signing_key_file', $detail);

	# Mended, and taken by a reload, in the old session and in new ones.
	set_file($file);
	$node->reload;
	ok( wait_until(
			'the session learns of it',
			sub { $session->query("SELECT 'a key' FROM keyright_jwks()") =~ /a key/ }),
		"key file $label: mended without a restart");
	is(checkout($node, 'acme', 'after')->{status}, 'granted',
		"key file $label: mended for new sessions");
}

# What is right.
for my $case (
	[ 'with a line end', "$third\n", 0600 ],
	[ 'with a line end of Windows', "$third\r\n", 0600 ],
	[ 'without a line end', $third, 0600 ],
	[ 'read only', "$third\n", 0400 ])
{
	my ($label, $content, $mode) = @$case;
	make_file($content, $mode);
	$node->reload;
	is($node->safe_psql('postgres', 'SELECT keyright_jwks()'),
		$jwks, "key file $label is right");
}
unlink $link;
symlink $file, $link or die "symlink: $!";
set_file($link);
$node->reload;
is($node->safe_psql('postgres', 'SELECT keyright_jwks()'),
	$jwks, 'a link to a key file is right');

$session->quit;
unseen_in('the log, after all of this', slurp_file($node->logfile));

########################################################################
# A server that does not preload the library

$node->append_conf('postgresql.conf', <<END_OF_CONF);
shared_preload_libraries = ''
log_min_messages = warning
keyright.signing_key = '$seed'
END_OF_CONF
$node->restart;

# PostgreSQL knows nothing of the setting yet, and shows it to everybody:
# the documents warn of it.  The library does what is left to do.
my ($out, $err) = ('', '');
$node->psql(
	'postgres', <<'END_OF_SQL',
\set VERBOSITY verbose
SELECT keyright_is_live(now(), '0', now());
SHOW keyright.signing_key;
SELECT current_setting('keyright.signing_key', true) IS NULL;
SELECT status FROM keyright_checkout('acme', 'x');
SELECT status FROM keyright_heartbeat('acme', gen_random_uuid());
SELECT keyright_jwks();
SELECT keyright_checkin('acme', gen_random_uuid());
END_OF_SQL
	on_error_stop => 0,
	stdout => \$out,
	stderr => \$err);
is(join(' ', $err =~ /ERROR:  (\w{5}): /g),
	'42704 KR005 KR005 KR005', 'without preload nothing is signed, nor shown once the library is there');
like($err, qr/DETAIL:  The library keyright is not in "shared_preload_libraries"\./,
	'the errors say why');
like($err, qr/HINT:  Add keyright to "shared_preload_libraries" and restart the server\./,
	'and what to do');
is($out, "t\nt\nnot_held", 'the rest works');
unseen_in('these messages', $err);
is(sqlstate($node, "LOAD 'keyright'; SET keyright.signing_key = 'x'"),
	'42602', 'once the library is there, nobody can set it');
is(sqlstate($node, "LOAD 'keyright'; SET keyright.lock_timeout = '1h'"),
	'55P02', 'nor anything else');

# What a role sets before the library comes does not stay.
$node->psql(
	'postgres', <<'END_OF_SQL',
SET client_min_messages = error;
SET keyright.lock_timeout = '1h';
SET keyright.max_lock_hold = '1h';
SET keyright.retired_keys = 'x';
LOAD 'keyright';
SELECT current_setting('keyright.lock_timeout'), current_setting('keyright.max_lock_hold'), current_setting('keyright.retired_keys');
END_OF_SQL
	stdout => \$out);
like($out, qr/^2s\|10s\|$/m, 'what was set before the library came is gone');
is(crashes($node), 0, 'no crash');

done_testing();
