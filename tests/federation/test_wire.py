"""Messages as bytes: what is signed arrives, everything else is refused."""

import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sottovoce.errors import InputError
from sottovoce.federation.agreement.identity import SigningContext, SigningKey
from sottovoce.federation.site.letters import (
    About,
    Heard,
    ModelWords,
    Notice,
    Sighting,
    read_answer,
    read_notice,
    read_words,
    words_size,
)
from sottovoce.federation.site.norm import norm_of
from sottovoce.federation.transport.wire import (
    BOOKS_BYTES,
    MOST_NUMBER,
    NO_BOOKS,
    BadMessageError,
    Envelope,
    Kind,
    Refusal,
    Slot,
    books_of,
    digest_of,
    seal,
    sealed_size,
    unseal,
)

KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))
DIGEST = bytes(range(100, 132))
SLOT = Slot(12, "north")
PLACE = Envelope("run-7", DIGEST, SLOT, 24)
PAYLOAD = bytes(range(24))
MESSAGE = seal(PLACE, PAYLOAD, KEY)


def changed(payload=PAYLOAD, **fields):
    """A message of the right key for another place."""
    slot = {name: fields.pop(name) for name in tuple(fields) if name in Slot._fields}
    values = {"run": "run-7", "digest": DIGEST, "slot": SLOT._replace(**slot), "length": len(payload)} | fields
    return seal(Envelope(**values), payload, KEY)


def refused(data, place=PLACE, key=KEY):
    with pytest.raises(BadMessageError) as caught:
        unseal(data, place, key.public)
    assert caught.value.refusal.value in str(caught.value)
    return caught.value.refusal


def signed(body):
    """With cryptography alone, as the format's description says."""
    return body + KEY.private.sign(b"sottovoce message v1\0" + body)


def test_the_bytes_are_as_described():
    body = b"SVM4m" + bytes([5, 5, 0]) + struct.pack("<QI", 12, 24) + DIGEST + b"run-7" + b"north" + PAYLOAD
    assert signed(body + bytes(BOOKS_BYTES)) == MESSAGE
    books = bytes(i % 7 for i in range(BOOKS_BYTES))
    assert signed(body + books) == seal(PLACE, PAYLOAD, KEY, books)
    assert len(MESSAGE) == PLACE.size == sealed_size("run-7", SLOT, 24)
    answer = Slot(3, "north", Kind.ANSWER, "south-1")
    body = b"SVM4a" + bytes([5, 5, 7]) + struct.pack("<QI", 3, 24) + DIGEST + b"run-7" + b"north" + b"south-1" + PAYLOAD
    assert signed(body) == seal(Envelope("run-7", DIGEST, answer, 24), PAYLOAD, KEY)


def test_words_are_known_apart_from_the_books_that_come_with_them():
    """Whoever comes back from an old copy says the same words with other books: to others it is the same thing."""
    books = bytes(i % 7 for i in range(BOOKS_BYTES))
    later = seal(PLACE, PAYLOAD, KEY, books)
    assert later != MESSAGE
    assert digest_of(later) == digest_of(MESSAGE)
    assert (books_of(later), books_of(MESSAGE)) == (books, NO_BOOKS)
    assert digest_of(changed(payload=PAYLOAD[:-1] + b"x")) != digest_of(MESSAGE)
    assert digest_of(changed(number=13)) != digest_of(MESSAGE)
    with pytest.raises(InputError, match=f"{BOOKS_BYTES} bytes of books, got bytes=3"):
        seal(PLACE, PAYLOAD, KEY, b"abc")


def test_the_same_words_give_the_same_bytes():
    again = Envelope("run-7", bytes(DIGEST), Slot(12, "north"), 24)
    assert seal(again, bytes(PAYLOAD), SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))) == MESSAGE


def words(letters, longest):
    return st.text(letters, min_size=1, max_size=longest).filter(lambda word: word[0] not in "-_" and word[-1] != "-")


