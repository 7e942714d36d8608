"""Whatever is wrong with the input: one line on stderr, exit code 2, nothing written."""

import builtins
import os
import sys

import pytest

from cli.conftest import TINY
from sottovoce.studies import folder, run

WRONG = {
    "not a number": (["train", "--epsilon", "nan"], "epsilon=nan"),
    "nan delta": (["train", "--delta", "nan"], "delta=nan"),
    "nan rho": (["train", "--rho", "nan"], "rho=nan"),
    "text for a number": (["train", "--epsilon", "one"], "a number for --epsilon, got 'one'"),
    "half a node": (["train", "--nodes", "2.5"], "a whole number for --nodes, got '2.5'"),
    "epsilon zero": (["train", "--epsilon", "0"], "epsilon > 0, got epsilon=0.0"),
    "epsilon negative": (["train", "--epsilon", "-1"], "epsilon=-1.0"),
    "delta one": (["train", "--delta", "1"], "delta=1.0"),
    "no rounds": (["train", "--rounds", "0"], "rounds=0"),
    "no runs": (["train", "--runs", "0"], "runs=0"),
    "no nodes": (["train", "--nodes", "0"], "nodes=0"),
    "no record": (["train", "--record", "0"], "record=0"),
    "negative seed": (["train", "--seed", "-1"], "seed=-1"),
    "infinite diameter": (["train", "--diameter", "inf"], "diameter=inf"),
    "negative clipping norm": (["train", "--max-grad-norm", "-1"], "max_grad_norm=-1.0"),
    "unknown option": (["train", "--epsilom", "1"], "--epsilon"),
    "option without value": (["train", "--epsilon"], "--epsilon"),
    "stray argument": (["train", "adult"], "adult"),
    "unknown command": (["trian"], "trian"),
    "unknown graph": (["train", "--graph", "rign"], "graph='rign'. Did you mean 'ring'?"),
    "unknown data set": (["train", "--dataset", "adlut"], "Did you mean 'adult'?"),
    "unknown algorithm": (["train", "--algorithm", "sgd"], "hazards, got algorithm='sgd'"),
    "unknown loss": (["train", "--loss", "logistik"], "Did you mean 'logistic'?"),
    "a loss for numbers": (["train", "--loss", "huber"], "for a label of two classes, got loss='huber'"),
    "unknown regulariser": (["train", "--regulariser", "l3"], "regulariser='l3'"),
    "unknown split": (["train", "--split", "half"], "split='half'"),
    "unknown schedule": (["train", "--schedule", "slow"], "schedule='slow'"),
    "unknown calibration": (["train", "--calibration", "exakt"], "Did you mean 'exact'?"),
    "unknown column": (["train", "--partition", "column", "--partition-column", "colour"], "colour"),
    "column not named": (["train", "--partition", "column"], "--partition-column"),
    "alpha of nothing": (["train", "--partition-alpha", "0.1"], "alpha"),
    "degree of a ring": (["train", "--graph", "ring", "--graph-degree", "4"], "degree"),
    "sampling without batch": (["train", "--sampling", "poisson"], "batch_size"),
    "more nodes than rows": (["train", "--nodes", "1000"], "nodes=1000"),
    "epsilon without privacy": (["train", "--algorithm", "admm", "--epsilon", "1"], "epsilon=1.0"),
    "paper's noise too small": (["train", *TINY, "--calibration", "paper", "--epsilon", "50"], "calibration='exact'"),
    "solver that needs a smooth loss": (
        ["train", "--algorithm", "admm", "--loss", "hinge", "--device", "plain"],
        "hinge",
    ),
    "no such config": (["train", "--config", "none.toml"], "none.toml"),
    "config is a folder": (["train", "--config", "."], "config='.'"),
    "malformed config": (["train", "--config", "malformed.toml"], "malformed.toml"),
    "config not text": (["train", "--config", "binary.toml"], "binary.toml"),
    "unknown key": (["train", "--config", "unknown.toml"], "'epsilom'. Did you mean epsilon?"),
    "key given twice": (["train", "--config", "twice.toml"], "once"),
    "key for the command line": (["train", "--config", "out.toml"], "--out on the command line"),
    "wrong type in config": (["train", "--config", "type.toml"], "nodes='five'"),
    "truth for a number": (["train", "--config", "truth.toml"], "nodes=True"),
    "table in config": (["train", "--config", "table.toml"], "graph={'degree': 3}"),
    "nan in config": (["train", "--config", "nan.toml"], "lam=nan"),
    "number too large": (["train", "--config", "large.toml"], "lam"),
    "folder not empty": (["train", *TINY, "--out", "full"], "full"),
    "folder is a file": (["train", *TINY, "--out", "nan.toml"], "file"),
    "folder under a file": (["train", *TINY, "--out", "nan.toml/run"], "run"),
    "nothing to account": (["account"], "got none"),
    "one of three": (["account", "--sigma", "2"], "got sigma=2.0"),
    "account nan": (["account", "--epsilon", "nan", "--steps", "1"], "epsilon=nan"),
    "account no steps": (["account", "--sigma", "1", "--steps", "0"], "steps=0"),
    "account no noise": (["account", "--sigma", "0", "--steps", "1"], "sigma=0.0"),
    "account delta": (["account", "--sigma", "1", "--steps", "1", "--delta", "2"], "delta=2.0"),
    "account half a batch": (["account", "--sigma", "1", "--steps", "1", "--rows", "9"], "--batch-size"),
    "account calibration": (["account", "--sigma", "1", "--steps", "1", "--calibration", "paper"], "Leave it out"),
    "account scheme": (
        ["account", "--sigma", "1", "--steps", "1", "--rows", "9", "--batch-size", "3", "--sampling", "x"], "'x'",
    ),
}  # fmt: skip

