"""One room for all settings: what is read, how mistakes are told, and what is written."""

import json
import math
import subprocess
import sys
import tomllib
from abc import ABC
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce import settings
from sottovoce.errors import InputError, PrivacyError
from sottovoce.settings import toml


class Shape(ABC):  # noqa: B024
    """A family."""


@dataclass(frozen=True)
class Disc(Shape):
    radius: float

    def __post_init__(self):
        if self.radius < 0:
            raise PrivacyError("Expected radius >= 0.")


@dataclass(frozen=True)
class Box(Shape):
    sides: tuple[float, float]
    name: str = "box"


@dataclass(frozen=True, kw_only=True)
class Drawing:
    title: str
    shapes: tuple[Shape, ...] = ()
    copies: int = 1
    colour: Literal["red", "green"] = "red"
    zoom: float | None = None
    width: float | Literal["page"] = "page"
    frame: bool = False
    extra: dict[str, tuple[int, ...]] = field(default_factory=dict)


settings.tagged(Shape, "kind", {"disc": Disc, "box": Box})


class Side(IntEnum):
    LEFT = 3


class Point(NamedTuple):
    x: float
    on: Side


@dataclass(frozen=True)
class Code:
    text: str

    def __str__(self):
        return f"code {self.text}"


@dataclass(frozen=True)
class Note:
    first: int
    second: int | None
    third: float
    secret: object = None

    @property
    def total(self):
        return self.first + self.third

    def loud(self):
        return f"{self.first}!"


class Longer(Note):
    pass


settings.made_by(Code, lambda text: Code(text.removeprefix("code ")))
settings.written(Box, ...)
settings.written(Note, "loud", "third", "first", "second", "total", absent=(None,))
WHOLE = {
    "title": "Both",
    "shapes": [{"kind": "disc", "radius": 2}, {"kind": "box", "sides": [1, -0.0]}],
    "copies": 3,
    "colour": "green",
    "zoom": 2,
    "width": 7.5,
    "frame": True,
    "extra": {"a": [1, 2]},
}


def read(table, **options):
    return settings.read(Drawing, table, "settings of a drawing", **options)


def test_hints_say_what_is_read():
    made = read(WHOLE)
    assert made == Drawing(title="Both", shapes=(Disc(2.0), Box((1.0, 0.0))), copies=3, colour="green", zoom=2.0,
                           width=7.5, frame=True, extra={"a": (1, 2)})  # fmt: skip
    assert type(made.zoom) is float
    assert math.copysign(1, made.shapes[1].sides[1]) == 1
    assert read({"title": "x"}) == Drawing(title="x")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"titel": "x"}, "Expected settings of a drawing, got 'titel'. Did you mean title?"),
        ({"zzz": 1}, "Expected settings of a drawing, got 'zzz'. Known: title, shapes, copies, colour, zoom, width, "
                     "frame, extra."),
        ({"title": 7}, "Expected text for title, got title=7."),
        ({"copies": True}, "Expected a whole number for copies, got copies=True."),
        ({"copies": 2.0}, "Expected a whole number for copies, got copies=2.0."),
        ({"frame": 1}, "Expected true or false for frame, got frame=1."),
        ({"colour": "gren"}, "Expected colour among red, green, got colour='gren'. Did you mean 'green'?"),
        ({"colour": 1}, "Expected colour among red, green, got colour=1."),
        ({"zoom": math.nan}, "Expected a finite number for zoom, got zoom=nan."),
        ({"zoom": 10**400}, "Expected a smaller number for zoom, got zoom=an int of 1329 bits."),
        ({"zoom": "2"}, "Expected a number for zoom, got zoom='2'."),
        ({"width": "sheet"}, "Expected a number or 'page' for width, got width='sheet'."),
        ({"shapes": {}}, "Expected a list for shapes, got shapes={}."),
        ({"shapes": "ab"}, "Expected a list for shapes, got shapes='ab'."),
        ({"shapes": [3]}, "Expected a table for shapes[1], got shapes[1]=3."),
        ({"shapes": [{"radius": 1}]}, "Expected keys of shapes[1] in full, got no kind. Add it."),
        ({"shapes": [{"kind": "dics"}]}, "Expected shapes[1].kind among disc, box, got kind='dics'. Did you mean "
                                         "'disc'?"),
        ({"shapes": [{"kind": "disc"}]}, "Expected keys of shapes[1] in full, got no radius. Add it."),
        ({"shapes": [{"kind": "box", "name": "b", "sides": [1]}]}, "Expected a list of 2 for shapes.b.sides, got "
                                                                   "sides=[1]."),
        ({"shapes": [{"kind": "box", "name": "b", "sides": [1, "x"]}]}, "Expected a number for shapes.b.sides[2], got "
                                                                        "sides[2]='x'."),
        ({"extra": {"a": [1, "x"]}}, "Expected a whole number for extra.a[2], got a[2]='x'."),
        ({"extra": 3}, "Expected a table for extra, got extra=3."),
    ],
)  # fmt: skip
def test_mistakes_are_named_by_their_place(change, told):
    with pytest.raises(InputError) as caught:
        read(WHOLE | change)
    assert str(caught.value) == told


