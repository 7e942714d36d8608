"""A model with two classes or one number as a formula for a database or a spreadsheet.

In a row that a schema has encoded, each column has at most one feature that is not zero. So the score is a sum with one
term for each column: a linear function of a number that is cut at its bounds, or one of a few constants. A row that a
file would be refused for, or that is left out, gets no score: NULL in SQL, #N/A in a spreadsheet. As with ONNX, numbers
must be numbers, and texts must come without spaces around them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Literal, TypeAlias, final, get_args

from sottovoce.arrays import Floats
from sottovoce.errors import UnsupportedError, expect
from sottovoce.files.models.by_columns import encoded, missing_numbers, obstacle
from sottovoce.files.models.model import Model
from sottovoce.files.schema import Boolean, Categorical, Column, Numeric, Schema
from sottovoce.files.schema.findings import Finding
from sottovoce.numerals import exactly, up
from sottovoce.problem.losses import Poisson

Form: TypeAlias = Literal["sql", "spreadsheet"]
Effect: TypeAlias = float | None  # what a column adds to the score; None: the row has no score
LONGEST_FORMULA, LONGEST_TEXT = 8192, 255  # characters, in spreadsheets
LARGEST = 1.7e308
_SCORE = "sottovoce_score"


def formula(model: Model, form: Form) -> str:
    """The score, the prediction and, where the loss makes them, the probabilities, as text to be pasted.

    Refuses models with more than two classes, dates, codes that are cut, exposures, terms, or rows that may be
    shortened: of these the formula would not be simple.
    """
    expect(form in get_args(Form), f"a formula among {', '.join(get_args(Form))}", formula=form)
    schema = model.schema
    reason = obstacle(schema)
    if schema is not None and reason is None:
        reason = _not_simple(model, schema)
    if schema is None or reason is not None:
        raise UnsupportedError(
            f"Expected a model whose formula is simple, got {reason}. Use sottovoce predict or export."
        )
    promised = "no privacy"
    if model.privacy.private:
        promised = f"epsilon = {up(model.privacy.epsilon)}, delta = {exactly(model.privacy.delta)}"
    promise = f"The model promises {promised} to the rows that it was learnt from."
    return _sql(model, schema, promise) if form == "sql" else _spreadsheet(model, schema, promise)


def _not_simple(model: Model, schema: Schema) -> str | None:
    if model.weights.shape[1] > 1:
        return "times to an event" if model.timed is not None else f"{len(model.classes or ())} classes"
    if schema.exposure is not None:
        return f"exposures in column {schema.exposure.column!r}"
    if schema.row_norm != "bound" and schema.data_norm < schema.encoded_norm:
        return f"rows that are shortened to row_norm = {schema.row_norm:g}"
    if schema.terms is not None:
        return f"the term {schema.terms[0].name}, of kind {schema.terms[0].kind()!r}"
    texts = [schema.label.name, *(model.classes or ()), *schema.missing_values]
    texts += [text for column in schema.columns for text in (column.name, *column.words())]
    odd = next((text for text in texts if "\\" in text or not text.isprintable()), None)
    # Some databases read a backslash in a text as the beginning of something else.
    return None if odd is None else f"the text {odd!r}, with a backslash or a control character"


# -- what each column adds --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Term:
    """What a column adds to the score. A marker is a number or a text that means a missing value."""

    name: str
    missing: Effect
    markers: Sequence[float] | Sequence[str]


@final
@dataclass(frozen=True, kw_only=True)
class _Line(_Term):
    """A number, cut at its bounds: a straight line between them."""

    bounds: tuple[float, float]
    ends: tuple[float, float]  # effects at the bounds


@final
@dataclass(frozen=True, kw_only=True)
class _Steps(_Term):
    """A number in bins: one effect in each, from each start up to the next. Below the first start, as in its bin."""

    starts: Sequence[float]
    effects: Sequence[float]


@final
@dataclass(frozen=True, kw_only=True)
class _Levels(_Term):
    """A text: the effect of every one that is declared, and of all others."""

    effects: Mapping[str, float]
    other: Effect


def _terms(model: Model, schema: Schema) -> list[_Term]:
    terms, first = list[_Term](), 0
    for column in schema.columns:
        terms.append(_term(column, schema, _weights(model, schema)[first:]))
        first += column.width
    return terms


def _weights(model: Model, schema: Schema) -> Floats:
    """One for each feature, for rows before `row_norm` is applied."""
    weights: Floats = model.weights[:, 0] / (schema.encoded_norm if schema.row_norm == "bound" else 1.0)
    return weights


def _constant(model: Model, schema: Schema) -> float:
    own = schema.intercept * float(_weights(model, schema)[-1]) if schema.intercept > 0 else 0.0
    return own + model.offset


def _term(column: Column, schema: Schema, weights: Floats) -> _Term:
    """The effects of a column, from how it encodes texts itself: there is only one encoding."""

    def effects(texts: Sequence[str | None]) -> list[Effect]:
        place, value, finding = encoded(column, texts)
        kept = finding < Finding.DROPPED
        return [float(weights[p] * v) if k else None for p, v, k in zip(place, value, kept, strict=True)]

    def sure(texts: Sequence[str]) -> list[float]:
        return [effect for effect in effects(texts) if effect is not None]

    (missing,) = effects([None])
    if isinstance(column, Numeric):
        ends = column.bounds
        shared: dict[str, Any] = {"name": column.name, "missing": missing, "markers": missing_numbers(schema)}
        if column.edges is None:
            low, high = sure([repr(float(end)) for end in ends])
            return _Line(**shared, bounds=ends, ends=(low, high))
        starts = [ends[0], *column.edges]
        return _Steps(**shared, starts=starts, effects=sure([repr(float(start)) for start in starts]))
    assert isinstance(column, Categorical | Boolean)  # others are refused
    words, strange = column.words(), "?"
    while strange in words:
        strange += "?"
    levels = dict(zip(words, sure(words), strict=True))
    (other,) = effects([strange])
    return _Levels(name=column.name, missing=missing, markers=schema.missing_values, effects=levels, other=other)


# -- as text ----------------------------------------------------------------------------------------------------------


class _Dialect(ABC):
    """How a language writes what formulas are made of."""

    @abstractmethod
    def number(self, x: float) -> str:
        """All digits of a number."""

    @abstractmethod
    def text(self, text: str) -> str: ...

    @abstractmethod
    def either(self, condition: str, then: str, opposite: str, otherwise: str) -> str:
        """A choice between two, and nothing where the score is nothing: neither condition holds then."""

    @abstractmethod
    def term(self, term: _Term, x: str) -> str:
        """The effect of a column, whose value is x."""

    def answers(self, model: Model, z: str) -> dict[str, str]:
        """Probabilities, where the loss makes them, and the prediction, by the names that `predict` gives them."""
        found = dict[str, str]()
        if model.classes is not None:
            first, second = model.classes
            if model.has_probabilities:
                log_odds = f"({z} - {self.number(model.tilt)})" if model.tilt else z
                found[f"probability {first}"] = f"1 / (1 + EXP({log_odds}))"
                found[f"probability {second}"] = f"1 / (1 + EXP(-{log_odds}))"
            said = self.either(f"{z} >= 0", self.text(second), f"{z} < 0", self.text(first))
        elif isinstance(model.loss, Poisson):
            most = model.loss.most
            top = self.number(log(most))
            said = self.either(f"{z} < {top}", f"EXP({z})", f"{z} >= {top}", self.number(most))
        else:
            said = z
        return {**found, "prediction": said}


@final
class _Sql(_Dialect):
    def number(self, x: float) -> str:
        # With an exponent: without one, some databases compute with a fixed number of decimal places.
        digits = repr(float(x) + 0.0)
        return digits if "e" in digits else f"{digits}e0"

    def text(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def name(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def either(self, condition: str, then: str, opposite: str, otherwise: str) -> str:
        return f"CASE WHEN {condition} THEN {then} WHEN {opposite} THEN {otherwise} END"

    def term(self, term: _Term, x: str) -> str:
        written = [self.number(one) if isinstance(one, float) else self.text(one) for one in term.markers]
        unknown = f"{x} IS NULL" + (f" OR {x} IN ({', '.join(written)})" if written else "")
        cases = [f"WHEN {unknown} THEN {self._effect(term.missing)}"]
        if not isinstance(term, _Levels):
            # SQLite takes a text for larger than any number, Postgres NaN. The + has it compared as what it is.
            cases.append(f"WHEN NOT (+{x} BETWEEN {-LARGEST} AND {LARGEST}) THEN NULL")
        match term:
            case _Line(bounds=(low, high), ends=(least, most)):
                slope = self.number((most - least) / (high - low))
                cases += [
                    f"WHEN {x} <= {self.number(low)} THEN {self.number(least)}",
                    f"WHEN {x} >= {self.number(high)} THEN {self.number(most)}",
                    f"ELSE {self.number(least)} + {slope} * ({x} - {self.number(low)})",
                ]
            case _Steps():
                pairs = zip(term.starts[1:], term.effects, strict=False)
                cases += [f"WHEN {x} < {self.number(end)} THEN {self.number(effect)}" for end, effect in pairs]
                cases += [f"ELSE {self.number(term.effects[-1])}"]
            case _Levels():
                for effect in dict.fromkeys(term.effects.values()):
                    texts = ", ".join(self.text(level) for level, own in term.effects.items() if own == effect)
                    cases.append(f"WHEN {x} IN ({texts}) THEN {self.number(effect)}")
                cases.append(f"ELSE {self._effect(term.other)}")
        return f"CASE {' '.join(cases)} END"

    def _effect(self, effect: Effect) -> str:
        return "NULL" if effect is None else self.number(effect)


def _sql(model: Model, schema: Schema, promise: str) -> str:
    """One query over a table `new_rows`, of CASE, IN and EXP alone, which most databases have."""
    sql = _Sql()
    parts = [sql.number(_constant(model, schema))]
    parts += [sql.term(term, sql.name(term.name)) for term in _terms(model, schema)]
    score = "\n    + ".join(parts)
    shown = [f"{what} AS {sql.name(name)}" for name, what in sql.answers(model, _SCORE).items()]
    return (
        f"-- {promise}\n-- In place of new_rows, name your table.\nSELECT\n  scored.*,\n  "
        + ",\n  ".join(shown)
        + f"\nFROM (\n  SELECT\n    new_rows.*,\n    {score}\n    AS {_SCORE}\n  FROM new_rows\n) AS scored;"
    )


@final
class _Spreadsheet(_Dialect):
    def number(self, x: float) -> str:
        return repr(float(x) + 0.0).upper()

    def text(self, text: str) -> str:
        if len(text) > LONGEST_TEXT:
            raise UnsupportedError(
                f"Expected texts of at most {LONGEST_TEXT} characters, as spreadsheets take, got {len(text)}. Use SQL."
            )
        return '"' + text.replace('"', '""') + '"'

    def either(self, condition: str, then: str, opposite: str, otherwise: str) -> str:  # noqa: ARG002
        return f"IF({condition}, {then}, {otherwise})"  # without a score, the condition is #N/A, and so is all

    def term(self, term: _Term, x: str) -> str:
        numbers = [f"{x}={self.number(one)}" for one in term.markers if isinstance(one, float)]
        texts = [f"EXACT({x}, {self.text(one)})" for one in term.markers if isinstance(one, str) and one]
        unknown = f"OR({', '.join([f'{x}=' + self.text(''), *numbers, *texts])})"
        match term:
            case _Line(bounds=(low, high), ends=(least, most)):
                slope = self.number((most - least) / (high - low))
                cut = f"MAX({self.number(low)}, MIN({self.number(high)}, {x}))"
                effect = f"{self.number(least)} + {slope} * ({cut} - {self.number(low)})"
            case _Steps():
                cut, starts = f"MAX({self.number(term.starts[0])}, {x})", self._list(map(self.number, term.starts))
                effect = f"LOOKUP({cut}, {starts}, {self._list(map(self.number, term.effects))})"
            case _Levels():
                # EXACT, since = takes A for a, and MATCH takes * for any text.
                met = f"EXACT({x}, {self._list(map(self.text, term.effects))})"
                effects = self._list(map(self.number, term.effects.values()))
                effect = f"IF(SUMPRODUCT(1*{met}) = 0, {self._effect(term.other)}, SUMPRODUCT({met} * {effects}))"
        if not isinstance(term, _Levels):
            effect = f"IF(ISNUMBER({x}), {effect}, NA())"
        return f"IF({unknown}, {self._effect(term.missing)}, {effect})"

    def _effect(self, effect: Effect) -> str:
        return "NA()" if effect is None else self.number(effect)

    def _list(self, items: Iterable[str]) -> str:
        return f"{{{','.join(items)}}}"


def _spreadsheet(model: Model, schema: Schema, promise: str) -> str:
    """Formulas for row 2 of a sheet that has the columns in the order of the schema, from A on."""
    sheet, terms = _Spreadsheet(), _terms(model, schema)
    places = [_letters(i) for i in range(len(terms) + 1)]
    parts = [sheet.number(_constant(model, schema))]
    parts += [sheet.term(term, f"{place}2") for term, place in zip(terms, places, strict=False)]
    made = {"score": " + ".join(parts), **sheet.answers(model, f"{places[-1]}2")}
    longest = max(map(len, made.values())) + 1
    if longest > LONGEST_FORMULA:
        raise UnsupportedError(
            f"Expected a formula of at most {LONGEST_FORMULA} characters, as spreadsheets take, got {longest}. Use SQL."
        )
    lines = [promise, "Row 1 has names, row 2 formulas to fill down, in English notation."]
    lines += [f"{place}1: {term.name}" for term, place in zip(terms, places, strict=False)]
    for i, (name, what) in enumerate(made.items(), start=len(terms)):
        lines += [f"{_letters(i)}1: {name}", f"{_letters(i)}2: ={what}"]
    return "\n".join(lines)


def _letters(number: int) -> str:
    """The name of a column of a sheet, from A for 0 on."""
    letters = ""
    number += 1
    while number:
        number, last = divmod(number - 1, 26)
        letters = chr(ord("A") + last) + letters
    return letters
