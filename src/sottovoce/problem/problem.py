"""A problem: rows and the network they are on, with all that a run needs to know of both.

Rows come from a data set, a file with its schema, arrays, or one file for each site. Runs take a `Problem`, wherever
its rows come from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.errors import InputError, expect
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.answers import Answers
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.factors import ALIKE, Factors
from sottovoce.problem.graphs import Graph, complete
from sottovoce.problem.partition import ByShares, Partition, even
from sottovoce.problem.share import Share
from sottovoce.problem.sites import Sites

if TYPE_CHECKING:
    from sottovoce.files.schema import Column, Schema

GraphOf: TypeAlias = Callable[[int], Graph]  # of the number of sites, which may be known only once rows are read


def grouped(owners: Any) -> tuple[tuple[str, ...], list[Ints]]:
    """The owners, sorted, and the numbers of each owner's rows, from the owner of every row."""
    names, numbers = np.unique(owners, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    return tuple(map(str, names)), np.split(order, np.cumsum(np.bincount(numbers))[:-1])


def unit_of(schema: "Schema", sites_per_person: int | None) -> Unit:
    """The unit of privacy of a schema: people, each at `sites_per_person` sites at most, or rows."""
    if schema.person is not None:
        return schema.person.unit(1 if sites_per_person is None else sites_per_person)
    if sites_per_person is not None:
        raise InputError(
            f"Expected a schema that names people, got none with sites_per_person={sites_per_person}. Add a table "
            "[person] with column and rows to the schema, or leave it out."
        )
    return schema.unit


def encoded(
    path: Any, schema: "Schema", site_column: str | None = None, site: str | None = None
) -> tuple[Dataset, Any]:
    """The private rows of a file, with labels as they are learnt, and each row's site; None without a site column."""
    from sottovoce.files.schema import files

    data, owners = (files.encode(path, schema, site), None) if site_column is None else (
        files.encode_by_site(path, schema, site_column)
    )  # fmt: skip
    return replace(data, labels=Answers.of(schema).learnt(data.labels)), owners


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """Rows and the network they are on, with names, meaning and origin of both.

    Args:
        sites: the rows, and whether they are private.
        graph: which sites exchange messages; node i is site i.
        names: of the sites; empty if they have none.
        features: the names of the features; empty if they have none.
        answers: the meaning of labels and outputs.
        schema: how raw rows became features; None if they were given as features.
        test: rows for scores, with labels as they are learnt; None for none.
        notes: sentences on the origin of the rows that the statement must include.
        title: name of the rows.
        share: the graph's nodes that the sites are, where other processes hold the others; None: all.
    """

    sites: Sites
    graph: Graph
    names: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    answers: Answers = field(default_factory=Answers)
    schema: "Schema | None" = None
    test: Dataset | None = None
    notes: tuple[str, ...] = ()
    title: str = ""
    share: Share | None = None

    def __post_init__(self) -> None:
        n = self.sites.n if self.share is None else self.share.n
        expect(self.graph.n == n, "one site for every node of the graph", nodes=self.graph.n, sites=n)
        here = n if self.share is None else self.share.nodes
        expect(self.sites.n == here, f"the rows of the {here} sites that are held here", sites=self.sites.n)

    @property
    def counts(self) -> Ints:
        """m_i of every site of the network, also of those that other processes hold. Public."""
        return self.sites.counts if self.share is None else self.share.counts

    @property
    def shape(self) -> tuple[int, int, int, Unit]:
        """Number of rows of all sites, of features and of sites, and the unit of privacy. All public."""
        return int(self.counts.sum()), self.sites.d, self.graph.n, self.unit

    def part(self, rank: int, ranks: int) -> "Problem":
        """The problem of process `rank` of `ranks`, which holds some of the sites."""
        share = Share.of(self.counts, rank, ranks)
        return replace(self, sites=self.sites.part(share.first, share.last), share=share)

    @classmethod
    def dealt(
        cls, data: Dataset, nodes: int, graph: GraphOf, *, seed: int | None = None, partition: Partition = even,
        key: bytes | None = None, held_out: bool = False, **about: Any,
    ) -> "Problem":  # fmt: skip
        """The problem of a data set dealt out to nodes as in `Sites.split`. With `held_out`, the training rows alone
        are dealt out, and the test rows are for scores.
        """
        if held_out:
            about["test"] = data.test
            return cls.dealt(data.train, nodes, graph, seed=seed, partition=partition, key=key, **about)
        sites = Sites.split(data, nodes, seed, partition=partition, key=key)
        return cls(sites, graph(nodes), site_names(nodes), data.names, title=data.name, **about)

    @classmethod
    def from_file(
        cls, path: Any, schema: "Schema", graph: GraphOf, *, nodes: int = 1, site_column: str | None = None,
        partition: Partition = even, key: bytes | None = None, test: Any = None, unreviewed: bool = False,
        sites_per_person: int | None = None, delimiter: str | None = None,
    ) -> "Problem":  # fmt: skip
        """The problem of a file of private rows, or of a table in memory (pandas, polars, Arrow). A site column gives
        each row its site; without one, rows are dealt out to nodes in a secret order, which a `key` makes the same in
        several processes.

        `unreviewed` accepts a schema with values that were read from the rows, with a warning and a note; else it is
        refused. Where the schema names people, each may be at `sites_per_person` sites (default 1); a file where
        somebody is at more is refused. `delimiter` is that of both files, if not the schema's.
        """
        from sottovoce.files.schema import accept_unreviewed, require_reviewed

        (accept_unreviewed if unreviewed else require_reviewed)(schema)
        unit = unit_of(schema, sites_per_person)
        if schema.site_effects is True and site_column is not None:
            from sottovoce.files.schema import files

            schema = schema.at_sites(files.site_names(path, schema.separated(delimiter), site_column), site_column)
        written = schema.separated(delimiter)
        data, owners = encoded(path, written, site_column)
        # Nothing is learnt from test rows, so their people do not matter.
        tested = None if test is None else encoded(test, replace(written, person=None))[0]
        data, how = replace(data, unit=unit), {"partition": partition, "key": key}
        return cls._read(data, owners, schema, graph, nodes, how, answers=Answers.of(schema), test=tested)

    @classmethod
    def from_codes(
        cls, path: Any, schema: "Schema", columns: Sequence["Column"], coding: Callable[[Dataset], Dataset], *,
        nodes: int = 1, site_column: str | None = None, unreviewed: bool = False, sites_per_person: int | None = None,
        delimiter: str | None = None,
    ) -> "Problem":  # fmt: skip
        """The problem of a file of private rows for a table, whose columns need not be features. All else is as for
        `from_file`.

        Args:
            path: of the file, or a table in memory.
            schema: of the file.
            columns: that are read, as `Schema.described` has them.
            coding: gets the rows as codes (`Column.codes`), and returns them as numbers without a negative one, with
                the bound on their norm.
            nodes: as of `from_file`, like all that follows.
            site_column: names the site of each row.
            unreviewed: accepts a schema that was not reviewed.
            sites_per_person: at how many sites a person may be.
            delimiter: of the file.
        """
        from sottovoce.files.schema import accept_unreviewed, files, require_reviewed

        (accept_unreviewed if unreviewed else require_reviewed)(schema)
        unit = unit_of(schema, sites_per_person)
        codes, owners = files.encode_codes(path, schema.separated(delimiter), columns, site_column)
        schema = replace(schema, site_effects=None)  # a table has none to tell of
        all_rows = ByShares([1.0] * nodes)  # none is left over
        return cls._read(coding(replace(codes, unit=unit)), owners, schema, complete, nodes, {"partition": all_rows})

    @classmethod
    def _read(
        cls, data: Dataset, owners: Any, schema: "Schema", graph: GraphOf, nodes: int, how: Mapping[str, Any],
        **about: Any,
    ) -> "Problem":  # fmt: skip
        """The rows of a file at their sites: their owners', or dealt out to so many nodes."""
        from sottovoce.files.schema import review

        about |= {"schema": schema, "notes": review.notes(schema)}
        if owners is None:
            return cls.dealt(data, nodes, graph, **how, **about)
        names, parts = grouped(owners)
        return cls(Sites.owned(data, parts), graph(len(parts)), names, data.names, title=data.name, **about)

    @classmethod
    def from_site_files(cls, paths: Mapping[str, Path], schema: "Schema", graph: Graph, test: Path) -> "Problem":
        """One file of public rows for each site, in the order of the graph's nodes, as a demonstration has them."""
        apart = [(path, schema, name) for name, path in paths.items()] + [(test, replace(schema, person=None), None)]
        *data, tested = (replace(encoded(path, known, site=name)[0], private=False) for path, known, name in apart)
        held = [part.features for part in data], [part.labels for part in data]
        factors = [part.factors for part in data]
        sites = Sites(*held, data_norm=schema.data_norm, unit=schema.unit, factors=factors)
        answers = Answers.of(schema)
        return cls(sites, graph, tuple(paths), schema.feature_names, answers, schema, tested, title=tested.name)

    @classmethod
    def from_arrays(
        cls, features: Any, labels: Floats, parts: list[Ints] | int, graph: GraphOf, *, private: bool,
        seed: int | None = None, unit: Unit = ROW, people: Ints | None = None, factors: Factors = ALIKE, **about: Any,
    ) -> "Problem":  # fmt: skip
        """The problem of rows in memory, which are scaled down to norm 1 where they are longer. Part i holds the
        numbers of site i's rows; a number of parts deals all rows out, to sites whose sizes differ by at most one.
        """
        names = tuple(f"x{i}" for i in range(features.shape[1]))
        data = Dataset(features, labels, names, len(labels), 1.0, "arrays", private, unit, people, factors)
        if isinstance(parts, int):
            sites = Sites.split(data, parts, seed, partition=ByShares([1.0] * parts), clip=True)
        else:
            sites = Sites.owned(data, parts, clip=True)
        return cls(sites, graph(sites.n), site_names(sites.n), names, title=data.name, **about)

    @property
    def private(self) -> bool:
        """True if the rows need protection."""
        return self.sites.private

    @property
    def unit(self) -> Unit:
        """The unit that the guarantee protects: rows, or people. Noise is calibrated to it."""
        return self.sites.unit


def site_names(sites: int) -> tuple[str, ...]:
    """Names for sites that have none: site-1, site-2, ..."""
    return tuple(f"site-{number}" for number in range(1, sites + 1))
