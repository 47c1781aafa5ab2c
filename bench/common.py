"""What the benchmarks share: statements, load by pgbench, rounds and ratios.

A machine that others use too makes every figure vary by a quarter and more
from one minute to the next.  So things are compared only within a round, in
which each was measured once, shortly after the other; of the ratios of all
rounds the median counts, and the lowest and the highest are shown beside it.
"""

import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

if "PGHOST" not in os.environ or "BENCH_SERVER" not in os.environ:
    sys.exit(f"run it as: bench/run {os.path.basename(sys.argv[0])}")

# so that what was begun is ended
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

BENCH = pathlib.Path(__file__).resolve().parent
SERVER = pathlib.Path(os.environ["BENCH_SERVER"])
# for our own files and other servers' data, on the file system of the cluster
WORK = SERVER / "work"

ROUNDS = int(os.environ.get("ROUNDS", 5))
SECONDS = int(os.environ.get("SECONDS_EACH", 1))
CLIENTS = int(os.environ.get("CLIENTS", 8))


# --- statements ---

def sql(text):
    """Runs it and returns the rows, as lists of texts."""
    done = subprocess.run(
        ["psql", "-XAtq", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-f", "-"],
        input=text, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"failed:\n{text}")
    return [line.split("\t") for line in done.stdout.splitlines()]


def value(text):
    return sql(text)[-1][0]


def set_server(**settings):
    """For the whole server: what a session sets for itself may not count."""
    sql("".join(f"ALTER SYSTEM SET {name.replace('__', '.')} = '{to}';\n"
                for name, to in settings.items())
        + "SELECT pg_reload_conf();")
    for name, to in settings.items():
        deadline = time.monotonic() + 10
        while value(f"SHOW {name.replace('__', '.')}") != str(to):
            if time.monotonic() > deadline:
                sys.exit(f"{name} = {to} did not arrive")
            time.sleep(0.05)


def sell(first, licenses, seats, every="NULL", remainder=0, lasts="1 hour"):
    """Licenses with seats in use: see bench_sell() in helpers.sql."""
    sql(f"CALL bench_sell({first}, {licenses}, {seats}, {every}, {remainder},"
        f" '{lasts}')")


def wal_position():
    return int(value("SELECT pg_current_wal_insert_lsn() - '0/0'"))


# --- load ---

class Load:
    """What a run of pgbench did."""

    def __init__(self, output, folder, settle, seconds):
        failed = re.search(r"^number of failed transactions: (\d+)", output,
                           re.M)
        if failed and failed[1] != "0":
            sys.exit(f"transactions failed:\n{output}")
        self.count = int(re.search(
            r"transactions actually processed: (\d+)", output)[1])
        # when each ended and how long it took, in seconds
        self.log = [(int(seconds) + int(us) / 1e6, int(latency) / 1e6)
                    for path in folder.glob("pgbench_log.*")
                    for _, _, latency, _, seconds, us, *_ in
                    map(str.split, path.read_text().splitlines())]
        self.latencies = sorted(latency for _, latency in self.log)
        if settle and self.log:
            begin = settle + min(end - latency for end, latency in self.log)
            self.rate = sum(begin < end <= begin + seconds
                            for end, _ in self.log) / seconds
        else:
            rate = re.search(r"^tps = ([\d.]+)", output, re.M)
            self.rate = float(rate[1]) if rate else 0


class PgBench:
    """pgbench with this script, running; wait() gives its Load.

    For so many seconds, after some in which the sessions fill their caches; or
    for so many transactions.  With a rate, transactions begin when they are
    due, whatever became of the ones before, and a latency counts from then.
    """

    def __init__(self, script, seconds=None, transactions=None, clients=None,
                 rate=None, settle=1, **variables):
        clients = clients or CLIENTS
        self.seconds = seconds or SECONDS
        self.settle = 0 if transactions or rate else settle
        self.temporary = tempfile.TemporaryDirectory(dir=WORK)
        self.folder = pathlib.Path(self.temporary.name)
        (self.folder / "script").write_text(script)
        command = ["pgbench", "-n", "-M", "prepared", "-c", str(clients),
                   "-j", str(min(clients, os.cpu_count())), "-l",
                   "-f", "script"]
        if transactions:
            command += ["-t", str(transactions)]
        else:
            command += ["-T", str(self.seconds + self.settle)]
        if rate:
            command += ["-R", str(rate)]
        for name, to in dict(variables, clients=clients).items():
            command += ["-D", f"{name}={to}"]
        self.process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)

    def wait(self):
        output = self.process.communicate()[0]
        if self.process.returncode != 0:
            sys.exit(f"pgbench failed:\n{output}")
        load = Load(output, self.folder, self.settle, self.seconds)
        self.temporary.cleanup()
        return load


def pgbench(script, **options):
    settle = 1
    while True:
        load = PgBench(script, settle=settle, **options).wait()
        if load.rate > 0:
            return load
        print("  nothing was done in that time: again", file=sys.stderr)
        settle *= 2


