"""Drawings on matplotlib's axes, for the `plot` methods of objects and for the figures of pages. They take plain
numbers, and nothing here imports matplotlib before something is drawn.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sottovoce.errors import UnsupportedError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@contextmanager
def drawn_on(ax: "Axes | None", width: float, height: float) -> Iterator["Axes"]:
    """Axes to draw on within the block: those that were given, in the caller's style, or those of a new figure of this
    size in inches, in ours. Without matplotlib it is refused.
    """
    if ax is not None:
        yield ax
        return
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise UnsupportedError(
            "Expected matplotlib for a figure, got none installed. Install it: pip install 'sottovoce[plots]'."
        ) from error
    from sottovoce.drawing.style import style

    with style():
        yield plt.subplots(figsize=(width, height))[1]
