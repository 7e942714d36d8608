"""The files of one site: its rows, the ledger of these rows, and a folder for what it must remember.

    STATE/rows.ledger, .head, .salt   the ledger of the data set, for all its runs
    STATE/rows.ledger.key             the public key of the site that it belongs to: who may raise its cap
    STATE/rows.ledger.heard           what others have seen of it and it lacks, if so: sottovoce ledger catch-up
    STATE/heads.sqlite                what others have said of their own ledgers, for them, in all runs
    STATE/RUN/journal.sqlite          the memory of one run
    STATE/RUN/model.safetensors       what the run ends with
    STATE/RUN/statement.txt

A ledger belongs to one data set, which it knows by a keyed digest of the data file: HMAC-SHA256 with a salt that lies
beside the ledger. Without a secret salt, whoever sees a ledger and knows all rows but one could try out the last one.

The salt is written last, as a whole. So a salt without a ledger tells of one that was lost, and a ledger without a salt
and without entries is one that was never finished.
"""

import hashlib
import hmac
import math
import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy

from sottovoce.arrays import Floats
from sottovoce.errors import InputError, expect
from sottovoce.federation.agreement.agreement import MOST_FEATURES, MOST_ROWS, Agreement
from sottovoce.federation.agreement.exchange import Seed
from sottovoce.federation.agreement.key_files import read_secret
from sottovoce.federation.site.commitment import Source
from sottovoce.federation.site.heads import Heads
from sottovoce.federation.site.journal import Journal
from sottovoce.federation.site.seat import committing, damage_from_ledger, owner_of
from sottovoce.federation.site.stops import DamagedError
from sottovoce.files.schema.form import spelt
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.sites import Sites
from sottovoce.settings.disk import sync_folder, write_whole

_SALT_BYTES = 32
_ARRAYS = "an .npz file with a matrix `features` and a vector `labels`"


@final
@dataclass(frozen=True)
class Cap:
    """The most that all runs on a data set together may ever cost. None where it was not given."""

    epsilon: float | None
    delta: float | None
    mixed: bool = False  # runs of any kind, not only with plain Gaussian noise

    def __post_init__(self) -> None:
        both = (self.epsilon is None) == (self.delta is None)
        expect(both, "--cap-epsilon and --cap-delta together", cap_epsilon=self.epsilon, cap_delta=self.delta)
        alone = self.mixed and self.epsilon is None
        expect(not alone, "--cap-mixed together with --cap-epsilon and --cap-delta", cap_mixed=self.mixed)


def rows_of(agreement: Agreement, path: Path, delimiter: str | None = None, site: str | None = None) -> Sites:
    """The rows of a site's file, as what was agreed on computes with them. How it writes its file is its own affair."""
    if agreement.encoding is None:
        most = max(site.rows for site in agreement.sites)
        return array_rows(path, agreement.data_norm, most, agreement.features)
    data = agreement.algorithm.rows_in(path, agreement.encoding.separated(delimiter), site)
    people = None if data.people is None else [data.people.tolist()]
    return Sites([data.features], [data.labels], data_norm=data.data_norm, private=True, unit=agreement.unit,
                 people=people, factors=[data.factors])  # fmt: skip


def array_rows(path: Path, data_norm: float, most: int = MOST_ROWS, features: int | None = None) -> Sites:
    """The rows of an .npz file with arrays `features` and `labels`.

    Args:
        path: the file.
        data_norm: the bound on the norm of every row.
        most: the most rows that there can be.
        features: the number of columns; None for any.
    """
    arrays = _arrays(path, most, features)
    return Sites([arrays[0]], [arrays[1]], data_norm=data_norm, private=True)


def source_of(path: Path, delimiter: str | None) -> Source:
    """What a site commits to of its data file."""
    return Source(file_digest(path), None if delimiter is None else spelt(delimiter))


def _arrays(path: Path, most: int, features: int | None) -> tuple[Floats, Floats]:
    """The two arrays of an .npz file. Nothing is unpacked before its size was found to be possible."""
    with path.open("rb") as file:
        try:
            with ZipFile(file) as archive, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of headers by old versions
                names = [name.removesuffix(".npy") for name in archive.namelist()]
                expect(sorted(names) == ["features", "labels"], _ARRAYS, file=str(path), arrays=sorted(names)[:20])
                matrix = _array(archive, "features", most, (features,))
                return matrix, _array(archive, "labels", len(matrix), ())
        except InputError:
            raise
        except Exception as error:  # zipfile, zlib, struct and numpy know a dozen kinds
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise InputError(f"Expected an .npz file of arrays, got {str(path)!r}: {reason}.") from error


