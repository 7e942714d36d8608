"""The bar of long work: where somebody watches, only rounds, and nothing left behind."""

import io

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.estimators import PrivateLogisticRegression, PrivateSearch
from sottovoce.progress import Bar, shown


class Watched(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


# Notebooks are told by the module of their stream.
Cell = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})


def last(stream):
    return stream.getvalue().split("\r")[-1]


def run(progress):
    sites = sv.Sites([np.eye(2)] * 3, [[1, -1]] * 3)
    return sv.simulate(sv.ADMM(rounds=4), sites, sv.graphs.complete(3), seed=0, device="plain", progress=progress)


@pytest.mark.parametrize("kind", [Watched, Cell])
def test_a_bar_where_somebody_watches(monkeypatch, kind):
    stream = kind()
    monkeypatch.setattr("sys.stderr", stream)
    run(True)
    assert "round 4/4" in stream.getvalue()
    assert last(stream).strip() == ""


def test_nothing_elsewhere_or_unless_asked(monkeypatch):
    for stream, progress in ((io.StringIO(), True), (Watched(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        run(progress)
        assert stream.getvalue() == ""


def test_a_function_is_called_as_before():
    told = []
    run(lambda done, total: told.append((done, total)))
    assert told == [(k, 4) for k in range(1, 5)]


def test_the_line_says_how_much_is_done_and_the_time_left():
    now = [0.0]
    stream = io.StringIO()
    bar = Bar(stream, "round", lambda: now[0])
    now[0] = 10.0
    bar.move(1, 4)
    assert last(stream).startswith("round 1/4 ━━━━━━━━━━╌")
    assert last(stream).endswith("0:00:30 left")
    length = len(last(stream))
    now[0] = 10.01
    bar.move(2, 4)  # too soon to be drawn
    assert "2/4" not in stream.getvalue()
    bar.move(4, 4)  # but the end always is
    assert last(stream).rstrip() == f"round 4/4 {'━' * 40}"
    assert len(last(stream)) == length  # what was longer is wiped out
    bar.wipe()
    assert last(stream) == ""
    assert stream.getvalue().split("\r")[-2].strip() == ""


def test_an_error_wipes_the_bar(monkeypatch):
    stream = Watched()
    monkeypatch.setattr("sys.stderr", stream)

    def failing():
        with shown(True) as report:
            report(1, 2)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        failing()
    assert last(stream) == ""


def test_fits_show_one_and_searches_none(monkeypatch):
    """As many bars as there are fits would tell how many there are, which is secret."""
    stream = Watched()
    monkeypatch.setattr("sys.stderr", stream)
    X, y = np.random.default_rng(0).uniform(-0.5, 0.5, size=(300, 2)), [0, 1] * 150
    model = PrivateLogisticRegression(1.0, delta=1e-6, data_norm=1.0, classes=[0, 1], verbose=True)
    model.fit(X, y)
    assert "round" in stream.getvalue()
    stream.truncate(0)
    PrivateSearch(model, {"lam": [1e-3, 1e-2]}, runs=2.0).fit(X, y)
    assert stream.getvalue().strip("\0") == ""
