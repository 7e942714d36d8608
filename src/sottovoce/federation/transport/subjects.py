"""What things are called on the message server, and what a site must be allowed to do there.

    stream     SV_<run>                    in files; one message per subject, the first one; nothing can be deleted
    mailbox    sv.<run>.<token>.<site>     put: publish, and wait for the server's word that it is stored
    push       svp.<run>.<token>.<site>    what was stored is sent on to whoever listens
    read       $JS.API.DIRECT.GET.SV_<run>.sv.<run>.<token>.<site>

The token is that of `wire.Slot`: m17 for round 17, s17 if it is masked, n3 for the third notice, a3-berlin for the
answer to Berlin's.

A site publishes to its own mailboxes, reads its neighbours' and its own, and hears its neighbours' pushes. It
creates no consumers: whoever may do that can make the server write to any subject.

On a server where all sites share one account a hole remains. The server sends its answers to whatever subject a
question names, without asking whether the one who asks may write there. So a member can make the server fill
somebody else's mailbox. Those bytes are refused, since the mailbox's owner did not sign them, but the run stops.
With one account per site, which imports just the subjects of `permissions`, answers stay within the account of the
one who asked.
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
        site: whose mailbox.
    """
    return f"sv.{run_id}.{token}.{site}"


def push(run_id: str, token: str, site: str) -> str:
    """The subject on which the server sends on what it stored."""
    return f"svp.{run_id}.{token}.{site}"


def reading(run_id: str, token: str, site: str) -> str:
    """The subject on which to ask for what is stored in a mailbox."""
    return f"$JS.API.DIRECT.GET.{stream_name(run_id)}.{mailbox(run_id, token, site)}"


def inbox(site: str) -> str:
    """The subject below which a site awaits answers."""
    return f"_INBOX_{site}"


def describe_subject(subject: str) -> str:
    """What a subject is, for people: nobody needs to know its name."""
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
    """All that a site needs in a run, as subjects with wildcards."""

    # Publish only; the server answers on the inbox. Between accounts these are services.
    put: tuple[str, ...]
    read: tuple[str, ...]
    # Subscribe only. Between accounts these are streams.
    pushes: tuple[str, ...]
    # Subscribe only, and always within the site's own account.
    inbox: str


def permissions(run_id: str, site: str, neighbours: Iterable[str]) -> Permissions:
    """All that one site needs in a run, and not a subject more."""
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
