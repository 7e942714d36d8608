"""DP-ADMM without an aggregator (after Huang et al. 2019, arXiv 1808.10101). One noisy linearised step a round.

    w_i^k     = [ eta w_i^{k-1} - grad L_i(w_i^{k-1}) + 2 gamma_i^{k-1} + rho sum_{j in N_i} (w_i^{k-1} + w_j^{k-1}) ]
                / (2 rho |N_i| + eta) + xi
    gamma_i^k = gamma_i^{k-1} - (rho / 2) sum_{j in N_i} (w_i^k - w_j^k)
    xi ~ N(0, (sigma s)^2 I),   s = 2 c1 / (M_i (2 rho |N_i| + eta)),
    eta = eta_i^k = n omega_i c3 + lam l2 + sqrt(2 k d) (2 c1 / M_i) sigma / D

This is IPADMM with one local step and another eta (their eta is one over ours). c3 is the smoothness of a site's mean
loss, D their c_w, and M_i = m_i / (n omega_i), which is m_i where all sites count the same. Noise after the division is
the same as noise of std 2 c1 sigma / M_i in the gradient, so sigma is the same in all rounds. Proof:
docs/proofs/dpadmm.md.

    fair        sigma by the exact accountant of t Gaussian releases
    published   sigma = sqrt(2 t ln(1.25 / delta)) / epsilon: the printed total c0 sqrt(t) epsilon with c0 = 1, refused
                where that gives less privacy than it says

Certain enough: the step, its noise and the smooth eta, up to the change from an aggregator to neighbours, which is ours
(the comparison that this library follows runs it without an aggregator, too). c0 is not given in the paper; 1 is a
choice. For a loss that is not smooth we take IPADMM's eta for one step, where we do not know the paper's. D is
chosen by IPADMM's public rule.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from sottovoce.algorithms.rival import Consensus, ConsensusRival
from sottovoce.algorithms.stepping import Stepping
from sottovoce.arrays import Array, Floats
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle, Steps
from sottovoce.privacy import Calibration, sigma_for


@final
@dataclass(frozen=True, kw_only=True)
class DPADMM(ConsensusRival, Stepping[Consensus]):
    """DP-ADMM without an aggregator.

    Args:
        diameter: D, their bound c_w on the norm of a model.
    """

    covers_people: ClassVar[bool] = True

    def release(self, k: int, state: Consensus, site: Oracle, noise: Noise) -> tuple[Array, Consensus]:
        """One noisy linearised step; the message is the model."""
        s = state
        steps = Steps(
            k=k,
            pull=self.pull(s, site, self.rho),
            curvature=2 * self.rho * site.degree,
            eta=self.eta(k, site)[None],
            sigma=self.sigma(site),
            noise=noise,
            tight=self.tight,
        )
        w = site.noisy_steps(s.w, steps).last
        return w, s._replace(w=w, total=s.total + w)

    def without(self, state: Consensus, gone: Array) -> Consensus:
        """Take the dual's moves along that edge back. All else forgets a neighbour's messages after a round."""
        return state._replace(gamma=state.gamma + self.rho / 2 * gone)

    def eta(self, s: float, site: Oracle) -> Floats:
        """eta_i^k for round k = s: (nodes, 1, 1)."""
        c3 = self.loss.smoothness(site.sites.data_norm)
        if c3 is None or not math.isfinite(c3):
            return super().eta(s, site)
        noise = np.sqrt(2 * s * site.d * self.variance(site))
        return c3 * site.importance + site.lam * self.regulariser.l2 + noise / self.diameter_for(site)

    def variance(self, site: Oracle) -> Floats:
        """(2 c1 sigma / M_i)^2."""
        return (self.sigma(site) * site.sensitivity()) ** 2

    @property
    def pure(self) -> bool:
        """False: noise is Gaussian in both forms."""
        return False

    @property
    def released(self) -> str:
        """What leaves a site."""
        return f"in each of {self.rounds} rounds, the site's model after one noisy step, sent to its neighbours"

    def sigma(self, site: Oracle) -> float:
        """The noise multiplier of a step: by the paper's formula in the published form, else exact."""
        if not self.private:
            return 0.0
        calibration: Calibration = "paper" if self.form == "published" else "exact"
        return sigma_for(self.epsilon, self.delta, self.seen_steps(site), calibration)
