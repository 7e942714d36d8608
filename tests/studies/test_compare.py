from pathlib import Path

import pytest
from pyarrow import parquet

import sottovoce as sv
from sottovoce.studies import measured
from sottovoce.studies.cells import ProblemSpec, cell

EXAMPLE = Path(__file__).parents[2] / "docs" / "how-to" / "compare.toml"
SMALL = """
every = 100
nodes = 4
rounds = 3
runs = 2
tuning_runs = 1
"""


def file(tmp_path, text):
    path = tmp_path / "own.toml"
    path.write_text(SMALL + text)
    return path


def test_the_documented_example_runs(cli, tmp_path):
    code, out, err = cli("compare", EXAMPLE, "--out", tmp_path / "report")
    assert (code, err) == (0, "")
    assert "tuned" in out
    assert {path.name for path in (tmp_path / "report" / "figures").iterdir()} == {
        "compare.svg", "compare.png", "rounds.svg", "rounds.png",
    }  # fmt: skip
    results = parquet.read_table(tmp_path / "report" / "results.parquet").to_pylist()
    shown = [line for line in results if line["panel"] == "compare"]
    assert len({(line["facet"], line["series"], line["x"]) for line in shown}) == 2 * 3 * 4
    assert all(0.5 < line["test_accuracy_consensus"] < 1 for line in shown)
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "not private" in page
    assert "diameter" in page


def test_one_epsilon_shows_graphs_side_by_side(cli, tmp_path, monkeypatch):
    config = file(tmp_path, 'graphs = ["ring", "complete"]\n[[algorithm]]\nname = "ipadmm"\n')
    assert cli("compare", config, "--out", tmp_path / "report", "--quiet") == (0, "", "")
    monkeypatch.setattr(measured, "run", lambda *_: pytest.fail("computed again"))
    assert cli("compare", config, "--out", tmp_path / "report", "--quiet") == (0, "", "")


WRONG = {
    "no algorithm": ("", "got no algorithm"),
    "unknown algorithm": ('[[algorithm]]\nname = "ipadm"\n', "'ipadm'. Did you mean 'ipadmm'?"),
    "no name": ('[[algorithm]]\nlabel = "x"\n', "keys of algorithm[1] in full, got no name"),
    "unknown key": ('epsilon = 1\n[[algorithm]]\nname = "admm"\n', "Did you mean epsilons?"),
    "unknown key of an algorithm": ('[[algorithm]]\nname = "admm"\ngird = {}\n', "Did you mean grid?"),
    "unknown setting": ('[[algorithm]]\nname = "ipadmm"\nsettings = { diamter = 3 }\n', "Did you mean diameter?"),
    "unknown setting in a grid": ('[[algorithm]]\nname = "ipadmm"\ngrid = { foo = [1] }\n', "'foo'"),
    "bad value": ('[[algorithm]]\nname = "ipadmm"\nsettings = { diameter = -1 }\n', "diameter"),
    "bad value in a grid": ('[[algorithm]]\nname = "ipadmm"\ngrid = { diameter = [1, -1] }\n', "diameter"),
    "grid without a list": ('[[algorithm]]\nname = "ipadmm"\ngrid = { diameter = 3 }\n', "a list for algorithm.ipadmm"),
    "unknown form": ('[[algorithm]]\nname = "ipadmm"\nform = "fare"\n', "form='fare'"),
    "form of a baseline": ('[[algorithm]]\nname = "admm"\nform = "published"\n', "form='published'"),
    "same label twice": ('[[algorithm]]\nname = "admm"\n[[algorithm]]\nname = "admm"\n', "label"),
    "unknown graph": ('graphs = ["rign"]\n[[algorithm]]\nname = "admm"\n', "Did you mean 'ring'?"),
    "option of another graph": ('graphs = [{name = "ring", degree = 3}]\n[[algorithm]]\nname = "admm"\n', "degree"),
    "unknown data set": ('dataset = "iris"\n[[algorithm]]\nname = "admm"\n', "dataset='iris'"),
    "unknown partition": ('partition = "evn"\n[[algorithm]]\nname = "admm"\n', "'evn'"),
    "epsilon zero": ('epsilons = [0]\n[[algorithm]]\nname = "admm"\n', "epsilons"),
    "epsilon no list": ('epsilons = 1\n[[algorithm]]\nname = "admm"\n', "epsilons"),
    "text for a number": ('rho = "x"\n[[algorithm]]\nname = "admm"\n', "rho='x'"),
    "half a seed": ('seed = 0.5\n[[algorithm]]\nname = "admm"\n', "seed=0.5"),
    "malformed": ("epsilons = = 1\n", "TOML"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "told"), WRONG.values(), ids=WRONG.keys())
def test_bad_files_are_refused(cli, tmp_path, monkeypatch, text, told):
    config = file(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    code, out, err = cli("compare", config.name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert "own.toml" in err
    assert [path.name for path in tmp_path.iterdir()] == ["own.toml"]


def test_no_such_file(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("compare", "none.toml")
    assert (code, err.count("\n")) == (2, 1)
    assert "none.toml" in err


def test_masked_sums_take_their_own_number_of_exchanges_unless_told():
    spec, common = ProblemSpec(nodes=9, every=20), {"rounds": 100, "epsilon": 1.0, "delta": 1e-5}
    rows, features, nodes = spec.shape()
    assert (features, nodes) == (104, 9)
    assert 0 <= rows - len(spec.build().sites.labels) < nodes  # an even deal leaves some out
    own = cell("masked", spec, common, runs=2, seed=0)
    assert own.rounds == sv.MaskedNewton(epsilon=1.0).exchanges(rows, features, nodes) < 20
    assert cell("masked", spec, common, {"rounds": 4}, runs=2, seed=0).rounds == 4
    assert cell("ipadmm", spec, common, runs=2, seed=0).rounds == 100
