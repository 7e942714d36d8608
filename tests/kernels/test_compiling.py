"""What only kernels call is linked into them, without instructions of its own, and behaves as Numba's own would."""

import os
import subprocess
import sys

from sottovoce.oracle.kernels.compiling import TRIED

# A part that raises with something computed needs its environment: constants of Python that compiled code looks up.
KERNELS = """
import numpy as np

from sottovoce.oracle.kernels.compiling import kernel, part, piece


@piece
def twice(x):
    return 2 * x


@part
def checked(x):
    if x < 0:
        raise ValueError("expected a number that is not negative", x)
    return twice(x) + 1


@kernel
def run(values):
    total = 0.0
    for x in values:
        total += checked(x)
    return total
"""
CALLS = """
import numpy as np
from kernels_of_test import checked, run, twice

print(run(np.array([1.0, 2.5])))
try:
    run(np.array([1.0, -3.0]))
except ValueError as error:
    print(error.args)
# Where it was compiled: whether there are instructions to call.
compiled = [c for f in (twice, checked, run) for c in f.overloads.values()]
print([c.library.get_pointer_to_function(c.fndesc.llvm_func_name) != 0 for c in compiled])
print(sum(run.stats.cache_hits.values()))
"""


def test_parts_are_linked_and_raise_as_they_should_when_compiled_and_when_found_on_disk(tmp_path):
    (tmp_path / "kernels_of_test.py").write_text(KERNELS)
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def said():
        command = [sys.executable, "-c", CALLS]
        return subprocess.run(command, env=env, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    same = "9.0\n('expected a number that is not negative', -3.0)\n"
    assert said() == same + f"[{not TRIED}, {not TRIED}, True]\n0\n"
    assert said().endswith("\n1\n")
