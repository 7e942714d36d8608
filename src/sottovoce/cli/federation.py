"""`sottovoce federation`: the agreement and the message server of real sites."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.demo.demo import demo
from sottovoce.cli.draft import AgreementDraft
from sottovoce.cli.options import signature_of, values
from sottovoce.errors import InputError

if TYPE_CHECKING:
    pass

federation_app = typer.Typer(
    no_args_is_help=True,
    help="Set up a federation of real sites: agree, countersign, and configure the message server.",
)

_File = Annotated[Path, typer.Argument(help="The agreement, federation.toml.", metavar="FEDERATION")]
_Signatures = Annotated[Path | None, typer.Option(help="Folder of signatures. Default: beside the agreement.")]
_FEDERATION, _CERTIFICATES = Path("federation.toml"), Path("certificates")


def new_agreement(draft: Path | None = None, out: Path | None = None, **given: Any) -> None:
    """Write an agreement: who takes part, what is computed, and what it costs. All of it is public.

    Settings that are not given are planned from public numbers.
    """
    from sottovoce.cli import draft as drafts
    from sottovoce.cli import intervals
    from sottovoce.cli.agreement import preview
    from sottovoce.federation.agreement import toml_file
    from sottovoce.files.schema.advice import on_row_norm
    from sottovoce.settings.toml import load

    lists = {name: given.pop(name) for name in ("site", "edge", "mask_key")}
    wishes = drafts.merged({} if draft is None else load(draft), values(AgreementDraft, given) | lists)
    agreement, path = drafts.agreement(wishes), _FEDERATION if out is None else out
    toml_file.save(agreement, path)
    if wishes.analysis is None:
        if remark := drafts.choice(wishes).remark:
            print(remark)
        if (schema := agreement.encoding) is not None and (advice := on_row_norm(schema)):
            print(f"Advice: {advice}")
    for sentence in (*intervals.of_agreement(agreement), *preview(agreement)):
        print(sentence)
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
    from sottovoce.cli.agreement import tell
    from sottovoce.federation.agreement import signing, toml_file

    agreement = toml_file.load(federation)
    tell(agreement, signing.standings(agreement, federation, signatures))


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
    patience: Annotated[float, typer.Option(help="Seconds to wait for a server that does not answer.")] = 30.0,
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