names = words("xyz89-", 40)
slots = st.one_of(
    st.builds(Slot, st.integers(0, MOST_NUMBER), names, st.sampled_from([Kind.MODEL, Kind.NOTICE]), st.just("")),
    st.builds(Slot, st.integers(0, MOST_NUMBER), names, st.just(Kind.ANSWER), names),
)
sealed = st.tuples(
    st.builds(
        lambda run, digest, slot, payload: (Envelope(run, digest, slot, len(payload)), payload),
        words("abAB01_-", 64), st.binary(min_size=32, max_size=32), slots, st.binary(min_size=1, max_size=200),
    )
).map(lambda one: one[0])  # fmt: skip


@given(sealed)
def test_what_is_sent_arrives_bit_for_bit(sent):
    place, payload = sent
    data = seal(place, payload, KEY)
    assert unseal(data, place, KEY.public) == payload
    assert len(data) == place.size


@given(sealed, st.data())
def test_any_change_of_any_byte_is_refused(sent, data):
    message = bytearray(seal(*sent, KEY))
    for position in data.draw(st.sets(st.integers(0, len(message) - 1), min_size=1, max_size=4)):
        message[position] ^= data.draw(st.integers(1, 255))
    refused(bytes(message), sent[0])


@given(slots)
def test_addresses_come_back_from_their_tokens(slot):
    assert Slot.of_token(slot.token, slot.site) == slot
    assert slot.checked() == slot


@pytest.mark.parametrize(
    "token", ["", "7", "m", "m07", "m-7", "m+7", "m7-x", "a7", "a7-", "a7-X", "n1.5", "x1", "m" + "9" * 11]
)
def test_other_tokens_are_no_addresses(token):
    assert Slot.of_token(token, "north") is None


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
    refused(b"SVM4" + noise[4:])
    refused(PLACE.header + noise[len(PLACE.header) :])


@given(sealed, sealed)
@settings(max_examples=50)
def test_a_message_for_another_place_is_refused(sent, wanted):
    if sent[0] != wanted[0]:
        refused(seal(*sent, KEY), wanted[0])


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
        ({"number": 11}, Refusal.WRONG_ROUND),
        ({"site": "south"}, Refusal.WRONG_SENDER),
        ({"kind": Kind.SUM}, Refusal.WRONG_KIND),
        ({"kind": Kind.NOTICE}, Refusal.TRUNCATED),  # it has no books
    ],
)
def test_each_field_has_a_refusal_of_its_own(fields, refusal):
    assert refused(changed(**fields)) is refusal


def test_a_wrong_shape_shows_as_a_wrong_size_or_length():
    assert refused(changed(payload=bytes(23))) is Refusal.TRUNCATED
    assert refused(changed(payload=bytes(25))) is Refusal.OVERSIZED
    body = bytearray(MESSAGE[:-64])
    body[16] = 2
    assert refused(signed(bytes(body))) is Refusal.WRONG_SHAPE


def test_a_magic_word_of_another_version_is_malformed():
    assert refused(signed(b"SVM1" + MESSAGE[4:-64])) is Refusal.MALFORMED


def test_another_key_is_a_forgery():
    assert refused(seal(PLACE, PAYLOAD, OTHER)) is Refusal.FORGED
    assert refused(MESSAGE, key=OTHER) is Refusal.FORGED


def test_a_signature_made_for_another_purpose_is_a_forgery():
    body = MESSAGE[:-64]
    assert refused(body + KEY.sign(body, SigningContext.AGREEMENT)) is Refusal.FORGED


def test_a_name_from_outside_is_shown_safely():
    body = MESSAGE[:52] + b"\x1b[2J\xff" + MESSAGE[57:-64]
    with pytest.raises(BadMessageError, match=r"got run='\\\\?x1b") as caught:
        unseal(signed(body), PLACE, KEY.public)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"payload": b""}, "1 to .* bytes of payload, got length=0"),
        ({"length": 5}, "a payload of 5 bytes, got bytes=24"),
        ({"digest": b"short"}, "a digest of 32 bytes"),
        ({"number": -1}, "a whole number"),
        ({"number": MOST_NUMBER + 1}, "a whole number"),
        ({"run": "a.b"}, "a run id"),
        ({"run": "a b"}, "a run id"),
        ({"run": "a*"}, "a run id"),
        ({"run": ""}, "a run id"),
        ({"run": "r" * 65}, "a run id"),
        ({"site": "North"}, "a site's name"),
        ({"site": "a.b"}, "a site's name"),
        ({"to": "south"}, "whom it is for with an answer, and only then"),
        ({"kind": Kind.ANSWER}, "whom it is for with an answer, and only then"),
    ],
)
def test_bad_places_are_never_sealed(fields, words):
    with pytest.raises(InputError, match=words):
        changed(**fields)


