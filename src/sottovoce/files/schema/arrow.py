"""Cells on top of pyarrow arrays. Text is worked on by its distinct values, which are few, and numbers as they are."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from sottovoce.arrays import Bools, Floats
from sottovoce.files.schema import dates
from sottovoce.files.schema.cells import Cells, Places

_FLOAT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_COMMA_FLOAT = _FLOAT.replace(r"\.", ",")
_SHOWN = 60  # characters of a cell in a message


def cells_of(column: Any, markers: Sequence[str], decimal: str = ".") -> Cells:
    """One column of a batch. Dates and times become the text that they are in a CSV file."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        if _is_text(kind.value_type):
            return TextCells(column.dictionary, column.indices, markers, decimal)
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind) or _is_date(kind):
        # As text, whole seconds come without the zeros that a finer unit has behind them.
        column, kind = compute.replace_substring_regex(column.cast(pa.string()), r"\.0+(Z?)$", r"\1"), pa.string()
    if _is_text(kind):
        encoded = column.cast(pa.large_binary()).dictionary_encode()
        return TextCells(encoded.dictionary, encoded.indices, markers, decimal)
    return TypedCells(column, markers)


def same_cells(rows: int, text: str | None) -> Cells:
    """So many cells with this text, or without a value, for a column that a file does not have."""
    return cells_of(pa.nulls(rows) if text is None else pa.repeat(pa.scalar(text), rows), ())


def is_supported(kind: Any) -> bool:
    """True if a Parquet column of this type can be read."""
    types = pa.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null, _is_text)
    return any(test(kind) for test in (*tests, _is_date))


def _is_date(kind: Any) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _is_text(kind: Any) -> bool:
    types = pa.types
    tests = (types.is_string, types.is_large_string, types.is_string_view)
    return any(test(kind) for test in (*tests, types.is_binary, types.is_large_binary, types.is_binary_view))


@final
class TextCells(Cells):
    """Texts: distinct values, and for every row which of them. The last value stands for nulls."""

    def __init__(self, distinct: Any, codes: Any, markers: Sequence[str], decimal: str = ".") -> None:
        self._decimal = decimal
        texts, broken = _decode(distinct)
        values = compute.utf8_trim_whitespace(pa.concat_arrays([texts, pa.nulls(1, texts.type)]))
        self._values = values
        self._codes: NDArray[np.int64] = _numpy(_filled(codes.cast(pa.int64()), len(distinct)))
        self._broken = np.append(broken, False)
        marked = compute.is_in(values, value_set=_texts(markers))
        self._missing: Bools = (_numpy(marked) | _numpy(values.is_null())) & ~self._broken

    def __len__(self) -> int:
        return len(self._codes)

    def missing(self) -> Bools:
        return self._missing[self._codes]

    def unreadable(self) -> Bools:
        return self._broken[self._codes]

    def numbers(self) -> Floats:
        return _parse_numbers(self._values, self._decimal)[self._codes]

    def days(self, order: str) -> Floats:
        return dates.days(self._values, order)[self._codes]

    def places(self, words: Sequence[str], first: int | None = None) -> Places:
        values = self._values if first is None else compute.utf8_slice_codeunits(self._values, 0, first)
        found = compute.index_in(values, value_set=_texts(words))
        places: Places = _numpy(_filled(found, -1))
        return places[self._codes]

    def multiline(self) -> Bools:
        return _numpy(compute.match_substring_regex(self._values, "[\r\n]").fill_null(False))[self._codes]

    def are_truths(self) -> bool:
        return False

    def distinct(self) -> list[str]:
        used = np.zeros(len(self._values), dtype=bool)
        used[self._codes] = True
        texts: list[str] = self._values.filter(pa.array(used & ~self._missing & ~self._broken)).unique().to_pylist()
        return texts

    def texts(self) -> list[str]:
        texts: list[str] = self._values.fill_null("").take(pa.array(self._codes)).to_pylist()
        return texts

    def shown(self, row: int) -> str:
        return _short(self._values[int(self._codes[row])].as_py())


