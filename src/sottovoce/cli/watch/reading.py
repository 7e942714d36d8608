"""A site's log while it is written: whole lines only, and whatever may have become of the file since the last look.

A log is no book that anyone can rely on: it may be cut off, replaced, mixed with other programs' lines, or of any
length. What is not a line of a site is left out and counted.
"""

import json
import os
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import NamedTuple, cast, final

from sottovoce.federation.site.events import LOG

MOST_BYTES = 64 * 2**20  # of a long log, its end
MOST_LINE = 2**20
_CHUNK = 2**18
_TAIL = 64  # bytes before the place read to, by which a file that was written anew is known


@final
class Event(NamedTuple):
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

    def events(self) -> Iterator[Event]:
        """What was written since the last call, as far as lines are whole. A file that cannot be read now is read on
        when it can.
        """
        try:
            yield from self._news()
        except OSError:
            self.close()

    def _news(self) -> Iterator[Event]:
        if self._file is None:
            self._file = self._opened()
            if self._file is None:
                return
            if not self._at:
                self._begin_near_the_end(self._file)
        yield from self._drain(self._file)
        # Under its name lies another file now: the old one was read to its end, the new one from its beginning.
        if self._replaced(self._file) and (newer := self._opened()) is not None:
            self._file.close()
            self._file = newer
            self._start()
            yield from self._drain(newer)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> FileIO | None:
        """The file, if it is one: a pipe would be waited for, a device read without end."""
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):
                return None
            return self.path.open("rb", buffering=0)
        except OSError:
            return None

    def _replaced(self, file: FileIO) -> bool:
        """Whether the name stands for another file than the open one."""
        try:
            return not os.path.samestat(os.fstat(file.fileno()), self.path.stat())
        except OSError:
            return False  # gone: the old one may still be written to

    def _start(self) -> None:
        """From the first byte on. The lines read so far stay read."""
        self._at, self._tail, self._line, self._cut = 0, b"", b"", False

    def _begin_near_the_end(self, file: FileIO) -> None:
        """Of a long log the beginning is left out."""
        size = os.fstat(file.fileno()).st_size
        if size > self._most:
            self._at = self.skipped = size - self._most
            self._cut = True  # in the middle of a line

    def _drain(self, file: FileIO) -> Iterator[Event]:
        """All whole lines from here to the end of the file, a part at a time."""
        if self._written_anew(file):
            self._start()
        file.seek(self._at)
        while part := file.read(_CHUNK):
            self._at += len(part)
            self._tail = (self._tail + part)[-_TAIL:]
            yield from self._lines(part)

    def _written_anew(self, file: FileIO) -> bool:
        """Whether what was read is no longer there: the file was cut off, as log rotation does, and maybe refilled."""
        if os.fstat(file.fileno()).st_size < self._at:
            return True
        file.seek(self._at - len(self._tail))
        return file.read(len(self._tail)) != self._tail

    def _lines(self, part: bytes) -> Iterator[Event]:
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

    def _event(self, line: bytes) -> Event | None:
        """A line of a site; None for one of a library, or of nobody."""
        if not line.strip():
            return None
        try:
            found = json.loads(line, parse_constant=_refuse)
            if found["logger"] != LOG.name:
                return None
            when, name = datetime.fromisoformat(found["time"]), found["event"]
            if when.tzinfo is None or not isinstance(name, str):
                raise ValueError
            return Event(when.timestamp(), name, found)
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            self.left_out += 1
            return None


def _refuse(constant: str) -> object:
    """NaN and its like are no JSON."""
    raise ValueError(constant)
