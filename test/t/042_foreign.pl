# The promise: whoever has a JWT library and the JWK Set can verify a token, and
# nobody without the key can make one.
#
# PyJWT and Node's own cryptography verify what the server signs and find in it
# what stands in the row; at the boundary neither they nor keyright_verify
# accept it longer than the server counts the seat.  Then foreign software that
# has the key forges some hundreds of tokens and key sets, most with a good
# signature: each is refused by an answer, never by an error or a crash.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/lib";
use Keyright;
use IO::Select;
use IO::Socket::INET;
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

my $tools = "$FindBin::RealBin/../tools";
# Debian's own, that has Debian's packages.
my $python = $ENV{KEYRIGHT_PYTHON} // '/usr/bin/python3';
my $json = JSON::PP->new->utf8->canonical;

sub foreign
{
	my ($input, @command) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run(\@command, '<', \$input, '>', \$out, '2>', \$err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default))
	  or BAIL_OUT("@command failed: $err");
	return $out;
}

my $jwks_file = PostgreSQL::Test::Utils::tempdir() . '/jwks.json';

# Answers of a verifier to a list of requests.
sub verified_by
{
	my ($verifier, @requests) = @_;
	my @command =
	    $verifier eq 'PyJWT'
	  ? ($python, "$tools/verify_pyjwt.py")
	  : ('node', "$tools/verify_node.mjs");
	my $out = foreign(join('', map { $json->encode($_) . "\n" } @requests),
		@command, $jwks_file);
	return map { $json->decode($_) } split /\n/, $out;
}

my $node = new_node(
	'primary',
	key => RFC8037_SEED,
	conf => "keyright.issuer = 'https://example.com/\"vendor\"'");

########################################################################
# The key of RFC 8037, appendix A

my $jwks = $node->safe_psql('postgres', 'SELECT keyright_jwks()');
append_to_file($jwks_file, $jwks);
is_deeply(
	$json->decode($jwks),
	{
		keys => [
			{
				kty => 'OKP',
				crv => 'Ed25519',
				alg => 'EdDSA',
				use => 'sig',
				x => '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo',
				kid => 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k'
			}
		]
	},
	'the public key of A.2 and the thumbprint of A.3');
my $a4 = 'eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.'
  . 'hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg';
is(row($node, "SELECT status FROM keyright_verify('$a4')")->{status},
	'malformed', 'the JWS of A.4 is signed by this key, and is no lease');

########################################################################
# What the server signs, others verify

my @names = (
	[ 'acme', 'alice' ],
	[ "it's \"quoted\" \\ & <tagged>", "back\\slash \"quote\" /slash/" ],
	[ "\x{e9}\x{4e2d}\x{1f600}", "J\x{fc}rgen \x{1f4bb} \x{202e}" ],
	[ 'x' x 255, 'y' x 255 ]);
my @rows;
for my $name (@names)
{
	my ($license, $holder) = map { my $t = $_; utf8::encode($t); $t } @$name;
	add_license($node, $license, 3, ttl => '1.5 s', max_ttl => '1 day',
		skew => '0');
	push @rows, checkout($node, $license, $holder, '10 minutes');
	push @rows, checkout($node, $license, $holder);
	push @rows, heartbeat($node, $license, $rows[-2]{seat_id});
}
is(scalar(grep { defined $_->{token} } @rows), 12, 'twelve tokens');

# What the row says, as claims.
sub as_claims
{
	my ($row) = @_;
	my $times = row($node,
		"SELECT floor(extract(epoch FROM '$row->{issued_at}'::timestamptz)) AS iat,"
		  . " extract(epoch FROM '$row->{expires_at}'::timestamptz) AS exp");
	return {
		iss => 'https://example.com/"vendor"',
		aud => $row->{license_id},
		sub => $row->{holder},
		seat => $row->{seat_id},
		slot => $row->{slot},
		iat => $times->{iat} + 0,
		exp => $times->{exp} + 0
	};
}

my @claims = map { as_claims($_) } @rows;
# Read at a time when all are valid.
my @requests = map {
	{
		token => $rows[$_]{token},
		audience => $rows[$_]{license_id},
		at => $claims[$_]{exp} - 1
	}
} 0 .. $#rows;
for my $verifier ('PyJWT', 'Node')
{
	my @answers = verified_by($verifier, @requests);
	is_deeply($answers[$_]{claims}, $claims[$_],
		"$verifier verifies token $_, whose claims are the row's")
	  for 0 .. $#rows;
}
is_deeply(
	(verified_by('Node', $requests[0]))[0]{header},
	{
		alg => 'EdDSA',
		typ => 'keyright-lease+jwt',
		kid => 'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k'
	},
	'the header says no more than it must');
