"""The changelog and the code agree on versions and file formats, so that no format changes without a word about it."""

import re
import tomllib
from pathlib import Path

import sottovoce
from sottovoce.federation.agreement import agreement
from sottovoce.federation.site import journal
from sottovoce.federation.transport import wire
from sottovoce.files.models import file
from sottovoce.files.schema import parse
from sottovoce.privacy.books import chain, json_file
from sottovoce.tables import Survival
from sottovoce.tally import evaluation

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
FORMATS = {
    "agreement": agreement.FORMAT,
    "journal": journal.FORMAT,
    "message": wire.MAGIC.decode(),
    "ledger": chain.FORMAT,
    "budget": json_file.VERSION,
    "model": file.FORMAT,
    "schema": parse.VERSION,
    "evaluation": evaluation.FORMAT,
    "survival": Survival.format,
}


def test_formats():
    newest = TEXT.split("### File formats")[1].split("###")[0]
    said = re.findall(r"^\| (\w+)[^|]* \| ([\w/-]+) \|", newest, flags=re.MULTILINE)
    assert dict(said[1:]) == {name: str(value) for name, value in FORMATS.items()}


def test_version():
    newest = re.search(r"^## (\S+) - (?:unreleased|\d{4}-\d\d-\d\d)$", TEXT, flags=re.MULTILINE)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    assert newest is not None
    assert cited is not None
    assert newest[1] == cited[1] == sottovoce.__version__ == declared
