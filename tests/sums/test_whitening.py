"""Whitened coordinates: how much rows count in them, which noise a gradient has there, and what is refused."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

import sottovoce as sv
from helpers.sums import opened
from sottovoce.errors import PrivacyError
from sottovoce.noise import sources
from sottovoce.oracle.whitening import Whitening
from sottovoce.problem.rows import DenseRows, SparseRows
from sottovoce.sums.curvature import WIDEST_MATRIX, Curvature
from sottovoce.sums.program import Opened
from sottovoce.sums.questions import Gradient, Moments, WhitenedGradient
from sottovoce.sums.whitening import TO_INFER, TO_PREDICT, whitening_of

P, RUNS, ROWS = 4, 3, 30


def rows(rng, n=ROWS, p=P):
    found = rng.normal(size=(n, p)) * 10.0 ** -np.arange(p)
    return found / np.linalg.norm(found, axis=1).max()


def moments(M, std, n, rows=1000):
    """Opened second moments, the same in every run."""
    half = M[np.triu_indices(len(M))] * np.where(np.equal(*np.triu_indices(len(M))), 1, math.sqrt(2))
    return Opened(Moments(), np.repeat(rows * half[:, None], n, axis=1), np.full((1, 1), rows * std), rows)


def site(loss=None, clip=None, n=2, rng=None):
    rng = np.random.default_rng(3) if rng is None else rng
    loss = sv.losses.Logistic() if loss is None else loss
    a = [rows(rng) for _ in range(n)]
    return sv.MaskedNewton(loss=loss, max_grad_norm=clip).oracle(
        sv.Sites(a, [np.sign(one[:, 0]) for one in a]), sv.graphs.complete(n)
    )


def drawn(rng, diagonal=False):
    if diagonal:
        return Whitening(rng.uniform(0.5, 20, size=(P, RUNS)), rng.uniform(0.5, 2, size=(1, RUNS)))
    A = rng.normal(size=(P, P, RUNS))
    return Whitening(A + A.transpose(1, 0, 2), rng.uniform(0.5, 2, size=(1, RUNS)))


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_rows_count_as_the_formula_says(kind, diagonal):
    """Row by row and run by run, with matrices written out."""
    rng = np.random.default_rng(1)
    found, a, weights = drawn(rng, diagonal), rows(rng), rng.uniform(0.1, 1, size=(ROWS, 1))
    held = DenseRows(a, np.array([0, ROWS])) if kind == "dense" else SparseRows(sp.csr_array(a), np.array([0, ROWS]))
    shares = found.counted(held, weights)
    for run in range(RUNS):
        A = np.diag(found.A[:, run]) if diagonal else found.A[:, :, run]
        for row in range(ROWS):
            length = np.linalg.norm(A @ a[row])
            assert shares[row, run] == pytest.approx(min(weights[row, 0], (found.c[0, run] / length) ** 2), rel=1e-12)


def test_a_whitened_gradient_is_that_of_transformed_rows():
    """In coordinates t = A a, with the model u, by a loop over rows."""
    rng = np.random.default_rng(2)
    here, found, u = site(), drawn(rng), rng.normal(size=(P, RUNS))
    said = WhitenedGradient(u, found).of(here, 2 * ROWS)
    a, b = here.sites.rows.block(0, 2 * ROWS), here.sites.labels
    for run in range(RUNS):
        total = np.zeros(P)
        for row, label in zip(a @ found.A[:, :, run], b, strict=True):
            share = min(1.0, found.c[0, run] ** 2 / (row @ row))
            total += share * -label / (1 + math.exp(label * (row @ u[:, run]))) * row
        np.testing.assert_allclose(said[:, run], total, rtol=1e-10)


@pytest.mark.parametrize("reach", [0.1, 0.5, 3.0, 20.0])
def test_long_rows_do_not_move_a_sum_by_more_than_rows_of_length_c(reach):
    """Mirrored rows of all angles and lengths, beside which f = c / |t| would let long rows be nearly 2 c apart."""
    found = Whitening(50.0 * np.eye(2)[..., None], np.ones((1, 1)))
    u = np.array([[-reach], [0.0]])
    angles, lengths = np.meshgrid(np.linspace(0.01, np.pi / 2, 60), np.geomspace(1 / 50, 1.0, 40))
    apart = []
    for turn, length in zip(angles.ravel(), lengths.ravel(), strict=True):
        sums = []
        for side in (1, -1):
            row = length * np.array([[math.cos(turn), side * math.sin(turn)]])
            here = sv.MaskedNewton().oracle(sv.Sites([row], [np.ones(1)]), sv.graphs.complete(1))
            sums.append(WhitenedGradient(u, found).of(here, 1))
        apart.append(float(np.linalg.norm(sums[0] - sums[1])))
    allowed = float(WhitenedGradient(u, found).sensitivity(here, 1).item())
    assert 0.9 * allowed < max(apart) <= allowed


@pytest.mark.parametrize("p", [P, WIDEST_MATRIX + 1])
def test_no_row_counts_less_than_was_said_beforehand(p):
    """Neither with little noise, where all count once, nor with much."""
    rng = np.random.default_rng(4)
    a = rows(rng, 400, p)
    M = a.T @ a / len(a)
    asked = [(0.0, 1.0, TO_PREDICT), (5 / 7e3, 1 / 5, TO_PREDICT), (1.0, 1 / 16, TO_PREDICT)]
    for noise, least, by in [*asked, (0.0, 1.0, TO_INFER), (3 / 4e3, 1 / 3, TO_INFER), (1.0, 1 / 4, TO_INFER)]:
        if p == P:
            told = Curvature.of(moments(M, 1e-4, RUNS), p)
        else:
            told = Curvature.of(
                Opened(Moments(), 400 * np.repeat(np.diag(M)[:, None], RUNS, 1), np.ones((1, 1)), 400), p
            )
        found = whitening_of(told, 1.0, noise, by)
        shares = found.counted(DenseRows(a, np.array([0, 400])), np.ones((400, 1)))
        assert shares.min() >= least * (1 - 1e-9)


def test_without_noise_coordinates_are_those_of_the_rows():
    """Every row then has to count once, and nothing pays."""
    M = np.diag([0.9, 0.05, 0.04, 0.01])
    found = whitening_of(Curvature.of(moments(M, 0.0, RUNS), P), 1.0, 0.0, TO_PREDICT)
    np.testing.assert_array_equal(found.A, np.repeat(np.eye(P)[..., None], RUNS, axis=2))
    np.testing.assert_array_equal(found.c, np.ones((1, RUNS)))


def test_noise_gets_the_shape_of_the_rows():
    """A is the root of (M + s I)^-1, for one s: its square's inverse and M have the same eigenvectors."""
    M = np.diag([0.9, 0.05, 0.04, 0.01])
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(P, P)))[0]
    M = turn @ M @ turn.T
    found = whitening_of(Curvature.of(moments(M, 1e-5, 1), P), 1.0, 1.0, TO_PREDICT)
    A = found.A[:, :, 0]
    np.testing.assert_array_equal(A, A.T)
    rest = np.linalg.inv(A @ A) - M
    s = rest[0, 0]
    assert 0 < s < 0.9
    np.testing.assert_allclose(rest, s * np.eye(P), atol=1e-9)


