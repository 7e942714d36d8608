"""All algorithms: one line each.

A line says how an algorithm is called in files, agreements and tables, how it is drawn, what kind of rival it is, which
two settings matter most to it, and whether real sites may run it. Every line has a grid of the same size, so that no
algorithm is tuned harder than another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib import import_module
from itertools import product
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from sottovoce.algorithms.base import Method
from sottovoce.errors import InputError, expect
from sottovoce.settings import check_choice, check_keys, read

Group: TypeAlias = Literal["paper", "beyond", "bound"]
Value: TypeAlias = float | int | str | bool
Settings: TypeAlias = Mapping[str, Value]

# Settings of the experiment rather than of one algorithm: who has no such field runs without it.
COMMON = ("epsilon", "delta", "rounds", "rho", "lam")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The line of one algorithm.

    Args:
        at: where its class is: the file in sottovoce/algorithms, a dot, and the class.
        label, colour: how it is shown.
        group: "paper" (compared with there, and M-ADMM), "beyond" (later work), "bound" (a yardstick, see its file).
        grid: its most important settings and the values to try, twenty points in all.
        settings: what it is given beyond the common settings.
        forms: what each form changes.
        not_at_sites: why real sites may not run it; None if they may. Unless its line says that they may, they may not.
        planned: the settings that the planner may fill in; none if it does not know the algorithm.
        private: True if it adds noise; if not, one run says all.
        exact: True if it minimises exactly in every round, which needs double precision.
    """

    at: str
    label: str
    colour: str
    group: Group
    grid: Mapping[str, tuple[Value, ...]]
    settings: Settings = field(default_factory=lambda: MappingProxyType({}))
    forms: Mapping[str, Settings] = field(
        default_factory=lambda: MappingProxyType({"fair": {"form": "fair"}, "published": {"form": "published"}})
    )
    not_at_sites: str | None = "its noise has no exact discrete form here"
    planned: tuple[str, ...] = ()
    private: bool = True
    exact: bool = False

    @cached_property
    def kind(self) -> type[Method]:
        """The class. Looked up by name, so that a new algorithm needs no other line than its own."""
        file, _, name = self.at.partition(".")
        try:
            kind = getattr(import_module(f"sottovoce.algorithms.{file}"), name, None)
        except ModuleNotFoundError:
            kind = None
        good = isinstance(kind, type) and issubclass(kind, Method)
        expect(good, "a file in sottovoce/algorithms, a dot, and an algorithm in it", at=self.at)
        return cast("type[Method]", kind)

    @property
    def finds_rounds(self) -> bool:
        """True if the number of rounds follows from public numbers unless it is given (`Method.bound_to`)."""
        return next(f.default for f in fields(self.kind) if f.name == "rounds") is None

    def points(self) -> list[dict[str, Value]]:
        """The grid, point by point."""
        return [dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values())]


# The printed algorithm: its noise formula with c0 = 1 and its steps. "fair" is this library's default.
_IPADMM: dict[str, Settings] = {"fair": {}, "published": {"calibration": "paper", "schedule": "paper"}}
_ONE_FORM: dict[str, Settings] = {"fair": {}}
# Under one total budget the number of rounds matters to all; then the penalty, the length of the steps, or both.
_ROUNDS, _DIAMETERS = (5, 15, 40, 100), (15.0, 50.0, 150.0, 450.0, 1350.0)
_BY_RHO: dict[str, tuple[Value, ...]] = {"rounds": _ROUNDS, "rho": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)}
_BY_BOTH: dict[str, tuple[Value, ...]] = {"rounds": (40, 100), "rho": (1e-3, 1e-2), "diameter": _DIAMETERS}
_BY_DIAMETER: dict[str, tuple[Value, ...]] = {"rounds": _ROUNDS, "diameter": _DIAMETERS}

