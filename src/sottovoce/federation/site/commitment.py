"""What a site binds itself to before its first message: its rows, and the key that its noise is made with.

    data commitment    SHA-256( label | salt | digest of the encoded rows )              may stand in the agreement
    binding            SHA-256( label | agreement | site | data commitment | SHA-256(noise key) )    in every message

The salt is secret and has 32 random bytes, so neither says anything about a row; both can be opened later, to prove
which rows were used. A neighbour refuses a message whose binding is another than before: whoever comes back with other
rows, or with another noise key, is noticed.
"""

import hashlib
import platform
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from sottovoce.errors import expect
from sottovoce.noise.sampler import VERSION
from sottovoce.problem.sites import Sites

SALT_BYTES = 32


def commit(salt: bytes, rows: Sites) -> str:
    """The data commitment of a site's rows, as the agreement writes it: "sha256:" and 64 hexadecimal digits.

    Args:
        salt: 32 secret random bytes. Without them whoever knows all rows but one could try out the last.
        rows: the encoded rows; their order, precision and layout count.
    """
    expect(len(salt) == SALT_BYTES, f"a salt of {SALT_BYTES} secret bytes", bytes=len(salt))
    return "sha256:" + _hash(b"sottovoce rows v1", salt, rows_digest(rows)).hex()


def bind(agreement: bytes, site: str, data_commitment: str, noise_key: bytes) -> bytes:
    """32 bytes that every message of the run carries: they stand for rows and noise key, and never change.

    Args:
        agreement: its digest.
        site: the site's name.
        data_commitment: what `commit` made of its rows.
        noise_key: the secret key of its noise. Only its hash goes in, and is hashed again with the rest.
    """
    parts = agreement, site.encode("ascii"), data_commitment.encode("ascii"), hashlib.sha256(noise_key).digest()
    return _hash(b"sottovoce binding v1", *parts)


def software() -> str:
    """What the numbers of a run depend on besides rows and settings. A run is resumed under the same only.

    The number of threads is not among it: a site sums with one (`one_thread`).
    """
    from threadpoolctl import threadpool_info

    names = " ".join(f"{name} {version(name)}" for name in ("sottovoce", "numpy", "scipy", "numba", "llvmlite"))
    # The library that sums, its version, and for which processor it was chosen.
    blas = sorted(
        {
            f"{library['internal_api']} {library.get('version')} {library.get('architecture', '')}".strip()
            for library in threadpool_info()
            if library["user_api"] == "blas"
        }
    )
    return f"{names} {', '.join(blas)} python {platform.python_version()} {platform.machine()} {_instructions()}"


def protocol() -> str:
    """What must be the same at all sites of a masked run, and stands in no agreement: what a context is made of, and
    how noise is drawn. Libraries and processors may differ: they round differently, and nothing else.
    """
    return f"sottovoce {version('sottovoce')} noise {VERSION}"


def _instructions() -> str:
    """The vector instructions that numpy has found in this processor and uses: exp and its like differ with them in a
    last bit.
    """
    built = cast(dict[str, Any], np.show_config(mode="dicts"))
    return "+".join(sorted(built.get("SIMD Extensions", {}).get("found", []))) or "baseline"


def one_thread() -> AbstractContextManager[Any]:
    """Within it, matrix products are summed by one thread: in an order that does not depend on the machine's cores."""
    from threadpoolctl import threadpool_limits

    return cast(AbstractContextManager[Any], threadpool_limits(limits=1, user_api="blas"))


def rows_digest(rows: Sites) -> bytes:
    """Of all numbers that a gradient is made of, bit by bit."""
    matrix: Any = rows.rows.block(0, int(rows.counts.sum()))
    sparse = bool(sp.issparse(matrix))
    arrays = (matrix.data, matrix.indices, matrix.indptr) if sparse else (matrix,)
    shape = f"{'csr' if sparse else 'dense'} {matrix.shape} {rows.data_norm!r}".encode("ascii")
    # Rows without weights and exposures keep the digest that they have always had.
    shape += "".join(f" {name}" for name in rows.factors.told).encode("ascii")
    told = [getattr(rows.factors, name) for name in rows.factors.told]
    buffers = [np.ascontiguousarray(array) for array in (*arrays, rows.labels, *told)]
    kinds = [f"{array.dtype.str} {array.shape}".encode("ascii") for array in buffers]
    return _hash(shape, *(part for pair in zip(kinds, buffers, strict=True) for part in pair))


def _hash(*parts: Any) -> bytes:
    """Of all parts, each behind its length, so that no two lists have the same bytes."""
    code = hashlib.sha256()
    for part in parts:
        view = memoryview(part).cast("B") if len(part) else memoryview(b"")
        code.update(len(view).to_bytes(8, "little"))
        code.update(view)
    return code.digest()
