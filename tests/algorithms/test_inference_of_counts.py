"""Standard errors of Poisson coefficients: what a row moves, what the numbers are without noise, and that they know
when counts vary more than Poisson counts do.
"""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import PoissonRegressor

import sottovoce as sv
from helpers.federations import masked_agreement
from helpers.sums import played
from sottovoce.errors import InputError, PrivacyLeakWarning
from sottovoce.estimators import PrivatePoissonRegressor
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.mail import largest_message
from sottovoce.federation.transport.wire import Slot, sealed_size
from sottovoce.oracle.loss_sums import VARIATION
from sottovoce.oracle.whitening import Whitening
from sottovoce.problem.factors import Factors
from sottovoce.sums.inference import CRITICAL, infer
from sottovoce.sums.questions import WhitenedCountHessian

TRUTH, LOG_RATE = np.array([0.6, -0.4, 0.3]), 0.9


def drawn(n, seed=0, more=1.0):
    """Rows, exposures and counts; `more` is their variance over that of Poisson counts."""
    rng = np.random.default_rng(seed)
    x, e = rng.uniform(-1, 1, size=(n, 3)), rng.uniform(0.1, 1, n)
    mean = e * np.exp(x @ TRUTH + LOG_RATE)
    y = rng.poisson(mean) if more == 1 else rng.negative_binomial(mean / (more - 1), 1 / more)
    return x, e, y.astype(float)


def fitted(n=4000, more=1.0, seed=0, **options):
    x, e, y = drawn(n, seed, more)
    known = {"epsilon": math.inf, "y_max": 60, "data_norm": math.sqrt(3), "exposure_bound": 1.0, "lam": 0.0,
             "inference": True, "random_state": 0} | options  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return PrivatePoissonRegressor(**known).fit(x, y, exposure=e)


def usual(n, more, seed=0):
    """Estimates and errors of quasi-Poisson regression, by scikit-learn and the textbook."""
    x, e, y = drawn(n, seed, more)
    theirs = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=1000).fit(x, y / e, sample_weight=e)
    mean, design = e * theirs.predict(x), np.column_stack([x, np.ones(n)])
    excess = np.sum((y - mean) ** 2) / np.sum(mean) * n / (n - 4)
    errors = np.sqrt(excess * np.diag(np.linalg.inv(design.T @ (mean[:, None] * design))))
    return np.append(theirs.coef_, theirs.intercept_), errors, excess


@pytest.mark.parametrize("more", [1.0, 4.0])
def test_without_noise_they_are_the_usual_ones_of_counts_that_vary_more(more):
    told = fitted(more=more).summary()
    estimates, errors, excess = usual(4000, more)
    assert excess == pytest.approx(more, rel=0.1)
    np.testing.assert_allclose([line.estimate for line in told.lines], estimates, atol=1e-4)
    np.testing.assert_allclose([line.error for line in told.lines], errors, rtol=0.02)
    assert told.family == "poisson"
    assert told.lines[0].ratio == pytest.approx(math.exp(estimates[0]), rel=1e-3)
    assert "rate ratio" in str(told)
    assert "the dispersion, was estimated" in " ".join(str(told).split())


