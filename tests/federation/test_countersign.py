"""Countersignatures: everyone, exactly this, and nobody in another's name."""

from dataclasses import replace

import pytest

from helpers.federations import agreement, members
from sottovoce.errors import InputError
from sottovoce.federation.agreement import signing, toml_file
from sottovoce.federation.agreement.identity import SigningContext
from sottovoce.federation.agreement.signing import Consent, Countersignature


@pytest.fixture
def signed(tmp_path):
    """An agreement that all have signed, its file, and their keys."""
    keys, sites = members()
    a, path = agreement(sites), tmp_path / "federation.toml"
    toml_file.save(a, path)
    for name, key in keys.items():
        signing.write_signature(a, name, key, signing.signature_file(path, name))
    return a, path, keys


def test_all_signatures_are_needed(signed):
    a, path, _ = signed
    signing.verify_signatures(toml_file.load(path), path)
    assert set(signing.standings(a, path).values()) == {Consent.SIGNED}
    (path.parent / "federation.paris.sig").unlink()
    with pytest.raises(InputError, match=r"site paris in .*federation\.paris\.sig', got: not signed yet"):
        signing.verify_signatures(a, path)


def test_signatures_may_lie_elsewhere(signed, tmp_path):
    a, path, _ = signed
    folder = tmp_path / "collected"
    folder.mkdir()
    for file in path.parent.glob("*.sig"):
        file.rename(folder / file.name)
    signing.verify_signatures(a, path, folder)


def test_a_change_voids_all_signatures(signed):
    a, path, _ = signed
    worse = replace(a, algorithm=replace(a.algorithm, epsilon=3.0))
    assert set(signing.standings(worse, path).values()) == {Consent.OTHER_VERSION}
    with pytest.raises(InputError, match=r"site berlin .* signed another version. Compare its agreement file"):
        signing.verify_signatures(worse, path)


def test_forged_signatures_are_named(signed):
    a, path, keys = signed
    file = path.parent / "federation.rome.sig"
    real = Countersignature.loads(file.read_text())
    digest = a.digest()
    fakes = [
        replace(real, signature=keys["paris"].sign(b"rome\0" + digest, SigningContext.AGREEMENT)),
        replace(real, signature=keys["rome"].sign(b"rome\0" + digest, SigningContext.MESSAGE)),
        replace(real, signature=keys["rome"].sign(b"paris\0" + digest, SigningContext.AGREEMENT)),
        replace(real, signature=bytes(64)),
        replace(real, digest=bytes(32)),
        Countersignature.loads((path.parent / "federation.paris.sig").read_text()),
    ]
    for fake in fakes:
        file.write_text(fake.dumps())
        with pytest.raises(InputError, match=r"site rome .* not its signature. It was made with another key"):
            signing.verify_signatures(a, path)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"site": 1, "digest": 2, "signature": 3}', b"\xff", b"[" * 9000]
)
def test_garbage_is_not_a_signature(signed, content):
    a, path, _ = signed
    (path.parent / "federation.rome.sig").write_bytes(content)
    with pytest.raises(InputError, match=r"site rome .* not a signature file"):
        signing.verify_signatures(a, path)


def test_only_the_agreed_key_signs(signed, tmp_path):
    a, path, keys = signed
    with pytest.raises(InputError, match="the key of site rome with fingerprint"):
        Countersignature.make(a, "rome", keys["paris"])
    with pytest.raises(InputError, match="a site of this federation"):
        Countersignature.make(a, "oslo", keys["paris"])
    with pytest.raises(InputError, match="a file that does not exist yet"):
        signing.write_signature(a, "rome", keys["rome"], signing.signature_file(path, "rome"))
