"""One look for all figures. Ink and grid have colours of their own, which the web page swaps for its theme's."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl

# Figures of pages are so many inches wide: then their letters can be read on a telephone, and wider pages show two side
# by side.
COLUMN = 3.6
INK, GRID, PAPER = "#1b1f27", "#d9dde3", "#fefefe"
# Okabe and Ito's colours for lines that are not algorithms, in this order.
CYCLE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (5, 1.4, 1.2, 1.4)))
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">")

_RC: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.7,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "text.color": INK,
    "text.parse_math": False,  # names of columns and sites may hold dollar signs
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.0,
    "figure.facecolor": PAPER,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    # Letters become shapes: they then look the same wherever the figure is opened.
    "svg.fonttype": "path",
    "svg.hashsalt": "sottovoce",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in this look within the block; figures of the caller keep theirs. Only these settings are put back: a
    notebook turns interactive mode on when its first figure is made, which may be in here.
    """
    before = {name: mpl.rcParams[name] for name in _RC}
    mpl.rcParams.update(_RC)
    try:
        yield
    finally:
        mpl.rcParams.update(before)
