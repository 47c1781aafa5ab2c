
=pod

=head1 NAME

Keyright - what the TAP tests share

=head1 SYNOPSIS

  use strict;
  use warnings;
  use FindBin;
  use lib "$FindBin::RealBin/lib";
  use Keyright;
  use Test::More;

  my $node = new_node('primary');
  add_license($node, 'acme', 10, ttl => '2 s', skew => '1 s');
  my $lease = checkout($node, 'acme', 'alice');
  is($lease->{status}, 'granted', 'a free pool grants');

  my $sampler = start_sampler($node);
  finish_clients(start_clients($node, 50, 10, $script));
  my $seen = stop_sampler($sampler);
  is($seen->{violations}, 0, "no oversell in $seen->{samples} samples");

  is(crashes($node), 0, 'no crash');
  done_testing();

=head1 DESCRIPTION

Run by "make test SUITES=tap", which sets:

  KEYRIGHT_BINDIR         programs of a server with keyright (also in PATH)
  KEYRIGHT_NOLOCK_BINDIR  of one whose keyright takes no license lock
  KEYRIGHT_LOSEHINTS_BINDIR  of one whose keyright loses its hints at random
  KEYRIGHT_TOOLS          the load clients of test/tools (see Load.pm)
  PG_REGRESS, TESTDIR ... what PostgreSQL::Test::Cluster wants

One file, with builds that stay for the next time:

  make test SUITES=tap PROVE_TESTS=test/t/010_crash.pl KEYRIGHT_TEST_DIR=/tmp/k

A test waits for a condition (C<< $node->poll_query_until >>, C<wait_until>),
never for "long enough".  Servers stop at the end of the file, also when it
dies or is told to end by a signal.

Raw sessions are PostgreSQL's: C<< $node->background_psql('postgres') >> gives
an object with query, query_safe, query_until and quit.

=cut

package Keyright;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Basename qw(dirname);
use IPC::Run ();
use JSON::PP ();
use MIME::Base64 qw(encode_base64);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(
  RFC8037_SEED
  add_lapsed
  add_license
  checkin
  checkout
  crashes
  finish_clients
  heartbeat
  log_lines
  log_size
  new_key
  new_node
  new_standby
  oversold
  row
  rows
  sqlstate
  start_clients
  start_sampler
  stop_sampler
  wait_emptied
  wait_until
  write_key
);

# The key of RFC 8037, appendix A: for tests whose tokens must be the same in
# every run.  Its thumbprint is known from there too.
use constant RFC8037_SEED => 'nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=';

# Cluster stops its nodes in an END block, which a signal would pass by.
$SIG{$_} = sub { die "ended by a signal" }
  for qw(INT TERM HUP);

=pod

=head1 SERVERS

=over

=item new_node($name, %options)

Makes and starts a PostgreSQL::Test::Cluster that preloads keyright, with a
signing key, and CREATE EXTENSION keyright in database "postgres".  Options:

  nolock    => 1        the build whose license lock is compiled out
  losehints => 1        the build that loses its hints in shared memory
  preload   => 0        no shared_preload_libraries
  key       => $base64  this seed, not a fresh one; undef: no key file at all
  extension => 0        no CREATE EXTENSION
  start     => 0        do not start (implies extension => 0)
  conf      => $text    more lines for postgresql.conf
  init      => {...}    options for Cluster's init, e.g. allows_streaming => 1

Clusters that stream get max_connections = 300 too.  The key file lies beside
the data folder, not in it: a standby made of a backup reads the same file.

=cut

sub new_node
{
	my ($name, %given) = @_;
	my %opt =
	  (preload => 1, extension => 1, start => 1, init => {}, %given);
	$opt{key} = new_key() unless exists $opt{key};

	my $build = $opt{nolock} ? 'NOLOCK' : $opt{losehints} ? 'LOSEHINTS' : '';
	my $node = PostgreSQL::Test::Cluster->new($name,
		$build ? (install_path => _build_path($build)) : ());
	$node->init(%{ $opt{init} });
	$node->append_conf('postgresql.conf', _settings(%opt));
	write_key($node, $opt{key}) if defined $opt{key};

	if ($opt{start})
	{
		$node->start;
		$node->safe_psql('postgres', 'CREATE EXTENSION keyright')
		  if $opt{extension};
	}
	return $node;
}

