"""A reader of a site's log while it is written: whole lines only, even if the file is cut off or replaced meanwhile.

A log is not trusted: it may be cut off, replaced, mixed with other programs' lines, or of any length. Lines that no
site has written are left out and counted.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import NamedTuple, cast, final

from sottovoce.federation.site.log import LOG

MOST_BYTES = 64 * 2**20  # of a long log, its end
MOST_LINE = 2**20
_CHUNK = 2**18
_TAIL = 64  # bytes before the place read to, by which a file that was written anew is known


@final
class LoggedEvent(NamedTuple):
    """One line of a site: its time in seconds since 1970, what happened, and all its fields."""

    time: float
    name: str
    fields: Mapping[str, object]


@final
class LogReader:
    """Reads a log on from where it stopped.

    Args:
        path: the file. It need not be there yet.
        most: bytes that are read of a file that is there already, from its end.

    Attributes:
        left_out: lines that no site has written.
        skipped: bytes at the beginning that were not read.
    """

    def __init__(self, path: Path, most: int = MOST_BYTES) -> None:
        self.path, self.left_out, self.skipped = path, 0, 0
        self._most, self._file = most, cast("FileIO | None", None)
        self._start()

    def _start(self) -> None:
        """Read from the first byte on. Events that were returned are not taken back."""
        self._at, self._tail, self._line, self._cut = 0, b"", b"", False

    def events(self) -> Iterator[LoggedEvent]:
        """What was written since the last call, as far as lines are whole. A file that cannot be read now is read on
        when it can.
        """
        try:
            if self._file is None:
                self._file = self._open()
                if self._file is None:
                    return
                size = os.fstat(self._file.fileno()).st_size
                if not self._at and size > self._most:  # of a long log the beginning is left out
                    self._at = self.skipped = size - self._most
                    self._cut = True  # in the middle of a line
            yield from self._drain(self._file)
            # The path names another file now: the old one was read to its end, the new one from its beginning.
            if self._was_replaced(self._file) and (newer := self._open()) is not None:
                self._file.close()
                self._file = newer
                self._start()
                yield from self._drain(newer)
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the file; the next call of `events` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> FileIO | None:
        """The file; None if it is not there, or no regular file: a pipe would block, a device never end."""
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):
                return None
            return self.path.open("rb", buffering=0)
        except OSError:
            return None

    def _was_replaced(self, file: FileIO) -> bool:
        """True if the path now names another file than the open one."""
        try:
            return not os.path.samestat(os.fstat(file.fileno()), self.path.stat())
        except OSError:
            return False  # gone: the old one may still be written to

    def _drain(self, file: FileIO) -> Iterator[LoggedEvent]:
        """All whole lines from here to the end of the file, a part at a time."""
        # What was read is no longer there if the file was cut off, as log rotation does, and maybe refilled.
        file.seek(self._at - len(self._tail))
        if os.fstat(file.fileno()).st_size < self._at or file.read(len(self._tail)) != self._tail:
            self._start()
        file.seek(self._at)
        while part := file.read(_CHUNK):
            self._at += len(part)
            self._tail = (self._tail + part)[-_TAIL:]
            yield from self._lines(part)

    def _lines(self, part: bytes) -> Iterator[LoggedEvent]:
        *whole, rest = part.split(b"\n")
        for line in whole:
            text, cut = self._line + line, self._cut
            self._line, self._cut = b"", False
            if not cut and (event := self._event(text)) is not None:
                yield event
        # The last line may still be being written. One without an end is none of ours.
        self._line += rest
        if len(self._line) > MOST_LINE:
            self._line, self._cut = b"", True
            self.left_out += 1

    def _event(self, line: bytes) -> LoggedEvent | None:
        """The event of a site's line; None for a line of a library, and for one that is no event, which is counted."""
        if not line.strip():
            return None
        try:
            found = json.loads(line, parse_constant=_refuse)
            if found["logger"] != LOG.name:
                return None
            when, name = datetime.fromisoformat(found["time"]), found["event"]
            if when.tzinfo is None or not isinstance(name, str):
                raise ValueError
            return LoggedEvent(when.timestamp(), name, found)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            self.left_out += 1
            return None


def _refuse(constant: str) -> object:
    """Refuse NaN and infinities, which are no JSON."""
    raise ValueError(constant)
