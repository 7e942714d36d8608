"""The end of a run of masked sums: a site is done once enough sites have confirmed that they hold the last sum.

After the last sum each site sends one more message, without words. It says that the site has completed that sum and
written it down, and gives a digest of all that it has heard. A site finishes only when u sites in all, itself among
them, have said the same.

Formal guarantees: if at most c sites are bad, all honest sites that finish do so with the same model, whomever they
followed in `lost`. One that finishes has u sites that hold the same last sum after the same words. Two sets of u sites
share more than c, as 2 u > n + c, so they share an honest site. That one keeps its sum, which was on its disk before it
said so.
"""

import asyncio
from typing import TYPE_CHECKING, cast

import numpy as np

from sottovoce.errors import SottovoceError
from sottovoce.federation.site.absent import Policy, Silence
from sottovoce.federation.site.board import Board
from sottovoce.federation.site.events import Waiting
from sottovoce.federation.site.letters import Heading, SumWords
from sottovoce.federation.site.lost import refuse_left_behind
from sottovoce.federation.site.mail import Letter, Mail
from sottovoce.federation.site.masks import members_digest
from sottovoce.federation.site.part import Hearing
from sottovoce.federation.site.stops import ForkedError, LostNeighbourError
from sottovoce.federation.site.witness import Witness, left_behind
from sottovoce.federation.transport.wire import DIGEST_BYTES, BadMessageError, Slot

if TYPE_CHECKING:
    from sottovoce.federation.site.seat import Seat


def end_of_run(seat: "Seat", witness: Witness) -> SumWords:
    """The message after the last sum. It says that the site holds this sum, after exactly these words of all sites, and
    will not repeat it. It is computed from no row.
    """
    t = seat.journal.round + 1
    members, notices = members_digest(seat.members(t)), seat.notices(t)
    heading = Heading(*seat.turn(t), members, notices, witness.chain, bytes(DIGEST_BYTES))
    return SumWords(np.zeros(0, dtype=np.uint64), heading, seat.binding, witness.testimony)


async def confirm(
    seat: "Seat", witness: Witness, mail: Mail, board: Board, policy: Policy, hear: Hearing[Letter]
) -> None:
    """Say that this site holds the run's last sum, and wait until u sites, itself among them, have said the same.

    Args:
        seat: the site, which has taken in the last sum.
        witness: all that it has heard until then.
        mail: sends its message.
        board: the notices of other sites.
        policy: how long silent sites are waited for.
        hear: asks these sites once how the last sum ended for them.

    Raises:
        LeftBehindError: the others have repeated the sum without this site.
        ForkedError: some sites hold another sum, and too few hold this one.
        LostNeighbourError: too few sites have answered.
    """
    t, clock, ours = seat.journal.round, asyncio.get_running_loop().time, end_of_run(seat, witness)
    least = seat.agreement.analysis.members(len(seat.agreement.sites))
    # On the disk before it is said: a process that had forgotten it could vote to repeat the sum.
    seat.journal.settle()
    place = mail.slot(t + 1, seat.site)
    await mail.deliver(place, mail.seal(place, ours.to_bytes()))
    ends = {seat.site: ours.heading}
    silences = {name: Silence() for name in seat.members(t) if name != seat.site}
    while (same := sum(end == ours.heading for end in ends.values())) < least:
        refuse_left_behind(seat, board, t)
        began = clock()
        answers = await hear(silences)
        for name, answer in answers.items():
            if answer.content is None:
                silences[name].add(clock() - began, answer)
            else:
                ends[name] = cast(SumWords, answer.content.words).heading
                del silences[name]
        if silences:
            mail.watcher.tell(Waiting(t, {name: silence.total for name, silence in silences.items()}))
        late = await policy.late(t, silences, silences.keys()) if silences else []
        same = sum(end == ours.heading for end in ends.values())
        if same + len(silences) - len(late) < least:
            raise _not_confirmed(seat, {n for n, end in ends.items() if end != ours.heading}, set(late), same, least)


def open_end(seat: "Seat", mail: Mail, slot: Slot, data: bytes) -> Letter:
    """A site's message after the last sum, or `BadMessageError`; stops if that site goes on without this one."""
    try:
        return mail.open_letter(slot, data)
    except BadMessageError:
        # Words for a repeated sum are longer.
        words = mail.open_letter(slot, data, seat.turn(slot.number).release - 1).words
        if words.testimony[seat.agreement.index(seat.site)].left:
            raise left_behind(seat.site, slot.site, slot.number - 1) from None
        raise


def _not_confirmed(seat: "Seat", parted: set[str], late: set[str], same: int, least: int) -> SottovoceError:
    """The error of a site that holds the last sum and cannot finish: some hold another, or too few have answered."""
    expected = (
        f"Expected at least {least} sites to confirm that they have the same last sum, in round={seat.journal.round}"
    )
    if parted:
        return ForkedError(
            f"{expected}, got {same}, and {', '.join(sorted(parted))} reported one of another transcript. They or this "
            "site received something else, or one of them or of their senders does not keep to the "
            "agreement. Do not use this run's model; ask them."
        )
    return LostNeighbourError(
        f"{expected}, got {same}, and nothing from {', '.join(sorted(late))}. Without that, they may have made "
        f"the sum again without site={seat.site!r}, and end with another model. When they are back, or the server "
        "shows what they sent, run the same command again."
    )
