"""One site's run: in the right order, resumed where it stopped, refused where it must be."""

import asyncio
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import COMMON, seal_words
from helpers.memory import Trouble
from helpers.network_worlds import MemoryWorld, play
from helpers.site_runs import QUICK, Died, Federation
from sottovoce.algorithms import IPADMM
from sottovoce.errors import BudgetError, InputError, PrivacyError
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.federation.site.events import Published, Refused, ServerSilent
from sottovoce.federation.site.mail import MOST_EACH, Pace
from sottovoce.federation.site.runner import POINTS, result_of, run_site
from sottovoce.federation.site.seat import booked_as, digest
from sottovoce.federation.site.stops import DamagedError, LostNeighbourError, UsedTwiceError
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.transport.transport import RefusedError, UnreachableError
from sottovoce.federation.transport.wire import Kind, Slot
from sottovoce.noise.secure import SecureNoise
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.privacy import epsilon
from sottovoce.privacy.books.ledger import Ledger

RING = sv.graphs.ring(3)
SIZES = (12, 9, 15)
NAMES = ("berlin", "oslo", "paris")
ALGORITHM = IPADMM(**COMMON, local_steps=2)
STRANGER = SigningKey.generate()
STOP = LostNeighbour(policy="stop", wait_seconds=0.4)


class Seen(Watcher):
    def __init__(self):
        self.told = []

    def tell(self, event):
        self.told.append(event)

    def of(self, kind):
        return [event for event in self.told if isinstance(event, kind)]


@pytest.fixture
def federation():
    with Federation(RING, SIZES, ALGORITHM) as federation:
        yield federation


def killed(federation, world, noise, point, k):
    """berlin dies at that point, comes back, and all reach the end; what berlin had said before and after."""

    def probe(name, at):
        if (name, at) == (point, k):
            raise Died

    async def scene():
        others = asyncio.gather(*(federation.site(name, world, noise) for name in NAMES[1:]))
        with pytest.raises(Died):
            await federation.site("berlin", world, noise, probe=probe)
        before = dict(world.post._held)
        berlin = await federation.site("berlin", world, noise, watcher=watcher)
        return before, {"berlin": berlin, **dict(zip(NAMES[1:], await others, strict=True))}

    watcher = Seen()
    return *play(scene()), watcher


# -- the order of things ----------------------------------------------------------------------------------------------


def test_points_come_in_order_and_each_finds_on_the_disk_what_it_should(federation):
    reached, name = [], "berlin"

    async def scene():
        world = MemoryWorld()
        with ExitStack() as stack:
            seat = federation.seat(name, stack)
            journal, ledger = seat.journal, seat.ledger

            def probe(point, k):
                reached.append((point, k))
                paid = {r.round: r.message for r in ledger.reservations()}
                stage = POINTS.index(point)
                assert (k in paid) == (stage >= POINTS.index("reserved"))
                assert (journal.said(k) is not None) == (stage >= POINTS.index("in outbox"))
                assert (paid.get(k) is not None) == (stage >= POINTS.index("bound"))
                if paid.get(k) is not None:
                    assert paid[k] == digest(journal.said(k).message)
                held = world.post._held.get(Slot(k, name))
                assert (held is not None) == (stage >= POINTS.index("published"))
                assert held in (None, journal.said(k) and journal.said(k).message)
                assert journal.round == (k if point == "checkpointed" else k - 1)

            others = asyncio.gather(*(federation.site(other, world) for other in NAMES[1:]))
            await run_site(seat, await world.site(name), probe=probe, pace=QUICK)
            await others

    play(scene())
    assert reached == [(point, k) for k in (1, 2, 3) for point in POINTS if point != "dropped"]


