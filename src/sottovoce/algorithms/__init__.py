"""The algorithms, one file each."""

from sottovoce.algorithms.admm import ADMM
from sottovoce.algorithms.base import Algorithm, Outputs, PrivateAlgorithm
from sottovoce.algorithms.ipadmm import IPADMM
from sottovoce.algorithms.utility import UtilityBound, utility_bound

__all__ = ["ADMM", "IPADMM", "Algorithm", "Outputs", "PrivateAlgorithm", "UtilityBound", "utility_bound"]
