"""Head starts at real sites: moments in the first message, and steps in the coordinates that follow from them."""

import asyncio
import math
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import sottovoce as sv
from federation.test_people_terms import PEOPLE
from federation.test_weighted_terms import CLASSES
from federation.test_weighted_terms import D as WEIGHED
from helpers.federations import agreement, members
from helpers.laws import assert_standard
from helpers.network_worlds import MemoryWorld, play
from helpers.site_runs import QUICK, Died, Federation, dies, dying, meanwhile
from helpers.sums import Silent
from sottovoce.cli.agreement import _lines
from sottovoce.errors import BudgetError, InputError, UnsupportedError
from sottovoce.federation.agreement import toml_file
from sottovoce.federation.agreement.agreement import LARGEST_RADIUS, LostNeighbour
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.own_noise import OwnNoise
from sottovoce.federation.site.runner import run_site
from sottovoce.federation.transport.wire import Kind, Slot
from sottovoce.files.models.from_site import statement_of
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.loss_sums import start_moments_sensitivity
from sottovoce.privacy import Gaussian, Sequence, epsilon
from sottovoce.privacy.accounting.gaussian import mu_for

NAMES, SIZES, D = ("berlin", "oslo", "paris"), (300, 240, 260), 5
ALL, TRIANGLE = sv.graphs.complete(3), (("berlin", "paris"), ("berlin", "rome"), ("paris", "rome"))
TERMS = {"rounds": 4, "epsilon": 3.0, "delta": 1e-5, "diameter": 10.0, "lam": 0.01, "local_steps": 2, "rho": 0.1}
AHEAD = sv.IPADMM(**TERMS, moments=0.2)
NUMBERS = D * (D + 1) // 2 + 2 * D
LOSSES = [sv.losses.Logistic(), sv.losses.Huber(0.7)]
MESSAGES = TERMS["rounds"] + 1


def unlike(seed=5):
    """Rows that are much longer in some directions than in others, so that whitening pays."""
    rng, found = np.random.default_rng(seed), []
    for m in SIZES:
        a = rng.normal(size=(m, D)) * [1.0, 0.5, 0.2, 0.1, 0.05]
        found.append(a / np.maximum(1, np.linalg.norm(a, axis=1, keepdims=True)))
    return found, [np.where(a[:, 1] + 3 * a[:, 3] > 0.1, 1.0, -1.0) for a in found]


def federation(algorithm=AHEAD, **changes):
    made = Federation(ALL, SIZES, algorithm, d=D, names=NAMES, **changes)
    made.features, made.labels = unlike()
    return made


