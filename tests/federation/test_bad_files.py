"""Files that are not what they should be: one line about each, never a traceback, and never more memory than agreed."""

import io
import os
import struct
import subprocess
import sys
import warnings
import zipfile
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.federations import agreement
from sottovoce.cli.site.files import refusing_changes, rows_of
from sottovoce.errors import InputError, SottovoceError
from sottovoce.federation.agreement import certificates, signing, toml_file
from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.federation.agreement.key_files import write_secret
from sottovoce.files.schema import Schema

AGREED = agreement()
ROWS, D = 30, AGREED.features
FEATURES, LABELS = np.full((ROWS, D), 0.1), np.ones(ROWS)
SCHEMA = """
version = 1
[label]
column = "ill"
classes = ["no", "yes"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
"""


def saved(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(header, body=b""):
    """An array's file with a header of our own."""
    text = header.encode("latin1") + b" " * (64 - (len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def shaped(shape, kind="<f8"):
    return npy(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}")


GOOD = saved(features=FEATURES, labels=LABELS)


def marked(content, flag, method):
    """Every entry of the archive with other marks."""
    data = bytearray(content)
    for sign, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(sign)
        while at >= 0:
            data[at + place : at + place + 4] = struct.pack("<HH", flag, method)
            at = data.find(sign, at + 4)
    return bytes(data)


def twice():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("features", "labels", "features"):
            archive.writestr(f"{name}.npy", shaped((ROWS, D)) + bytes(8 * ROWS * D))
    return file.getvalue()


BAD = {
    "the same name twice": twice(),
    "nothing": b"",
    "a text": b"age,sex\n1,f\n",
    "a pickle": b"\x80\x04]\x94.",
    "a single array": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", bytes(16)),
    "half a zip": GOOD[: len(GOOD) // 2],
    "a zip without its end": GOOD[:-10],
    "the end of a zip": GOOD[-40:],
    "an empty zip": zipped(),
    "other names": saved(X=FEATURES, y=LABELS),
    "one more": saved(features=FEATURES, labels=LABELS, names=LABELS),
    "no labels": saved(features=FEATURES),
    "features in a row": saved(features=FEATURES.ravel(), labels=LABELS),
    "a number": saved(features=np.float64(1.0), labels=LABELS),
    "one label": saved(features=FEATURES, labels=np.float64(1.0)),
    "labels in a matrix": saved(features=FEATURES, labels=LABELS[:, None]),
    "objects": zipped(features=shaped((ROWS, D), "|O"), labels=shaped((ROWS,), "|O")),
    "texts": saved(features=FEATURES.astype(str), labels=LABELS),
    "labels in letters": saved(features=FEATURES, labels=np.array(["no"] * ROWS)),
    "complex numbers": saved(features=FEATURES.astype(complex), labels=LABELS),
    "dates": saved(features=FEATURES, labels=np.zeros(ROWS, "datetime64[s]")),
    "records": saved(features=FEATURES, labels=np.zeros(ROWS, [("a", float), ("b", float)])),
    "bytes": saved(features=np.zeros((ROWS, D), "S8"), labels=LABELS),
    "too many columns": saved(features=np.zeros((ROWS, D + 1)), labels=LABELS),
    "more rows than anyone has": saved(features=np.zeros((ROWS + 1, D)), labels=np.ones(ROWS + 1)),
    "more labels than rows": saved(features=FEATURES, labels=np.ones(ROWS - 1)),
    "no rows": saved(features=np.zeros((0, D)), labels=np.zeros(0)),
    "a promise of terabytes": zipped(features=shaped((10**9, 10**3)), labels=shaped((10**9,))),
    "a promise beyond numbers": zipped(features=shaped((10**30, 10**30)), labels=shaped((10**9,))),
    "negative sizes": zipped(features=shaped((-1, D)), labels=shaped((ROWS,))),
    "a zip bomb": zipped(features=shaped((10**6, D)) + bytes(8 * D * 10**6), labels=shaped((10**6,))),
    "less than promised": zipped(features=shaped((ROWS, D)) + bytes(10), labels=shaped((ROWS,))),
    "not a number": saved(features=FEATURES * np.nan, labels=LABELS),
    "too long a row": saved(features=FEATURES * 100, labels=LABELS),
    "an odd header": zipped(features=npy("{'descr': [], 'shape': 5}"), labels=npy("[1")),
    "a nested header": zipped(features=npy("(" * 5000 + ")" * 5000), labels=npy("-" * 9000 + "1")),
    "a header that is code": zipped(features=npy("__import__('os').getcwd()"), labels=npy("1")),
    "a version of the future": zipped(features=b"\x93NUMPY\x09\x00" + bytes(100), labels=b""),
    "encrypted": marked(GOOD, 1, 8),
    "an unknown method": marked(GOOD, 0, 99),
    "not arrays": zipped(features=b"hello", labels=b""),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_arrays_that_are_none(tmp_path, what):
    path = tmp_path / "rows.npz"
    path.write_bytes(BAD[what])
    with pytest.raises(InputError) as raised:
        AGREED.oracle_for("berlin", rows_of(AGREED, path))
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("kind", ["f8", "f4", ">f8", "i4", "u1", "?", "f2"])
def test_numbers_of_any_kind_are_arrays(tmp_path, kind):
    path = tmp_path / "rows.npz"
    features = np.zeros((ROWS, D)).astype(kind)
    path.write_bytes(saved(features=features, labels=LABELS.astype(kind)))
    rows = rows_of(AGREED, path)
    assert rows.counts.tolist() == [ROWS]
    path.write_bytes(saved(features=np.asfortranarray(features), labels=LABELS))
    assert rows_of(AGREED, path).d == D


def broken(content, edits):
    """The file with some bytes changed, and cut off."""
    data = bytearray(content)
    for place, value in edits:
        data[place % len(data)] = value
    return bytes(data)


EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6)


@settings(max_examples=150)
@given(EDITS, st.integers(0, 100), st.booleans())
def test_damaged_arrays(tmp_path_factory, edits, cut, plain):
    file = io.BytesIO()
    (np.savez if plain else np.savez_compressed)(file, features=FEATURES, labels=LABELS)
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(broken(file.getvalue(), edits)[: -cut or None])
    # Some damage does not matter, such as to a date.
    with suppress(SottovoceError):
        rows_of(AGREED, path)


@settings(max_examples=60)
@given(st.binary(max_size=300))
def test_any_bytes_with_and_without_a_schema(tmp_path_factory, content):
    schema = Schema.loads(SCHEMA)
    agreed = replace(AGREED, schema=SCHEMA, features=schema.d, data_norm=schema.data_norm)
    for name, terms in (("a.npz", AGREED), ("a.csv", agreed), ("a.parquet", agreed)):
        path = tmp_path_factory.getbasetemp() / name
        path.write_bytes(content)
        with pytest.raises(SottovoceError):
            rows_of(terms, path)


def test_a_bomb_is_not_set_off(tmp_path):
    """A megabyte that unfolds to a gigabyte, read with little memory to spare."""
    path = tmp_path / "rows.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("features.npy", "w") as member:
        member.write(shaped((1 << 30, D)))
        for _ in range(1024):
            member.write(bytes(1 << 20))
    code = (
        "import sys; from sottovoce.cli.site.files import rows_of; from pathlib import Path;"
        "from helpers.federations import agreement; import resource\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: rows_of(agreement(), Path(sys.argv[1]))\n"
        "except Exception as e: print(type(e).__name__, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    path_of = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=True,
        env=os.environ | {"PYTHONPATH": path_of},
    )  # fmt: skip
    kind, grown = done.stdout.split()
    assert kind == "InputError"
    assert int(grown) < 20_000  # kilobytes


def test_data_that_are_no_file(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises((InputError, OSError)), refusing_changes(path):
            pass
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="a data file, got"), refusing_changes(pipe):
        pass  # it would be waited for without end


# -- keys, certificates, signatures ------------------------------------------------------------------------------------

SIGNATURES = {
    "nothing": b"", "deep": b"[" * 9_000, "deep and balanced": b"[" * 4_000 + b"]" * 4_000, "a list": b"[]",
    "a deep field": b'{"site":"berlin","digest":"00","signature":%s%s}' % (b"[" * 900, b"]" * 900),
    "numbers": b'{"site":1,"digest":2,"signature":3}', "a long number": b'{"site":%s}' % (b"9" * 5000),
    "no hex": b'{"site":"berlin","digest":"xyz","signature":"AAAA"}', "bytes": b"\xff\xfe\x00", "long": b" " * 20_000,
    "short": b'{"site":"berlin","digest":"00","signature":"AAAA"}', "nothing at all": b"null",
}  # fmt: skip


@pytest.mark.parametrize("what", SIGNATURES)
def test_signatures_that_are_none(tmp_path, what):
    toml_file.save(AGREED, tmp_path / "federation.toml")
    (tmp_path / "federation.berlin.sig").write_bytes(SIGNATURES[what])
    with pytest.raises(InputError, match="the signature of site berlin") as raised:
        signing.verify_signatures(AGREED, tmp_path / "federation.toml")
    assert len(str(raised.value).splitlines()) == 1


PEMS = {
    "nothing": b"", "a text": b"hello\n", "deep": b"[" * 9_000, "bytes": bytes(range(256)), "json": b"{}",
    "no base64": b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
    "no DER": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "half": b"-----BEGIN CERTIFICATE-----\nMIIB", "long": b"x" * 9_000,
}  # fmt: skip


@pytest.mark.parametrize("part", ["authority", "certificate", "key"])
@pytest.mark.parametrize("what", PEMS)
def test_certificates_that_are_none(tmp_path, what, part):
    certificates.create_authority(tmp_path)
    files = certificates.issue_site(tmp_path, "berlin")
    write_secret(tmp_path / "bad.pem", PEMS[what])
    with pytest.raises(InputError) as raised:
        replace(files, **{part: tmp_path / "bad.pem"}).context()
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("what", PEMS)
def test_signing_keys_that_are_none(tmp_path, what):
    write_secret(tmp_path / "bad.pem", PEMS[what])
    with pytest.raises(InputError, match="Expected an Ed25519 private key"):
        SigningKey.load(tmp_path / "bad.pem")


def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(tmp_path):
    """Nobody sits at the terminal of a site."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    certificates.create_authority(tmp_path)
    files = certificates.issue_site(tmp_path, "berlin")
    key = load_pem_private_key(files.key.read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    write_secret(tmp_path / "locked.pem", locked)
    with pytest.raises(InputError, match="without a passphrase"):
        replace(files, key=tmp_path / "locked.pem").context()
