"""One site's part in a run, as the runner sees it, whichever way its sites speak.

A round is prepare, compute, collect, take in. There are two final forms: `own_noise.OwnNoise`, where a site says a
noisy model and hears its neighbours', and `masked_sums.MaskedSums`, where it says masked words and everyone reads the
sum. What a part needs of the process that runs it, mailboxes and patience, is a `Process`.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, final

from sottovoce.arrays import Floats
from sottovoce.federation.site.absent import Policy, Silence
from sottovoce.federation.site.board import Board
from sottovoce.federation.site.events import Watcher
from sottovoce.federation.site.mail import Answer, Letter, Mail
from sottovoce.federation.site.masks import Parting
from sottovoce.federation.site.witness import Witness
from sottovoce.federation.transport.wire import Kind, Slot
from sottovoce.privacy.books.book import Cost
from sottovoce.sums.inference import Evidence
from sottovoce.tally.evaluation import Tallied

if TYPE_CHECKING:
    from sottovoce.federation.site.seat import Seat

T = TypeVar("T")
Hearing = Callable[[Collection[str]], Awaitable[dict[str, Answer[T]]]]


@final
@dataclass(frozen=True, eq=False)
class Finished:
    """What a run leaves behind at a site.

    Args:
        model: the model, (d,). With noise of its own, the mean of the site's last message and those of its neighbours:
            on a complete graph the same everywhere, elsewhere neighbouring sites nearly agree. Of masked sums, what
            everyone computes from them.
        own: the site's own last message; of masked sums, the model.
        rounds: how many are done; of masked sums, how many were read.
        absent: neighbours that the site went on without, each with the first round without it.
        state: what the site stands at after the last round. It must not leave the site.
        evidence: what coefficients are inferred from, the same at all sites; None unless that was agreed on, and done.
        tallied: how good the model is, as far as two more sums tell, the same at all sites; None unless that was
            agreed on, and done.
    """

    model: Floats
    own: Floats
    rounds: int
    absent: Mapping[str, int]
    state: Any
    tallied: Tallied | None = None
    evidence: Evidence | None = None


class Standing(ABC):
    """Where a site stands after a round. A new one is made by every round."""

    witness: Witness  # what it knows of everyone's words
    opened: bytes | None = None  # the sum that the round opened, packed for the journal; None if it opened none

    @abstractmethod
    def dumps(self) -> bytes:
        """As bytes, for the journal's checkpoint."""

    @abstractmethod
    def with_witness(self, witness: Witness) -> "Standing":
        """The same with other knowledge of what was said, after a round that opened nothing."""

    @abstractmethod
    def size(self, senders: int) -> float | None:
        """The norm of what the last round opened, noise and all, where so many sites spoke; None if there is none."""


class Computed(NamedTuple):
    """The local work of a round."""

    payload: bytes  # of the message
    state: bytes  # packed for the outbox, from which the round can be resumed
    standing: Standing


class Outcome(NamedTuple):
    """How a round ended: with everyone's letters, or with those whom it is made again without. Letters are those of
    others; if somebody was dropped, of those who are left, as far as they were heard.
    """

    letters: dict[str, Letter]
    dropped: frozenset[str]


class Process(Protocol):
    """What a part needs of the process that runs it."""

    mail: Mail
    board: Board
    watcher: Watcher
    asked: bool  # whether the neighbours have told this process what they heard of it

    @property
    def seconds(self) -> float:
        """Seconds between two judgements of those who are silent."""

    def probe(self, point: str, k: int) -> None:
        """Called whenever a point of a round is reached, for tests."""

    def hearing(self, k: int, read: Callable[[Slot, bytes], T], kind: Kind) -> Hearing[T]:
        """Asks some sites once, side by side, for their messages of that kind in round k."""

    async def gather(
        self, k: int, policy: Policy, hear: Callable[[str, float], Awaitable[Answer[T]]],
        drop: Callable[[int, str], Awaitable[None]], but: frozenset[str] = ...,
        enough: Callable[[Collection[str], Mapping[str, Silence]], bool] = ...,
    ) -> dict[str, T]:  # fmt: skip
        """What each neighbour has to say in round k; the policy decides about those who are silent."""

    async def ask(self, k: int, policy: Policy, but: frozenset[str] = ...) -> None:
        """Ask all neighbours `but` some what they last heard of this site, and stop if any of it is news."""


class Part(ABC):
    """One site's part in one run.

    Args:
        seat: the site, with all that it has.
    """

    def __init__(self, seat: "Seat") -> None:
        self.seat, self.agreement, self.journal = seat, seat.agreement, seat.journal

    # -- before the first round ---------------------------------------------------------------------------------------

    @abstractmethod
    def check(self) -> None:
        """Refuse what could not be run, before anything is drawn or sent."""

    @property
    @abstractmethod
    def start(self) -> Standing:
        """Where every site stands before round 1. It does not depend on rows."""

    @abstractmethod
    def load(self, content: bytes, k: int) -> Standing:
        """Where the site stands after round k, from the content of a checkpoint; `DamagedError` for other bytes."""

    @abstractmethod
    def has_model(self, last: Standing) -> bool:
        """True if what was heard until then makes a model."""

    # -- numbers and prices -------------------------------------------------------------------------------------------

    @abstractmethod
    def partings(self) -> list[Parting]:
        """All sums that were given up, to be made again without a lost site."""

    @property
    @abstractmethod
    def confirms(self) -> bool:
        """True if a site must hear from others, after the last round, that they hold the same."""

    @abstractmethod
    def cost(self, q: int) -> Cost:
        """What one message for release q is booked as."""

    @abstractmethod
    def spare_costs(self) -> list[Cost]:
        """What messages that may still be made again would cost."""

    # -- one round ----------------------------------------------------------------------------------------------------

    @abstractmethod
    async def prepare(self, process: Process, k: int, before: Standing, policy: Policy) -> Standing | None:
        """All that sites must agree on before anybody speaks in round k; None if the round is given up."""

    @abstractmethod
    async def compute(self, process: Process, k: int, before: Standing) -> Computed:
        """Draw the noise and compute round k. Nothing is written or sent."""

    @abstractmethod
    def resume(self, before: Standing, state: bytes) -> Standing:
        """The standing of `compute`, from what the outbox holds."""

    @abstractmethod
    async def collect(self, process: Process, k: int, read: Callable[[Slot, bytes], Letter], policy: Policy) -> Outcome:
        """Everyone's messages of round k, or those whom it is made again without."""

    @abstractmethod
    async def take_in(
        self, k: int, before: Standing, own: Letter, letters: Mapping[str, Letter], witness: Witness
    ) -> Standing:
        """Where the site stands after round k; `witness` is what it then knows."""

    @abstractmethod
    async def confirm(self, process: Process, witness: Witness, policy: Policy) -> None:
        """After the last round: wait until enough others hold it too."""

    @abstractmethod
    def answered(self, k: int, found: Collection[str], silences: Mapping[str, Silence]) -> bool:
        """True if the site may speak in round k though some have not answered what they last heard of it."""

    @abstractmethod
    def result(self, rounds: int, last: Standing) -> Finished:
        """What the site ends with, after so many rounds."""
