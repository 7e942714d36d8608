"""The contract of mailboxes, kept by the twin in memory and by a real server that is killed now and then."""

import asyncio
from math import inf, nan

import pytest

from helpers.memory import Trouble
from helpers.network_server import NatsServer
from helpers.network_worlds import LONG, SHORT, JetStreamWorld, MemoryWorld, get_many, play
from sottovoce.errors import InputError
from sottovoce.federation.transport.transport import PutOutcome, TransportError, UnreachableError
from sottovoce.federation.transport.wire import Kind, Slot


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with NatsServer(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(params=["memory", "jetstream"])
def world(request):
    if request.param == "memory":
        return MemoryWorld()
    return JetStreamWorld(request.getfixturevalue("server"))


def test_what_is_put_can_be_got(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a"]) as b:
            put = await a.put_once(Slot(1, "a"), b"one", LONG)
            assert (put.outcome, put.held) == (PutOutcome.STORED, b"one")
            assert await b.get(Slot(1, "a"), LONG) == b"one"
            assert await b.get(Slot(1, "a"), LONG) == b"one"

    play(scene())


@pytest.mark.parametrize("second", [b"one", b"other"])
def test_only_the_first_put_counts(world, second):
    async def scene():
        async with await world.site("a") as a, await world.site("a") as twin, await world.site("b", ["a"]) as b:
            await a.put_once(Slot(1, "a"), b"one", LONG)
            put = await twin.put_once(Slot(1, "a"), second, LONG)
            assert (put.outcome, put.held) == (PutOutcome.ALREADY_THERE, b"one")
            assert await b.get(Slot(1, "a"), LONG) == b"one"

    play(scene())


def test_of_many_at_once_one_wins(world):
    async def scene():
        twins = [await world.site("a") for _ in range(8)]
        puts = await asyncio.gather(*(twin.put_once(Slot(1, "a"), b"%d" % i, LONG) for i, twin in enumerate(twins)))
        assert [put.outcome for put in puts].count(PutOutcome.STORED) == 1
        assert len({put.held for put in puts}) == 1
        await asyncio.gather(*(twin.close() for twin in twins))

    play(scene())


def test_a_get_waits_for_the_put(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a"]) as b:
            waiting = [asyncio.ensure_future(b.get(Slot(k, "a"), LONG)) for k in (1, 2)]
            for k in (1, 2):
                await asyncio.sleep(0.1)
                assert not waiting[k - 1].done()
                await a.put_once(Slot(k, "a"), b"%d" % k, LONG)
            assert await asyncio.gather(*waiting) == [b"1", b"2"]

    play(scene())


def test_what_does_not_come_in_time_is_none(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a"]) as b:
            assert await b.get(Slot(1, "a"), SHORT) is None
            await a.put_once(Slot(1, "a"), b"one", LONG)
            assert await b.get(Slot(1, "a"), LONG) == b"one"
            assert await b.get(Slot(2, "a"), SHORT) is None
            assert await get_many(b, 2, ["a"], SHORT) == {}

    play(scene())


def test_a_look_says_at_once_what_is_there(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a"]) as b:
            for slot in (Slot(1, "a"), Slot(1, "a", Kind.NOTICE), Slot(1, "a", Kind.ANSWER, "b")):
                begun = asyncio.get_running_loop().time()
                assert await b.look(slot, LONG) is None
                assert asyncio.get_running_loop().time() - begun < LONG / 2
                await a.put_once(slot, slot.token.encode(), LONG)
                assert await b.look(slot, LONG) == await b.get(slot, LONG) == slot.token.encode()

    play(scene())


def test_many_are_got_at_once_and_the_missing_left_out(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b") as b, await world.site("c", "abd") as c:
            await a.put_once(Slot(5, "a"), b"from a", LONG)
            await b.put_once(Slot(5, "b"), b"", LONG)
            assert await get_many(c, 5, ["a", "b", "a"], LONG) == {"a": b"from a", "b": b""}
            assert await get_many(c, 5, ["a", "d"], SHORT) == {"a": b"from a"}
            assert await get_many(c, 5, [], SHORT) == {}

    play(scene())


def test_eight_sites_exchange_round_after_round(world):
    names = [f"s{i}" for i in range(8)]

    async def live(name):
        others = [other for other in names if other != name]
        async with await world.site(name, others) as site:
            for k in range(1, 6):
                await site.put_once(Slot(k, name), f"{name} {k}".encode(), LONG)
                heard = await get_many(site, k, others, LONG)
                assert heard == {other: f"{other} {k}".encode() for other in others}

    async def scene():
        await (await world.site("s0")).close()  # the run exists before all come at once
        await asyncio.gather(*map(live, names))

    play(scene())


def test_messages_survive_the_servers_death(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a"]) as b:
            await a.put_once(Slot(1, "a"), b"one", LONG)
            await world.stop()
            await world.start()
            assert await b.get(Slot(1, "a"), LONG) == b"one"
            put = await a.put_once(Slot(1, "a"), b"other", LONG)
            assert (put.outcome, put.held) == (PutOutcome.ALREADY_THERE, b"one")

    play(scene())


def test_waiting_and_putting_go_on_over_the_servers_death(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a"]) as b:
            getting = asyncio.ensure_future(b.get(Slot(1, "a"), LONG))
            await asyncio.sleep(0.1)
            await world.stop()
            putting = asyncio.ensure_future(a.put_once(Slot(1, "a"), b"one", LONG))
            await asyncio.sleep(0.2)
            assert not getting.done()
            assert not putting.done()
            await world.start()
            assert (await putting).held == b"one"
            assert await getting == b"one"

    play(scene())


def test_without_a_server_every_call_ends_and_says_so(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a"]) as b:
            await world.stop()
            try:
                for call in (
                    lambda: a.put_once(Slot(1, "a"), b"one", SHORT),
                    lambda: b.get(Slot(1, "a"), SHORT),
                    lambda: get_many(b, 1, ["a", "c"], SHORT),
                ):
                    with pytest.raises(UnreachableError, match="Expected an answer"):
                        await call()
            finally:
                await world.start()
            assert (await a.put_once(Slot(1, "a"), b"one", LONG)).held == b"one"

    play(scene())


def test_a_server_that_dies_while_a_get_waits_does_not_hide_that_nothing_came(world):
    async def scene():
        async with await world.site("b", ["a"]) as b:
            waiting = asyncio.ensure_future(b.get(Slot(1, "a"), 0.6))
            await asyncio.sleep(0.2)
            await world.stop()
            try:
                assert await waiting is None
            finally:
                await world.start()

    play(scene())


def test_calls_may_be_cancelled(world):
    async def scene():
        async with await world.site("a") as a, await world.site("b", ["a", "c"]) as b:
            others = len(asyncio.all_tasks())
            waiting = [
                asyncio.ensure_future(get_many(b, 1, ["a", "c"], LONG)),
                asyncio.ensure_future(b.get(Slot(1, "a"), LONG)),
            ]
            await asyncio.sleep(0.1)
            putting = asyncio.ensure_future(a.put_once(Slot(1, "a"), b"one", LONG))
            await asyncio.sleep(0)
            for call in (*waiting, putting):
                call.cancel()
            await asyncio.wait((*waiting, putting))
            assert all(call.cancelled() for call in waiting)
            await asyncio.sleep(0.05)
            assert len(asyncio.all_tasks()) == others
            assert (await a.put_once(Slot(1, "a"), b"one", LONG)).held == b"one"
            assert await b.get(Slot(1, "a"), LONG) == b"one"

    play(scene())


def test_after_closing_nothing_goes(world):
    async def scene():
        a = await world.site("a")
        await a.close()
        await a.close()
        with pytest.raises(TransportError, match="closed"):
            await a.put_once(Slot(1, "a"), b"one", LONG)
        with pytest.raises(TransportError, match="closed"):
            await a.get(Slot(1, "a"), LONG)

    play(scene())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1, "a", 0.0), "a finite timeout > 0"),
        ((1, "a", inf), "a finite timeout > 0"),
        ((1, "a", nan), "a finite timeout > 0"),
        ((-1, "a", 1.0), "a whole number in 0"),
        ((1, "a.b", 1.0), "a site's name"),
        ((1, "*", 1.0), "a site's name"),
    ],
)
def test_bad_arguments(world, arguments, words):
    k, site, timeout = arguments

    async def scene():
        async with await world.site("a") as a:
            with pytest.raises(InputError, match=words):
                await a.put_once(Slot(k, site), b"", timeout)
            with pytest.raises(InputError, match=words):
                await a.get(Slot(k, site), timeout)

    play(scene())


# -- trouble on demand, which only the twin has -----------------------------------------------------------------------


def test_a_lost_put_is_not_answered_and_can_be_repeated():
    async def scene():
        a = await MemoryWorld(Trouble(lost={Slot(1, "a"): 1})).site("a")
        with pytest.raises(UnreachableError, match="Put it again"):
            await a.put_once(Slot(1, "a"), b"one", 0.05)
        assert await a.get(Slot(1, "a"), 0.05) is None
        assert (await a.put_once(Slot(1, "a"), b"one", LONG)).outcome is PutOutcome.STORED

    play(scene())


def test_a_late_message_is_seen_late():
    async def scene():
        a = await MemoryWorld(Trouble(late={Slot(1, "a"): 0.2})).site("a")
        assert (await a.put_once(Slot(1, "a"), b"one", LONG)).outcome is PutOutcome.STORED
        assert await a.get(Slot(1, "a"), 0.05) is None
        assert await a.get(Slot(1, "a"), LONG) == b"one"

    play(scene())


def test_an_altered_message_is_altered_for_readers_only():
    async def scene():
        a = await MemoryWorld(Trouble(altered={Slot(1, "a"): lambda data: data[::-1]})).site("a")
        assert (await a.put_once(Slot(1, "a"), b"one", LONG)).held == b"one"
        assert await a.get(Slot(1, "a"), LONG) == b"eno"

    play(scene())
