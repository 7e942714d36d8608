"""The array types that everything shares.

Models, messages and duals are stacked as (nodes, d, runs): the runs lie side by side in memory, so that one non-zero
of a private row is one SIMD operation over all runs, and a single site is simply a stack of one node and one run.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Texts: TypeAlias = NDArray[np.str_]
