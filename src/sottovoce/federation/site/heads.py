"""Statements of ledgers: every model and sum carries one, so that no ledger is set back unnoticed.

    statement    data set (32) | height (8) | AES-SIV of ( hash of the last entry (32) | account (612) )

Other sites keep the last statement of each site that they hear, across runs (`Heads`). They hand it back when that site
asks, which every process does before it sends anything new. If a statement holds entries that the site's own ledger
lacks, the site sends nothing: the ledger was set back, or is a second one for the same rows (`Books.lacking`). Such
statements are kept in a file beside the ledger (`heard_path`). A person can then book what is missing (`catch_up`),
since they hold all that the site had spent.

Nobody else can read a statement. The key of AES-SIV is derived from the site's signing key. So it is the same whatever
folder the site runs from, and only the site can have made what it decrypts. Others see the height, which is the number
of entries, and the name of the data set; the rest looks random to them. The name is a function of the data file and the
signing key that nobody else can compute, so no guess about a row can be tested with it. It does reveal that two runs
were on the same data file.

    data set     SHA-256( label | signature of SHA-256(data file) )          Ed25519 signatures are deterministic,
    key          SHA-512( label | signature of nothing )                     and neither signature is ever sent
"""

import hashlib
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, final

from sottovoce.federation.agreement.identity import PublicKey, SigningContext, SigningKey
from sottovoce.federation.site.stops import BehindError, DamagedError
from sottovoce.federation.transport.wire import BOOKS_BYTES, DIGEST_BYTES, NO_BOOKS
from sottovoce.numerals import counted
from sottovoce.privacy.books.account import ACCOUNT_BYTES, Account, Record
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.settings.disk import is_full, no_room, write_whole

HANDED = 2  # number of statements in an answer: those with the most entries, each of another run
_CLEAR, _SIV_BYTES = struct.Struct(f"<{DIGEST_BYTES}sQ"), 16
_ROWS, _KEY = b"sottovoce data set v1\0", b"sottovoce books key v1\0"
assert _CLEAR.size + _SIV_BYTES + DIGEST_BYTES + ACCOUNT_BYTES == BOOKS_BYTES
_TABLE = (
    "CREATE TABLE IF NOT EXISTS heads (member BLOB NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL, "
    "data BLOB NOT NULL, height INTEGER NOT NULL, statement BLOB NOT NULL, PRIMARY KEY (member, run)) STRICT"
)
_UPSERT = (
    "INSERT INTO heads VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (member, run) DO UPDATE SET round = excluded.round, "
    "data = excluded.data, height = excluded.height, statement = excluded.statement WHERE excluded.round > heads.round"
)
_BUSY = 30.0  # seconds to wait for another run of this site that is writing to the file


# -- a site's own statements ------------------------------------------------------------------------------------------


class OpenedBooks(NamedTuple):
    """The content of a site's own statement."""

    height: int
    head: bytes  # the hash of the last entry
    account: Account


@final
class Books:
    """Statements of one site's ledger.

    Args:
        ledger: of the rows.
        key: the site's signing key.
        data: the SHA-256 of the data file.
    """

    def __init__(self, ledger: Ledger, key: SigningKey, data: bytes) -> None:
        self._ledger, self._seal = ledger, Sealing(key)
        self.data_set = hashlib.sha256(_ROWS + key.sign(_ROWS + data, SigningContext.BOOKS)).digest()

    def statement(self) -> bytes:
        """The statement of the ledger as it is now: `BOOKS_BYTES`."""
        head = bytes.fromhex(self._ledger.head.hash)
        return self._seal.close(self.data_set, OpenedBooks(self._ledger.height, head, self._ledger.account()))

    def lacking(self, told: Mapping[str, Iterable[bytes]]) -> BehindError | None:
        """Why this site must not send anything; None if its ledger holds all that it has ever told others.

        The statements with more are then on the disk, beside the ledger, from where `catch_up` books them.

        Args:
            told: by neighbour, the statements of this site that it holds. They may be any bytes: what this site did not
                make, or made for another data set, is ignored.
        """
        own, found, by = self._ledger.account(), dict[bytes, tuple[Record, ...]](), ""
        for name, statements in told.items():
            for statement in statements:
                opened = self._seal.open(statement)
                if opened is not None and statement[:DIGEST_BYTES] == self.data_set:
                    missing = own.lacking(opened.account)
                    by = name if missing and not by else by
                    found |= {statement: missing} if missing else {}
        if not found:
            return None
        keep_heard(self._ledger.path, found)
        runs = {record.run: record.rounds for missing in found.values() for record in missing}
        return BehindError(
            f"Expected a ledger that holds all that was ever released from these rows, got path="
            f"{str(self._ledger.path)!r} of {self._ledger.head.entries} entries, and a report of site={by!r} on "
            f"{counted(len(runs), 'run')} that it lacks, wholly or in part. It was put back from an old copy, or is a "
            "second ledger for these rows. Nothing was drawn. Restore the newest one, or book what others have seen: "
            f"sottovoce ledger catch-up {self._ledger.path} --key KEY."
        )


