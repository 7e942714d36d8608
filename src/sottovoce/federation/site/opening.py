"""The operator's part: the mailboxes of an agreed run, made on the message server before anyone starts.

Sizes follow from the agreement: how long a message is, and how many there can ever be. So no member can fill the disk,
and no run the room of another.
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
    """What a run needs on the server."""

    messages: int  # that can ever be put
    size: int  # of the largest, in bytes
    total: int  # bytes of all of them, as the server counts them


def room_for(agreement: Agreement) -> Room:
    """What the agreed run needs. Most of the small messages are never put: they are for sites that restart often."""
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
    """Make the mailboxes. Doing it again changes nothing; mailboxes that are set up otherwise are refused.

    Args:
        agreement: of the run.
        server: its address.
        operator: the files of the one certificate that may do this.
        replicas: how many servers of a cluster keep a copy.
        timeout: in seconds.
        told: is called while the server does not answer.
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
