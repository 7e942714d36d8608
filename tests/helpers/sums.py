"""Analyses played by hand, sum by sum, so that a test can look at every question before its sum is opened."""

from dataclasses import fields, is_dataclass

import numpy as np

from sottovoce.errors import UnsupportedError
from sottovoce.noise.sources import Noise
from sottovoce.sums.opening import Curator, Opener, Shares


class Silent(Noise):
    """A source of noise that adds none, to whatever says that it has some."""

    def __init__(self, d, runs=1):
        self._zeros = np.zeros((1, d, runs))

    def normals(self, *_):
        return self._zeros

    def draws(self, *_):
        raise UnsupportedError("Expected all rows, got a batch: sums draw none.")


def begun(algorithm, site, runs=1):
    """The analysis before its first sum, as the sites of that network agree on it."""
    return algorithm.begin(site.n, site.sites.d, site.sites.data_norm, site.sites.unit, runs)


def curator(algorithm, site, noise=None, runs=1, counts=None):
    """Whoever opens its sums over the rows of `site`.

    Args:
        algorithm: the analysis.
        site: the rows.
        noise: without any, sums are exact, and still say how much noise there should be in them.
        runs: of the analysis.
        counts: numbers of rows of all sites; None: of those that are held here.
    """
    shares = Shares(algorithm.multipliers(site.n), algorithm.honest(site.n))
    counts = site.network.sites.counts.tolist() if counts is None else counts
    return Curator(shares, site, counts, Silent(site.d, runs) if noise is None else noise, runs)


def played(algorithm, site, sums):
    """The analysis after its first `sums` sums, without noise."""
    session, opener = begun(algorithm, site), curator(algorithm, site)
    for k in range(1, sums + 1):
        session.tell(opener.open(k, session.ask.question))
    return session


class _Kept(Opener):
    """A network of one process, which keeps all sums that are opened."""

    def __init__(self):
        self.sums = []

    def opener(self, *given):
        self._curator = Curator(*given)
        return self

    def open(self, k, question):
        self.sums.append(self._curator.open(k, question))
        return self.sums[-1]


def opened(algorithm, site, noise, runs=1):
    """All sums, as the simulator has them opened."""
    kept = _Kept()
    for _ in algorithm.play(site, runs, kept, noise):
        pass
    return kept.sums


def same_question(one, other):
    """True if two questions, or shapes, are of one kind with the same fields, bit by bit."""
    if type(one) is not type(other):
        return False
    for field in fields(one):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if is_dataclass(a):
            if not same_question(a, b):
                return False
        elif isinstance(a, np.ndarray):
            if (a.shape, a.dtype, a.tobytes()) != (b.shape, b.dtype, b.tobytes()):
                return False
        elif a != b:
            return False
    return True
