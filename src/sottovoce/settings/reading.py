"""Tables of plain data, from TOML or JSON, read into dataclasses by their type hints.

Strictly: no key that is unknown, none that is missing, no text where a number belongs, no truth for a whole number. A
whole number will do where a number is expected. What is wrong is named by its place in the file, as in
columns.age.bounds[2], and what is misspelt comes with a suggestion.

cattrs walks the classes; it is imported with the first table that is read. The words are ours.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from reprlib import Repr
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from sottovoce.errors import InputError

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")
Table: TypeAlias = Mapping[str, object]
Chooser: TypeAlias = Callable[[dict[str, Any]], tuple[type[Any], dict[str, Any]]]

_UNIONS = (Union, UnionType)
_CHOOSERS: dict[type[Any], Chooser] = {}
_MAKERS: dict[type[Any], Callable[[str], Any]] = {}


# -- what there is to read --------------------------------------------------------------------------------------------


def choose(base: type[Any], chooser: Chooser) -> None:
    """Where a `base` is wanted, read the class that the chooser finds, from the keys that it leaves."""
    _CHOOSERS[base] = chooser
    _converter.cache_clear()


def tagged(base: type[Any], tag: str, kinds: Mapping[str, type[Any]]) -> None:
    """Where a `base` is wanted, read the class that the key `tag` names. No other name is ever looked up."""

    def chooser(table: dict[str, Any]) -> tuple[type[Any], dict[str, Any]]:
        name, rest = untag(table, tag)
        if name not in kinds:
            raise _Mistake(lambda place: _among(place.key(tag), name, list(kinds)))
        return kinds[name], rest

    choose(base, chooser)


def untag(table: dict[str, Any], tag: str) -> tuple[str, dict[str, Any]]:
    """(the text at the key `tag`, the other keys)."""
    if tag not in table:
        raise _Mistake(lambda place: _missing(place.what, [tag]))
    if not isinstance(table[tag], str):
        raise _Mistake(lambda place: _wrong("text", place.key(tag), table[tag]))
    return table[tag], {key: value for key, value in table.items() if key != tag}


def made_by(kind: type[Any], make: Callable[[str], Any]) -> None:
    """Where a `kind` is wanted, a file has text, and `make` reads it."""
    _MAKERS[kind] = make
    _converter.cache_clear()


# -- reading ----------------------------------------------------------------------------------------------------------


def read(kind: type[T], table: object, what: str, *, finite: bool = True, full: bool = False) -> T:
    """The object that a table describes, all of it checked.

    Args:
        kind: a dataclass, or a family of them (`choose`, `tagged`).
        table: keys are the names of the fields.
        what: what the table should hold, for messages.
        finite: refuse infinite numbers.
        full: leave nothing to a default but None.
    """
    return cast("T", _structured(table, kind, _Place("", "", what), finite, full))


def typed(name: str, value: object, hint: Any, *, finite: bool = True) -> Any:
    """One value as the type of its field."""
    return _structured(value, hint, _Place(name, name, name), finite, False)


def check_keys(table: Table, known: Iterable[str], required: Collection[str], what: str) -> None:
    """Refuse a key that nobody knows, and the absence of one that is needed."""
    told = _odd_keys(table, list(known), required)
    if told is not None:
        raise InputError(told(what))


def check_choice(name: str, value: object, known: Collection[str]) -> None:
    """Refuse a name that is not among those known."""
    if value not in known:
        raise InputError(_among(_Place(name, name, name), value, known))


def brief(value: object) -> str:
    """A short form of anything, for messages: a stranger's data may be as long as it likes."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:
        return f"an int of {value.bit_length()} bits"
    short = Repr()
    short.maxdict = short.maxlist = short.maxtuple = 12
    short.maxlevel, short.maxother, short.maxstring = 2, 60, 60
    try:
        return short.repr(value)
    except ValueError:  # an int too long to be written
        return f"a {type(value).__name__} that is too long to show"


# -- words ------------------------------------------------------------------------------------------------------------


