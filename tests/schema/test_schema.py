"""What follows from a schema, how it is written down, and what is refused in it."""

import json
import math
import tomllib
from dataclasses import replace

import pytest

from schema.samples import SCHEMA
from sottovoce.errors import InputError, PrivacyError, PrivacyLeakWarning
from sottovoce.files.schema import (
    Boolean,
    Categorical,
    ClassLabel,
    Numeric,
    Schema,
    accept_unreviewed,
    require_reviewed,
)
from sottovoce.settings import plain


def test_features_and_norm_follow_from_the_schema(schema):
    assert schema.feature_names == (
        "age", "dose",
        "pressure=[50,100)", "pressure=[100,120)", "pressure=[120,140)", "pressure=[140,250]", "pressure=<missing>",
        "ward=north", "ward=south", "ward=<other>",
        "blood=A", "blood=B", "blood=AB", "blood=0",
        "smoker", "smoker=<missing>", "intercept",
    )  # fmt: skip
    assert schema.d == len(schema.feature_names) == 17
    assert schema.encoded_norm == pytest.approx(math.sqrt(6 + 0.25))
    assert schema.data_norm == 1.0
    assert schema.largest == 1 / schema.encoded_norm
    assert replace(schema, row_norm=50.0, intercept=2.0).largest == 2.0  # no number is divided
    assert schema.classes == ("well", "ill")


def test_a_declared_norm_is_the_bound_unless_the_encoding_is_shorter(schema):
    assert replace(schema, row_norm=2.0).data_norm == 2.0
    assert replace(schema, row_norm=50.0).data_norm == schema.encoded_norm


def test_no_intercept():
    schema = Schema.loads(SCHEMA.replace("intercept = 0.5", "intercept = false"))
    assert schema.d == 16
    assert "intercept" not in schema.feature_names
    assert schema.encoded_norm == math.sqrt(6)


def test_written_and_read_back(schema):
    marked = replace(schema, unreviewed=("columns.age.bounds", "label.classes"))
    for made in (schema, marked):
        assert Schema.loads(made.dumps()) == made
        assert Schema.from_dict(json.loads(json.dumps(plain(made), sort_keys=True))) == made


def test_awkward_texts_survive():
    name, words = 'a "b"\\ \t# \x7f\x01 ü', ("é\u2028é", "[x]", "'", "a\nb", "true")
    column = Categorical(name=name, categories=words)
    schema = Schema((column,), ClassLabel(column="y\x00", classes=("=", "#")))
    assert Schema.loads(schema.dumps()) == schema
    assert tomllib.loads(schema.dumps())["columns"][0]["categories"] == list(words)


def test_defaults_are_those_of_the_documentation():
    text = '[label]\ncolumn="y"\nclasses=["a","b"]\n[[columns]]\nname="x"\nkind="categorical"\ncategories=["c"]\n'
    schema = Schema.loads(text)
    assert (schema.intercept, schema.row_norm, schema.missing_values) == (1.0, "bound", ("", "?", "NA"))
    assert (schema.columns[0].missing, schema.columns[0].other, schema.label.missing) == ("refuse", False, "refuse")


def test_digest_is_of_what_the_encoding_follows_from(schema):
    spelled = SCHEMA.replace("[0, 100]", "[-0.0, 1e2]").replace('"north", "south"', '"north", # cold\n  "south"')
    assert Schema.loads(spelled).digest() == schema.digest()
    assert replace(schema, unreviewed=("label.classes",)).digest() == schema.digest()
    others = [
        replace(schema, columns=schema.columns[::-1]),
        replace(schema, intercept=0.25),
        replace(schema, row_norm=1.0),
        replace(schema, missing_values=("",)),
        replace(schema, label=replace(schema.label, classes=("ill", "well"))),
        replace(schema, columns=(replace(schema.columns[0], bounds=(0.0, 99.0)), *schema.columns[1:])),
    ]
    assert len({schema.digest(), *(other.digest() for other in others)}) == 7


