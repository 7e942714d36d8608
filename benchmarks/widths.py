"""Predicted widths of coefficients' intervals against those of real runs, and the rows that an odds ratio of 2 needs.

    python benchmarks/widths.py                     the made-up clinical table, and Adult; a minute
    python benchmarks/widths.py --tables FOLDER     real tables of two classes, as benchmarks/tables.py has written them
    python benchmarks/widths.py --needed            is 2 told from 1 with the rows, and the epsilon, that are predicted?

A line for each table and each thing that is stated: the median over the coefficients of predicted over real width, its
quartiles, and the share of real widths within the predicted range. A real width is the median of ten runs. The
assumptions of `sottovoce.plan.schema_rows` were chosen on the clinical table, Adult and smoking.
"""

import argparse
import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from sottovoce import MaskedNewton, Sites
from sottovoce.arrays import Floats
from sottovoce.files.datasets import adult_csv
from sottovoce.files.models.coefficients import table_of
from sottovoce.files.schema import Categorical, Schema
from sottovoce.files.schema.columns import Ranged
from sottovoce.plan import PredictedIntervals, intervals
from sottovoce.problem.answers import Answers
from sottovoce.problem.problem import encoded
from sottovoce.settings.supplied import PREDICTABILITY, Supplied

HERE, DELTA, RUNS = Path(__file__).parent, 1e-6, 10
TABLES = ("smoking", "health-insurance", "crash-deaths", "affairs", "mgus", "flights-3h")
Draw = Callable[[int], tuple[Any, Floats]]  # features and labels of a run


@dataclass(frozen=True)
class Case:
    """A table, and how it is run."""

    name: str
    schema: Schema
    rows: int
    sites: int
    epsilon: float
    draw: Draw


def clinical() -> tuple[Schema, Floats, Callable[[np.random.Generator, int, Floats], tuple[Floats, Floats]]]:
    """The table of that name in benchmarks/coverage.py, with a schema: its coefficients, and what draws its rows."""
    fixed = np.random.default_rng(3)
    shares = [fixed.dirichlet(np.full(levels, 3.0)) for levels in (2, 3, 4, 3, 5)]
    truth = np.append(fixed.choice([0.0, 0.0, 0.4, -0.4, 0.7, -0.7, 1.0, -1.0], size=15), -1.0)
    lines = ["version = 1", "[label]", 'column = "ill"', 'classes = ["no", "yes"]']
    for name, p in zip("abcde", shares, strict=True):
        levels = ", ".join(f'"{name}{i}"' for i in range(len(p)))
        lines += ["[[columns]]", f'name = "{name}"', 'kind = "categorical"', f"categories = [{levels}]",
                  f'reference = "{name}0"']  # fmt: skip
    for name in "xyz":
        lines += ["[[columns]]", f'name = "{name}"', 'kind = "numeric"', "bounds = [0, 1]", 'scale = "unit"']

    def rows(rng: np.random.Generator, n: int, truth: Floats) -> tuple[Floats, Floats]:
        levels = [rng.choice(len(p), size=n, p=p)[:, None] == np.arange(1, len(p)) for p in shares]
        a = np.column_stack([*levels, rng.beta(2, 2, size=(n, 3)), np.ones(n)])
        return a / 3 * (1 - 1e-12), np.where(rng.random(n) < 1 / (1 + np.exp(-a @ truth)), 1.0, -1.0)

    return Schema.loads("\n".join(lines)), truth, rows


def cases(folder: Path | None) -> Iterator[Case]:
    """The packaged and made-up tables, or the real ones in the folder."""
    if folder is None:
        schema, truth, rows = clinical()
        for count in (5_000, 20_000, 80_000):
            yield Case("clinical", schema, count, 1, 1.0,
                       lambda seed, count=count: rows(np.random.default_rng(seed), count, truth))  # fmt: skip
        schema = Schema.load(HERE.parent / "docs" / "how-to" / "adult-inference.toml")
        with tempfile.TemporaryDirectory() as place:
            adult_csv.write_csv(Path(place) / "adult.csv", "all")
            yield from of_file("adult", schema, Path(place) / "adult.csv", 10, (1.0, 4.0))
        return
    for name in TABLES:
        schema = referenced(Schema.load(HERE / "schemas" / f"{name}.toml"))
        yield from of_file(name, schema, folder / name / "train.csv", 5, (1.0, 4.0))


def of_file(name: str, schema: Schema, path: Path, sites: int, epsilons: tuple[float, ...]) -> Iterator[Case]:
    data = encoded(path, schema)[0]
    for epsilon in epsilons:
        yield Case(name, schema, len(data), sites, epsilon, lambda _: (data.features, data.labels))


def referenced(schema: Schema) -> Schema:
    """The schema with an intercept, a reference level for each column, and numbers centred."""

    def of(column: Any) -> Any:
        if isinstance(column, Categorical):
            return replace(column, reference=column.categories[0])
        if isinstance(column, Ranged):
            return replace(column, **({"scale": "symmetric"} if column.scale else {"reference": column.bounds[0]}))
        return column

    return replace(schema, columns=tuple(map(of, schema.columns)), intercept=1.0, row_norm="bound")


