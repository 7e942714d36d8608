"""Few runs: lanes are rows and columns, and every bit is that of the kernel whose lanes are runs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from helpers import problems
from kernels.reference import arguments, problem, steps
from sottovoce.oracle.kernels import panels, spread
from sottovoce.oracle.kernels import steps as tiles
from sottovoce.problem.losses import NAMES, Logistic, by_name

OPTIONS = {"l1": 0.1, "l2": 0.3, "radius": 1.5, "caps": True}
# Blocks and groups that are just full, one short, and one over; a site of one row.
COUNTS = (1, 31, 32, 33, 127, 128, 129, 300)


def by_panels(rows, data, loss, *rest):
    return panels.noisy_steps(panels.panels(rows, data, rest[-1].shape[1]), data.divisor, loss, *rest)


def assert_same_bits(given_arguments):
    for x, y in zip(by_panels(*given_arguments), tiles.noisy_steps(*given_arguments), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_steps_as_in_numpy(name):
    loss = by_name(name)
    p = problem(2, loss)
    for x, y in zip(by_panels(*arguments(p, loss, **OPTIONS)), steps(p, loss, **OPTIONS), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"noise": False}, {"l1": 0.2}, {"l2": 0.2}, {"radius": 0.5}, {"caps": True}], ids=str
)
def test_every_option_does_what_it_says(options):
    p = problem(1, Logistic(), counts=COUNTS)
    got, expected = by_panels(*arguments(p, Logistic(), **options)), steps(p, Logistic(), **options)
    for x, y in zip(got, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
    assert_same_bits(arguments(p, Logistic(), **options))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dense", [True, False])
@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([1, 2, 31, 32, 33, 64, 127, 128, 129, 260]), min_size=1, max_size=4),
    st.integers(1, 40), st.integers(1, panels.MOST_RUNS), st.integers(0, 1000),
)  # fmt: skip
def test_the_bits_are_those_of_vectors_of_runs(dense, dtype, counts, d, runs, seed):
    p = problem(runs, Logistic(), tuple(counts), d, seed=seed)
    assert_same_bits(arguments(p, Logistic(), dtype, dense, **OPTIONS))


def test_rows_that_count_differently_and_shifts():
    p = problem(3, Logistic(), counts=COUNTS)
    rows, data, *rest = arguments(p, Logistic(), **OPTIONS)
    rng = np.random.default_rng(2)
    own = data._replace(weights=rng.uniform(0, 1, len(p.labels)), shifts=rng.normal(size=len(p.labels)))
    assert_same_bits((rows, own, *rest))
    plain = by_panels(rows, data, *rest)
    for name in ("weights", "shifts"):
        moved = by_panels(rows, data._replace(**{name: getattr(own, name)}), *rest)
        assert np.abs(moved[0] - plain[0]).max() > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_seeded_noise_and_noise_that_follows_the_model(dtype):
    p = problem(4, Logistic(), counts=COUNTS)
    data = arguments(p, Logistic(), dtype, **OPTIONS)
    none = np.empty((0, 0, 0, 0), dtype), np.empty((0, 0, 0), dtype)
    follows = spread.Spread(0.7, np.linspace(0.5, 1.0, spread.KNOTS + 1))
    made = []
    for law in (spread.PLAIN, follows):
        draws = tiles.KernelDraws(tiles.SEEDED, p.std, np.uint64(7), np.uint64(8), 3, 4, 2, 5, *none, law)
        assert_same_bits((*data[:4], draws, *data[5:]))
        made.append(by_panels(*data[:4], draws, *data[5:])[0])
    assert np.abs(made[0] - made[1]).max() > 1e-3


@pytest.mark.parametrize("far", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("made_by", [by_panels, tiles.noisy_steps], ids=["panels", "tiles"])
def test_one_row_moves_its_own_term_alone_at_a_model_that_is_not_finite(made_by, far):
    """A strip is held for all rows of a block as soon as one of them has a non-zero there."""
    p = problem(2, Logistic(), counts=(40,), d=3, l=1)
    p.matrix[:, 0] = 0
    p.w[:, 0], p.w[:, 1:] = far, 0.1

    def data_part(entry):
        p.matrix[5, 0] = entry
        last, _, _ = made_by(*arguments(p, Logistic(), noise=False))
        # Minus the gradient, beside what does not depend on the rows.
        return last[0, 1:] * (p.curvature[0] + p.eta[0, 0])

    moved = np.abs(data_part(0.0) - data_part(1.0))
    assert moved.max() <= np.abs(p.matrix[5, 1:]).max() / 40 * (1 + 1e-9)


def test_where_it_pays(monkeypatch):
    def pays(counts, columns):
        p = problem(1, Logistic(), counts=counts, d=40)
        p.matrix[:] = 0
        p.matrix[:, :columns] = 1
        rows, data, *_ = arguments(p, Logistic())
        return panels.pays(rows, data, 40)

    assert pays((100, 120), 3)
    assert not pays((100, 120), 2)  # one in twenty is not zero
    assert not pays((35, 35), 40)  # blocks of 64 rows for 35
    monkeypatch.setattr(panels, "_MOST_BYTES", 220 * 40 * 8 - 1)
    assert not pays((100, 120), 3)


@pytest.mark.parametrize("batch", [{}, {"batch_size": 2}])
def test_an_oracle_takes_them_for_few_runs_without_batches(monkeypatch, batch):
    calls, real = [], panels.noisy_steps
    monkeypatch.setattr(panels, "noisy_steps", lambda *args: calls.append(args[-1].shape[2]) or real(*args))
    sites = problems.sites(np.random.default_rng(1), (64, 90), d=5, sparse=True)
    algorithm = sv.IPADMM(rounds=1, local_steps=2, diameter=10.0, **batch)
    made = [sv.simulate(algorithm, sites, sv.graphs.complete(2), runs=runs, seed=3).last for runs in (1, 5, 6)]
    assert calls == ([] if batch else [1, 5])
    for few in made[:2]:
        np.testing.assert_array_equal(few, made[2][: len(few)])
