"""The operating system's normals: of their law, and never the same twice, whoever they are for."""

import numpy as np
import pytest
from scipy import stats

import sottovoce as sv
from helpers.laws import NEVER, assert_standard
from sottovoce.noise.sources import Shape, SystemNoise
from sottovoce.sums.opening import Curator

DRAWS = [(k, r) for k in (1, 2, 3, 4) for r in (0, 1, 2)]


@pytest.mark.parametrize("asked", ["normals", "shared"])
def test_every_exchange_and_every_part_of_it_has_normals_of_its_own(asked):
    """Where one draw serves two exchanges, their difference has no noise at all."""
    source = SystemNoise(Shape(3, 5, 200))
    drawn = np.stack([getattr(source, asked)(k, r) for k, r in DRAWS])
    assert drawn.shape == (12, 3 if asked == "normals" else 1, 5, 200)
    assert len(np.unique(drawn)) == drawn.size
    assert_standard(drawn)
    assert stats.kstest(drawn.ravel(), "norm").pvalue > NEVER
    lines = drawn.reshape(12, -1)
    for i in range(12):
        for other in lines[:i]:
            assert_standard((lines[i] - other) / np.sqrt(2))


def test_sums_of_a_run_on_private_rows_have_noise_of_their_own(monkeypatch):
    """The way of estimators: all sums of one run as they are opened, less what they are without noise."""
    opened, found = Curator.open, []
    algorithm = sv.MaskedNewton(rounds=12, inference=True, evaluate=0.2)

    def spy(self, k, question):
        told = opened(self, k, question)
        unit = algorithm.multipliers(1)[k - 1] * question.sensitivity(self.site, 20)
        found.append(((told.value - question.of(self.site, 20)) / unit).ravel())
        return told

    monkeypatch.setattr(Curator, "open", spy)
    sv.simulate(algorithm, sv.Sites([np.eye(20)], [np.ones(20)], private=True), sv.graphs.complete(1))
    drawn = np.concatenate(found)
    assert len(found) == 12
    assert_standard(drawn)
    assert len(np.unique(np.round(drawn, 9))) == drawn.size
