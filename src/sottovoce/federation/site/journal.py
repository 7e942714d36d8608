"""A site's memory of one run: what it has said, and where it stands. One SQLite file with a write-ahead log.

    outbox      the message of a round, as bytes, and the state after its release: one commit, before anything is sent
    checkpoint  where the site stands after the last round whose messages were all taken in
    sums        masked sums that were opened, in order: all that the program of a run needs to be run again
    absent      neighbours that the site goes on without, and from which round
    vote        whom the site would make a masked sum without, which is not decided yet
    secret      the seed of this run, from which the keys of noise and masks come, until the run is over

A row of the outbox is never replaced: after a crash the same bytes are sent, and nothing is drawn afresh. Messages
stay on the server, so only the last few are kept here.

Every commit is synced. A checkpoint waits for the next one, so that a message and the state that it was computed
from come onto the disk together. A crash in between loses nothing: the outbox before it is on the disk and the
messages of that round are on the server, so that round is taken in again, with the same result.

The file holds iterates and a seed that must not leave the site; only its owner may read it. Whoever has the seed and
the messages can take the noise off. So it is deleted at the end, and a backup of the file is as secret as the rows.
One process holds the file at a time.
"""

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
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
# The next round, the one before it, and one to spare: a crash never needs an older one.
KEPT = 3  # rounds of the outbox
# Pages of the write-ahead log after which it is merged and begun anew. It then stays short, and syncing a write that
# does not make a file longer takes a fraction of the time.
_MERGED_AFTER = 128
_OTHER_SOFTWARE = (
    "Nothing was spent. What this site has said stands, on the server and in this journal. Here it cannot say anything "
    "new: a round that was said before, and is missing in an old copy of this folder, would come out with other noise. "
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


Commit: TypeAlias = Callable[[bytes], str]


class Owner(NamedTuple):
    """Whose memory it is, and what must stay the same for the same words to be said again."""

    run: str
    agreement: str  # its digest in hexadecimal
    site: str
    software: str  # versions of what computes


class Said(NamedTuple):
    """A row of the outbox: a message as it is sent, and the state after its release, packed."""

    message: bytes
    state: bytes


class Checkpoint(NamedTuple):
    """Where the site stands: the last round that was taken in, a packed `Standing` after it, and the sum that the
    round opened, if it opened one.
    """

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
        self._round, self._absent = 0, dict[str, int]()
        self._waiting: Checkpoint | None = None  # not on the disk yet
        self._seed: Seed | None = None
        self._agreement = ""
        self.salt, self.rows = b"", ""  # what the rows are committed to with, and the commitment
        self.moved: InputError | None = None  # why nothing new may be said from it here; what was learnt can be read

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
        """The journal at that path, verified; a new one if there is none.

        Args:
            path: where it is.
            owner: whose it is.
            commit: from a secret salt to what binds the run to the site's rows. It may refuse.
            salt: 32 secret bytes for a new journal; None draws them.
            seed: of this run, for a new journal; None draws one. A journal that has another is refused.
            agreed_seed: the agreement holds its public half, so none can be drawn for a new journal.
        """
        journal = cls(path, _open_locked(path))
        try:
            with journal._reporting():
                # A new journal is bound to the rows before anything else: `commit` may still refuse them.
                journal._begin(owner, commit, salt, None if agreed_seed and seed is None else seed or Seed.generate())
                journal._verify(owner, commit)
                journal._load(owner)
                journal._expect_seed(seed)
        except BaseException:
            journal.close()
            raise
        return journal

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def round(self) -> int:
        """The last round that was taken in; 0 before the first."""
        return self._round

    @property
    def wound_up(self) -> bool:
        """Whether the run was ended for good: its seed is gone, and nothing can be said any more."""
        return self._seed is None

    @property
    def seed(self) -> Seed:
        """The secret of this run, from its first moment to its end."""
        if self._seed is None:
            raise PrivacyError("Expected a run that goes on, got one that is over: its seed and keys were deleted.")
        return self._seed

    @property
    def noise_key(self) -> bytes:
        """32 secret bytes, the same for the whole run: a function of its seed and its agreement."""
        return self.seed.noise_key(self._agreement)

    def last_said(self) -> int:
        """The last round whose message may have been sent; 0 if there is none. It is always kept."""
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
        """What was put into the outbox for round k, if it is still kept."""
        with self._reporting():
            row = self._connection.execute("SELECT message, state, digest FROM outbox WHERE round = ?", (k,)).fetchone()
        if row is None:
            return None
        self._check(row[2], f"the outbox of round {k}", row[0], row[1])
        return Said(row[0], row[1])

    @property
    def absent(self) -> dict[str, int]:
        """Neighbours that were dropped, by name, each with the first round without it."""
        return dict(self._absent)

    def votes(self, k: int) -> frozenset[str]:
        """Without whom this site would make the sum in round k again."""
        with self._reporting():
            rows = self._connection.execute("SELECT site FROM vote WHERE round = ?", (k,)).fetchall()
        return frozenset(site for (site,) in rows)

    def check_rows(self, commit: Commit) -> None:
        """Stop unless the rows are, bit by bit, those that the run began with."""
        found = commit(self.salt)
        if found != self.rows:
            raise InputError(
                f"Expected the rows that this run began with, {self.rows}, got {found}. A run is of the same rows from "
                "its first message to its last: put the data file back as it was."
            )

    # -- writing: all but a checkpoint is on the disk when these return -----------------------------------------------

    def put(self, k: int, message: bytes, state: bytes) -> None:
        """The message of the next round and the state after its release. Only now may the message be sent."""
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
        """The site has taken in round k, and `opened` a masked sum in it. This comes onto the disk with whatever is
        written next.
        """
        self._expect_next(k, "a checkpoint")
        self._waiting, self._round = Checkpoint(k, content, opened), k

    def vote(self, k: int, *sites: str) -> None:
        """Of the sum in round k: this site would make it again without these. It never takes that back."""
        self._expect_next(k, "a vote")
        with self._writing():
            self._connection.executemany("INSERT OR IGNORE INTO vote VALUES (?, ?)", [(k, site) for site in sites])

    def drop(self, k: int, *sites: str) -> None:
        """From round k on, go on without these neighbours: all of them or, after a crash, none. None comes back."""
        self._expect_next(k, "a lost neighbour")
        for site in sites:
            expect(site not in self._absent, "a neighbour that is still there", site=site)
        with self._writing():
            self._connection.executemany("INSERT INTO absent VALUES (?, ?)", [(site, k) for site in sites])
        self._absent |= dict.fromkeys(sites, k)

    def settle(self) -> None:
        """Write the checkpoint that waits, if one does. When a run is over, nothing else is written next."""
        if self._waiting is not None:
            with self._writing():
                pass

    def finish(self) -> None:
        """The run is over: write what waits, and delete the seed, also from the write-ahead log."""
        with self._writing():
            self._connection.execute("DELETE FROM secret")
        with self._reporting():
            # Old pages of the log would still hold it.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._seed = None

    def close(self) -> None:
        """Write what waits, and let other processes have the file."""
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
        """Stop unless the file is sound, is this owner's, and is bound to the rows that are there now."""
        c = self._connection
        sound = c.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        tables = {row[0] for row in c.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
        meta = c.execute("SELECT * FROM meta").fetchall() if sound and tables == set(_TABLES) else []
        if len(meta) != 1 or meta[0][0] != FORMAT:
            self._damaged("it has other tables, or SQLite finds it broken")
        *came, self.salt, self.rows = meta[0][1:]
        # Under other software nothing new is said: other versions may sum in another order, and say another thing.
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
        """Where it stands. Every digest is checked."""
        c, last = self._connection, self.last()
        self._agreement = owner.agreement
        self._round = 0 if last is None else last.round
        self._absent = dict(c.execute("SELECT site, round FROM absent ORDER BY round, site").fetchall())
        secret = c.execute("SELECT seed FROM secret").fetchone()
        if secret is not None and len(secret[0]) != SEED_BYTES:
            self._damaged("the seed was changed")
        self._seed = None if secret is None else Seed(secret[0])
        self.sums()
        for (k,) in c.execute("SELECT round FROM outbox").fetchall():
            self.said(k)
            if k > self._round + 1:
                self._damaged(f"round {k} is in the outbox, and the checkpoint is of round {self._round}")

    def _expect_seed(self, seed: Seed | None) -> None:
        """Refuse another seed than the run began with: all words would come out differently. After the end there is
        none to compare with, and none is needed.
        """
        if seed is not None and self._seed is not None and seed.raw != self._seed.raw:
            raise InputError(
                f"Expected the seed that the run of {str(self.path)!r} began with, got another. Give the seed file of "
                "this agreement, or none: the journal keeps it."
            )

    def _expect_next(self, k: int, what: str) -> None:
        """Refuse a round that is not the next one: rounds are neither skipped nor repeated."""
        if k != self._round + 1:
            raise PrivacyError(f"Expected {what} of round {self._round + 1}, the next one, got round={k}.")

    def _check(self, digest: str, what: str, *parts: bytes) -> None:
        """Stop if what was read is not what was written."""
        if _digest(*parts) != digest:
            self._damaged(f"{what} was changed: its digest does not fit")

    def _damaged(self, what: str) -> NoReturn:
        """Stop: going on from here could say another thing than was said."""
        raise DamagedError(
            f"Expected a sound journal, got {str(self.path)!r}, where {what}. Release nothing: restore it from a copy "
            "that is not older, or leave the run."
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One commit, with the checkpoint that waits for it."""
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
        """Replace the checkpoint, keep the sum, and forget messages that no crash can need any more. Within a
        transaction.
        """
        row = k, content, _digest(content)
        self._connection.execute("INSERT OR REPLACE INTO checkpoint VALUES (1, ?, ?, ?)", row)
        if opened is not None:
            self._connection.execute("INSERT INTO sums VALUES (?, ?, ?)", (k, opened, _digest(b"%d" % k, opened)))
        # The last one stays: where sums were given up before this site spoke, it may be older.
        self._connection.execute(
            "DELETE FROM outbox WHERE round <= ? AND round < (SELECT max(round) FROM outbox)", (k - KEPT,)
        )

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Say in our words what SQLite could not do."""
        try:
            yield
        except sqlite3.Error as error:
            _refuse(self.path, error)


def _digest(*parts: bytes) -> str:
    """Of all parts; lengths first, so that no two lists have the same bytes."""
    lengths = ",".join(str(len(part)) for part in parts)
    return hashlib.sha256(b"".join((lengths.encode(), b":", *parts))).hexdigest()


def _open_locked(path: Path) -> sqlite3.Connection:
    """A connection that no other process can have at the same time, to a file that only its owner may read."""
    try:
        _make(path)
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=rw", uri=True, timeout=0, isolation_level=None,
            check_same_thread=False,
        )  # fmt: skip
    except (OSError, sqlite3.Error) as error:
        raise InputError(f"Expected a journal that can be written, got {str(path)!r}: {error}.") from error
    try:
        # Kept until the connection closes. The empty transaction takes the lock now.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        connection.close()
        _refuse(path, error)
    return connection


def _make(path: Path) -> None:
    """An empty file that only its owner may read, unless it is there. An existing file is not opened: closing it again
    would give up all locks that this process holds on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _refuse(path: Path, error: sqlite3.Error) -> NoReturn:
    """In use by another process, without room, or not readable: the first is a second life of this site."""
    if is_full(error):
        raise DamagedError(no_room(path)) from error
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        raise UsedTwiceError(
            f"Expected a journal that nobody else holds, got {str(path)!r}, which is in use. This site runs already: "
            "wait for that process, or stop it."
        ) from error
    raise DamagedError(f"Expected a readable journal, got {str(path)!r}: {error}. Restore it.") from error
