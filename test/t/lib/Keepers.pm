
=pod

=head1 NAME

Keepers - clients of the library that keep seats while a test goes on

=head1 SYNOPSIS

  use Keepers;

  my $keepers = start_keepers($conninfo, 'acme', $jwks_file, 200);
  ...
  is_deeply([ transitions($keepers, qr/lost/) ], [], 'nobody lost a seat');
  stop_keepers($keepers);

=head1 DESCRIPTION

The program is test/client/keepers.c, which tells at its head what it prints.

=cut

package Keepers;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use IPC::Run ();
use Keyright;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  keeper_pids
  start_keepers
  stop_keepers
  transitions
  write_jwks
);

=pod

=over

=item write_jwks($node)

Writes the public keys of a server to a file; returns its path.

=cut

sub write_jwks
{
	my ($node) = @_;
	my $file = $node->basedir . '/jwks.json';
	open my $out, '>', $file or die "could not write $file: $!";
	print $out $node->safe_psql('postgres', 'SELECT keyright_jwks()');
	close $out or die "could not write $file: $!";
	return $file;
}

=pod

=item start_keepers($where, $license, $jwks_file, $count, @options)

Starts so many and returns when all hold a seat.  C<$where> is a node or a
connection string; option C<-p> makes each a process of its own.

=cut

sub start_keepers
{
	my ($where, $license, $jwks, $count, @options) = @_;
	my $keepers =
	  start_tool($where, 'keepers', '-l', $license, '-j', $jwks, '-n', $count,
		@options);
	wait_until(
		"$count keepers of $license hold a seat",
		sub { transitions($keepers, qr/^held$/) >= $count })
	  or die "no keepers: $keepers->{errors}";
	return $keepers;
}

=pod

=item transitions($keepers, $pattern)

What was told so far of states that match: hashes with ms, number, pid, state
and error.

=cut

sub transitions
{
	my ($keepers, $pattern) = @_;
	$keepers->{run}->pump_nb if $keepers->{run}->pumpable;
	my @found;
	for my $line (split /\n/, $keepers->{output})
	{
		my %told;
		@told{qw(ms number pid state error)} =
		  $line =~ /^(\d+) (\d+) (\d+) (\w+) (\w+)$/
		  or next;
		push @found, \%told if $told{state} =~ $pattern;
	}
	return @found;
}

=pod

=item keeper_pids($keepers)

The process of each, by its number.

=cut

sub keeper_pids
{
	my ($keepers) = @_;
	return
	  map { $_->{number} => $_->{pid} } transitions($keepers, qr/^held$/);
}

=pod

=item stop_keepers($keepers)

Has them give their seats back and end; returns the exit status of the program.

=back

=cut

sub stop_keepers
{
	my ($keepers) = @_;
	$keepers->{run}->signal('TERM');
	$keepers->{run}->finish;
	note $keepers->{errors} if $keepers->{errors} ne '';
	return $keepers->{run}->full_result(0) >> 8;
}

1;
