"""The algorithms, one file each."""

from sottovoce.algorithms.admm import ADMM
from sottovoce.algorithms.analysis import Analysis, Learning, Statistic
from sottovoce.algorithms.averaged import NoisyAveragedGD, TrustedCurator
from sottovoce.algorithms.base import Algorithm, Method, Outputs, PrivateAlgorithm, PrivateMethod
from sottovoce.algorithms.computation import Computation
from sottovoce.algorithms.dpadmm import DPADMM
from sottovoce.algorithms.dpdsgd import DPDSGD
from sottovoce.algorithms.dvp import DVP
from sottovoce.algorithms.fixedpoint import FixedPoint
from sottovoce.algorithms.ipadmm import IPADMM
from sottovoce.algorithms.madmm import MADMM
from sottovoce.algorithms.masked import MaskedNewton
from sottovoce.algorithms.pvp import PVP
from sottovoce.algorithms.radmm import RADMM
from sottovoce.algorithms.ryukim import RyuKim
from sottovoce.algorithms.utility import UtilityBound, utility_bound

__all__ = [
    "ADMM",
    "DPADMM",
    "DPDSGD",
    "DVP",
    "IPADMM",
    "MADMM",
    "PVP",
    "RADMM",
    "Algorithm",
    "Analysis",
    "Computation",
    "FixedPoint",
    "Learning",
    "MaskedNewton",
    "Method",
    "NoisyAveragedGD",
    "Outputs",
    "PrivateAlgorithm",
    "PrivateMethod",
    "RyuKim",
    "Statistic",
    "TrustedCurator",
    "UtilityBound",
    "utility_bound",
]
