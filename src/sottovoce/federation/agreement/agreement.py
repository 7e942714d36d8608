"""The agreement of a federation: all that its sites agree on before anything is computed. All of it is public.

An agreement is a TOML file (`toml_file`) that every site reads, and countersigns (`signing`) if it agrees. Its digest
is the SHA-256 of a canonical encoding of its content (`canonical`). So comments, spaces and the order of keys do not
matter, and everything else does. Every message of a run carries the digest.

A site's noise and steps follow from agreed numbers alone: `public_oracle` gives them without any data. What an
agreement is refused for as a whole is in `checks`.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast, final, get_args

import numpy as np
from scipy import sparse

from sottovoce import settings
from sottovoce.algorithms import Analysis, Computation, PrivateMethod
from sottovoce.algorithms.computation import End, Place
from sottovoce.errors import InputError, expect
from sottovoce.federation.agreement import checks, keyring, terms
from sottovoce.federation.agreement.exchange import MaskKey
from sottovoce.federation.agreement.identity import PublicKey, check_site_name
from sottovoce.files.schema import Schema
from sottovoce.noise.secure import GRID_BITS
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.row_sums import RowSums
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem import graphs
from sottovoce.problem.graphs import Graph
from sottovoce.problem.sites import Sites
from sottovoce.tables.analyses import TableAnalysis

# Format 4 also had the total number of rows; 3 had no masked sums; 2 divided lam by the number of sites, and had no
# weights.
FORMAT = 5
MOST_ROWS, MOST_FEATURES = 10**8, 10**6
# With vectors of norm below this, no sum or product of a run comes near the largest floating-point number. Honest
# models stay far within a hundred diameters.
LARGEST_RADIUS, DIAMETERS = 1e12, 100
LONGEST_WAIT = 30 * 24 * 3600.0  # seconds
PolicyName: TypeAlias = Literal["wait", "stop", "go-on"]
_COMMITMENT = re.compile(r"sha256:[0-9a-f]{64}")


@final
@dataclass(frozen=True, kw_only=True)
class Member:
    """The entry of one site.

    Args:
        name: a short word, see `identity`.
        public_key: checks its signatures.
        rows: m_i, the number of its rows. It is public, since the noise depends on it.
        data_commitment: "sha256:..." of a secret salt and the rows, to prove later which rows were used. Without a
            secret salt it would reveal something about the rows, and no guarantee covers that. Needed for masked sums,
            to tie a seed to one set of rows.
        mask_key: with masked sums, the public key of its secrets with other sites. The site has signed it, so no site
            can put forward another's key.
    """

    name: str
    public_key: PublicKey
    rows: int
    data_commitment: str | None = None
    mask_key: MaskKey | None = None

    def __post_init__(self) -> None:
        check_site_name(self.name)
        expect(1 <= self.rows <= MOST_ROWS, f"1 <= rows <= {MOST_ROWS} at site {self.name}", rows=self.rows)
        expect(
            self.data_commitment is None or _COMMITMENT.fullmatch(self.data_commitment) is not None,
            f"a data_commitment of site {self.name} such as sha256:<64 hexadecimal digits>",
            data_commitment=self.data_commitment,
        )
        if self.mask_key is not None and not self.mask_key.is_of(self.name, self.public_key):
            raise InputError(
                f"Expected a mask key that site {self.name} has signed with the key {self.public_key.fingerprint}, got "
                "one that it has not. Ask the site for the line that it made with: sottovoce site seed."
            )


settings.written(Member, ..., absent=(None,))


@final
@dataclass(frozen=True, kw_only=True)
class LostNeighbour:
    """What a site does when a neighbour's message does not come within `wait_seconds`.

    Args:
        policy: "wait" for ever, telling people now and then; "stop" the run; or "go-on" without that neighbour.
        wait_seconds: how long a neighbour may be silent before it counts as lost.
        go_on_after_round: with "go-on", the last round in which all sites are waited for without limit.
    """

    policy: PolicyName = "wait"
    wait_seconds: float = 3600.0
    go_on_after_round: int | None = None

    def __post_init__(self) -> None:
        expect(
            self.policy in get_args(PolicyName), f"policy among {', '.join(get_args(PolicyName))}", policy=self.policy
        )
        wait = f"0 < wait_seconds <= {LONGEST_WAIT:g}"
        expect(0 < self.wait_seconds <= LONGEST_WAIT, wait, wait_seconds=self.wait_seconds)
        expect(
            (self.go_on_after_round is not None) == (self.policy == "go-on"),
            "go_on_after_round together with policy='go-on', and only then",
            policy=self.policy,
            go_on_after_round=self.go_on_after_round,
        )
        first = self.go_on_after_round
        expect(first is None or first >= 0, "go_on_after_round >= 0", go_on_after_round=first)
        # Signatures are over the text, so 60 and 60.0 must have the same.
        object.__setattr__(self, "wait_seconds", float(self.wait_seconds))


settings.written(LostNeighbour, ..., absent=(None,))


@final
@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What all sites agree on.

    Args:
        run: 128 random bits in hexadecimal, so that no message of one run can be used in another.
        created: when it was written, in UTC.
        sites: the members; their order numbers the nodes of the graph.
        edges: the pairs of sites that hear each other, by name. Kept sorted. With masked sums all sites hear each
            other; for more than `observers.MOST_COMPLETE` sites that is not listed, and `edges` is empty.
        features: number of columns of a site's matrix.
        data_norm: bound on the norm of every row. The noise rests on it.
        algorithm: what is computed, with all its settings, epsilon and delta among them.
        name: for people.
        schema: how rows become numbers, as the text that `sottovoce.files.schema` writes; None if sites bring arrays.
        grid_bits: the fineness of the noise's grid, see `sottovoce.noise.secure`.
        radius: the largest norm of a message. A longer one is refused, and counts as silence of its sender. None: 100
            times the algorithm's diameter; honest models stay far within that. Masked words have no norm, so with
            masked sums there is no radius.
        sites_per_person: if the schema names people, the largest number of sites at which a person has rows. The sites
            assure each other of it, since none sees the others' rows. None if single rows are protected.
        lost_neighbour: what to do when a site falls silent. With masked sums, "go-on" means to repeat the sum without
            it, as long as spare attempts and least_sites allow.
    """

    run: str
    created: str
    sites: tuple[Member, ...]
    edges: tuple[tuple[str, str], ...]
    features: int
    data_norm: float
    algorithm: Computation
    name: str = ""
    schema: str | None = None
    grid_bits: int = GRID_BITS
    radius: float | None = None
    lost_neighbour: LostNeighbour = field(default_factory=LostNeighbour)
    sites_per_person: int | None = None

    def __post_init__(self) -> None:
        checks.check_words(self)
        checks.check_members(self.sites)
        # The same edges in another order are the same agreement, and must have the same digest.
        object.__setattr__(self, "edges", checks.listed_edges(self))
        expect(1 <= self.features <= MOST_FEATURES, f"1 <= features <= {MOST_FEATURES}", features=self.features)
        expect(0 < self.data_norm < np.inf, "a finite data_norm > 0", data_norm=self.data_norm)
        expect(8 <= self.grid_bits <= 40, "8 <= grid_bits <= 40", grid_bits=self.grid_bits)
        terms.check(self.algorithm)
        masked = self.algorithm.way.masked
        if masked:
            checks.check_masked(self, self.analysis)
        else:
            # Written down even if it was left out: a later version with another default must not change what was
            # signed.
            object.__setattr__(self, "radius", self.reach)
            expect(0 < self.reach <= LARGEST_RADIUS, f"0 < radius <= {LARGEST_RADIUS:g} of messages", radius=self.reach)
            # Readers would take an unused mask key for a promise.
            given = [site.name for site in self.sites if site.mask_key is not None]
            expect(not given, "mask keys where sums are masked, and only there", sites=given[:5])
        checks.check_people(self)
        checks.check_algorithm(self)
        checks.check_schema(self)
        self.algorithm.check(self.public_oracle(max(self.sites, key=lambda site: site.rows).name))

    # -- members and graph --------------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The sites' names, in order."""
        return tuple(site.name for site in self.sites)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def index(self, name: str) -> int:
        """The number of this site: its node in the graph, its place in testimonies. Other names are refused."""
        expect(name in self._place, f"a site of this federation: {checks.some(self.names)}", site=name)
        return self._place[name]

    def member(self, name: str) -> Member:
        """The entry of this site."""
        return self.sites[self.index(name)]

    def neighbours(self, name: str) -> tuple[str, ...]:
        """The sites that it hears, in order."""
        return tuple(self.names[j] for j in self.graph.neighbours(self.index(name)))

    @property
    def rows(self) -> int:
        """Number of rows of all sites."""
        return sum(site.rows for site in self.sites)

    def degree(self, name: str) -> int:
        """The number of sites that it hears."""
        return int(self.graph.degrees[self.index(name)])

    @cached_property
    def _ring(self) -> tuple[str, ...]:
        return keyring.ring(self.sites)

    def key_partners(self, name: str) -> tuple[str, ...]:
        """With masked sums, the sites that it shares a key with, in order: all others, or the nearest on a ring. They
        follow from the agreement, and stand in no file and no message.
        """
        near = keyring.nearest(self._ring, self.names[self.index(name)], self.analysis.keys(len(self.sites)))
        return tuple(other for other in self.names if other in near)

    @property
    def analysis(self) -> Analysis[Any, Any]:
        """What an agreement on masked sums computes; refused for others."""
        if not self.algorithm.way.masked:
            raise InputError(f"Expected an agreement on masked sums, got {type(self.algorithm).__name__}.")
        return cast("Analysis[Any, Any]", self.algorithm)

    @property
    def learning(self) -> PrivateMethod:
        """The method of an agreement on a model; refused for others."""
        return cast(PrivateMethod, self._ending("model"))

    @property
    def table(self) -> TableAnalysis[Any]:
        """What an agreement on a table counts; refused for others."""
        return cast("TableAnalysis[Any]", self._ending("table"))

    def _ending(self, end: End) -> Computation:
        if self.algorithm.ends_in != end:
            raise InputError(f"Expected an agreement on a {end}, got {type(self.algorithm).__name__}.")
        return self.algorithm

    @cached_property
    def graph(self) -> Graph:
        """The graph on 0 .. n-1, nodes in the order of the sites."""
        if not self.edges:
            return graphs.complete(len(self.sites))
        return graphs.from_edges(len(self.sites), [(self.index(a), self.index(b)) for a, b in self.edges])

    @cached_property
    def encoding(self) -> Schema | None:
        """The schema; None if sites bring arrays."""
        return None if self.schema is None else Schema.loads(self.schema)

    @cached_property
    def unit(self) -> Unit:
        """What is protected: a row, or a person with all their rows at the agreed number of sites."""
        person = None if self.encoding is None else self.encoding.person
        return ROW if person is None else person.unit(self.sites_per_person or 1)

    @property
    def model_size(self) -> int:
        """Number of coefficients of a model: features times outputs of the loss."""
        return self.features * self.learning.loss.outputs

    @property
    def reach(self) -> float:
        """The largest norm of a message: the radius, or its default."""
        return DIAMETERS * terms.diameter_of(self.algorithm) if self.radius is None else float(self.radius)

    @property
    def grid_delta(self) -> float:
        """The most that drawing noise on a grid adds to delta for any unit; see `privacy.accounting.discrete`."""
        return max(self.grid_delta_against(k, at) for at, k in self.algorithm.promises(len(self.sites)))

    def grid_delta_against(self, colluding: int, epsilon: float) -> float:
        """The same for the promise of this epsilon against so many colluding sites."""
        return self.algorithm.grid_delta(colluding, epsilon, len(self.sites), self.features, self.unit, self.grid_bits)

    # -- what a site computes with ------------------------------------------------------------------------------------

    def oracle_for(self, name: str, sites: Sites) -> RowSums:
        """A site's own rows, with all that is needed to compute with them. Refused unless their number, width and bound
        are as agreed.
        """
        member = self.member(name)
        expect(sites.n == 1, f"the rows of the one site {name}", sites=sites.n)
        came = int(sites.counts[0])
        expect(came == member.rows, f"rows={member.rows} at site {name}, as agreed", rows=came)
        expect(sites.d == self.features, f"features={self.features}, as agreed", features=sites.d)
        expect(sites.data_norm == self.data_norm, f"data_norm={self.data_norm!r}, as agreed", data_norm=sites.data_norm)
        expect(sites.unit == self.unit, f"rows that protect {self.unit}, as agreed", unit=sites.unit.words)
        told = self.algorithm.factors(self.encoding).told
        expect(sites.factors.told == told, f"rows with {told or 'no weights'}, as agreed", told=sites.factors.told)
        place = Place([site.rows for site in self.sites], self.index(name), self.degree(name))
        return self.algorithm.at_site(sites, place)

    def public_oracle(self, name: str) -> RowSums:
        """The same without any rows, only with their number. It gives numbers that everyone may know, such as the
        noise, and takes no longer for a hundred million rows than for one.
        """
        return self.oracle_for(name, self._rows_elsewhere([self.member(name).rows]))

    @cached_property
    def public_network(self) -> Oracle:
        """The same for all sites together."""
        return self.learning.oracle(self._rows_elsewhere([site.rows for site in self.sites]), self.graph)

    def _rows_elsewhere(self, counts: list[int]) -> Sites:
        row = sparse.csr_array((1, self.features), dtype=np.float64)
        factors = [self.algorithm.factors(self.encoding)]
        like = Sites([row], [np.ones(1)], data_norm=self.data_norm, unit=self.unit, factors=factors)
        return like.elsewhere(np.array(counts))

    # -- the digest ---------------------------------------------------------------------------------------------------

    def digest(self) -> bytes:
        """32 bytes that identify this agreement. Signatures and messages carry them."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        # Cached: it is needed several times a round, and takes longer with more sites.
        return hashlib.sha256(b"sottovoce agreement\0" + canonical(settings.plain(self))).digest()


def _content(agreement: Agreement) -> dict[str, object]:
    """The content of an agreement's file, as tables."""
    optional = {"sites_per_person": agreement.sites_per_person, "schema": agreement.schema}
    data = {"features": agreement.features, "data_norm": float(agreement.data_norm)}
    messages = {} if agreement.radius is None else {"messages": {"radius": agreement.reach}}
    return {
        "format": FORMAT,
        "run": agreement.run,
        "name": agreement.name,
        "created": agreement.created,
        "edges": agreement.edges,
        "sites": agreement.sites,
        "data": data | {key: value for key, value in optional.items() if value is not None},
        "algorithm": agreement.algorithm,
        "noise": {"kind": "discrete", "grid_bits": agreement.grid_bits},
        "lost_neighbour": agreement.lost_neighbour,
        **messages,
    }


settings.written_as(Agreement, _content)


def canonical(table: Mapping[str, object]) -> bytes:
    """The encoding that digests are taken of: equal tables have equal bytes, and different ones different bytes.

    JSON with sorted keys, no spaces, ASCII only. A float is written as the shortest decimal that reads back as the same
    double, always with a point or an exponent; a whole number without.
    """
    return json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def new_run() -> str:
    """A new run id: 128 bits of the operating system's randomness, in hexadecimal."""
    return secrets.token_hex(16)


def timestamp() -> str:
    """The time now in UTC, as an agreement writes it: whole seconds, with a Z at the end."""
    return datetime.now(UTC).strftime(checks.TIME)
