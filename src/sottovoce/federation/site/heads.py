"""Books that cannot be set back unnoticed: every model and sum carries what its sender's ledger holds.

    statement    data set (32) | height (8) | AES-SIV of ( hash of the last entry (32) | account (612) )

Others keep the last statement of each site that they hear, across runs (`Heads`), and hand it back when that site
asks, which every process does before it says anything new. Whoever finds in it what its own ledger lacks says nothing:
the ledger was set back, or is a second one for the same rows (`Books.lacking`). It can book what is missing, since the
statement holds all that the site has spent, as it said itself.

Nobody else can read it. The key of AES-SIV comes from the site's signing key, so it is the same whatever folder the
site runs from, and only the site can have made what opens under it. To others a statement is random, but for its
height, which is the number of entries, and the name of the data set: a function of the data file and the signing key
that nobody else can compute, so that it says nothing of a row to those who guess. What it does tell is that two runs
were on the same data file.

    data set     SHA-256( label | signature of SHA-256(data file) )          Ed25519 signatures are functions
    key          SHA-512( label | signature of nothing )                     both signatures are never shown
"""

import hashlib
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, final

from sottovoce.federation.agreement.identity import Context, PublicKey, SigningKey
from sottovoce.federation.site.stops import BehindError, DamagedError
from sottovoce.federation.transport.wire import BOOKS_BYTES, DIGEST_BYTES, NO_BOOKS
from sottovoce.privacy.books.account import ACCOUNT_BYTES, Account, Record
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.settings.disk import is_full, no_room, write_whole

HANDED = 2  # statements in an answer: those with the most entries, each of another run
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
_BUSY = 30.0  # seconds to wait for another run of this site that writes down what it hears


# -- one's own --------------------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """What a site has said of its own books."""

    height: int
    head: bytes  # the hash of the last entry
    account: Account


@final
class Books:
    """One site's ledger, as it is spoken of.

    Args:
        ledger: of the rows.
        key: the site's signing key.
        data: the SHA-256 of the data file.
    """

    def __init__(self, ledger: Ledger, key: SigningKey, data: bytes) -> None:
        self._ledger, self._seal = ledger, Sealing(key)
        self.data_set = hashlib.sha256(_ROWS + key.sign(_ROWS + data, Context.BOOKS)).digest()

    def statement(self) -> bytes:
        """What the ledger holds now, for others to keep: `BOOKS_BYTES`."""
        head = bytes.fromhex(self._ledger.head.hash)
        return self._seal.close(self.data_set, Opened(self._ledger.height, head, self._ledger.account()))

    def lacking(self, told: Mapping[str, Iterable[bytes]]) -> BehindError | None:
        """Why this site must not speak, if its ledger lacks what it has told others itself.

        What is lacking is then on the disk, beside the ledger, from where `catch_up` books it.

        Args:
            told: by neighbour, the statements of this site that it holds. Any bytes: what the site did not make, or
                made of another data set, counts for nothing.
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
            f"{str(self._ledger.path)!r} of {self._ledger.head.entries} entries, and word from site={by!r} of "
            f"{len(runs)} run(s) that are not, or not wholly, in it. It was put back from an old copy, or is a second "
            "ledger for these rows. Nothing was drawn. Put the newest one back, or book what others have seen: "
            f"sottovoce ledger catch-up {self._ledger.path} --key KEY."
        )


@final
class Sealing:
    """Closes and opens statements, with a key that only the owner of a signing key can have."""

    def __init__(self, key: SigningKey) -> None:
        self._signing = key

    @cached_property
    def _key(self) -> bytes:
        """64 bytes."""
        return hashlib.sha512(_KEY + self._signing.sign(_KEY, Context.BOOKS)).digest()

    def close(self, data_set: bytes, opened: Opened) -> bytes:
        """The same books always give the same bytes: AES-SIV needs no nonce, and hides all but that."""
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        clear = _CLEAR.pack(data_set, opened.height)
        return clear + AESSIV(self._key).encrypt(opened.head + opened.account.to_bytes(), [clear])

    def open(self, statement: bytes) -> Opened | None:
        """What was said; None unless it was said with this key."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        if len(statement) != BOOKS_BYTES or statement == NO_BOOKS:
            return None
        clear = statement[: _CLEAR.size]
        try:
            inside = AESSIV(self._key).decrypt(statement[_CLEAR.size :], [clear])
        except InvalidTag:
            return None
        return Opened(_CLEAR.unpack(clear)[1], inside[:DIGEST_BYTES], Account.from_bytes(inside[DIGEST_BYTES:]))


