"""The folder that a run leaves. What was paid for is written first, all of it or nothing; scores are added afterwards.

model.safetensors  the consensus of the first run: what to hand on, with schema and guarantee (see `files.models`)
models.npz       average, last (runs, nodes, d) and consensus (runs, d)
privacy.json     the guarantee as data
privacy.txt      the guarantee in words
config.toml      the settings, defaults written out; `sottovoce train --config` runs it again
                 (from the same folder, if the files were named without theirs)

These are computed without noise: if the rows are private, only their holder may see them. They say so themselves,
under "holder_only": in JSON as a key, in Parquet as metadata.

summary.json     what `--json` prints
history.parquet  one line per recorded round and run
sites.parquet    how well the models do on each site's rows; not there if the run was interrupted before

From noisy sums over rows, if the run was on masked sums of no more than 511 features:

moments.npz      the second moments that it opened, from which `show --tables` makes tables of two columns

And if the run was asked for it (`--evaluate`) or it was written there afterwards
(`sottovoce evaluate --private --out`):

evaluation.json  how good the model is, with intervals and the guarantee of the run, or one of its own
"""

import json
import shutil
import textwrap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from sottovoce.errors import InputError
from sottovoce.files import models
from sottovoce.files.models import Model
from sottovoce.files.models.apply import weights_digest
from sottovoce.settings.disk import beside, write_whole
from sottovoce.studies.run import Trained
from sottovoce.tables.pairs import ReleasedMoments
from sottovoce.tally import PrivateEvaluation
from sottovoce.tally.evaluation import FILE

HOLDER_ONLY = "holder_only"  # the key under which a file says that it is not to be handed on


def check_free(out: Path) -> None:
    """Refuse, before any work is done, a folder that could not be written at the end."""
    out = out.resolve()
    try:
        if out.exists() and not out.is_dir():
            raise InputError(f"Expected a new folder, got out={str(out)!r}, which is a file. Choose another.")
        if out.exists() and any(out.iterdir()):
            raise InputError(
                f"Expected a new or empty folder, got out={str(out)!r}, which is not empty. Choose another."
            )
        # Whether files may be written here is found out by making a folder, which is removed.
        nearest = next(parent for parent in out.parents if parent.exists())
        probe = beside(nearest / out.name)
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise _unwritable(out, error) from error


def write(trained: Trained, out: Path) -> None:
    """Write what was paid for: into a sibling first, which is renamed when it is complete. Reads no row."""
    out, result = out.resolve(), trained.result
    made = [parent for parent in out.parents if not parent.exists()]
    sibling = beside(out)
    try:
        sibling.mkdir(parents=True)
        model = trained.model()
        models.save(model, sibling / "model.safetensors")
        np.savez_compressed(
            sibling / "models.npz", average=result.average, last=result.last, consensus=result.consensus
        )
        texts = {
            "config.toml": trained.config.to_toml(),
            "summary.json": _summary(trained),
            "privacy.json": result.privacy.to_json(),
            "privacy.txt": textwrap.fill(result.privacy.prose(), width=100),
        }
        for name, text in texts.items():
            (sibling / name).write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
        _write_table(sibling / "history.parquet", dict(result.history), trained)
        if trained.evaluation is not None:
            trained.evaluation.save(sibling / FILE)
        if trained.result.moments is not None:
            ReleasedMoments.of(trained.result.moments, weights_digest(model)).save(sibling)
        if out.exists():
            out.rmdir()  # empty, as was checked; not every system renames over a folder
        sibling.rename(out)
    except BaseException as error:
        shutil.rmtree(sibling, ignore_errors=True)
        with suppress(OSError):  # raised by the first that is no longer empty
            for parent in made:  # innermost first
                parent.rmdir()
        raise _unwritable(out, error) if isinstance(error, OSError) else error from error


def add_scores(trained: Trained, out: Path) -> None:
    """Add the scores, which are computed without noise, to a written folder. Each file is whole or not there."""
    out = out.resolve()
    try:
        sites = out / "sites.parquet"
        unfinished = beside(sites)
        try:
            _write_table(unfinished, trained.by_site(), trained)
            unfinished.replace(sites)
        finally:
            unfinished.unlink(missing_ok=True)
        write_whole(out / "summary.json", f"{_summary(trained)}\n".encode())
    except OSError as error:
        raise _unwritable(out, error) from error


def _summary(trained: Trained) -> str:
    return json.dumps(trained.summary(), indent=2, allow_nan=False)


def _write_table(path: Path, columns: dict[str, Any], trained: Trained) -> None:
    mark = {} if trained.holder_only is None else {HOLDER_ONLY: trained.holder_only}
    parquet.write_table(pa.table(columns).replace_schema_metadata(mark), path)


def _unwritable(out: Path, error: OSError) -> InputError:
    return InputError(f"Expected a folder that can be written, got out={str(out)!r}: {error.strerror}.")


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A folder that a run has left, read back."""

    config: str
    summary: dict[str, Any]
    history: dict[str, list[Any]]
    sites: dict[str, list[Any]] | None  # None if it was interrupted before they were scored
    model: Model
    evaluation: PrivateEvaluation | None = None  # None if there is none


def read(folder: Path) -> RunFolder:
    """Read a run folder; anything that is missing or damaged is named."""
    name = "."
    try:
        name = "config.toml"
        config = (folder / name).read_text(encoding="utf-8")
        name = "summary.json"
        summary = json.loads((folder / name).read_text(encoding="utf-8"))
        name = "history.parquet"
        history = parquet.read_table(folder / name).to_pydict()
        name = "sites.parquet"
        never = summary.get("unfinished") is not None and not (folder / name).exists()
        sites = None if never else parquet.read_table(folder / name).to_pydict()
    except (OSError, ValueError, pa.ArrowException) as error:
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"Expected a folder of sottovoce train --out, got {str(folder)!r}: {name}: {why}.") from error
    model = models.load(folder / "model.safetensors")
    return RunFolder(config, summary, history, sites, model, _evaluation(folder / FILE, model))


def _evaluation(place: Path, model: Model) -> PrivateEvaluation | None:
    """The private evaluation beside a model; one of another model is refused."""
    if not place.exists():
        return None
    found = PrivateEvaluation.load(place)
    if found.model != weights_digest(model):
        raise InputError(
            f"Expected an evaluation of the model beside it, got {str(place)!r}, of another. Move it away, or evaluate "
            "this one: sottovoce evaluate --private."
        )
    return found
