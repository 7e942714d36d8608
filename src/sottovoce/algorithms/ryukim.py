"""Multi-step inexact ADMM (after Ryu & Kim 2022, arXiv 2202.09409), without an aggregator.

For k = 1..t every node starts from z = w_i^{k-1} and takes l steps, r = 0..l-1,

    z  <- [ eta z - grad L_i(z) - xi + 2 gamma_i^{k-1} + rho sum_{j in N_i} (w_i^{k-1} + w_j^{k-1}) ]
          / (2 rho |N_i| + eta),

eta = sqrt(k) / a, then sends the mean of the l iterates as w_i^k, and after the exchange

    gamma_i^k = gamma_i^{k-1} - (rho / 2) sum_{j in N_i} (w_i^k - w_j^k).

The linearised objective is perturbed, which is the same as noise in the gradient: no curvature is needed. M_i = m_i /
(n omega_i), which is m_i where all sites count the same. Proof: docs/proofs/ryukim.md.

    fair        xi ~ N(0, (2 c1 sigma / M_i)^2 I), t l Gaussian releases, exactly accounted
    published   independent Laplace coordinates of scale s1 / e, s1 = 2 sqrt(d) c1 / M_i the l1 sensitivity of the
                gradient for rows that are bounded in l2, and e = epsilon / (t l): pure, summed over all steps

Certain enough: the step, the mean, the Laplace law and steps that shorten as 1 / sqrt(k). Not certain: where a round's
steps start, and whether the paper's epsilon of one iteration covers one local step or all l. We start from the last
sent model and count every step. The public code of a predecessor reads the sensitivity off the data; that is not
private, and we do not. The paper has no total over iterations; ours is the sum.
Our choice: no aggregator, a constant rho, and a = D / (G sqrt(2 l)), so that steps are as long as IPADMM's with that D.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from sottovoce.algorithms.laplace import LAPLACE_NORMALS, laplace
from sottovoce.algorithms.rival import Consensus, ConsensusRival
from sottovoce.algorithms.stepping import Stepping
from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.kernels.random import MAX_STEPS
from sottovoce.oracle.plain import Oracle, Steps
from sottovoce.privacy import Event, Repeated


@final
class LaplaceNumbers(Noise):
    """Laplace numbers of scale 1, each from four normals, where a step asks for a normal."""

    def __init__(self, source: Noise) -> None:
        self._source = source

    def normals(self, k: int, r: int) -> Array:
        return -laplace(self._source, k, LAPLACE_NORMALS * r)

    def draws(self, k: int, r: int, offsets: Ints, batch: int, scheme: str) -> Array:
        return self._source.draws(k, r, offsets, batch, scheme)


@final
@dataclass(frozen=True, kw_only=True)
class RyuKim(ConsensusRival, Stepping[Consensus]):
    """Multi-step inexact ADMM.

    Args:
        local_steps: l, noisy steps per round.
    """

    local_steps: int = 10

    covers_people: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        most = MAX_STEPS // LAPLACE_NORMALS
        expect(1 <= self.local_steps <= most, f"1 <= local_steps <= {most}", local_steps=self.local_steps)

    def release(self, k: int, state: Consensus, site: Oracle, noise: Noise) -> tuple[Array, Consensus]:
        """l noisy steps; the message is their mean."""
        s = state
        pull, curvature = self.pull(s, site, self.rho), 2 * self.rho * site.degree
        etas = np.repeat(self.eta(k * self.local_steps, site)[None], self.local_steps, axis=0)
        if self.form == "fair" or not self.private:
            steps = Steps(k, pull, curvature, etas, self.sigma(site), noise, tight=self.tight)
        else:  # for the l1 sensitivity, sqrt(d) times that in l2
            steps = Steps(k, pull, curvature, etas, self.sigma(site) * math.sqrt(site.d), LaplaceNumbers(noise))
        w = site.noisy_steps(s.w, steps).mean
        return w, s._replace(w=w, total=s.total + w)

    def without(self, state: Consensus, gone: Array) -> Consensus:
        """Take the dual's moves along that edge back. All else forgets a neighbour's messages after a round."""
        return state._replace(gamma=state.gamma + self.rho / 2 * gone)

    def variance(self, site: Oracle) -> Floats:
        """(2 c1 sigma / M_i)^2; a Laplace law of scale x has variance 2 x^2."""
        spread = 2 * site.d if self.form == "published" else 1
        return spread * (self.sigma(site) * site.sensitivity()) ** 2

    @property
    def private_steps(self) -> int:
        """t l: every local step of every round."""
        return self.rounds * self.local_steps

    @property
    def draws_per_round(self) -> int:
        """One normal vector a step, or what a Laplace vector takes."""
        return self.local_steps * (1 if self.form == "fair" else LAPLACE_NORMALS)

    @property
    def released(self) -> str:
        """What leaves a site."""
        steps = f"the mean of {self.local_steps} noisy models"
        return f"in each of {self.rounds} rounds, {steps}, sent to the site's neighbours"

    def price(self, k: int, site: Oracle) -> Event:
        """One release for each of the l local steps. The published form counts noise over the l1 sensitivity."""
        step = super().price(k, site)
        return Repeated(step, self.local_steps)