# The first colours are Okabe and Ito's, which people with any kind of colour vision can tell apart. All show on white
# and on black.
# fmt: off
REGISTRY: dict[str, Entry] = {
    "ipadmm": Entry(at="ipadmm.IPADMM", label="IPADMM", colour="#0072B2", group="paper", forms=_IPADMM,
                    grid=_BY_BOTH, settings={"local_steps": 10}, not_at_sites=None,
                    planned=("rounds", "local_steps", "rho", "diameter", "weights")),
    "admm": Entry(at="admm.ADMM", label="ADMM (not private)", colour="#858B94", group="paper", forms=_ONE_FORM,
                  grid=_BY_RHO, private=False, exact=True, not_at_sites="it is not private"),
    "pvp": Entry(at="pvp.PVP", label="PVP", colour="#E69F00", group="paper", grid=_BY_RHO, exact=True),
    "dvp": Entry(at="dvp.DVP", label="DVP", colour="#56B4E9", group="paper", grid=_BY_RHO, exact=True),
    "radmm": Entry(at="radmm.RADMM", label="R-ADMM", colour="#009E73", group="paper", grid=_BY_RHO, exact=True),
    "dpadmm": Entry(at="dpadmm.DPADMM", label="DP-ADMM", colour="#D55E00", group="paper", grid=_BY_BOTH,
                    not_at_sites=None),
    # With a penalty that does not grow it would be DVP.
    "madmm": Entry(at="madmm.MADMM", label="M-ADMM", colour="#CC79A7", group="paper", grid=_BY_RHO, exact=True,
                   settings={"growth": 1.02}),
    "ryu-kim": Entry(at="ryukim.RyuKim", label="Ryu & Kim", colour="#9C7A2B", group="beyond", grid=_BY_BOTH,
                     settings={"local_steps": 10}, not_at_sites=None),
    "fixed-point": Entry(at="fixedpoint.FixedPoint", label="Noisy fixed point", colour="#9467BD", group="beyond",
                         forms=_ONE_FORM, grid=_BY_RHO, exact=True),
    "dp-dsgd": Entry(at="dpdsgd.DPDSGD", label="DP-DSGD", colour="#4C9A6F", group="beyond", forms=_ONE_FORM,
                     grid=_BY_DIAMETER, not_at_sites=None),
    "noisy-averaged-gd": Entry(at="averaged.NoisyAveragedGD", label="Averaged noisy gradients", colour="#6F86A6",
                               group="bound", forms=_ONE_FORM, grid=_BY_DIAMETER,
                               not_at_sites="its steps use all nodes at once, so no single site can run it"),
    "trusted-curator": Entry(at="averaged.TrustedCurator", label="Trusted curator", colour="#A08C6A",
                             group="bound", forms=_ONE_FORM, grid=_BY_DIAMETER,
                             not_at_sites="its messages are private only as an average"),
    # Not a rival: it assumes that not all sites collude. Nothing in it wants tuning; the grid is there to show that.
    "masked": Entry(at="masked.MaskedNewton", label="Masked sums", colour="#B5495B", group="bound", forms=_ONE_FORM,
                    grid={"rounds": (6, 11, 16, 21), "spare": (0, 1, 2, 4, 8)}, not_at_sites=None),
    # Of labels that are numbers, the same with squares alone.
    "least-squares": Entry(at="squares.LeastSquares", label="Least squares", colour="#7A5195", group="bound",
                           forms=_ONE_FORM, grid={"rounds": (4, 6, 8, 10), "spare": (0, 1, 2, 4, 8)},
                           not_at_sites=None),
    # Of labels that are times to an event.
    "hazards": Entry(at="hazards.ProportionalHazards", label="Proportional hazards", colour="#8A5A44", group="bound",
                     forms=_ONE_FORM, grid={"rounds": (4, 6, 8, 10), "spare": (0, 1, 2, 4, 8)}, not_at_sites=None),
}
# fmt: on


def entry(name: str) -> Entry:
    """The line of that name, or an error that suggests one."""
    check_choice("algorithm", name, REGISTRY)
    return REGISTRY[name]


def expect_own(name: str, given: Mapping[str, object]) -> None:
    """Refuse settings that the algorithm does not have, since people who give one expect an effect."""
    own = {f.name for f in fields(entry(name).kind)}
    for setting, value in given.items():
        if setting not in own and setting == "sensitivity":
            raise InputError(
                f"Expected no sensitivity with algorithm={name!r}, got {value!r}: it is for noise in gradients at "
                "models that are known when it is drawn. Leave it out, or use IPADMM."
            )
        if setting not in own and setting in ("inference", "focus"):
            wanted = "'masked'" if setting == "focus" else "'masked', 'least-squares' or 'hazards'"
            raise InputError(
                f"Expected algorithm={wanted} with {setting}, got algorithm={name!r}: standard errors are computed "
                f"from sums over all rows. Leave {setting} out, or take such an algorithm."
            )
        if setting not in own and setting in ("evaluate", "hold_out"):
            raise InputError(
                f"Expected algorithm='masked' with {setting}, got algorithm={name!r}: if every site adds "
                "noise of its own, counts are lost in it, and other sums have none for it. Choose masked, or "
                "leave it out: sottovoce evaluate --private."
            )
        if setting not in own:
            raise InputError(f"Expected settings of algorithm={name!r}, got {setting}={value!r}. Leave it out.")
    if given.get("sampling") is not None and given.get("batch_size") is None:
        came = f"sampling={given['sampling']!r}"
        raise InputError(f"Expected a batch_size with {came}, got none. Give both or neither.")


def settings_of(name: str, form: str, common: Settings, own: Settings) -> dict[str, Value]:
    """All settings to hand over: the line's, the form's, the experiment's where there is such a field, then `own`."""
    line = entry(name)
    check_choice("form", form, line.forms)
    known = [f.name for f in fields(line.kind)]
    check_keys(own, known, (), f"settings of {name}")
    kept = {key: value for key, value in common.items() if key in known}
    return {**line.settings, **line.forms[form], **kept, **own}


def make(name: str, settings: Settings) -> Method:
    """The algorithm with exactly these settings, as a file or a grid gives them."""
    return read(entry(name).kind, settings, f"settings of {name}", finite=False)
