"""A site's memory: whole or not at all, never twice, and damage is noticed."""

import io
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from helpers.federations import agreement
from sottovoce.errors import InputError, PrivacyError
from sottovoce.federation.site import journal as module
from sottovoce.federation.site.journal import Checkpoint, Journal, Owner
from sottovoce.federation.site.letters import Sighting
from sottovoce.federation.site.snapshot import Snapshot, pack_arrays, pack_state, unpack_arrays, unpack_state
from sottovoce.federation.site.stops import DamagedError, UsedTwiceError
from sottovoce.federation.site.witness import Witness

OWNER = Owner("0" * 32, "ab" * 32, "berlin", "numpy 2")


def COMMIT(salt):
    return f"sha256:{salt.hex()}"


State = namedtuple("State", ["w", "gamma"])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


def test_what_was_written_is_there_after_reopening(path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        assert (journal.round, journal.last(), journal.said(1), journal.absent) == (0, None, None, {})
        journal.put(1, b"message", b"state")
        journal.checkpoint(1, b"after")
        journal.put(2, b"next", b"middle")
        journal.drop(2, "rome")
    with Journal.open(path, OWNER, COMMIT) as journal:
        assert journal.last() == Checkpoint(1, b"after")
        assert journal.said(2) == (b"next", b"middle")
        assert journal.absent == {"rome": 2}
        journal.checkpoint(2, b"later")
        assert (journal.round, journal.last()) == (2, Checkpoint(2, b"later"))


def left_by_a_crash(path, folder):
    """The journal, as another process would find it if this one were killed now."""
    folder.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, folder)
    with Journal.open(folder / path.name, OWNER, COMMIT) as journal:
        return journal.round, [k for k in range(1, 9) if journal.said(k) is not None], journal.absent


