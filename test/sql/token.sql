-- keyright_verify answers for every token what it is worth, with the server's
-- keys or a given JWK Set, and never raises for a bad one; keyright_jwks
-- publishes public keys and nothing else.
INSERT INTO keyright.license (license_id, seat_count) VALUES ('t', 5);
SELECT * FROM keyright_checkout('t', U&'Anna \00c4rmel "x" \\ y') \gset c_

-- its claims are those of the lease
SELECT v.status, v.problem, v.kid = keyright_jwks() -> 'keys' -> 0 ->> 'kid' AS kid,
       v.issuer, v.license_id, v.holder = :'c_holder' AS holder, v.seat_id = :'c_seat_id' AS seat_id,
       v.slot, v.issued_at = date_trunc('second', :'c_issued_at'::timestamptz) AS issued_at,
       v.expires_at = :'c_expires_at' AS expires_at
  FROM keyright_verify(:'c_token') v;

-- the shape of header and payload
SELECT string_agg(k, ' ' ORDER BY k) AS header, min(h ->> 'alg') AS alg, min(h ->> 'typ') AS typ
  FROM (SELECT convert_from(decode(rpad(p, (length(p) + 3) / 4 * 4, '='), 'base64'), 'UTF8')::json AS h
          FROM translate(split_part(:'c_token', '.', 1), '-_', '+/') p) x, json_object_keys(h) k;
SELECT string_agg(k, ' ' ORDER BY k) AS claims,
       min(h ->> 'aud') AS aud, min((h ->> 'slot')) AS slot,
       bool_and(json_typeof(h -> 'iat') = 'number' AND json_typeof(h -> 'exp') = 'number') AS numbers
  FROM (SELECT convert_from(decode(rpad(p, (length(p) + 3) / 4 * 4, '='), 'base64'), 'UTF8')::json AS h
          FROM translate(split_part(:'c_token', '.', 2), '-_', '+/') p) x, json_object_keys(h) k;

-- the JWK Set: one key of the right kind, and no private part
SELECT jsonb_typeof(j) AS type, jsonb_array_length(j -> 'keys') AS keys,
       (SELECT string_agg(k, ' ' ORDER BY k) FROM jsonb_object_keys(j) k) AS members
  FROM keyright_jwks() j;
SELECT (SELECT string_agg(m, ' ' ORDER BY m) FROM jsonb_object_keys(k) m) AS members,
       k ->> 'kty' AS kty, k ->> 'crv' AS crv, k ->> 'use' AS use, k ->> 'alg' AS alg,
       length(k ->> 'x') AS x, length(k ->> 'kid') AS kid
  FROM jsonb_array_elements(keyright_jwks() -> 'keys') k;
-- the kid is the RFC 7638 thumbprint
SELECT k ->> 'kid' = rtrim(translate(encode(sha256(convert_to(
         '{"crv":"Ed25519","kty":"OKP","x":"' || (k ->> 'x') || '"}', 'UTF8')), 'base64'), '+/', '-_'), '=') AS thumbprint
  FROM jsonb_array_elements(keyright_jwks() -> 'keys') k;

-- with keys that are given
SELECT status FROM keyright_verify(:'c_token', keyright_jwks());
SELECT status, problem, license_id FROM keyright_verify(:'c_token', '{"keys":[]}');
SELECT status, problem IS NOT NULL AS problem, license_id FROM keyright_verify(:'c_token',
  '{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}');
-- a key is known by its thumbprint, whatever "kid" says of it
SELECT status, license_id FROM keyright_verify(:'c_token', jsonb_build_object('keys', jsonb_build_array(
  jsonb_build_object('kty', 'OKP', 'crv', 'Ed25519', 'x', '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo',
                     'kid', keyright_jwks() -> 'keys' -> 0 ->> 'kid'))));
SELECT status FROM keyright_verify(:'c_token', '{}');
SELECT status FROM keyright_verify(:'c_token', '[]');
SELECT status FROM keyright_verify(:'c_token', '"x"');
SELECT status FROM keyright_verify(:'c_token', 'null');
SELECT status FROM keyright_verify(:'c_token', '{"keys":[{"kty":"OKP","crv":"Ed25519","x":""}]}');

-- at a time: exp is exclusive, the server's own counting is inclusive
SELECT d AS us, v.status, v.holder IS NOT NULL AS claims,
       keyright_is_live(:'c_expires_at', '0', :'c_expires_at'::timestamptz + d * interval '1 us') AS counted
  FROM generate_series(-1, 1) d,
       keyright_verify(:'c_token', at => :'c_expires_at'::timestamptz + d * interval '1 us') v
 ORDER BY d;
SELECT a AS at, v.status FROM unnest(ARRAY['-infinity', '1970-01-01', '1900-01-01', '294276-01-01', 'infinity']::timestamptz[])
  WITH ORDINALITY x(a, n), keyright_verify(:'c_token', at => a) v ORDER BY n;

-- bad tokens: an answer, never an error, never claims
SELECT n, v.status, v.problem IS NOT NULL AS problem, num_nonnulls(v.license_id, v.holder, v.seat_id, v.slot) AS claims
  FROM unnest(ARRAY[NULL, '', '.', '..', '...', 'a.b.c', 'eyJhbGciOiJub25lIn0.e30.', repeat('a', 100000),
       :'c_token' || '.', '.' || :'c_token', :'c_token' || '=', ' ' || :'c_token', :'c_token' || E'\n',
       replace(:'c_token', '.', '..'), split_part(:'c_token', '.', 1) || '.' || split_part(:'c_token', '.', 2),
       split_part(:'c_token', '.', 1) || '.' || split_part(:'c_token', '.', 2) || '.'])
       WITH ORDINALITY x(t, n), keyright_verify(t) v ORDER BY n;
-- one character changed anywhere: never valid
SELECT count(*) FILTER (WHERE v.status IN ('valid', 'expired')) AS accepted,
       count(*) = length(:'c_token') AS all_tried
  FROM generate_series(1, length(:'c_token')) i,
       LATERAL keyright_verify(overlay(:'c_token' placing
         CASE substr(:'c_token', i, 1) WHEN 'A' THEN 'B' ELSE 'A' END from i)) v;
-- the payload of one with the signature of another
SELECT * FROM keyright_checkout('t', 'bert') \gset d_
SELECT v.status FROM keyright_verify(split_part(:'c_token', '.', 1) || '.' || split_part(:'d_token', '.', 2) ||
                                     '.' || split_part(:'c_token', '.', 3)) v;

-- a beat signs a new token; the old one stays valid until its own end
SELECT * FROM keyright_checkout('t', 'carl', request_id => 'r') \gset e_
UPDATE keyright.license SET ttl = '2 minutes' WHERE license_id = 't';
SELECT token <> :'e_token' AS renewed, (keyright_verify(token)).status AS new,
       (keyright_verify(:'e_token')).status AS old
  FROM keyright_heartbeat('t', :'e_seat_id');
SELECT keyright_checkin('t', :'e_seat_id');
SELECT status FROM keyright_verify(:'e_token');
-- a refusal and a lost seat carry none
SELECT token FROM keyright_heartbeat('t', :'e_seat_id');

SELECT keyright_delete_license('t', true);
