"""The tutorial's schema: Adult as a CSV file, fully encoded, and good enough to learn from."""

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sottovoce.errors import InputError
from sottovoce.files.datasets import adult
from sottovoce.files.datasets.adult_csv import write_csv
from sottovoce.files.schema import Schema, files, require_reviewed
from sottovoce.files.schema.check import check

SCHEMA = Path(__file__).parents[2] / "docs" / "tutorial" / "adult-schema.toml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("adult")
    assert write_csv(made / "train.csv", "train") == 32_561
    assert write_csv(made / "test.csv", "test") == 16_281
    return made


def test_the_file_is_what_uci_serves(folder):
    with (folder / "train.csv").open(newline="") as file:
        header, first, *rest = csv.reader(file)
    assert header[0] == "age"
    assert header[-1] == "income"
    assert ", ".join(first) == (
        "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, "
        "White, Male, 2174, 0, 40, United-States, <=50K"
    )
    assert sum("?" in row for row in rest) == 32_561 - adult().n_train
    assert sum(row[-1] == ">50K" for row in rest) == 7_841


def test_an_existing_file_is_kept(folder):
    with pytest.raises(InputError, match=r"a new file, got out=.*train\.csv"):
        write_csv(folder / "train.csv", "test")
    with pytest.raises(InputError, match="part among train, test, all, got part='half'"):
        write_csv(folder / "half.csv", "half")


def test_all_rows_fit_and_all_have_norm_one(folder):
    schema = Schema.load(SCHEMA)
    require_reviewed(schema)
    assert (schema.d, schema.data_norm) == (46, 1.0)
    for name, rows in (("train.csv", 32_561), ("test.csv", 16_281)):
        report = check(folder / name, schema)
        assert (report.fits, report.rows, report.used) == (True, rows, rows)
        assert {(count.column, count.finding.name) for count in report.counts} == {("occupation", "INDICATED")}
        norms = np.sqrt(np.asarray(files.encode(folder / name, schema).features.power(2).sum(axis=1)))
        assert norms.max() <= 1.0
        assert norms.min() >= 1 - 1e-13


def test_it_is_good_enough_to_learn_from(folder):
    schema = Schema.load(SCHEMA)
    train, test = (files.encode(folder / name, schema) for name in ("train.csv", "test.csv"))
    model = LogisticRegression(C=30, fit_intercept=False, max_iter=1000).fit(train.features, train.labels)
    assert model.score(test.features, test.labels) >= 0.854
