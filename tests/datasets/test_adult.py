"""Adult: the counts of the paper's Section 5, raw rows read back, and the pooled optimum by sklearn."""

import importlib.util
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from sottovoce.errors import InputError
from sottovoce.files.datasets import Dataset, adult
from sottovoce.files.datasets import packed as packed_files

MODULE = sys.modules["sottovoce.files.datasets.adult"]  # the package gives the function this name

# Copied from the raw files, rows with a "?" not counted; the largest values found there with awk.
LARGEST = {
    "age": 90,
    "fnlwgt": 1490400,
    "education-num": 16,
    "capital-gain": 99999,
    "capital-loss": 4356,
    "hours-per-week": 99,
}
RAW = {
    0: "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, "
    "White, Male, 2174, 0, 40, United-States, <=50K",
    2: "38, Private, 215646, HS-grad, 9, Divorced, Handlers-cleaners, Not-in-family, "
    "White, Male, 0, 0, 40, United-States, <=50K",
    18175: "32, Private, 27882, Some-college, 10, Never-married, Machine-op-inspct, Other-relative, "
    "White, Female, 0, 2205, 40, Holand-Netherlands, <=50K",
    30161: "52, Self-emp-inc, 287927, HS-grad, 9, Married-civ-spouse, Exec-managerial, Wife, "
    "White, Female, 15024, 0, 40, United-States, >50K",
    30162: "25, Private, 226802, 11th, 7, Never-married, Machine-op-inspct, Own-child, "
    "Black, Male, 0, 0, 40, United-States, <=50K",
    45221: "35, Self-emp-inc, 182148, Bachelors, 13, Married-civ-spouse, Exec-managerial, Husband, "
    "White, Male, 0, 0, 60, United-States, >50K",
}


@pytest.fixture(scope="module")
def data():
    return adult()


def test_counts(data):
    assert data.features.shape == (45_222, 104)
    assert (len(data), data.d, len(data.names), data.name) == (45_222, 104, 104, "adult")
    assert data.features.nnz == np.count_nonzero(data.features.data) == 548_594
    assert round(100 * data.features.nnz / (len(data) * data.d), 2) == 11.66
    assert np.count_nonzero(data.labels == 1) == 11_208
    assert round(100 * np.mean(data.labels == 1), 3) == 24.784
    assert set(np.unique(data.labels)) == {-1.0, 1.0}
    assert data.n_train == len(data.train) == 30_162
    assert len(data.test) == 15_060
    assert np.count_nonzero(data.train.labels == 1) == 7_508


def test_layout(data):
    assert isinstance(data.features, sparse.csr_array)
    assert data.features.dtype == data.labels.dtype == np.float64
    assert data.features.has_canonical_format
    first = data.features.indptr[:-1]
    rises = np.diff(data.features.indices) > 0
    rises[first[1:] - 1] = True
    assert rises.all()


def test_names(data):
    attributes = [name.split("=")[0] for name in data.names]
    counts = {name: attributes.count(name) for name in dict.fromkeys(attributes)}
    assert counts == {
        "age": 1,
        "workclass": 7,
        "fnlwgt": 1,
        "education": 16,
        "education-num": 1,
        "marital-status": 7,
        "occupation": 14,
        "relationship": 6,
        "race": 5,
        "sex": 2,
        "capital-gain": 1,
        "capital-loss": 1,
        "hours-per-week": 1,
        "native-country": 41,
    }
    assert {"workclass=Private", "native-country=Holand-Netherlands"} <= set(data.names)


def test_norms_are_one_and_never_above(data):
    squares = np.asarray(data.features.multiply(data.features).sum(axis=1))
    assert np.sqrt(squares).max() <= data.data_norm == 1.0
    assert np.linalg.norm(data.features.toarray(), axis=1).max() <= 1.0
    assert np.sqrt(squares).min() >= 1 - 1e-14


@pytest.mark.parametrize("row", RAW)
def test_rows_read_back(data, row):
    *raw, label = RAW[row].split(", ")
    entry = data.features[[row]].toarray()[0]
    scale = entry[data.names.index(f"sex={raw[9]}")]  # a one-hot entry was 1 before the row was scaled
    numbers = {name: round(entry[data.names.index(name)] / scale * most, 6) for name, most in LARGEST.items()}
    assert numbers == {name: float(raw[i]) for name, i in zip(LARGEST, (0, 2, 4, 10, 11, 12), strict=True)}
    hot = {name.split("=")[1] for name, value in zip(data.names, entry, strict=True) if "=" in name and value}
    assert hot == {raw[i] for i in (1, 3, 5, 6, 7, 8, 9, 13)}
    assert data.labels[row] == (1.0 if label == ">50K" else -1.0)


def test_rank(data):
    assert np.linalg.matrix_rank((data.features.T @ data.features).toarray(), rtol=1e-9, hermitian=True) == 96


