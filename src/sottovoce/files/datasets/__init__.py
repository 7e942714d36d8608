"""Packaged data sets, and ways to deal rows out to nodes."""

from collections.abc import Callable

from sottovoce.files.datasets.adult import adult
from sottovoce.files.datasets.bank import bank
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.partition import ByColumn, ByShares, BySizes, LabelSkew, Partition, even

# Those that come with the package.
BY_NAME: dict[str, Callable[[], Dataset]] = {"adult": adult, "bank": bank}

__all__ = ["BY_NAME", "ByColumn", "ByShares", "BySizes", "Dataset", "LabelSkew", "Partition", "adult", "bank", "even"]
