"""Forks processes that write to a ledger, and kills them. Prints one JSON object of what was seen. Run by the tests."""

import json
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from sottovoce.cli.site.files import Cap, open_ledger
from sottovoce.errors import PrivacyError
from sottovoce.privacy import Gaussian, epsilon
from sottovoce.privacy.books.account import Account, Record, mark_of
from sottovoce.privacy.books.ledger import Ledger

EVENT = Gaussian(1e4)
OURS = (
    "privacy/books/ledger.py",
    "privacy/books/booked.py",
    "privacy/books/chain.py",
    "privacy/books/account.py",
    "cli/site/files.py",
)  # whose lines are counted


def in_child(work):
    """(exit status, what the child said, a byte at a time) of `work(say)` in a forked process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = 1
        try:
            work(lambda data: os.write(write, data))
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    return child, read


def said(child, read):
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    return os.waitpid(child, 0)[1], data


def die_at(line):
    """Die before that line of our code, counted from now."""
    left = line

    def trace(frame, kind, _):
        nonlocal left
        if not Path(frame.f_code.co_filename).as_posix().endswith(OURS):
            return None
        if kind == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)


def kill_at_line(path, round_, line):
    """Reserve and release one round, and die before that line of the ledger's code."""

    def work(say):
        ledger = Ledger.open(path)
        die_at(line)
        ledger.reserve(f"lines {round_}", 1, EVENT)
        say(b"r")
        ledger.bind_message(f"lines {round_}", 1, "digest")
        say(b"m")

    return said(*in_child(work))


def every_line(path):
    """(killed, reserve returned, released returned, rounds found, messages found) for a death at every line."""
    seen = []
    while not seen or seen[-1]["killed"]:
        round_ = len(seen) + 1
        status, data = kill_at_line(path, round_, round_)
        with Ledger.open(path) as ledger:
            found = [r for r in ledger.reservations() if r.run == f"lines {round_}"]
            seen.append({
                "killed": os.WIFSIGNALED(status), "status": status, "returned": data.decode(), "found": len(found),
                "bound": sum(r.message is not None for r in found), "entries": ledger.head.entries,
            })  # fmt: skip
    return seen


def changes(path):
    """(killed, what returned, the cap, what others' sight counts for) for a death at every tenth line of raising the
    cap and of catching up.
    """
    seen, told = [], Account(3.0, 1e-5, 0.0, 0.0, (Record(mark_of("other"), 3, 1e-4, 0.0),))
    with Ledger.create(path, "digest", 1.0, 1e-5) as ledger:
        ledger.reserve("run", 1, EVENT)
    while not seen or seen[-1]["killed"]:
        number = len(seen) + 1
        account = replace(told, records=(told.records[0]._replace(rounds=number, weight=1e-6 * number),))

        def work(say, number=number, account=account):
            ledger = Ledger.open(path)
            die_at(10 * number)
            ledger.raise_cap(1.0 + number, "signer", lambda text: text[:8])
            say(b"c")
            ledger.catch_up(account, 1000 * number)
            say(b"u")

        status, data = said(*in_child(work))
        with Ledger.open(path) as ledger:
            caught = {record.run: record.rounds for record in ledger.account().records}.get(mark_of("other"), 0)
            seen.append({
                "killed": os.WIFSIGNALED(status), "status": status, "returned": data.decode(), "cap": ledger.cap,
                "caught": caught, "height": ledger.height, "number": number,
            })  # fmt: skip
    return seen


def making(folder, remade):
    """What is left of a ledger whose maker died at every line, and what a site gets then that asks for another cap.

    With `remade` there was one before, with another cap and no entry.
    """
    data, seen = folder / "rows.csv", []
    data.write_text("age\n30\n")
    while not seen or seen[-1]["killed"]:
        line = len(seen) + 1
        path = folder / str(line) / "rows.ledger"
        if remade:
            open_ledger(path, data, Cap(1.0, 1e-5)).close()

        def work(_, path=path, line=line):
            die_at(line)
            open_ledger(path, data, Cap(2.0, 1e-5, mixed=True)).close()

        status, _ = said(*in_child(work))
        left = sorted(file.name for file in path.parent.iterdir()) if path.parent.exists() else []
        with open_ledger(path, data, Cap(3.0, 1e-5)) as ledger:
            cap = ledger.header.epsilon
            ledger.reserve("run", 1, EVENT)
        with open_ledger(path, data, Cap(None, None)) as ledger:
            entries = ledger.head.entries
        files = sorted(file.name for file in path.parent.iterdir())
        seen.append({
            "killed": os.WIFSIGNALED(status), "status": status, "left": left, "cap": cap, "entries": entries,
            "files": files,
        })  # fmt: skip
    return seen


def any_time(path, kills):
    """(rounds that were reported, rounds that are there) after kills at random times."""
    seen, rng = [], random.Random(1)
    for attempt in range(kills):

        def work(say, attempt=attempt):
            ledger = Ledger.open(path)
            for k in range(1, 10_000):
                ledger.reserve(f"time {attempt}", k, EVENT)
                say(b"r")

        child, read = in_child(work)
        os.read(read, 1)
        time.sleep(rng.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        _, data = said(child, read)
        with Ledger.open(path) as ledger:
            seen.append((1 + len(data), sum(r.run == f"time {attempt}" for r in ledger.reservations())))
    return seen


def second_process(path):
    """What another process is told while this one holds the ledger."""

    def work(say):
        try:
            Ledger.open(path)
        except PrivacyError as error:
            say(str(error).encode())

    with Ledger.open(path) as ledger:
        told = said(*in_child(work))[1].decode()
        ledger.note("still mine")
    return told


if __name__ == "__main__":
    place = Path(sys.argv[1])
    epsilon(EVENT, 1e-5)  # what prices is imported before forks, not in each of hundreds
    Ledger.create(place, "digest", 5.0, 1e-5).close()
    done = {"second": second_process(place), "lines": every_line(place), "times": any_time(place, 15)}
    done["changes"] = changes(place.with_name("changed.ledger"))
    for name in ("made", "remade"):
        (place.parent / name).mkdir()
        done[name] = making(place.parent / name, name == "remade")
    print(json.dumps(done))