@pytest.mark.parametrize("point", [point for point in POINTS if point != "dropped"])
def test_killed_at_any_point_a_site_comes_back_and_the_numbers_are_the_same(federation, point):
    noise = federation.normals()
    _, ends, _ = killed(federation, MemoryWorld(), noise, point, 2)
    whole = sv.simulate(ALGORITHM, federation.sites(), RING, seed=0, noise=noise, device="plain")
    for i, name in enumerate(NAMES):
        np.testing.assert_allclose(ends[name].own, whole.last[0, i], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("point", ["computed", "in outbox", "bound", "published", "collected", "absorbed"])
def test_what_is_in_the_outbox_is_sent_again_and_nothing_is_drawn_twice(federation, point, monkeypatch):
    """With real noise, which never comes twice."""
    drawn = []
    release = IPADMM.release
    monkeypatch.setattr(IPADMM, "release", lambda *given: drawn.append(given[1:2]) or release(*given))
    world = MemoryWorld()
    before, _, watcher = killed(federation, world, None, point, 2)
    slot = Slot(2, "berlin")
    # Three sites, three rounds; one more only where the first was lost before it was written down.
    assert len(drawn) == 9 + (point == "computed")
    sent = POINTS.index(point) >= POINTS.index("published")
    assert (slot in before) == sent
    assert watcher.of(Published)[0] == Published(2, sent)
    with federation.ledger("berlin") as ledger, federation.journal("berlin") as journal:
        bound = {r.round: r.message for r in ledger.reservations()}
        assert bound[2] == digest(world.post._held[slot]) == digest(journal.said(2).message)
        assert sorted(bound) == [1, 2, 3]


def test_a_finished_run_says_the_same_again_without_any_server(federation):
    ends = play(federation.finish(MemoryWorld()))

    class Unusable:
        def __getattr__(self, name):
            raise AssertionError(name)

    with ExitStack() as stack:
        seat = federation.seat("oslo", stack)
        for again in (result_of(seat), asyncio.run(run_site(seat, Unusable()))):
            np.testing.assert_array_equal(again.model, ends["oslo"].model)
            assert again.rounds == 3


# -- the budget -------------------------------------------------------------------------------------------------------


def test_the_ledger_books_every_round_with_what_the_noise_really_costs(federation):
    play(federation.finish(MemoryWorld()))
    with ExitStack() as stack:
        seat = federation.seat("paris", stack)
        booked = seat.ledger.reservations()
        assert [(r.run, r.round) for r in booked] == [(booked_as(federation.agreement, "paris"), k) for k in (1, 2, 3)]
        event = ALGORITHM.cost(1, seat.oracle)
        assert all(r.cost == (event, SecureNoise(bytes(32), 5, 15).divergence(2), None) for r in booked)
        assert seat.ledger.total() == pytest.approx(epsilon(ALGORITHM.statement(seat.oracle).event, 1e-3), rel=1e-6)


def test_a_run_that_does_not_fit_does_not_begin(federation):
    world, watcher = MemoryWorld(), Seen()

    async def scene():
        with ExitStack() as stack:
            small = stack.enter_context(federation.ledger("berlin", cap=0.5))
            seat = federation.seat("oslo", stack, ledger=small)
            await run_site(seat, await world.site("oslo"), watcher=watcher, pace=QUICK)

    with pytest.raises(BudgetError, match="Nothing was reserved"):
        play(scene())
    assert {slot.kind for slot in world.post._held} == {Kind.NOTICE}  # others are asked, and that is all
    assert [(event.name, event.kind) for event in watcher.told] == [("stopped", "BudgetError")]
    with federation.ledger("berlin") as ledger, federation.journal("oslo") as journal:
        assert ledger.reservations() == ()
        assert (journal.round, journal.said(1)) == (0, None)


# -- what a seat refuses ----------------------------------------------------------------------------------------------


def test_only_secure_noise_outside_tests(federation):
    seeded = SeededNoise(1, Shape(1, 5, 1))
    with ExitStack() as stack:
        seat = federation.seat("berlin", stack)
        with pytest.raises(PrivacyError, match="secure noise at a real site, got noise=SeededNoise"):
            replace(seat, noise=seeded)
        assert replace(seat, noise=seeded, for_tests=True).cost(1).divergence == 0.0


def test_the_rows_and_the_key_are_the_agreed_ones(federation):
    with ExitStack() as stack:
        seat = federation.seat("berlin", stack)
        assert isinstance(seat.part.source, SecureNoise)
        assert (seat.part.source.d, seat.part.source.terms, seat.part.source.grid_bits) == (5, 12, 30)
        with pytest.raises(InputError, match="the key of site berlin with fingerprint"):
            replace(seat, key=SigningKey.generate())
        with pytest.raises(InputError, match="rows=12 at site berlin, as agreed, got rows=9"):
            replace(seat, rows=federation.sites(["oslo"]))
        with pytest.raises(InputError, match="a site of this federation"):
            replace(seat, site="rome")


def test_large_batches_are_counted_in_the_rounding_errors():
    with Federation(RING, SIZES, replace(ALGORITHM, batch_size=14)) as federation, ExitStack() as stack:
        assert federation.seat("oslo", stack).part.source.terms == 14


# -- two with one identity --------------------------------------------------------------------------------------------


def test_two_processes_with_one_identity(federation):
    """The second has a copy of the key, and a state folder of its own."""

    async def scene():
        world = MemoryWorld()
        with ExitStack() as stack:
            first = federation.seat("berlin", stack)
            ledger = Ledger.create(federation.folder / "copy", "rows", 9.0, 1e-3)
            journal = federation.journal("berlin", "copy.journal")
            second = replace(first, ledger=stack.enter_context(ledger), journal=stack.enter_context(journal))
            runs = [run_site(seat, await world.site("berlin"), pace=QUICK) for seat in (first, second)]
            others = [federation.site(name, world) for name in NAMES[1:]]
            return await asyncio.gather(*runs, *others, return_exceptions=True)

    one, two, *others = play(scene())
    assert sum(isinstance(end, UsedTwiceError) for end in (one, two)) == 1
    assert all(end.rounds == 3 for end in others)


def test_a_site_whose_state_was_lost_draws_nothing(federation):
    world = MemoryWorld()
    play(federation.finish(world))
    for end in ("ledger", "ledger.head", "journal"):
        (federation.folder / f"berlin.{end}").unlink()
    with pytest.raises(UsedTwiceError, match="got another signed message of round=1"):
        play(federation.site("berlin", world))
    with federation.ledger("berlin") as ledger:
        assert ledger.reservations() == ()


def test_a_mailbox_that_somebody_else_has_filled(federation):
    world = MemoryWorld()
    world.post._held[Slot(1, "berlin")] = b"nonsense"
    world.post._readable_at[Slot(1, "berlin")] = 0.0
    with pytest.raises(RefusedError, match=r"to hold our own message, got another: Refused a message \(truncated\)"):
        play(federation.site("berlin", world))


# -- ledger and journal -----------------------------------------------------------------------------------------------


def halfway(federation, world, point="checkpointed"):
    """All sites have stopped in round 2, wherever they were; berlin at that point."""

    def probe(name, k):
        if (name, k) == (point, 2):
            raise Died

    return play(federation.all(world, probe=probe))


def test_a_lost_journal_stops_the_site(federation):
    world = MemoryWorld()
    halfway(federation, world)
    (federation.folder / "berlin.journal").unlink()
    with pytest.raises(DamagedError, match=r"message of round=1 in the journal, since the ledger says .* got none"):
        play(federation.site("berlin", world))


def test_an_old_journal_stops_the_site(federation):
    world = MemoryWorld()
    halfway(federation, world, "bound")
    old = federation.folder / "berlin.journal"
    with federation.journal("berlin") as journal:
        assert journal.said(2) is not None
        journal._connection.execute("DELETE FROM outbox WHERE round = 2")
    with pytest.raises(DamagedError, match="Drawing the round afresh would release it twice"):
        play(federation.site("berlin", world))
    assert old.exists()


def test_another_message_in_the_journal_stops_the_site(federation):
    world = MemoryWorld()
    halfway(federation, world, "bound")
    with federation.journal("berlin") as journal:
        state = journal.said(2).state
        journal._connection.execute("DELETE FROM outbox WHERE round = 2")
        journal.put(2, b"another", state)
    with pytest.raises(DamagedError, match=r"message of round=2 in the journal, .* got another"):
        play(federation.site("berlin", world))


def test_a_lost_ledger_stops_the_site(federation):
    world = MemoryWorld()
    halfway(federation, world)
    for end in ("ledger", "ledger.head"):
        (federation.folder / f"berlin.{end}").unlink()
    with pytest.raises(DamagedError, match=r"got none for round=1 of run .*The ledger is older than the journal"):
        play(federation.site("berlin", world))


def test_a_ledger_that_cannot_be_written_stops_the_site(federation):
    world = MemoryWorld()

    async def scene():
        others = asyncio.gather(*(federation.site(name, world) for name in NAMES[1:]))
        with ExitStack() as stack:
            seat = federation.seat("berlin", stack)
            seat.ledger.close()
            with pytest.raises(DamagedError, match="which was closed"):
                await run_site(seat, await world.site("berlin"), pace=QUICK)
        others.cancel()

    play(scene())
    assert Slot(1, "berlin") not in world.post._held


# -- bad messages -----------------------------------------------------------------------------------------------------


def signed(federation, k=2, site="oslo", key=None, vector=(0.0,) * 5):
    return seal_words(federation.agreement, k, site, vector, key or federation.keys["oslo"])


BAD = {
    "truncated": lambda federation: signed(federation)[:-1],
    "oversized": lambda federation: signed(federation) + b"x",
    "forged": lambda federation: signed(federation, key=STRANGER),
    "wrong round": lambda federation: signed(federation, k=1),
    "wrong sender": lambda federation: signed(federation, site="rome"),
    "not finite": lambda federation: signed(federation, vector=(np.nan,) * 5),
    "too large": lambda federation: signed(federation, vector=(0.0, 0.0, 1e12, 0.0, 0.0)),
    "other rows": signed,
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_message_is_refused_told_and_counts_as_silence(reason):
    with Federation(RING, SIZES, ALGORITHM, lost_neighbour=STOP) as federation:
        altered = {Slot(2, "oslo"): lambda _: BAD[reason](federation)}
        watcher, world = Seen(), MemoryWorld(Trouble(altered=altered))
        ends = play(federation.all(world, watcher=watcher))
        for name in ("berlin", "paris"):
            assert isinstance(ends[name], LostNeighbourError)
        refused = [(event.round, event.sender, event.reason) for event in watcher.of(Refused)]
        assert refused == [(2, "oslo", reason)] * 2  # once by each of two sites, however often it was asked for
        assert Slot(3, "berlin") not in world.post._held


def test_a_flood_of_refusals_is_told_a_few_times_only():
    with Federation(RING, SIZES, ALGORITHM, lost_neighbour=STOP) as federation:
        watcher = Seen()
        altered = {Slot(1, "oslo"): lambda data: os.urandom(len(data))}
        play(federation.all(MemoryWorld(Trouble(altered=altered)), watcher=watcher))
        assert len(watcher.of(Refused)) == 2 * MOST_EACH


def test_a_bad_answer_followed_by_a_good_one_does_no_harm():
    with Federation(RING, SIZES, ALGORITHM, lost_neighbour=STOP) as federation:
        asked = []

        def first_bad(data):
            asked.append(data)
            return data if len(asked) > 2 else bytes(len(data))

        watcher = Seen()
        world = MemoryWorld(Trouble(altered={Slot(2, "oslo"): first_bad}))
        ends = play(federation.finish(world, watcher=watcher))
        assert [end.rounds for end in ends.values()] == [3, 3, 3]
        assert {(event.sender, event.reason) for event in watcher.of(Refused)} == {("oslo", "malformed")}


# -- the server -------------------------------------------------------------------------------------------------------


def test_a_server_that_comes_back_is_waited_for(federation):
    world, watcher = MemoryWorld(), Seen()
    pace = Pace(slice=0.05, server=20.0)

    async def scene():
        async def outage():
            while Slot(2, "oslo") not in world.post._held:
                await asyncio.sleep(0)
            world.post.stop()
            await asyncio.sleep(0.5)
            world.post.start()

        await asyncio.gather(outage(), federation.finish(world, pace=pace, watcher=watcher))

    play(scene())
    assert watcher.of(ServerSilent)


def test_a_server_that_stays_away_stops_the_site_which_can_be_resumed(federation):
    world = MemoryWorld()
    world.post.stop()
    ends = play(federation.all(world, pace=Pace(slice=0.05, server=0.2)))
    assert all(isinstance(end, UnreachableError) for end in ends.values())

    async def scene():
        def probe(point, k):
            if (point, k) == ("published", 2):
                world.post.stop()

        world.post.start()
        return await federation.all(world, pace=Pace(slice=0.05, server=0.2), probe=probe)

    ends = play(scene())
    assert all(isinstance(end, UnreachableError) for end in ends.values())
    world.post.start()
    ends = play(federation.finish(world))
    assert all(end.rounds == 3 for end in ends.values())


def test_seconds_are_positive():
    with pytest.raises(InputError, match="seconds > 0 for slice, got slice=0"):
        Pace(slice=0)


# -- lightness --------------------------------------------------------------------------------------------------------

LIGHT = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from helpers.network_worlds import MemoryWorld
from helpers.site_runs import Federation
import sottovoce as sv
import sottovoce.cli.app, sottovoce.cli.site.run, sottovoce.cli.site.files, sottovoce.cli.site.view
import sottovoce.federation.transport.jetstream
from sottovoce.files.models.from_site import model_of
from sottovoce import models
algorithm = sv.IPADMM(rounds=1, local_steps=1, diameter=5.0)
with Federation(sv.graphs.complete(2), (5, 6), algorithm) as federation:
    end = asyncio.run(federation.finish(MemoryWorld()))["berlin"]
    models.save(model_of(federation.agreement, "berlin", end.model, end.absent), federation.folder / "m")
heavy = ["sklearn", "matplotlib", "cupy", "torch", "jax", "pandas", "pyarrow"]
print([name for name in heavy if name in sys.modules])
from sottovoce.files.schema import Schema, files
print(len(files.encode(sys.argv[2], Schema.load(sys.argv[3])).labels), "pandas" in sys.modules)
"""
SCHEMA = """version = 1
[label]
column = "ill"
classes = ["no", "yes"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
missing = "indicator"
[[columns]]
name = "ward"
kind = "categorical"
categories = ["north", "south"]
"""


def test_a_site_needs_nothing_heavy(tmp_path):
    """Pandas neither where its rows are read: pyarrow would import it, where it is installed."""
    rows, schema = tmp_path / "rows.csv", tmp_path / "schema.toml"
    rows.write_text("age,ward,ill\n50,north,yes\n,south,no\n3.5,north,no\n")
    schema.write_text(SCHEMA)
    given = [sys.executable, "-c", LIGHT, str(Path(__file__).parent.parent), str(rows), str(schema)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "3 False"]
