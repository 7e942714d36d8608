"""Sites are killed with SIGKILL, at every point of a round and at any time, and so is the server. All reach the end.

Every round is released once, ledgers hold what was released, and the numbers are those of an undisturbed run. Whenever
a site dies, `network_crashes.Scene.examine` looks at what it left, before its next life begins.
"""

import asyncio
import json
import random
import shutil
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import sottovoce as sv
from helpers.network_crash_site import HEADLESS, UNSAID
from helpers.network_crashes import KILLED, Blow, Plan, Scene, Supervisor, deaths_at_points
from helpers.network_worlds import MemoryWorld, play
from helpers.site_runs import FIVE, Federation, scratch
from sottovoce.algorithms import IPADMM
from sottovoce.cli.exit_codes import LEFT_BEHIND
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site.events import RunFinished
from sottovoce.federation.site.runner import POINTS
from sottovoce.federation.site.seat import booked_as, digest
from sottovoce.federation.site.watchers import Watcher
from sottovoce.privacy.books.ledger import Ledger

EIGHT = ("athens", "berlin", "cairo", "delhi", "oslo", "paris", "rome", "wien")
SEED = 11
# A round's points; "dropped" only comes when a neighbour is lost, and has a test of its own.
PLACES = [point for point in POINTS if point != "dropped"]
EVERYWHERE = [*PLACES, HEADLESS, UNSAID]


# -- eight sites, a hundred rounds ------------------------------------------------------------------------------------

# A ring with its diameters: everyone has three neighbours, and news takes two rounds to reach all.
LADDER = sv.graphs.from_edges(8, [(i, (i + 1) % 8) for i in range(8)] + [(i, i + 4) for i in range(4)])
STEPS = {"epsilon": 1.5, "delta": 1e-5, "diameter": 10.0, "lam": 0.01, "rho": 0.1, "local_steps": 2}


def full_plan(rounds):
    rng = random.Random(5)
    deaths = deaths_at_points(rng, EIGHT, rounds, 3, EVERYWHERE)
    blows = [Blow(rng.randrange(1, rounds - 4), rng.choice(EIGHT), rng.uniform(0, 0.1)) for _ in range(8)]
    # Killed a second and a third time while it takes up its work.
    blows += [
        Blow(rng.randrange(1, rounds - 4), rng.choice(EIGHT), 0.0, [rng.uniform(0, 0.2) for _ in range(2)])
        for _ in range(4)
    ]
    blows += [Blow(k, None, rng.uniform(0, 0.3)) for k in sorted(rng.sample(range(1, rounds - 4), 6))]
    # While it makes its ledger and its journal.
    return Plan(deaths, blows, {name: [rng.uniform(0, 0.1)] for name in EIGHT[:4]})


def expect_books(scene, name, rounds):
    """Every round reserved once, bound to what is on the server; the last messages still in the outbox."""
    messages = scene.messages(name, rounds)
    with ExitStack() as stack:
        ledger, journal = scene.books(name, scene.folder / name, stack)
        booked = ledger.reservations()
        assert [(r.run, r.round) for r in booked] == [
            (booked_as(scene.agreement, name), k) for k in range(1, rounds + 1)
        ]
        assert [r.message for r in booked] == [digest(message) for message in messages]
        assert journal.round == rounds
        kept = {k: journal.said(k) for k in range(1, rounds + 1) if journal.said(k) is not None}
        assert sorted(kept) == [rounds - 2, rounds - 1, rounds]
        assert all(said.message == messages[k - 1] for k, said in kept.items())


def dual_by_hand(scene, vectors, name, neighbours):
    """What IPADMM's dual is if everybody used exactly what is on the server, in every round."""
    rho = scene.agreement.algorithm.rho
    return -rho / 2 * sum((vectors[name] - vectors[other]).sum(axis=0) for other in neighbours)


