"""Advice on `row_norm`, from public numbers alone."""

from math import ceil

from sottovoce.files.schema.schema import Schema

WORTH_SAYING = 0.85  # of the longest row; closer than that, another norm changes little


def on_row_norm(schema: Schema) -> str | None:
    """Advice where `row_norm` is far above the norm that rows will usually have; None where it is not.

    Noise is as large as the longest row that the schema allows. Where rows are mostly much shorter, it is too large for
    them. The usual norm is guessed: that of a row whose values are spread evenly over the declared bounds.
    """
    usual, longest = schema.usual_norm, schema.encoded_norm
    said = f'"{schema.row_norm}"' if isinstance(schema.row_norm, str) else f"{schema.row_norm:g}"
    if isinstance(schema.row_norm, float):
        longest = min(schema.row_norm, longest)  # no row is longer than the columns allow
    if usual > WORTH_SAYING * longest:
        return None
    proposed = ceil(10 * usual) / 10
    return (
        f"row_norm = {said} allows rows of norm {longest:.3g}, but with values spread evenly over their bounds "
        f"it is about {usual:.2g}. With row_norm = {proposed:g} the noise is {longest / proposed:.2g} times smaller "
        "relative to the rows; only longer ones are shortened. If values are mostly near 0, less is better still. "
        "Choose it from public knowledge, not by looking at rows."
    )
