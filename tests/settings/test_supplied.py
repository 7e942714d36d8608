"""What a user says of the labels: read strictly, refused where it does not fit, shown as supplied, never encoded."""

import pytest

from sottovoce.errors import InputError
from sottovoce.files.schema import Schema
from sottovoce.files.schema.review import notes, supplied
from sottovoce.settings.supplied import Supplied

COLUMN = '[[columns]]\nname = "x"\nkind = "boolean"\n'
TWO = '[label]\ncolumn = "y"\nclasses = ["a", "b"]\n'
THREE = '[label]\ncolumn = "y"\nclasses = ["a", "b", "c"]\n'
NUMBER = '[label]\ncolumn = "y"\nbounds = [0, 9]\n'


@pytest.mark.parametrize(
    ("label", "lines", "known"),
    [
        (TWO, 'base_rate = 0.24\npredictability = "auc=0.8"', {"base_rate": 0.24, "predictability": "auc=0.8"}),
        (THREE, "base_rate = [0.5, 0.3, 0.2]\npredictability = 0.3",
         {"base_rate": (0.5, 0.3, 0.2), "predictability": 0.3}),
        (NUMBER, 'label_spread = 0.2\npredictability = "well"', {"label_spread": 0.2, "predictability": "well"}),
        (TWO, "", {}),
    ],
)  # fmt: skip
def test_a_schema_keeps_it_and_encodes_nothing_of_it(label, lines, known):
    told, silent = Schema.loads(f"[supplied]\n{lines}\n{label}{COLUMN}"), Schema.loads(label + COLUMN)
    assert told.known == known
    assert Schema.loads(told.dumps()) == told
    assert told.digest() == silent.digest()
    assert (silent.known, supplied(silent), notes(silent)) == ({}, "", ())
    assert bool(supplied(told)) == bool(known)
    if known:
        assert notes(told) == (f"{supplied(told)} The guarantee does not cover this.",)
        assert all(name.replace("_", " ") in supplied(told) for name in known)


@pytest.mark.parametrize(
    ("label", "lines", "message"),
    [
        (TWO, "base_rate = 1.2", "base_rate between 0 and 1"),
        (TWO, "base_rate = [0.5, 0.5]", "one share, that of the positive class, of two classes"),
        (THREE, "base_rate = 0.2", "base_rate as 3 shares"),
        (THREE, "base_rate = [0.5, 0.5]", "base_rate as 3 shares"),
        (THREE, "base_rate = [0.5, 0.3, 0.1]", "shares of all classes, which add up to 1"),
        (THREE, 'predictability = "auc=0.8"', "unless there are two classes"),
        (NUMBER, "base_rate = 0.2", "no base_rate for labels that are numbers"),
        (NUMBER, "label_spread = 0.0", r"label_spread in \(0, 1\]"),
        (TWO, "label_spread = 0.2", "label_spread for labels that are numbers"),
        (TWO, 'predictability = "very"', "one of hardly, somewhat, well, almost"),
        (TWO, "base_rat = 0.2", "Did you mean base_rate"),
        (TWO, 'base_rate = "rare"', "base_rate"),
    ],
)
def test_what_does_not_fit_is_refused(label, lines, message):
    with pytest.raises(InputError, match=message):
        Schema.loads(f"[supplied]\n{lines}\n{label}{COLUMN}")


@pytest.mark.parametrize(
    ("said", "explained", "auc"),
    [(None, None, None), ("well", (0.2, 0.5), None), (0.3, (0.3, 0.3), None), ("0.3", (0.3, 0.3), None),
     ("auc=0.8", None, 0.8), ("AUC = 0.8", None, 0.8)],
)  # fmt: skip
def test_predictability_is_a_word_a_share_or_an_auc(said, explained, auc):
    made = Supplied(predictability=said)
    assert (made.explained, made.auc) == (explained, auc)
