"""A private evaluation as printed tables: figures with their intervals, and what they cost."""

from pathlib import Path
from typing import Any

from sottovoce.cli.output import console, exactly, say, table, up, verbatim
from sottovoce.sums.evaluating import about
from sottovoce.tally import PrivateEvaluation
from sottovoce.tally.evaluation import PRIVATE
from sottovoce.tally.words import figure_lines


def show(found: PrivateEvaluation, out: Path | None, *, with_model: bool = False) -> None:
    """Print an evaluation. with_model: it was made in the run that learnt the model, whose statement has all notes."""
    shown = console()
    figures: Any = table("", "estimate", "95 % interval")
    for line in figure_lines(found):
        figures.add_row(*map(verbatim, line))
    say(shown, f"{found.rows:,} rows.")
    shown.print(figures)
    clip = found.answer.figures.get("clipped_at")
    if clip is not None:
        most = 100 * found.answer.figures["clipped"].high
        say(shown, f"Errors beyond {clip.low:.4g} count as that much; at most {most:.2g} % of all are larger.")
    if found.answer.confusion:
        matrix: Any = table("true \\ decided", *(found.classes or ()))
        for name, counts in zip(found.classes or (), found.answer.confusion, strict=True):
            cells = [
                "–" if one.value is None else f"{one.value:,.0f} ({one.low:,.0f} to {one.high:,.0f})" for one in counts
            ]
            matrix.add_row(verbatim(name), *cells)
        shown.print(matrix)
    say(shown, "Intervals know the noise and the chance of the rows; each holds by itself, for rows like these.")
    say(shown, PRIVATE)
    privacy = found.privacy
    what = "Model and evaluation together" if with_model else "It"
    say(shown, f"{what} cost epsilon = {up(privacy.epsilon)}, delta = {exactly(privacy.delta)}, for {privacy.unit}.")
    for note in about(privacy.notes) if with_model else privacy.notes:
        say(shown, f"Note: {note}")
    if out is not None:
        say(shown, f"Kept in {out}.")
