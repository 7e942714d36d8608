"""R-ADMM: recycled ADMM (Zhang, Khalili & Liu 2018, arXiv 1810.03197). Every second round looks at no row.

    odd k     w_i^k = argmin_w L_i(w) - 2 <gamma_i^{k-1}, w> + <b, w>
                               + rho sum_{j in N_i} || w - (w_i^{k-1} + w_j^{k-1}) / 2 ||^2
    even k    w_i^k = w_i^{k-1} - rho / (2 rho |N_i| + gamma_R) sum_{j in N_i} (w_i^{k-2} + w_j^{k-2} - 2 w_j^{k-1})
    always    gamma_i^k = gamma_i^{k-1} - (rho / 2) sum_{j in N_i} (w_i^k - w_j^k)

The even step is a linearised one. It recycles the noisy gradient of the odd round before, g = grad L_i(w_i^{k-1}) + b:

    w_i^k = w_i^{k-1} - [ g - 2 gamma_i^{k-1} + rho sum_j (w_i^{k-1} - w_j^{k-1}) ] / (2 rho |N_i| + gamma_R),

where optimality in the odd round gives g = 2 gamma_i^{k-2} - rho sum_j (2 w_i^{k-1} - w_i^{k-2} - w_j^{k-2}). All but
what was sent drops out: the even step is post-processing. A fresh exact gradient there would be a new query without
noise. Proof: docs/proofs/radmm.md.

    fair        b Gaussian; ceil(t / 2) private steps for one accountant
    published   b of l2-Laplace law, pure alpha = epsilon / ceil(t / 2) an odd round, of which the Jacobian takes
                2.8 kappa_i

Certain: one private step in two rounds, by objective perturbation. Certain enough: the even step and its dual step. Not
certain: the constants 2 and 2.8 of the published total, and the paper's condition on gamma_R. Our choice of gamma_R is
lam l2 + n omega_i c, a bound on the risk's curvature.
Deviations: a little noise on the odd models, because no solver is exact (see `objective`); g is taken from the sent
models, so it holds that noise too.
"""

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from sottovoce.algorithms.objective import ObjectivePerturbation, curvature_bound
from sottovoce.algorithms.rival import Consensus
from sottovoce.arrays import Array, Floats
from sottovoce.errors import expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle


@final
@dataclass(frozen=True, kw_only=True)
class RADMM(ObjectivePerturbation):
    """Recycled ADMM: every even round is a function of what was sent.

    Args:
        gamma_r: gamma_R, the proximal weight of the even steps; None takes lam l2 + n omega_i c, node by node.
    """

    gamma_r: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.gamma_r is None or 0 <= self.gamma_r < math.inf, "gamma_r >= 0", gamma_r=self.gamma_r)

    def looks_at_rows(self, k: int) -> bool:
        """True in odd rounds."""
        return k % 2 == 1

    def release(self, k: int, state: Consensus, site: Oracle, noise: Noise) -> tuple[Array, Consensus]:
        """Odd: the argmin with a random linear term. Even: a step along what was sent."""
        s = state
        if self.looks_at_rows(k):
            w = self.perturbed(k, s, site, noise)
            s = s._replace(before=s.heard + site.degree * s.w)
        else:
            w = s.w - self.rho / (2 * self.rho * site.degree + self.proximal(site)) * (s.before - 2 * s.heard)
        return w, s._replace(w=w, total=s.total + w)

    def proximal(self, site: Oracle) -> Floats:
        """gamma_R: (nodes, 1, 1)."""
        own = site.lam * site.regulariser.l2
        found = own + curvature_bound(site) * site.importance
        return found if self.gamma_r is None else np.full_like(found, self.gamma_r)

    @property
    def released(self) -> str:
        """What leaves a site."""
        return (
            f"in each of {self.rounds} rounds one model, sent to the site's neighbours: in odd rounds its local "
            "optimum for a noisy objective, in even rounds a function of what was sent before"
        )

    def jacobian(self, k: int, site: Oracle) -> Floats:
        """2.8 kappa_i, as printed; the proof needs ln(1 + kappa_i)."""
        return 2.8 * self.kappa(k, site)
