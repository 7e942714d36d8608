"""The literal form with its products as one block-diagonal sparse matrix and its transpose: the fastest we found."""

from contenders.literal import Contender

__all__ = ["Contender"]
