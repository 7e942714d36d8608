"""`sottovoce plan`, as a command of its own."""

import json
import math

import pytest
import typer
from typer.testing import CliRunner

from sottovoce.cli import forecast
from sottovoce.cli.plan import plan
from sottovoce.errors import InputError
from sottovoce.plan import plan as planned
from sottovoce.privacy.strength import default_delta
from sottovoce.problem import graphs

pytestmark = pytest.mark.usefixtures("few_tables")
APP = typer.Typer()
APP.command()(plan)
SHAPE = ["--sizes", "60,80,70", "--features", "4", "--max-rounds", "5", "--quiet"]


def run(*arguments):
    return CliRunner().invoke(APP, list(arguments))


def test_json_and_plot(tmp_path):
    drawn = tmp_path / "risk.svg"
    found = json.loads(run(*SHAPE, "--json", "--plot", str(drawn)).stdout)
    assert found["settings"]["rounds"] <= 5
    assert len(found["trade_off"]) == 6
    assert "--algorithm masked --nodes 3 --epsilon 1 --delta 1e-05" in found["train"]
    assert "--diameter" not in found["train"]
    assert "<svg" in drawn.read_text(encoding="utf-8")


@pytest.mark.parametrize(("rows", "delta"), [(300, "1e-05"), (30_000, "1e-07")])
def test_delta_is_what_train_takes_by_default(rows, delta):
    assert default_delta(3 * rows) == float(delta)
    shape = ["--sites", "3", "--rows", str(rows), "--features", "2", "--max-rounds", "2", "--quiet", "--json"]
    assert f"--delta {delta}" in json.loads(run(*shape).stdout)["train"]


def test_tables():
    shown = run(*SHAPE).stdout
    assert "local steps" in shown
    assert "Joining" in shown
    first, second = (line for line in shown.splitlines() if line.startswith("sottovoce train"))
    assert first.startswith("sottovoce train --algorithm masked --nodes 3")  # the default first
    assert second.startswith("sottovoce train --algorithm ipadmm --nodes 3")
    assert "--graph complete --rounds" in second


@pytest.mark.parametrize("fixed", [{}, {"moments": 0.0}])
def test_a_head_start_is_shown_and_handed_on(capsys, fixed):
    made = planned(sizes=[9_000] * 3, d=2, graph=graphs.complete(3), epsilon=1.0, max_rounds=2, fixed=fixed)
    forecast.show_settings(made)
    assert ("moments" in capsys.readouterr().out) == (not fixed)
    assert ("--sensitivity tight --moments 0.1" in forecast.train_options(made, "local")) == (not fixed)
    assert "moments" not in forecast.train_options(made, "masked")


def test_row_weights_leave_no_head_start(tmp_path):
    schema = tmp_path / "schema.toml"
    column = '[[columns]]\nname = "x"\nkind = "numeric"\nbounds = [0, 1]\nscale = "symmetric"\n'
    text = f'version = 1\n[label]\ncolumn = "ill"\nclasses = ["no", "yes"]\n{column}[weight]\ncolumn = "w"\nbound = 3\n'
    schema.write_text(text, encoding="utf-8")
    shape = ["--sites", "3", "--rows", "9000", "--max-rounds", "1", "--quiet", "--json", "--schema", str(schema)]
    assert json.loads(run(*shape).stdout)["settings"]["moments"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--features", "4"], "--sites and --rows, or --sizes"),
        (["--sites", "3", "--rows", "10"], "--features, --schema or --stand-in"),
        (["--sizes", "1,x", "--features", "4"], "got sizes='1,x'"),
        ([*SHAPE, "--loss", "softmax"], "--classes with loss='softmax'"),
        ([*SHAPE, "--base-rate", "rare"], "got base_rate='rare'"),
        (["--sizes", "1,2", "--sites", "2", "--features", "4"], "either --sizes or --sites"),
        (["--sites", "0", "--rows", "1", "--features", "4"], "at least one site"),
        (["--sites", "3", "--rows", "10", "--stand-in", "iris"], "a stand-in among adult, bank, got stand_in='iris'"),
        (["--sites", "3", "--rows", "10", "--stand-in", "bank", "--features", "4"], "a stand-in with d=4 columns"),
    ],
)
def test_refusals(arguments, message):
    error = run(*arguments).exception
    assert isinstance(error, InputError)
    assert message in str(error)


TWO = 'version = 1\n[label]\ncolumn = "y"\nclasses = ["a", "b"]\n[[columns]]\nname = "x"\nkind = "boolean"\n'


