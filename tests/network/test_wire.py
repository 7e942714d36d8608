"""Messages as bytes: what is signed arrives, everything else is refused."""

import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sottovoce.engines.network.identity import Context, SigningKey
from sottovoce.engines.network.wire import (
    LAST_ROUND,
    BadMessageError,
    Envelope,
    Expected,
    Refusal,
    decode,
    encode,
    message_size,
)
from sottovoce.errors import InputError

KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))
DIGEST = bytes(range(100, 132))
PLACE = Expected("run-7", DIGEST, 12, "north", 3)
VECTOR = np.array([1.5, -0.0, 1e-310])
ENVELOPE = Envelope("run-7", DIGEST, 12, "north", VECTOR)
MESSAGE = encode(ENVELOPE, KEY)


def changed(**fields):
    """A message of the right key for another place."""
    values = {"run": "run-7", "digest": DIGEST, "round": 12, "site": "north", "payload": VECTOR} | fields
    return encode(Envelope(**values), KEY)


def refused(data, expected=PLACE, key=KEY):
    with pytest.raises(BadMessageError) as caught:
        decode(data, expected, key.public)
    assert caught.value.refusal.value in str(caught.value)
    return caught.value.refusal


def signed(body):
    """With cryptography alone, as the format's description says."""
    return body + KEY.private.sign(b"sottovoce message v1\0" + body)


def test_the_bytes_are_as_described():
    body = (
        b"SVM1" + bytes([5, 5]) + struct.pack("<QI", 12, 3) + DIGEST + b"run-7" + b"north" + struct.pack("<3d", *VECTOR)
    )
    assert signed(body) == MESSAGE
    assert len(MESSAGE) == PLACE.size == message_size("run-7", "north", 3)


def test_the_same_envelope_gives_the_same_bytes():
    again = Envelope("run-7", bytes(DIGEST), 12, "north", VECTOR.copy())
    assert encode(again, SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))) == MESSAGE


def words(letters, longest):
    return st.text(letters, min_size=1, max_size=longest).filter(lambda word: word[0] not in "-_" and word[-1] != "-")


envelopes = st.builds(
    Envelope,
    run=words("abAB01_-", 64),
    digest=st.binary(min_size=32, max_size=32),
    round=st.integers(0, LAST_ROUND),
    site=words("xyz89-", 40),
    payload=arrays(np.float64, st.integers(1, 20), elements=st.floats(allow_nan=False, allow_infinity=False)),
)


@given(envelopes)
def test_what_is_sent_arrives_bit_for_bit(envelope):
    data = encode(envelope, KEY)
    came = decode(data, envelope.place, KEY.public)
    assert came.tobytes() == envelope.payload.tobytes()
    assert came.flags.writeable
    assert len(data) == envelope.place.size


@given(envelopes, st.data())
def test_any_change_of_any_byte_is_refused(envelope, data):
    message = bytearray(encode(envelope, KEY))
    for position in data.draw(st.sets(st.integers(0, len(message) - 1), min_size=1, max_size=4)):
        message[position] ^= data.draw(st.integers(1, 255))
    refused(bytes(message), envelope.place)


def test_every_single_bit_counts():
    for position in range(len(MESSAGE)):
        for bit in range(8):
            message = bytearray(MESSAGE)
            message[position] ^= 1 << bit
            refused(bytes(message))


@given(st.binary(max_size=400))
def test_noise_is_refused(noise):
    refused(noise)


@given(st.binary(min_size=PLACE.size, max_size=PLACE.size))
def test_noise_of_the_right_size_is_refused(noise):
    refused(noise)
    refused(b"SVM1" + noise[4:])
    refused(PLACE.header + noise[len(PLACE.header) :])


@given(envelopes, envelopes)
@settings(max_examples=50)
def test_a_message_for_another_place_is_refused(sent, wanted):
    if sent.place != wanted.place:
        refused(encode(sent, KEY), wanted.place)


@pytest.mark.parametrize("size", [0, 1, 17, 60, PLACE.size - 1])
def test_truncated(size):
    assert refused(MESSAGE[:size]) is Refusal.TRUNCATED


@pytest.mark.parametrize("more", [b"\0", b"x" * 1_000_000])
def test_oversized(more):
    assert refused(MESSAGE + more) is Refusal.OVERSIZED


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"run": "run-8"}, Refusal.WRONG_RUN),
        ({"digest": bytes(32)}, Refusal.WRONG_AGREEMENT),
        ({"round": 11}, Refusal.WRONG_ROUND),
        ({"site": "south"}, Refusal.WRONG_SENDER),
    ],
)
def test_each_field_has_a_refusal_of_its_own(fields, refusal):
    assert refused(changed(**fields)) is refusal


def test_a_wrong_shape_shows_as_a_wrong_size_or_count():
    assert refused(changed(payload=np.ones(2))) is Refusal.TRUNCATED
    assert refused(changed(payload=np.ones(4))) is Refusal.OVERSIZED
    body = bytearray(MESSAGE[:-64])
    body[14] = 2
    assert refused(signed(bytes(body))) is Refusal.WRONG_SHAPE


def test_a_magic_word_of_another_version_is_malformed():
    assert refused(signed(b"SVM2" + MESSAGE[4:-64])) is Refusal.MALFORMED


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_signed_numbers_that_are_not_finite_are_refused(bad):
    body = MESSAGE[:-72] + struct.pack("<d", bad)
    assert refused(signed(body)) is Refusal.NOT_FINITE


def test_another_key_is_a_forgery():
    assert refused(encode(ENVELOPE, OTHER)) is Refusal.FORGED
    assert refused(MESSAGE, key=OTHER) is Refusal.FORGED


def test_a_signature_made_for_another_purpose_is_a_forgery():
    body = MESSAGE[:-64]
    assert refused(body + KEY.sign(body, Context.AGREEMENT)) is Refusal.FORGED


def test_a_name_from_outside_is_shown_safely():
    body = MESSAGE[:50] + b"\x1b[2J\xff" + MESSAGE[55:-64]
    with pytest.raises(BadMessageError, match=r"got run='\\\\?x1b") as caught:
        decode(signed(body), PLACE, KEY.public)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"payload": np.array([1.0, np.nan])}, "finite numbers, got not_finite=1"),
        ({"payload": np.ones((2, 2))}, "one axis"),
        ({"payload": np.ones(2, np.float32)}, "float64"),
        ({"payload": np.ones(0)}, "1 to .* numbers, got length=0"),
        ({"digest": b"short"}, "a digest of 32 bytes"),
        ({"round": -1}, "a whole round"),
        ({"round": LAST_ROUND + 1}, "a whole round"),
        ({"run": "a.b"}, "a run id"),
        ({"run": "a b"}, "a run id"),
        ({"run": "a*"}, "a run id"),
        ({"run": ""}, "a run id"),
        ({"run": "r" * 65}, "a run id"),
        ({"site": "North"}, "a site's name"),
        ({"site": "a.b"}, "a site's name"),
    ],
)
def test_bad_envelopes_are_never_sent(fields, words):
    with pytest.raises(InputError, match=words):
        changed(**fields)