def _array(archive: ZipFile, name: str, most: int, width: tuple[int | None, ...]) -> Floats:
    """One array of numbers: at most so many rows, each of this shape; None for any number of columns."""
    with archive.open(f"{name}.npy") as member:
        version = npy.read_magic(member)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, by_columns, dtype = read(member)
        columns = all(
            came == w or (w is None and came <= MOST_FEATURES) for came, w in zip(shape[1:], width, strict=False)
        )
        fits = len(shape) == 1 + len(width) and 0 <= shape[0] <= most and columns
        size_wanted = (f"at most {most}", *("some" if w is None else w for w in width))
        wanted = f"`{name}` as an array of numbers with {' x '.join(map(str, size_wanted))} entries"
        expect(fits and dtype.kind in "biuf", wanted, shape=shape, dtype=str(dtype))
        size = math.prod(shape) * dtype.itemsize
        # One byte more than announced is read, and refused if it is there.
        data = member.read(size + 1)
    expect(len(data) == size, f"`{name}` of {size} bytes, as its header says", bytes=len(data))
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C")
    return np.ascontiguousarray(array, dtype=np.float64)


@contextmanager
def refusing_changes(data: Path) -> Iterator[None]:
    """Refuse a file that changes while the block runs: its rows must be those that its ledger is of."""
    if data.exists():  # a pipe would be waited for, a device read without end
        expect(data.is_file(), "a data file", file=str(data))
    before = _digest(data, hashlib.sha256())
    yield
    if _digest(data, hashlib.sha256()) != before:
        raise InputError(f"Expected a data file that stays as it is, got {str(data)!r}, which changed meanwhile.")


def run_folder(state: Path, agreement: Agreement) -> Path:
    """Folder of one run, made if it is not there. Only its owner may read it."""
    folder = state / agreement.run
    for path in (state, folder):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def open_heads(state: Path) -> Heads:
    """Heads of other sites' ledgers, kept to be handed back to them; one file for all runs of this site."""
    return Heads(state / "heads.sqlite")


def open_journal(
    folder: Path, agreement: Agreement, site: str, rows: Sites, salt: Path | None = None, seed: Path | None = None,
    source: Source | None = None,
) -> Journal:  # fmt: skip
    """The journal of the run; a new one if there is none. It is bound to the rows, with a given salt or a new one.

    The seed of masked sums moves into it: once it is on the disk there, its file is deleted. At the end of the run no
    copy is left.
    """
    path, commit = folder / "journal.sqlite", committing(agreement, site, rows, source)
    secret = None if salt is None else read_secret(salt)
    given, masked = _seed_of(agreement, site, seed), agreement.member(site).mask_key is not None
    journal = Journal.open(path, owner_of(agreement, site), commit, secret, given, agreed_seed=masked)
    if seed is not None:
        seed.unlink(missing_ok=True)
        sync_folder(seed.parent)
    return journal


def _seed_of(agreement: Agreement, site: str, seed: Path | None) -> Seed | None:
    """The seed in a file, checked before a journal is made with it. A file that is gone was taken in before: the same
    command goes on.
    """
    key = agreement.member(site).mask_key
    expect(seed is None or key is not None, "no --seed where sums are not masked", seed=str(seed))
    if seed is None or key is None or not seed.exists():
        return None
    found = Seed.load(seed)
    if not found.is_of(key):
        raise InputError(
            f"Expected the seed of site {site} for this agreement, got another in {str(seed)!r}. Give the file that "
            "its mask key was made with: sottovoce site seed."
        )
    return found