def percentile(ordered, percent):
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


# --- rounds and ratios ---

def rounds(contenders, count=None):
    """Measures each once a round; {name: [figure of round 1, ...]}.

    The one that begins changes from round to round.
    """
    names = list(contenders)
    figures = {name: [] for name in names}
    for turn in range(count or ROUNDS):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            figure = contenders[name]()
            figures[name].append(figure)
            words = name if isinstance(name, str) else ", ".join(map(str, name))
            print(f"  round {turn + 1}: {words}: {number(figure)}",
                  file=sys.stderr, flush=True)
    return figures


def ratios(over, under):
    return [a / b for a, b in zip(over, under)]


def spread(values, form="{:.2f}"):
    """The median, and from where to where it went."""
    return (form.format(statistics.median(values)) + " ("
            + form.format(min(values)) + " to "
            + form.format(max(values)) + ")")


def compare(figures, first):
    """Rows of a table: the median of each, and the ratio of the first to it."""
    return [[name, number(statistics.median(each)),
             "" if name == first else spread(ratios(figures[first], each))]
            for name, each in figures.items()]


def number(figure):
    """As people read it: three digits count, the rest is noise."""
    if figure >= 1000:
        digits = len(str(int(figure))) - 3
        return f"{int(round(figure, -digits)):,}"
    return f"{figure:.3g}"


def table(headers, rows):
    """Prints a table that is Markdown too; all but the first column right."""
    cells = [headers] + [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    rule = ["-" * widths[0]] + ["-" * (w - 1) + ":" for w in widths[1:]]
    for row in [cells[0], rule] + cells[1:]:
        print("| " + " | ".join(
            [row[0].ljust(widths[0])]
            + [c.rjust(w) for c, w in zip(row[1:], widths[1:])]) + " |")
    print(flush=True)


def points(name, rows):
    """Keeps figures for bench/report to plot."""
    folder = os.environ.get("BENCH_RESULTS")
    if folder:
        pathlib.Path(folder, name + ".dat").write_text(
            "".join("\t".join(map(str, row)) + "\n" for row in rows))


# --- scripts of pgbench ---

# Clients go each over seats of its own, jumping, so that nobody waits for a
# row and no seat is beaten twice in a second: then the beat would have nothing
# to write.  Variables: first, licenses, seats, step; see walk().
WALK = r"""
\set at (:at + 7919) % :each
\set seat :client_id * :each + :at
\set license :first + :seat / :seats
\set slot :seat % :seats + 1
"""


def walk(first, licenses, seats, clients=None):
    """The variables of WALK."""
    return {"first": first, "seats": seats, "at": 0,
            "each": licenses * seats // (clients or CLIENTS)}


BEAT = WALK + """
SELECT * FROM keyright_heartbeat(:license, bench_seat_id(:slot));
"""

# The same, many at once.  Variable: batch, which divides seats
BEAT_MANY = r"""
\set at (:at + 197) % (:each / :batch)
\set group :client_id * (:each / :batch) + :at
\set license :first + :group * :batch / :seats
\set slot :group * :batch % :seats + 1
SELECT * FROM keyright_heartbeat_many(:license, bench_seat_ids(:slot, :batch));
"""

# The limit of a beat: see bench/limit.  Variable: size, of what is signed
LIMIT_TABLE = """
CREATE TABLE limit_seat (LIKE keyright.seat INCLUDING INDEXES)
  WITH (fillfactor = 50);
INSERT INTO limit_seat SELECT * FROM keyright.seat ORDER BY license, slot;
"""
RENEW = """
UPDATE limit_seat SET issued_at = clock_timestamp(),
                      expires_at = clock_timestamp() + interval '1 hour'
 WHERE license = :license AND slot = :slot;
"""
RENEW_AND_SIGN = RENEW.replace(";\n", " RETURNING bench_sign(:size);\n")
UPDATE = WALK + RENEW
LIMIT = WALK + RENEW_AND_SIGN


def signed_size(license="1"):
    """Of a token: all but the signature and the dot before it."""
    return int(value("SELECT length(token) - 87 FROM"
                     f" keyright_heartbeat('{license}', bench_seat_id(1))"))


# The limit of a check-out and its check-in: nothing but their two writes and
# one signature.  Variables: license, seats, size
LIMIT_GRANT = r"""
\set slot random(1, :seats)
""" + RENEW_AND_SIGN + """
UPDATE limit_seat SET issued_at = NULL, expires_at = NULL
 WHERE license = :license AND slot = :slot;
"""

# A license at random: any of them, or one of those that are the client's own.
# Variables: first, licenses
ANY = r"""
\set license random(:first, :first + :licenses - 1)
"""
OWN = r"""
\set own :licenses / :clients
\set license :first + :client_id * :own + random(0, :own - 1)
"""

# A check-out, and the check-in that makes room again.  Variables: license
GRANT = """
SELECT seat_id FROM keyright_checkout(:license, 'somebody@workstation') \\gset
SELECT keyright_checkin(:license, :seat_id);
"""
