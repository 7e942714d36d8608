"""One file per model, in the safetensors format: the weights as a tensor, everything else as JSON text in its header.

    tensor "weights"     float64, (d, outputs)
    header "format"      "sottovoce-model/4"
    header "loss", "names", "classes", "offset", "privacy", "schema", "provenance"
    header "inference"   the table of coefficients with standard errors, or null
    header "signature"   of the site of a federation that made it: its key, and its signature over the rest; or null

Formal guarantees: nothing in a file is ever executed. Sizes are checked before anything is read, types and shapes
before anything is used, and the guarantee that a file claims is priced anew: a file whose epsilon is smaller than
that of the releases it lists is refused, and so is one that was changed after it was signed. What no reader can
check is whether those releases are all that happened, and, where there is no signature, who wrote the file.
"""

import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from sottovoce import settings
from sottovoce.arrays import Floats
from sottovoce.errors import InputError, SottovoceError
from sottovoce.files.models.inference import Inference
from sottovoce.privacy import PrivacyStatement
from sottovoce.problem.losses import Loss
from sottovoce.settings.disk import writable, write_whole

if TYPE_CHECKING:
    from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.files.models.model import Model

FORMAT = "sottovoce-model/4"
BEFORE_INFERENCE = ("sottovoce-model/2", "sottovoce-model/3")  # the oldest says nothing of observers
READ = (*BEFORE_INFERENCE, FORMAT)
MOST_BYTES = 2**30
MOST_HEADER_BYTES = 2**24
_OLD_CONTENT = ("loss", "names", "classes", "offset", "privacy", "schema", "provenance")


def _content(written: str) -> tuple[str, ...]:
    """Names of the header's entries in that format, without the signature."""
    return _OLD_CONTENT if written in BEFORE_INFERENCE else (*_OLD_CONTENT, "inference")


@dataclass(frozen=True, kw_only=True)
class _Signature:
    key: str
    signature: str


@dataclass(frozen=True, kw_only=True)
class _Header:
    loss: Loss
    names: tuple[str, ...]
    classes: tuple[str, ...] | None
    offset: float
    privacy: dict[str, Any]
    schema: dict[str, Any] | None
    provenance: dict[str, Any]
    signature: _Signature | None
    inference: Inference | None = None


def save(model: Model, path: Path | str, key: "SigningKey | None" = None) -> None:
    """Write the file: whole, or not at all. A site of a federation signs it with its key."""
    parts = {name: settings.plain(getattr(model, name)) for name in _content(FORMAT)}
    header = {name: json.dumps(part, allow_nan=False, sort_keys=True) for name, part in parts.items()}
    weights = np.ascontiguousarray(model.weights, dtype=np.float64)
    signed = None
    if key is not None:
        from sottovoce.federation.agreement.identity import SigningContext

        signature = key.sign(_signed_bytes(FORMAT, weights, header), SigningContext.MODEL)
        signed = {"key": str(key.public), "signature": base64.b64encode(signature).decode("ascii")}
    header["signature"] = json.dumps(signed)
    place = Path(path)
    with writable(place):
        write_whole(place, to_bytes({"weights": weights}, metadata={"format": FORMAT, **header}))


