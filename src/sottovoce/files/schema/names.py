"""What the name of a column says, before a value is read: a role that is no feature, or bounds that hold for anyone."""

import re
from typing import Literal, TypeAlias

Role: TypeAlias = Literal["site", "person", "row", "name", "text", "weight"]
ROLES: dict[Role, str] = {
    "site": "by its name it says whose site a row is: train --site-column takes it",
    "person": "by its name it says whose row it is",
    "row": "by its name it identifies rows",
    "name": "by its name it identifies people",
    "text": "by its name it is free text",
    "weight": 'by its name it says how much a row counts: add [weight] with a public bound, and above = "clip"',
}
_JOINT = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")
_PEOPLE = {"patient", "person", "subject", "participant", "member", "customer", "client", "user", "employee", "student"}
_SITES = {"site", "hospital", "clinic", "centre", "center", "institution", "facility", "practice"}
_LABELS = {"id", "no", "nr", "nbr", "num", "number", "code", "key"}
_OWN_NAMES = {"first", "last", "full", "given", "family", "middle", "maiden", "birth", "sur"}
_CONTACTS = {
    "email",
    "mail",
    "phone",
    "telephone",
    "mobile",
    "fax",
    "address",
    "street",
    "surname",
    "firstname",
    "lastname",
}
_TEXTS = {"note", "notes", "comment", "comments", "remark", "remarks", "narrative", "freetext"}
_WEIGHTS = {"weight", "weights", "wt", "wgt"}
_WEIGHED = {"sample", "sampling", "survey", "design", "case", "person", "final", "frequency", "inverse", "probability"}
# Each for the last words of a name. What lies outside is clipped, so they need not hold what cannot be.
_USUAL: dict[tuple[str, ...], tuple[float, float]] = {
    ("age",): (0.0, 120.0),
    ("age", "years"): (0.0, 120.0),
    ("birth",): (0.0, 120.0),  # dates of birth become ages
    ("born",): (0.0, 120.0),
    ("dob",): (0.0, 120.0),
    ("bmi",): (10.0, 80.0),
    ("percent",): (0.0, 100.0),
    ("pct",): (0.0, 100.0),
    ("height", "cm"): (0.0, 250.0),
    ("weight", "kg"): (0.0, 300.0),
    ("heart", "rate"): (0.0, 300.0),
    ("pulse",): (0.0, 300.0),
    ("systolic",): (0.0, 300.0),
    ("sbp",): (0.0, 300.0),
    ("diastolic",): (0.0, 200.0),
    ("dbp",): (0.0, 200.0),
    ("hours", "per", "day"): (0.0, 24.0),
    ("days", "per", "week"): (0.0, 7.0),
    ("hours", "per", "week"): (0.0, 100.0),
}  # fmt: skip


def role(name: str) -> Role | None:
    """The role that a column's name gives it, by which a draft leaves it out; None if it may be a feature."""
    words = _words(name)
    if not words:
        return None
    first, last, alone = words[0], words[-1], len(words) == 1
    named = alone or last in _LABELS
    if (
        last in {"mrn", "ssn"}
        or (words[-2:-1] and words[-2] in _PEOPLE and last in _LABELS)
        or (alone and first in _PEOPLE)
    ):
        return "person"
    if first in _SITES and (named or last == "name"):
        return "site"
    if last in {"id", "uuid", "guid"}:
        return "row"
    if last in _CONTACTS or (last in {"name", "names"} and (alone or words[-2] in _OWN_NAMES | _PEOPLE)):
        return "name"
    if last in _TEXTS or words[-2:] == ("free", "text"):
        return "text"
    if "".join(words) in {"fnlwgt", "pweight", "fweight", "iptw", "ipw"} or (
        last in _WEIGHTS and _WEIGHED & {*words[:-1]}
    ):
        return "weight"
    return None


def usual_bounds(name: str) -> tuple[float, float] | None:
    """Bounds that columns of such a name have anywhere, in the unit of the name; None if nothing is known."""
    words = _words(name)
    return next((bounds for ending, bounds in _USUAL.items() if words[-len(ending) :] == ending), None)


def _words(name: str) -> tuple[str, ...]:
    """The words of a name in lower case, however they are joined: PatientID, patient_id and patient-id are alike."""
    return tuple(word.lower() for word in _WORD.findall(_JOINT.sub(" ", name)))
