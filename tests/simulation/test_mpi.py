"""A run that is spread over processes comes out as in one, to the last bit; and if one of them fails, all end."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sottovoce as sv
from simulation import spread_runs
from sottovoce.cli import main
from sottovoce.oracle.loss_sums import DOUBLE
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.problem import Problem
from sottovoce.problem.share import MOST_BLOCKS, Share, block_size, block_starts, share_bounds
from sottovoce.simulation import mpi
from sottovoce.simulation.engine import solve

SCRIPT = Path(spread_runs.__file__)
LIMIT = 240  # seconds: most of it is imports, on machines that have other things to do


def mpirun(processes, *arguments):
    pytest.importorskip("mpi4py.MPI", reason="needs mpi4py and an MPI library: pip install 'sottovoce[mpi]'")
    source = str(Path(sv.__file__).parents[1])
    found = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    # More processes than cores are fine: those that wait let others work. Open MPI refuses root unless it is told.
    own = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "--allow-run-as-root"]
    command = [found, *own, "-n", str(processes), sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False, env=os.environ | {"PYTHONPATH": source}
    )


def test_one_to_four_processes_find_what_one_finds(tmp_path):
    expected = {name: spread_runs.alone(case) for name, case in spread_runs.cases().items()}
    done = mpirun(4, SCRIPT, tmp_path / "found.npz")
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
    done = mpirun(3, SCRIPT, "fail")
    assert done.returncode == 2
    assert done.stderr.count("sottovoce: error: Expected a disk, got none. Buy one.") == 1
    assert "Traceback" not in done.stderr


def test_the_command_line_says_the_same_under_mpirun(capfd):
    options = ["--nodes", "7", "--graph", "ring", "--rounds", "2", "--local-steps", "2", "--rho", "0.01", "--runs", "2"]
    options = ["train", *options, "--diameter", "50", "--seed", "4", "--record", "1", "--no-yardstick", "--json"]
    done = mpirun(2, "-m", "sottovoce.cli", *options, "--engine", "mpi")
    assert (done.returncode, done.stderr) == (0, "")
    assert main(options) == 0
    told = [json.loads(out) for out in (done.stdout, capfd.readouterr().out)]
    alike = [{key: value for key, value in one.items() if not key.startswith("seconds")} for one in told]
    assert alike[0] == alike[1]


def test_processes_deal_private_rows_alike(tmp_path):
    """Each reads the file and deals it out by the key of the first: rows that differed would be refused."""
    (tmp_path / "rows.csv").write_text("age,ill\n" + "".join(f"{i},{'yes' if i % 3 else 'no'}\n" for i in range(90)))
    columns = '[[columns]]\nname = "age"\nkind = "numeric"\nbounds = [0, 100]\nscale = "unit"\n'
    (tmp_path / "schema.toml").write_text(f'[label]\ncolumn = "ill"\nclasses = ["no", "yes"]\n{columns}')
    given = ["train", "--data", str(tmp_path / "rows.csv"), "--schema", str(tmp_path / "schema.toml"), "--nodes", "4"]
    steps = ["--rounds", "2", "--local-steps", "2", "--rho", "0.01", "--diameter", "5", "--weights", "equal"]
    done = mpirun(2, "-m", "sottovoce.cli", *given, *steps, "--epsilon", "5", "--json", "--engine", "mpi")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == 4


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
    with pytest.raises(sv.InputError, match="rows that this process holds, got nodes=3"):
        held.rows.norms()


def test_without_mpi4py_it_is_said_how_to_install_it(capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    mpi.world.cache_clear()
    assert main(["train", "--nodes", "3", "--engine", "mpi"]) == 2
    said = capfd.readouterr().err
    assert said.startswith("sottovoce: error: Expected mpi4py and an MPI library for engine='mpi', got: ")
    assert said.endswith("Install them with: pip install 'sottovoce[mpi]'\n")


def test_an_unknown_engine_is_refused(capfd):
    assert main(["train", "--nodes", "3", "--engine", "cluster"]) == 2
    assert "engine" in capfd.readouterr().err
