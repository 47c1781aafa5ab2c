# The promise: the key can be changed while everybody works.
#
# Holders beat without a pause while the key is replaced by the next one and
# back again.  No lease is lost; every token verifies until its end with the
# key set of its day or a later one; and whoever has an older key set is told
# that he does not know the key, which is another thing than a forgery.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use IPC::Run ();
use JSON::PP ();
use MIME::Base64 qw(decode_base64 encode_base64);
use PostgreSQL::Test::Utils;
use Test::More;

use constant HOLDERS => 10;

my $node = new_node('primary');
my $file = $node->basedir . '/signing.key';
add_license($node, 'acme', HOLDERS, ttl => '20 s', max_ttl => '1 hour');
add_license($node, 'other', 1000, ttl => '1 hour');

sub jwks { return $node->safe_psql('postgres', 'SELECT keyright_jwks()'); }

sub keys_of { return map { $_->{x} } @{ JSON::PP::decode_json($_[0])->{keys} }; }

# The current key comes first.
sub current { return (keys_of(jwks()))[0]; }

sub kid_of { return row($node, "SELECT kid FROM keyright_verify('$_[0]')")->{kid}; }

sub new_token { return checkout($node, 'other', 'x')->{token}; }

sub status_of
{
	my ($token, $jwks) = @_;
	my $keys = defined $jwks ? "'$jwks'" : 'NULL';
	return row($node, "SELECT status FROM keyright_verify('$token', $keys)")->{status};
}

# Another signature, in the same form.
sub tampered
{
	my ($token) = @_;
	$token =~ s/\.(.)([^.]*)$/'.' . ($1 eq 'A' ? 'B' : 'A') . $2/e;
	return $token;
}

# What an administrator does to know a key's "x" before it is used.
sub public_of
{
	my ($seed) = @_;
	my $der = pack('H*', '302e020100300506032b657004220420') . decode_base64($seed);
	my $public;
	IPC::Run::run([qw(openssl pkey -inform DER -pubout -outform DER)],
		'<', \$der, '>', \$public)
	  or die 'openssl failed';
	return encode_base64(substr($public, -32), '') =~ tr{+/=}{-_}dr;
}

# The file stays where it is; what is in it is another key at once, or the old.
sub replace_file
{
	my ($seed, $name) = @_;
	$name //= $file;
	open my $out, '>', "$name.new" or die "could not write: $!";
	chmod 0600, "$name.new";
	print $out "$seed\n";
	close $out;
	rename "$name.new", $name or die "rename: $!";
	return;
}

sub publish
{
	my $list = join ', ', @_;
	$node->append_conf('postgresql.conf', "keyright.retired_keys = '$list'");
	return;
}

sub reload_until_current
{
	my ($x) = @_;
	$node->reload;
	return wait_until("$x is the current key", sub { current() eq $x });
}

########################################################################
# Holders that beat all the while and write down what they are told

$node->safe_psql('postgres', <<'END_OF_SQL');
CREATE TABLE held (holder int PRIMARY KEY, seat_id uuid);
CREATE TABLE beats (n bigint GENERATED ALWAYS AS IDENTITY, holder int,
	status text, token text, expires_at timestamptz);
INSERT INTO held SELECT h, c.seat_id
	FROM generate_series(0, 9) h, keyright_checkout('acme', 'holder ' || h) c;
END_OF_SQL
my $holders = start_clients($node, HOLDERS, 600, <<'END_OF_SCRIPT');
INSERT INTO beats (holder, status, token, expires_at) SELECT h.holder, b.status, b.token, b.expires_at FROM held h, keyright_heartbeat('acme', h.seat_id) b WHERE h.holder = :client_id;
\sleep 50 ms
END_OF_SCRIPT

# Every holder has had another beat, and whose key is in it.
sub all_beat_with
{
	my ($kid, $when) = @_;
	my $from = $node->safe_psql('postgres', 'SELECT coalesce(max(n), 0) FROM beats');
	return ok(
		$node->poll_query_until(
			'postgres', <<END_OF_SQL),
SELECT count(*) = 10 FROM (
	SELECT DISTINCT ON (holder) token FROM beats WHERE n > $from ORDER BY holder, n DESC) b,
	keyright_verify(b.token) v WHERE v.kid = '$kid'
END_OF_SQL
		"every holder is renewed with $when");
}