WRONG = {
    "not TOML": ("name", "name = = 1\n#", "in TOML"),
    "key given twice": ('name = "clinic"', 'name = "a"\nname = "b"', "in TOML"),
    "nested too deeply": ('"clinic"', "[" * 100_000, "nested too deeply"),
    "unknown key": ('name = "clinic"', 'nmae = "clinic"', "keys of a schema, got 'nmae'. Did you mean name"),
    "unknown key of a column": ("fill = 5", "fil = 5", "keys of columns.dose, got 'fil'. Did you mean fill"),
    "unknown key of the label": ("classes =", "clases =", "keys of label, got 'clases'. Did you mean classes"),
    "key of another kind": ('kind = "boolean"', 'kind = "boolean"\nedges = [1]', "columns.smoker, got 'edges'. Known"),
    "unknown kind": ('"boolean"', '"bolean"', "'bolean'. Did you mean 'boolean'"),
    "no kind": ('kind = "boolean"\n', "", "keys of columns.smoker in full, got no kind"),
    "no name": ('name = "smoker"\n', "", r"keys of columns\[6\] in full, got no name"),
    "name is a number": ('name = "smoker"', "name = 3", r"text for columns\[6\].name, got name=3"),
    "empty name": ('"smoker"', '""', "columns.name to be text"),
    "no label": ("[label]", "[labels]", "keys of a schema, got 'labels'. Did you mean label"),
    "no columns": ("[[columns]]", "[[colums]]", "keys of a schema, got 'colums'. Did you mean columns"),
    "columns are a table": ("[[columns]]", "[columns]", "in TOML"),
    "duplicate column": ('name = "dose"', 'name = "age"', "different names, got name='age', also another column's"),
    "column is the label": ('name = "dose"', 'name = "outcome"', "also the label's column"),
    "bounds fall": ("[0, 100]", "[100, 0]", r"columns.age.bounds = \[low, high\]"),
    "bounds equal": ("[0, 100]", "[3, 3]", "columns.age.bounds"),
    "three bounds": ("[0, 100]", "[0, 1, 2]", "columns.age.bounds"),
    "bounds nan": ("[0, 100]", "[0, nan]", r"a finite number for columns.age.bounds\[2\], got .*=nan"),
    "bounds inf": ("[0, 100]", "[-inf, 0]", r"a finite number for columns.age.bounds\[1\], got .*=-inf"),
    "bounds too far apart": ("[0, 100]", "[-1.7e308, 1.7e308]", "columns.age.bounds"),
    "bounds too large": ("[0, 100]", f"[0, 1{'0' * 400}]", "a smaller number for columns.age.bounds"),
    "bounds with too many digits": ("[0, 100]", f"[0, 1{'0' * 5000}]", "in TOML"),
    "bounds are texts": ("[0, 100]", '["0", "100"]', r"a number for columns.age.bounds\[1\], got .*='0'"),
    "bounds are truths": ("[0, 100]", "[false, true]", r"a number for columns.age.bounds\[1\], got .*=False"),
    "bounds are a number": ("[0, 100]", "100", "a list of 2 for columns.age.bounds, got bounds="),
    "bounds are a date": ("[0, 100]", "1979-05-27", "a list of 2 for columns.age.bounds, got bounds="),
    "unknown scale": ('"unit"', '"units"', "columns.age.scale among unit, symmetric"),
    "scale and edges": ('scale = "unit"', 'scale = "unit"\nedges = [1]', "one of columns.age.scale and"),
    "neither scale nor edges": ('scale = "unit"', "", "one of columns.age.scale and columns.age.edges"),
    "edges fall": ("[100, 120, 140]", "[100, 140, 120]", "columns.pressure.edges to rise strictly"),
    "edges repeat": ("[100, 120, 140]", "[100, 100]", "columns.pressure.edges to rise strictly"),
    "edges outside": ("[100, 120, 140]", "[10, 120]", "above 50 and up to 250"),
    "no edges": ("[100, 120, 140]", "[]", "columns.pressure.edges to hold an edge"),
    "edges nan": ("[100, 120, 140]", "[100, nan]", r"a finite number for columns.pressure.edges\[2\]"),
    "no categories": ('["north", "south"]', "[]", "columns.ward.categories to hold at least 1"),
    "empty category": ('"north", ', '"", ', "columns.ward.categories to be text without spaces"),
    "category with spaces": ('"north", ', '" north", ', "columns.ward.categories to be text without spaces"),
    "category twice": ('"north", ', '"south", ', "columns.ward.categories to be different.*'south' twice"),
    "category is a number": ('"north", ', "1, ", r"text for columns.ward.categories\[1\], got .*=1"),
    "category means missing": ('"north", ', '"NA", ', "missing_values and columns.ward.categories.*'NA' in both"),
    "class means missing": ('"well", ', '"?", ', "missing_values and label.classes"),
    "other is a text": ("other = true", 'other = "yes"', "true or false for columns.ward.other, got other='yes'"),
    "one class": ('["well", "ill"]', '["well"]', "label.classes to hold at least 2"),
    "class twice": ('["well", "ill"]', '["ill", "ill"]', "label.classes to be different"),
    "classes and bounds": ("classes =", "bounds = [0, 1]\nclasses =", "one of label.classes and label.bounds"),
    "neither classes nor bounds": ('classes = ["well", "ill"]', "", "one of label.classes and label.bounds"),
    "label cannot be indicated": ('"ill"]', '"ill"]\nmissing = "indicator"', "label.missing among refuse, row"),
    "unknown policy": ('missing = "row"', 'missing = "drop"', "columns.ward.missing among refuse, row"),
    "fill without value": ("fill = 5\n", "", "columns.dose.fill together with missing"),
    "value without fill": ('missing = "fill"\nfill = 5', "fill = 5", "columns.dose.fill together with missing"),
    "fill outside": ("fill = 5", "fill = 50", "columns.dose.fill to be a number between -10 and 10"),
    "fill is a truth": ("fill = 5", "fill = true", "columns.dose.fill to be a number"),
    "fill nan": ("fill = 5", "fill = nan", "a finite number for columns.dose.fill"),
    "fill unknown": ('fill = "0"', 'fill = "C"', "columns.blood.fill among its categories"),
    "fill is a list": ("fill = 5", "fill = [5]", "a number or text or true or false for columns.dose.fill"),
    "spellings overlap": ('kind = "boolean"', 'kind = "boolean"\ntrue_values = ["no"]', "share no spelling"),
    "negative intercept": ("intercept = 0.5", "intercept = -1", "intercept = false or between 0"),
    "intercept is a text": ("intercept = 0.5", 'intercept = "yes"', "a number for intercept, got intercept='yes'"),
    "intercept nan": ("intercept = 0.5", "intercept = nan", "a finite number for intercept"),
    "row norm zero": ('row_norm = "bound"', "row_norm = 0", 'row_norm = "bound" or a number > 0'),
    "row norm inf": ('row_norm = "bound"', "row_norm = inf", "a finite number for row_norm"),
    "row norm unknown": ('row_norm = "bound"', 'row_norm = "unit"', "a number or 'bound' for row_norm, got"),
    "row norm true": ('row_norm = "bound"', "row_norm = true", "a number or 'bound' for row_norm, got row_norm=True"),
    "markers are numbers": ('["", "?", "NA"]', "[1]", r"text for missing_values\[1\]"),
    "marker with spaces": ('["", "?", "NA"]', '[" "]', "missing_values to be text without spaces"),
    "other version": ('name = "clinic"', "version = 2", "version = 1, got version=2"),
    "unreviewed names nothing": ('name = "clinic"', 'unreviewed = ["columns.age.edges"]', "Delete it, or write it as"),
    "unreviewed is a text": ('name = "clinic"', 'unreviewed = "label"', "a list for unreviewed"),
    "features share a name": ('name = "age"', 'name = "ward=north"', "names, got 'ward=north' twice"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "told"), WRONG.values(), ids=WRONG.keys())
