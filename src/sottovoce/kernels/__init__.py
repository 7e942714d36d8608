"""Fast kernels for the CPU, compiled by Numba. Each is tested against the plain NumPy form of what it computes."""

# Importing these teaches Numba the operators and functions of vectors, which every kernel uses.
from sottovoce.kernels import elementary, operators

__all__ = ["elementary", "operators"]
