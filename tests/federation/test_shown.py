"""What a site tells its watchers of a round: the same of one message at all sites, and nothing but what was opened."""

import asyncio

import numpy as np
import pytest

import sottovoce as sv
from helpers.network_worlds import LyingWorld, play
from helpers.site_runs import Federation, dying
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site.events import MASKED, OWN_NOISE, RoundDone
from sottovoce.federation.site.snapshot import unpack_arrays
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.transport.wire import Kind, digest_of

SIZES = (30, 200, 17, 80, 25)


class Notes(Watcher):
    """Everything that was told of rounds."""

    def __init__(self):
        self.taken = {}

    def tell(self, event):
        if isinstance(event, RoundDone):
            self.taken[event.round] = event.taken


def run(federation):
    """All sites to their end: what each was told, what each ends with, and the messages as they lay on the server."""
    notes, world = {name: Notes() for name in federation.names}, LyingWorld()

    async def scene():
        ends = await asyncio.gather(*(federation.site(n, world, watcher=notes[n]) for n in federation.names))
        return dict(zip(federation.names, ends, strict=True))

    return notes, play(scene()), world


def test_with_masked_sums_all_sites_tell_the_same():
    algorithm = sv.MaskedNewton(rounds=4, epsilon=1.5, delta=1e-5, colluding=1, least_sites=5)
    with Federation(sv.graphs.complete(5), SIZES, algorithm) as federation:
        notes, _, _ = run(federation)
        with federation.journal("berlin") as journal:
            point = 5 + 15 + 1  # numbers of a model, and of the whitening of its gradient
            shapes = {"point": (point,), "value": (5,), "about": (2,)}
            gradients = [unpack_arrays(data, shapes)["value"] for data in journal.sums()[1:]]
    told = [note.taken for note in notes.values()]
    assert all(other == told[0] for other in told)
    assert {taken.way for taken in told[0].values()} == {MASKED}
    assert [taken.size is None for taken in told[0].values()] == [True, False, False, False]
    assert len({taken.transcript for taken in told[0].values()}) == 4
    sizes = [float(np.linalg.norm(gradient / sum(SIZES))) for gradient in gradients]
    assert [taken.size for taken in told[0].values()][1:] == pytest.approx(sizes, rel=1e-12)
    assert set(told[0][1].heard) == set(federation.names)


def test_with_noise_of_its_own_two_sites_tell_the_same_of_a_third():
    algorithm = sv.IPADMM(epsilon=1.5, delta=1e-5, rounds=3, local_steps=2, rho=0.1, diameter=3.0)
    with Federation(sv.graphs.ring(5), SIZES, algorithm) as federation:
        notes, ends, world = run(federation)
        hears = {name: {name, *federation.agreement.neighbours(name)} for name in federation.names}
    by_sender = {}
    for name, note in notes.items():
        for k, taken in note.taken.items():
            assert taken.way == OWN_NOISE
            assert set(taken.heard) == hears[name]
            for sender, digest in taken.heard.items():
                by_sender.setdefault((k, sender), set()).add(digest)
    assert {len(digests) for digests in by_sender.values()} == {1}
    assert len(by_sender) == 15
    for name, end in ends.items():
        assert notes[name].taken[3].size == pytest.approx(float(np.linalg.norm(end.model)), rel=1e-12)
    messages = {digest_of(data).hex() for slot, data in world.sent if slot.kind is Kind.MODEL}
    assert {digest for digests in by_sender.values() for digest in digests} <= messages


def test_of_a_sum_that_was_given_up_or_holds_no_gradient_no_size_is_told():
    """wien is lost in the second of five sums, of which the fourth holds a Hessian."""
    algorithm = sv.MaskedNewton(rounds=5, epsilon=1.5, delta=1e-5, colluding=1, least_sites=4, spare=1, inference=True)
    lost = LostNeighbour(policy="go-on", wait_seconds=0.9, go_on_after_round=0)
    with Federation(sv.graphs.complete(5), SIZES, algorithm, lost_neighbour=lost) as federation:
        note, world = Notes(), LyingWorld()

        async def one(name):
            probe = dying("checkpointed", 1) if name == "wien" else None
            return await federation.site(name, world, watcher=note if name == "rome" else None, probe=probe)

        async def scene():
            return await asyncio.gather(*map(one, federation.names), return_exceptions=True)

        ends = play(scene())
    assert ends[3].rounds == 5, ends
    kinds = [line.kind for line in algorithm.schedule(5)]
    assert kinds == ["second moments", "descent", "descent", "Hessian", "last gradient"]
    assert {k: taken.size is None for k, taken in note.taken.items()} == {
        1: True, 2: True, 3: False, 4: False, 5: True, 6: False,
    }  # fmt: skip
    assert [k - taken.given_up for k, taken in note.taken.items()] == [1, 1, 2, 3, 4, 5]
