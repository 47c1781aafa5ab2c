"""Verifies tokens as somebody would who has PyJWT and the JWK Set, no more.

usage: verify_pyjwt.py JWKS-FILE <REQUESTS

Each line of input is a JSON object: token, audience and, if the clock is to
stand still at an instant, at (seconds since 1970).  Each line of output is
one too: the claims, or the name of the error.
"""
import datetime
import json
import sys

import jwt
import jwt.api_jwt


class StandingClock(datetime.datetime):
    at = None

    @classmethod
    def now(cls, tz=None):
        if cls.at is None:
            return datetime.datetime.now(tz)
        return datetime.datetime.fromtimestamp(float(cls.at), tz)


def verify(keys, request):
    StandingClock.at = request.get("at")
    token = request["token"]
    try:
        kid = jwt.get_unverified_header(token)["kid"]
        key = next(k for k in keys if k.key_id == kid)
        return {"claims": jwt.decode(token, key.key, algorithms=["EdDSA"],
                                     audience=request["audience"])}
    except StopIteration:
        return {"error": "no such key"}
    except jwt.PyJWTError as error:
        return {"error": type(error).__name__}


def main():
    jwt.api_jwt.datetime = StandingClock
    with open(sys.argv[1], encoding="utf-8") as file:
        keys = jwt.PyJWKSet.from_dict(json.load(file)).keys
    for line in sys.stdin:
        print(json.dumps(verify(keys, json.loads(line))))


main()
