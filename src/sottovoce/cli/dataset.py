"""`sottovoce dataset`: packaged public data as files, to try things out with."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class DatasetPart(StrEnum):
    """Rows to write: those of UCI's training part, of its test part, or all."""

    train = "train"
    test = "test"
    all = "all"


class Name(StrEnum):
    """Data sets that are packaged with their raw columns."""

    adult = "adult"


def dataset(
    name: Annotated[Name, typer.Argument(help="Which data set.")],
    out: Annotated[Path, typer.Option(help="CSV file to write; it must not exist yet. - is standard output.")],
    part: Annotated[DatasetPart, typer.Option(help="Which rows.")] = DatasetPart.all,
) -> None:
    """Write a public data set as the CSV file that a site might hold."""
    from sottovoce.files.datasets.adult_csv import write_csv
    from sottovoce.settings.disk import remarks

    rows = write_csv(out, part.value)
    print(f"{rows} rows of {name.value} written to {out}.", file=remarks(out))
