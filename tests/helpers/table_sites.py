"""Federations whose sites hold files: rows of a small study, read by a schema as what was agreed on needs them."""

import secrets
from dataclasses import replace
from pathlib import Path

import numpy as np

from helpers.federations import agreement, masked_members
from helpers.site_runs import FIVE, Federation, scratch
from sottovoce.cli.site import files
from sottovoce.federation.site.commitment import SALT_BYTES, commit_file
from sottovoce.federation.site.journal import Journal
from sottovoce.federation.site.seat import committing, owner_of
from sottovoce.files.schema import Schema

COLUMNS = """
[[columns]]
name = "arm"
kind = "categorical"
categories = ["old", "new"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [20, 100]
edges = [50, 70]
[[columns]]
name = "smokes"
kind = "boolean"
missing = "row"
"""
TIMES = f"""
[label]
time = "months"
event = "died"
until = 24
bins = 4
{COLUMNS}"""
CLASSES = f"""
[label]
column = "died"
classes = ["0", "1"]
{COLUMNS}"""
SIZES = (12, 20, 15, 17, 14)
LARGE = 10.0
TERMS = {"delta": 1e-5, "colluding": 1, "least_sites": 5}


def study(rows, seed):
    """A file of so many rows, some of whom are watched beyond the last bin, and some of whom lack a value."""
    draws = np.random.default_rng(seed)
    lines = ["arm,age,smokes,months,died"]
    for _ in range(rows):
        smokes = draws.choice(["yes", "no", ""], p=[0.3, 0.5, 0.2])
        age, months = draws.uniform(20, 100), draws.exponential(12)
        lines.append(f"{draws.choice(['old', 'new'])},{age:.1f},{smokes},{months:.2f},{draws.integers(2)}")
    return "\n".join(lines) + "\n"


def bound(asked, schema, sizes=SIZES):
    """The analysis with what follows from the number of rows, as `federation new` fills it in."""
    known = Schema.loads(schema)
    return asked.bound_to(known, sum(sizes), known.unit)


class StudySites(Federation):
    """Sites of a study under an agreement on masked sums.

    Several agreements are about the same rows and the same books if they are given the same `before`.
    """

    def __init__(self, algorithm, schema=TIMES, *, sizes=SIZES, before=None, cap=10.0, **changes):
        self.names, self.algorithm, self.cap, self.masked = FIVE[: len(sizes)], algorithm, cap, True
        self.keys, self.seeds, sites = masked_members(self.names, sizes)
        self._folder = scratch() if before is None else before._folder
        self.folder = Path(self._folder.name)
        try:
            self._agree(schema, sites, before, **changes)
        except BaseException:
            self._folder.cleanup()
            raise

    def _agree(self, schema, sites, before, **changes):
        if before is not None:
            self.keys = before.keys
            sites = tuple(
                replace(site, public_key=self.keys[site.name].public,
                        mask_key=self.seeds[site.name].mask_key(site.name, self.keys[site.name]))
                for site in sites
            )  # fmt: skip
        self.salts = {name: secrets.token_bytes(SALT_BYTES) for name in self.names}
        for seed, site in enumerate(sites):
            self.file(site.name).write_text(study(site.rows, seed))
        sites = tuple(
            replace(site, data_commitment=commit_file(self.salts[site.name], self.source(site.name))) for site in sites
        )
        shape = self.algorithm.shape(Schema.loads(schema))
        edges = tuple((a, b) for i, a in enumerate(self.names) for b in self.names[i + 1 :])
        self.agreement = agreement(
            sites, edges=edges, features=shape.features, data_norm=shape.data_norm, algorithm=self.algorithm,
            schema=schema, **changes,
        )  # fmt: skip

    def file(self, name):
        return self.folder / f"{name}.csv"

    def source(self, name):
        return files.source_of(self.file(name), None)

    def sites(self, names=None):
        (name,) = names
        return files.rows_of(self.agreement, self.file(name))

    def journal(self, name, file=None):
        rows = committing(self.agreement, name, self.sites([name]), self.source(name))
        path = self.folder / (file or f"{name}.{self.agreement.run}")
        return Journal.open(path, owner_of(self.agreement, name), rows, self.salts[name], seed=self.seeds[name])

    def seat(self, name, stack, noise=None, **changes):
        return super().seat(name, stack, noise, **({"source": self.source(name)} | changes))

    def pooled(self):
        """All rows in one file."""
        texts = [self.file(name).read_text().splitlines(keepends=True) for name in self.names]
        place = self.folder / "pooled.csv"
        place.write_text("".join([texts[0][0], *(line for lines in texts for line in lines[1:])]))
        return place
