"""A network as people write it, in an option or in a TOML file: quantities are texts with units."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from sottovoce import settings
from sottovoce.errors import InputError, expect, naming
from sottovoce.settings import toml
from sottovoce.simulation.network import MOST_OVERHEAD, NetworkModel, Trace

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_BITS = {"bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9}
_QUANTITY = re.compile(r"^\s*([0-9.eE+-]+?)\s*([A-Za-z]+)\s*$")


def read_network(text: str) -> NetworkModel:
    """Read latency=50ms,bandwidth=10Mbit,compute=20ms,overhead=300, or the TOML file of that name."""
    if "=" in text:
        parts = [part.partition("=") for part in text.split(",")]
        table: dict[str, object] = {name.strip(): value.strip() for name, _, value in parts}
        expect(len(table) == len(parts), "every part of --network once", network=text)
        if "overhead" in table:
            given = str(table["overhead"])
            if not (given.isascii() and given.isdecimal() and len(given) <= len(str(MOST_OVERHEAD))):
                raise InputError(
                    f"Expected a whole number of bytes for overhead, at most {MOST_OVERHEAD:,}, got {given[:40]!r}."
                )
            table["overhead"] = int(given)
        return _network(settings.read(_Text, table, "latency=50ms,bandwidth=10Mbit and the like for --network"))
    with naming(network=text):
        return _network(settings.read(_Text, toml.load(Path(text)), "a network: latency, bandwidth, sites, ..."))


@dataclass(frozen=True)
class _Site:
    """One table of [[sites]] in a network file."""

    nodes: tuple[int, ...]
    speed: float = 1.0
    bandwidth: str | None = None
    away: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class _Text:
    """A network as a file or an option describes it: quantities are texts with units."""

    latency: str
    bandwidth: str
    compute: str = "0s"
    overhead: int = 0
    sites: tuple[_Site, ...] = field(default=())


def _network(text: _Text) -> NetworkModel:
    traces = {
        node: Trace(
            site.speed, None if site.bandwidth is None else _quantity(site.bandwidth, _BITS, "10Mbit"), site.away
        )
        for site in text.sites
        for node in site.nodes
    }
    named = sum(len(site.nodes) for site in text.sites)
    expect(len(traces) == named, "every node in one table of sites at most", nodes=named)
    return NetworkModel(
        _quantity(text.latency, _SECONDS, "50ms"), _quantity(text.bandwidth, _BITS, "10Mbit"),
        _quantity(text.compute, _SECONDS, "20ms"), text.overhead, tuple(sorted(traces.items())),
    )  # fmt: skip


def _quantity(text: str, units: dict[str, float], example: str) -> float:
    """The quantity of a text such as 50ms or 10Mbit, in seconds or bits; refused without a known unit."""
    found = _QUANTITY.match(text)
    if found is None or found[2] not in units:
        raise InputError(f"Expected a number and a unit among {', '.join(units)}, such as {example}, got {text!r}.")
    try:
        return float(found[1]) * units[found[2]]
    except ValueError:
        raise InputError(f"Expected a number before {found[2]}, such as {example}, got {text!r}.") from None
