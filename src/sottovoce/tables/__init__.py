"""Tables of the rows of all sites, from noisy sums: descriptions, cross-tables and survival curves.

coding        rows as numbers whose sum is a table, and the bound on their norm
follow_up     times and events, coded for survival curves
analyses      what is counted for a description, a cross-table and survival curves, as sites can agree on it
release       a file is read, its sum is paid for and opened; `describe`, `cross_table` and `survival`
found         what every table that was found has
consistent    noisy tables made to agree with each other, with their covariances
figures       means, standard deviations, quantiles and standardised differences, with 95 % intervals
description   the answer of `describe`; `cross`: that of `cross_table`, with its test
pairs         tables of two columns, from what a run on masked sums has released beside its model
curve         a survival curve from noisy counts, with its median and mean; `log_rank`: the test between groups
survival_curves   the answer of `survival`
words         all of it as people read it; survival curves in `survival_words`
"""

from sottovoce.tables.analyses import CrossTableAnalysis, DescriptionAnalysis, SurvivalAnalysis, TableColumn
from sottovoce.tables.cross import CrossTable, IndependenceTest
from sottovoce.tables.curve import Reached
from sottovoce.tables.description import DescribedColumn, Description, Difference, Level
from sottovoce.tables.log_rank import LogRank
from sottovoce.tables.pairs import PairTables, ReleasedMoments, pair_tables
from sottovoce.tables.release import Terms, cross_table, describe, survival
from sottovoce.tables.survival_curves import Curve, Survival

__all__ = [
    "CrossTable",
    "CrossTableAnalysis",
    "Curve",
    "DescribedColumn",
    "Description",
    "DescriptionAnalysis",
    "Difference",
    "IndependenceTest",
    "Level",
    "LogRank",
    "PairTables",
    "Reached",
    "ReleasedMoments",
    "Survival",
    "SurvivalAnalysis",
    "TableColumn",
    "Terms",
    "cross_table",
    "describe",
    "pair_tables",
    "survival",
]
