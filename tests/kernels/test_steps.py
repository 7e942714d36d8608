import numba
import numpy as np
import pytest

from kernels.reference import arguments, problem, rows_of, steps
from sottovoce.oracle.kernels.random import fill_normals
from sottovoce.oracle.kernels.score import score
from sottovoce.oracle.kernels.steps import SEEDED, KernelDraws, noisy_steps
from sottovoce.oracle.kernels.tiles import Dense
from sottovoce.problem.losses import NAMES, Logistic, by_name

OPTIONS = {"l1": 0.1, "l2": 0.3, "radius": 1.5, "caps": True}


def _close(got, expected, dtype=np.float64):
    rtol = 1e-12 if dtype is np.float64 else 2e-5
    for name, x, y in zip(("last", "mean", "total"), got, expected, strict=True):
        assert x.dtype == dtype
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol * np.abs(y).max(), err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_steps_as_in_numpy(name):
    loss = by_name(name)
    p = problem(16, loss)
    _close(noisy_steps(*arguments(p, loss, **OPTIONS)), steps(p, loss, **OPTIONS))


@pytest.mark.parametrize(
    "options", [{}, {"noise": False}, {"l1": 0.2}, {"l2": 0.2}, {"radius": 0.5}, {"caps": True}], ids=str
)
@pytest.mark.parametrize("runs", [1, 16])
def test_every_option_does_what_it_says(runs, options):
    p = problem(runs, Logistic())
    _close(noisy_steps(*arguments(p, Logistic(), **options)), steps(p, Logistic(), **options))


@pytest.mark.parametrize("runs", [1, 2, 16, 17, 64, 100])
def test_any_number_of_runs(runs):
    p = problem(runs, Logistic(), counts=(40, 3))
    _close(noisy_steps(*arguments(p, Logistic(), **OPTIONS)), steps(p, Logistic(), **OPTIONS))


@pytest.mark.parametrize("runs", [1, 16, 64])
def test_single_precision(runs):
    p = problem(runs, Logistic())
    got = noisy_steps(*arguments(p, Logistic(), np.float32, **OPTIONS))
    _close(got, steps(p, Logistic(), **OPTIONS), np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_rows(dtype):
    p = problem(16, Logistic())
    got = noisy_steps(*arguments(p, Logistic(), dtype, dense=True, **OPTIONS))
    _close(got, steps(p, Logistic(), **OPTIONS), dtype)
    sparse = noisy_steps(*arguments(p, Logistic(), dtype, **OPTIONS))
    _close(got, sparse, dtype)


@pytest.mark.parametrize("runs", [1, 16, 20, 32])
def test_row_weights_take_the_place_of_the_mean(runs):
    p = problem(runs, Logistic())
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, (3, len(p.labels), runs)) * (rng.random((3, len(p.labels), 1)) < 0.3) / 10
    got = noisy_steps(*arguments(p, Logistic(), weights=weights, **OPTIONS))
    _close(got, steps(p, Logistic(), weights=weights, **OPTIONS))


def _seeded(p, dtype, first, runs, first_step=0):
    data = arguments(p, Logistic(), dtype, **OPTIONS)
    empty = np.empty((0, 0, 0, 0), dtype), np.empty((0, 0, 0), dtype)
    draws = KernelDraws(SEEDED, p.std, np.uint64(7), np.uint64(8), 3, first_step, 2, first, *empty)
    start, pull = (np.ascontiguousarray(x[:, :, first : first + runs]) for x in data[7:])
    return noisy_steps(*data[:4], draws, *data[5:7], start, pull)


def test_seeded_noise_is_that_of_fill_normals():
    p = problem(16, Logistic())
    z = np.empty_like(p.z)
    for first_step in (0, 4):
        for r in range(len(z)):
            fill_normals(z[r], 7, 8, 3, first_step + r, 2, 0)
        expected = steps(p._replace(z=z), Logistic(), **OPTIONS)
        _close(_seeded(p, np.float64, 0, 16, first_step), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_run_comes_out_the_same_whichever_runs_are_beside_it(dtype):
    p = problem(100, Logistic(), counts=(70, 3))
    together = _seeded(p, dtype, 0, 100)
    for first, runs in ((0, 1), (99, 1), (5, 2), (3, 16), (20, 17), (30, 64)):
        alone = _seeded(p, dtype, first, runs)
        for x, y in zip(alone, together, strict=True):
            np.testing.assert_array_equal(x, y[:, :, first : first + runs])


def test_results_do_not_depend_on_the_number_of_threads():
    p = problem(16, Logistic(), counts=tuple(range(1, 40)))
    loss, threads = Logistic(), numba.get_num_threads()
    rows, labels = rows_of(p, np.float64, dense=False), p.labels
    models, blocks = np.ascontiguousarray(p.w[0]), np.array([0, 300, len(labels)])
    many = *_seeded(p, np.float64, 0, 16), *score(rows, labels, blocks, loss, models)
    numba.set_num_threads(1)
    try:
        one = *_seeded(p, np.float64, 0, 16), *score(rows, labels, blocks, loss, models)
    finally:
        numba.set_num_threads(threads)
    for x, y in zip(many, one, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(("name", "models", "dtype", "dense"), [
    ("logistic", 1, np.float64, False), ("logistic", 40, np.float64, True), ("logistic", 16, np.float32, False),
    ("hinge", 5, np.float64, False), ("huber", 5, np.float64, False),
])  # fmt: skip
def test_scores_are_those_of_numpy(name, models, dtype, dense):
    loss = by_name(name)
    p = problem(models, loss, counts=(2500,))
    w, labels = p.w[0].astype(dtype), p.labels.astype(dtype)
    w[:, 0] = 0  # predictions that tie
    blocks = np.array([0, 1, 1500, 2500])  # of which two are summed in several pieces
    by_block = score(rows_of(p, dtype, dense), labels, blocks, loss, w)
    risk, hits = (sums.sum(axis=0) for sums in by_block)
    z = p.matrix @ w.astype(np.float64)
    rtol = 1e-12 if dtype is np.float64 else 1e-6
    np.testing.assert_allclose(risk, loss.value(z, p.labels[:, None], loss.theta).sum(axis=0), rtol=rtol)
    if name != "huber":
        right = loss.labels.hits(z, p.labels[:, None])
        np.testing.assert_array_equal(hits, right.sum(axis=0))
        np.testing.assert_array_equal(by_block[1][2], right[1500:].sum(axis=0))


def test_a_blocks_scores_depend_on_its_own_rows_alone():
    p, loss = problem(20, Logistic(), counts=(4000,)), Logistic()
    rows, w = rows_of(p, np.float64, dense=True), np.ascontiguousarray(p.w[0])
    among = score(rows, p.labels, np.array([0, 1030, 3500, 4000]), loss, w)
    alone = score(Dense(rows.values[1030:3500]), p.labels[1030:3500], np.array([0, 2470]), loss, w)
    for x, y in zip(among, alone, strict=True):
        np.testing.assert_array_equal(x[1], y[0])
