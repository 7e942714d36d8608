"""Bad peers, on a real server with TLS and our configuration: what they say is refused, told, and never used.

Sixteen members misbehave in one run, each in its own way, all with a valid certificate and a valid key. The two honest
ones must end exactly where they would have ended, had the others said nothing at all.
"""

import asyncio
import logging
import os
import struct
from types import SimpleNamespace

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import COMMON
from helpers.guarded_server import (
    LONG,
    D,
    GuardedServer,
    GuardedWorld,
    Seen,
    ended,
    federation_of,
    first_round,
    lines_of,
    said,
    started,
)  # fmt: skip
from helpers.network_worlds import MemoryWorld, play
from helpers.site_runs import Died, dying
from sottovoce.algorithms import IPADMM
from sottovoce.cli.exit_codes import code_of
from sottovoce.federation.agreement.agreement import LostNeighbour, new_run
from sottovoce.federation.agreement.identity import SigningContext, SigningKey
from sottovoce.federation.operator.opening import room_for
from sottovoce.federation.site import board
from sottovoce.federation.site.letters import NOTICE_BYTES, About, Notice
from sottovoce.federation.site.log import JsonLines, LogWatcher
from sottovoce.federation.site.mail import Mail, Pace
from sottovoce.federation.site.stops import LeftBehindError
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.transport.transport import RefusedError, Transport, UnreachableError
from sottovoce.federation.transport.wire import BOOKS_BYTES, Envelope, Kind, Slot, seal
from sottovoce.privacy.books.ledger import Ledger

SIGNATURE = 64
HONEST = ("berlin", "paris")
ALGORITHM = IPADMM(**(COMMON | {"rounds": 4}), local_steps=2)
# Over real connections: long enough that nobody honest is silent for it, however busy the machine.
GO_ON = LostNeighbour(policy="go-on", wait_seconds=8.0, go_on_after_round=1)
STOP = LostNeighbour(policy="stop", wait_seconds=4.0)
STRANGER = SigningKey.generate()


# -- what bad members say ---------------------------------------------------------------------------------------------


def resigned(federation, name, change):
    """A message whose body was changed, signed by its owner. `seal` would refuse to make it."""
    body = change(said(federation, name)[:-SIGNATURE])
    return body + federation.keys[name].sign(body, SigningContext.MESSAGE)


def filled(number):
    numbers = np.full(D, number).astype("<f8").tobytes()
    return lambda body: body[: -len(numbers) - BOOKS_BYTES] + numbers + body[-BOOKS_BYTES:]


def counted(body):
    """The header says one byte less than there is."""
    (length,) = struct.unpack("<I", body[16:20])
    return body[:16] + struct.pack("<I", length - 1) + body[20:]


