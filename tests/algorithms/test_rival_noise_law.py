"""The noise that a release really carries has the declared law; two thirds of it would be found out."""

import numpy as np
import pytest
from scipy import stats

import sottovoce as sv
from algorithms import harness
from helpers import every
from helpers.sums import opened
from sottovoce import algorithms as al
from sottovoce.noise.sources import SeededNoise, Shape

LEVEL = 1e-6  # of every test: a right law fails once in a million
RUNS, D = 400, 3
SIZES = (30, 90, 50)
OPTIONS = {"rounds": 2, "rho": 1.0, "lam": 0.5, "epsilon": 1.0}
PATH = sv.graphs.path(3)


def sites():
    rng = np.random.default_rng(0)
    a = [rng.normal(size=(m, D)) / 10 for m in SIZES]
    return sv.Sites(a, [rng.choice([-1.0, 1.0], size=m) for m in SIZES])


def first_noise(algorithm, factor=1.0):
    """What the first release carries, in units in which its law is standard: (node, coordinate, run)."""
    site = harness.oracle(algorithm, sites(), every.graph_for(algorithm, PATH))
    source = SeededNoise(3, Shape(3, D, RUNS))
    if algorithm.way.masked:
        # The first sum over all rows. Three sites, of which one may collude: two shares must be enough.
        first, rows = opened(algorithm, site, source, RUNS)[0], sum(SIZES)
        unit = algorithm.multipliers(site.n)[0] * first.question.sensitivity(site, rows) * np.sqrt(3 / 2)
        return factor * (first.value - first.question.of(site, rows)) / unit
    sent = algorithm.release(1, algorithm.start(site, RUNS), site, source)[0]
    g, s, sigma = site.gradient(site.zeros(1)), site.sensitivity(), algorithm.sigma(site)
    mu = site.lam + 2 * algorithm.rho * site.degree
    # Every noiseless release from zero is written out here, so that nothing is taken on trust but gradient and argmin.
    match algorithm:
        case al.PVP(form=form):
            exact = site.argmin(site.zeros(1), mu - site.lam, site.zeros(1), 1e-10)
            unit = sigma * s / (mu if form == "fair" else site.lam)
        case al.DVP() | al.MADMM() | al.RADMM():
            # Stationarity gives b back: b = -(grad L(w) + 2 rho |N_i| w).
            ridge = algorithm.ridge(1, site) if algorithm.form == "published" else 0.0
            exact, sent = 0.0, -(site.gradient(sent) + (mu - site.lam + ridge) * sent)
            unit = s * (sigma if algorithm.form == "fair" else 1 / algorithm.left(1, site))
        case al.DPADMM() | al.RyuKim():
            scale = 2 * algorithm.rho * site.degree + algorithm.eta(1, site)
            # Laplace noise is for the l1 sensitivity, sqrt(d) times the l2 one.
            root_d = np.sqrt(D) if algorithm.pure else 1.0
            exact, unit = -g / scale, sigma * s * root_d / scale
        case al.DPDSGD():
            exact, unit = -g / algorithm.eta(1, site), sigma * s / algorithm.eta(1, site)
        case al.FixedPoint():
            x = site.argmin(site.zeros(1), 0 * site.degree + 4.0, site.zeros(1), 1e-10)
            exact, unit = 2 * 0.5 * x, 2 * 0.5 * sigma * s / (4.0 + site.lam)
        case al.NoisyAveragedGD() | al.TrustedCurator():
            # The curator's share: sigma * 2 c1 / (n m_min) for the average of n messages.
            share = 1 / (min(SIZES) * np.sqrt(np.sum(1 / np.array(SIZES) ** 2)))
            share = share if isinstance(algorithm, al.TrustedCurator) else 1.0
            exact, unit = -g / algorithm.eta(1, site), share * sigma * s / algorithm.eta(1, site)
        case _:
            pytest.fail(f"write the noiseless first release of {type(algorithm).__name__} down here")
    return factor * (sent - exact) / unit


ALGORITHMS = every.algorithms(OPTIONS | {"local_steps": 1, "growth": 1.0}, every.is_private_but_ipadmm) | {
    "dvp, published, ridge": al.DVP(**{**OPTIONS, "rho": 1e-3, "lam": 1e-3}, form="published"),
}


def law_of(algorithm):
    """Normal, but where a published form is pure: then Laplace, over coordinates or over the length of a vector."""
    if not getattr(algorithm, "pure", False):
        return "normal"
    return "laplace" if isinstance(algorithm, al.RyuKim) else "radius"


def accepts(samples, law):
    if law == "normal":
        tail = stats.chi2.cdf(np.sum(samples**2), df=samples.size)
        return LEVEL < tail < 1 - LEVEL and stats.kstest(samples.ravel(), "norm").pvalue > LEVEL
    if law == "laplace":
        return stats.kstest(samples.ravel(), "laplace").pvalue > LEVEL
    return stats.kstest(np.linalg.norm(samples, axis=1).ravel(), stats.gamma(D).cdf).pvalue > LEVEL


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_release_carries_the_declared_noise_and_two_thirds_would_be_found_out(name):
    algorithm, law = ALGORITHMS[name], law_of(ALGORITHMS[name])
    assert accepts(first_noise(algorithm), law)
    assert not accepts(first_noise(algorithm, 2 / 3), law)


@pytest.mark.parametrize("form", ["fair", "published"])
def test_the_solvers_error_is_hidden(form):
    """A little noise lies on the argmin itself, though b is zero: the direction of b has no length here."""
    algorithm = al.DVP(**OPTIONS, form=form)
    site = harness.oracle(algorithm, sites(), PATH)
    z = np.random.default_rng(1).normal(size=(1, RUNS, 3, algorithm.draws_per_round, D))
    still = z.copy()
    still[:, :, :, 1 if form == "fair" else slice(4, 6)] = 0.0
    sent = [
        algorithm.release(1, algorithm.start(site, RUNS), site, harness.given(x, 3, D, RUNS))[0] for x in (z, still)
    ]
    o = sent[0] - sent[1]
    if form == "fair":
        assert stats.kstest((o / 1e-5).ravel(), "norm").pvalue > LEVEL
    else:
        mu = site.lam + 2 * algorithm.rho * site.degree
        scale = 2e-10 / (mu * 1e-3 * algorithm.share)
        # The two argmins agree to about 1e-12, far below the noise.
        assert stats.kstest(np.linalg.norm(o / scale, axis=1).ravel(), stats.gamma(D).cdf).pvalue > LEVEL
