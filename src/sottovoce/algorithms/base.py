"""The interfaces of methods of learning, and of algorithms, in which every site adds noise of its own.

A `Method` is a set of public settings. It states its cost and can be run on rows. Sites release results in one of two
ways (`Way`), with one class for each:

    Algorithm   every site sends noisy models to its neighbours: IPADMM and its rivals
    Learning    only noisy sums over all sites are read: `sottovoce.algorithms.analysis`

An algorithm is written from the point of view of one node, on arrays whose axes (nodes, d, runs) stack many. It needs
three things from outside: its local data (an `Oracle`), what it hears (an `Inbox`), and its noise. Everything else is
element-wise, so the same lines serve one site and a whole simulated network.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Listing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from sottovoce.algorithms.computation import OWN_NOISE, Computation, Place, View, Way
from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import UnsupportedError, expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.loss_sums import DOUBLE
from sottovoce.oracle.plain import Batch, Oracle, SiteOracle
from sottovoce.oracle.row_sums import Others
from sottovoce.privacy import CALIBRATIONS, Calibration, Event, PrivacyStatement, Repeated, Sequence, epsilon
from sottovoce.privacy.accounting.discrete import discretisation_delta
from sottovoce.privacy.observers import RELAY, Observer, Sight
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.factors import Factors
from sottovoce.problem.graphs import Graph, Inbox
from sottovoce.problem.losses import Logistic, Loss, PiecewiseExponential, Poisson, Reals
from sottovoce.problem.regularisers import L2, Regulariser
from sottovoce.problem.share import Share
from sottovoce.problem.sites import WEIGHTS, Sites, Weights, importances
from sottovoce.sums.evaluating import OpenedEvaluation
from sottovoce.sums.head_start import HeadStart
from sottovoce.sums.inference import Evidence
from sottovoce.sums.opening import Opener, Shares
from sottovoce.sums.program import Opened, Question

if TYPE_CHECKING:
    from sottovoce.files.schema import Schema

State = TypeVar("State", bound=tuple[Array, ...])
NOTHING = Sequence(())  # the price of a message that no row was looked at for


class Outputs(NamedTuple):
    """A node's candidate models after a round; all of them are post-processing of its noisy iterates."""

    average: Array  # (nodes, d, runs) the average that the algorithm's theorem speaks of
    last: Array  # (nodes, d, runs) the last broadcast


class Round(NamedTuple):
    """The state of a run after one exchange. Models are computed only if `outputs` is called."""

    numbers: int  # that a message of it held
    outputs: Callable[[], Outputs]
    evidence: tuple[Evidence, ...] = ()  # of each run, what coefficients are inferred from
    evaluation: OpenedEvaluation | None = None  # what is known of how good the model is
    moments: Opened | None = None  # the second moments of the rows, where all of them were opened


class Opening(NamedTuple):
    """The release of every site before round 1, with noise of its own. All sites hear all of them, and use their sum.

    Every site adds the noise that the whole sum would need, so that each release is private by itself.
    """

    question: Question[Any]
    numbers: int  # of the release
    sigma: float  # noise multiplier of each release


