"""The message server's configuration: who may connect, and what each may say and hear.

Sites trust the server with delivery and nothing else. Still it is told to keep them apart, so that nobody gets in
anyone's way by mistake or on purpose:

    TLS 1.3 both ways, from the first byte on; a certificate of the authority, and known by name, or no connection
    one account per site, which holds nothing but imports of the subjects that the site needs (`subjects.permissions`):
        it publishes under its own name, reads and hears its neighbours, in its own runs
    one account for the streams, into which only the operator can log in, to create those of the agreed runs and to see
        how they are set up; not to write, read, change or delete

Separate accounts matter. The server sends an answer to whatever subject the question names, without asking whether the
one who asks may write there. Within one account a site could so fill somebody else's mailbox; across accounts an
answer stays in the account of the one who asked. The operator could still do it. But the operator runs the server.

Nobody may use the server's interface for deleting, purging or changing streams.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from sottovoce.errors import InputError, expect
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.agreement.certificates import TLSFiles
from sottovoce.federation.agreement.identity import OPERATOR
from sottovoce.federation.site.opening import room_for
from sottovoce.federation.transport.subjects import inbox, mailbox, permissions, push, reading, stream_name

STREAMS = "streams"
# Room for headers, and for answers of the server about itself.
_SMALLEST_PAYLOAD, _HEADERS = 64 * 1024, 4096
# The server refuses more.
_LARGEST_PAYLOAD = 64 * 1024**2
_CONNECTIONS_EACH, _SUBSCRIPTIONS_EACH = 8, 10_000


@final
@dataclass(frozen=True, kw_only=True)
class Hosting:
    """Where the server listens and what it uses, as seen from its own machine.

    Args:
        tls: its certificate and key, and the authority that signs everyone's.
        store: folder for the streams.
        host, port: where to listen.
        ports_folder: where to write which port was taken, with port=-1; for tests.
        identities: how certificates name sites or the operator, where not by a DNS entry with the bare name: an e-mail
            address, another DNS name, or a whole subject such as "CN=berlin,O=Clinic".
    """

    tls: TLSFiles
    store: Path
    host: str = "0.0.0.0"
    port: int = 4222
    ports_folder: Path | None = None
    identities: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        expect(self.port == -1 or 1 <= self.port <= 65535, "1 <= port <= 65535, or -1 for any", port=self.port)


def server_config(agreements: Sequence[Agreement], hosting: Hosting) -> str:
    """The configuration of a server that carries these runs, for `nats-server --config`.

    Args:
        agreements: of all runs that it carries. Sites of one name must have one key.
        hosting: where it listens, and with which files.
    """
    _check_together(agreements)
    sites = sorted({name for agreement in agreements for name in agreement.names})
    users = _users(sites, hosting.identities)
    accounts = [_streams_account(agreements, users[OPERATOR])]
    accounts += [_site_account(agreements, site, users[site]) for site in sites]
    return "\n".join([*_head(agreements, hosting), "accounts {", *accounts, "}", ""])


def _check_together(agreements: Sequence[Agreement]) -> None:
    """Refuse agreements that one server cannot keep apart: the same run twice, or one name for two sites."""
    expect(len(agreements) >= 1, "at least one agreement", agreements=len(agreements))
    runs = [agreement.run for agreement in agreements]
    expect(len(set(runs)) == len(runs), "every run once", runs=runs)
    keys: dict[str, str] = {}
    for agreement in agreements:
        for site in agreement.sites:
            # A certificate has only the name: two sites of one name would share an account.
            if keys.setdefault(site.name, str(site.public_key)) != str(site.public_key):
                raise InputError(
                    f"Expected one key for each name on one server, got two for site {site.name}. "
                    "Rename one of the sites, or run a server for each federation."
                )


def _users(sites: Sequence[str], identities: Mapping[str, str]) -> dict[str, str]:
    """How the certificate of each names it."""
    for name, identity in identities.items():
        expect(name in (*sites, OPERATOR), f"identities of sites or of the {OPERATOR}", name=name)
        expect(
            bool(identity) and identity.isprintable(), f"printable text as the identity of {name}", identity=identity
        )
    # Without an entry, a certificate names its owner by the bare name.
    users = {name: identities.get(name, name) for name in (*sites, OPERATOR)}
    owners: dict[str, str] = {}
    for name, identity in users.items():
        # Host names and addresses are compared without regard to case in some places.
        other = owners.setdefault(identity.lower(), name)
        expect(other == name, "an identity of its own for everyone", identity=identity, of=[other, name])
    return users


def _head(agreements: Sequence[Agreement], hosting: Hosting) -> list[str]:
    """The server's own settings: where it listens, what it takes, where it stores, and TLS."""
    tls = hosting.tls
    lines = [
        "# Written by: sottovoce federation server-config. Change the agreement and write it again; do not edit.",
        *(f"# run {agreement.run}, agreement {agreement.digest().hex()}" for agreement in agreements),
        f"host: {_quoted(hosting.host)}",
        f"port: {hosting.port}",
        f"max_payload: {_payload(agreements)}",
        # Written through to the disk before a message counts as stored.
        f"jetstream {{ store_dir: {_quoted(str(hosting.store))}, max_file_store: {_store(agreements)}, "
        "max_memory_store: 1MB, sync_interval: always }",
        "tls {",
        f"  cert_file: {_quoted(str(tls.certificate))}",
        f"  key_file: {_quoted(str(tls.key))}",
        f"  ca_file: {_quoted(str(tls.authority))}",
        # The certificate is the login: its name chooses the account.
        "  verify_and_map: true",
        # TLS before the first word of the protocol, so that nobody in between can talk a site out of it.
        "  handshake_first: true",
        '  min_version: "1.3"',
        "  timeout: 5",
        "}",
    ]
    if hosting.ports_folder is not None:
        lines.append(f"ports_file_dir: {_quoted(str(hosting.ports_folder))}")
    return lines


