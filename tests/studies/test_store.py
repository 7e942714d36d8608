"""Cells computed side by side: the same numbers as alone, all cores for the last one, and an end in order."""

from threading import Barrier, Event, get_ident

import numba
import numpy as np
import pytest

from sottovoce.errors import UnsupportedError
from sottovoce.studies import measured, store
from sottovoce.studies.cells import ProblemSpec, cell
from sottovoce.studies.store import CellStore, ProgressWatcher, Runner

CORES = 2
SMALL = ProblemSpec(every=50, nodes=6)
two_cores = pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < CORES, reason="one core computes one cell at a time")
pytestmark = two_cores


@pytest.fixture(autouse=True)
def _cores():
    before = numba.get_num_threads()
    numba.set_num_threads(CORES)
    yield
    assert numba.get_num_threads() == CORES, "who computes cells leaves the caller's threads alone"
    numba.set_num_threads(before)


def some(*names, runs=3, rounds=4, seed=1):
    common = {"epsilon": 1.0, "delta": 1e-5, "rounds": rounds, "rho": 1e-2, "lam": 1e-4}
    return [cell(name, SMALL, common, runs=runs, seed=seed, record=(1, rounds)) for name in names]


class Watcher(ProgressWatcher):
    """Notes what it is told, and that it is told one thing at a time."""

    def __init__(self):
        self.told, self.finished, self._inside = [], [], None

    def at(self, cell, share):
        assert self._inside is None
        self._inside = get_ident()
        self.told.append((cell, share))
        assert self._inside == get_ident()
        self._inside = None

    def done(self, cell):
        self.finished.append(cell)


def runner_of(folder, watcher=None):
    return Runner(CellStore(folder), watcher or Watcher(), {})


def test_side_by_side_and_alone_are_the_same_bit_by_bit(tmp_path):
    wanted = some("ipadmm", "dvp", "masked", "dp-dsgd", "radmm", "pvp", "admm", "dpadmm")
    watcher = Watcher()
    runner = runner_of(tmp_path, watcher)
    runner.fill([*wanted, *wanted])
    assert sorted(watcher.finished, key=repr) == sorted(wanted, key=repr)
    assert {one for one, share in watcher.told if share == 1.0} == set(wanted)
    for one in wanted:
        alone, beside = measured.run(one), runner.get(one)
        assert set(alone.columns) == set(beside.columns)
        for name in set(alone.columns) - {"seconds"}:
            np.testing.assert_array_equal(alone.columns[name], beside.columns[name], err_msg=f"{one.algorithm} {name}")


def test_cells_share_the_cores_and_the_last_one_gets_all(tmp_path, monkeypatch):
    short, long = some("ipadmm", "dp-dsgd")
    both, seen, gone = Barrier(2, timeout=30), {}, Event()

    class Told(Watcher):
        def done(self, cell):
            super().done(cell)
            gone.set()

    def run(one, progress):
        both.wait()
        progress(1, 2)
        seen[one, 1] = numba.get_num_threads()
        both.wait()
        if one == long:
            assert gone.wait(30)
            progress(2, 2)
            seen[one, 2] = numba.get_num_threads()
        raise UnsupportedError("enough")

    monkeypatch.setattr(measured, "run", run)
    runner = runner_of(tmp_path, Told())
    runner.fill([short, long])
    assert seen == {(short, 1): 1, (long, 1): 1, (long, 2): CORES}
    # A refusal is a result, and is kept.
    assert (runner.get(short), runner.get(long)) == (None, None)
    assert runner.refused == {short: "enough", long: "enough"}


def test_an_interruption_abandons_what_is_under_way_and_begins_nothing_more(tmp_path, monkeypatch):
    wanted = some("ipadmm", "dp-dsgd", "dvp", "masked")
    both, begun = Barrier(3, timeout=30), []

    def run(one, progress):
        begun.append(one)
        both.wait()
        while True:
            progress(1, 2)

    def interrupted(*_, **__):
        both.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(measured, "run", run)
    monkeypatch.setattr(store, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner_of(tmp_path).fill(wanted)
    assert sorted(begun, key=repr) == sorted(wanted[:2], key=repr)
    assert not (tmp_path / "cells").exists()


def test_what_is_under_way_when_another_fails_is_kept(tmp_path, monkeypatch):
    wanted = some("ipadmm", "dp-dsgd", "dvp")
    both, failed = Barrier(2, timeout=30), Event()

    class Full(CellStore):
        def write(self, one, result):
            if one == wanted[0]:
                failed.set()
                raise OSError("no space left")
            super().write(one, result)

    def run(one, _progress):
        both.wait()
        assert one == wanted[0] or failed.wait(30)
        raise UnsupportedError("enough")

    monkeypatch.setattr(measured, "run", run)
    runner = Runner(Full(tmp_path), Watcher(), {})
    with pytest.raises(OSError, match="no space left"):
        runner.fill(wanted)
    kept = CellStore(tmp_path)
    assert [kept.read(one) for one in wanted] == [None, "enough", None]


def test_what_is_there_is_not_computed_again(tmp_path, monkeypatch):
    wanted = some("ipadmm", "dp-dsgd")
    runner_of(tmp_path).fill(wanted)
    monkeypatch.setattr(measured, "run", lambda *_: pytest.fail("computed again"))
    runner_of(tmp_path).fill(wanted)
