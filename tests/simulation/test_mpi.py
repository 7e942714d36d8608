"""A run that is spread over processes comes out as in one, to the last bit; and if one of them fails, all end."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sottovoce as sv
from simulation import spread_runs
from sottovoce.cli import main, ranks
from sottovoce.oracle.plain import DOUBLE, Oracle
from sottovoce.problem.problem import Problem
from sottovoce.problem.share import MOST_BLOCKS, Share, block_size, block_starts, share_bounds
from sottovoce.simulation import mpi
from sottovoce.simulation.engine import solve

SCRIPT = Path(spread_runs.__file__)
LIMIT = 240  # seconds: most of it is imports, on machines that have other things to do


def mpirun(processes, *arguments):
    pytest.importorskip("mpi4py.MPI", reason="needs mpi4py and an MPI library: pip install 'sottovoce[mpi]'")
    source = str(Path(sv.__file__).parents[1])
    command = [*ranks.launcher(processes), sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False, env=os.environ | {"PYTHONPATH": source}
    )


def test_one_to_four_processes_find_what_one_finds(tmp_path):
    expected = {name: spread_runs.alone(case) for name, case in spread_runs.cases().items()}
    done = mpirun(4, tmp_path / "found.npz")
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    for processes in (1, 2, 3, 4):
        for name in spread_runs.shared_by(processes):
            for key, value in expected[name].items():
                came = found[f"{processes}/{name}/{key}"]
                np.testing.assert_array_equal(came, value, err_msg=f"{processes} processes, {name}: {key}", strict=True)
    assert {name.split("/")[1] for name in found.files if "/" in name} == set(expected)
    # Of private rows noise comes from the system. That of a sum is one for all processes; that of nodes is their own.
    (summed,), (own,) = found["private masked"], found["private own"]
    assert np.all(summed == summed[0])
    assert len(np.unique(own, axis=0)) == len(own) == 8
    # Where processes were given different things, all of them refuse alike, and nothing is charged.
    disagreements = list(spread_runs.disagreements(0))
    assert {name.removeprefix("refused ") for name in found.files if name.startswith("refused ")} == set(disagreements)
    for name in disagreements:
        (told,) = set(found[f"refused {name}"].tolist())
        assert re.match(
            f"Expected the same run in every process, got another .*{name.removeprefix('other ')}.* in process 1 than "
            "in process 0. Give all of them the same options, and every machine the same files and the same software.$",
            told,
        ), name


def test_one_process_that_fails_ends_all_with_one_message():
    done = mpirun(3, "fail")
    assert done.returncode == 2
    assert done.stderr.count("sottovoce: error: Expected a disk, got none. Buy one.") == 1
    assert "Traceback" not in done.stderr


def test_the_command_line_starts_processes_and_says_the_same(capfd, monkeypatch):
    pytest.importorskip("mpi4py.MPI", reason="needs mpi4py and an MPI library: pip install 'sottovoce[mpi]'")
    monkeypatch.setenv("PYTHONPATH", str(Path(sv.__file__).parents[1]))
    options = ["--nodes", "7", "--graph", "ring", "--rounds", "2", "--local-steps", "2", "--rho", "0.01", "--runs", "2"]
    options = ["train", *options, "--diameter", "50", "--seed", "4", "--record", "1", "--no-yardstick", "--json"]
    told = []
    for more in ([], ["--engine", "mpi", "--ranks", "2"]):
        assert main([*options, *more]) == 0
        out, err = capfd.readouterr()
        assert err == ""
        told.append({key: value for key, value in json.loads(out).items() if not key.startswith("seconds")})
    assert told[0] == told[1]


# -- without any process --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 9, MOST_BLOCKS, MOST_BLOCKS + 1, 1000, 10**6])
def test_shares_are_whole_blocks_that_cover_all_nodes(n):
    starts = block_starts(n, n)
    assert starts[0] == 0
    assert starts[-1] == n
    assert len(starts) - 1 <= MOST_BLOCKS
    assert set(np.diff(starts)[:-1]) <= {block_size(n)}
    for processes in {1, 2, 3, len(starts) - 1} & set(range(1, len(starts))):
        bounds = share_bounds(n, processes)
        assert set(bounds.tolist()) <= set(starts.tolist())
        assert np.all(np.diff(bounds) > 0)
        share = Share.of(np.ones(n, dtype=np.int64), processes - 1, processes)
        assert (share.last, share.nodes) == (n, n - int(bounds[-2]))
    with pytest.raises(sv.InputError, match=f"1 to {len(starts) - 1} processes for a network of {n} nodes, got ranks="):
        share_bounds(n, len(starts))


def test_a_row_is_named_as_one_process_names_it():
    held = spread_runs.sites((3, 4, 5))
    held.labels[9] = 0.5
    algorithm, problem = sv.IPADMM(rounds=1), Problem(held, sv.graphs.ring(3))
    parts = [(problem.sites,)] + [(part.sites, part.share) for part in (problem.part(1, 2), problem.part(2, 3))]
    for sites, *share in parts:
        with pytest.raises(sv.InputError, match=r"labels -1 or \+1 .* got another in row=9\."):
            algorithm.oracle(sites, problem.graph, Oracle, DOUBLE, *share, *(sum for _ in share))


def test_sites_of_another_process_are_refused(monkeypatch):
    monkeypatch.setattr(mpi, "joined", lambda: SimpleNamespace(rank=1, size=2))
    first = Problem(spread_runs.sites((3, 4, 5, 6)), sv.graphs.ring(4)).part(0, 2)
    with pytest.raises(sv.InputError, match="sites 2 to 3 in process 1 of 2, got first=0, last=1"):
        solve(first, sv.IPADMM(rounds=1), engine="mpi")


def test_rows_of_others_are_counted_and_never_read():
    held = spread_runs.sites((3, 4)).elsewhere(np.array([3, 4, 5]))
    assert held.counts.tolist() == [3, 4, 5]
    assert held.part(1, 3).counts.tolist() == [4, 5]
    with pytest.raises(sv.InputError, match="rows that are held here, got nodes=3"):
        held.rows.norms()


def test_options_are_handed_on_as_they_were_given():
    given = {"nodes": "7", "graph_degree": None, "inference": False, "json": True, "out": Path("a b")}
    assert ranks.options(given) == ["--nodes", "7", "--no-inference", "--json", "--out", "a b"]


def test_what_the_launcher_frames_is_kept_back(capsys):
    rule = 74 * "-"
    lines = ["sottovoce: error: one\n", f"{rule}\n", "MPI_ABORT was invoked\n", f"{rule}\n", "\n"]
    assert ranks.relayed(lines, sys.stdout) == (True, ["MPI_ABORT was invoked"])
    assert capsys.readouterr().out == "sottovoce: error: one\n"
    assert ranks.relayed(lines[1:], sys.stdout) == (False, ["MPI_ABORT was invoked"])


def test_whoever_ends_the_command_ends_the_launcher(capfd, monkeypatch, tmp_path):
    begun = tmp_path / "begun"
    launcher = f"import os, time; open({str(begun)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    monkeypatch.setattr(ranks, "launcher", lambda _ranks: [sys.executable, "-c", launcher])

    def kill():
        while not (begun.exists() and begun.read_text()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=kill, daemon=True).start()
    assert main(["train", "--engine", "mpi", "--ranks", "2"]) == 130
    assert "sottovoce: interrupted; all processes were ended, and nothing is kept." in capfd.readouterr().err
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


def test_without_mpi4py_it_is_said_how_to_install_it(capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    mpi.world.cache_clear()
    assert main(["train", "--nodes", "3", "--engine", "mpi"]) == 2
    said = capfd.readouterr().err
    assert said.startswith("sottovoce: error: Expected mpi4py and an MPI library for engine='mpi', got: ")
    assert said.endswith("Install them with: pip install 'sottovoce[mpi]'\n")


@pytest.mark.parametrize(("options", "words"), [
    (["--ranks", "2"], "engine='mpi' with --ranks"),
    (["--engine", "mpi", "--ranks", "0"], "1 to 3 processes for a network of 3 nodes, got ranks=0"),
    (["--engine", "mpi", "--ranks", "500"], "1 to 3 processes for a network of 3 nodes, got ranks=500"),
    (["--engine", "cluster"], "engine"),
])  # fmt: skip
def test_refused(capfd, options, words):
    assert main(["train", "--nodes", "3", *options]) == 2
    assert words in capfd.readouterr().err