def expect_same_bytes_everywhere(scene, rounds):
    vectors, total = scene.vectors(rounds), 0.0
    for name in scene.agreement.names:
        gamma = scene.end(name)["state.gamma"][0, :, 0]
        by_hand = dual_by_hand(scene, vectors, name, scene.agreement.neighbours(name))
        np.testing.assert_allclose(gamma, by_hand, rtol=1e-9, atol=1e-12)
        assert np.abs(gamma).max() > 1e-4
        total = total + gamma
    np.testing.assert_allclose(total, 0.0, atol=1e-12)


@pytest.mark.slow
def test_eight_sites_and_the_server_are_killed_again_and_again():
    rounds = 100
    algorithm = IPADMM(**STEPS, rounds=rounds)
    sizes = (12, 9, 15, 8, 20, 11, 10, 17)
    with Federation(LADDER, sizes, algorithm, names=EIGHT) as federation, scratch() as folder:
        with Scene(federation, Path(folder)) as scene, Supervisor(scene, full_plan(rounds), SEED) as supervisor:
            assert supervisor.run() == dict.fromkeys(EIGHT, 0), scene.log()
            kills = supervisor.kills
            assert kills["site"] + kills["server"] >= 40
            assert kills["server"] >= 5
            assert all(kills[point] >= 2 for point in (*EVERYWHERE, "at a time")), kills
            # On the server: each message once, and nothing else.
            assert scene.published() == {(name, k): 1 for name in EIGHT for k in range(1, rounds + 1)}
            for name in EIGHT:
                expect_books(scene, name, rounds)
            expect_same_bytes_everywhere(scene, rounds)
        whole = sv.simulate(
            algorithm, federation.sites(), LADDER, seed=0, noise=federation.normals(SEED), device="plain"
        )
        for i, name in enumerate(EIGHT):
            end = scene.end(name)
            around = [i, *LADDER.neighbours(i)]
            np.testing.assert_allclose(end["own"], whole.last[0, i], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(end["model"], whole.last[0, around].mean(axis=0), rtol=1e-12, atol=1e-12)


# -- masked sums ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("least", "rounds", "each", "blows", "server"),
    [(18, 12, 2, 4, (2, 5)), pytest.param(60, 20, 5, 10, (2, 6, 9, 13, 15), marks=pytest.mark.slow)],
    ids=["eighteen", "sixty"],
)
def test_eight_sites_of_masked_sums_and_the_server_are_killed_so_often(least, rounds, each, blows, server):
    """One release each, ledgers equal, and the model of an undisturbed run, bit by bit."""
    sizes, rng = (12, 9, 15, 8, 20, 11, 10, 17), random.Random(9)
    algorithm = sv.MaskedNewton(rounds=rounds, epsilon=1.5, delta=1e-5, colluding=2, least_sites=8)
    deaths = deaths_at_points(rng, EIGHT, rounds, each, EVERYWHERE)
    hit = [Blow(rng.randrange(1, rounds - 4), rng.choice(EIGHT), rng.uniform(0, 0.1)) for _ in range(blows)]
    hit += [Blow(k, None, rng.uniform(0, 0.3)) for k in server]
    plan = Plan(deaths, hit, {name: [rng.uniform(0, 0.1)] for name in EIGHT[: blows // 2]})
    with Federation(sv.graphs.complete(8), sizes, algorithm, names=EIGHT) as federation, scratch() as folder:
        with Scene(federation, Path(folder)) as scene, Supervisor(scene, plan, None) as supervisor:
            assert supervisor.run() == dict.fromkeys(EIGHT, 0), scene.log()
            kills = supervisor.kills
            assert kills["site"] + kills["server"] >= least, kills
            assert kills["server"] == len(server)
            assert all(kills[point] >= max(1, each - 2) for point in EVERYWHERE), kills
            assert scene.published() == {(name, k): 1 for name in EIGHT for k in range(1, rounds + 1)}
            for name in EIGHT:
                expect_books(scene, name, rounds)
        costs = set()
        for name in EIGHT:
            with Ledger.open(scene.folder / name / "rows.ledger") as ledger:
                costs.add(tuple(reservation.cost for reservation in ledger.reservations()))
        assert len(costs) == 1
        undisturbed = play(federation.finish(MemoryWorld()))["rome"].model
        assert {scene.end(name)["model"].tobytes() for name in EIGHT} == {undisturbed.tobytes()}


def test_killed_while_a_masked_sum_is_made_again_without_a_lost_site():
    """wien dies for good; two others die when they have given the sum up, and when they have spoken for the next."""
    rounds, left = 6, FIVE[:4]
    sizes, agreed = (20, 30, 17, 12, 25), LostNeighbour(policy="go-on", wait_seconds=8.0, go_on_after_round=0)
    algorithm = sv.MaskedNewton(rounds=rounds, epsilon=1.5, delta=1e-5, colluding=1, least_sites=4, spare=1)
    deaths = {"wien": [("checkpointed", 2)], "berlin": [("dropped", 3), ("in outbox", 4)], "rome": [("absorbed", 3)]}
    with (
        Federation(sv.graphs.complete(5), sizes, algorithm, lost_neighbour=agreed) as federation,
        scratch() as folder,
        Scene(federation, Path(folder)) as scene,
        Supervisor(scene, Plan(deaths, for_good=("wien",)), None) as supervisor,
    ):
        assert supervisor.run() == {**dict.fromkeys(left, 0), "wien": KILLED}, scene.log()
        assert supervisor.kills["dropped"] == 1
        assert supervisor.revive("wien") == LEFT_BEHIND
        assert len({scene.end(name)["model"].tobytes() for name in left}) == 1
        # One sum was made again, and one message behind the last says that it is held.
        assert Counter(name for name, _ in scene.published()) == {**dict.fromkeys(left, rounds + 2), "wien": 2}
        for name in left:
            expect_books(scene, name, rounds + 1)
            assert json.loads(str(scene.end(name)["absent"])) == {"wien": 3}


# -- a power cut ------------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_a_power_cut_took_away_is_made_again():
    """The journal falls back to before the checkpoint of round 2, when the ledger has round 3 already."""
    names, algorithm, graph = FIVE[:3], IPADMM(**STEPS, rounds=4), sv.graphs.ring(3)
    with Federation(graph, (12, 9, 15), algorithm) as federation, scratch() as old:
        world, noise = MemoryWorld(), federation.normals(SEED)

        def probe(point, k):
            if (point, k) == ("absorbed", 2):
                for file in federation.folder.glob("berlin.journal*"):
                    shutil.copy(file, old)
            if (point, k) == ("computed", 3):
                raise ConnectionAbortedError

        async def scene():
            others = asyncio.gather(*(federation.site(name, world, noise) for name in names[1:]))
            with pytest.raises(ConnectionAbortedError):
                await federation.site("berlin", world, noise, probe=probe)
            for file in federation.folder.glob("berlin.journal*"):
                file.unlink()
            for file in Path(old).iterdir():
                shutil.copy(file, federation.folder)
            with federation.journal("berlin") as journal, federation.ledger("berlin") as ledger:
                assert (journal.round, journal.said(2) is None) == (1, False)
                assert [r.round for r in ledger.reservations()] == [1, 2, 3]
            return [await federation.site("berlin", world, noise), *await others]

        ends = play(scene())
        whole = sv.simulate(algorithm, federation.sites(), graph, seed=0, noise=noise, device="plain")
        for i, end in enumerate(ends):
            np.testing.assert_allclose(end.own, whole.last[0, i], rtol=1e-12, atol=1e-12)


def test_when_a_run_is_over_its_end_is_on_the_disk():
    names = FIVE[:3]

    class Seen(Watcher):
        found = ()

        def tell(self, event):
            if not isinstance(event, RunFinished):
                return
            with scratch() as copy:
                for file in federation.folder.glob("oslo.journal*"):
                    shutil.copy(file, copy)
                with federation.journal("oslo", Path(copy) / "oslo.journal") as journal:
                    self.found += ((journal.round, event),)

    with Federation(sv.graphs.ring(3), (12, 9, 15), IPADMM(**STEPS, rounds=3)) as federation:
        watcher, world = Seen(), MemoryWorld()

        async def scene():
            others = (federation.site(name, world) for name in names if name != "oslo")
            await asyncio.gather(*others, federation.site("oslo", world, watcher=watcher))

        play(scene())
        assert watcher.found == ((3, RunFinished(3, {})),)


# -- with real noise, which never comes twice -------------------------------------------------------------------------


def test_with_fresh_noise_all_neighbours_use_the_one_message_of_a_round():
    rounds, names = 24, FIVE[:4]
    rng = random.Random(7)
    deaths = deaths_at_points(rng, names, rounds, 2, PLACES)
    blows = [Blow(rng.randrange(1, rounds - 4), rng.choice(names), rng.uniform(0, 0.1)) for _ in range(4)]
    blows += [Blow(k, None, 0.1) for k in (7, 15)]
    algorithm, graph = IPADMM(**STEPS, rounds=rounds), sv.graphs.ring(4)
    with (
        Federation(graph, (12, 9, 15, 10), algorithm) as federation,
        scratch() as folder,
        Scene(federation, Path(folder)) as scene,
        Supervisor(scene, Plan(deaths, blows), None) as supervisor,
    ):
        assert supervisor.run() == dict.fromkeys(names, 0), scene.log()
        assert all(supervisor.kills[point] >= 1 for point in PLACES), supervisor.kills
        assert scene.published() == {(name, k): 1 for name in names for k in range(1, rounds + 1)}
        for name in names:
            expect_books(scene, name, rounds)
        expect_same_bytes_everywhere(scene, rounds)


# -- a neighbour is dropped -------------------------------------------------------------------------------------------


def test_killed_while_it_drops_a_neighbour_a_site_has_dropped_it():
    """wien dies for good after round 4. Its neighbours berlin and rome die when they have written that down."""
    rounds, left = 8, FIVE[:4]
    # berlin - oslo - paris - rome - wien - berlin, and oslo - rome.
    graph = sv.graphs.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)])
    agreed = LostNeighbour(policy="go-on", wait_seconds=12.0, go_on_after_round=2)
    deaths = {"wien": [("published", 4)], "berlin": [("dropped", 5), ("absorbed", 5)], "rome": [("dropped", 5)]}
    plan = Plan(deaths, for_good=("wien",))
    algorithm = IPADMM(**STEPS, rounds=rounds)
    with Federation(graph, (20, 30, 17, 12, 25), algorithm, lost_neighbour=agreed) as federation, scratch() as folder:
        with Scene(federation, Path(folder)) as scene, Supervisor(scene, plan, SEED) as supervisor:
            assert supervisor.run() == {**dict.fromkeys(left, 0), "wien": KILLED}, scene.log()
            assert supervisor.kills["dropped"] == 2
            assert supervisor.revive("wien") == LEFT_BEHIND
            ends = {name: scene.end(name) for name in left}
            rounds_of = Counter(name for name, k in scene.published() if k <= rounds)
            assert rounds_of == {**dict.fromkeys(left, rounds), "wien": 4}
            for name in left:
                expect_books(scene, name, rounds)
        for name, end in ends.items():
            assert json.loads(str(end["absent"])) == ({"wien": 5} if name in ("berlin", "rome") else {})
        undisturbed = without_crashes(federation)
        for name, end in ends.items():
            np.testing.assert_allclose(end["own"], undisturbed[name].own, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(end["model"], undisturbed[name].model, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(sum(end["state.gamma"] for end in ends.values()), 0.0, atol=1e-12)


def without_crashes(federation):
    """The same in one process: only wien ends after round 4, and nobody else dies."""

    def probe(point, k):
        if (point, k) == ("published", 4):
            raise ConnectionAbortedError

    async def together():
        world, noise = MemoryWorld(), federation.normals(SEED)

        async def wien():
            with pytest.raises(ConnectionAbortedError):
                await federation.site("wien", world, noise, probe=probe)

        ends, _ = await asyncio.gather(federation.finish(world, noise, FIVE[:4]), wien())
        return ends

    return play(together())
