"""Settings and results as plain data, as TOML and JSON have it: dataclasses are read by their type hints (`read`) and
written by their fields (`plain`).

Reading is strict: no key that is unknown, none that is missing, no text where a number belongs, no truth for a whole
number. A whole number will do where a number is expected. What is wrong is named by its place in the file, as in
columns.age.bounds[2], and what is misspelt comes with a suggestion.

cattrs walks the classes that are read and knows the way to a mistake; it is imported with the first table that is read.
It writes nothing: it knows no derived values, no order but that of the fields, and passes on what it does not know.
TOML text is read and written in `toml`. Which algorithm a name stands for is in `sottovoce.algorithms.registry`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache
from pathlib import Path
from reprlib import Repr
from types import EllipsisType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from sottovoce.errors import InputError

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")
Table: TypeAlias = Mapping[str, object]
Chooser: TypeAlias = Callable[[dict[str, Any]], tuple[type[Any], dict[str, Any]]]
Hook: TypeAlias = Callable[[Any, Any], Any]
Form: TypeAlias = Callable[[Any], object]

# The place of a value is known only where an error is handled. Until then these stand for it in the message: the path,
# the name alone, and what the table there should hold.
_PATH, _NAME, _WHAT = "\0path", "\0name", "\0what"
_CHOOSERS: dict[type[Any], Chooser] = {}
_MAKERS: dict[type[Any], Callable[[str], Any]] = {}
_TAGS: dict[type[Any] | None, tuple[str, dict[type[Any], str]]] = {}
_FORMS: dict[type[Any], Form] = {}


# -- which classes are read and written -------------------------------------------------------------------------------


def choose(base: type[Any], chooser: Chooser) -> None:
    """Where a `base` is wanted, read the class that the chooser finds, from the keys that it leaves."""
    _CHOOSERS[base] = chooser
    _converter.cache_clear()


def tagged(base: type[Any], tag: str, kinds: Mapping[str, type[Any]]) -> None:
    """Where a `base` is wanted, read the class that the key `tag` names. No other name is ever looked up. Where one is
    written, the tag comes first.
    """
    _TAGS[base] = tag, {kind: name for name, kind in kinds.items()}

    def chooser(table: dict[str, Any]) -> tuple[type[Any], dict[str, Any]]:
        name, rest = untag(table, tag)
        check_choice(f"{_PATH}.{tag}", name, kinds)
        return kinds[name], rest

    choose(base, chooser)


def untag(table: dict[str, Any], tag: str) -> tuple[str, dict[str, Any]]:
    """The text at the key `tag`, and the table without that key. A table without the key is refused."""
    check_keys(table, [*table, tag], (tag,), _WHAT)
    name = table[tag]
    if not isinstance(name, str):
        raise InputError(f"Expected text for {_PATH}.{tag}, got {tag}={brief(name)}.")
    return name, {key: value for key, value in table.items() if key != tag}


def made_by(kind: type[Any], make: Callable[[str], Any]) -> None:
    """Where a `kind` is wanted, a file has text: what `str` writes, and `make` reads."""
    _MAKERS[kind] = make
    _converter.cache_clear()


def written(kind: type[Any], *keys: "str | EllipsisType", absent: tuple[object, ...] = ()) -> None:
    """Write a `kind` with these keys, in this order.

    Args:
        kind: a class; what is derived from it is written alike.
        keys: names of fields, of properties, or of methods without arguments; ... stands for all fields not named.
        absent: None, True, False: a key with such a value is left out.
    """

    def form(value: Any) -> object:
        rest = [name for name in _fields(value) if name not in keys]
        names = [name for key in keys for name in (rest if isinstance(key, EllipsisType) else [key])]
        found = ((name, getattr(value, name)) for name in names)
        table = ((name, plain(one() if callable(one) else one)) for name, one in found)
        return {name: one for name, one in table if all(one is not none for none in absent)}

    written_as(kind, form)


def written_as(kind: type[Any], form: Form) -> None:
    """Write a `kind`, and what is derived from it, as what `form` makes of it."""
    _FORMS[kind] = form


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
    return cast("T", _structure(table, kind, "", what, finite, full))


def typed(name: str, value: object, hint: Any, *, finite: bool = True) -> Any:
    """One value as the type that the hint asks for; refused if it does not fit."""
    return _structure(value, hint, name, name, finite, False)


def check_keys(table: Table, known: Iterable[str], required: Collection[str], what: str) -> None:
    """Refuse a key that nobody knows, and the absence of one that is needed."""
    names = list(known)
    # Unknown keys first: a misspelt key is also a missing one.
    for key in table:
        if key not in names:
            near = _nearest(key, names)
            advice = f"Known: {', '.join(names) or 'none'}." if near is None else f"Did you mean {near}?"
            raise InputError(f"Expected {what}, got {brief(key)}. {advice}")
    missing = [name for name in names if name in required and name not in table]
    if missing:
        add = "Add it." if len(missing) == 1 else "Add them."
        raise InputError(f"Expected {what} in full, got no {', '.join(missing)}. {add}")


def check_choice(path: str, value: object, known: Collection[Any]) -> None:
    """Refuse a name that is not among those known."""
    if not any(type(value) is type(choice) and value == choice for choice in known):
        near = _nearest(value, known)
        advice = "" if near is None else f" Did you mean {near!r}?"
        name = _NAME if path == _PATH else path.rpartition(".")[2]
        raise InputError(f"Expected {path} among {', '.join(map(str, known))}, got {name}={brief(value)}.{advice}")


def brief(value: object) -> str:
    """A short form of any value, for messages."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:
        return f"an int of {value.bit_length()} bits"
    short = Repr()
    short.maxdict = short.maxlist = short.maxtuple = 12
    short.maxlevel, short.maxother, short.maxstring = 2, 60, 60
    try:
        return short.repr(value)
    except ValueError:  # an int too long to be written
        return f"a {type(value).__name__} that is too long to show"


