"""One site's part in masked sums: from the public state and its own rows to masked words, and from everyone's words to
the next state. It sends nothing and remembers nothing.

Every site's state is a function of the sums alone, so all of them hold the same up to rounding, which is not the same
on every processor. Masks cancel where contexts are equal bit by bit. So what follows from sums by floating point, the
public point, the grid and the scale of the noise, comes from one of the sites (`proposer`): the others check that it is
what they have computed, up to rounding, and take its bits (`Summing.adopted`).
"""

from collections.abc import Mapping
from typing import NamedTuple, NoReturn, final

import numpy as np

from sottovoce.algorithms.masked import MaskedNewton, State
from sottovoce.arrays import Array, Floats
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
from sottovoce.federation.transport.wire import BadMessageError, Refusal
from sottovoce.noise.sampler import Words
from sottovoce.noise.secure import Grid, grid_for
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.graphs import Inbox

# Of the length of a model, and of 1 / B: far above what processors differ by, far below what a model is good for.
ROUNDING = 1e-6
# Grid steps, of 2^30 and more: the proposer adds so many, so that its noise is enough at a site that rounds otherwise.
SLACK = 16
_NEARLY = 1e-9  # by how much sensitivities are rounded differently at most


@final
class Proposal(NamedTuple):
    """What all sites of a sum must hold bit by bit and follows from earlier sums by floating point."""

    shared: Floats  # (numbers,) see `MaskedNewton.shared`
    grid: Grid


def proposer(t: int, members: tuple[str, ...]) -> str:
    """Who proposes for the message with number t: the sites of U in turn."""
    return members[(t - 1) % len(members)]


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

    def proposal(self, q: int, state: State, members: tuple[str, ...]) -> Proposal:
        """What this site would have all others take for sum q. It follows from earlier sums, and from no row."""
        grid = self._grid(q, state, members)
        shared = np.asarray(self.algorithm.shared(q, state)[0, :, 0], dtype=np.float64)
        return Proposal(shared, grid._replace(scale=grid.scale + SLACK))

    def adopted(self, q: int, state: State, members: tuple[str, ...], proposal: Proposal) -> State:
        """The state with the proposal's bits in it; `BadMessageError` unless they are what was computed here, up to
        rounding. Public numbers decide alone.

        Formal guarantees: the noise that it asks for is at least what the point that it names needs here, and the grid
        is the one that this noise needs, up to rounding of the sensitivity.
        """
        own, came = self.algorithm.shared(q, state)[0, :, 0], proposal.shared
        most = ROUNDING * (float(np.linalg.norm(own)) + 1 / self.oracle.sites.data_norm)
        with np.errstate(over="ignore"):
            apart = float(np.linalg.norm(came - own)) if np.isfinite(came).all() else np.inf
        if not apart <= most:
            _refuse(f"a point within {most:.3g} of the one that was computed here, got one {apart:.3g} away")
        taken = self.algorithm.with_shared(q, state, came)
        # A sensitivity next to a power of two may be rounded to either side of it.
        steps = {self._grid(q, taken, members, nearly=nearly).step for nearly in (1 - _NEARLY, 1 + _NEARLY)}
        if proposal.grid.step not in steps:
            _refuse(f"a grid of step={max(steps):g}, got step={proposal.grid.step:g}")
        least = self._grid(q, taken, members, step=proposal.grid.step).scale
        if not least <= proposal.grid.scale <= least + 2 * SLACK:
            _refuse(f"noise of {least + SLACK} grid steps, up to {SLACK}, got scale={proposal.grid.scale}")
        return taken

    def context(
        self, turn: Turn, proposal: Proposal, members: tuple[str, ...], notices: bytes, transcript: bytes
    ) -> Context:
        """What the sites of U must agree on for this sum. It follows from what all have heard, and from no row.

        Args:
            turn: which sum.
            proposal: of its proposer.
            members: U, in the order of the agreement.
            notices: a digest of the notices by which the others were dropped.
            transcript: a digest of all that was said before.
        """
        return Context(
            agreement=self.agreement.digest(), turn=turn, members=members, notices=notices, transcript=transcript,
            point=bits(proposal.shared), grid=proposal.grid.step, scale=proposal.grid.scale,
            numbers=self.algorithm.numbers(turn.release, self.agreement.features),
        )  # fmt: skip

    def words(self, context: Context, state: State, masks: Masks, past: Past) -> Words:
        """What this site says in that context, if it may; see `Masks.words`. The state is as the proposal has it."""
        exact = self._among(context.members).exact(context.turn.release, state, self.oracle)[0, :, 0]
        return masks.words(context, exact, past)

    def absorbed(self, context: Context, state: State, said: Mapping[str, Words]) -> State:
        """The state after the sum of what everyone said: the same at all sites, up to rounding. `SpoiledError` for a
        sum that honest sites cannot have made. The state before is as the proposal has it.
        """
        a, q = self._among(context.members), context.turn.release
        grid = Grid(context.grid, context.scale)
        rows = sum(self.agreement.member(name).rows for name in context.members)
        most = largest_honest(grid, rows * a.largest_part(q, self.oracle), len(context.members))
        total = from_steps(open_sum(context, said, most), context.grid)
        return a.absorb(q, state, self.oracle, _Everyone(total.reshape(1, -1, 1)))

    def _among(self, members: tuple[str, ...]) -> MaskedNewton:
        """The algorithm for the rows of those who take part. Its noise stays what was agreed."""
        return self.algorithm.counting([self.agreement.member(name).rows for name in members])

    def _grid(
        self, q: int, state: State, members: tuple[str, ...], *, nearly: float = 1.0, step: float | None = None
    ) -> Grid:
        """The grid of release q, from public numbers: for so many times the sensitivity, and with this step if it is
        given.
        """
        a, n = self._among(members), len(self.agreement.sites)
        sensitivity = nearly * float(a.sensitivity(q, state, self.oracle).item())
        sites, numbers = min(self.agreement.unit.sites, n), a.numbers(q, self.agreement.features)
        return grid_for(a.multipliers(n)[q - 1], sensitivity, a.honest(n), numbers, sites, step)


def _refuse(instead: str) -> NoReturn:
    raise BadMessageError(Refusal.OTHER_POINT, f"expected {instead}. More than rounding parts the two.")


class _Everyone(Inbox):
    """The sum of what all have said, and nothing else: single messages are masked."""

    def __init__(self, total: Array) -> None:
        self._total = total

    def neighbours(self) -> Array:
        raise UnsupportedError("Expected an algorithm that reads the sum over all sites, got one that asks for less.")

    def everyone(self) -> Array:
        return self._total
