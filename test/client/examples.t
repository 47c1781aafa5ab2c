# The promise: the programs in examples/ work as they stand: they take a seat,
# keep it for longer than a lease, give it back, and stop when it is lost.
#
# How: they are built and run as their comments say, with the client as it was
# installed, on a license whose lease is short.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Cli;
use Test::More;

my $examples = "$FindBin::RealBin/../../examples";
# Debian's own, that has Debian's packages.
my $python = $ENV{KEYRIGHT_PYTHON} // '/usr/bin/python3';
my $root = $ENV{KEYRIGHT_ROOT};

rename file_of((keyright('jwks'))[1]), $jwks or die;
my $other_jwks = file_of((keyright('keygen', "$dir/other.key"))[1]);
$ENV{PKG_CONFIG_PATH} = "$root/usr/lib/pkgconfig";
$ENV{PKG_CONFIG_SYSROOT_DIR} = $root;
$ENV{LD_LIBRARY_PATH} = "$root/usr/lib";
$ENV{PYTHONDONTWRITEBYTECODE} = 1;

my ($compile) =
  slurp("$examples/seat.c") =~ /^ \*\s+(cc .*) -o seat$/m;
ok($compile, 'seat.c says how it is compiled');
is(system("cd '$examples' && $compile -Wall -Wextra -Werror -o '$dir/seat'"),
	0, '... and is, without a warning');

my %programs = (
	'seat.c' => sub {
		my ($license, $seconds) = @_;
		return ("$dir/seat", $license, $jwks, $seconds);
	},
	'seat.py' => sub {
		my ($license, $seconds) = @_;
		return ($python, "$examples/seat.py", '', $license, $jwks, 'ada',
			$seconds);
	});

for my $name (sort keys %programs)
{
	my $license = "of $name";
	add_license($license, 1, 3);
	my $holders = "FROM keyright.holders WHERE license_id = '$license'";

	my $program = start({}, $programs{$name}->($license, 9));
	eventually("$name takes a seat", sub { sql("SELECT count(*) $holders") });
	my ($since, $end) = split /\|/, sql("SELECT since, expires_at $holders");
	eventually('... and renews its lease', sub {
		sql("SELECT count(*) $holders AND expires_at > '$end'
			AND since = '$since'");
	});
	if ($name eq 'seat.py')
	{
		# A seat that it cannot use is given back.
		my @wrong = $programs{$name}->("not of $name", 1);
		$wrong[4] = $other_jwks;
		add_license("not of $name", 1, 60);
		my $unsigned = start({}, @wrong);
		is(ends($unsigned), 1, '... but with other keys not');
		like($unsigned->{err}->(), qr/not signed as it must be/, '... and why');
		is(sql("SELECT live FROM keyright.pools
			WHERE license_id = 'not of $name'"), 0, '... and gives it back');

		# That in C waits for one.
		my $other = start({}, $programs{$name}->($license, 1));
		is(ends($other), 1, '... another gets none');
		like($other->{err}->(), qr/all 1 seats are in use/, '... and why');
	}
	is(ends($program), 0, '... ends well');
	is(sql("SELECT count(*) $holders"), 0, '... and gives its seat back');

	$program = start({}, $programs{$name}->($license, 600));
	eventually("$name takes a seat", sub { sql("SELECT count(*) $holders") });
	sql("SELECT keyright_revoke_all('$license')");
	my $status = ends($program);
	ok($status, '... and stops when it is revoked');
	like($program->{err}->(), qr/the seat is lost/, '... and says so');
}

done_testing();
