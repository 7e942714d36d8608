"""The message server's configuration: who may connect, and what each of them may publish and hear.

Sites trust the server only with delivery. Still it is configured to keep them apart, so that no site can disturb
another by mistake or on purpose:

    TLS 1.3 both ways, from the first byte on; connections only with a certificate of the authority and a known name
    one account per site, which only imports the subjects that the site needs (`subjects.permissions`): it publishes
        under its own name, reads and hears its neighbours, in its own runs
    one account for the streams, into which only the operator can log in, to create those of the agreed runs and to see
        their settings; not to write, read, change or delete

Separate accounts matter. The server sends an answer to any subject that the request names, without checking whether the
sender of the request may write there. Within one account a site could use this to fill another site's mailbox; across
accounts an answer stays in the account of the sender. The operator could still do it, but the operator runs the server.

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
from sottovoce.federation.operator.opening import room_for
from sottovoce.federation.transport.subjects import inbox, mailbox, permissions, push, reading, stream_name

STREAMS = "streams"
# Bytes: for the server's answers about itself, and for headers.
_SMALLEST_PAYLOAD, _HEADERS = 64 * 1024, 4096
_LARGEST_PAYLOAD = 64 * 1024**2  # the largest setting that the server accepts
_OWN_STORE = 64 * 1024**2  # bytes for the server's own files
_CONNECTIONS_EACH, _SUBSCRIPTIONS_EACH = 8, 10_000


@final
@dataclass(frozen=True, kw_only=True)
class Hosting:
    """The address, files and identities of a server, as seen from its own machine.

    Args:
        tls: its certificate and key, and the authority that signs all certificates.
        store: folder for the streams.
        host, port: the address to listen on.
        ports_folder: with port=-1, the folder for a file with the chosen port; for tests.
        identities: by site or operator, the name in its certificate if that is not a DNS entry with the bare name: an
            e-mail address, another DNS name, or a whole subject such as "CN=berlin,O=Clinic".
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
        agreements: of all runs that it carries. A name must have the same key in all of them.
        hosting: its address and files.
    """
    _check_together(agreements)
    sites = sorted({name for agreement in agreements for name in agreement.names})
    users = _users(sites, hosting.identities)
    accounts = [_streams_account(agreements, users[OPERATOR])]
    accounts += [_site_account(agreements, site, users[site]) for site in sites]
    return "\n".join([*_head(agreements, hosting), "accounts {", *accounts, "}", ""])


def _check_together(agreements: Sequence[Agreement]) -> None:
    """Refuse agreements that one server cannot keep apart: a repeated run, or one name for two sites."""
    expect(len(agreements) >= 1, "at least one agreement", agreements=len(agreements))
    runs = [agreement.run for agreement in agreements]
    expect(len(set(runs)) == len(runs), "every run once", runs=runs)
    keys: dict[str, str] = {}
    for agreement in agreements:
        for site in agreement.sites:
            # A certificate holds only the name, so two sites of one name would share an account.
            if keys.setdefault(site.name, str(site.public_key)) != str(site.public_key):
                raise InputError(
                    f"Expected one key for each name on one server, got two for site {site.name}. "
                    "Rename one of the sites, or run a server for each federation."
                )


def _users(sites: Sequence[str], identities: Mapping[str, str]) -> dict[str, str]:
    """The identity in the certificate of every site and of the operator, by name."""
    for name, identity in identities.items():
        expect(name in (*sites, OPERATOR), f"identities of sites or of the {OPERATOR}", name=name)
        expect(
            bool(identity) and identity.isprintable(), f"printable text as the identity of {name}", identity=identity
        )
    # Without an entry, a certificate names its owner by the bare name.
    users = {name: identities.get(name, name) for name in (*sites, OPERATOR)}
    owners: dict[str, str] = {}
    for name, identity in users.items():
        # Host names and addresses are not always compared with regard to case.
        other = owners.setdefault(identity.lower(), name)
        expect(other == name, "an identity of its own for everyone", identity=identity, of=[other, name])
    return users


def _head(agreements: Sequence[Agreement], hosting: Hosting) -> list[str]:
    """The lines of the server's own settings: address, limits, storage and TLS."""
    tls, rooms = hosting.tls, [room_for(agreement) for agreement in agreements]
    payload = max(room.size for room in rooms) + _HEADERS
    expect(payload <= _LARGEST_PAYLOAD, f"messages of at most {_LARGEST_PAYLOAD} bytes", bytes=payload)
    store = sum(room.total for room in rooms) + _OWN_STORE
    lines = [
        "# Written by: sottovoce federation server-config. Change the agreement and write it again; do not edit.",
        *(f"# run {agreement.run}, agreement {agreement.digest().hex()}" for agreement in agreements),
        f"host: {_quoted(hosting.host)}",
        f"port: {hosting.port}",
        f"max_payload: {max(payload, _SMALLEST_PAYLOAD)}",
        # A message counts as stored once it is on the disk.
        f"jetstream {{ store_dir: {_quoted(str(hosting.store))}, max_file_store: {store}, "
        "max_memory_store: 1MB, sync_interval: always }",
        "tls {",
        f"  cert_file: {_quoted(str(tls.certificate))}",
        f"  key_file: {_quoted(str(tls.key))}",
        f"  ca_file: {_quoted(str(tls.authority))}",
        # The name in the certificate is the login, and selects the account.
        "  verify_and_map: true",
        # TLS before the first word of the protocol, so that nobody in between can turn it off.
        "  handshake_first: true",
        '  min_version: "1.3"',
        "  timeout: 5",
        "}",
    ]
    if hosting.ports_folder is not None:
        lines.append(f"ports_file_dir: {_quoted(str(hosting.ports_folder))}")
    return lines