class Network(Protocol):
    """The exchange of messages, and the opening of sums, for whoever plays all sites."""

    def heard(self, messages: Array) -> Inbox:
        """The inbox of the nodes held here, if each node sends its message."""

    def opener(self, shares: Shares, site: Oracle, counts: Listing[int], noise: Noise, runs: int) -> Opener:
        """An opener for the sums of these rows."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A way to learn one model from the rows of all sites; its fields are its hyper-parameters, all public.

    Args:
        rounds: t, how often the nodes exchange messages.
        lam: weight of the regulariser beside the (weighted) mean over sites of their mean loss, however many sites
            there are. The paper writes lambda / n for it.
        loss: of a record; its mean is the objective.
        regulariser: is added to it.
        max_grad_norm: clip each record's gradient to this norm, which then is c1.
        weights: how much a site counts, by its public number of rows: "equal" (the paper's), "rows" or "squared"; see
            `sottovoce.problem.sites.importances`.
    """

    way: ClassVar[Way]
    view: ClassVar[View] = "messages"  # the most that an observer sees, and the guarantee is about

    rounds: int = 100
    lam: float = 1e-6
    loss: Loss = field(default_factory=Logistic)
    regulariser: Regulariser = field(default_factory=L2)
    max_grad_norm: float | None = None
    weights: Weights = "equal"

    def __post_init__(self) -> None:
        self._check_rounds()
        expect(0 <= self.lam < float("inf"), "lam >= 0", lam=self.lam)
        clipped = self.max_grad_norm
        expect(clipped is None or 0 < clipped < float("inf"), "max_grad_norm > 0", max_grad_norm=clipped)
        expect(self.weights in WEIGHTS, f"weights among {', '.join(WEIGHTS)}", weights=self.weights)

    def _check_rounds(self) -> None:
        expect(self.rounds >= 1, "rounds >= 1", rounds=self.rounds)

    def bound_to(self, rows: int, features: int, sites: int, unit: Unit = ROW) -> Self:  # noqa: ARG002
        """The same with every setting filled in that follows from these public numbers.

        Args:
            rows: N, over all sites.
            features: of a row.
            sites: n.
            unit: what is protected.
        """
        return self

    @abstractmethod
    def play(self, site: Oracle, runs: int, network: Network, noise: Noise) -> Iterator[Round]:
        """Learn from the rows of all sites, round by round. What cannot be run is refused before this returns; no row
        is looked at before the first round is asked for.
        """

    def oracle(
        self, sites: Sites, graph: Graph, kind: type[Oracle] = Oracle, dtype: np.dtype[Any] = DOUBLE,
        share: Share | None = None, total: Callable[[Array], Array] | None = None,
    ) -> Oracle:  # fmt: skip
        """The rows of a network, bound to this algorithm's objective, in an oracle of that kind and precision.

        Args:
            sites: all of the network's, or those of the share.
            graph: all of the network.
            kind: of oracle.
            dtype: of models and messages.
            share: which nodes the sites are, where other processes hold the others; None: all.
            total: with a share, the sum over all processes, as `Others` has it.
        """
        self.expect_unit(sites.unit)

        def bound(
            kind: type[Oracle], sites: Sites, degrees: Ints, weights: Floats | None, others: Others | None = None
        ) -> Oracle:
            objective = self.loss, degrees, self.regulariser, self.lam, weights
            return kind(sites, graph.n, *objective, max_grad_norm=self.max_grad_norm, dtype=dtype, others=others)

        weights = self.importances(sites.counts if share is None else share.counts)
        if share is None:
            return bound(kind, sites, graph.degrees, weights)
        assert total is not None  # whoever holds a share can ask the others
        network = bound(Oracle, sites.elsewhere(share.counts), graph.degrees, weights)
        here = slice(share.first, share.last)
        own = None if weights is None else weights[here]
        return bound(kind, sites, graph.degrees[here], own, Others(network, share.first, total))

    @property
    def rows_only(self) -> str | None:
        """Why this method protects single rows and no people; None if its proof covers both. Override to allow
        person-level privacy.
        """
        return "nobody has shown yet that its proof holds for several rows"

    def expect_unit(self, unit: Unit) -> None:
        """Refuse to protect people where the proof does not reach that far. One row of one site is always covered."""
        if not unit.single and self.rows_only is not None:
            raise UnsupportedError(
                f"Expected an algorithm that protects people for the unit {unit.words!r}, got {type(self).__name__}: "
                f"{self.rows_only}. Use MaskedNewton, or IPADMM without batches."
            )

    def colluders(self, n: int) -> int | None:  # noqa: ARG002
        """Number of colluding sites, of n, that the guarantee assumes; None: it holds against all others together."""
        return None

    def importances(self, counts: Ints | Listing[int]) -> Floats | None:
        """n omega_i, from the row counts of all sites of the network; None where all count the same."""
        found = importances(counts, self.weights)
        return None if bool(np.all(found == 1)) else found

    def check(self, site: Oracle) -> None:  # noqa: B027
        """Refuse rows that the method cannot be run on, by public numbers, before any is looked at."""

    @abstractmethod
    def cost(self, k: int, site: Oracle, observer: Observer = RELAY) -> Event:
        """What the release of round k costs the node with the largest cost, against that observer. If a person may be
        at several sites, what it costs all of them together.
        """

    def event(self, k: int, site: Oracle, observer: Observer = RELAY) -> Event:
        """What the first k rounds cost, with rounds of equal cost counted together."""
        prices = Counter(self.cost(q, site, observer) for q in range(1, k + 1))
        parts = tuple(Repeated(price, times) for price, times in prices.items() if price != NOTHING)
        return parts[0] if len(parts) == 1 else Sequence(parts)

    @abstractmethod
    def spent(self, k: int, site: Oracle, runs: int = 1) -> float:
        """Epsilon after k rounds of each of `runs` runs on the same rows."""

    @abstractmethod
    def statement(self, site: Oracle) -> PrivacyStatement:
        """The guarantee of the whole run."""


