"""The algorithm of an agreement: which ones real sites may run, and their settings as a table without any defaults.

At a real site the noise of gradient steps is drawn on a grid, exactly (`sottovoce.noise.secure`). So only two kinds of
algorithms are allowed: those whose only private step is `Oracle.noisy_steps`, calibrated exactly, with numbers that a
site can compute alone from the agreement; and masked sums, whose shares of noise are exact as well
(`sottovoce.federation.site.masks`). All others are refused, with the reason.

A setting that is None has no entry in the table. `sampling` has one only if there is a batch, `inference` and `focus`
only if they are asked for. `sensitivity` and `moments` have none: at real sites they are always "plain" and 0.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, cast, get_type_hints

import numpy as np

from sottovoce import settings
from sottovoce.algorithms import IPADMM, MaskedNewton, PrivateMethod, registry
from sottovoce.algorithms.registry import REGISTRY
from sottovoce.algorithms.rival import Rival
from sottovoce.algorithms.stepping import Stepping
from sottovoce.errors import InputError, expect
from sottovoce.oracle.plain import Oracle

# In the order of the registry.
ALLOWED = tuple(name for name, line in REGISTRY.items() if line.not_at_sites is None)
# Fields that may be None elsewhere, and are then read off the nodes at hand. At real sites these differ from site to
# site; and people must be able to read what a guarantee rests on before they sign.
_NEEDED = ("rounds", "diameter", "largest_degree", "colluding", "least_sites")


@dataclass(frozen=True, eq=False)
class SiteOracle(Oracle, vector_predictions=True, row_factors=True):
    """The oracle of one site of a network, of whose other sites only public numbers are known.

    Args:
        fewest: the smallest m_i of the network. Noise for sampled rows depends on it, as in a simulation of the whole.
    """

    fewest: int = 1

    @property
    def fewest_rows(self) -> int:
        """The smallest m_i of the whole network, as agreed."""
        return self.fewest


def kind_of(name: str) -> type[PrivateMethod]:
    """The class of the algorithm with that name; refused, with the reason, if real sites may not run it."""
    choice = f"Choose among {', '.join(ALLOWED)}."
    if name not in REGISTRY:
        raise InputError(f"Expected the name of an algorithm, got {name[:80]!r}. {choice}")
    line = REGISTRY[name]
    if line.not_at_sites is not None:
        raise InputError(f"Expected an algorithm that real sites can run, got {name!r}: {line.not_at_sites}. {choice}")
    return cast("type[PrivateMethod]", line.kind)


def name_of(algorithm: PrivateMethod) -> str:
    """The name of an algorithm in a table."""
    name = next((name for name in ALLOWED if type(algorithm) is kind_of(name)), None)
    if name is None:
        raise InputError(
            f"Expected one of {', '.join(ALLOWED)} at real sites, got {type(algorithm).__name__}: "
            "the others add noise that has no exact discrete form here, or need all nodes in one place."
        )
    return name


def check(algorithm: PrivateMethod) -> None:
    """Refuse an algorithm without a finite epsilon, one not calibrated exactly, or one that a site cannot run alone."""
    name_of(algorithm)
    expect(math.isfinite(algorithm.epsilon), "a finite epsilon at real sites", epsilon=algorithm.epsilon)
    expect(algorithm.calibration == "exact", "calibration='exact' at real sites", calibration=algorithm.calibration)
    if isinstance(algorithm, IPADMM | Stepping) and algorithm.sensitivity != "plain":
        raise InputError(
            f"Expected sensitivity='plain' at real sites, got {algorithm.sensitivity!r}: the grid of their noise is "
            "agreed beforehand, and would follow models that are never sent. Leave it out."
        )
    if isinstance(algorithm, IPADMM) and algorithm.moments:
        raise InputError(
            f"Expected moments=0 at real sites, got {algorithm.moments}: sites would have to hand on what others say. "
            "Leave it out."
        )
    if isinstance(algorithm, Rival):
        expect(algorithm.form == "fair", "form='fair' at real sites", form=algorithm.form)
    for field in fields(algorithm):
        if field.name in _NEEDED and getattr(algorithm, field.name) is None:
            raise InputError(f"Expected {field.name}, which must be the same number at all sites, got none. Give it.")


def diameter_of(algorithm: PrivateMethod) -> float:
    """D, which is public and the same at all sites; refused for an algorithm without one."""
    if not isinstance(algorithm, IPADMM | Stepping) or algorithm.diameter is None:
        raise InputError(f"Expected an algorithm with a diameter, got {type(algorithm).__name__}. Give its diameter.")
    return float(algorithm.diameter)


def _table(algorithm: PrivateMethod) -> dict[str, object]:
    """The table of all settings, from which `settings.read` makes the same algorithm."""
    table: dict[str, object] = {"name": name_of(algorithm)} | _numbers(algorithm)
    for piece in (algorithm.loss, algorithm.regulariser):
        what = "loss" if piece is algorithm.loss else "regulariser"
        table[what] = {"name": piece.name} | _numbers(piece)
    table.pop("sensitivity", None)
    table.pop("moments", None)
    if table.get("inference") is False:
        del table["inference"]
    if isinstance(algorithm, MaskedNewton):
        lists = {"focus": algorithm.focus, "division": algorithm.division}
        table |= {name: value for name, value in lists.items() if value}
    if "batch_size" not in table:
        table.pop("sampling", None)
    return table


def _numbers(piece: Any) -> dict[str, object]:
    """The fields that are text or numbers, converted to the types of their annotations."""
    hints, plain = get_type_hints(type(piece)), dict[str, object]()
    for field in fields(piece):
        value = getattr(piece, field.name)
        if isinstance(value, str | int | float | np.number):
            number = value.item() if isinstance(value, np.number) else value
            plain[field.name] = settings.typed(field.name, number, hints[field.name])
    return plain


def _choose(table: dict[str, Any]) -> tuple[type[PrivateMethod], dict[str, Any]]:
    """The class of a table's algorithm, and its settings. Without a batch, `sampling` keeps its default."""
    name, given = settings.untag(table, "name")
    kind = kind_of(name)
    if "batch_size" not in given:
        registry.expect_own(name, {key: given[key] for key in ("sampling",) if key in given})
        given |= {f.name: f.default for f in fields(kind) if f.name == "sampling"}
    unsaid = ("sensitivity", "moments", "inference", "focus")
    given = {f.name: f.default for f in fields(kind) if f.name in unsaid} | given
    return kind, given


settings.choose(PrivateMethod, _choose)
settings.written_as(PrivateMethod, _table)
