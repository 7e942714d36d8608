"""Exact means and variances of IPADMM on a quadratic risk, without sampling, in about a millisecond a setting.

Let every node have the risk (1/2) (w - w*)' H (w - w*) and a noisy gradient of variance v per coordinate, on a graph
whose nodes have `degree` neighbours. Along an eigenvector of H, of curvature h, the mean W over the nodes goes

    W <- (eta W - h (kappa W - w*) + p Wbar + xi) / (p + eta),      p = 2 rho degree,   Var xi = v / n,

where Wbar, the mean broadcast, is the average of the l values of W in the last round. Duals cancel in the mean.
Along an eigenvector of the graph's Laplacian, of eigenvalue mu > 0, the nodes' deviations from the mean go

    u <- ((eta - h') u + pull + xi) / (p + eta),  pull = 2 gamma + rho (2 degree - mu) ubar,
    gamma <- gamma - rho mu ubar / 2

with the variance v of one node. A few h' stand for all curvatures here. Directions weigh as much as rows point in them,
which is as h, since that is how deviations are felt. Both are linear, so first and second moments
obey closed recursions, which is all that this module does.

On a quadratic risk the mean never feels the deviations, and kappa is 1. On another one it does: a node takes its
gradient at a point that is off by tau, the root mean square deviation per coordinate, and a slope seen through that
blur is flatter. kappa(tau) is measured on the assumed problem (`surrogate`): the nodes drift to w* / kappa.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from sottovoce.arrays import Floats


class RunMoments(NamedTuple):
    """Means and variances of the models after the last round."""

    bias: Floats  # (modes,) mean of W - w* along every eigenvector of H
    variance: Floats  # (modes,) variance of the consensus along it
    spread: float  # variance of a node's broadcast about the consensus, per coordinate, directions weighed by h


class Blur(NamedTuple):
    """kappa at a rising grid of tau, beginning with tau = 0."""

    tau: Floats
    kappa: Floats


# Where the curvatures are cut, by the share of the rows' squared length that lies below.
SLICES = np.array([0.03, 0.1, 0.25, 0.5])
NO_BLUR = Blur(np.array([0.0, 1.0]), np.array([1.0, 1.0]))


def moments(
    *,
    curvatures: Floats,
    size: Floats,
    optimum: Floats,
    laplacian: Floats,
    multiplicity: Floats,
    degree: float,
    nodes: int,
    rounds: int,
    local_steps: int,
    rho: float,
    eta: Floats,
    variance: float,
    blur: Blur = NO_BLUR,
) -> RunMoments:
    """Means and variances of the models after the last round, by the recursions above.

    Args:
        curvatures: eigenvalues of H.
        size: how many eigenvectors each stands for; 0 for one that is only watched.
        optimum: w* in its eigenvectors.
        laplacian: the graph's Laplacian eigenvalues above 0.
        multiplicity: how often each occurs.
        degree: of a node; the mean where nodes differ.
        nodes: number of nodes, n.
        rounds: number of rounds, t.
        local_steps: steps of a round, l.
        rho: the penalty.
        eta: eta^{k,r} for all t l steps, in order.
        variance: of the noise on one coordinate of a node's gradient, v.
        blur: how deviations flatten the slope.
    """
    h_felt, felt = _felt(curvatures * size, curvatures)
    found = _run(
        curvatures, h_felt, felt, optimum, laplacian, multiplicity / nodes, float(degree), nodes, rounds, local_steps,
        rho, eta, variance, blur.tau, blur.kappa,
    )  # fmt: skip
    return RunMoments(*found)


def _felt(energy: Floats, curvatures: Floats) -> tuple[Floats, Floats]:
    """A few curvatures that stand for all, and the share of the rows' squared length that each stands for."""
    order = np.argsort(curvatures)
    energy, curvatures = energy[order], curvatures[order]
    total = float(energy.sum())
    if total <= 0:
        return np.zeros(1), np.ones(1)
    middle = (np.cumsum(energy) - energy / 2) / total
    group = np.searchsorted(SLICES, middle)
    weight = np.bincount(group, weights=energy, minlength=len(SLICES) + 1)
    mean = np.bincount(group, weights=energy * curvatures, minlength=len(SLICES) + 1)
    there = weight > 0
    return mean[there] / weight[there], weight[there] / total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _run(
    h: Any, h_felt: Any, felt: Any, w_star: Any, mu: Any, share: Any, degree: float, n: int, rounds: int, l: int,
    rho: float, eta: Any, v: float, blur_tau: Any, blur_kappa: Any,
) -> Any:  # fmt: skip
    p = 2 * rho * degree
    modes = len(h)
    # The consensus: mean and covariance of (W, Wbar), one row of `c` per mode: mW, mB, VW, VB, CWB.
    c = np.zeros((modes, 5))
    # Deviations: covariance of (u, ubar, gamma), for every h' one row of `g` per eigenvalue: Vu, Vb, Vg, Cub, Cug, Cbg.
    g = np.zeros((len(felt), len(mu), 6))
    for k in range(rounds):
        steps = eta[k * l : (k + 1) * l]
        tau2 = 0.0
        for j in range(len(felt)):
            tau2 += felt[j] * _deviate(g[j], mu, share, rho, degree, p, h_felt[j], steps, v)
        kappa = np.interp(np.sqrt(tau2), blur_tau, blur_kappa)
        for i in range(modes):
            _advance(c, i, kappa * h[i], h[i] * w_star[i], p, steps, v / n)
    spread = 0.0
    for j in range(len(felt)):
        spread += felt[j] * np.sum(g[j, :, 1] * share)
    return c[:, 1] - w_star, c[:, 3].copy(), spread


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _advance(c: Any, i: int, h: float, force: float, p: float, steps: Any, v: float) -> None:
    """One round of the mean along one eigenvector."""
    m, mb, vw, vb, cwb = c[i, 0], c[i, 1], c[i, 2], c[i, 3], c[i, 4]
    total, vs, cws, csb = 0.0, 0.0, 0.0, 0.0  # S, the sum of the round's values of W
    for r in range(len(steps)):
        b = 1.0 / (p + steps[r])
        a, q = (steps[r] - h) * b, p * b
        m = a * m + q * mb + b * force
        cov_s = a * cws + q * csb  # of the new W with the old S
        vw = a * a * vw + 2 * a * q * cwb + q * q * vb + b * b * v
        cwb = a * cwb + q * vb
        vs += 2 * cov_s + vw
        cws = cov_s + vw
        csb += cwb
        total += m
    l = len(steps)
    c[i, 0], c[i, 1], c[i, 2], c[i, 3], c[i, 4] = m, total / l, vw, vs / (l * l), cws / l


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _deviate(g: Any, mu: Any, share: Any, rho: float, degree: float, p: float, h: float, steps: Any, v: float) -> float:
    """One round of the deviations. Returns the mean square deviation of the points where gradients were taken."""
    l = len(steps)
    # u after r steps is a u0 + b pull + noise; the broadcast is ca u0 + cb pull + noise.
    a, b, nu, nus, ns = 1.0, 0.0, 0.0, 0.0, 0.0
    ca, cb = 0.0, 0.0
    aa, ab, bb, noise = 0.0, 0.0, 0.0, 0.0
    for r in range(l):
        aa, ab, bb, noise = aa + a * a, ab + a * b, bb + b * b, noise + nu
        step = 1.0 / (p + steps[r])
        keep = (steps[r] - h) * step
        a, b = keep * a, keep * b + step
        nus = keep * nus
        nu = keep * keep * nu + step * step * v
        ns += 2 * nus + nu
        nus += nu
        ca, cb = ca + a, cb + b
    ca, cb, nus, ns = ca / l, cb / l, nus / l, ns / (l * l)
    tau2 = 0.0
    for j in range(len(mu)):
        vu, vb, vg, cub, cug, cbg = g[j, 0], g[j, 1], g[j, 2], g[j, 3], g[j, 4], g[j, 5]
        e = rho * (2 * degree - mu[j])
        vq = 4 * vg + 4 * e * cbg + e * e * vb
        cuq = 2 * cug + e * cub
        cgq = 2 * vg + e * cbg
        tau2 += share[j] * (aa * vu + 2 * ab * cuq + bb * vq + noise) / l
        new_vu = a * a * vu + 2 * a * b * cuq + b * b * vq + nu
        new_vb = ca * ca * vu + 2 * ca * cb * cuq + cb * cb * vq + ns
        new_cub = a * ca * vu + (a * cb + b * ca) * cuq + b * cb * vq + nus
        ug, bg = a * cug + b * cgq, ca * cug + cb * cgq  # with the old gamma
        f = rho * mu[j] / 2
        g[j, 0], g[j, 1], g[j, 3] = new_vu, new_vb, new_cub
        g[j, 2] = vg - 2 * f * bg + f * f * new_vb
        g[j, 4], g[j, 5] = ug - f * new_cub, bg - f * new_vb
    return tau2
