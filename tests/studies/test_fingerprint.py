"""A result is reused only while all that it came from is as it was."""

import ast
import shutil
from functools import cache

import pytest

from sottovoce.algorithms import registry
from sottovoce.studies import cells, fingerprint
from sottovoce.studies.cells import ProblemSpec, cell

STARTS = ("sottovoce.studies.measured", "sottovoce.algorithms.ipadmm")


def key():
    return cell("ipadmm", ProblemSpec(nodes=4), {"rounds": 5}, runs=2, seed=0).key


@pytest.fixture(name="copy")
def _copy(tmp_path):
    """The package's sources, free to be changed."""
    ignored = shutil.ignore_patterns("__pycache__", "*.npz", "*.so")
    return shutil.copytree(fingerprint.HERE, tmp_path / "sottovoce", ignore=ignored)


@cache
def nodes(source):
    """All nodes of a source's tree. Most sources are the same in all tests here."""
    return tuple(ast.walk(ast.parse(source)))


@pytest.fixture(name="digest")
def _digest(copy, monkeypatch):
    """What the sources come to now, as a new process would find it."""
    monkeypatch.setattr(fingerprint, "_nodes", nodes)

    def now(*starts):
        fingerprint.fingerprint.cache_clear()
        fingerprint._imports.cache_clear()
        return fingerprint.fingerprint(*(starts or STARTS), root=copy)

    yield now
    fingerprint.fingerprint.cache_clear()
    fingerprint._imports.cache_clear()


MATTERS = [
    "privacy/accounting/calibration.py",  # sigma_for
    "privacy/accounting/gaussian.py",
    "oracle/plain.py",
    "oracle/row_sums.py",
    "oracle/cpu.py",
    "oracle/kernels/steps.py",
    "oracle/kernels/formulas.py",
    "problem/losses/scalar.py",
    "problem/graphs/families.py",
    "files/datasets/adult.py",
    "problem/partition.py",
    "simulation/engine.py",
    "simulation/history.py",
    "algorithms/ipadmm.py",
    "algorithms/base.py",
    "studies/cells.py",
]


@pytest.mark.parametrize("file", MATTERS)
def test_a_change_in_what_a_cell_can_reach_counts(copy, digest, file):
    before = digest()
    path = copy / file
    path.write_text(path.read_text() + "\nDOUBLED = 2\n")
    assert digest() != before


DOES_NOT = [
    "studies/report/study_page.py",
    "cli/study.py",
    "studies/verdict.py",
    "studies/suite.py",
    "algorithms/registry.py",  # one line for every algorithm; a cell's own is in its key
    "algorithms/__init__.py",
    "algorithms/ryukim.py",
    "federation/site/runner.py",
]


@pytest.mark.parametrize("file", DOES_NOT)
def test_a_change_elsewhere_does_not(copy, digest, file):
    before = digest()
    path = copy / file
    path.write_text(path.read_text() + "\nDOUBLED = 2\n")
    assert digest() == before


def test_other_files_in_the_package_do_not(copy, digest):
    before = digest()
    (copy / "algorithms" / "noisygossip.py").write_text("A = 1\n")
    (copy / "studies" / "__pycache__").mkdir(exist_ok=True)
    assert digest() == before


def test_an_algorithm_s_own_file_counts_for_it_and_what_it_builds_on(copy, digest):
    starts = STARTS[0], "sottovoce.algorithms.dvp"
    before = digest(*starts)
    for file in ("dvp.py", "objective.py", "rival.py"):
        path = copy / "algorithms" / file
        path.write_text(path.read_text() + "\nDOUBLED = 2\n")
        assert digest(*starts) != before
        before = digest(*starts)


def test_an_import_that_waits_inside_a_function_is_found(copy, digest):
    (copy / "late.py").write_text("A = 1\n")
    (copy / "noise" / "sources.py").write_text(
        (copy / "noise" / "sources.py").read_text() + "\ndef f():\n    from sottovoce import late\n"
    )
    before = digest()
    (copy / "late.py").write_text("A = 2\n")
    assert digest() != before


@pytest.mark.parametrize("package", ["numpy", "scipy", "numba", "networkx"])
def test_the_packages_under_it_count(digest, monkeypatch, package):
    before, real = digest(), fingerprint.version
    monkeypatch.setattr(fingerprint, "version", lambda name: "0.0.1" if name == package else real(name))
    assert digest() != before


def test_a_key_holds_the_fingerprint_of_its_algorithm(monkeypatch):
    before, asked = key(), []
    monkeypatch.setattr(cells, "fingerprint", lambda *modules: asked.append(modules) or "other")
    assert key() != before
    assert asked == [STARTS]


def test_every_start_is_a_module_of_the_package():
    """A start that was misspelt would hash nothing."""
    for line in registry.REGISTRY.values():
        found = fingerprint.reached((STARTS[0], line.kind.__module__))
        assert {
            "sottovoce.algorithms.base",
            "sottovoce.privacy.accounting.calibration",
            "sottovoce.oracle.kernels.steps",
        } <= found


def test_read_once_since_what_runs_is_what_was_imported(copy, digest):
    before = digest()
    (copy / "noise" / "sources.py").write_text("changed")
    assert fingerprint.fingerprint(*STARTS, root=copy) == before