def _signed_bytes(written: str, weights: Floats, header: Mapping[str, str]) -> bytes:
    """The bytes that a signature covers: format, weights and header, each part behind its length."""
    parts = [written.encode(), str(weights.shape).encode(), weights.astype("<f8").tobytes()]
    parts += [header[name].encode("utf-8") for name in _content(written)]
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def load(path: Path | str) -> Model:
    """Read a model file, which is not trusted: all of it is checked."""
    path = Path(path)
    try:
        _check_sizes(path)
        with safe_open(path, framework="numpy") as file:
            texts, header = _header(path, file.metadata())
            weights = _weights(path, file)
    except OSError as error:
        raise InputError(f"Expected a model file, got {str(path)!r}: {error.strerror or error}.") from error
    except SafetensorError as error:
        _refuse(path, f"not in the safetensors format ({error})")
    try:
        read = settings.read(_Header, {"inference": None, **header}, "a header", full=True)
        return replace(_model(weights, read), signed_by=_signer(weights, texts, read.signature))
    except (SottovoceError, TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(f"Expected a model file, got {str(path)!r}: {str(error).rstrip('.')}.") from error


def _check_sizes(path: Path) -> None:
    """Refuse a file of an impossible size before anything is mapped or parsed, so that it costs no memory."""
    size = path.stat().st_size
    if path.is_dir():
        inside = path / "model.safetensors"
        _refuse(path, "it is a folder" + (f"; give the file in it, {str(inside)!r}" if inside.is_file() else ""))
    if not path.is_file():
        _refuse(path, "it is no plain file")
    if size > MOST_BYTES:
        _refuse(path, f"expected at most {MOST_BYTES} bytes, got {size}")
    with path.open("rb") as file:
        start = file.read(8)
    # It begins with the length of its header. In another kind of file this is an impossible number.
    if len(start) < 8 or struct.unpack("<Q", start)[0] > min(MOST_HEADER_BYTES, size - 8):
        _refuse(path, "it does not begin as a model file does, and may be another kind of file: the model comes first")


def _header(path: Path, metadata: Mapping[str, str] | None) -> tuple[dict[str, str], dict[str, Any]]:
    """The header's texts, as they are signed, and their parsed values."""
    found = dict(metadata or {})
    if found.get("format") not in READ:
        _refuse(path, f"expected format {FORMAT!r}, got {str(found.get('format'))[:40]!r}; is it another program's?")
    parts = (*_content(found["format"]), "signature")
    if set(found) != {"format", *parts}:
        _refuse(path, f"expected the entries {', '.join(parts)}, got {', '.join(sorted(found))[:200]}")
    try:
        return found, {name: json.loads(found[name], parse_constant=_no_constant) for name in parts}
    except (ValueError, RecursionError) as error:
        _refuse(path, f"expected JSON in its header ({error})")


def _signer(weights: Floats, texts: Mapping[str, str], entry: "_Signature | None") -> str | None:
    """The key that the file was signed with; refused if its signature is wrong."""
    if entry is None:
        return None
    from sottovoce.federation.agreement.identity import PublicKey, SigningContext

    key = PublicKey.from_text(entry.key)
    signature = base64.b64decode(entry.signature, validate=True)
    if (entry.key, entry.signature) != (str(key), base64.b64encode(signature).decode("ascii")):
        raise InputError("Expected a key and a signature, written in one way.")  # nothing can be hidden in them
    if not key.verify(signature, _signed_bytes(texts["format"], weights, texts), SigningContext.MODEL):
        raise InputError("Expected a model as its site signed it, got one that was changed since.")
    return str(key)


def _weights(path: Path, file: Any) -> Floats:
    names = list(file.keys())
    if names != ["weights"]:
        _refuse(path, f"expected one tensor called weights, got {names[:5]}")
    about = file.get_slice("weights")
    if about.get_dtype() != "F64" or len(about.get_shape()) != 2:
        _refuse(path, f"expected a float64 matrix of weights, got {about.get_dtype()} of shape {about.get_shape()}")
    weights: Floats = file.get_tensor("weights")
    return weights


def _model(weights: Floats, header: _Header) -> Model:
    from sottovoce.files.schema import Schema

    return Model(
        weights=weights,
        loss=header.loss,
        names=header.names,
        classes=header.classes,
        privacy=PrivacyStatement.from_dict(header.privacy),
        schema=None if header.schema is None else Schema.from_dict(header.schema),
        provenance=header.provenance,
        offset=header.offset,
        inference=header.inference,
    )


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _refuse(path: Path, why: str) -> NoReturn:
    raise InputError(f"Expected a model file, got {str(path)!r}: {why}.")
