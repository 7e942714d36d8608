"""What a site reports of a finished round to its watchers: digests of messages, and the size of what was opened.

All of it is computed from messages as they were sent, with their noise, or from sums of them that all sites open. So it
costs no privacy, whoever reads the log. Sums over this site's rows alone are not used.
"""

import math
from collections.abc import Sequence

from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.events import Taken
from sottovoce.federation.site.part import Standing


def taken(agreement: Agreement, senders: Sequence[str], after: Standing, given_up: int = 0) -> Taken:
    """The report of a round.

    Args:
        agreement: of the run.
        senders: the sites whose messages were heard, this one among them.
        after: the state after the round.
        given_up: number of sums that were given up until then.
    """
    testimony, size = after.witness.testimony, after.size(len(senders))
    heard = {name: testimony[agreement.index(name)].digest.hex() for name in senders}
    finite = size is not None and math.isfinite(size)
    way = agreement.algorithm.way.label
    return Taken(way, after.witness.chain.hex(), heard, size if finite else None, given_up)
