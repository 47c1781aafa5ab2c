# Hints in shared memory are true or lost, never wrong: whatever is done to
# licenses and in whatever transactions, a check-out refuses only when the pool
# is full, and grants only when it is not.
#
# test/tools/model.c takes random steps and judges each check-out by counting;
# first alone, one step at a time, with seat counts and skews that change both
# ways; then four of it at once on the same licenses while a sampler watches
# that no license is oversold.  The same on a build that loses its hints at
# random.  KEYRIGHT_MODEL_SEED repeats a run, as far as time allows: leases
# lapse by the clock.  KEYRIGHT_MODEL_SECONDS makes it longer.

use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use Load;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{KEYRIGHT_MODEL_SEED} // int(rand(1_000_000));
my $seconds = $ENV{KEYRIGHT_MODEL_SECONDS} // 16;
my $steps = PostgreSQL::Test::Utils::slurp_file(
	"$FindBin::RealBin/../tools/model.sql");

diag "KEYRIGHT_MODEL_SEED=$seed";

sub finish_model
{
	my ($model, $name) = @_;
	$model->{run}->finish;
	note $model->{output};
	my %seen = $model->{output} =~ /^(\w+) (\d+)$/mg;
	is($model->{run}->result(0), 0, "$name: every check-out was right")
	  or diag $model->{output}, $model->{errors};
	return \%seen;
}

# What a run must have met to say anything.
sub check_mix
{
	my ($seen, $name) = @_;
	my @idle = grep { !$seen->{$_} } qw(granted no_seats_available judged
	  lives fills check_ins beats batches revocations revocations_of_slot
	  revocations_of_holder revocations_of_all sweeps seat_counts skews ttls
	  validities cuts COMMIT ROLLBACK rollbacks_to);
	is("@idle", '', "$name: all kinds of steps were taken");
	return;
}

for my $build ('usual', 'forgetful')
{
	my $forgets = $build eq 'forgetful';
	my $node = new_node(
		$build,
		losehints => $forgets,
		conf => "keyright.reap_interval = '1 h'");
	$node->safe_psql('postgres', $steps);

	my $length = $forgets ? $seconds / 2 : $seconds;
	check_mix(
		finish_model(
			start_tool($node, 'model', '-d', $length, '-s', $seed),
			"$build, alone"),
		"$build, alone");

	$node->safe_psql('postgres',
		'SELECT keyright_delete_license(license_id, true) FROM keyright.license');
	my $sampler = start_sampler($node);
	my @models = map {
		start_tool($node, 'model', '-n', '-t', '-d', $length / 3, '-s',
			$seed + $_)
	} 1 .. 4;
	finish_model($models[ $_ - 1 ], "$build, number $_ of four") for 1 .. 4;
	my $seen = stop_sampler($sampler);
	is($seen->{violations}, 0,
		"$build, four at once: no oversell in $seen->{samples} samples")
	  or diag $seen->{worst};

	is(crashes($node), 0, "$build: no crash");
	$node->stop;
}
done_testing();
