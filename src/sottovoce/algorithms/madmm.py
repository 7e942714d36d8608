"""M-ADMM with penalty perturbation (Zhang, Khalili & Liu 2018, arXiv 1806.02246). Noise in the penalty, which may grow.

    w_i^k     = argmin_w L_i(w) - 2 <gamma_i^{k-1}, w>
                         + rho^k sum_{j in N_i} || w + e - (w_i^{k-1} + w_j^{k-1}) / 2 ||^2
    gamma_i^k = gamma_i^{k-1} - (rho / 2) sum_{j in N_i} (w_i^k - w_j^k),     rho^k = rho min(growth^{k-1}, most) >= rho

e in the penalty is b = 2 rho^k |N_i| e in a linear term: DVP with a penalty that changes. With growth = 1 it is DVP.
The dual's step stays rho. Proof: docs/proofs/madmm.md.

    fair        b Gaussian with one sigma for all rounds; kappa falls as the penalty grows
    published   e of l2-Laplace law, rate alpha_i^k; the paper's pure total is
                max_i sum_k (1.4 c + alpha_i^k c1) / (rho^k |N_i| M_i), of which every round gets epsilon / t

Certain enough: the update, the pure total and its 1.4. Less so: that the dual's step is common, fixed and no larger
than the penalty. Our choice: the same penalty at all nodes, an even share of epsilon for every round (the paper lets
the rate of e grow geometrically), and `most`, since a penalty that grows without end freezes the models before they
agree.
Deviations: a little noise on the sent model, because no solver is exact (see `objective`).
"""

import math
from dataclasses import dataclass
from typing import final

from sottovoce.algorithms.objective import ObjectivePerturbation, curvature_bound
from sottovoce.algorithms.rival import Consensus
from sottovoce.arrays import Array, Floats
from sottovoce.errors import expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle


@final
@dataclass(frozen=True, kw_only=True)
class MADMM(ObjectivePerturbation):
    """M-ADMM with penalty perturbation.

    Args:
        growth: factor by which the penalty grows from round to round.
        most: how many times rho the penalty may become.
    """

    growth: float = 1.0
    most: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(1 <= self.growth < math.inf, "growth >= 1", growth=self.growth)
        expect(1 <= self.most < math.inf, "most >= 1", most=self.most)

    def penalty(self, k: int) -> float:
        """rho^k, compared in logarithms so that nothing overflows."""
        steps = (k - 1) * math.log(self.growth)
        return self.rho * (math.exp(steps) if steps < math.log(self.most) else self.most if self.growth > 1 else 1.0)

    def release(self, k: int, state: Consensus, site: Oracle, noise: Noise) -> tuple[Array, Consensus]:
        """The argmin with a noisy penalty."""
        w = self.perturbed(k, state, site, noise)
        return w, state._replace(w=w, total=state.total + w)

    @property
    def released(self) -> str:
        """What leaves a site."""
        return f"in each of {self.rounds} rounds, the site's local optimum for a noisy penalty, sent to its neighbours"

    def jacobian(self, k: int, site: Oracle) -> Floats:
        """1.4 c / (rho^k |N_i| M_i), as printed; the proof needs ln(1 + kappa_i), which is less than half of it."""
        return 1.4 * curvature_bound(site) / (self.penalty(k) * site.degree * site.divisor)
