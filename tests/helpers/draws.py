"""What the operating system draws, drawn again: a test that asks it for randomness passes always, or never.

In the process of the tests, `os.urandom`, `secrets` and new keys come from a stream that follows from a name. Each test
has one of its own, and so has each fixture that several tests share, whichever of them comes first. Programs that tests
start draw as ever: what is asserted of those holds for all draws, or fails with a chance that stands beside it. So do
`uuid4`, by which processes that share a folder name their files: Numba's cache is one.
"""

import os
import random
import uuid
from contextlib import contextmanager
from hashlib import shake_256
from threading import Lock

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey


class Stream:
    """Bytes that follow from a name. Never the same twice."""

    def __init__(self, name):
        self._name, self._calls, self._lock = name.encode(), 0, Lock()

    def take(self, count):
        with self._lock:
            self._calls += 1
            return shake_256(b"%d %s" % (self._calls, self._name)).digest(count)


_system = os.urandom
_streams = [Stream("what is drawn while tests are collected")]


def _urandom(count):
    return _streams[-1].take(count)


def _leave_alone():
    os.urandom = random._urandom = _system


def start():
    """From now on, in this process."""
    os.urandom = random._urandom = _urandom
    uuid.uuid4 = lambda: uuid.UUID(bytes=_system(16), version=4)
    # Copies of this process would all go on in the same way.
    os.register_at_fork(after_in_child=_leave_alone)
    for kind in (Ed25519PrivateKey, X25519PrivateKey):
        kind.generate = classmethod(lambda kind: kind.from_private_bytes(os.urandom(32)))


@contextmanager
def drawn_for(name):
    """What is drawn meanwhile follows from the name."""
    _streams.append(Stream(name))
    try:
        yield
    finally:
        _streams.pop()
