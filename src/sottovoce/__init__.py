"""sottovoce: differentially private, decentralised convex learning.

Sites on a graph hold private rows and learn one convex model together. Each tells its neighbours only noisy vectors,
and all that it ever says is (epsilon, delta)-differentially private. There is no server to trust.
"""

from sottovoce import datasets, graphs, losses, privacy, regularisers
from sottovoce.algorithms import ADMM, IPADMM, utility_bound
from sottovoce.engines.simulate import Result, simulate
from sottovoce.errors import InputError, PrivacyError, SottovoceError, UnsupportedError
from sottovoce.sites import Sites

__version__ = "0.1.0"

__all__ = [
    "ADMM",
    "IPADMM",
    "InputError",
    "PrivacyError",
    "Result",
    "Sites",
    "SottovoceError",
    "UnsupportedError",
    "datasets",
    "graphs",
    "losses",
    "privacy",
    "regularisers",
    "simulate",
    "utility_bound",
]
