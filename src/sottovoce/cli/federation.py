"""`sottovoce federation`, `site keygen` and `site seed`: keys, agreement and message server of real sites."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.demo.demo import demo
from sottovoce.cli.draft import AgreementDraft
from sottovoce.cli.options import signature_of, values
from sottovoce.cli.output import show
from sottovoce.document import Table, Words
from sottovoce.errors import InputError
from sottovoce.numerals import exactly, up
from sottovoce.settings import plain

if TYPE_CHECKING:
    from sottovoce.federation.agreement.agreement import Agreement
    from sottovoce.federation.agreement.signing import Consent
    from sottovoce.privacy import PrivacyStatement

federation_app = typer.Typer(
    no_args_is_help=True,
    help="Set up a federation of real sites: agree, countersign, and configure the message server.",
)

_File = Annotated[Path, typer.Argument(help="The agreement, federation.toml.", metavar="FEDERATION")]
_Signatures = Annotated[Path | None, typer.Option(help="Folder of signatures. Default: beside the agreement.")]
_FEDERATION, _CERTIFICATES = Path("federation.toml"), Path("certificates")


def site_keygen(
    site: Annotated[str, typer.Argument(help="Name of the site: small letters, digits, hyphens.", metavar="NAME")],
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path(),
) -> None:
    """Make a site's key pair. The private half stays here; the public half goes to the others."""
    from sottovoce.federation.agreement.identity import SigningKey, check_site_name

    check_site_name(site)
    private, public = out / f"{site}.signing.pem", out / f"{site}.pub"
    # Checked before a private key is written, so that neither is left without the other.
    if public.exists():
        raise InputError(f"Expected no key of {site} yet, got {str(public)!r}. Choose another folder.")
    key = SigningKey.generate()
    key.save(private)
    key.public.save(public)
    print(f"Private key: {private}. Keep it here, and secret.")
    print(f"Public key:  {public}. Give it to the others, and read them the fingerprint: {key.public.fingerprint}.")


def site_seed(
    site: Annotated[str, typer.Argument(help="Name of the site, as in the agreement.", metavar="NAME")],
    key: Annotated[Path, typer.Option(help="The site's private key, from: sottovoce site keygen.")],
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path(),
) -> None:
    """Make a site's secret for one agreement on masked sums, and the line that goes into it."""
    from sottovoce.federation.agreement.exchange import Seed
    from sottovoce.federation.agreement.identity import SigningKey, check_site_name

    check_site_name(site)
    secret, public = out / f"{site}.seed", out / f"{site}.mask"
    # Checked before a secret is written, so that neither is left without the other.
    if public.exists():
        raise InputError(
            f"Expected no mask key of {site} yet, got {str(public)!r}. Every agreement has one of its own: choose "
            "another folder."
        )
    seed = Seed.generate()
    line = seed.mask_key(site, SigningKey.load(key))
    seed.save(secret)
    line.save(public)
    print(f"Seed:     {secret}. Keep it here, as secret as the rows, for one agreement.")
    print(f"Mask key: {public}. Give it to whoever writes the agreement.")


def new_agreement(draft: Path | None = None, out: Path | None = None, **given: Any) -> None:
    """Write an agreement: who takes part, what is computed, and what it costs. All of it is public.

    Settings that are not given are planned from public numbers.
    """
    from sottovoce.cli import draft as drafts
    from sottovoce.federation.agreement import toml_file
    from sottovoce.settings.toml import load

    lists = {name: given.pop(name) for name in ("site", "edge", "mask_key")}
    agreement = drafts.agreement(
        drafts.merged({} if draft is None else load(draft), values(AgreementDraft, given) | lists)
    )
    path = _FEDERATION if out is None else out
    toml_file.save(agreement, path)
    print(f"Written to {path}. Its digest is {agreement.digest().hex()}.")
    print(f"Every site now reads it with: sottovoce federation show {path}")
    print(f"and, if it agrees, signs with: sottovoce federation sign {path} --site NAME --key NAME.signing.pem")


