"""Fifty files and schemas that people bring: each is answered in one line that says what to do, wherever it is met."""

import gzip
import io
import zipfile

import numpy as np
import pytest

from sottovoce import losses
from sottovoce.cli import main
from sottovoce.files.models import Model, save
from sottovoce.files.schema import Schema
from sottovoce.privacy import Gaussian, PrivacyStatement, Repeated, epsilon

SCHEMA = """
name = "clinic"

[label]
column = "ill"
classes = ["no", "yes"]

[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"

[[columns]]
name = "born"
kind = "age"
on = "2025-01-01"
bounds = [0, 100]
scale = "unit"

[[columns]]
name = "ward"
kind = "categorical"
categories = ["north", "south"]
"""
GOOD = "age,born,ward,ill\n" + "".join(
    f"{20 + i},19{50 + i}-03-01,{'north' if i % 2 else 'south'},{'yes' if i % 3 else 'no'}\n" for i in range(40)
)


def archive(*names):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name in names:
            made.writestr(name, GOOD)
    return buffer.getvalue()


def changed(old, new):
    assert old in GOOD
    return GOOD.replace(old, new, 1)


# What is in the file, what each of draft, check, train and predict is to say: None where it does well.
UNNAMED = SCHEMA.replace('name = "clinic"', "", 1)
FILES = {
    "empty": ("", "empty", "empty", "empty", "empty"),
    "blank lines only": ("\n\n", *["which is empty"] * 4),
    "header only": (GOOD.splitlines()[0], "at least one row", "at least one row", "at least one row", None),
    "zero bytes": (bytes(64), "at least one row", "column 'age'", "column 'age'", "column 'age'"),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), *["file="] * 4),
    "UTF-16": (GOOD.encode("utf-16"), *["Save it as UTF-8"] * 4),
    "Latin-1 text": (GOOD.encode().replace(b"north", b"n\xf6rth"), *["UTF-8 text in row 2, column 'ward'"] * 4),
    "Latin-1 header": (GOOD.encode().replace(b"ward", b"w\xe4rd"), *["header in UTF-8"] * 4),
    "a workbook": (archive("[Content_Types].xml", "xl/a.xml"), *["Save the sheet as CSV"] * 4),
    "an old workbook": (b"\xd0\xcf\x11\xe0" + bytes(99), *["Save the sheet as CSV"] * 4),
    "zip of two": (archive("a.csv", "b.csv"), *["one file in zip"] * 4),
    "cut off gzip": (gzip.compress(GOOD.encode())[:-12], *["can be read"] * 4),
    "cut off Parquet": (b"PAR1" + bytes(50), *["can be read"] * 4),
    "JSON": ('{"age": 1}\n{"age": 2}\n', "column 'ill'", "column 'age'", "column 'age'", "column 'age'"),
    "HTML": ("<html>\n<body>\n</body>\n", "column 'ill'", "column 'age'", "column 'age'", "column 'age'"),
    "semicolons": (GOOD.replace(",", ";"), None, *["say so with --delimiter"] * 3),
    "tabs": (GOOD.replace(",", "\t"), None, *["say so with --delimiter"] * 3),
    "no header": (GOOD.split("\n", 1)[1], "say --no-header", *["If that is no header but a row"] * 3),
    "a name twice": (GOOD.replace("born", "age", 1), *["different column names"] * 4),
    "a column too few": (changed(",south,", ","), *["4 fields in row 1"] * 4),
    "a column too many": (changed(",south,", ",south,x,"), *["4 fields in row 1"] * 4),
    "a column renamed": (changed("ward", "station"), None, *["a column 'ward' in"] * 3),
    "no label": (GOOD.replace(",ill", ",sick", 1), "column 'ill' for the label", "column 'ill'", "column 'ill'", None),
    "a quote left open": (changed(",south,no", ',south,"no'), *["quote"] * 4),
    "a quote left open inside": (changed(",south,", ',"south,'), *["fields in row 1"] * 4),
    "a word for a number": (changed("20,", "twenty,"), None, *["a number in row 1, column 'age'"] * 3),
    "a decimal comma": (changed("20,", '"20,5",'), None, *["If the comma is a decimal sign"] * 3),
    "thousands": (changed("20,", '"1,000.5",'), None, *["a number in row 1, column 'age'"] * 3),
    "nan": (changed("20,", "nan,"), None, *["add it to missing_values"] * 3),
    "infinity": (changed("20,", "inf,"), None, *["a number in row 1, column 'age'"] * 3),
    "a gap": (changed("20,", ","), None, *["It counts as missing"] * 3),
    "an unknown category": (changed("south", "East"), None, *["declare it in the schema"] * 3),
    "the 30th of February": (changed("1950-03-01", "1950-02-30"), None, *["a date like 2024-12-31 in row 1"] * 3),
    "days first": (changed("1950-03-01", "01.03.1950"), None, *["another order of year, month and day"] * 3),
    "a third class": (changed("south,no", "south,maybe"), None, *["one of the classes no, yes in row 1"] * 2, None),
    "one class only": (GOOD.replace(",yes", ",no"), "2 to 100 classes", None, None, None),
    "labels as identifiers": (
        "age,born,ward,ill\n" + "".join(f"20,1950-03-01,north,p{i}\n" for i in range(200)),
        "more than 100 different texts", "one of the classes no, yes in row 1", "one of the classes", None,
    ),
}  # fmt: skip