my @own = rows($node, join ' UNION ALL ', map { <<END_OF_SQL } 0 .. $#rows);
SELECT $_ AS n, v.*, extract(epoch FROM issued_at)::bigint AS iat, extract(epoch FROM expires_at)::bigint AS exp
FROM keyright_verify('$rows[$_]{token}', NULL, '$rows[$_]{expires_at}'::timestamptz - interval '1 s') v
END_OF_SQL
for my $own (@own)
{
	is_deeply(
		[ @$own{qw(status issuer license_id holder seat_id slot iat exp)} ],
		[ 'valid', @{ $claims[ $own->{n} ] }{qw(iss aud sub seat slot iat exp)} ],
		"keyright_verify reads the same in token $own->{n}");
}
is(scalar(@own), 12, 'in all of them');

is((verified_by('PyJWT', { %{ $requests[0] }, audience => 'other' }))[0]{error},
	'InvalidAudienceError', 'a token is for its own license');

########################################################################
# The boundary: nobody accepts it longer than the server counts the seat

my @boundary = (
	[ -1, 'valid', 'true' ], [ -0.000001, 'valid', 'true' ],
	[ 0, 'expired', 'true' ], [ 0.000001, 'expired', 'false' ],
	[ 1, 'expired', 'false' ]);
for my $n (0, 1)
{
	my $at = "'$rows[$n]{expires_at}'::timestamptz + o * interval '1 s'";
	my @own = rows($node, <<END_OF_SQL);
SELECT keyright_is_live('$rows[$n]{expires_at}', '0', $at)::text AS counted, v.status
FROM unnest(ARRAY[@{[ join ', ', map { sprintf '%.6f', $_->[0] } @boundary ]}])
	WITH ORDINALITY u(o, k), keyright_verify('$rows[$n]{token}', NULL, $at) v ORDER BY k
END_OF_SQL
	my @pyjwt = verified_by('PyJWT', map {
		{
			%{ $requests[$n] }, at => sprintf('%.6f', $claims[$n]{exp} + $_->[0])
		}
	} @boundary);
	for my $k (0 .. $#boundary)
	{
		my ($offset, $status, $counted) = @{ $boundary[$k] };
		my $when = sprintf 'token %d at exp %+.6f', $n, $offset;
		is($own[$k]{counted}, $counted, "$when: the server counts the seat: $counted");
		is($own[$k]{status}, $status, "$when: keyright_verify says $status");
		is($pyjwt[$k]{error} // 'valid',
			$status eq 'valid' ? 'valid' : 'ExpiredSignatureError',
			"$when: PyJWT agrees");
	}
}
# And by its own clock, once a short one is over.
$node->poll_query_until('postgres',
	"SELECT clock_timestamp() > '$rows[1]{expires_at}'");
is( (verified_by('PyJWT', { token => $rows[1]{token}, audience => 'acme' }))[0]{error},
	'ExpiredSignatureError', 'PyJWT rejects a token whose time is over');
is((verified_by('PyJWT', { token => $rows[0]{token}, audience => 'acme' }))[0]{claims}{sub},
	'alice', 'and accepts one that is not');

########################################################################
# Forgeries

my $listener = IO::Socket::INET->new(
	LocalAddr => '127.0.0.1', Listen => 5, ReuseAddr => 1)
  or die "could not listen: $!";
my $url = 'http://127.0.0.1:' . $listener->sockport . '/jwks.json';

add_license($node, 'forgery', 1, ttl => '1 hour');
my $cases = foreign(
	$json->encode(
		{
			seed => RFC8037_SEED,
			token => checkout($node, 'forgery', 'mallory')->{token},
			jwks => $jwks,
			url => $url
		}),
	$python,
	"$tools/verify_forge.py");
my $file = PostgreSQL::Test::Utils::tempdir() . '/cases.json';
append_to_file($file, $cases);

# One text for each case that was not answered as it should be.
$node->safe_psql('postgres', <<'END_OF_SQL');
CREATE FUNCTION judged(token text, jwks jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer record;
BEGIN
	SELECT * INTO answer FROM keyright_verify(token, jwks);
	IF answer.status NOT IN ('valid', 'expired')
		AND (answer.holder, answer.license_id, answer.seat_id, answer.slot,
			answer.issuer, answer.issued_at, answer.expires_at) IS DISTINCT FROM
			(NULL::text, NULL::text, NULL::uuid, NULL::int, NULL::text,
			NULL::timestamptz, NULL::timestamptz) THEN
		RETURN 'claims of a token that was not verified';
	END IF;
	IF (answer.problem IS NULL) <> (answer.status = 'valid') THEN
		RETURN 'the problem is not named';
	END IF;
	RETURN answer.status;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
END_OF_SQL
my @judged = rows($node, <<END_OF_SQL);
SELECT c->>'name' AS name, c->>'expect' AS expect,
	judged(c->>'token', (c->>'jwks')::jsonb) AS answer
FROM jsonb_array_elements(pg_read_file('$file')::jsonb) c
END_OF_SQL
cmp_ok(scalar(@judged), '>', 300, 'some hundreds of forgeries');
is($_->{answer}, $_->{expect}, "forged: $_->{name}") for @judged;
ok(!IO::Select->new($listener)->can_read(0),
	'no forgery made the server call the address in it');

is(sqlstate($node, "SELECT keyright_verify(NULL)"), '', 'no token is no error');
is(row($node, 'SELECT status FROM keyright_verify(NULL)')->{status},
	'malformed', 'it is malformed');

is(crashes($node), 0, 'no crash');
done_testing();
