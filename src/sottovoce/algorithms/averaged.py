"""Two bounding lines: perfectly averaged noisy gradient descent, with local noise and with a trusted curator.

    v_i = w - (grad L_i(w) + xi_i) / eta,     xi_i ~ N(0, (2 c1 sigma_local / M_i)^2 I),   eta = sqrt(2 k) G / D
    w  <- (1/n) sum_j v_j

M_i = m_i / (n omega_i), which is m_i where all sites count the same. eta is the same at all nodes, and all hold the
same w. So nothing is lost to disagreement: here is what local noise costs even with a perfect exchange.

    NoisyAveragedGD   sigma_local = sigma: every message is private by itself
    TrustedCurator    sigma_local = sigma / (M_min sqrt(sum_i M_i^-2)): only the average is private. Replacing a row
                      moves it by at most 2 c1 / (n M_min), and the nodes' noise averages to sigma times that

For equal nodes the curator's noise is sqrt(n) times smaller. It stands for a server that is trusted, or for secure
summation, and shows what local noise costs. Both are fair by construction; there is no paper to follow.
rho plays no part. Proof: docs/proofs/averaged.md.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np

from sottovoce.algorithms.base import Outputs
from sottovoce.algorithms.computation import View
from sottovoce.algorithms.rival import refuse_incomplete
from sottovoce.algorithms.stepping import Stepping
from sottovoce.arrays import Array, Floats
from sottovoce.errors import expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle, Steps
from sottovoce.problem.graphs import Inbox


class AveragedGDState(NamedTuple):
    """What the next round needs."""

    w: Array  # (nodes, d, runs) the common model, or between the two halves of a round the one just sent
    total: Array  # (nodes, d, runs) sum of the models so far


@dataclass(frozen=True, kw_only=True)
class AveragedGD(Stepping[AveragedGDState]):
    """Gradient descent on the average of noisy gradients, on a complete graph."""

    unpublished: ClassVar[str | None] = "it is a bounding line, not a published algorithm."

    covers_people: ClassVar[bool] = True

    @abstractmethod
    def local_sigma(self, site: Oracle) -> float:
        """The noise that a node adds, over the sensitivity of its gradient."""

    def start(self, site: Oracle, runs: int) -> AveragedGDState:
        """Zero models. Refuses graphs that are not complete, and oracles of a part of the nodes."""
        name = type(self).__name__
        # The common step is read off all nodes' public numbers.
        expect(
            len(site.network.degrees) == site.n,
            f"all nodes in one place for {name}, which no single site can run",
            nodes_here=len(site.network.degrees),
            n=site.n,
        )
        refuse_incomplete(site, name)
        return AveragedGDState(*(site.zeros(runs) for _ in AveragedGDState._fields))

    def release(self, k: int, state: AveragedGDState, site: Oracle, noise: Noise) -> tuple[Array, AveragedGDState]:
        """One noisy gradient step; the message is the model."""
        s, zero = state, np.zeros_like(state.w)
        steps = Steps(
            k, zero, 0 * site.degree, self.eta(k, site)[None], self.local_sigma(site), noise, tight=self.tight
        )
        v = site.noisy_steps(s.w, steps).last
        return v, s._replace(w=v)

    def absorb(self, k: int, state: AveragedGDState, site: Oracle, inbox: Inbox) -> AveragedGDState:  # noqa: ARG002
        """The average. Models are averaged, not gradients: rounding then cannot drive the nodes apart."""
        w = (state.w + inbox.neighbours()) / site.n
        return AveragedGDState(w=w, total=state.total + w)

    def outputs(self, k: int, state: AveragedGDState) -> Outputs:
        """The average of the models so far, and the last."""
        return Outputs(average=state.total / k, last=state.w)

    def variance(self, site: Oracle) -> Floats:
        """Variance of the noise in the averaged gradient, the same at all nodes."""
        local = (self.local_sigma(site) * site.network.sensitivity()) ** 2
        return np.full_like(site.m, np.mean(local) / site.n)

    def steepest(self, site: Oracle) -> Floats:
        """Bound on the norm of the weighted mean of the sites' gradients, which every node follows."""
        return np.full_like(site.importance, site.c1)

    def averaged_variance(self, site: Oracle) -> float:
        """`variance`, which is of the average already."""
        return float(self.variance(site).max())


@final
@dataclass(frozen=True, kw_only=True)
class NoisyAveragedGD(AveragedGD):
    """Perfectly averaged gradient descent with local noise."""

    def local_sigma(self, site: Oracle) -> float:
        """`sigma`, since every message is private by itself."""
        return self.sigma(site)

    @property
    def released(self) -> str:
        """What leaves a site."""
        return f"in each of {self.rounds} rounds, the site's model after one noisy gradient step, sent to all others"


@final
@dataclass(frozen=True, kw_only=True)
class TrustedCurator(AveragedGD):
    """Perfectly averaged gradient descent with a trusted curator's noise. Only the average of messages is private."""

    view: ClassVar[View] = "average"
    local_noise: ClassVar[bool] = False

    def local_sigma(self, site: Oracle) -> float:
        """The noise multiplier of a node with which all nodes' noise together is `sigma` times what one unit moves the
        average by, at most: a row, or a person's rows at all of their sites.
        """
        moved = np.sort(site.network.sensitivity(), axis=0)
        return self.sigma(site) * float(np.sum(moved[-site.sites_per_unit :])) / float(np.sqrt(np.sum(moved**2)))

    @property
    def released(self) -> str:
        """What others than the curator see, in words."""
        return (
            f"in each of {self.rounds} rounds, the noisy average of all sites' models, published by a trusted curator"
        )

    def notes(self, site: Oracle) -> tuple[str, ...]:
        """Adds whom the guarantee trusts."""
        trust = (
            "This holds only against those who do not see single messages: the curator, or a secure sum, is trusted."
        )
        return (*super().notes(site), trust)
