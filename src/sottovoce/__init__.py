"""sottovoce: differentially private, decentralised convex learning.

Sites on a graph hold private rows and learn one convex model together. Each tells its neighbours only noisy vectors,
and all that it ever says is (epsilon, delta)-differentially private. There is no server to trust.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sottovoce.errors import (
    BudgetError,
    InputError,
    PrivacyError,
    PrivacyLeakWarning,
    SottovoceError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from sottovoce import (
        algorithms,
        datasets,
        estimators,
        graphs,
        losses,
        models,
        plan,
        privacy,
        regularisers,
        schema,
    )
    from sottovoce.algorithms import (
        ADMM,
        DPADMM,
        DPDSGD,
        DVP,
        IPADMM,
        MADMM,
        PVP,
        RADMM,
        FixedPoint,
        NoisyAveragedGD,
        RyuKim,
        TrustedCurator,
        utility_bound,
    )
    from sottovoce.engines.simulate import Result, simulate
    from sottovoce.sites import Sites

__version__ = "0.1.0"

# Imported when first asked for: numba and scipy take a second, which `sottovoce --help` should not.
_HOMES = {
    "ADMM": "sottovoce.algorithms",
    "DPADMM": "sottovoce.algorithms",
    "DPDSGD": "sottovoce.algorithms",
    "DVP": "sottovoce.algorithms",
    "FixedPoint": "sottovoce.algorithms",
    "IPADMM": "sottovoce.algorithms",
    "MADMM": "sottovoce.algorithms",
    "NoisyAveragedGD": "sottovoce.algorithms",
    "PVP": "sottovoce.algorithms",
    "RADMM": "sottovoce.algorithms",
    "RyuKim": "sottovoce.algorithms",
    "TrustedCurator": "sottovoce.algorithms",
    "Result": "sottovoce.engines.simulate",
    "Sites": "sottovoce.sites",
    "simulate": "sottovoce.engines.simulate",
    "utility_bound": "sottovoce.algorithms",
}
_MODULES = (
    "algorithms",
    "datasets",
    "estimators",
    "graphs",
    "losses",
    "models",
    "plan",
    "privacy",
    "regularisers",
    "schema",
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"sottovoce.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'sottovoce' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "ADMM",
    "DPADMM",
    "DPDSGD",
    "DVP",
    "IPADMM",
    "MADMM",
    "PVP",
    "RADMM",
    "BudgetError",
    "FixedPoint",
    "InputError",
    "NoisyAveragedGD",
    "PrivacyError",
    "PrivacyLeakWarning",
    "Result",
    "RyuKim",
    "Sites",
    "SottovoceError",
    "TrustedCurator",
    "UnsupportedError",
    "algorithms",
    "datasets",
    "estimators",
    "graphs",
    "losses",
    "models",
    "plan",
    "privacy",
    "regularisers",
    "schema",
    "simulate",
    "utility_bound",
]