# Cluster wants the folder that has bin in it.
sub _build_path
{
	my ($build) = @_;
	my $bindir = $ENV{"KEYRIGHT_${build}_BINDIR"}
	  or BAIL_OUT("KEYRIGHT_${build}_BINDIR is not set: run \"make test\"");
	return dirname($bindir);
}

# Cluster logs every statement; with many clients that would be most of the
# work of the server.
sub _settings
{
	my (%opt) = @_;
	my @lines = (
		'log_statement = none',
		'max_connections = 300',
		'shared_buffers = 32MB',
		'max_wal_size = 1GB');
	push @lines, "shared_preload_libraries = 'keyright'" if $opt{preload};
	push @lines, $opt{conf} if defined $opt{conf};
	return join "\n", @lines;
}

=pod

=item new_standby($primary)

Makes and starts a streaming standby of a node with C<allows_streaming>.

=cut

sub new_standby
{
	my ($primary) = @_;
	$primary->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->start;
	return $standby;
}

=pod

=item new_key()

A fresh seed in base64, as keyright.signing_key_file wants it.

=cut

sub new_key
{
	open my $random, '<:raw', '/dev/urandom' or die "no random: $!";
	read($random, my $seed, 32) == 32 or die "too little random";
	close $random;
	return encode_base64($seed, '');
}

=pod

=item write_key($node, $base64 [, $file])

Writes a key file (mode 0600; basedir/signing.key unless C<$file> is given),
appends the setting and returns the path.  A running server takes it at its
next reload.

=cut

sub write_key
{
	my ($node, $key, $file) = @_;
	$file //= $node->basedir . '/signing.key';
	my $umask = umask 077;
	open my $out, '>', $file or die "could not write $file: $!";
	print $out "$key\n";
	close $out or die "could not write $file: $!";
	umask $umask;
	$node->append_conf('postgresql.conf',
		"keyright.signing_key_file = '$file'");
	return $file;
}

=pod

=back

=head1 CALLS

=over

=item rows($node, $sql [, $dbname]), row(...)

The rows of a query as hashes by column name, or the first alone (undef when
there is none).  NULL is undef, a timestamp text.  Dies when the query fails.
C<$sql> stands in a subquery: no semicolon, columns with names.

=cut

sub rows
{
	my ($node, $sql, $dbname) = @_;
	my $json = $node->safe_psql($dbname // 'postgres',
		"SELECT coalesce(json_agg(q), '[]') FROM (\n$sql\n) q");
	return @{ JSON::PP::decode_json($json) };
}

sub row
{
	my ($first) = rows(@_);
	return $first;
}

=pod

=item add_license($node, $license_id, $seat_count, %columns)

Inserts it; C<%columns> are further columns, e.g. ttl => '2 s'.

=cut

sub add_license
{
	my ($node, $license_id, $seat_count, %columns) = @_;
	%columns =
	  (%columns, license_id => $license_id, seat_count => $seat_count);
	my @names = sort keys %columns;
	$node->safe_psql(
		'postgres',
		'INSERT INTO keyright.license ('
		  . join(', ', @names)
		  . ') VALUES ('
		  . join(', ', map { _literal($_) } @columns{@names}) . ')');
	return;
}

