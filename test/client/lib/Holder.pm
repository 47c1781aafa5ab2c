# An application that holds a seat (holder.c), seen from a test.
#
#   my $holder = Holder->new('acme', $dsn);
#   $holder->told('held');                 # awaits that state; a test
#   my $left = $holder->ask('may')->[2];   # milliseconds
#   is($holder->story, 'waiting held retrying held', 'it survives');
#   $holder->quit;
#
# The times are those of CLOCK_MONOTONIC, like the proxy's.  Options of new:
# env, program (HOLDER, the one with sanitizers), jwks, name.

package Holder;

use strict;
use warnings FATAL => 'all';

use Cli;
use Exporter 'import';
use IO::Handle;
use JSON::PP ();
use MIME::Base64 qw(decode_base64url);
use POSIX ();
use Test::More;
use Time::HiRes qw(CLOCK_MONOTONIC clock_gettime sleep);

our @EXPORT = qw(monotonic);

my $number = 0;
my %running;
END { kill 'KILL', keys %running if %running; }

sub monotonic { return clock_gettime(CLOCK_MONOTONIC); }

sub new
{
	my ($class, $license, $dsn, %options) = @_;
	my $name = "$dir/holder" . ++$number;
	pipe my $read, my $write or die "no pipe: $!";
	my $program = $options{program} // $ENV{HOLDER}
	  or BAIL_OUT('HOLDER is not set: run "make test SUITES=cli"');
	my $pid = fork() // die "could not fork: $!";
	if ($pid == 0)
	{
		$SIG{$_} = 'DEFAULT' for qw(INT QUIT TERM HUP);
		$ENV{$_} = $options{env}{$_} for keys %{ $options{env} // {} };
		open STDIN, '<&', $read or die;
		close $write;
		open STDOUT, '>', "$name.out" or die;
		open STDERR, '>', "$name.err" or die;
		exec $program, $license, $options{jwks} // $jwks, $dsn,
		  $options{name} // 'holder'
		  or POSIX::_exit(99);
	}
	close $read;
	$write->autoflush(1);
	$running{$pid} = 1;
	return bless { pid => $pid, name => $name, in => $write }, $class;
}

sub pid { return $_[0]{pid}; }
sub errors { return slurp("$_[0]{name}.err"); }

# Whole lines that begin with a word, as lists; after a time, if so wished.
sub lines
{
	my ($self, $word, $since) = @_;
	my @lines = map { [split / /] }
	  grep { /^\Q$word\E / } slurp("$self->{name}.out") =~ /^(.*)\n/mg;
	return grep { $_->[1] >= ($since // 0) } @lines;
}

# The states of the events, after a time, if so wished.
sub story
{
	my ($self, $since) = @_;
	return join ' ', map { $_->[2] } $self->lines('event', $since);
}

# The event that told of a state; undef: it was not told yet.
sub seen
{
	my ($self, $state, $since) = @_;
	my ($event) = grep { $_->[2] eq $state } $self->lines('event', $since);
	return $event;
}

# Awaits a state; the event, or undef.  No test of its own: it says nothing.
sub await
{
	my ($self, $state, $since, $seconds) = @_;
	my $until = monotonic() + ($seconds // 60);
	for (;;)
	{
		my $event = $self->seen($state, $since);
		return $event if $event;
		return undef if monotonic() > $until;
		sleep 0.05;
	}
}

# Gives a command; the line that answers it.
sub ask
{
	my ($self, $command) = @_;
	my $before = $self->lines($command);
	print { $self->{in} } "$command\n";
	for (1 .. 600)
	{
		my @lines = $self->lines($command);
		return $lines[-1] if @lines > $before;
		sleep 0.05;
	}
	die "no answer to \"$command\"";
}

sub send_command
{
	my ($self, $command) = @_;
	print { $self->{in} } "$command\n";
	return;
}

# Milliseconds.
sub may_run { return $_[0]->ask('may')->[2]; }

# Until when by CLOCK_MONOTONIC.
sub may_run_until
{
	my ($self) = @_;
	my $may = $self->ask('may');
	return $may->[1] + $may->[2] / 1000;
}

sub seat_id
{
	my ($self) = @_;
	my ($claims) = split /\./, $self->ask('seat')->[2];
	return '' unless $claims =~ /^eyJ/;
	return JSON::PP::decode_json(decode_base64url($claims))->{seat};
}

# Checks in; the error's name.
sub quit
{
	my ($self) = @_;
	# A proxy that was forked since has a copy of the pipe: say it.
	$self->send_command('quit');
	waitpid $self->{pid}, 0;
	delete $running{ $self->{pid} };
	is($?, 0, "... the holder ends well") or diag($self->errors);
	my ($line) = $self->lines('checkin');
	return $line ? $line->[2] : '';
}

sub forget
{
	my ($self) = @_;
	kill 'KILL', $self->{pid};
	waitpid $self->{pid}, 0;
	delete $running{ $self->{pid} };
	return;
}

1;
