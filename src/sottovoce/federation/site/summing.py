"""One site's part in masked sums: from the public state and its own rows to masked words, and from everyone's words to
the next state. It sends nothing and remembers nothing.

Every site's state is a function of the sums alone, so all of them hold the same, bit by bit, under the same software.
The point at which a gradient is taken is not proposed by anyone: each site computes it, and its bits are in the
context. Where they differ, no mask cancels, and the sum that comes out stops the run.
"""

from collections.abc import Mapping
from typing import final

from sottovoce.algorithms.masked import MaskedNewton, State
from sottovoce.arrays import Array
from sottovoce.errors import UnsupportedError
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.masks import (
    Context,
    Masks,
    Past,
    Turn,
    bits,
    from_steps,
    largest_honest,
    masked_terms,
    open_sum,
)
from sottovoce.noise.sampler import Words
from sottovoce.noise.secure import Grid, grid_for
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.graphs import Inbox


@final
class Summing:
    """The sums of one run, as one site makes and reads them.

    Args:
        agreement: of masked sums.
        oracle: of this site's rows; to read alone, of none (`Agreement.public_oracle`).
    """

    def __init__(self, agreement: Agreement, oracle: Oracle) -> None:
        self.agreement, self.oracle = agreement, oracle
        self.algorithm = masked_terms(agreement)

    def context(self, turn: Turn, state: State, members: tuple[str, ...], notices: bytes, transcript: bytes) -> Context:
        """What the sites of U must agree on for this sum. It follows from what all have heard, and from no row.

        Args:
            turn: which sum.
            state: after all sums before it.
            members: U, in the order of the agreement.
            notices: a digest of the notices by which the others were dropped.
            transcript: a digest of all that was said before.
        """
        a, q = self._among(members), turn.release
        return Context(
            agreement=self.agreement.digest(), turn=turn, members=members, notices=notices, transcript=transcript,
            point=bits(a.query(q, state)), grid=self._grid(q, state, members).step,
            numbers=a.numbers(q, self.agreement.features),
        )  # fmt: skip

    def words(self, context: Context, state: State, masks: Masks, past: Past) -> Words:
        """What this site says in that context, if it may; see `Masks.words`."""
        q = context.turn.release
        exact = self._among(context.members).exact(q, state, self.oracle)[0, :, 0]
        return masks.words(context, exact, self._grid(q, state, context.members).scale, past)

    def absorbed(self, context: Context, state: State, said: Mapping[str, Words]) -> State:
        """The state after the sum of what everyone said: the same at all sites. `SpoiledError` for a sum that honest
        sites cannot have made.
        """
        a, q = self._among(context.members), context.turn.release
        grid = self._grid(q, state, context.members)
        rows = sum(self.agreement.member(name).rows for name in context.members)
        most = largest_honest(grid, rows * a.largest_part(q, self.oracle), len(context.members))
        total = from_steps(open_sum(context, said, most), context.grid)
        return a.absorb(q, state, self.oracle, _Everyone(total.reshape(1, -1, 1)))

    def _among(self, members: tuple[str, ...]) -> MaskedNewton:
        """The algorithm for the rows of those who take part. Its noise stays what was agreed."""
        return self.algorithm.counting([self.agreement.member(name).rows for name in members])

    def _grid(self, q: int, state: State, members: tuple[str, ...]) -> Grid:
        """The grid of release q, from public numbers."""
        a, n = self._among(members), len(self.agreement.sites)
        sensitivity = float(a.sensitivity(q, state, self.oracle).item())
        sites, numbers = min(self.agreement.unit.sites, n), a.numbers(q, self.agreement.features)
        return grid_for(a.multipliers(n)[q - 1], sensitivity, a.honest(n), numbers, sites)


class _Everyone(Inbox):
    """The sum of what all have said, and nothing else: single messages are masked."""

    def __init__(self, total: Array) -> None:
        self._total = total

    def neighbours(self) -> Array:
        raise UnsupportedError("Expected an algorithm that reads the sum over all sites, got one that asks for less.")

    def everyone(self) -> Array:
        return self._total
