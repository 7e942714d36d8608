"""The numbered messages of a run, with noise of each site's own or masked: their kind, their sizes, how they are read.

All of it follows from the agreement, so every reader knows the length of a message before it comes.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar, final

from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.letters import SumWords, Words, point_size, read_sum, read_words, sum_size, words_size
from sottovoce.federation.transport.wire import Kind


class Format(ABC):
    """The messages of a run.

    Args:
        agreement: of the run.
    """

    kind: ClassVar[Kind]

    def __init__(self, agreement: Agreement) -> None:
        self.agreement, self.sites = agreement, len(agreement.sites)

    @property
    @abstractmethod
    def spare(self) -> int:
        """Number of rounds that may be repeated without a lost site."""

    @property
    @abstractmethod
    def messages(self) -> int:
        """Largest number of messages of one site, with proposals, without notices and answers."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """Bytes of the largest payload of a message or a proposal."""

    @abstractmethod
    def payload(self, q: int) -> int:
        """Bytes of the payload of a message for release q."""

    @abstractmethod
    def proposal(self, q: int) -> int:
        """Bytes of the payload of a proposal for release q."""

    @abstractmethod
    def read(self, payload: bytes, number: int) -> Words | SumWords:
        """The content of the message with that number, or `BadMessageError`."""


@final
class ModelFormat(Format):
    """Noisy models. Release q is round q."""

    kind = Kind.MODEL
    spare = 0

    @property
    def messages(self) -> int:
        return self.agreement.algorithm.rounds

    @property
    def largest(self) -> int:
        return self.payload(1)

    def payload(self, q: int) -> int:  # noqa: ARG002
        return words_size(self.sites, self.agreement.model_size)

    def proposal(self, q: int) -> int:  # noqa: ARG002
        return 0

    def read(self, payload: bytes, number: int) -> Words:
        return read_words(payload, number, self.sites, self.agreement.reach)


@final
class SumFormat(Format):
    """Masked words, and proposals of the points of sums. The message after the last sum holds no words."""

    kind = Kind.SUM

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        self.schedule = agreement.analysis.schedule(agreement.features)

    @property
    def spare(self) -> int:
        return self.agreement.analysis.spare

    @property
    def messages(self) -> int:
        # Words and a proposal for every sum, and one message that the site holds the last one.
        return 2 * (len(self.schedule) + self.spare) + 1

    @cached_property
    def largest(self) -> int:
        releases = range(1, len(self.schedule) + 1)
        return max(max(self.payload(q), self.proposal(q)) for q in releases)

    def payload(self, q: int) -> int:
        return sum_size(self.sites, self.schedule[q - 1].numbers if q <= len(self.schedule) else 0)

    def proposal(self, q: int) -> int:
        return point_size(self.sites, self.schedule[q - 1].point if q <= len(self.schedule) else 0)

    def read(self, payload: bytes, number: int) -> SumWords:
        return read_sum(payload, number, self.sites)


def format_of(agreement: Agreement) -> Format:
    """The format of the messages of this agreement's run."""
    return SumFormat(agreement) if agreement.algorithm.way.masked else ModelFormat(agreement)
