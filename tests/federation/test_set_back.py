"""A state folder that is put back or copied: the same words are said again, or none.

The attacker has a relay of his own. It records, forgets, hides and repeats as he likes; he has no site's key.
"""

import asyncio
import shutil
import sqlite3
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import COMMON, seal_words
from helpers.guarded_server import Answering
from helpers.network_worlds import LyingWorld, play
from helpers.site_runs import QUICK, Backup, Federation, dies, meanwhile
from sottovoce.algorithms import IPADMM
from sottovoce.errors import InputError, PrivacyError
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site import seat as seat_module
from sottovoce.federation.site.commitment import bind, commit
from sottovoce.federation.site.journal import Journal
from sottovoce.federation.site.runner import result_of, run_site, so_far
from sottovoce.federation.site.seat import owner_of
from sottovoce.federation.site.stops import LostNeighbourError, UsedTwiceError
from sottovoce.federation.transport.wire import Kind, Slot, digest_of
from sottovoce.noise import secure

NAMES = ("berlin", "oslo", "paris")
ALGORITHM = IPADMM(**(COMMON | {"rounds": 8}), local_steps=2)
STOP = LostNeighbour(policy="stop", wait_seconds=1.5)


@pytest.fixture
def federation():
    with Federation(sv.graphs.complete(3), (12, 9, 15), ALGORITHM, lost_neighbour=STOP) as federation:
        yield federation


async def forget(world, k, name="berlin"):
    """The relay forgets all that a site ever said, once everyone has heard its round k."""
    while not all(Slot(k + 1, other) in world.post._held for other in NAMES if other != name):
        await asyncio.sleep(0.005)
    for slot in [slot for slot in world.post._held if slot.site == name and slot.kind is Kind.MODEL]:
        del world.post._held[slot], world.post._readable_at[slot]


def reserved(federation, name):
    with federation.ledger(name) as ledger:
        return [r.round for r in ledger.reservations()]


# -- an honest relay --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["reserved", "in outbox", "bound", "published", "absorbed", "checkpointed"])
def test_a_site_that_is_put_back_again_and_again_says_the_same(federation, point):
    """A recording relay sees one noise for every round, however often the site is put back and run on."""
    world = LyingWorld()

    async def scene():
        await dies(federation, world, point, 3)
        backup = Backup(federation)
        for end in (5, 7, 6):
            await dies(federation, world, "published", end)
            backup.restore()
        return await federation.site("berlin", world)

    end = play(meanwhile(federation, world, scene()))
    said = world.said("berlin")
    assert sorted(said) == list(range(1, 9))
    assert {len(messages) for messages in said.values()} == {1}
    assert end.rounds == 8
    assert reserved(federation, "berlin") == list(range(1, 9))


def test_a_site_that_is_put_back_when_all_others_are_gone_says_the_same(federation):
    world = LyingWorld()

    async def scene():
        others = asyncio.gather(*(federation.site(name, world) for name in NAMES[1:]))
        await dies(federation, world, "published", 2)
        backup = Backup(federation)
        whole = await federation.site("berlin", world)
        await others
        backup.restore()
        return whole, await federation.site("berlin", world)

    whole, again = play(scene())
    np.testing.assert_array_equal(whole.model, again.model)
    assert {len(messages) for messages in world.said("berlin").values()} == {1}


def test_copies_that_run_side_by_side_say_the_same(federation):
    world = LyingWorld()

    async def scene():
        await dies(federation, world, "absorbed", 3)
        with ExitStack() as stack:
            seats = [federation.seat("berlin", stack)]
            for i in range(3):
                for end in ("ledger", "ledger.head", "journal"):
                    shutil.copy(federation.folder / f"berlin.{end}", federation.folder / f"copy-{i}.{end}")
                seats.append(
                    replace(
                        seats[0],
                        ledger=stack.enter_context(federation.ledger(f"copy-{i}")),
                        journal=stack.enter_context(federation.journal("berlin", f"copy-{i}.journal")),
                    )
                )
            runs = [run_site(seat, await world.site("berlin"), pace=QUICK) for seat in seats]
            return await asyncio.gather(*runs)

    ends = play(meanwhile(federation, world, scene()))
    # The words. Each copy has a ledger of its own, and says what is in that.
    assert {len(set(map(digest_of, messages))) for messages in world.said("berlin").values()} == {1}
    for end in ends:
        np.testing.assert_array_equal(end.model, ends[0].model)


# -- a relay that forgets, hides or repeats ---------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["reserved", "bound", "absorbed"])
def test_a_relay_that_forgets_what_a_site_said_is_found_out_by_its_neighbours(federation, point):
    """But for `reserved` the outbox holds the next round, which is sent again unasked; the one after it is not."""
    world = LyingWorld()

    async def scene():
        await dies(federation, world, point, 3)
        backup = Backup(federation)
        await dies(federation, world, "published", 6)
        backup.restore()
        before = len(world.sent)
        await forget(world, 6)
        with pytest.raises(UsedTwiceError, match="has received round=6, of which the server has nothing"):
            await federation.site("berlin", world)
        return [slot.number for slot, _ in world.sent[before:] if slot == Slot(slot.number, "berlin")]

    fresh = play(meanwhile(federation, world, scene()))
    assert fresh == ([] if point == "reserved" else [3])  # from the outbox, the same bytes as before
    assert {len(messages) for messages in world.said("berlin").values()} == {1}


