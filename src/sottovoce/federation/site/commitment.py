"""What a site commits to before its first message: its rows and the key of its noise.

    data commitment    SHA-256( label | salt | digest of the data file | delimiter )     may stand in the agreement
    rows' commitment   SHA-256( label | salt | digest of the rows as they are computed with )         in the journal
    binding            SHA-256( label | agreement | site | rows' commitment | SHA-256(noise key) )    in every message

A site commits to its file before anyone knows what will be computed: the rows of a table are cells whose bins follow
from the agreement. What is read from a file follows from its bytes, the delimiter and the agreement. An agreement may
also hold the rows' commitment: those of older versions do.

The salt is 32 secret random bytes, so neither hash reveals anything about a row. Both can be opened later, to prove
which rows were used. A neighbour refuses a message whose binding has changed. So a site that comes back with other
rows, or with another noise key, is noticed.
"""

import hashlib
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from sottovoce.errors import expect
from sottovoce.problem.sites import Sites

SALT_BYTES = 32


@final
class Source(NamedTuple):
    """Where rows were read from."""

    digest: bytes  # SHA-256 of the data file
    delimiter: str | None = None  # that the site gave for it; None: the schema's


def commit_file(salt: bytes, source: Source) -> str:
    """The data commitment, as the agreement writes it: "sha256:" and 64 hexadecimal digits.

    Args:
        salt: 32 secret random bytes. Without them anyone who knows all rows but one could guess the last.
        source: the file, bit by bit, and how it is read.
    """
    expect(len(salt) == SALT_BYTES, f"a salt of {SALT_BYTES} secret bytes", bytes=len(salt))
    given = "" if source.delimiter is None else source.delimiter
    return "sha256:" + _hash(b"sottovoce file v1", salt, source.digest, given.encode("utf-8")).hex()


def commit(salt: bytes, rows: Sites) -> str:
    """The rows' commitment, in the same form.

    Args:
        salt: the same.
        rows: the encoded rows; their order, precision and layout matter.
    """
    expect(len(salt) == SALT_BYTES, f"a salt of {SALT_BYTES} secret bytes", bytes=len(salt))
    return "sha256:" + _hash(b"sottovoce rows v1", salt, rows_digest(rows)).hex()


def bind(agreement: bytes, site: str, data_commitment: str, noise_key: bytes) -> bytes:
    """The 32 bytes that every message of the run carries. They identify rows and noise key, and never change.

    Args:
        agreement: its digest.
        site: the site's name.
        data_commitment: what `commit` made of its rows.
        noise_key: the secret key of its noise. Only its hash goes in, and is hashed again with the rest.
    """
    parts = agreement, site.encode("ascii"), data_commitment.encode("ascii"), hashlib.sha256(noise_key).digest()
    return _hash(b"sottovoce binding v1", *parts)


def rows_digest(rows: Sites) -> bytes:
    """The SHA-256 of all numbers that a gradient is computed from, bit by bit."""
    matrix: Any = rows.rows.block(0, int(rows.counts.sum()))
    sparse = bool(sp.issparse(matrix))
    arrays = (matrix.data, matrix.indices, matrix.indptr) if sparse else (matrix,)
    shape = f"{'csr' if sparse else 'dense'} {matrix.shape} {rows.data_norm!r}".encode("ascii")
    # Nothing is added for rows without weights and exposures, so that their digest stays what it was in older versions.
    shape += "".join(f" {name}" for name in rows.factors.told).encode("ascii")
    told = [getattr(rows.factors, name) for name in rows.factors.told]
    buffers = [np.ascontiguousarray(array) for array in (*arrays, rows.labels, *told)]
    kinds = [f"{array.dtype.str} {array.shape}".encode("ascii") for array in buffers]
    return _hash(shape, *(part for pair in zip(kinds, buffers, strict=True) for part in pair))


def _hash(*parts: Any) -> bytes:
    """The SHA-256 of all parts, each after its length, so that no two lists have the same bytes."""
    code = hashlib.sha256()
    for part in parts:
        view = memoryview(part).cast("B") if len(part) else memoryview(b"")
        code.update(len(view).to_bytes(8, "little"))
        code.update(view)
    return code.digest()
