"""Attacks on budgets, training and sensitivities that worked once. Each test is the least that it took."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import sottovoce as sv
from sottovoce.errors import BudgetError, InputError, PrivacyError
from sottovoce.estimators import PrivateLogisticRegression, PrivateRobustRegressor, PrivateSearch
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.plain import Oracle, Steps
from sottovoce.privacy import BudgetAccountant, Gaussian, PrivacyStatement, sigma_for
from sottovoce.settings import plain

STEPS = sv.IPADMM(rounds=2, local_steps=1, rho=0.1, diameter=5.0)
ALONE = sv.graphs.complete(1)
KINDS = [Oracle, CompiledOracle]


def gradient(oracle, w):
    """The gradient as a noisy step without noise computes it: with eta = 0 and curvature 1 the step goes to -g."""
    noise = SeededNoise(0, Shape(1, oracle.d, 1))
    steps = Steps(1, np.zeros_like(w), np.ones((1, 1, 1)), np.zeros((1, 1, 1, 1)), 0.0, noise)
    with np.errstate(all="ignore"):
        return -oracle.noisy_steps(w, steps).last[0, :, 0]


def oracle_of(kind, rows, labels, loss, data_norm, clip):
    sites = sv.Sites([rows], [labels], data_norm=data_norm, private=True)
    return sv.IPADMM(loss=loss, lam=0.0, max_grad_norm=clip).oracle(sites, ALONE, kind)


def test_two_processes_that_charge_the_same_event_are_both_counted(tmp_path):
    """Both load and both charge the same fit: the second is held against what the first has left."""
    path, fit = tmp_path / "rows.budget", Gaussian(sigma_for(0.9, 1e-5, 1))
    BudgetAccountant(1.0, 1e-5).save(path)
    mine, theirs = BudgetAccountant.load(path), BudgetAccountant.load(path)
    mine.spend(fit)
    with pytest.raises(BudgetError, match=r"without it 0\.9 in 1 charges"):
        theirs.spend(fit)
    assert BudgetAccountant.load(path).events == (fit,)


def test_a_fitted_estimator_that_went_to_another_process_is_not_fitted_again_for_free():
    """joblib.delayed(model.fit), within the `with` block of an accountant: four fits that nobody paid for."""
    rows, labels = np.eye(4), [0, 1, 0, 1]
    one = PrivateLogisticRegression(0.3, data_norm=1.0, classes=[0, 1], algorithm=STEPS)
    with BudgetAccountant(2.0, 1e-5):
        sent = pickle.dumps(one.fit(rows, labels))
    elsewhere = pickle.loads(sent)
    assert np.array_equal(elsewhere.predict(rows), one.predict(rows))
    with pytest.raises(PrivacyError, match="an accountant for a second fit"):
        elsewhere.fit(rows, labels)
    elsewhere.set_params(accountant=BudgetAccountant(1.0, 1e-5)).fit(rows, labels)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_no_row_can_make_the_noisy_score_of_a_search_infinite_or_nan(form):
    """A score may move by 1 when a row is replaced. A prediction that is inf - inf moved it to NaN, without fail."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 40))
    labels = np.clip(200 + 50 * (rows[:, 0] - rows[:, 1]), 0, 400)
    rows[0] = 1e308
    one = PrivateRobustRegressor(data_norm=1.0, y_bounds=(0, 400), algorithm=STEPS)
    search = PrivateSearch(one, {"lam": [1e-4, 1e-2]}, epsilon=1.0, runs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert np.isfinite(search.fit(form(rows), labels).best_score_)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_no_row_is_longer_than_a_bound_whose_squares_underflow(form):
    """Its computed norm was 0. It moved a gradient by 50,000 times the declared sensitivity."""
    with pytest.raises(InputError, match="rows of norm at most data_norm=1e-170, got a longer one at site 0, row 0"):
        sv.Sites([form(np.array([[1e-165], [0.0]]))], [[1.0, -1.0]], data_norm=1e-170, private=True)
    short = sv.Sites([form(np.array([[1e-165], [0.0]]))], [[1.0, -1.0]], data_norm=1e-170, clip=True)
    np.testing.assert_allclose(short.rows.norms(), [1e-170, 0.0], rtol=1e-14)
    with pytest.raises(InputError, match="data_norm >= 1e-300"):
        sv.Sites([form(np.eye(1))], [[1.0]], data_norm=1e-310)


def test_noise_that_was_handed_in_is_said_in_the_statement():
    """A seed is refused with private rows; a noise function is one by another name."""
    sites = sv.Sites([np.eye(3)], [[1.0, -1.0, 1.0]], private=True)
    algorithm = sv.IPADMM(rounds=2, local_steps=1, diameter=5.0)
    known = sv.simulate(algorithm, sites, ALONE, noise=lambda _: np.zeros((1, 1, 1, 3)))
    assert any("handed in" in note for note in known.privacy.notes)
    assert not sv.simulate(algorithm, sites, ALONE).privacy.notes


def test_a_model_file_that_was_edited_cannot_quote_less_than_its_releases_cost():
    """The report page quoted what the file said that was asked for."""
    sites = sv.Sites([np.eye(3)], [[1.0, -1.0, 1.0]], private=True)
    honest = sv.simulate(sv.IPADMM(rounds=2, local_steps=1, diameter=5.0), sites, ALONE, runs=3).privacy
    edited = PrivacyStatement.from_dict({**plain(honest), "runs": 1, "target_epsilon": 0.01})
    assert edited.promised >= honest.epsilon


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_row_that_is_surely_right_does_not_make_a_clipped_softmax_gradient_nan(kind):
    """Its norm overflows, so its cap is 0; its slope is 0 as well, and 0 / 0 told everyone that it is there."""
    rows, w = np.array([[1e160], [1.0]]), np.array([0.0, 1.0, -1.0]).reshape(1, 3, 1)
    oracle = oracle_of(kind, rows, [1.0, 0.0], sv.losses.Softmax(3), np.inf, 1.0)
    assert np.isfinite(gradient(oracle, w)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_softmax_slopes_whose_squares_underflow_are_clipped_too(kind):
    """||a|| = 1e154, clipped to 1e-12, and a slope of 1e-163: the record's gradient was 1000 times too long."""
    clip, far = 1e-12, 1e154
    w = np.array([375 / far, 0.0, 0.0]).reshape(1, 3, 1)
    oracle = oracle_of(kind, np.array([[far]]), [0.0], sv.losses.Softmax(3), np.inf, clip)
    assert np.abs(gradient(oracle, w)).max() <= clip * (1 + 1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_rounding_of_a_long_sum_is_within_the_declared_sensitivity(kind, form):
    """Rows whose sum stays just below 1/4, or, with the first row turned round, above it, where doubles are half as
    dense and every addition rounds the same way.
    """
    m = 2**17
    ulp = 2.0**-54 * m  # of 1/4, in units of a row
    rest = m - m // 4 - 1
    tail = np.where(np.arange(rest) % 2 == 0, 3.5 * ulp, -2.5 * ulp)
    parts = []
    for first in (1.0, -1.0):
        rows = np.concatenate([[first], np.ones(m // 4), tail])[:, None]
        oracle = oracle_of(kind, form(rows), np.ones(m), sv.losses.Hinge(), 1.0, None)
        parts.append(gradient(oracle, np.zeros((1, 1, 1)))[0])
    assert abs(parts[0] - parts[1]) <= oracle.sensitivity().item()
