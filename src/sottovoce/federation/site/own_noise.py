"""A site's part in a run with noise of its own: it sends a noisy model, and goes on from its neighbours'."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, cast, final

import numpy as np

from sottovoce.algorithms import PrivateAlgorithm
from sottovoce.arrays import Array, Floats
from sottovoce.errors import InputError, UnsupportedError
from sottovoce.federation.site.absent import Policy, Silence
from sottovoce.federation.site.events import Dropped
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
from sottovoce.privacy.accounting.discrete import discretisation_divergence
from sottovoce.privacy.books.book import Cost
from sottovoce.problem.graphs import Inbox


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

    def check(self) -> None:
        if self.seat.drops:
            # Refuses, before round 1, an algorithm that has not said how to go on without a neighbour.
            self.algorithm.without(self.start.state, self.start.said)

    @cached_property
    def start(self) -> Snapshot:
        zeros = self.oracle.zeros(1)
        edges = dict.fromkeys(self.seat.neighbours, zeros) if self.seat.drops else {}
        witness = Witness.start(self.agreement)
        return Snapshot(self.algorithm.start(self.oracle, 1), zeros, zeros, witness, edges)

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

    def cost(self, q: int) -> Cost:  # noqa: ARG002
        return self._cost

    @cached_property
    def _cost(self) -> Cost:
        """The cost of any round: all rounds cost the same, against everybody (`terms`)."""
        a, noise = self.agreement, self.seat.noise
        # The KL divergence, in nats, of one round's real noise from the event's, for a person at all of their sites.
        draws = self.algorithm.draws_per_round * a.model_size * a.unit.sites
        secure = noise is None or isinstance(noise, SecureNoise)
        divergence = discretisation_divergence(draws, 2.0**a.grid_bits) if secure else 0.0
        return Cost(self.algorithm.cost(1, self.oracle), divergence)

    def spare_costs(self) -> list[Cost]:
        return []

    # -- one round ----------------------------------------------------------------------------------------------------

    async def prepare(self, process: Process, k: int, before: Standing, policy: Policy) -> Standing:  # noqa: ARG002
        return before

    async def compute(self, process: Process, k: int, before: Standing) -> Computed:
        before = cast(Snapshot, before)
        noise, oracle = self.noise_after(before.witness.chain), self._oracle(k - 1)

        def release() -> tuple[Array, Any]:
            with one_thread():
                return self.algorithm.release(k, before.state, oracle, noise)

        vector, state = await asyncio.to_thread(release)  # while a site computes, it goes on listening
        process.probe("computed", k)
        words = ModelWords(np.ascontiguousarray(vector[0, :, 0]), self.seat.binding, before.witness.testimony)
        # Checked on noisy numbers, so the refusal reveals nothing more than the message would.
        if not norm_of(words.vector) <= self.agreement.reach:
            raise DivergedError(
                f"Expected a model of norm at most {self.agreement.reach:g}, the agreed radius, got a noisy one that "
                f"is longer in round={k}. The steps are too long: agree on a smaller diameter, or on a larger radius."
            )
        return Computed(words.to_bytes(), pack_state(state), replace(before, state=state))

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
        after = self.algorithm.absorb(k, state, self._oracle(k), FromNeighbours(total))
        return Snapshot(after, said, total, witness, edges)

    async def confirm(self, process: Process, witness: Witness, policy: Policy) -> None:
        pass

    def answered(self, k: int, found: Collection[str], silences: Mapping[str, Silence]) -> bool:  # noqa: ARG002
        return False

    def result(self, rounds: int, last: Standing) -> Learnt:
        """The mean of the site's own last message and of those that it heard in that round."""
        last = cast(Snapshot, last)
        left = sum(self.seat.takes_part(name, rounds) for name in self.seat.neighbours)
        said, heard = (np.asarray(array[0, :, 0], dtype=np.float64) for array in (last.said, last.heard))
        model = (said + heard) / (1 + left)
        return Learnt(rounds=rounds, absent=self.journal.absent, state=last.state, model=model, own=said)

    def _oracle(self, k: int) -> Oracle:
        """The oracle for the neighbours that were left at the end of round k.

        A site's noise and its cost stay the same if it has lost some. Sensitivity is that of the gradient, 2 c1 n
        omega_i / m_i with the agreed n omega_i, and sigma follows from epsilon, delta and the number of steps; the
        degree only enters what is done with a noisy gradient and with messages, which is post-processing. The
        regulariser keeps its agreed weight lam at every site.
        """
        left = sum(self.seat.takes_part(name, k) for name in self.seat.neighbours)
        return self.oracle if left == len(self.seat.neighbours) else replace(self.oracle, degrees=np.array([left]))


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
