"""Files that appear whole or not at all, and locks for those that several processes change."""

import errno
import os
import secrets
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sottovoce.errors import InputError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_PAUSE = 0.005  # seconds between two tries to get a lock


@contextmanager
def replacing(path: Path, mode: int = 0o666, encoding: str | None = None) -> Iterator[IO[Any]]:
    """Open a temporary file that replaces `path` when the block ends; text if there is an encoding."""
    unfinished, newline = beside(path), None if encoding is None else ""
    how = "xb" if encoding is None else "x"
    try:
        with open(unfinished, how, encoding=encoding, newline=newline, opener=_made_with(mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_folder(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file with this content, in place of whatever had the name."""
    with replacing(path, mode) as file:
        file.write(content)


def write_new(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a new file; raises `FileExistsError` if there is one."""
    with open(path, "xb", opener=_made_with(mode)) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink()
            raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk. Windows cannot open folders, and does not need to."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def beside(path: Path) -> Path:
    """A path in the same folder for an unfinished file."""
    return path.with_name(f".sottovoce-{secrets.token_hex(4)}.partial")


def _made_with(mode: int) -> Callable[[str, int], int]:
    """An opener that makes a file with its final mode, so that at no moment others could open it."""
    return lambda name, flags: os.open(name, flags, mode)


# -- when there is no room --------------------------------------------------------------------------------------------


def is_full(error: BaseException) -> bool:
    """True if a write failed because the disk, or the user's share of it, is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL


def no_room(path: Path | str) -> str:
    """The error for a full disk, about a file that is written whole or not at all."""
    return (
        f"Expected room on the disk for {str(path)!r}, got a disk that is full. Nothing was lost: all that was written "
        "before is there. Make room, and run the same command again."
    )


# -- taking turns -----------------------------------------------------------------------------------------------------


def lock_path(path: Path) -> Path:
    """Path of the file that is locked to change `path`: the same name with .lock behind it. It is never removed."""
    return path.with_name(f"{path.name}.lock")


@contextmanager
def taking_turns(path: Path, seconds: float = 60.0) -> Iterator[None]:
    """Hold the lock of a file in the block. No other thread or process can hold it at the same time.

    The file itself cannot be locked, since new versions replace it. The lock's own file is never removed: else those
    who wait for it and those who come later would lock different files. The system releases the lock when a process
    dies.

    Args:
        path: of the file that is read and written; links should be resolved.
        seconds: to wait for the others.

    Raises:
        TimeoutError: somebody else had it all the time.
        OSError: the lock cannot be made, or this disk knows no locks. Nothing is done without one.
    """
    handle = os.open(lock_path(path), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        last = time.monotonic() + seconds
        while not _try_lock(handle):
            if time.monotonic() >= last:
                raise TimeoutError(errno.ETIMEDOUT, f"another process is changing it for {seconds:g} s", str(path))
            time.sleep(_PAUSE)
        yield
    finally:
        if sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough where a process was forked meanwhile
        os.close(handle)


def _try_lock(handle: int) -> bool:
    """Try once to take the lock; True if it was free. Both kinds of lock belong to the opened file, so that threads of
    one process keep each other out too.
    """
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True


# -- files that a person named -----------------------------------------------------------------------------------------


@contextmanager
def writable(out: Path) -> Iterator[None]:
    """Turn errors of the system while `out` is written into an `InputError` that names it."""
    try:
        # A folder, but also a device or a pipe: a file of that name would take its place.
        if out.exists() and not out.is_file():
            raise InputError(f"Expected a file that can be written, got out={str(out)!r}, which is no plain file.")
        yield
    except OSError as error:
        raise InputError(f"Expected a file that can be written, got out={str(out)!r}: {error.strerror}.") from error


STANDARD_OUTPUT = Path("-")  # what people give as a file name for it


@contextmanager
def text_out(out: Path) -> Iterator[IO[str]]:
    """A text file that appears whole or not at all; or standard output, which cannot."""
    if out == STANDARD_OUTPUT:
        yield sys.stdout
        return
    with writable(out), replacing(out, encoding="utf-8") as file:
        yield file


def remarks(out: Path) -> IO[str]:
    """The stream for messages: standard error where standard output holds the data."""
    return sys.stderr if out == STANDARD_OUTPUT else sys.stdout


def check_new(out: Path) -> None:
    """Refuse a path where something is already."""
    if out != STANDARD_OUTPUT and os.path.lexists(out):
        raise InputError(
            f"Expected a new file, got out={str(out)!r}, which exists. Choose another, or allow it (--force)."
        )


def check_other(out: Path, source: Path) -> None:
    """Refuse to write over the file that is read."""
    if out.exists() and source.exists() and out.samefile(source):
        raise InputError(f"Expected another file to write than the one to read, got out={str(out)!r} for both.")
