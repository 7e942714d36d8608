"""Fast kernels for the CPU, compiled by Numba. Each is tested against the plain NumPy form of what it computes.

    simd, operators, elementary, tiles, threads   vectors, functions on them, rows times models, work for threads
    steps, softmax, score, philox                 where simulations spend their time
    discrete                                      the exact noise of real sites
    argmin, descent, newton, factor               exact minimisation, for the rivals and the yardstick only

Kernels know arrays and losses' formulas. They know no site, no graph, no algorithm and no price, and nothing about
privacy hangs on which of them ran.
"""

# Importing these teaches Numba the operators and functions of vectors, which every kernel uses.
from sottovoce.kernels import elementary, operators

__all__ = ["elementary", "operators"]
