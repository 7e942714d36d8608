"""DVP: dual variable perturbation (Zhang & Zhu 2017, arXiv 1601.03466). Noise in the dual that the argmin sees.

    w_i^k     = argmin_w L_i(w) - 2 <gamma_i^{k-1}, w> + <b, w> + (Phi_i / 2) ||w||^2
                         + rho sum_{j in N_i} || w - (w_i^{k-1} + w_j^{k-1}) / 2 ||^2
    gamma_i^k = gamma_i^{k-1} - (rho / 2) sum_{j in N_i} (w_i^k - w_j^k)

The dual itself stays without noise of its own: b is fresh in every round. Proof: docs/proofs/dvp.md.

    fair        b Gaussian, no Phi, one accountant for all rounds
    published   b of l2-Laplace law, pure alpha = epsilon / t a round; of it the Jacobian takes J = 2 ln(1 + kappa_i).
                Where that leaves nothing, Phi_i = c / (m_i (e^(alpha/4) - 1)) - mu_i brings J down to alpha / 2

Certain enough: where the noise enters, and that the dual step uses the dual without it. Not certain (we have not seen
the paper's equations): the constants of the published form. We take the rate of b from what the proof needs, the whole
sensitivity 2 c1 / m_i. The paper bounds one iteration, not a run; the total is the sum over rounds, dealt out evenly.
Deviations: a little noise on the sent model, because no solver is exact (see `objective`).
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from sottovoce.algorithms.objective import OUTPUT_SHARE, ObjectivePerturbation, curvature_bound
from sottovoce.algorithms.rival import Consensus, convexity
from sottovoce.arrays import Array, Floats
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle


@final
@dataclass(frozen=True, kw_only=True)
class DVP(ObjectivePerturbation):
    """Dual variable perturbation: noise in a linear term of the argmin."""

    def release(self, k: int, state: Consensus, site: Oracle, noise: Noise) -> tuple[Array, Consensus]:
        """The argmin with a random linear term."""
        w = self.perturbed(k, state, site, noise)
        return w, state._replace(w=w, total=state.total + w)

    @property
    def released(self) -> str:
        """What leaves a site."""
        return f"in each of {self.rounds} rounds, the site's local optimum for a noisy dual, sent to its neighbours"

    def ridge(self, k: int, site: Oracle) -> Floats:
        """Phi_i: zero where the Jacobian leaves something for the noise."""
        alpha = (1 - OUTPUT_SHARE) * self.share
        needed = curvature_bound(site) / (site.divisor * np.expm1(alpha / 4)) - convexity(site, self.rho)
        return np.where(2 * np.log1p(self.kappa(k, site)) < alpha, 0.0, needed)

    def jacobian(self, k: int, site: Oracle) -> Floats:
        """2 ln(1 + kappa_i) with the ridge counted in, as printed; the proof needs half of it."""
        mu = convexity(site, self.rho) + self.ridge(k, site)
        return 2 * np.log1p(curvature_bound(site) / (site.divisor * mu))
