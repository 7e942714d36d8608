"""A guarantee as parts of a document: in short, as a table, in full, and by how many sites collude."""

from math import isfinite

from sottovoce.document import Cell, Facts, Folded, Part, Table, Words
from sottovoce.numerals import counted, exactly, up
from sottovoce.privacy.observers import NONE, Sight
from sottovoce.privacy.statement import PrivacyStatement, agreed, milestones


def guarantee(privacy: PrivacyStatement) -> list[Part]:
    """The statement as a table; folded below it its full text and, where epsilon depends on how many sites collude, a
    table of that. A statement without a guarantee is a warning instead, and nothing of it is folded.
    """
    if not privacy.private:
        return [Words(privacy.prose(), "bad")]
    by_sites = observers(privacy.observers)
    return [
        _table(privacy),
        Folded("The whole statement", [Words(privacy.prose())]),
        *([Folded("Epsilon by the number of colluding sites", by_sites)] if by_sites else []),
    ]


def _table(privacy: PrivacyStatement) -> Table:
    """What is protected, against whom, at which epsilon, what is assumed, and what is not covered."""
    whole = "the whole run" if privacy.runs == 1 else f"all {privacy.runs} runs together"
    more: list[tuple[str, str]] = []
    if len(privacy.observers) > 1 and (worst := privacy.observers[-1]).colluding > agreed(privacy.observers):
        epsilon = f"epsilon = {up(worst.epsilon)}" if isfinite(worst.epsilon) else "no guarantee"
        more = [("if more collude", f"{epsilon} against all {counted(worst.colluding, 'other site')}")]
    rows = [
        ("protected", f"{privacy.protected}: {privacy.unit}"),
        ("against", _against(privacy.observers)),
        ("epsilon", f"{up(privacy.epsilon)} at delta = {up(privacy.delta)}, for {whole}"),
        *more,
        ("assumed public", "; ".join(privacy.public) or "nothing"),
        *(("note", note) for note in privacy.notes),
        ("not covered", "; ".join(privacy.not_covered)),
    ]
    cells: list[tuple[Cell, ...]] = [(Words(name, "strong"), text) for name, text in rows]
    return Table((), cells)


def _against(sights: tuple[Sight, ...]) -> str:
    """Against whom the statement's own epsilon holds, in words."""
    if not sights:
        return "whoever sees all that was released"
    if len(sights) == 1:
        others = f" and all {counted(sights[0].colluding, 'other site')} together" if sights[0].colluding else ""
        return f"whoever carries the messages{others}"
    return f"whoever carries the messages together with at most {counted(agreed(sights), 'other site')}, as assumed"


def promise(privacy: PrivacyStatement) -> list[tuple[str, str]]:
    """Name and value of what a guarantee promises, to whom and against whom, for a list of facts."""
    if not privacy.private:
        return [("Guarantee", "none: NOT PRIVATE")]
    runs = f", for all {privacy.runs} runs together" if privacy.runs > 1 else ""
    facts = [
        ("Guarantee", f"epsilon = {up(privacy.promised)}, delta = {exactly(privacy.delta)}{runs}"),
        ("Protects", str(privacy.unit)),
    ]
    against = privacy.assumption()
    return [*facts, ("Against", against.removeprefix("holds against "))] if against else facts


def in_short(privacy: PrivacyStatement, *before: tuple[str, str]) -> list[Part]:
    """What is promised, as facts below others about the same thing; the statement in full, folded."""
    notes = [("Limits", f"{counted(len(privacy.notes), 'note')} in `privacy`")] if privacy.notes else []
    return [Facts([*before, *promise(privacy), *notes]), Folded("The privacy statement in full", guarantee(privacy))]


def observers(sights: tuple[Sight, ...]) -> list[Part]:
    """A table of epsilon by the number of colluding sites; nothing where epsilon does not depend on it."""
    if len(sights) < 2:
        return []
    rows = [
        (
            str(line.colluding),
            up(line.epsilon) if isfinite(line.epsilon) else NONE,
            "assumed" if line.colluding == agreed(sights) else "",
        )
        for line in milestones(sights)
    ]
    return [Table(("colluding sites, with the message server", "epsilon", ""), rows, frozenset({0, 1}))]
