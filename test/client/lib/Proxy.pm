# A network between the client and its server that does what a test tells it.
#
#   my $proxy = Proxy->new("$socket_folder/.s.PGSQL.5432");
#   ... a client connects to 127.0.0.1, port $proxy->port ...
#   $proxy->does('refuse');      # from the return of this call on
#   $proxy->does('pass');        # all is well again
#
# The server is the path of a socket, or host:port.  What it can do, until
# "pass", or N times where a number is given (none: until "pass"):
#
#   hold                closes what is open, lets new connections wait
#   refuse              closes what is open, refuses new connections
#   silence             accepts, reads, passes nothing on
#   drop_requests [N]   a question that the server never sees
#   drop_replies [N]    a question whose answer gets lost
#   delay SECONDS       answers come late, the order stays
#   half_close [N]      at a question, ends the stream to the client; reads on
#   cut_reply [N]       sends half of an answer, then closes
#   garble [N]          an answer of random bytes
#   announce [N]        an answer that begins a message of 1 GB, then nothing
#   drip [N]            likewise, then a byte now and then
#   flood [N]           likewise, then as much of it as there is room for
#   copy_out [N]        an answer that begins to copy (likewise copy_in,
#                       copy_both), then nothing
#   results [N]         an answer of one empty result after the other, endless
#   errors [N]          likewise, of errors (40001)
#   forge [N]           a bit of the token's signature is wrong
#   answer STATE [N]    a made-up error for a question: its SQLSTATE
#   answer_login STATE  a made-up error for each new connection; closes others
#   no_tls              says that it knows no TLS; closes what is open
#   close               closes what is open, once
#
# The questions are counted by what they are: a test of the keyright client
# wants to lose a heartbeat, not a packet.  So it reads PostgreSQL's protocol,
# as far as that goes; with TLS it passes on what it cannot read.
#
# log() is what happened: [time, word, ...] with the times of CLOCK_MONOTONIC:
#
#   connect             a client came
#   ask FUNCTION        its question was read, whatever became of it
#   reply FUNCTION      the server's answer was read, likewise

package Proxy;

use strict;
use warnings FATAL => 'all';

use File::Temp ();
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX ();
use Socket qw(SHUT_WR);
use Time::HiRes qw(CLOCK_MONOTONIC clock_gettime);

use constant {
	TLS_REQUEST => 80877103,
	GSS_REQUEST => 80877104,
	CANCEL_REQUEST => 80877102
};

my %alive;
END { kill 'KILL', keys %alive if %alive; }

sub new
{
	my ($class, $server) = @_;
	my $self = bless { server => $server, faults => {}, links => {} }, $class;
	$self->{logfile} = File::Temp->new(TEMPLATE => 'keyright-proxy.XXXXXX',
		TMPDIR => 1);
	$self->_listen(0);
	$self->{port} = $self->{listener}->sockport;
	socketpair(my $ours, my $its, Socket::AF_UNIX, Socket::SOCK_STREAM, 0)
	  or die "no socketpair: $!";
	$_->autoflush(1) for $ours, $its;
	my $pid = fork() // die "could not fork: $!";
	if ($pid == 0)
	{
		%alive = ();
		close $ours;
		$SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);
		$SIG{PIPE} = $SIG{CHLD} = 'IGNORE';
		eval { $self->_work($its); 1 } or warn "the proxy died: $@";
		POSIX::_exit(0);
	}
	close $its;
	close delete $self->{listener};
	$alive{$pid} = 1;
	@$self{qw(pid control)} = ($pid, $ours);
	return $self;
}

sub port { return $_[0]{port}; }

sub does
{
	my ($self, @words) = @_;
	print { $self->{control} } "@words\n";
	my $answer = readline($self->{control}) // 'it is gone';
	die "proxy: @words: $answer" unless $answer eq "done\n";
	return;
}

# Of one kind only, if so wished.
sub log
{
	my ($self, $word, $more) = @_;
	open my $in, '<', $self->{logfile}->filename or die "no log: $!";
	my @lines = map { chomp; [split / /] } <$in>;
	close $in;
	@lines = grep { $_->[1] eq $word } @lines if defined $word;
	@lines = grep { $_->[2] eq $more } @lines if defined $more;
	return @lines;
}

