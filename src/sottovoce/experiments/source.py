"""Where the rows come from: a packaged data set, or a file with its schema."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce import losses
from sottovoce.datasets import BY_NAME, Dataset
from sottovoce.errors import InputError
from sottovoce.experiments.config import TrainConfig
from sottovoce.losses import Loss

if TYPE_CHECKING:
    from sottovoce.schema import Schema


@dataclass(frozen=True, eq=False)
class Source:
    """Rows to learn from, rows to be tested on, and what is known of them.

    A label that is a number is learnt as (label - offset) / scale, which lies in [-1, 1]: losses and steps then do not
    depend on its unit. Both numbers come from the schema.
    """

    learnt: Dataset
    test: Dataset | None
    schema: "Schema | None" = None
    owners: NDArray[np.str_] | None = None  # whose row it is, where the file says so
    classes: tuple[str, ...] | None = ("-1", "+1")
    scale: float = 1.0
    offset: float = 0.0
    notes: tuple[str, ...] = ()  # what the statement must say of how the rows were read

    def loss(self, name: str | None) -> Loss | None:
        """The loss of that name, or the one that fits the labels; None leaves it to the algorithm."""
        several = 0 if self.classes is None else len(self.classes)
        if name is None and self.classes is None:
            name = losses.Huber.name
        if several > 2:
            if name not in (None, losses.Softmax.name):
                raise InputError(
                    f"Expected loss='softmax' for {several} classes, got loss={name!r}. Leave it out: all classes are "
                    "learnt together, under one budget."
                )
            return losses.Softmax(several)
        if name == losses.Softmax.name:
            raise InputError(f"Expected loss='softmax' with three classes or more, got {several}. Use logistic.")
        return None if name is None else losses.by_name(name)


def source(config: TrainConfig) -> Source:
    """Read or fetch the rows that a configuration speaks of."""
    if config.data is not None:
        return _from_file(config, config.data)
    data = BY_NAME[config.dataset]()
    return Source(data, None) if config.split == "all" else Source(data.train, data.test)


def _from_file(config: TrainConfig, path: str) -> Source:
    from sottovoce.schema import NumberLabel, Schema, accept_unreviewed, files, require_reviewed, review

    assert config.schema is not None  # checked when the configuration was made
    schema = Schema.load(Path(config.schema))
    if config.unreviewed == "accept":
        accept_unreviewed(schema)
    else:
        require_reviewed(schema)
    owners = None
    if config.site_column is None:
        learnt = files.encode(path, schema)
    else:
        learnt, owners = files.encode_by_site(path, schema, config.site_column)
    test = None if config.test_data is None else files.encode(config.test_data, schema)
    found = Source(learnt, test, schema, owners, schema.classes, notes=review.note(schema))
    return _scaled(found, schema.label.bounds) if isinstance(schema.label, NumberLabel) else found


def _scaled(found: Source, bounds: tuple[float, float]) -> Source:
    offset, scale = (bounds[0] + bounds[1]) / 2, (bounds[1] - bounds[0]) / 2

    def to_unit(data: Dataset | None) -> Any:
        # Rounding may leave a label an ulp beyond 1; no bound of ours rests on it.
        return None if data is None else replace(data, labels=(data.labels - offset) / scale)

    return replace(found, learnt=to_unit(found.learnt), test=to_unit(found.test), scale=scale, offset=offset)
