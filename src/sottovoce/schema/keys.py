"""A table of a schema file, taken apart key by key. What is wrong is named by its key; what is left over is refused."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from sottovoce.errors import InputError, expect
from sottovoce.schema.values import brief, number

T = TypeVar("T")
REQUIRED: Any = object()


class Keys:
    """The keys of one table. `path` is what the table is called in messages, "" for the top."""

    def __init__(self, table: object, path: str) -> None:
        if not isinstance(table, Mapping):
            raise InputError(f"Expected {path or 'a schema'} to be a table, got {brief(table)}.")
        self.path = path
        self._left = dict(table)
        self._known: list[str] = []

    def of(self, key: str) -> str:
        """A key's name in messages."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Whether the key is there and not yet taken."""
        return key in self._left

    def raw(self, key: str, default: Any = REQUIRED) -> Any:
        """Take a value of any type."""
        self._known.append(key)
        if key not in self._left:
            expect(default is not REQUIRED, f"a key {self.of(key)}", keys=sorted(map(str, self._left))[:10])
            return default
        return self._left.pop(key)

    def text(self, key: str, default: Any = REQUIRED) -> Any:
        """Take a text."""
        return self._typed(key, default, str, "text in quotes")

    def truth(self, key: str, default: Any = REQUIRED) -> Any:
        """Take true or false."""
        return self._typed(key, default, bool, "true or false")

    def whole(self, key: str, default: Any = REQUIRED) -> Any:
        """Take a whole number."""
        value = self.raw(key, default)
        if value is not default and (isinstance(value, bool) or not isinstance(value, int)):
            raise InputError(f"Expected {self.of(key)} to be a whole number, got {brief(value)}.")
        return value

    def texts(self, key: str, default: Any = REQUIRED) -> Any:
        """Take a list of texts."""
        values = self._list(key, default)
        if values is default:
            return default
        for value in values:
            if not isinstance(value, str):
                raise InputError(f"Expected {self.of(key)} to hold texts in quotes, got {brief(value)}.")
        return tuple(values)

    def numbers(self, key: str, default: Any = REQUIRED) -> Any:
        """Take a list of finite numbers."""
        values = self._list(key, default)
        if values is default:
            return default
        found = tuple(number(value) for value in values)
        if None in found:
            wrong = values[found.index(None)]
            raise InputError(f"Expected {self.of(key)} to hold finite numbers, got {brief(wrong)}.")
        return found

    def bounds(self, key: str, default: Any = REQUIRED) -> Any:
        """Take two finite numbers."""
        values = self.numbers(key, default)
        if values is not default and len(values) != 2:
            raise InputError(f"Expected {self.of(key)} = [low, high], got {brief(list(values))}.")
        return values

    def tables(self, key: str) -> list[Any]:
        """Take a list of tables."""
        return list(self._list(key, REQUIRED))

    def finish(self) -> None:
        """Refuse what was not taken."""
        for key in self._left:
            near = get_close_matches(str(key), self._known, 1)
            advice = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(self._known)}."
            raise InputError(f"Expected no key {brief(self.of(str(key)))} in a schema. {advice}")

    def _typed(self, key: str, default: Any, wanted: type, words: str) -> Any:
        value = self.raw(key, default)
        if value is not default and not isinstance(value, wanted):
            raise InputError(f"Expected {self.of(key)} to be {words}, got {brief(value)}.")
        return value

    def _list(self, key: str, default: Any) -> Any:
        value = self.raw(key, default)
        if value is not default and (isinstance(value, str) or not isinstance(value, Sequence)):
            raise InputError(f"Expected {self.of(key)} to be a list, got {brief(value)}.")
        return value
