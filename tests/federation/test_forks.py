"""Somebody tells different sites different things: a relay that splits the sites, or a member in league with it."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import COMMON, agreement, members, open_words, seal_words
from helpers.guarded_server import Answering
from helpers.network_worlds import LyingWorld, MemoryWorld, play
from helpers.site_runs import Federation
from sottovoce.algorithms import IPADMM
from sottovoce.cli.exit_codes import code_of
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site.events import Refused
from sottovoce.federation.site.letters import NOTICE_BYTES, About, Sighting, read_notice
from sottovoce.federation.site.stops import (
    DivergedError,
    ForkedError,
    LeftBehindError,
    LostNeighbourError,
    UsedTwiceError,
)
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.site.witness import REMEMBERED, Witness, distances
from sottovoce.federation.transport.wire import Envelope, Kind, Slot, seal, unseal

SIX = ("berlin", "oslo", "paris", "rome", "wien", "zagreb")
ALGORITHM = IPADMM(**(COMMON | {"rounds": 10}), local_steps=1)
SIZES = (12, 9, 15, 10, 11, 13)
WAIT = 0.5


def go_on(after=2):
    return LostNeighbour(policy="go-on", wait_seconds=WAIT, go_on_after_round=after)


# -- a member that signs two messages ---------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", ["complete", "ring", "path"])
def test_a_member_that_tells_two_sites_different_things_is_named_soon(graph):
    """oslo signs two messages of round 4; the relay shows one to berlin and the other to all others."""
    made = {"complete": sv.graphs.complete, "ring": sv.graphs.ring, "path": sv.graphs.path}[graph](5)
    lost = LostNeighbour(policy="stop", wait_seconds=1.5)
    with Federation(made, SIZES[:5], ALGORITHM, names=SIX, lost_neighbour=lost) as federation:
        a, key = federation.agreement, federation.keys["oslo"]

        def shows(reader, slot, data):
            if (reader, slot) != ("berlin", Slot(4, "oslo")) or data is None:
                return data
            true = open_words(a, 4, "oslo", data)
            other = true._replace(vector=-true.vector).to_bytes()
            return seal(Envelope(a.run, a.digest(), slot, len(other)), other, key)

        ends = play(federation.all(LyingWorld(shows)))
    forked = {name: end for name, end in ends.items() if isinstance(end, ForkedError)}
    twice = {name: end for name, end in ends.items() if isinstance(end, UsedTwiceError)}
    assert all(isinstance(end, ForkedError | UsedTwiceError | LostNeighbourError) for end in ends.values())
    assert forked or twice
    for end in forked.values():
        assert "site='oslo'" in str(end)
        assert code_of(end) == 10
    # oslo itself is honest here but for its key: it hears from berlin that something else was said in its name.
    assert set(twice) <= {"oslo"}


# -- a relay that splits the sites ------------------------------------------------------------------------------------


def test_a_ring_that_is_split_in_two_halves_does_not_end_well_anywhere():
    """The relay shows no half what the other says, from round 4 on. Each half could go on by itself."""
    halves = {name: name in SIX[:3] for name in SIX}

    def shows(reader, slot, data):
        late = slot.kind is not Kind.MODEL or slot.number >= 4
        return None if late and split and halves[reader] != halves[slot.site] else data

    split = False
    with Federation(sv.graphs.ring(6), SIZES, ALGORITHM, names=SIX, lost_neighbour=go_on()) as federation:
        world = LyingWorld(shows)

        async def scene():
            nonlocal split

            async def cut():
                nonlocal split
                while not all(Slot(2, name) in world.post._held for name in SIX):
                    await asyncio.sleep(0.005)
                split = True

            return (await asyncio.gather(federation.all(world), cut()))[0]

        ends = play(scene())
    assert {name: code_of(end) for name, end in ends.items()} == dict.fromkeys(SIX, 4)
    assert all(isinstance(end, LostNeighbourError) for end in ends.values())


def test_whoever_is_left_behind_knows_it_from_the_next_message():
    """The relay keeps back the notice that says so. wien learns it from berlin's words, and spends no round more."""
    ring = sv.graphs.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)])
    with Federation(ring, SIZES[:5], ALGORITHM, names=SIX, lost_neighbour=go_on()) as federation:
        a = federation.agreement

        def shows(reader, slot, data):
            if reader == "wien" and slot.kind is Kind.NOTICE and data is not None:
                payload = unseal(data, Envelope(a.run, a.digest(), slot, NOTICE_BYTES), a.member(slot.site).public_key)
                return None if read_notice(payload).about is About.GONE else data
            return None if (reader, slot) == ("berlin", Slot(4, "wien")) else data

        ends = play(federation.all(LyingWorld(shows)))
        assert isinstance(ends["wien"], LeftBehindError)
        assert "without site='wien' since round=4" in str(ends["wien"])
        with federation.ledger("wien") as ledger:
            assert max(r.round for r in ledger.reservations()) <= 5
        assert all(ends[name].rounds == 10 for name in SIX[:4])


