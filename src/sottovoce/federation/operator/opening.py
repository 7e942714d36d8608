"""The operator's part: making the mailboxes of an agreed run on the message server, before any site starts.

The size and the number of messages follow from the agreement, and are limits on the server. So no member can fill the
disk, and no run can use the space of another.
"""

from typing import NamedTuple, final

from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.agreement.certificates import TLSFiles
from sottovoce.federation.agreement.identity import OPERATOR
from sottovoce.federation.site.board import most_answers, most_notices
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.mail import largest_message, largest_notice
from sottovoce.federation.transport.jetstream import Told, create_stream, stored_size, tell_nobody
from sottovoce.federation.transport.subjects import inbox
from sottovoce.federation.transport.wire import MOST_NUMBER, Kind, Slot


@final
class Room(NamedTuple):
    """The space that a run needs on the server."""

    messages: int  # largest number of messages
    size: int  # bytes of the largest message
    total: int  # bytes of all messages, as the server counts them


def room_for(agreement: Agreement) -> Room:
    """The space that the agreed run needs at most. Few of the small messages are put, unless sites restart often."""
    a, sites = agreement, len(agreement.sites)
    models, small = sites * format_of(a).messages, sites * most_notices(a) + most_answers(a)
    size, longest = max(largest_message(a), largest_notice(a)), max(a.names, key=len)
    # The longest address that there can be: of an answer, with the largest number.
    place = Slot(MOST_NUMBER, longest, Kind.ANSWER, longest)
    of_model, of_notice = (stored_size(a.run, place, each) for each in (size, largest_notice(a)))
    return Room(models + small, size, models * of_model + small * of_notice)


async def open_run(
    agreement: Agreement,
    server: str,
    operator: TLSFiles,
    *,
    replicas: int = 1,
    timeout: float = 30.0,
    told: Told = tell_nobody,
) -> Room:
    """Make the mailboxes. Repeating this changes nothing; mailboxes with other settings are refused.

    Args:
        agreement: of the run.
        server: its address.
        operator: the files of the operator's certificate; no other may do this.
        replicas: number of servers of a cluster that keep a copy.
        timeout: in seconds.
        told: called while the server does not answer.
    """
    room = room_for(agreement)
    await create_stream(
        server,
        agreement.run,
        room.size,
        max_messages=room.messages,
        max_bytes=room.total,
        replicas=replicas,
        tls=operator.context(),
        inbox_prefix=inbox(OPERATOR),
        timeout=timeout,
        told=told,
    )
    return room
