"""What the rivals' tests share: noise as an array, and the exact privacy loss of a transcript."""

import math

import numpy as np

import sottovoce as sv
from helpers import every
from sottovoce import algorithms as al
from sottovoce.algorithms.laplace import norm_laplace
from sottovoce.algorithms.objective import ObjectivePerturbation
from sottovoce.noise.sources import GivenNoise, SeededNoise, Shape
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.plain import Oracle

FEW = 20  # runs that are replayed in full
OBJECTIVE = every.kinds(lambda line: issubclass(line.kind, ObjectivePerturbation))


def given(array, nodes, d, runs):
    """A noise source: round k -> array[k - 1], (runs, nodes, steps, d)."""
    return GivenNoise(lambda k: array[k - 1], SeededNoise(0, Shape(nodes, d, runs)))


def quiet(algorithm, runs, nodes, d):
    """Noise that hides nothing: no Gaussian output noise, and a Laplace radius of zero (with some direction)."""
    array = np.zeros((algorithm.rounds, runs, nodes, algorithm.draws_per_round, d))
    if algorithm.form == "published" and isinstance(algorithm, (*OBJECTIVE, al.PVP)):
        array[..., 0::3, :] = 1.0
    return array


def oracle(algorithm, sites, graph):
    """Compiled where thousands of argmins are to be found; gradients are quick as they are."""
    solves = isinstance(algorithm, (*OBJECTIVE, al.PVP, al.FixedPoint))
    return algorithm.oracle(sites, graph, CompiledOracle if solves else Oracle)


def log_det(site, w, mu, node=0):
    """log det(Hessian of the mean loss + mu I) at node 0's models w (d, runs): (runs,)."""
    first, last = site.sites.rows.offsets[node : node + 2]
    a, b = site.sites.rows.block(int(first), int(last)), site.sites.labels[first:last]
    factors = site.sites.factors[first:last]
    curvature = factors.weighed(site.loss.curvature(factors.shifted(a @ w), b[:, None], site.loss.theta))
    hessians = np.einsum("jd,jq,je->qde", a, curvature, a) / len(b)
    return np.linalg.slogdet(hessians + mu * np.eye(a.shape[1]))[1]


