"""`sottovoce federation new`: an agreement with all settings, from the public settings that were given."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sottovoce import settings
from sottovoce.errors import InputError, expect
from sottovoce.settings.options import PRIVACY, AlgorithmOptions, option

if TYPE_CHECKING:
    from sottovoce.algorithms import PrivateMethod
    from sottovoce.algorithms.default import Default
    from sottovoce.federation.agreement.agreement import Agreement, Member
    from sottovoce.files.schema import Schema
    from sottovoce.problem.losses import Loss
    from sottovoce.tables.analyses import TableAnalysis

MASKED = "masked"
_WHO, _DATA, _TABLE, _LOST = "Who", "Data", "A table instead of a model", "When a neighbour falls silent"
_COLLUDING = (
    "how many sites may collude, with the message server too, is for people to say, got none. Epsilon holds against "
    "that many, and no more."
)
_PROMISE = ("epsilon", "delta", "colluding", "least_sites", "spare", "worst_case_epsilon")  # of masked sums
_NUMBERS = ("huber", "absolute", "quantile", "smoothed-quantile")


@dataclass(frozen=True, kw_only=True)
class _Members:
    """Who speaks with whom, and of which rows."""

    name: str | None = option(None, _WHO, "Name of the federation, for readers.")
    graph: str | None = option(None, _WHO, "Who exchanges messages: name of a graph. Or use --edge.")

    schema: str | None = option(
        None, _DATA, "Schema file: how rows become numbers. Or give --features and --data-norm."
    )
    features: int | None = option(None, _DATA, "Columns of a site's matrix, where sites bring arrays.")
    data_norm: float | None = option(None, _DATA, "Bound on the norm of every row, where sites bring arrays.")


@dataclass(frozen=True, kw_only=True)
class AgreementDraft(AlgorithmOptions, _Members):
    """Options of an agreement; None is one that was not given."""

    sites_per_person: int | None = option(
        None, PRIVACY, "If the schema protects people: most sites at which one person has rows."
    )
    grid_bits: int | None = option(None, PRIVACY, "Bits of the grid on which noise is drawn.")
    message_radius: float | None = option(None, PRIVACY, "Largest norm of a message. Default: 100 times the diameter.")

    analysis: str | None = option(
        None, _TABLE, "describe, cross (a cross-table) or survival, in place of --algorithm: sites agree on a table."
    )
    by: str | None = option(None, _TABLE, "describe, survival: column with levels that groups the rows.")
    column: tuple[str, ...] | None = option(
        None, _TABLE, "describe: a column to describe. Default: all. cross: a column, two or three in all. Repeat."
    )
    part: tuple[str, ...] | None = option(
        None, _TABLE, "describe: COLUMN=SHARE of the budget, such as age=0.3; the others share the rest. Repeat."
    )

    policy: str | None = option(None, _LOST, "What to do then: wait, stop or go-on.")
    wait_seconds: float | None = option(None, _LOST, "How long a neighbour may be silent.")
    go_on_after_round: int | None = option(None, _LOST, "With go-on: the last round that waits for everyone.")

    site: tuple[str, ...] = ()
    edge: tuple[str, ...] = ()
    mask_key: tuple[str, ...] = ()


def merged(file: Mapping[str, Any], given: Mapping[str, Any]) -> AgreementDraft:
    """The settings of a draft file, overridden by the options that were given."""
    table = dict(file) | {key: value for key, value in given.items() if value not in (None, [])}
    return settings.read(AgreementDraft, table, "settings of a draft")


def agreement(draft: AgreementDraft) -> "Agreement":
    """The agreement that follows from the options, with a new run id."""
    from sottovoce.files.schema import Schema

    for needed in ("epsilon", "delta"):
        if getattr(draft, needed) is None:
            raise InputError(f"Expected --{needed}: people must decide how much privacy each site gives up, got none.")
    members = tuple(_member(text) for text in draft.site)
    schema = None if draft.schema is None else Schema.load(draft.schema)
    if draft.analysis is not None:
        return _on_a_table(draft, members, None if schema is None else replace(schema, site_effects=None))
    return _on_a_model(draft, members, None if schema is None else schema.at_sites([site.name for site in members]))


def _about(draft: AgreementDraft, members: "tuple[Member, ...]", graph: str | None, schema: "Schema | None") -> Any:
    """What every agreement says, whatever it is about, with a new run id; `Agreement` takes it."""
    from sottovoce.federation.agreement.agreement import LostNeighbour, new_run, timestamp

    return {
        "run": new_run(), "created": timestamp(), "name": draft.name or "",
        "edges": _edges([member.name for member in members], graph, draft.edge),
        "schema": None if schema is None else schema.dumps(),
        "lost_neighbour": LostNeighbour(**_given(draft, ("policy", "wait_seconds", "go_on_after_round"))),
        **_given(draft, ("grid_bits", "sites_per_person")),
    }  # fmt: skip


def _on_a_model(draft: AgreementDraft, members: "tuple[Member, ...]", schema: "Schema | None") -> "Agreement":
    from sottovoce.federation.agreement.agreement import Agreement
    from sottovoce.federation.agreement.terms import TABLES

    expect(draft.algorithm not in TABLES, f"--analysis {draft.algorithm} for a table", algorithm=draft.algorithm)
    for name in ("by", "column", "part"):
        expect(getattr(draft, name) is None, f"--{name} with --analysis", **{name: getattr(draft, name)})
    features, data_norm = _shape(draft, schema)
    # Masked sums go with one graph only, which need not be named.
    taken = choice(draft)
    graph = "complete" if _masked(taken.name) and draft.graph is None and not draft.edge else draft.graph
    # Everything but the settings that are still to be chosen, checked.
    open_terms = Agreement(
        **_about(draft, members, graph, schema), sites=members, features=features, data_norm=data_norm,
        algorithm=_promise(draft, schema),
    )  # fmt: skip
    # The radius follows from the diameter, which is known only now; mask keys go with masked sums alone.
    algorithm, sites = _algorithm(draft, open_terms, taken.name), _with_mask_keys(members, draft.mask_key)
    return replace(open_terms, sites=sites, algorithm=algorithm, radius=draft.message_radius)


def _on_a_table(draft: AgreementDraft, members: "tuple[Member, ...]", schema: "Schema | None") -> "Agreement":
    from sottovoce.federation.agreement.agreement import Agreement
    from sottovoce.federation.agreement.terms import TABLES
    from sottovoce.problem.problem import unit_of
    from sottovoce.settings import check_choice

    check_choice("analysis", draft.analysis, TABLES)
    if schema is None:
        raise InputError("Expected --schema, which says how rows are counted, with --analysis, got none.")
    _expect_of_a_table(draft)
    table = _table(draft, schema)
    rows = sum(member.rows for member in members)
    graph = "complete" if draft.graph is None and not draft.edge else draft.graph
    bound = table.bound_to(schema, rows, unit_of(schema, draft.sites_per_person))
    features, data_norm = bound.shape(schema)
    return Agreement(
        **_about(draft, members, graph, schema), sites=_with_mask_keys(members, draft.mask_key), features=features,
        data_norm=data_norm, algorithm=bound,
    )  # fmt: skip


def _expect_of_a_table(draft: AgreementDraft) -> None:
    """Refuse options that are for models, and those of other tables."""
    own = {"describe": ("by", "column", "part"), "cross": ("column",), "survival": ("by",)}[str(draft.analysis)]
    of_models = {f.name for f in fields(AlgorithmOptions)} - set(_PROMISE) | {"features", "data_norm", "message_radius"}
    others = {"by", "column", "part"} - set(own)
    for name, value in _given(draft, sorted(of_models | others)).items():
        expect(False, f"no --{name.replace('_', '-')} with --analysis {draft.analysis}", **{name: value})


def _table(draft: AgreementDraft, schema: "Schema") -> "TableAnalysis[Any]":
    """The table with what was asked for, before the number of rows says the rest."""
    from sottovoce.cli.tables import shares_of
    from sottovoce.tables import analyses

    terms = {"least_sites": len(draft.site), **_given(draft, _PROMISE)}
    if draft.colluding is None:
        raise InputError(f"Expected --colluding with --analysis: {_COLLUDING}")
    match draft.analysis:
        case "describe":
            told = analyses.columns_of(schema, draft.by, draft.column, shares_of(draft.part or ()))
            return analyses.DescriptionAnalysis(**terms, columns=told, by=draft.by)
        case "cross":
            return analyses.CrossTableAnalysis(**terms, columns=draft.column or ())
        case _:
            return analyses.SurvivalAnalysis(**terms, by=draft.by)


def _masked(name: str) -> bool:
    """True if sites that run the algorithm of that name send masked sums."""
    from sottovoce.federation.agreement.terms import kind_of

    return kind_of(name).way.masked


def _with_mask_keys(members: "Sequence[Member]", texts: Sequence[str]) -> "tuple[Member, ...]":
    """The members with their mask keys, from NAME=FILE or NAME=KEY; refuses unknown names, and names given twice."""
    from sottovoce.federation.agreement.exchange import PREFIX, MaskKey

    found: dict[str, MaskKey] = {}
    names = [member.name for member in members]
    for text in texts:
        name, _, key = text.partition("=")
        if not (name in names and key) or name in found:
            raise InputError(
                f"Expected --mask-key NAME=MASK_FILE once for each site, such as berlin=berlin.mask, got {text[:80]!r}."
            )
        found[name] = MaskKey.from_text(key) if key.startswith(PREFIX) else MaskKey.load(Path(key))
    return tuple(replace(member, mask_key=found.get(member.name)) for member in members)


def _member(text: str) -> "Member":
    """A member from NAME=KEY:ROWS or NAME=KEY:ROWS:COMMITMENT, where KEY is a file, or the public key itself."""
    from sottovoce.federation.agreement.agreement import Member
    from sottovoce.federation.agreement.identity import PREFIX, PublicKey

    name, _, rest = text.partition("=")
    rest, mark, digits = rest.partition(":sha256:")
    key, _, rows = rest.rpartition(":")
    if not (name and key and rows.isdecimal() and len(rows) < 20):
        raise InputError(f"Expected --site NAME=PUBLIC_KEY_FILE:ROWS, such as berlin=berlin.pub:1200, got {text!r}.")
    public_key = PublicKey.from_text(key) if key.startswith(PREFIX) else PublicKey.load(Path(key))
    commitment = f"sha256:{digits}" if mark else None
    return Member(name=name, public_key=public_key, rows=int(rows), data_commitment=commitment)


def _edges(names: Sequence[str], graph: str | None, edges: Sequence[str]) -> tuple[tuple[str, str], ...]:
    from sottovoce.problem import graphs

    if (graph is None) == (not edges):
        raise InputError(
            f"Expected either --graph or --edge, got graph={graph!r}, edges={len(edges)}. "
            f"Graphs: {', '.join(graphs.NAMES)}."
        )
    if graph is None:
        pairs = [edge.partition(":")[::2] for edge in edges]
        odd = next((edge for edge, pair in zip(edges, pairs, strict=True) if not all(pair)), None)
        expect(odd is None, "--edge as a pair of sites, such as berlin:paris", edge=odd)
        return tuple(pairs)
    made = graphs.by_name(graph, len(names))
    return tuple((names[i], names[j]) for i in range(made.n) for j in made.neighbours(i) if i < j)


def _shape(draft: AgreementDraft, schema: "Schema | None") -> tuple[int, float]:
    given = {"features": draft.features, "data_norm": draft.data_norm}
    missing = [name for name, value in given.items() if value is None]
    if schema is not None:
        if len(missing) < 2:
            raise InputError(f"Expected no --features and no --data-norm beside --schema, which has both, got {given}.")
        return schema.d, schema.data_norm
    if draft.features is None or draft.data_norm is None:
        raise InputError(f"Expected --schema, or else --features and --data-norm, got no {', '.join(missing)}.")
    return draft.features, draft.data_norm


# -- the algorithm ----------------------------------------------------------------------------------------------------


def _promise(draft: AgreementDraft, schema: "Schema | None") -> "PrivateMethod":
    """Loss, regulariser and guarantee, as an algorithm whose other settings are placeholders."""
    from sottovoce.algorithms import IPADMM
    from sottovoce.plan import PROMISED
    from sottovoce.problem import regularisers

    given = _given(draft, PROMISED) | {"loss": _loss(draft.loss, schema)}
    if draft.regulariser is not None:
        given["regulariser"] = regularisers.by_name(draft.regulariser)
    rounds = draft.rounds or (draft.go_on_after_round or 0) + 1
    return IPADMM(**given, diameter=1.0, rounds=rounds, local_steps=1)


def _loss(name: str | None, schema: "Schema | None") -> "Loss":
    from sottovoce.problem import losses
    from sottovoce.problem.answers import Answers

    if schema is None:
        expect(name != losses.Softmax.name, "--schema with --loss softmax, for the number of classes", schema=None)
        return losses.by_name(name or losses.Logistic.name)
    answers = Answers.of(schema)
    if name is None and answers.classes is None and not answers.counts and answers.ends is None:
        raise InputError(f"Expected --loss for a label that is a number, got none. One of: {', '.join(_NUMBERS)}.")
    return answers.loss(name) or losses.Logistic()


def choice(draft: AgreementDraft) -> "Default":
    """The algorithm that was named, or the default."""
    from sottovoce.algorithms.default import Default, default
    from sottovoce.files.schema import Schema
    from sottovoce.problem import regularisers

    if draft.algorithm is not None:
        return Default(draft.algorithm)
    graph = "from --edge" if draft.edge else draft.graph or "complete"
    given = _given(draft, [f.name for f in fields(AlgorithmOptions)])
    if draft.mask_key:
        given["colluding"] = draft.colluding  # only masked sums have mask keys
    loss = _loss(draft.loss, None if draft.schema is None else Schema.load(draft.schema))
    return default(loss, regularisers.by_name(draft.regulariser or "l2"), graph, given)


def _algorithm(draft: AgreementDraft, open_terms: "Agreement", name: str) -> "PrivateMethod":
    """The algorithm with all its settings. What was not given is planned from public numbers where it can be, else left
    to the class. Refuses to choose the number of colluding sites.
    """
    from sottovoce.algorithms import registry
    from sottovoce.algorithms.ipadmm import takes_moments
    from sottovoce.federation.agreement.terms import kind_of
    from sottovoce.plan import PROMISED, plan

    promise, kind = open_terms.learning, cast("type[Any]", kind_of(name))
    own = {field.name for field in fields(kind)}
    given = _given(draft, [f.name for f in fields(AlgorithmOptions) if f.name not in (*PROMISED, "algorithm")])
    registry.expect_own(name, given)
    planned = registry.entry(name).planned
    if not set(planned) <= set(given):
        # Where a head start cannot be agreed on, none is planned.
        ahead = takes_moments(open_terms.public_network.sites.factors) and draft.go_on_after_round != 0
        fixed = {"sensitivity": "plain", **({} if ahead else {"moments": 0.0}), **given}
        found = plan(
            sizes=[site.rows for site in open_terms.sites], d=open_terms.features, graph=open_terms.graph,
            epsilon=promise.epsilon, delta=promise.delta, loss=promise.loss, data_norm=open_terms.data_norm,
            lam=promise.lam, fixed=fixed, unit=open_terms.unit,
            **({} if open_terms.encoding is None else open_terms.encoding.known),
        )  # fmt: skip
        given |= {key: found.settings[key] for key in (*planned, "moments")}
    if "largest_degree" in own:
        given["largest_degree"] = int(open_terms.graph.degrees.max())
    if kind.way.masked:
        if draft.colluding is None:
            chosen = "with masked sums" if draft.algorithm else "with masked sums, the default"
            raise InputError(
                f"Expected --colluding {chosen}: {_COLLUDING} --algorithm ipadmm assumes nothing of the kind, and has "
                "more noise."
            )
        given["least_sites"] = len(open_terms.sites) if draft.least_sites is None else draft.least_sites
    if draft.focus:
        from sottovoce.algorithms.masked import features_of
        from sottovoce.files.models.from_site import names_of

        given["focus"] = features_of(draft.focus, names_of(open_terms))
    shared = {key: getattr(promise, key) for key in PROMISED}
    rows = sum(site.rows for site in open_terms.sites)
    made: PrivateMethod = kind(**given, **shared).bound_to(
        rows, open_terms.features, len(open_terms.sites), open_terms.unit
    )
    return made


def _given(draft: AgreementDraft, names: Iterable[str]) -> dict[str, Any]:
    values = {name: getattr(draft, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}