sub stop
{
	my ($self) = @_;
	my $pid = delete $self->{pid} or return;
	kill 'KILL', $pid;
	waitpid($pid, 0);
	delete $alive{$pid};
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $!, $@);
	$self->stop if $self->{pid} && $alive{ $self->{pid} };
	return;
}

########################################################################
# In the process of its own

sub _note
{
	my ($self, @words) = @_;
	printf { $self->{logfile} } "%.6f %s\n", clock_gettime(CLOCK_MONOTONIC),
	  "@words";
	return;
}

# The same port again, after it was closed.
sub _listen
{
	my ($self, $port) = @_;
	for (1 .. 100)
	{
		$self->{listener} = IO::Socket::INET->new(
			LocalAddr => '127.0.0.1',
			LocalPort => $port,
			Proto => 'tcp',
			ReuseAddr => 1,
			Listen => 64) and return;
		select undef, undef, undef, 0.05;
	}
	die "could not listen on port $port: $@";
}

sub _work
{
	my ($self, $control) = @_;
	$self->{logfile}->autoflush(1);
	for (;;)
	{
		my @links = values %{ $self->{links} };
		my $listener = $self->{faults}{hold} ? undef : $self->{listener};
		my $select = IO::Select->new($control, $listener // (),
			map { ($_->{client}, $_->{server} // ()) } @links);
		for my $handle ($select->can_read($self->_patience))
		{
			if ($handle == $control)
			{
				my $line = readline($control) // return;
				$self->_command(split / /, $line =~ s/\n//r);
				print {$control} "done\n";
				last;
			}
			elsif ($self->{listener} && $handle == $self->{listener})
			{
				$self->_accept;
			}
			else
			{
				my ($link) = grep {
					$_->{client} == $handle
					  || $_->{server} && $_->{server} == $handle
				} values %{ $self->{links} };
				$self->_read($link, $handle) if $link;
			}
		}
		$self->_send_late;
	}
	return;
}

# Until the next late answer is due.
sub _patience
{
	my ($self) = @_;
	my $now = clock_gettime(CLOCK_MONOTONIC);
	my ($first) = sort { $a <=> $b }
	  map { $_->{late}[0][0] } grep { @{ $_->{late} } }
	  values %{ $self->{links} };
	return undef unless defined $first;
	return $first > $now ? $first - $now : 0;
}

sub _send_late
{
	my ($self) = @_;
	my $now = clock_gettime(CLOCK_MONOTONIC);
	for my $link (values %{ $self->{links} })
	{
		while (@{ $link->{late} } && $link->{late}[0][0] <= $now)
		{
			_send($link->{client}, (shift @{ $link->{late} })->[1]);
		}
	}
	return;
}

sub _command
{
	my ($self, $word, @rest) = @_;
	my $faults = $self->{faults};
	if ($word eq 'pass')
	{
		%$faults = ();
		$self->_close($_)
		  for grep { $_->{deaf} } values %{ $self->{links} };
		$self->_listen($self->{port}) unless $self->{listener};
		return;
	}
	if ($word =~ /^(?:close|hold|refuse|answer_login|no_tls)$/)
	{
		$self->_close($_) for values %{ $self->{links} };
	}
	return if $word eq 'close';
	if ($word eq 'refuse')
	{
		close delete $self->{listener} if $self->{listener};
		return;
	}
	if ($word eq 'silence')
	{
		$_->{deaf} = 1 for values %{ $self->{links} };
	}
	if ($word eq 'delay' || $word =~ /^answer/)
	{
		$faults->{"$word-with"} = shift @rest;
	}
	$faults->{$word} = $rest[0] // -1;
	return;
}

# Whether it is to happen now; counts.
sub _happens
{
	my ($self, $word) = @_;
	my $faults = $self->{faults};
	return 0 unless $faults->{$word};
	$faults->{$word}-- if $faults->{$word} > 0;
	return 1;
}

sub _accept
{
	my ($self) = @_;
	my $client = $self->{listener}->accept or return;
	$self->_note('connect');
	my $link = {
		client => $client,
		up => '',
		down => '',
		late => [],
		asked => '',
		state => 'login',
		deaf => $self->{faults}{silence}
	};
	$link->{server} = $self->_connect unless $link->{deaf};
	if (!$link->{deaf} && !$link->{server})
	{
		close $client;
		return;
	}
	$self->{links}{ fileno $client } = $link;
	return;
}

sub _connect
{
	my ($self) = @_;
	return $self->{server} =~ m{^/}
	  ? IO::Socket::UNIX->new(Peer => $self->{server})
	  : IO::Socket::INET->new(PeerAddr => $self->{server}, Proto => 'tcp');
}

sub _close
{
	my ($self, $link) = @_;
	delete $self->{links}{ fileno $link->{client} };
	$link->{gone} = 1;
	close $link->{client};
	close $link->{server} if $link->{server};
	return;
}

# False: nobody takes it any more.
sub _send
{
	my ($to, $bytes) = @_;
	while (length $bytes)
	{
		my $n = syswrite $to, $bytes;
		return 0 unless defined $n;
		substr($bytes, 0, $n) = '';
	}
	return 1;
}

sub _read
{
	my ($self, $link, $handle) = @_;
	my $from_client = $handle == $link->{client};
	my $n = sysread $handle, my $bytes, 65536;
	if (!$n)
	{
		# The last words of a server that ends the connection.
		_send($link->{client}, ($link->{reply} // '') . $link->{down})
		  if !$from_client && !$link->{deaf};
		$self->_close($link)
		  unless $link->{deaf} && !$from_client && _forget_server($link);
		return;
	}
	return if $link->{deaf};
	if ($link->{state} eq 'opaque')
	{
		_send($from_client ? $link->{server} : $link->{client}, $bytes);
	}
	elsif ($from_client)
	{
		$link->{up} .= $bytes;
		$self->_from_client($link);
	}
	else
	{
		$link->{down} .= $bytes;
		$self->_from_server($link);
	}
	return;
}

sub _forget_server
{
	my ($link) = @_;
	close delete $link->{server};
	return 1;
}

########################################################################
# The protocol: https://www.postgresql.org/docs/current/protocol.html

# A whole message at the front of a buffer; typed ones have a letter first.
sub _message
{
	my ($buffer, $typed) = @_;
	return undef if length $$buffer < 4 + $typed;
	my $size = unpack('N', substr $$buffer, $typed, 4) + $typed;
	return undef if length $$buffer < $size;
	return substr $$buffer, 0, $size, '';
}

sub _error
{
	my ($severity, $state) = @_;
	my $fields = join '', map { "$_\0" } "S$severity", "V$severity",
	  "C$state", "Mthis\e[2J error\twas\nmade up\x{c2}\x{9b}", '';
	return 'E' . pack('N', length($fields) + 4) . $fields;
}

sub _from_client
{
	my ($self, $link) = @_;
	while (!$link->{deaf} && !$link->{gone})
	{
		my $login = $link->{state} eq 'login';
		my $message = _message(\$link->{up}, $login ? 0 : 1) // return;
		if ($login)
		{
			$self->_login($link, $message);
		}
		else
		{
			$self->_question($link, $message);
		}
	}
	return;
}

sub _login
{
	my ($self, $link, $message) = @_;
	my $code = unpack 'N', substr $message, 4, 4;
	if ($code == TLS_REQUEST && $self->{faults}{no_tls})
	{
		_send($link->{client}, 'N');
		return;
	}
	if ($code == TLS_REQUEST || $code == GSS_REQUEST)
	{
		$link->{one_byte} = 1;
	}
	elsif ($code != CANCEL_REQUEST)
	{
		if ($self->_happens('answer_login'))
		{
			_send($link->{client},
				_error('FATAL', $self->{faults}{'answer_login-with'}));
			$self->_close($link);
			return;
		}
		$link->{state} = 'greeting';
	}
	_send($link->{server}, $message);
	return;
}

# A question is all that comes from Parse to Sync.
sub _question
{
	my ($self, $link, $message) = @_;
	my $type = substr $message, 0, 1;
	if ($type eq 'P')
	{
		($link->{asked}) = $message =~ /keyright_(\w+)/;
		$link->{asked} //= 'other';
		$self->_note('ask', $link->{asked});
		if ($self->_happens('drop_requests'))
		{
			$link->{deaf} = 1;
			return;
		}
		if ($self->_happens('half_close'))
		{
			shutdown $link->{client}, SHUT_WR;
			$link->{deaf} = 1;
			return;
		}
		$link->{answer} = $self->_happens('answer')
		  ? $self->{faults}{'answer-with'} : undef;
	}
	if (defined $link->{answer} && $type ne 'X')
	{
		$self->_make_up_answer($link) if $type eq 'S';
		return;
	}
	_send($link->{server}, $message);
	return;
}

# Of class 57 the server says good-bye; else it is ready for the next one.
sub _make_up_answer
{
	my ($self, $link) = @_;
	my $fatal = $link->{answer} =~ /^57P/;
	_send($link->{client}, _error($fatal ? 'FATAL' : 'ERROR', $link->{answer})
		  . ($fatal ? '' : 'Z' . pack('N', 5) . 'I'));
	$self->_close($link) if $fatal;
	return;
}

sub _from_server
{
	my ($self, $link) = @_;
	if (delete $link->{one_byte})
	{
		my $byte = substr $link->{down}, 0, 1, '';
		$link->{state} = 'opaque' if $byte =~ /[SG]/;
		_send($link->{client}, $byte);
	}
	if ($link->{state} eq 'opaque' || $link->{state} eq 'login')
	{
		_send($link->{client}, $link->{down});
		$link->{down} = '';
		return;
	}
	while (defined(my $message = _message(\$link->{down}, 1)))
	{
		my $ready = $message =~ /^Z/;
		if ($link->{state} eq 'greeting')
		{
			_send($link->{client}, $message);
			$link->{state} = 'ready' if $ready;
			next;
		}
		$link->{reply} .= $message;
		next unless $ready;
		$self->_note('reply', $link->{asked});
		$self->_reply($link, delete $link->{reply});
		return if $link->{deaf} || $link->{gone};
	}
	return;
}

# The beginning of a row that has one column of nearly 1 GB.
sub _huge
{
	my ($self, $link, $fault) = @_;
	my $size = 1 << 30;
	my $now = clock_gettime(CLOCK_MONOTONIC);
	$link->{deaf} = 1;
	_send($link->{client}, 'D' . pack('NnN', $size - 1, 1, $size - 11));
	$link->{late} = [ map { [ $now + $_ / 20, 'x' ] } 1 .. 10000 ]
	  if $fault eq 'drip';
	return unless $fault eq 'flood';
	my $pid = fork() // die "could not fork: $!";
	if ($pid == 0)
	{
		_send($link->{client}, 'x' x (1 << 20)) for 1 .. 1023;
		POSIX::_exit(0);
	}
	return;
}

# What no question of ours asks for.
my %copy = (copy_out => 'H', copy_in => 'G', copy_both => 'W');

# No end of them, and none of "ready".
sub _endless
{
	my ($self, $link, $fault) = @_;
	my $message = $fault eq 'errors'
	  ? _error('ERROR', '40001') : 'C' . pack('N', 13) . "SELECT 1\0";
	$link->{deaf} = 1;
	my $pid = fork() // die "could not fork: $!";
	return if $pid;
	1 while _send($link->{client}, $message x 1000);
	POSIX::_exit(0);
}

sub _reply
{
	my ($self, $link, $reply) = @_;
	if ($self->_happens('drop_replies'))
	{
		$link->{deaf} = 1;
		return;
	}
	if ($self->_happens('cut_reply'))
	{
		_send($link->{client}, substr $reply, 0, length($reply) / 2);
		$self->_close($link);
		return;
	}
	for my $fault (qw(announce drip flood))
	{
		next unless $self->_happens($fault);
		$self->_huge($link, $fault);
		return;
	}
	for my $fault (sort keys %copy)
	{
		next unless $self->_happens($fault);
		$link->{deaf} = 1;
		_send($link->{client}, $copy{$fault} . pack('NCn', 7, 0, 0));
		return;
	}
	for my $fault (qw(results errors))
	{
		next unless $self->_happens($fault);
		$self->_endless($link, $fault);
		return;
	}
	if ($self->_happens('garble'))
	{
		# libpq sets aside the memory that a message announces: not 2 GB.
		$reply = join '', map { chr int rand 256 } 1 .. length $reply;
		substr($reply, 1, 2) = "\0\0";
	}
	elsif ($self->_happens('forge'))
	{
		# Neither the first nor the last character: all its bits count.
		$reply =~ s{(\.[\w-]+\.[\w-]{9})([\w-])}{$1 . ($2 eq 'A' ? 'B' : 'A')}e;
	}
	my $delay = $self->{faults}{delay} ? $self->{faults}{'delay-with'} : 0;
	if ($delay || @{ $link->{late} })
	{
		push @{ $link->{late} },
		  [ clock_gettime(CLOCK_MONOTONIC) + $delay, $reply ];
		return;
	}
	_send($link->{client}, $reply);
	return;
}

1;
