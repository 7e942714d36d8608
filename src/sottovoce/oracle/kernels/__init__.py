"""Fast kernels for the CPU, compiled by Numba. Each is tested against the plain NumPy form of what it computes.

    simd, elementary             vectors and how kernels are compiled; exp, log and the like on vectors
    formulas, tiles, threads     losses as arguments of kernels, rows times models, work for threads
    steps, panels, softmax       the inner steps, where simulations spend their time; for few runs, for several classes
    turn                         models times a matrix of each run
    score, spread                losses of many models at once; how far one row can move a gradient
    random, discrete             counter-based normals and batches; the exact noise of real sites

Kernels take arrays and losses' formulas. They use no site, graph, algorithm or price, and no guarantee depends on which
of them ran.
"""

# Importing these registers with Numba the operators and functions of vectors, which every kernel uses.
from sottovoce.oracle.kernels import formulas, simd

__all__ = ["formulas", "simd"]
