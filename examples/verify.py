"""Verifies a lease with PyJWT (2.x; Debian: python3-jwt python3-cryptography).

    python3 verify.py JWKS-FILE TOKEN-FILE LICENSE

Prints the claims and exits with 0, or says why not and exits with 1.
"""
import json
import sys

import jwt


def verify(token, jwks, license_id):
    """The claims of a lease; raises jwt.PyJWTError, of whatever kind."""
    header = jwt.get_unverified_header(token)
    if header.get("typ") != "keyright-lease+jwt":
        raise jwt.InvalidTokenError("not a lease")
    for key in jwks.keys:
        if key.key_id == header.get("kid"):
            return jwt.decode(
                token, key.key,
                algorithms=["EdDSA"],       # never what the header says
                audience=license_id,        # the license that you sold
                options={
                    "require": ["aud", "sub", "iat", "exp"],
                    # a clock that is behind the server's is no reason to
                    # refuse a fresh token
                    "verify_iat": False})
    raise jwt.InvalidKeyError("no such key: is the JWK Set too old?")


if __name__ == "__main__":
    jwks_file, token_file, license_id = sys.argv[1:]
    with open(jwks_file) as file:
        jwks = jwt.PyJWKSet.from_dict(json.load(file))
    with open(token_file) as file:
        token = file.read().strip()
    try:
        claims = verify(token, jwks, license_id)
    except jwt.PyJWTError as error:
        sys.exit(f"refused: {error}")
    for name, value in claims.items():
        print(f"{name:5} {value}")
