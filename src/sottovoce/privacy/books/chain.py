"""An append-only chain of entries in one SQLite file, and a head beside it that shows a cut tail.

Every entry carries the hash of the one before and its own:

    hash_n = SHA-256( JSON of [n, run, round, kind, body, time, hash_{n-1}] ), hash_0 = SHA-256( JSON of the header ),

JSON without spaces, the header as the list of its fields. A chain alone cannot show that its tail was cut off. So a
small file `<ledger>.head` holds the number of entries and the last hash (`head`).

An entry is committed first (WAL, synced), then the head is overwritten. It is synced with every entry that spends,
so no round is begun that a cut tail could hide. The head of an entry that spends nothing is synced with the next
one. So a crash leaves the ledger at most two entries ahead of its head, and never behind.

A ledger is in force from its first entry on. Until then nothing was spent, and it can be made anew, whatever a crash
has left of it.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, NoReturn
from urllib.parse import quote

from sottovoce.errors import InputError, PrivacyError
from sottovoce.privacy.books.head import Head, OpenHead, head_path, read_head, write_head
from sottovoce.settings.disk import is_full, no_room

FORMAT = 2  # 1 had no order in its header
# Pages of the write-ahead log after which it is merged and begun anew. It then stays short, and syncing a write that
# does not make a file longer takes a fraction of the time.
_MERGED_AFTER = 64
_FURTHEST = 2  # entries that a crash can leave the ledger ahead of its head
_FIELDS = "idx, run, round, kind, body, time, previous, hash"
_HEADER_1 = (
    "CREATE TABLE header (format INTEGER NOT NULL, data_digest TEXT NOT NULL, unit TEXT NOT NULL, "
    "epsilon REAL NOT NULL, delta REAL NOT NULL, created TEXT NOT NULL) STRICT"
)
_REST = (
    "CREATE TABLE entries (idx INTEGER PRIMARY KEY, run TEXT NOT NULL, round INTEGER NOT NULL, kind TEXT NOT NULL, "
    "body TEXT NOT NULL, time TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL) STRICT",
    *(
        f"CREATE TRIGGER {table}_{verb.lower()} BEFORE {verb} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
        for table in ("header", "entries")
        for verb in ("UPDATE", "DELETE")
    ),
)
_SCHEMA = (_HEADER_1.replace(") STRICT", ", renyi_order REAL) STRICT"), *_REST)
_SCHEMAS = {1: (_HEADER_1, *_REST), FORMAT: _SCHEMA}


@dataclass(frozen=True)
class Header:
    """What a ledger is of, and its cap. It is written once and never changes.

    Args:
        format: of the file.
        data_digest: by which the data set is known. Keyed with a secret, so it says nothing of the rows.
        unit: what one unit of privacy is, in words.
        epsilon, delta: the cap, for all runs on these rows together.
        created: when, in UTC.
        order: of a ledger for mixtures, see `filter`; None for one that takes plain Gaussians after its first entry.
    """

    format: int
    data_digest: str
    unit: str
    epsilon: float
    delta: float
    created: str
    order: float | None = None  # of a ledger for mixtures, see `filter`

    @property
    def hash(self) -> str:
        """What the first entry is chained to."""
        return _digest(astuple(self)[: 6 if self.format == 1 else 7])


class LedgerEntry(NamedTuple):
    """One line of the ledger. `body` is JSON text whose form depends on the kind."""

    index: int  # type: ignore[assignment]  # from 1; hides tuple.index, which nobody needs
    run: str
    round: int
    kind: str
    body: str
    time: str
    previous: str
    hash: str


class Chain:
    """The files of one ledger, held by one process at a time.

    It keeps entries and shows tampering, and knows nothing of prices: those are in `book`. `replay` has to be run to
    its end before `append`: it is what verifies the chain.

    Formal guarantees:
        An entry whose `append` returned survives a crash of the process and of the machine. An entry that was changed,
        removed or reordered is found by `replay`, and so is a tail that was cut off, unless the head was put back with
        it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, header: Header) -> None:
        self.path, self.header = path, header
        self._connection = connection
        self._head = Head(0, header.hash)
        self._head_file: OpenHead | None = None
        self._stopped: str | None = "Expected the chain to be verified before anything is written. Replay it."

    @staticmethod
    def exists(path: Path) -> bool:
        """True if a ledger was made there. A crash in `create` leaves a file without tables: that is none."""
        if not path.is_file():
            return False
        connection = _open_locked(path, "rw")
        try:
            return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,))
        except sqlite3.Error as error:
            _refuse(path, error)
        finally:
            connection.close()

    @staticmethod
    def unused(path: Path) -> bool:
        """True if nothing was ever written to a ledger there: none was made, or not to the end, or it has no entry."""
        if _entries_told(path) > 0:
            return False
        if not path.is_file():
            return True
        connection = _open_locked(path, "rw")
        try:
            return _is_unused(connection, path)
        except sqlite3.Error as error:
            _refuse(path, error)
        finally:
            connection.close()

    @classmethod
    def create(cls, path: Path, header: Header) -> "Chain":
        """A new ledger, locked for this process, in the place of none or of one that is not in force.

        A crash leaves one that is not in force, where another try succeeds.
        """
        if _entries_told(path) > 0:
            raise PrivacyError(
                f"Expected no trace of an earlier ledger, got {str(head_path(path))!r}, which tells of "
                f"{_entries_told(path)} entries. What was spent stays spent: open the ledger, or put it back."
            )
        connection = _open_locked(path, "rwc")
        try:
            if not _is_unused(connection, path):
                raise InputError(f"Expected no ledger where one is made, got path={str(path)!r}. Open it instead.")
            _make_durable(connection)
            # The head comes first: no ledger that was ever used is without one.
            write_head(path, Head(0, header.hash))
            connection.execute("BEGIN")
            for table in ("header", "entries"):
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute("INSERT INTO header VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(header))
            connection.execute("COMMIT")
            return cls(path, connection, _read_header(connection, path))
        except BaseException as error:
            _give_up(path, connection, error)

    @classmethod
    def open(cls, path: Path) -> "Chain":
        """An existing ledger, locked for this process."""
        if not path.is_file():
            raise InputError(f"Expected a ledger, got path={str(path)!r}, which is no file. Create it first.")
        connection = _open_locked(path, "rw")
        try:
            header = _read_header(connection, path)
            _make_durable(connection)
            return cls(path, connection, header)
        except BaseException as error:
            _give_up(path, connection, error)

    def replay(self) -> Iterator[LedgerEntry]:
        """All entries in order, each checked against the one before, the last against the head.

        Raises `PrivacyError` at the first entry that is not what was written.
        """
        head, last = read_head(self.path), Head(0, self.header.hash)
        named = last if head.entries == 0 else None  # the place in the chain that the head speaks of
        for entry in self.entries():
            self._check(entry, last)
            last = Head(entry.index, entry.hash)
            named = last if entry.index == head.entries else named
            yield entry
        self._check_head(head, named, last)
        if last != head:  # a crash came between entries and their head
            write_head(self.path, last)
        self._head, self._head_file, self._stopped = last, OpenHead(self.path), None

    def append(
        self, run: str, round_: int, kind: str, body: dict[str, object],
        sync: Callable[[OpenHead], None] = OpenHead.sync,
    ) -> LedgerEntry:  # fmt: skip
        """Write one entry. It is on the disk when this returns. If it raises, nothing more is written until the ledger
        is opened again: only then is it known whether the entry is there.

        Args:
            run: the name of a run; empty for entries of no run.
            round_: of the run.
            kind: of entry.
            body: what it states, as JSON.
            sync: when the head goes to the disk: at once, or, for an entry that spends nothing,
                `OpenHead.sync_every_other`.
        """
        # Chain, commit, overwrite the head, sync: in this order no crash leaves a head that is ahead of its entries.
        if self._stopped is not None or self._head_file is None:
            raise PrivacyError(self._stopped)
        time = datetime.now(UTC).isoformat(timespec="seconds")
        fields = self._head.entries + 1, run, round_, kind, _canonical(body), time, self._head.hash
        entry = LedgerEntry(*fields, _digest(fields))
        # Taken back below, once all is written. If the process gets there no more, nothing may follow a half-known
        # entry.
        self._stopped = (
            f"Expected a ledger that could be written to, got path={str(self.path)!r} after a failed write. "
            "Close it, see to the disk, and open it again."
        )
        try:
            self._connection.execute(f"INSERT INTO entries ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", entry)
            self._head = Head(entry.index, entry.hash)
            self._head_file.overwrite(self._head)
            sync(self._head_file)
        except (sqlite3.Error, OSError) as error:
            if is_full(error):
                raise PrivacyError(f"{no_room(self.path)} Entry {entry.index} may count.") from error
            raise PrivacyError(
                f"Expected to write entry {entry.index} of the ledger path={str(self.path)!r}, got: {error}. Release "
                "nothing. See to the disk, then open the ledger again; the entry may count."
            ) from error
        self._stopped = None
        return entry

    @property
    def head(self) -> Head:
        """The number of entries and the last hash."""
        return self._head

    def entries(self) -> Iterator[LedgerEntry]:
        """All entries in order, unchecked."""
        try:
            for row in self._connection.execute(f"SELECT {_FIELDS} FROM entries ORDER BY idx"):
                yield LedgerEntry(*row)
        except sqlite3.Error as error:
            _refuse(self.path, error)

    def close(self) -> None:
        """Release the lock and close both files. Later calls that write are refused."""
        self._stopped = f"Expected an open ledger, got path={str(self.path)!r}, which was closed. Open it again."
        self._connection.close()
        if self._head_file is not None:
            self._head_file.close()

    def _check(self, entry: LedgerEntry, last: Head) -> None:
        """Stop unless this entry is numbered, chained and hashed as the one that follows `last`."""
        if entry.index != last.entries + 1:
            self._broken(f"entry {last.entries + 1} is missing: entry {entry.index} comes next")
        if entry.previous != last.hash:
            before = f"entry {last.entries}" if last.entries else "the header"
            self._broken(f"entry {entry.index} is not chained to {before}")
        if entry.hash != _digest(entry[:-1]):
            self._broken(f"entry {entry.index} was changed: its hash does not fit")

    def _check_head(self, head: Head, named: Head | None, last: Head) -> None:
        """Stop unless the head names a place in the chain that a crash can have left it at."""
        if named is None:
            self._broken(f"entry {last.entries + 1} is missing: the head tells of {head.entries} entries")
        if named != head:
            place = f"entry {head.entries}" if head.entries else "the header"
            self._broken(f"{place} is not the one that the head names")
        if last.entries > head.entries + _FURTHEST:
            self._broken(
                f"the head tells of {head.entries} entries, and there are {last.entries}: a crash leaves {_FURTHEST} "
                "more at most"
            )

    def _broken(self, what: str) -> NoReturn:
        raise PrivacyError(
            f"Expected an unbroken ledger, got path={str(self.path)!r}, where {what}. It was tampered with or damaged: "
            "release nothing from these rows until it is restored from a copy that is not older."
        )


def _digest(fields: Sequence[object]) -> str:
    """SHA-256 of these fields as canonical JSON, in hexadecimal."""
    return hashlib.sha256(_canonical(list(fields)).encode()).hexdigest()


def _canonical(value: object) -> str:
    """JSON in the one spelling that is hashed: no spaces, no NaN."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _entries_told(path: Path) -> int:
    """The number of entries that the head states; 0 if there is no head."""
    return read_head(path).entries if head_path(path).exists() else 0


def _format(connection: sqlite3.Connection) -> int | None:
    """The format of the tables and triggers; 0 if there are none, None if they are no ledger's."""
    found = {row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    known = [number for number, schema in _SCHEMAS.items() if set(schema) == found]
    return known[0] if known else None if found else 0


def _is_unused(connection: sqlite3.Connection, path: Path) -> bool:
    """True if there are no tables, or a head and no entries. A crash leaves no tables without a head, which comes
    first.
    """
    tables = _format(connection)
    if not tables:
        return tables == 0
    return head_path(path).exists() and connection.execute("SELECT count(*) FROM entries").fetchone() == (0,)


def _read_header(connection: sqlite3.Connection, path: Path) -> Header:
    """The header; `PrivacyError` unless tables and triggers are, letter by letter, those of a known format.

    Triggers are compared too: without them the file would be no longer append-only.
    """
    tables = _format(connection)
    if not tables:
        raise PrivacyError(
            f"Expected a ledger of format 1 or {FORMAT}, got path={str(path)!r} with other tables or triggers. It is "
            "no ledger, is of another version, or was tampered with."
        )
    # Exactly one: a second header would be a second cap.
    rows = connection.execute("SELECT * FROM header").fetchall()
    if len(rows) != 1 or rows[0][0] != tables:
        raise PrivacyError(f"Expected one header of format {tables}, got {rows!r} in path={str(path)!r}.")
    return Header(*rows[0])


def _open_locked(path: Path, mode: str) -> sqlite3.Connection:
    """A connection that no other process can have at the same time. `PrivacyError` if one has it.

    `mode` is SQLite's: "rw", or "rwc" to make the file.
    """
    connection = None
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode={mode}", uri=True, timeout=0, isolation_level=None,
            # The ledger has a lock of its own, and a site computes in another thread than it books in.
            check_same_thread=False,
        )  # fmt: skip
        # Locks are kept until the connection closes. The empty transaction takes them now.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
        return connection
    except BaseException as error:
        _give_up(path, connection, error)


def _make_durable(connection: sqlite3.Connection) -> None:
    """Sync at every commit. Only for what is known to be a ledger: the journal's mode is kept in the file."""
    found = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint={_MERGED_AFTER}")
    if found != ("wal",):
        raise PrivacyError(
            f"Expected a disk on which SQLite can keep a write-ahead log, got journal_mode={found[0]!r}. Put the "
            "ledger on a local disk."
        )


def _give_up(path: Path, connection: sqlite3.Connection | None, error: BaseException) -> NoReturn:
    """Unlock, then raise the error, or a `PrivacyError` in place of SQLite's."""
    if connection is not None:
        connection.close()
    if isinstance(error, sqlite3.Error):
        _refuse(path, error)
    raise error


def _refuse(path: Path, error: sqlite3.Error) -> NoReturn:
    """Raise a `PrivacyError` in place of SQLite's error: the ledger is in use, has no room, or cannot be read."""
    if is_full(error):
        raise PrivacyError(no_room(path)) from error
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        raise PrivacyError(
            f"Expected a ledger that nobody else holds, got path={str(path)!r}, which is in use. Wait until the other "
            "process has ended, or stop it."
        ) from error
    raise PrivacyError(f"Expected a readable ledger, got path={str(path)!r}: {error}. Restore it.") from error
