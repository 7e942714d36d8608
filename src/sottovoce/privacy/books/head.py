"""The head of a ledger: a small file beside it that tells how many entries there are, and the hash of the last.

It is overwritten in place, since a new file and a new name would take three syncs more. It is short and lies in one
sector, which a disk writes as a whole or not at all; SQLite relies on the same. A head that is torn all the same is
refused.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, final

from sottovoce.errors import PrivacyError
from sottovoce.settings.disk import is_full, no_room, write_whole

# Room for a count of 20 digits and a hash of 64; a quarter of the smallest sector.
_BYTES = 128


class Head(NamedTuple):
    """The number of entries and the hash of the last, which show a change of any entry."""

    entries: int
    hash: str

    def to_bytes(self) -> bytes:
        """The head as JSON, padded to 128 bytes."""
        return f"{json.dumps(self._asdict()).ljust(_BYTES - 1)}\n".encode("ascii")


def head_path(ledger: Path) -> Path:
    """The head's file: beside the ledger, with .head behind its name."""
    return ledger.with_name(f"{ledger.name}.head")


def read_head(ledger: Path) -> Head:
    """What the head of this ledger says; `PrivacyError` if there is none, or something that is no head.

    Without a head a cut tail could not be noticed, so a missing one is refused and never made anew.
    """
    place = head_path(ledger)
    try:
        data: Any = json.loads(place.read_bytes())
        head = Head(data["entries"], data["hash"])
        # `type`, not `isinstance`: true would be 1 entry.
        if type(head.entries) is not int or type(head.hash) is not str or head.entries < 0:
            raise TypeError(head)
    except FileNotFoundError:
        raise PrivacyError(
            f"Expected the head of the ledger, got no file {str(place)!r}. Without it nobody can tell whether entries "
            "were cut off: restore it."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise PrivacyError(f"Expected a head of a ledger, got {str(place)!r}, which is none: {error!r}.") from error
    return head


def write_head(ledger: Path, head: Head) -> None:
    """Put a new file in the place of the head, or of none. It is on the disk when this returns."""
    try:
        write_whole(head_path(ledger), head.to_bytes())
    except OSError as error:
        if is_full(error):
            raise PrivacyError(no_room(ledger)) from error
        raise


@final
class OpenHead:
    """A head that is overwritten again and again. What is written outlives the process; synced, also a power cut."""

    def __init__(self, ledger: Path) -> None:
        place = head_path(ledger)
        try:
            self._file = os.open(place, os.O_RDWR | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise PrivacyError(f"Expected a head that can be written, got {str(place)!r}: {error}.") from error
        self._synced = True

    def overwrite(self, head: Head) -> None:
        """Write it in place. It outlives this process from now on, and a power cut only after the next `sync`."""
        os.lseek(self._file, 0, os.SEEK_SET)
        if os.write(self._file, head.to_bytes()) != _BYTES:
            raise OSError("the head was written in part only")

    def sync(self) -> None:
        """Make the last head outlive a power cut. It is on the disk when this returns."""
        # Where there is a choice, only the content has to last: no length has changed.
        getattr(os, "fdatasync", os.fsync)(self._file)
        self._synced = True

    def sync_every_other(self) -> None:
        """Sync, unless this is the first head that is not on the disk yet.

        So a power cut leaves the head at most two entries behind, which `Chain` allows for.
        """
        if self._synced:
            self._synced = False
        else:
            self.sync()

    def close(self) -> None:
        """Sync, then close the file."""
        if self._file >= 0:
            with suppress(OSError):  # a head that lags behind is repaired when the ledger is opened
                self.sync()
            os.close(self._file)
            self._file = -1