@pytest.mark.parametrize("scale", [1e-100, 1e-3, 1e3, 1e100])
def test_units_of_rows_do_not_matter(scale):
    M = np.diag([0.9, 0.05, 0.04, 0.01])
    one = whitening_of(Curvature.of(moments(M, 1e-4, RUNS), P), 1.0, 1.0, TO_PREDICT)
    other = whitening_of(Curvature.of(moments(M * scale**2, 1e-4 * scale**2, RUNS), P), scale, 1.0, TO_PREDICT)
    np.testing.assert_allclose(other.A * scale, one.A, rtol=1e-9)
    np.testing.assert_allclose(other.c, one.c, rtol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_spoilt_second_moments_are_refused(bad):
    told = moments(np.eye(P), 1e-3, RUNS)
    told.value[2, 1] = bad
    with pytest.raises(PrivacyError, match="a site has spoilt their sum"):
        Curvature.of(told, P)


def test_clipped_gradients_are_not_whitened():
    found = WhitenedGradient(np.zeros((P, RUNS)), drawn(np.random.default_rng(6)))
    with pytest.raises(PrivacyError, match=r"max_grad_norm=0\.3"):
        found.sensitivity(site(clip=0.3), 2 * ROWS)
    with pytest.raises(PrivacyError, match=r"max_grad_norm=0\.3"):
        found.of(site(clip=0.3), 2 * ROWS)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [({}, WhitenedGradient), ({"max_grad_norm": 0.3}, Gradient), ({"inference": True}, WhitenedGradient)],
    ids=["learnt", "clipped", "inferred"],
)
def test_which_gradients_are_asked(settings, kind):
    here = site(clip=settings.get("max_grad_norm"))
    noise = sources.SeededNoise(1, sources.Shape(2, P, RUNS))
    sums = opened(sv.MaskedNewton(rounds=6, **settings), here, noise, RUNS)
    assert {type(told.question) for told in sums[1:4]} == {kind}