def _payload(agreements: Iterable[Agreement]) -> int:
    """The largest message that the server takes, in bytes."""
    size = max(room_for(agreement).size for agreement in agreements) + _HEADERS
    expect(size <= _LARGEST_PAYLOAD, f"messages of at most {_LARGEST_PAYLOAD} bytes", bytes=size)
    return max(size, _SMALLEST_PAYLOAD)


def _store(agreements: Iterable[Agreement]) -> int:
    """What all runs may store, each of which has its own part set aside; and some for the server itself."""
    return sum(room_for(agreement).total for agreement in agreements) + 64 * 1024**2


# -- accounts ---------------------------------------------------------------------------------------------------------


def _site_name(site: str) -> str:
    """Of a site's account; no other account's name begins so."""
    return f"site-{site}"


def _streams_account(agreements: Iterable[Agreement], operator: str) -> str:
    """The account that holds the streams, with what it lets which site's account use."""
    exports, interface = [], []
    for a in agreements:
        interface += [f"$JS.API.STREAM.{verb}.{stream_name(a.run)}" for verb in ("CREATE", "INFO")]
        for site in a.names:
            heard_by = [_site_name(other) for other in a.neighbours(site)]
            # A site may put into its own mailboxes; it and its neighbours may read them; neighbours hear its pushes.
            exports += [
                _export("service", mailbox(a.run, "*", site), [_site_name(site)]),
                _export("service", reading(a.run, "*", site), [_site_name(site), *heard_by]),
                _export("stream", push(a.run, "*", site), heard_by),
            ]
    user = _user(operator, interface, [f"{inbox(OPERATOR)}.>", "_INBOX.>"])
    return _account(STREAMS, user, "exports", exports, "jetstream: enabled")


def _site_account(agreements: Iterable[Agreement], site: str, user: str) -> str:
    """The account of one site: imports of what it needs, in all runs that it takes part in, and nothing else."""
    needs = [permissions(a.run, site, a.neighbours(site)) for a in agreements if site in a.names]
    services = [subject for need in needs for subject in (*need.put, *need.read)]
    pushes = [subject for need in needs for subject in need.pushes]
    inboxes = sorted({need.inbox for need in needs})
    imports = [_import("service", subject) for subject in services]
    imports += [_import("stream", subject) for subject in pushes]
    return _account(_site_name(site), _user(user, services, [*inboxes, *pushes]), "imports", imports)


def _user(identity: str, publish: Sequence[str], subscribe: Sequence[str]) -> list[str]:
    """The one user of an account, with all that it may publish and hear."""
    return [
        f"    users: [ {{ user: {_quoted(identity)}, permissions: {{",
        f"      publish: {{ allow: {_list(publish)} }}",
        f"      subscribe: {{ allow: {_list(subscribe)} }}",
        "    } } ]",
    ]


def _account(name: str, user: Sequence[str], way: str, subjects: Sequence[str], *settings: str) -> str:
    """One account as text."""
    limits = f"limits: {{ max_connections: {_CONNECTIONS_EACH}, max_subscriptions: {_SUBSCRIPTIONS_EACH} }}"
    head = [f"  {_quoted(name)} {{", *(f"    {setting}" for setting in (limits, *settings))]
    return "\n".join([*head, *user, f"    {way}: [", *subjects, "    ]", "  }"])


def _export(kind: str, subject: str, accounts: Sequence[str]) -> str:
    """A subject that the streams' account lets these accounts import."""
    return f"      {{ {kind}: {_quoted(subject)}, accounts: {_list(accounts)} }}"


def _import(kind: str, subject: str) -> str:
    """A subject that a site's account takes from the streams' account."""
    return f"      {{ {kind}: {{ account: {STREAMS}, subject: {_quoted(subject)} }} }}"


def _list(items: Sequence[str]) -> str:
    """A list of texts, as the server reads it."""
    return "[" + ", ".join(_quoted(item) for item in items) + "]"


def _quoted(text: str) -> str:
    """As the server reads text: in double quotes, with a backslash before a quote or a backslash."""
    expect(text.isprintable(), "printable text in a server's configuration", text=text)
    return json.dumps(text, ensure_ascii=False)
