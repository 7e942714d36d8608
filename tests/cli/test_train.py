import json
import math
import os
import platform
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest
from pyarrow import parquet

from cli.conftest import TINY
from sottovoce.simulation import engine
from sottovoce.simulation.engine import simulate
from sottovoce.simulation.history import COLUMNS
from sottovoce.studies.build import bind
from sottovoce.studies.config import TrainConfig

KEYS = {
    "algorithm", "dataset", "nodes", "graph", "rounds", "local_steps", "epsilon", "delta", "sigma", "calibration",
    "runs", "risk", "accuracy", "optimum_risk", "seconds", "schedule", "diameter", "rho", "lam", "seed", "privacy",
    "metrics", "rare_class", "worse_than_no_model", "loss_unit", "notices", "rounds_made", "unfinished",
}  # fmt: skip
MODELS = {"average", "last", "consensus"}
_BLAS = "OPENBLAS_NUM_THREADS"


def test_json_says_what_was_run_and_what_came_out(answer):
    said = answer("train", *TINY)
    assert said.keys() >= KEYS
    assert (said["algorithm"], said["dataset"], said["nodes"], said["graph"]) == ("ipadmm", "adult", 5, "complete")
    assert (said["rounds"], said["local_steps"], said["runs"], said["seed"]) == (2, 2, 2, 0)
    assert (said["epsilon"], said["delta"], said["calibration"], said["diameter"]) == (1.0, 1e-5, "exact", 80.0)
    assert said["risk"].keys() == said["accuracy"].keys() == MODELS
    assert all(0 <= share <= 1 for share in said["accuracy"].values())
    assert 0 < said["optimum_risk"] < min(said["risk"].values())
    assert said["test"] is None
    assert said["privacy"]["sigma"] == said["sigma"] > 0
    assert said["seconds_total"] >= said["seconds"] > 0


def test_json_figures_are_those_of_the_library(answer):
    said = answer("train", *TINY, "--seed", 3)
    config = TrainConfig(nodes=5, rounds=2, local_steps=2, runs=2, rho=0.001, diameter=80.0, seed=3)
    problem, algorithm = bind(config)
    result = simulate(algorithm, problem.sites, problem.graph, runs=2, seed=3)
    assert said["risk"] == result.risk()
    assert said["accuracy"] == result.accuracy()
    assert said["risk_std"]["last"] == np.std(result.history.final("risk_last"), ddof=1)


def test_the_diameter_may_be_left_out(answer):
    assert answer("train", *TINY[:-2])["diameter"] > 0


def test_one_run_has_no_spread(answer):
    assert answer("train", *TINY, "--runs", 1)["risk_std"] == dict.fromkeys(["average", "last", "consensus"])


def test_the_official_split_also_scores_test_rows(answer, few_rows):
    said = answer("train", *TINY, "--split", "official")
    test = few_rows.test
    assert said["test"]["risk"].keys() == said["test"]["accuracy"].keys() == MODELS
    assert said["test"]["majority_accuracy"] == np.mean(test.labels == -1)
    assert said["test"]["risk"] != said["risk"]


def test_what_json_cannot_say_is_null(answer):
    said = answer("train", *TINY, "--epsilon", "inf")
    assert said["epsilon"] is said["sigma"] is said["privacy"]["epsilon"] is None


def test_admm_has_no_privacy_to_speak_of(answer, cli):
    plain = ["train", "--algorithm", "admm", "--nodes", 5, "--rounds", 2, "--runs", 1]
    said = answer(*plain)
    assert not said["privacy"]["private"]
    assert [said[name] for name in ("epsilon", "delta", "sigma", "local_steps", "diameter")] == [None] * 5
    assert "NOT PRIVATE" in cli(*plain)[1]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("split", ["all", "official"])
def test_the_table_fits_and_lines_up(cli, monkeypatch, columns, split):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, err = cli("train", *TINY, "--split", split)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    found = [line for line in lines if line.split()[:1] and line.split()[0] in {*MODELS, "optimum"}]
    assert max(map(len, found)) <= columns
    tables = [found[:4]] if split == "all" else [found[:4], found[4:]]  # of test rows, no optimum
    assert [len(table) for table in tables] == ([4] if split == "all" else [4, 3])
    for first in tables:
        assert len({line.index(".") for line in first}) == 1
        assert len({line.index("±") for line in first[:3]}) == 1
        start = lines.index(first[0])
        assert lines[start : start + 3] == first[:3]  # no line of the table was wrapped
    text = " ".join(out.split())
    assert "epsilon = 1, delta = 1e-05, for one row of one site replaced by any other row" in text
    assert "exact calibration" in text
    assert "4 steps" in text


def test_quiet_says_nothing(cli):
    assert cli("train", *TINY, "--quiet") == (0, "", "")


