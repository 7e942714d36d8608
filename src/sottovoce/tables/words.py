"""Tables as people read them: parts of a document, as Table 1 of a paper has them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sottovoce.document import NOTHING, Cell, Part, Table, Words
from sottovoce.numerals import up
from sottovoce.privacy import PrivacyStatement
from sottovoce.tables.coding import MISSING
from sottovoce.tally.intervals import Interval

if TYPE_CHECKING:
    from sottovoce.tables.cross import CrossTable
    from sottovoce.tables.description import DescribedColumn, Description, Difference, Level
    from sottovoce.tables.pairs import PairTables

INDENT = "\u2003"  # before the levels of a column
INTERVALS = (
    "In brackets: shares, and 95 % intervals that cover the privacy noise and the sampling of the rows. Counts are the "
    "likeliest that add up: each alone may be off by the noise."
)
BINS = "Quartiles are known up to the bins that numbers are counted in, so their intervals end at ends of bins."
DIFFERENCES = "Differences are standardised: from {first}, divided by the root of the mean variance of the two groups."
EMPTY = "A group or level that no row is in looks like one with a few: whether there are any is hidden by the noise."


def described(found: "Description") -> list[Part]:
    """The table, what its numbers mean, and what they cost."""
    headings = ("", "all", *found.groups, *(f"{name} - {found.groups[0]}" for name in found.groups[1:]))
    rows = list[tuple[Cell, ...]]()
    strong = set[int]()
    sizes = (f"{found.rows:,}", *(_count(one) for one in found.sizes))
    rows.append(_line("rows", sizes, headings))
    for column in found.columns:
        strong.add(len(rows))
        far = tuple(map(_difference, column.differences))
        rows.append((Words(column.name, "strong"), *[""] * (1 + len(found.groups)), *_padded(far, found.groups)))
        rows += _column(column, headings)
    noise = sorted({f"{column.noise:.3g}" for column in found.columns}, key=float)
    between = noise[0] if len(noise) == 1 else f"{noise[0]} to {noise[-1]}"
    number = any(column.number for column in found.columns)
    notes = [INTERVALS, *([BINS] if number else [])]
    notes += [DIFFERENCES.format(first=found.groups[0]), EMPTY] if found.groups else []
    return [
        Table(headings, rows, frozenset(range(1, len(headings))), frozenset(strong)),
        Words(f"The noise in a count of a group has a standard deviation of {between} rows."),
        *(Words(note, "soft") for note in notes),
        *price(found.privacy),
    ]


def price(privacy: PrivacyStatement) -> Iterator[Part]:
    """What a table cost, and the notes of its guarantee; a warning if there is none."""
    if not privacy.private:
        yield Words("NOT PRIVATE: no noise was added. What was released may reveal any row.", "bad")
        return
    yield Words(f"It cost epsilon = {up(privacy.epsilon)}, delta = {privacy.delta:g}, for {privacy.unit}.")
    yield from (Words(f"Note: {note}") for note in privacy.notes)


def _column(column: "DescribedColumn", headings: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    for name, values in column.figures.items():
        yield _line(INDENT + name, tuple(map(_number, values)), headings)
    # Of a number, the bins are for programs: people read its figures.
    for level in column.levels:
        if not column.number or level.name == MISSING:
            yield _line(INDENT + level.name, tuple(_share(level)), headings, tuple(map(_difference, level.differences)))


def _line(name: str, values: Sequence[str], headings: Sequence[str], far: Sequence[str] = ()) -> tuple[Cell, ...]:
    line = (name, *values, *far)
    return (*line, *[""] * (len(headings) - len(line)))


def _padded(far: Sequence[str], groups: Sequence[str]) -> tuple[str, ...]:
    return (*far, *[""] * (max(len(groups) - 1, 0) - len(far)))


def _share(level: "Level") -> Iterator[str]:
    for count, share in zip(level.counts, level.shares, strict=True):
        if share.value is None:
            yield f"{NOTHING} ({count.low:,.0f} to {count.high:,.0f} rows)"
        else:
            yield f"{count.value:,.0f} ({100 * share.value:.1f} %; {_span(share)})"


def _count(one: Interval) -> str:
    return f"{one.value:,.0f} ({one.low:,.0f} to {one.high:,.0f})"


def _number(one: Interval) -> str:
    return f"{NOTHING if one.value is None else _digits(one.value)} ({_digits(one.low)} to {_digits(one.high)})"


def _digits(value: float) -> str:
    """Four digits, or whole numbers where they are more."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _difference(one: "Difference") -> str:
    if one.value is None:
        return NOTHING
    return f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f})"


