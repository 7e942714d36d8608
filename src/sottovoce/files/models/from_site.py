"""The model that one site of a federation ends with, and the privacy statement of a run.

A site knows its own messages and its neighbours'. Its model is the mean of the last ones: post-processing of what was
released anyway. On a complete graph that is the consensus of all sites, the same everywhere. Where sums are masked, it
is what every site computes from them.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import nextafter
from textwrap import fill
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.federation.agreement.agreement import Agreement
from sottovoce.files.models.apply import weights_digest
from sottovoce.files.models.coefficients import table_of
from sottovoce.files.models.model import Model
from sottovoce.files.schema import review
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.observers import on_a_grid
from sottovoce.problem.answers import Answers
from sottovoce.settings import plain
from sottovoce.sums.inference import Evidence
from sottovoce.tally.evaluation import PrivateEvaluation, Tallied


class Stop(NamedTuple):
    """The round at which a run stopped before its end, and the reason."""

    done: int  # rounds, of masked sums those that were read
    why: str  # the words of the exit code


def statement_of(agreement: Agreement, site: str) -> PrivacyStatement:
    """The privacy statement of the whole run for the rows of a site, with its discrete noise counted in delta."""
    promised = agreement.algorithm.statement(agreement.public_oracle(site))
    delta = nextafter(promised.delta + agreement.grid_delta, 1.0)
    table = tuple(
        on_a_grid(line, promised.event, delta, partial(agreement.grid_delta_against, line.colluding))
        for line in promised.observers
    )
    remarks = () if agreement.encoding is None else agreement.algorithm.remarks(agreement.encoding)
    return replace(promised, delta=delta, observers=table, notes=(*promised.notes, *_notes(agreement), *remarks))


def _notes(agreement: Agreement) -> tuple[str, ...]:
    # Whom a bad server needs, to make a site that was set back say a round in two ways.
    alone = agreement.lost_neighbour.policy == "go-on"
    partners = "" if alone else " to the site together with one of its neighbours"
    return (
        "The noise was made exactly, as discrete Gaussian numbers on a grid; there is no gap between ideal and "
        f"floating-point noise. That it is discrete is counted in delta, with {agreement.grid_delta:.3g}.",
        "It is a function of a secret key of this site and of what it was added to, so that a site that is restored "
        "from a copy sends the same again. The guarantee therefore is computational: it holds against whoever cannot "
        "tell ChaCha20 and HMAC-SHA256 from random bits, and has not got the key, which was deleted when the "
        "run was over. A backup of the state folder that was made during the run still holds it.",
        "If the state folder was copied or put back during the run, and the message server lied"
        f"{partners}, a round may have been released a second time, and not counted.",
        *_on_people(agreement),
        *(() if agreement.encoding is None else review.site_notes(agreement.encoding)),
    )


def _on_people(agreement: Agreement) -> tuple[str, ...]:
    """Notes on people: what dropping a surplus leaves uncovered, and that no site can check the others' rows."""
    schema, sites = agreement.encoding, agreement.unit.sites
    dropped = () if schema is None or schema.person is None else schema.person.notes
    if not agreement.unit.people or sites >= len(agreement.sites):
        return dropped
    return (
        *dropped,
        f"That nobody has rows at more than {sites} of the {len(agreement.sites)} sites is what the sites assured each "
        "other; none of them could check it.",
    )


