"""The plot methods: they return axes, draw on those that are given, and say what is missing."""

import subprocess
import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt

import sottovoce as sv
from sottovoce.drawing.style import style
from sottovoce.errors import InputError
from sottovoce.files.models.inference import CoefficientLine, Inference, line_of
from sottovoce.privacy.statement import HOLDER_ONLY
from sottovoce.problem.losses import Huber, Logistic
from sottovoce.tally import Terms, evaluate_privately

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _closed():
    plt.close("all")  # those of other tests
    yield
    plt.close("all")


@pytest.fixture(scope="module", name="result")
def _result():
    rng = np.random.default_rng(0)
    sites = sv.Sites([rng.uniform(-0.5, 0.5, size=(50, 2)) for _ in range(3)], [[1, -1] * 25] * 3)
    return sv.simulate(sv.ADMM(rounds=6), sites, sv.graphs.complete(3), runs=2, seed=0, device="plain")


@pytest.fixture(scope="module", name="evaluation")
def _evaluation():
    z = np.random.default_rng(0).normal(size=(4000, 1))
    labels = np.where(np.random.default_rng(1).random(4000) < 1 / (1 + np.exp(-z[:, 0])), 1.0, -1.0)
    return evaluate_privately(Logistic(), z, labels, Terms(epsilon=2.0, delta=1e-6), classes=("no", "yes"))


LINES = (line_of("age", 0.5, 0.1, "logistic"), CoefficientLine("hidden"), line_of("dose", -2.0, 0.2, "logistic"),
         line_of("intercept", 1.0, 0.1, "logistic"))  # fmt: skip
TABLE = Inference("logistic", 100, LINES, {})


@pytest.mark.parametrize("score", ["risk", "accuracy"])
def test_a_result_draws_its_history(result, score):
    axes = result.plot(score)
    for line, name in zip(axes.get_lines(), ("average", "last", "consensus"), strict=True):
        assert line.get_label() == name
        drawn = result.history[f"{score}_{name}"].reshape(-1, 2).mean(axis=1)
        assert np.allclose(line.get_ydata(), drawn)
        assert list(line.get_xdata()) == sorted(set(result.history["round"]))


def test_what_is_drawn_of_private_rows_says_that_it_is_for_their_holder(result):
    public, private = result.plot(), replace(result, private=True).plot()
    assert public.get_title(loc="left") == ""
    assert " ".join(private.get_title(loc="left").split()) == HOLDER_ONLY


def test_coefficients_are_a_forest_with_the_clearest_on_top():
    axes = TABLE.plot()
    assert [text.get_text() for text in axes.get_yticklabels()] == ["dose", "age"]
    narrow = TABLE.plot(plt.subplots(figsize=(3.6, 3.0))[1])
    assert {text.get_text(): text.get_position()[1] > 0.5 for text in narrow.texts} == {"dose": True, "age": False}
    assert list(narrow.get_yticks()) == []
    (points,) = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert list(points.get_xdata()) == [-2.0, 0.5]
    places = dict(zip(points.get_xdata(), points.get_ydata(), strict=True))
    assert places[-2.0] > places[0.5]
    (bars,) = axes.collections
    ends = {tuple(np.round(path.vertices[:, 0], 9)) for path in bars.get_paths()}
    assert ends == {(round(line.low, 9), round(line.high, 9)) for line in (LINES[0], LINES[2])}
    assert "odds ratio" in axes.get_xlabel()
    linear = Inference("linear", 100, (line_of("age", 30.0, 10.0),), {}).plot()
    assert [line.get_xdata()[0] for line in linear.get_lines() if line.get_marker() == "o"] == [3.0]


def test_an_evaluation_draws_both_curves(evaluation):
    axes = evaluation.plot()
    curve = axes.get_lines()[1].get_xydata()
    assert tuple(curve[0]) == (0, 0)
    assert tuple(curve[-1]) == (1, 1)
    assert len(curve) == 2 + len(evaluation.answer.roc)
    drawn = evaluation.plot("calibration").get_lines()[1]
    assert list(drawn.get_xdata()) == [group.predicted for group in evaluation.answer.calibration]


def test_what_it_cannot_draw_is_refused_before_anything_is(evaluation):
    with pytest.raises(InputError, match="a curve among roc, calibration, got curve='lift'"):
        evaluation.plot("lift")
    numbers = evaluate_privately(
        Huber(2.0), np.zeros((500, 1)), np.zeros(500), Terms(epsilon=2.0, delta=1e-6), width=2.0
    )
    with pytest.raises(InputError, match="curve='roc'"):
        numbers.plot()
    assert plt.get_fignums() == []


def test_given_axes_are_drawn_on_and_keep_their_style(result, evaluation):
    for draw in (result.plot, TABLE.plot, evaluation.plot):
        figure, (left, right) = plt.subplots(1, 2)
        before = dict(mpl.rcParams)
        assert draw(ax=right) is right
        assert right.has_data()
        assert not left.has_data()
        assert plt.get_fignums() == [figure.number]
        assert dict(mpl.rcParams) == before
        plt.close(figure)


def test_a_first_figure_of_ours_leaves_a_notebook_interactive():
    """Its backend says so when it makes its first figure, and shows no later figure otherwise."""
    with mpl.rc_context():
        mpl.rcParams["font.size"] = 17.0
        with style():
            mpl.interactive(True)
            assert mpl.rcParams["font.size"] != 17.0
        assert mpl.is_interactive()
        assert mpl.rcParams["font.size"] == 17.0


MISSING = """
import sys
sys.modules["matplotlib"] = None
import sottovoce
from sottovoce.files.models.inference import Inference
try:
    Inference("linear", 1, (), {}).plot()
except sottovoce.UnsupportedError as error:
    print(error)
"""


def test_without_matplotlib_it_says_what_to_install():
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=False)
    assert "pip install 'sottovoce[plots]'" in done.stdout, done.stderr
