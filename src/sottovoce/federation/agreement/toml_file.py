"""Agreements as TOML files: strict reading, and writing for people."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sottovoce import settings
from sottovoce.algorithms import Computation
from sottovoce.errors import InputError, expect
from sottovoce.federation.agreement.agreement import FORMAT, Agreement, LostNeighbour, Member
from sottovoce.federation.agreement.checks import MOST_SITES
from sottovoce.federation.agreement.key_files import write_public
from sottovoce.settings import toml

_MOST_EDGES = 100_000


@dataclass(frozen=True, kw_only=True)
class _Data:
    features: int
    data_norm: float
    schema: str | None = None
    sites_per_person: int | None = None  # if the schema names people


@dataclass(frozen=True, kw_only=True)
class _Noise:
    kind: Literal["discrete"]
    grid_bits: int


@dataclass(frozen=True, kw_only=True)
class _Messages:
    radius: float


@dataclass(frozen=True, kw_only=True)
class _File:
    """The tables of an agreement's file."""

    run: str
    name: str
    created: str
    edges: tuple[tuple[str, str], ...]
    sites: tuple[Member, ...]
    data: _Data
    algorithm: Computation
    noise: _Noise
    lost_neighbour: LostNeighbour
    messages: _Messages | None = None  # masked words have no radius


def load(path: Path) -> Agreement:
    """Read the agreement in a file."""
    with path.open("rb") as file:
        content = file.read(toml.LARGEST_TEXT + 1)
    try:
        return loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"Expected text in UTF-8, got other bytes in file {str(path)!r}.") from None
    except InputError as error:
        raise InputError(f"In file {str(path)!r}: {error}") from error


def save(agreement: Agreement, path: Path) -> None:
    """Write the agreement to a new file; an existing one is never replaced."""
    write_public(path, dumps(agreement).encode("utf-8"))


def loads(text: str) -> Agreement:
    """Read an agreement from a TOML text. Keys that are unknown, missing or of another type are refused."""
    table = toml.parse(text)
    version = table.pop("format", None)
    if version != FORMAT or type(version) is not int:
        raise InputError(
            f"Expected an agreement of format={FORMAT}, got format={version!r}, where settings may mean other things. "
            "Use the version of sottovoce that wrote it, or write the agreement again, and sign it again."
        )
    for name, most in (("sites", MOST_SITES), ("edges", _MOST_EDGES)):
        entries = len(table[name]) if isinstance(table.get(name), list) else 0
        expect(entries <= most, f"at most {most} entries of {name}", entries=entries)
    file = settings.read(_File, table, "an agreement", full=True)
    radius = None if file.messages is None else file.messages.radius
    expect(
        file.algorithm.way.masked == (radius is None),
        "a radius of messages in full, and none with masked sums",
        radius=radius,
    )
    expect(radius is None or radius > 0, "a radius > 0", radius=radius)
    return Agreement(
        run=file.run,
        name=file.name,
        created=file.created,
        sites=file.sites,
        edges=file.edges,
        features=file.data.features,
        data_norm=file.data.data_norm,
        schema=file.data.schema,
        sites_per_person=file.data.sites_per_person,
        algorithm=file.algorithm,
        grid_bits=file.noise.grid_bits,
        radius=radius,
        lost_neighbour=file.lost_neighbour,
    )


def dumps(agreement: Agreement) -> str:
    """The agreement as TOML text."""
    content: dict[str, Any] = settings.plain(agreement)
    lines = [
        "# What the sites of this federation agree on. All of it is public.",
        "# Do not edit after signing: each site's signature is over exactly this content.",
        *toml.pairs({key: content[key] for key in ("format", "run", "name", "created")}),
        f"edges = {toml.inline(content['edges'], spread=True)}",
    ]
    for site in content["sites"]:
        lines += ["", "[[sites]]", *toml.pairs(site)]
    for key in ("data", "algorithm", "noise", "messages", "lost_neighbour"):
        if key not in content:
            continue
        schema = content[key].pop("schema", None)
        lines += ["", f"[{key}]", *toml.pairs(content[key])]
        lines += [] if schema is None else [f"schema = {toml.multiline(schema)}"]
    return "\n".join(lines) + "\n"
