# What the tests of the command "keyright" share: programs that run in the
# background, and a database of the file's own on the server of the PG*
# variables, so that several run at once.
#
#   KEYRIGHT       the command to test
#   KEYRIGHT_ROOT  where all of the client is installed, below /usr

package Cli;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use File::Temp ();
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(add_license alive ends eventually file_of has_ended keyright
  run_seat signal_of slurp sql start states_of $dir $jwks);

our $dir = File::Temp::tempdir('keyright-cli.XXXXXX', TMPDIR => 1, CLEANUP => 1);
our $jwks = "$dir/jwks.json";
my $number = 0;
my %running;

# Set when a signal or a die ends the test early: nobody is left behind.
END { kill 'KILL', keys %running if %running; }
$SIG{$_} = sub { exit 1 }
  for qw(INT TERM HUP);

sub slurp
{
	my ($file) = @_;
	open my $in, '<', $file or return '';
	local $/;
	return scalar(<$in>) // '';
}

# A new file with that text.
sub file_of
{
	my ($text) = @_;
	my $file = "$dir/file" . ++$number;
	open my $out, '>', $file or die "could not write $file: $!";
	print $out $text;
	close $out or die "could not write $file: $!";
	return $file;
}

# Starts a program; options: in (a text), group (a process group of its own),
# ignore (a signal), err (a handle for its errors), env.  Returns a hash: pid,
# and functions out and err.
sub start
{
	my ($options, @command) = @_;
	my $name = "$dir/run" . ++$number;
	my $in = defined $options->{in} ? file_of($options->{in}) : '/dev/null';
	my $pid = fork() // die "could not fork: $!";
	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' for qw(INT QUIT TERM HUP);
		$SIG{ $options->{ignore} } = 'IGNORE' if $options->{ignore};
		setpgrp if $options->{group};
		$ENV{$_} = $options->{env}{$_} for keys %{ $options->{env} // {} };
		open STDIN, '<', $in or die;
		open STDOUT, '>', "$name.out" or die;
		open STDERR, $options->{err} ? '>&' : '>',
		  $options->{err} // "$name.err"
		  or die;
		exec @command or POSIX::_exit(99);
	}
	$running{$pid} = 1;
	return {
		pid => $pid,
		out => sub { slurp("$name.out") },
		err => sub { slurp("$name.err") }
	};
}

# Whether it has ended; then its status is known.
sub has_ended
{
	my ($program) = @_;
	return 1 if defined $program->{status};
	return 0 if waitpid($program->{pid}, POSIX::WNOHANG()) == 0;
	$program->{status} = $?;
	delete $running{ $program->{pid} };
	return 1;
}

# The exit status; -n: it died of signal n; undef: it did not end.
sub ends
{
	my ($program, $seconds) = @_;
	my $until = time() + ($seconds // 60);
	until (has_ended($program))
	{
		return undef if time() > $until;
		sleep 0.02;
	}
	my $status = $program->{status};
	return $status & 127 ? -($status & 127) : $status >> 8;
}

# Runs keyright to its end: exit status, output, errors.
sub keyright
{
	my $program = start({}, $ENV{KEYRIGHT}, @_);
	my $status = ends($program);
	return ($status, $program->{out}->(), $program->{err}->());
}

# "keyright run" with what is always the same.
sub run_seat
{
	my ($options, $license, @rest) = @_;
	return start($options, $ENV{KEYRIGHT}, 'run', '--license', $license,
		'--jwks', $jwks, @rest);
}

# A condition is awaited: a failed test when it does not come true.
sub eventually
{
	my ($what, $condition, $seconds) = @_;
	my $until = time() + ($seconds // 60);
	until ($condition->())
	{
		if (time() > $until)
		{
			fail("$what, in the end");
			return 0;
		}
		sleep 0.05;
	}
	pass($what);
	return 1;
}

# The letter of proc(5) for each process, in one word; "-": it is gone.
sub states_of
{
	return join '', map { slurp("/proc/$_/stat") =~ /\) (\S)/ ? $1 : '-' } @_;
}

# Not gone, and no zombie.
sub alive
{
	my ($pid) = @_;
	return states_of($pid) !~ /[-Z]/;
}

sub signal_of
{
	my ($name) = @_;
	no strict 'refs';
	return &{"POSIX::SIG$name"}();
}

sub sql
{
	my ($statement) = @_;
	open my $psql, '-|', 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-c',
	  $statement
	  or die "could not run psql: $!";
	local $/;
	my $out = <$psql> // '';
	close $psql or BAIL_OUT("psql failed: $statement");
	$out =~ s{\n\z}{};
	return $out;
}

sub add_license
{
	my ($license, $seats, $ttl) = @_;
	sql("INSERT INTO keyright.license
		(license_id, seat_count, ttl, skew, reap_grace, max_ttl)
		VALUES ('$license', $seats, '$ttl s', '1 s', '3 s', '1 h')");
	return;
}

# A server's settings are for all files: do not bend what others rely on.
sub new_database
{
	my $name = "cli_$$";
	sql("CREATE DATABASE $name");
	$ENV{PGDATABASE} = $name;
	sql('CREATE EXTENSION keyright');
	return;
}

new_database();

1;
