"""A progress bar for long work, on terminals and in notebooks. It needs no other package."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO, TypeAlias, final

from sottovoce.numerals import duration

Progress: TypeAlias = Callable[[int, int], None]
_WIDTH, _EVERY = 40, 0.1  # characters, and seconds between two drawings


@contextmanager
def shown(wanted: Progress | bool | None, of: str = "round") -> Iterator[Progress | None]:
    """What to call with (done, in all) within the block; None if nobody is to be told.

    Args:
        wanted: a function of the caller's. True: a bar on stderr, if that is a terminal or a notebook; it is wiped out
            at the end of the block. False or None: nothing.
        of: what is counted, in one word.
    """
    if not isinstance(wanted, bool):
        yield wanted
    elif wanted and _watched(sys.stderr):
        bar = Bar(sys.stderr, of)
        try:
            yield bar.move
        finally:
            bar.wipe()
    else:
        yield None


def _watched(stream: TextIO) -> bool:
    """True for a terminal and a notebook's cell, which somebody watches while it is written to."""
    return stream.isatty() or type(stream).__module__.partition(".")[0] == "ipykernel"


@final
class Bar:
    """One line that is written again and again: how much is done, and the time left at the same pace."""

    def __init__(self, stream: TextIO, of: str, clock: Callable[[], float] = monotonic) -> None:
        self._stream, self._of, self._clock = stream, of, clock
        self._started, self._drawn, self._length = clock(), -_EVERY, 0

    def move(self, done: int, total: int) -> None:
        """Draw the bar anew, at most ten times a second."""
        now = self._clock()
        if now - self._drawn < _EVERY and done < total:
            return
        self._drawn = now
        full = _WIDTH * done // max(total, 1)
        left = f" {duration((now - self._started) * (total - done) / done)} left" if 0 < done < total else ""
        self._write(f"{self._of} {done}/{total} {'━' * full}{'╌' * (_WIDTH - full)}{left}")

    def wipe(self) -> None:
        """Leave an empty line."""
        self._write("")
        self._stream.write("\r")
        self._stream.flush()

    def _write(self, line: str) -> None:
        self._stream.write(f"\r{line.ljust(self._length)}")
        self._stream.flush()
        self._length = len(line)
