"""Fast kernels for the CPU, compiled by Numba. Each is tested against the plain NumPy form of what it computes.

    simd                         vectors, and how kernels are compiled
    formulas, tiles              functions on vectors, rows times models, work for threads
    steps, softmax, score        where simulations spend their time
    random                       counter-based normals and batches, and the exact noise of real sites

Kernels take arrays and losses' formulas. They use no site, graph, algorithm or price, and no guarantee depends on which
of them ran.
"""

# Importing these registers with Numba the operators and functions of vectors, which every kernel uses.
from sottovoce.oracle.kernels import formulas, simd

__all__ = ["formulas", "simd"]
