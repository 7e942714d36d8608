"""A process that dies can only have counted too much."""

import errno
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sottovoce.errors import PrivacyError
from sottovoce.privacy import Gaussian
from sottovoce.privacy.books import chain as chain
from sottovoce.privacy.books.ledger import Ledger

DRIVER = Path(__file__).parent / "ledger_crash_driver.py"


@pytest.fixture(scope="module")
def crashes():
    # In memory where there is such a place: a killed process leaves the same behind, and hundreds of syncs are quick.
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        command = [sys.executable, str(DRIVER), str(Path(folder) / "rows.ledger")]
        quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_before_any_line_of_a_reservation(crashes):
    """Every line of the ledger's own code, from the call of `reserve` to the return of `bind_message`."""
    seen, entries = crashes["lines"], 1
    assert len(seen) > 50
    assert [s["killed"] for s in seen] == [True] * (len(seen) - 1) + [False]
    for s in seen:
        assert ("r" in s["returned"]) <= s["found"]
        assert ("m" in s["returned"]) <= s["bound"] <= s["found"]
        entries += s["found"] + s["bound"]
        assert s["entries"] == entries
    # Deaths were seen before, between and after the two commits.
    assert {(s["returned"], s["found"], s["bound"]) for s in seen} >= {
        ("", 0, 0), ("", 1, 0), ("r", 1, 0), ("r", 1, 1), ("rm", 1, 1),
    }  # fmt: skip


def test_killed_while_the_cap_is_raised_or_others_sight_is_booked(crashes):
    """Either is there as a whole or not at all, and what has returned is there."""
    seen = crashes["changes"]
    assert len(seen) > 20
    assert [s["killed"] for s in seen] == [True] * (len(seen) - 1) + [False]
    cap = caught = 0
    for s in seen:
        assert s["cap"] in (1.0 + s["number"], cap or 1.0)
        assert s["caught"] in (s["number"], caught)
        assert ("c" not in s["returned"]) or s["cap"] == 1.0 + s["number"]
        assert ("u" not in s["returned"]) or s["caught"] == s["number"]
        assert s["height"] > 1000 * s["caught"]
        cap, caught = s["cap"], s["caught"]
    assert {"", "c", "cu"} == {s["returned"] for s in seen}


@pytest.mark.parametrize("how", ["made", "remade"])
def test_killed_before_any_line_of_making_a_ledger(crashes, how):
    """Whatever is left is no ledger yet: the next try makes one with the cap that it asks for, and that is in force."""
    seen = crashes[how]
    assert len(seen) > 50
    assert [s["killed"] for s in seen] == [True] * (len(seen) - 1) + [False]
    assert seen[-1]["status"] == 0
    for s in seen:
        assert (s["cap"], s["entries"]) == (3.0, 1)
        assert s["files"] == ["rows.ledger", "rows.ledger.head", "rows.ledger.salt"]
    left = {tuple(s["left"]) for s in seen}
    if how == "made":  # the salt comes last
        assert left > {(), ("rows.ledger",), ("rows.ledger", "rows.ledger.head"), tuple(seen[-1]["files"])}


def test_killed_at_any_time(crashes):
    for reported, found in crashes["times"]:
        assert 1 <= reported <= found <= reported + 1
    assert sum(found for _, found in crashes["times"]) > 20


def test_a_second_process_is_refused(crashes):
    assert "nobody else holds" in crashes["second"]
    assert "in use" in crashes["second"]


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "rows.ledger", "digest", 1.0, 1e-5) as ledger:
        ledger.reserve("run", 1, Gaussian(50.0))
        yield ledger


def test_a_second_holder_in_this_process_is_refused(ledger):
    with pytest.raises(PrivacyError, match="in use"):
        Ledger.open(ledger._chain.path)


def test_every_commit_is_synced(ledger):
    connection = ledger._chain._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert connection.execute("PRAGMA locking_mode").fetchone() == ("exclusive",)


def test_heads_are_synced_with_what_spends_and_with_every_other_of_the_rest(ledger, monkeypatch):
    name = "fdatasync" if hasattr(os, "fdatasync") else "fsync"
    sync, synced = getattr(os, name), []

    def noted(file):
        head = os.pread(file, 200, 0)
        synced.append(json.loads(head)["entries"])
        sync(file)

    monkeypatch.setattr(os, name, noted)
    ledger.reserve("run", 2, Gaussian(50.0))
    ledger.bind_message("run", 1, "one")
    ledger.reserve("run", 3, Gaussian(50.0))
    assert synced == [2, 4]
    for text in ("a", "b", "c", "d", "e"):
        ledger.note(text)
    assert synced == [2, 4, 6, 8]
    ledger.close()
    assert synced == [2, 4, 6, 8, 9]