# -- accounts ---------------------------------------------------------------------------------------------------------


def _site_name(site: str) -> str:
    """The name of a site's account; no other account's name has this prefix."""
    return f"site-{site}"


def _streams_account(agreements: Iterable[Agreement], operator: str) -> str:
    """The account that holds the streams, with the subjects that it exports to each site's account."""
    exports, interface = [], []
    for a in agreements:
        interface += [f"$JS.API.STREAM.{verb}.{stream_name(a.run)}" for verb in ("CREATE", "INFO")]
        for site in a.names:
            heard_by = [_site_name(other) for other in a.neighbours(site)]
            # A site may put into its own mailboxes, it and its neighbours may read them, neighbours hear its pushes.
            for kind, subject, accounts in (
                ("service", mailbox(a.run, "*", site), [_site_name(site)]),
                ("service", reading(a.run, "*", site), [_site_name(site), *heard_by]),
                ("stream", push(a.run, "*", site), heard_by),
            ):
                exports.append(f"      {{ {kind}: {_quoted(subject)}, accounts: {_list(accounts)} }}")
    user = _user(operator, interface, [f"{inbox(OPERATOR)}.>", "_INBOX.>"])
    return _account(STREAMS, user, "exports", exports, "jetstream: enabled")


def _site_account(agreements: Iterable[Agreement], site: str, user: str) -> str:
    """The account of one site: imports of what it needs in all its runs, and nothing else."""
    needs = [permissions(a.run, site, a.neighbours(site)) for a in agreements if site in a.names]
    services = [subject for need in needs for subject in (*need.put, *need.read)]
    pushes = [subject for need in needs for subject in need.pushes]
    inboxes = sorted({need.inbox for need in needs})
    needed = [("service", subject) for subject in services] + [("stream", subject) for subject in pushes]
    imports = [f"      {{ {kind}: {{ account: {STREAMS}, subject: {_quoted(name)} }} }}" for kind, name in needed]
    return _account(_site_name(site), _user(user, services, [*inboxes, *pushes]), "imports", imports)


def _user(identity: str, publish: Sequence[str], subscribe: Sequence[str]) -> list[str]:
    """The lines of an account's only user, with all that it may publish and hear."""
    return [
        f"    users: [ {{ user: {_quoted(identity)}, permissions: {{",
        f"      publish: {{ allow: {_list(publish)} }}",
        f"      subscribe: {{ allow: {_list(subscribe)} }}",
        "    } } ]",
    ]


def _account(name: str, user: Sequence[str], way: str, subjects: Sequence[str], *settings: str) -> str:
    """The text of one account."""
    limits = f"limits: {{ max_connections: {_CONNECTIONS_EACH}, max_subscriptions: {_SUBSCRIPTIONS_EACH} }}"
    head = [f"  {_quoted(name)} {{", *(f"    {setting}" for setting in (limits, *settings))]
    return "\n".join([*head, *user, f"    {way}: [", *subjects, "    ]", "  }"])


def _list(items: Sequence[str]) -> str:
    """A list of texts in the server's syntax."""
    return "[" + ", ".join(_quoted(item) for item in items) + "]"


def _quoted(text: str) -> str:
    """A text in the server's syntax: in double quotes, with a backslash before a quote or a backslash."""
    expect(text.isprintable(), "printable text in a server's configuration", text=text)
    return json.dumps(text, ensure_ascii=False)
