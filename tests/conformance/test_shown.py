"""What Python and notebooks show of the objects of this library: a few lines that line up, and of private rows nothing
that depends on them.
"""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.document.shown import Shown
from sottovoce.estimators import PrivateLogisticRegression
from sottovoce.privacy.unit import Unit
from sottovoce.problem.dataset import Dataset

ROWS, MARK = 400, 0.123456789


def some(seed, private, **more):
    """Rows of norm at most 1, drawn by the seed, but for numbers of rows and names."""
    draws = np.random.default_rng(seed)
    features = draws.normal(size=(ROWS, 3))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]
    features[0, 0] = MARK
    labels = np.where(draws.random(ROWS) < draws.uniform(0.2, 0.8), 1.0, -1.0)
    return Dataset(features, labels, ("age", "b", "c"), ROWS, 1.0, "people", private=private, **more)


def simulated(data):
    seed = None if data.private else 0
    return sv.simulate(
        sv.MaskedNewton(epsilon=1.0, delta=1e-6, colluding=1), sv.Sites.split(data, nodes=4, seed=seed),
        sv.graphs.complete(4), runs=2, seed=seed,
    )  # fmt: skip


@pytest.fixture(scope="module", name="fitted")
def _fitted():
    data = some(0, private=True)
    return PrivateLogisticRegression(
        4.0, delta=1e-6, data_norm=1.0, classes=["no", "yes"], fit_intercept=False, inference=True
    ).fit(data.features, np.where(data.labels > 0, "yes", "no"))


@pytest.fixture(scope="module", name="shown")
def _shown(fitted):
    data, result = some(0, private=False), simulated(some(0, private=False))
    x, y = data.features, np.where(data.labels > 0, "yes", "no")
    return {
        "data": data, "sites": sv.Sites.split(data, nodes=4), "result": result, "privacy": result.privacy,
        "model": fitted.to_model(), "summary": fitted.summary(),
        "evaluation": fitted.evaluate_privately(x, y, epsilon=2.0),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["data", "sites", "result", "privacy", "model", "summary", "evaluation"])
def test_a_few_lines_that_fit_beside_each_other(shown, name):
    one = shown[name]
    assert isinstance(one, Shown)
    assert repr(one) == str(one)
    lines = repr(one).splitlines()
    assert 3 <= len(lines) <= 40
    assert max(map(len, lines)) <= 120
    assert "array(" not in repr(one)
    page = one._repr_html_()
    assert page.startswith('<div class="sottovoce">')
    assert len(page) < 60_000


def both(one):
    return repr(one), one._repr_html_()


@pytest.mark.parametrize("more", [{}, {"unit": Unit(2), "people": np.arange(ROWS) // 2}], ids=["rows", "people"])
def test_private_rows_change_nothing_that_is_shown(more):
    """Data sets with the same public facts look the same, whatever their rows are; public ones do not."""
    first, second = some(1, True, **more), some(2, True, **more)
    for make in (lambda data: data, lambda data: sv.Sites.split(data, nodes=4)):
        assert both(make(first)) == both(make(second))
    for text in both(first):
        assert "private" in text
        assert str(MARK)[:6] not in text
    assert both(replace(first, private=False)) != both(replace(second, private=False))


def test_a_result_on_private_rows_shows_no_score_and_no_time():
    first, second = (simulated(some(seed, True)) for seed in (1, 2))
    assert first.risk() != second.risk()
    assert both(first) == both(second)
    assert "risk()" in repr(first)
    public = repr(simulated(some(1, False)))
    assert "mean loss" in public
    assert "Seconds" in public


def test_a_result_shows_means_and_spread_of_its_runs():
    result = simulated(some(1, False))
    risks = result.history.final("risk_last")
    assert f"{risks.mean():.4f} ± {np.std(risks, ddof=1):.4f}" in repr(result)
    assert f"{100 * result.accuracy()['consensus']:.2f}" in repr(result)


def test_a_statement_without_a_guarantee_says_so_first():
    data = some(1, False)
    result = sv.simulate(sv.ADMM(rounds=2), sv.Sites.split(data, nodes=4), sv.graphs.complete(4), seed=0)
    assert repr(result.privacy).splitlines()[0] == "Guarantee: none: NOT PRIVATE"
    assert "none: NOT PRIVATE" in repr(result)
    assert "NOT PRIVATE" in result._repr_html_()


def test_notes_of_a_statement_are_shown(shown):
    notes = shown["privacy"].notes
    assert notes
    text = " ".join(repr(shown["privacy"]).split())
    assert all(" ".join(note.split()) in text for note in notes)
    assert f"{len(notes)} note" in repr(shown["result"])


def test_a_model_says_what_it_predicts_and_has_its_coefficients_folded(shown, fitted):
    bare = replace(fitted.to_model(), inference=None)
    assert "among no, yes with probabilities" in repr(bare).replace("\n", " ")
    assert "without standard errors" in repr(bare)
    assert "<details>" in bare._repr_html_()
    assert "in `inference`" in repr(shown["model"])
    signed = replace(bare, signed_by="<b>key</b>")
    assert "<b>key" not in signed._repr_html_()


CORE = """
import sys
for name in ("jinja2", "markupsafe", "rich", "matplotlib", "sklearn", "pandas"):
    sys.modules[name] = None
import numpy as np, sottovoce as sv
sites = sv.Sites([np.eye(2)] * 3, [[1, -1]] * 3)
result = sv.simulate(sv.ADMM(rounds=2), sites, sv.graphs.complete(3), seed=0, device="plain")
print(result, result._repr_html_(), sites._repr_html_())
"""


def test_the_core_needs_nothing_for_it():
    done = subprocess.run([sys.executable, "-c", CORE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '<div class="sottovoce">' in done.stdout
