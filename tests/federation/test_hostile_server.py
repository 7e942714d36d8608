"""A site against a server that means harm: it stays small, says one line, and waits or stops cleanly."""

import asyncio
import logging
import os
import threading
import time
from types import SimpleNamespace

import pytest

import sottovoce as sv
from helpers.guarded_server import federation_of, program_of
from helpers.hostile_server import CHUNK, INFO, answer, empty, flood, greet, hostile, papers, questions
from helpers.network_worlds import LARGEST, LONG, play
from sottovoce.algorithms import IPADMM
from sottovoce.cli import main
from sottovoce.federation.transport.jetstream import JetStreamTransport
from sottovoce.federation.transport.transport import PutOutcome, TransportError
from sottovoce.federation.transport.wire import Slot

ALGORITHM = IPADMM(rounds=2, local_steps=1, epsilon=1.5, delta=1e-5, diameter=10.0)
TIME = 0.5  # seconds of every call
MOST = 8 << 20  # bytes that a site may grow by
DEEP = b"[" * 100_000


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return papers(tmp_path_factory.mktemp("papers"))


# -- what the server does ---------------------------------------------------------------------------------------------


def says(*parts, then=b""):
    """These bytes at once, and then others for ever."""

    async def script(_reader, writer):
        for part in parts:
            writer.write(part)
        await (flood(writer, then) if then else asyncio.sleep(60))

    return script


def after_greeting(*parts, then=b"", reads=True):
    async def script(reader, writer):
        await greet(reader, writer)
        for part in parts:
            writer.write(part)
        reading = asyncio.ensure_future(_read(reader)) if reads else None
        try:
            await (flood(writer, then) if then else asyncio.sleep(60))
        finally:
            if reading is not None:
                reading.cancel()

    return script


async def _read(reader):
    while await reader.read(CHUNK):
        pass


def answering(make, then=b""):
    """Mailboxes are empty; what is put is answered with what `make` makes of the question."""

    async def script(reader, writer):
        await greet(reader, writer)
        async for question in questions(reader, writer):
            if question.subject.startswith("$JS"):
                empty(writer, question)
                continue
            writer.write(make(question.reply.encode()))
            if then:
                await flood(writer, then)

    return script


def behaving():
    """The control: what a good server would say."""
    return answering(plainly(b'{"stream":"SV_r","seq":1}'))


def plainly(data):
    return lambda reply: b"MSG %s 1 %d\r\n%s\r\n" % (reply, len(data), data)


def info_that_changes():
    async def script(reader, writer):
        await greet(reader, writer)
        async for question in questions(reader, writer):
            for text in (b"INFO []\r\n", b"INFO " + DEEP[:20_000] + b"\r\n", INFO.replace(b"1048576", b"1")):
                writer.write(text)
            (empty if question.subject.startswith("$JS") else lambda w, q: answer(w, q, b"{}"))(writer, question)

    return script


def drip(text, pause=0.05):
    async def script(_reader, writer):
        for byte in text:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(pause)

    return script


def drip_answers():
    async def script(reader, writer):
        await greet(reader, writer)
        async for question in questions(reader, writer):
            await drip(b"MSG %s 1 4000\r\n%s" % (question.reply.encode(), bytes(4000)))(reader, writer)

    return script


