"""Interactions and splines: their features against independent formulas, the bound on norms, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline

from schema.samples import FILE, HEADER, SCHEMA
from sottovoce.errors import InputError
from sottovoce.files.models.coefficients import of_schema
from sottovoce.files.schema import Interaction, Numeric, Schema, Spline, files
from sottovoce.files.schema.curve import curve
from sottovoce.files.schema.inference import obstacles
from sottovoce.settings import plain

TERMS = """
[[terms]]
kind = "interaction"
columns = ["age", "dose"]
[[terms]]
kind = "interaction"
columns = ["dose", "ward"]
[[terms]]
kind = "interaction"
columns = ["pressure", "smoker"]
[[terms]]
kind = "spline"
column = "age"
knots = [20, 40, 65, 80]
[[terms]]
kind = "spline"
column = "dose"
knots = [-10, 0, 5]
"""
COMPARED = SCHEMA.replace("edges = [100, 120, 140]\n", "edges = [100, 120, 140]\nreference = 110\n").replace(
    'categories = ["north", "south"]\n', 'categories = ["north", "south"]\nreference = "north"\n'
)
BARE = replace(Schema.loads(COMPARED), row_norm=1e6, intercept=0.0)  # rows as they are
WHOLE = replace(Schema.loads(COMPARED + TERMS), row_norm=1e6, intercept=0.0)


def powers(x, knots):
    """Restricted cubic splines as truncated powers, with 1 and x: (points, knots), by the usual formula."""
    t, over = np.array(knots, dtype=float), lambda at: np.maximum(x - at, 0.0) ** 3
    bent = [
        over(own) - over(t[-2]) * (t[-1] - own) / (t[-1] - t[-2]) + over(t[-1]) * (t[-2] - own) / (t[-1] - t[-2])
        for own in t[:-2]
    ]
    return np.column_stack([np.ones(len(x)), x, *(part / (t[-1] - t[0]) ** 2 for part in bent)])


def bends(x, knots):
    """Those combinations of truncated powers that are 1 at one inner knot and 0 at all others."""
    return powers(x, knots) @ np.linalg.inv(powers(np.array(knots, dtype=float), knots))[:, 1:-1]


def number(name, cell):
    low, high, fill = {"age": (0, 100, None), "dose": (-10, 10, 5)}[name]
    return min(max(float(fill if cell in ("", "?", "NA") else cell), low), high)


CELLS = st.sampled_from(["0", "20", "40", "64.9", "65", "80", "100", "1e9", "-3"]) | st.floats(-150, 150).map(repr)
ABSENT = st.sampled_from(["", "NA"])


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            CELLS, CELLS | ABSENT, CELLS | ABSENT, st.sampled_from(["north", "south", "west"]),
            st.sampled_from(["A", "B", ""]), st.sampled_from(["yes", "no", ""]), st.sampled_from(["well", "ill"]),
        ),
        min_size=1, max_size=8,
    )
)  # fmt: skip
def test_features_of_terms_are_products_and_splines_of_those_of_columns(written, rows):
    path = written(HEADER + "".join(",".join(row) + "\n" for row in rows))
    mains, found = (files.encode(path, schema).features.toarray() for schema in (BARE, WHOLE))
    spots, first = {}, 0
    for column in BARE.columns:
        spots[column.name] = slice(first, first := first + column.width)
    parts = [mains]
    for pair in (("age", "dose"), ("dose", "ward"), ("pressure", "smoker")):
        one, two = (mains[:, spots[name]] for name in pair)
        parts.append((one[:, :, None] * two[:, None, :]).reshape(len(rows), -1))
    for place, name, knots in ((0, "age", (20, 40, 65, 80)), (1, "dose", (-10, 0, 5))):
        made = bends(np.array([number(name, row[place]) for row in rows]), knots)
        low, high = (0, 100) if name == "age" else (-10, 10)
        parts.append(made / curve(tuple((knot - low) / (high - low) for knot in knots)).reach)
    np.testing.assert_allclose(found, np.hstack(parts), atol=1e-12)


def test_names_say_columns_levels_and_knots():
    assert WHOLE.feature_names[len(BARE.feature_names) :] == (
        "age:dose", "dose:ward=south", "dose:ward=<other>",
        "pressure:smoker=[50,100)", "pressure:smoker=[50,100):<missing>",
        "pressure:smoker=[120,140)", "pressure:smoker=[120,140):<missing>",
        "pressure:smoker=[140,250]", "pressure:smoker=[140,250]:<missing>",
        "pressure:smoker=<missing>", "pressure:smoker=<missing>:<missing>",
        "age=<bend at 40>", "age=<bend at 65>", "dose=<bend at 0>",
    )  # fmt: skip
    assert WHOLE.d == len(WHOLE.feature_names)


SHARES = st.lists(st.integers(0, 1000), min_size=3, max_size=7, unique=True).map(lambda x: tuple(np.sort(x) / 1000))


@settings(max_examples=50)
@given(SHARES)
def test_the_curve_is_the_natural_cubic_spline_and_its_reach_bounds_it_closely(knots):
    made, x = curve(knots), np.linspace(0, 1, 3001)
    inside = (x >= knots[0]) & (x <= knots[-1])
    values = made.values(x)
    usual = CubicSpline(knots, np.eye(len(knots))[:, 1:-1], bc_type="natural")
    np.testing.assert_allclose(values[inside], usual(x[inside]), atol=1e-9)
    # Straight beyond the outer knots, as the truncated powers are.
    np.testing.assert_allclose(values, bends(x, knots), atol=1e-6 * made.reach)
    longest = np.linalg.norm(values, axis=1).max()
    assert longest <= made.reach <= 1.01 * longest


VALUES = st.sampled_from(["-1e300", "1e300", "", "0", "1", "-7", "3"]) | st.floats(-10, 10).map(repr)


@settings(max_examples=25)
@given(
    data=st.data(),
    knots=SHARES,
    norm=st.sampled_from(["bound", 0.7, 1.9]),
    scale=st.sampled_from(["unit", "symmetric"]),
)
def test_no_row_is_longer_than_data_norm_whatever_an_enemy_writes(written, data, knots, norm, scale):
    low, high = -7.0, 3.0
    spread = tuple(float(low + (high - low) * share) for share in knots)
    assume(min(np.diff(spread)) >= 0.0101)
    missing = data.draw(st.sampled_from(["refuse", "row", "indicator", "fill"]))
    fill = {"fill": data.draw(st.sampled_from([low, high, 0.0]))} if missing == "fill" else {}
    x = Numeric(name="x", bounds=(low, high), scale=scale, missing=missing, **fill)
    z = Numeric(name="z", bounds=(low, high), scale="symmetric")
    base = Schema.loads('[label]\ncolumn = "y"\nclasses = ["a", "b"]\n[[columns]]\nname = "x"\nkind = "boolean"\n')
    terms = Spline(column="x", knots=spread), Spline(column="z", knots=spread), Interaction(columns=("x", "z"))
    schema = replace(base, columns=(x, z), terms=terms, row_norm=norm)
    enemy = st.sampled_from([repr(one) for one in (low, high, *spread)]) | VALUES
    cells = [(data.draw(enemy), data.draw(enemy.filter(bool))) for _ in range(6)]
    cells = [(one if one or missing != "refuse" else "0", two) for one, two in cells]
    path = written("x,z,y\n" + "".join(f"{one},{two},a\n" for one, two in [*cells, ("0", "0")]))
    rows = files.encode(path, schema).features.toarray()
    for row in rows:
        for order in (np.arange(len(row)), np.argsort(row), np.argsort(-np.abs(row))):
            total = 0.0
            for entry in row[order]:
                total += entry * entry
            assert np.sqrt(total) <= schema.data_norm
    if norm == "bound":
        assert np.abs(rows).max() <= schema.largest
    # Each term by itself is no longer than a column may be.
    plain_rows, first = files.encode(path, replace(schema, row_norm=1e6)).features.toarray(), x.width + z.width
    for term, columns in schema.joined:
        own = plain_rows[:, first : (first := first + term.width(columns))]
        assert np.linalg.norm(own, axis=1).max() <= 1


def test_a_row_may_be_as_long_as_the_bound_says(written):
    text = '[label]\ncolumn="y"\nclasses=["a","b"]\n' + "".join(
        f'[[columns]]\nname="{name}"\nkind="numeric"\nbounds=[-1,1]\nscale="symmetric"\n' for name in "uv"
    )
    schema = Schema.loads(text + '[[terms]]\nkind="interaction"\ncolumns=["u","v"]\n')
    data = files.encode(written("u,v,y\n1,-1,a\n0,0,b\n"), schema)
    np.testing.assert_allclose(np.linalg.norm(data.features.toarray()[0]), 1.0, rtol=1e-12)
    assert schema.encoded_norm == 2.0


def test_without_terms_digest_and_text_are_what_they_were():
    schema = Schema.loads(SCHEMA)
    assert schema.digest() == "506d17039a0ffe256c779c696aea590fe0933d5183563ee1966b42ae08011e41"
    assert "terms" not in plain(schema)
    with_terms = Schema.loads(SCHEMA + TERMS)
    assert Schema.loads(with_terms.dumps()) == with_terms == Schema.from_dict(plain(with_terms))
    moved = Schema.loads(SCHEMA + TERMS.replace("[20, 40, 65, 80]", "[20, 40, 66, 80]"))
    assert len({schema.digest(), with_terms.digest(), moved.digest()}) == 3


def term(kind, **keys):
    return SCHEMA + f'[[terms]]\nkind = "{kind}"\n' + "".join(f"{key} = {value}\n" for key, value in keys.items())


REFUSED = {
    "outside": (term("spline", column='"age"', knots="[20, 40, 101]"), r"knots within columns\.age\.bounds.*move"),
    "below": (term("spline", column='"age"', knots="[-1, 40, 50]"), r"knots within columns\.age\.bounds"),
    "unsorted": (term("spline", column='"age"', knots="[20, 60, 40]"), "to rise strictly.*Sort them"),
    "twice": (term("spline", column='"age"', knots="[20, 40, 40, 60]"), "to rise strictly.*give each once"),
    "few": (term("spline", column='"age"', knots="[20, 40]"), r"3 to 30 numbers in terms\.age\.knots"),
    "close": (term("spline", column='"age"', knots="[20, 40, 40.01]"), r"at least 0\.001 of the width"),
    "nan": (term("spline", column='"age"', knots="[20, nan, 50]"), "finite"),
    "bins": (term("spline", column='"pressure"', knots="[60, 70, 80]"), "kind='numeric' with edges. Levels and bins"),
    "levels": (term("spline", column='"ward"', knots="[1, 2, 3]"), "a spline of a number with columns.ward.scale"),
    "unknown": (term("spline", column='"agee"', knots="[1, 2, 3]"), r"among age, .*'agee'\. Did you mean 'age'"),
    "label": (term("interaction", columns='["age", "outcome"]'), "that the label is predicted from, got 'outcome'"),
    "itself": (term("interaction", columns='["age", "age"]'), 'got \'age\' twice. For a curve.*kind = "spline"'),
    "one": (term("interaction", columns='["age"]'), "a list of 2"),
    "three": (term("interaction", columns='["age", "dose", "ward"]'), "a list of 2"),
    "unknown of two": (term("interaction", columns='["age", "city"]'), "among age, dose, .*'city'"),
    "kind": (term("cubic", column='"age"'), "among interaction, spline"),
    "no knots": (term("spline", column='"age"'), "no knots"),
    "again": (
        term("interaction", columns='["age", "dose"]') + term("interaction", columns='["dose", "age"]')[len(SCHEMA) :],
        "two of kind='interaction' of dose:age",
    ),
    "none": (f"terms = []\n{SCHEMA}", "a term, or no terms at all"),
    "many": (
        SCHEMA.replace("edges = [100, 120, 140]", f"edges = {[50.1 + i / 8 for i in range(1500)]}").replace(
            'categories = ["north", "south"]', f"categories = {[str(i) for i in range(1000)]}"
        ) + '[[terms]]\nkind = "interaction"\ncolumns = ["pressure", "ward"]\n',
        "columns and terms that make at most 1000000 features",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    text, said = REFUSED[name]
    with pytest.raises(InputError, match=said):
        Schema.loads(text)


def test_the_table_in_units_of_the_columns_says_what_the_model_says(written):
    """Outputs from coefficients per unit and texts of the file alone."""
    schema = replace(WHOLE, row_norm="bound", intercept=0.5)
    weights = np.random.default_rng(0).normal(size=(schema.d, 2))
    found = of_schema(schema, weights, 3.0)
    by_name = {one.feature: np.array(one.per_unit) for one in found.features}
    z = files.encode(written(), schema).features @ weights + 3.0
    lines = [dict(zip(HEADER.strip().split(","), line.split(","), strict=True)) for line in FILE.splitlines()[1:]]
    for cells, scores in zip(lines, z, strict=True):
        if cells["smoker"] == "NA":
            continue
        age, dose, pressure = number("age", cells["age"]), number("dose", cells["dose"]), float(cells["pressure"])
        said = (
            np.array(found.intercept) + by_name["age"] * age + by_name["dose"] * dose + by_name["age:dose"] * age * dose
        )
        smokes = cells["smoker"] in ("yes", "true")
        said += by_name["smoker"] * smokes + by_name[f"blood={cells['blood']}"]
        ward = {"north": None, "south": "south"}.get(cells["ward"], "<other>")
        if ward is not None:
            said += by_name[f"ward={ward}"] + by_name[f"dose:ward={ward}"] * dose
        bin_ = next(
            (name for name, top in (("[50,100)", 100), ("", 120), ("[120,140)", 140)) if pressure < top), "[140,250]"
        )
        if bin_:
            said += by_name[f"pressure={bin_}"] + by_name[f"pressure:smoker={bin_}"] * smokes
        for name, x, knots in (("age", age, (20, 40, 65, 80)), ("dose", dose, (-10, 0, 5))):
            for knot, value in zip(knots[1:-1], bends(np.array([float(x)]), knots)[0], strict=True):
                said += by_name[f"{name}=<bend at {knot}>"] * value
        np.testing.assert_allclose(said, scores, rtol=1e-9)
    spans = {one.feature: one.effect[0] / one.per_unit[0] for one in found.features}
    assert (spans["age:dose"], spans["dose:ward=south"], spans["age=<bend at 40>"]) == pytest.approx((2000, 20, 1))
    assert not {one.feature: one for one in found.features}["dose:ward=<other>"].listed


def test_a_category_that_is_not_listed_takes_its_interactions_along(written):
    schema = replace(WHOLE, columns=tuple(replace(c, other=False) if c.name == "ward" else c for c in WHOLE.columns))
    (chunk,) = files.encode_features(written(HEADER + "50,5,130,west,A,yes,ill\n"), schema, unknown="other")
    row = dict(zip(schema.feature_names, chunk.features.toarray()[0], strict=True))
    assert row["ward=south"] == row["dose:ward=south"] == 0
    assert row["age:dose"] == pytest.approx(0.25)


def test_levels_of_an_interaction_need_a_reference_for_standard_errors():
    text = COMPARED.replace('reference = "north"\n', "").replace("intercept = 0.5", "intercept = false") + TERMS
    schema = Schema.loads(text.replace('name = "blood"', 'name = "blood"\nreference = "A"'))
    found = obstacles(schema)
    assert len(found) == 1
    assert "'ward' in the term dose:ward" in found[0]
    assert obstacles(replace(schema, terms=None)) == ()
