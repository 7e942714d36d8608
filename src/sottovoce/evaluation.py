"""How good models are on all rows: the mean loss (no regulariser) and the accuracy.

This reads every row without noise. It is for simulations on data that the analyst may see; no result of it is part of
what a site releases.
"""

from typing import NamedTuple

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.losses import Loss
from sottovoce.rows import Rows

# Rows times models per block: small enough to stay in cache, large enough to make the loop's cost vanish.
_BLOCK = 1 << 20


class Scores(NamedTuple):
    """Of every model: its mean loss and its share of right answers (nan for regression)."""

    risk: Floats  # (models,)
    accuracy: Floats  # (models,)


def evaluate(rows: Rows, labels: Floats, loss: Loss, models: Array) -> Scores:
    """Score models, given as columns (d, models), on all rows."""
    count = len(labels)
    risk, accuracy = np.zeros(models.shape[1]), np.zeros(models.shape[1])
    step = max(1, _BLOCK // max(1, models.shape[1]))
    for first in range(0, count, step):
        z = rows.block(first, first + step) @ models
        b = labels[first : first + step, None]
        risk += loss.value(z, b, loss.theta).sum(axis=0)
        accuracy += loss.labels.hits(z, b).sum(axis=0)
    return Scores(risk / count, accuracy / count)