def with_shares(schema: Schema, features: Any) -> Schema:
    """The schema with the true shares of all levels, to three digits."""
    there = np.asarray((features != 0).mean(axis=0)).ravel()
    ends = np.cumsum([column.width for column in schema.columns])

    def of(column: Any, own: list[float]) -> Any:
        if not column.levels:
            return column
        place = 1 if column.left_out is None else column.left_out  # of the level that has no feature
        shares = own if len(own) == len(column.levels) else [*own[:place], 1 - sum(own), *own[place:]]
        return replace(column, shares=tuple(round(max(share, 0.0), 3) for share in shares))

    parts = np.split(there, ends)
    return replace(schema, columns=tuple(of(c, own.tolist()) for c, own in zip(schema.columns, parts, strict=False)))


def run(case: Case, algorithm: MaskedNewton, seed: int) -> Any:
    """The table of coefficients of one run."""
    from coverage import released  # not before Numba, which looks for a package of that name

    a, b = case.draw(seed)
    parts = np.array_split(np.arange(len(b)), case.sites)
    sites = Sites([a[part] for part in parts], [b[part] for part in parts], data_norm=case.schema.data_norm, clip=True)
    return table_of(
        algorithm, released(algorithm, sites, seed), case.schema, case.schema.feature_names, Answers.of(case.schema)
    )


def compare(case: Case) -> None:
    """Print a line for each thing that is stated."""
    a, b = case.draw(0)
    rate = float(np.mean(b > 0))
    entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
    best = LogisticRegression(C=1e6, max_iter=2000).fit(a, b).predict_proba(a)[:, 1]
    explained = 1 - log_loss(b, best) / entropy
    word = next((word for word, (low, high) in PREDICTABILITY.items() if low <= explained < high), "hardly")
    open_ = MaskedNewton(epsilon=case.epsilon, delta=DELTA, inference=True)
    algorithm = open_.bound_to(case.rows, case.schema.d, case.sites)
    real = np.median([[x.high - x.low for x in run(case, algorithm, seed).lines] for seed in range(RUNS)], axis=0)
    shared, stated = with_shares(case.schema, a), Supplied(base_rate=round(rate, 2))
    print(f"{case.name} N={case.rows} n={case.sites} epsilon={case.epsilon:g}: real width {np.median(real):.3g}")
    for words, schema, supplied in (
        ("nothing", case.schema, Supplied()), ("rate", case.schema, stated), ("rate and shares", shared, stated),
        (f"rate, shares, {word}", shared, replace(stated, predictability=word)),
    ):  # fmt: skip
        found = intervals(open_, schema, [case.rows // case.sites] * case.sites, supplied=supplied)
        print(f"    {words:28} {against(found, real)}", flush=True)


def against(found: PredictedIntervals, real: Floats) -> str:
    widths = [line.width for line in found.lines]
    low, middle, high = np.quantile([width.median for width in widths] / real, (0.25, 0.5, 0.75))
    within = np.mean([width.low <= x <= width.high for width, x in zip(widths, real, strict=True)])
    return f"{middle:.2f} ({low:.2f} to {high:.2f}), {100 * within:.0f} % in the range"


def needed(names: tuple[str, ...] = ("a=a1", "b=b1", "c=c2", "e=e3"), runs: int = 40) -> None:
    """How often an odds ratio of 2 is told from 1 with what is predicted to be needed for it, of 80 %."""
    schema, truth, rows = clinical()
    told = with_shares(schema, rows(np.random.default_rng(0), 100_000, truth)[0])
    supplied, count = Supplied(base_rate=0.28, predictability="somewhat"), 20_000
    found = intervals(MaskedNewton(epsilon=1.0, delta=DELTA, inference=True), told, [count], supplied=supplied)
    for name in names:
        need, j = found.needs[name][1], [line.name for line in found.lines].index(name)
        changed = truth.copy()
        changed[j] = math.log(need.ratio)
        for more, epsilon in ((need.rows, 1.0), (count, need.epsilon)):
            if more is None or epsilon is None:
                print(f"{name}: not within what was tried")
                continue
            algorithm = MaskedNewton(epsilon=epsilon, delta=DELTA, inference=True).bound_to(more, schema.d, 1)
            case = Case("clinical", schema, more, 1, epsilon,
                        lambda seed, more=more, w=changed: rows(np.random.default_rng(seed), more, w))  # fmt: skip
            share = np.mean([run(case, algorithm, seed).lines[j].low > 0 for seed in range(runs)])
            print(f"{name}: {more} rows, epsilon {epsilon:.2g}: {100 * share:.0f} % of {runs} runs", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=Path, help="folder of real tables; default: the made-up one, and Adult")
    parser.add_argument("--needed", action="store_true", help="simulate an odds ratio of 2")
    asked = parser.parse_args()
    if asked.needed:
        needed()
        return
    for case in cases(asked.tables):
        compare(case)


if __name__ == "__main__":
    main()
