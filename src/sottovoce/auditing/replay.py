"""The noise of every round, solved for from what was said, and held against what the claim needs.

One noisy step a round, on all rows: then a message is a known function of what was said before, of the rows, and of one
normal vector, in which it is linear. So for known rows the vector can be solved for, message by message:

    z = (message - message without noise) / (message with z = 1 - message without noise)

and the same messages can be heard in the world of the other row, too. Given all that was said before, the two rows move
a message by f' - f, the difference of what it is without noise. A round that costs mu may move it by mu standard
deviations at most, so along that direction its noise has a standard deviation of at least |f' - f| / mu, whatever the
algorithm says of its own sensitivity. Over all runs of a round, that is a chi-squared test: it assumes that noise is
normal and fresh.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sottovoce.algorithms.analysis import Learning
from sottovoce.algorithms.base import Algorithm, Method, Opening
from sottovoce.arrays import Array, Floats
from sottovoce.auditing.bounds import NoiseSize, noise_size
from sottovoce.auditing.pairs import Pair
from sottovoce.auditing.views import one_by_one
from sottovoce.noise.sources import GivenNoise, SeededNoise, Shape
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.whitened import WhitenedOracle
from sottovoce.privacy import Event, Gaussian
from sottovoce.privacy.accounting.accountant import plain_mu
from sottovoce.privacy.observers import RELAY, Observer
from sottovoce.problem.graphs import Inbox
from sottovoce.simulation.devices import by_name
from sottovoce.sums.head_start import STRETCH, HeadStart
from sottovoce.sums.program import Opened

_FAR = 8.0  # standard deviations, within which a message must be linear in its noise


class Replayed(NamedTuple):
    """One round whose noise was solved for, from known rows. Both are (nodes, d, runs)."""

    without: Array  # the messages, computed without noise
    z: Array  # the normals that were drawn


def one_step_a_round(algorithm: Algorithm[Any]) -> bool:
    """True if a message holds the noise of one normal vector, from one step on all rows."""
    steps, batch = getattr(algorithm, "local_steps", 1), getattr(algorithm, "batch_size", None)
    return steps == 1 and batch is None and algorithm.draws_per_round == 1


class Ahead(NamedTuple):
    """Where a run began that has an opening."""

    head: HeadStart
    std: float  # of the noise in each number of a site's opening

    @classmethod
    def of(cls, algorithm: Algorithm[Any], opening: Opening, total: Floats, network: Oracle) -> "Ahead":
        """From the sum of all openings, (numbers, runs), and the public numbers of all sites."""
        rows = int(network.sites.counts.sum())
        std: Floats = opening.sigma * opening.question.sensitivity(network, rows)
        told = Opened(opening.question, total, network.n**0.5 * std, rows)
        return cls(algorithm.ahead(told, network), float(std.item()))

    def oracle(self, site: Oracle) -> Oracle:
        """The rows of a site in the coordinates of its steps."""
        return WhitenedOracle.of(site, self.head.whitening, STRETCH)


def replayed(
    algorithm: Algorithm[Any], site: Oracle, said: Sequence[Array], heard: Callable[[int], Inbox],
    ahead: Ahead | None = None,
) -> Iterator[Replayed]:  # fmt: skip
    """Solve a run for its noise, round by round. It ends at a message that is not linear in it, such as a projected
    one.

    Args:
        algorithm: with one step a round (`one_step_a_round`).
        site: the rows of the nodes whose messages these are.
        said: their messages, (nodes, d, runs) a round.
        heard: by the round, from 1 on, what they heard.
        ahead: where the run began, after an opening, and the rows are in those coordinates; None: without one.
    """
    state = algorithm.start(site, said[0].shape[2]) if ahead is None else algorithm.begin(ahead.head, site)
    for k, message in enumerate(said, start=1):
        without, unit, far = (
            algorithm.release(k, state, site, _given(np.full(message.shape, size)))[0] for size in (0.0, 1.0, _FAR)
        )
        scale = unit - without
        if not (scale.all() and np.allclose(far - without, _FAR * scale, rtol=1e-6, atol=1e-9)):
            return
        z = (message - without) / scale
        yield Replayed(without, z)
        _, state = algorithm.release(k, state, site, _given(z))
        state = algorithm.absorb(k, state, site, heard(k))


def _given(z: Array) -> GivenNoise:
    """A source of noise that returns z, (nodes, d, runs)."""
    nodes, d, runs = z.shape
    return GivenNoise(lambda _: z.transpose(2, 0, 1)[:, :, None, :], SeededNoise(0, Shape(nodes, d, runs)))


class Residual(NamedTuple):
    """The noise in one round of one world, and how far the other row would have moved it. Both (numbers, runs)."""

    noise: Floats
    moved: Floats


def noise_by_round(
    pair: Pair, judged: Sequence[Floats], opened: Sequence[Floats], colluding: int | None
) -> list[NoiseSize]:
    """Size of every round's noise; empty if it cannot be solved for, or if a round's cost is not a Gaussian's.

    Args:
        pair: the two worlds.
        judged: what was seen in each, (runs, numbers).
        opened: of masked sums, all sums as they were opened, (runs, numbers): those who collude know them.
        colluding: of masked sums, the number of colluding sites; None elsewhere.
    """
    worlds = pair.worlds
    a, observer = worlds.algorithm, RELAY if colluding is None else Observer(colluding)
    made = [worlds.problem(row) for row in pair.rows]
    sites = [by_name("cpu").oracle(a, problem.sites, problem.graph, "float64") for problem in made]
    prices = [plain_mu(price) for price in _prices(a, sites[0], observer)]
    if None in prices or worlds.view != a.view:
        return []
    both = []
    for world, seen in enumerate(judged):
        here, there = sites[world], sites[1 - world]
        if isinstance(a, Learning):
            both.append(_of_sums(a, here, there, seen, opened[world], colluding or 0))
        elif isinstance(a, Algorithm) and one_step_a_round(a):
            both.append(_of_messages(pair, a, here, there, seen))
        else:
            return []
    found = []
    for k, (mu, *parts) in enumerate(zip(prices, *both, strict=False), start=1 + a.rounds - len(prices)):
        assert mu is not None
        noise, moved = (np.concatenate([getattr(part, name) for part in parts], axis=1) for name in Residual._fields)
        found.append(noise_size(k, noise, moved, mu))
    return found


def _prices(a: Method, site: Oracle, observer: Observer) -> list[Event]:
    """What each message costs; one before round 1 has the number 0."""
    opening = a.opening(site.sites.d) if isinstance(a, Algorithm) else None
    if opening is None:
        return [a.cost(k, site, observer) for k in range(1, a.rounds + 1)]
    return [Gaussian(opening.sigma), *[a.cost(2, site, observer)] * a.rounds]  # that of round 1 has both


def _of_messages(pair: Pair, a: Algorithm[Any], here: Oracle, there: Oracle, seen: Floats) -> list[Residual]:
    """Residuals of messages with noise of their own, or of their mean, all that a curator's sites go on from."""
    graph, rounds, opening = pair.worlds.graph, a.rounds, a.opening(here.sites.d)
    mean = pair.worlds.view == "average"
    nodes, ahead, found = 1 if mean else graph.n, None, list[Residual]()
    if opening is not None:
        first, seen = np.split(seen, [nodes * opening.numbers], axis=1)
        told = first.T.reshape(nodes, opening.numbers, -1)
        ahead = Ahead.of(a, opening, graph.n * told.mean(axis=0), here)
        found.append(_of_opening(opening, here, there, told))
        here, there = ahead.oracle(here), ahead.oracle(there)
    said = [part.T.reshape(nodes, here.d, len(seen)) for part in np.split(seen, rounds, axis=1)]
    if mean:
        said = [np.repeat(part, graph.n, axis=0) for part in said]

    def heard(k: int) -> Inbox:
        return graph.exchange(said[k - 1])

    def shown(message: Array) -> Floats:
        kept: Floats = message.mean(axis=0) if mean else message[0]  # the row in question is site 0's
        return kept

    both = (replayed(a, each, said, heard, ahead) for each in (here, there))
    return found + [
        Residual(shown(message - own.without), shown(other.without - own.without))
        for message, own, other in zip(said, *both, strict=False)
    ]


