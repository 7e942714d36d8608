"""Small new files with the permissions that keys need, and reading them: secret for their owner only, or public."""

import os
import stat
from pathlib import Path

from sottovoce.errors import InputError, PrivacyError, expect
from sottovoce.settings.disk import write_new

_LARGEST_KEY_FILE = 10_000  # bytes


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read; an existing one is never replaced."""
    _write_new(path, content, mode=0o600)


def read_secret(path: Path) -> bytes:
    """The content of a file, unless others than its owner may read or write it."""
    with path.open("rb") as file:
        # Of the open file, so that the file that is checked is the one that is read.
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if os.name == "posix" and mode & 0o077:
            raise PrivacyError(
                f"Expected a key file that only its owner may read, got mode={mode:04o} of {str(path)!r}. "
                f"Run: chmod 600 {path}, and make a new key if others may have read it."
            )
        return _limited(path, file.read(_LARGEST_KEY_FILE + 1))


def read_public(path: Path) -> str:
    """The text of a small public file; if it is not ASCII, a text that is no key."""
    with path.open("rb") as file:
        content = _limited(path, file.read(_LARGEST_KEY_FILE + 1))
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        return "not a text file"


def _limited(path: Path, content: bytes) -> bytes:
    """The content; refused if the file is larger than any key, so that it must be the wrong file."""
    expect(len(content) <= _LARGEST_KEY_FILE, f"a key file of at most {_LARGEST_KEY_FILE} bytes", file=str(path))
    return content


def write_public(path: Path, content: bytes) -> None:
    """Write a new file that everyone may read; an existing one is never replaced."""
    _write_new(path, content, mode=0o644)


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a new file that has these permissions from its creation."""
    try:
        write_new(path, content, mode)
    except FileExistsError:
        raise InputError(
            f"Expected a file that does not exist yet, got {str(path)!r}. Choose another name, or move the old file."
        ) from None
