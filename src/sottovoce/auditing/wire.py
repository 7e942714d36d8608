"""The noise of real sites, read off the messages that they have sent, in a test federation whose rows are known.

One step a round, on all rows: then a message is a known function of what was sent before, of the rows, and of one
normal vector, in which it is linear. So the vector can be solved for, message by message:

    z = (message - message without noise) / (message with z = 1 - message without noise)

If the site adds the noise that it must, all of these are standard normal, and their sum of squares is chi-squared. A
part of the noise that is missing shows as a part of the claim: epsilon at as much noise as there can be at most.

A journal keeps its last few messages, so the federation has at most as many rounds.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple, final
from urllib.parse import quote

import numpy as np
from scipy.special import chdtr, chdtri

from sottovoce.arrays import Array, Floats
from sottovoce.auditing.bounds import less_noise
from sottovoce.errors import InputError, UnsupportedError, expect
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.journal import KEPT
from sottovoce.federation.site.letters import read_words, words_size
from sottovoce.federation.site.runner import FromNeighbours
from sottovoce.federation.transport.wire import Envelope, Slot, unseal
from sottovoce.noise.sources import GivenNoise, SeededNoise, Shape
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import epsilon
from sottovoce.problem.sites import Sites

ASSUMPTION = "noise is normal, and sensitivities are what they are said to be"
ALARM = 1e-6  # how rarely right noise may be called too little


@final
class WireAudit(NamedTuple):
    """What messages show of the noise in them."""

    claimed: float
    delta: float
    lower: float  # epsilon at the most noise that there can be, with this confidence
    size: float  # the noise's standard deviation, over what is claimed
    numbers: int  # that it was read off
    p: float  # how likely so little noise is, if the claim holds
    alarm: bool
    confidence: float
    sites: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return self._asdict() | {"ratio": self.lower / self.claimed, "assumption": ASSUMPTION}

    def prose(self) -> str:
        """The same in words."""
        end = "THERE IS TOO LITTLE NOISE." if self.alarm else "That is no less than claimed, up to chance."
        return (
            f"Claimed: epsilon = {self.claimed:.4g} at delta = {self.delta:g}. The messages of {len(self.sites)} sites "
            f"hold {self.size:.4f} times the noise that this needs, read off {self.numbers} numbers: epsilon is at "
            f"least {self.lower:.3g} with {100 * self.confidence:g} % confidence, if {ASSUMPTION}. {end}"
        )


def audit_wire(
    agreement: Agreement, rows: Mapping[str, Sites], journals: Mapping[str, Path], confidence: float = 0.95
) -> WireAudit:
    """Audit the noise of a federation that has ended, from what all its sites have sent.

    Args:
        agreement: what they agreed on.
        rows: of every site, by its name: they are made up, or this would not be a test.
        journals: of every site, by its name.
        confidence: of the bound.
    """
    check_auditable(agreement)
    names = agreement.names
    for what, given in (("rows", rows), ("journals", journals)):
        expect(set(given) == set(names), f"{what} of every site: {', '.join(names)}", **{what: sorted(given)})
    sent = {name: sent_messages(agreement, name, journals[name]) for name in names}
    z = np.concatenate([_noise_of(agreement, name, rows[name], sent) for name in names])
    squares, count = float(z @ z), len(z)
    size = sqrt(squares / count)
    most = sqrt(squares / float(chdtri(count, confidence)))  # chdtri: the quantile, by the tail above it
    algorithm = agreement.algorithm
    site = agreement.oracle_for(names[0], rows[names[0]])
    stated = algorithm.statement(site)
    p = float(chdtr(count, squares))
    return WireAudit(
        claimed=stated.epsilon,
        delta=stated.delta,
        lower=epsilon(less_noise(stated.event, most), stated.delta),
        size=size,
        numbers=count,
        p=p,
        alarm=p < ALARM,
        confidence=confidence,
        sites=names,
    )


def check_auditable(agreement: Agreement) -> None:
    """Refuse what a message cannot be solved for, before a file is opened."""
    a = agreement.algorithm
    if getattr(a, "local_steps", 1) != 1 or getattr(a, "batch_size", None) is not None or a.draws_per_round != 1:
        raise UnsupportedError(
            f"Expected one noisy step a round on all rows, got {type(a).__name__}(local_steps="
            f"{getattr(a, 'local_steps', 1)}, batch_size={getattr(a, 'batch_size', None)}): the noise in a message "
            "then is not one vector. Agree on local_steps=1 in a test federation."
        )
    expect(
        a.rounds <= KEPT, f"at most {KEPT} rounds in a test federation, which is what a journal keeps", rounds=a.rounds
    )


def sent_messages(agreement: Agreement, name: str, journal: Path) -> list[Floats]:
    """The vectors that a site has sent, round by round. Every signature is checked."""
    found: dict[int, bytes] = {}
    try:
        connection = sqlite3.connect(f"file:{quote(str(journal))}?mode=ro", uri=True)
        try:
            found = dict(connection.execute("SELECT round, message FROM outbox"))
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise InputError(f"Expected a site's journal, got {str(journal)!r}: {error}. Name its folder.") from error
    rounds = range(1, agreement.algorithm.rounds + 1)
    expect(set(rounds) <= set(found), f"messages of rounds 1 to {rounds[-1]} in {journal}", rounds=sorted(found))
    return [_vector(agreement, name, k, found[k]) for k in rounds]


def _vector(agreement: Agreement, name: str, k: int, message: bytes) -> Floats:
    size = words_size(len(agreement.sites), agreement.model_size)
    place = Envelope(agreement.run, agreement.digest(), Slot(k, name), size)
    payload = unseal(message, place, agreement.member(name).public_key)
    return read_words(payload, k, len(agreement.sites), agreement.reach).vector


def _noise_of(agreement: Agreement, name: str, rows: Sites, sent: Mapping[str, Sequence[Floats]]) -> Floats:
    """All normals that a site has drawn, solved for: (rounds d,)."""
    a, site = agreement.algorithm, agreement.oracle_for(name, rows)
    state, found = a.start(site, 1), []
    for k, own in enumerate(sent[name], start=1):
        message = own.reshape(1, -1, 1)
        without, unit = (a.release(k, state, site, _given(site, value))[0] for value in (0.0, 1.0))
        z = (message - without) / (unit - without)
        found.append(z.ravel())
        _, state = a.release(k, state, site, _given(site, z))
        heard = np.sum([sent[other][k - 1] for other in agreement.neighbours(name)], axis=0)
        state = a.absorb(k, state, site, FromNeighbours(heard.reshape(1, -1, 1)))
    return np.concatenate(found)


def _given(site: Oracle, z: Array | float) -> GivenNoise:
    """Noise that is handed in for one round of one site."""
    values = np.broadcast_to(np.asarray(z, dtype=np.float64).reshape(1, 1, 1, -1), (1, 1, 1, site.d))
    return GivenNoise(lambda _: values, SeededNoise(0, Shape(1, site.d, 1)))
