"""A neighbour falls silent: wait, stop, or go on without it, with duals that still add up."""

import asyncio
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import COMMON, open_words
from helpers.memory import Trouble
from helpers.network_server import NatsServer
from helpers.network_worlds import JetStreamWorld, MemoryWorld, play
from helpers.problems import pooled_minimum, sites
from helpers.site_runs import FIVE, QUICK, Died, Federation, dying
from sottovoce.algorithms import DPADMM, DPDSGD, IPADMM, RyuKim
from sottovoce.errors import UnsupportedError
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site.absent import Silence, are_connected
from sottovoce.federation.site.events import Dropped, Noticed, Refused, Waiting
from sottovoce.federation.site.letters import About, Notice
from sottovoce.federation.site.mail import Mail, Reply
from sottovoce.federation.site.stops import LeftBehindError, LostNeighbourError
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.transport.transport import Transport
from sottovoce.federation.transport.wire import Kind, Slot

SIZES = (20, 30, 17, 12, 25)
# berlin - oslo - paris - rome - wien - berlin, and oslo - rome: connected without any one site.
GRAPH = sv.graphs.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)])
WAIT = 0.6
STEPS = {"epsilon": 1.5, "delta": 1e-5, "diameter": 10.0, "lam": 0.01}
DUAL = {
    "ipadmm": IPADMM(**STEPS, rounds=8, rho=0.1, local_steps=2),
    "dpadmm": DPADMM(**STEPS, rounds=8, rho=0.1),
    "ryu-kim": RyuKim(**STEPS, rounds=8, rho=0.1, local_steps=2),
}


class Seen(Watcher):
    def __init__(self):
        self.dropped_at, self.notices, self.waits = {}, [], []

    def tell(self, event):
        match event:
            case Dropped(k, neighbour):
                self.dropped_at[neighbour] = k
            case Noticed(sender, text):
                self.notices.append((sender, text))
            case Waiting(k, silent):
                self.waits.append((k, silent))


def go_on(after=2, wait=WAIT):
    return LostNeighbour(policy="go-on", wait_seconds=wait, go_on_after_round=after)


def play_with(federation, world, noise, probes):
    """All sites, some of which die where their probe says; what each left behind, and what it saw."""

    async def scene():
        watchers = {name: Seen() for name in federation.names}
        sites = (
            federation.site(name, world, noise, probe=probes.get(name), watcher=watchers[name])
            for name in federation.names
        )
        ends = await asyncio.gather(*sites, return_exceptions=True)
        return {
            name: SimpleNamespace(end=end, seen=watchers[name])
            for name, end in zip(federation.names, ends, strict=True)
        }

    return play(scene())


def said(federation, world, name, k):
    """What a site has put into its mailbox."""
    return open_words(federation.agreement, k, name, world.post._held[Slot(k, name)]).vector


# -- going on ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", DUAL)
@pytest.mark.parametrize("point", ["published", "reserved"])
def test_duals_of_those_left_are_made_of_their_own_edges_alone_and_add_up_to_zero(algorithm, point):
    """`published`: everyone has the lost site's message of round 4. `reserved`: nobody has."""
    with Federation(GRAPH, SIZES, DUAL[algorithm], lost_neighbour=go_on()) as federation:
        world = MemoryWorld()
        played = play_with(federation, world, federation.normals(), {"wien": dying(point, 4)})
        assert isinstance(played["wien"].end, Died)
        left, first = FIVE[:4], 5 if point == "published" else 4
        for name in left:
            wanted = {"wien": first} if name in ("berlin", "rome") else {}
            assert played[name].end.absent == played[name].seen.dropped_at == wanted
        rho, gammas = federation.algorithm.rho, {name: played[name].end.state.gamma[0, :, 0] for name in left}
        for name, gamma in gammas.items():
            # By hand: all rounds, over the edges to those who are left.
            by_hand = np.zeros(5)
            for other in federation.agreement.neighbours(name):
                if other != "wien":
                    for k in range(1, 9):
                        by_hand -= rho / 2 * (said(federation, world, name, k) - said(federation, world, other, k))
            np.testing.assert_allclose(gamma, by_hand, rtol=1e-10, atol=1e-12)
        assert max(np.abs(gamma).max() for gamma in gammas.values()) > 1e-3
        np.testing.assert_allclose(sum(gammas.values()), 0.0, atol=1e-12)


