"""A site's part in a run with noise of its own: it sends a noisy model, and goes on from its neighbours'.

Where the algorithm has an opening, the first message is that instead, and all others are in the coordinates that follow
from the sum of all sites' openings. Every site computes these by itself. Sites on other processors may round them in
another way, which moves models by as little.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, cast, final

import numpy as np

from sottovoce.algorithms import PrivateAlgorithm
from sottovoce.algorithms.base import Opening
from sottovoce.arrays import Array, Floats
from sottovoce.errors import InputError, UnsupportedError
from sottovoce.federation.site.absent import Policy, Silence
from sottovoce.federation.site.events import Dropped
from sottovoce.federation.site.formats import ModelFormat
from sottovoce.federation.site.letters import ModelWords
from sottovoce.federation.site.mail import Letter
from sottovoce.federation.site.masks import Parting
from sottovoce.federation.site.norm import norm_of
from sottovoce.federation.site.part import Computed, Learnt, Outcome, Process, SitePart, Standing
from sottovoce.federation.site.snapshot import Snapshot, pack_state, unpack_state
from sottovoce.federation.site.software import one_thread
from sottovoce.federation.site.stops import DivergedError
from sottovoce.federation.site.witness import Witness
from sottovoce.federation.transport.wire import Slot
from sottovoce.noise.secure import SecureNoise
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.whitened import WhitenedOracle
from sottovoce.oracle.whitening import Whitening
from sottovoce.privacy import Gaussian
from sottovoce.privacy.accounting.discrete import discretisation_divergence
from sottovoce.privacy.books.book import Cost
from sottovoce.problem.graphs import Inbox
from sottovoce.sums.head_start import STRETCH
from sottovoce.sums.program import Opened


@final
class OwnNoise(SitePart):
    """A site's part in a run where every site sends noisy models to its neighbours."""

    @cached_property
    def algorithm(self) -> PrivateAlgorithm[Any]:
        """The agreed algorithm; refuses one without noise of its own."""
        algorithm = self.agreement.algorithm
        if not isinstance(algorithm, PrivateAlgorithm):
            raise InputError(f"Expected an algorithm with noise of its own, got {type(algorithm).__name__}.")
        return algorithm

    @cached_property
    def oracle(self) -> Oracle:
        """The site's rows, with the objective."""
        return cast(Oracle, self.seat.oracle)

    @cached_property
    def opening(self) -> Opening | None:
        """What the first message holds in place of a model; None if it holds one."""
        return self.algorithm.opening(self.agreement.features)

    @cached_property
    def _format(self) -> ModelFormat:
        return ModelFormat(self.agreement)

    def check(self) -> None:
        if self.seat.drops:
            # Refuses, before round 1, an algorithm that has not said how to go on without a neighbour.
            self.algorithm.without(self.start.state, self.start.said)

    @cached_property
    def start(self) -> Snapshot:
        zeros = self.oracle.zeros(1)
        edges = dict.fromkeys(self.seat.neighbours, zeros) if self.seat.drops else {}
        numbers = 0 if self.opening is None else Whitening.size(self.agreement.features, full=True)
        return Snapshot(
            self.algorithm.start(self.oracle, 1), zeros, zeros, Witness.start(self.agreement), edges,
            np.zeros(numbers),
        )  # fmt: skip

    def load(self, content: bytes, k: int) -> Snapshot:
        left = {name: edge for name, edge in self.start.edges.items() if self.seat.takes_part(name, k)}
        return Snapshot.loads(content, replace(self.start, edges=left), self.agreement)

    def has_result(self, last: Standing) -> bool:
        return bool(cast(Snapshot, last).said.any())

    # -- its noise ----------------------------------------------------------------------------------------------------

    @cached_property
    def source(self) -> Noise:
        """The noise of this site in this run: exact and discrete, from its journal's key, unless a test gave one."""
        if self.seat.noise is not None:
            return self.seat.noise
        batch = self.algorithm.batch
        # The most terms that a gradient sums: its rounding grows with them, and the noise has to cover it.
        terms = max(self.agreement.member(self.seat.site).rows, 1 if batch is None else batch.size)
        return SecureNoise(self.journal.noise_key, self.agreement.model_size, terms, self.agreement.grid_bits)

    def noise_after(self, chain: bytes) -> Noise:
        """The noise of the round after the messages that the chain identifies.

        It is a function of the noise key, the agreement, site and rows (which the binding identifies), the chain, and
        the numbers that it is added to. So a site that is restored from an old copy sends the same message again, and
        two different numbers never get the same noise. Binding and chain have fixed lengths, so no two pairs have the
        same bytes.
        """
        source = self.source
        return source.within(self.seat.binding + chain) if isinstance(source, SecureNoise) else source

    # -- numbers and prices -------------------------------------------------------------------------------------------

    def partings(self) -> list[Parting]:
        return []

    confirms = False

    def cost(self, q: int) -> Cost:
        """All rounds cost the same, against everybody (`terms`); the opening has a price of its own."""
        if self.opening is not None and q == 1:
            # Its noise is for all of a person's rows everywhere, so it is booked once.
            return Cost(Gaussian(self.opening.sigma), self._divergence(self.opening.numbers))
        return self._cost

    @cached_property
    def _cost(self) -> Cost:
        # Of round 2, since the price of round 1 has that of an opening in it.
        draws = self.algorithm.draws_per_round * self.agreement.model_size
        return Cost(self.algorithm.cost(2, self.oracle), self._divergence(draws))

    def _divergence(self, draws: int) -> float:
        """The KL divergence, in nats, of so many numbers' real noise from the event's, for a person at all of their
        sites.
        """
        a, noise = self.agreement, self.seat.noise
        secure = noise is None or isinstance(noise, SecureNoise)
        return discretisation_divergence(draws * a.unit.sites, 2.0**a.grid_bits) if secure else 0.0

    def spare_costs(self) -> list[Cost]:
        return []

    # -- one round ----------------------------------------------------------------------------------------------------

    async def prepare(self, process: Process, k: int, before: Standing, policy: Policy) -> Standing:  # noqa: ARG002
        return before

    async def compute(self, process: Process, k: int, before: Standing) -> Computed:
        before = cast(Snapshot, before)
        noise = self.noise_after(before.witness.chain)

        def release() -> tuple[Floats, Any]:
            with one_thread():
                if self.opening is not None and k == 1:
                    return self._moments(self.opening, noise), before.state
                oracle = self._oracle(k - 1, before.coordinates)
                vector, state = self.algorithm.release(self._round(k), before.state, oracle, noise)
                return np.ascontiguousarray(vector[0, :, 0], dtype=np.float64), state

        vector, state = await asyncio.to_thread(release)  # while a site computes, it goes on listening
        process.probe("computed", k)
        words = ModelWords(vector, self.seat.binding, before.witness.testimony)
        # Checked on noisy numbers, so the refusal reveals nothing more than the message would.
        reach = self._format.reach(k)
        if not norm_of(words.vector) <= reach:
            raise DivergedError(
                f"Expected a model of norm at most {reach:g}, the agreed radius, got a noisy one that "
                f"is longer in round={k}. The steps are too long: agree on a smaller diameter, or on a larger radius."
            )
        return Computed(words.to_bytes(), pack_state(state), replace(before, state=state))

    def _round(self, k: int) -> int:
        """The algorithm's round that message k is of; 0 for the opening."""
        return k - (self.opening is not None)

    def _moments(self, opening: Opening, noise: Noise) -> Floats:
        """The opening of this site, with noise for a unit of the whole network: (numbers,)."""
        exact = opening.question.of(self.oracle, self.agreement.rows)[:, 0]
        sensitivity = opening.question.sensitivity(self.agreement.public_network, self.agreement.rows).item()
        return noise.added_to_sum(exact, opening.sigma, sensitivity, self.algorithm.rounds + 1)

    def _begun(self, before: Snapshot, said: Mapping[str, Floats], witness: Witness, opening: Opening) -> Snapshot:
        """The state before round 1, from the openings of all sites."""
        network, names = self.agreement.public_network, self.agreement.names
        total = np.sum([said[name] for name in names], axis=0)[:, None]
        # As a simulation says it: n releases, each with noise for the whole sum.
        std = math.sqrt(len(names)) * opening.sigma * opening.question.sensitivity(network, self.agreement.rows)
        with one_thread():
            head = self.algorithm.ahead(Opened(opening.question, total, std, self.agreement.rows), network)
            numbers = head.whitening.numbers[:, 0]
            state = self.algorithm.begin(head, self._oracle(1, numbers))
        return replace(before, state=state, witness=witness, coordinates=numbers)

    def resume(self, before: Standing, state: bytes) -> Standing:
        return replace(cast(Snapshot, before), state=unpack_state(state, self.start.state))

    async def collect(self, process: Process, k: int, read: Callable[[Slot, bytes], Letter], policy: Policy) -> Outcome:
        """The messages of all neighbours, except those that the site goes on without."""

        async def drop(k: int, name: str) -> None:
            if not process.asked:  # the silent site may know more messages of this one, and is not asked later
                await process.ask(k, policy)
            # Written down before anyone is told, so that what was told holds also after a crash.
            self.journal.drop(k, name)
            process.probe("dropped", k)
            process.watcher.tell(Dropped(k, name))
            await policy.drop(k, name)

        mail = process.mail
        letters = await process.gather(
            k, policy, lambda name, seconds: mail.hear(mail.slot(k, name), seconds, read), drop
        )
        return Outcome(letters, frozenset())

    async def take_in(
        self, k: int, before: Standing, own: Letter, letters: Mapping[str, Letter], witness: Witness
    ) -> Standing:
        """Take in a round, and undo the past of the sites that are absent from this round on."""
        before = cast(Snapshot, before)
        if self.opening is not None and k == 1:
            vectors = {self.seat.site: _vector(own)} | {name: _vector(letter) for name, letter in letters.items()}
            return await asyncio.to_thread(self._begun, before, vectors, witness, self.opening)
        said, state = as_message(_vector(own)), before.state
        heard = {name: as_message(_vector(letter)) for name, letter in letters.items()}
        edges: dict[str, Array] = {}
        for name, edge in before.edges.items():
            if name in heard:
                edges[name] = edge + (said - heard[name])
            else:
                state = self.algorithm.without(state, edge)
        # In the order of the sites, as a simulation does.
        total = np.zeros_like(said)
        for name in self.seat.neighbours:
            if name in heard:
                total = total + heard[name]
        oracle = self._oracle(k, before.coordinates)
        after = self.algorithm.absorb(self._round(k), state, oracle, FromNeighbours(total))
        return Snapshot(after, said, total, witness, edges, before.coordinates)

    async def confirm(self, process: Process, witness: Witness, policy: Policy) -> None:
        pass

    def answered(self, k: int, found: Collection[str], silences: Mapping[str, Silence]) -> bool:  # noqa: ARG002
        return False

    def result(self, rounds: int, last: Standing) -> Learnt:
        """The mean of the site's own last message and of those that it heard in that round."""
        last = cast(Snapshot, last)
        left = sum(self.seat.takes_part(name, rounds) for name in self.seat.neighbours)
        said, heard = (np.asarray(array, dtype=np.float64) for array in (last.said, last.heard))
        if last.coordinates.any():
            found = self._coordinates(last.coordinates)
            said, heard = found.times(said[0])[None], found.times(heard[0])[None]
        model = (said + heard)[0, :, 0] / (1 + left)
        return Learnt(rounds=rounds, absent=self.journal.absent, state=last.state, model=model, own=said[0, :, 0])

    def _oracle(self, k: int, coordinates: Array) -> Oracle:
        """The oracle for the neighbours that were left at the end of message k, in these coordinates if any.

        A site's noise and its cost stay the same if it has lost some. Sensitivity is that of the gradient, 2 c1 n
        omega_i / m_i with the agreed n omega_i, and sigma follows from epsilon, delta and the number of steps; the
        degree only enters what is done with a noisy gradient and with messages, which is post-processing. The
        regulariser keeps its agreed weight lam at every site.
        """
        left = sum(self.seat.takes_part(name, k) for name in self.seat.neighbours)
        if left not in self._oracles:
            found = self.oracle if left == len(self.seat.neighbours) else replace(self.oracle, degrees=np.array([left]))
            if self.opening is not None:
                found = WhitenedOracle.of(found, self._coordinates(coordinates), STRETCH)
            self._oracles[left] = found
        return self._oracles[left]

    @cached_property
    def _oracles(self) -> dict[int, Oracle]:
        """By the number of neighbours. A run has one set of coordinates: how much each row counts in them takes a
        while to compute.
        """
        return {}

    def _coordinates(self, numbers: Array) -> Whitening:
        features = self.agreement.features
        like = Whitening(np.empty((features, features, 1)), np.empty((1, 1)))
        return like.of(np.asarray(numbers, dtype=np.float64)[:, None])


def as_message(vector: Array) -> Array:
    """From a vector (d,) of a message to the shape (1, d, 1) that algorithms work on: one node, one run."""
    return vector.reshape(1, -1, 1)


def _vector(letter: Letter) -> Floats:
    """The noisy vector of a message that is not masked."""
    return cast(ModelWords, letter.words).vector


@final
class FromNeighbours(Inbox):
    """Inbox that holds only the neighbours' sum."""

    def __init__(self, total: Array) -> None:
        self._total = total

    def neighbours(self) -> Array:
        return self._total

    def everyone(self) -> Array:
        raise UnsupportedError(
            "Expected an algorithm that needs its neighbours' messages only, got one that asks for everyone's sum: a "
            "site of this run does not hear it."
        )