@pytest.mark.parametrize(
    ("label", "arguments", "message"),
    [
        ('classes = ["a", "b"]', ["--loss", "huber"], "for a label of two classes, got loss='huber'"),
        ('classes = ["a", "b"]', ["--threshold", "0.2"], "for a label of two classes, got loss='huber'"),
        ('classes = ["a", "b"]', ["--classes", "3"], "for a label of two classes, got loss='softmax'"),
        ('classes = ["a", "b", "c"]', ["--classes", "4"], "--classes 3, as in the schema, got classes=4"),
        ("bounds = [0, 1]", ["--classes", "3"], "for a label that is a number, got loss='softmax'"),
        ("bounds = [0, 1]", ["--loss", "logistic"], "for a label that is a number, got loss='logistic'"),
        ("bounds = [0, 9]\ncounts = true", ["--threshold", "0.2"], "for a label that counts, got loss='huber'"),
    ],
)
def test_a_loss_that_does_not_go_with_the_schemas_label_is_refused(tmp_path, label, arguments, message):
    (tmp_path / "schema.toml").write_text(TWO.replace('classes = ["a", "b"]', label))
    error = run("--sizes", "60,80", "--schema", str(tmp_path / "schema.toml"), *arguments).exception
    assert isinstance(error, InputError)
    assert message in str(error)


def test_what_is_stated_of_the_labels_goes_in():
    stated = ["--base-rate", "0.02", "--predictability", "hardly", "--colluding", "2", "--json"]
    found = json.loads(run(*SHAPE, *stated).stdout)
    assert found["predicted"]["nothing"]["mean"] == pytest.approx(0.098, abs=0.03)
    assert found["predicted"]["masked"]["mean"] > 0
    assert found["way"] == "masked"
    assert any("2 % positive; the best model takes 1 to 6 % off" in note for note in found["notes"])
    assert "Supplied, not computed from the rows: base rate 0.02; predictability hardly." in found["notes"]


def test_what_a_schema_supplies_goes_in_and_options_win(tmp_path):
    (tmp_path / "schema.toml").write_text(TWO + '\n[supplied]\nbase_rate = 0.02\npredictability = "hardly"\n')
    given = ("--sizes", "60,80,70", "--schema", str(tmp_path / "schema.toml"), "--max-rounds", "5", "--quiet", "--json")
    told, changed = (json.loads(run(*given, *more).stdout) for more in ((), ("--base-rate", "0.3")))
    assert told["predicted"]["nothing"]["mean"] == pytest.approx(0.098, abs=0.03)
    assert changed["predicted"]["nothing"]["mean"] == pytest.approx(0.61, abs=0.05)
    assert "Supplied, not computed from the rows: base rate 0.3; predictability hardly." in changed["notes"]


def test_a_schema_tells_the_mean_of_counts_and_their_exposures(tmp_path):
    """Exposures that differ explain some of the counts: no model does better where the schema has them."""
    counts = TWO.replace('classes = ["a", "b"]', "bounds = [0, 50]\ncounts = true")
    exposed = '\n[exposure]\ncolumn = "years"\nbound = 10\n'
    shape = ["--sizes", "60,80,70", "--epsilon", "4", "--max-rounds", "2", "--quiet", "--json"]
    nothing = []
    for more in ("", exposed):
        (tmp_path / "schema.toml").write_text(f"{counts}\n[supplied]\nbase_rate = 0.02\n{more}")
        found = json.loads(run(*shape, "--schema", str(tmp_path / "schema.toml")).stdout)
        assert any("counts whose mean is 2 % of the largest" in note for note in found["notes"])
        nothing.append(found["predicted"]["nothing"]["mean"])
    assert nothing[0] == pytest.approx(0.02 * (1 - math.log(0.02)), rel=0.05)  # the loss of a Poisson law's mean
    assert nothing[1] < 0.99 * nothing[0]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [pytest.param(["--loss", "softmax", "--classes", "3"], "softmax", marks=pytest.mark.slow),
     (["--classes", "3", "--base-rate", "0.5,0.3,0.2"], "softmax"),
     (["--loss", "huber", "--threshold", "0.2", "--label-spread", "0.3"], "huber")],
)  # fmt: skip
def test_other_losses(arguments, name):
    found = json.loads(run(*SHAPE, *arguments, "--json").stdout)
    assert f"--loss {name}" in found["train"]
    assert found["predicted"]["joined"]["mean"] > 0