# By name: what the member puts into its mailbox of round 2, and why it is refused. None: nothing is there to refuse.
VICES = {
    "forger": (lambda f, n: said(f, n, key=STRANGER), "forged"),
    "repeater": (lambda f, n: said(f, n, k=1), "wrong round"),
    "wanderer": (lambda f, n: said(f, n, run=new_run()), "wrong run"),
    "lawyer": (lambda f, n: said(f, n, digest=bytes(32)), "wrong agreement"),
    "thief": (None, "wrong sender"),  # what paris said, word for word
    "brief": (lambda f, n: said(f, n)[:-1], "truncated"),
    "mute": (lambda *_: b"", "truncated"),
    "windbag": (lambda f, n: said(f, n) + b"x", "oversized"),
    "giant": (lambda f, n: said(f, n) + bytes(30_000), None),  # the server does not take it
    "nan": (lambda f, n: resigned(f, n, filled(np.nan)), "not finite"),
    "infinite": (lambda f, n: resigned(f, n, filled(-np.inf)), "not finite"),
    "shouter": (lambda f, n: resigned(f, n, filled(1e12)), "too large"),
    "breaker": (lambda f, n: resigned(f, n, filled(1.5e308)), "too large"),
    "miscounting": (lambda f, n: resigned(f, n, counted), "wrong shape"),
    "babbler": (lambda f, n: os.urandom(len(said(f, n))), "malformed"),
    "latecomer": (None, None),  # speaks well, after all have gone on without it
}
SLEEPER = "sleeper"  # an honest site that dies after round 1 and comes back too late
CROWD = (*HONEST, *VICES, SLEEPER)
THREE = ("berlin", "paris", "rome")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One server that carries every run of this file. Sites may restart rarely, so that the room is quickly filled."""
    patch = pytest.MonkeyPatch()
    patch.setattr(board, "MOST_QUESTIONS", 20)
    keys, three = {}, sv.graphs.complete(3)
    runs = {
        "crowd": federation_of(CROWD, sv.graphs.complete(len(CROWD)), ALGORITHM, keys, lost_neighbour=GO_ON),
        "programs": federation_of(THREE, three, ALGORITHM, keys, lost_neighbour=STOP),
        "sent away": federation_of(THREE, three, ALGORITHM, keys, lost_neighbour=GO_ON),
        "flood": federation_of(THREE, three, ALGORITHM, keys, lost_neighbour=STOP),
    }
    with GuardedServer(tmp_path_factory.mktemp("server"), runs.values()) as server:
        yield SimpleNamespace(server=server, runs=runs)
    for run in runs.values():
        run.__exit__()
    patch.undo()


class logged_to:  # noqa: N801
    """The log of a site as its program writes it, into a file."""

    def __init__(self, path):
        self._handler = logging.FileHandler(path)
        self._handler.setFormatter(JsonLines())

    def __enter__(self):
        logger = logging.getLogger("sottovoce.site")
        self._level = logger.level
        logger.addHandler(self._handler)
        logger.setLevel(logging.INFO)

    def __exit__(self, *_):
        logger = logging.getLogger("sottovoce.site")
        logger.removeHandler(self._handler)
        logger.setLevel(self._level)
        self._handler.close()


# -- a crowd of bad members -------------------------------------------------------------------------------------------


async def misbehave(federation, world, name, seen):
    """One bad member, with its own certificate and its own key."""
    transport, (make, _) = await first_round(federation, world, name), VICES[name]
    async with transport:
        if name == "latecomer":
            await dropped(seen, name)
            for k in (2, 3, 4):
                await transport.put_once(Slot(k, name), said(federation, name, k=k), LONG)
            return
        data = await transport.get(Slot(2, "paris"), LONG) if make is None else make(federation, name)
        transport._max_message_size = 10**6  # a bad program does not check this
        if name == "giant":
            with pytest.raises(RefusedError, match="message size exceeds"):
                await transport.put_once(Slot(2, name), data, LONG)
        else:
            await transport.put_once(Slot(2, name), data, LONG)
        await dropped(seen, name)


async def dropped(seen, name):
    """Until then a member answers questions; nobody would begin without that."""
    while name not in seen.dropped_at:
        await asyncio.sleep(0.05)


async def asleep(federation, world, noise):
    with pytest.raises(Died):
        await federation.site(SLEEPER, world, noise, probe=dying("checkpointed", 1))


@pytest.fixture(scope="module")
def crowd(world, tmp_path_factory):
    """What two honest sites make of it, with berlin's log; and of the same run in which the others fall silent."""
    federation, noise = world.runs["crowd"], world.runs["crowd"].normals()
    guarded, log = GuardedWorld(world.server, federation.agreement), tmp_path_factory.mktemp("log") / "berlin.log"
    seen = Seen()

    async def scene():
        bad = [misbehave(federation, guarded, name, seen) for name in VICES]
        honest = [federation.site(name, guarded, noise, watcher=watcher)
                  for name, watcher in zip(HONEST, (LogWatcher(), seen), strict=True)]  # fmt: skip
        ends = await asyncio.gather(*honest, asleep(federation, guarded, noise), *bad)
        with pytest.raises(LeftBehindError) as late:
            await federation.site(SLEEPER, guarded, noise)
        return ends[:2], late.value

    async def in_silence():
        silent, memory = twin(federation), MemoryWorld()
        with silent:
            for name in VICES:
                await first_round(silent, memory, name)
            honest = [silent.site(name, memory, noise) for name in HONEST]
            ends = await asyncio.gather(*honest, asleep(silent, memory, noise))
        return ends[:2]

    with logged_to(log):
        ends, late = play(scene())
    return SimpleNamespace(ends=ends, late=late, seen=seen, lines=lines_of(log), wanted=play(in_silence()))