# -- a neighbour that shouts ------------------------------------------------------------------------------------------


class Refusals(Watcher):
    def __init__(self):
        self.seen = set()

    def tell(self, event):
        if isinstance(event, Refused):
            self.seen.add((event.round, event.sender, event.reason))


@pytest.mark.parametrize("size", [1e12, 1e100, 1.5e308])
def test_a_neighbour_that_shouts_is_named_and_left(size):
    """Its vector is finite and signed, and far outside of the agreed radius."""
    with Federation(sv.graphs.complete(4), SIZES[:4], ALGORITHM, names=SIX, lost_neighbour=go_on()) as federation:
        a = federation.agreement

        def shows(_reader, slot, data):
            if slot != Slot(4, "rome") or data is None:
                return data
            vector = np.full(5, size) * [1, -1, 1, -1, 1]
            return seal_words(a, 4, "rome", vector, federation.keys["rome"], open_words(a, 4, "rome", data).testimony)

        watcher = Refusals()
        ends = play(federation.all(LyingWorld(shows), watcher=watcher))
    assert watcher.seen == {(4, "rome", "too large")}
    for name in SIX[:3]:
        assert ends[name].absent == {"rome": 4}
        assert np.linalg.norm(ends[name].model) < a.reach


def test_no_vector_within_the_radius_makes_a_site_fall_silent():
    """The largest that is taken, with any signs, against rows and a loss without any pull to the middle."""
    algorithm = IPADMM(**(COMMON | {"rounds": 6, "lam": 0.0}), local_steps=3, loss=sv.losses.Softmax(3))
    with Federation(sv.graphs.complete(2), SIZES[:2], algorithm, names=SIX, radius=1e12) as federation:
        federation.labels = [np.arange(len(labels)) % 3.0 for labels in federation.labels]
        a, key = federation.agreement, federation.keys["oslo"]
        world = MemoryWorld()

        async def scene():
            transport = await world.site("oslo")
            async with await Answering(federation, "oslo", transport).answering():
                for k in range(1, 7):
                    vector = np.random.default_rng(k).choice([-1.0, 1.0], size=15) * 1e12 / np.sqrt(15) * (1 - 1e-9)
                    await transport.put_once(Slot(k, "oslo"), seal_words(a, k, "oslo", vector, key), 1.0)
                return await federation.site("berlin", world)

        assert play(scene()).rounds == 6


def test_a_site_whose_own_models_run_away_says_so():
    with Federation(sv.graphs.complete(2), SIZES[:2], ALGORITHM, names=SIX, radius=1e-6) as federation:
        lost = LostNeighbour(policy="stop", wait_seconds=1.0)
        federation.agreement = replace(federation.agreement, lost_neighbour=lost)
        ends = play(federation.all(MemoryWorld()))
    assert all(isinstance(end, DivergedError | LostNeighbourError) for end in ends.values())
    first = next(end for end in ends.values() if isinstance(end, DivergedError))
    assert "a norm at most 1e-06, the agreed radius" in str(first).replace("model of norm", "a norm")
    assert code_of(first) == 11


# -- what a witness concludes -----------------------------------------------------------------------------------------


def ring_of(n):
    names = SIX[:n]
    edges = tuple((names[i], names[(i + 1) % n]) for i in range(n))
    return agreement(members(names, SIZES[:n])[1], edges=edges)


