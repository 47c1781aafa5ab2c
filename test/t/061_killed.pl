# Promise: the seats of clients that die without a word can all be had
# ttl + skew (and the second that ends are rounded up by) later, not one of
# them is sold twice before, and who lives beside the dead notices nothing.
#
# How: three licenses, each client a process that keeps a seat with the
# library.  On "all" 50 of 50 are killed with -9 in one go, on "half" 10 of 20,
# on "none" nobody.  From then on somebody takes what can be had again and
# again, until the server's own clock says that all must be there; a third
# session samples that no license is oversold.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keepers;
use Keyright;
use Test::More;
use Time::HiRes qw(sleep);

my $node = new_node('main', conf => "keyright.reap_interval = '1 h'");
# A third of it must be time enough for 95 processes on a busy machine.
use constant TTL => 8;
my %seats = (all => 50, half => 20, none => 25);
my %dead = (all => 50, half => 10, none => 0);
add_license(
	$node, $_, $seats{$_},
	ttl => TTL . ' s',
	skew => '1 s',
	reap_grace => '2 s',
	max_ttl => '1 h') for sort keys %seats;
my $jwks = write_jwks($node);
my %keepers =
  map { $_ => start_keepers($node, $_, $jwks, $seats{$_}, '-p') }
  sort keys %seats;

# Takes all that there is to take, for longer than this test lasts, when the
# server's clock says so: now, if not told.  How many of which license.
sub take
{
	my ($when) = @_;
	my $wait = $when
	  ? "SELECT pg_sleep_until(timestamptz '$when');"
	  : '';
	my $taken = $node->safe_psql(
		'postgres', qq(
		$wait
		SELECT license_id || '=' || count(*)
		FROM (VALUES ('all', 51), ('half', 11), ('none', 1)) v (l, n),
			generate_series(1, n) i,
			LATERAL keyright_checkout(l, 'next ' || i, '1 h')
		WHERE status = 'granted' GROUP BY license_id));
	return $taken =~ /(\w+)=(\d+)/g;
}

my $sampler = start_sampler($node);
is_deeply({ take() }, {}, 'no seat is free');

my %survivors;
my @killed;
for my $license (sort keys %seats)
{
	my %pids = keeper_pids($keepers{$license});
	is(scalar keys %pids, $seats{$license}, "$license: all seats are held");
	push @killed, grep { defined } @pids{ 1 .. $dead{$license} };
	$survivors{$license} = $seats{$license} - $dead{$license};
}
is(kill('KILL', @killed), 60, '60 processes are killed');

# From the last beat of any of them.
my $due = $node->safe_psql(
	'postgres', q(
	SELECT max(s.issued_at) + interval ') . TTL . q( s' + interval '1 s'
		+ interval '1 s'
	FROM keyright.seat s JOIN keyright.license l ON l.id = s.license
	WHERE l.license_id = 'all'
		OR l.license_id = 'half' AND substring(s.holder, '\d+')::int <= 10));

# Again and again, and once more when all must be there.
my %taken = map { $_ => 0 } keys %seats;
my $last = 0;
until ($last)
{
	$last = $node->safe_psql('postgres',
		"SELECT clock_timestamp() > timestamptz '$due' - interval '1 s'") eq 't';
	my %more = take($last ? $due : undef);
	$taken{$_} += $more{$_} for keys %more;
	sleep 0.2 unless $last;
}
is($taken{$_}, $dead{$_}, "$_: the seats of the dead can be had, no others")
  for sort keys %seats;

my $seen = stop_sampler($sampler);
is($seen->{violations}, 0, "never too many, in $seen->{samples} samples");

for my $license (sort keys %seats)
{
	# Who was killed, and nobody else, is silent.
	my %told;
	push @{ $told{ $_->{number} } }, $_->{state}
	  for transitions($keepers{$license}, qr/./);
	my @alive = grep { $_ > $dead{$license} } sort keys %told;
	my @retried = grep { "@{$told{$_}}" =~ / retrying/ } @alive;
	# On a machine that is busy otherwise an answer may come late, once.
	note("$license: late answers for @retried") if @retried;
	my @noticed =
	  grep { "@{$told{$_}}" !~ /^waiting held(?: retrying held)?$/ } @alive;
	is_deeply(\@noticed, [],
		"$license: $survivors{$license} survivors noticed nothing");
	is(row($node, "SELECT count(*) AS n FROM keyright.holders
			WHERE license_id = '$license' AND state = 'live'
			AND holder LIKE 'keeper%'")->{n},
		$survivors{$license}, "$license: they hold their seats");
	stop_keepers($keepers{$license});
	is(row($node, "SELECT live FROM keyright.pools
			WHERE license_id = '$license'")->{live},
		$dead{$license}, "$license: until they give them back");
}

is(crashes($node), 0, 'no crash');
done_testing();
