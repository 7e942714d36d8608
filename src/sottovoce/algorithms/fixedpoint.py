"""Noisy fixed-point iteration, the all-nodes form (after Cyffers, Bellet & Basu 2023, arXiv 2302.12559).

Every node holds u_i, and everyone hears everyone. In round k, with z = (1/n) sum_j u_j,

    x_i = argmin_w L_i(w) + (1 / (2 step)) || w - (2 z - u_i) ||^2
    u_i <- u_i + 2 relaxation (x_i + xi - z)                 xi ~ N(0, (sigma s)^2 I),   s = (2 c1 / M_i + 2 tau) / mu

and u_i is sent. mu = lam l2 + 1 / step is the strong convexity of the argmin, tau the solver's tolerance, M_i = m_i /
(n omega_i). The paper writes the noise outside, as relaxation * eta: eta = 2 xi. There is no regulariser at the centre;
it sits at the nodes, in L_i. At a fixed point x_i = z at every node, so the gradients add up to zero. Proof:
docs/proofs/fixedpoint.md.

    fair        t Gaussian releases, exactly accounted
    published   refused: the paper's totals protect a whole node (its loss is the unit, not a row), or weigh against an
                observer who sees less than everything. Neither can be compared with a row in a full transcript

Certain: the update (its code was seen). The exponent of n in the paper's central bound is not used here.
Our choice: every node takes part in every round; step = 1 / (2 rho (n - 1)) unless given, so that the local problems
are as curved as those of decentralised ADMM with this rho on a complete graph; the public code's clipping is not
needed, since the argmin's sensitivity is bounded.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

from sottovoce.algorithms.base import Outputs
from sottovoce.algorithms.rival import TOLERANCE, Rival, argmin, expect_argmin, refuse_incomplete
from sottovoce.arrays import Array, Floats
from sottovoce.errors import expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.graphs import Inbox


class FixedPointState(NamedTuple):
    """What the next round needs. All of it is a function of what was sent."""

    u: Array  # (nodes, d, runs) own variable, as sent
    z: Array  # (nodes, d, runs) mean of all
    total: Array  # (nodes, d, runs) sum of z so far


@final
@dataclass(frozen=True, kw_only=True)
class FixedPoint(Rival[FixedPointState]):
    """Noisy fixed-point iteration on a complete graph.

    Args:
        relaxation: how far each round goes, in (0, 1]; 1/2 is Douglas-Rachford's.
        step: of the proximal map; None takes 1 / (2 rho (n - 1)).
    """

    relaxation: float = 0.5
    step: float | None = None

    unpublished: ClassVar[str | None] = (
        "its paper's totals are for a whole node, or for observers who see only a part of what is sent."
    )

    covers_people: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(0 < self.relaxation <= 1, "0 < relaxation <= 1", relaxation=self.relaxation)
        expect(self.step is None or 0 < self.step < math.inf, "step > 0", step=self.step)

    def start(self, site: Oracle, runs: int) -> FixedPointState:
        """Zero models. Refuses graphs that are not complete, and oracles without an argmin."""
        refuse_incomplete(site, "FixedPoint")
        expect_argmin(site, lambda: 0 * site.degree + self.pull(site), TOLERANCE)
        return FixedPointState(*(site.zeros(runs) for _ in FixedPointState._fields))

    def release(self, k: int, state: FixedPointState, site: Oracle, noise: Noise) -> tuple[Array, FixedPointState]:
        """The proximal map plus noise; the message is u_i."""
        s, pull = state, self.pull(site)
        # The curvature is the same at all nodes, but the oracle wants it for each.
        x = argmin(site, pull * (2 * s.z - s.u), 0 * site.degree + pull, s.z, TOLERANCE)
        if self.private:
            x = x + self.sigma(site) * self.model_sensitivity(site) * noise.normals(k, 0)
        u = s.u + 2 * self.relaxation * (x - s.z)
        return u, s._replace(u=u)

    def absorb(self, k: int, state: FixedPointState, site: Oracle, inbox: Inbox) -> FixedPointState:  # noqa: ARG002
        """The mean of all."""
        z = (state.u + inbox.neighbours()) / site.n
        return state._replace(z=z, total=state.total + z)

    def outputs(self, k: int, state: FixedPointState) -> Outputs:
        """The average of the means so far, and the last mean."""
        return Outputs(average=state.total / k, last=state.z)

    def pull(self, site: Oracle) -> float:
        """1 / step, the curvature of the proximal term."""
        return 2 * self.rho * max(1, site.n - 1) if self.step is None else 1 / self.step

    def model_sensitivity(self, site: Oracle) -> Floats:
        """How far replacing one unit moves x_i, in l2, at most: (nodes, 1, 1)."""
        return (site.sensitivity() + 2 * TOLERANCE) / (self.pull(site) + site.lam * site.regulariser.l2)

    @property
    def draws_per_round(self) -> int:
        """One normal vector for each node."""
        return 1

    @property
    def released(self) -> str:
        """What leaves a site."""
        return f"in each of {self.rounds} rounds, the site's noisy variable, sent to all others"
