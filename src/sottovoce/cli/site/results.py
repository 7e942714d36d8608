"""The files that a run of a site ends with, and their words: a model or a table, with its signed statement."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast, final

from sottovoce.errors import InputError, SottovoceError

if TYPE_CHECKING:
    from sottovoce.document import Part
    from sottovoce.federation.site.part import Counted, Finished, Learnt
    from sottovoce.federation.site.seat import Seat
    from sottovoce.files.models.from_site import Stop

STATEMENT = "statement.txt"


class Results(ABC):
    """What a run ends with, in a folder. If it cannot be written nothing is lost: the journal holds all.

    Args:
        folder: that the files go to.
        seat: the site.
    """

    what: ClassVar[str]
    file: ClassVar[str]  # one that is there if the result is

    def __init__(self, folder: Path, seat: "Seat") -> None:
        self.folder, self.seat, self.agreement, self.site = folder, seat, seat.agreement, seat.site

    def write(self, finished: "Finished", stop: "Stop | None" = None) -> "Sequence[Part | str]":
        """Write the result of a run, and return what to print of it.

        Args:
            finished: the result.
            stop: where the run has stopped, and why; None at its end.
        """
        from sottovoce.federation.site.stops import NotWrittenError

        try:
            # A result is private as it is; the folder beside it may hold a journal.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self._write(finished, stop)
        except (OSError, InputError) as error:
            raise NotWrittenError(
                f"Expected to write {self.what} and statement to {str(self.folder)!r}, got: {error} Nothing is lost, "
                "and nothing will be drawn again: make room, or give another --out, and run the same command again."
            ) from error

    @abstractmethod
    def _write(self, finished: "Finished", stop: "Stop | None") -> "Sequence[Part | str]":
        """The same, in a folder that is there."""

    def _state(self, finished: "Finished", stop: "Stop | None", kept: Sequence[Path] = ()) -> None:
        """Write the statement, signed, with digests of these files."""
        from sottovoce.federation.agreement.signed_text import sign_text
        from sottovoce.files.models.from_site import statement_text

        digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}
        text = statement_text(self.agreement, self.site, finished.absent, stop, digests)
        _whole(self.folder / STATEMENT, sign_text(text, self.site, self.seat.key).encode())

    def holds_more(self, done: int) -> bool:
        """True if the folder has a result of this site and run, of more than so many rounds: the journal was set back
        since.
        """
        from sottovoce.federation.agreement.signed_text import read_signed
        from sottovoce.files.models.from_site import stopped_after

        try:
            told = read_signed((self.folder / STATEMENT).read_text(encoding="utf-8"))
        except (SottovoceError, OSError, ValueError):
            return False
        same = told.site == self.site and f"Agreement:  {self.agreement.digest().hex()}" in told.text.splitlines()
        after = stopped_after(told.text)
        return same and (self.folder / self.file).is_file() and (after is None or after > done)


def results_in(folder: Path, seat: "Seat") -> Results:
    """The files of what was agreed on."""
    return {"model": ModelFiles, "table": TableFiles}[seat.agreement.algorithm.ends_in](folder, seat)


@final
class ModelFiles(Results):
    """A model, and its evaluation if one was agreed on."""

    what, file = "model", "model.safetensors"

    def _write(self, finished: "Finished", stop: "Stop | None") -> "Sequence[Part | str]":
        from sottovoce.federation.site.software import one_thread
        from sottovoce.files import models
        from sottovoce.files.models.apply import weights_digest
        from sottovoce.files.models.from_site import evaluation_of, model_of
        from sottovoce.sums.evaluating import about
        from sottovoce.tables.pairs import ReleasedMoments
        from sottovoce.tally.evaluation import FILE
        from sottovoce.tally.words import described

        found = cast("Learnt", finished)
        with one_thread():  # so that all sites write the same table of coefficients
            model = model_of(self.agreement, self.site, found.model, found.absent, stop, found.evidence)
        models.save(model, self.folder / "model.safetensors", self.seat.key)
        self._state(finished, stop)
        if found.moments is not None:
            ReleasedMoments.of(found.moments, weights_digest(model)).save(self.folder)
        if found.tallied is None:
            return [f"Written to {self.folder}: model.safetensors and {STATEMENT}."]
        evaluation = evaluation_of(self.agreement, model, found.tallied)
        _whole(self.folder / FILE, evaluation.to_bytes())
        return [
            *described(evaluation, with_model=about(evaluation.privacy.notes)),
            f"Written to {self.folder}: model.safetensors, {STATEMENT} and {FILE}.",
        ]


@final
class TableFiles(Results):
    """A table in all its forms; the statement holds the digest of each."""

    what, file = "table", "table.json"

    def _write(self, finished: "Finished", stop: "Stop | None") -> "Sequence[Part | str]":
        from sottovoce.cli.tables import FORMS, write_table
        from sottovoce.federation.site.software import one_thread
        from sottovoce.files.models.from_site import statement_of

        agreement, schema = self.agreement, self.agreement.encoding
        assert schema is not None  # an agreement on a table has one
        privacy, opened = statement_of(agreement, self.site), cast("Counted", finished).opened
        with one_thread():  # so that all sites find the same, bit by bit
            found = agreement.table.answer(schema, opened, privacy, agreement.unit, len(agreement.sites))
        kept = [self.folder / f"table{form}" for form in FORMS]
        for path in kept:
            write_table(path, found)
        self._state(finished, stop, kept)
        names = ", ".join(path.name for path in kept)
        return [*found.described()[:-1], f"Written to {self.folder}: {names} and {STATEMENT}."]


@contextmanager
def keeping_what_was_found(results: Results) -> Iterator[None]:
    """Whatever ends the run, write what was found until then: it is paid for. The error says where it is."""
    from sottovoce.cli.exit_codes import EXIT_CODES, INTERRUPTED, code_of
    from sottovoce.cli.output import Stopped
    from sottovoce.federation.site.runner import so_far
    from sottovoce.federation.site.stops import NotWrittenError
    from sottovoce.files.models.from_site import Stop

    try:
        yield
    except Exception as error:
        kept = None
        with suppress(SottovoceError, OSError):  # of a journal that cannot be read; what ended the run is told
            kept = so_far(results.seat)
        if kept is not None and results.holds_more(kept.rounds):
            error.add_note(f"{results.folder} keeps a {results.what} of this run, from more than is in the journal.")
        elif kept is not None:
            sums = f"{kept.rounds} {results.agreement.algorithm.way.exchanges}"
            why = f"an unexpected error, {type(error).__name__}"
            if isinstance(error, Stopped):
                why = EXIT_CODES[INTERRUPTED]
            elif isinstance(error, SottovoceError):
                why = EXIT_CODES[code_of(error)]
            try:
                results.write(kept, Stop(kept.rounds, why))
                error.add_note(f"The {results.what} of the first {sums}, with its statement, is in {results.folder}.")
            except NotWrittenError as unwritten:
                error.add_note(f"The {results.what} of the first {sums} is in the journal. {unwritten}")
        raise


def check_listed(file: Path, text: str) -> None:
    """Refuse a file of a table that is not, bit by bit, the one that a statement lists."""
    from sottovoce.files.models.from_site import digests_in

    listed, found = digests_in(text).get(file.name), hashlib.sha256(file.read_bytes()).hexdigest()
    if listed != found:
        raise InputError(
            f"Expected the file that {STATEMENT} beside it lists as {file.name}, sha256:{listed}, got sha256:{found}. "
            "It was changed since, or is another run's."
        )


def _whole(path: Path, content: bytes) -> None:
    from sottovoce.settings.disk import writable, write_whole

    with writable(path):
        write_whole(path, content)
