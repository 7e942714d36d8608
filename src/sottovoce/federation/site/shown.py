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
from sottovoce.federation.site.journal import Snapshot
from sottovoce.federation.site.letters import norm_of


def taken(agreement: Agreement, k: int, senders: Sequence[str], after: Snapshot) -> Taken:
    """Of round k, in which `senders`, the site itself among them, were heard, and after which it stands there."""
    testimony, masked = after.witness.testimony, isinstance(agreement.algorithm, MaskedNewton)
    heard = {name: testimony[agreement.index(name)].digest.hex() for name in senders}
    size = _opened(k, after.state) if masked else norm_of((after.said + after.heard)[0, :, 0]) / len(senders)
    finite = size is not None and math.isfinite(size)
    return Taken(MASKED if masked else OWN_NOISE, after.witness.chain.hex(), heard, size if finite else None)


def _opened(k: int, state: State) -> float | None:
    """The norm of the noisy gradient of the mean loss, which a sum has opened; the first sum holds none, nor do
    those of an evaluation.
    """
    return norm_of(state.gradient[0, :, 0].astype(np.float64)) if k > 1 and not state.asked.any() else None