def crossed(found: "CrossTable") -> list[Part]:
    """A cross-table, its test, and what it cost."""
    test = found.test
    assert test is not None  # a table that was asked for has one
    given = f", given {found.columns[2]}" if len(found.columns) > 2 else ""
    return [
        *_grid(found),
        Words(
            f"Chi-squared = {test.statistic:.4g}, {p_words(test.p, test.draws)}: whether {found.columns[0]} and "
            f"{found.columns[1]} are independent{given}. Without noise there would be {test.freedom} degrees of "
            "freedom.", "strong",
        ),
        Words(
            "The test accounts for the noise: p is how often tables of independent columns with such margins, and "
            f"with noise of their own, come out as far apart, of {test.draws:,} that were drawn.", "soft",
        ),
        Words(f"{found.rows:,} rows. The noise in a count has a standard deviation of {found.noise:.3g} rows."),
        Words(_SHARES, "soft"),
        *price(found.privacy),
    ]  # fmt: skip


def paired(found: "PairTables") -> list[Part]:
    """The tables of all pairs, and what they rest on."""
    parts, noise = list[Part](), sorted(table.noise for table in found.tables)
    for table in found.tables:
        parts += [*_grid(table), Words("")]
    if noise:
        ends = dict.fromkeys(f"{one:.3g}" for one in (noise[0], noise[-1]))
        by = ", by table" if len(ends) > 1 else ""
        parts.append(
            Words(
                f"{found.tables[0].rows:,} rows. The noise in a count has a standard deviation of at most "
                f"{' to '.join(ends)} rows{by}. It is largest where a level is a reference."
            )
        )
    if found.left_out:
        parts.append(Words(f"Not shown, as they have too many cells: {'; '.join(found.left_out)}."))
    paid = [Words(_PAID)] if found.privacy.private else price(found.privacy)
    return [*parts, Words(_SHARES, "soft"), Words(_LIKELIEST, "soft"), *paid]


_SHARES = "In brackets: shares of all rows, and their 95 % intervals, which cover noise and sampling."
_LIKELIEST = "Counts are the likeliest that add up: each alone may be off by the noise, and so may one that is 0."
_PAID = "All of this was released beside the model, and the guarantee of the run covers it, at no further cost."


def _grid(found: "CrossTable") -> Iterator[Part]:
    """The counts, one table for each level of the third column if there is one."""
    first, second = found.levels[0], found.levels[1]
    for place, stratum in enumerate(found.levels[2] if len(found.levels) > 2 else ("",)):
        if stratum:
            yield Words(f"{found.columns[2]} = {stratum}", "strong")
        rows = [
            (name, *(_cell(found, found.cell(i, j, place)) for j in range(len(second)))) for i, name in enumerate(first)
        ]
        headings = (f"{found.columns[0]} \\ {found.columns[1]}", *second)
        yield Table(headings, rows, frozenset(range(1, len(headings))))


def p_words(p: float, draws: int) -> str:
    """A p that was found from so many draws."""
    return f"p = {p:.3g}" if p > 1 / draws else f"p < {1 / draws:.1g}"


def _cell(found: "CrossTable", place: int) -> str:
    count, share = found.counts[place], found.shares[place]
    value = count.value or 0.0
    return f"{value:,.0f} ({100 * value / found.rows:.1f} %; {_span(share)})"


def _span(share: Interval) -> str:
    """From where to where a share goes, in per cent."""
    return f"{100 * share.low:.1f}\u2013{100 * share.high:.1f}"
