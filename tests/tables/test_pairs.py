"""Tables of two columns from second moments: exact without noise, intervals that cover, and never at a price."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import sottovoce as sv
from sottovoce.cli import main
from sottovoce.errors import InputError
from sottovoce.files.schema import Factor, NumberLabel, Schema, files
from sottovoce.oracle.row_sums import half
from sottovoce.tables.pairs import MOMENTS, ReleasedMoments, pair_tables

TEXT = """
[label]
column = "ill"
classes = ["no", "yes"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
edges = [30, 60]
reference = 40
[[columns]]
name = "dose"
kind = "numeric"
bounds = [0, 1]
scale = "unit"
[[columns]]
name = "ward"
kind = "categorical"
categories = ["north", "south"]
other = true
missing = "indicator"
{reference}
[[columns]]
name = "smoker"
kind = "boolean"
[[columns]]
name = "day"
kind = "season"
by = "quarter"
"""
SCHEMA = Schema.loads(TEXT.format(reference='reference = "north"'))
FULL = Schema.loads(TEXT.format(reference=""))
TWO = Schema.loads(
    '[label]\ncolumn = "ill"\nclasses = ["no", "yes"]\n' + "".join(
        f'[[columns]]\nname = "{name}"\nkind = "categorical"\ncategories = {levels}\n{more}'
        for name, levels, more in (("a", ["x", "y", "z"], 'reference = "y"\n'), ("b", ["u", "v"], ""))
    )
)  # fmt: skip
NO_NOISE = sv.MaskedNewton(epsilon=np.inf, rounds=2)


def privacy_of(rows):
    method = sv.MaskedNewton(epsilon=1.0, delta=1e-5, rounds=2)
    return method.statement(method.oracle(sv.Sites([np.zeros((rows, 1))], [np.ones(rows)]), sv.graphs.complete(1)))


@pytest.fixture
def rows(tmp_path):
    rng, n = np.random.default_rng(0), 600
    frame = pd.DataFrame({
        "age": rng.integers(0, 101, n), "dose": rng.random(n).round(3),
        "ward": rng.choice(["north", "south", "west", ""], n, p=[0.5, 0.3, 0.15, 0.05]),
        "smoker": rng.choice(["yes", "no"], n, p=[0.2, 0.8]),
        "day": [f"2024-{month:02d}-03" for month in rng.integers(1, 13, n)],
        "ill": rng.choice(["no", "yes"], n),
    })  # fmt: skip
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for name, schema in (("schema", SCHEMA), ("full", FULL)):
        (tmp_path / f"{name}.toml").write_text(schema.dumps())
    return tmp_path, frame


def levels(frame):
    """The levels of each column, by pandas alone."""
    return pd.DataFrame({
        "age": pd.cut(frame["age"], [0, 30, 60, 101], right=False, labels=["[0,30)", "[30,60)", "[60,100]"]),
        "ward": frame["ward"].map({"north": "north", "south": "south", "west": "<other>", "": "<missing>"}),
        "smoker": frame["smoker"].map({"yes": "true", "no": "false"}),
        "day": pd.to_datetime(frame["day"]).dt.quarter.map("Q{}".format),
    })  # fmt: skip


def command(capsys, *argv, code=0):
    assert main([str(part) for part in argv]) == code
    return capsys.readouterr()


@pytest.mark.parametrize("schema", ["schema", "full"])
@pytest.mark.parametrize("algorithm", ["masked", "least-squares"])
def test_without_noise_they_are_those_of_pandas(rows, capsys, schema, algorithm):
    folder, frame = rows
    path = folder / f"{schema}.toml"
    if algorithm == "least-squares":
        number = NumberLabel(column="dose2", bounds=(0.0, 1.0))
        path.write_text(replace(Schema.load(path), label=number).dumps())
        frame.assign(dose2=frame["dose"]).to_csv(folder / "rows.csv", index=False)
    given = ("--data", folder / "rows.csv", "--schema", path, "--nodes", 2, "--delta", 1e-6, "--quiet")
    command(capsys, "train", *given, "--algorithm", algorithm, "--epsilon", "inf", "--force", "--rounds", 3,
            "--out", folder / "run")  # fmt: skip
    found = json.loads(command(capsys, "show", "--tables", folder / "run", "--json").out)
    known = levels(frame)
    pairs = [tuple(table["columns"]) for table in found["tables"]]
    names = ["age", "ward", "smoker", "day"]
    assert pairs == [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    for table, (a, b) in zip(found["tables"], pairs, strict=True):
        first, second = table["levels"]
        counted = pd.crosstab(known[a], known[b]).reindex(index=first, columns=second, fill_value=0)
        told = np.array([one["value"] for one in table["counts"]]).reshape(len(first), len(second))
        np.testing.assert_array_equal(told, counted.to_numpy())
        assert table["noise"] < 1e-6
    said = command(capsys, "show", "--tables", folder / "run").out
    assert "age \\ ward" in said
    assert "NOT PRIVATE" in said


def test_nothing_is_charged_and_the_statement_is_that_of_the_run(rows, capsys):
    folder, _ = rows
    command(capsys, "budget", "new", folder / "b.json", "--epsilon", 20, "--delta", 1e-4)
    given = ("--data", folder / "rows.csv", "--schema", folder / "schema.toml", "--nodes", 2, "--delta", 1e-6)
    command(capsys, "train", *given, "--epsilon", 2, "--budget", folder / "b.json", "--out", folder / "run", "--quiet")
    before = (folder / "b.json").read_bytes()
    found = json.loads(command(capsys, "show", "--tables", folder / "run/model.safetensors", "--json").out)
    assert (folder / "b.json").read_bytes() == before
    kept = json.loads((folder / "run/privacy.json").read_text())
    assert found["privacy"]["epsilon"] == kept["epsilon"] <= 2
    for table in found["tables"]:
        assert sum(one["value"] for one in table["counts"]) == table["rows"] == 600
        assert all(one["low"] <= one["value"] <= one["high"] for one in table["counts"])
    assert "at no further cost" in " ".join(command(capsys, "show", "--tables", folder / "run").out.split())


def released(features, rng, std):
    exact = half(features.T @ features)
    return ReleasedMoments(exact + std * rng.normal(size=len(exact)), std, len(features), "")


def test_intervals_cover_the_population_and_the_noise_in_a_cell_is_as_large_as_they_say(tmp_path):
    """95 % intervals of shares in a population, with as much noise as drawing rows makes, and errors of rows alone."""
    chances = np.array([[0.3, 0.1], [0.15, 0.25], [0.04, 0.16]])
    n, runs, rng = 400, 300, np.random.default_rng(1)
    cells = [(a, b) for a in "xyz" for b in "uv"]
    lines = "a,b,ill\n" + "".join(f"{a},{b},no\n" for a, b in cells)
    (tmp_path / "cells.csv").write_text(lines)
    each = files.encode(tmp_path / "cells.csv", TWO).features.toarray()
    std, statement = 8.0 / TWO.encoded_norm**2, privacy_of(n)
    covered, errors, said = [], [], []
    for _ in range(runs):
        drawn = rng.multinomial(n, chances.ravel())
        (table,) = pair_tables(TWO, released(np.repeat(each, drawn, axis=0), rng, std), statement).tables
        covered.append([one.low <= p <= one.high for one, p in zip(table.shares, chances.ravel(), strict=True)])
        errors.append([one.value * n - count for one, count in zip(table.shares, drawn, strict=True)])
        said.append(table.noise)
    shares = np.mean(covered, axis=0)
    assert 0.93 <= shares.mean() <= 0.97
    assert shares.min() >= 0.91
    # `noise` is that of the noisiest cell. Counts are whole, and cut at 0, which takes a little off.
    spread = np.std(errors, axis=0).max()
    assert 0.85 * said[0] <= spread <= 1.1 * said[0]


@pytest.mark.parametrize("intercept", [1.0, 0.0, 2.5])
def test_counts_and_their_noise_are_those_of_least_squares_on_all_numbers_with_the_total_kept(tmp_path, intercept):
    rng, schema = np.random.default_rng(2), replace(TWO, intercept=intercept)
    lines = "".join(f"{rng.choice(list('xyz'))},{rng.choice(list('uv'))},no\n" for _ in range(50))
    (tmp_path / "r.csv").write_text(f"a,b,ill\n{lines}")
    features = files.encode(tmp_path / "r.csv", schema).features.toarray()
    moments = released(features, rng, 0.5)
    (table,) = pair_tables(schema, moments, privacy_of(50)).tables
    scale = schema.encoded_norm**2
    # The numbers that are told of a table: each is a sum of cells, (a, b) in the order xu, xv, yu, ...
    exact = [half(f[:, None] * f) for f in files.encode(_one_each(tmp_path), schema).features.toarray()]
    design = np.array(exact).T * scale
    values = moments.half * scale
    multiplier = np.ones((1, 6))
    kkt = np.block([[design.T @ design, multiplier.T], [multiplier, np.zeros((1, 1))]])
    right = np.concatenate([design.T @ values, [50]])
    cells = np.linalg.solve(kkt, right)[:6]
    covariance = np.linalg.inv(kkt)[:6, :6] * (0.5 * scale) ** 2
    assert table.noise == pytest.approx(np.sqrt(np.diag(covariance).max()), rel=1e-9)
    shown = np.array([one.value for one in table.counts])
    assert np.abs(shown - np.maximum(cells, 0)).max() <= 1 + np.maximum(-cells, 0).sum()


def _one_each(folder):
    (folder / "e.csv").write_text("a,b,ill\n" + "".join(f"{a},{b},no\n" for a in "xyz" for b in "uv"))
    return folder / "e.csv"


def test_what_has_no_tables_is_refused_with_the_reason(rows, capsys):
    folder, _ = rows
    moments, statement = ReleasedMoments(np.zeros(SCHEMA.d * (SCHEMA.d + 1) // 2), 1.0, 9, ""), privacy_of(9)
    assert len(pair_tables(SCHEMA, moments, statement).tables) == 6
    refused = {
        r"rows shortened to row_norm = 1\.2": replace(SCHEMA, row_norm=1.2),
        "rows that count by 'w'": replace(FULL, weight=Factor(column="w", bound=2.0)),
        "two columns with levels": replace(SCHEMA, columns=SCHEMA.columns[:2]),
    }  # fmt: skip
    for said, schema in refused.items():
        with pytest.raises(InputError, match=said):
            pair_tables(schema, moments, statement)
    given = ("--data", folder / "rows.csv", "--schema", folder / "schema.toml", "--nodes", 2, "--delta", 1e-6)
    command(capsys, "train", *given, "--algorithm", "ipadmm", "--epsilon", 2, "--rounds", 2, "--local-steps", 1,
            "--rho", 0.01, "--diameter", 10, "--out", folder / "own", "--quiet")  # fmt: skip
    said = command(capsys, "show", "--tables", folder / "own", code=2).err
    assert "no moments.npz" in said
    assert "sottovoce describe --cross" in said
    # Moments of another run, and a file that is none.
    command(capsys, "train", *given, "--epsilon", 2, "--out", folder / "run", "--quiet")
    (folder / "own" / MOMENTS).write_bytes((folder / "run" / MOMENTS).read_bytes())
    assert "left the model beside them" in command(capsys, "show", "--tables", folder / "own", code=2).err
    (folder / "own" / MOMENTS).write_bytes(b"PK\x03\x04")
    assert "moments of a run" in command(capsys, "show", "--tables", folder / "own", code=2).err
