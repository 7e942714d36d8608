"""The list of faults that tests must notice still fits the sources and the tests. Judging them is `make mutants`."""

import ast
import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load()
MUTANTS = SCRIPT.MUTANTS


def test_there_are_enough_of_them_and_each_is_one_of_a_kind():
    assert len(MUTANTS) >= 60
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@cache
def defined(file):
    """The names of all functions and classes in a file of tests."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return {
        node.name for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))) if isinstance(node, kinds)
    }


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_its_line_is_there_once_and_its_test_exists(mutant):
    text = (ROOT / SCRIPT.SOURCES / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.file} has changed: correct the mutant"
    assert mutant.old != mutant.new
    changed = text.replace(mutant.old, mutant.new)
    if mutant.file.endswith(".py"):
        ast.parse(changed)
    before, after = text.splitlines(), changed.splitlines()
    assert len(before) == len(after)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1
    file, *names = re.sub(r"\[.*\]$", "", mutant.test).split("::")
    for name in names:
        assert name in defined(file), f"{mutant.test} is no test any more"


def test_cuda_code_is_judged_on_a_gpu():
    """Its test is left out elsewhere, and a test that is left out kills nothing."""
    for mutant in MUTANTS:
        assert mutant.gpu == (mutant.file in ("oracle/cuda.py", "oracle/kernels/steps.cu")), mutant.name
        assert mutant.gpu == ("cuda]" in mutant.test), mutant.name


def test_the_cases_that_judge_cuda_code_exist():
    """Where there is no GPU nobody would notice that a case has got another name."""
    judges = {mutant.test for mutant in MUTANTS if mutant.gpu}
    files = sorted({test.split("::")[0] for test in judges})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider", *files]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert judges <= {*listed}


def test_without_a_gpu_they_are_listed_and_not_judged(monkeypatch, capsys):
    monkeypatch.setattr(SCRIPT, "has_gpu", lambda: False)
    monkeypatch.setattr(SCRIPT, "judge", lambda _tree, mutant: pytest.fail(f"{mutant.name} was judged"))
    monkeypatch.setattr("sys.argv", ["mutants.py", "--only", "GPU"])
    assert SCRIPT.main() == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not judged, for want of a GPU")]
    assert len(lines) == sum(mutant.gpu for mutant in MUTANTS) > 15


def test_parts_are_all_of_them():
    parts = [mutant for k in (1, 2, 3) for mutant in SCRIPT.part_of(MUTANTS, f"{k}/3")]
    assert sorted(parts) == sorted(MUTANTS)


def test_a_fault_is_made_in_the_copy_and_mended(tmp_path, monkeypatch):
    """Judged by a stand-in for pytest that looks at the file."""
    mutant = MUTANTS[0]
    path = tmp_path / SCRIPT.SOURCES / mutant.file
    path.parent.mkdir(parents=True)
    text = (ROOT / SCRIPT.SOURCES / mutant.file).read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    seen = []

    def stand_in(tree, tests):
        seen.append((tree / SCRIPT.SOURCES / mutant.file).read_text(encoding="utf-8"))
        return len(seen) - 1, ""

    monkeypatch.setattr(SCRIPT, "tested", stand_in)
    assert [SCRIPT.judge(tmp_path, mutant).killed for _ in range(2)] == [False, True]
    assert all(mutant.new in found for found in seen)
    assert path.read_text(encoding="utf-8") == text