_DRAFT = typer.Option(help="Read settings from a TOML file, by the names of these options; options given here win.")
_OUT = typer.Option(help="The file to write. Default: federation.toml.")
_SITE = typer.Option(
    help="A site, its public key and how many rows it brings; also its commitment to them, if it made one with: "
    "sottovoce site commit. Repeat.",
    metavar="NAME=KEY_FILE:ROWS[:COMMITMENT]",
)
_MASK_KEY = typer.Option(
    help="With masked sums: a site's mask key, from: sottovoce site seed. Repeat.", metavar="NAME=MASK_FILE"
)
_EDGE = typer.Option(help="Two sites that exchange messages, instead of --graph. Repeat.", metavar="NAME:NAME")
new_agreement.__signature__ = signature_of(  # type: ignore[attr-defined]
    AgreementDraft,
    site=Annotated[list[str] | None, _SITE],
    edge=Annotated[list[str] | None, _EDGE],
    mask_key=Annotated[list[str] | None, _MASK_KEY],
    draft=Annotated[Path | None, _DRAFT],
    out=Annotated[Path | None, _OUT],
)
federation_app.command("new")(new_agreement)


@federation_app.command("sign")
def sign_agreement(
    federation: _File,
    site: Annotated[str, typer.Option(help="The site that agrees.", metavar="NAME")],
    key: Annotated[Path, typer.Option(help="The site's private key, from: sottovoce site keygen.")],
    signatures: _Signatures = None,
) -> None:
    """Agree, for one site, to exactly what the file says."""
    from sottovoce.federation.agreement import signing, toml_file
    from sottovoce.federation.agreement.identity import SigningKey

    agreement = toml_file.load(federation)
    path = signing.signature_file(federation, site, signatures)
    made = signing.write_signature(agreement, site, SigningKey.load(key), path)
    print(f"{site} agrees to {federation}, digest {made.digest.hex()}.")
    print(f"Written to {path}. Give it to the others.")


@federation_app.command("show")
def show_agreement(federation: _File, signatures: _Signatures = None) -> None:
    """Who takes part, what is computed, what it costs each site, what leaves a site, and who has signed."""
    from sottovoce.federation.agreement import signing, toml_file

    agreement = toml_file.load(federation)
    tell(agreement, signing.standings(agreement, federation, signatures))


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

    algorithm = agreement.algorithm
    settings = {key: value for key, value in plain(algorithm).items() if key != "name"}
    schema = "sites bring arrays" if agreement.encoding is None else f"schema {agreement.encoding.digest()}"
    # What the budget goes to is said if it is more than learning a model.
    parts = [f"{100 * part:.3g} % for the {kind}" for kind, part in algorithm.split.items()]
    condition = share = ""
    if algorithm.way.masked:
        # The table above the lines says what holds if more sites collude.
        condition = f", if at most {algorithm.colluders(len(agreement.sites))} sites collude"
        shares = agreement.analysis.honest(len(agreement.sites))
        share = f" before the first step: one of at least {shares} shares that the colluding sites do not know"
    lines = [
        f"Promise to every site{condition}: epsilon = {exactly(algorithm.epsilon)}, "
        f"delta = {exactly(algorithm.delta)}, for {privacy.unit}.",
        f"Noise: sigma = {up(privacy.sigma or 0.0)}. The table shows its standard deviation in each coordinate of a "
        f"gradient{share}. It is drawn exactly, on a grid, which adds at most {up(agreement.grid_delta)} "
        "to delta.",
        f"What leaves a site: {privacy.released}.",
        f"What everyone knows: {', '.join(privacy.public)}.",
        f"Data: {agreement.features} features, rows of norm at most {exactly(agreement.data_norm)}, {schema}.",
        *_people(agreement),
        *_factors(agreement),
        *([] if agreement.radius is None else [f"Messages of a norm above {exactly(agreement.reach)} are refused."]),
        f"Algorithm: {terms.name_of(algorithm)}, {', '.join(f'{k} = {_shown(v)}' for k, v in settings.items())}.",
        *([f"Parts of the budget, mu^2: {', '.join(parts)}."] if len(parts) > 2 else []),
        f"When a neighbour falls silent: {_policy(agreement)}.",
        *privacy.notes,
    ]
    return lines + [
        f"Beware: delta = {exactly(algorithm.delta)} is not below 1 / rows at site {site.name}."
        for site in agreement.sites
        if algorithm.delta * site.rows >= 1
    ]


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
    schema = agreement.encoding
    if schema is None:
        return []
    return [
        f"Column {factor.column!r} has the {what} of every row, and stays at its site. A site whose file has one that "
        f"is not above 0 and at most {exactly(factor.bound)} does not start."
        for what, factor in (("weight", schema.weight), ("exposure", schema.exposure))
        if factor is not None
    ]


def _shown(value: object) -> str:
    """A setting as text: numbers in full, tables with their options in brackets."""
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


