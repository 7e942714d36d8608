"""What DVP, M-ADMM and R-ADMM share: a random linear term in the local argmin, and how it is paid for.

    w = argmin_w [ L_i(w) - <pull, w> + <b, w> + (curvature_i + Phi_i) / 2 ||w||^2 ] + o,    gradient of norm <= tau

b is the noise that privacy rests on, o hides what is left of the solver's error. With s = 2 c1 / M_i, M_i = m_i / (n
omega_i) what the sum over a node's rows is divided by, mu_i = lam l2 + curvature_i + Phi_i and kappa_i = c / (M_i
mu_i), c the bound on a record's curvature in w,

    fair        b ~ N(0, (sigma s)^2 I), o ~ N(0, sigma_o^2 I). The events are `GaussianObjective(sigma, kappa)` and
                `Gaussian(sigma_o mu / (2 tau))`
    published   b, o of l2-Laplace law: ||b|| has rate a_i / s, where a_i = (1 - h) alpha - J_i is what the Jacobian
                leaves of a step's pure alpha, and ||o|| has rate h alpha mu_i / (2 tau). J_i is the paper's price of
                the Jacobian

One common sigma serves all nodes: it is set for the largest kappa and the smallest mu among them. Proofs are in
docs/proofs/dvp.md.
"""

import math
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sottovoce.algorithms.base import NOTHING
from sottovoce.algorithms.laplace import NORM_LAPLACE_NORMALS, norm_laplace
from sottovoce.algorithms.rival import TOLERANCE, Consensus, ConsensusRival, argmin, convexity, expect_argmin
from sottovoce.arrays import Array, Floats
from sottovoce.errors import PrivacyError, UnsupportedError
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import Event, Gaussian, GaussianObjective, PureRelease, Repeated, Sequence, noise_for
from sottovoce.problem.losses import expect_one_output
from sottovoce.problem.sites import NORM_SLACK

OUTPUT_STD = 1e-5  # sigma_o, of the Gaussian that hides the solver's error; far below the noise of any release
OUTPUT_SHARE = 1e-3  # h, the part of a pure epsilon that hides it in the published form


class Place(NamedTuple):
    """The public numbers of a node that a step's price depends on."""

    divisor: float  # M_i
    degree: int


