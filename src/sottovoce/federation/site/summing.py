"""One site's part in masked sums: from a question and its own rows to masked words, and from everyone's words to the
opened sum. It sends nothing and remembers nothing.

Every question is a function of earlier sums alone, so all sites come to the same one, up to rounding, which is not the
same on every processor. Masks cancel where contexts are equal bit by bit. So what follows from sums by floating point,
the question's point, the grid and the scale of the noise, comes from one of the sites (`proposer`): the others check
that it is what they have computed, up to rounding, and take its bits (`Summing.adopt`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.masks import Context, Masks, Past, Turn, bits, from_steps, largest_honest, open_sum
from sottovoce.federation.transport.wire import BadMessageError, Refusal
from sottovoce.noise.sampler import Words
from sottovoce.noise.secure import Grid, grid_for
from sottovoce.oracle.plain import Oracle
from sottovoce.sums.descent import Fit
from sottovoce.sums.program import Opened, Question, Session

# Of the length of a point, and of 1 / B: far above what processors differ by, far below what a model is good for.
ROUNDING = 1e-6
# Grid steps, of 2^30 and more: the proposer adds so many, so that its noise is enough at a site that rounds otherwise.
SLACK = 16
_NEARLY = 1e-9  # by how much sensitivities are rounded differently at most


@final
class Proposal(NamedTuple):
    """What all sites of a sum must hold bit by bit and follows from earlier sums by floating point."""

    point: Floats  # (numbers,) see `Question.point`
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
        self.agreement, self.oracle, self.analysis = agreement, oracle, agreement.analysis
        self.schedule = self.analysis.schedule(agreement.features)

    def begin(self) -> Session[Fit]:
        """The program before its first sum."""
        a = self.agreement
        return self.analysis.begin(len(a.sites), a.features, a.data_norm, a.unit)

    def propose(self, q: int, question: Question, members: tuple[str, ...]) -> Proposal:
        """What this site would have all others take for sum q. It follows from earlier sums, and from no row."""
        grid = self._grid(q, question, members)
        return Proposal(question.point[:, 0].astype(np.float64), grid._replace(scale=grid.scale + SLACK))

    def adopt(self, q: int, question: Question, members: tuple[str, ...], proposal: Proposal) -> Question:
        """The question with the proposal's bits in it; `BadMessageError` unless they are what was computed here, up to
        rounding. Public numbers decide alone.

        Formal guarantees: the noise that it asks for is at least what the point that it names needs here, and the grid
        is the one that this noise needs, up to rounding of the sensitivity.
        """
        taken = self.with_point(question, proposal.point)
        # A sensitivity next to a power of two may be rounded to either side of it.
        steps = {self._grid(q, taken, members, nearly=nearly).step for nearly in (1 - _NEARLY, 1 + _NEARLY)}
        if proposal.grid.step not in steps:
            _refuse(f"a grid of step={max(steps):g}, got step={proposal.grid.step:g}")
        least = self._grid(q, taken, members, step=proposal.grid.step).scale
        if not least <= proposal.grid.scale <= least + 2 * SLACK:
            _refuse(f"noise of {least + SLACK} grid steps, up to {SLACK}, got scale={proposal.grid.scale}")
        return taken

    def with_point(self, question: Question, point: Floats) -> Question:
        """The question with these bits as its point; `BadMessageError` if they are further off than rounding."""
        own = question.point[:, 0]
        most = ROUNDING * (float(np.linalg.norm(own)) + 1 / self.oracle.sites.data_norm)
        apart = np.inf
        if point.shape == own.shape and np.isfinite(point).all():
            with np.errstate(over="ignore"):
                apart = float(np.linalg.norm(point - own))
        if not apart <= most:
            _refuse(f"a point within {most:.3g} of the one that was computed here, got one {apart:.3g} away")
        return question.at(point[:, None])

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
            point=bits(proposal.point), grid=proposal.grid.step, scale=proposal.grid.scale,
            numbers=self.schedule[turn.release - 1].numbers,
        )  # fmt: skip

    def words(self, context: Context, question: Question, masks: Masks, past: Past) -> Words:
        """What this site says in that context, if it may; see `Masks.words`. The question has the proposal's bits."""
        exact = question.of(self.oracle, question.over(self._counts(context.members)))[:, 0]
        return masks.words(context, exact, past)

    def open(self, context: Context, question: Question, said: Mapping[str, Words]) -> Opened:
        """The sum of what everyone said: the same at all sites, bit by bit. `SpoiledError` for a sum that honest sites
        cannot have made. The question has the proposal's bits.
        """
        grid, rows = Grid(context.grid, context.scale), question.over(self._counts(context.members))
        most = largest_honest(grid, rows * question.largest(self.oracle), len(context.members))
        value = from_steps(open_sum(context, said, most), context.grid)[:, None]
        # As it was really added: by those who took part, on the grid.
        std = context.grid * context.scale * math.sqrt(len(context.members))
        return Opened(question, value, np.full((1, 1), std), rows)

    def _counts(self, members: Sequence[str]) -> list[int]:
        return [self.agreement.member(name).rows for name in members]

    def _grid(
        self, q: int, question: Question, members: tuple[str, ...], *, nearly: float = 1.0, step: float | None = None
    ) -> Grid:
        """The grid of release q, from public numbers: for so many times the sensitivity, and with this step if it is
        given.
        """
        a, n = self.analysis, len(self.agreement.sites)
        rows = question.over(self._counts(members))
        sensitivity = nearly * float(question.sensitivity(self.oracle, rows).item())
        sites, numbers = min(self.agreement.unit.sites, n), self.schedule[q - 1].numbers
        return grid_for(a.multipliers(n)[q - 1], sensitivity, a.honest(n), numbers, sites, step)


def _refuse(instead: str) -> NoReturn:
    raise BadMessageError(Refusal.OTHER_POINT, f"expected {instead}. More than rounding parts the two.")
