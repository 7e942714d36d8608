"""One site's seat in a run: the agreement, and the rows, keys and files that only this site has.

Everything that can be checked before the first round is checked here, before anything is drawn or sent. A seat knows
the cost of a round, and the site's state. It sends nothing and waits for nobody; the runner
does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import final

from sottovoce.errors import BudgetError, InputError, PrivacyError
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.federation.site.commitment import Source, bind, commit, commit_file, rows_digest
from sottovoce.federation.site.events import RunFacts, Spending
from sottovoce.federation.site.heads import Books, Heads
from sottovoce.federation.site.journal import Commit, Journal, Owner
from sottovoce.federation.site.masked_sums import MaskedSums
from sottovoce.federation.site.masks import Turn, notices_digest
from sottovoce.federation.site.own_noise import OwnNoise
from sottovoce.federation.site.part import SitePart, Standing
from sottovoce.federation.site.software import software
from sottovoce.federation.site.stops import DamagedError
from sottovoce.federation.transport.wire import digest_of
from sottovoce.noise.secure import require_secure
from sottovoce.noise.sources import Noise
from sottovoce.oracle.row_sums import RowSums
from sottovoce.privacy.books.book import Cost
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.problem.sites import Sites


def owner_of(agreement: Agreement, site: str) -> Owner:
    """The owner of a journal: this site, in this run, under this agreement, with this software."""
    return Owner(agreement.run, agreement.digest().hex(), site, software())


def committing(agreement: Agreement, site: str, rows: Sites, source: Source | None = None) -> Commit:
    """The function from a salt to the rows' commitment. It refuses a commitment to other data than the agreed ones.

    Args:
        agreement: of the run.
        site: whose rows these are.
        rows: as they are computed with.
        source: the file that they were read from; None if there is none.
    """
    agreed = agreement.member(site).data_commitment

    def commit_to_rows(salt: bytes) -> str:
        made = commit(salt, rows)
        if agreed not in (None, made, None if source is None else commit_file(salt, source)):
            raise InputError(
                f"Expected the rows and the salt that site {site} has committed to in the agreement, {agreed}, got "
                "others. Give the data file and the salt that the commitment was made with, and its --delimiter if it "
                "had one: --salt."
            )
        return made

    return commit_to_rows


def booked_as(agreement: Agreement, site: str) -> str:
    """The name of a run in the ledger of a site's rows. With the agreement's digest, no other run can have it."""
    return f"{agreement.run}/{site}/{agreement.digest().hex()[:16]}"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Seat:
    """A site that is ready to run.

    Args:
        agreement: which all sites have signed.
        site: its name there.
        rows: its private rows.
        key: its private key.
        ledger: of exactly these rows.
        journal: of this run; see `owner_of`.
        heads: other sites' statements of their books, from all runs of this site.
        source: the data file. Its digest names the books to others; None: that of the rows does.
        noise: None at a real site, which makes its own. Anything but secure noise is refused, except in tests.
        for_tests: True only in tests; it allows any noise.
    """

    agreement: Agreement
    site: str
    rows: Sites
    key: SigningKey
    ledger: Ledger
    journal: Journal
    heads: Heads
    source: Source | None = None
    noise: Noise | None = None
    for_tests: bool = False

    def __post_init__(self) -> None:
        agreed = self.agreement.member(self.site).public_key
        if self.key.public != agreed:
            raise InputError(
                f"Expected the key of site {self.site} with fingerprint {agreed.fingerprint}, got "
                f"{self.key.public.fingerprint}. Use the right key file."
            )
        _ = self.oracle  # refuses rows that are not as agreed
        self.check_rows()
        if self.noise is not None:
            require_secure(self.noise, for_tests=self.for_tests)
        self.part.check()

    # -- what it computes with ----------------------------------------------------------------------------------------

    @cached_property
    def oracle(self) -> RowSums:
        """The rows, with all that is needed to compute with them; refused unless they are as agreed."""
        return self.agreement.oracle_for(self.site, self.rows)

    @cached_property
    def part(self) -> SitePart:
        """The site's part in the run: with masked sums, or with noise of its own."""
        return MaskedSums(self) if self.agreement.algorithm.way.masked else OwnNoise(self)

    @cached_property
    def binding(self) -> bytes:
        """The 32 bytes in every message of this run that identify the rows and the noise key."""
        return bind(self.agreement.digest(), self.site, self.journal.rows, self.journal.noise_key)

    def check_rows(self) -> None:
        """Refuse rows that are not, bit by bit, those that the run began with."""
        self.journal.check_rows(committing(self.agreement, self.site, self.rows, self.source))

    @property
    def drops(self) -> bool:
        """True if a lost neighbour may be dropped."""
        return self.agreement.lost_neighbour.policy == "go-on"

    @cached_property
    def neighbours(self) -> tuple[str, ...]:
        """The sites that it hears, as agreed, in order, including those that were dropped."""
        return self.agreement.neighbours(self.site)

    # -- which sum a message is for ------------------------------------------------------------------------------------
    # Where a site can be lost for good, a sum may be repeated without it. Messages are numbered on: the one with number
    # t is for release q = t - (number of sums given up before). All of this follows from which sites were dropped when.

    def turn(self, t: int) -> Turn:
        """The release that the message with number t is for, and the number of sums that were given up before it."""
        attempt = sum(parting.number < t for parting in self.part.partings())
        return Turn(t - attempt, attempt)

    def members(self, t: int) -> tuple[str, ...]:
        """U, of the sum that the message with number t is for."""
        return tuple(name for name in self.agreement.names if self.takes_part(name, t - 1))

    def notices(self, t: int) -> bytes:
        """The digest of all notices by which sites were dropped before the message with number t."""
        return notices_digest([parting for parting in self.part.partings() if parting.number < t])

    @property
    def last_number(self) -> int:
        """The number of the run's last message, if no other site is lost."""
        return self.agreement.algorithm.messages + len(self.part.partings())

    @property
    def done(self) -> bool:
        """True if all rounds were taken in."""
        return self.journal.round >= self.last_number

    @property
    def over(self) -> bool:
        """True if the run is finished: all rounds were taken in, and the last sum was confirmed if it must be."""
        return self.done and (self.journal.wound_up or not self.part.confirms)

    # -- what it costs ------------------------------------------------------------------------------------------------

    @property
    def booked(self) -> str:
        """The name of this run in the ledger."""
        return booked_as(self.agreement, self.site)

    def cost(self, k: int) -> Cost:
        """The cost of the message with number k, as it is booked."""
        return self.part.cost(self.turn(k).release)

    def spending(self) -> Spending:
        """The ledger as it is now, over all runs."""
        ledger = self.ledger
        return Spending(ledger.total(), ledger.left(), ledger.cap, ledger.header.delta, ledger.colluding())

    def facts(self) -> RunFacts:
        """Public numbers of the run, for watchers."""
        a, done = self.agreement, self.turn(self.journal.round + 1).release - 1
        return RunFacts(
            a.run, a.digest().hex(), self.site, self.neighbours, a.algorithm.messages, done,
            a.lost_neighbour.policy, a.lost_neighbour.wait_seconds, a.algorithm.epsilon, a.algorithm.delta,
        )  # fmt: skip

    # -- the books ----------------------------------------------------------------------------------------------------

    @cached_property
    def books(self) -> Books:
        """The statements of the ledger, for other sites."""
        known_by = rows_digest(self.rows) if self.source is None else self.source.digest
        return Books(self.ledger, self.key, known_by)

    def refused(self) -> BudgetError | None:
        """The error if not all rounds of the run fit under the ledger's cap; None if they do."""
        try:
            with damage_from_ledger():
                costs = [self.cost(k) for k in range(1, self.last_number + 1)]
                self.ledger.check_rounds(self.booked, costs + self.part.spare_costs(), unit=self.agreement.unit)
        except BudgetError as error:
            return error
        return None

    def check_books(self) -> None:
        """Refuse a ledger and a journal that contradict each other, so that no round is ever drawn twice; and, as long
        as the run is not finished, a journal that began under other software or on another kind of processor.
        """
        if self.journal.moved is not None and not self.over:
            raise self.journal.moved
        last = self.journal.round
        bound = {r.round: r.message for r in self.ledger.reservations() if r.run == self.booked}
        silent = {parting.number for parting in self.part.partings() if self.journal.said(parting.number) is None}
        # The journal is ahead of the ledger: rounds were taken in that the ledger lacks. For a sum that was given up
        # before this site sent words there is no message.
        unpaid = [k for k in range(1, last + 1) if k not in bound or (bound[k] is None and k not in silent)]
        if unpaid:
            raise DamagedError(
                f"Expected every round that was sent in the ledger, got none for round={unpaid[0]} of run "
                f"{self.booked!r}. The ledger is older than the journal, or another: put the right one back."
            )
        for k, message in bound.items():
            said = self.journal.said(k)
            if message is None or (k <= last and said is None):
                continue
            # The ledger is ahead of the journal: a message was released that the journal lacks.
            if said is None or digest(said.message) != message:
                raise DamagedError(
                    f"Expected the message of round={k} in the journal, since the ledger says that it was released, "
                    f"got {'none' if said is None else 'another'}. The journal is older than the ledger: put the right "
                    "one back. Drawing the round afresh would release it twice."
                )

    def reserve(self, k: int) -> None:
        """Pay for round k, unless it was paid for. The entry is on the disk when this returns."""
        with damage_from_ledger():
            self.ledger.reserve(self.booked, k, *self.cost(k), unit=self.agreement.unit)

    def bind(self, k: int, message: bytes) -> None:
        """Bind round k to this message for good. The entry is on the disk when this returns, before it is sent."""
        with damage_from_ledger():
            self.ledger.bind_message(self.booked, k, digest(message))

    def standing(self) -> Standing:
        """The site's state after the last finished round, from the journal, or before round 1."""
        last = self.journal.last()
        return self.part.start if last is None else self.part.load(last.content, last.round)

    def takes_part(self, name: str, k: int) -> bool:
        """True if this site had not been dropped when round k ended."""
        return self.journal.absent.get(name, k + 1) > k


def digest(message: bytes) -> str:
    """The SHA-256 of a message in hexadecimal, as the ledger keeps it."""
    return digest_of(message).hex()


@contextmanager
def damage_from_ledger() -> Iterator[None]:
    """Turn the ledger's errors into `DamagedError`, except a refused budget.

    Any other refusal means that the ledger's file and this run do not belong together.
    """
    try:
        yield
    except BudgetError:
        raise
    except PrivacyError as error:
        raise DamagedError(str(error)) from error
