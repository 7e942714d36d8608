"""All settings of one training experiment, in one frozen object that a TOML file or a command line can fill.

This module imports nothing heavy, since the command line reads its options off `TrainConfig`. What the names stand for
is in `choices`, which is imported when a configuration is made; the objects that it describes are made in `run`.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, get_type_hints

from sottovoce import settings
from sottovoce.errors import InputError, expect
from sottovoce.settings import toml
from sottovoce.settings.options import ALGORITHM, PRIVACY, AlgorithmOptions, option

if TYPE_CHECKING:
    from sottovoce.algorithms import Method
    from sottovoce.algorithms.default import Default

NOT_IN_A_FILE = ("config", "out", "budget", "beside", "yardstick", "force", "json", "quiet", "verbose")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Which rows are learnt from, and at which sites they are."""

    dataset: str = option("adult", "Data", "Data set to learn from.")
    split: str = option("all", "Data", "Rows to learn from. 'official' also scores the models on the test rows.")
    data: str | None = option(None, "Data", "CSV or Parquet file to learn from, instead of a packaged data set.")
    schema: str | None = option(None, "Data", "Schema of that file; see sottovoce schema.")
    test_data: str | None = option(None, "Data", "File of the same schema to score the models on.")
    delimiter: str | None = option(
        None, "Data", "Field separator of these files: , ; | or tab. Default: as in the schema."
    )
    site_column: str | None = option(
        None, "Data", "Column of the file that names the site of a row. Default: rows are dealt out to --nodes sites."
    )
    sites_per_person: int | None = option(
        None, "Privacy", "If the schema protects people: most sites at which one person has rows. Default: one."
    )
    unreviewed: str = option("refuse", "Data", "Unreviewed values in the schema: refuse it, or accept the leak.")
    partition: str = option("even", "Data", "How the rows are dealt out to the nodes. With a file: evenly, in secret.")
    partition_alpha: float | None = option(None, "Data", "Label skew of the dirichlet partition; small is uneven.")
    partition_column: str | None = option(None, "Data", "Attribute for the column partition, such as sex.")

    nodes: int | None = option(
        None,
        "Network",
        "Number of sites. The default is for packaged data; a file needs this or --site-column.",
    )
    graph: str = option("complete", "Network", "Which sites exchange messages.")
    graph_degree: int | None = option(None, "Network", "Neighbours per node, for random-regular and small-world.")
    graph_probability: float | None = option(None, "Network", "Chance of an edge, for erdos-renyi.")
    graph_rewire: float | None = option(None, "Network", "Chance that an edge is rewired, for small-world.")


@dataclass(frozen=True, kw_only=True)
class TrainConfig(AlgorithmOptions, Source):
    """The settings of one training experiment.

    None is a setting that was not given: the algorithm's own default then holds, which is written down nowhere else.
    Every value is checked when the object is made.
    """

    # What these mean where one process holds all rows.
    epsilon: float | None = option(None, PRIVACY, "Total budget over all rounds; inf adds no noise.")
    delta: float | None = option(
        None, PRIVACY, "Chance of failure that the guarantee allows for. Default with a file: at most 1/(100 rows)."
    )
    colluding: int | None = option(
        None, PRIVACY, "Masked sums: sites that may collude. Default: fewer than half, at least one."
    )
    algorithm: str | None = option(
        None,
        ALGORITHM,
        "What is run. Default with a file: masked, where it can be had; else, and without a file, ipadmm.",
    )
    weights: str | None = option(
        None, ALGORITHM, "Weights of sites: equal, or by rows or squared rows. Default with a file: planned."
    )
    loss: str | None = option(None, ALGORITHM, "Loss of one row.")

    # What real sites cannot agree on.
    calibration: str | None = option(None, PRIVACY, "How the noise is computed from epsilon and delta.")
    sensitivity: str | None = option(
        None, PRIVACY, "Noise fits the worst possible model (plain), or the current one (tight)."
    )
    form: str | None = option(None, ALGORITHM, "Rival algorithms: noise as published, or fair.")
    positive_weight: float | None = option(
        None, ALGORITHM, "Weight of rows of the positive class: a public number, for a rare class."
    )

    runs: int | None = option(None, "Simulation", "Independent runs to average over. With a file: one; each costs.")
    seed: int | None = option(None, "Simulation", "Seed of partition, graph and simulated noise. Refused with a file.")
    record: int = option(10, "Simulation", "How many rounds the history of --out records, evenly spaced.")
    device: str = option("cpu", "Simulation", "Where to compute; 'plain' is the slow reference, 'cuda' a GPU.")
    engine: str = option("local", "Simulation", "One process, or all that mpirun started, with the same result.")
    network: str | None = option(
        None,
        "Simulation",
        "Estimate the time on a network: latency=50ms,bandwidth=10Mbit, or a TOML file.",
    )
    dtype: str = option("float64", "Simulation", "Precision; float32 is about twice as fast. With a file: float64.")

    def __post_init__(self) -> None:
        for name, hint in _hints().items():
            object.__setattr__(self, name, settings.typed(name, getattr(self, name), hint, finite=False))
        expect(self.nodes is None or self.nodes >= 1, "nodes >= 1", nodes=self.nodes)
        expect(self.runs is None or self.runs >= 1, "runs >= 1", runs=self.runs)
        expect(self.seed is None or self.seed >= 0, "seed >= 0", seed=self.seed)
        expect(self.record >= 1, "record >= 1", record=self.record)
        from sottovoce.studies.choices import check

        check(self)

    @cached_property
    def choice(self) -> "Default":
        """The algorithm by its name and, where none was given and it is not masked sums, why."""
        from sottovoce.studies.choices import choice_of

        return choice_of(self)

    @cached_property
    def method(self) -> "Method":
        """The algorithm with these settings, before anything is known of the rows; made once."""
        from sottovoce.studies.choices import method_of

        return method_of(self)

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> "TrainConfig":
        """Read settings that may be spelt with - or _. Unknown ones are refused by name."""
        found = toml.underscored(table)
        for name in found:
            if name in NOT_IN_A_FILE:
                raise InputError(f"Expected settings of train, got {name!r}. Give --{name} on the command line.")
        settings.check_keys(found, _hints(), (), "settings of train")
        return cls(**found)

    @classmethod
    def from_toml(cls, text: str) -> "TrainConfig":
        """Read settings from TOML text: the option names at top level."""
        return cls.read(toml.parse(text))

    def resolved(self, algorithm: "Method | None" = None) -> "TrainConfig":
        """The configuration with all defaults written out, so that it means the same when they change.

        `algorithm` is the one that was built; without it, one without a look at the data.
        """
        from sottovoce.studies.choices import defaults

        made = copy(self)  # what is filled in is an algorithm's own, and checked there: it need not be again
        vars(made).update({k: v for k, v in defaults(self, algorithm).items() if getattr(self, k) is None})
        for found in ("method", "choice"):  # those of the settings before
            vars(made).pop(found, None)
        return made

    def to_toml(self) -> str:
        """TOML text that `from_toml` reads back as an equal configuration. What was not given is left out."""
        of_packaged = () if self.data is None else ("dataset", "split")  # say nothing of a file
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in of_packaged}
        return "\n".join(toml.pairs(kept)) + "\n"


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(TrainConfig)
