"""Every algorithm, loss, regulariser and device that tests go through: one list of each, read off the library.

What gets a line in the registry, or a name among the losses, is then met by all tests that use these lists, without
an edit of any of them. Where a test must know something of an algorithm that only a person can write down (a closed
form, say), it goes through the list all the same, and fails for an algorithm that it does not know yet.
"""

from functools import cache

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import registry
from sottovoce.algorithms.rival import Rival
from sottovoce.errors import InputError
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.simulation.exchange import Local

# -- algorithms -------------------------------------------------------------------------------------------------------


def all_of_them(_line):
    return True


def algorithms(common, where=all_of_them, forms=("fair", "published")):
    """Every line of the registry in every form that it has, by name: "pvp", "pvp, published", ...

    Args:
        common: settings for all; who has no such field runs without it.
        where: which of them, by their line.
        forms: in which forms, where they have them.
    """
    return {
        name if form == "fair" else f"{name}, {form}": make(name, form, common)
        for name, line in registry.REGISTRY.items()
        for form in line.forms
        if form in forms and where(line)
    }


def make(name, form, common):
    """One line's algorithm in one of its forms, with these settings where it has such fields."""
    kind = registry.entry(name).kind
    known = {key: value for key, value in common.items() if key in kind.__dataclass_fields__}
    return registry.make(name, registry.settings_of(name, form, {}, known))


def is_private(line):
    return line.private


def is_rival(line):
    """Whether it is one of those that come in two honest forms, "fair" and "published"."""
    return issubclass(line.kind, Rival)


def is_private_but_ipadmm(line):
    """All that tests/statistical and tests/sensitivity, which are about IPADMM, do not go through."""
    return line.private and line.kind is not sv.IPADMM


def may_run_at_sites(line):
    return line.not_at_sites is None


def has_own_noise_at_sites(line):
    """Those that real sites run with noise of its own at every site; masked sums have tests of their own."""
    return may_run_at_sites(line) and not line.kind.way.masked


def kinds(where):
    """The classes of those lines."""
    return tuple(line.kind for line in registry.REGISTRY.values() if where(line))


def has_printed_gaussian_noise(algorithm):
    """Whether its Gaussian noise is that of a printed formula, which may be more than the accountant asks for."""
    if isinstance(algorithm, Rival):
        return algorithm.form == "published" and not algorithm.pure
    return algorithm.calibration == "paper"


@cache
def needs_complete_graph(kind):
    """Whether nodes must hear everyone: it then says so of a path of three."""
    algorithm, path = kind(rounds=2), sv.graphs.path(3)
    site = algorithm.oracle(sv.Sites([np.zeros((1, 1))] * 3, [np.ones(1)] * 3), path)
    try:
        algorithm.play(site, 1, Local(path.exchange), SeededNoise(0, Shape(3, 1, 1)))
    except InputError as error:
        if "a complete graph for" not in str(error):
            raise
        return True
    return False


def graph_for(algorithm, otherwise):
    """`otherwise`, or the complete graph of as many nodes for algorithms that need one."""
    return sv.graphs.complete(otherwise.n) if needs_complete_graph(type(algorithm)) else otherwise


# -- losses and regularisers ------------------------------------------------------------------------------------------

# One prediction a row, as their names alone make them.
LOSSES = [sv.losses.by_name(name) for name in sv.losses.NAMES]
# The same losses in other shapes, for tests whose formulas depend on the shape.
SHAPED = [
    sv.losses.SmoothedHinge(2.0),
    sv.losses.SmoothedHinge(0.3),
    sv.losses.Huber(0.3),
    sv.losses.Quantile(0.9),
    sv.losses.SmoothedQuantile(0.9),
    sv.losses.WeightedLogistic(20.0),
    sv.losses.WeightedLogistic(0.1),
    sv.losses.Poisson(2.0),
    sv.losses.Poisson(40.0),
]
SMOOTH = [loss for loss in LOSSES if loss.smoothness_bound is not None]
KINKED = [loss for loss in LOSSES if loss.smoothness_bound is None]
REGULARISERS = [sv.regularisers.by_name(name) for name in sv.regularisers.NAMES]

# -- devices ----------------------------------------------------------------------------------------------------------


def has_gpu():
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:
        return False


# Those that are held against the plain one. Where there is no GPU, tests/conftest.py leaves out what needs one.
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