def _of_opening(opening: Opening, here: Oracle, there: Oracle, told: Floats) -> Residual:
    """The residual of what site 0 said before round 1, or of the mean over sites if that is all that was seen."""
    rows = int(here.sites.counts.sum())
    own, other = (
        np.mean(
            [opening.question.of(alone, rows) for alone in one_by_one(each)[: 1 if len(told) > 1 else None]], axis=0
        )
        for each in (here, there)
    )
    return Residual(told[0] - own, np.broadcast_to(other - own, told[0].shape))


def _of_sums(a: Learning, here: Oracle, there: Oracle, seen: Floats, opened: Floats, colluding: int) -> list[Residual]:
    """Residuals of masked sums, less what colluding sites know. Questions follow from the opened sums alone."""
    sizes = np.cumsum([line.numbers for line in a.schedule(here.sites.d)][:-1])
    left, sums = (np.split(numbers.T, sizes) for numbers in (seen, opened))
    honest, counts = one_by_one(here)[: here.n - colluding], here.sites.counts.tolist()
    session, found = a.begin(here.n, here.sites.d, here.sites.data_norm, here.sites.unit, len(seen)), list[Residual]()
    for kept, total, sigma in zip(left, sums, a.multipliers(here.n), strict=True):
        assert session.ask is not None  # as many questions as sums
        question = session.ask.question
        rows = question.over(counts)
        known = np.sum([question.of(alone, rows) for alone in honest], axis=0)
        moved = question.of(there, rows) - question.of(here, rows)  # of second moments the same in all runs
        found.append(Residual(kept - known, np.broadcast_to(moved, kept.shape)))
        std = sigma * question.sensitivity(here, rows) * (here.n / a.honest(here.n)) ** 0.5
        session.tell(Opened(question, total, std, rows))
    return found