########################################################################
# One key after the other

my $seed_1 = slurp_file($file) =~ s/\s//gr;
my $jwks_1 = jwks();
my ($x_1) = keys_of($jwks_1);
my $token_1 = new_token();
my $kid_1 = kid_of($token_1);
is($x_1, public_of($seed_1), 'openssl knows the public key of a seed');
all_beat_with($kid_1, 'the first key');

my $seed_2 = new_key();
my $x_2 = public_of($seed_2);
replace_file($seed_2);
publish($x_1);
reload_until_current($x_2);
my $jwks_2 = jwks();
my $token_2 = new_token();
my $kid_2 = kid_of($token_2);
is_deeply([ keys_of($jwks_2) ], [ $x_2, $x_1 ],
	'after a rotation both keys are published');
isnt($kid_2, $kid_1, 'new tokens name the new key');
all_beat_with($kid_2, 'the second key');
is(status_of($token_1), 'valid', 'an old token is valid on the server');
is(status_of($token_1, $jwks_2), 'valid', 'an old token and the new key set');
is(row($node, "SELECT status FROM keyright_verify('$token_1', '$jwks_2', now() + '59 minutes')")->{status},
	'valid', 'near its end too');
is(row($node, "SELECT status FROM keyright_verify('$token_1', '$jwks_2', now() + '61 minutes')")->{status},
	'expired', 'and not after it');
is(status_of($token_2, $jwks_2), 'valid', 'a new token and the new key set');
is(status_of($token_2, $jwks_1), 'unknown_key', 'a new token and the old key set: fetch the new one');
is(status_of(tampered($token_2), $jwks_2), 'bad_signature', 'a forged one and the new key set');
is(status_of(tampered($token_2), $jwks_1), 'unknown_key', 'a forged one of a key that is not known');
is(status_of(tampered($token_1), $jwks_2), 'bad_signature', 'a forged one of the old key');

########################################################################
# The next key published before it is used: nobody ever meets an unknown key

my $seed_3 = new_key();
my $x_3 = public_of($seed_3);
publish($x_1, $x_3);
$node->reload;
wait_until('the next key is published', sub { (() = keys_of(jwks())) == 3 });
my $jwks_23 = jwks();
is_deeply([ keys_of($jwks_23) ], [ $x_2, $x_1, $x_3 ], 'the next key is published');
# Without a reload: sessions that begin now read the new file, others do not.
replace_file($seed_3);
my $token_3 = new_token();
isnt(kid_of($token_3), $kid_2, 'a session that begins before the reload has the next key');
is(status_of($token_3, $jwks_23), 'valid', 'and its tokens are valid under the keys of before');
is(scalar(() = keys_of(jwks())), 2, 'a key that is current and in the list is published once');
publish($x_1, $x_2);
reload_until_current($x_3);
$token_3 = new_token();
my $kid_3 = kid_of($token_3);
all_beat_with($kid_3, 'the third key');
is(status_of($token_3, $jwks_23), 'valid', 'whoever had the next key needs no other key set');
is(status_of($token_3, $jwks_2), 'unknown_key', 'whoever had not must fetch it');
is(status_of($token_2, jwks()), 'valid', 'tokens of the second key go on');
is(status_of($token_1, jwks()), 'valid', 'and those of the first');

########################################################################
# And back again

replace_file($seed_1);
publish($x_2, $x_3);
reload_until_current($x_1);
my $token_4 = new_token();
is(kid_of($token_4), $kid_1, 'the first key again');
all_beat_with($kid_1, 'the first key again');
is(status_of($token_4, $jwks_1), 'valid', 'the oldest key set is good for it');
is(status_of($_), 'valid', 'a token of before is valid') for $token_1, $token_2, $token_3;
publish('');
$node->reload;
wait_until('old keys are withdrawn', sub { (() = keys_of(jwks())) == 1 });
is(status_of($token_2), 'unknown_key', 'a key that is withdrawn too early is unknown');
publish($x_2, $x_3);
$node->reload;
wait_until('they are back', sub { (() = keys_of(jwks())) == 3 });

