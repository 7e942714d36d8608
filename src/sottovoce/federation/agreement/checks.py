"""Checks of an agreement as a whole: what its parts are refused for together, and the order that edges are kept in."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sottovoce.algorithms import DPDSGD, Analysis
from sottovoce.errors import InputError, expect
from sottovoce.files.schema import Schema, require_reviewed
from sottovoce.noise.secure import GRID_BITS
from sottovoce.privacy import observers

if TYPE_CHECKING:
    from sottovoce.federation.agreement.agreement import Agreement, Member

MOST_SITES, MOST_ROUNDS = 1000, 10**6
LONGEST_NAME = 80
# The largest fraction of delta that a coarse grid may add to it.
GRID_SHARE = 1e-3
TIME = "%Y-%m-%dT%H:%M:%SZ"  # of the time when it was written
_RUN = re.compile(r"[0-9a-f]{32}")


def check_words(a: "Agreement") -> None:
    """Refuse a run id, a name or a time in another form than agreements have."""
    expect(_RUN.fullmatch(a.run) is not None, "a run of 32 hexadecimal digits (128 random bits)", run=a.run[:80])
    named = len(a.name) <= LONGEST_NAME and (a.name == "" or a.name.isprintable())
    expect(named, f"a name of at most {LONGEST_NAME} printable characters", name=a.name[: 2 * LONGEST_NAME])
    try:
        same = datetime.strptime(a.created, TIME).strftime(TIME) == a.created
    except ValueError:
        same = False
    expect(same, "a time in UTC such as 2025-01-31T12:00:00Z for created", created=a.created[:40])


def check_members(sites: "Sequence[Member]") -> None:
    """Refuse too few or too many sites, repeated names, and keys that two sites share."""
    expect(2 <= len(sites) <= MOST_SITES, f"2 to {MOST_SITES} sites", sites=len(sites))
    name, count = Counter(site.name for site in sites).most_common(1)[0]
    expect(count == 1, "every site's name once", name=name, times=count)
    _expect_own_keys([(site.name, site.public_key.raw) for site in sites], "sottovoce site keygen")
    masks = [(site.name, site.mask_key) for site in sites if site.mask_key is not None]
    # As X25519 reads them: with another site's key in another spelling, a site could cancel a third one's masks.
    _expect_own_keys([(name, key.point) for name, key in masks], "sottovoce site seed")
    # No key may serve both purposes, at one site or at two.
    every = [(site.name, site.public_key.raw) for site in sites] + [(name, key.raw) for name, key in masks]
    _expect_own_keys(every, "sottovoce site seed")


def _expect_own_keys(keys: Sequence[tuple[str, bytes]], command: str) -> None:
    """Refuse a key that comes twice, and name the sites that share it."""
    key, count = Counter(key for _, key in keys).most_common(1)[0] if keys else (b"", 0)
    if count > 1:
        shared = ", ".join(dict.fromkeys(name for name, other in keys if other == key))
        raise InputError(
            f"Expected a key of its own for every site, got one key for {shared}. Let each make one with: {command}."
        )


def listed_edges(a: "Agreement") -> tuple[tuple[str, str], ...]:
    """The edges to keep: sorted, and none for a large complete graph, whose list would be long and say nothing more."""
    if not a.algorithm.way.complete or len(a.sites) <= observers.MOST_COMPLETE:
        return _sorted_edges(a.names, a.edges)
    if a.edges:
        _expect_complete(len(a.sites), _sorted_edges(a.names, a.edges), "masked sums")
    return ()


def _expect_complete(n: int, edges: Sequence[tuple[str, str]], what: str) -> None:
    """Refuse a graph that is not complete for what all sites have to read."""
    if len(edges) != n * (n - 1) // 2:
        raise InputError(
            f"Expected a complete graph for {what}, which everyone reads, got edges={len(edges)} of "
            f"{n * (n - 1) // 2}. Use the graph complete."
        )


def _sorted_edges(names: Sequence[str], edges: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Every edge once, both ends and all edges in the order of the sites; refused unless they connect everyone."""
    place = {name: i for i, name in enumerate(names)}
    kept: set[tuple[int, int]] = set()
    for edge in edges:
        expect(len(edge) == 2, "edges as pairs of sites", edge=list(edge))
        for end in edge:
            expect(end in place, f"edges between sites of this federation: {some(names)}", edge=list(edge))
        a, b = sorted(place[end] for end in edge)
        expect(a != b, "edges between two different sites", edge=list(edge))
        expect((a, b) not in kept, "every edge once", edge=list(edge))
        kept.add((a, b))
    _check_connected(names, kept)
    return tuple((names[a], names[b]) for a, b in sorted(kept))


def _check_connected(names: Sequence[str], edges: set[tuple[int, int]]) -> None:
    """Refuse edges that do not connect all sites: news must be able to reach every site."""
    heard: list[list[int]] = [[] for _ in names]
    for a, b in edges:
        heard[a].append(b)
        heard[b].append(a)
    # Sites that cannot be reached from the first one along the edges.
    reached, todo = {0}, [0]
    while todo:
        fresh = set(heard[todo.pop()]) - reached
        reached |= fresh
        todo += fresh
    lost = [name for i, name in enumerate(names) if i not in reached]
    if lost:
        raise InputError(
            f"Expected a connected graph, got no way from {names[0]} to {', '.join(lost[:5])}. Add edges between them."
        )