sub _literal
{
	my ($text) = @_;
	return 'NULL' unless defined $text;
	$text =~ s/(['\\])/$1$1/g;
	return $text =~ /\\/ ? "E'$text'" : "'$text'";
}

=pod

=item add_lapsed($node, $dbname, $license_id, $count)

Adds a license all of whose C<$count> seats hold leases that lapsed a day ago.
Plain SQL: no function is called, from which the reaper would learn that the
database is in use.

=cut

sub add_lapsed
{
	my ($node, $dbname, $license_id, $count) = @_;
	$node->safe_psql(
		$dbname, qq(
		WITH l AS (
			INSERT INTO keyright.license (license_id, seat_count)
			VALUES ('$license_id', $count) RETURNING id)
		INSERT INTO keyright.seat (license, slot, seat_id, holder,
			checked_out_at, issued_at, expires_at)
		SELECT l.id, s, gen_random_uuid(), 'nobody', t, t, t + '1 min'
		FROM l, generate_series(1, $count) s,
			(SELECT now() - interval '1 day' AS t) u));
	return;
}

=pod

=item wait_emptied($node, $dbname, $license_id, $what [, $seconds])

A test named C<$what>: in the end no row of the license's seats has a lease.

=cut

sub wait_emptied
{
	my ($node, $dbname, $license_id, $what, $seconds) = @_;
	my $taken = qq(
		SELECT count(s.seat_id) FROM keyright.seat s
		JOIN keyright.license l ON l.id = s.license
		WHERE l.license_id = '$license_id');
	my $ok = wait_until($what,
		sub {
			return 1 if $node->safe_psql($dbname, $taken) eq '0';
			# a client each time: leave the machine to the server
			sleep 0.1;
			return 0;
		},
		$seconds);
	pass($what) if $ok;
	return $ok;
}

=pod

=item sqlstate($node, $sql [, $dbname])

The SQLSTATE of the error that C<$sql> raises; '' when it raises none.

=cut

sub sqlstate
{
	my ($node, $sql, $dbname) = @_;
	my ($out, $err) = ('', '');
	$node->psql(
		$dbname // 'postgres', "\\set VERBOSITY sqlstate\n$sql",
		stdout => \$out,
		stderr => \$err);
	return $err =~ /^(?:psql:[^\n]*: )?(?:ERROR|FATAL):  (\w{5})$/m ? $1 : $err;
}

=pod

=item checkout($node, $license_id, $holder [, $ttl [, $request_id]])

=item heartbeat($node, $license_id, $seat_id)

=item checkin($node, $license_id, $seat_id)

Call the function in database "postgres" and return its row as a hash.

=cut

sub _call
{
	my ($function, $node, @arguments) = @_;
	my $list = join ', ', map { _literal($_) } @arguments;
	return row($node, "SELECT * FROM $function($list)");
}

sub checkout { return _call('keyright_checkout', @_); }
sub heartbeat { return _call('keyright_heartbeat', @_); }
sub checkin { return _call('keyright_checkin', @_); }

=pod

=item wait_until($what, $condition [, $seconds])

Calls C<$condition> every 20 ms until it is true.  Fails a test named C<$what>
and returns 0 when it still is not after C<$seconds> (60).  For what SQL can
ask there is C<< $node->poll_query_until >>.

=cut

sub wait_until
{
	my ($what, $condition, $seconds) = @_;
	$seconds //= 60;
	my $end = time() + $seconds;
	until ($condition->())
	{
		if (time() > $end)
		{
			fail("$what within $seconds s");
			return 0;
		}
		sleep 0.02;
	}
	return 1;
}

=pod

=back

=head1 MANY CLIENTS

=over

=item start_clients($node, $clients, $seconds, $scripts, @options)

Starts pgbench with C<$clients> connections that run a script (pgbench's
language) for C<$seconds>, and returns at once.  C<$scripts> is a text, or
several with their weights: C<< [ [$beat, 9], [$checkout, 1] ] >>.  Options,
e.g. C<'-C'> or C<'-D', 'n=5'>, go to pgbench.

pgbench drops a client at its first error (but for serialization failures and
deadlocks with --max-tries): a script catches in SQL what it expects.

=item finish_clients($load)

Waits for the end and returns a hash: status (0: no client was dropped),
output, errors, transactions.

=cut

sub start_clients
{
	my ($node, $clients, $seconds, $scripts, @options) = @_;
	my $load = { output => '', errors => '' };
	my @command = (
		$node->installed_command('pgbench'),
		'-n', '-c', $clients, '-j', 2, '-T', $seconds,
		_script_options(ref $scripts ? @$scripts : [$scripts]),
		@options, '-h', $node->host, '-p', $node->port, 'postgres');
	$load->{run} = IPC::Run::start(
		\@command, '<', \undef, '>', \$load->{output},
		'2>', \$load->{errors},
		IPC::Run::timeout(
			$seconds + $PostgreSQL::Test::Utils::timeout_default));
	return $load;
}

sub _script_options
{
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my @options;
	for my $script (@_)
	{
		my ($text, $weight) = @$script;
		my $file = "$dir/" . @options . '.sql';
		open my $out, '>', $file or die "could not write $file: $!";
		print $out $text;
		close $out or die "could not write $file: $!";
		push @options, '-f', "$file\@" . ($weight // 1);
	}
	return @options;
}

sub finish_clients
{
	my ($load) = @_;
	my $run = delete $load->{run};
	$run->finish;
	$load->{status} = $run->result(0);
	($load->{transactions}) =
	  $load->{output} =~ /transactions actually processed: (\d+)/;
	note $load->{output};
	note $load->{errors};
	return $load;
}

=pod

=back

=head1 THE INVARIANT

I1: at no instant are more leases of a license live than it has seats.  (A
license that is shrunk below its use breaks it by design: do not sample that.)

=over

=item oversold($node [, $dbname])

The licenses that break I1 now: hashes with license_id, seat_count, live.

=item start_sampler($node [, $dbname])

Asks for them every 10 ms in a session of its own, until stop_sampler.  Results
go to tables in a schema "sampler".

=item stop_sampler($sampler)

Returns a hash: samples, violations (samples that broke I1), worst (the first
of them as text).  The server must have run all the while.

=cut

# The clock is read after the snapshot was taken.  What is counted is then a
# part of what was live at the snapshot: a seat that changed hands in between
# is not counted twice, so what breaks I1 here did break it.
use constant OVERSOLD => <<'END_OF_SQL';
SELECT l.license_id, l.seat_count, count(*) AS live
FROM keyright.license l JOIN keyright.seat s ON s.license = l.id
WHERE s.seat_id IS NOT NULL
	AND keyright_is_live(s.expires_at, l.skew, clock_timestamp())
GROUP BY l.id, l.license_id, l.seat_count
HAVING count(*) > l.seat_count
END_OF_SQL

# Each sample is a transaction of its own, lest an old snapshot keep dead rows.
use constant SAMPLER => 'DO $$
DECLARE
	samples bigint := 0; violations bigint := 0; worst text; seen text;
BEGIN
	LOOP
		SELECT string_agg(o::text, \' \') INTO seen FROM (' . OVERSOLD . ') o;
		samples := samples + 1;
		IF seen IS NOT NULL THEN
			violations := violations + 1;
			worst := coalesce(worst, seen);
		END IF;
		EXIT WHEN EXISTS (SELECT FROM sampler.stop);
		COMMIT;
		PERFORM pg_sleep(0.01);
	END LOOP;
	INSERT INTO sampler.result VALUES (samples, violations, worst);
END $$;
';

sub oversold
{
	my ($node, $dbname) = @_;
	return rows($node, OVERSOLD, $dbname);
}

sub start_sampler
{
	my ($node, $dbname) = @_;
	$dbname //= 'postgres';
	$node->safe_psql(
		$dbname, q(
		CREATE SCHEMA IF NOT EXISTS sampler;
		CREATE TABLE IF NOT EXISTS sampler.stop (at timestamptz);
		CREATE TABLE IF NOT EXISTS sampler.result
			(samples bigint, violations bigint, worst text);
		TRUNCATE sampler.stop, sampler.result));
	my $session = $node->background_psql($dbname);
	$session->query_until(qr/sampling/, "\\echo sampling\n" . SAMPLER);
	return { node => $node, dbname => $dbname, session => $session };
}

sub stop_sampler
{
	my ($sampler) = @_;
	my ($node, $dbname) = @$sampler{qw(node dbname)};
	$node->safe_psql($dbname, 'INSERT INTO sampler.stop VALUES (now())');
	$node->poll_query_until($dbname,
		'SELECT EXISTS (SELECT FROM sampler.result)')
	  or die 'the sampler ended before it was told to';
	$sampler->{session}->quit;
	return row($node, 'TABLE sampler.result', $dbname);
}

=pod

=item crashes($node)

How many lines of the server's log tell of a process that died of a signal,
a PANIC or a failed assertion (pg_terminate_backend leaves none).

=item log_size($node)

Where the server's log ends now.

=item log_lines($node, $pattern [, $from])

The lines of the log that match, from there on.

=back

=cut

sub log_size
{
	my ($node) = @_;
	return -s $node->logfile;
}

sub log_lines
{
	my ($node, $pattern, $from) = @_;
	my $log =
	  PostgreSQL::Test::Utils::slurp_file($node->logfile, $from // 0);
	return grep { /$pattern/ } split /\n/, $log;
}

sub crashes
{
	my ($node) = @_;
	my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
	my @found = $log =~ /terminated by signal|PANIC: |TRAP: /g;
	return scalar @found;
}

1;
