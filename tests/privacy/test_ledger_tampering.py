"""Whatever is changed, cut off or put back: the ledger does not open, and says where."""

import hashlib
import json
import shutil
import sqlite3

import pytest

from sottovoce.errors import InputError, PrivacyError
from sottovoce.privacy import Gaussian
from sottovoce.privacy.books.ledger import Ledger


def head_of(path):
    return path.with_name(path.name + ".head")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.ledger"
    with Ledger.create(path, "digest", 5.0, 1e-5) as ledger:
        for k in (1, 2, 3):
            ledger.reserve("run", k, Gaussian(10.0), 1e-25)
            ledger.bind_message("run", k, f"message {k}")
    return path


def edit(path, *statements):
    """As someone would who knows SQLite: the triggers are taken off and put back."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)
    for _, sql in triggers:
        connection.execute(sql)
    connection.close()


def rehashed(path):
    """Make the chain consistent again, from an independent reading of the format."""
    connection = sqlite3.connect(path, isolation_level=None)

    def digest(fields):
        return hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()

    last = digest(list(connection.execute("SELECT * FROM header").fetchone()))
    updates = []
    for row in connection.execute("SELECT * FROM entries ORDER BY idx").fetchall():
        new = digest([*row[:6], last])
        updates.append(("UPDATE entries SET previous = ?, hash = ? WHERE idx = ?", (last, new, row[0])))
        last = new
    connection.close()
    edit(path, *updates)
    return last


def test_untouched_it_opens_and_the_documented_hashes_are_its_hashes(path):
    with Ledger.open(path) as ledger:
        head = ledger.head
        assert head.entries == 6
    assert rehashed(path) == head.hash
    Ledger.open(path).close()


@pytest.mark.parametrize("table", ["entries", "header"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET rowid = rowid", "DELETE FROM {}"])
def test_sqlite_itself_refuses_changes(path, table, statement):
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement.format(table))
    connection.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("run", "'other'"), ("round", "99"), ("kind", "'note'"), ("time", "'2020-01-01T00:00:00+00:00'"),
        ("body", "replace(body, '10.0', '99.0')"), ("previous", "upper(previous)"), ("hash", "upper(hash)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("entry", [1, 3, 5])
def test_any_changed_field_is_found_and_named(path, column, value, entry):
    edit(path, f"UPDATE entries SET {column} = {value} WHERE idx = {entry}")
    with pytest.raises(PrivacyError, match=f"entry {entry} (was changed|is not chained)"):
        Ledger.open(path)


@pytest.mark.parametrize(
    ("statements", "where"),
    [
        (["DELETE FROM entries WHERE idx = 6"], "entry 6 is missing"),
        (["DELETE FROM entries WHERE idx > 1"], "entry 2 is missing: the head tells of 6"),
        (["DELETE FROM entries"], "entry 1 is missing"),
        (["DELETE FROM entries WHERE idx = 3"], "entry 3 is missing: entry 4 comes next"),
        (["UPDATE entries SET idx = 7 WHERE idx = 6"], "entry 6 is missing: entry 7"),
        (["UPDATE entries SET idx = -1 WHERE idx = 2", "UPDATE entries SET idx = 2 WHERE idx = 4",
          "UPDATE entries SET idx = 4 WHERE idx = -1"], "entry 2 is not chained to entry 1"),
        (["INSERT INTO entries SELECT 7, run, round, kind, body, time, previous, hash FROM entries WHERE idx = 6"],
         "entry 7 is not chained to entry 6"),
    ],
)  # fmt: skip
def test_missing_moved_and_added_entries_are_found(path, statements, where):
    edit(path, *statements)
    with pytest.raises(PrivacyError, match=where):
        Ledger.open(path)


@pytest.mark.parametrize("statement", ["UPDATE header SET epsilon = 50", "UPDATE header SET data_digest = 'other'"])
def test_the_cap_cannot_be_raised(path, tmp_path, statement):
    edit(path, statement)
    with pytest.raises(PrivacyError, match="entry 1 is not chained to the header"):
        Ledger.open(path)
    empty = tmp_path / "empty.ledger"
    Ledger.create(empty, "digest", 5.0, 1e-5).close()
    edit(empty, statement)
    with pytest.raises(PrivacyError, match="the header is not the one"):
        Ledger.open(empty)


def test_a_rewritten_chain_does_not_fit_the_head(path):
    edit(path, "UPDATE entries SET body = replace(body, '10.0', '99.0') WHERE idx = 1")
    rehashed(path)
    with pytest.raises(PrivacyError, match="entry 6 is not the one that the head names"):
        Ledger.open(path)


def test_who_replaces_both_files_is_found_out_by_a_head_kept_elsewhere(path):
    with Ledger.open(path) as ledger:
        kept = ledger.head.hash
    edit(path, "UPDATE entries SET body = replace(body, '10.0', '99.0') WHERE idx = 1")
    head_of(path).write_text(json.dumps({"entries": 6, "hash": rehashed(path)}))
    with Ledger.open(path) as ledger, pytest.raises(PrivacyError, match="goes on from the head"):
        ledger.expect_known(kept)


def test_an_old_copy_of_the_ledger_is_refused_and_of_its_head_too(path, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    for file in (path, head_of(path)):
        shutil.copy(file, old)
    with Ledger.open(path) as ledger:
        ledger.reserve("run", 4, Gaussian(10.0))
        ledger.reserve("run", 5, Gaussian(10.0))
        ledger.reserve("run", 6, Gaussian(10.0))
        ledger.expect_known(json.loads(head_of(path).read_text())["hash"])
    new_head = head_of(path).read_bytes()
    shutil.copy(old / head_of(path).name, head_of(path))
    with pytest.raises(PrivacyError, match="head tells of 6 entries, and there are 9"):
        Ledger.open(path)
    head_of(path).write_bytes(new_head)
    Ledger.open(path).close()
    shutil.copy(old / path.name, path)
    with pytest.raises(PrivacyError, match="entry 7 is missing"):
        Ledger.open(path)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"entries": "6", "hash": "ab"}', '{"entries": -1, "hash": "ab"}'])
def test_a_damaged_head_is_refused(path, text):
    head_of(path).write_text(text)
    with pytest.raises(PrivacyError, match="Expected a head of a ledger"):
        Ledger.open(path)


def test_a_missing_head_is_refused(path):
    head_of(path).unlink()
    with pytest.raises(PrivacyError, match="got no file"):
        Ledger.open(path)


def test_a_deleted_ledger_is_not_made_anew(path):
    path.unlink()
    with pytest.raises(InputError, match="which is no file"):
        Ledger.open(path)
    with pytest.raises(PrivacyError, match="tells of 6 entries"):
        Ledger.create(path, "digest", 5.0, 1e-5)
    assert not path.exists()


def test_a_ledger_in_force_is_not_made_anew(tmp_path):
    path = tmp_path / "rows.ledger"
    Ledger.create(path, "digest", 5.0, 1e-5).close()
    assert Ledger.unused(path)
    with Ledger.create(path, "other", 9.0, 1e-5, mixed=True) as ledger:
        assert (ledger.header.epsilon, ledger.header.data_digest) == (9.0, "other")
        with pytest.raises(PrivacyError, match="in use"):
            Ledger.create(path, "digest", 5.0, 1e-5)
        ledger.note("from here on it counts")
    assert not Ledger.unused(path)
    with pytest.raises(PrivacyError, match="tells of 1 entries"):
        Ledger.create(path, "other", 9.0, 1e-5, mixed=True)
    head_of(path).unlink()
    with pytest.raises(InputError, match="Open it instead"):
        Ledger.create(path, "other", 9.0, 1e-5, mixed=True)


def test_what_was_in_force_is_never_unused(path):
    edit(path, "DELETE FROM entries")
    assert not Ledger.unused(path)
    head_of(path).unlink()
    assert not Ledger.unused(path)
    with pytest.raises(InputError, match="Open it instead"):
        Ledger.create(path, "digest", 5.0, 1e-5)
    with pytest.raises(PrivacyError, match="Expected the head of the ledger"):
        Ledger.open(path)


@pytest.mark.parametrize("keep", [0, 3000, 5000])
def test_a_cut_file_is_refused(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(PrivacyError, match=r"other tables|readable|missing"):
        Ledger.open(path)


def test_another_database_is_refused_and_left_as_it_was(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE people (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(PrivacyError, match="other tables"):
        Ledger.open(path)
    with pytest.raises(InputError, match="Open it instead"):
        Ledger.create(path, "digest", 1.0, 1e-5)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_is_no_ledger_is_refused(path, tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text("not a ledger at all, but long enough to be taken for one by its first bytes" * 20)
    with pytest.raises(PrivacyError, match="not a database"):
        Ledger.open(other)
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entries_update")
    connection.close()
    with pytest.raises(PrivacyError, match="other tables or triggers"):
        Ledger.open(path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE entries SET kind = 'gift' WHERE idx = 6", "unknown kind"),
        ("UPDATE entries SET round = 1 WHERE idx = 3", "reserved twice"),
        ("UPDATE entries SET body = '{}' WHERE idx = 1", "'event'"),
        ("UPDATE entries SET body = replace(body, '10.0', '-10.0') WHERE idx = 1", "sigma"),
        ("UPDATE entries SET round = 7 WHERE idx = 6", r"\('run', 7\)"),
    ],
)
def test_a_chain_that_makes_no_sense_is_refused(path, change, why):
    edit(path, change)
    head_of(path).write_text(json.dumps({"entries": 6, "hash": rehashed(path)}))
    with pytest.raises(PrivacyError, match=f"that the entries before allow.*{why}"):
        Ledger.open(path)


def test_the_wrong_data_set_is_refused(path):
    with pytest.raises(PrivacyError, match=r"data_digest='other', got one of 'digest'"):
        Ledger.open(path, "other")
    with Ledger.open(path, "digest") as ledger:
        ledger.reserve("run 2", 1, Gaussian(1e3))