@final
class Sealing:
    """Encrypts and decrypts statements, with a key that only the owner of a signing key can have."""

    def __init__(self, key: SigningKey) -> None:
        self._key = hashlib.sha512(_KEY + key.sign(_KEY, SigningContext.BOOKS)).digest()  # 64 bytes

    def close(self, data_set: bytes, opened: OpenedBooks) -> bytes:
        """The statement of these books. The same books always give the same bytes, as AES-SIV needs no nonce."""
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        clear = _CLEAR.pack(data_set, opened.height)
        return clear + AESSIV(self._key).encrypt(opened.head + opened.account.to_bytes(), [clear])

    def open(self, statement: bytes) -> OpenedBooks | None:
        """The content of a statement; None unless it was made with this key."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        if len(statement) != BOOKS_BYTES or statement == NO_BOOKS:
            return None
        clear = statement[: _CLEAR.size]
        try:
            inside = AESSIV(self._key).decrypt(statement[_CLEAR.size :], [clear])
        except InvalidTag:
            return None
        return OpenedBooks(_CLEAR.unpack(clear)[1], inside[:DIGEST_BYTES], Account.from_bytes(inside[DIGEST_BYTES:]))


def heard_path(ledger: Path) -> Path:
    """The file of statements with entries that a ledger lacks: the ledger's path with .heard appended."""
    return ledger.with_name(f"{ledger.name}.heard")


def keep_heard(ledger: Path, statements: Iterable[bytes]) -> None:
    """Add statements to the file beside a ledger. They are on the disk when this returns."""
    known = dict.fromkeys((*_heard(ledger), *statements))
    write_whole(heard_path(ledger), b"".join(known), 0o600)


def catch_up(ledger: Ledger, key: SigningKey) -> tuple[Record, ...]:
    """Book what the statements beside a ledger say and it lacks. Repeating this books nothing more; after a crash it
    has to be repeated.

    Returns:
        The records that were booked, by run.
    """
    place, seal = heard_path(ledger.path), Sealing(key)
    if not place.exists():
        raise DamagedError(
            f"Expected what others have seen of this ledger in {str(place)!r}, got no such file. It is written when "
            "sottovoce site run finds the ledger behind: run that first."
        )
    opened = [seal.open(statement) for statement in _heard(ledger.path)]
    if not opened or None in opened:
        raise DamagedError(
            f"Expected what this site has said of its books in {str(place)!r}, got other bytes. Give the key that the "
            "runs were signed with: --key. If it was that, remove the file and run sottovoce site run again."
        )
    booked: list[Record] = []
    for found in sorted(o for o in opened if o is not None):
        booked += ledger.catch_up(found.account, found.height)
    place.unlink()
    return tuple(booked)


def _heard(ledger: Path) -> list[bytes]:
    """The statements in the file beside a ledger."""
    place = heard_path(ledger)
    data = place.read_bytes() if place.exists() else b""
    return [data[i : i + BOOKS_BYTES] for i in range(0, len(data), BOOKS_BYTES)]


# -- statements of other sites ----------------------------------------------------------------------------------------


@final
class Heads:
    """The last statement of every other site that was heard, by run, in one small file for all runs of this site.

    Only its sender can read a statement. Statements are kept as they came in messages that their senders signed.

    Rounds are written without a sync, which would slow a run down considerably. After a power cut a run that goes on
    hears its last round again, and the statements there cover all earlier ones.

    Formal guarantees:
        What was flushed survives the death of the process. What `last` has returned, and what was there at `close`,
        also survives a power cut. A statement is replaced only by one of a later round of the same run.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self._pending: dict[tuple[bytes, str], tuple[int, bytes]] = {}
        with self._reporting():
            self._connection = sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.execute(_TABLE)

    def hear(self, member: PublicKey, run: str, k: int, statement: bytes) -> None:
        """Keep the statement of a site's message in round k. The next `flush` writes it."""
        before = self._pending.get((member.raw, run), (0, b""))
        if statement != NO_BOOKS and k > before[0]:
            self._pending[member.raw, run] = k, statement

    def flush(self) -> None:
        """Write what was heard, in one commit. It then survives the death of this process; see `sync`."""
        if not self._pending:
            return
        rows = []
        for (member, run), (k, statement) in self._pending.items():
            data_set, height = _CLEAR.unpack_from(statement)  # the part that everybody can read
            rows.append((member, run, k, data_set, min(height, 2**63 - 1), statement))
        with self._reporting():
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_UPSERT, rows)
            self._connection.execute("COMMIT")
        self._pending.clear()

    def sync(self) -> None:
        """Write what was heard, so that it also survives a power cut."""
        self.flush()
        with self._reporting():
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # which syncs, where a commit does not

    def last(self, member: PublicKey, data_set: bytes) -> tuple[bytes, ...]:
        """The last statements of one site for one data set: at most `HANDED`, those with the most entries."""
        self.sync()
        with self._reporting():
            rows = self._connection.execute(
                "SELECT statement FROM heads WHERE member = ? AND data = ? ORDER BY height DESC LIMIT ?",
                (member.raw, data_set, HANDED),
            ).fetchall()
        return tuple(row[0] for row in rows)

    def close(self) -> None:
        """Write what was heard, and close the file."""
        try:
            self.sync()
        finally:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise SQLite's errors as `DamagedError`."""
        try:
            yield
        except sqlite3.Error as error:
            if is_full(error):
                raise DamagedError(no_room(self.path)) from error
            raise DamagedError(
                f"Expected a file for what others say of their books, got {str(self.path)!r}: {error}. See to the "
                "disk, or put the file back from a copy: it protects other sites."
            ) from error


def pack_handed(statements: Iterable[bytes]) -> bytes:
    """At most `HANDED` statements as they stand in an answer, which always has the same size."""
    return b"".join(statements).ljust(HANDED * BOOKS_BYTES, b"\0")


def unpack_handed(data: bytes) -> tuple[bytes, ...]:
    """The statements that `pack_handed` packed, without empty ones."""
    parts = (data[i : i + BOOKS_BYTES] for i in range(0, len(data), BOOKS_BYTES))
    return tuple(part for part in parts if part != NO_BOOKS)
