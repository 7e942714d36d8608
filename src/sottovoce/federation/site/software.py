"""The software that a site's numbers depend on, and one thread for its sums, so that they come out the same again."""

import platform
from contextlib import AbstractContextManager
from functools import cache
from importlib import metadata
from typing import Any, cast

import numpy as np

from sottovoce.noise.sampler import VERSION

version = cache(metadata.version)  # a look-up reads a whole file


def software() -> str:
    """The versions and the processor features that a run's numbers depend on. A run is resumed only under the same.

    The number of threads is not part of it: a site sums with one (`one_thread`).
    """
    names = " ".join(f"{name} {version(name)}" for name in ("sottovoce", "numpy", "scipy", "numba", "llvmlite"))
    # The BLAS library that sums, its version, and the processor that it was chosen for.
    blas = sorted(
        {
            f"{library['internal_api']} {library.get('version')} {library.get('architecture', '')}".strip()
            for library in _libraries().info()
            if library["user_api"] == "blas"
        }
    )
    # The vector instructions that numpy uses on this processor: with them, exp and its like differ in the last bit.
    built = cast(dict[str, Any], np.show_config(mode="dicts"))
    simd = "+".join(sorted(built.get("SIMD Extensions", {}).get("found", []))) or "baseline"
    return f"{names} {', '.join(blas)} python {platform.python_version()} {platform.machine()} {simd}"


def protocol() -> str:
    """The version of the protocol, which must be the same at all sites of a masked run and stands in no agreement: what
    a context is made of, and how noise is drawn. Libraries and processors may differ: they only round differently.
    """
    return f"sottovoce {version('sottovoce')} noise {VERSION}"


def one_thread() -> AbstractContextManager[Any]:
    """A context in which one thread sums matrix products, in an order that does not depend on the number of cores."""
    return cast(AbstractContextManager[Any], _libraries().limit(limits=1, user_api="blas"))


@cache
def _libraries() -> Any:
    """The libraries of this process that compute with threads. They are looked for once: it takes milliseconds, and a
    site computes in this context several times a round.
    """
    import scipy.linalg  # noqa: F401, it brings a BLAS library of its own, which must be among them
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