def test_the_unit_of_exposure_moves_the_intercept_alone():
    x, e, y = drawn(3000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        known = {"epsilon": math.inf, "y_max": 60, "data_norm": math.sqrt(3), "lam": 0.0, "inference": True}
        years, days = (
            PrivatePoissonRegressor(**known, exposure_bound=bound, random_state=0).fit(x, y, exposure=bound * e)
            for bound in (1.0, 365.0)
        )
    for one, other in zip(years.summary().lines, days.summary().lines, strict=True):
        shift = math.log(365) if one.name == "intercept" else 0.0
        assert one.estimate - other.estimate == pytest.approx(shift, abs=1e-9)
        assert one.error == pytest.approx(other.error)
    assert days.intercept_ == pytest.approx(days.summary().lines[-1].estimate, abs=1e-4)


@pytest.mark.parametrize("more", [1.0, 4.0])
def test_private_intervals_hold(more):
    """Each of a few fits, so that a factor of two in the errors would be seen; more in docs/proofs/inference.md."""
    held = []
    for seed in range(12):
        told = fitted(40_000, more, seed, epsilon=8.0, delta=1e-6, y_max=60 if more > 1 else 15, sites=3).summary()
        truth = np.append(TRUTH, LOG_RATE)
        held += [line.low <= x <= line.high for line, x in zip(told.lines, truth, strict=True) if line.identified]
    assert len(held) > 30
    assert np.mean(held) > 0.85


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=200)
def test_no_row_moves_the_hessian_and_what_goes_with_it_by_more(seed):
    rng = np.random.default_rng(seed)
    loss = sv.losses.Poisson(float(rng.choice([1.0, 7.0])))
    algorithm = sv.MaskedNewton(loss=loss, rounds=5, inference=True, epsilon=1.0)
    norm = float(10.0 ** rng.uniform(-2, 2))
    a = rng.normal(size=(2, 3))
    a *= norm * rng.choice([0.0, 0.5, 1.0], size=(2, 1)) / np.linalg.norm(a, axis=1, keepdims=True)
    w = rng.normal(size=3) * 10.0 ** rng.uniform(-2, 2) / norm
    sums, still = [], Whitening(np.eye(3)[..., None], np.full((1, 1), norm))
    for j in range(2):
        factors = Factors.of(exposures=[float(10.0 ** rng.uniform(-6, 0))])
        count = rng.choice([0.0, loss.most, 10 * loss.most, 0.3])
        held = sv.Sites([a[[j]]], [[count]], data_norm=norm, factors=[factors])
        site = algorithm.oracle(held, sv.graphs.complete(1))
        assert type(played(algorithm, site, 3).ask.question) is WhitenedCountHessian
        question = WhitenedCountHessian(w.reshape(3, 1), still)
        sums.append(question.of(site, 1))
    line = algorithm.schedule(3)[3]
    assert line.kind == "Hessian"
    assert sums[0].shape == (6 + 2, 1) == (line.numbers, 1)
    assert np.linalg.norm(sums[0] - sums[1]) <= question.sensitivity(site, 1).item()
    assert np.abs(sums).max() <= question.largest(site)


def test_that_bound_is_attained():
    algorithm, sums = sv.MaskedNewton(loss=sv.losses.Poisson(), rounds=5, inference=True, epsilon=1.0), []
    w = np.array([[-1e-9], [-1e-9]])  # where means are just below the largest count
    still = Whitening(np.eye(2)[..., None], np.ones((1, 1)))
    for row, count in (((1.0, 0.0), 0.0), ((0.0, 1.0), 1.0)):
        site = algorithm.oracle(sv.Sites([np.array([row])], [[count]]), sv.graphs.complete(1))
        question = WhitenedCountHessian(w, still)
        sums.append(question.of(site, 1))
    moved = np.linalg.norm(sums[0] - sums[1])
    assert moved == pytest.approx(math.sqrt(2 + VARIATION**2), rel=1e-6)
    assert moved <= question.sensitivity(site, 1).item()


def test_noise_is_on_the_safe_side_of_how_much_counts_vary():
    """Noise in it makes errors larger, seldom smaller: in the median of many runs by about one standard deviation."""
    x, _, y = drawn(3000)
    held = sv.Sites([np.hstack([x, np.ones((3000, 1))]) / 2], [np.minimum(y, 20) / 20])
    told = {}
    for epsilon in (math.inf, 2.0):
        algorithm = sv.MaskedNewton(loss=sv.losses.Poisson(), inference=True, epsilon=epsilon, delta=1e-6, rounds=8)
        runs = sv.simulate(algorithm, held, sv.graphs.complete(1), runs=40, seed=1)
        told[epsilon] = [evidence.dispersion for evidence in runs.evidence]
    assert np.mean(np.array(told[2.0]) > told[math.inf][0]) > 0.7
    found = infer(runs.evidence[0], np.eye(4))
    assert np.all(CRITICAL * found.errors > 0)


def test_messages_have_room_and_the_statement_says_it():
    a = masked_agreement(algorithm={"inference": True, "rounds": 6, "loss": sv.losses.Poisson()})
    sizes = [format_of(a).payload(q) for q in range(1, a.algorithm.rounds + 1)]
    assert sizes[4] == sizes[0] + 16
    # The point that a site proposes is larger still: with the whitening.
    largest = format_of(a).largest
    assert largest > max(sizes)
    assert largest_message(a) == max(sealed_size(a.run, Slot(0, name), largest) for name in a.names)
    assert "how far counts are from their means" in a.algorithm.released


def test_weights_are_refused_with_the_reason():
    x, e, y = drawn(300)
    known = {"y_max": 9, "data_norm": 2.0, "exposure_bound": 1.0, "inference": True}
    with pytest.raises(InputError, match=r"rows that count alike with inference.*squares, which are not released"):
        PrivatePoissonRegressor(1.0, **known).fit(x, y, exposure=e, sample_weight=np.ones(300))