def test_a_relay_that_keeps_the_answers_back_can_only_block(federation):
    world = LyingWorld(
        shows=lambda reader, slot, data: None if reader == "berlin" and slot.kind is Kind.ANSWER else data
    )
    with pytest.raises(LostNeighbourError, match=r"oslo, paris in round=1 within 1.5 s, got none"):
        play(meanwhile(federation, world, federation.site("berlin", world)))
    assert world.said("berlin") == {}


def test_an_old_answer_does_not_count(federation):
    """The relay repeats what the neighbours said when they had heard nothing yet."""
    old = {}

    def shows(reader, slot, data):
        return old.setdefault(slot.site, data) if data and (reader, slot.kind) == ("berlin", Kind.ANSWER) else data

    world = LyingWorld(shows)

    async def scene():
        await dies(federation, world, "published", 3)
        await forget(world, 3)
        for file in federation.folder.glob("berlin.*"):
            file.unlink()
        await federation.site("berlin", world)

    with pytest.raises(LostNeighbourError, match=r"refused \(wrong (round|sender)\)"):
        play(meanwhile(federation, world, scene()))
    assert {len(messages) for messages in world.said("berlin").values()} == {1}


def test_a_site_that_starts_anew_without_its_state_is_refused_whatever_the_relay_does(federation):
    world = LyingWorld()

    async def scene():
        await dies(federation, world, "published", 3)
        await forget(world, 3)
        for file in federation.folder.glob("berlin.*"):
            file.unlink()
        with pytest.raises(UsedTwiceError, match="has received round=3"):
            await federation.site("berlin", world)

    play(meanwhile(federation, world, scene()))
    assert reserved(federation, "berlin") == []


# -- rows, key, software ----------------------------------------------------------------------------------------------


def test_a_run_stays_with_its_rows(federation):
    world = LyingWorld()
    play(meanwhile(federation, world, dies(federation, world, "published", 2)))
    federation.features[0][0, 0] += 1e-12
    with pytest.raises(InputError, match="put the data file back as it was"):
        federation.journal("berlin")


def test_rows_are_looked_at_before_every_message(federation):
    world = LyingWorld()

    async def scene():
        with ExitStack() as stack:
            seat = federation.seat("berlin", stack)

            def probe(point, k):
                if (point, k) == ("absorbed", 4):
                    seat.rows.labels[2] *= -1

            with pytest.raises(InputError, match="Expected the rows that this run began with"):
                await run_site(seat, await world.site("berlin"), pace=QUICK, probe=probe)

    play(meanwhile(federation, world, scene()))
    assert sorted(world.said("berlin")) == [1, 2, 3, 4]


def test_the_agreement_may_say_which_rows(federation):
    salt = bytes(range(32))
    rows = federation.sites(["berlin"])
    berlin, *others = federation.agreement.sites
    sites = (replace(berlin, data_commitment=commit(salt, rows)), *others)
    federation.agreement = replace(federation.agreement, sites=sites)
    with pytest.raises(InputError, match="the rows and the salt that site berlin has committed to"):
        federation.journal("berlin")
    committing = seat_module.committing(federation.agreement, "berlin", rows)
    path, owner = federation.folder / "berlin.journal", owner_of(federation.agreement, "berlin")
    with Journal.open(path, owner, committing, salt) as journal:
        assert (journal.salt, journal.rows) == (salt, berlin.data_commitment or commit(salt, rows))


def test_commitments_hide_and_bind(federation):
    rows, salt = federation.sites(["berlin"]), bytes(32)
    assert commit(salt, rows) == commit(salt, federation.sites(["berlin"]))
    other = federation.sites(["berlin"])
    other.labels[0] *= -1
    made = {
        commit(salt, rows),
        commit(bytes([1]) * 32, rows),
        commit(salt, federation.sites(["oslo"])),
        commit(salt, other),
    }
    assert len(made) == 4
    parts = [bytes(32), "berlin", commit(salt, rows), bytes(32)]
    changed = [bytes([1]) * 32, "oslo", commit(salt, other), bytes([1]) * 32]
    bound = {bind(*parts)} | {bind(*parts[:i], part, *parts[i + 1 :]) for i, part in enumerate(changed)}
    assert len(bound) == 5
    with pytest.raises(InputError, match="a salt of 32 secret bytes, got bytes=3"):
        commit(b"abc", rows)