def _nearest(name: object, known: Collection[Any]) -> str | None:
    return next(iter(get_close_matches(str(name)[:80].lower(), list(map(str, known)), n=1)), None)


# -- writing ----------------------------------------------------------------------------------------------------------


def plain(value: object) -> Any:
    """The value as plain data: dict, list, str, int, float, bool and None, which JSON can hold.

    A dataclass or named tuple is a table of its fields, unless `tagged`, `made_by`, `written` or `written_as` say
    otherwise of its class. An array is a list, a member of an enumeration its name, a path its text. What is infinite
    or not a number is None. Anything else is refused.
    """
    match value:
        case Enum():
            return value.name
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else None
        case Path():
            return str(value)
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
    kind = type(value)
    form = next((_FORMS[base] for base in kind.__mro__ if base in _FORMS), None)
    # Of a family of classes, only those that can be read again are written.
    family = next((base for base in kind.__mro__ if base in _CHOOSERS), None)
    tag, names = _TAGS.get(family, ("", {kind: ""}))
    readable = kind in names and (form is not None or tag != "" or family is None)
    if kind in _MAKERS:
        return str(value)
    if readable and (form is not None or is_dataclass(kind) or hasattr(kind, "_fields")):
        table = plain({name: getattr(value, name) for name in _fields(value)} if form is None else form(value))
        return table if tag == "" or tag in table else {tag: names[kind], **table}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    import numpy as np  # not needed for settings, and slow to import

    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    raise TypeError(f"Expected a value that can be written as plain data, got {brief(value)}.")


def _fields(value: Any) -> tuple[str, ...]:
    """Names of the fields of a dataclass or named tuple."""
    return tuple(f.name for f in fields(value)) if is_dataclass(value) else value._fields


# -- by cattrs --------------------------------------------------------------------------------------------------------


class _UnfitError(InputError):
    """A value of another type than the one in `words`."""

    def __init__(self, words: str, value: object) -> None:
        super().__init__(f"Expected {words} for {_PATH}, got {_NAME}={brief(value)}.")
        self.words = words


def _structure(value: Any, kind: Any, path: str, what: str, finite: bool, full: bool) -> Any:
    from cattrs import AttributeValidationNote, BaseValidationError

    found: Exception
    try:
        return _converter(finite, full).structure(value, kind)
    except (InputError, BaseValidationError) as error:
        found = error
    name = path or "data"
    # The first mistake of every table, down to the value that is wrong.
    while isinstance(found, BaseValidationError):
        found = found.exceptions[0]
        for note in getattr(found, "__notes__", ())[-1:]:
            step = note.name if isinstance(note, AttributeValidationNote) else note.index
            value = value[step]
            own = value.get("name") if isinstance(value, Mapping) else None
            if isinstance(step, str):
                name, path = step, f"{path}.{step}" if path else step
            elif isinstance(own, str) and own.isprintable() and 0 < len(own) < 100:
                name, path = own, f"{path}.{own}"  # items of a list go by their own name,
            else:
                name, path = f"{name}[{step + 1}]", f"{path}[{step + 1}]"  # or else by their number, from 1
            what = f"keys of {path}"
    if not isinstance(found, InputError) or "\0" not in str(found):
        raise found
    message = str(found).replace(f"{_PATH}.", f"{path}." if path else "").replace(_PATH, path or what)
    raise InputError(message.replace(_NAME, name).replace(_WHAT, what)) from None


