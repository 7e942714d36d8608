"""What an agreement is about: what real sites may compute, and its settings as a table without any defaults.

At a real site the noise of gradient steps is drawn on a grid, exactly (`sottovoce.noise.secure`). So only two kinds of
algorithms are allowed: those whose only private step is `Oracle.noisy_steps`, calibrated exactly, with numbers that a
site can compute alone from the agreement; and masked sums, whose shares of noise are exact as well
(`sottovoce.federation.site.masks`). All others are refused, with the reason. Tables (`TABLES`) are masked sums too.

A setting that is None has no entry in the table. `sampling` has one only if there is a batch, `inference` and `focus`
only if they are asked for, and so has `moments`. `sensitivity` has none: at real sites it is always "plain".
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, cast, get_type_hints

import numpy as np

from sottovoce import settings
from sottovoce.algorithms import IPADMM, Computation, registry
from sottovoce.algorithms.registry import REGISTRY
from sottovoce.algorithms.rival import Rival
from sottovoce.algorithms.stepping import Stepping
from sottovoce.errors import InputError, expect
from sottovoce.tables.analyses import CrossTableAnalysis, DescriptionAnalysis, SurvivalAnalysis, TableAnalysis

# In the order of the registry.
ALLOWED = tuple(name for name, line in REGISTRY.items() if line.not_at_sites is None)
TABLES: Mapping[str, type[TableAnalysis[Any]]] = MappingProxyType(
    {"describe": DescriptionAnalysis, "cross": CrossTableAnalysis, "survival": SurvivalAnalysis}
)
# Fields that may be None elsewhere, and are then read off the nodes at hand. At real sites these differ from site to
# site; and people must be able to read what a guarantee rests on before they sign.
_NEEDED = ("rounds", "diameter", "largest_degree", "colluding", "least_sites")


def kind_of(name: str) -> type[Computation]:
    """The class of the algorithm or table with that name; refused, with the reason, if real sites may not run it."""
    choice = f"Choose among {', '.join((*ALLOWED, *TABLES))}."
    if name in TABLES:
        return TABLES[name]
    if name not in REGISTRY:
        raise InputError(f"Expected the name of an algorithm, got {name[:80]!r}. {choice}")
    line = REGISTRY[name]
    if line.not_at_sites is not None:
        raise InputError(f"Expected an algorithm that real sites can run, got {name!r}: {line.not_at_sites}. {choice}")
    return cast("type[Computation]", line.kind)


def name_of(algorithm: Computation) -> str:
    """The name of an algorithm, or of what makes a table, in an agreement."""
    known = (*ALLOWED, *TABLES)
    name = next((name for name in known if type(algorithm) is kind_of(name)), None)
    if name is None:
        raise InputError(
            f"Expected one of {', '.join(known)} at real sites, got {type(algorithm).__name__}: "
            "the others add noise that has no exact discrete form here, or need all nodes in one place."
        )
    return name


def check(algorithm: Computation) -> None:
    """Refuse an algorithm without a finite epsilon, one not calibrated exactly, or one that a site cannot run alone."""
    name_of(algorithm)
    expect(math.isfinite(algorithm.epsilon), "a finite epsilon at real sites", epsilon=algorithm.epsilon)
    calibration = getattr(algorithm, "calibration", "exact")  # what has no such setting has no other
    expect(calibration == "exact", "calibration='exact' at real sites", calibration=calibration)
    if isinstance(algorithm, IPADMM | Stepping) and algorithm.sensitivity != "plain":
        raise InputError(
            f"Expected sensitivity='plain' at real sites, got {algorithm.sensitivity!r}: the grid of their noise is "
            "agreed beforehand, and would follow models that are never sent. Leave it out."
        )
    if isinstance(algorithm, Rival):
        expect(algorithm.form == "fair", "form='fair' at real sites", form=algorithm.form)
    for field in fields(algorithm):
        if field.name in _NEEDED and getattr(algorithm, field.name) is None:
            raise InputError(f"Expected {field.name}, which must be the same number at all sites, got none. Give it.")


def diameter_of(algorithm: Computation) -> float:
    """D, which is public and the same at all sites; refused for an algorithm without one."""
    if not isinstance(algorithm, IPADMM | Stepping) or algorithm.diameter is None:
        raise InputError(f"Expected an algorithm with a diameter, got {type(algorithm).__name__}. Give its diameter.")
    return float(algorithm.diameter)


def _table(algorithm: Computation) -> dict[str, object]:
    """The table of all settings, from which `settings.read` makes the same algorithm."""
    table: dict[str, object] = {"name": name_of(algorithm)} | _numbers(algorithm)
    for field in fields(algorithm):
        value = getattr(algorithm, field.name)
        if isinstance(value, tuple):
            table |= {field.name: settings.plain(value)} if value else {}
        elif field.name not in table and value is not None:  # a loss or a regulariser
            table[field.name] = {"name": value.name} | _numbers(value)
    table.pop("sensitivity", None)
    for name in ("inference", "moments"):  # False, or 0: a table without it says the same
        if not table.get(name, True):
            del table[name]
    if "batch_size" not in table:
        table.pop("sampling", None)
    return table


def _numbers(piece: Any) -> dict[str, object]:
    """The fields that are text or numbers, converted to the types of their annotations, and lists that hold any."""
    hints, plain = get_type_hints(type(piece)), dict[str, object]()
    for field in fields(piece):
        value = getattr(piece, field.name)
        if isinstance(value, str | int | float | np.number):
            number = value.item() if isinstance(value, np.number) else value
            plain[field.name] = settings.typed(field.name, number, hints[field.name])
        elif isinstance(value, tuple) and value:
            plain[field.name] = value
    return plain


def _choose(table: dict[str, Any]) -> tuple[type[Computation], dict[str, Any]]:
    """The class of a table's algorithm, and its settings. Without a batch, `sampling` keeps its default."""
    name, given = settings.untag(table, "name")
    kind = kind_of(name)
    if name in TABLES:
        return kind, given
    if "batch_size" not in given:
        registry.expect_own(name, {key: given[key] for key in ("sampling",) if key in given})
        given |= {f.name: f.default for f in fields(kind) if f.name == "sampling"}
    unsaid = ("sensitivity", "moments", "inference", "focus")
    given = {f.name: f.default for f in fields(kind) if f.name in unsaid} | given
    return kind, given


settings.choose(Computation, _choose)
settings.written_as(Computation, _table)
