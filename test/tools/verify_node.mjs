// Verifies tokens with Node's own cryptography and the JWK Set, no more.
//
// usage: node verify_node.mjs JWKS-FILE <REQUESTS
//
// Each line of input is a JSON object with a token; each line of output is one
// with its header and claims, or with an error.

import crypto from 'node:crypto';
import fs from 'node:fs';

const keys = new Map(
	JSON.parse(fs.readFileSync(process.argv[2], 'utf8')).keys.map(
		(jwk) => [jwk.kid, crypto.createPublicKey({ key: jwk, format: 'jwk' })]));

const read = (part) => JSON.parse(Buffer.from(part, 'base64url').toString('utf8'));

function verify(token) {
	const [header, payload, signature] = token.split('.');
	const key = keys.get(read(header).kid);
	if (key === undefined)
		return { error: 'no such key' };
	if (!crypto.verify(null, Buffer.from(`${header}.${payload}`), key,
		Buffer.from(signature, 'base64url')))
		return { error: 'bad signature' };
	return { header: read(header), claims: read(payload) };
}

for (const line of fs.readFileSync(0, 'utf8').split('\n'))
	if (line !== '')
		console.log(JSON.stringify(verify(JSON.parse(line).token)));