@dataclass(frozen=True, kw_only=True)
class PrivateMethod(Method, Computation):
    """A method whose whole transcript is (epsilon, delta)-private for any one row.

    Args:
        epsilon: of the guarantee over all rounds; `math.inf` adds no noise and promises nothing.
        delta: of the same guarantee.
        calibration: how sigma follows from them: "exact" (tight, never more than epsilon), "moments", or "paper" (its
            formula with c0 = 1, for its figures; refused where it would give less privacy than it claims).
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    calibration: Calibration = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.epsilon > 0, "epsilon > 0", epsilon=self.epsilon)
        expect(0 < self.delta < 1, "0 < delta < 1", delta=self.delta)
        expect(self.calibration in CALIBRATIONS, f"calibration in {CALIBRATIONS}", calibration=self.calibration)

    @abstractmethod
    def unit_factor(self, unit: Unit, n: int) -> float:
        """Factor on the noise for one row that a unit needs, at n sites."""

    @abstractmethod
    def with_noise(self, factor: float) -> Self:
        """The same with so many times the noise, where that can be had. For simulations only: its epsilon then
        promises nothing.
        """

    def notes(self, site: Oracle) -> tuple[str, ...]:  # noqa: ARG002
        """Further sentences of the statement."""
        return ()

    @property
    def noisy(self) -> str:
        """Noise is in gradients."""
        return "each coordinate of a gradient"

    def expect_schema(self, schema: "Schema") -> None:
        """Refuse a label that the loss is not for."""
        from sottovoce.files.schema import ClassLabel, NumberLabel, SurvivalLabel
        from sottovoce.problem.answers import Answers

        label, loss = schema.label, self.loss
        expect(
            isinstance(label, ClassLabel) != isinstance(loss.labels, Reals),
            "a loss for classes where the schema's label is a class, and one for numbers where it is a number",
            loss=loss.name,
            label=label.name,
        )
        if isinstance(label, SurvivalLabel) or isinstance(loss, PiecewiseExponential):
            wanted = Answers.of(schema).loss(None)
            what = "algorithm hazards, with the bins of the schema's label, for times to an event, and only for these"
            expect(loss == wanted, what, loss=loss, label=label.name)
        if isinstance(label, NumberLabel):
            fits = loss == Poisson() if label.counts else not isinstance(loss, Poisson)
            expect(fits, "loss poisson, most = 1, where the schema's label counts, and only there", loss=loss)
        if isinstance(label, ClassLabel):
            loss.labels.check(label.values)
            if loss.outputs > 1:
                expect(len(label.classes) == loss.outputs, f"classes={len(label.classes)}, as in the schema", loss=loss)

    def factors(self, schema: "Schema | None") -> Factors:
        """Weights and exposures as the schema has them."""
        weighed, exposed = (schema is not None and getattr(schema, name) is not None for name in ("weight", "exposure"))
        return Factors(np.ones(1) if weighed else None, np.zeros(1) if exposed else None)

    def at_site(self, sites: Sites, place: Place) -> SiteOracle:
        """A site's rows, with the objective of all."""
        weighed = self.importances(place.counts)
        return SiteOracle(
            sites, len(place.counts), self.loss, np.array([place.degree]), self.regulariser, self.lam,
            None if weighed is None else weighed[[place.number]], max_grad_norm=self.max_grad_norm,
            fewest=min(place.counts),
        )  # fmt: skip

    def spent(self, k: int, site: Oracle, runs: int = 1) -> float:
        """Epsilon after k rounds of each run, at the run's delta."""
        return epsilon(Repeated(self.event(k, site), runs), self.delta)

    def statement(self, site: Oracle) -> PrivacyStatement:
        """The guarantee of all rounds."""
        self.expect_unit(site.sites.unit)
        event, private = self.event(self.rounds, site), math.isfinite(self.epsilon)
        spent = self.spent(self.rounds, site)
        return PrivacyStatement(
            event=event,
            epsilon=spent,
            target_epsilon=self.epsilon,
            delta=self.delta,
            calibration=self.calibration if private else None,
            sigma=self.sigma(site) if private else None,
            released=self.released,
            unit=site.sites.unit,
            notes=self.notes(site),
            # Every site's messages carry enough noise of their own, whoever the others tell what they know.
            observers=(Sight(site.n - 1, 1.0, spent),) if private else (),
        )