FILES = {
    "malformed.toml": b"nodes = = 3\n",
    "binary.toml": b"nodes = \xff\xfe\n",
    "twice.toml": b"local-steps = 1\nlocal_steps = 2\n",
    "unknown.toml": b"epsilom = 1\n",
    "out.toml": b'out = "here"\n',
    "type.toml": b'nodes = "five"\n',
    "truth.toml": b"nodes = true\n",
    "table.toml": b"[graph]\ndegree = 3\n",
    "nan.toml": b"lam = nan\n",
    "large.toml": b"lam = 1" + 400 * b"0" + b"\n",
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("precious")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listing(folder):
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize(("argv", "told"), WRONG.values(), ids=WRONG.keys())
def test_one_line_and_nothing_written(cli, place, argv, told):
    before = listing(place)
    if argv[0] == "train" and "--out" not in argv:
        argv = [*argv, "--out", "run"] if argv[-1] != "--epsilon" else argv
    code, out, err = cli(*argv)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("sottovoce: error: ")
    assert told in err
    assert "Traceback" not in err
    assert listing(place) == before


def test_a_full_folder_is_refused_before_any_work(cli, place, monkeypatch):
    monkeypatch.setattr(run, "train", lambda *_: pytest.fail("worked"))
    assert cli("train", *TINY, "--out", "full")[0] == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written(cli, place):  # pragma: no cover
    (place / "full").chmod(0o500)
    assert cli("train", *TINY, "--out", "full/run")[0] == 2


def test_a_system_that_will_not_write(cli, place, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder.Path, "mkdir", refuse)
    code, _, err = cli("train", *TINY, "--out", "run")
    assert code == 2
    assert "Permission denied" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_interrupted_while_learning(cli, place, monkeypatch, json):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    before = listing(place)
    monkeypatch.setattr(run, "solve", interrupt)
    code, out, err = cli("train", *TINY, "--out", "new/run", *json)
    assert (code, out, err) == (130, "", "sottovoce: interrupted; an unfinished run writes nothing\n")
    assert listing(place) == before


@pytest.mark.parametrize(("trouble", "code"), [(KeyboardInterrupt(), 130), (OSError(28, "No space left"), 2)])
def test_trouble_while_writing_leaves_nothing(cli, place, monkeypatch, trouble, code):
    def fail(*_, **__):
        raise trouble

    before = listing(place)
    monkeypatch.setattr(folder.np, "savez_compressed", fail)
    came, out, err = cli("train", *TINY, "--out", "new/deep/run")
    assert (came, out, err.count("\n")) == (code, "", 1)
    assert listing(place) == before


def test_too_large_for_memory(cli, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(run, "solve", fail)
    code, _, err = cli("train", *TINY)
    assert (code, err.count("\n")) == (2, 1)


@pytest.mark.parametrize("missing", ["typer", "pyarrow"])
def test_without_the_extra(cli, place, monkeypatch, missing):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.split(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    if missing == "pyarrow":
        monkeypatch.delitem(sys.modules, "sottovoce.studies.folder")
        monkeypatch.delattr("sottovoce.studies.folder")
    code, out, err = cli("train", *TINY, "--out", "run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "pip install 'sottovoce[cli]'" in err


def test_a_bug_is_not_hidden(cli, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(run, "solve", fail)
    with pytest.raises(ZeroDivisionError):
        cli("train", *TINY)
