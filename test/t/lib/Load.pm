
=pod

=head1 NAME

Load - the load clients of test/tools

=head1 SYNOPSIS

  use Load;

  add_storm_licenses($node);
  my $seen = run_storm($node, '-d', 20, '-i', 'serializable');
  check_storm($seen, 'serializable');

=head1 DESCRIPTION

KEYRIGHT_TOOLS, set by "make test SUITES=tap", is the folder of the programs.
Each of them tells at its head what it does and what its options are.

=cut

package Load;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  add_storm_licenses
  check_storm
  finish_storm
  run_storm
  start_storm
  start_tool
  storm_seconds
);

=pod

=over

=item start_tool($where, $name, @arguments)

Starts a program on database "postgres" of a node, or on a connection string,
which becomes the last argument.  Returns a hash with run (an IPC::Run), output
and errors, which grow as the program writes.

=cut

sub start_tool
{
	my ($where, $name, @arguments) = @_;
	my $conninfo = ref $where ? $where->connstr('postgres') : $where;
	my $dir = $ENV{KEYRIGHT_TOOLS}
	  or BAIL_OUT('KEYRIGHT_TOOLS is not set: run "make test"');
	my $tool = { output => '', errors => '' };
	local $ENV{PGCONNECT_TIMEOUT} = 60;
	$tool->{run} = IPC::Run::start(
		[ "$dir/$name", @arguments, $conninfo ],
		'<', \undef, '>', \$tool->{output}, '2>', \$tool->{errors},
		IPC::Run::timeout(2 * $PostgreSQL::Test::Utils::timeout_default));
	return $tool;
}

=pod

=item add_storm_licenses($node, %columns)

Twenty licenses of 1 to 50 seats, with a ttl of 1 to 3 s and a skew of 0 or
1 s, unless C<%columns> says otherwise (an SQL expression over n, a number).

=cut

sub add_storm_licenses
{
	my ($node, %columns) = @_;
	%columns = (
		ttl => 'make_interval(secs => 1 + n % 3)',
		skew => 'make_interval(secs => n % 2)',
		reap_grace => 'make_interval(secs => n % 2 + 0.2)',
		max_ttl => "interval '10 min'",
		%columns);
	my @names = sort keys %columns;
	my $names = join ', ', @names;
	my $values = join ', ', @columns{@names};
	$node->safe_psql(
		'postgres', qq(
		INSERT INTO keyright.license (license_id, seat_count, $names)
		SELECT 'storm-' || n, seats, $values
		FROM unnest(ARRAY[1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 10, 12, 15, 18,
			20, 25, 30, 40, 50]) WITH ORDINALITY AS u (seats, n)));
	return;
}

=pod

=item storm_seconds($default)

How long a storm lasts: KEYRIGHT_STORM_SECONDS, if that is set.

=item run_storm($node, @options), start_storm, finish_storm($storm)

A run of test/tools/storm; returns what it printed as a hash, by name, and
under "status" its wait status, under "told" the lines about what was wrong.

=cut

sub storm_seconds
{
	my ($default) = @_;
	return $ENV{KEYRIGHT_STORM_SECONDS} || $default;
}

sub start_storm
{
	my ($node, @options) = @_;
	return start_tool($node, 'storm', @options);
}

sub finish_storm
{
	my ($storm) = @_;
	$storm->{run}->finish;
	note $storm->{output};
	my %seen = $storm->{output} =~ /^(\w+) (-?\d+)$/mg;
	# a signal is no good end either
	$seen{status} = $storm->{run}->full_result(0);
	$seen{told} = join "\n",
	  ($storm->{output} =~ /^((?:violation|error): .*)$/mg),
	  $storm->{errors};
	return \%seen;
}

sub run_storm
{
	return finish_storm(start_storm(@_));
}

=pod

=item check_storm($seen, $name)

The tests that every storm has to pass: that nothing was wrong, and that there
was a storm at all.

=back

=cut

sub check_storm
{
	my ($seen, $name) = @_;
	is($seen->{violations}, 0, "$name: nobody saw what must not be")
	  or diag $seen->{told};
	is($seen->{errors_not_allowed}, 0, "$name: no unexpected error")
	  or diag $seen->{told};
	is($seen->{status}, 0, "$name: the clients ended well")
	  or diag $seen->{told};
	my @idle = grep { !$seen->{$_} } qw(granted refused renewed released
	  revocations commits rollbacks rollbacks_to connections_cut samples
	  full_samples audited_leases);
	is("@idle", '', "$name: all kinds of things happened");
	return;
}

1;
