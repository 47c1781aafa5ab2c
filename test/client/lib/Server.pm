# A server of a test's own, for what would disturb others on a shared one.
#
#   my $server = Server->new('full', 'max_connections=20');
#   $server->sql('...', $database);
#   my $dsn = $server->dsn('user=zoe');      # by its socket
#   $server->reload;
#   $server->stop('fast');
#   $server->start;
#
# Its programs are those of KEYRIGHT_BINDIR.  A hash as the first argument is
# an environment for it.

package Server;

use strict;
use warnings FATAL => 'all';

use Cli ();
use Cwd qw(abs_path);
use File::Basename qw(dirname);
use IO::Socket::UNIX;
use Test::More;

my $cluster = abs_path(dirname(__FILE__) . '/../../../scripts/cluster');
my @running;
END
{
	# One that does not stop must not keep the others from it.
	local $?;
	system($cluster, 'stop', $_->{folder}, 'immediate') for @running;
}

sub new
{
	my $class = shift;
	my $env = ref $_[0] ? shift : {};
	my ($name, @settings) = @_;
	my ($port) = map { /^port=(\d+)/ } @settings;
	my $self =
	  bless { folder => "$Cli::dir/$name", port => $port // 5432, env => $env },
	  $class;
	push @running, $self;
	$self->start(@settings, 'shared_buffers=8MB');
	$self->sql('CREATE EXTENSION keyright');
	return $self;
}

sub start
{
	my ($self, @settings) = @_;
	$self->_cluster('start', @settings);
	return;
}

sub stop
{
	my ($self, $how) = @_;
	$self->_cluster('stop', $how // 'fast');
	return;
}

sub _cluster
{
	my ($self, $verb, @rest) = @_;
	local %ENV = (%ENV, %{ $self->{env} });
	system($cluster, $verb, $self->{folder}, @rest) == 0
	  or BAIL_OUT("scripts/cluster $verb failed");
	return;
}

sub folder { return $_[0]{folder}; }
sub socket { return "$_[0]{folder}/socket/.s.PGSQL.$_[0]{port}"; }

sub dsn
{
	my ($self, $more) = @_;
	return "host=$self->{folder}/socket port=$self->{port} " . ($more // '');
}

sub reload
{
	my ($self) = @_;
	$self->sql('SELECT pg_reload_conf()');
	return;
}

# An idle session that ends when the socket is closed; undef: it was refused.
sub session
{
	my ($self, $role) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $self->socket) or return undef;
	my $words = pack('N', 196608)
	  . join("\0", 'user', $role, 'database', 'postgres', '', '');
	syswrite $socket, pack('N', length($words) + 4) . $words;
	my $answer = '';
	until ($answer =~ /Z\0\0\0\x05I\z/)
	{
		sysread $socket, $answer, 8192, length $answer or return undef;
	}
	return $socket;
}

sub sql
{
	my ($self, $statement, $database) = @_;
	local $ENV{PGHOST} = "$self->{folder}/socket";
	local $ENV{PGPORT} = $self->{port};
	local $ENV{PGDATABASE} = $database // 'postgres';
	local $ENV{PGUSER} = 'postgres';
	return Cli::sql($statement);
}

1;
