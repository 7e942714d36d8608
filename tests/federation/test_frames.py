"""Frames of the message server: however the bytes come in, and against the parser of the client library."""

import asyncio
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.protocol.parser import Parser

from sottovoce.federation.transport.frames import LONGEST_LINE, Complaint, FrameError, Frames, Info, Message, Sign

LARGEST = 5000
WORD = st.text("abcdefgh.*>$_-0123456789", min_size=1, max_size=20)
NUMBER = st.integers(0, 10**6)


def message(subject, sid, reply, headers, data):
    """As a server writes it."""
    parts = [subject, str(sid), *([reply] if reply else [])]
    if headers is None:
        line, body = ["MSG", *parts, str(len(data))], data
    else:
        line, body = ["HMSG", *parts, str(len(headers)), str(len(headers) + len(data))], headers + data
    return " ".join(line).encode() + b"\r\n" + body + b"\r\n"


MESSAGES = st.builds(
    message, WORD, NUMBER, st.none() | WORD, st.none() | st.binary(min_size=1, max_size=60), st.binary(max_size=100)
)
OTHERS = st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'a b'\r\n", b'INFO {"a":1}\r\n'])


class Heard:
    """What the client library's parser makes of the same bytes."""

    def __init__(self):
        self.frames = []

    async def _process_ping(self):
        self.frames.append(Sign.PING)

    async def _process_pong(self):
        self.frames.append(Sign.PONG)

    async def _process_err(self, text):
        self.frames.append(Complaint(text.strip("'")))

    async def _process_info(self, info):
        self.frames.append(info)

    async def _process_msg(self, sid, subject, reply, data, headers):  # noqa: ARG002
        self.frames.append(Message(subject.decode(), sid, headers or b"", data))


def library(data):
    heard = Heard()
    asyncio.run(Parser(heard).parse(data))
    return heard.frames


def fed(frames, pieces):
    return [frame for piece in pieces for frame in frames.feed(piece)]


@settings(max_examples=100)
@given(st.lists(MESSAGES | OTHERS, max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_however_the_bytes_come(parts, sizes):
    data, pieces, at = b"".join(parts), [], 0
    while at < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[at : at + size])
        at += size
    found = fed(Frames(LARGEST), pieces)
    assert found == fed(Frames(LARGEST), [data])
    told = [{"a": 1} if isinstance(frame, Info) else frame for frame in found if frame is not Sign.OK]
    assert told == library(data)


@settings(max_examples=300)
@given(st.lists(st.binary(max_size=60) | OTHERS | MESSAGES | st.sampled_from([b"MSG a 1 ", b"HMSG ", b"\r\n"])))
def test_any_bytes_are_frames_or_refused(pieces):
    frames = Frames(LARGEST)
    try:
        fed(frames, pieces)
    except FrameError as error:
        assert str(error).isprintable()  # noqa: PT017
    assert len(frames._held) <= LARGEST + LONGEST_LINE + sum(map(len, pieces[-1:]))


@pytest.mark.parametrize(
    "line", [b"MSG a 1 5001", b"HMSG a 1 0 5001", b"HMSG a 1 6 5", b"MSG a 1 99999999999", b"MSG a 1"]
)
def test_sizes_are_refused_before_anything_of_that_size_comes(line):
    with pytest.raises(FrameError):
        fed(Frames(LARGEST), [line + b"\r\n"])
    assert fed(Frames(LARGEST), [b"MSG a 1 5000\r\n" + bytes(5000) + b"\r\n"])[0].data == bytes(5000)


@pytest.mark.parametrize("piece", [b"x" * 1000, b"x", b"\r"])
def test_a_line_has_an_end(piece):
    with pytest.raises(FrameError, match="a line of more than 32768 bytes"):
        fed(Frames(LARGEST), [piece] * (LONGEST_LINE // len(piece) + 2))
    assert fed(Frames(LARGEST), [b"INFO " + b"x" * (LONGEST_LINE - 5) + b"\r\n"])[0].text == b"x" * (LONGEST_LINE - 5)


def test_no_more_is_held_than_one_message():
    frames, data = Frames(LARGEST), message("a", 1, None, None, bytes(LARGEST))
    tracemalloc.start()
    for _ in range(2000):
        list(frames.feed(data))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000


@pytest.mark.parametrize(
    ("headers", "data", "status"),
    [
        (b"NATS/1.0 404 Message Not Found\r\n\r\n", b"", 404),
        (b"NATS/1.0 503\r\n\r\n", b"", 503),
        (b"NATS/1.0 404 x\r\n\r\n", b"data", None),
        (b"NATS/1.0\r\nStatus: 404\r\n\r\n", b"", None),
        (b"NATS/1.0 4040\r\n\r\n", b"", None),
        (b"", b"", None),
    ],
)
def test_a_status_stands_in_the_first_line_of_a_message_without_data(headers, data, status):
    assert Message("a", 1, headers, data).status == status