def twin(federation):
    """The same agreement, other folders."""
    keys = dict(federation.keys)
    made = federation_of(CROWD, federation.graph, ALGORITHM, keys, lost_neighbour=GO_ON)
    made.agreement = federation.agreement
    return made


@pytest.mark.parametrize("name", VICES)
def test_what_a_bad_member_says_is_refused_logged_and_taken_for_silence(crowd, name):
    reason = VICES[name][1]
    refused = [line for line in crowd.lines if line["event"] == "refused" and line["sender"] == name]
    told = [(line["round"], line["reason"], line["level"]) for line in refused]
    assert told == [(2, reason, "WARNING")] * bool(reason)
    assert [call for call in crowd.seen.refusals if call[1] == name] == [(2, name, reason)] * bool(reason)
    dropped = [line for line in crowd.lines if line["event"] == "dropped" and line["neighbour"] == name]
    assert [line["round"] for line in dropped] == [2]
    assert crowd.seen.dropped_at[name] == 2


def test_nothing_of_it_is_used(crowd):
    for end, wanted in zip(crowd.ends, crowd.wanted, strict=True):
        assert (end.rounds, end.absent) == (4, dict.fromkeys([*VICES, SLEEPER], 2))
        np.testing.assert_allclose(end.model, wanted.model, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(end.own, wanted.own, rtol=1e-12, atol=1e-12)
    assert np.abs(crowd.ends[0].model - 0.1).max() > 0.01


def test_a_site_that_comes_back_too_late_is_told_and_stops(crowd):
    assert code_of(crowd.late) == 8
    assert "goes on without site='sleeper' since round=2" in str(crowd.late)


class BadThenNothing(Transport):
    """Hands out something bad, and is then out of time."""

    def __init__(self):
        self.asked = 0

    async def look(self, *_):
        raise AssertionError

    async def get(self, *_):
        self.asked += 1
        if self.asked > 1:
            raise UnreachableError("no time was left")
        return b"bad"

    async def put_once(self, *_):
        raise AssertionError

    async def close(self):
        pass


def test_a_server_that_hands_out_something_bad_is_not_away(world):
    """Else a bad message would hold everyone up for ever: a server's absence is held against nobody."""
    federation = world.runs["programs"]

    async def scene():
        key, pace = federation.keys["berlin"], Pace(slice=1.0)
        mail = Mail(federation.agreement, "berlin", key, BadThenNothing(), Watcher(), pace)
        return await mail.hear(Slot(2, "rome"), 1.0, mail.open_letter)

    assert play(scene()) == (None, True, "truncated")


# -- what else a bad member can do -----------------------------------------------------------------------------------


def test_the_program_stops_with_code_4(world, tmp_path):
    federation = world.runs["programs"]
    guarded = GuardedWorld(world.server, federation.agreement)

    async def scene():
        async with (
            await first_round(federation, guarded, "rome") as rome,
            await first_round(federation, guarded, "paris") as paris,
        ):
            await rome.put_once(Slot(2, "rome"), resigned(federation, "rome", filled(np.nan)), LONG)
            await paris.put_once(Slot(2, "paris"), said(federation, "paris"), LONG)
            return await asyncio.to_thread(ended, started(federation, "berlin", world.server, tmp_path))

    code, last = play(scene())
    assert code == 4
    assert "the messages of rome in round=2 within 4 s, got one of rome that was refused (not finite)" in last
    assert last.endswith("Released in this run: rounds 1 to 2 of 4.")
    lines = lines_of(tmp_path / "berlin" / "log")
    refused = [(line["round"], line["sender"], line["reason"]) for line in lines if line["event"] == "refused"]
    assert refused == [(2, "rome", "not finite")]
    assert [line["kind"] for line in lines if line["event"] == "stopped"] == ["LostNeighbourError"]
    with Ledger.open(tmp_path / "berlin" / "state" / "rows.ledger") as ledger:
        assert [booked.round for booked in ledger.reservations()] == [1, 2]
    assert len(list(tmp_path.rglob("model.safetensors"))) == 1  # of what was learnt in round 1


def test_a_member_can_send_its_neighbours_away_and_no_more(world):
    """Whoever relies on a bad neighbour may have to stop. What it had learnt and paid for stays sound."""
    federation, seen = world.runs["sent away"], Seen()
    guarded = GuardedWorld(world.server, federation.agreement)
    # The second is no notice at all.
    notices = [Notice(About.GONE, 2, 0).to_bytes(), b"\xff" + bytes(NOTICE_BYTES - 1)]

    async def scene():
        async with await first_round(federation, guarded, "rome") as rome:
            others = asyncio.ensure_future(federation.all(guarded, federation.normals(), HONEST, watcher=seen))
            await rome.get(Slot(2, "berlin"), LONG)
            for i, notice in enumerate(reversed(notices), 1):
                place = Envelope(
                    federation.agreement.run, federation.agreement.digest(), Slot(i, "rome", Kind.NOTICE), NOTICE_BYTES
                )
                await rome.put_once(place.slot, seal(place, notice, federation.keys["rome"]), LONG)
            return await others

    ends = play(scene())
    assert [code_of(ends[name]) for name in HONEST] == [8, 4]  # paris is then alone
    assert (1, "rome", "malformed") in seen.refusals


def test_a_run_can_fill_its_own_room_and_not_that_of_another(tmp_path):
    """rome puts messages as long as a model wherever a notice would have been allowed."""
    keys = {}
    large = federation_of(("berlin", "rome"), sv.graphs.complete(2), ALGORITHM, keys, d=100_000)
    small = federation_of(("berlin", "rome"), sv.graphs.complete(2), ALGORITHM, keys)
    room = room_for(large.agreement)
    assert room.messages * room.size > 10 * room.total
    with large, small, GuardedServer(tmp_path, [large, small]) as server:

        async def flood():
            async with await GuardedWorld(server, large.agreement).site("rome") as rome:
                for k in range(1, room.messages):
                    await rome.put_once(Slot(k, "rome"), bytes(room.size), LONG)
                    assert k * room.size <= room.total

        with pytest.raises(RefusedError, match="maximum bytes exceeded"):
            play(flood())
        play(small.finish(GuardedWorld(server, small.agreement), small.normals()))


def test_a_member_can_fill_the_room_of_the_run_and_no_more(world):
    """Then nobody can say anything. The disk is not filled, and whoever could not speak says why it stops."""
    federation = world.runs["flood"]
    guarded, room = GuardedWorld(world.server, federation.agreement), room_for(federation.agreement).messages

    async def scene():
        async with await guarded.site("rome") as rome:
            for k in range(100, 100 + room):
                await rome.put_once(Slot(k, "rome"), b"x", LONG)
            with pytest.raises(RefusedError, match="maximum messages exceeded"):
                await rome.put_once(Slot(99, "rome"), b"x", LONG)
        return await federation.all(guarded, federation.normals(), HONEST)

    ends = play(scene())
    assert [code_of(ends[name]) for name in HONEST] == [7, 7]
    assert "maximum messages exceeded" in str(ends["paris"])
