"""What a site may tell its watchers of a round: digests of messages, and the size of what was opened.

Everything here is made of messages as they were sent, with their noise, or of sums of them that everyone opens. So it
costs no privacy, whoever reads the log. Sums over this site's rows alone are never looked at.
"""

import math
from collections.abc import Sequence

from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.events import Taken
from sottovoce.federation.site.part import Standing


def taken(agreement: Agreement, senders: Sequence[str], after: Standing, given_up: int = 0) -> Taken:
    """Of a round in which `senders`, the site itself among them, were heard, and after which it stands there.

    Args:
        agreement: of the run.
        senders: whose messages were heard.
        after: where the site stands.
        given_up: how many sums were, until then.
    """
    testimony, size = after.witness.testimony, after.size(len(senders))
    heard = {name: testimony[agreement.index(name)].digest.hex() for name in senders}
    finite = size is not None and math.isfinite(size)
    way = agreement.algorithm.way.label
    return Taken(way, after.witness.chain.hex(), heard, size if finite else None, given_up)