def test_the_model_leaves_the_lost_site_out():
    with Federation(GRAPH, SIZES, DUAL["dpadmm"], lost_neighbour=go_on()) as federation:
        world = MemoryWorld()
        played = play_with(federation, world, federation.normals(), {"wien": dying("published", 4)})
        around = [said(federation, world, name, 8) for name in ("berlin", "oslo")]
        np.testing.assert_allclose(played["berlin"].end.model, np.mean(around, axis=0), rtol=1e-12)


def test_those_left_learn_the_optimum_of_their_own_rows():
    # Noise of zero is handed in; a large diameter makes steps long.
    algorithm = DPADMM(rounds=100, rho=0.3, lam=0.4, epsilon=30.0, delta=1e-5, diameter=1000.0)
    with Federation(GRAPH, SIZES, algorithm, lost_neighbour=go_on(), grid_bits=40, cap=100.0) as federation:
        played = play_with(federation, MemoryWorld(), lambda _: np.zeros((1, 5, 1, 5)), {"wien": dying("published", 5)})
        left = range(4)
        features, labels = [federation.features[i] for i in left], [federation.labels[i] for i in left]
        optimum, _ = pooled_minimum(features, labels, algorithm.loss, algorithm.lam)
        everyone, _ = pooled_minimum(federation.features, federation.labels, algorithm.loss, algorithm.lam)
        assert np.abs(optimum - everyone).max() > 0.02
        for name in FIVE[:4]:
            np.testing.assert_allclose(played[name].end.own, optimum, atol=2e-3)


def test_mixing_keeps_the_sum_of_those_left():
    algorithm = DPDSGD(**STEPS, rounds=8, largest_degree=3)
    with Federation(GRAPH, SIZES, algorithm, lost_neighbour=go_on()) as federation:
        world = MemoryWorld()
        played = play_with(federation, world, federation.normals(), {"wien": dying("published", 4)})
        mixed = sum(played[name].end.state.w[0, :, 0] for name in FIVE[:4])
        np.testing.assert_allclose(mixed, sum(said(federation, world, name, 8) for name in FIVE[:4]), rtol=1e-12)


def test_a_site_that_waits_is_not_taken_for_lost():
    """On a path of triangles the far end hears of the loss only through others, who are late because of it."""
    edges = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]
    with Federation(sv.graphs.from_edges(5, edges), SIZES, DUAL["dpadmm"], lost_neighbour=go_on()) as federation:
        played = play_with(federation, MemoryWorld(), federation.normals(), {"berlin": dying("published", 4)})
        for name in FIVE[1:]:
            assert set(played[name].end.absent) <= {"berlin"}
        assert ("oslo", "waits for others in round 5") in played["rome"].seen.notices


def test_two_sites_are_lost_one_after_the_other():
    algorithm = IPADMM(**STEPS, rounds=9, rho=0.1, local_steps=2)
    with Federation(sv.graphs.complete(5), SIZES, algorithm, lost_neighbour=go_on()) as federation:
        probes = {"wien": dying("published", 3), "oslo": dying("computed", 6)}
        played = play_with(federation, MemoryWorld(), federation.normals(), probes)
        left = ("berlin", "paris", "rome")
        assert all(played[name].end.absent == {"wien": 4, "oslo": 6} for name in left)
        np.testing.assert_allclose(sum(played[name].end.state.gamma for name in left), 0.0, atol=1e-12)
        models = [played[name].end.model for name in left]
        np.testing.assert_allclose(models[0], models[1], rtol=1e-12)


def test_over_a_real_server(tmp_path):
    algorithm = DPADMM(**STEPS, rounds=6, rho=0.1)
    with (
        NatsServer(tmp_path, sync="2m") as server,
        Federation(GRAPH, SIZES, algorithm, lost_neighbour=go_on(wait=10.0)) as federation,
    ):
        played = play_with(federation, JetStreamWorld(server), federation.normals(), {"wien": dying("published", 3)})
        gammas = [played[name].end.state.gamma for name in FIVE[:4]]
        np.testing.assert_allclose(sum(gammas), 0.0, atol=1e-12)
        assert played["rome"].end.absent == {"wien": 4}


# -- coming back too late ---------------------------------------------------------------------------------------------


