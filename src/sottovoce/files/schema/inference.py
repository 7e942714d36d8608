"""Checks of whether a schema's coefficients can have standard errors. They use public facts, and no row.

The features of a one-hot column add up to 1 in every row, which is what the intercept says already: any number can be
moved from one to the other without a change of a single prediction, so none of them has a value. One level, the
reference, must go without a feature; the others are then compared with it.

Numbers are best centred at the middle of their public bounds (scale = "symmetric"). Moved into [0, 1] instead, a number
that is never 0 is nearly the intercept once more, and both are known badly.
"""

from sottovoce.errors import InputError
from sottovoce.files.schema.columns import Ranged
from sottovoce.files.schema.schema import Schema
from sottovoce.files.schema.survival import SurvivalLabel


def obstacles(schema: Schema) -> tuple[str, ...]:
    """Reasons why there can be no standard errors, each with what to do; empty if there can."""
    whole = [column for column in schema.columns if column.one_hot and column.left_out is None]
    beside = "the intercept" if schema.intercept > 0 else "those of the other columns"
    needless = 0 if schema.intercept > 0 else 1  # without an intercept, one column may take its place
    found = [
        f"the levels of {column.name!r} add up to the same as {beside} in every row, so none of them has a coefficient "
        f"of its own: give the column a reference level ({column.path('reference')})"
        for column in whole[needless:]
    ]
    found += [
        f"the levels of {column.name!r} in the term {term.name} add up to another column in every row: give the column "
        f"a reference level ({column.path('reference')})"
        for term, columns in schema.joined
        for column in columns
        if column.one_hot and column.left_out is None and column not in whole[needless:]
    ]
    if schema.row_norm != "bound" and schema.data_norm < schema.encoded_norm:
        found.append(
            f"rows longer than row_norm = {schema.row_norm:g} are shortened, so that no coefficient is in the unit of "
            'its column: use row_norm = "bound"'
        )
    if schema.weight is not None:
        found.append(
            f"rows count by {schema.weight.column!r}: standard errors depend on what weights stand for and on "
            "their squares, which are not released: take [weight] out"
        )
    return tuple(found)


def remarks(schema: Schema) -> tuple[str, ...]:
    """Advice on what makes standard errors larger than they need be."""
    unit = [column.name for column in schema.columns if isinstance(column, Ranged) and column.scale == "unit"]
    if not unit or not schema.intercept or isinstance(schema.label, SurvivalLabel):  # which centre rows themselves
        return ()
    return (
        f'{", ".join(unit)}: scale = "symmetric" centres a number at the middle of its bounds. With "unit" it is '
        "nearly collinear with the intercept, and both have larger standard errors.",
    )


def require_inferable(schema: Schema) -> None:
    """Refuse, before a row is read, what could only end in coefficients that mean nothing."""
    if found := obstacles(schema):
        more = f" ({len(found) - 1} more like this)" if len(found) > 1 else ""
        raise InputError(f"Expected a schema for inference, got one in which {found[0]}{more}.")