def test_a_disk_that_is_full_when_a_ledger_is_made_or_its_head_repaired_is_called_that(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "rows.ledger"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(PrivacyError, match=r"rows\.ledger', got a disk that is full\. Nothing was lost"):
            Ledger.create(path, "rows", 1.0, 1e-5)
    Ledger.create(path, "rows", 1.0, 1e-5).close()  # when there is room
    small = sqlite3.connect(":memory:")
    small.execute("PRAGMA max_page_count=1")
    with pytest.raises(sqlite3.Error) as error:
        small.execute("CREATE TABLE t (x)")
    with pytest.raises(PrivacyError, match="got a disk that is full"):
        chain._refuse(path, error.value)


def test_a_full_disk_reserves_nothing_and_loses_nothing(ledger):
    connection = ledger._chain._connection
    connection.execute("PRAGMA max_page_count = 1")  # SQLite takes what it has

    def fill():
        for k in range(2, 200):
            ledger.reserve("run", k, Gaussian(1e4))

    with pytest.raises(PrivacyError, match=r"got a disk that is full\. Nothing was lost.* Entry \d+ may count"):
        fill()
    count = len(ledger.reservations())
    with pytest.raises(PrivacyError, match="after a failed write"):
        ledger.note("go on")
    ledger.close()
    with Ledger.open(ledger._chain.path) as again:
        assert len(again.reservations()) == count
        again.reserve("run", count + 1, Gaussian(1e4))


@pytest.mark.parametrize("call", ["write", "fdatasync" if hasattr(os, "fdatasync") else "fsync"])
def test_a_head_that_cannot_be_written_stops_the_ledger_and_the_entry_counts(ledger, monkeypatch, call):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(PrivacyError, match=r"a disk that is full.* Entry 2 may count"):
            ledger.reserve("run", 2, Gaussian(50.0))
    with pytest.raises(PrivacyError, match="after a failed write"):
        ledger.reserve("run", 2, Gaussian(50.0))
    ledger.close()
    with Ledger.open(ledger._chain.path) as again:
        assert [r.round for r in again.reservations()] == [1, 2]
        assert again.reserve("run", 2, Gaussian(50.0)).entry == 2


def test_a_crash_while_creating_leaves_room_for_another_try(tmp_path, monkeypatch):
    path = tmp_path / "rows.ledger"
    with monkeypatch.context() as patch:
        patch.setattr(chain, "_SCHEMA", (*chain._SCHEMA, "nonsense"))
        with pytest.raises(PrivacyError, match="syntax error"):
            Ledger.create(path, "digest", 1.0, 1e-5)
    with pytest.raises(PrivacyError, match="other tables"):
        Ledger.open(path)
    assert path.exists()
    assert not Ledger.exists(path)
    Ledger.create(path, "digest", 1.0, 1e-5).close()
    assert Ledger.exists(path)
    with Ledger.open(path) as ledger:
        assert ledger.head.entries == 0


def test_what_is_no_ledger_is_not_taken_for_none(tmp_path, ledger):
    assert not Ledger.exists(tmp_path / "other.ledger")
    (tmp_path / "other.ledger").write_bytes(b"something else" * 100)
    with pytest.raises(PrivacyError, match="not a database"):
        Ledger.exists(tmp_path / "other.ledger")
    with pytest.raises(PrivacyError, match="in use"):
        Ledger.exists(ledger._chain.path)
    ledger.close()
    ledger._chain.path.write_bytes(b"")
    assert not Ledger.exists(ledger._chain.path)
    with pytest.raises(PrivacyError, match="no trace of an earlier ledger"):
        Ledger.create(ledger._chain.path, "digest", 1.0, 1e-5)


def test_what_was_committed_but_not_yet_merged_is_missed_if_it_is_thrown_away(ledger, tmp_path):
    """SQLite's write-ahead log holds the last entries while the ledger is open."""
    copy = tmp_path / "copy.ledger"
    path = ledger._chain.path
    for end in ("", ".head"):
        copy.with_name(copy.name + end).write_bytes(path.with_name(path.name + end).read_bytes())
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    with pytest.raises(PrivacyError, match=r"other tables|entry 1 is missing"):
        Ledger.open(copy)


def test_closed_is_closed(ledger):
    ledger.close()
    with pytest.raises(PrivacyError, match="was closed"):
        ledger.reserve("run", 2, Gaussian(50.0))
    with pytest.raises(PrivacyError, match="readable ledger"):
        list(ledger.entries())
    assert sqlite3.connect(ledger._chain.path).close() is None
