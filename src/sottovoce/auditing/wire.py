"""The audit of real sites' noise, from the messages of a test federation whose rows are known.

    noise of a site's own   one step a round, on all rows: every message is solved for its normals (`replay`)
    masked sums             what all sites have said adds up to the exact sum over known rows and to the noise of the
                            sum. How sites share it cannot be seen: single messages are masked

If there is the noise that there must be, all of these numbers are standard normal, and their sum of squares is
chi-squared. A part of the noise that is missing shows as a part of the claim: epsilon at as much noise as there can be
at most.

A journal keeps its last few messages, so the federation has at most as many rounds.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple, cast, final
from urllib.parse import quote

import numpy as np
from scipy.special import chdtr, chdtri

from sottovoce.algorithms.base import Algorithm
from sottovoce.arrays import Floats
from sottovoce.auditing.audit import ALARM, ROUNDING
from sottovoce.auditing.bounds import less_noise
from sottovoce.auditing.replay import Ahead, one_step_a_round, replayed
from sottovoce.errors import InputError, UnsupportedError, expect
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.federation.site.formats import ModelFormat, format_of
from sottovoce.federation.site.journal import KEPT
from sottovoce.federation.site.letters import read_sum
from sottovoce.federation.site.masks import Turn
from sottovoce.federation.site.own_noise import FromNeighbours
from sottovoce.federation.site.summing import Summing
from sottovoce.federation.transport.wire import DIGEST_BYTES, Envelope, Slot, unseal
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import epsilon
from sottovoce.problem.sites import Sites
from sottovoce.settings import written_as

ASSUMPTION = "noise is normal, and sensitivities are what they are said to be"


@final
class WireAudit(NamedTuple):
    """The result of an audit of the noise in real sites' messages."""

    claimed: float  # what was asked for
    stated: float  # what the noise that was agreed on costs
    delta: float
    lower: float  # epsilon at the most noise that there can be, with this confidence
    size: float  # the noise's standard deviation, over what is claimed
    numbers: int  # of noise, that it is estimated from
    p: float  # how likely so little noise is, if the claim holds
    alarm: bool
    confidence: float
    sites: tuple[str, ...]

    def prose(self) -> str:
        """The audit as one paragraph."""
        end = "THERE IS TOO LITTLE NOISE." if self.alarm else "That is no less than claimed, up to chance."
        if self.stated > self.claimed * (1 + ROUNDING):
            end = f"The noise that was agreed on costs epsilon = {self.stated:.4g}. {end}"
        return (
            f"Claimed: epsilon = {self.claimed:.4g} at delta = {self.delta:g}. The messages of {len(self.sites)} sites "
            f"hold {self.size:.4f} times the noise that this needs, estimated from {self.numbers} numbers: epsilon is "
            f"at least {self.lower:.3g} with {100 * self.confidence:g} % confidence, if {ASSUMPTION}. {end}"
        )


written_as(WireAudit, lambda audit: {**audit._asdict(), "ratio": audit.lower / audit.claimed, "assumption": ASSUMPTION})


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
    z = np.concatenate([*noise_of(agreement, rows, sent).values()])
    squares, count = float(z @ z), len(z)
    size = sqrt(squares / count)
    most = sqrt(squares / float(chdtri(count, confidence)))  # chdtri: the quantile, by the tail above it
    algorithm = agreement.algorithm
    site = agreement.oracle_for(names[0], rows[names[0]])
    stated = algorithm.statement(site)
    p = float(chdtr(count, squares))
    return WireAudit(
        claimed=stated.target_epsilon,
        stated=stated.epsilon,
        delta=stated.delta,
        lower=epsilon(less_noise(stated.event, most), stated.delta),
        size=size,
        numbers=count,
        p=p,
        alarm=p < ALARM or stated.epsilon > stated.target_epsilon * (1 + ROUNDING),
        confidence=confidence,
        sites=names,
    )


def check_auditable(agreement: Agreement) -> None:
    """Refuse, before a file is opened, an agreement whose messages cannot be solved for their noise."""
    a = agreement.algorithm
    if isinstance(a, Algorithm) and not one_step_a_round(a):
        raise UnsupportedError(
            f"Expected one noisy step a round on all rows, got {type(a).__name__}(local_steps="
            f"{getattr(a, 'local_steps', 1)}, batch_size={getattr(a, 'batch_size', None)}): the noise in a message "
            "then is not one vector. Agree on local_steps=1 in a test federation."
        )
    kept = f"at most {KEPT} messages of a site in a test federation, which is what a journal keeps"
    expect(a.messages <= KEPT, kept, messages=a.messages)


