"""Mask keys and seeds: standard X25519, one spelling, nobody else's key, and secrets that show nowhere."""

import copy
import hashlib
import hmac
import pickle
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from helpers.federations import agreement, masked_agreement, masked_members, members
from sottovoce.errors import InputError, PrivacyError
from sottovoce.federation.agreement import toml_file
from sottovoce.federation.agreement.exchange import MaskKey, Seed, hkdf
from sottovoce.federation.agreement.identity import PublicKey, SigningContext, SigningKey
from sottovoce.federation.site.journal import Journal, Owner
from sottovoce.noise.sampler import encode_fields

KEY, SEED = SigningKey.generate(), Seed.generate()
P = 2**255 - 19
# All points of small order of the curve and its twist, RFC 7748 and Bernstein's list.
SMALL = [0, 1, P - 1,
         325606250916557431795983626356110631294008115727848805560023387167927233504,
         39382357235489614581723060781553021112529911719440698176882885853963445705823]  # fmt: skip


def bare(raw):
    """A key as a bad coordinator could write it: without any check."""
    return MaskKey(raw, bytes(64))


# -- the standard schemes ---------------------------------------------------------------------------------------------


def test_secrets_are_those_of_rfc_7748():
    """Section 6.1: Bob's private key and Alice's public one."""
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    alice = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    seed = Seed.generate()
    seed.__dict__["_private"] = X25519PrivateKey.from_private_bytes(bob)
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert seed.secret_with(bare(alice)).hex() == shared


def test_both_ends_find_the_same_secret_and_nobody_else_does():
    seeds = [Seed.generate() for _ in range(3)]
    one, two, three = (seed.mask_key("berlin", KEY) for seed in seeds)
    assert seeds[0].secret_with(two) == seeds[1].secret_with(one)
    assert len({seeds[0].secret_with(two), seeds[0].secret_with(three), seeds[1].secret_with(three)}) == 3


def test_keys_are_derived_by_rfc_5869():
    """HKDF with SHA-256 and no salt, spelled out: extract, then one block of expand."""
    info = encode_fields("a", b"b", 3)
    extracted = hmac.digest(bytes(32), b"secret", hashlib.sha256)
    assert hkdf(b"secret", "a", b"b", 3) == hmac.digest(extracted, info + b"\x01", hashlib.sha256)


def test_noise_and_masks_have_keys_of_their_own_and_each_agreement_its_noise():
    made = [SEED.noise_key("aa"), SEED.noise_key("bb"), SEED.mask_key("berlin", KEY).raw, SEED.raw]
    made += [SEED._private.private_bytes_raw(), Seed.generate().noise_key("aa")]
    assert len(set(made)) == len(made)
    assert {len(key) for key in made} == {32}
    assert SEED.noise_key("aa") == Seed(SEED.raw).noise_key("aa")


# -- one spelling, and no weak keys -----------------------------------------------------------------------------------


@given(st.binary(min_size=32, max_size=32))
def test_mask_keys_have_one_spelling(seed):
    key = Seed(seed).mask_key("berlin", KEY)
    text = str(key)
    assert MaskKey.from_text(text) == MaskKey.from_text(f" {text}\n") == key
    head, raw, proof = text.split(":")
    odd = [text[:-1], text.upper(), f"{raw}:{proof}", f"ed25519:{raw}:{proof}", f"{head}:{raw}", f"{text}:", f"{head}:"]
    for other in (*odd, f"{head}:{proof}:{raw}", "ü" * 140):
        with pytest.raises(InputError, match="Expected a mask key such as x25519:"):
            MaskKey.from_text(other)


@pytest.mark.parametrize("number", SMALL)
def test_points_of_small_order_are_refused(number):
    with pytest.raises(InputError, match="with which all of them are zero"):
        bare(number.to_bytes(32, "little"))


@pytest.mark.parametrize("number", [P, P + 1, P + 9, 2**255 - 1, 2**255 + 9])
def test_another_spelling_of_a_number_is_refused(number):
    with pytest.raises(InputError, match="in its one spelling"):
        bare(number.to_bytes(32, "little"))


def other_half(raw):
    """The u-coordinate of the point plus the point (0, 0) of order two: 1/u. X25519 takes both for the same."""
    return pow(int.from_bytes(raw, "little"), -1, P).to_bytes(32, "little")


def test_keys_that_x25519_cannot_tell_apart_are_one_key():
    victim = SEED.mask_key("berlin", KEY)
    disguised = bare(other_half(victim.raw))
    third = X25519PrivateKey.generate()
    secret = third.exchange(X25519PublicKey.from_public_bytes(victim.raw))
    assert third.exchange(X25519PublicKey.from_public_bytes(disguised.raw)) == secret  # that is the danger
    assert disguised.raw != victim.raw
    assert disguised.point == victim.point
    points = {Seed.generate().mask_key("berlin", KEY).point for _ in range(50)}
    assert len(points) == 50


# -- nobody else's key ------------------------------------------------------------------------------------------------


