"""PVP: primal variable perturbation (Zhang & Zhu 2017, arXiv 1601.03466). The argmin plus noise.

    w_i^k     = xi + argmin_w L_i(w) - 2 <gamma_i^{k-1}, w> + rho sum_{j in N_i} || w - (w_i^{k-1} + w_j^{k-1}) / 2 ||^2
    gamma_i^k = gamma_i^{k-1} - (rho / 2) sum_{j in N_i} (w_i^k - w_j^k)

The argmin moves by at most s = (2 c1 / M_i + 2 tau) / mu_i when a row is replaced, mu_i = lam l2 + 2 rho |N_i|, M_i the
rows m_i over n omega_i (`Oracle.divisor`, m_i where all sites count the same), where tau is the gradient's norm at
which the solver stops. Proof: docs/proofs/pvp.md.

    fair        xi ~ N(0, (sigma s)^2 I), t Gaussian releases, exactly accounted
    published   xi of density proportional to exp(-zeta ||xi||), zeta = alpha / s', pure alpha = epsilon / t a round,
                with s' = (2 c1 / M_i + 2 tau) / (lam l2): the paper leaves out the penalty's curvature

Certain: noise is added to the argmin and the noisy model is sent. Not certain (we have not seen the paper's equations):
the exact centre and dual that it uses, and its constant zeta. The paper bounds one iteration, not a run; the total is
the sum over rounds. How a run's epsilon is dealt out to rounds is our choice: evenly.

Deviation: as we remember the paper, a node goes on with its own model without noise. Then its state is not a function
of what it sent, the bounds of single rounds do not compose, and the duals do not add up to zero. Here the noisy model
is used everywhere.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from sottovoce.algorithms.laplace import NORM_LAPLACE_NORMALS, norm_laplace
from sottovoce.algorithms.rival import TOLERANCE, Consensus, ConsensusRival, argmin, convexity, expect_argmin
from sottovoce.arrays import Array, Floats
from sottovoce.errors import expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle

PUBLISHED_TOLERANCE = 1e-4  # of the gradient's sensitivity; the noise grows by twice that part


@final
@dataclass(frozen=True, kw_only=True)
class PVP(ConsensusRival):
    """Primal variable perturbation: the local argmin plus noise."""

    covers_people: ClassVar[bool] = True

    def start(self, site: Oracle, runs: int) -> Consensus:
        """Zero models and duals. Refuses oracles without an argmin."""
        expect_argmin(site, lambda: 2 * self.rho * site.degree, self.tolerance(site))
        return super().start(site, runs)

    def release(self, k: int, state: Consensus, site: Oracle, noise: Noise) -> tuple[Array, Consensus]:
        """The local argmin plus noise."""
        s = state
        pull = self.pull(s, site, self.rho)
        w = argmin(site, pull, 2 * self.rho * site.degree, s.w, self.tolerance(site))
        if self.private:
            z = noise.normals(k, 0) if self.form == "fair" else norm_laplace(noise, k, 0)
            w = w + self.sigma(site) * self.model_sensitivity(site) * z
        return w, s._replace(w=w, total=s.total + w)

    @property
    def draws_per_round(self) -> int:
        """One normal vector, or what an l2-Laplace vector takes."""
        return 1 if self.form == "fair" else NORM_LAPLACE_NORMALS

    @property
    def released(self) -> str:
        """What leaves a site."""
        return f"in each of {self.rounds} rounds, the site's local optimum plus noise, sent to its neighbours"

    def model_sensitivity(self, site: Oracle) -> Floats:
        """How far replacing one unit moves the argmin, in l2, at most: (nodes, 1, 1). The published form counts only
        the regulariser's curvature.
        """
        mu = convexity(site, self.rho)
        if self.form == "published":
            own = site.lam * site.regulariser.l2
            expect(
                own > 0, "a strongly convex regulariser (lam > 0, with an l2 part) for the published PVP", lam=self.lam
            )
            mu = np.full_like(mu, own)
        return (site.sensitivity() + 2 * self.tolerance(site)) / mu

    def tolerance(self, site: Oracle) -> float:
        """tau, of the gradient's norm. It is larger with published noise, which makes models so large that rounding
        exceeds `TOLERANCE`; a little more noise pays for it.
        """
        loose = self.form == "published" and self.private
        return PUBLISHED_TOLERANCE * float(site.network.sensitivity().min()) if loose else TOLERANCE
