"""A label of times to an event: what follows from it, how it is written, and what is refused in it."""

from dataclasses import replace

import pytest

from sottovoce.errors import InputError
from sottovoce.files.schema import Schema, SurvivalLabel
from tables.lives import LABEL, SCHEMA


def test_written_and_read_back():
    for label in (LABEL, replace(LABEL, bins=None, edges=(1.0, 2.5))):
        schema = replace(SCHEMA, label=label)
        assert Schema.loads(schema.dumps()) == schema
        assert schema.digest() != replace(schema, label=replace(label, until=24.0)).digest()
    assert '[label]\ntime = "months"\nevent = "died"\nuntil = 12\nbins = 12\n' in SCHEMA.dumps()


def test_bins_are_equal_or_given():
    assert LABEL.ends == tuple(map(float, range(13)))
    assert SurvivalLabel(time="t", event="e", until=0.7, bins=7).ends[-1] == 0.7
    assert replace(LABEL, bins=None, edges=(1.0, 2.5)).ends == (0.0, 1.0, 2.5, 12.0)
    assert replace(LABEL, bins=None, edges=()).ends == (0.0, 12.0)


def test_its_columns_are_not_features():
    assert SCHEMA.feature_names == ("arm=new", "arm=old", "arm=none", "intercept")
    assert list(SCHEMA.described) == ["arm", "months", "died"]
    assert SCHEMA.classes is None
    assert not SCHEMA.counts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("until = 0", "above 0"),
        ("until = -3", "above 0"),
        ("until = nan", "until"),
        ("bins = 0", "one at least"),
        ("bins = 201", "at most 200 bins"),
        ("edges = [3]", "one of label.bins and label.edges"),
        ("bins = 12\nbounds = [0, 3]", "bounds"),
        ('event = "months"', "two columns"),
        ('event = "arm"', "also the label's column"),
        ('time = "arm"', "also the label's column"),
        ('column = "died"', "column"),
        ('missing = "row"', "missing"),
    ],
)
def test_what_makes_no_label_is_refused(text, words):
    key = text.split(" = ")[0]
    lines = [line for line in SCHEMA.dumps().splitlines() if not line.startswith(f"{key} = ")]
    with pytest.raises(InputError, match=words):
        Schema.loads("\n".join(lines).replace("[label]", f"[label]\n{text}"))


@pytest.mark.parametrize("edges", [(0.0,), (-1.0, 3.0), (3.0, 2.0), (3.0, 3.0), (3.0, 12.0), (3.0, 20.0)])
def test_edges_outside_the_time_that_rows_are_watched_are_refused(edges):
    with pytest.raises(InputError, match="rise strictly, above 0 and below"):
        replace(LABEL, bins=None, edges=edges)


@pytest.mark.parametrize("left", ["time", "event", "until", "bins"])
def test_all_of_it_must_be_said(left):
    lines = [line for line in SCHEMA.dumps().splitlines() if not line.startswith(f"{left} = ")]
    with pytest.raises(InputError, match=left):
        Schema.loads("\n".join(lines))