def test_without_a_terminal_progress_is_lines_and_settings_come_first():
    shown = run(*[option for option in SHAPE if option != "--quiet"])
    assert shown.stderr.count("Trying on made-up tables") == 6
    assert shown.stdout.index("diameter") < shown.stdout.index("Predicted mean loss")
    assert "No model, always the same answer" in shown.stdout
    assert "masked sums" in shown.stdout


CLINIC = TWO.replace(
    "[[columns]]",
    '[[columns]]\nname = "ward"\nkind = "categorical"\ncategories = ["n", "s"]\nreference = "n"\n[[columns]]',
)
ASKED = ["--inference", "--sizes", "4000,6000", "--epsilon", "4", "--delta", "1e-6", "--quiet"]


@pytest.fixture
def clinic(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(CLINIC)
    return str(path)


def test_inference_shows_each_coefficient_and_what_it_would_need(clinic):
    shown = " ".join(run(*ASKED, "--schema", clinic, "--base-rate", "0.3").stdout.split())
    assert (
        "Predicted at epsilon 4 with 10,000 rows: the 95 % interval tells an odds ratio of 3 from 1 for 2 of 2" in shown
    )
    for words in ("ward=s", "intercept", "times/over", "rows: 1.5 2 3 epsilon: 1.5 2 3", "base rate 0.3",
                  "how frequent the levels of ward, x are", "No private row was looked at"):  # fmt: skip
        assert words in shown
    assert shown.endswith("sottovoce train --inference --nodes 2 --epsilon 4 --delta 1e-06 --lam 1e-06")
    assert "diameter" not in shown  # a plan of the other way is another question


def test_inference_as_json(clinic):
    found = json.loads(run(*ASKED, "--schema", clinic, "--colluding", "1", "--json").stdout)
    predicted = found["intervals"]
    assert [line["name"] for line in predicted["lines"]] == ["ward=s", "x", "intercept"]
    assert (predicted["rows"], predicted["epsilon"], predicted["hopeless"]) == (10_000, 4.0, False)
    assert [need["ratio"] for need in predicted["needs"]["x"]] == [1.5, 2.0, 3.0]
    assert predicted["needs"]["x"][0]["rows"] > predicted["needs"]["x"][2]["rows"]
    assert found["train"].startswith("--inference --nodes 2 --epsilon 4 --delta 1e-06 --colluding 1")
    less = json.loads(run(*ASKED, "--schema", clinic, "--colluding", "0", "--json").stdout)["intervals"]
    assert less["lines"][1]["width"]["median"] < predicted["lines"][1]["width"]["median"]


def test_a_column_that_is_asked_for_has_the_narrower_interval(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(CLINIC + "".join(f'[[columns]]\nname = "f{k}"\nkind = "boolean"\n' for k in range(14)))
    small = [*ASKED[:1], "--sizes", "3000,3000", "--epsilon", "1", *ASKED[5:], "--schema", path, "--base-rate", "0.3"]
    alike, found = (json.loads(run(*small, *more, "--json").stdout) for more in ((), ("--focus", "x")))
    assert found["train"].startswith("--inference --focus x --nodes 2")
    widths = [{line["name"]: line["width"]["median"] for line in of["intervals"]["lines"]} for of in (alike, found)]
    assert widths[1]["x"] < widths[0]["x"]
    error = run(*SHAPE, "--focus", "x").exception
    assert isinstance(error, InputError)
    assert "inference with focus" in str(error)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--features", "4"],
            "--schema, and none of features, stand_in, max_grad_norm, plot, got schema=None, features=4",
        ),
        (["--stand-in", "adult"], "got schema=None, stand_in='adult'"),
        (["--schema", "SCHEMA", "--plot", "x.svg"], "plot=PosixPath('x.svg')"),
        (["--schema", "SCHEMA", "--loss", "smoothed-hinge"], "loss='logistic' or 'poisson' with inference"),
        (["--schema", "SCHEMA", "--colluding", "2"], "colluding=2"),
        (["--schema", "SCHEMA", "--focus", "wards"], "got focus='wards'"),
    ],
)
def test_inference_refuses_what_does_not_go_with_it(clinic, arguments, message):
    error = run(*ASKED, *(clinic if part == "SCHEMA" else part for part in arguments)).exception
    assert isinstance(error, InputError)
    assert message in str(error)


def test_inference_refuses_levels_without_a_reference(tmp_path):
    (tmp_path / "schema.toml").write_text(CLINIC.replace('reference = "n"\n', ""))
    error = run(*ASKED, "--schema", str(tmp_path / "schema.toml")).exception
    assert "columns.ward.reference" in str(error)
