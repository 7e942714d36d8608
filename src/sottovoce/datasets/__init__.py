"""Data sets, and ways to deal their rows out to nodes."""

from collections.abc import Callable

from sottovoce.datasets.adult import adult
from sottovoce.datasets.bank import bank
from sottovoce.datasets.dataset import Dataset
from sottovoce.datasets.partition import ByColumn, ByShares, BySizes, LabelSkew, Partition, even

# Those that come with the package.
BY_NAME: dict[str, Callable[[], Dataset]] = {"adult": adult, "bank": bank}

__all__ = ["BY_NAME", "ByColumn", "ByShares", "BySizes", "Dataset", "LabelSkew", "Partition", "adult", "bank", "even"]
