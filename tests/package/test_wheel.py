"""The wheel, in a folder of its own: all files are in it, and it works without the sources beside it."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sottovoce

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
# What pip says when it cannot get the build system. Any other failure is ours.
UNREACHABLE = ("No matching distribution found for hatchling", "Could not fetch URL", "Temporary failure in name")
DATA = """
import json, sottovoce
from importlib.metadata import version
from importlib.resources import files
from sottovoce import datasets
data = [name for name in ("files/datasets/adult-schema.toml", "oracle/kernels/steps.cu", "py.typed")
        if files("sottovoce").joinpath(name).is_file()]
print(json.dumps({"file": sottovoce.__file__, "version": version("sottovoce"), "data": data,
                  "rows": [len(datasets.adult().labels), len(datasets.bank().labels)]}))
"""
TINY = "train --nodes 3 --rounds 2 --local-steps 1 --rho 0.001 --diameter 10 --runs 1 --device plain --json"


def run(*words, **settings):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **settings)


@pytest.fixture(scope="module", name="wheel")
def _wheel(tmp_path_factory):
    """Built as `pip install` builds it."""
    out = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", out, ROOT)
    if done.returncode and any(words in done.stdout + done.stderr for words in UNREACHABLE):
        pytest.skip("the package index cannot be reached, and building a wheel needs hatchling")
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module", name="installed")
def _installed(wheel, tmp_path_factory):
    """A folder with the wheel's content, and how to run Python with it."""
    place = tmp_path_factory.mktemp("installed")
    done = run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", place, wheel)
    assert done.returncode == 0, done.stderr
    return place, {"cwd": tmp_path_factory.mktemp("elsewhere"), "env": {**os.environ, "PYTHONPATH": str(place)}}


def test_every_file_of_the_package_is_in_it(wheel):
    ours = {path.relative_to(SOURCES).as_posix() for path in (SOURCES / "sottovoce").rglob("*")
            if path.is_file() and "__pycache__" not in path.parts}  # fmt: skip
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("sottovoce/")}
    assert packed == ours
    assert {"sottovoce/py.typed", "sottovoce/oracle/kernels/steps.cu", "sottovoce/files/datasets/adult.npz"} <= packed


def test_it_finds_its_own_data(installed):
    place, settings = installed
    done = run(sys.executable, "-c", DATA, **settings)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert Path(found["file"]) == place / "sottovoce" / "__init__.py"
    assert found["data"] == ["files/datasets/adult-schema.toml", "oracle/kernels/steps.cu", "py.typed"]
    assert found["rows"] == [45_222, 45_211]
    assert found["version"] == sottovoce.__version__


def test_the_program_runs(installed):
    place, settings = installed
    done = run(sys.executable, place / "bin" / "sottovoce", "--version", **settings)
    assert (done.returncode, done.stdout.strip()) == (0, f"sottovoce {sottovoce.__version__}"), done.stderr
    done = run(sys.executable, place / "bin" / "sottovoce", *TINY.split(), **settings)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["privacy"]["epsilon"] <= 1
