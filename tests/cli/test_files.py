"""From a file of one's own to a model, predictions and scores, by the command line alone."""

import csv
import json
import math
import re

import numpy as np
import pytest
from pyarrow import parquet

from cli.conftest import QUICK, SCHEMA, write
from sottovoce import losses, models
from sottovoce.errors import InputError
from sottovoce.files.schema import Schema

NUMBER = SCHEMA.replace("classes = {classes}", "bounds = [0, 200]")


def test_four_commands(clinic, tmp_path, cli, answer):
    schema, run = tmp_path / "schema.toml", tmp_path / "run"
    said = answer("train", "--data", clinic, "--schema", schema, "--site-column", "clinic", *QUICK, "--out", run)
    assert (said["dataset"], said["nodes"], said["runs"], said["seed"]) == ("clinic", 3, 1, None)
    assert said["accuracy"]["consensus"] > 0.85
    sites = parquet.read_table(run / "sites.parquet").to_pydict()
    assert sites["site"] == ["north", "south", "west"]
    assert sum(sites["rows"]) == 1200

    model = models.load(run / "model.safetensors")
    assert (model.d, model.names[-1]) == (7, "intercept")
    assert model.classes == ("no", "yes")
    assert model.privacy.epsilon <= 8
    assert str(tmp_path) not in json.dumps(model.provenance)

    scored = answer("evaluate", run / "model.safetensors", clinic)
    assert scored["accuracy"] == pytest.approx(said["accuracy"]["consensus"])
    assert scored["risk"] == pytest.approx(said["risk"]["consensus"])
    assert sum(map(sum, scored["confusion"])) == 1200

    out = tmp_path / "predicted.csv"
    assert answer("predict", run / "model.safetensors", clinic, "--out", out)["rows"] == 1200
    with out.open() as file:
        predicted = list(csv.DictReader(file))
    with clinic.open() as file:
        hits = [a["prediction"] == b["ill"] for a, b in zip(predicted, csv.DictReader(file), strict=True)]
    assert np.mean(hits) == pytest.approx(scored["accuracy"])
    assert [int(line["row"]) for line in predicted] == list(range(1, 1201))
    for line in predicted:
        assert (float(line["probability yes"]) >= 0.5) == (line["prediction"] == "yes")
    code, shown, _ = cli("evaluate", run / "model.safetensors", clinic)
    assert code == 0
    assert "for the holder of the rows only; not covered by the guarantee" in " ".join(shown.split())


