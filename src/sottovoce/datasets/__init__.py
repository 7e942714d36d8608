"""Data sets, and ways to deal their rows out to nodes."""

from sottovoce.datasets.adult import adult
from sottovoce.datasets.dataset import Dataset
from sottovoce.datasets.partition import ByColumn, ByShares, BySizes, LabelSkew, Partition, even

__all__ = ["ByColumn", "ByShares", "BySizes", "Dataset", "LabelSkew", "Partition", "adult", "even"]