@cache
def _converter(finite: bool, full: bool) -> "Converter":
    """A cattrs converter whose hooks are stricter than its own and raise errors in our words."""
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, make_mapping_structure_fn

    converter = Converter()
    as_tuple = converter.get_structure_hook(tuple)

    def table(kind: Any) -> Hook:
        inside, hints, own = make_dict_structure_fn(kind, converter), get_type_hints(kind), fields(kind)
        absent = [f.name for f in own if NoneType in get_args(hints[f.name])]
        default = [f.name for f in own if f.default is not MISSING or f.default_factory is not MISSING]
        known = [f.name for f in own]
        required = [name for name in known if name not in (absent if full else default)]

        def structure(value: Any, _: Any) -> Any:
            check_keys(_mapping(value), known, required, _WHAT)
            return inside(value, kind)

        return structure

    def entries(hint: Any) -> Hook:
        inside = make_mapping_structure_fn(hint, converter)
        return lambda value, _: inside(_mapping(value), hint)

    def union(hint: Any) -> Hook:
        parts = {part: converter.get_structure_hook(part) for part in get_args(hint) if part is not NoneType}
        return lambda value, _: None if value is None and NoneType in get_args(hint) else _first(parts, value)

    def chosen(value: Any, hint: Any) -> Any:
        kind, rest = _CHOOSERS[_base(hint)](dict(_mapping(value)))
        return converter.structure(rest, kind)

    def items(value: Any, hint: Any) -> Any:
        size = None if get_args(hint)[-1] is ... else len(get_args(hint))
        if not isinstance(value, list | tuple) or (size is not None and len(value) != size):
            raise _UnfitError("a list" if size is None else f"a list of {size}", value)
        return as_tuple(value, hint)

    def from_text(make: Callable[[str], Any]) -> Hook:
        return lambda value, _: make(_exactly(str, value, "text"))

    def among(value: Any, hint: Any) -> Any:
        check_choice(_PATH, value, get_args(hint))
        return value

    plain: dict[Any, Hook] = {
        str: lambda value, _: _exactly(str, value, "text"),
        bool: lambda value, _: _exactly(bool, value, "true or false"),
        int: lambda value, _: _exactly(int, value, "a whole number"),
        float: lambda value, _: _number(value, finite),
    }
    for kind, hook in (plain | {kind: from_text(make) for kind, make in _MAKERS.items()}).items():
        converter.register_structure_hook(kind, hook)
    converter.register_structure_hook_func(lambda hint: _base(hint) is Literal, among)
    converter.register_structure_hook_func(lambda hint: _base(hint) is tuple, items)
    converter.register_structure_hook_factory(lambda hint: _base(hint) is dict, entries)
    converter.register_structure_hook_factory(lambda hint: _base(hint) in (Union, UnionType), union)
    converter.register_structure_hook_factory(lambda hint: is_dataclass(_base(hint)), table)
    converter.register_structure_hook_func(lambda hint: _base(hint) in _CHOOSERS, chosen)
    return converter


def _base(hint: Any) -> Any:
    """The type of a hint without its arguments, such as tuple for tuple[int, ...]."""
    return get_origin(hint) or hint


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _UnfitError("a table", value)
    return value


def _exactly(kind: type[Any], value: Any, words: str) -> Any:
    # bool is an int to Python, but `rounds = true` is a mistake.
    if type(value) is not kind:
        raise _UnfitError(words, value)
    return value


def _number(value: Any, finite: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnfitError("a number", value)
    if isinstance(value, int) and abs(value) >= 2**1023:
        raise _UnfitError("a smaller number", value)
    if math.isnan(value) or (finite and math.isinf(value)):
        raise _UnfitError("a finite number" if finite else "a number", value)
    return float(value) + 0.0  # -0.0 becomes 0.0: one number, one digest


def _first(parts: Mapping[Any, Hook], value: Any) -> Any:
    """The value as the type that it has, or else as the first that fits."""
    if type(value) in parts or len(parts) == 1:
        kind = type(value) if type(value) in parts else next(iter(parts))
        return parts[kind](value, kind)
    words = []
    for kind, hook in parts.items():
        try:
            return hook(value, kind)
        except _UnfitError as error:
            words.append(error.words)
        except InputError:  # a name that is not known
            words.append(" or ".join(map(repr, get_args(kind))))
    raise _UnfitError(" or ".join(words), value)