def statement_text(
    agreement: Agreement, site: str, absent: Mapping[str, int], stop: Stop | None = None,
    digests: Mapping[str, str] = MappingProxyType({}),
) -> str:  # fmt: skip
    """The text of a site's privacy statement, with run, agreement and neighbours. The site signs it as it stands.

    Args:
        agreement: of the run.
        site: whose statement it is.
        absent: those that the run went on without, each with the first round without it.
        stop: where the run has stopped, and why; None at its end.
        digests: SHA-256 in hexadecimal, by name, of files that are signed with it.
    """
    gone = ", ".join(f"{name} (since round {k})" for name, k in sorted(absent.items())) or "none"
    about = {
        "Federation": agreement.name or "(no name)",
        "Run": agreement.run,
        "Agreement": agreement.digest().hex(),
        "Site": site,
        "Neighbours": ", ".join(agreement.neighbours(site)),
        "Absent": gone,
    }
    if stop is not None:
        rounds = agreement.algorithm.way.exchanges
        about["Stopped"] = (
            f"after {stop.done} of {agreement.algorithm.messages} {rounds}. The promise is that of the whole run"
        )
        about["Why"] = stop.why
    lines = [f"{name + ':':<12}{text}" for name, text in about.items()]
    lines += [f"{'File:':<12}{name} sha256:{digest}" for name, digest in digests.items()]
    return "\n".join([*lines, "", fill(statement_of(agreement, site).prose(), 100), ""])


def stopped_after(text: str) -> int | None:
    """After how many rounds or sums the run of a statement has stopped; None if it reached its end."""
    found = re.search(r"^Stopped: +after (\d+) of", text, re.MULTILINE)
    return None if found is None else int(found[1])


def digests_in(text: str) -> dict[str, str]:
    """The files that are signed with a statement, by name, with their SHA-256 in hexadecimal."""
    return dict(re.findall(r"^File: +(\S+) sha256:([0-9a-f]{64})$", text, re.MULTILINE))


def names_of(agreement: Agreement) -> tuple[str, ...]:
    """The names of the features that sites agreed on."""
    schema = agreement.encoding
    return tuple(f"x{i}" for i in range(agreement.features)) if schema is None else schema.feature_names


def model_of(
    agreement: Agreement, site: str, weights: Floats, absent: Mapping[str, int], stop: Stop | None = None,
    evidence: Evidence | None = None,
) -> Model:  # fmt: skip
    """The model that a site saves.

    Args:
        agreement: of the run.
        site: whose model it is.
        weights: flat, that its run ended with.
        absent: those that the run went on without, each with the first round without it.
        stop: where the run has stopped, and why; None at its end.
        evidence: what coefficients are inferred from; None if that was not agreed on, or not reached.
    """
    schema, loss = agreement.encoding, agreement.learning.loss
    answers = Answers.of(schema, loss.outputs)
    names = names_of(agreement)
    own, offset = answers.model(np.asarray(weights, dtype=np.float64).reshape(agreement.features, loss.outputs))
    return Model(
        weights=own,
        offset=offset,
        loss=answers.loss_of(loss),
        names=names,
        classes=answers.classes_of(loss),
        privacy=statement_of(agreement, site),
        schema=schema,
        provenance=_provenance(agreement, site, absent)
        | ({} if stop is None else {"stopped_after": stop.done, "stopped_why": stop.why}),
        inference=None if evidence is None else table_of(agreement.learning, evidence, schema, names, answers),
    )


def evaluation_of(agreement: Agreement, model: Model, tallied: Tallied) -> PrivateEvaluation:
    """Evaluation of a finished run's model. It is the same at all sites, bit by bit; the run's guarantee covers it."""
    one = statement_of(agreement, agreement.names[0])  # every site is promised the same where sums are masked
    return tallied.kept(model.classes, one, model=weights_digest(model))


def _provenance(agreement: Agreement, site: str, absent: Mapping[str, int]) -> dict[str, Any]:
    from sottovoce import __version__

    one_model = agreement.algorithm.way.one_model
    origin = (
        "computed from the sums over all sites, the same at each"
        if one_model
        else "mean of this site's last message and those of its neighbours"
    )
    return {
        "sottovoce": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "federation": agreement.name,
        "run": agreement.run,
        "agreement": agreement.digest().hex(),
        "site": site,
        "weights": origin,
        "neighbours": [name for name in agreement.neighbours(site) if name not in absent],
        "absent": dict(absent),
        "rounds": agreement.algorithm.rounds,
        "settings": plain(agreement.algorithm),
        "rows": {member.name: member.rows for member in agreement.sites},
    }
