"""What a site may tell its watchers of a round: digests of messages, and the size of what was opened.

Everything here is made of messages as they were sent, with their noise, or of sums of them that everyone opens. So it
costs no privacy, whoever reads the log. Sums over this site's rows alone are never looked at.
"""

import math
from collections.abc import Sequence

import numpy as np

from sottovoce.algorithms import MaskedNewton
from sottovoce.algorithms.masked import State
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.events import MASKED, OWN_NOISE, Taken
from sottovoce.federation.site.letters import norm_of
from sottovoce.federation.site.masks import masked_terms
from sottovoce.federation.site.snapshot import Snapshot

_GRADIENTS = ("gradient", "last gradient")  # kinds of releases


def taken(
    agreement: Agreement, opened: int | None, senders: Sequence[str], after: Snapshot, given_up: int = 0
) -> Taken:
    """Of a round in which `senders`, the site itself among them, were heard, and after which it stands there.

    Args:
        agreement: of the run.
        opened: which release was read in it; None if its sum was given up.
        senders: whose messages were heard.
        after: where the site stands.
        given_up: how many sums were, until then.
    """
    testimony, masked = after.witness.testimony, isinstance(agreement.algorithm, MaskedNewton)
    heard = {name: testimony[agreement.index(name)].digest.hex() for name in senders}
    size = (
        _opened(agreement, opened, after.state)
        if masked
        else norm_of((after.said + after.heard)[0, :, 0]) / len(senders)
    )
    finite = size is not None and math.isfinite(size)
    way = MASKED if masked else OWN_NOISE
    return Taken(way, after.witness.chain.hex(), heard, size if finite else None, given_up)


def _opened(agreement: Agreement, q: int | None, state: State) -> float | None:
    """The norm of the noisy gradient of the mean loss, if that is what a sum has opened."""
    gradient = q is not None and masked_terms(agreement).kind(q) in _GRADIENTS
    return norm_of(state.gradient[0, :, 0].astype(np.float64)) if gradient else None
