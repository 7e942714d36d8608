"""What the rivals share: two honest forms, public numbers of the nodes, and the consensus part of decentralised ADMM.

Every rival exists in two forms.

    "fair"       the same total (epsilon, delta) as everyone else, by the best accountant we know for its mechanism
    "published"  the noise law of its paper and the total that its paper's proof gives; refused where there is none

Most of the gap between published rivals is accounting, so a comparison should show both.

The papers were not at hand in full. Each rival's file says what of its definition is certain, and what we chose.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from sottovoce.algorithms.base import Outputs, PrivateAlgorithm, State
from sottovoce.arrays import Array, Floats
from sottovoce.errors import InputError, SottovoceError, UnsupportedError, expect
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import (
    Event,
    Gaussian,
    NonPrivate,
    PrivacyStatement,
    PureRelease,
    Repeated,
    epsilon,
    pure_epsilon,
    sigma_for,
)
from sottovoce.privacy.observers import RELAY, Observer, Sight
from sottovoce.problem.graphs import Inbox

Form: TypeAlias = Literal["fair", "published"]
FORMS: tuple[Form, ...] = get_args(Form)

# Norm of the gradient at which a local argmin counts as solved. What is left of the error is paid for: see
# docs/proofs/dvp.md, "Inexact argmin".
TOLERANCE = 1e-10
# What rounding leaves of a gradient that should be 0, over the terms that it is summed from; and, where there are
# kinks, over the norm of rows: what `ArgminSolver.solve` says, with some room.
ROUNDED, KINK = 4e-15, 1e-13
# A sum of pure epsilons may miss its target by rounding: stay this much below.
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Rival(PrivateAlgorithm[State]):
    """A private algorithm in one of two forms.

    Args:
        form: "fair" or "published", see the module.
        calibration: must stay "exact"; the form decides how noise is set.
    """

    form: Form = "fair"

    # Why there is no published form, for those that have none.
    unpublished: ClassVar[str | None] = None
    # True if every message is private by itself, whoever sees it.
    local_noise: ClassVar[bool] = True
    # True if its noise follows `Oracle.sensitivity`, which counts all rows of a person, and its sigma `seen_steps`.
    covers_people: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.form in FORMS, f"form in {FORMS}", form=self.form)
        expect(
            self.calibration == "exact",
            "calibration='exact' (a rival's noise is set by its form)",
            calibration=self.calibration,
        )
        if self.form == "published" and self.unpublished is not None:
            raise UnsupportedError(f"Expected form='fair' for {type(self).__name__}: {self.unpublished}")

    @property
    def private(self) -> bool:
        """True if noise is added."""
        return math.isfinite(self.epsilon)

    @property
    def pure(self) -> bool:
        """True if the total is a sum of pure epsilons, with delta = 0."""
        return self.form == "published"

    @property
    def private_steps(self) -> int:
        """Number of private steps of a run."""
        return self.rounds

    @property
    def rows_only(self) -> str | None:
        """Why it protects single rows only: published forms follow papers that protect rows; of fair ones, those
        without `covers_people`.
        """
        if self.form == "published":
            return "its published noise is for single rows (form='published')"
        return None if self.covers_people else super().rows_only

    def seen_steps(self, site: Oracle) -> int:
        """Number of private steps of a run that hold rows of one unit: of a person, steps of every site that they may
        be at. If only an average over sites is seen, one release holds all of them.
        """
        return self.private_steps * (site.sites_per_unit if self.local_noise else 1)

    @property
    def share(self) -> float:
        """The pure epsilon of one private step, where the total is their sum."""
        return self.epsilon / self.private_steps * (1 - ROUNDING)

    def sigma(self, site: Oracle) -> float:
        """Noise multiplier of every private step. Of Gaussian noise, over the l2 sensitivity; where the total is a sum
        of pure epsilons, the scale of the law of the noise over the sensitivity. 0 without noise.
        """
        if not self.private:
            return 0.0
        return 1 / self.share if self.pure else sigma_for(self.epsilon, self.delta, self.seen_steps(site))

    def price(self, k: int, site: Oracle) -> Event:  # noqa: ARG002
        """What the release of round k costs a node, with noise; never more at any other node. Override where it is not
        one private step with additive noise.
        """
        return PureRelease(self.share) if self.pure else Gaussian(self.sigma(site))

    def cost(self, k: int, site: Oracle, observer: Observer = RELAY) -> Event:  # noqa: ARG002
        """The price of round k against any observer, since every message carries noise of its own. A person at several
        sites is in several messages.
        """
        if not self.private:
            return NonPrivate()
        times = site.sites_per_unit if self.local_noise else 1
        return self.price(k, site) if times == 1 else Repeated(self.price(k, site), times)

    def spent(self, k: int, site: Oracle, runs: int = 1) -> float:
        """Epsilon after k rounds of each run: at the run's delta, or pure."""
        event = Repeated(self.event(k, site), runs)
        return pure_epsilon(event) if self.pure and self.private else epsilon(event, self.delta)

    def statement(self, site: Oracle) -> PrivacyStatement:
        """The guarantee of the whole run. A pure total has delta = 0."""
        self.expect_unit(site.sites.unit)
        spent = self.spent(self.rounds, site)
        return PrivacyStatement(
            event=self.event(self.rounds, site),
            epsilon=spent,
            target_epsilon=self.epsilon,
            delta=0.0 if self.pure and self.private else self.delta,
            calibration=("paper" if self.form == "published" else "exact") if self.private else None,
            sigma=self.sigma(site) if self.private else None,
            released=self.released,
            unit=site.sites.unit,
            notes=self.notes(site),
            observers=(Sight(site.n - 1, 1.0, spent),) if self.private and self.local_noise else (),
        )


