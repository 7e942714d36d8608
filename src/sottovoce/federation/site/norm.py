"""The norm of a vector that came from elsewhere: its squares may be too large for a floating-point number."""

import numpy as np

from sottovoce.arrays import Floats


def norm_of(vector: Floats) -> float:
    """The Euclidean norm, without overflow of its squares."""
    largest = float(np.abs(vector).max())
    with np.errstate(over="ignore"):
        return 0.0 if largest == 0 else largest * float(np.linalg.norm(vector / largest))
