"""IPADMM: differentially private ADMM with l noisy linearised steps per round (Huang & Gong 2020, Algorithm 1).

For k = 1..t every node starts from w~^{k,0} = w~^{k-1,l} and, for r = 0..l-1, with eta = eta_i^{k,r+1},

    w^{k,r+1}  = (eta w~^{k,r} - grad L_i(w~^{k,r}) + 2 gamma^{k-1} + rho sum_j w~_j^{k-1} + rho |N_i| w~^{k-1})
                 / (2 rho |N_i| + eta)
    w~^{k,r+1} = w^{k,r+1} + xi,     xi ~ N(0, s^2 sigma^2 I),     s = 2 c1 / ((2 rho |N_i| + eta) M_i)

then broadcasts only w~^k = (1/l) sum_{r=1..l} w~^{k,r}, and after the exchange

    gamma^k = gamma^{k-1} - (rho / 2) sum_{j in N_i} (w~_i^k - w~_j^k).

The noise enters where the sensitivity is known, in the gradient: std 2 c1 sigma / M_i before the division by (2 rho
|N_i| + eta) is s sigma after it. M_i = m_i / (n omega_i) is m_i in the paper, where all sites count the same
(`weights`). Privacy and utility are proved in docs/proofs/ipadmm.md.

With `moments`, every site first releases moments of its rows, with noise of its own too. Everyone hands on what it
heard, and all take the steps above from the model, and in the coordinates, that follow from them (`head_start`).

Deviations from the printed paper: the linear term has the sign that the closed form needs; the closed form has the
gradient, not the loss; c0 is never a free constant (see `calibration`); c2 = n c1 + n lam Lip(phi) instead of n + lam D
/ n; lam is the paper's lambda / n; the schedule is "monotone" unless asked, since the proof does not hold for the
printed one when l > 1.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, Self, TypeAlias, final, get_args

import numpy as np

from sottovoce.algorithms.base import Network, Opening, Outputs, PrivateAlgorithm, Round
from sottovoce.algorithms.diameter import COEFFICIENT, assumed_best_diameter, common_scale
from sottovoce.arrays import Array, Floats
from sottovoce.errors import UnsupportedError, expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.kernels.random import MAX_STEPS
from sottovoce.oracle.kernels.spread import Sensitivity, check_sensitivity
from sottovoce.oracle.loss_sums import start_moments_numbers, weights_of
from sottovoce.oracle.plain import Batch, Oracle, Steps, note_on_tight
from sottovoce.oracle.whitened import WhitenedOracle
from sottovoce.privacy import (
    Event,
    Gaussian,
    NonPrivate,
    Repeated,
    SampledGaussian,
    Sampling,
    Scheme,
    Sequence,
    epsilon,
    sigma_for,
)
from sottovoce.privacy.observers import RELAY, Observer
from sottovoce.problem.factors import Factors
from sottovoce.problem.graphs import Inbox
from sottovoce.sums.curvature import WIDEST_MATRIX
from sottovoce.sums.head_start import STRETCH, HeadStart, head_start
from sottovoce.sums.opening import Shares
from sottovoce.sums.program import Opened
from sottovoce.sums.questions import StartMoments

Schedule: TypeAlias = Literal["paper", "monotone", "constant"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
# The part of the budget that a head start takes, and the most noise with which it pays: the size of that in M^, over
# the mean of its eigenvalues. Chosen on some tables and judged on others, see docs/proofs/ipadmm.md.
MOMENTS, MOST_NOISE = 0.1, 2.0


def takes_moments(factors: Factors, device: str = "cpu") -> bool:
    """True if `IPADMM.moments` works with rows of these factors on a device of that name; `IPADMM.check` says why."""
    return factors.plain and device != "cuda"


class IPADMMState(NamedTuple):
    """What the next round needs."""

    w: Array  # (nodes, d, runs) last inner iterate, w~^{k,l}; never leaves the site
    w_bar: Array  # (nodes, d, runs) last broadcast, w~^k
    gamma: Array  # (nodes, d, runs) dual
    heard: Array  # (nodes, d, runs) sum of the neighbours' last broadcasts
    total: Array  # (nodes, d, runs) sum of w~^{k,0}..w~^{k,l-1} over all rounds, for the theorem's average


@final
@dataclass(frozen=True, kw_only=True)
class IPADMM(PrivateAlgorithm[IPADMMState]):
    """The paper's algorithm.

    Args:
        epsilon: of the total guarantee; `math.inf` adds no noise and promises nothing.
        delta: of the total guarantee.
        local_steps: l, noisy steps per round.
        diameter: D, of the domain of models, which scales the steps. None: chosen from public
            numbers, see `diameter_for`.
        schedule: eta_i^{k,r} = factor / D * sqrt((n omega_i c1 + lam Lip)^2 + d (sigma s_i)^2), s_i the gradient's
            sensitivity, with the factor "paper" sqrt(2 k r), "monotone" sqrt(2 ((k-1) l + r)), "constant" sqrt(t l).
        batch_size: rows of a stochastic gradient; None takes all.
        sampling: how a batch is drawn: "replacement" (the paper's) or "poisson".
        radius: project inner iterates onto the ball of this radius; None does not, as in Algorithm 1.
        sensitivity: what noise is for: "plain", 2 c1 whatever the model (the paper's), or "tight", what two records'
            gradients can be apart at the step's own model (docs/proofs/ipadmm.md, Lemma 3). Steps and price are those
            of "plain".
        moments: part of the budget for moments that every site releases first, for a head start; 0: there is none.
            `sottovoce.plan` takes MOMENTS where that pays.
    """

    local_steps: int = 10
    diameter: float | None = None
    schedule: Schedule = "monotone"
    batch_size: int | None = None
    sampling: Scheme = "replacement"
    radius: float | None = None
    sensitivity: Sensitivity = "plain"
    moments: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(
            1 <= self.local_steps <= MAX_STEPS,
            f"1 <= local_steps <= {MAX_STEPS}",
            local_steps=self.local_steps,
        )
        expect(self.diameter is None or 0 < self.diameter < math.inf, "diameter > 0", diameter=self.diameter)
        expect(self.schedule in SCHEDULES, f"schedule in {SCHEDULES}", schedule=self.schedule)
        expect(self.batch_size is None or self.batch_size >= 1, "batch_size >= 1", batch_size=self.batch_size)
        expect(
            self.sampling in ("replacement", "poisson"),
            "sampling 'replacement' or 'poisson'",
            sampling=self.sampling,
        )
        expect(self.radius is None or 0 < self.radius < math.inf, "radius > 0", radius=self.radius)
        check_sensitivity(self.sensitivity)
        expect(0 <= self.moments < 1, "0 <= moments < 1, a part of the budget", moments=self.moments)
        if self.moments:
            self._check_moments()

    def _check_moments(self) -> None:
        others = {"max_grad_norm": self.max_grad_norm, "batch_size": self.batch_size, "radius": self.radius}
        for name, value in others.items():
            expect(value is None, f"no {name} with moments. Leave one of them out", **{name: value})
        expect(self.calibration == "exact", "calibration='exact' with moments", calibration=self.calibration)
        weights_of(self.loss)  # refuses losses without a head start

    @property
    def messages(self) -> int:
        """One for each round; with moments, one more before them."""
        return self.rounds + (self.moments > 0)

    def opening(self, features: int) -> Opening | None:
        """Moments of the rows, where they take a part of the budget."""
        if not self.moments:
            return None
        return Opening(StartMoments(), start_moments_numbers(self.loss, features), self.moments_sigma)

    def check(self, site: Oracle) -> None:
        """Refuse rows with which moments do not work, by public numbers."""
        if not self.moments:
            return
        sites = site.sites
        expect(sites.d <= WIDEST_MATRIX, f"at most {WIDEST_MATRIX} features with moments", features=sites.d)
        expect(math.isfinite(sites.data_norm), "a finite data_norm with moments", data_norm=sites.data_norm)
        if not sites.factors.plain:
            raise UnsupportedError("Expected rows that count alike with moments, got row weights. Leave moments out.")

    def ahead(self, opened: Opened, network: Oracle) -> HeadStart:
        """The head start that follows from the moments and from the noise of all steps to come."""
        variance = float(np.mean((self.sigma(network) * network.sensitivity()) ** 2)) / network.n
        return head_start(opened, self.loss, network.sites.data_norm, variance / (self.rounds * self.local_steps))

    def begin(self, head: HeadStart, site: Oracle) -> IPADMMState:
        """All nodes begin with this model."""
        state = self.start(site, head.u.shape[1])
        w = np.broadcast_to(head.u, state.w.shape).astype(state.w.dtype, order="C")  # sums over nodes follow the layout
        return state._replace(w=w, w_bar=w.copy(), heard=site.degree * w)

    def play(self, site: Oracle, runs: int, network: Network, noise: Noise) -> Iterator[Round]:
        """Release, exchange and absorb, round by round; before that, moments if they take a part of the budget."""
        opening = self.opening(site.sites.d)
        if opening is None:
            return super().play(site, runs, network, noise)
        self.check(site)
        if not isinstance(site.zeros(1), np.ndarray):
            raise UnsupportedError("Expected device='cpu' or 'plain' with moments, got 'cuda'. Leave moments out.")
        return self._play_ahead(opening, site, runs, network, noise)

    def _play_ahead(self, opening: Opening, site: Oracle, runs: int, network: Network, noise: Noise) -> Iterator[Round]:
        # All that is used is the sum over sites of what they release, whose noise has the law of one draw. It is that
        # of a round after the last, which no step draws.
        k = self.rounds + 1
        shares = Shares((opening.sigma,) * k, honest=1)
        opened = network.opener(shares, site, site.network.sites.counts.tolist(), noise, runs).open(k, opening.question)
        head = self.ahead(opened, site.network)
        whitened, released = WhitenedOracle.of(site, head.whitening, STRETCH), opening.numbers
        for after in self._play(self.begin(head, whitened), whitened, network, noise):
            yield Round(after.numbers + released, partial(_in_rows_coordinates, whitened, after.outputs))
            released = 0

    def start(self, site: Oracle, runs: int) -> IPADMMState:
        """Zero models and duals."""
        return IPADMMState(*(site.zeros(runs) for _ in IPADMMState._fields))

    def release(self, k: int, state: IPADMMState, site: Oracle, noise: Noise) -> tuple[Array, IPADMMState]:
        """l noisy steps; the message is their mean."""
        s = state
        steps = Steps(
            k=k,
            pull=2 * s.gamma + self.rho * (s.heard + site.degree * s.w_bar),
            curvature=2 * self.rho * site.degree,
            eta=self.eta(k, site),
            sigma=self.sigma(site),
            noise=noise,
            batch=self.batch,
            radius=self.radius,
            tight=self.sensitivity == "tight",
        )
        inner = site.noisy_steps(s.w, steps)
        return inner.mean, s._replace(w=inner.last, w_bar=inner.mean, total=s.total + inner.total)

    def absorb(self, k: int, state: IPADMMState, site: Oracle, inbox: Inbox) -> IPADMMState:  # noqa: ARG002
        """The dual step, with the sum of the neighbours' broadcasts."""
        s, heard = state, inbox.neighbours()
        return s._replace(heard=heard, gamma=s.gamma - self.rho / 2 * (site.degree * s.w_bar - heard))

    def without(self, state: IPADMMState, gone: Array) -> IPADMMState:
        """The dual has moved by -(rho / 2) `gone` along that edge: take it back."""
        return state._replace(gamma=state.gamma + self.rho / 2 * gone)

    def outputs(self, k: int, state: IPADMMState) -> Outputs:
        """The theorem's average over all inner iterates but the last, and the last broadcast."""
        return Outputs(average=state.total / (k * self.local_steps), last=state.w_bar)

    @property
    def draws_per_round(self) -> int:
        """One normal vector a step."""
        return self.local_steps

    # -- steps ----------------------------------------------------------------------------------------------------

    def eta(self, k: int, site: Oracle) -> Floats:
        """eta_i^{k,r} for r = 1..l, as (l, nodes, 1, 1): Theorem 3's step, with the chosen factor."""
        l = self.local_steps
        r = np.arange(1, l + 1, dtype=np.float64).reshape(-1, 1, 1, 1)
        factor = {
            "paper": np.sqrt(2 * k * r),
            "monotone": np.sqrt(2 * ((k - 1) * l + r)),
            "constant": np.full_like(r, math.sqrt(self.rounds * l)),
        }[self.schedule]
        return factor * self.gradient_scale(site) / self.diameter_for(site)

    def gradient_scale(self, site: Oracle) -> Floats:
        """sqrt((n omega_i c1 + lam Lip(phi))^2 + d (sigma s_i)^2), the root mean square norm of a noisy gradient.

        (nodes, 1, 1).
        """
        c2_over_n = site.c1 * site.importance + site.lam * self.regulariser.lipschitz(self.diameter_for(site), site.d)
        return np.sqrt(c2_over_n**2 + site.d * (self.sigma(site) * site.sensitivity(self.batch)) ** 2)

    def diameter_for(self, site: Oracle) -> float:
        """D: given, or the best for an assumed problem of this shape (`sottovoce.algorithms.diameter`)."""
        if self.diameter is not None:
            return self.diameter
        site = site.network  # all nodes take the same D
        variance = (self.sigma(site) * site.sensitivity(self.batch)) ** 2
        norm = self.loss_norm(site)
        return assumed_best_diameter(
            d=site.d,
            steps=self.rounds * self.local_steps,
            scale=common_scale(site, site.c1 * site.importance, variance),
            noise=float(np.mean(variance)) / site.n,
            curvature=self.loss.smoothness(norm) or site.c1 * norm,
            signal=COEFFICIENT / norm,
        )

    def loss_norm(self, site: Oracle) -> float:
        """The bound on a row's norm; where there is none, clipping makes rows act as if there were."""
        return site.sites.data_norm if math.isfinite(site.sites.data_norm) else site.c1 / self.loss.slope_bound

    # -- privacy --------------------------------------------------------------------------------------------------

    @property
    def released(self) -> str:
        """What leaves a site."""
        first = "" if not self.moments else "noisy moments of the rows, once, which all sites hand on; then, "
        return (
            f"{first}in each of {self.rounds} rounds, the average of {self.local_steps} noisy local models "
            "(one vector of numbers per site and round), sent to the site's neighbours"
        )

    @property
    def split(self) -> dict[str, float]:
        """The whole budget for messages, but for the part of the moments."""
        return super().split if not self.moments else {"moments": self.moments, "messages": 1 - self.moments}

    def notes(self, site: Oracle) -> tuple[str, ...]:
        """Whether the tight sensitivity, if it was asked for, was below the plain one."""
        return note_on_tight(self.sensitivity == "tight", site)

    @property
    def batch(self) -> Batch | None:
        """How gradients draw rows; None for all rows."""
        return None if self.batch_size is None else Batch(self.batch_size, self.sampling)

    def sigma(self, site: Oracle) -> float:
        """The noise multiplier that makes all t l steps (epsilon, delta)-private at the node with fewest rows."""
        if math.isinf(self.epsilon):
            return 0.0
        steps = self.rounds * self.local_steps * site.sites_per_unit
        whole = sigma_for(self.epsilon, self.delta, steps, self.calibration, self._sampling(site))
        return whole if not self.moments else _for_part(whole, 1 - self.moments)

    @property
    def moments_sigma(self) -> float:
        """The noise multiplier of the release of moments."""
        assert self.moments
        return 0.0 if math.isinf(self.epsilon) else _for_part(sigma_for(self.epsilon, self.delta, 1), self.moments)

    def with_noise(self, factor: float) -> Self:
        """The same with so many times the noise; unchanged with batches, whose noise has no such factor."""
        if self.batch_size is not None:
            return self
        steps = self.rounds * self.local_steps
        sigma = factor * sigma_for(self.epsilon, self.delta, steps, self.calibration)
        return replace(self, epsilon=epsilon(Repeated(Gaussian(sigma), steps), self.delta), calibration="exact")

    @property
    def rows_only(self) -> str | None:
        """Why batches protect single rows only: no proof here bounds how many rows of a person are drawn together."""
        return None if self.batch_size is None else "a batch may draw several of a person's rows (batch_size)"

    def _sampling(self, site: Oracle) -> Sampling | None:
        # A row is drawn most often where there are fewest rows: what holds there holds everywhere.
        return None if self.batch_size is None else Sampling(self.sampling, site.fewest_rows, self.batch_size)

    def cost(self, k: int, site: Oracle, observer: Observer = RELAY) -> Event:  # noqa: ARG002
        """l Gaussian releases at every site that a person may be at, against any observer; before the first, that of
        the moments, whose noise is for all of a person's rows everywhere.
        """
        if math.isinf(self.epsilon):
            return NonPrivate()
        sampling, sigma = self._sampling(site), self.sigma(site)
        step = Gaussian(sigma) if sampling is None else SampledGaussian(sigma, sampling)
        if self.moments and k == 1:
            return Sequence((Gaussian(self.moments_sigma), Repeated(step, self.local_steps * site.sites_per_unit)))
        return Repeated(step, self.local_steps * site.sites_per_unit)


def _for_part(sigma: float, part: float) -> float:
    """The noise multiplier for a part of the budget, of which the whole needs `sigma`."""
    return sigma / math.sqrt(part) * (1 + 1e-12)  # a little more, since parts are rounded when they are added up


def _in_rows_coordinates(whitened: WhitenedOracle, outputs: Callable[[], Outputs]) -> Outputs:
    return Outputs(*map(whitened.models, outputs()))