def heard_path(ledger: Path) -> Path:
    """What others have told of a ledger and it lacks: beside it, with .heard behind its name."""
    return ledger.with_name(f"{ledger.name}.heard")


def keep_heard(ledger: Path, statements: Iterable[bytes]) -> None:
    """Write down what the ledger lacks, with what was written before. It is on the disk when this returns."""
    known = dict.fromkeys((*_heard(ledger), *statements))
    write_whole(heard_path(ledger), b"".join(known), 0o600)


def catch_up(ledger: Ledger, key: SigningKey) -> tuple[Record, ...]:
    """Book all that others have told of this ledger. Doing it again books nothing more; a crash leaves it to be done.

    Returns:
        What was booked, by run.
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


# -- those of others --------------------------------------------------------------------------------------------------


@final
class Heads:
    """The last statement of every site that was heard, by run: one small file for all runs of a site.

    Statements are of others, and only they can read them. What is kept is what came in a message that they signed.

    Rounds are written down without a sync, which would cost a run a good part of its speed. After a power cut a run
    that goes on hears its last round again, and what is said there covers all that was said before.

    Formal guarantees:
        What was flushed survives the death of the process; what `last` has handed out, and what was there at `close`,
        also a power cut. A later round of a run replaces an earlier one, and nothing else does.
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
        """Take note of what a site has said in round k. It is written down with the next `flush`."""
        before = self._pending.get((member.raw, run), (0, b""))
        if statement != NO_BOOKS and k > before[0]:
            self._pending[member.raw, run] = k, statement

    def flush(self) -> None:
        """Write down what was heard, in one commit. It outlives this process from now on; see `sync`."""
        if not self._pending:
            return
        rows = [(member, run, k, *_shown(data), data) for (member, run), (k, data) in self._pending.items()]
        with self._reporting():
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_UPSERT, rows)
            self._connection.execute("COMMIT")
        self._pending.clear()

    def sync(self) -> None:
        """Write down what was heard, and make it outlive a power cut."""
        self.flush()
        with self._reporting():
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # which syncs, where a commit does not

    def last(self, member: PublicKey, data_set: bytes) -> tuple[bytes, ...]:
        """Of one site and data set: the last statements of the runs with the most entries, at most `HANDED`."""
        self.sync()
        with self._reporting():
            rows = self._connection.execute(
                "SELECT statement FROM heads WHERE member = ? AND data = ? ORDER BY height DESC LIMIT ?",
                (member.raw, data_set, HANDED),
            ).fetchall()
        return tuple(row[0] for row in rows)

    def close(self) -> None:
        """Write down what was heard, and let go of the file."""
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
        """Say in our words what SQLite could not do."""
        try:
            yield
        except sqlite3.Error as error:
            if is_full(error):
                raise DamagedError(no_room(self.path)) from error
            raise DamagedError(
                f"Expected a file for what others say of their books, got {str(self.path)!r}: {error}. See to the "
                "disk, or put the file back from a copy: it protects other sites."
            ) from error


def _shown(statement: bytes) -> tuple[bytes, int]:
    """What everybody can read of a statement: the name of the data set, and the height."""
    data_set, height = _CLEAR.unpack_from(statement)
    return data_set, min(height, 2**63 - 1)


def pack_handed(statements: Iterable[bytes]) -> bytes:
    """Statements as they travel in an answer: always as many bytes."""
    return b"".join(statements).ljust(HANDED * BOOKS_BYTES, b"\0")


def unpack_handed(data: bytes) -> tuple[bytes, ...]:
    """What `pack_handed` packed, without those that say nothing."""
    parts = (data[i : i + BOOKS_BYTES] for i in range(0, len(data), BOOKS_BYTES))
    return tuple(part for part in parts if part != NO_BOOKS)
