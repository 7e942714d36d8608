"""A public schema: what the columns of a private file mean, agreed before anyone looks at the rows.

From the schema alone follow the encoding, the number of features d and the bound `data_norm` on every row:

    row_norm = "bound"   every row is divided by B = sqrt(number of columns and terms + intercept^2), the longest that
                         the encoding allows, so data_norm = 1. B is public: dividing by it loses nothing.
    row_norm = c         rows longer than c are scaled down to c, so data_norm = min(c, B).

The intercept is a constant feature, it comes last, and it counts in the norm like any other.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from math import inf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, final

from sottovoce import settings
from sottovoce.errors import InputError, expect, naming
from sottovoce.files.schema import parse
from sottovoce.files.schema.column import Column
from sottovoce.files.schema.columns import Categorical
from sottovoce.files.schema.factor import Factor
from sottovoce.files.schema.form import USUAL, FileForm, spelt
from sottovoce.files.schema.labels import ClassLabel, Label, NumberLabel
from sottovoce.files.schema.person import Person
from sottovoce.files.schema.terms import Term, expect_once
from sottovoce.files.schema.values import check_word
from sottovoce.settings import brief, plain, toml, written
from sottovoce.settings.supplied import Supplied

if TYPE_CHECKING:
    from sottovoce.privacy.unit import Unit

RowNorm: TypeAlias = float | Literal["bound"]
MOST_FEATURES = 1_000_000
LARGEST_INTERCEPT = 1e6
INTERCEPT = "intercept"
SITE = "site"  # the column with the names of sites, where a file has none


@final
@dataclass(frozen=True)
class Schema:
    """Columns, label and the public choices around them. `unreviewed` names the values that were taken from a file.

    Formal guarantees: every row that is encoded with it has norm at most `data_norm`, in whatever order its squares are
    added up in double precision. Nothing in the encoding depends on any row but the one that is encoded.
    """

    columns: tuple[Column, ...]
    label: Label
    intercept: float = 1.0  # 0 for none
    row_norm: RowNorm = "bound"
    missing_values: tuple[str, ...] = parse.MISSING_VALUES
    name: str = "table"
    unreviewed: tuple[str, ...] = ()
    file: FileForm = USUAL
    person: Person | None = None  # None: single rows are protected, not people
    weight: Factor | None = None  # None: rows count alike
    exposure: Factor | None = None  # of counts; None: all rows are of the same
    supplied: Supplied | None = None  # what is known of the labels from elsewhere
    terms: tuple[Term, ...] | None = None  # None: no feature is made of other features
    site_effects: bool | str | None = None  # True: each site has one; then, in its place, the column with their names
    version: ClassVar[int] = parse.VERSION

    def __post_init__(self) -> None:
        check_word("name", self.name)
        if self.site_effects is False:  # said or left out is the same, and has the same digest
            object.__setattr__(self, "site_effects", None)
        fine = 0 <= self.intercept <= LARGEST_INTERCEPT
        expect(fine, f"intercept = false or between 0 and {LARGEST_INTERCEPT:g}", intercept=self.intercept)
        # Without one, a row of zeros would have a mean of the largest count.
        expect(not self.counts or self.intercept > 0, "an intercept where the label counts", intercept=self.intercept)
        self._check_columns()
        self._check_site_effects()
        norm = self.row_norm
        fine = norm == "bound" if isinstance(norm, str) else 0 < norm < inf
        expect(fine, 'row_norm = "bound" or a number > 0', row_norm=norm)
        self._check_missing_values()
        if self.supplied is not None:
            self.supplied.expect_fit(None if self.classes is None else len(self.classes), counts=self.counts)
        if self.unreviewed:
            paths = {f"label.{key}" for key in plain(self.label)}
            paths |= set() if self.person is None else {f"person.{key}" for key in plain(self.person)}
            paths = paths.union(*({column.path(key) for key in plain(column)} for column in self.columns))
            for entry in self.unreviewed:
                if entry not in paths:
                    raise InputError(
                        f"Expected every entry of unreviewed to name a value of the schema, got {brief(entry)}. "
                        "Delete it, or write it as columns.NAME.KEY, label.KEY or person.KEY."
                    )

    def _check_columns(self) -> None:
        expect(len(self.columns) >= 1, "columns to hold at least one column", columns=len(self.columns))
        if self.terms is not None:
            expect(len(self.terms) >= 1, "terms to hold a term, or no terms at all", terms=len(self.terms))
            expect_once(self.terms)
        made = "columns" if self.terms is None else "columns and terms"
        expect(self.d <= MOST_FEATURES, f"{made} that make at most {MOST_FEATURES} features", d=self.d)
        of_label = tuple(column.name for column in self.label.as_columns())
        seen, taken = {*of_label}, [*of_label, *(column.name for column in self.columns)]
        for place in ("person", "weight", "exposure"):
            beside = getattr(self, place)
            if beside is not None and beside.column in taken:
                raise InputError(
                    f"Expected a {place}.column that is neither a feature nor the label, nor used for anything else, "
                    f"got column={brief(beside.column)}. Take it out of one of them, or copy the column under another "
                    "name."
                )
            taken += [] if beside is None else [beside.column]
        if self.exposure is not None and not self.counts:
            raise InputError(
                f"Expected an exposure only where the label counts, got column={brief(self.exposure.column)}. Say "
                "counts = true in the schema's label, or take [exposure] out."
            )
        if self.exposure is not None and self.exposure.above == "clip":
            raise InputError(
                "Expected exposures that are not clipped, got exposure.above='clip'. The count of a row would no "
                "longer fit its exposure: leave such rows out, or declare a larger bound, which costs no noise."
            )
        for column in self.columns:
            if column.name in seen:
                whose = "the label's column" if column.name in of_label else "another column's"
                raise InputError(f"Expected columns of different names, got name={brief(column.name)}, also {whose}.")
            seen.add(column.name)
        names = set[str]()
        for feature in self.feature_names:
            if feature in names:
                raise InputError(f"Expected columns whose features have different names, got {brief(feature)} twice.")
            names.add(feature)

    def _check_site_effects(self) -> None:
        of = self.site_effects
        if not isinstance(of, str):
            return
        column = next((column for column in self.columns if column.name == of), None)
        if not isinstance(column, Categorical) or column.other or column.first or column.missing != "refuse":
            raise InputError(
                f"Expected site_effects = true, or the name of a categorical column whose categories are the sites, "
                f"without other, first and missing, got site_effects={brief(of)}."
            )

    def at_sites(self, names: Sequence[str], column: str = SITE) -> "Schema":
        """The schema once the sites are known. If it asks for an effect of each, their names are the levels of one more
        column, in alphabetical order, and the first is the reference; if not, nothing changes.
        """
        if self.site_effects is not True:
            return self
        expect(len(names) >= 2, "two sites or more with site_effects = true", "Take it out", sites=len(names))
        ordered = tuple(sorted(names))
        own = Categorical(name=column, categories=ordered, reference=ordered[0])
        return replace(self, columns=(*self.columns, own), site_effects=column)

    def _check_missing_values(self) -> None:
        for value in self.missing_values:
            if value:
                check_word("missing_values", value)
        # Every text that a cell may be stands in a list of the schema.
        listed = [(f"label.{key}", value) for key, value in plain(self.label).items()]
        listed += [(column.path(key), value) for column in self.columns for key, value in plain(column).items()]
        for path, word in ((path, word) for path, value in listed if isinstance(value, list) for word in value):
            if word in self.missing_values:
                raise InputError(
                    f"Expected missing_values and {path} to share no text, got {brief(word)} in both. "
                    "Take it out of one of them."
                )

    def separated(self, delimiter: str | None) -> "Schema":
        """The schema for a file with this delimiter; None keeps the schema's own."""
        return self if delimiter is None else replace(self, file=replace(self.file, delimiter=spelt(delimiter)))

    @property
    def counts(self) -> bool:
        """True if the label is a count."""
        return isinstance(self.label, NumberLabel) and self.label.counts

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Weight and exposure of the rows, in this order, as far as the schema has them."""
        return tuple(one for one in (self.weight, self.exposure) if one is not None)

    @cached_property
    def joined(self) -> tuple[tuple[Term, tuple[Column, ...]], ...]:
        """Every term with the columns that it is made of. A term that does not fit them is refused."""
        columns = {column.name: column for column in self.columns}
        label = [column.name for column in self.label.as_columns()]
        return tuple((term, term.sides(columns, label)) for term in self.terms or ())

    @property
    def d(self) -> int:
        """Number of features, the intercept included. Those of the columns come first, then those of the terms."""
        made = sum(term.width(columns) for term, columns in self.joined)
        return sum(column.width for column in self.columns) + made + (self.intercept > 0)

    @property
    def most_entries(self) -> int:
        """The most features of a row that are not zero."""
        return len(self.columns) + sum(term.most_entries for term, _ in self.joined) + (self.intercept > 0)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the d features."""
        names = [name for column in self.columns for name in column.feature_names()]
        names += [name for term, columns in self.joined for name in term.feature_names(columns)]
        return (*names, INTERCEPT) if self.intercept > 0 else tuple(names)

    @property
    def encoded_norm(self) -> float:
        """B, the longest that a row can be before `row_norm` is applied."""
        return sqrt(len(self.columns) + len(self.joined) + self.intercept**2)

    @property
    def largest(self) -> float:
        """The bound on every number of an encoded row, if none is cut."""
        return max(1.0, self.intercept) * self.data_norm / self.encoded_norm

    @property
    def usual_norm(self) -> float:
        """About how long a row is whose values are spread evenly over what the schema allows. Reads no row."""
        made = sum(term.mean_square(columns) for term, columns in self.joined)
        return sqrt(sum(column.mean_square() for column in self.columns) + made + self.intercept**2)

    @property
    def data_norm(self) -> float:
        """The bound on every encoded row's Euclidean norm."""
        return 1.0 if self.row_norm == "bound" else min(float(self.row_norm), self.encoded_norm)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes of the label; None if it is a number."""
        return self.label.classes if isinstance(self.label, ClassLabel) else None

    @property
    def known(self) -> dict[str, Any]:
        """What was supplied of the labels, by name, as `plan` takes it."""
        return {} if self.supplied is None else self.supplied.given

    @property
    def described(self) -> dict[str, Column]:
        """Every column, and the label as one more, by name, without what is for learning alone (`Column.bare`)."""
        return {column.name: column.bare() for column in (*self.columns, *self.label.as_columns())}

    @property
    def unit(self) -> "Unit":
        """The unit of privacy of rows that are read with it: people at one site, if it names them, or rows."""
        from sottovoce.privacy.unit import ROW  # heavy, and not needed to read a schema

        return ROW if self.person is None else self.person.unit()

    def digest(self) -> str:
        """SHA-256 of everything that the encoding follows from. Two sites with the same digest encode alike.

        What is still marked as unreviewed is left out: reviewing a value without changing it changes no encoding. So is
        the form of the files, which may differ from site to site, what was supplied of labels and levels, which changes
        plans alone, and the positive class, which the order says.
        """
        data = {key: value for key, value in plain(self).items() if key not in ("unreviewed", "file", "supplied")}
        data["columns"] = [{key: one for key, one in own.items() if key != "shares"} for own in data["columns"]]
        data["label"] = {key: value for key, value in data["label"].items() if key != "positive"}
        return sha256(json.dumps(data, sort_keys=True, allow_nan=False).encode()).hexdigest()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Schema":
        """The inverse of `settings.plain`; refuses what it does not know."""
        return settings.read(cls, parse.fields(data), "keys of a schema")

    def dumps(self) -> str:
        """The text of a schema file."""
        return parse.render(plain(self), {})

    @classmethod
    def loads(cls, text: str) -> "Schema":
        """Read a schema from the text of a schema file."""
        return cls.from_dict(toml.parse(text, "a schema in TOML", parse.LARGEST_FILE))

    @classmethod
    def load(cls, path: str | Path) -> "Schema":
        """Read a schema file; errors name it."""
        text = parse.read_text(Path(path))
        with naming(schema=path):
            return cls.loads(text)


written(Schema, "version", "name", "intercept", "row_norm", "missing_values", ..., "label", "columns", absent=(None,))
