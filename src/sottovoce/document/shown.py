"""What Python and a notebook show of an object: one description of it, as text and as HTML."""

from abc import ABC, abstractmethod

from sottovoce.document import Part
from sottovoce.document.html import notebook_html
from sottovoce.document.text import text_of


class Shown(ABC):
    """Base of objects that people look at. A notebook keeps what it shows, and notebooks are passed on: nothing may be
    described that was computed from private rows without noise.
    """

    @abstractmethod
    def described(self) -> list[Part]:
        """What a person wants to know of it, in a few lines; details are in `Folded` parts, which text leaves out."""

    def __repr__(self) -> str:
        return text_of(self.described())

    def _repr_html_(self) -> str:
        return notebook_html(self.described())
