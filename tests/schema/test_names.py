"""What names of columns say, as people write them."""

import pytest

from sottovoce.files.schema.names import role, usual_bounds

ROLES = {
    "site": ["site", "Site_ID", "hospital", "hospitalName", "center-no", "Clinic"],
    "person": ["patient_id", "PatientID", "subject", "participant number", "mrn", "ssn", "customer_key"],
    "row": ["id", "visit_id", "UUID", "rowId"],
    "name": ["name", "first_name", "lastName", "patient_name", "email", "home address", "surname"],
    "text": ["notes", "comment", "discharge_notes", "free_text", "Remarks"],
    "weight": ["fnlwgt", "sample_weight", "survey-wt", "designWeight", "iptw"],
    None: [
        "age", "body_site", "primary_site", "weight", "weight_kg", "drug_name", "sites", "hospital_stay", "grade",
        "patient_age", "plan", "identity", "paid", "centered", "", "%", "text_length", "case_type", "birth_weight",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("said", "name"), [(said, name) for said, names in ROLES.items() for name in names])
def test_roles(said, name):
    assert role(name) == said


@pytest.mark.parametrize(
    ("name", "bounds"),
    [("age", (0, 120)), ("Age years", (0, 120)), ("dateOfBirth", (0, 120)), ("hours-per-week", (0, 100)),
     ("weight_kg", (0, 300)), ("HeartRate", (0, 300)), ("weight", None), ("dosage", None), ("stage", None),
     ("age_group", None), ("", None)],
)  # fmt: skip
def test_usual_bounds(name, bounds):
    assert usual_bounds(name) == bounds
