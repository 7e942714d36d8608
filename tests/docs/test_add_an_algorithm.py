"""The how-to for a new algorithm, followed: its file, its line and its commands, in a copy of the package."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
from pyarrow import parquet

import sottovoce

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-an-algorithm.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"`([\w./-]+\.(?:py|toml))`")
CHANGED = ("algorithms", "experiments")
END = "}\n# fmt: on"  # of the registry


def blocks(kind):
    """(the files that the text before it names, the block), in order."""
    text = PAGE.read_text(encoding="utf-8")
    return [(NAMED.findall(text[: found.start()]), found[2]) for found in BLOCK.finditer(text) if found[1] == kind]


def overlay(place):
    """The package again. What the page does not touch is linked, so that compiled kernels are found and not made."""
    package, real = place / "src" / "sottovoce", Path(sottovoce.__file__).parent
    package.mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name in CHANGED:
            copytree(entry, package / entry.name, ignore=ignore_patterns("__pycache__"))
        elif entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    (place / "tests").symlink_to(ROOT / "tests")
    (place / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    return place


@pytest.fixture(scope="module", name="place")
def _place(tmp_path_factory):
    """The folder in which the page was followed up to its commands."""
    place = overlay(tmp_path_factory.mktemp("sources"))
    (named, file), (told, line) = blocks("python")
    assert named[-1] == "src/sottovoce/algorithms/noisygossip.py"
    (place / named[-1]).write_text(file)
    registry = place / told[-1]
    text = registry.read_text()
    assert text.count(END) == 1
    registry.write_text(text.replace(END, line + END))
    ((asked, toml),) = blocks("toml")
    assert next(name for name in asked if name.endswith(".toml")) == "gossip.toml"
    (place / "gossip.toml").write_text(toml)
    return place


PROGRAMS = {
    ".venv/bin/pytest": ["-m", "pytest"],
    ".venv/bin/sottovoce": ["-c", "from sottovoce.cli import main; raise SystemExit(main())"],
}


def python(place, *arguments):
    """This Python, in that folder, with the package that lies there."""
    environment = {**os.environ, "PYTHONPATH": str(place / "src")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True, check=False
    )


COMMANDS = [line for _, block in blocks("sh") for line in block.replace("\\\n", " ").splitlines()]


def test_the_page_names_every_command_once():
    assert [" ".join(shlex.split(line)[:2]) for line in COMMANDS] == [
        ".venv/bin/pytest tests/conformance/test_algorithms.py",
        ".venv/bin/sottovoce compare",
        ".venv/bin/sottovoce train",
        ".venv/bin/sottovoce reproduce",
    ]


# `compare` goes the same way from a registered name to a table.
@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=pytest.mark.slow) if " reproduce " in line else line for line in COMMANDS]
)
def test_every_command_runs(place, line):
    program, *arguments = shlex.split(line)
    done = python(place, *PROGRAMS[program], *arguments)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    if "pytest" in line:
        # One of each test that takes every algorithm, and not "no tests ran".
        assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 8
    if "--out" in line:
        out = place / shlex.split(line)[shlex.split(line).index("--out") + 1]
        results = parquet.read_table(out / "results.parquet").to_pylist()
        assert {"noisy-gossip", "dp-dsgd"} <= {line["algorithm"] for line in results}
        ours = [line for line in results if line["algorithm"] == "noisy-gossip"]
        assert all(0 < line["epsilon"] <= line["epsilon_target"] for line in ours)


def test_one_file_and_one_line_are_all_that_changed(place):
    real = Path(sottovoce.__file__).parent
    changed = {}
    for folder in CHANGED:
        for path in (place / "src" / "sottovoce" / folder).glob("*.py"):
            twin = real / folder / path.name
            if not twin.exists() or twin.read_bytes() != path.read_bytes():
                changed[path.name] = twin.exists()
    assert changed == {"noisygossip.py": False, "registry.py": True}


ENDLESS = """
import math, numpy as np, sottovoce as sv
from sottovoce.algorithms.noisygossip import NoisyGossip
sites = sv.Sites([np.eye(2) / 2] * 2, [[1, -1]] * 2)
result = sv.simulate(NoisyGossip(rounds=2, epsilon=math.inf), sites, sv.graphs.ring(2), seed=0)
assert np.array_equal(result.last[0, 0], result.last[0, 1])
print(result.privacy.prose())
"""


def test_an_infinite_epsilon_means_what_it_means_elsewhere(place):
    done = python(place, "-c", ENDLESS)
    assert "NOT PRIVATE" in done.stdout, done.stderr


def test_the_file_is_in_the_style_of_the_others(place):
    for check in (["check"], ["format", "--check"]):
        done = python(place, "-m", "ruff", *check, "src/sottovoce/algorithms/noisygossip.py")
        assert done.returncode == 0, done.stdout


def test_the_page_and_its_links_are_true():
    said = PAGE.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", said):
        assert (PAGE.parent / target).exists(), target
