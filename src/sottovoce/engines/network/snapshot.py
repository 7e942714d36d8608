"""What a site goes on from after a crash, as bytes: named arrays of doubles behind a table of their shapes.

    SHA-256 of what follows (32 bytes) | length of the table (4 bytes) | table: JSON {name: shape} | the arrays' bytes

Formal guarantees: what was packed comes back bit by bit, or `DamagedError` is raised. Nothing in the bytes is executed,
and nothing of another name, shape or type than expected is accepted.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NoReturn, final

import numpy as np

from sottovoce.arrays import Array
from sottovoce.engines.network.agreement import Agreement
from sottovoce.engines.network.stops import DamagedError
from sottovoce.engines.network.witness import Witness

_STATE, _EDGE, _SAID, _HEARD = "state.", "edge.", "said", "heard"
_LENGTH, _DIGEST_BYTES = struct.Struct("<I"), 32


def pack(arrays: Mapping[str, Array]) -> bytes:
    """Arrays of float64 under their names."""
    table = json.dumps({name: array.shape for name, array in arrays.items()}).encode("ascii")
    parts = [np.asarray(array, dtype="<f8").tobytes() for array in arrays.values()]
    body = b"".join((_LENGTH.pack(len(table)), table, *parts))
    return hashlib.sha256(body).digest() + body


def unpack(data: bytes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Exactly the arrays of these names and shapes."""
    body = data[_DIGEST_BYTES:]
    try:
        if hashlib.sha256(body).digest() != data[:_DIGEST_BYTES]:
            raise ValueError("their digest does not fit")
        start = _LENGTH.size + _LENGTH.unpack_from(body)[0]
        came = {name: tuple(shape) for name, shape in json.loads(body[_LENGTH.size : start]).items()}
    except (ValueError, TypeError, AttributeError, struct.error) as error:
        raise DamagedError(f"Expected arrays in the journal, got other bytes: {error}. Restore the journal.") from error
    if came != dict(shapes) or len(body) - start != 8 * sum(prod(shape) for shape in came.values()):
        _refuse_others(came, shapes)
    found: dict[str, Array] = {}
    for name, shape in came.items():
        found[name] = np.frombuffer(body, "<f8", prod(shape), start).reshape(shape).astype(np.float64)
        start += 8 * prod(shape)
    bad = [name for name, array in found.items() if not np.isfinite(array).all()]
    if bad:
        raise DamagedError(f"Expected finite numbers in the journal, got others in {', '.join(bad[:5])}. Restore it.")
    return found


def _refuse_others(came: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> NoReturn:
    odd = sorted(name for name in wanted.keys() | came.keys() if wanted.get(name) != came.get(name))
    raise DamagedError(
        f"Expected the journal's arrays as this run has them, got others for {', '.join(odd[:5])}. "
        "It is another version's, or was damaged: restore the journal."
    )


def pack_state(state: Any) -> bytes:
    """An algorithm's state, a named tuple of arrays."""
    return pack({f"{_STATE}{name}": array for name, array in state._asdict().items()})


def unpack_state(data: bytes, like: Any) -> Any:
    """The state, which must have the fields and shapes of `like`."""
    return _state_of(unpack(data, _shapes(like)), like)


@final
@dataclass(frozen=True, eq=False)
class Snapshot:
    """A site after a round.

    Args:
        state: the algorithm's, after `absorb`.
        said: the site's own last message, (1, d, 1).
        heard: the sum of its neighbours' last messages.
        witness: what it knows of everyone's words.
        edges: by neighbour, the sum over all rounds of (own message - its message). Kept only where a neighbour may be
            dropped: it is what has to be undone then.
    """

    state: Any
    said: Array
    heard: Array
    witness: Witness
    edges: dict[str, Array] = field(default_factory=dict)

    def dumps(self) -> bytes:
        """As bytes: what it knows behind its length, then the arrays."""
        known = self.witness.dumps()
        arrays = {f"{_STATE}{name}": array for name, array in self.state._asdict().items()}
        arrays |= {_SAID: self.said, _HEARD: self.heard}
        packed = pack(arrays | {f"{_EDGE}{name}": array for name, array in self.edges.items()})
        return _LENGTH.pack(len(known)) + known + packed

    @classmethod
    def loads(cls, data: bytes, start: "Snapshot", agreement: Agreement) -> "Snapshot":
        """From bytes. `start` is the snapshot before round 1 for the same neighbours; it has the same shapes."""
        size = _LENGTH.size + (_LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else 0)
        witness = Witness.loads(data[_LENGTH.size : size], agreement)
        shapes = _shapes(start.state) | {_SAID: start.said.shape, _HEARD: start.heard.shape}
        arrays = unpack(data[size:], shapes | {f"{_EDGE}{name}": array.shape for name, array in start.edges.items()})
        edges = {name: arrays[f"{_EDGE}{name}"] for name in start.edges}
        return cls(_state_of(arrays, start.state), arrays[_SAID], arrays[_HEARD], witness, edges)


def _shapes(state: Any) -> dict[str, tuple[int, ...]]:
    return {f"{_STATE}{name}": array.shape for name, array in state._asdict().items()}


def _state_of(arrays: Mapping[str, Array], like: Any) -> Any:
    return type(like)(**{name: arrays[f"{_STATE}{name}"] for name in like._fields})