def sent_messages(agreement: Agreement, name: str, journal: Path) -> list[bytes]:
    """Payloads that a site has sent, round by round. Refuses missing rounds and wrong signatures."""
    found: dict[int, bytes] = {}
    try:
        connection = sqlite3.connect(f"file:{quote(str(journal))}?mode=ro", uri=True)
        try:
            found = dict(connection.execute("SELECT round, message FROM outbox"))
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise InputError(f"Expected a site's journal, got {str(journal)!r}: {error}. Name its folder.") from error
    rounds = range(1, agreement.algorithm.messages + 1)
    expect(set(rounds) <= set(found), f"messages of rounds 1 to {rounds[-1]} in {journal}", rounds=sorted(found))
    digest, format_, key = agreement.digest(), format_of(agreement), agreement.member(name).public_key
    return [
        unseal(found[k], Envelope(agreement.run, digest, Slot(k, name, format_.kind), format_.payload(k)), key)
        for k in rounds
    ]


def noise_of(agreement: Agreement, rows: Mapping[str, Sites], sent: Mapping[str, Sequence[bytes]]) -> dict[str, Floats]:
    """The standard normals in what was sent, by site; of masked sums, those of all sites together, as "all"."""
    algorithm = agreement.algorithm
    if not isinstance(algorithm, Algorithm):
        return {"all": _noise_of_sums(agreement, rows, sent)}
    read = ModelFormat(agreement).read
    said = {
        name: [read(payload, k).vector for k, payload in enumerate(payloads, start=1)]
        for name, payloads in sent.items()
    }
    opening, openings, ahead = algorithm.opening(agreement.features), dict[str, Floats](), None
    if opening is not None:
        openings, said = {name: each[0] for name, each in said.items()}, {name: each[1:] for name, each in said.items()}
        total = np.sum([openings[name] for name in agreement.names], axis=0)[:, None]
        ahead = Ahead.of(algorithm, opening, total, agreement.public_network)
    found = {name: _noise_of_site(agreement, algorithm, name, rows[name], said, ahead) for name in agreement.names}
    for name, told in openings.items():
        assert opening is not None
        assert ahead is not None
        exact = opening.question.of(agreement.oracle_for(name, rows[name]), agreement.rows)[:, 0]
        found[name] = np.concatenate(((told - exact) / ahead.std, found[name]))
    return found


def _noise_of_site(
    agreement: Agreement, algorithm: Algorithm[Any], name: str, rows: Sites, said: Mapping[str, Sequence[Floats]],
    ahead: Ahead | None,
) -> Floats:  # fmt: skip
    """The standard normals in a site's models, (rounds d,); refuses messages that a radius has cut off."""

    def heard(k: int) -> FromNeighbours:
        total = np.sum([said[other][k - 1] for other in agreement.neighbours(name)], axis=0)
        return FromNeighbours(total.reshape(1, -1, 1))

    site, own = cast(Oracle, agreement.oracle_for(name, rows)), [vector.reshape(1, -1, 1) for vector in said[name]]
    site = site if ahead is None else ahead.oracle(site)
    z = [one.z.ravel() for one in replayed(algorithm, site, own, heard, ahead)]
    expect(len(z) == len(own), "messages that no radius cuts off: agree on a larger one", site=name, solved=len(z))
    return np.concatenate(z)


def _noise_of_sums(agreement: Agreement, rows: Mapping[str, Sites], sent: Mapping[str, Sequence[bytes]]) -> Floats:
    """Opened sums less the exact ones, over the standard deviation that was agreed on: (numbers of all sums,)."""
    names, n = agreement.names, len(agreement.sites)
    sites = {name: agreement.oracle_for(name, rows[name]) for name in names}
    public = sites[names[0]]
    summing = Summing(agreement, public)
    session, found, unknown = summing.begin(), list[Floats](), bytes(DIGEST_BYTES)
    for k, sigma in enumerate(summing.analysis.multipliers(n), start=1):
        read = {name: read_sum(sent[name][k - 1], k, n) for name in names}
        attempts = max(one.heading.attempt for one in read.values())
        expect(attempts == 0, "sums that were made once: nobody was lost", release=k, attempts=attempts)
        words = {name: one.words for name, one in read.items()}
        assert session.ask is not None  # as many questions as sums
        question = session.ask.question
        # As this machine computes it; its digests play no part in a sum.
        context = summing.context(Turn(k, 0), summing.propose(k, question, names), names, unknown, unknown)
        opened = summing.open(context, question, words)
        exact = np.sum([question.of(site, opened.rows) for site in sites.values()], axis=0)
        needed = sigma * question.sensitivity(public, opened.rows) * sqrt(n / summing.analysis.honest(n))
        found.append(((opened.value - exact) / needed)[:, 0])
        session.tell(opened)
    return np.concatenate(found)
