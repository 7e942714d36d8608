"""The state of a site with noise of its own as bytes, for its journal: named arrays of doubles as safetensors.

    SHA-256 of what follows (32 bytes) | the arrays

Formal guarantees: what was packed comes back bit by bit, or `DamagedError` is raised. Nothing in the bytes is executed,
and nothing of another name, shape or type than expected is accepted.
"""

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from sottovoce.arrays import Array
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.norm import norm_of
from sottovoce.federation.site.part import Standing
from sottovoce.federation.site.stops import DamagedError
from sottovoce.federation.site.witness import Witness
from sottovoce.federation.transport.wire import DIGEST_BYTES

_STATE, _EDGE, _SAID, _HEARD, _COORDINATES = "state.", "edge.", "said", "heard", "coordinates"
_LENGTH = struct.Struct("<I")


def pack_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Named arrays as bytes of float64, after a digest of them."""
    body = save({name: np.asarray(array, dtype=np.float64, order="C") for name, array in arrays.items()})
    return hashlib.sha256(body).digest() + body


def unpack_arrays(data: bytes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The arrays, which must have exactly these names and shapes; `DamagedError` otherwise."""
    body = data[DIGEST_BYTES:]
    try:
        if hashlib.sha256(body).digest() != data[:DIGEST_BYTES]:
            raise ValueError("their digest does not fit")
        found: dict[str, Array] = load(body)
    except (ValueError, KeyError, SafetensorError) as error:
        raise DamagedError(f"Expected arrays in the journal, got other bytes: {error}. Restore the journal.") from error
    wanted = {(name, shape, np.dtype(np.float64)) for name, shape in shapes.items()}
    # An array too many is damage as well.
    odd = wanted ^ {(name, array.shape, array.dtype) for name, array in found.items()}
    if odd:
        names = sorted({name for name, *_ in odd})
        raise DamagedError(
            f"Expected the journal's arrays as this run has them, got others for {', '.join(names[:5])}. "
            "It is another version's, or was damaged: restore the journal."
        )
    # States are finite by construction, so this site did not write these bytes, even if their digest fits.
    bad = [name for name, array in found.items() if not np.isfinite(array).all()]
    if bad:
        raise DamagedError(f"Expected finite numbers in the journal, got others in {', '.join(bad[:5])}. Restore it.")
    return found


def pack_state(state: Any) -> bytes:
    """The bytes of an algorithm's state, which is a named tuple of arrays."""
    return pack_arrays({f"{_STATE}{name}": array for name, array in state._asdict().items()})


def unpack_state(data: bytes, like: Any) -> Any:
    """The state in these bytes, which must have the fields and shapes of `like`."""
    return _state_of(unpack_arrays(data, _shapes(like)), like)


@final
@dataclass(frozen=True, eq=False)
class Snapshot(Standing):
    """The state of a site with noise of its own after a round.

    Args:
        state: the algorithm's, after `absorb`.
        said: the site's own last message, (1, d, 1).
        heard: the sum of its neighbours' last messages.
        witness: what it knows of all sites' messages.
        edges: by neighbour, the sum over all rounds of (own message - its message), which is undone when the neighbour
            is dropped. Empty if no neighbour may be dropped.
        coordinates: the numbers of the coordinates (`Whitening.numbers`) that follow from what was released before
            round 1, (numbers,); zeros until then, and none where nothing is.
    """

    state: Any
    said: Array
    heard: Array
    witness: Witness
    edges: dict[str, Array] = field(default_factory=dict)
    coordinates: Array = field(default_factory=lambda: np.zeros(0))

    def with_witness(self, witness: Witness) -> "Snapshot":
        return replace(self, witness=witness)

    def size(self, senders: int) -> float | None:
        """The norm of the mean of the site's own model and those that it heard."""
        return norm_of((self.said + self.heard)[0, :, 0]) / senders

    def dumps(self) -> bytes:
        """The length of the witness, the witness, then the arrays."""
        known = self.witness.dumps()
        arrays = {f"{_STATE}{name}": array for name, array in self.state._asdict().items()}
        arrays |= {_SAID: self.said, _HEARD: self.heard} | _if_any(self.coordinates)
        packed = pack_arrays(arrays | {f"{_EDGE}{name}": array for name, array in self.edges.items()})
        return _LENGTH.pack(len(known)) + known + packed

    @classmethod
    def loads(cls, data: bytes, start: "Snapshot", agreement: Agreement) -> "Snapshot":
        """The snapshot in these bytes. `start`, before round 1 and for the same neighbours, gives the shapes."""
        size = _LENGTH.size + (_LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else 0)
        witness = Witness.loads(data[_LENGTH.size : size], agreement)
        others = {_SAID: start.said, _HEARD: start.heard} | _if_any(start.coordinates)
        others |= {f"{_EDGE}{name}": array for name, array in start.edges.items()}
        arrays = unpack_arrays(
            data[size:], _shapes(start.state) | {name: array.shape for name, array in others.items()}
        )
        edges = {name: arrays[f"{_EDGE}{name}"] for name in start.edges}
        coordinates = arrays.get(_COORDINATES, start.coordinates)
        return cls(_state_of(arrays, start.state), arrays[_SAID], arrays[_HEARD], witness, edges, coordinates)


def _if_any(coordinates: Array) -> dict[str, Array]:
    """The coordinates by their name, where there are any."""
    return {_COORDINATES: coordinates} if coordinates.size else {}


def _shapes(state: Any) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a state's arrays."""
    return {f"{_STATE}{name}": array.shape for name, array in state._asdict().items()}


def _state_of(arrays: Mapping[str, Array], like: Any) -> Any:
    """A state of the class of `like`, from named arrays."""
    return type(like)(**{name: arrays[f"{_STATE}{name}"] for name in like._fields})
