"""The journal of one run at a site: its messages and its state. One SQLite file with a write-ahead log.

    outbox      the message of a round, as bytes, and the state after its release: one commit, before anything is sent
    checkpoint  the state after the last round whose messages were all taken in
    sums        masked sums that were opened, in order: all that is needed to run the program again
    absent      neighbours that the site goes on without, and from which round
    vote        sites without which this site would repeat a masked sum, as long as that is not decided
    secret      the seed of this run, from which the keys of noise and masks are derived, until the run is over

A row of the outbox is never replaced: after a crash the same bytes are sent, and nothing is drawn again. Messages
stay on the server, so only the last few are kept here.

Every commit is synced. A checkpoint is written with the next commit, so that a message and the state that it was
computed from reach the disk together. A crash in between loses nothing: the previous outbox is on the disk and the
messages of that round are on the server, so the round is taken in again, with the same result.

The file holds iterates and a seed that must not leave the site; only its owner may read it. With the seed and the
messages anyone could remove the noise. So the seed is deleted at the end, and a backup of the file is as secret as the
rows. Only one process at a time can open the file.
"""

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, NoReturn, Self, TypeAlias, final
from urllib.parse import quote

from sottovoce.errors import InputError, PrivacyError, expect
from sottovoce.federation.agreement.exchange import SEED_BYTES, Seed
from sottovoce.federation.site.commitment import SALT_BYTES
from sottovoce.federation.site.stops import DamagedError, UsedTwiceError
from sottovoce.settings.disk import is_full, no_room, sync_folder

FORMAT = 5  # 4 held the state of masked sums; 3 knew no votes; 2 held the noise key itself
# Rounds of the outbox: the next one, the one before it, and one to spare. A crash never needs an older one.
KEPT = 3
# Pages of the write-ahead log after which it is merged and restarted. It then stays short; and syncing a write that
# does not make a file longer takes a fraction of the time.
_MERGED_AFTER = 128
_OTHER_SOFTWARE = (
    "Nothing was spent. What this site has sent stays on the server and in this journal. Here it cannot send anything "
    "new: a round that was sent before, and is missing in an old copy of this folder, would come out with other noise. "
    "A run goes on under the versions and on the kind of processor that it began with: go on there, or leave the run."
)
_TABLES = (
    "CREATE TABLE meta (format INTEGER NOT NULL, run TEXT NOT NULL, agreement TEXT NOT NULL, site TEXT NOT NULL, "
    "software TEXT NOT NULL, salt BLOB NOT NULL, rows TEXT NOT NULL) STRICT",
    "CREATE TABLE outbox (round INTEGER PRIMARY KEY, message BLOB NOT NULL, state BLOB NOT NULL, digest TEXT NOT NULL) "
    "STRICT",
    "CREATE TABLE checkpoint (only INTEGER PRIMARY KEY CHECK (only = 1), round INTEGER NOT NULL, "
    "content BLOB NOT NULL, digest TEXT NOT NULL) STRICT",
    "CREATE TABLE sums (round INTEGER PRIMARY KEY, content BLOB NOT NULL, digest TEXT NOT NULL) STRICT",
    "CREATE TABLE absent (site TEXT PRIMARY KEY, round INTEGER NOT NULL) STRICT",
    "CREATE TABLE vote (round INTEGER NOT NULL, site TEXT NOT NULL, PRIMARY KEY (round, site)) STRICT",
    "CREATE TABLE secret (only INTEGER PRIMARY KEY CHECK (only = 1), seed BLOB NOT NULL) STRICT",
)


Commit: TypeAlias = Callable[[bytes], str]  # from a secret salt to the commitment to the site's rows


class Owner(NamedTuple):
    """Whose journal it is, and the software, which must stay the same for the same messages to be computed again."""

    run: str
    agreement: str  # its digest in hexadecimal
    site: str
    software: str  # see `software.software`


class Said(NamedTuple):
    """A row of the outbox: a message as it is sent, and the state after its release, packed."""

    message: bytes
    state: bytes


class Checkpoint(NamedTuple):
    """The last round that was taken in, the packed `Standing` after it, and the sum that the round opened, if any."""

    round: int
    content: bytes
    opened: bytes | None = None


