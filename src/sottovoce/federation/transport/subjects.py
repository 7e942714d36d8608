"""Names on the message server, and the permissions that a site needs there.

    stream     SV_<run>                    in files; one message per subject, the first one; nothing can be deleted
    mailbox    sv.<run>.<token>.<site>     put: publish, and wait for the server's word that it is stored
    push       svp.<run>.<token>.<site>    stored messages are also sent to listeners
    read       $JS.API.DIRECT.GET.SV_<run>.sv.<run>.<token>.<site>

The token is that of `wire.Slot`: m17 for round 17, s17 if it is masked, n3 for the third notice, a3-berlin for the
answer to Berlin's third notice.

A site publishes to its own mailboxes, reads its neighbours' and its own, and hears its neighbours' pushes. It may not
create consumers, since with that right it could make the server write to any subject.

On a server where all sites share one account, one attack remains. The server sends an answer to any subject that a
request names, without checking whether the sender of the request may write there. So a member can make the server fill
another site's mailbox. These bytes are refused, since the mailbox's owner did not sign them, but the run stops. With
one account per site, which imports only the subjects of `permissions`, answers stay within the sender's account.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from sottovoce.federation.agreement.identity import check_site_name
from sottovoce.federation.transport.wire import check_run_id


def stream_name(run_id: str) -> str:
    """The name of a run's stream."""
    return f"SV_{run_id}"


def mailbox(run_id: str, token: str, site: str) -> str:
    """The subject of a mailbox; "*" stands for every token, or every site.

    Args:
        run_id: of the run.
        token: of `wire.Slot`: m17, n3, a3-berlin.
        site: the mailbox's owner.
    """
    return f"sv.{run_id}.{token}.{site}"


def push(run_id: str, token: str, site: str) -> str:
    """The subject on which the server sends stored messages to listeners."""
    return f"svp.{run_id}.{token}.{site}"


def reading(run_id: str, token: str, site: str) -> str:
    """The subject of requests for a mailbox's content."""
    return f"$JS.API.DIRECT.GET.{stream_name(run_id)}.{mailbox(run_id, token, site)}"


def inbox(site: str) -> str:
    """The prefix of the subjects on which a site awaits answers."""
    return f"_INBOX_{site}"


def describe_subject(subject: str) -> str:
    """A subject in words, for people."""
    match subject.split("."):
        case ["sv", _, token, site] | ["$JS", "API", "DIRECT", "GET", _, "sv", _, token, site]:
            return f"the mailbox {token} of site={site!r}"
        case ["svp", _, _, site]:
            return f"the pushes of site={site!r}"
        case ["$JS", "API", "STREAM", verb, _]:
            return f"the run's mailboxes ({verb.lower()})"
    return "something else than a mailbox"


@final
@dataclass(frozen=True)
class Permissions:
    """All permissions that a site needs in a run, as subjects with wildcards."""

    # To publish; the server answers on the inbox. Between accounts these are services.
    put: tuple[str, ...]
    read: tuple[str, ...]
    # To subscribe. Between accounts these are streams.
    pushes: tuple[str, ...]
    # To subscribe, always within the site's own account.
    inbox: str


def permissions(run_id: str, site: str, neighbours: Iterable[str]) -> Permissions:
    """Exactly the permissions that one site needs in a run."""
    check_run_id(run_id)
    others = tuple(neighbours)
    for name in (site, *others):
        check_site_name(name)
    return Permissions(
        put=(mailbox(run_id, "*", site),),
        read=tuple(reading(run_id, "*", name) for name in (site, *others)),
        pushes=tuple(push(run_id, "*", name) for name in others),
        inbox=f"{inbox(site)}.>",
    )
