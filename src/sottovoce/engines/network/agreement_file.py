"""Agreements as TOML files: read strictly, written for people."""

from pathlib import Path
from typing import Any, get_type_hints

from sottovoce.engines.network import terms
from sottovoce.engines.network.agreement import FORMAT, MOST_SITES, Agreement, LostNeighbour, Member
from sottovoce.engines.network.identity import PublicKey, write_public
from sottovoce.engines.network.tables import LARGEST_TEXT, listed, parse, refuse_odd, subtable, toml, toml_text, typed
from sottovoce.errors import InputError, expect

_TOP = (
    "format",
    "run",
    "name",
    "created",
    "edges",
    "sites",
    "data",
    "algorithm",
    "noise",
    "messages",
    "lost_neighbour",
)
_SITE = {"name": str, "public_key": str, "rows": int, "data_commitment": str}
_DATA = {"features": int, "data_norm": float, "schema": str}
_NOISE = {"kind": str, "grid_bits": int}
_MESSAGES = {"radius": float}
_MOST_EDGES = 100_000


def load(path: Path) -> Agreement:
    """The agreement in a file."""
    with path.open("rb") as file:
        content = file.read(LARGEST_TEXT + 1)
    try:
        return loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"Expected text in UTF-8, got other bytes in file {str(path)!r}.") from None
    except InputError as error:
        raise InputError(f"In file {str(path)!r}: {error}") from error


def save(agreement: Agreement, path: Path) -> None:
    """Write a new file; an existing one is never replaced."""
    write_public(path, dumps(agreement).encode("utf-8"))


def loads(text: str) -> Agreement:
    """The agreement that a TOML text describes. What is unknown, missing or of another type is refused."""
    table = parse(text)
    version = table.get("format")
    if version != FORMAT or type(version) is not int:
        raise InputError(
            f"Expected an agreement of format={FORMAT}, got format={version!r}, where lam may mean another number. "
            "Use the version of sottovoce that wrote it, or write the agreement again, and sign it again."
        )
    refuse_odd(table, _TOP, _TOP, "an agreement")
    data = _read(subtable(table, "data"), _DATA, ("schema",), "[data]")
    noise = _read(subtable(table, "noise"), _NOISE, (), "[noise]")
    expect(noise["kind"] == "discrete", "[noise] kind = 'discrete'", kind=noise["kind"])
    messages = _read(subtable(table, "messages"), _MESSAGES, (), "[messages]")
    expect(messages["radius"] > 0, "a radius > 0", radius=messages["radius"])
    lost = _read(
        subtable(table, "lost_neighbour"), get_type_hints(LostNeighbour), ("go_on_after_round",), "[lost_neighbour]"
    )
    return Agreement(
        run=typed("run", table["run"], str),
        name=typed("name", table["name"], str),
        created=typed("created", table["created"], str),
        sites=tuple(_member(entry) for entry in listed(table, "sites", MOST_SITES)),
        edges=tuple(_edge(entry) for entry in listed(table, "edges", _MOST_EDGES)),
        features=data["features"],
        data_norm=data["data_norm"],
        schema=data.get("schema"),
        algorithm=terms.build(subtable(table, "algorithm")),
        grid_bits=noise["grid_bits"],
        radius=messages["radius"],
        lost_neighbour=LostNeighbour(**lost),
    )


def _read(table: dict[str, Any], hints: dict[str, Any], optional: tuple[str, ...], what: str) -> dict[str, Any]:
    refuse_odd(table, hints, set(hints) - set(optional), what)
    return {name: typed(name, value, hints[name]) for name, value in table.items()}


def _member(entry: object) -> Member:
    if not isinstance(entry, dict):
        raise InputError(f"Expected tables [[sites]], got {entry!r}.")
    read = _read(entry, _SITE, ("data_commitment",), "an entry of [[sites]]")
    return Member(**(read | {"public_key": PublicKey.from_text(read["public_key"])}))


def _edge(entry: object) -> tuple[str, str]:
    if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(end, str) for end in entry)):
        raise InputError(f"Expected edges as pairs of sites, got {entry!r}.")
    return entry[0], entry[1]


def dumps(agreement: Agreement) -> str:
    """The agreement as TOML."""
    content: dict[str, Any] = agreement.to_dict()
    lines = [
        "# What the sites of this federation agree on. All of it is public.",
        "# Do not edit after signing: each site's signature is over exactly this content.",
        *(f"{key} = {toml(content[key])}" for key in ("format", "run", "name", "created")),
        "edges = [",
        *(f"    {toml(edge)}," for edge in content["edges"]),
        "]",
    ]
    for site in content["sites"]:
        lines += ["", "[[sites]]", *_lines(site)]
    for key in ("data", "algorithm", "noise", "messages", "lost_neighbour"):
        lines += ["", f"[{key}]", *_lines(content[key])]
    return "\n".join(lines) + "\n"


def _lines(table: dict[str, Any]) -> list[str]:
    return [f"{key} = {toml_text(value) if key == 'schema' else toml(value)}" for key, value in table.items()]