def test_three_classes_are_learnt_together(tmp_path, answer):
    (tmp_path / "schema.toml").write_text(SCHEMA.format(classes='["young", "middle", "old"]'))
    rows = write(tmp_path / "rows.csv", lambda age, _: "young" if age < 40 else "middle" if age < 80 else "old")
    said = answer(
        "train", "--data", rows, "--schema", tmp_path / "schema.toml", "--nodes", 4, "--test-data", rows, *QUICK,
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert said["loss"] == "softmax"
    assert said["test"]["accuracy"]["consensus"] > 0.9
    model = models.load(tmp_path / "run" / "model.safetensors")
    assert model.loss == losses.Softmax(3)
    assert model.weights.shape == (7, 3)
    scored = answer("evaluate", tmp_path / "run" / "model.safetensors", rows)
    assert scored["accuracy"] == pytest.approx(said["test"]["accuracy"]["consensus"])


def test_a_number_is_learnt_in_its_own_unit(tmp_path, answer):
    (tmp_path / "schema.toml").write_text(NUMBER)
    rows = write(tmp_path / "rows.csv", lambda age, smoker: 30 + 1.2 * age + 20 * smoker)
    said = answer(
        "train", "--data", rows, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK, "--out", tmp_path / "run"
    )
    assert said["loss"] == "huber"
    scored = answer("evaluate", tmp_path / "run" / "model.safetensors", rows)
    assert scored["mean_absolute_error"] < 15
    assert scored["risk"] == pytest.approx(said["risk"]["consensus"])
    assert models.load(tmp_path / "run" / "model.safetensors").offset == 100


COUNT = NUMBER.replace("[0, 200]", "[0, 20]\ncounts = true")


def test_a_count_is_learnt_by_the_logarithm_of_its_mean(tmp_path, answer, cli):
    (tmp_path / "schema.toml").write_text(COUNT)
    rows = write(tmp_path / "rows.csv", lambda age, smoker: round(2 * (1 + smoker) * (1 + (age >= 40))), 4800)
    said = answer(
        "train", "--data", rows, "--schema", tmp_path / "schema.toml", "--nodes", 3, "--algorithm", "masked", "--lam",
        1e-6, "--epsilon", 8, "--delta", 1e-5, "--loss", "poisson", "--out", tmp_path / "run",
    )  # fmt: skip
    assert said["loss"] == "poisson"
    model = models.load(tmp_path / "run" / "model.safetensors")
    assert (model.loss, model.offset) == (losses.Poisson(20.0), math.log(20))
    scored = answer("evaluate", tmp_path / "run" / "model.safetensors", rows)
    assert scored["risk"] == pytest.approx(said["risk"]["consensus"])
    assert scored["risk"] < scored["no_model"]["risk"]
    assert scored["mean_absolute_error"] < 0.4
    answer("predict", tmp_path / "run" / "model.safetensors", rows, "--out", tmp_path / "predicted.csv")
    with (tmp_path / "predicted.csv").open() as file:
        predicted = [float(line["prediction"]) for line in csv.DictReader(file)]
    with rows.open() as file:
        counts = [float(line["ill"]) for line in csv.DictReader(file)]
    np.testing.assert_allclose(predicted, counts, rtol=0.2)
    shown = " ".join(cli("show", tmp_path / "run" / "model.safetensors")[1].split())
    assert "Predicts the mean of the count 'ill' from 2 columns" in shown


NOT_COUNTED = {
    "a lower bound": ("[0, 20]", "[1, 20]", "label.bounds from 0 to 1 .. 1e+06 with counts = true"),
    "no intercept": ("version = 1", "version = 1\nintercept = false", "an intercept where the label counts"),
    "an exposure": (
        "counts = true",
        'counts = true\nexposure = "days"',
        "a label without exposure, got exposure='days'. Say it in a table of its own, [exposure], with column and",
    ),
    "a weight": ("counts = true", 'counts = true\nweight = "w"', "Say it in a table of its own, [weight], with"),
    "classes": ("bounds = [0, 20]", 'classes = ["a", "b"]', "counts"),
}


@pytest.mark.parametrize(("old", "new", "told"), NOT_COUNTED.values(), ids=NOT_COUNTED.keys())
def test_what_is_no_schema_of_counts_is_refused(old, new, told):
    with pytest.raises(InputError, match=re.escape(told)):
        Schema.loads(COUNT.replace(old, new))


def test_noise_is_never_the_same_twice(clinic, tmp_path, answer):
    given = ("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK)
    assert answer(*given)["risk"] != answer(*given)["risk"]


REFUSED = {
    "a seed": (["--seed", "1", "--nodes", "3"], "Expected no seed with private rows, got seed=1"),
    "nodes and sites": (
        ["--nodes", "3", "--site-column", "clinic"],
        "either --nodes or --site-column with a file, got both",
    ),
    "neither": ([], "either --nodes or --site-column with a file, got neither. Say how many sites"),
    "a split": (["--nodes", "3", "--split", "official"], "Give the test rows as a file: --test-data"),
    "a delimiter of none": (["--nodes", "3", "--delimiter", "x"], "file.delimiter among"),
    "no such site column": (["--site-column", "ward"], "Expected a column 'ward'"),
    "the label as site": (["--site-column", "ill"], "neither a feature nor the label"),
    "softmax of two": (["--nodes", "3", "--loss", "softmax"], "Use logistic"),
    **{
        f"{name} of two": (
            ["--nodes", "3", "--loss", name],
            f"among logistic, hinge, smoothed-hinge for a label of two classes, got loss='{name}'",
        )
        for name in ("huber", "absolute", "quantile", "smoothed-quantile", "poisson")
    },
}


@pytest.mark.parametrize(("more", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals_write_nothing(clinic, tmp_path, cli, more, told):
    run = tmp_path / "run"
    code, out, err = cli("train", "--data", clinic, "--schema", tmp_path / "schema.toml", *more, "--out", run)
    assert (code, out, run.exists()) == (2, "", False)
    assert told in err


@pytest.mark.parametrize(
    ("schema", "loss"),
    [(SCHEMA.format(classes='["no", "yes"]'), "huber"), (NUMBER, "logistic"), (COUNT, "huber"),
     (SCHEMA.format(classes='["a", "b", "c"]'), "hinge")],
)  # fmt: skip
def test_a_loss_for_other_labels_is_refused_before_anything_is_read_or_charged(tmp_path, cli, schema, loss):
    (tmp_path / "schema.toml").write_text(schema)
    budget = tmp_path / "budget.json"
    assert cli("budget", "new", budget, "--epsilon", 10)[0] == 0
    before = budget.read_bytes()
    code, out, err = cli(
        "train", "--data", tmp_path / "none.csv", "--schema", tmp_path / "schema.toml", "--nodes", 3, "--loss", loss,
        *QUICK, "--budget", budget, "--out", tmp_path / "run",
    )  # fmt: skip
    assert (code, out, err.count("\n")) == (2, "", 1 + err.count("Note:"))
    assert f"got loss='{loss}'" in err
    assert (budget.read_bytes(), (tmp_path / "run").exists()) == (before, False)


@pytest.mark.parametrize("private", [(), ("--private", "--epsilon", 1)])
def test_a_model_of_numbers_under_a_schema_of_classes_is_not_judged(clinic, tmp_path, cli, answer, private):
    run = tmp_path / "run"
    answer("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK, "--out", run)
    made = models.load(run / "model.safetensors")
    odd = models.Model(made.weights, losses.Huber(), made.names, None, made.privacy, made.schema)
    models.save(odd, tmp_path / "odd.safetensors")
    code, out, err = cli("evaluate", tmp_path / "odd.safetensors", clinic, *private)
    assert (code, out) == (2, "")
    assert "Expected a loss for the label of the schema, no is -1, yes is +1, got a model of loss='huber'" in err


def test_a_file_needs_a_schema_and_the_other_way_round(clinic, tmp_path, cli):
    assert "sottovoce schema draft" in cli("train", "--data", clinic, "--nodes", 3)[2]
    assert "Expected --data with --schema" in cli("train", "--schema", tmp_path / "schema.toml")[2]
    assert "Expected --data with --delimiter ;" in cli("train", "--delimiter", ";")[2]


def test_an_unreviewed_schema_is_refused_or_warned_of(clinic, tmp_path, cli):
    schema = tmp_path / "schema.toml"
    schema.write_text('unreviewed = ["columns.age.bounds"]\n' + schema.read_text())
    given = ("train", "--data", clinic, "--schema", schema, "--nodes", 3, *QUICK)
    code, out, err = cli(*given)
    assert (code, out) == (2, "")
    assert "columns.age.bounds" in err
    with pytest.warns(UserWarning, match="does not cover this"):
        assert cli(*given, "--unreviewed", "accept", "--quiet")[0] == 0


def test_predictions_are_whole_or_not_there(clinic, tmp_path, cli, answer):
    run, out = tmp_path / "run", tmp_path / "predicted.csv"
    answer("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK, "--out", run)
    bad = tmp_path / "bad.csv"
    bad.write_text("age,smoker\n20,yes\nold,no\n")
    code, _, err = cli("predict", run / "model.safetensors", bad, "--out", out)
    assert (code, out.exists()) == (2, False)
    assert "row 2, column 'age'" in err
    assert not list(tmp_path.glob(".*partial"))
    out.write_text("mine")
    assert "which exists" in cli("predict", run / "model.safetensors", clinic, "--out", out)[2]
    assert out.read_text() == "mine"


def test_a_file_with_semicolons_is_read_as_the_advice_says(clinic, tmp_path, cli, answer):
    clinic.write_text(clinic.read_text().replace(",", ";"))
    given = (
        "train",
        "--data",
        clinic,
        "--schema",
        tmp_path / "schema.toml",
        "--nodes",
        3,
        *QUICK,
        "--test-data",
        clinic,
    )
    code, _, err = cli(*given)
    assert code == 2
    assert "Its fields are separated by semicolons: say so with --delimiter" in err
    said = answer(*given, "--delimiter", ";", "--out", tmp_path / "run")
    assert said["test"]["accuracy"]["consensus"] > 0.85
    # The schema that the model keeps is the one that was agreed on, whatever a file looks like.
    model = models.load(tmp_path / "run" / "model.safetensors")
    assert model.schema == Schema.load(tmp_path / "schema.toml")
    assert answer(*given, "--delimiter", "semicolon")["nodes"] == 3


WARDS = (
    SCHEMA.format(classes='["no", "yes"]')
    + """
[[columns]]
name = "ward"
kind = "categorical"
categories = ["a", "b"]

[[columns]]
name = "town"
kind = "categorical"
categories = ["x", "y"]
other = true
"""
)


@pytest.fixture
def wards(clinic, tmp_path, answer):
    """A model of a column that has no level for what is not listed, and of one that has; and a file with news."""
    lines = clinic.read_text().splitlines()
    more = [f"{line},{'ab'[i % 2]},{'xyz'[i % 3]}" for i, line in enumerate(lines[1:])]
    clinic.write_text("\n".join([f"{lines[0]},ward,town", *more]) + "\n")
    (tmp_path / "schema.toml").write_text(WARDS)
    answer(
        "train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK, "--out", tmp_path / "run"
    )
    new = tmp_path / "new.csv"
    new.write_text("age,smoker,ward,town\n20,yes,a,x\n70,no,c,x\n70,no,b,q\n30,no,dd,q\n70,no,a,y\n")
    return tmp_path / "run" / "model.safetensors", new


def predicted(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_new_category_refuses_a_file_and_says_in_how_many_rows(wards, tmp_path, cli):
    code, out, err = cli("predict", *wards, "--out", tmp_path / "p.csv")
    assert (code, out, err.count("\n"), (tmp_path / "p.csv").exists()) == (2, "", 1, False)
    assert "Expected one of the categories a, b in row 2, column 'ward'" in err
    assert "Rows with such a category: 2." in err
    assert "--unknown skip" in err
    assert "'c'" not in err
    code, _, err = cli("predict", *wards, "--out", tmp_path / "p.csv", "--unknown", "drop")
    assert code == 2
    assert "unknown='drop'" in err


def test_rows_with_a_new_category_are_skipped_and_listed(wards, tmp_path, cli):
    code, out, _ = cli("predict", *wards, "--out", tmp_path / "p.csv", "--unknown", "skip")
    assert code == 0
    assert "3 predictions written" in out
    assert "Categories that the schema does not list: 2 rows skipped, of the file's rows 2, 4." in out
    assert re.search(r'town +1 +unknown category: counted as "other"', out)
    assert not re.search(r"ward +\d", out)
    assert [line["row"] for line in predicted(tmp_path / "p.csv")] == ["1", "3", "5"]


def test_a_new_category_may_say_nothing(wards, tmp_path, cli, answer):
    model, new = wards
    said = answer("predict", model, new, "--out", tmp_path / "p.csv", "--unknown", "other")
    assert (said["rows"], said["dropped"]) == (5, 0)
    assert [(one["column"], one["finding"], one["cells"]) for one in said["found"]] == [("town", "OTHER", 2)]
    assert said["unknown"] == {"how": "other", "count": 2, "rows": [2, 4]}
    loaded = models.load(model)
    w = dict(zip(loaded.names, loaded.weights[:, 0] / loaded.schema.encoded_norm, strict=True))
    z = w["age=[60,80)"] + w["town=x"] + loaded.schema.intercept * w["intercept"]  # ward adds nothing, nor a smoker
    found = [float(line["probability yes"]) for line in predicted(tmp_path / "p.csv")]
    assert found[1] == pytest.approx(1 / (1 + math.exp(-z)), abs=2e-6)
    assert "2 rows predicted without that column" in cli(
        "predict", model, new, "--out", tmp_path / "q.csv", "--unknown", "other"
    )[1]  # fmt: skip


LACKING = """
[label]
column = "ill"
classes = ["no", "yes"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
missing = "row"
[[columns]]
name = "dose"
kind = "numeric"
bounds = [0, 10]
scale = "unit"
missing = "indicator"
[[columns]]
name = "ward"
kind = "categorical"
categories = ["a", "b"]
other = true
missing = "fill"
fill = "b"
[[columns]]
name = "smoker"
kind = "boolean"
"""


@pytest.fixture
def sparse(tmp_path, cli):
    """A model whose schema says what becomes of missing values, and a file of new rows."""
    lines = "".join(f"{i % 100},{i % 11},{'ab'[i % 2]},{i % 3 // 2},{('no', 'yes')[i % 2]}\n" for i in range(300))
    (tmp_path / "old.csv").write_text(f"age,dose,ward,smoker,ill\n{lines}")
    (tmp_path / "schema.toml").write_text(LACKING)
    given = ("--data", tmp_path / "old.csv", "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK)
    assert cli("train", *given, "--out", tmp_path / "run", "--quiet")[0] == 0
    new = tmp_path / "new.csv"
    new.write_text("age,dose,ward,smoker\n120,,,0\n,3,a,1\n30,-1,c,0\n40,5,b,1\n,,,1\n")
    return tmp_path / "run" / "model.safetensors", new


def test_what_was_done_with_how_many_rows_is_said(sparse, tmp_path, cli, answer):
    said = answer("predict", *sparse, "--out", tmp_path / "p.csv")
    assert (said["rows"], said["dropped"]) == (3, 2)
    assert {(one["column"], one["finding"]): one["cells"] for one in said["found"]} == {
        ("age", "CLIPPED"): 1, ("age", "DROPPED"): 2, ("dose", "CLIPPED"): 1, ("dose", "INDICATED"): 1,
        ("ward", "FILLED"): 1, ("ward", "OTHER"): 1,
    }  # fmt: skip
    assert (tmp_path / "p.csv").read_text().splitlines()[0] == "row,prediction,probability no,probability yes"
    _, out, _ = cli("predict", *sparse, "--out", tmp_path / "q.csv")
    assert "Not predicted: 2 rows with a missing value" in out
    assert re.search(r"ward +1 +missing: filled in", out)


def test_columns_that_a_file_lacks_are_named_and_count_as_missing_if_asked(sparse, tmp_path, cli, answer):
    model, new = sparse
    whole = new.read_text()
    new.write_text("age,dose,ward,smoker\n20,,,0\n30,,,1\n")
    cli("predict", model, new, "--out", tmp_path / "whole.csv")
    new.write_text("smoker,age\n0,20\n1,30\n")
    given = ("predict", model, new, "--out", tmp_path / "p.csv")
    code, _, err = cli(*given)
    assert code == 2
    assert "Expected a column 'dose' in file=" in err
    assert "--without dose" in err
    said = answer(*given, "--without", "dose", "--without", "ward")
    assert (said["rows"], said["without"]) == (2, ["dose", "ward"])
    assert {(one["column"], one["finding"]): one["cells"] for one in said["found"]} == {
        ("dose", "INDICATED"): 2, ("ward", "FILLED"): 2,
    }  # fmt: skip
    assert (tmp_path / "p.csv").read_text() == (tmp_path / "whole.csv").read_text()
    again = (*given[:-1], tmp_path / "again.csv")
    for name in ("age", "smoker", "height"):  # rows would be dropped; no rule; not of the schema
        code, _, err = cli(*again, "--without", name)
        assert code == 2
        assert f"(of those: 'dose', 'ward'), got without='{name}'" in err
    new.write_text(whole)
    assert "got without='dose'" in cli(*again, "--without", "dose")[2]


def test_many_skipped_rows_are_listed_for_programs(wards, tmp_path, cli, answer):
    model, new = wards
    new.write_text("age,smoker,ward,town\n" + 30 * "70,no,c,x\n")
    out = cli("predict", model, new, "--out", tmp_path / "p.csv", "--unknown", "skip")[1]
    assert "30 rows skipped, of the file's rows 1, 2, 3" in out
    assert "20, ...." in out
    assert "All of them are listed with --json" in out
    said = answer("predict", model, new, "--out", tmp_path / "q.csv", "--unknown", "skip")
    assert said["unknown"]["rows"] == list(range(1, 31))


@pytest.mark.parametrize("how", ["refuse", "skip", "other"])
def test_what_is_no_new_category_is_refused_all_the_same(wards, tmp_path, cli, how):
    model, new = wards
    for text, told in (
        ('20,yes,"a\nb",x\n', "column 'ward'"),
        ("20,perhaps,a,x\n", "column 'smoker'"),
        ("old,no,c,x\n", "age"),
    ):
        new.write_text("age,smoker,ward,town\n" + text)
        code, _, err = cli("predict", model, new, "--out", tmp_path / "p.csv", "--unknown", how)
        assert (code, (tmp_path / "p.csv").exists()) == (2, False)
        assert told in err


def test_what_is_no_model_file_is_told_in_words(clinic, tmp_path, cli, answer):
    run, out = tmp_path / "run", tmp_path / "p.csv"
    answer("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK, "--out", run)
    err = cli("predict", clinic, clinic, "--out", out)[2]
    assert "it does not begin as a model file does, and may be another kind of file: the model comes first" in err
    assert not re.search(r"\d{5}", err.replace(str(tmp_path), ""))
    err = cli("predict", run, clinic, "--out", out)[2]
    assert f"it is a folder; give the file in it, '{run / 'model.safetensors'}'" in err
    assert "it is a folder." in cli("show", tmp_path)[2]
    (tmp_path / "empty").write_bytes(b"")
    assert "it does not begin as a model file does" in cli("show", tmp_path / "empty")[2]


def test_a_site_column_in_latin_1_is_called_that(clinic, tmp_path, cli):
    clinic.write_bytes(clinic.read_bytes().replace(b"north", b"n\xf6rd"))
    given = ("train", "--data", clinic, "--schema", tmp_path / "schema.toml", *QUICK)
    code, _, err = cli(*given, "--site-column", "clinic")
    assert code == 2
    assert "Expected a site as UTF-8 text in row" in err
    assert "got other bytes, as of Latin-1. Save the file as UTF-8." in err
    lines = clinic.read_bytes().replace(b"n\xf6rd", b"").splitlines()
    clinic.write_bytes(b"\n".join(lines))
    assert "got none. Fill it in." in cli(*given, "--site-column", "clinic")[2]


def test_predictions_carry_ids_and_go_to_standard_output(clinic, tmp_path, cli, answer):
    run = tmp_path / "run"
    answer("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK, "--out", run)
    new = tmp_path / "new.csv"
    new.write_text("Age;smoker;patient\n20;yes;a 1\n90;no;\n70;no;c,3\n")
    given = ("predict", run / "model.safetensors", new, "--delimiter", ";", "--out", "-")
    code, out, err = cli(*given, "--id", "patient", "--id", "age")
    assert code == 0
    lines = list(csv.DictReader(out.splitlines()))
    assert list(lines[0]) == ["row", "patient", "age", "prediction", "probability no", "probability yes"]
    assert [(line["row"], line["patient"], line["age"]) for line in lines] == [
        ("1", "a 1", "20"), ("2", "", "90"), ("3", "c,3", "70"),
    ]  # fmt: skip
    assert "3 predictions written to -." in err
    assert json.loads(cli(*given, "--json")[2])["rows"] == 3
    for wrong, told in (("row", "not called row or prediction"), ("none", "a column 'none' in file=")):
        code, _, err = cli(*given, "--id", wrong)
        assert (code, err.count("\n")) == (2, 1)
        assert told in err
    scored = answer("evaluate", run / "model.safetensors", clinic)
    assert scored["positive"] == "yes"
    (_, missed), (_, found) = scored["confusion"]
    assert scored["precision"] == pytest.approx(found / (found + missed))
    assert scored["recall"] == pytest.approx(found / sum(scored["confusion"][1]))
    assert "yes (positive)" in cli("evaluate", run / "model.safetensors", clinic)[1]


def test_a_budget_is_charged_before_and_never_overdrawn(clinic, tmp_path, cli, answer):
    budget = tmp_path / "budget.json"
    assert cli("budget", "new", budget, "--epsilon", 10)[0] == 0
    assert "which exists" in cli("budget", "new", budget, "--epsilon", 99)[2]
    given = ("train", "--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 3, *QUICK, "--budget", budget)
    answer(*given)
    first = answer("budget", "show", budget)
    assert first["spent"] == pytest.approx(8, rel=1e-6)
    code, out, err = cli(*given, "--out", tmp_path / "second")
    assert (code, out, (tmp_path / "second").exists()) == (3, "", False)
    assert "epsilon" in err
    assert answer("budget", "show", budget) == first
    assert answer(*given[:-4], "--epsilon", 2, "--budget", budget)["privacy"]["epsilon"] <= 2
    assert 8 < answer("budget", "show", budget)["spent"] <= 10
    assert "No such file" in cli(*given[:-1], tmp_path / "none.json")[2]


def test_a_budget_for_mixtures_says_so(tmp_path, cli, answer):
    for name, more, kind in (("a", (), "plain Gaussian noise only"), ("b", ("--mixed",), "charges of any kind")):
        assert cli("budget", "new", tmp_path / name, "--epsilon", 1, *more)[0] == 0
        assert kind in cli("budget", "show", tmp_path / name)[1]
        assert answer("budget", "show", tmp_path / name)["mixed"] == bool(more)
