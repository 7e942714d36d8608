"""Frames of the NATS protocol, cut from the bytes of a message server. Sizes are checked before anything is held.

A site trusts neither the server nor anyone in between. So a line has a maximal length, a message a maximal size, and
anything that is not a frame as NATS writes it ends the connection. At any time no more is held than one line, or one
message of the agreed size, and what the system hands over in one piece.

    INFO {...}                                    +OK    PING    PONG    -ERR 'text'
    MSG subject sid [reply] size                  followed by so many bytes
    HMSG subject sid [reply] size-of-headers size followed by so many bytes, headers first
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias, final

# Bytes of a line. The longest is INFO, with all servers of a large cluster in it.
LONGEST_LINE = 32 * 1024
# Digits of a size or of a subscription's number, which are never larger here.
_LONGEST_NUMBER = 10
_END = b"\r\n"
_STATUS = re.compile(rb"NATS/1\.0 (\d{3})(?: |\r\n)")


class FrameError(Exception):
    """The server does not keep to the protocol, or sends more than was agreed."""


@final
class Sign(Enum):
    """A frame of one word."""

    OK = b"+OK"
    PING = b"PING"
    PONG = b"PONG"


@final
class Info(NamedTuple):
    """The server's description of itself, as JSON."""

    text: bytes


@final
class Complaint(NamedTuple):
    """An error that the server reports."""

    text: str


@final
class Message(NamedTuple):
    """A message of a subscription, with its headers as they came."""

    subject: str
    sid: int
    headers: bytes
    data: bytes

    @property
    def status(self) -> int | None:
        """The status that the server sent in place of a message, such as 404; None if it sent none."""
        found = None if self.data else _STATUS.match(self.headers)
        return int(found[1]) if found else None


Frame: TypeAlias = Sign | Info | Complaint | Message


class _Head(NamedTuple):
    """The line before a message, with its sizes."""

    subject: str
    sid: int
    headers: int
    size: int


@final
class Frames:
    """Cuts bytes into frames.

    Args:
        largest: bytes of the largest message, headers included. A larger one is refused before it is held.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._held = bytearray()
        self._searched = 0  # number of held bytes that do not contain the end of a line
        self._head: _Head | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes, and yield the frames that are complete; `FrameError` for bytes that can be none."""
        self._held += data
        while True:
            frame = self._next_line() if self._head is None else self._next_message(self._head)
            if frame is None:
                return
            if not isinstance(frame, _Head):
                yield frame

    def _next_line(self) -> Frame | _Head | None:
        """Read the next line; None until it is complete. Its length is checked also before its end has come."""
        end = self._held.find(_END, self._searched)
        # Without an end, the last byte may be the first half of it.
        if (end if end >= 0 else len(self._held) - 1) > LONGEST_LINE:
            raise FrameError(f"a line of more than {LONGEST_LINE} bytes")
        if end < 0:
            # One byte back: the end of a line may have come in two halves.
            self._searched = max(len(self._held) - 1, 0)
            return None
        line = bytes(self._held[:end])
        del self._held[: end + len(_END)]
        self._searched = 0
        frame = self._read(line)
        if isinstance(frame, _Head):
            self._head = frame
        return frame

    def _read(self, line: bytes) -> Frame | _Head:
        """Read one line: a frame by itself, or the head of a message whose bytes follow."""
        word, _, rest = line.partition(b" ")
        match word:
            case b"MSG" | b"HMSG":
                return self._read_head(word, rest.split())
            case b"INFO":
                return Info(rest)
            case b"-ERR":
                return Complaint(rest.strip(b" '").decode("utf-8", "replace"))
            case b"+OK" | b"PING" | b"PONG" if not rest.strip():
                return Sign(word)
        raise FrameError("something that is not a frame")

    def _read_head(self, word: bytes, parts: list[bytes]) -> _Head:
        """Read the head of a message; refused if it announces more than was agreed."""
        sizes = 2 if word == b"HMSG" else 1
        if len(parts) - sizes not in (2, 3):  # with or without a subject for replies, which is not used here
            raise FrameError("a message without its sizes")
        sid, size = _number(parts[1]), _number(parts[-1])
        headers = _number(parts[-2]) if sizes == 2 else 0
        if size > self._largest:
            raise FrameError(f"a message of {size} bytes, where at most {self._largest} were agreed")
        if headers > size:
            raise FrameError("headers that are longer than their message")
        return _Head(parts[0].decode("utf-8", "replace"), sid, headers, size)

    def _next_message(self, head: _Head) -> Message | None:
        """Read the message after its head; None until it is complete."""
        if len(self._held) < head.size + len(_END):
            return None
        # Copied once, not twice: a slice of a bytearray would be a copy of its own.
        with memoryview(self._held) as held:
            headers, data = bytes(held[: head.headers]), bytes(held[head.headers : head.size])
        if self._held[head.size : head.size + len(_END)] != _END:
            raise FrameError("a message that is longer than it says")
        del self._held[: head.size + len(_END)]
        self._head = None
        return Message(head.subject, head.sid, headers, data)


def _number(digits: bytes) -> int:
    """Read a number; refused if it has more digits than any number in use here."""
    if not (digits.isdigit() and len(digits) <= _LONGEST_NUMBER):
        raise FrameError("a size that is no number")
    return int(digits)