class _Place:
    """Where a value is: its path in the file, its own name, and what a table there should hold."""

    def __init__(self, path: str, name: str, what: str = "") -> None:
        self.path, self.name, self.what = path, name, what or f"keys of {path}"

    def key(self, name: str) -> "_Place":
        """The value at a key of this table."""
        return _Place(f"{self.path}.{name}" if self.path else name, name)

    def item(self, index: int, value: object) -> "_Place":
        """An item of this list: by its own name if it has one, and by its number, from 1, if not."""
        own = value.get("name") if isinstance(value, Mapping) else None
        if isinstance(own, str) and own.isprintable() and 0 < len(own) < 100:
            return _Place(f"{self.path}.{own}", own)
        return _Place(f"{self.path}[{index + 1}]", f"{self.name}[{index + 1}]")


class _Mistake(Exception):  # noqa: N818
    """Something is wrong; how to say it, once it is known where."""

    def __init__(self, told: Callable[[_Place], str]) -> None:
        super().__init__()
        self.told = told


def _expected(words: str, value: object) -> _Mistake:
    mistake = _Mistake(lambda place: _wrong(words, place, value))
    mistake.args = (words,)
    return mistake


def _wrong(words: str, place: _Place, value: object) -> str:
    if not place.path:
        return f"Expected {words} with {place.what}, got {brief(value)}."
    return f"Expected {words} for {place.path}, got {place.name}={brief(value)}."


def _odd_keys(table: Table, known: list[str], required: Collection[str]) -> Callable[[str], str] | None:
    """What is to be said of the keys of a table, given what it should hold; None if they are fine."""
    # Unknown keys first: one that is misspelt also is one that lacks.
    for key in table:
        if key not in known:
            near = _nearest(key, known)
            advice = f"Known: {', '.join(known) or 'none'}." if near is None else f"Did you mean {near}?"
            return lambda what: f"Expected {what}, got {brief(key)}. {advice}"
    missing = [name for name in known if name in required and name not in table]
    return (lambda what: _missing(what, missing)) if missing else None


def _missing(what: str, names: list[str]) -> str:
    return f"Expected {what} in full, got no {', '.join(names)}. Add {'it' if len(names) == 1 else 'them'}."


def _among(place: _Place, value: object, known: Collection[str]) -> str:
    near = _nearest(value, known)
    advice = "" if near is None else f" Did you mean {near!r}?"
    return f"Expected {place.path} among {', '.join(map(str, known))}, got {place.name}={brief(value)}.{advice}"


def _nearest(name: object, known: Collection[str]) -> str | None:
    return next(iter(get_close_matches(str(name)[:80].lower(), list(map(str, known)), n=1)), None)


# -- cattrs -----------------------------------------------------------------------------------------------------------


def _structured(value: object, kind: Any, place: _Place, finite: bool, full: bool) -> Any:
    from cattrs import BaseValidationError

    try:
        return _converter(finite, full).structure(value, kind)
    except (_Mistake, BaseValidationError) as error:
        found: Exception = error
    # The first mistake of the outermost table, down to where it is.
    while isinstance(found, BaseValidationError):
        found = found.exceptions[0]
        for note in getattr(found, "__notes__", ())[-1:]:
            step = getattr(note, "name", getattr(note, "index", None))
            value = cast("Any", value)[step]
            place = place.item(step, value) if isinstance(step, int) else place.key(str(step))
    if isinstance(found, _Mistake):
        raise InputError(found.told(place)) from None
    raise found


