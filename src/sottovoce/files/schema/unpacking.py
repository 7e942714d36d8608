"""The bytes of a file, unpacked on the way: gzip, bzip2, xz, and zip with one file inside, known by how they start."""

import bz2
import gzip
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sottovoce.errors import InputError
from sottovoce.settings import brief

BROKEN = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError)  # what unpacking may raise
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_ZIP, _OLD_EXCEL = (b"PK\x03\x04", b"PK\x05\x06"), b"\xd0\xcf\x11\xe0"
_LONGEST = 6  # bytes by which a form is told


def is_packed(path: Path) -> bool:
    """True if the file has to be unpacked to be read."""
    with path.open("rb") as file:
        start = file.read(_LONGEST)
    return start.startswith((*_OPENERS, *_ZIP))


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file to read, unpacked."""
    with path.open("rb") as file:
        start = file.read(_LONGEST)
        file.seek(0)
        if start.startswith(_OLD_EXCEL):
            raise InputError(_workbook(path))
        if start.startswith(_ZIP):
            with zipfile.ZipFile(file) as archive, archive.open(_only_member(path, archive)) as member:
                yield member
            return
        opener = next((made for magic, made in _OPENERS.items() if start.startswith(magic)), None)
        if opener is None:
            yield file
            return
        with opener(file) as unpacked:
            yield unpacked


def _only_member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    found = [part for part in archive.infolist() if not part.is_dir() and not part.filename.startswith("__MACOSX/")]
    names = [part.filename for part in found]
    if "[Content_Types].xml" in names:
        raise InputError(_workbook(path))
    if len(found) != 1:
        raise InputError(f"Expected one file in zip file={str(path)!r}, got {len(found)}: {brief(names)}. Unpack it.")
    if found[0].flag_bits & 1:
        raise InputError(f"Expected a zip file without a password, got file={str(path)!r}. Unpack it first.")
    return found[0]


def _workbook(path: Path) -> str:
    return f"Expected a CSV or Parquet file, got file={str(path)!r}, an office document. Save the sheet as CSV (UTF-8)."
