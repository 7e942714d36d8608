"""Who is measured. Each module has one class, with the same three things:

    Contender(problem, variant, threads)
        .last(noise) -> (runs, n, d)      the last broadcasts for handed-in noise (rounds, runs, n, l, d), for the check
        .seconds(runs, rounds) -> float   of `rounds` rounds of `runs` runs, own noise included, warm-up not

Variants are ways to do the same thing, of which the fastest counts.
"""

from typing import NamedTuple


class Spec(NamedTuple):
    module: str
    name: str
    variants: tuple[str, ...]
    runs: tuple[int, ...]
    tolerance: float  # largest difference from the library's float64 numbers, relative to the largest of them
    environment: str = ""  # folder below .venv-bench; empty: the one that runs the benchmark
    pooled: tuple[str, ...] = ()  # variants with threads of their own, for which BLAS gets one


MANY = (1, 10, 64, 256)
SPECS = (
    Spec("sottovoce32", "sottovoce, float32", ("cpu",), MANY, 2e-4),
    Spec("sottovoce64", "sottovoce, float64", ("cpu",), MANY, 1e-9),
    Spec("literal", "NumPy, literal, float64", ("dense",), (1,), 1e-9),
    Spec("blocks", "NumPy and SciPy, sparse blocks, float64", ("csr",), (1,), 1e-9),
    Spec("blas", "NumPy, batched BLAS, float32", ("stack", "nodes 1", "nodes 5"), (64,), 2e-4,
         pooled=("nodes 1", "nodes 5")),
    Spec("jaxed", "JAX, jitted, float32",
         ("batch, threefry", "batch, rbg", "batch, rbg, wide", "nodes, threefry", "nodes, rbg", "nodes, rbg, wide",
          "gather, rbg"), (1, 64), 2e-4, environment="jax"),
)  # fmt: skip
BY_MODULE = {spec.module: spec for spec in SPECS}
