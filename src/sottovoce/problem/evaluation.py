"""Mean loss (no regulariser) and accuracy of models over all rows, weighted, computed without noise.

This is for simulations on data that the analyst may see. No site releases a result of it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from sottovoce.arrays import Array, Floats
from sottovoce.problem.factors import ALIKE, Factors
from sottovoce.problem.losses import Loss

# Rows times models per block: small enough to stay in cache, large enough for the loop's cost to be negligible.
IN_CACHE = 1 << 20


class Scores(NamedTuple):
    """Mean loss and accuracy of every model; the accuracy is nan for regression."""

    risk: Floats  # (models,)
    accuracy: Floats  # (models,)


def evaluate(
    block: Callable[[int, int], Any], labels: Array, loss: Loss, models: Array, factors: Factors = ALIKE,
    block_size: int = IN_CACHE,
) -> Scores:  # fmt: skip
    """Weighted mean loss and accuracy of models, given as columns, over all rows; arguments as for `summed`."""
    whole = len(labels) if factors.weights is None else float(factors.weights.sum())
    return Scores(*(sums / whole for sums in summed(block, labels, loss, models, factors, block_size)))


def summed(
    block: Callable[[int, int], Any], labels: Array, loss: Loss, models: Array, factors: Factors = ALIKE,
    block_size: int = IN_CACHE,
) -> tuple[Any, Any]:  # fmt: skip
    """Weighted sums over all rows, for every model: of the losses, and of the correct predictions.

    Args:
        block: rows first..last-1 as a matrix, as in `Rows.block`.
        labels: of all rows.
        loss: whose value is summed.
        models: (d * outputs, models), on the device that `block` and `labels` are on.
        factors: weights and exposures of all rows.
        block_size: rows times models to work on at a time.
    """
    count, outputs = len(labels), loss.outputs
    step = max(1, block_size // max(1, outputs * models.shape[1]))
    # A (d, outputs) matrix is `outputs` columns beside each other.
    columns = models.reshape(models.shape[0] // outputs, -1)
    risk: Any = 0.0
    hits: Any = 0.0
    for first in range(0, count, step):
        z = block(first, first + step) @ columns
        if outputs > 1:
            z = z.reshape(len(z), outputs, -1).swapaxes(1, 2)
        b, own = labels[first : first + step, None], factors[first : first + step]
        z = own.shifted(z)
        risk = risk + own.weighed(loss.value(z, b, loss.theta)).sum(axis=0, dtype=float)
        hits = hits + own.weighed(loss.labels.hits(z, b)).sum(axis=0, dtype=float)
    return risk, hits