def test_a_misspelt_key_is_told_before_the_one_that_lacks_and_before_wrong_values():
    with pytest.raises(InputError, match="'titel'"):
        read({"titel": "x", "copies": "many"})
    with pytest.raises(InputError, match="got no title"):
        read({"copies": "many"})


def test_in_full_nothing_but_none_is_left_to_a_default():
    with pytest.raises(InputError, match="in full, got no colour, width, extra"):
        read({key: WHOLE[key] for key in ("title", "shapes", "copies", "frame")}, full=True)
    shapes = [{"kind": "box", "sides": [1, 2], "name": "b"}]
    assert read({k: v for k, v in WHOLE.items() if k != "zoom"} | {"shapes": shapes}, full=True).zoom is None


def test_infinity_only_where_it_is_meant():
    assert read({"title": "x", "zoom": math.inf}, finite=False).zoom == math.inf
    with pytest.raises(InputError, match="a finite number for zoom"):
        read({"title": "x", "zoom": math.inf})
    with pytest.raises(InputError, match="a number for zoom, got zoom=nan"):
        read({"title": "x", "zoom": math.nan}, finite=False)


@pytest.mark.parametrize("data", [None, 3, [], "x"])
def test_something_else_than_a_table(data):
    with pytest.raises(InputError, match="a table for settings of a drawing, got data="):
        read(data)


def test_what_a_class_refuses_by_itself_stays_as_it_is():
    with pytest.raises(PrivacyError, match=r"^Expected radius >= 0\.$"):
        read({"title": "x", "shapes": [{"kind": "disc", "radius": -1}]})


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(WHOLE)), JUNK)
def test_junk_is_refused_in_one_short_line_or_is_what_it_should_be(key, junk):
    told = None
    try:
        assert isinstance(read(WHOLE | {key: junk}), Drawing)
    except InputError as error:
        told = str(error)
    assert told is None or (told.startswith("Expected ") and "\0" not in told and len(told) < 1500)


PLAIN = st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text()


@given(PLAIN | st.lists(PLAIN, max_size=30) | st.dictionaries(st.sampled_from("abc"), PLAIN, min_size=1))
def test_what_is_written_is_read_back(value):
    assert tomllib.loads("\n".join(toml.pairs({"key": value, "none": None}))) == {"key": value}


def test_what_is_written_is_read_again():
    made = read(WHOLE)
    written = settings.plain(made)
    assert written == WHOLE | {"shapes": [WHOLE["shapes"][0], {"kind": "box", "sides": [1.0, 0.0], "name": "box"}]}
    assert list(written) == ["title", "shapes", "copies", "colour", "zoom", "width", "frame", "extra"]
    assert [list(shape) for shape in written["shapes"]] == [["kind", "radius"], ["kind", "sides", "name"]]
    assert read(json.loads(json.dumps(written, allow_nan=False))) == made
    assert settings.typed("code", settings.plain(Code("x")), Code) == Code("x")


def test_plain_data_is_what_json_can_hold():
    point = Point(math.inf, Side.LEFT)
    assert settings.plain(point) == {"x": None, "on": "LEFT"}
    numbers = [np.float64(0.1), np.int64(3), np.bool_(True), np.array([[1.5, math.nan]]), np.float32(0.5)]
    assert settings.plain({1: (numbers, Path("a/b"))}) == {"1": [[0.1, 3, True, [[1.5, None]], 0.5], "a/b"]}
    assert [type(one) for one in settings.plain(numbers)] == [float, int, bool, list, float]


def test_keys_are_written_as_declared_also_of_what_is_derived():
    for kind in (Note, Longer):
        assert list(settings.plain(kind(1, None, 0.5, object())).items()) == [
            ("loud", "1!"), ("third", 0.5), ("first", 1), ("total", 1.5),
        ]  # fmt: skip


def test_what_nobody_could_read_is_not_written():
    class Wheel(Disc):
        """Of the family, and not in its list."""

    class Crate(Box):
        """Nor is this, though a form is declared for what it is derived from."""

    for value in (Wheel(2.0), Crate((1.0, 2.0)), object(), b"bytes", {1, 2}, [object()], Note(1, object(), 2.0)):
        with pytest.raises(TypeError, match="Expected a value that can be written as plain data"):
            settings.plain(value)


def test_what_cannot_be_seen_is_written_so_that_it_can():
    assert toml.inline("a\u202eb\tc\x7f") == '"a\\u202eb\\tc\\u007f"'


def test_spelling_with_either_but_not_both():
    assert toml.underscored({"local-steps": 1, "rho": 2}) == {"local_steps": 1, "rho": 2}
    with pytest.raises(InputError, match="every setting once"):
        toml.underscored({"local-steps": 1, "local_steps": 2})


def test_the_library_that_reads_is_imported_with_the_first_table():
    code = "import sys, sottovoce; sottovoce.IPADMM(); assert 'cattrs' not in sys.modules"
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
