# The promise: silence ends no lease before its signed end, an answer acts at
# once, and after either the client goes on by itself; what doc/client.md says
# of every failure is what happens.
#
# How: the table in doc/client.md is the expectation.  Each of its rows is
# brought about against a seat that is held, by its real cause on a real server
# where there is one, else by the proxy.  What is silence is mended once before
# the end of the lease, and once after it.  Beside each holder a "keyright run"
# shows what it ends with.  All rows happen at once.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Cli;
use Holder;
use IO::Socket::INET;
use Proxy;
use Server;
use Test::More;
use Time::HiRes qw(sleep);

my $ttl = 10;
# What a busy machine may add to a time.
my $slack = 4;

########################################################################
# The table

my %row;
my $document = slurp("$FindBin::RealBin/../../doc/client.md");
my ($section) = $document =~ /^## Every failure.*?\n(.*?)^## /ms
  or die 'doc/client.md has no such section';
for my $line (grep { /^\|/ } split /\n/, $section)
{
	my ($name, @columns) = map { s/`//gr } $line =~ /\| *(.*?) *(?=\|)/g;
	next if $name =~ /^-|^what happens$/;
	@{ $row{$name} }{qw(error sqlstate state seat exit)} = @columns;
}

########################################################################
# Servers

sub free_port
{
	my $socket = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1',
		Proto => 'tcp',
		Listen => 1) or die "no port: $!";
	return $socket->sockport;
}

my $port = free_port();
my %server = (
	main => Server->new('main', "port=$port", 'listen_addresses=127.0.0.1',
		'keyright.lock_timeout=300ms', 'keyright.max_lock_hold=10min'),
	key1 => Server->new('key1'),
	key2 => Server->new('key2'),
	full => Server->new('full', 'max_connections=12', 'max_wal_senders=0'),
	down => Server->new('down'));
my $main = $server{main};
$_->sql('CREATE ROLE filler LOGIN') for values %server;
my %keys = map { $_ => file_of($server{$_}->sql('SELECT keyright_jwks()')) }
  keys %server;

# TLS: two certificates, one of which the client knows.
my $data = $main->folder . '/data';
for my $name (qw(known strange))
{
	system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$name"
		. " -keyout $dir/$name.key -out $dir/$name.crt 2>$dir/openssl.log") == 0
	  or BAIL_OUT('openssl failed: ' . slurp("$dir/openssl.log"));
}

# In place: whose file it is stays.
sub overwrite
{
	my ($file, $text) = @_;
	if (!-e $file)
	{
		system('install', '-m', '600', '-o', (stat $data)[4], '/dev/null',
			$file) == 0
		  or die;
	}
	open my $out, '>', $file or die "could not write $file: $!";
	print $out $text;
	close $out or die;
	return;
}

sub show_certificate
{
	my ($name) = @_;
	overwrite("$data/server.$_", slurp("$dir/$name.$_")) for qw(key crt);
	$main->reload;
	return;
}

# A reload takes effect some time after it was asked for.  Whoever connects
# before that has what was there, and keeps it.
sub can_log_in
{
	my ($dsn) = @_;
	return ends(start({}, 'psql', '-XAtqc', 'SELECT 1', '-d',
		"host=127.0.0.1 port=$port dbname=postgres gssencmode=disable $dsn"))
	  == 0;
}

show_certificate('known');
$main->sql("ALTER SYSTEM SET ssl = on");
$main->reload;

my $hba = slurp("$data/pg_hba.conf");
my %rules;

sub log_in_by
{
	my ($role, $rule) = @_;
	$rules{$role} = $rule;
	overwrite("$data/pg_hba.conf",
		join('', map { "$_\n" } grep { defined } values %rules) . $hba);
	$main->reload;
	return;
}

########################################################################
# The cases

my @cases;

# break and mend are done to the case; without them the proxy does the fault.
sub add_case
{
	my ($name, %case) = @_;
	my $number = @cases + 1;
	my $c = {
		name => $name,
		server => 'main',
		database => 'postgres',
		role => "role$number",
		license => "license$number",
		%case
	};
	push @cases, $c;
	return;
}

sub fault
{
	my ($name, @fault) = @_;
	add_case($name, break => sub { $_[0]{proxy}->does(@fault) });
	return;
}

# A statement: both lists may name %l, the license, %r, the role.
sub statements
{
	my ($name, $break, $mend, %more) = @_;
	my $do = sub {
		my ($c, $statement) = @_;
		my $database = $c->{admin_database} // $c->{database};
		$c->{proxy}->does('hold') if $c->{admin_database};
		$statement =~ s/%l/$c->{license}/g;
		$statement =~ s/%r/$c->{role}/g;
		$statement =~ s/%d/$c->{database}/g;
		$server{ $c->{server} }->sql($statement, $database);
		$c->{proxy}->does('close');
		$c->{proxy}->does('pass');
	};
	add_case(
		$name,
		break => sub { $do->($_[0], $break) },
		mend => sub { $do->($_[0], $mend) if $mend },
		%more);
	return;
}

# Silence.

fault('the connection is refused', 'refuse');
fault('a connection is accepted, then nothing', 'silence');
fault('questions get lost', 'drop_requests');
fault('answers get lost', 'drop_replies');
fault('a connection ends amid an answer', 'cut_reply');
fault('one direction is closed', 'half_close');
fault('garbage comes back', 'garble');
fault('an administrator ends the connection', 'answer', '57P01');
fault('serialization failure', 'answer', '40001');
fault('internal error', 'answer', 'XX000');

add_case(
	'the server speaks no TLS',
	dsn => 'sslmode=require',
	break => sub { $_[0]{proxy}->does('no_tls') });
add_case(
	"the server's certificate is unknown",
	dsn => "sslmode=verify-ca sslrootcert=$dir/known.crt",
	break => sub {
		show_certificate('strange');
		eventually('another certificate is shown', sub {
			can_log_in("user=postgres sslmode=verify-ca "
				  . "sslrootcert=$dir/strange.crt");
		});
		$_[0]{proxy}->does('close');
	},
	mend => sub { show_certificate('known') });

statements('the server is read only',
	'ALTER ROLE %r SET default_transaction_read_only = on',
	'ALTER ROLE %r RESET default_transaction_read_only',
	dsn => 'sslmode=disable target_session_attrs=any');
statements('too many connections of the role',
	'ALTER ROLE %r CONNECTION LIMIT 0', 'ALTER ROLE %r CONNECTION LIMIT -1');

# The row of the seat, for the heartbeat, and the license, for the check-out.
add_case(
	'a lock is not to be had',
	break => sub {
		my ($c) = @_;
		$c->{locker} = start({ env => {
				PGHOST => $main->folder . '/socket',
				PGPORT => $port,
				PGDATABASE => 'postgres',
				PGUSER => 'postgres' } },
			'psql', '-XAtq', '-c', 'BEGIN', '-c', "
			SELECT status FROM keyright_checkout('$c->{license}', 'locker')",
			'-c', "SELECT FROM keyright.seat WHERE license = (
			SELECT id FROM keyright.license
			WHERE license_id = '$c->{license}') FOR UPDATE", '-c',
			"SELECT 'locked'", '-c', 'SELECT pg_sleep(1000)');
		eventually('a lock is taken',
			sub { $c->{locker}{out}->() =~ /locked/ });
	},
	mend => sub {
		my ($c) = @_;
		kill 'TERM', $c->{locker}{pid};
		ends($c->{locker});
		$main->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE query LIKE '%pg_sleep(1000)' AND pid <> pg_backend_pid()");
	});

add_case(
	'the server is full',
	server => 'full',
	break => sub {
		my ($c) = @_;
		# Once more, for the places of those who were thrown out.
		for my $order (qw(hold pass))
		{
			eventually('the server is full', sub {
				my $session = $server{full}->session('filler');
				push @{ $c->{sessions} }, $session if $session;
				return !$session;
			});
			$c->{proxy}->does($order);
		}
	},
	mend => sub { $_[0]{sessions} = [] });

# One session keeps it from ending.
add_case(
	'the server is shutting down',
	server => 'down',
	break => sub {
		my ($c) = @_;
		my $server = $server{down};
		$c->{session} = $server->session('filler');
		my ($pid) = slurp($server->folder . '/data/postmaster.pid') =~ /(\d+)/;
		kill 'TERM', $pid;
		eventually('the server is shutting down',
			sub { !$server->session('filler') });
		$c->{proxy}->does('close');
	},
	mend => sub {
		my ($c) = @_;
		delete $c->{session};
		$c->{proxy}->does('refuse');
		eventually('the server is down',
			sub { !-e $server{down}->folder . '/data/postmaster.pid' });
		$server{down}->start;
		$c->{proxy}->does('pass');
	});

# Answers without the signature.

fault('a signature is wrong', 'forge');
my $key_file = file_of((keyright('keygen', "$dir/other.key"))[1]);
for my $case ([ 'another key has signed', 'key1', slurp("$dir/other.key") ],
	[ 'the server has no usable key', 'key2', 'nonsense' ])
{
	my ($name, $server, $text) = @$case;
	my $file = $server{$server}->folder . '/data/signing.key';
	my $good = slurp($file);
	my $use = sub {
		overwrite($file, $_[0]);
		$server{$server}->reload;
		sleep 0.3;
	};
	add_case(
		$name,
		server => $server,
		break => sub { $use->($text) },
		mend => sub { $use->($good) });
}

# Answers.

add_case(
	'the password is wrong',
	dsn => 'sslmode=disable password=right',
	prepare => sub {
		my ($c) = @_;
		$main->sql("ALTER ROLE $c->{role} PASSWORD 'right'");
		log_in_by($c->{role}, "host all $c->{role} 127.0.0.1/32 scram-sha-256");
	},
	break => sub {
		my ($c) = @_;
		$main->sql("ALTER ROLE $c->{role} PASSWORD 'changed'");
		$c->{proxy}->does('close');
	},
	mend => sub { $main->sql("ALTER ROLE $_[0]{role} PASSWORD 'right'") });
add_case(
	'the server demands TLS',
	break => sub {
		my ($c) = @_;
		log_in_by($c->{role}, "hostnossl all $c->{role} 127.0.0.1/32 reject");
		eventually('no TLS, no login',
			sub { !can_log_in("user=$c->{role} sslmode=disable") });
		$c->{proxy}->does('close');
	},
	mend => sub { log_in_by($_[0]{role}, undef) });
statements('the database is gone',
	'ALTER DATABASE %d RENAME TO moved', 'ALTER DATABASE moved RENAME TO %d',
	database => 'moving', admin_database => 'postgres');
statements('the role may not ask',
	'REVOKE client_level FROM %r', 'GRANT client_level TO %r');
statements('keyright is missing',
	'DROP EXTENSION keyright CASCADE',
	"CREATE EXTENSION keyright; SELECT keyright_grant('client', 'client_level');
	INSERT INTO keyright.license (license_id, seat_count, ttl, skew, reap_grace)
	VALUES ('%l', 3, '$ttl s', '1 s', '3 s')",
	database => 'bare');
statements('the license is unknown',
	"SELECT keyright_delete_license('%l', true)",
	"INSERT INTO keyright.license (license_id, seat_count, ttl, skew, reap_grace)
	VALUES ('%l', 3, '$ttl s', '1 s', '3 s')");
my $change = 'UPDATE keyright.license SET %s WHERE license_id = $$%%l$$';
statements('the license is suspended',
	map { sprintf $change, "suspended = $_" } qw(true false));
statements('the license is not valid yet',
	map { sprintf $change, "valid_from = $_" } q('2100-01-01'), 'NULL');
statements('the license is over',
	map { sprintf $change, "valid_until = $_" } q('2001-01-01'), 'NULL');

my $seats = 'FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
	WHERE license_id = $$%l$$ AND seat_id IS NOT NULL';
my $lapse = 'UPDATE keyright.seat SET checked_out_at = at, issued_at = at,
	expires_at = at FROM (SELECT date_trunc($$second$$, now()) - $$1 h$$::interval
	AS at) x WHERE license = (SELECT id FROM keyright.license
	WHERE license_id = $$%l$$) AND seat_id IS NOT NULL';
statements('seat_lost: expired', $lapse, '');
statements('seat_lost: unknown',
	"SELECT keyright_checkin('%l', seat_id) $seats", '');
statements('seat_lost: revoked', "SELECT keyright_revoke_all('%l')", '');
statements('seat_lost, and all seats are taken',
	"$lapse; " . sprintf($change, 'seat_count = 0'),
	sprintf($change, 'seat_count = 3'));

is(join(', ', sort map { $_->{name} } @cases),
	join(', ', sort keys %row), 'the document tells of all of them');

########################################################################
# All hold a seat

$_->sql('CREATE ROLE client_level') for values %server;
for my $database (qw(moving bare))
{
	$main->sql("CREATE DATABASE $database");
	$main->sql('CREATE EXTENSION keyright', $database);
}

# One program for each database: their start is what takes time.
my %prepare;
for my $c (@cases)
{
	$prepare{"$c->{server} $c->{database}"} .=
	  "CREATE ROLE $c->{role} LOGIN IN ROLE client_level;
	INSERT INTO keyright.license (license_id, seat_count, ttl, skew, reap_grace)
	VALUES ('$c->{license}', 3, '$ttl s', '1 s', '3 s');";
}
for my $where (sort keys %prepare)
{
	my ($server, $database) = split / /, $where;
	$server{$server}->sql($prepare{$where}
		. "SELECT keyright_grant('client', 'client_level')", $database);
}

for my $c (@cases)
{
	my $server = $server{ $c->{server} };
	my $database = $c->{database};
	$c->{prepare}->($c) if $c->{prepare};
	$c->{proxy} = Proxy->new(
		$c->{server} eq 'main' ? "127.0.0.1:$port" : $server->socket);
	my $dsn = join ' ', 'host=127.0.0.1', 'port=' . $c->{proxy}->port,
	  "user=$c->{role} dbname=$database gssencmode=disable",
	  $c->{dsn} // 'sslmode=disable';
	my $keys = $keys{ $c->{server} };
	$c->{expected} = $row{ $c->{name} };
	$c->{holder} = Holder->new($c->{license}, $dsn, jwks => $keys);
	$c->{run} = start({}, $ENV{KEYRIGHT}, 'run', '--license', $c->{license},
		'--jwks', $keys, '--dsn', $dsn, '--wait', '20s', '--regain', '5s',
		'--grace', '1s', '--', 'sh', '-c', 'echo ready; exec sleep 1000');
}
for my $c (@cases)
{
	my $held = $c->{holder}->await('held');
	eventually("$c->{name}: a seat is held",
		sub { $held && $c->{run}{out}->() =~ /ready/ })
	  or diag($c->{holder}->errors, $c->{run}{err}->());
	$c->{seat} = $c->{holder}->seat_id;
}

sub break_it
{
	my ($c) = @_;
	$c->{broken} = monotonic();
	$c->{break}->($c);
	return;
}

sub mend_it
{
	my ($c) = @_;
	$c->{mend}->($c) if $c->{mend};
	$c->{proxy}->does('pass');
	$c->{mended} = monotonic();
	return;
}

sub tells
{
	my ($c, $event) = @_;
	my $expected = $c->{expected};
	ok($event, "$c->{name}: $expected->{state}")
	  or return diag($c->{holder}->story, $c->{holder}->errors);
	is("$event->[3] $event->[4]",
		"$expected->{error} " . ($expected->{sqlstate} || '-'),
		'... because of what happened')
	  or diag($c->{holder}->errors);
	return;
}

########################################################################
# Before the end: silence, and what is not signed, take nobody's seat

my @patient = grep { $_->{expected}{seat} eq 'to its signed end' } @cases;
cmp_ok(scalar @patient, '>', 15, 'much of it is silence');
# Each is mended as soon as it was noticed, whoever comes first.
my @broken;
for my $c (@patient)
{
	break_it($c);
	push @broken, $c;
	mend_what_was_noticed();
}
my $until = monotonic() + 60;
while (@broken && monotonic() < $until)
{
	mend_what_was_noticed();
	sleep 0.05;
}

sub mend_what_was_noticed
{
	my @waiting;
	while (my $c = shift @broken)
	{
		my $event = $c->{holder}->seen($c->{expected}{state}, $c->{broken});
		if ($event)
		{
			$c->{noticed} = $event;
			mend_it($c);
		}
		else
		{
			push @waiting, $c;
		}
	}
	@broken = @waiting;
	return;
}

for my $c (@patient)
{
	my $event = $c->{noticed};
	tells($c, $event);
	cmp_ok($event ? $event->[5] : 0, '>', 0, '... the seat is still held');
}
for my $c (@patient)
{
	ok($c->{holder}->await('held', $c->{broken}, 20), "$c->{name}: held again")
	  or diag($c->{holder}->story, $c->{holder}->errors,
		map { "@$_\n" } $c->{proxy}->log);
	is($c->{holder}->seat_id, $c->{seat}, '... it is the same seat');
	unlike($c->{holder}->story, qr/lost|regained/, '... it was never lost');
	ok(!has_ended($c->{run}), '... and the command runs');
}

########################################################################
# To the end, and beyond

my @sudden = grep { $_->{expected}{seat} ne 'to its signed end' } @cases;
break_it($_) for @sudden;
for my $c (@sudden)
{
	my $event = $c->{holder}->await($c->{expected}{state}, $c->{broken});
	tells($c, $event);
	next unless $event;
	is($event->[5], 0, '... the seat is over');
	# On a busy machine a first question may not be answered in time.
	my ($first) = $c->{holder}->lines('event', $c->{broken});
	ok($first->[1] == $event->[1] || $first->[3] eq 'unreachable',
		'... and did not have to lapse')
	  or diag(map { "@$_\n" } $c->{holder}->lines('event'));
}

for my $c (@patient)
{
	break_it($c);
	# Of silence nobody can say how much of it there will be.
	$c->{end} = $c->{holder}->may_run_until;
}
for my $c (@patient)
{
	my $lost = $c->{holder}->await('lost', $c->{broken});
	ok($lost, "$c->{name}: lost in the end")
	  or diag($c->{holder}->story);
	my $after = $lost ? $lost->[1] - $c->{end} : 999;
	cmp_ok($after, '>', -0.3, '... not before the end that was signed');
	cmp_ok($after, '<', $slack, '... nor much later');
	is($c->{holder}->may_run, 0, '... nobody may run');
}
for my $c (@cases)
{
	my $exit = $c->{expected}{exit};
	if ($exit eq 'goes on')
	{
		ok(!has_ended($c->{run}), "$c->{name}: \"keyright run\" goes on");
	}
	else
	{
		is(ends($c->{run}), $exit, "$c->{name}: \"keyright run\" ends with $exit")
		  or diag($c->{run}{err}->());
	}
}
mend_it($_) for @cases;
for my $c (@cases)
{
	if ($c->{expected}{state} eq 'revoked')
	{
		is($c->{holder}->may_run, 0, "$c->{name}: that is final");
		next;
	}
	ok($c->{holder}->await('regained', $c->{broken}),
		"$c->{name}: a seat is had again")
	  or diag($c->{holder}->story, $c->{holder}->errors);
	cmp_ok($c->{holder}->may_run, '>', 0, '... with which one may run');
}
for my $c (@cases)
{
	is($c->{holder}->quit, 'ok', "$c->{name}: the end");
	kill 'TERM', $c->{run}{pid} unless has_ended($c->{run});
	ends($c->{run});
}
for my $where (sort keys %prepare)
{
	my ($server, $database) = split / /, $where;
	is($server{$server}->sql('SELECT sum(live) FROM keyright.pools', $database),
		0, "$where: no seat is left behind");
}

done_testing();
