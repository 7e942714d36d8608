import numpy as np
import pytest

from sottovoce import IPADMM

# Small and quick, with steps that suit rows of norm 1. `plain` needs no compiler.
QUICK = {"algorithm": IPADMM(rounds=20, local_steps=5, rho=1e-2, diameter=30.0), "device": "plain"}


@pytest.fixture
def quick():
    return dict(QUICK)


@pytest.fixture
def two():
    """Two classes, "no" and "yes", from one noisy linear model with an intercept."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 4)) * [1.0, 2.0, 0.5, 1.0]
    z = X @ [1.5, -1.0, 2.0, 0.0] + 0.8 + rng.logistic(size=len(X))
    return X, np.where(z > 0, "yes", "no")


@pytest.fixture
def three():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 3))
    z = X @ rng.normal(size=(3, 3)) * 2 + [0.5, 0.0, -0.5] + rng.gumbel(size=(400, 3))
    return X, z.argmax(axis=1) * 10


@pytest.fixture
def numbers():
    """Labels around 50, between 0 and 100, some of them far off."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 3))
    y = 50 + X @ [6.0, -4.0, 2.0] + rng.normal(size=300)
    y[:10] = 95.0
    return X, np.clip(y, 0.0, 100.0)
