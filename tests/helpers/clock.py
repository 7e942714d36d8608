"""A clock for scenes in one process: what is computed takes no time, and where all wait nobody waits.

A site gives a neighbour up that was silent for so many seconds. On a busy machine honest ones would be silent for that
long too, now and then, and in every other test such seconds would be waited out. So time stands still while anything
is computed, and goes on to the next appointment as soon as all wait for one. From the first real connection on it is
the time of the clock on the wall: who is at its other end does not know of ours.
"""

import asyncio
import time


class Clock(asyncio.SelectorEventLoop):
    def __init__(self):
        self._stands_at, self._real_since, self._computing = 0.0, None, 0
        super().__init__()
        self._own = len(self._selector.get_map())  # by which threads wake it
        self._wait, self._selector.select = self._selector.select, self._go_on

    def time(self):
        return self._stands_at if self._real_since is None else time.monotonic() - self._real_since

    def run_in_executor(self, executor, func, *args):
        done = super().run_in_executor(executor, func, *args)
        self._computing += 1
        done.add_done_callback(self._computed)
        return done

    def _computed(self, _):
        self._computing -= 1

    def _go_on(self, timeout):
        """In place of the selector's `select`: wait, or let the time of the next appointment come."""
        if self._real_since is None and len(self._selector.get_map()) > self._own:
            self._real_since = time.monotonic() - self._stands_at
        if self._real_since is not None or not timeout:
            return self._wait(timeout)
        if self._computing:
            return self._wait(None)
        self._stands_at += timeout
        return self._wait(0)
