"""Non-private decentralised ADMM with the exact local argmin (Forero, Cano & Giannakis 2010).

    w_i^k     = argmin_w  L_i(w) - 2 <gamma_i^{k-1}, w> + rho sum_{j in N_i} || w - (w_i^{k-1} + w_j^{k-1}) / 2 ||^2
    gamma_i^k = gamma_i^{k-1} - (rho / 2) sum_{j in N_i} (w_i^k - w_j^k)

It is the baseline that IPADMM comes from. It is not private: its statement says so and its cost is infinite.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

from sottovoce.algorithms.base import Algorithm, Outputs
from sottovoce.arrays import Array
from sottovoce.errors import expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import Event, NonPrivate, PrivacyStatement
from sottovoce.privacy.observers import RELAY, Observer
from sottovoce.problem.graphs import Inbox


class ADMMState(NamedTuple):
    """What the next round needs."""

    w: Array  # (nodes, d, runs) last model, w^k
    gamma: Array  # (nodes, d, runs) dual
    heard: Array  # (nodes, d, runs) sum of the neighbours' last models
    total: Array  # (nodes, d, runs) sum of the models so far


@final
@dataclass(frozen=True, kw_only=True)
class ADMM(Algorithm[ADMMState]):
    """Non-private decentralised ADMM.

    Args:
        tolerance: norm of the gradient at which a local argmin counts as exact.
    """

    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(0 < self.tolerance < 1, "0 < tolerance < 1", tolerance=self.tolerance)

    def start(self, site: Oracle, runs: int) -> ADMMState:
        """Zero models and duals."""
        return ADMMState(*(site.zeros(runs) for _ in ADMMState._fields))

    def release(self, k: int, state: ADMMState, site: Oracle, noise: Noise) -> tuple[Array, ADMMState]:  # noqa: ARG002
        """The exact local argmin; the message is the model itself."""
        s = state
        pull = 2 * s.gamma + self.rho * (s.heard + site.degree * s.w)
        w = site.argmin(pull, 2 * self.rho * site.degree, start=s.w, tolerance=self.tolerance)
        return w, s._replace(w=w, total=s.total + w)

    def absorb(self, k: int, state: ADMMState, site: Oracle, inbox: Inbox) -> ADMMState:  # noqa: ARG002
        """The dual step, with the sum of the neighbours' models."""
        s, heard = state, inbox.neighbours()
        return s._replace(heard=heard, gamma=s.gamma - self.rho / 2 * (site.degree * s.w - heard))

    def outputs(self, k: int, state: ADMMState) -> Outputs:
        """The average of all models so far, and the last."""
        return Outputs(average=state.total / k, last=state.w)

    @property
    def rows_only(self) -> str | None:
        """None: without a guarantee there is no unit to refuse."""
        return None

    @property
    def draws_per_round(self) -> int:
        """0: it draws no noise."""
        return 0

    def cost(self, k: int, site: Oracle, observer: Observer = RELAY) -> Event:  # noqa: ARG002
        """A release without noise, of infinite cost."""
        return NonPrivate()

    def spent(self, k: int, site: Oracle, runs: int = 1) -> float:  # noqa: ARG002
        """Infinite after any round."""
        return math.inf

    def statement(self, site: Oracle) -> PrivacyStatement:  # noqa: ARG002
        """A statement with an infinite epsilon."""
        return PrivacyStatement(
            event=NonPrivate(),
            epsilon=math.inf,
            target_epsilon=math.inf,
            delta=0.0,
            calibration=None,
            sigma=None,
            released=f"in each of {self.rounds} rounds, the site's exact model, sent to its neighbours",
        )