def check_algorithm(a: "Agreement") -> None:
    """Refuse settings of the algorithm that do not fit this graph, this grid or these rounds."""
    if isinstance(a.algorithm, DPDSGD) and a.algorithm.largest_degree is not None:
        least = int(a.graph.degrees.max())
        came = a.algorithm.largest_degree
        expect(came >= least, f"largest_degree >= {least}, which this graph has", largest_degree=came)
    if a.grid_delta > GRID_SHARE * a.algorithm.delta:
        raise InputError(
            f"Expected a grid that adds at most {GRID_SHARE:g} delta to delta={a.algorithm.delta:g}, got "
            f"grid_bits={a.grid_bits}, which adds {a.grid_delta:.3g}. Ask for more bits, or for a smaller epsilon or "
            "worst_case_epsilon."
        )
    first, rounds = a.lost_neighbour.go_on_after_round, a.algorithm.messages
    expect(rounds <= MOST_ROUNDS, f"rounds <= {MOST_ROUNDS} at real sites", rounds=rounds)
    expect(first is None or first < rounds, f"go_on_after_round < rounds={rounds}", go_on_after_round=first)
    if rounds > a.algorithm.rounds:  # something is released before round 1
        # All steps begin with the sum over all sites, so every site has to hear the same ones.
        _expect_complete(len(a.sites), a.edges, "moments")
        waits = "go_on_after_round >= 1 with moments, the first exchange, which everyone must hear"
        expect(first is None or first >= 1, waits, go_on_after_round=first)


def check_masked(a: "Agreement", algorithm: Analysis[Any, Any]) -> None:
    """Refuse masked sums that would hide less than they promise, or that these sites could never make."""
    n, u, spare = len(a.sites), algorithm.members(len(a.sites)), algorithm.spare
    if any(site.mask_key is None for site in a.sites):
        without = [site.name for site in a.sites if site.mask_key is None]
        raise InputError(
            f"Expected a mask key of every site for masked sums, got none of {some(without)}. Let each make one with: "
            "sottovoce site seed."
        )
    # A copied seed with other rows would send two values under one mask, whose difference is not hidden.
    if any(site.data_commitment is None for site in a.sites):
        without = [site.name for site in a.sites if site.data_commitment is None]
        raise InputError(
            f"Expected a data_commitment of every site for masked sums, got none of {some(without)}. Let each make "
            "one with: sottovoce site commit."
        )
    if a.edges:
        _expect_complete(n, a.edges, "masked sums")
    expect(a.radius is None, "no radius with masked sums, whose words have no norm", radius=a.radius)
    expect(a.grid_bits == GRID_BITS, f"grid_bits={GRID_BITS} with masked sums", grid_bits=a.grid_bits)
    # Sums over the smallest u sites must still be over enough rows.
    algorithm.expect_rows(sorted(site.rows for site in a.sites)[:u])
    # Every site sees the sums and knows its own share of the noise, so a promise against outsiders alone is not enough.
    expect((algorithm.colluding or 0) >= 1, "colluding >= 1 at real sites", colluding=algorithm.colluding)
    algorithm.expect_sites(n)
    # With more neighbours on the ring than can be colluding or left out, no site is cut off (docs/proofs/masked.md).
    keys, gone = algorithm.keys(n), algorithm.colluders(n) + n - u
    expect(keys > gone or keys == n - 1, f"keys of every site with more than {gone} others", keys=keys)
    # Spare attempts that can never be made would be paid for, and without one no site could be lost.
    policy = a.lost_neighbour.policy
    expect(
        (policy == "go-on") == (spare > 0) == (u < n),
        f"policy='go-on', spare > 0 and least_sites < {n} together with masked sums, or none of them",
        policy=policy, spare=spare, least_sites=u,
    )  # fmt: skip


def check_people(a: "Agreement") -> None:
    """Refuse an agreement about people without the number of sites per person, one about rows with that number, and an
    algorithm that cannot protect people.
    """
    people, s = a.encoding is not None and a.encoding.person is not None, a.sites_per_person
    if people != (s is not None):
        raise InputError(
            "Expected sites_per_person where the schema has a table [person], and only there, got "
            f"sites_per_person={s}. Say at how many of the sites a person may have rows: what they are promised rests "
            "on it."
        )
    if s is not None:
        expect(1 <= s <= len(a.sites), f"sites_per_person from 1 to {len(a.sites)}, all sites", sites_per_person=s)
    a.algorithm.expect_unit(a.unit)


def _check_site_effects(a: "Agreement", schema: Schema) -> None:
    """Refuse effects of other sites than those that agree."""
    if schema.site_effects is None:
        return
    known = [name for column in schema.columns if column.name == schema.site_effects for name in column.words()]
    if sorted(known) != sorted(a.names):
        raise InputError(
            f"Expected site_effects of the sites {', '.join(a.names)}, got {', '.join(known) or 'none named'}. Say "
            "site_effects = true, and write the agreement with federation new."
        )


def check_schema(a: "Agreement") -> None:
    """Refuse a schema that was not reviewed, or whose rows or labels are not as agreed."""
    schema = a.encoding
    if schema is None:
        needed = a.algorithm.ends_in == "table"
        expect(not needed, "a schema, by which the rows of a table are counted", schema=None)
        return
    # An unreviewed schema may hold values that were read off rows, and would make them public.
    require_reviewed(schema)
    _check_site_effects(a, schema)
    a.algorithm.expect_schema(schema)
    features, data_norm = a.algorithm.shape(schema)
    expect(features == a.features, f"features={features}, which the schema makes", features=a.features)
    expect(data_norm == a.data_norm, f"data_norm={data_norm!r}, as in the schema", data_norm=a.data_norm)


def some(names: Sequence[str]) -> str:
    """The first few names, for an error on one line."""
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
