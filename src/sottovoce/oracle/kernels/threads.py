"""Threads that work on the items of a kernel, without the interpreter's lock.

A kernel takes (counter, items, ...) and claims the next item until there is none. An item's result does not depend on
the thread. Numba's own `prange` is not used: it compiles a kernel several times, gives each thread a fixed share
however uneven the sites are, and with some of its back ends the process is killed after a fork.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from sottovoce.oracle.kernels.simd import data_of


@intrinsic
def claim(_typing: Any, counter: Any) -> Any:
    """The number of the next item: the counter is read and increased by 1, atomically."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = data_of(context, builder, sig.args[0], args[0])
        return builder.atomic_rmw("add", data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), build


@cache
def _pool(_process: int, threads: int) -> ThreadPoolExecutor:
    """The threads of this process; the process number is an argument only so that a fork gets a pool of its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="sottovoce")


def share_out(function: Callable[..., Any], items: int, *args: Any) -> None:
    """Run a kernel on all items, on as many threads as `numba.set_num_threads` allows. Returns when all are done.

    Args:
        function: a kernel that takes (counter, items, *args) and claims items until there is none.
        items: their number. Their results must not depend on the thread.
        args: the rest of its arguments.
    """
    threads = min(numba.get_num_threads(), items)
    # Threads claim items from this counter, so fast ones take more.
    counter = np.zeros(1, dtype=np.int64)
    if threads < 2:
        function(counter, items, *args)
        return
    # One pool for each process, because a pool does not survive a fork.
    pool = _pool(os.getpid(), threads - 1)
    others = [pool.submit(function, counter, items, *args) for _ in range(threads - 1)]
    function(counter, items, *args)
    for other in others:
        other.result()