class StepNodes(NamedTuple):
    """The public numbers of all nodes that a step's price depends on."""

    places: tuple[Place, ...]  # each kind once
    own: float  # lam l2, the regulariser's curvature
    c: float  # bound on a record's curvature in w


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(ConsensusRival):
    """A rival whose noise is a random linear term."""

    @property
    def rows_only(self) -> str | None:
        """Why it protects single rows only: the proof bounds the Jacobian by the curvature of one record."""
        return "its noise in the objective is priced by the curvature that one row brings"

    def penalty(self, k: int) -> float:  # noqa: ARG002
        """The penalty of round k."""
        return self.rho

    def looks_at_rows(self, k: int) -> bool:  # noqa: ARG002
        """True if round k computes anything from rows."""
        return True

    def private_rounds(self, k: int) -> tuple[int, ...]:
        """Which of the first k rounds look at rows."""
        return tuple(q for q in range(1, k + 1) if self.looks_at_rows(q))

    @property
    def private_steps(self) -> int:
        """Number of rounds that look at rows."""
        return len(self.private_rounds(self.rounds))

    @property
    def draws_per_round(self) -> int:
        """Normal vectors for b and for o."""
        return 2 if self.form == "fair" else 2 * NORM_LAPLACE_NORMALS

    def start(self, site: Oracle, runs: int) -> Consensus:
        """Zero models and duals. Refuses oracles without an argmin."""
        expect_argmin(site, lambda: self.curvature(1, site), TOLERANCE)
        return super().start(site, runs)

    def curvature(self, k: int, site: Oracle) -> Array:
        """Curvature that the private step of round k adds to the local problem: (nodes, 1, 1)."""
        published = self.private and self.form == "published"
        own: Array = 2 * self.penalty(k) * site.degree
        return own + self.ridge(k, site) if published else own

    def perturbed(self, k: int, state: Consensus, site: Oracle, noise: Noise) -> Array:
        """The noisy model of the private step of round k."""
        pull, curvature = self.pull(state, site, self.penalty(k)), self.curvature(k, site)
        if not self.private:
            return argmin(site, pull, curvature, state.w, TOLERANCE)
        if self.form == "fair":
            b = self.sigma(site) * site.sensitivity() * noise.normals(k, 0)
            o = OUTPUT_STD * noise.normals(k, 1)
        else:
            mu = site.lam * site.regulariser.l2 + curvature
            b = site.sensitivity() / self.left(k, site) * norm_laplace(noise, k, 0)
            o = 2 * TOLERANCE / (mu * OUTPUT_SHARE * self.share) * norm_laplace(noise, k, NORM_LAPLACE_NORMALS)
        return argmin(site, pull - b, curvature, state.w, TOLERANCE) + o

    # -- fair: one sigma, by the accountant ---------------------------------------------------------------------------

    def step(self, rho: float, sigma: float, network: StepNodes) -> Event:
        """What a private step with penalty rho costs the worst-placed node."""
        mus = [network.own + 2 * rho * place.degree for place in network.places]
        kappas = [network.c / (place.divisor * mu) for place, mu in zip(network.places, mus, strict=True)]
        hidden = Gaussian(OUTPUT_STD * min(mus) / (2 * TOLERANCE))
        return Sequence((GaussianObjective(sigma, max(kappas)), hidden))

    def run(self, k: int, sigma: float, network: StepNodes) -> Event:
        """What k rounds cost, steps of one kind together."""
        penalties = Counter(self.penalty(q) for q in self.private_rounds(k))
        parts = tuple(Repeated(self.step(rho, sigma, network), times) for rho, times in penalties.items())
        return parts[0] if len(parts) == 1 else Sequence(parts)

    # -- published: pure epsilons, node by node -----------------------------------------------------------------------

    @abstractmethod
    def jacobian(self, k: int, site: Oracle) -> Floats:
        """J_i, the paper's price of the Jacobian in round k: (nodes, 1, 1)."""

    def ridge(self, k: int, site: Oracle) -> Floats:  # noqa: ARG002
        """Phi_i, curvature that the paper adds where the Jacobian would cost too much: (nodes, 1, 1)."""
        return np.zeros_like(site.m)

    def left(self, k: int, site: Oracle) -> Floats:
        """a_i, what is left of a step's pure epsilon for the noise b: (nodes, 1, 1)."""
        left = (1 - OUTPUT_SHARE) * self.share - self.jacobian(k, site)
        if left.min() <= 0:
            raise PrivacyError(
                f"Expected a pure epsilon per private step above the Jacobian's {self.jacobian(k, site).max():.3g}, "
                f"got {self.share:.3g} (epsilon={self.epsilon:g} over {self.private_steps} steps). More noise does "
                "not help: take a larger rho or epsilon, fewer rounds, or form='fair'."
            )
        return left

    def kappa(self, k: int, site: Oracle) -> Floats:
        """kappa_i, without any ridge: (nodes, 1, 1)."""
        return curvature_bound(site) / (site.divisor * convexity(site, self.penalty(k)))

    # -- both ---------------------------------------------------------------------------------------------------------

    def sigma(self, site: Oracle) -> float:
        """Standard deviation of b, or the largest scale of its l2-Laplace law, over the gradient's sensitivity."""
        if not self.private:
            return 0.0
        if self.form == "published":
            return max(float(1 / self.left(k, site.network).min()) for k in self.private_rounds(self.rounds))
        return _calibrated(self, network_of(site))

    def price(self, k: int, site: Oracle) -> Event:
        """The private step of round k, if it takes one."""
        if not self.looks_at_rows(k):
            return NOTHING
        if self.form == "fair":
            return self.step(self.penalty(k), self.sigma(site), network_of(site))
        self.left(k, site)  # what cannot be paid for is refused
        return PureRelease(self.share)


@lru_cache(maxsize=64)
def _calibrated(algorithm: ObjectivePerturbation, network: StepNodes) -> float:
    return noise_for(lambda sigma: algorithm.run(algorithm.rounds, sigma, network), algorithm.epsilon, algorithm.delta)


def network_of(site: Oracle) -> StepNodes:
    """The public numbers that a step's price depends on."""
    site = site.network
    pairs = np.unique(np.stack([site.divisor[:, 0, 0], site.degrees]), axis=1)
    places = tuple(Place(float(divisor), int(degree)) for divisor, degree in pairs.T)
    return StepNodes(places, site.lam * site.regulariser.l2, curvature_bound(site))


def curvature_bound(site: Oracle) -> float:
    """c: no record's Hessian in w is larger. It must have rank one, which is what the proof needs."""
    expect_one_output(site.loss, "Objective perturbation")
    c = site.loss.smoothness(site.sites.data_norm)
    if c is None or not math.isfinite(c):
        raise UnsupportedError(
            f"Objective perturbation needs a bound on every record's curvature, which loss={site.loss.name!r} with "
            f"data_norm={site.sites.data_norm:g} does not have. PVP and IPADMM need none."
        )
    if site.regulariser.curvature is None:
        raise UnsupportedError(
            f"Objective perturbation needs a smooth regulariser, which {site.regulariser.name!r} is not. PVP and "
            "IPADMM need none."
        )
    return c * (1 + NORM_SLACK) ** 2
