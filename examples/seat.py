"""Works for some seconds with a seat of a license, and keeps the seat.

    python3 seat.py CONNECTION LICENSE JWKS-FILE HOLDER SECONDS

With psycopg 3 and PyJWT (Debian: python3-psycopg python3-jwt
python3-cryptography), and verify.py from beside this file.
"""
import json
import secrets
import sys
import time

import jwt
import psycopg
from psycopg.rows import namedtuple_row

from verify import verify

if len(sys.argv) != 6:
    sys.exit(__doc__)
connection, license_id, jwks_file, holder = sys.argv[1:5]
try:
    seconds = float(sys.argv[5])
    with open(jwks_file) as file:       # an application has it built in
        jwks = jwt.PyJWKSet.from_dict(json.load(file))
except (OSError, ValueError, TypeError, AttributeError,
        jwt.PyJWTError) as error:
    sys.exit(f"{error}\n\n{__doc__}")

# Errors that say no. All others are silence: the server restarts, is busy,
# has lost its key, is being upgraded. A seat outlives silence.
REFUSALS = ("KR001", "KR002", "KR003", "KR004", "KR006", "22", "42")


def is_refusal(error):
    return (error.sqlstate or "").startswith(REFUSALS)


def words(error):
    return f"{error.sqlstate or 'no answer'}: {error}"


def call(query, *args):
    # Each call is a transaction and a connection of its own. Without
    # prepare_threshold=None, psycopg would prepare statements in the end,
    # which poolers older than PgBouncer 1.21 do not know.
    with psycopg.connect(connection, autocommit=True, prepare_threshold=None,
                         row_factory=namedtuple_row) as db:
        return db.execute(query, args).fetchone()


def boot_clock():
    # Nobody sets it, and it counts the time that a laptop sleeps.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """What the server has signed, by clocks on this side."""

    def __init__(self, asked, row, old=None):
        claims = verify(row.token, jwks, license_id)
        if claims["seat"] != str(row.seat_id):
            raise jwt.InvalidTokenError("a token of another seat")
        if old and claims["exp"] < old.until:
            raise jwt.InvalidTokenError("an old token once more")
        self.seat_id = row.seat_id
        self.until = claims["exp"]
        # iat is rounded down: so this is a second too short, never too long
        self.length = claims["exp"] - claims["iat"] - 1
        self.until_boot = asked + self.length

    def left(self):
        # The wall clock may be set back; so ask both.
        return min(self.until - time.time(), self.until_boot - boot_clock())


def check_out():
    # The same request_id again after a lost reply gives the same seat.
    request_id = secrets.token_urlsafe(24)
    for last in (False, False, False, True):
        asked = boot_clock()
        try:
            row = call(
                "SELECT * FROM keyright_checkout(%s, %s, request_id => %s)",
                license_id, holder, request_id)
            break
        except psycopg.Error as error:
            if last or is_refusal(error):
                sys.exit(f"no seat: {words(error)}")
            time.sleep(1)
    if row.status == "no_seats_available":
        free = f"; the next can be free at {row.retry_at}" if row.retry_at else ""
        sys.exit(f"all {row.seat_count} seats are in use{free}")
    try:
        return Lease(asked, row)
    except jwt.PyJWTError as error:
        # Of no use here, but it may be to others.
        check_in(row.seat_id)
        sys.exit(f"not signed as it must be: {error}")


def check_in(seat_id):
    try:
        return call("SELECT keyright_checkin(%s, %s)",
                    license_id, seat_id)[0]
    except psycopg.Error as error:
        # No harm: it comes back when its lease is over.
        return f"not given back: {words(error)}"


def beat(lease):
    """A renewed lease, or None when nothing was heard that counts."""
    asked = boot_clock()
    try:
        row = call("SELECT * FROM keyright_heartbeat(%s, %s)",
                   license_id, lease.seat_id)
        if row.status == "seat_lost":
            sys.exit(f"the seat is lost: {row.reason}")
        return Lease(asked, row, lease)
    except psycopg.Error as error:
        if is_refusal(error):
            sys.exit(f"the seat is lost: {words(error)}")
    except jwt.PyJWTError as error:
        print("not signed as it must be:", error, file=sys.stderr)


def main():
    lease = check_out()
    print("a seat until", time.ctime(lease.until), flush=True)
    end = time.monotonic() + seconds
    beat_at = boot_clock() + lease.length / 3
    while time.monotonic() < end:
        if lease.left() <= 0:
            sys.exit("the seat is lost: it could not be renewed in time")
        time.sleep(0.1)     # work, in small pieces
        if boot_clock() >= beat_at:
            renewed = beat(lease)
            lease = renewed or lease
            beat_at = boot_clock() + lease.length / (3 if renewed else 12)
            if renewed:
                print("renewed until", time.ctime(lease.until), flush=True)
    print(check_in(lease.seat_id))


main()