@dataclass(frozen=True, kw_only=True)
class Algorithm(Method, Generic[State]):
    """A decentralised consensus algorithm in which every site adds noise of its own to its messages.

    Args:
        rho: the ADMM penalty.
    """

    way: ClassVar[Way] = OWN_NOISE

    rho: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(0 < self.rho < float("inf"), "rho > 0", rho=self.rho)

    def opening(self, features: int) -> Opening | None:  # noqa: ARG002
        """The release of every site before round 1, of rows with so many features; None if there is none."""
        return None

    def ahead(self, opened: Opened, network: Oracle) -> HeadStart:
        """The coordinates and the model that all begin with, from the sum of all openings.

        Args:
            opened: the sum.
            network: the public numbers of all nodes.
        """
        raise NotImplementedError(f"{type(self).__name__} has no opening")

    def begin(self, head: HeadStart, site: Oracle) -> State:
        """The state before round 1 from there, of rows in these coordinates."""
        raise NotImplementedError(f"{type(self).__name__} has no opening")

    @abstractmethod
    def start(self, site: Oracle, runs: int) -> State:
        """The state before round 1. It does not depend on the rows."""

    @abstractmethod
    def release(self, k: int, state: State, site: Oracle, noise: Noise) -> tuple[Array, State]:
        """The local work of round k. The first of the two is the message, which is all that leaves a site."""

    @abstractmethod
    def absorb(self, k: int, state: State, site: Oracle, inbox: Inbox) -> State:
        """Take in what was heard in round k: the sum of the neighbours' messages, or of everyone's."""

    def without(self, state: State, gone: Array) -> State:  # noqa: ARG002
        """Undo all that one neighbour's messages have ever done to the dual; it takes no further part.

        Called between `release` and `absorb` of the first round without it, whose `site` then has one neighbour less
        and whose inbox lacks it. Refused by algorithms that have not said how.

        Args:
            state: after the release.
            gone: the sum of (own message - its message) over all earlier rounds: (nodes, d, runs).
        """
        raise UnsupportedError(
            f"Expected an algorithm that can go on without a lost neighbour, got {type(self).__name__}. "
            "Use the policy wait or stop, or an algorithm such as IPADMM."
        )

    @property
    @abstractmethod
    def draws_per_round(self) -> int:
        """Largest number of normal vectors that a node draws in a round: as many as a source of noise must bring."""

    @abstractmethod
    def outputs(self, k: int, state: State) -> Outputs:
        """The models after round k."""

    def play(self, site: Oracle, runs: int, network: Network, noise: Noise) -> Iterator[Round]:
        """Release, exchange and absorb, round by round."""
        return self._play(self.start(site, runs), site, network, noise)

    def _play(self, state: State, site: Oracle, network: Network, noise: Noise) -> Iterator[Round]:
        for k in range(1, self.rounds + 1):
            message, state = self.release(k, state, site, noise)
            state = self.absorb(k, state, site, network.heard(message))
            yield Round(message.shape[1], partial(self.outputs, k, state))


@dataclass(frozen=True, kw_only=True)
class PrivateAlgorithm(PrivateMethod, Algorithm[State]):
    """An algorithm whose whole transcript is (epsilon, delta)-private for any one row."""

    @property
    def split(self) -> dict[str, float]:
        """The whole budget, for messages."""
        return {"messages": 1.0}

    def unit_factor(self, unit: Unit, n: int) -> float:
        """k sqrt(s), for k rows of a person in the message of each of s sites, all of which are seen."""
        return unit.changed * math.sqrt(min(unit.sites, n))

    def with_noise(self, factor: float) -> Self:  # noqa: ARG002
        """The algorithm unchanged. Override where the planner is to know it."""
        return self

    @property
    def batch(self) -> Batch | None:
        """The rows that a gradient draws; None for all rows."""
        return None

    def share_std(self, site: Oracle, rows: int) -> float:  # noqa: ARG002
        """Standard deviation of all the noise of a message, since sites share none."""
        return self.sigma(site) * float(site.sensitivity(self.batch).item())

    def promises(self, n: int) -> list[tuple[float, int]]:
        """One epsilon, against all other sites together."""
        return [(self.epsilon, n - 1)]

    def grid_delta(self, colluding: int, epsilon: float, n: int, features: int, unit: Unit, bits: int) -> float:  # noqa: ARG002
        """What the grid adds to delta, whoever colludes. A person at several sites is in all of their messages."""
        opening = self.opening(features)
        draws = self.rounds * self.draws_per_round * features * self.loss.outputs
        draws += 0 if opening is None else opening.numbers
        return discretisation_delta(draws * unit.sites, 2.0**bits, epsilon)