def normals(held, seed=11):
    """Noise of all sites, round by round. A simulation draws that of the moments for all sites together, so here the
    first site has all of it.
    """
    draws = max(held.algorithm.draws_per_round, -(-NUMBERS // D))

    def noise(k):
        z = np.random.default_rng((seed, k)).normal(size=(1, len(NAMES), draws, D))
        if k > held.algorithm.rounds:
            z *= np.array([math.sqrt(len(NAMES)), 0, 0])[:, None, None]
        return z

    return noise


def simulated(held):
    def once(k):
        z = normals(held)(k)
        return z / math.sqrt(len(NAMES)) if k > held.algorithm.rounds else z

    return sv.simulate(held.algorithm, held.sites(), ALL, seed=0, noise=once, device="plain")


def assert_as_simulated(ends, whole):
    for i, name in enumerate(NAMES):
        np.testing.assert_allclose(ends[name].own, whole.last[0, i], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(ends[name].model, whole.consensus[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_sites_do_what_a_simulation_does(loss):
    with federation(replace(AHEAD, loss=loss, epsilon=8.0)) as held:
        ends, whole = play(held.finish(MemoryWorld(), normals(held))), simulated(held)
        assert_as_simulated(ends, whole)
        with pytest.raises(AssertionError):  # coordinates matter here
            assert_as_simulated(ends, sv.simulate(
                replace(held.algorithm, moments=0.0), held.sites(), ALL, seed=0, noise=normals(held), device="plain"
            ))  # fmt: skip


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("point", ["computed", "in outbox", "published", "absorbed", "checkpointed"])
def test_killed_at_any_point_a_site_comes_back_and_the_numbers_are_the_same(point, k):
    with federation() as held:
        noise, world = normals(held), MemoryWorld()

        async def scene():
            others = asyncio.gather(*(held.site(name, world, noise) for name in NAMES[1:]))
            with pytest.raises(Died):
                await held.site("berlin", world, noise, probe=dying(point, k))
            return {
                "berlin": await held.site("berlin", world, noise),
                **dict(zip(NAMES[1:], await others, strict=True)),
            }

        assert_as_simulated(play(scene()), simulated(held))


def test_with_real_noise_a_killed_site_draws_the_same_moments(monkeypatch):
    with federation() as held:
        world = MemoryWorld()

        async def scene():
            others = asyncio.gather(*(held.site(name, world) for name in NAMES[1:]))
            drawn = []

            def spied(part, *given):
                found = moments(part, *given)
                drawn.extend([found] * (part.seat.site == "berlin"))
                return found

            for point in ("computed", "computed", "in outbox"):
                with monkeypatch.context() as patched:
                    patched.setattr(OwnNoise, "_moments", spied)
                    await dies(held, world, point, 1)
            assert len(drawn) == 3
            np.testing.assert_array_equal(drawn[0], drawn[1])
            np.testing.assert_array_equal(drawn[0], drawn[2])
            return [await held.site("berlin", world), *await others]

        moments = OwnNoise._moments
        ends = play(scene())
        for end in ends:
            np.testing.assert_allclose(end.model, ends[0].model, rtol=1e-9)
            assert end.rounds == MESSAGES


# -- what is released, and what it costs -------------------------------------------------------------------------------


def test_moments_are_priced_before_they_are_said_and_all_parts_add_up():
    with federation() as held, ExitStack() as stack:
        seat = held.seat("berlin", stack)
        costs = [seat.cost(k) for k in range(1, seat.last_number + 1)]
        assert len(costs) == MESSAGES
        mu = mu_for(TERMS["epsilon"], TERMS["delta"])
        (first,) = [cost.event for cost in costs[:1]]
        assert isinstance(first, Gaussian)
        assert 1 / first.sigma**2 == pytest.approx(0.2 * mu**2, rel=1e-6)
        whole = epsilon(Sequence(tuple(cost.event for cost in costs)), TERMS["delta"])
        assert whole == pytest.approx(TERMS["epsilon"], abs=1e-6)
        assert whole <= TERMS["epsilon"]
        assert costs[0].divergence == pytest.approx(costs[1].divergence * NUMBERS / (2 * D), rel=1e-6)


def test_the_ledger_holds_the_moments_before_they_are_computed():
    with federation() as held, ExitStack() as stack:
        seat, world, seen = held.seat("berlin", stack), MemoryWorld(), []

        def probe(point, k):
            seen.append((point, [r.cost.event for r in seat.ledger.reservations()]))
            if point == "reserved":
                raise Died

        async def scene():
            with pytest.raises(Died):
                await run_site(seat, await world.site("berlin"), probe=probe, pace=QUICK)

        play(meanwhile(held, world, scene()))
        assert seen == [("began", []), ("reserved", [Gaussian(AHEAD.moments_sigma)])]
        assert Slot(1, "berlin") not in world.post._held


def test_a_budget_without_room_for_the_moments_is_refused_before_anything_is_said():
    whole = epsilon(AHEAD.event(TERMS["rounds"], agreement(algorithm=sv.IPADMM(**TERMS)).public_oracle("berlin")), 1e-3)
    with federation(cap=whole * 0.99) as held:  # of the steps alone there would be enough
        world = MemoryWorld()
        ends = play(held.all(world))
        assert all(isinstance(end, BudgetError) for end in ends.values())
        assert not any(slot.kind is Kind.MODEL for slot in world.post._held)


def releases(held, count=40):
    """First messages of a site without their exact moments, in units that should be standard, and the seat."""
    with ExitStack() as stack:
        seat = held.seat("oslo", stack)
        part, exact = seat.part, seat.oracle.start_moments()
        needed = AHEAD.moments_sigma * start_moments_sensitivity(AHEAD.loss)
        said = [part._moments(part.opening, part.noise_after(b"%d" % i)) for i in range(count)]
        return (np.stack(said) - exact) / needed, seat


def test_moments_hold_the_noise_that_they_are_priced_for():
    with federation() as held:
        z, _ = releases(held)
        assert_standard(z)
        with pytest.raises(AssertionError):
            assert_standard(z * 2 / 3)


@pytest.mark.parametrize("own", [4, 30])
def test_moments_of_people_hold_noise_for_all_their_rows_at_all_their_sites(own):
    """Also where a site has fewer rows than that. Three rows at each of two sites."""
    a = agreement(members(sizes=(own, 20, 25))[1], algorithm=AHEAD, edges=TRIANGLE, **PEOPLE)
    rows = sv.Sites([np.eye(own, 3)], [np.ones(own)], data_norm=a.data_norm, unit=a.unit)
    part = OwnNoise(SimpleNamespace(agreement=a, journal=None, oracle=a.oracle_for("berlin", rows)))
    opening, noise = part.opening, SeededNoise(1, Shape(1, 3, 1))
    added = part._moments(opening, noise) - part._moments(opening, Silent(3))
    each = AHEAD.moments_sigma * 6 * start_moments_sensitivity(AHEAD.loss)
    np.testing.assert_allclose(added, each * noise.vector(5, opening.numbers)[:, 0], rtol=1e-6)


def test_moments_are_a_message_of_their_own_size_and_may_be_long():
    with federation() as held:
        a, world = held.agreement, MemoryWorld()
        play(held.finish(world))
        sizes = [format_of(a).payload(q) for q in (1, 2)]
        assert sizes[0] - sizes[1] == 8 * (NUMBERS - D)
        first, second = (len(world.post._held[Slot(k, "oslo")]) for k in (1, 2))
        assert first - second == 8 * (NUMBERS - D)
        assert format_of(a).reach(1) == LARGEST_RADIUS
        assert format_of(a).reach(2) == a.reach == 1000.0


# -- sites that are lost -----------------------------------------------------------------------------------------------


def test_all_are_waited_for_until_the_moments_are_heard_and_later_a_site_may_be_lost():
    lost = LostNeighbour(policy="go-on", wait_seconds=0.6, go_on_after_round=1)
    with federation(lost_neighbour=lost) as held:
        world = MemoryWorld()

        async def scene():
            dead = held.site("paris", world, probe=dying("published", 3))
            left = (held.site(name, world) for name in NAMES[:2])
            return await asyncio.gather(dead, *left, return_exceptions=True)

        died, *ends = play(scene())
        assert isinstance(died, Died)
        assert all(end.absent == {"paris": 4} for end in ends)
        np.testing.assert_allclose(ends[0].model, ends[1].model, rtol=1e-9)
        np.testing.assert_allclose(sum(end.state.gamma for end in ends), 0.0, atol=1e-12)


# -- the agreement -----------------------------------------------------------------------------------------------------


def test_it_is_agreed_on_and_read_back_and_shown():
    a = agreement(algorithm=AHEAD, edges=TRIANGLE)
    assert toml_file.loads(toml_file.dumps(a)) == a
    assert a.digest() != replace(a, algorithm=replace(AHEAD, moments=0.1)).digest()
    plain = agreement(algorithm=sv.IPADMM(**TERMS), edges=TRIANGLE)
    assert "moments" not in toml_file.dumps(plain)
    assert a.grid_delta > 1.05 * plain.grid_delta
    told = statement_of(a, "berlin")
    shown = " ".join(_lines(a, told))
    assert "What leaves a site: noisy moments of the rows, once" in shown
    assert "moments = 0.2" in shown
    assert told.epsilon <= TERMS["epsilon"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"edges": TRIANGLE[:2]}, "complete graph for moments, which everyone reads, got edges=2 of 3"),
        (
            {"lost_neighbour": LostNeighbour(policy="go-on", go_on_after_round=0)},
            "go_on_after_round >= 1 with moments",
        ),
        ({"features": 2000}, "at most 511 features with moments"),
        ({"schema": CLASSES, "features": WEIGHED}, "rows that count alike with moments, got row weights"),
        ({"algorithm": replace(AHEAD, sensitivity="tight")}, "sensitivity='plain' at real sites"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes, said):
    with pytest.raises((InputError, UnsupportedError), match=said):
        agreement(**{"algorithm": AHEAD, "edges": TRIANGLE} | changes)
