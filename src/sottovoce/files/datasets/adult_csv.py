"""The packaged Adult data as a CSV file such as a site might hold: UCI's columns, a header, "?" for a missing value."""

import csv
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

from sottovoce.errors import expect
from sottovoce.files.datasets.adult import ATTRIBUTES, SHA256
from sottovoce.files.datasets.packed import unpack
from sottovoce.settings.disk import check_new, text_out

AdultPart: TypeAlias = Literal["train", "test", "all"]
LABEL, CLASSES = "income", ("<=50K", ">50K")


def write_csv(path: str | Path, part: AdultPart) -> int:
    """Write UCI's training rows (32,561), its test rows (16,281) or all of them; returns how many.

    Incomplete rows are kept. A file that exists is not overwritten; "-" is standard output.
    """
    expect(part in get_args(AdultPart), f"part among {', '.join(get_args(AdultPart))}", part=part)
    check_new(Path(path))
    packed = unpack("adult.npz", SHA256)
    n, n_train = len(packed["age"]), packed["n_train"].item()
    chosen = {"train": slice(0, n_train), "test": slice(n_train, n), "all": slice(0, n)}[part]
    columns = list[list[str]]()
    for name in ATTRIBUTES:
        names = f"{name}.names"  # there if the attribute is stored as codes; code 0 is "?"
        values = packed[name][chosen]
        columns.append((packed[names][values] if names in packed else values.astype(str)).tolist())
    columns.append(np.array(CLASSES)[packed["over-50K"][chosen]].tolist())
    with text_out(Path(path)) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*ATTRIBUTES, LABEL])
        writer.writerows(zip(*columns, strict=True))
    return len(columns[0])
