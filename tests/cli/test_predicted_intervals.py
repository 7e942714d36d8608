"""`train --inference` says what to expect before anything is spent, and asks where that is nothing."""

import io
import json

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("few_tables")
SCHEMA = """
version = 1
[label]
column = "ill"
classes = ["no", "yes"]
[[columns]]
name = "smoker"
kind = "boolean"
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def asked(tmp_path):
    """The options of a run on 4,000 rows, and the budget that would be charged."""
    rng = np.random.default_rng(0)
    lines = ["smoker,ill", *(f"{rng.choice(['yes', 'no'])},{rng.choice(['yes', 'no'])}" for _ in range(4000))]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return ["train", "--data", tmp_path / "rows.csv", "--schema", tmp_path / "schema.toml", "--nodes", 1,
            "--inference", "--delta", 1e-6, "--budget", tmp_path / "budget.json"], tmp_path / "budget.json"  # fmt: skip


@pytest.fixture
def spent(asked, cli):
    """What the budget has been charged."""
    assert cli("budget", "new", asked[1], "--epsilon", 20, "--delta", 1e-4)[0] == 0
    return lambda: json.loads(cli("budget", "show", asked[1], "--json")[1])["spent"]


def test_it_says_what_to_expect(asked, spent, cli):
    code, _, err = cli(*asked[0], "--epsilon", 15)
    assert code == 0
    assert "Predicted at epsilon 15 with 4,000 rows: the 95 % interval tells an odds ratio of 3 from 1 for 1" in err
    assert "sottovoce plan --inference" in err


def test_a_script_is_refused_where_nothing_will_come_of_it(asked, spent, cli):
    for quiet in ((), ("--quiet",), ("--json",)):
        code, _, err = cli(*asked[0], "--epsilon", 0.02, *quiet)
        assert code == 2
        assert "Expected intervals that say something, got none." in err
        assert "Until the first coefficient does, it would take about" in err
        assert "use --force" in err
    assert spent() == 0
    assert cli(*asked[0], "--epsilon", 0.02, "--force")[0] == 0
    assert spent() > 0


@pytest.mark.parametrize(("answer", "code"), [("n", 130), ("", 130), ("y", 0)])
def test_a_person_is_asked(asked, spent, cli, monkeypatch, answer, code):
    monkeypatch.setattr("sys.stdin", Terminal(answer and f"{answer}\n"))
    came, _, err = cli(*asked[0], "--epsilon", 0.02)
    assert came == code
    assert "Train all the same?" in err
    assert (spent() > 0) == (code == 0)
    if answer == "n":
        assert "not trained; nothing was spent" in err
