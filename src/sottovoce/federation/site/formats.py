"""The numbered messages of a run, with noise of each site's own or masked: their kind, their sizes, how they are read.

All of it follows from the agreement, so every reader knows the length of a message before it comes.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, final

from sottovoce.algorithms import Algorithm
from sottovoce.federation.agreement.agreement import LARGEST_RADIUS, Agreement
from sottovoce.federation.site.letters import (
    ModelWords,
    SumWords,
    point_size,
    read_sum,
    read_words,
    sum_size,
    words_size,
)
from sottovoce.federation.transport.wire import Kind


class Format(ABC):
    """The messages of a run.

    Args:
        agreement: of the run.
    """

    kind: ClassVar[Kind]
    spare: int  # number of rounds that may be repeated without a lost site
    messages: int  # largest number of messages of one site, with proposals, without notices and answers
    largest: int  # bytes of the largest payload of a message or a proposal

    def __init__(self, agreement: Agreement) -> None:
        self.agreement, self.sites = agreement, len(agreement.sites)

    @abstractmethod
    def payload(self, q: int) -> int:
        """Bytes of the payload of a message for release q."""

    @abstractmethod
    def proposal(self, q: int) -> int:
        """Bytes of the payload of a proposal for release q."""

    @abstractmethod
    def read(self, payload: bytes, number: int) -> ModelWords | SumWords:
        """The content of the message with that number, or `BadMessageError`."""


@final
class ModelFormat(Format):
    """Noisy models, and before them what the algorithm releases before round 1, if it does."""

    kind = Kind.MODEL

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        a = agreement.algorithm
        assert isinstance(a, Algorithm)  # `format_of` has seen to it
        self.opening = a.opening(agreement.features)
        self.spare, self.messages, self.largest = 0, a.messages, max(self.payload(1), self.payload(2))

    def reach(self, q: int) -> float:
        """The largest norm of message q. What is released before round 1 is no model, and grows with the rows."""
        return LARGEST_RADIUS if self.opening is not None and q == 1 else self.agreement.reach

    def payload(self, q: int) -> int:
        opening = self.opening if q == 1 else None
        return words_size(self.sites, self.agreement.model_size if opening is None else opening.numbers)

    def proposal(self, q: int) -> int:  # noqa: ARG002
        return 0

    def read(self, payload: bytes, number: int) -> ModelWords:
        return read_words(payload, number, self.sites, self.reach(number))


@final
class SumFormat(Format):
    """Masked words, and proposals of the points of sums. The message after the last sum holds no words."""

    kind = Kind.SUM

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        self.schedule, self.spare = agreement.analysis.schedule(agreement.features), agreement.analysis.spare
        # Words and a proposal for every sum, and one message that the site holds the last one.
        self.messages = 2 * (len(self.schedule) + self.spare) + 1
        self.largest = max(max(self.payload(q), self.proposal(q)) for q in range(1, len(self.schedule) + 1))

    def payload(self, q: int) -> int:
        return sum_size(self.sites, self.schedule[q - 1].numbers if q <= len(self.schedule) else 0)

    def proposal(self, q: int) -> int:
        return point_size(self.sites, self.schedule[q - 1].point if q <= len(self.schedule) else 0)

    def read(self, payload: bytes, number: int) -> SumWords:
        return read_sum(payload, number, self.sites)


def format_of(agreement: Agreement) -> Format:
    """The format of the messages of this agreement's run."""
    return SumFormat(agreement) if agreement.algorithm.way.masked else ModelFormat(agreement)
