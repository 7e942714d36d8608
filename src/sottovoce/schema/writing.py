"""New files appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from sottovoce.errors import InputError


def check_new(path: Path) -> None:
    """Refuse a path where something is already."""
    if os.path.lexists(path):
        raise InputError(
            f"Expected a new file, got out={str(path)!r}, which exists. Choose another, or allow it (--force)."
        )


def check_other(path: Path, source: Path) -> None:
    """Refuse to write over the file that is read."""
    if path.exists() and source.exists() and path.samefile(source):
        raise InputError(f"Expected another file to write than the one to read, got out={str(path)!r} for both.")


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file to write. It takes its name when all is written, and in place of whatever had the name."""
    if path.is_dir():
        raise InputError(f"Expected a file that can be written, got out={str(path)!r}, which is a folder.")
    partial = path.parent / f".sottovoce-{secrets.token_hex(4)}.partial"
    try:
        with partial.open("x", encoding="utf-8", newline="") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise InputError(f"Expected a file that can be written, got out={str(path)!r}: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
