"""What a user knows of the labels from elsewhere: a law, earlier studies, published figures. Never from the rows.

A schema says it in its table `[supplied]`, `sottovoce plan` in options, `plan()` in arguments of the same names. It
makes plans and predictions better, and changes no row. It is public, and no guarantee covers it: what was computed from
private rows must not be in it.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, final

from sottovoce.errors import InputError, expect
from sottovoce.settings import written
from sottovoce.settings.options import option

_PANEL = "Problem"
# In words: the share of the loss of no model that the best one takes off.
PREDICTABILITY: dict[str, tuple[float, float]] = {
    "hardly": (0.01, 0.06),
    "somewhat": (0.06, 0.2),
    "well": (0.2, 0.5),
    "almost": (0.5, 0.9),
}


@final
@dataclass(frozen=True, kw_only=True)
class Supplied:
    """What a user says of the labels; None is left open.

    Args:
        base_rate: the share of the positive one of two classes, or the shares of all classes; of counts, their mean
            over the largest.
        predictability: a word of `PREDICTABILITY`, a share such as 0.3, or "auc=0.8".
        label_spread: of labels that are numbers, or counts.
    """

    base_rate: float | tuple[float, ...] | None = option(
        None,
        _PANEL,
        "Share of the positive class, as in 0.01; of all classes, as in 0.5,0.3,0.2; mean count over the largest.",
    )
    predictability: str | float | None = option(
        None, _PANEL, "How well columns predict the label: hardly, somewhat, well, almost; 0.3 of the loss; auc=0.8."
    )
    label_spread: float | None = option(
        None, _PANEL, "Standard deviation of a label that is a number, in half-widths of its bounds."
    )

    def __post_init__(self) -> None:
        rate, spread = self.base_rate, self.label_spread
        if isinstance(rate, tuple):
            fine = len(rate) > 1 and min(rate) > 0 and math.isclose(sum(rate), 1, abs_tol=0.01)
            expect(fine, "base_rate as the shares of all classes, which add up to 1", base_rate=rate)
        else:
            expect(rate is None or 0 < rate < 1, "base_rate between 0 and 1", base_rate=rate)
        wanted = "label_spread in (0, 1], in half-widths of the bounds"
        expect(spread is None or 0 < spread <= 1, wanted, label_spread=spread)
        _ = self.explained, self.auc  # refuses what says neither

    @property
    def given(self) -> dict[str, Any]:
        """What was said, by name."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @property
    def explained(self) -> tuple[float, float] | None:
        """The share of the loss of no model that the best model takes off, from and to; None if it is open."""
        said = self.predictability
        if said in PREDICTABILITY:
            return PREDICTABILITY[str(said)]
        if said is None or self.auc is not None:
            return None
        return float(said), float(said)

    @property
    def auc(self) -> float | None:
        """The AUC of the best model, if that is how `predictability` says it."""
        said = self.predictability
        if said is None or said in PREDICTABILITY:
            return None
        name, _, number = str(said).rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if name.strip().lower() == "auc" and 0.5 < value < 1:
            return value
        if not name and 0 < value < 1:
            return None
        raise InputError(
            f"Expected predictability as one of {', '.join(PREDICTABILITY)}, a share such as 0.3 of the loss of no "
            f"model, or auc=0.8, got predictability={said!r}."
        )

    def expect_fit(self, classes: int | None, *, counts: bool = False) -> None:
        """Refuse what cannot be said of a label with so many classes; None is one that is a number, or a count."""
        rate, spread = self.base_rate, self.label_spread
        if counts:
            expect(not isinstance(rate, tuple), "base_rate as one number, the mean over the largest", base_rate=rate)
        elif classes is None:
            expect(rate is None, "no base_rate for labels that are numbers", base_rate=rate)
        elif classes == 2:
            one = not isinstance(rate, tuple)
            expect(one, "base_rate as one share, that of the positive class, of two classes", base_rate=rate)
        else:
            fine = rate is None or (isinstance(rate, tuple) and len(rate) == classes)
            expect(fine, f"base_rate as {classes} shares that add up to 1, one for each class", base_rate=rate)
        expect(classes is None or spread is None, "label_spread for labels that are numbers", label_spread=spread)
        wanted = "predictability as a word or a share, unless there are two classes"
        expect(classes == 2 or self.auc is None, wanted, predictability=self.predictability)

    @property
    def words(self) -> str:
        """All that was said, as a list; empty if nothing was."""
        rate = self.base_rate
        shown = ", ".join(f"{share:g}" for share in (rate if isinstance(rate, tuple) else (rate,)) if share is not None)
        said = self.given | ({"base_rate": shown} if shown else {})
        return "; ".join(f"{name.replace('_', ' ')} {value}" for name, value in said.items())


written(Supplied, ..., absent=(None,))