# -- public numbers of the nodes --------------------------------------------------------------------------------------


def convexity(site: Oracle, rho: float) -> Floats:
    """mu_i = lam l2 + 2 rho |N_i|, the strong convexity of a local subproblem: (nodes, 1, 1)."""
    return site.lam * site.regulariser.l2 + 2 * rho * site.degree.astype(np.float64)


def expect_argmin(site: Oracle, curvature: Callable[[], Array], tolerance: float) -> None:
    """Refuse at the start, before anything is paid for, if an oracle offers no argmin, or none to this tolerance.
    Single precision does not reach `TOLERANCE`. `curvature` is called last, since oracles on a GPU have no argmin.
    """
    expect(site.dtype == np.float64, "dtype='float64' for an exact argmin", dtype=str(site.dtype))
    site.expect_argmin()
    _expect_reachable(site, np.zeros(1), curvature(), tolerance)


def argmin(site: Oracle, pull: Array, curvature: Array, start: Array, tolerance: float) -> Array:
    """As `Oracle.argmin`. Whether the solver gives up must not depend on private rows. So it is refused beforehand if
    rounding may keep it from the tolerance for some rows, by public numbers and the noise in `pull`.
    """
    _expect_reachable(site, np.sqrt(np.sum(pull**2, axis=1)).max(axis=1), curvature, tolerance)
    try:
        return site.argmin(pull, curvature, start=start, tolerance=tolerance)
    except SottovoceError:
        if not site.sites.private:
            raise
        # The failure itself cannot be hidden: a model that is further off is not paid for.
        raise SottovoceError(
            f"Expected the solver to reach tolerance={tolerance:g}, which it did not. How near it came is not shown: "
            "the rows are private. The budget of this run is spent. Use a larger rho."
        ) from None


def _expect_reachable(site: Oracle, pull: Floats, curvature: Array, tolerance: float) -> None:
    """Refuse a tolerance that rounding may miss, with private rows.

    The gradient at the minimiser w is 0, so mu ||w|| <= ||pull|| + the steepest that losses and regulariser can be.
    Rounding of the gradient there is relative to the terms that it is summed from.
    """
    if not site.sites.private:
        return
    l1, l2 = site.lam * site.regulariser.l1, site.lam * site.regulariser.l2
    mu, weight = np.ravel(curvature) + l2, np.ravel(site.importance)
    norm, kinked = site.sites.data_norm, site.loss.smoothness_bound is None or l1 > 0
    slope = pull + weight * site.loss.slope_bound * norm + l1 * math.sqrt(site.d)
    reach = slope / mu
    bent = weight * (site.loss.smoothness_bound or 0.0) * norm**2 * reach
    floor = float(np.max(ROUNDED * (2 * slope + bent))) + (KINK * norm if kinked else 0.0)
    if not floor <= tolerance:
        raise InputError(
            f"Expected a tolerance that rounding allows whatever the rows are, {floor:.2g} or more, got "
            f"tolerance={tolerance:g}: with so small a rho models are too long. Use a larger rho (or a smaller step), "
            "or a larger lam."
        )


def refuse_incomplete(site: Oracle, name: str) -> None:
    """Refuse a graph that is not complete, for methods that average over all nodes in one round."""
    expect(
        bool(np.all(site.degrees == site.n - 1)),
        f"a complete graph for {name}, where every node hears all n - 1 = {site.n - 1} others",
        degrees=sorted({int(degree) for degree in site.degrees})[:5],
    )


# -- the consensus part of decentralised ADMM -------------------------------------------------------------------------


class Consensus(NamedTuple):
    """What the next round needs. All of it is a function of what was sent."""

    w: Array  # (nodes, d, runs) last message
    gamma: Array  # (nodes, d, runs) dual
    heard: Array  # (nodes, d, runs) sum of the neighbours' last messages
    total: Array  # (nodes, d, runs) sum of the messages so far
    before: Array  # (nodes, d, runs) sum_j (w_i + w_j) one round earlier; kept by those that recycle it, else zero


@dataclass(frozen=True, kw_only=True)
class ConsensusRival(Rival[Consensus]):
    """A rival that sends one noisy model a round and moves its dual by what it heard:

    gamma_i^k = gamma_i^{k-1} - (rho / 2) sum_{j in N_i} (w_i^k - w_j^k)
    """

    def start(self, site: Oracle, runs: int) -> Consensus:
        """Zero models and duals."""
        return Consensus(*(site.zeros(runs) for _ in Consensus._fields))

    def absorb(self, k: int, state: Consensus, site: Oracle, inbox: Inbox) -> Consensus:  # noqa: ARG002
        """The dual step, with the noisy model as sent."""
        s, heard = state, inbox.neighbours()
        return s._replace(heard=heard, gamma=s.gamma - self.rho / 2 * (site.degree * s.w - heard))

    def outputs(self, k: int, state: Consensus) -> Outputs:
        """The average of all messages so far, and the last."""
        return Outputs(average=state.total / k, last=state.w)

    def pull(self, state: Consensus, site: Oracle, rho: float) -> Array:
        """2 gamma + rho sum_j (w_i + w_j): the linear term of the augmented Lagrangian."""
        s = state
        return 2 * s.gamma + rho * (s.heard + site.degree * s.w)