class Hiding(Transport):
    """Does not see one mailbox."""

    def __init__(self, transport, hidden):
        self._transport, self._hidden = transport, hidden

    async def put_once(self, slot, data, timeout):
        return await self._transport.put_once(slot, data, timeout)

    async def get(self, slot, timeout):
        if slot == self._hidden:
            await asyncio.sleep(timeout)
            return None
        return await self._transport.get(slot, timeout)

    async def look(self, slot, timeout):
        return None if slot == self._hidden else await self._transport.look(slot, timeout)

    async def close(self):
        await self._transport.close()


class PartlyDeaf(MemoryWorld):
    """berlin never sees what wien said in round 4; everyone else does."""

    async def site(self, name, neighbours=()):
        transport = await super().site(name, neighbours)
        return Hiding(transport, Slot(4, "wien")) if name == "berlin" else transport


def test_a_site_that_one_neighbour_has_dropped_stops_and_then_all_drop_it():
    with Federation(GRAPH, SIZES, DUAL["ipadmm"], lost_neighbour=go_on()) as federation:
        played = play_with(federation, PartlyDeaf(), federation.normals(), {})
        assert isinstance(played["wien"].end, LeftBehindError)
        assert "a report of site='berlin' that it goes on without site='wien' since round=4" in str(played["wien"].end)
        assert played["berlin"].end.absent == {"wien": 4}
        assert played["rome"].end.absent["wien"] in (5, 6)
        np.testing.assert_allclose(sum(played[name].end.state.gamma for name in FIVE[:4]), 0.0, atol=1e-12)
        with federation.ledger("wien") as ledger:
            assert len(ledger.reservations()) <= 6


def test_a_site_that_comes_back_after_it_was_dropped_releases_nothing_more():
    with Federation(GRAPH, SIZES, DUAL["dpadmm"], lost_neighbour=go_on()) as federation:
        world, noise = MemoryWorld(), federation.normals()
        play_with(federation, world, noise, {"wien": dying("checkpointed", 3)})
        with pytest.raises(LeftBehindError, match="since round=4: we were silent for too long"):
            play(federation.site("wien", world, noise))
        assert Slot(4, "wien") not in world.post._held
        with federation.ledger("wien") as ledger:
            assert [r.round for r in ledger.reservations()] == [1, 2, 3]


def test_those_who_went_on_can_crash_and_resume():
    with Federation(GRAPH, SIZES, DUAL["ipadmm"], lost_neighbour=go_on()) as federation:
        world, noise = MemoryWorld(), federation.normals()
        probes = {"wien": dying("published", 4)}
        probes |= {"berlin": dying("dropped", 5)}  # has decided, written it down, and told nobody

        async def scene():
            first = asyncio.gather(
                *(federation.site(name, world, noise, probe=probes.get(name)) for name in FIVE[1:]),
                return_exceptions=True,
            )
            with pytest.raises(Died):
                await federation.site("berlin", world, noise, probe=probes["berlin"])
            berlin = await federation.site("berlin", world, noise)
            return berlin, await first

        berlin, (oslo, paris, rome, _) = play(scene())
        assert berlin.absent == {"wien": 5}
        np.testing.assert_allclose(
            berlin.state.gamma + oslo.state.gamma + paris.state.gamma + rome.state.gamma, 0.0, atol=1e-12
        )


# -- the other policies -----------------------------------------------------------------------------------------------


