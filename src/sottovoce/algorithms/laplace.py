"""Laplace laws out of standard normals, which are the only noise that an algorithm is given.

    l2-Laplace      density proportional to exp(-||x||) on R^d: a uniform direction z0 / ||z0|| times a radius of law
                    Gamma(d, 1), which is (||z1||^2 + ||z2||^2) / 2, since a squared normal is half of an exponential
    i.i.d. Laplace  density exp(-|x|) / 2 in every coordinate: (z1^2 + z2^2) / 2 - (z3^2 + z4^2) / 2, the difference of
                    two exponentials

The l2 law is not a product of Laplace laws, and its radius is not exponential. Models are axis 1, as everywhere.
"""

import numpy as np

from sottovoce.arrays import Array
from sottovoce.noise.sources import Noise

NORM_LAPLACE_NORMALS = 3  # normal vectors that one l2-Laplace vector takes
LAPLACE_NORMALS = 4  # and one i.i.d. Laplace vector


def norm_laplace(noise: Noise, k: int, r: int) -> Array:
    """A vector of l2-Laplace law with scale 1 for every node and run, from the normals r, r + 1, r + 2 of round k."""
    z0, z1, z2 = (noise.normals(k, r + q) for q in range(NORM_LAPLACE_NORMALS))
    length = np.sqrt(_squared_norm(z0))
    radius = (_squared_norm(z1) + _squared_norm(z2)) / 2
    x: Array = z0 * (radius / length)
    return x


def laplace(noise: Noise, k: int, r: int) -> Array:
    """Independent Laplace coordinates of scale 1 for every node and run, from the normals r .. r + 3 of round k."""
    z1, z2, z3, z4 = (noise.normals(k, r + q) for q in range(LAPLACE_NORMALS))
    x: Array = (z1 * z1 + z2 * z2 - z3 * z3 - z4 * z4) / 2
    return x


def _squared_norm(z: Array) -> Array:
    total: Array = np.sum(z * z, axis=1, keepdims=True)
    return total