########################################################################
# Nobody lost anything

all_beat_with($kid_1, 'the first key, at the end');
$holders->{run}->signal('INT');
eval { finish_clients($holders) };
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT status, ' ') FROM beats"),
	'renewed', 'every beat was a renewal');
is($node->safe_psql('postgres', 'SELECT count(*) FROM beats b, keyright_verify(b.token, NULL, b.expires_at - interval \'1 s\') v WHERE v.status <> \'valid\''),
	'0', 'every token that a holder was ever given verifies to its end');
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT v.status, ' ' ORDER BY v.status) FROM beats b, keyright_verify(b.token, '$jwks_1', b.expires_at - interval '1 s') v"),
	'unknown_key valid', 'with the oldest key set: valid or unknown, never forged');
is($node->safe_psql('postgres', 'SELECT count(DISTINCT v.kid) FROM beats b, keyright_verify(b.token) v'),
	'3', 'signed by three keys');
is($node->safe_psql('postgres', 'SELECT count(*) FROM held h JOIN keyright.seat s USING (seat_id)'),
	HOLDERS, 'every holder has the seat that he had at first');

########################################################################
# A list with something else in it

for my $case (
	[ 'a seed', $seed_2 ],
	[ 'a seed among keys', "$x_2, $seed_2" ], [ 'no key', 'correct-horse-battery-staple' ],
	[ 'all zero', 'A' x 43 ], [ 'JSON', '{"keys":[]}' ],
	[ 'too many', join ',', map { public_of(new_key()) } 1 .. 16 ])
{
	my ($label, $value) = @$case;
	my $from = log_size($node);
	$node->append_conf('postgresql.conf', "keyright.retired_keys = '$value'");
	$node->reload;
	ok( wait_until('the log tells of it',
			sub { log_lines($node, 'contains errors', $from) }),
		"keys with $label: the reload is refused");
	my @told = log_lines($node, 'retired_keys', $from);
	cmp_ok(scalar(@told), '>=', 1, "keys with $label: the log names the setting");
	is(scalar(log_lines($node, quotemeta(substr $value, 0, 20), $from)),
		0, "keys with $label: the log does not quote it");
	is_deeply([ keys_of(jwks()) ], [ $x_1, $x_2, $x_3 ],
		"keys with $label: the list stays");
	publish($x_2, $x_3);
	$node->reload;
}
# With one in it the server still starts.
my $from = log_size($node);
$node->append_conf('postgresql.conf', "keyright.retired_keys = '$seed_2'");
$node->restart;
is(scalar(log_lines($node, quotemeta(substr $seed_2, 0, 20), $from)),
	0, 'a server that starts with a bad list does not quote it');
is_deeply([ keys_of(jwks()) ], [$x_1], 'and signs with its key');
is(crashes($node), 0, 'no crash');
$node->stop;

########################################################################
# The path on the command line, as in containers: a reload reads the file too

$node = new_node('container', key => undef, start => 0);
$file = $node->basedir . '/signing.key';
replace_file($seed_1);
system_or_bail('pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile,
	'-o', "-c keyright.signing_key_file=$file", 'start');
$node->_update_pid(1);
$node->safe_psql('postgres', 'CREATE EXTENSION keyright');
my $session = $node->background_psql('postgres');
like($session->query('SELECT keyright_jwks()'), qr/\Q$x_1\E/,
	'a session has the first key');
replace_file($seed_2);
publish($x_1);
reload_until_current($x_2);
ok( wait_until('a session takes the new key',
		sub { $session->query("SELECT keyright_jwks()->'keys'->0->>'x'") =~ /\Q$x_2\E/ }, 20),
	'a reload gives the new key to sessions that live, wherever its path was set');
$session->quit;
is(crashes($node), 0, 'no crash');

done_testing();