@final
class Journal:
    """An open journal. `close` it, or use `with`.

    | what happens | then |
    | --- | --- |
    | a second process opens it | UsedTwiceError |
    | it is of another run, agreement or site | InputError |
    | a changed byte, a missing table | DamagedError when opened or read |
    | a second message for a round, a round out of order | PrivacyError; nothing is written |
    | a failed write | DamagedError; open it again, it holds either all of the write or nothing |
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self.round = 0  # the last round that was taken in; 0 before the first
        self.absent: Mapping[str, int] = {}  # neighbours that were dropped, each with the first round without it
        self._waiting: Checkpoint | None = None  # not on the disk yet
        self._seed: Seed | None = None
        self._agreement = ""
        self.salt, self.rows = b"", ""  # the salt of the commitment to the rows, and the commitment
        # The error if the run began under other software: results can be read, but no new message may be sent.
        self.moved: InputError | None = None

    @classmethod
    def open(
        cls,
        path: Path,
        owner: Owner,
        commit: Commit,
        salt: bytes | None = None,
        seed: Seed | None = None,
        *,
        agreed_seed: bool = False,
    ) -> "Journal":
        """Open and verify the journal at that path, or make a new one if there is none.

        Args:
            path: of the file.
            owner: whose journal it must be.
            commit: from a secret salt to the commitment to the site's rows. It may refuse the rows.
            salt: 32 secret bytes for a new journal; None draws them.
            seed: of this run, for a new journal; None draws one. A journal that has another is refused.
            agreed_seed: True if the agreement holds the seed's public half, so that none can be drawn.
        """
        journal = cls(path, _open_locked(path))
        try:
            with journal._reporting():
                # A new journal is bound to the rows before anything else: `commit` may still refuse them.
                journal._begin(owner, commit, salt, None if agreed_seed and seed is None else seed or Seed.generate())
                journal._verify(owner, commit)
                journal._load(owner)
                # With another seed all messages would come out differently. A finished run has none to compare with.
                if seed is not None and journal._seed is not None and seed.raw != journal._seed.raw:
                    raise InputError(
                        f"Expected the seed that the run of {str(path)!r} began with, got another. Give the seed file "
                        "of this agreement, or none: the journal keeps it."
                    )
        except BaseException:
            journal.close()
            raise
        return journal

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def wound_up(self) -> bool:
        """True if the run is over for good: its seed is deleted, and no message can be made any more."""
        return self._seed is None

    @property
    def seed(self) -> Seed:
        """The secret of this run; refused once the run is over."""
        if self._seed is None:
            raise PrivacyError("Expected a run that goes on, got one that is over: its seed and keys were deleted.")
        return self._seed

    @property
    def noise_key(self) -> bytes:
        """32 secret bytes, a function of the run's seed and agreement."""
        return self.seed.noise_key(self._agreement)

    def last_said(self) -> int:
        """The last round whose message may have been sent; 0 if there is none. Its message is always kept."""
        with self._reporting():
            row = self._connection.execute("SELECT max(round) FROM outbox").fetchone()
        return row[0] or 0

    def last(self) -> Checkpoint | None:
        """The last checkpoint, also if it is not on the disk yet; None before the first."""
        if self._waiting is not None:
            return self._waiting
        with self._reporting():
            row = self._connection.execute("SELECT round, content, digest FROM checkpoint").fetchone()
        if row is None:
            return None
        self._check(row[2], f"the checkpoint of round {row[0]}", row[1])
        return Checkpoint(row[0], row[1])

    def sums(self) -> list[bytes]:
        """All masked sums that were opened, in order."""
        with self._reporting():
            rows = self._connection.execute("SELECT round, content, digest FROM sums ORDER BY round").fetchall()
        for k, content, digest in rows:
            self._check(digest, f"the sum of round {k}", b"%d" % k, content)
        waiting = self._waiting.opened if self._waiting is not None else None
        return [content for _, content, _ in rows] + ([] if waiting is None else [waiting])

    def said(self, k: int) -> Said | None:
        """The outbox of round k; None if it is empty, or no longer kept."""
        with self._reporting():
            row = self._connection.execute("SELECT message, state, digest FROM outbox WHERE round = ?", (k,)).fetchone()
        if row is None:
            return None
        self._check(row[2], f"the outbox of round {k}", row[0], row[1])
        return Said(row[0], row[1])

    def votes(self, k: int) -> frozenset[str]:
        """The sites without which this site would repeat the sum of round k."""
        with self._reporting():
            rows = self._connection.execute("SELECT site FROM vote WHERE round = ?", (k,)).fetchall()
        return frozenset(site for (site,) in rows)

    def check_rows(self, commit: Commit) -> None:
        """Refuse rows that are not, bit by bit, those that the run began with."""
        found = commit(self.salt)
        if found != self.rows:
            raise InputError(
                f"Expected the rows that this run began with, {self.rows}, got {found}. A run is of the same rows from "
                "its first message to its last: put the data file back as it was."
            )

    # -- writing: all but a checkpoint is on the disk when these return -----------------------------------------------

    def put(self, k: int, message: bytes, state: bytes) -> None:
        """Write the message of the next round and the state after its release. Then the message may be sent."""
        if self.moved is not None:
            raise self.moved
        self._expect_next(k, "a message")
        if self.said(k) is not None:
            raise PrivacyError(
                f"Expected no message of round={k} in the outbox, got one. A round has one message for ever: send "
                "that one again."
            )
        with self._writing():
            row = k, message, state, _digest(message, state)
            self._connection.execute("INSERT INTO outbox VALUES (?, ?, ?, ?)", row)

    def checkpoint(self, k: int, content: bytes, opened: bytes | None = None) -> None:
        """Keep the state after round k, and the masked sum that it opened, if any. They reach the disk with the next
        commit.
        """
        self._expect_next(k, "a checkpoint")
        self._waiting, self.round = Checkpoint(k, content, opened), k

    def vote(self, k: int, *sites: str) -> None:
        """Write that this site would repeat the sum of round k without these sites. A vote is never withdrawn."""
        self._expect_next(k, "a vote")
        with self._writing():
            self._connection.executemany("INSERT OR IGNORE INTO vote VALUES (?, ?)", [(k, site) for site in sites])

    def drop(self, k: int, *sites: str) -> None:
        """Write that the site goes on without these neighbours from round k on: all of them or, after a crash, none. No
        neighbour comes back.
        """
        self._expect_next(k, "a lost neighbour")
        for site in sites:
            expect(site not in self.absent, "a neighbour that is still there", site=site)
        with self._writing():
            self._connection.executemany("INSERT INTO absent VALUES (?, ?)", [(site, k) for site in sites])
        self.absent = {**self.absent, **dict.fromkeys(sites, k)}

    def settle(self) -> None:
        """Write the checkpoint that waits, if there is one."""
        if self._waiting is not None:
            with self._writing():
                pass

    def finish(self) -> None:
        """End the run: write the checkpoint that waits, and delete the seed, also from the write-ahead log."""
        with self._writing():
            self._connection.execute("DELETE FROM secret")
        with self._reporting():
            # Old pages of the log would still hold it.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._seed = None

    def close(self) -> None:
        """Write the checkpoint that waits, and release the file for other processes."""
        with suppress(PrivacyError):  # if a checkpoint cannot be written, nothing is lost; see above
            self.settle()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _begin(self, owner: Owner, commit: Commit, salt: bytes | None, seed: Seed | None) -> None:
        """Make the tables, unless they are there; a crash leaves all of them or none. A new journal needs a seed."""
        c = self._connection
        mode = c.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        c.execute("PRAGMA synchronous=FULL")
        # A deleted seed is overwritten, not merely unlinked.
        c.execute("PRAGMA secure_delete=ON")
        c.execute(f"PRAGMA wal_autocheckpoint={_MERGED_AFTER}")
        expect(mode == "wal", "a local disk on which SQLite can keep a write-ahead log", journal_mode=mode)
        if c.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            if seed is None:
                raise InputError(
                    f"Expected --seed: the file that the mask key of site {owner.site} was made with, got none, and "
                    "the run has not begun. Give it, from: sottovoce site seed."
                )
            with self._writing():
                for table in _TABLES:
                    c.execute(table)
                chosen = secrets.token_bytes(SALT_BYTES) if salt is None else salt
                c.execute("INSERT INTO meta VALUES (?, ?, ?, ?, ?, ?, ?)", (FORMAT, *owner, chosen, commit(chosen)))
                c.execute("INSERT INTO secret VALUES (1, ?)", (seed.raw,))
            # A new file is on the disk only once its folder is.
            sync_folder(self.path.parent)

    def _verify(self, owner: Owner, commit: Commit) -> None:
        """Refuse a file that is damaged, of another owner, or bound to other rows than the site's."""
        c = self._connection
        sound = c.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = {row[0] for row in c.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        meta = c.execute("SELECT * FROM meta").fetchall() if sound and tables == set(_TABLES) else []
        if len(meta) != 1 or meta[0][0] != FORMAT:
            self._damaged("it has other tables, or SQLite finds it broken")
        *came, self.salt, self.rows = meta[0][1:]
        # Under other software no new message is made: other versions may sum in another order, with another result.
        for what, found, wanted in zip(Owner._fields, came, owner, strict=True):
            if found != wanted:
                expected = (
                    f"Expected the journal of {what}={wanted!r}, got one of {what}={found!r} at {str(self.path)!r}."
                )
                if what != "software":
                    raise InputError(f"{expected} Use another folder for another run.")
                self.moved = InputError(f"{expected} {_OTHER_SOFTWARE}")
        self.check_rows(commit)

    def _load(self, owner: Owner) -> None:
        """Read round, absent neighbours and seed, and check every digest."""
        c, last = self._connection, self.last()
        self._agreement = owner.agreement
        self.round = 0 if last is None else last.round
        self.absent = dict(c.execute("SELECT site, round FROM absent ORDER BY round, site").fetchall())
        secret = c.execute("SELECT seed FROM secret").fetchone()
        if secret is not None and len(secret[0]) != SEED_BYTES:
            self._damaged("the seed was changed")
        self._seed = None if secret is None else Seed(secret[0])
        self.sums()
        for (k,) in c.execute("SELECT round FROM outbox").fetchall():
            self.said(k)
            if k > self.round + 1:
                self._damaged(f"round {k} is in the outbox, and the checkpoint is of round {self.round}")

    def _expect_next(self, k: int, what: str) -> None:
        """Refuse a round that is not the next one. Rounds are neither skipped nor repeated."""
        if k != self.round + 1:
            raise PrivacyError(f"Expected {what} of round {self.round + 1}, the next one, got round={k}.")

    def _check(self, digest: str, what: str, *parts: bytes) -> None:
        """Refuse content that does not fit its digest."""
        if _digest(*parts) != digest:
            self._damaged(f"{what} was changed: its digest does not fit")

    def _damaged(self, what: str) -> NoReturn:
        """Refuse the file: going on from it could send another message for a round than was sent before."""
        raise DamagedError(
            f"Expected a sound journal, got {str(self.path)!r}, where {what}. Release nothing: restore it from a copy "
            "that is not older, or leave the run."
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One commit, which also writes the checkpoint that waits."""
        with self._reporting():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                if self._waiting is not None:
                    self._save(*self._waiting)
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        self._waiting = None

    def _save(self, k: int, content: bytes, opened: bytes | None) -> None:
        """Replace the checkpoint, add the sum, and delete messages that no crash can need. Needs a transaction."""
        row = k, content, _digest(content)
        self._connection.execute("INSERT OR REPLACE INTO checkpoint VALUES (1, ?, ?, ?)", row)
        if opened is not None:
            self._connection.execute("INSERT INTO sums VALUES (?, ?, ?)", (k, opened, _digest(b"%d" % k, opened)))
        # The last message stays: if sums were given up before this site sent one, it may be older.
        self._connection.execute(
            "DELETE FROM outbox WHERE round <= ? AND round < (SELECT max(round) FROM outbox)", (k - KEPT,)
        )

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise SQLite's errors as those of `_refuse`."""
        try:
            yield
        except sqlite3.Error as error:
            _refuse(self.path, error)


def _digest(*parts: bytes) -> str:
    """The SHA-256 of all parts in hexadecimal; lengths first, so that no two lists have the same bytes."""
    lengths = ",".join(str(len(part)) for part in parts)
    return hashlib.sha256(b"".join((lengths.encode(), b":", *parts))).hexdigest()


def _open_locked(path: Path) -> sqlite3.Connection:
    """Connect to a file that only its owner may read, which is made if need be, and lock out other processes."""
    try:
        # An existing file is not opened here: closing it again would release all locks that this process holds on it.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=rw", uri=True, timeout=0, isolation_level=None,
            check_same_thread=False,
        )  # fmt: skip
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"Expected a journal that can be written, got {str(path)!r}: {error}.") from error
    try:
        # The lock lasts until the connection closes. The empty transaction takes it now.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        connection.close()
        _refuse(path, error)
    return connection


def _refuse(path: Path, error: sqlite3.Error) -> NoReturn:
    """Raise an error of SQLite as one of a full disk, of a file in use by another process, or of a damaged file."""
    if is_full(error):
        raise DamagedError(no_room(path)) from error
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        raise UsedTwiceError(
            f"Expected a journal that nobody else holds, got {str(path)!r}, which is in use. This site runs already: "
            "wait for that process, or stop it."
        ) from error
    raise DamagedError(f"Expected a readable journal, got {str(path)!r}: {error}. Restore it.") from error
