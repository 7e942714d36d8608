"""Decentralised gradient descent with noisy gradients, then gossip.

    v_i^k = w_i^{k-1} - (grad L_i(w_i^{k-1}) + xi) / eta,    xi ~ N(0, (2 c1 sigma / m_i)^2 I),  eta = sqrt(2 k) G_i / D
    w_i^k = v_i^k - c sum_{j in N_i} (v_i^k - v_j^k),        c = 1 / (1 + largest degree)

v_i is sent; the mixing weights are symmetric and add up to one. rho plays no part. Proof: docs/proofs/dpdsgd.md.

    fair        t Gaussian releases, exactly accounted
    published   refused: it is a family, not one paper's algorithm, and has no one printed total

All of it is a textbook method, so nothing is uncertain but taste: mixing after the step (some mix before), the weights,
and steps by IPADMM's public rule. With steps that shorten the nodes agree in the limit.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np

from sottovoce.algorithms.base import Outputs
from sottovoce.algorithms.stepping import Stepping
from sottovoce.arrays import Array, Floats
from sottovoce.errors import UnsupportedError, expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle, Steps
from sottovoce.problem.graphs import Inbox


class DPDSGDState(NamedTuple):
    """What the next round needs. All of it is a function of what was sent."""

    w: Array  # (nodes, d, runs) model: mixed, or between the two halves of a round the one just sent
    total: Array  # (nodes, d, runs) sum of the mixed models so far


@final
@dataclass(frozen=True, kw_only=True)
class DPDSGD(Stepping[DPDSGDState]):
    """Decentralised gradient descent with noisy gradients.

    Args:
        largest_degree: of the graph, public; None takes it from the nodes at hand, which must then be all.
    """

    largest_degree: int | None = None

    unpublished: ClassVar[str | None] = "it is a family of methods without one printed total."

    covers_people: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights != "equal":
            # Nodes find a balance of grad L_i / eta_i, and eta_i grows with a site's weight just as its gradient does.
            raise UnsupportedError(
                f"Expected weights='equal' for DPDSGD, got weights={self.weights!r}: its steps are shorter where a "
                "site weighs more, which cancels the weights. Use an ADMM such as IPADMM."
            )

    def start(self, site: Oracle, runs: int) -> DPDSGDState:
        """Zero models. Refuses a `largest_degree` below that of the nodes here."""
        if self.largest_degree is None:
            expect(
                len(site.network.degrees) == site.n,
                "largest_degree, since not all nodes are here to read it from",
                nodes_here=len(site.network.degrees),
                n=site.n,
            )
        else:
            least = int(site.degrees.max())
            expect(self.largest_degree >= least, f"largest_degree >= {least}", largest_degree=self.largest_degree)
        return DPDSGDState(*(site.zeros(runs) for _ in DPDSGDState._fields))

    def release(self, k: int, state: DPDSGDState, site: Oracle, noise: Noise) -> tuple[Array, DPDSGDState]:
        """One noisy gradient step; the message is the model."""
        s, zero = state, np.zeros_like(state.w)
        steps = Steps(k, zero, 0 * site.degree, self.eta(k, site)[None], self.sigma(site), noise, tight=self.tight)
        v = site.noisy_steps(s.w, steps).last
        return v, s._replace(w=v)

    def absorb(self, k: int, state: DPDSGDState, site: Oracle, inbox: Inbox) -> DPDSGDState:  # noqa: ARG002
        """Mix with the neighbours' models."""
        largest = int(site.network.degrees.max()) if self.largest_degree is None else self.largest_degree
        w = state.w - 1 / (1 + largest) * (site.degree * state.w - inbox.neighbours())
        return DPDSGDState(w=w, total=state.total + w)

    def without(self, state: DPDSGDState, gone: Array) -> DPDSGDState:  # noqa: ARG002
        """There is no dual to mend: what was mixed in fades with the steps, and mixing keeps the sum of those left."""
        return state

    def outputs(self, k: int, state: DPDSGDState) -> Outputs:
        """The average of the mixed models so far, and the last."""
        return Outputs(average=state.total / k, last=state.w)

    def variance(self, site: Oracle) -> Floats:
        """(2 c1 sigma / m_i)^2."""
        return (self.sigma(site) * site.sensitivity()) ** 2

    @property
    def released(self) -> str:
        """What leaves a site."""
        return (
            f"in each of {self.rounds} rounds, the site's model after one noisy gradient step, sent to its neighbours"
        )
