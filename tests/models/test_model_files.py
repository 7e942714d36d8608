"""Model files: what is written is read back, and a file from a stranger is refused rather than believed."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as to_bytes
from scipy import sparse

from sottovoce import losses
from sottovoce.errors import InputError, SottovoceError
from sottovoce.files.models import Model, load, save
from sottovoce.files.models.file import FORMAT
from sottovoce.files.schema import ClassLabel, Numeric, Schema
from sottovoce.privacy import Gaussian, PrivacyStatement, Repeated, epsilon
from sottovoce.settings import plain

EVENT = Repeated(Gaussian(40.0), 100)
STATEMENT = PrivacyStatement(
    event=EVENT, epsilon=epsilon(EVENT, 1e-5), target_epsilon=1.0, delta=1e-5, calibration="exact", sigma=40.0,
    released="noisy models",
)  # fmt: skip
SCHEMA = Schema(
    columns=(
        Numeric(name="age", bounds=(0.0, 100.0), scale="unit"),
        Numeric(name="height", bounds=(0.0, 2.5), scale="symmetric"),
    ),
    label=ClassLabel(column="ill", classes=("no", "yes")),
)


def model(**changes):
    fields = {
        "weights": np.array([[1.0], [-2.0], [0.5]]), "loss": losses.Logistic(), "names": SCHEMA.feature_names,
        "classes": ("no", "yes"), "privacy": STATEMENT, "schema": SCHEMA, "provenance": {"by": "a test", "n": 3},
    }  # fmt: skip
    return Model(**{**fields, **changes})


MODELS = {
    "two classes": model(),
    "no schema": model(schema=None, names=("a", "b", "c")),
    "softmax": model(
        schema=None,
        names=("a", "b"),
        classes=("x", "y", "z"),
        loss=losses.Softmax(3),
        weights=np.arange(6.0).reshape(2, 3),
    ),
    "regression": model(schema=None, names=("a", "b", "c"), classes=None, loss=losses.Huber(0.5), offset=7.5),
}


@pytest.mark.parametrize("made", MODELS.values(), ids=MODELS.keys())
def test_round_trip(made, tmp_path):
    path = tmp_path / "model.safetensors"
    save(made, path)
    back = load(path)
    assert np.array_equal(back.weights, made.weights)
    for name in ("loss", "names", "classes", "schema", "provenance", "offset", "privacy"):
        assert getattr(back, name) == getattr(made, name), name
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_values_that_nobody_reviewed_are_told_of_whoever_made_the_model(tmp_path):
    unreviewed = replace(SCHEMA, unreviewed=("columns.age.bounds", "label.classes"))
    made, path = model(schema=unreviewed), tmp_path / "model.safetensors"
    (note,) = made.privacy.notes
    assert "columns.age.bounds, label.classes" in note
    assert note in made.privacy.prose()
    assert STATEMENT.notes == ()
    save(made, path)
    assert load(path).privacy == made.privacy
    # A note that somebody has taken out of the file is there again.
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    told = json.loads(header["__metadata__"]["privacy"])
    assert told["notes"] == [note]
    header["__metadata__"]["privacy"] = json.dumps({**told, "notes": []})
    changed = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(changed)) + changed + content[8 + length :])
    assert load(path).privacy.notes == (note,)


def test_outputs_and_what_they_mean():
    rows = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    two = MODELS["two classes"]
    assert two.outputs(rows).ravel().tolist() == [1.0, -2.0, 0.0]
    assert two.decide(sparse.csr_array(rows)).tolist() == [1, 0, 1]
    assert two.probabilities(rows)[:, 1] == pytest.approx(1 / (1 + np.exp(-np.array([1.0, -2.0, 0.0]))))
    assert MODELS["regression"].decide(rows).tolist() == [8.5, 5.5, 7.5]
    several = MODELS["softmax"]
    assert several.decide(rows[:, :2]).tolist() == [2, 2, 0]
    z = rows[:, :2] @ several.weights
    assert several.probabilities(rows[:, :2]) == pytest.approx(np.exp(z) / np.exp(z).sum(axis=1, keepdims=True))
    with pytest.raises(SottovoceError, match="Probabilities need the loss logistic or softmax"):
        MODELS["regression"].probabilities(rows)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"weights": np.array([[np.nan], [0.0], [0.0]])}, "finite weights"),
        ({"weights": np.zeros((3, 2))}, "1 outputs for loss logistic"),
        ({"weights": np.zeros((2, 1))}, "a name for each of 2 features"),
        ({"names": ("a",)}, "a name for each of 3 features"),
        ({"classes": ("no",)}, "2 classes"),
        ({"offset": 1.0}, "an offset in regression only"),
        ({"weights": np.zeros((2, 1)), "names": ("a", "b")}, "a schema with 2 features"),
    ],
)
def test_what_does_not_fit_is_no_model(changes, told):
    with pytest.raises(InputError, match=told):
        model(**changes)


def forged(tmp_path, header=(), drop=(), tensors=None):
    """A file with some of its parts replaced."""
    path = tmp_path / "forged.safetensors"
    save(model(), path)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    parts = json.loads(content[8 : 8 + length])["__metadata__"]
    parts = {**parts, **{k: v if isinstance(v, str) else json.dumps(v) for k, v in dict(header).items()}}
    parts = {k: v for k, v in parts.items() if k not in drop}
    path.write_bytes(to_bytes(tensors or {"weights": np.array([[1.0], [-2.0], [0.5]])}, metadata=parts))
    return path


def lied(**changes):
    return {**plain(STATEMENT), **changes}


FORGERIES = {
    "another program's": ({"header": {"format": "other"}}, FORMAT),
    "a part missing": ({"drop": ["schema"]}, "expected the entries"),
    "one part too many": ({"header": {"pickle": "gASV"}}, "expected the entries"),
    "no JSON": ({"header": {"loss": "{"}}, "expected JSON"),
    "an infinity in JSON": ({"header": {"offset": "Infinity"}}, "expected JSON"),
    "deep JSON": ({"header": {"provenance": "[" * 100_000}}, "expected JSON"),
    "unknown loss": ({"header": {"loss": {"name": "exec"}}}, "loss.name among"),
    "loss with odd options": ({"header": {"loss": {"name": "logistic", "x": 1}}}, "keys of loss, got 'x'"),
    "names that are numbers": ({"header": {"names": [1, 2, 3]}}, "text for names[1]"),
    "provenance as a list": ({"header": {"provenance": []}}, "provenance"),
    "offset as text": ({"header": {"offset": '"nan"'}}, "offset"),
    "float32": ({"tensors": {"weights": np.zeros((3, 1), dtype=np.float32)}}, "float64 matrix"),
    "a vector": ({"tensors": {"weights": np.zeros(3)}}, "float64 matrix"),
    "two tensors": ({"tensors": {"weights": np.zeros((3, 1)), "more": np.zeros(1)}}, "one tensor"),
    "NaN": ({"tensors": {"weights": np.full((3, 1), np.nan)}}, "finite weights"),
    "other shape": ({"tensors": {"weights": np.zeros((4, 1))}}, "4 features"),
    "a smaller epsilon": ({"header": {"privacy": lied(epsilon=0.1)}}, "which its event costs"),
    "private without noise": (
        {"header": {"privacy": lied(event={"kind": "NonPrivate"})}}, "an epsilon of at least inf",
    ),
    "another unit": ({"header": {"privacy": lied(unit="one user")}}, "the unit"),
    "a negative delta": ({"header": {"privacy": lied(delta=-1e-5)}}, "delta"),
    "no statement": ({"header": {"privacy": "null"}}, "a table for privacy"),
    "a schema that is none": ({"header": {"schema": {"columns": 3}}}, ""),
}  # fmt: skip


@pytest.mark.parametrize(("how", "told"), FORGERIES.values(), ids=FORGERIES.keys())
def test_forgeries_are_refused(how, told, tmp_path):
    with pytest.raises(InputError, match="Expected a model file") as refusal:
        load(forged(tmp_path, **how))
    assert told in str(refusal.value)


def test_not_a_file_at_all(tmp_path):
    for path, content in {"empty": b"", "short": b"1234", "text": b"hello, world, this is text"}.items():
        (tmp_path / path).write_bytes(content)
        with pytest.raises(InputError, match="Expected a model file"):
            load(tmp_path / path)
    with pytest.raises(InputError, match="No such file"):
        load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="Expected a model file"):
        load(tmp_path)


def test_a_header_that_claims_to_be_huge_costs_nothing(tmp_path):
    path = tmp_path / "huge"
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}" * 10)
    with pytest.raises(InputError, match="does not begin as a model file does"):
        load(path)


@settings(max_examples=150)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_still_means_the_same(data, tmp_path):
    path = tmp_path / "model.safetensors"
    save(model(), path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(content))))
    path.write_bytes(bytes(content[:cut]))
    try:
        found = load(path)
    except InputError:
        return
    assert np.isfinite(found.weights).all()
    assert found.privacy.epsilon >= epsilon(found.privacy.event, found.privacy.delta) * (1 - 1e-9)


def test_nothing_is_left_where_nothing_can_be_written(tmp_path):
    with pytest.raises(InputError, match="can be written"):
        save(model(), tmp_path / "no such folder" / "model.safetensors")
    assert list(tmp_path.iterdir()) == []