class Transcript:
    """Runs of an algorithm on rows `ours`, and what the same messages would have taken on rows `theirs`.

    The two differ in node 0 only. `loss` is ln(p_ours / p_theirs) of everything sent, exactly, by change of variables.
    Along the way it is checked that the state is a function of what was sent.
    """

    def __init__(self, algorithm, ours, theirs, graph, runs, seed):
        self.algorithm, self.graph, self.runs = algorithm, graph, runs
        self.site, self.other = oracle(algorithm, ours, graph), oracle(algorithm, theirs, graph)
        self.n, self.d = ours.n, ours.d
        self.noise = quiet(algorithm, runs, self.n, self.d)
        self.drawn = 3 if self._norm_laplace else algorithm.draws_per_round
        if isinstance(algorithm, OBJECTIVE):
            self.drawn = 1 if algorithm.form == "fair" else 3
        rng = np.random.default_rng(seed)
        self.noise[..., : self.drawn, :] = rng.normal(size=(*self.noise.shape[:3], self.drawn, self.d))
        self.loss = np.zeros(runs)
        self._play()

    @property
    def _norm_laplace(self):
        return self.algorithm.form == "published" and isinstance(self.algorithm, (*OBJECTIVE, al.PVP))

    def source(self, array):
        return given(array, self.n, self.d, self.runs)

    def _play(self):
        state = self.algorithm.start(self.site, self.runs)
        for k in range(1, self.algorithm.rounds + 1):
            message, after = self.algorithm.release(k, state, self.site, self.source(self.noise))
            self._account(k, state, message, after)
            state = self.algorithm.absorb(k, after, self.site, self.graph.exchange(message))

    def _account(self, k, state, message, after):
        if isinstance(self.algorithm, al.RADMM) and k % 2 == 0:
            again, _ = self.algorithm.release(k, state, self.other, self.source(self.noise))
            assert np.array_equal(again, message)  # no row is looked at
        elif isinstance(self.algorithm, OBJECTIVE):
            self._account_objective(k, state, message, after)
        else:
            self._account_additive(k, state, message, after)

    def _replay(self, k, state, z, message, after):
        """The found normals really give the same message on the other rows, and the same state: a few runs of many."""
        state, after = (type(state)(*(x[:, :, :FEW] for x in arrays)) for arrays in (state, after))
        array = self.noise[:, :FEW].copy()
        array[k - 1, :, 0, 0, :] = z[:, :FEW].T
        again, then = self.algorithm.release(k, state, self.other, given(array, self.n, self.d, FEW))
        message = message[:, :, :FEW]
        np.testing.assert_allclose(again, message, atol=1e-7 * (1 + np.abs(message).max()))
        for ours, theirs in zip(after, then, strict=True):
            np.testing.assert_allclose(theirs, ours, atol=1e-7 * (1 + np.abs(ours).max()))

    def _account_additive(self, k, state, message, after):
        """message = mean(rows) + unit * noise at node 0, with the unit read off the release itself."""
        still = quiet(self.algorithm, self.runs, self.n, self.d)
        other = self.algorithm.release(k, state, self.other, self.source(still))[0][0]
        if self.algorithm.form == "published":
            mean = self.algorithm.release(k, state, self.site, self.source(still))[0][0]
            unit, norm = self._published_unit(k)
            self.loss += norm((message[0] - other) / unit) - norm((message[0] - mean) / unit)
            return
        # Where noise follows the model, every run has its own unit; elsewhere one run says what it is.
        runs = self.runs if getattr(self.algorithm, "tight", False) else 1
        first = type(state)(*(x[:, :, :runs] for x in state))
        mean, moved = (
            self.algorithm.release(k, first, self.site, given(array[:, :runs], self.n, self.d, runs))[0][0]
            for array in (still, still + 1.0)
        )
        unit, z = moved - mean, self.noise[k - 1, :, 0, 0, :].T
        np.testing.assert_allclose(message[0, :, :runs], mean + unit * z[:, :runs], atol=1e-8)
        z_other = (message[0] - other) / unit
        self.loss += np.sum(z_other**2 - z**2, axis=0) / 2
        self._replay(k, state, z_other, message, after)

    def _published_unit(self, k):
        algorithm, site = self.algorithm, self.site
        if isinstance(algorithm, al.PVP):
            unit = algorithm.sigma(site) * algorithm.model_sensitivity(site)[0, 0, 0]
            return unit, lambda x: np.linalg.norm(x, axis=0)
        assert isinstance(algorithm, al.RyuKim)
        eta = algorithm.eta(k * algorithm.local_steps, site)[0, 0, 0]
        scale = algorithm.sigma(site) * math.sqrt(site.d) * site.sensitivity()[0, 0, 0]
        unit = scale / (2 * algorithm.rho * site.degree[0, 0, 0] + eta)
        return unit, lambda x: np.abs(x).sum(axis=0)

    def _account_objective(self, k, state, message, after):
        """grad L(w) + b is the same for both rows; b -> w has the Hessian as its inverse Jacobian."""
        algorithm, site = self.algorithm, self.site
        moved = (site.gradient(message) - self.other.gradient(message))[0]
        mu = site.lam * site.regulariser.l2 + 2 * algorithm.penalty(k) * site.degree[0, 0, 0]
        if algorithm.form == "fair":
            unit = algorithm.sigma(site) * site.sensitivity()[0, 0, 0]
            z = self.noise[k - 1, :, 0, 0, :].T
            self.loss += np.sum((z + moved / unit) ** 2 - z**2, axis=0) / 2
            self._replay(k, state, z + moved / unit, message, after)
        else:
            mu = mu + algorithm.ridge(k, site)[0, 0, 0]
            unit = site.sensitivity()[0, 0, 0] / algorithm.left(k, site)[0, 0, 0]
            x = norm_laplace(self.source(self.noise), k, 0)[0]
            self.loss += np.linalg.norm(x + moved / unit, axis=0) - np.linalg.norm(x, axis=0)
        self.loss += log_det(site, message[0], mu) - log_det(self.other, message[0], mu)


def hockey_stick(loss, epsilon):
    """A lower bound on delta(epsilon), five standard errors below the mean; the mean itself is unbiased."""
    terms = np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0.0)))
    return terms.mean() - 5 * terms.std() / math.sqrt(len(terms))


def sites_of(*rows_and_labels, data_norm=1.0):
    features, labels = zip(*rows_and_labels, strict=True)
    return sv.Sites(list(features), list(labels), data_norm=data_norm)
