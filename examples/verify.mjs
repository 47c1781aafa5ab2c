// Verifies a lease with what Node.js has (20 or later), no package needed.
//
//     node verify.mjs JWKS-FILE TOKEN-FILE LICENSE
//
// Prints the claims and exits with 0, or says why not and exits with 1.
import { createPublicKey, verify as verifySignature } from 'node:crypto';
import { readFileSync } from 'node:fs';

export function verify(token, jwks, licenseId, now = Date.now() / 1000) {
  const parts = token.split('.');
  if (parts.length !== 3) throw new Error('not three parts');
  const read = (part) => JSON.parse(Buffer.from(part, 'base64url'));

  const header = read(parts[0]);
  if (header.alg !== 'EdDSA' || header.typ !== 'keyright-lease+jwt')
    throw new Error('not a lease');
  const jwk = jwks.keys.find((key) => key.kid === header.kid);
  if (!jwk) throw new Error('no such key: is the JWK Set too old?');

  const key = createPublicKey({ key: jwk, format: 'jwk' });
  if (key.asymmetricKeyType !== 'ed25519') throw new Error('not an Ed25519 key');
  const signed = Buffer.from(`${parts[0]}.${parts[1]}`);
  if (!verifySignature(null, signed, key, Buffer.from(parts[2], 'base64url')))
    throw new Error('bad signature');

  const claims = read(parts[1]);
  if (claims.aud !== licenseId) throw new Error('another license');
  if (!Number.isInteger(claims.exp) || now >= claims.exp)
    throw new Error('its time is over');
  return claims;
}

if (import.meta.url === `file://${process.argv[1]}`) {
  const [jwksFile, tokenFile, licenseId] = process.argv.slice(2);
  try {
    console.log(verify(readFileSync(tokenFile, 'utf8').trim(),
                       JSON.parse(readFileSync(jwksFile, 'utf8')), licenseId));
  } catch (error) {
    console.error(`refused: ${error.message}`);
    process.exitCode = 1;
  }
}