def open_ledger(path: Path, data: Path, cap: Cap, unit: Unit = ROW) -> Ledger:
    """The ledger of this data file. It is made on first use, if a cap is given; the cap then is for that unit.

    A ledger without entries is made anew if a cap is given: a crash or a refused run has left it.
    """
    with damage_from_ledger():
        if not Ledger.exists(path) or (cap.epsilon is not None and Ledger.unused(path)):
            return _new_ledger(path, data, cap, unit)
        ledger = Ledger.open(path)
    try:
        _check_ledger(ledger, path, data, cap)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _new_ledger(path: Path, data: Path, cap: Cap, unit: Unit) -> Ledger:
    """Make the ledger of rows that were never used, with its cap; the salt is written last."""
    _expect_none_lost(path)
    if cap.epsilon is None or cap.delta is None:
        raise InputError(
            f"Expected a ledger of these rows at {str(path)!r}, got none. If they were ever used before, give that "
            "ledger with --ledger. If not, say what all runs on them together may cost for all time: --cap-epsilon "
            "and --cap-delta."
        )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Kept, if a crash or a refused run has left it: the data file is known by it.
    known = _salt_path(path).exists()
    salt = read_salt(path) if known else secrets.token_bytes(_SALT_BYTES)
    ledger = Ledger.create(path, _keyed_digest(salt, data), cap.epsilon, cap.delta, mixed=cap.mixed, unit=unit)
    try:
        if not known:
            write_whole(_salt_path(path), salt, 0o600)
    except BaseException:
        ledger.close()
        raise
    return ledger


def _expect_none_lost(path: Path) -> None:
    """Refuse to replace a ledger that is gone by a new one: what was spent stays spent."""
    salt = _salt_path(path)
    if salt.exists() and not Ledger.exists(path):
        raise DamagedError(
            f"Expected the ledger that {str(salt)!r} belongs to, got none at {str(path)!r}. What was spent stays "
            "spent: restore it, with its .head file. Only if nothing was ever released from these rows, remove the "
            "salt."
        )


def _check_ledger(ledger: Ledger, path: Path, data: Path, cap: Cap) -> None:
    """Refuse a ledger of another data file, or one that was made with another cap than is given now."""
    header = ledger.header
    if header.data_digest != data_digest(path, data):
        raise InputError(
            f"Expected the ledger of the rows in {str(data)!r}, got that of another file at {str(path)!r}. Every data "
            "set has a ledger of its own: give its path with --ledger. A changed file with the same people in it "
            "spends the same budget: keep the old file for this run."
        )
    if cap.epsilon is not None:
        mixed = header.order is not None
        # Giving the same again is fine, also after it was raised; another one must not pass unnoticed.
        known = [Cap(epsilon, header.delta, mixed) for epsilon in (header.epsilon, ledger.cap)]
        raised = f", or epsilon={ledger.cap:g}, to which it was raised" if ledger.raises() else ""
        expect(
            cap in known,
            f"the cap that the ledger was made with, epsilon={header.epsilon:g}, delta={header.delta:g}, mixed={mixed}"
            f"{raised} (sottovoce ledger raise-cap)",
            cap_epsilon=cap.epsilon,
            cap_delta=cap.delta,
            cap_mixed=cap.mixed,
        )


def data_digest(ledger: Path, data: Path) -> str:
    """Keyed digest of a data file, by which its ledger knows it."""
    return _keyed_digest(read_salt(ledger), data)


def read_salt(ledger: Path) -> bytes:
    """The secret that goes with a ledger."""
    place = _salt_path(ledger)
    if not place.exists():
        raise DamagedError(
            f"Expected the salt of the ledger, got no file {str(place)!r}. Without it nobody can tell which rows the "
            "ledger is of: restore it."
        )
    salt = read_secret(place)
    if len(salt) != _SALT_BYTES:
        raise DamagedError(
            f"Expected a salt of {_SALT_BYTES} bytes, got {len(salt)} bytes in {str(place)!r}. It was damaged: "
            "restore it."
        )
    return salt


def file_digest(path: Path) -> bytes:
    """The SHA-256 of a data file. It is secret: whoever knows all rows but one could try out the last."""
    return bytes.fromhex(_digest(path, hashlib.sha256()))


def _keyed_digest(salt: bytes, data: Path) -> str:
    """The digest of a data file under a secret salt."""
    return f"hmac-sha256:{_digest(data, hmac.new(salt, digestmod=hashlib.sha256))}"


def _digest(path: Path, code: "hmac.HMAC | hashlib._Hash") -> str:
    """The hexadecimal digest of a file's bytes, read a piece at a time."""
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            code.update(chunk)
    return code.hexdigest()


def _salt_path(ledger: Path) -> Path:
    """The salt's file: beside the ledger, with .salt behind its name."""
    return ledger.with_name(f"{ledger.name}.salt")
