"""The share of a network's nodes that one of several processes holds, in whole blocks.

A sum of floating-point numbers depends on the order in which they are added. So that it does not depend on how many
processes a network is spread over, nodes are cut into blocks by their number alone, sums are made block by block, and
blocks are added up in order, in one process as in many. A process holds whole blocks.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from sottovoce.arrays import Ints
from sottovoce.errors import expect

# The most blocks of a network, and so the most processes that can share it. Sums for each block take memory.
MOST_BLOCKS = 128


def block_size(n: int) -> int:
    """Number of nodes in a block of a network of n nodes; the last block may have fewer."""
    return -(-n // MOST_BLOCKS)


def block_starts(nodes: int, n: int) -> Ints:
    """The first node of each block of `nodes` nodes, and `nodes` at the end: (blocks + 1,). The first of these nodes
    must begin a block of the network of n.
    """
    return np.minimum(np.arange(0, nodes + block_size(n), block_size(n)), nodes)


@final
@dataclass(frozen=True, eq=False)
class Share:
    """The nodes first .. last - 1 of a network, with the public row counts of all nodes.

    Args:
        counts: m_i of every node of the network, (n,).
        first, last: the nodes that are held here.
    """

    counts: Ints
    first: int
    last: int

    @classmethod
    def of(cls, counts: Ints, rank: int, ranks: int) -> "Share":
        """The share of process `rank` of `ranks`: whole blocks, about equally many for each process."""
        bounds = share_bounds(len(counts), ranks)
        return cls(counts, int(bounds[rank]), int(bounds[rank + 1]))

    @property
    def n(self) -> int:
        """Number of nodes of the whole network."""
        return len(self.counts)

    @property
    def nodes(self) -> int:
        """Number of nodes that this process holds."""
        return self.last - self.first


def share_bounds(n: int, ranks: int) -> Ints:
    """The first node of every process, and n at the end: (ranks + 1,)."""
    blocks = len(block_starts(n, n)) - 1
    expect(1 <= ranks <= blocks, f"1 to {blocks} processes for a network of {n} nodes", ranks=ranks)
    return np.minimum(np.arange(ranks + 1) * blocks // ranks * block_size(n), n)
