"""Noise for the model at hand: the bound holds at every model, is nearly attained, and is what the noise follows."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sottovoce as sv
from helpers import every, problems
from helpers.federations import COMMON, agreement
from sottovoce import algorithms as al
from sottovoce.algorithms import registry
from sottovoce.algorithms.stepping import Stepping
from sottovoce.cli import main
from sottovoce.noise.sources import GivenNoise, SeededNoise, Shape
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.kernels.spread import KNOTS, Spread, knots_of
from sottovoce.oracle.plain import Batch, Oracle, Steps
from sottovoce.problem.losses import Softmax
from sottovoce.settings import plain

GRAPH = sv.graphs.complete(2)
LEVEL = 1e-6  # of every statistical test: a right law fails once in a million
BETTER = [sv.losses.Logistic(), Softmax(2), Softmax(5)]
OTHERS = [loss for loss in every.LOSSES if loss.name != "logistic"]
FOLLOWING = every.algorithms(
    {"rounds": 3, "rho": 1.0, "local_steps": 2, "diameter": 5.0, "sensitivity": "tight"},
    lambda line: issubclass(line.kind, (sv.IPADMM, Stepping)),
    forms=("fair",),
)


def bound(site, w, batch=None):
    """What noise is made for at w: (nodes, 1, runs)."""
    return site.sensitivity(batch) * site.spread(True, batch).at(w)


def steps(w, noise, sigma=0.0, batch=None):
    """One step that leaves -(noisy gradient at w)."""
    one = np.ones((len(w), 1, 1))
    return Steps(1, np.zeros_like(w), one, 0 * one[None], sigma, noise, batch=batch, tight=True)


# -- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", BETTER, ids=lambda loss: f"{loss.name}-{loss.outputs}")
@given(st.floats(0, 3000))
@settings(max_examples=100)
def test_the_table_is_above_the_spread_and_close(loss, reach):
    said = Spread(1.0, knots_of(loss)).at(np.full((1, 1, 1), reach)).item()
    assert loss.spread(np.array(reach)) * (1 - 1e-14) <= said <= loss.spread(np.array(reach)) * 1.002


def test_it_is_continuous_and_never_falls():
    """A step between cells would let rounding decide how much noise there is."""
    knots = np.arange(KNOTS) / KNOTS
    reach = np.sort(np.concatenate([knots / (1 - knots), np.nextafter(knots / (1 - knots), 0)]))
    said = Spread(1.0, knots_of(sv.losses.Logistic())).at(reach.reshape(-1, 1, 1))[:, 0, 0]
    assert np.all(np.diff(said) >= -1e-15)
    assert np.abs(np.diff(said))[::2].max() < 1e-11


@pytest.mark.parametrize("w", [1e160, 1e308, math.inf, math.nan])
@pytest.mark.parametrize("kind", [Oracle, CompiledOracle])
def test_models_beyond_all_norms_get_the_plain_noise(kind, w):
    sites = problems.sites(np.random.default_rng(0), (5, 7), d=3)
    site = sv.IPADMM(diameter=1.0, lam=0.0, sensitivity="tight").oracle(sites, GRAPH, kind)
    assert np.all(site.spread(True).at(np.full((2, 3, 1), w)) == 1)
    if w < 1e200:  # and so do the kernels: the step is linear in the noise
        models = np.full((2, 3, 1), w)
        noisy, still = (
            site.noisy_steps(models, steps(models, given_noise(np.full((1, 2, 1, 3), z)), 1.0)).last for z in (1e9, 0.0)
        )
        np.testing.assert_allclose((still - noisy) / -1e9, np.broadcast_to(site.sensitivity(), (2, 3, 1)), rtol=1e-9)


def given_noise(normals):
    """Normals (runs, nodes, steps, d) of every round."""
    runs, nodes, _, d = normals.shape
    return GivenNoise(lambda _: normals, SeededNoise(0, Shape(nodes, d, runs)))


# -- the bound --------------------------------------------------------------------------------------------------------


def pair(rng, loss, norm, m, d=3):
    """Rows of one node, and the same with the first one replaced."""
    a = rng.normal(size=(2, m, d))
    a *= norm * rng.random((2, m, 1)) ** 0.2 / np.linalg.norm(a, axis=2, keepdims=True)
    a[1, 1:] = a[0, 1:]
    if rng.random() < 0.3:
        a[1, 0] = 0.0
    labels = rng.integers(loss.outputs, size=(2, m)) if loss.outputs > 1 else rng.choice([-1.0, 1.0], size=(2, m))
    labels[1, 1:] = labels[0, 1:]
    return [sv.Sites([x], [y.astype(np.float64)], data_norm=norm) for x, y in zip(a, labels, strict=True)]


@pytest.mark.parametrize("kind", [Oracle, CompiledOracle])
@pytest.mark.parametrize("loss", BETTER, ids=lambda loss: f"{loss.name}-{loss.outputs}")
@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 0.3, 0.8]), st.floats(0.1, 10))
@settings(max_examples=40)
def test_no_step_moves_by_more_than_the_bound_at_its_model(kind, loss, seed, clip, norm):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 5))
    algorithm = sv.IPADMM(diameter=1.0, loss=loss, max_grad_norm=clip, lam=0.0, sensitivity="tight")
    ours, theirs = (algorithm.oracle(x, sv.graphs.complete(1), kind) for x in pair(rng, loss, norm, m))
    w = rng.normal(size=(1, ours.d, 4)) * 10 ** rng.uniform(-2, 2) / norm
    batch = [None, Batch(3, "replacement"), Batch(1, "poisson")][rng.integers(3)]
    noise = SeededNoise(seed % 1000, Shape(1, ours.d, 4))
    drawn = 1.0 if batch is None else noise.draws(1, 0, ours.sites.rows.offsets, batch.size, batch.scheme)[:1, :]
    moved = np.subtract(*(site.noisy_steps(w, steps(w, noise, batch=batch)).last for site in (ours, theirs)))
    lengths = np.sqrt(np.sum(moved**2, axis=1))
    assert np.all(lengths <= drawn * bound(ours, w, batch)[:, 0] * (1 + 1e-12))
    # What Poisson batches ask for besides: no record's own gradient is longer.
    alone = np.sqrt(np.sum(ours.gradient(w, 1.0 * (np.arange(m) == 0)[:, None] * np.ones(4)) ** 2, axis=1))
    assert np.all(alone <= m * bound(ours, w)[:, 0] * (1 + 1e-12))


def mirrored(reach, norm, m, labels=-1.0):
    """Rows whose first is one of two that w = reach / norm e_1 tells least apart, and whose gradients differ most."""
    theta = np.linspace(0, np.pi / 2, 4001)
    best = theta[np.argmax(np.sin(theta) / (1 + np.exp(-reach * np.cos(theta))))]
    rest = np.full((m - 1, 2), 0.1)
    rows = [np.vstack([[norm * np.cos(best), sign * norm * np.sin(best)], rest]) for sign in (1, -1)]
    return [sv.Sites([x, rest], [np.full(m, labels), np.ones(m - 1)], data_norm=norm) for x in rows]


@pytest.mark.parametrize("weights", ["equal", "squared"])
@pytest.mark.parametrize("batch", [None, Batch(3, "replacement")])
@pytest.mark.parametrize("reach", [0.0, 0.5, 4.0, 30.0])
def test_the_bound_is_nearly_attained(reach, batch, weights):
    """Within 6 %, which is what the proof gives away at most (docs/proofs/masked.md, Lemma 2)."""
    algorithm = sv.IPADMM(diameter=1.0, lam=0.0, sensitivity="tight", weights=weights)
    ours, theirs = (algorithm.oracle(x, GRAPH) for x in mirrored(reach, 2.0, 4))
    w = np.zeros((2, 2, 1))
    w[:, 0] = reach / 2
    noise = SeededNoise(7, Shape(2, 2, 1))
    k, drawn = 1, 1.0
    if batch is not None:
        counts = {k: noise.draws(k, 0, ours.sites.rows.offsets, 3, "replacement")[0, 0] for k in range(1, 60)}
        k, drawn = next((k, count) for k, count in counts.items() if count == 2)
    step = steps(w, noise, batch=batch)._replace(k=k)
    moved = np.linalg.norm(np.subtract(*(site.noisy_steps(w, step).last for site in (ours, theirs)))[0])
    most = drawn * bound(ours, w, batch)[0, 0, 0]
    assert most * 0.94 <= moved <= most
    if reach < 1:  # so the plain bound gives away nearly a half
        assert most < 0.6 * drawn * ours.sensitivity(batch)[0, 0, 0]


def test_clipping_and_unbounded_rows():
    sites = problems.sites(np.random.default_rng(0), (5, 7), d=3)
    site = sv.IPADMM(diameter=1.0, max_grad_norm=0.6).oracle(sites, GRAPH)
    zero = site.zeros(1)
    # Two records' clipped gradients are at most 1.2 apart, and at w = 0 at most 1.
    np.testing.assert_allclose(bound(site, zero)[:, 0, 0], [1 / 5, 1 / 7], rtol=5e-4)
    site = sv.IPADMM(diameter=1.0, max_grad_norm=0.4).oracle(sites, GRAPH)
    np.testing.assert_array_equal(bound(site, zero), site.sensitivity())
    free = sv.Sites([np.ones((2, 3)), np.ones((1, 3))], [np.ones(2), np.ones(1)], data_norm=math.inf)
    site = sv.IPADMM(diameter=1.0, max_grad_norm=0.4).oracle(free, GRAPH)
    assert site.spread(True).parts.size == 0


# -- the noise --------------------------------------------------------------------------------------------------------


def carried(kind, reach, batch, runs=400):
    """Noise of one step at models of that norm, in units of sigma and of the bound, which is written out here."""
    rng, sigma, sizes = np.random.default_rng(1), 1.7, (30, 90)
    sites = problems.sites(rng, sizes, d=4)
    site = sv.IPADMM(diameter=1.0, lam=0.0).oracle(sites, GRAPH, kind)
    w = rng.normal(size=(2, 4, runs))
    w *= reach / np.linalg.norm(w, axis=1, keepdims=True)
    noise = SeededNoise(3, Shape(2, 4, runs))
    noisy, still = (site.noisy_steps(w, steps(w, noise, multiplier, batch)).last for multiplier in (sigma, 0.0))
    of = np.array(sizes).reshape(-1, 1, 1) if batch is None else batch.size
    return (noisy - still) * of / sigma / sv.losses.Logistic().spread(np.array(reach))


def accepts(samples):
    tail = stats.chi2.cdf(np.sum(samples**2), df=samples.size)
    return LEVEL < tail < 1 - LEVEL and stats.kstest(samples.ravel(), "norm").pvalue > LEVEL


@pytest.mark.parametrize("kind", [Oracle, CompiledOracle])
@pytest.mark.parametrize("batch", [None, Batch(4, "poisson")])
@pytest.mark.parametrize("reach", [0.0, 1.0, 10.0])
def test_noise_follows_the_model_and_two_thirds_would_be_found_out(kind, batch, reach):
    samples = carried(kind, reach, batch)
    assert accepts(samples)
    assert not accepts(samples * 2 / 3)


@pytest.mark.parametrize("name", FOLLOWING)
def test_it_reaches_the_noise_and_not_the_price(name):
    algorithm = FOLLOWING[name]
    plain = replace(algorithm, sensitivity="plain")
    sites = problems.sites(np.random.default_rng(0), (30, 20, 25))
    graph = sv.graphs.complete(3)
    site = algorithm.oracle(sites, graph)
    assert algorithm.statement(site).event == plain.statement(site).event
    assert algorithm.statement(site).notes == plain.statement(site).notes
    assert algorithm.sigma(site) == plain.sigma(site)
    # From w = 0 the first step has half the noise, and with one step a round so has the first message.
    once = {"local_steps": 1} if hasattr(algorithm, "local_steps") else {}
    first = []
    for chosen in (replace(algorithm, **once), replace(plain, **once)):
        sent = [
            chosen.release(1, chosen.start(site, 1), site, given_noise(np.full((1, 3, 1, 5), z)))[0] for z in (1.0, 0.0)
        ]
        first.append(sent[0] - sent[1])
    np.testing.assert_allclose(first[0], first[1] / 2, rtol=5e-4)


@pytest.mark.parametrize("name", FOLLOWING)
def test_devices_agree(name):
    sites = problems.sites(np.random.default_rng(0), (30, 20, 25))
    ours, theirs, plain = (
        sv.simulate(chosen, sites, sv.graphs.complete(3), runs=3, seed=1, device=device)
        for chosen, device in (
            (FOLLOWING[name], "cpu"),
            (FOLLOWING[name], "plain"),
            (replace(FOLLOWING[name], sensitivity="plain"), "plain"),
        )
    )
    np.testing.assert_allclose(ours.last, theirs.last, rtol=0, atol=1e-10 * np.abs(theirs.last).max())
    assert np.abs(plain.last - theirs.last).max() > 1e-3 * np.abs(theirs.last).max()


# -- what it does not do ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", OTHERS, ids=lambda loss: loss.name)
def test_without_a_better_bound_it_changes_nothing_and_says_so(loss):
    sites = problems.sites(np.random.default_rng(0), (9, 8), classes=isinstance(loss.labels, sv.losses.Signs))
    made = [sv.IPADMM(rounds=2, local_steps=2, diameter=3.0, loss=loss, sensitivity=s) for s in ("plain", "tight")]
    plain, tight = (sv.simulate(algorithm, sites, GRAPH, seed=1, device="plain") for algorithm in made)
    np.testing.assert_array_equal(plain.last, tight.last)
    assert plain.privacy.notes == ()
    (note,) = tight.privacy.notes
    assert f"sensitivity='tight' changes nothing here: no bound better than 2 c1 is known for the {loss.name}" in note


@pytest.mark.parametrize("kind", [al.DPADMM, al.RyuKim])
def test_published_forms_refuse_it(kind):
    with pytest.raises(sv.UnsupportedError, match=f"sensitivity='plain' for {kind.__name__} with form='published'"):
        kind(form="published", sensitivity="tight")


def test_other_words_are_refused():
    for kind in (sv.IPADMM, al.DPDSGD):
        with pytest.raises(sv.InputError, match="sensitivity in"):
            kind(sensitivity="loose")


NOT_FOLLOWING = [name for name in registry.REGISTRY if name not in FOLLOWING]


@pytest.mark.parametrize("name", NOT_FOLLOWING)
def test_who_has_no_gradient_at_a_known_model_refuses_it(name, capsys):
    assert main(["train", "--algorithm", name, "--sensitivity", "tight"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert (
        f"Expected no sensitivity with algorithm='{name}', got 'tight': it is for noise in gradients at models" in said
    )


def test_real_sites_refuse_it_and_do_not_write_it_down():
    with pytest.raises(sv.InputError, match="sensitivity='plain' at real sites, got 'tight'"):
        agreement(algorithm=sv.IPADMM(**COMMON, sensitivity="tight"))
    assert "sensitivity" not in plain(agreement(algorithm=sv.IPADMM(**COMMON)))["algorithm"]


def test_the_command_line_takes_it(capsys):
    tiny = ["train", "--nodes", "40", "--rounds", "2", "--local-steps", "2", "--runs", "1", "--diameter", "9", "--json"]
    answers = []
    for chosen in ("plain", "tight"):
        assert main([*tiny, "--rho", "0.01", "--sensitivity", chosen]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    plain, tight = answers
    assert (plain["sensitivity"], tight["sensitivity"]) == ("plain", "tight")
    assert plain["privacy"] == tight["privacy"]
    assert plain["risk"] != tight["risk"]