def test_pooled_optimum(data):
    # sklearn minimises C sum loss + ||w||^2 / 2; ours is the mean loss + 1e-6 ||w||^2 / 2.
    model = LogisticRegression(C=1 / (1e-6 * len(data)), fit_intercept=False, solver="newton-cholesky", tol=1e-8)
    z = data.features @ model.fit(data.features, data.labels).coef_[0]
    assert round(np.logaddexp(0, -data.labels * z).mean(), 4) == 0.3241
    assert round(np.mean(np.sign(z) == data.labels), 3) == 0.849


def test_loads_quickly():
    took = []
    for _ in range(3):
        started = time.process_time()  # other work on the machine is not ours
        adult()
        took.append(time.process_time() - started)
    assert min(took) < 0.5


def test_corrupted_file_is_refused(monkeypatch):
    whole = packed_files.content("adult.npz")
    monkeypatch.setattr(packed_files, "content", lambda _: whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match=r"adult\.npz with SHA-256 218908d1.*Install the package again"):
        adult()


def test_packed_file_has_every_row():
    packed = packed_files.unpack("adult.npz", MODULE.SHA256)
    assert packed["n_train"].item() == 32_561
    assert {len(packed[name]) for name in MODULE.ATTRIBUTES} == {48_842}
    assert np.count_nonzero(packed["over-50K"]) == 11_687
    missing = {name for name in MODULE.ATTRIBUTES if f"{name}.names" in packed and (packed[name] == 0).any()}
    assert missing == {"workclass", "occupation", "native-country"}


def test_licence_page_names_the_packed_file():
    page = Path(MODULE.__file__).with_name("ADULT-LICENSE.md").read_text(encoding="utf-8")
    assert all(text in page for text in (MODULE.SHA256, "CC BY 4.0", "10.24432/C5XW20", "Becker", "Kohavi"))


@pytest.fixture(scope="module")
def pack():
    path = Path(__file__).parents[2] / "scripts" / "pack_adult.py"
    spec = importlib.util.spec_from_file_location("pack_adult", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_packing_again_gives_the_same_bytes(pack, tmp_path):
    text = RAW[0] + "\n" + RAW[18175].replace("Private", "?") + "\n\n"
    train, test = pack.parse(text), pack.parse("|1x3 Cross validator\n" + RAW[45221] + ".\n")
    packed = pack.to_npz(pack.columns(train, test))
    assert packed == pack.to_npz(pack.columns(train, test))
    (tmp_path / "three.npz").write_bytes(packed)
    with np.load(tmp_path / "three.npz", allow_pickle=False) as arrays:
        assert arrays["fnlwgt"].tolist() == [77516, 27882, 182148]
        assert arrays["workclass"].tolist() == [2, 0, 1]
        assert arrays["workclass.names"].tolist() == ["?", "Self-emp-inc", "State-gov"]
        assert (arrays["over-50K"].tolist(), arrays["n_train"].tolist()) == ([0, 0, 1], [2])
        assert {arrays[name].dtype.kind for name in arrays.files} == {"u", "U"}


def test_packing_refuses_other_files(pack, tmp_path):
    (tmp_path / "adult.data").write_text(RAW[0], encoding="ascii")
    with pytest.raises(SystemExit, match=r"adult\.data with SHA-256 5b002646"):
        pack.check(pack.read(tmp_path, "adult.data"), "adult.data")
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as wheel:
        wheel.writestr("inside/adult.data", RAW[0])
    assert pack.read(tmp_path / "some.whl", "adult.data").decode() == RAW[0]
    with pytest.raises(SystemExit, match=r"one adult\.test inside some\.whl"):
        pack.read(tmp_path / "some.whl", "adult.test")


GOOD = {
    "features": np.eye(3),
    "labels": np.ones(3),
    "names": ("a", "b=x", "b=y"),
    "n_train": 2,
    "data_norm": 1.0,
    "name": "toy",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.ones(3)}, "features of shape"),
        ({"labels": np.ones(2)}, "one label for each of 3 rows"),
        ({"names": ("a",)}, "one name for each of 3 columns, got names=1"),
        ({"n_train": 4}, "n_train=4"),
        ({"data_norm": 0.0}, "data_norm=0.0"),
        ({"data_norm": np.nan}, "data_norm=nan"),
    ],
)
def test_dataset_refusals(change, message):
    with pytest.raises(InputError, match=message):
        Dataset(**(GOOD | change))


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
def test_dataset_columns(kind):
    data = Dataset(**(GOOD | {"features": kind(np.eye(3))}))
    assert data.values("a").tolist() == [1, 0, 0]
    assert data.categories("b").tolist() == [0, 1, 2]
    assert data.categories("a") is None
    assert (len(data.train), len(data.test), data.test.d) == (2, 1, 3)
    with pytest.raises(InputError, match="a column among a, b, got column='c'"):
        data.values("c")
    with pytest.raises(InputError, match=r"at most one non-zero per row among the columns b=\.\.\., got most=2"):
        Dataset(**(GOOD | {"features": kind(np.ones((3, 3)))})).categories("b")
