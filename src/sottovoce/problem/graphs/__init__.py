"""Networks: connected, undirected graphs on the nodes 0 .. n-1.

Algorithms use a graph's degrees and the sums of messages in an `Inbox`. A graph is public: it does not depend on rows,
and a message that passes an edge is already noisy.
"""

from collections.abc import Callable
from inspect import signature

from sottovoce.problem.graphs.base import (
    CompleteGraph,
    EdgeGraph,
    Exchanged,
    Graph,
    Inbox,
    PatternGraph,
    SparseGraph,
)
from sottovoce.problem.graphs.families import (
    complete,
    erdos_renyi,
    from_edges,
    from_networkx,
    grid,
    path,
    random_cycles,
    random_regular,
    ring,
    small_world,
    square_grid,
    star,
)
from sottovoce.settings import check_choice, check_keys

_BY_NAME: dict[str, Callable[..., Graph]] = {
    "complete": complete,
    "ring": ring,
    "path": path,
    "star": star,
    "grid": square_grid,
    "erdos-renyi": erdos_renyi,
    "random-regular": random_regular,
    "random-cycles": random_cycles,
    "small-world": small_world,
}
NAMES: tuple[str, ...] = tuple(_BY_NAME)


def by_name(name: str, n: int, seed: int = 0, **options: float) -> Graph:
    """The graph of that name on n nodes, as in `by_name("random-regular", 100, 1, degree=6)`.

    Only random graphs use the seed.
    """
    check_choice("graph", name, NAMES)
    build = _BY_NAME[name]
    known = [key for key in signature(build).parameters if key != "n"]
    check_keys(options, [key for key in known if key != "seed"], (), f"options of the graph {name}")
    return build(n, **options, **({"seed": seed} if "seed" in known else {}))


__all__ = [
    "NAMES",
    "CompleteGraph",
    "EdgeGraph",
    "Exchanged",
    "Graph",
    "Inbox",
    "PatternGraph",
    "SparseGraph",
    "by_name",
    "complete",
    "erdos_renyi",
    "from_edges",
    "from_networkx",
    "grid",
    "path",
    "random_cycles",
    "random_regular",
    "ring",
    "small_world",
    "square_grid",
    "star",
]
