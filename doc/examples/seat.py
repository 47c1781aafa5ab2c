"""Holds a seat while it runs, with psycopg 3 (Debian: python3-psycopg).

    python3 seat.py CONNECTION LICENSE HOLDER SECONDS
"""
import secrets
import sys
import time

import psycopg
from psycopg.rows import namedtuple_row

connection, license_id, holder, seconds = sys.argv[1:]

# Errors that say no. All others are silence: the server restarts, is busy,
# has lost its key, is being upgraded. A seat outlives silence.
REFUSALS = ("KR001", "KR002", "KR003", "KR004", "KR006", "22", "42")


def is_refusal(error):
    return (error.sqlstate or "").startswith(REFUSALS)


def call(query, *args):
    # Each call is a transaction and a connection of its own. Without
    # prepare_threshold=None, psycopg would prepare statements in the end,
    # which poolers older than PgBouncer 1.21 do not know.
    with psycopg.connect(connection, autocommit=True, prepare_threshold=None,
                         row_factory=namedtuple_row) as db:
        return db.execute(query, args).fetchone()


class Lease:
    """What a check-out or a heartbeat granted, by clocks on this side."""

    def __init__(self, asked, row):
        self.length = (row.expires_at - row.issued_at).total_seconds()
        self.until = row.expires_at.timestamp()
        # counted from before the request, so never too long
        self.until_monotonic = asked + self.length

    def over(self):
        # The wall clock may be set back; the other one stops in a laptop's
        # sleep. So ask both.
        return (time.time() >= self.until
                or time.monotonic() >= self.until_monotonic)


def check_out():
    # The same request_id again after a lost reply gives the same seat.
    request_id = secrets.token_urlsafe(24)
    for last in (False, False, False, True):
        asked = time.monotonic()
        try:
            return asked, call(
                "SELECT * FROM keyright_checkout(%s, %s, request_id => %s)",
                license_id, holder, request_id)
        except psycopg.Error as error:
            if last or is_refusal(error):
                sys.exit(f"no seat: {error.sqlstate} {error}")
            time.sleep(1)


def main():
    asked, seat = check_out()
    if seat.status == "no_seats_available":
        sys.exit(f"all {seat.seat_count} seats are in use;"
                 f" the next can be free at {seat.retry_at}")
    print("slot", seat.slot, "until", seat.expires_at)
    lease = Lease(asked, seat)
    pause = lease.length / 3
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        time.sleep(min(pause, max(0, end - time.monotonic())))
        asked = time.monotonic()
        try:
            beat = call("SELECT * FROM keyright_heartbeat(%s, %s)",
                        license_id, seat.seat_id)
        except psycopg.Error as error:
            if is_refusal(error) or lease.over():
                sys.exit(f"the seat is lost: {error.sqlstate} {error}")
            pause = lease.length / 12
            continue
        if beat.status == "seat_lost":
            sys.exit(f"the seat is lost: {beat.reason}")
        lease = Lease(asked, beat)
        pause = lease.length / 3
        print("renewed until", beat.expires_at)
    print(call("SELECT keyright_checkin(%s, %s)",
               license_id, seat.seat_id)[0])


main()