@federation_app.command("certificates")
def certificates(
    federation: _File,
    out: Annotated[Path, typer.Option(help="Folder for certificates and keys.")] = _CERTIFICATES,
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address of the server. Repeat. Default: this machine only.")
    ] = None,
    days: Annotated[int, typer.Option(help="Days that they are valid. The authority is valid twice as long.")] = 365,
) -> None:
    """Make an authority and certificates for everyone: for tests and small groups.

    An organisation with an authority of its own uses that instead.
    """
    from sottovoce.federation.agreement import certificates as authority
    from sottovoce.federation.agreement import toml_file

    agreement = toml_file.load(federation)
    if not (out / "ca.cert.pem").exists():
        # Kept if it is there: certificates of an earlier call stay good.
        authority.create_authority(out, agreement.name[:60] or "sottovoce", min(2 * days, 3650))
    authority.issue_server(out, host or authority.LOOPBACK, days)
    authority.issue_operator(out, days)
    for name in agreement.names:
        authority.issue_site(out, name, days)
    print(f"Written to {out}: NAME.cert.pem, NAME.key.pem and ca.cert.pem for each site; also for server and operator.")
    print("Hand each site its own files in a safe way, and keep ca.key.pem to yourself.")


@federation_app.command("server-config")
def write_server_config(
    federation: Annotated[
        list[Path], typer.Argument(help="The agreement; several, if one server carries several.", metavar="FEDERATION")
    ],
    certificates: Annotated[
        Path, typer.Option(help="Folder with server.cert.pem, server.key.pem and ca.cert.pem.")
    ] = _CERTIFICATES,
    store: Annotated[Path, typer.Option(help="Folder in which the server keeps messages.")] = Path("messages"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 4222,
    identity: Annotated[
        list[str] | None,
        typer.Option(
            help="How a certificate of another authority names a site, or the operator: e-mail, DNS name or subject.",
            metavar="NAME=TEXT",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("nats.conf"),
) -> None:
    """Write the message server's configuration: TLS both ways, and what each certificate may do."""
    from sottovoce.federation.agreement import toml_file
    from sottovoce.federation.agreement.certificates import TLSFiles
    from sottovoce.federation.agreement.identity import SERVER
    from sottovoce.federation.agreement.key_files import write_public
    from sottovoce.federation.operator import server

    agreements, identities = [toml_file.load(path) for path in federation], dict[str, str]()
    for text in identity or ():
        name, _, named = text.partition("=")
        if not (name and named):
            raise InputError(f"Expected --identity NAME=TEXT, such as berlin=data@berlin.example, got {text!r}.")
        identities[name] = named
    hosting = server.Hosting(
        # Absolute paths: the server may be started from another folder.
        tls=TLSFiles.within(certificates.resolve(), SERVER),
        store=store.resolve(),
        host=host,
        port=port,
        identities=identities,
    )
    write_public(out, server.server_config(agreements, hosting).encode("utf-8"))
    print(f"Written to {out}. Start the server with: nats-server --config {out}")


@federation_app.command("open")
def open_on_server(
    federation: Annotated[Path, typer.Option(help="The agreement, federation.toml.", show_default=False)],
    server: Annotated[
        str, typer.Option(help="The message server, such as tls://nats.example.org:4222.", metavar="URL")
    ],
    certificates: Annotated[
        Path, typer.Option(help="Folder with ca.cert.pem, operator.cert.pem and operator.key.pem.")
    ] = _CERTIFICATES,
    replicas: Annotated[int, typer.Option(help="How many servers of a cluster keep each message.")] = 1,
    patience: Annotated[float, typer.Option(help="Seconds to wait for a server that is away.")] = 30.0,
) -> None:
    """Make the mailboxes of a run on the server, once, before the sites start. Done again, it changes nothing."""
    import asyncio

    from sottovoce.cli.site.view import PlainLines
    from sottovoce.federation.agreement import toml_file
    from sottovoce.federation.agreement.certificates import TLSFiles
    from sottovoce.federation.agreement.identity import OPERATOR
    from sottovoce.federation.operator import opening
    from sottovoce.federation.site.watchers import tell_away

    agreement, operator = toml_file.load(federation), TLSFiles.within(certificates, OPERATOR)
    away = partial(tell_away, PlainLines())
    opened = opening.open_run(agreement, server, operator, replicas=replicas, timeout=patience, told=away)
    room = asyncio.run(opened)
    print(f"Run {agreement.run} is open: room for {room.messages} messages of at most {room.size} bytes.")
    print("The sites can start, with: sottovoce site run")


federation_app.command("demo")(demo)