def test_refused_by_name(tmp_path, old, new, told):
    assert old in SCHEMA
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA.replace(old, new) if old == "[[columns]]" else SCHEMA.replace(old, new, 1))
    with pytest.raises(InputError, match=told) as caught:
        Schema.load(path)
    assert "schema.toml" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_absurd_sizes_are_refused():
    words = tuple(map(str, range(600_000)))
    columns = (Categorical(name="a", categories=words), Categorical(name="b", categories=words))
    with pytest.raises(InputError, match="at most 1000000 features, got d=1200001"):
        Schema(columns, ClassLabel(column="y", classes=("0", "1")))


@pytest.mark.parametrize("data", [[], "text", None, {"label": 3}, {"columns": {}}])
def test_something_else_than_a_schema(data):
    with pytest.raises(InputError):
        Schema.from_dict(data)


def test_a_label_is_a_table(schema):
    with pytest.raises(InputError, match="a table for label, got label='outcome'"):
        Schema.from_dict(plain(schema) | {"label": "outcome"})


def test_lone_surrogates_are_refused():
    with pytest.raises(InputError, match="text that UTF-8 can hold"):
        Boolean(name="\ud800")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\xff\xfe", "in UTF-8"),
        (None, "No such file"),
        (b"", "in full, got no columns, label"),
        (b"\0", "in TOML"),
    ],
)
def test_files_that_are_no_schema(tmp_path, content, told):
    path = tmp_path / "schema.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=told):
        Schema.load(path)
    with pytest.raises(InputError, match="a schema file"):
        Schema.load(tmp_path)


def test_a_byte_order_mark_is_no_harm(tmp_path, schema):
    path = tmp_path / "schema.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SCHEMA.encode())
    assert Schema.load(path) == schema


def test_training_refuses_what_nobody_has_reviewed(schema, recwarn):
    require_reviewed(schema)
    accept_unreviewed(schema)
    assert not recwarn.list
    marked = replace(schema, unreviewed=("columns.age.bounds", "label.classes"))
    with pytest.raises(PrivacyError, match=r"columns\.age\.bounds, label\.classes still marked"):
        require_reviewed(marked)
    with pytest.warns(PrivacyLeakWarning, match=r"columns\.age\.bounds"):
        accept_unreviewed(marked)


def test_a_column_made_in_python_is_checked_too():
    with pytest.raises(InputError, match=r"columns\.x\.bounds"):
        Numeric(name="x", bounds=(0.0, math.nan), scale="unit")
    with pytest.raises(InputError, match=r"columns\.x\.edges to rise"):
        Numeric(name="x", bounds=(0.0, 1.0), edges=(0.5, math.nan))