SCRIPTS = {
    "an endless line": says(b"INFO ", then=b"x" * CHUNK),
    "an endless line without INFO": says(then=b"\0" * CHUNK),
    "nested INFO": says(b"INFO " + DEEP + b"\r\n"),
    "nested INFO, balanced": says(b"INFO " + DEEP[:15_000] + b"]" * 15_000 + b"\r\n"),
    "INFO in bits": drip(INFO),
    "blank lines": says(then=b"\r\n" * (CHUNK // 2)),
    "an endless line later": after_greeting(b"MSG ", then=b"x" * CHUNK),
    "an endless error": after_greeting(b"-ERR '", then=b"x" * CHUNK),
    "an endless payload": after_greeting(b"MSG a 1 9999999999\r\n", then=b"x" * CHUNK),
    "an endless payload of any size": after_greeting(b"MSG a 1 " + b"9" * 5000 + b"\r\n", then=b"x" * CHUNK),
    "endless headers": after_greeting(b"HMSG a 1 999999999 999999999\r\nNATS/1.0\r\n", then=b"a: b\r\n" * 10_000),
    "headers longer than the message": after_greeting(b"HMSG a 1 90 20\r\n", then=b"a: b\r\n" * 10_000),
    "an endless payload in an answer": answering(lambda r: b"MSG %s 1 2000000000\r\n" % r, then=b"{" * CHUNK),
    "PINGs, read": after_greeting(then=b"PING\r\n" * 10_000),
    "PINGs, not read": after_greeting(then=b"PING\r\n" * 10_000, reads=False),
    "PONGs": after_greeting(then=b"PONG\r\n" * 10_000),
    "OKs": after_greeting(then=b"+OK\r\n" * 10_000),
    "empty messages": after_greeting(then=b"MSG x 1 0\r\n\r\n" * 5_000),
    "messages for nobody": after_greeting(then=b"MSG x 77 4000\r\n%s\r\n" % bytes(4000) * 16),
    "odd pushes": after_greeting(then=b"MSG svp 2 1\r\nx\r\nMSG svp.r.1.b.c 2 1\r\nx\r\n" * 2_000),
    "pushes": after_greeting(then=b"".join(b"MSG svp.r.%d.b 2 4000\r\n%s\r\n" % (k, bytes(4000)) for k in range(50))),
    "errors": after_greeting(then=b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n" * 1_000),
    "errors without text": after_greeting(b"-ERR\r\n-ERR \r\n-ERR '\r\n"),
    "odd numbers": after_greeting(b"MSG a one 5\r\nhello\r\n"),
    "negative numbers": after_greeting(b"MSG a 1 -5\r\nhello\r\n"),
    "odd letters": after_greeting(b"MSG \xff\xfe 1 5\r\nhello\r\nHMSG \xff 1 3 5\r\n\xff\xff\xffab\r\n"),
    "no end of a message": after_greeting(b"MSG a 1 5\r\nhello, world\r\n"),
    "nested answers": answering(plainly(DEEP[:60_000])),
    "answers longer than agreed": answering(plainly(DEEP)),
    "nested answers, balanced": answering(plainly(DEEP[:900] + b"]" * 900)),
    "a nested reason": answering(plainly(b'{"error":{"code":1,"description":%s%s}}' % (DEEP[:900], b"]" * 900))),
    "answers in bits": drip_answers(),
    "INFO that changes": info_that_changes(),
}
for name, value in {
    "a list": b"[]", "a number": b"5", "nothing": b"null", "a text": b'"x"', "no limit": b'{"max_payload":"x"}',
    "an infinite limit": b'{"headers":true,"max_payload":1e400}', "no headers": b'{"headers":5,"max_payload":1000000}',
    "a long number": b'{"headers":true,"max_payload":%s}' % (b"9" * 5000), "broken letters": b'{"\xff":1}',
    "odd friends": b'{"headers":true,"max_payload":1048576,"connect_urls":[1,"[::1"]}',
    "odd friends again": b'{"headers":true,"max_payload":1048576,"connect_urls":{"a":[]},"version":[],"client_id":{}}',
}.items():  # fmt: skip
    SCRIPTS[f"INFO with {name}"] = says(b"INFO " + value + b"\r\n")
for name, value in {
    "a list": b"[]", "a number": b"5", "nothing": b"null", "an odd error": b'{"error":5}', "empty": b"",
    "odd codes": b'{"error":{"code":"503","err_code":[]}}', "an odd stream": b'{"stream":[1],"seq":{}}',
    "a long number": b'{"seq":%s}' % (b"9" * 5000), "half a letter": b'{"error":{"description":"\\ud800"}}',
    "broken letters": b"\xff\xfe\xfd", "lines": b'{"error":{"description":"a\\nb\\u001b[31m"}}',
}.items():  # fmt: skip
    SCRIPTS[f"an answer with {name}"] = answering(plainly(value))


# -- what the site does -----------------------------------------------------------------------------------------------


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def grown(doing):
    """By how many bytes the process grew at most meanwhile."""
    task, before, most = asyncio.ensure_future(doing), resident(), 0
    while not task.done():
        most = max(most, resident() - before)
        await asyncio.wait([task], timeout=0.02)
    await task
    return max(most, resident() - before)


async def life(url, tls, told):
    """All that a site does with a server. Only the errors that are meant may come of it."""
    try:
        site = await JetStreamTransport.connect(url, "r", "a", ["b"], LARGEST, tls=tls, timeout=TIME)
    except TransportError as error:
        told.append(str(error))
        return
    async with site:
        for doing in (site.put_once(Slot(1, "a"), b"one", TIME), site.get(Slot(1, "b"), TIME)):
            try:
                await doing
            except TransportError as error:
                told.append(str(error))


@pytest.mark.parametrize("what", SCRIPTS)
def test_a_site_stays_small_and_calm(tls, caplog, what):
    caplog.set_level(logging.INFO)
    told, wild = [], []

    async def scene():
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: wild.append(context))
        async with hostile(SCRIPTS[what], tls[0]) as (url, calls):
            began = time.monotonic()
            growth = await grown(life(url, tls[1], told))
            assert growth < MOST
            assert time.monotonic() - began < 3 * TIME + 3.0
            assert len(calls) < 30  # it does not hammer

    play(scene())
    assert wild == []
    assert [record for record in caplog.records if record.exc_info] == []
    for text in told:
        assert text.startswith("Expected")
        assert text.isprintable()
        assert "sv.r." not in text  # names of subjects are nobody's business
        assert "_INBOX" not in text


def test_the_same_server_without_harm(tls):
    async def scene():
        async with hostile(behaving(), tls[0]) as (url, calls):
            site = await JetStreamTransport.connect(url, "r", "a", ["b"], LARGEST, tls=tls[1], timeout=LONG)
            async with site:
                assert (await site.put_once(Slot(1, "a"), b"one", LONG)).outcome is PutOutcome.STORED
                assert await site.get(Slot(1, "b"), TIME) is None
            assert len(calls) == 1

    play(scene())


# -- the program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("nested INFO", "it sent a line of more than 32768 bytes"),
        ("INFO with a list", "it sent a greeting that is not one of a NATS server"),
        ("an endless payload", "it sent a message of 9999999999 bytes, where at most"),
        ("nested answers", "Expected an answer of the message server, got b'[[["),
    ],
)
def test_the_program_ends_with_one_line(tmp_path, capfd, what, words):
    federation = federation_of(("a", "b"), sv.graphs.complete(2), ALGORITHM, {})
    script, server = SCRIPTS[what], papers(tmp_path)[0]
    began, ending = threading.Event(), None

    async def serve():
        nonlocal ending
        ending = asyncio.get_running_loop().create_future()
        async with hostile(script, server) as (url, _):
            found.append(url)
            began.set()
            await ending

    found = []
    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        with federation:
            assert began.wait(LONG)
            given = program_of(federation, "a", SimpleNamespace(url=found[0], papers=tmp_path), tmp_path)
            given[given.index("--patience") + 1] = "1"
            assert main(["site", "run", *given, "--quiet"]) == 7
    finally:
        ending.get_loop().call_soon_threadsafe(ending.set_result, None)
        thread.join()
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("sottovoce: error: Expected")
    assert words in lines[0]
