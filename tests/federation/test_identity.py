import base64
import os
import stat

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.errors import InputError, PrivacyError
from sottovoce.federation.agreement.identity import PublicKey, SigningContext, SigningKey, check_site_name

# RFC 8032, section 7.1, test 1.
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
EMPTY_SIGNATURE = bytes.fromhex(
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
    "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
)
KEY = SigningKey.generate()


def pem(key, encryption=None):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


def test_it_is_the_standard_scheme_with_a_context_in_front():
    raw = ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SEED.hex()))
    key = SigningKey(raw)
    assert key.sign(b"data", SigningContext.AGREEMENT) == raw.sign(b"sottovoce agreement v1\0data")
    assert key.sign(b"data", SigningContext.MESSAGE) == raw.sign(b"sottovoce message v1\0data")
    # The RFC's signature of nothing is not one of ours, whatever it is shown for.
    assert not any(key.public.verify(EMPTY_SIGNATURE, b"", context) for context in SigningContext)


def test_contexts_cannot_be_confused():
    values = [context.value for context in SigningContext]
    assert len(set(values)) == len(values)
    assert all(b"\0" not in value for value in values)


@given(st.binary(max_size=200), st.sampled_from(SigningContext))
def test_a_signature_is_good_for_one_purpose_and_one_content(data, context):
    signature = KEY.sign(data, context)
    assert KEY.public.verify(signature, data, context)
    assert not any(KEY.public.verify(signature, data, other) for other in SigningContext if other is not context)
    assert not KEY.public.verify(signature, data + b"\0", context)
    assert not SigningKey.generate().public.verify(signature, data, context)


@given(st.integers(0, 511))
def test_a_changed_bit_is_noticed(bit):
    changed = bytearray(KEY.sign(b"data", SigningContext.MESSAGE))
    changed[bit // 8] ^= 1 << bit % 8
    assert not KEY.public.verify(bytes(changed), b"data", SigningContext.MESSAGE)


@pytest.mark.parametrize("signature", [b"", b"x" * 63, b"x" * 65])
def test_a_signature_of_another_length_is_refused(signature):
    assert not KEY.public.verify(signature, b"data", SigningContext.MESSAGE)


@given(st.binary(min_size=32, max_size=32))
def test_public_keys_have_one_spelling(raw):
    text = str(PublicKey(raw))
    assert text == "ed25519:" + base64.b64encode(raw).decode()
    assert PublicKey.from_text(text) == PublicKey.from_text(f" {text}\n") == PublicKey(raw)
    unpadded, respelt = text.rstrip("="), text[:-2] + chr(ord(text[-2]) + 1) + "="
    for odd in (
        unpadded,
        respelt,
        text.upper(),
        text[8:],
        "rsa:" + text[8:],
        text + "AAAA",
        text[:20] + " " + text[20:],
    ):
        with pytest.raises(InputError, match="Expected a public key such as ed25519:"):
            PublicKey.from_text(odd)


def test_fingerprints_differ_and_are_short():
    other = SigningKey.generate().public
    assert KEY.public.fingerprint != other.fingerprint
    assert len(KEY.public.fingerprint) == 24


# -- files ------------------------------------------------------------------------------------------------------------


def test_keys_survive_a_file(tmp_path):
    KEY.save(tmp_path / "key.pem")
    KEY.public.save(tmp_path / "key.pub")
    loaded = SigningKey.load(tmp_path / "key.pem")
    assert loaded.public == KEY.public == PublicKey.load(tmp_path / "key.pub")
    assert KEY.public.verify(loaded.sign(b"x", SigningContext.MESSAGE), b"x", SigningContext.MESSAGE)


def test_only_the_owner_may_read_a_private_key(tmp_path):
    before = os.umask(0)
    try:
        KEY.save(tmp_path / "key.pem")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    for mode in (0o640, 0o604, 0o620, 0o601):
        (tmp_path / "key.pem").chmod(mode)
        with pytest.raises(PrivacyError, match=f"only its owner may read, got mode={mode:04o} .* chmod 600"):
            SigningKey.load(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o400)
    assert SigningKey.load(tmp_path / "key.pem").public == KEY.public


def test_a_file_is_never_replaced(tmp_path):
    for name, save in (("key.pem", KEY.save), ("key.pub", KEY.public.save)):
        (tmp_path / name).write_text("precious")
        with pytest.raises(InputError, match=f"a file that does not exist yet, got .*{name}"):
            save(tmp_path / name)
        assert (tmp_path / name).read_text() == "precious"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a key",
        pem(ec.generate_private_key(ec.SECP256R1())),
        pem(KEY.private, BestAvailableEncryption(b"secret")),
    ],
)
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "key.pem").write_bytes(content)
    (tmp_path / "key.pem").chmod(0o600)
    with pytest.raises(InputError, match="Expected an Ed25519 private key in PEM form without a passphrase"):
        SigningKey.load(tmp_path / "key.pem")


def test_odd_public_key_files_are_refused_by_name(tmp_path):
    for content in (b"", b"\xff\xfe", b"ed25519:AAAA", pem(KEY.private)):
        (tmp_path / "odd.pub").write_bytes(content)
        with pytest.raises(InputError, match=r"Expected a public key .*odd\.pub") as refused:
            PublicKey.load(tmp_path / "odd.pub")
        # Whoever mixes the two files up must not find the private one in a log.
        assert pem(KEY.private).decode().splitlines()[1][:8] not in str(refused.value)
    (tmp_path / "odd.pub").write_bytes(b"x" * 20_000)
    with pytest.raises(InputError, match="a key file of at most 10000 bytes"):
        PublicKey.load(tmp_path / "odd.pub")


def test_the_private_half_is_never_shown():
    secret = base64.b64encode(KEY.private.private_bytes_raw()).decode()
    assert secret not in repr(KEY) + str(KEY)
    assert str(KEY.public) in repr(KEY)


def test_public_half_of_the_rfc(tmp_path):
    assert SigningKey(ed25519.Ed25519PrivateKey.from_private_bytes(SEED)).public.raw == PUBLIC


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "7", "berlin", "st-mary-2", "a" * 40])
def test_good_names(name):
    check_site_name(name)


@pytest.mark.parametrize(
    "name", ["", "Berlin", "a_b", "a.b", "-a", "a-", "a b", "*", ">", "a/b", "..", "köln", "a\n", "a" * 41]
)
def test_bad_names(name):
    with pytest.raises(InputError, match="a site's name of 1 to 40 small letters, digits and inner hyphens"):
        check_site_name(name)


@pytest.mark.parametrize("name", ["ca", "server", "operator"])
def test_names_of_others(name):
    with pytest.raises(InputError, match="a name that nobody else has"):
        check_site_name(name)