def test_config_file_and_what_wins(answer, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('nodes = 4\nlocal-steps = 3\nrounds = 1\nruns = 1\ndiameter = 80\ngraph = "ring"\n')
    said = answer("train", "--config", file, "--nodes", 6, "--local-steps", 2)
    assert [said[name] for name in ("nodes", "local_steps", "rounds", "graph")] == [6, 2, 1, "ring"]


def test_a_file_may_leave_the_algorithm_to_the_command_line(answer, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("nodes = 4\nrounds = 1\nruns = 1\n")
    assert answer("train", "--config", file, "--algorithm", "admm")["algorithm"] == "admm"


def test_the_run_folder(answer, cli, tmp_path):
    out = tmp_path / "new" / "run"
    said = answer("train", *TINY, "--out", out)
    assert {path.name for path in out.iterdir()} == {
        "config.toml", "summary.json", "history.parquet", "models.npz", "privacy.json", "privacy.txt", "sites.parquet",
        "model.safetensors",
    }  # fmt: skip
    assert [path.name for path in out.parent.iterdir()] == ["run"]
    assert json.loads((out / "summary.json").read_text()) == said
    assert json.loads((out / "privacy.json").read_text()) == said["privacy"]
    assert " ".join((out / "privacy.txt").read_text().split()) == said["privacy"]["prose"]
    history = parquet.read_table(out / "history.parquet").to_pydict()
    assert tuple(history) == COLUMNS
    assert history["round"] == [1, 1, 2, 2]
    assert np.mean(history["risk_last"][-2:]) == said["risk"]["last"]
    assert math.isclose(history["epsilon"][-1], 1.0)
    with np.load(out / "models.npz", allow_pickle=False) as models:
        assert models["average"].shape == models["last"].shape == (2, 5, 104)
        assert models["consensus"].shape == (2, 104)
    again = answer("train", "--config", out / "config.toml")
    assert again["risk"] == said["risk"]


def test_rounds_are_scored_that_somebody_sees(answer, tmp_path, monkeypatch):
    """The last one; those before it for files, and for the times of a network. The figures stay the same."""
    scored, real = [], engine.measure
    monkeypatch.setattr(engine, "measure", lambda *rest: scored.append(rest) or real(*rest))
    shown = answer("train", *TINY)
    assert len(scored) == 1
    for seen in (["--out", tmp_path / "run"], ["--network", "latency=50ms,bandwidth=10Mbit"]):
        scored.clear()
        assert answer("train", *TINY, *seen)["risk"] == shown["risk"]
        assert len(scored) == 2


def test_an_empty_folder_may_be_filled(cli, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    assert cli("train", *TINY, "--out", out, "--quiet") == (0, "", "")
    assert (out / "summary.json").exists()


def test_no_folder_unless_asked(answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer("train", *TINY)
    assert list(tmp_path.iterdir()) == []


def test_in_a_process_of_its_own(tmp_path):
    command = [sys.executable, "-m", "sottovoce.cli", "train", *TINY, "--runs", "1", "--json", "--out", "run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["nodes"] == 5
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_help_does_not_wait_for_the_library():
    heavy = "{'numpy', 'numba', 'scipy', 'networkx', 'dp_accounting', 'asyncio'} & {*sys.modules}"
    code = f"import sys; from sottovoce.cli import main; main(['--help']); sys.exit(bool({heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("argv", "expected"), [("", (True, True)), ("['--version']", (False, False))])
def test_garbage_is_looked_for_seldom_by_a_process_that_is_ours_alone(argv, expected):
    # Registered first, it is called last: when all has been done that is done at the end.
    code = f"""
import atexit, gc, sys
before = gc.get_threshold()
atexit.register(lambda: print((gc.get_threshold()[0] > before[0], gc.get_freeze_count() > 0)))
sys.argv = ['sottovoce', '--version']
from sottovoce.cli import main
main({argv})
assert gc.isenabled() and gc.get_threshold()[1:] == before[1:]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(expected)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other rules")
def test_memory_is_kept_by_a_process_that_is_ours_alone():
    # Ten arrays of 2 MB at a time, again and again: given back and fetched anew, each has 500 pages.
    code = """
import sys, resource
sys.argv = ['sottovoce', '--version']
from sottovoce.cli import main
main()
import numpy as np
def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.zeros(250_000) + 1 for _ in range(10)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
pages(), pages()
print(min(pages() for _ in range(5)) < 1000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"


def test_training_does_not_wait_for_what_it_does_not_use():
    heavy = "{'scipy.stats', 'matplotlib', 'pandas', 'sklearn', 'dp_accounting', 'networkx'} & {*sys.modules}"
    code = f"import sys, sottovoce.studies.run; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.parametrize(
    ("before", "said", "expected"), [("", {}, "1"), ("", {_BLAS: "3"}, "3"), ("numpy", {}, "None")]
)
def test_linear_algebra_takes_one_thread_unless_somebody_says_otherwise(before, said, expected):
    # With NumPy loaded the variable would be read no more, and only mislead who reads it.
    load = f"import {before}; " if before else ""
    code = f"import os; {load}from sottovoce.cli import main; main(['--version']); print(os.environ.get('{_BLAS}'))"
    env = {name: value for name, value in os.environ.items() if name != _BLAS} | said
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines()[-1] == expected


def test_help_shows_the_librarys_defaults(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = cli("train", "--help")
    assert (code, err) == (0, "")
    for text in ("[default: 1e-05]", "[default: monotone]", "random-regular", "elastic-net", "Default: planned"):
        assert text in out
    # Showing them must not make them look given.
    assert cli("train", "--algorithm", "admm", "--nodes", 3, "--rounds", 1, "--runs", 1, "--quiet")[0] == 0


def test_version_and_bare_command(cli):
    assert cli("--version") == (0, f"sottovoce {version('sottovoce')}\n", "")
    code, out, _ = cli()
    assert code == 0
    assert "train" in out
    assert "account" in out
