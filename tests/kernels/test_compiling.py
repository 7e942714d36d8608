"""What only kernels call is linked into them, without instructions of its own, and behaves as Numba's own would."""

import os
import subprocess
import sys

import pytest

from sottovoce.oracle.kernels.compiling import TRIED

# What raises with something computed needs its environment: constants of Python that compiled code looks up.
KERNELS = """
import numpy as np

from sottovoce.oracle.kernels.compiling import kernel, maker, part, piece, scalar_kernel


@piece
def twice(x):
    return 2 * x


@part
def finite(x):
    if x != x:
        raise ArithmeticError("expected a number")
    return x


@maker
def checked(x):
    if x < 0:
        raise ValueError("expected a number that is not negative", x)
    return twice(finite(x)) + 1


@maker
def three(x):
    return np.full(3, x), x


@part
def total(values):
    found = 0.0
    for x in values:
        found += checked(x)
    return found


@kernel
def run(values):
    made, _ = three(values[0])
    for _ in range(100):  # memory that was given back too soon would be used again
        three(-1.0)
    return total(values) + total(made) - total(made)


@scalar_kernel
def run_scalars(values):
    return total(values)


@part
def part_that_makes(x):
    return three(x)


@kernel
def refused(x):
    return part_that_makes(x)[1]
"""
CALLS = """
import numpy as np
from kernels_of_test import checked, run, run_scalars, twice

print(run(np.array([1.0, 2.5])), run_scalars(np.array([1.0, 2.5])))
try:
    run(np.array([1.0, np.nan]))
except ArithmeticError as error:
    print(error.args)
try:
    run(np.array([1.0, -3.0]))
except ValueError as error:
    print(error.args)
# Where it was compiled: whether there are instructions to call.
compiled = [c for f in (twice, checked, run) for c in f.overloads.values()]
print([c.library.get_pointer_to_function(c.fndesc.llvm_func_name) != 0 for c in compiled])
print(sum(run.stats.cache_hits.values()))
"""


def _said(code, folder):
    """What a new process prints that may import the kernels above; the same folder is the same cache."""
    source = folder / "kernels_of_test.py"
    if not source.exists():  # a file that was written anew would be compiled anew
        source.write_text(KERNELS)
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_parts_are_linked_and_raise_as_they_should_when_compiled_and_when_found_on_disk(tmp_path):
    same = "9.0 9.0\n('expected a number',)\n('expected a number that is not negative', -3.0)\n"
    assert _said(CALLS, tmp_path) == same + f"[{not TRIED}, {not TRIED}, True]\n0\n"
    assert _said(CALLS, tmp_path).endswith("\n1\n")


REFUSED = """
from kernels_of_test import refused

try:
    refused(1.0)
except Exception as error:
    print(type(error).__name__, str(error).splitlines()[0])
"""


@pytest.mark.skipif(not TRIED, reason="parts of other versions count references")
def test_a_part_that_would_return_arrays_is_refused(tmp_path):
    expected = "TypeError Expected part_that_makes to return no array, got Tuple(array(float64, 1d, C), float64)."
    assert _said(REFUSED, tmp_path).startswith(expected)


COLLECTS = """
import gc

import numpy as np
from kernels_of_test import run, run_scalars

run(np.ones(2))
print(gc.isenabled())
gc.disable()
run_scalars(np.ones(2))
print(gc.isenabled())
"""


def test_the_collector_is_as_it_was_after_compiling(tmp_path):
    assert _said(COLLECTS, tmp_path).split() == ["True", "False"]
