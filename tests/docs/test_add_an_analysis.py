"""The how-to for a new analysis, followed: its file, its line in the tests and its answer, in a copy of the package."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

import sottovoce

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "add-an-analysis.md").read_text(encoding="utf-8")
FILE, LINE, ANSWER = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(COMMAND,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
SENSITIVITY = "float(site.changed_in_sum(rows))"


@pytest.fixture(name="place")
def _place(tmp_path):
    """The folder in which the page was followed. What it does not touch is linked, so that kernels are not made."""
    package, real = tmp_path / "src" / "sottovoce", Path(sottovoce.__file__).parent
    package.mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name == "sums":
            copytree(entry, package / entry.name, ignore=ignore_patterns("__pycache__"))
        elif entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    copytree(ROOT / "tests" / "sums", tmp_path / "tests" / "sums", ignore=ignore_patterns("__pycache__"))
    for name in ("helpers", "conftest.py"):
        (tmp_path / "tests" / name).symlink_to(ROOT / "tests" / name)
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    (package / "sums" / "above.py").write_text(FILE)
    told = tmp_path / "tests" / "sums" / "test_questions.py"
    text = told.read_text()
    assert text.count("WRAPPED = (") == 1
    told.write_text(text.replace("WRAPPED = (", f"{LINE}\nWRAPPED = ("))
    return tmp_path


def python(place, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(place / "src")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True, check=False
    )


def test_the_question_passes_the_test_that_all_go_through_and_a_wrong_one_does_not(place):
    program, *arguments = COMMAND.split()
    assert program == ".venv/bin/pytest"
    right = python(place, "-m", "pytest", *arguments)
    assert right.returncode == 0, right.stdout[-3000:] + right.stderr[-3000:]
    assert int(re.search(r"(\d+) passed", right.stdout)[1]) >= 4
    assert FILE.count(SENSITIVITY) == 1
    (place / "src" / "sottovoce" / "sums" / "above.py").write_text(FILE.replace(SENSITIVITY, f"0.5 * {SENSITIVITY}"))
    wrong = python(place, "-m", "pytest", *arguments)
    assert wrong.returncode == 1
    assert "test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much[Above]" in wrong.stdout


def test_the_answer_is_the_share_with_noise_for_one_row(place):
    done = python(place, "-c", ANSWER)
    assert done.returncode == 0, done.stderr[-3000:]
    share, noise, epsilon = map(float, re.search(r"([\d.]+) \+- ([\d.]+), epsilon = ([\d.]+)", done.stdout).groups())
    assert share == pytest.approx(0.5, abs=0.03)
    # Of one number that a row moves by 1, at epsilon 1 and delta 1e-6, one of three sites colluding.
    assert 4 / 6000 < noise < 8 / 6000
    assert epsilon == pytest.approx(1.0, abs=0.01)
