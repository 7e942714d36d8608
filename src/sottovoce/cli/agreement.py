"""An agreement as people read it before they sign: `sottovoce federation show`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sottovoce.cli.intervals import of_agreement
from sottovoce.cli.output import show
from sottovoce.document import Table, Words
from sottovoce.numerals import exactly, up
from sottovoce.settings import plain

if TYPE_CHECKING:
    from sottovoce.federation.agreement.agreement import Agreement
    from sottovoce.federation.agreement.signing import Consent
    from sottovoce.privacy import PrivacyStatement

_KINDS = {"model": "Algorithm", "table": "Table"}


def tell(agreement: "Agreement", standings: "Mapping[str, Consent]") -> None:
    """Print who takes part, what is computed, what it costs, what leaves a site, and who has signed."""
    from sottovoce.federation.agreement.signing import Consent
    from sottovoce.files.models.from_site import statement_of
    from sottovoce.privacy.words import observers

    # The same at all sites: it follows from agreed numbers.
    privacy = agreement.algorithm.statement(agreement.public_oracle(agreement.names[0]))
    missing = [name for name, standing in standings.items() if standing is not Consent.SIGNED]
    show(
        f"{agreement.name or 'Federation'}: run {agreement.run}, written {agreement.created}",
        f"Digest {agreement.digest().hex()}",
        _sites(agreement, privacy, standings),
        *observers(statement_of(agreement, agreement.names[0]).observers),
        *_lines(agreement, privacy),
        Words(f"Not agreed yet: {', '.join(missing)}.", "bad")
        if missing
        else Words("All sites have signed exactly this.", "good"),
    )


def _sites(agreement: "Agreement", privacy: "PrivacyStatement", standings: "Mapping[str, Consent]") -> Table:
    """One line for each site: rows, neighbours, guarantee, noise, key, and whether it agrees."""
    way, rows = agreement.algorithm.way, sum(site.rows for site in agreement.sites)
    lines = []
    for member in agreement.sites:
        hears = "everyone" if way.complete else ", ".join(agreement.neighbours(member.name))
        keys = [member.public_key.fingerprint, *([] if member.mask_key is None else [member.mask_key.fingerprint])]
        noise = f"{agreement.algorithm.share_std(agreement.public_oracle(member.name), rows):.3g}"
        price = (up(privacy.epsilon), exactly(privacy.delta))
        lines.append((member.name, str(member.rows), hears, *price, noise, *keys, standings[member.name].value))
    keys = ["key", "mask key"] if way.masked else ["key"]
    return Table(("site", "rows", "hears", "epsilon", "delta", "noise", *keys, "consent"), lines, frozenset({1}))


def _lines(agreement: "Agreement", privacy: "PrivacyStatement") -> list[str]:
    """Sentences that say what is promised, assumed and computed, one for each line; warnings come last."""
    from sottovoce.federation.agreement import terms
    from sottovoce.files.models.from_site import names_of

    algorithm = agreement.algorithm
    settings = {key: value for key, value in plain(algorithm).items() if key != "name"}
    if "focus" in settings:
        settings["focus"] = " and ".join(names_of(agreement)[i] for i in settings["focus"])
    schema = "sites bring arrays" if agreement.encoding is None else f"schema {agreement.encoding.digest()}"
    # What the budget goes to is said if it is more than learning a model.
    parts = [f"{100 * part:.3g} % for the {kind}" for kind, part in algorithm.split.items()]
    condition = share = ""
    if algorithm.way.masked:
        # The table above the lines says what holds if more sites collude.
        condition = f", if at most {algorithm.colluders(len(agreement.sites))} sites collude"
        shares = agreement.analysis.honest(len(agreement.sites))
        share = f": one of at least {shares} shares that the colluding sites do not know"
    lines = [
        f"Promise to every site{condition}: epsilon = {exactly(algorithm.epsilon)}, "
        f"delta = {exactly(algorithm.delta)}, for {privacy.unit}.",
        f"Noise: sigma = {up(privacy.sigma or 0.0)}. The table shows its standard deviation in {algorithm.noisy}"
        f"{share}. It is drawn exactly, on a grid, which adds at most {up(agreement.grid_delta)} to delta.",
        f"What leaves a site: {privacy.released}.",
        *preview(agreement),
        f"What everyone knows: {', '.join(privacy.public)}.",
        f"Data: {agreement.features} features, rows of norm at most {exactly(agreement.data_norm)}, {schema}.",
        *_people(agreement),
        *_factors(agreement),
        *([] if agreement.radius is None else [f"Messages of a norm above {exactly(agreement.reach)} are refused."]),
        f"{_KINDS[algorithm.ends_in]}: {terms.name_of(algorithm)}, "
        f"{', '.join(f'{k} = {_shown(v)}' for k, v in settings.items())}.",
        *([f"Parts of the budget, mu^2: {', '.join(parts)}."] if len(parts) > 2 else []),
        *of_agreement(agreement),
        f"When a neighbour falls silent: {_policy(agreement)}.",
        *privacy.notes,
    ]
    return lines + [
        f"Beware: delta = {exactly(algorithm.delta)} is not below 1 / rows at site {site.name}."
        for site in agreement.sites
        if algorithm.delta * site.rows >= 1
    ]


def preview(agreement: "Agreement") -> tuple[str, ...]:
    """Sentences on what all sites will read, where `released` does not say it all."""
    rows, site = sum(site.rows for site in agreement.sites), agreement.public_oracle(agreement.names[0])
    return agreement.algorithm.preview(agreement.encoding, site, rows)


def _people(agreement: "Agreement") -> list[str]:
    """Sentences on what sites must see to, so that people are protected; none where rows are."""
    schema = agreement.encoding
    if schema is None or schema.person is None:
        return []
    surplus = "is refused" if schema.person.surplus == "refuse" else "has only the first ones learnt from"
    return [
        f"People: column {schema.person.column!r} names the person of a row, and stays at its site. Whoever has more "
        f"than {schema.person.rows} rows at a site {surplus}. That nobody has rows at more than "
        f"{agreement.sites_per_person} of the sites is what the sites assure each other: no site can check it.",
        *schema.person.notes,
    ]


def _factors(agreement: "Agreement") -> list[str]:
    """Sentences on weights and exposures of rows, and what a site refuses of them; none without such columns."""
    schema, told = agreement.encoding, agreement.algorithm.factors(agreement.encoding).told
    if schema is None:
        return []
    return [
        f"Column {factor.column!r} has the {what} of every row, and stays at its site. A site whose file has one that "
        f"is not above 0 and at most {exactly(factor.bound)} does not start."
        for what, factor in (("weight", schema.weight), ("exposure", schema.exposure))
        if factor is not None and told
    ]


def _shown(value: object) -> str:
    """A setting as text: numbers in full, tables with their options in brackets."""
    if isinstance(value, list):
        return " and ".join(map(_shown, value))
    if isinstance(value, dict):
        options = [f"{key} = {_shown(option)}" for key, option in value.items() if key != "name"]
        return f"{value['name']} ({', '.join(options)})" if options else str(value["name"])
    return exactly(value) if isinstance(value, float) else str(value)


def _policy(agreement: "Agreement") -> str:
    """What a site does about a silent neighbour, in words."""
    from sottovoce.federation.site.formats import format_of

    lost, spare = agreement.lost_neighbour, format_of(agreement).spare
    seconds = exactly(lost.wait_seconds)
    if spare and lost.policy == "go-on":
        first = f"wait in the first {lost.go_on_after_round} exchanges; later, " if lost.go_on_after_round else ""
        return (
            f"{first}after {seconds} s, make the sum again without it, with fresh noise, at most {spare} "
            f"times in all and with at least {agreement.analysis.members(len(agreement.sites))} sites; then stop"
        )
    return {
        "wait": f"wait for it, and say so every {seconds} s",
        "stop": f"stop after {seconds} s",
        "go-on": f"wait up to round {lost.go_on_after_round}; later, go on without it after {seconds} s",
    }[lost.policy]
