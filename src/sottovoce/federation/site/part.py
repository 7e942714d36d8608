"""The interface of one site's part in a run, which the runner calls. It hides what depends on the kind of message.

A round is prepare, compute, collect, take in. There are two implementations: `own_noise.OwnNoise`, where a site sends a
noisy model and hears its neighbours', and `masked_sums.MaskedSums`, where it sends masked words and all sites read the
sum. A part calls the process that runs it through `Process`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, final

from sottovoce.arrays import Floats
from sottovoce.federation.site.absent import Policy, Silence
from sottovoce.federation.site.board import Board
from sottovoce.federation.site.mail import Letter, Mail, Reply
from sottovoce.federation.site.masks import Parting
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.site.witness import Witness
from sottovoce.federation.transport.wire import Kind, Slot
from sottovoce.privacy.books.book import Cost
from sottovoce.sums.inference import Evidence
from sottovoce.sums.program import Opened
from sottovoce.tally.evaluation import Tallied

if TYPE_CHECKING:
    from sottovoce.federation.site.seat import Seat

T = TypeVar("T")
Hearing = Callable[[Collection[str]], Awaitable[dict[str, Reply[T]]]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Finished:
    """The result of a run at a site.

    Args:
        rounds: number of finished rounds; with masked sums, of opened sums.
        absent: neighbours that the site went on without, each with the first round without it.
        state: the site's state after the last round; with masked sums, what the program found. With noise of its own it
            must not leave the site.
    """

    rounds: int
    absent: Mapping[str, int]
    state: Any


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Learnt(Finished):
    """The result of a run that ends in a model.

    Args:
        model: the model, (d,). With noise of each site's own, the mean of the site's last message and those of its
            neighbours: on a complete graph the same at all sites, elsewhere nearly the same at neighbouring sites.
            With masked sums, what all sites compute from them.
        own: the site's own last message; with masked sums, the model.
        evidence: what coefficients are inferred from, the same at all sites; None unless that was agreed on, and done.
        tallied: the evaluation of the model by two more sums, the same at all sites; None unless that was agreed on,
            and done.
        moments: the opened second moments of the rows of all sites, the same at all; None if they were not opened.
    """

    model: Floats
    own: Floats
    tallied: Tallied | None = None
    evidence: Evidence | None = None
    moments: Opened | None = None


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Counted(Finished):
    """The result of a run that ends in a table.

    Args:
        opened: the noisy sum of coded rows, the same at all sites.
    """

    opened: Opened


class Standing(ABC):
    """A site's state after a round. Every round makes a new one."""

    witness: Witness  # what the site knows of all sites' messages
    opened: bytes | None = None  # the sum that the round opened, packed for the journal; None if it opened none

    @abstractmethod
    def dumps(self) -> bytes:
        """The state as bytes, for the journal's checkpoint."""

    @abstractmethod
    def with_witness(self, witness: Witness) -> "Standing":
        """The state after a round that opened nothing: the same, with this witness."""

    @abstractmethod
    def size(self, senders: int) -> float | None:
        """The norm of what the last round opened, with its noise, for so many senders; None if there is none."""


class Computed(NamedTuple):
    """The result of a round's local work."""

    payload: bytes  # of the message
    state: bytes  # packed for the outbox, from which `resume` reads it
    standing: Standing


class Outcome(NamedTuple):
    """How a round ended: with all letters that were awaited, or with the sites that it is repeated without. `letters`
    are those of other sites. If sites were dropped, they are those of the remaining ones that have come.
    """

    letters: dict[str, Letter]
    dropped: frozenset[str]


class Process(Protocol):
    """The process that runs a part, as far as the part uses it."""

    mail: Mail
    board: Board
    watcher: Watcher
    asked: bool  # True if the neighbours have told this process what they heard of it
    seconds: float  # between two judgements of silent sites
    probe: Callable[[str, int], None]  # called with a point's name and the round when it is reached, for tests

    def hearing(self, k: int, read: Callable[[Slot, bytes], T], kind: Kind) -> Hearing[T]:
        """A function that asks sites once, concurrently, for their messages of that kind in round k."""

    async def gather(
        self, k: int, policy: Policy, hear: Callable[[str, float], Awaitable[Reply[T]]],
        drop: Callable[[int, str], Awaitable[None]], but: frozenset[str] = ...,
        enough: Callable[[Collection[str], Mapping[str, Silence]], bool] = ...,
    ) -> dict[str, T]:  # fmt: skip
        """The answers of the neighbours in round k; the policy decides about silent ones."""

    async def ask(self, k: int, policy: Policy, but: frozenset[str] = ...) -> None:
        """Ask all neighbours, except those in `but`, what they last heard of this site; stop if it is news."""


class SitePart(ABC):
    """One site's part in one run.

    Args:
        seat: the site, with its rows, keys and files.
    """

    def __init__(self, seat: "Seat") -> None:
        self.seat, self.agreement, self.journal = seat, seat.agreement, seat.journal

    # -- before the first round ---------------------------------------------------------------------------------------

    @abstractmethod
    def check(self) -> None:
        """Refuse a run that cannot work, before anything is drawn or sent."""

    @property
    @abstractmethod
    def start(self) -> Standing:
        """The state before round 1. It does not depend on rows."""

    @abstractmethod
    def load(self, content: bytes, k: int) -> Standing:
        """The state after round k, from the content of a checkpoint; `DamagedError` for other bytes."""

    @abstractmethod
    def has_result(self, last: Standing) -> bool:
        """True if the messages until then give a model or a table."""

    # -- numbers and prices -------------------------------------------------------------------------------------------

    @abstractmethod
    def partings(self) -> list[Parting]:
        """All sums that were given up, to be repeated without a lost site."""

    @property
    @abstractmethod
    def confirms(self) -> bool:
        """True if a site must hear from others, after the last round, that they hold the same result."""

    @abstractmethod
    def cost(self, q: int) -> Cost:
        """The cost of one message for release q, as it is booked."""

    @abstractmethod
    def spare_costs(self) -> list[Cost]:
        """The costs of the messages of rounds that may still be repeated."""

    # -- one round ----------------------------------------------------------------------------------------------------

    @abstractmethod
    async def prepare(self, process: Process, k: int, before: Standing, policy: Policy) -> Standing | None:
        """Settle what all sites must agree on before any of them sends words in round k; None if it is given up."""

    @abstractmethod
    async def compute(self, process: Process, k: int, before: Standing) -> Computed:
        """Draw the noise and compute the message of round k. Nothing is written or sent."""

    @abstractmethod
    def resume(self, before: Standing, state: bytes) -> Standing:
        """The state that `compute` returned, from the outbox."""

    @abstractmethod
    async def collect(self, process: Process, k: int, read: Callable[[Slot, bytes], Letter], policy: Policy) -> Outcome:
        """The messages of all sites in round k, or the sites that it is repeated without."""

    @abstractmethod
    async def take_in(
        self, k: int, before: Standing, own: Letter, letters: Mapping[str, Letter], witness: Witness
    ) -> Standing:
        """The state after round k; `witness` includes these letters."""

    @abstractmethod
    async def confirm(self, process: Process, witness: Witness, policy: Policy) -> None:
        """After the last round, wait until enough other sites hold the same result."""

    @abstractmethod
    def answered(self, k: int, found: Collection[str], silences: Mapping[str, Silence]) -> bool:
        """True if the site may send words in round k though some have not answered what they last heard of it."""

    @abstractmethod
    def result(self, rounds: int, last: Standing) -> Finished:
        """The site's result after so many rounds."""