def test_a_key_is_put_forward_by_its_site_alone():
    key = SEED.mask_key("berlin", KEY)
    assert key.is_of("berlin", KEY.public)
    assert not key.is_of("paris", KEY.public)
    assert not key.is_of("berlin", SigningKey.generate().public)
    assert not replace(key, raw=Seed.generate().mask_key("berlin", KEY).raw).is_of("berlin", KEY.public)
    assert SEED.is_of(key)
    assert not Seed.generate().is_of(key)
    other = replace(key, proof=KEY.sign(b"berlin\0" + key.raw, SigningContext.MESSAGE))
    assert not other.is_of("berlin", KEY.public)  # made for another purpose


def test_a_member_shows_only_what_it_has_signed():
    keys, _, sites = masked_members()
    with pytest.raises(InputError, match=r"a mask key that site berlin has signed with the key .* it has not"):
        replace(sites[0], mask_key=sites[1].mask_key)
    with pytest.raises(InputError, match="a mask key that site paris has signed"):
        replace(sites[1], mask_key=Seed.generate().mask_key("paris", keys["rome"]))


@pytest.mark.parametrize("disguise", [bytes, other_half], ids=["the same bytes", "another spelling of the point"])
def test_a_registered_copy_of_another_sites_key_is_refused(disguise):
    """Rome signs, with its own key and in its own name, that Berlin's key is its own."""
    keys, _, sites = masked_members()
    raw = disguise(sites[0].mask_key.raw)
    claimed = MaskKey(raw, keys["rome"].sign(b"rome\0" + raw, SigningContext.MASK_KEY))
    copied = (*sites[:2], replace(sites[2], mask_key=claimed))
    with pytest.raises(InputError, match=r"a key of its own for every site, got one key for berlin, rome.*site seed"):
        masked_agreement(copied)


def test_a_signing_key_is_no_mask_key():
    """Whichever of two sites it is, and even if the bytes happen to be a point."""
    keys, sites = members()
    key = Seed.generate().mask_key("berlin", keys["berlin"])
    odd = (replace(sites[0], mask_key=key), replace(sites[1], public_key=PublicKey(key.raw)), sites[2])
    with pytest.raises(InputError, match="got one key for"):
        agreement(odd)


def test_mask_keys_stand_in_the_agreement_and_change_it():
    a = masked_agreement()
    text = toml_file.dumps(a)
    assert all(f'mask_key = "{site.mask_key}"' in text for site in a.sites)
    assert toml_file.loads(text) == a
    keys, _, sites = masked_members()
    one = masked_agreement(sites, run="ab" * 16)
    other = replace(sites[0], mask_key=Seed.generate().mask_key("berlin", keys["berlin"]))
    assert masked_agreement((other, *sites[1:]), run="ab" * 16).digest() != one.digest()


# -- secrets stay secret ----------------------------------------------------------------------------------------------


def test_a_seed_shows_nowhere(tmp_path):
    assert SEED.raw.hex() not in f"{SEED!r} {SEED} {[SEED]}"
    assert str(SEED.raw) not in f"{SEED!r}"
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError, match="a seed that stays in its process"):
            take(SEED)
    SEED.save(tmp_path / "berlin.seed")
    assert (tmp_path / "berlin.seed").stat().st_mode & 0o777 == 0o600
    assert Seed.load(tmp_path / "berlin.seed").raw == SEED.raw
    with pytest.raises(InputError, match="a file that does not exist yet"):
        SEED.save(tmp_path / "berlin.seed")
    (tmp_path / "berlin.seed").chmod(0o640)
    with pytest.raises(PrivacyError, match="only its owner may read"):
        Seed.load(tmp_path / "berlin.seed")
    (tmp_path / "short").touch(mode=0o600)
    with pytest.raises(InputError, match=r"a seed file of 32 bytes, got .* bytes=0"):
        Seed.load(tmp_path / "short")


def test_seeds_come_from_the_system():
    assert len({Seed.generate().raw for _ in range(20)}) == 20
    with pytest.raises(InputError, match="a seed of 32 bytes, got bytes=31"):
        Seed(bytes(31))


def test_a_journal_keeps_the_seed_that_it_was_given(tmp_path):
    owner, path = Owner("run", "aa", "berlin", "software"), tmp_path / "journal"

    def opened(seed=None):
        return Journal.open(path, owner, lambda salt: salt.hex(), seed=seed)

    with opened(SEED) as journal:
        assert journal.seed.raw == SEED.raw
        assert journal.noise_key == SEED.noise_key("aa")
    opened().close()
    opened(Seed(SEED.raw)).close()
    with pytest.raises(InputError, match=r"Expected the seed that the run .* began with, got another"):
        opened(Seed.generate())
    with opened() as journal:
        journal.finish()
        with pytest.raises(PrivacyError, match="its seed and keys were deleted"):
            _ = journal.seed
    assert not any(SEED.raw in file.read_bytes() for file in tmp_path.glob("journal*"))