# -- what payloads hold -----------------------------------------------------------------------------------------------

numbers = st.floats(-1e10, 1e10)
sightings = st.builds(
    lambda k, digest, gone, left: Sighting(k, digest, gone or left, left),
    st.integers(0, 40), st.binary(min_size=32, max_size=32), st.booleans(), st.booleans(),
)  # fmt: skip


@given(arrays(np.float64, st.integers(1, 9), elements=numbers), st.lists(sightings, min_size=1, max_size=5))
def test_words_come_back_bit_for_bit(vector, testimony):
    said = ModelWords(vector, DIGEST, tuple(testimony))
    payload = said.to_bytes()
    assert len(payload) == words_size(len(testimony), len(vector))
    came = read_words(payload, 41, len(testimony), 1e12)
    assert came.vector.tobytes() == vector.tobytes()
    assert came.vector.flags.writeable
    assert (came.binding, came.testimony) == (DIGEST, tuple(testimony))


def said(vector, k=0):
    return (
        ModelWords(np.zeros(len(vector)), DIGEST, (Sighting(k),)).to_bytes()[: -8 * len(vector)]
        + np.array(vector).tobytes()
    )


@pytest.mark.parametrize(
    ("payload", "refusal"),
    [
        (said([1.0, np.nan]), Refusal.NOT_FINITE),
        (said([np.inf, 0.0]), Refusal.NOT_FINITE),
        (said([3.0, 4.0000001]), Refusal.TOO_LARGE),
        (said([1.7e308, -1.7e308]), Refusal.TOO_LARGE),
        (said([0.0, 0.0], k=5), Refusal.MALFORMED),
    ],
)
def test_words_that_were_not_agreed_on_are_refused(payload, refusal):
    with pytest.raises(BadMessageError) as caught:
        read_words(payload, 5, 1, 5.0)
    assert caught.value.refusal is refusal
    assert read_words(said([3.0, 4.0], k=4), 5, 1, 5.0).vector.tolist() == [3.0, 4.0]


@given(arrays(np.float64, 3, elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_a_norm_is_right_or_infinite(vector):
    exact = np.sqrt(np.sum(np.asarray(vector, dtype=np.longdouble) ** 2))
    np.testing.assert_allclose(np.float64(exact), norm_of(vector), rtol=1e-14)


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        (np.array([1.0, np.nan]), "finite numbers in a message, got not_finite=1"),
        (np.ones((2, 2)), "a vector of float64"),
        (np.ones(2, np.float32), "a vector of float64"),
    ],
)
def test_bad_words_are_never_sent(vector, words):
    with pytest.raises(InputError, match=words):
        ModelWords(vector, DIGEST, (Sighting(),)).to_bytes()


def test_notices_and_answers_come_back_as_they_were():
    for notice in (
        Notice(About.GONE, 12, 3),
        Notice(About.WAITING, 2**40),
        Notice(About.QUESTION, 1, 0, DIGEST, b"d" * 32),
    ):
        assert read_notice(notice.to_bytes()) == notice
    with pytest.raises(BadMessageError, match="expected a notice, got one about=9"):
        read_notice(b"\x09" + Notice(About.GONE, 1).to_bytes()[1:])
    for books in ((), (b"x" * BOOKS_BYTES,), (b"x" * BOOKS_BYTES, b"y" * BOOKS_BYTES)):
        heard = Heard(DIGEST, 7, bytes(32), books)
        assert read_answer(heard.to_bytes()) == heard