EVENT = Repeated(Gaussian(40.0), 100)
PROMISE = PrivacyStatement(
    event=EVENT, epsilon=epsilon(EVENT, 1e-5), target_epsilon=1.0, delta=1e-5, calibration="exact", sigma=40.0,
    released="noisy models",
)  # fmt: skip
COMMANDS = {
    "draft": ("schema", "draft", "rows.csv", "--label", "ill", "--out", "new.toml"),
    "check": ("schema", "check", "rows.csv", "--schema", "schema.toml"),
    "train": ("train", "--data", "rows.csv", "--schema", "schema.toml", "--nodes", "2", "--epsilon", "1", "--rounds",
              "1", "--local-steps", "1", "--diameter", "1", "--rho", "0.01", "--quiet", "--out", "run"),
    "predict": ("predict", "model.safetensors", "rows.csv", "--out", "said.csv"),
}  # fmt: skip


@pytest.fixture
def at(tmp_path, monkeypatch, capsys):
    """Run a command in a folder with a schema and a model: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    schema = Schema.loads(SCHEMA)
    weights = np.zeros((schema.d, 1))
    model = Model(weights, losses.Logistic(), schema.feature_names, schema.classes, PROMISE, schema)
    save(model, tmp_path / "model.safetensors")

    def run(*argv):
        code = main(list(map(str, argv)))
        return (code, *capsys.readouterr())

    return run


@pytest.mark.parametrize("name", FILES)
def test_one_line_at_every_command(at, tmp_path, name):
    content, *told = FILES[name]
    (tmp_path / "rows.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    for (command, argv), words in zip(COMMANDS.items(), told, strict=True):
        code, out, err = at(*argv)
        if words is None:
            assert code == 0, (command, err)
        elif code == 1:  # a check that found problems lists them
            assert command == "check"
            assert words in out
        else:
            assert (code, out, err.count("\n")) == (2, "", 1), (command, out, err)
            assert words in err, command
            assert len(err) < 900
            assert not (tmp_path / argv[-1]).exists() or command == "check"


def schema_with(old, new):
    assert old in SCHEMA
    return SCHEMA.replace(old, new, 1)


SCHEMAS = {
    "not TOML": ("age, born", "in TOML"),
    "no columns": (SCHEMA.split("[[columns]]")[0], "got no columns"),
    "a misspelt key": (schema_with("bounds", "bound"), "got 'bound'. Did you mean bounds?"),
    "a misspelt kind": (schema_with('"numeric"', '"numeical"'), "Did you mean 'numeric'?"),
    "bounds the wrong way": (schema_with("[0, 100]", "[100, 0]"), "low < high"),
    "one bound": (schema_with("[0, 100]", "[0]"), "a list of 2 for columns.age.bounds"),
    "a date that is none": (schema_with("2025-01-01", "1.1.2025"), "a date like 2025-01-31"),
    "a class twice": (schema_with('["no", "yes"]', '["no", "no"]'), "twice"),
    "a positive class that is none": (schema_with('"yes"]', '"yes"]\npositive = "ill"'), "label.positive among"),
    "groups too long": (schema_with('"categorical"', '"categorical"\nfirst = 2'), "at most first=2 characters"),
    "half a character": (schema_with('"categorical"', '"categorical"\nfirst = 1.5'), "a whole number"),
    "no such delimiter": (
        '[file]\ndelimiter = "x"\n' + SCHEMA.replace('name = "clinic"', "", 1),
        "file.delimiter among",
    ),
    "names that are no list": ('[file]\nnames = "age"\n' + UNNAMED, "a list for file.names"),
    "a column twice": (SCHEMA + SCHEMA[SCHEMA.rindex("[[columns]]") :], "different names"),
}


@pytest.mark.parametrize(("text", "told"), SCHEMAS.values(), ids=SCHEMAS.keys())
def test_one_line_for_a_schema(at, tmp_path, text, told):
    (tmp_path / "rows.csv").write_text(GOOD)
    (tmp_path / "schema.toml").write_text(text)
    for command in ("check", "train"):
        code, out, err = at(*COMMANDS[command])
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert told in err
        assert "schema.toml" in err
    code, out, err = at("schema", "review", "schema.toml")
    assert (code, out, err.count("\n")) == (2, "", 1)
