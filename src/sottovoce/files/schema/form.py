"""The form of a text file: delimiter, decimal sign, and names of the columns where there is no header.
None of this changes what a cell means, so sites may write their files differently.
"""

from dataclasses import dataclass
from typing import final

from sottovoce.errors import expect
from sottovoce.files.schema.values import check_words
from sottovoce.settings import written_as

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DECIMALS = (".", ",")
_SPELT = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|"}


@final
@dataclass(frozen=True)
class FileForm:
    """The form of a CSV file. Parquet files have their own."""

    delimiter: str = ","
    decimal: str = "."
    names: tuple[str, ...] | None = None  # of the columns of a file without a header; None: the first line says them

    def __post_init__(self) -> None:
        known = ", ".join(map(repr, DELIMITERS))
        expect(self.delimiter in DELIMITERS, f"file.delimiter among {known}", delimiter=self.delimiter)
        expect(self.decimal in DECIMALS, "file.decimal among '.', ','", decimal=self.decimal)
        if self.names is not None:
            check_words("file.names", self.names, at_least=1)


USUAL = FileForm()
# In a schema, only what is unusual; nothing if all is as usual.
written_as(FileForm, lambda form: {key: one for key, one in vars(form).items() if one != getattr(USUAL, key)} or None)


def spelt(delimiter: str) -> str:
    """A delimiter as people type it: also `tab`, which is hard to type."""
    return _SPELT.get(delimiter.lower(), delimiter)