def test_stop():
    lost = LostNeighbour(policy="stop", wait_seconds=WAIT)
    with Federation(GRAPH, SIZES, DUAL["dpadmm"], lost_neighbour=lost) as federation:
        world, noise = MemoryWorld(), federation.normals()
        played = play_with(federation, world, noise, {"wien": dying("published", 4)})
        for name in FIVE[:4]:
            assert isinstance(played[name].end, LostNeighbourError)
        assert "the messages of wien in round=5 within 0.6 s" in str(played["rome"].end)
        # All come back, and go on from where they were.
        ends = play(federation.finish(world, noise))
        whole = sv.simulate(
            federation.algorithm, federation.sites(), GRAPH, seed=0, noise=federation.normals(), device="plain"
        )
        for i, name in enumerate(FIVE):
            np.testing.assert_allclose(ends[name].own, whole.last[0, i], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lost", [LostNeighbour(wait_seconds=0.1), go_on(after=7, wait=0.1)], ids=["wait", "go-on"])
def test_wait_and_everyone_is_waited_for_up_to_the_agreed_round(lost):
    with Federation(GRAPH, SIZES, DUAL["dpadmm"], lost_neighbour=lost) as federation:
        world, noise = MemoryWorld(Trouble(late={Slot(3, "wien"): 1.0})), federation.normals()
        played = play_with(federation, world, noise, {})
        assert all(played[name].end.absent == {} for name in FIVE)
        waits = [silent["wien"] for k, silent in played["berlin"].seen.waits if k == 3]
        assert max(waits) > 0.5
        assert waits == sorted(waits)


def test_whoever_is_cut_off_stops():
    path = sv.graphs.path(4)
    with Federation(path, SIZES[:4], DUAL["dpadmm"], lost_neighbour=go_on()) as federation:
        played = play_with(federation, MemoryWorld(), federation.normals(), {"oslo": dying("published", 4)})
        for name in ("berlin", "paris"):
            assert isinstance(played[name].end, LostNeighbourError)
            assert "got none of oslo in round=5" in str(played[name].end)
        assert isinstance(played["rome"].end, LostNeighbourError)
        with federation.journal("paris") as journal:
            assert journal.absent == {}  # it may come back


def test_a_server_that_is_away_does_not_count_against_a_site():
    silence = Silence()
    silence.add(1.0, Reply(None))
    assert (silence.seconds, silence.total) == (1.0, 1.0)
    silence.add(1.0, Reply(None, reached=False))
    assert (silence.seconds, silence.total) == (0.0, 1.0)
    with Federation(GRAPH, SIZES, DUAL["dpadmm"], lost_neighbour=go_on(wait=0.4)) as federation:
        world = MemoryWorld()

        async def scene():
            async def outage():
                while Slot(3, "oslo") not in world.post._held:
                    await asyncio.sleep(0.005)
                world.post.stop()
                await asyncio.sleep(1.5)
                world.post.start()

            _, ends = await asyncio.gather(outage(), federation.finish(world, federation.normals()))
            return ends

        assert all(end.absent == {} for end in play(scene()).values())


# -- pieces -----------------------------------------------------------------------------------------------------------


def test_a_site_cannot_send_away_those_who_are_not_its_neighbours():
    """paris is no neighbour of wien; a notice of it about wien is refused, and wien goes on."""
    with Federation(GRAPH, SIZES, DUAL["dpadmm"], lost_neighbour=go_on()) as federation:
        world, refused = MemoryWorld(), []

        class Hears(Watcher):
            def tell(self, event):
                if isinstance(event, Refused):
                    refused.append(event)

        async def scene():
            transport = await world.site("paris")
            mail = Mail(federation.agreement, "paris", federation.keys["paris"], transport, Watcher(), QUICK)
            number = federation.agreement.index("wien")
            slot = Slot(1, "paris", Kind.NOTICE)
            await mail.put(slot, mail.seal(slot, Notice(About.GONE, 1, number).to_bytes()))
            return await federation.finish(world, federation.normals(), watcher=Hears())

        play(scene())
        assert {event.sender for event in refused} == {"paris"}
        assert "paris may speak of its own neighbours only, not of site=4" in refused[0].explanation


def test_only_algorithms_that_know_how_go_on():
    pvp = sv.PVP(rounds=3)
    state = pvp.start(pvp.oracle(sites(np.random.default_rng(1), (3, 4)), sv.graphs.complete(2)), 1)
    with pytest.raises(UnsupportedError, match="go on without a lost neighbour, got PVP"):
        pvp.without(state, state.w)


def test_who_is_left_hangs_together_or_not():
    with Federation(sv.graphs.path(4), SIZES[:4], DUAL["dpadmm"]) as federation:
        a = federation.agreement
        assert are_connected(a, {"berlin"}, "oslo")
        assert not are_connected(a, {"oslo"}, "paris")
        assert not are_connected(a, {"oslo", "paris", "rome"}, "berlin")  # alone


def test_costs_do_not_depend_on_neighbours():
    for algorithm in (*DUAL.values(), DPDSGD(**COMMON, largest_degree=3)):
        with Federation(GRAPH, SIZES, algorithm, lost_neighbour=go_on()) as federation, ExitStack() as stack:
            seat = federation.seat("oslo", stack)
            fewer = replace(seat.oracle, degrees=np.array([1]))
            assert algorithm.cost(1, fewer) == seat.cost(1).event
            assert algorithm.sigma(fewer) == algorithm.sigma(seat.oracle)
            np.testing.assert_array_equal(fewer.sensitivity(), seat.oracle.sensitivity())
            assert (fewer.lam, fewer.fewest_rows) == (seat.oracle.lam, seat.oracle.fewest_rows)
