"""Bank Marketing: counts known from UCI's page, raw rows read back, and the pooled optimum by sklearn."""

import gzip
import importlib.util
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sottovoce.errors import InputError
from sottovoce.files.datasets import bank
from sottovoce.files.datasets import packed as packed_files

MODULE = sys.modules["sottovoce.files.datasets.bank"]  # the package gives the function this name

HEADER = ",age,job,marital,education,default,balance,housing,loan,contact,day,month,duration,campaign,pdays,previous,poutcome,deposit"  # noqa: E501
# Copied from the raw files: row numbers in bank-full.csv, then the attributes.
RAW = (
    "277,49,services,married,secondary,no,47,no,no,unknown,5,may,234,2,-1,0,unknown,no",
    "43720,57,retired,married,primary,no,9367,no,no,cellular,14,may,700,4,92,7,success,yes",
    "43373,31,management,single,tertiary,no,4319,yes,no,cellular,29,mar,515,2,334,5,failure,no",
)


@pytest.fixture(scope="module")
def data():
    return bank()


def test_counts(data):
    assert data.features.shape == (45_211, 51)
    assert (data.name, data.data_norm, data.n_train, len(data.test)) == ("bank", 1.0, 36_168, 9_043)
    assert np.count_nonzero(data.labels == 1) == 5_289
    assert set(np.unique(data.labels)) == {-1.0, 1.0}
    attributes = [name.split("=")[0] for name in data.names]
    counts = {name: attributes.count(name) for name in dict.fromkeys(attributes)}
    assert counts == {
        "age": 1, "job": 12, "marital": 3, "education": 4, "default": 2, "balance": 1, "housing": 2, "loan": 2,
        "contact": 3, "day": 1, "month": 12, "duration": 1, "campaign": 1, "pdays": 1, "previous": 1, "poutcome": 4,
    }  # fmt: skip


def test_norms_are_one_and_never_above(data):
    norms = np.linalg.norm(data.features.toarray(), axis=1)
    assert norms.min() >= 1 - 1e-14
    assert norms.max() <= 1.0
    assert data.features.has_canonical_format


def test_both_parts_are_alike(data):
    # A shuffle: the share of +1 differs by luck alone, whose standard deviation is 0.004.
    assert abs(np.mean(data.train.labels == 1) - np.mean(data.test.labels == 1)) < 0.015


@pytest.mark.parametrize("text", RAW)
def test_rows_read_back(data, text):
    number, *raw, label = text.split(",")
    row = int(np.flatnonzero(np.random.Generator(np.random.PCG64(2014)).permutation(45_211) == int(number))[0])
    entry = dict(zip(data.names, data.features[[row]].toarray()[0], strict=True))
    scale = entry[f"job={raw[1]}"]  # a one-hot entry was 1 before the row was scaled
    for name, value in zip(MODULE.ATTRIBUTES, raw, strict=True):
        if name in MODULE.SCALES:
            expected = min(max(float(value) / MODULE.SCALES[name], -1.0), 1.0)
            assert entry[name] / scale == pytest.approx(expected, abs=1e-12)
        else:
            assert {key for key, x in entry.items() if key.startswith(f"{name}=") and x} == {f"{name}={value}"}
    assert data.labels[row] == (1.0 if label == "yes" else -1.0)


def test_pooled_optimum(data):
    model = LogisticRegression(C=1 / (1e-6 * len(data)), fit_intercept=False, solver="newton-cholesky", tol=1e-8)
    z = data.features @ model.fit(data.features, data.labels).coef_[0]
    assert np.logaddexp(0, -data.labels * z).mean() == pytest.approx(0.235, abs=5e-4)


def test_corrupted_file_is_refused(monkeypatch):
    whole = packed_files.content("bank.npz")
    monkeypatch.setattr(packed_files, "content", lambda _: whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match=r"bank\.npz with SHA-256 5b0668c1.*Install the package again"):
        bank()


def test_licence_page_names_the_packed_file():
    page = Path(MODULE.__file__).with_name("BANK-LICENSE.md").read_text(encoding="utf-8")
    assert all(text in page for text in (MODULE.SHA256, "CC BY 4.0", "10.24432/C5K306", "Moro", "Cortez", "Rita"))


@pytest.fixture(scope="module")
def pack():
    path = Path(__file__).parents[2] / "scripts" / "pack_bank.py"
    spec = importlib.util.spec_from_file_location("pack_bank", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_packing(pack):
    lines = [text.split(",", 1)[1] for text in RAW]
    first, second = (f"{HEADER}\n1,{lines[0]}\n0,{lines[1]}\n", f"{HEADER}\n2,{lines[2]}\n")
    packed = pack.columns(pack.parse(first, second))
    assert packed["age"].tolist() == [57, 49, 31]
    assert packed["pdays"].tolist() == [92, -1, 334]
    assert packed["job.names"].tolist() == ["management", "retired", "services"]
    assert packed["job"].tolist() == [1, 2, 0]
    assert packed["yes"].tolist() == [1, 0, 0]
    assert pack.to_npz(packed) == pack.to_npz(packed)
    with pytest.raises(SystemExit, match="every row once"):
        pack.parse(first)[0] and pack.parse(first, first)


def test_packing_refuses_other_files(pack, tmp_path):
    (tmp_path / "train.csv.gz").write_bytes(gzip.compress(HEADER.encode()))
    with pytest.raises(SystemExit, match=r"train\.csv\.gz with SHA-256 a3f2222c"):
        pack.check(pack.read(tmp_path, "train.csv.gz"), "train.csv.gz")
    with zipfile.ZipFile(tmp_path / "some.whl", "w") as wheel:
        wheel.writestr("inside/Bank/test.csv.gz", b"x")
    assert pack.read(tmp_path / "some.whl", "test.csv.gz") == b"x"
    with pytest.raises(SystemExit, match=r"one Bank/train\.csv\.gz inside some\.whl"):
        pack.read(tmp_path / "some.whl", "train.csv.gz")
