"""Masked sums at one site: from a question and its own rows to masked words, and from all sites' words to the sum.

Nothing is sent or stored here. Every question is a function of earlier sums alone, so all sites compute the same one,
up to rounding, which differs between processors. But masks cancel only if contexts are equal bit by bit. So what is
computed from sums in floating point, the question's point, the grid and the scale of the noise, comes from one of the
sites (`proposer`). The others check that it equals what they computed, up to rounding, and use its bits
(`Summing.adopt`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.masks import Context, Masks, Past, Turn, bits, from_steps, largest_honest, open_sum
from sottovoce.federation.transport.wire import BadMessageError, Refusal
from sottovoce.noise.sampler import Words
from sottovoce.noise.secure import Grid, grid_for
from sottovoce.oracle.row_sums import RowSums
from sottovoce.sums.program import Opened, Question, Session

# Relative to the length of a point plus 1 / B: far above the differences between processors, far below a model's error.
ROUNDING = 1e-6
# Grid steps that the proposer adds to the 2^30 and more of its noise, so that it suffices at a site that rounds
# differently.
SLACK = 16
_NEARLY = 1e-9  # relative bound on the difference between two sites' rounded sensitivities


@final
class Proposal(NamedTuple):
    """Numbers that must be equal bit by bit at all sites of a sum, and follow from earlier sums in floating point."""

    point: Floats  # (numbers,) see `Question.point`
    grid: Grid


def proposer(t: int, members: tuple[str, ...]) -> str:
    """The site that proposes for the message with number t: the sites of U take turns."""
    return members[(t - 1) % len(members)]


@final
class Summing:
    """The sums of one run, as one site makes and reads them.

    Args:
        agreement: of masked sums.
        oracle: of this site's rows; only to open sums, one without rows (`Agreement.public_oracle`).
    """

    def __init__(self, agreement: Agreement, oracle: RowSums) -> None:
        self.agreement, self.oracle, self.analysis = agreement, oracle, agreement.analysis
        self.schedule = self.analysis.schedule(agreement.features)

    def begin(self) -> Session[Any]:
        """The program before its first sum."""
        a = self.agreement
        return self.analysis.begin(len(a.sites), a.features, a.data_norm, a.unit)

    def propose(self, q: int, question: Question[Any], members: tuple[str, ...]) -> Proposal:
        """This site's proposal for sum q. It follows from earlier sums, and from no row."""
        grid = self._grid(q, question, members)
        return Proposal(question.point[:, 0].astype(np.float64), grid._replace(scale=grid.scale + SLACK))

    def adopt(self, q: int, question: Question[Any], members: tuple[str, ...], proposal: Proposal) -> Question[Any]:
        """The question with the proposal's bits; `BadMessageError` unless they equal what was computed here, up to
        rounding. Only public numbers decide.

        Formal guarantees: the proposed noise is at least what the proposed point needs here, and the grid is the one
        that this noise needs, up to rounding of the sensitivity.
        """
        taken = self.with_point(question, proposal.point)
        # A sensitivity close to a power of two may be rounded to either side of it.
        steps = {self._grid(q, taken, members, nearly=nearly).step for nearly in (1 - _NEARLY, 1 + _NEARLY)}
        if proposal.grid.step not in steps:
            _refuse(f"a grid of step={max(steps):g}, got step={proposal.grid.step:g}")
        least = self._grid(q, taken, members, step=proposal.grid.step).scale
        if not least <= proposal.grid.scale <= least + 2 * SLACK:
            _refuse(f"noise of {least + SLACK} grid steps, up to {SLACK}, got scale={proposal.grid.scale}")
        return taken

    def with_point(self, question: Question[Any], point: Floats) -> Question[Any]:
        """The question with these bits as its point; `BadMessageError` if they differ by more than rounding."""
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
        """The context of this sum. It follows from messages that all sites have heard, and from no row.

        Args:
            turn: the sum, and the attempt.
            proposal: of its proposer.
            members: U, in the order of the agreement.
            notices: a digest of the notices by which the others were dropped.
            transcript: a digest of all earlier messages.
        """
        return Context(
            agreement=self.agreement.digest(), turn=turn, members=members, notices=notices, transcript=transcript,
            point=bits(proposal.point), grid=proposal.grid.step, scale=proposal.grid.scale,
            numbers=self.schedule[turn.release - 1].numbers,
        )  # fmt: skip

    def words(self, context: Context, question: Question[Any], masks: Masks, past: Past) -> Words:
        """This site's masked words in that context, see `Masks.words`. The question must have the proposal's bits."""
        exact = question.of(self.oracle, question.over(self._counts(context.members)))[:, 0]
        return masks.words(context, exact, past)

    def open(self, context: Context, question: Question[Any], said: Mapping[str, Words]) -> Opened:
        """The sum of all sites' words, bit by bit the same at all sites; `SpoiledError` for a sum that honest sites
        cannot have made. The question must have the proposal's bits.
        """
        grid, rows = Grid(context.grid, context.scale), question.over(self._counts(context.members))
        most = largest_honest(grid, rows * question.largest(self.oracle), len(context.members))
        value = from_steps(open_sum(context, said, most), context.grid)[:, None]
        # The noise that was really added: by the sites that took part, on the grid.
        std = context.grid * context.scale * math.sqrt(len(context.members))
        return Opened(question, value, np.full((1, 1), std), rows)

    def _counts(self, members: Sequence[str]) -> list[int]:
        return [self.agreement.member(name).rows for name in members]

    def _grid(
        self,
        q: int,
        question: Question[Any],
        members: tuple[str, ...],
        *,
        nearly: float = 1.0,
        step: float | None = None,
    ) -> Grid:
        """The grid of release q, from public numbers: for `nearly` times the sensitivity, with this step if given."""
        a, n = self.analysis, len(self.agreement.sites)
        rows = question.over(self._counts(members))
        sensitivity = nearly * float(question.sensitivity(self.oracle, rows).item())
        sites, numbers = min(self.agreement.unit.sites, n), self.schedule[q - 1].numbers
        return grid_for(a.multipliers(n)[q - 1], sensitivity, a.honest(n), numbers, sites, step)


def _refuse(instead: str) -> NoReturn:
    raise BadMessageError(Refusal.OTHER_POINT, f"expected {instead}. More than rounding parts the two.")
