"""The operator's part: the mailboxes of an agreed run, made on the message server before anyone starts.

Sizes follow from the agreement: how long a message is, and how many there can ever be. So no member can fill the disk.
"""

from typing import NamedTuple, final

from sottovoce.engines.network.agreement import Agreement
from sottovoce.engines.network.certificates import TLSFiles
from sottovoce.engines.network.identity import OPERATOR
from sottovoce.engines.network.jetstream import Told, create_stream, tell_nobody
from sottovoce.engines.network.mail import largest_message, largest_notice
from sottovoce.engines.network.notices import most_answers, most_notices
from sottovoce.engines.network.subjects import inbox


@final
class Room(NamedTuple):
    """What a run needs on the server."""

    messages: int  # that can ever be put
    size: int  # of the largest, in bytes
    total: int  # of all of them, in bytes


def room_for(agreement: Agreement) -> Room:
    """What the agreed run needs. Most of the small messages are never put: they are for sites that restart often."""
    a, sites = agreement, len(agreement.sites)
    # One model a round and site; and notices with their answers.
    models, small = sites * a.algorithm.rounds, sites * most_notices(a) + most_answers(a)
    size = max(largest_message(a), largest_notice(a))
    return Room(models + small, size, models * size + small * largest_notice(a))


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
        replicas=replicas,
        tls=operator.context(),
        inbox_prefix=inbox(OPERATOR),
        timeout=timeout,
        told=told,
    )
    return room