def test_a_checkpoint_comes_onto_the_disk_with_whatever_is_written_next(path, tmp_path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        journal.put(1, b"message", b"state")
        journal.checkpoint(1, b"after")
        assert (journal.round, journal.last()) == (1, Checkpoint(1, b"after"))
        assert left_by_a_crash(path, tmp_path / "one") == (0, [1], {})
        journal.put(2, b"next", b"middle")
        assert left_by_a_crash(path, tmp_path / "two") == (1, [1, 2], {})
        journal.checkpoint(2, b"later")
        journal.drop(3, "rome")
        assert left_by_a_crash(path, tmp_path / "three") == (2, [1, 2], {"rome": 3})
        journal.put(3, b"last", b"middle")
        journal.checkpoint(3, b"end")
        journal.settle()
        assert left_by_a_crash(path, tmp_path / "four") == (3, [1, 2, 3], {"rome": 3})
        journal.put(4, b"more", b"middle")
        journal.checkpoint(4, b"very end")
    with Journal.open(path, OWNER, COMMIT) as journal:
        assert journal.last() == Checkpoint(4, b"very end")


def test_opened_sums_are_there_in_order_and_come_onto_the_disk_with_their_checkpoint(path, tmp_path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        for k, opened in enumerate((b"first", None, b"second"), 1):  # the sum of round 2 was given up
            journal.put(k, b"message", b"")
            journal.checkpoint(k, b"known", opened)
        assert journal.sums() == [b"first", b"second"]
        (tmp_path / "one").mkdir()
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copy(file, tmp_path / "one")
        with Journal.open(tmp_path / "one" / path.name, OWNER, COMMIT) as crashed:
            assert (crashed.round, crashed.sums()) == (2, [b"first"])
    with Journal.open(path, OWNER, COMMIT) as journal:
        assert (journal.round, journal.sums()) == (3, [b"first", b"second"])


def test_every_commit_is_synced(path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_a_failed_write_loses_no_checkpoint(path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        journal.put(1, b"message", b"state")
        journal.checkpoint(1, b"after")
        journal._connection.execute("PRAGMA query_only = 1")
        with pytest.raises(DamagedError, match="readonly"):
            journal.put(2, b"next", b"middle")
        assert journal.last() == Checkpoint(1, b"after")
        journal._connection.execute("PRAGMA query_only = 0")
        journal.put(2, b"next", b"middle")
    with Journal.open(path, OWNER, COMMIT) as journal:
        assert (journal.last(), journal.said(2)) == (Checkpoint(1, b"after"), (b"next", b"middle"))


def test_only_the_last_rounds_are_kept(path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        for k in range(1, 9):
            journal.put(k, b"m%d" % k, b"s")
            journal.checkpoint(k, b"c")
    with Journal.open(path, OWNER, COMMIT) as journal:
        assert [k for k in range(1, 9) if journal.said(k) is not None] == [6, 7, 8]


def test_a_round_has_one_message_for_ever(path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        journal.put(1, b"first", b"state")
        with pytest.raises(PrivacyError, match="A round has one message for ever"):
            journal.put(1, b"second", b"state")
        assert journal.said(1).message == b"first"


def test_rounds_come_in_order(path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        for call in (
            lambda: journal.put(2, b"", b""),
            lambda: journal.checkpoint(2, b""),
            lambda: journal.drop(2, "x"),
        ):
            with pytest.raises(PrivacyError, match="of round 1, the next one, got round=2"):
                call()
        journal.put(1, b"m", b"s")
        journal.checkpoint(1, b"c")
        with pytest.raises(PrivacyError, match="a message of round 2"):
            journal.put(1, b"m", b"s")
        journal.drop(2, "rome")
        with pytest.raises(InputError, match="a neighbour that is still there, got site='rome'"):
            journal.drop(2, "rome")


def test_every_commit_is_synced_and_only_the_owner_may_read(path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        connection = journal._connection
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        journal.put(1, b"m", b"s")
        for file in (path, path.with_name(path.name + "-wal")):
            assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_a_second_holder_is_refused(path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        with pytest.raises(UsedTwiceError, match=r"which is in use\. This site runs already"):
            Journal.open(path, OWNER, COMMIT)
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('SELECT * FROM meta')"
        told = subprocess.run([sys.executable, "-c", other, str(path)], capture_output=True, text=True, check=False)
        assert "database is locked" in told.stderr
        journal.put(1, b"m", b"s")
    Journal.open(path, OWNER, COMMIT).close()


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        (OWNER._replace(run="1" * 32), "the journal of run='1111"),
        (OWNER._replace(agreement="cd" * 32), "the journal of agreement='cdcd"),
        (OWNER._replace(site="rome"), "the journal of site='rome', got one of site='berlin'"),
    ],
)
def test_a_journal_belongs_to_one_site_of_one_run(path, owner, message):
    Journal.open(path, OWNER, COMMIT).close()
    with pytest.raises(InputError, match=message):
        Journal.open(path, owner, COMMIT)


def changed(path, statement):
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE outbox SET message = x'00'", "the outbox of round 1 was changed"),
        ("UPDATE outbox SET state = x'00'", "the outbox of round 1 was changed"),
        ("UPDATE checkpoint SET content = x'00'", "the checkpoint of round 0 was changed"),
        ("UPDATE sums SET content = x'00'", "the sum of round 0 was changed"),
        ("UPDATE sums SET round = 5", "the sum of round 5 was changed"),
        ("UPDATE outbox SET round = 7", "round 7 is in the outbox, and the checkpoint is of round 0"),
        ("DROP TABLE absent", "other tables"),
        ("CREATE TABLE more (x)", "other tables"),
        ("DELETE FROM meta", "other tables"),
        ("UPDATE meta SET format = 1", "other tables"),
    ],
)
def test_changes_are_noticed(path, statement, message):
    with Journal.open(path, OWNER, COMMIT) as journal:
        journal.put(1, b"m", b"s")
        journal._connection.execute(
            "INSERT INTO checkpoint VALUES (1, 0, x'01', ?)", (module._digest(b"\x01"),)
        )  # fmt: skip
        digest = module._digest(b"0", b"\x02")
        journal._connection.execute("INSERT INTO sums VALUES (0, x'02', ?)", (digest,))
    changed(path, statement)
    with pytest.raises(DamagedError, match=message):
        Journal.open(path, OWNER, COMMIT)


def test_broken_bytes_are_noticed(path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        journal.put(1, message := os.urandom(50_000), b"s")
    content = bytearray(path.read_bytes())
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(DamagedError, match="not a database"):
        Journal.open(path, OWNER, COMMIT)
    content[content.index(message[20_000:20_010])] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=r"round 1 was changed|broken"):
        Journal.open(path, OWNER, COMMIT)


def test_a_full_disk_leaves_the_round_unwritten(path):
    with Journal.open(path, OWNER, COMMIT) as journal:
        journal._connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(DamagedError, match=r"got a disk that is full\. Nothing was lost"):
            journal.put(1, os.urandom(100_000), b"s")
    with Journal.open(path, OWNER, COMMIT) as journal:
        assert journal.said(1) is None


def test_a_crash_while_it_is_made_leaves_room_for_another_try(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module, "_TABLES", (*module._TABLES, "nonsense"))
        with pytest.raises(DamagedError, match="syntax error"):
            Journal.open(path, OWNER, COMMIT)
    with Journal.open(path, OWNER, COMMIT) as journal:
        assert journal.round == 0


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="a journal that can be written"):
        Journal.open(tmp_path / "nowhere" / "journal", OWNER, COMMIT)


# -- arrays -----------------------------------------------------------------------------------------------------------

numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
finite = arrays(np.float64, st.tuples(st.just(1), st.integers(1, 6), st.just(1)), elements=numbers)


@settings(max_examples=50)
@given(finite, finite)
def test_states_come_back_bit_by_bit(w, gamma):
    state = State(w, gamma)
    back = unpack_state(pack_state(state), state)
    assert isinstance(back, State)
    assert back.w.tobytes() == w.tobytes()
    assert back.gamma.tobytes() == gamma.tobytes()


def test_snapshots_come_back_with_their_edges():
    rng = np.random.default_rng(1)
    w, gamma, said, heard, edge = rng.normal(size=(5, 1, 3, 1))
    a = agreement()
    witness = Witness.start(a)
    start = Snapshot(State(0 * w, 0 * w), 0 * w, 0 * w, witness, {"rome": 0 * w})
    told = {"rome": (Sighting(), Sighting(0, bytes(32), True), Sighting())}
    witness = witness.with_binding(a, "rome", b"r" * 32).after(a, 1, {"rome": b"d" * 32}, told, {"paris": 1})
    back = Snapshot.loads(Snapshot(State(w, gamma), said, heard, witness, {"rome": edge}).dumps(), start, a)
    assert back.witness == witness
    for one, two in ((back.state.w, w), (back.state.gamma, gamma), (back.said, said), (back.heard, heard)):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(back.edges["rome"], edge)
    with pytest.raises(DamagedError, match=r"got others for edge\.oslo, edge\.rome"):
        Snapshot.loads(back.dumps(), replace(start, edges={"oslo": 0 * w}), a)
    for cut in (0, 3, 20, 200):
        with pytest.raises(DamagedError):
            Snapshot.loads(back.dumps()[:cut], start, a)


def test_other_arrays_are_refused():
    data = pack_arrays({"a": np.ones((1, 2, 1))})
    for shapes in ({"a": (1, 3, 1)}, {"b": (1, 2, 1)}, {}, {"a": (1, 2, 1), "b": (1,)}):
        with pytest.raises(DamagedError, match="as this run has them"):
            unpack_arrays(data, shapes)
    with pytest.raises(DamagedError, match="finite numbers in the journal, got others in a"):
        unpack_arrays(pack_arrays({"a": np.array([np.nan])}), {"a": (1,)})
    buffer = io.BytesIO()
    np.savez(buffer, a=np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(DamagedError, match=r"Expected arrays in the journal|as this run has them"):
        unpack_arrays(buffer.getvalue(), {"a": (1,)})


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_damaged_bytes_never_come_back_as_other_numbers(place, flip):
    values = np.arange(6.0).reshape(1, 6, 1)
    data = bytearray(pack_arrays({"a": values}))
    data[place % len(data)] ^= flip
    try:
        found = unpack_arrays(bytes(data), {"a": (1, 6, 1)})
    except DamagedError:
        return
    np.testing.assert_array_equal(found["a"], values)


@pytest.mark.parametrize("data", [b"", b"PK", b"nonsense", b"\x80\x04N."])
def test_other_bytes_are_refused(data):
    with pytest.raises(DamagedError, match="Expected arrays in the journal"):
        unpack_arrays(data, {"a": (1,)})
