"""Who looks on. What a release costs may depend on it.

Where every site adds noise of its own, all observers see the same price. Where only sums over sites are ever opened,
those who know some sites' shares of the noise see less of it. An observer is an argument of `Algorithm.cost`; nothing
here computes a price.
"""

from dataclasses import dataclass
from typing import final

from sottovoce.errors import expect


@final
@dataclass(frozen=True)
class Observer:
    """Whoever carries the messages, together with `colluding` sites that tell it all they know."""

    colluding: int = 0

    def __post_init__(self) -> None:
        expect(self.colluding >= 0, "colluding >= 0 sites", colluding=self.colluding)


# The weakest one that anybody must reckon with: it carries all messages, and no site helps it.
RELAY = Observer()
