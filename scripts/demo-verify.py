"""Verifies a lease with PyJWT alone: demo-verify.py JWKS-FILE TOKEN-FILE LICENSE

Shows the claims, then shows that a token with one character changed is
refused.  Exits with 0 only if both went so.
"""
import json
import sys

import jwt


def verify(token, jwks, license_id):
    kid = jwt.get_unverified_header(token)["kid"]
    key = next(k for k in jwks.keys if k.key_id == kid)
    return jwt.decode(
        token, key.key, algorithms=["EdDSA"], audience=license_id,
        options={"require": ["exp", "iat", "aud", "sub"]})


def forge(token):
    """The same token with the first character of its claims changed."""
    header, claims, signature = token.split(".")
    changed = chr(ord(claims[8]) ^ 1)
    return ".".join([header, claims[:8] + changed + claims[9:], signature])


jwks_file, token_file, license_id = sys.argv[1:]
with open(jwks_file) as file:
    jwks = jwt.PyJWKSet.from_dict(json.load(file))
with open(token_file) as file:
    token = file.read().strip()

for name, value in verify(token, jwks, license_id).items():
    print(f"{name:5} {value}")

try:
    verify(forge(token), jwks, license_id)
except jwt.InvalidSignatureError as error:
    print(f"\nchanged: {error}")
else:
    sys.exit("a changed token was accepted")
