"""What only a real server shows: limits, rights, forged pushes, frozen and missing servers."""

import asyncio
import json
import logging
import time

import nats
import pytest

from helpers.hostile_server import hostile
from helpers.network_server import NatsServer, free_port
from helpers.network_worlds import LARGEST, LONG, SHORT, JetStreamWorld, get_many, play
from sottovoce.errors import InputError
from sottovoce.federation.agreement import certificates
from sottovoce.federation.transport import link
from sottovoce.federation.transport.arrivals import KEPT_EACH, Arrivals
from sottovoce.federation.transport.jetstream import JetStreamTransport, create_stream, stored_size
from sottovoce.federation.transport.subjects import mailbox, permissions, push, reading, stream_name
from sottovoce.federation.transport.transport import PutOutcome, RefusedError, UnreachableError
from sottovoce.federation.transport.wire import Kind, Slot


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with NatsServer(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def world(server):
    return JetStreamWorld(server)


# -- setting a run up -------------------------------------------------------------------------------------------------


def test_a_stream_is_made_once(server):
    async def scene():
        await create_stream(server.url, "made", LARGEST, max_messages=100)
        await create_stream(server.url, "made", LARGEST, max_messages=100)
        with pytest.raises(RefusedError, match="run_id='made', got: stream name already in use"):
            await create_stream(server.url, "made", LARGEST + 1, max_messages=100)

    play(scene())


def test_nothing_can_be_deleted(world):
    async def scene():
        async with await world.site("a") as a:
            await a.put_once(Slot(1, "a"), b"one", LONG)
            raw, stream = await nats.connect(world.server.url), stream_name(world.run_id)
            for verb, wish in (("MSG.DELETE", {"seq": 1}), ("PURGE", {})):
                answer = await raw.request(f"$JS.API.STREAM.{verb}.{stream}", json.dumps(wish).encode(), timeout=LONG)
                assert "not permitted" in json.loads(answer.data)["error"]["description"]
            for headers in ({"Nats-Rollup": "sub"}, {"Nats-TTL": "1s"}):
                answer = await raw.request(mailbox(world.run_id, "m1", "a"), b"", timeout=LONG, headers=headers)
                assert "error" in json.loads(answer.data)
            await raw.close()
            assert await a.get(Slot(1, "a"), LONG) == b"one"

    play(scene())


def test_a_run_that_was_never_made_shows_when_connecting(server):
    async def scene():
        with pytest.raises(
            UnreachableError, match=r"run to be open on .* Ask the operator to run: sottovoce federation open"
        ):
            await JetStreamTransport.connect(server.url, "unknown", "a", [], LARGEST, timeout=SHORT)

    play(scene())


def test_a_full_stream_refuses_and_says_why(server):
    async def scene():
        await create_stream(server.url, "full", LARGEST, max_messages=1)
        async with await JetStreamTransport.connect(server.url, "full", "a", [], LARGEST) as a:
            assert (await a.put_once(Slot(1, "a"), b"one", LONG)).outcome is PutOutcome.STORED
            with pytest.raises(RefusedError, match="model 2 of site='a', got: maximum messages exceeded"):
                await a.put_once(Slot(2, "a"), b"two", SHORT)

    play(scene())


@pytest.mark.parametrize("run", ["r", "r" * 64])
def test_bytes_are_counted_as_the_server_counts_them(server, run):
    """Room for two messages takes two, and with one byte less it takes one."""

    async def scene():
        slots = Slot(2**30 - 1, "a", Kind.ANSWER, "b"), Slot(7, "a")
        needed = sum(stored_size(run, slot, LARGEST) for slot in slots)
        for spare in (0, 1):
            own = run[:-1] + str(spare)
            await create_stream(server.url, own, LARGEST, max_bytes=needed - spare)
            async with await JetStreamTransport.connect(server.url, own, "a", [], LARGEST) as a:
                await a.put_once(slots[0], bytes(LARGEST), LONG)
                if spare:
                    with pytest.raises(RefusedError, match="model 7 of site='a', got: maximum bytes exceeded"):
                        await a.put_once(slots[1], bytes(LARGEST), SHORT)
                else:
                    await a.put_once(slots[1], bytes(LARGEST), LONG)

    play(scene())


def test_what_would_not_fit_is_refused_before_the_run_begins(server):
    async def scene():
        with pytest.raises(RefusedError, match="got max_payload=1048576"):
            await create_stream(server.url, "large", 1048576)
        with pytest.raises(RefusedError, match="Raise max_payload"):
            await JetStreamTransport.connect(server.url, "large", "a", [], 1048576)

    play(scene())


def test_bad_settings(server):
    async def scene():
        with pytest.raises(InputError, match="a run id"):
            await create_stream(server.url, "a.b", LARGEST)
        with pytest.raises(InputError, match="max_message_size >= 1, got max_message_size=0"):
            await create_stream(server.url, "r", 0)
        with pytest.raises(InputError, match="a finite timeout"):
            await JetStreamTransport.connect(server.url, "r", "a", [], LARGEST, timeout=0)
        with pytest.raises(InputError, match="a site's name"):
            await JetStreamTransport.connect(server.url, "r", "a", [">"], LARGEST)

    play(scene())


@pytest.mark.parametrize("url", ["", "localhost:4222", "nats://", "http://host:4222", "nats://host:0", "nats://host:x"])
def test_bad_urls(url):
    with pytest.raises(InputError, match="a server such as nats://host:4222, got url="):
        play(JetStreamTransport.connect(url, "r", "a", [], LARGEST))


def test_passwords_are_not_shown():
    async def scene():
        url = f"nats://a:secret@127.0.0.1:{free_port()}"
        with pytest.raises(UnreachableError, match=r"nats://127\.0\.0\.1:\d+ within") as caught:
            await JetStreamTransport.connect(url, "r", "a", [], LARGEST, timeout=SHORT)
        assert "secret" not in str(caught.value)

    play(scene())


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_the_largest_message_fits_exactly(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a"]) as b:
            assert (await a.put_once(Slot(1, "a"), bytes(LARGEST), LONG)).outcome is PutOutcome.STORED
            assert await b.get(Slot(1, "a"), LONG) == bytes(LARGEST)
            with pytest.raises(InputError, match=f"at most {LARGEST} bytes, got bytes={LARGEST + 1}"):
                await a.put_once(Slot(2, "a"), bytes(LARGEST + 1), LONG)

    play(scene())


def test_the_server_refuses_what_a_bad_site_makes_too_long(world):
    async def scene():
        async with await world.site("a") as a:
            raw = await nats.connect(world.server.url)
            answer = await raw.request(mailbox(world.run_id, "m1", "a"), bytes(LARGEST + 500), timeout=LONG)
            assert "exceeds maximum" in json.loads(answer.data)["error"]["description"]
            await raw.close()
            assert await a.get(Slot(1, "a"), SHORT) is None

    play(scene())


def test_a_message_of_a_mebibyte(tmp_path):
    size = 1 << 20

    async def scene(server):
        await create_stream(server.url, "big", size)
        async with (
            await JetStreamTransport.connect(server.url, "big", "a", [], size) as a,
            await JetStreamTransport.connect(server.url, "big", "b", ["a"], size) as b,
        ):
            for k in (1, 2, 3):
                await a.put_once(Slot(k, "a"), bytes([k]) * size, LONG)
                assert await b.get(Slot(k, "a"), LONG) == bytes([k]) * size

    with NatsServer(tmp_path, "max_payload: 2MB") as server:
        play(scene(server))


# -- bad peers --------------------------------------------------------------------------------------------------------


def test_a_forged_push_does_not_stand_in_for_the_mailbox(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a"]) as b:
            raw = await nats.connect(world.server.url)
            for _ in range(3):
                await raw.publish(push(world.run_id, "m1", "a"), b"forged")
            await raw.flush()
            assert await b.get(Slot(1, "a"), LONG) == b"forged"
            await raw.publish(push(world.run_id, "m1", "a"), b"forged again")
            await raw.flush()
            assert await b.get(Slot(1, "a"), SHORT) is None
            await a.put_once(Slot(1, "a"), b"one", LONG)
            assert await b.get(Slot(1, "a"), LONG) == b"one"
            await raw.close()

    play(scene())


def test_pushes_for_mailboxes_that_nobody_asks_for_are_dropped(world):
    async def scene():
        async with await world.site("b", ["a"]) as b:
            raw = await nats.connect(world.server.url)
            for token in ("01", "x", "١", "1e0", "-1", "9" * 30):
                await raw.publish(push(world.run_id, token, "a"), b"odd")
            await raw.publish(push(world.run_id, "m1", "a"), bytes(LARGEST + 1))
            await raw.flush()
            assert await b.get(Slot(1, "a"), SHORT) is None
            await raw.publish(mailbox(world.run_id, "m1", "a"), b"one")
            assert await b.get(Slot(1, "a"), LONG) == b"one"
            await raw.close()

    play(scene())


def test_headers_that_look_like_a_status_hide_nothing(world):
    async def scene():
        async with await world.site("b", ["a"]) as b:
            raw = await nats.connect(world.server.url)
            for k, status in ((1, "404"), (2, "503")):
                await raw.request(
                    mailbox(world.run_id, f"m{k}", "a"), b"data", timeout=LONG, headers={"Status": status}
                )
                for _ in range(2):  # pushed, then read
                    assert await b.get(Slot(k, "a"), LONG) == b"data"
            await raw.close()

    play(scene())


def test_a_status_that_a_member_made_up_hides_nothing(world):
    """An empty message whose headers begin as the server's own word would: it is there, and it is empty."""

    async def scene():
        async with await world.site("b", ["a"]) as b:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.server.port)
            writer.write(b'CONNECT {"verbose":false,"headers":true}\r\n')
            for k, status in ((1, b"404"), (2, b"503"), (3, b"100")):
                headers = b"NATS/1.0 %s Made Up\r\n\r\n" % status
                subject = mailbox(world.run_id, f"m{k}", "a").encode()
                writer.write(b"HPUB %s %d %d\r\n%s\r\n" % (subject, len(headers), len(headers), headers))
            writer.write(b"PING\r\n")
            await reader.readuntil(b"PONG\r\n")
            for k in (1, 2, 3):
                for _ in range(2):  # pushed, then read
                    assert await b.get(Slot(k, "a"), LONG) == b""
            writer.close()
            await writer.wait_closed()

    play(scene())


def test_arrivals_are_few_and_early_and_handed_out_once():
    async def scene():
        arrivals = Arrivals(["a"], LARGEST)
        for k in range(1000, 0, -1):
            arrivals.add(f"m{k}", "a", b"%d" % k)
        got = [await arrivals.wait(Slot(k, "a"), 0) for k in range(1, 20)]
        assert got == [b"%d" % k if k <= KEPT_EACH else None for k in range(1, 20)]
        arrivals.add("m1", "a", b"again")
        arrivals.add("m1", "stranger", b"unknown")
        arrivals.add("007", "a", b"nonsense")
        assert await arrivals.wait(Slot(1, "a"), 0) is None
        assert await arrivals.wait(Slot(1, "stranger"), 0) is None

    play(scene())


# -- rights -----------------------------------------------------------------------------------------------------------


def users(run_id, names, hears):
    """Everyone in one account, with the rights that `permissions` lists, and without pushes for those who hear none."""
    lines = ["{user: operator, password: x}"]
    for name in names:
        rights = permissions(run_id, name, [other for other in names if other != name])
        heard = [rights.inbox, *(rights.pushes if name in hears else ())]
        lines.append(
            f"{{user: {name}, password: x, permissions: {{"
            f"publish: {json.dumps([*rights.put, *rights.read])}, subscribe: {json.dumps(heard)}}}}}"
        )
    return "authorization { users: [\n" + "\n".join(lines) + "\n] }"


def test_the_listed_rights_are_enough_and_pushes_only_save_time(tmp_path, caplog):
    names = ["a", "b", "c"]
    caplog.set_level(logging.WARNING)

    async def scene(server):
        def url(name):
            return server.url.replace("//", f"//{name}:x@")

        await create_stream(url("operator"), "rights", LARGEST)

        async def live(name):
            others = [other for other in names if other != name]
            async with await JetStreamTransport.connect(url(name), "rights", name, others, LARGEST) as site:
                for k in (1, 2):
                    await site.put_once(Slot(k, name), name.encode(), LONG)
                    assert await get_many(site, k, others, LONG) == {other: other.encode() for other in others}
                if name == "a":
                    with pytest.raises(RefusedError, match="let us use the mailbox m3 of site='b', got: perm"):
                        await site.put_once(Slot(3, "b"), b"not b", LONG)

        await asyncio.gather(*map(live, names))
        with pytest.raises(RefusedError, match="to know us"):
            await JetStreamTransport.connect(url("d"), "rights", "d", [], LARGEST)

    with NatsServer(tmp_path, users("rights", names, hears=("a", "b"))) as server:
        play(scene(server))
    assert "does not let us hear the pushes of site='a'" in caplog.text
    assert "sv.rights" not in caplog.text


def test_tls_is_not_talked_away(server, tmp_path):
    """A server, or somebody before it, that offers no TLS gets nothing."""
    certificates.create_authority(tmp_path)
    tls = certificates.issue_site(tmp_path, "a").context()

    async def scene():
        with pytest.raises(RefusedError, match="Expected a TLS connection"):
            await JetStreamTransport.connect(server.url, "r", "a", [], LARGEST, tls=tls)

    play(scene())


# -- bad servers ------------------------------------------------------------------------------------------------------


def test_a_frozen_server_costs_time_and_nothing_else(world, monkeypatch):
    monkeypatch.setattr(link, "FIRST_PATIENCE", 0.4)

    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a"]) as b:
            world.server.freeze()
            try:
                with pytest.raises(UnreachableError, match="silence"):
                    await a.put_once(Slot(1, "a"), b"one", SHORT)
                with pytest.raises(UnreachableError, match="silence"):
                    await b.get(Slot(1, "a"), SHORT)
                getting = asyncio.ensure_future(b.get(Slot(1, "a"), LONG))
                putting = asyncio.ensure_future(a.put_once(Slot(1, "a"), b"one", LONG))
                await asyncio.sleep(0.6)  # longer than the patience with one connection
            finally:
                world.server.thaw()
            assert (await putting).held == b"one"
            assert await getting == b"one"

    play(scene())


def test_a_connection_that_went_quiet_is_replaced(world, monkeypatch):
    """The server is fine, but nothing passes any more on the connections there are: as after a change of a firewall."""
    monkeypatch.setattr(link, "FIRST_PATIENCE", 0.3)
    quiet, pipes = asyncio.Event(), []

    async def pipe(reader, writer):
        try:
            while data := await reader.read(65536):
                if quiet.is_set():
                    await asyncio.sleep(60)
                writer.write(data)
        finally:
            writer.close()

    async def forward(reader, writer):
        answers, questions = await asyncio.open_connection("127.0.0.1", world.server.port)
        pipes.extend(asyncio.ensure_future(pipe(*ends)) for ends in ((reader, questions), (answers, writer)))

    async def scene():
        await (await world.site("a")).close()  # makes the run
        between = await asyncio.start_server(forward, "127.0.0.1", 0)
        url = f"nats://127.0.0.1:{between.sockets[0].getsockname()[1]}"
        async with await JetStreamTransport.connect(url, world.run_id, "a", [], LARGEST) as a:
            quiet.set()
            putting = asyncio.ensure_future(a.put_once(Slot(1, "a"), b"one", LONG))
            await asyncio.sleep(0.1)
            quiet.clear()
            assert (await putting).held == b"one"
        between.close()
        for each in pipes:
            each.cancel()
        await asyncio.wait(pipes)

    play(scene())


def test_no_server_at_all():
    async def scene():
        url = f"nats://127.0.0.1:{free_port()}"
        with pytest.raises(UnreachableError, match="connection refused"):
            await JetStreamTransport.connect(url, "r", "a", [], LARGEST, timeout=SHORT)

    play(scene())


# -- what people are told ---------------------------------------------------------------------------------------------


async def told_by(url, seconds, tls=None):
    """What is said while a site tries for so long, with the time at which it was said; and the error in the end."""
    said, began = [], time.monotonic()

    def told(words, left):
        said.append((words, left, time.monotonic() - began))

    with pytest.raises(UnreachableError) as caught:
        await JetStreamTransport.connect(url, "r", "a", ["b"], LARGEST, tls=tls, timeout=seconds, told=told)
    for text in (str(caught.value), *(words for words, _, _ in said)):
        assert "$JS" not in text
        assert "sv.r" not in text
    return said, str(caught.value)


def test_nobody_waits_for_a_dead_server_without_being_told():
    url = f"nats://127.0.0.1:{free_port()}"
    said, error = play(told_by(url, 4.0))
    words, left, at = said[0]
    assert words == f"message server {url} does not answer (connection refused)"
    assert at < 2.0
    assert abs(left + at - 4.0) < 1.0
    assert len(said) <= 3  # not at every attempt
    assert "connection refused" in error


def test_nobody_waits_for_a_mute_server_without_being_told():
    async def scene():
        async def mute(_reader, _writer):
            await asyncio.sleep(60)

        async with hostile(mute, None) as (url, _):
            said, error = await told_by(url, 2.0)
        assert "silence for 1.5 s so far" in said[0][0]
        assert said[0][2] < 2.0
        assert "got none (no connection within 2 s)" in error or "silence" in error

    play(scene())


def test_nobody_waits_for_a_run_that_is_not_open_without_being_told(server):
    said, error = play(told_by(server.url, 4.0))
    words, left, at = said[0]
    assert words == (
        f"the run is not open on message server {server.url} yet; if this lasts, ask the operator to run: sottovoce "
        "federation open"
    )
    assert at < 2.0
    assert left <= 4.0
    assert "Ask the operator to run: sottovoce federation open" in error


def test_people_are_told_when_a_server_goes_and_when_it_is_back(world):
    said = []

    async def scene():
        await (await world.site("a")).close()  # makes the run
        site = await JetStreamTransport.connect(
            world.server.url, world.run_id, "a", ["b"], LARGEST, told=lambda *words: said.append(words)
        )
        async with site:
            await site.get(Slot(1, "b"), SHORT)
            assert said == []
            await world.stop()
            with pytest.raises(UnreachableError):
                await site.get(Slot(1, "b"), SHORT)
            assert ("does not answer (" in said[0][0], said[0][1]) == (True, None)
            await world.start()
            await site.get(Slot(1, "b"), LONG / 5)
            assert said[-1] == (None, None)
            assert [words for words, _ in said].count(None) == 1

    play(scene())


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"INFO {]\r\n", bytes(1000)])
def test_something_else_on_the_port(greeting):
    async def answer(_reader, writer):
        writer.write(greeting)
        await writer.drain()
        writer.close()

    async def scene():
        other = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(UnreachableError, match="Expected an answer"):
            await JetStreamTransport.connect(f"nats://127.0.0.1:{port}", "r", "a", [], LARGEST, timeout=SHORT)
        other.close()
        await other.wait_closed()

    play(scene())


def test_a_store_that_lost_power_many_times_keeps_every_mailbox(world):
    """Killed at random moments while a site puts: what was answered is there, once, unchanged."""
    rounds = 40

    async def scene():
        async with await world.site("a") as a:

            async def upset():
                for pause in (0.03, 0.05):
                    await asyncio.sleep(pause)
                    await asyncio.to_thread(world.server.restart)

            upsetting = asyncio.ensure_future(upset())
            for k in range(rounds):
                data = b"%d" % k * 100
                assert (await a.put_once(Slot(k, "a"), data, LONG)).held == data
            await upsetting
            raw = await nats.connect(world.server.url)
            for k in range(rounds):
                stored = await raw.request(reading(world.run_id, f"m{k}", "a"), timeout=LONG)
                assert stored.data == b"%d" % k * 100
            await raw.close()

    play(scene())
