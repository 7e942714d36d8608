"""Ctrl-C that waits for a good moment: from where a run is paid for until what it bought is on the disk.

An interruption there would lose what was spent. The first one is noted, so that the work can end in order; the second
one ends it at once.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import final

# A person's Ctrl-C, and what `kill`, a terminal that is closed and a machine that shuts down send.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


@final
class Interruption:
    """Remembers that a signal asked the work to end."""

    def __init__(self) -> None:
        self._asked = False

    def asked(self) -> bool:
        """True from the first signal on."""
        return self._asked

    def note(self, _number: int, _frame: FrameType | None) -> None:
        """Remember the first signal; the second one interrupts at once."""
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True


@contextmanager
def deferred() -> Iterator[Interruption]:
    """In the block, the first signal that would end the process is only noted; in other threads, none is."""
    noted = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    # Signals that other code handles or ignores are left alone.
    own = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) in own}
    try:
        for number in before:
            signal.signal(number, noted.note)
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