def digest(name, k):
    return f"{name} {k}".encode().ljust(32, b".")


def gossip(a, rounds):
    """What everyone knows after so many rounds in which all say the same to all."""
    known = {name: Witness.start(a) for name in a.names}
    for k in range(1, rounds + 1):
        before = dict(known)
        for name in a.names:
            said = {other: digest(other, k) for other in (name, *a.neighbours(name))}
            told = {other: before[other].testimony for other in a.neighbours(name)}
            for other, testimony in told.items():
                known[name].check(a, name, other, testimony)
            known[name] = known[name].after(a, k, said, told, {})
            known[name].refuse_torn(a, name, k)
    return known


def test_news_travel_an_edge_a_round():
    a = ring_of(6)
    known = gossip(a, 9)
    for name, witness in known.items():
        for other, away in distances(a, name, frozenset()).items():
            sighting = witness.testimony[a.index(other)]
            assert sighting.round == 9 - max(away - 1, 0)
            assert sighting.digest == digest(other, sighting.round)
        assert len(witness.testimonies) == REMEMBERED
        assert Witness.loads(witness.dumps(), a) == witness
    assert len({witness.chain for witness in known.values()}) > 1


def test_each_part_of_what_was_heard_changes_the_chain():
    a = ring_of(4)
    witness = gossip(a, 3)["berlin"]
    said = {name: digest(name, 4) for name in ("berlin", "oslo", "rome")}
    told = {name: (Sighting(),) * 4 for name in ("oslo", "rome")}
    base = witness.after(a, 4, said, told, {}).chain
    others = [
        witness.after(a, 5, said, told, {}),
        witness.after(a, 4, said | {"oslo": digest("oslo", 5)}, told, {}),
        witness.after(a, 4, {k: v for k, v in said.items() if k != "rome"}, told, {}),
        witness.after(a, 4, said, told, {"rome": 4}),
        witness.after(a, 4, said, told | {"oslo": (*(Sighting(),) * 3, Sighting(3, bytes(32), True))}, {}),
        replace(witness, chain=bytes(32)).after(a, 4, said, told, {}),
    ]
    assert len({base, *(other.chain for other in others)}) == 1 + len(others)


def test_testimonies_that_do_not_fit_are_named():
    a = ring_of(4)
    witness = gossip(a, 4)["berlin"]
    true = gossip(a, 4)["oslo"].testimony
    witness.check(a, "berlin", "oslo", true)
    later = gossip(a, 5)["berlin"]  # has heard of paris, two edges away, what oslo says of its round 4
    for i, error in ((0, UsedTwiceError), (1, ForkedError), (2, ForkedError), (3, ForkedError)):
        false = (*true[:i], true[i]._replace(digest=bytes(32)), *true[i + 1 :])
        with pytest.raises(error, match=f"site='{'oslo' if i == 0 else a.names[i]}'"):
            later.check(a, "berlin", "oslo", false)
    with pytest.raises(LeftBehindError, match="site='oslo' that it goes on without site='berlin' since round=5"):
        witness.check(a, "berlin", "oslo", (true[0]._replace(left=True, gone=True), *true[1:]))
    # What others say of a third site's going does not send anybody away.
    witness.check(a, "berlin", "oslo", (true[0]._replace(gone=True), *true[1:]))


def test_a_torn_federation_shows_in_what_is_not_heard():
    a = ring_of(6)
    witness = gossip(a, 5)["oslo"]

    def without(*names, heard=1):
        told = zip(a.names, witness.testimony, strict=True)
        gone = (s._replace(gone=True, round=min(s.round, heard)) if name in names else s for name, s in told)
        return replace(witness, testimonies=(tuple(gone),))

    without("wien").refuse_torn(a, "oslo", 5)
    with pytest.raises(LostNeighbourError, match=r"no news of wien in round=5 while .* goes on without rome, zagreb"):
        without("rome", "zagreb").refuse_torn(a, "oslo", 5)
    without("rome", "zagreb", heard=5).refuse_torn(a, "oslo", 5)  # whoever says so, their news still come
    with pytest.raises(LostNeighbourError, match="no news of anyone"):
        without(*(name for name in a.names if name != "oslo")).refuse_torn(a, "oslo", 5)