def test_a_run_goes_on_under_the_software_that_it_began_with(federation, monkeypatch):
    """Elsewhere nothing is said, and what was learnt until then, which is paid for, can be read."""
    world = LyingWorld()
    play(meanwhile(federation, world, dies(federation, world, "in outbox", 3)))
    before, sent = seat_module.software(), len(world.sent)
    assert f"numpy {np.__version__}" in before
    monkeypatch.setattr(seat_module, "software", lambda: before.replace(np.__version__, "1.0"))
    told = r"Nothing was spent\. .* it cannot send anything new.* go on there, or leave the run"
    with pytest.raises(InputError, match=told):
        play(federation.site("berlin", world))
    assert len(world.sent) == sent
    with ExitStack() as stack:
        seat = federation.seat("berlin", stack)
        assert so_far(seat).rounds == 2
        with pytest.raises(InputError, match=told):
            seat.journal.put(4, b"words", b"state")


def test_the_model_of_a_run_that_is_over_is_read_under_any_software(federation, monkeypatch):
    ends = play(federation.finish(LyingWorld()))
    monkeypatch.setattr(seat_module, "software", lambda: "another")
    with ExitStack() as stack:
        seat = federation.seat("berlin", stack)
        seat.check_books()
        np.testing.assert_array_equal(result_of(seat).model, ends["berlin"].model)


def test_the_noise_key_is_deleted_at_the_end_and_the_result_stays(federation):
    world = LyingWorld()
    keys, seeds = {}, {}

    async def scene():
        for name in NAMES:
            with federation.journal(name) as journal:
                keys[name], seeds[name] = journal.noise_key, journal.seed.raw
                assert any(seeds[name] in file.read_bytes() for file in federation.folder.glob(f"{name}.journal*"))
        return await federation.finish(world)

    ends = play(scene())
    assert len(set(keys.values())) == 3
    for name in NAMES:
        for file in federation.folder.glob(f"{name}.journal*"):
            assert keys[name] not in file.read_bytes()
            assert seeds[name] not in file.read_bytes()
        with ExitStack() as stack:
            seat = federation.seat(name, stack)
            np.testing.assert_array_equal(result_of(seat).model, ends[name].model)
            with pytest.raises(PrivacyError, match="its seed and keys were deleted"):
                _ = seat.journal.noise_key


def test_a_changed_noise_key_is_noticed(federation):
    world = LyingWorld()

    async def scene():
        await dies(federation, world, "checkpointed", 3)
        connection = sqlite3.connect(federation.folder / "berlin.journal")
        connection.execute("UPDATE secret SET seed = zeroblob(32)")
        connection.commit()
        connection.close()
        await federation.site("berlin", world)

    with pytest.raises((UsedTwiceError, Exception), match=r"other rows or another noise key|another signed message"):
        play(meanwhile(federation, world, scene()))
    assert {len(messages) for messages in world.said("berlin").values()} == {1}


# -- a neighbour that pushes a site to the end of its grid ------------------------------------------------------------


def test_a_site_at_the_end_of_its_grid_is_neither_silent_nor_drawn_anew():
    """A heavy regulariser and a neighbour at the very radius: lam w leaves the grid. Whatever dies, each round has
    one message, which is booked once.
    """
    algorithm = IPADMM(**(COMMON | {"rounds": 5, "lam": 1e9}), local_steps=2)
    with Federation(sv.graphs.complete(2), (12, 9), algorithm, lost_neighbour=STOP, radius=1e12) as federation:
        a, world, saturated = federation.agreement, LyingWorld(), []
        vector = np.full(5, 1e12 / np.sqrt(5) * (1 - 1e-9))

        async def scene():
            transport = await world.site("oslo")
            async with await Answering(federation, "oslo", transport).answering():
                for k in range(1, 6):
                    await transport.put_once(
                        Slot(k, "oslo"), seal_words(a, k, "oslo", vector, federation.keys["oslo"]), 1
                    )
                for point, at in (("computed", 2), ("computed", 2), ("reserved", 3), ("computed", 4), ("bound", 4)):
                    await dies(federation, world, point, at)
                return await federation.site("berlin", world)

        def clip(value, low, high):
            clipped = np.clip(value, low, high)
            saturated.append(not np.array_equal(clipped, value))
            return clipped

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(secure, "np", SimpleNamespace(**(vars(np) | {"clip": clip})))
            end = play(scene())
        assert any(saturated)
        assert end.rounds == 5
        assert {k: len(messages) for k, messages in world.said("berlin").items()} == dict.fromkeys(range(1, 6), 1)
        assert reserved(federation, "berlin") == [1, 2, 3, 4, 5]


def test_noise_is_another_after_another_history(federation):
    """The same numbers in the same round are hidden by other noise where other words were heard before."""
    with ExitStack() as stack:
        seat = federation.seat("paris", stack)
        zeros = np.zeros((1, seat.oracle.d, 1))
        drawn = [
            seat.part.noise_after(chain).added(zeros, 1.0, np.ones((1, 1, 1)), 1, 0)
            for chain in (b"a" * 32, b"b" * 32, b"a" * 32)
        ]
    assert not np.array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])