@cache
def _converter(finite: bool, full: bool) -> "Converter":
    """A converter with our readers. Exact types only: none of them takes a subclass of what it is for."""
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, make_mapping_structure_fn

    converter = Converter()
    as_tuple = converter.get_structure_hook(tuple)

    def union(hint: Any) -> Callable[[Any, Any], Any]:
        parts = {part: converter.get_structure_hook(part) for part in get_args(hint) if part is not NoneType}
        return lambda value, _: _read_union(value, parts, NoneType in get_args(hint))

    def table(kind: Any) -> Callable[[Any, Any], Any]:
        inside = make_dict_structure_fn(kind, converter)
        known, required = _keys(kind, full)

        def structure(value: Any, _: Any) -> Any:
            told = _odd_keys(_mapping(value), known, required)
            if told is not None:
                raise _Mistake(lambda place: told(place.what))
            return inside(value, kind)

        return structure

    def chosen(value: Any, hint: Any) -> Any:
        kind, rest = _CHOOSERS[_base(hint)](dict(_mapping(value)))
        return converter.structure(rest, kind)

    def items(value: Any, hint: Any) -> Any:
        wanted = get_args(hint)
        size = None if len(wanted) == 2 and wanted[1] is ... else len(wanted)
        if not isinstance(value, list | tuple) or (size is not None and len(value) != size):
            raise _expected("a list" if size is None else f"a list of {size}", value)
        return as_tuple(value, hint)

    def entries(hint: Any) -> Callable[[Any, Any], Any]:
        inside = make_mapping_structure_fn(hint, converter)

        def structure(value: Any, _: Any) -> Any:
            return inside(_mapping(value), hint)

        return structure

    readers: list[tuple[Any, Callable[[Any, Any], Any]]] = [
        (str, lambda value, _: _plain(value, str, "text")),
        (bool, lambda value, _: _plain(value, bool, "true or false")),
        (int, lambda value, _: _plain(value, int, "a whole number")),
        (float, lambda value, _: _read_number(value, finite)),
        *((kind, lambda value, _, make=make: make(_plain(value, str, "text"))) for kind, make in _MAKERS.items()),
    ]
    for kind, reader in readers:
        converter.register_structure_hook(kind, reader)
    converter.register_structure_hook_func(lambda hint: _base(hint) is Literal, _read_literal)
    converter.register_structure_hook_func(lambda hint: _base(hint) is tuple, items)
    converter.register_structure_hook_factory(lambda hint: _base(hint) is dict, entries)
    converter.register_structure_hook_factory(lambda hint: _base(hint) in _UNIONS, union)
    converter.register_structure_hook_factory(lambda hint: is_dataclass(_base(hint)), table)
    converter.register_structure_hook_func(lambda hint: _base(hint) in _CHOOSERS, chosen)
    return converter


def _base(hint: Any) -> Any:
    """A hint without its arguments."""
    return get_origin(hint) or hint


def _keys(kind: Any, full: bool) -> tuple[list[str], list[str]]:
    """(the keys of a class, those that must be there)."""
    hints = get_type_hints(kind)
    absent = [f.name for f in fields(kind) if NoneType in get_args(hints[f.name])]
    given = [f.name for f in fields(kind) if f.default is not MISSING or f.default_factory is not MISSING]
    names = [f.name for f in fields(kind)]
    return names, [name for name in names if name not in (absent if full else given)]


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _expected("a table", value)
    return value


def _plain(value: Any, kind: type[Any], words: str) -> Any:
    # bool is an int to Python, but nobody means `rounds = true`.
    if type(value) is not kind:
        raise _expected(words, value)
    return value


def _read_number(value: Any, finite: bool) -> float:
    words = "a finite number" if finite else "a number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _expected("a number", value)
    if isinstance(value, int) and abs(value) >= 2**1023:
        raise _expected("a smaller number", value)
    if math.isnan(value) or (finite and math.isinf(value)):
        raise _expected(words, value)
    return float(value) + 0.0  # -0.0 becomes 0.0: one number, one digest


def _read_literal(value: Any, hint: Any) -> Any:
    known = get_args(hint)
    if not any(type(value) is type(choice) and value == choice for choice in known):
        raise _Mistake(lambda place: _among(place, value, known))
    return value


def _read_union(value: Any, parts: Mapping[Any, Callable[[Any, Any], Any]], optional: bool) -> Any:
    if value is None and optional:
        return None
    if type(value) in parts:
        return parts[type(value)](value, type(value))
    mistakes = []
    for part, reader in parts.items():
        try:
            return reader(value, part)
        except _Mistake as mistake:
            mistakes.append(mistake)
    if len(mistakes) == 1:
        raise mistakes[0]
    words = [mistake.args[0] if mistake.args else " or ".join(map(repr, get_args(part)))
             for mistake, part in zip(mistakes, parts, strict=True)]  # fmt: skip
    raise _expected(" or ".join(words), value)