@final
class TypedCells(Cells):
    """Numbers or truth values of a Parquet file. A NaN becomes a null."""

    def __init__(self, values: Any, markers: Sequence[str]) -> None:
        if pa.types.is_floating(values.type):
            values = compute.if_else(values.is_nan(), None, values)
        self._values, self._markers = values, markers

    def __len__(self) -> int:
        return len(self._values)

    def missing(self) -> Bools:
        return _numpy(self._values.is_null())

    def unreadable(self) -> Bools:
        return np.zeros(len(self), dtype=bool)

    def numbers(self) -> Floats:
        numbers: Floats = _numpy(_filled(self._values.cast(pa.float64(), safe=False), np.nan)).copy()
        numbers[np.isinf(numbers)] = np.nan
        return numbers

    def days(self, order: str) -> Floats:
        return self._text().days(order)

    def places(self, words: Sequence[str], first: int | None = None) -> Places:
        return self._text().places(words, first)

    def multiline(self) -> Bools:
        return np.zeros(len(self), dtype=bool)

    def are_truths(self) -> bool:
        return bool(pa.types.is_boolean(self._values.type))

    def distinct(self) -> list[str]:
        return self._text().distinct()

    def texts(self) -> list[str]:
        return self._text().texts()

    def shown(self, row: int) -> str:
        return _short(self._values[row].as_py())

    def _text(self) -> TextCells:
        texts = self._values.cast(pa.string()).dictionary_encode()
        return TextCells(texts.dictionary, texts.indices, self._markers)


def _decode(values: Any) -> tuple[Any, Bools]:
    """Bytes as text, and which of them are no UTF-8; those come out with replacement characters."""
    raw = values.cast(pa.large_binary())  # pyarrow checks text that comes from bytes, and no other
    try:
        return raw.cast(pa.large_string()), np.zeros(len(raw), dtype=bool)
    except pa.ArrowInvalid:
        pieces = raw.to_pylist()
    texts = [None if piece is None else piece.decode(errors="replace") for piece in pieces]
    # Only bytes that are no UTF-8 come back as others.
    broken = np.array([text is not None and text.encode() != piece for text, piece in zip(texts, pieces, strict=True)])
    return pa.array(texts, type=pa.large_string()), broken


def _parse_numbers(texts: Any, decimal: str) -> Floats:
    """Texts as numbers; NaN where one is not a finite number."""
    if decimal == ",":
        # A point would be a separator of thousands, or of something else: not guessed at.
        fine = compute.match_substring_regex(texts, _COMMA_FLOAT)
        return _finite(compute.replace_substring(_where(fine, texts), ",", ".").cast(pa.float64()))
    try:
        return _finite(texts.cast(pa.float64()))
    except pa.ArrowInvalid:
        # Only now the slow way: those that do not look like a number are set aside.
        fine = compute.match_substring_regex(texts, _FLOAT)
        return _finite(_where(fine, texts).cast(pa.float64()))


def _texts(words: Sequence[str]) -> Any:
    """Words as an array. `pyarrow.array` would import pandas, where it is installed: half a second."""
    coded = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, coded)], dtype=np.int64)
    return pa.Array.from_buffers(
        pa.large_string(), len(coded), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(coded))]
    )


def _where(fine: Any, texts: Any) -> Any:
    """These of the texts, and nothing in place of the others."""
    return compute.if_else(fine, texts, pa.nulls(1, texts.type)[0])


def _filled(numbers: Any, value: float) -> Any:
    """With this value where there is none. A plain number would become a `pyarrow.scalar`, which imports pandas too."""
    kind = numbers.type
    buffer = pa.py_buffer(np.array([value], dtype=kind.to_pandas_dtype()))
    return numbers.fill_null(pa.Array.from_buffers(kind, 1, [None, buffer])[0])


def _finite(parsed: Any) -> Floats:
    numbers: Floats = _numpy(_filled(parsed, np.nan)).copy()
    numbers[np.isinf(numbers)] = np.nan
    return numbers


def _short(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _numpy(array: Any) -> NDArray[Any]:
    """Numbers or truth values, none of them missing. `to_numpy` would import pandas."""
    if pa.types.is_boolean(array.type):
        return np.from_dlpack(array.cast(pa.uint8())).view(np.bool_)
    return np.from_dlpack(array)
