"""Books that cannot be set back: every process is told what others have seen of its ledger, and lacks nothing of it.

Ledgers are put back from copies of every age, or made anew in another folder, in both ways of speaking, before an
honest relay and one that forgets. Whatever happens, a round has one set of words for ever, and what was spent counts.
"""

import asyncio
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import COMMON
from helpers.network_worlds import LyingWorld, play
from helpers.site_runs import Backup, Federation, dies
from sottovoce.algorithms import IPADMM
from sottovoce.cli import main
from sottovoce.cli.exit_codes import code_of
from sottovoce.errors import BudgetError
from sottovoce.federation.agreement.agreement import LostNeighbour, new_run
from sottovoce.federation.agreement.exchange import Seed
from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.federation.site.caps import check_raises, claim, owner_path, raise_cap
from sottovoce.federation.site.commitment import Source
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.heads import HANDED, Books, Heads, Sealing, catch_up, heard_path, keep_heard
from sottovoce.federation.site.letters import read_sum
from sottovoce.federation.site.stops import BehindError, DamagedError, LostNeighbourError, UsedTwiceError
from sottovoce.federation.transport.wire import (
    BOOKS_BYTES,
    NO_BOOKS,
    Envelope,
    Kind,
    books_of,
    digest_of,
    unseal,
)
from sottovoce.privacy import Gaussian
from sottovoce.privacy.books.ledger import Ledger

SIZES, NAMES, ROUNDS = (12, 9, 15), ("berlin", "oslo", "paris"), 5
STOP = LostNeighbour(policy="stop", wait_seconds=1.5)
WAYS = ["own noise", "masked sums"]


def made(way="own noise", rounds=ROUNDS, epsilon=1.5, **changes):
    if way == "own noise":
        algorithm = IPADMM(**(COMMON | {"rounds": rounds, "epsilon": epsilon}), local_steps=2)
    else:
        algorithm = sv.MaskedNewton(rounds=rounds, epsilon=epsilon, delta=1e-5, colluding=1, least_sites=3)
    return Federation(sv.graphs.complete(3), SIZES, algorithm, lost_neighbour=STOP, **changes)


@pytest.fixture(params=WAYS)
def federation(request):
    with made(request.param) as federation:
        yield federation


def next_run(federation):
    """The same sites agree on another run. Ledgers and what was heard of others stay; journals are of a run."""
    for name in federation.names:
        for file in federation.folder.glob(f"{name}.journal*"):
            file.unlink()
    sites = federation.agreement.sites
    if federation.masked:
        federation.seeds = {name: Seed.generate() for name in federation.names}
        sites = tuple(replace(s, mask_key=federation.seeds[s.name].mask_key(s.name, federation.keys[s.name]))
                      for s in sites)  # fmt: skip
    federation.agreement = replace(federation.agreement, run=new_run(), sites=sites)


def words_of(world, name="berlin"):
    """By round, the digests of all that a site has ever put: of words, whatever books came with them."""
    found = {}
    for slot, data in world.sent:
        if slot.site == name and slot.kind in (Kind.MODEL, Kind.SUM):
            found.setdefault(slot.number, set()).add(digest_of(data))
    return found


def under_masks(federation, world, name="berlin"):
    """How many different words were ever put in each context, that is under each mask."""
    a, found = federation.agreement, {}
    for slot, data in world.sent:
        if (slot.site, slot.kind) == (name, Kind.SUM):
            payload = unseal(data, Envelope(a.run, a.digest(), slot, format_of(a).payload(slot.number)),
                             federation.keys[name].public)  # fmt: skip
            said = read_sum(payload, slot.number, len(a.sites))
            found.setdefault(said.heading.context, set()).add(said.words.tobytes())
    return Counter(len(words) for words in found.values())


def total(federation, name="berlin"):
    with federation.ledger(name) as ledger:
        return ledger.total()


def caught_up(federation, name="berlin"):
    with federation.ledger(name) as ledger:
        return catch_up(ledger, federation.keys[name])


async def stopping(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# -- within a run -----------------------------------------------------------------------------------------------------


AGES = [(1, "reserved"), (1, "bound"), (2, "checkpointed"), (3, "in outbox"), (4, "absorbed")]


# With all of it on the relay, a site comes back from any age in the same way.
@pytest.mark.parametrize(
    ("age", "forgets"),
    [(age, True) for age in AGES]
    + [(age, False) if age in AGES[1:4:2] else pytest.param(age, False, marks=pytest.mark.slow) for age in AGES],
)
def test_a_copy_of_any_age_says_the_same_words_or_none(federation, age, forgets):
    """The folder is put back to that moment after round 4 was said; the relay has kept all of it, or shows none."""
    at, point = age
    world, restored = LyingWorld(), False

    def hides(reader, slot, data):
        return None if restored and forgets and reader == "berlin" == slot.site and slot.kind in (
            Kind.MODEL, Kind.SUM) else data  # fmt: skip

    world.shows = hides

    async def scene():
        nonlocal restored
        others = [asyncio.ensure_future(federation.site(name, world)) for name in NAMES[1:]]
        await dies(federation, world, point, at)
        backup = Backup(federation)
        await dies(federation, world, "collected", 4)
        await asyncio.sleep(1.0)  # the others hear what it has said
        backup.restore()
        restored = True
        try:
            return await federation.site("berlin", world)
        except UsedTwiceError as error:
            return error
        finally:
            await stopping(others)

    end = play(scene())
    assert {len(words) for words in words_of(world).values()} == {1}
    assert set(under_masks(federation, world)) <= {1}
    if not forgets:
        assert end.rounds == ROUNDS
        with federation.ledger("berlin") as ledger:
            assert [r.round for r in ledger.reservations()] == list(range(1, ROUNDS + 1))
    elif at < 4:
        # It is told that it has said more than it knows of, and what that has cost is kept for it to book.
        assert isinstance(end, UsedTwiceError)
        assert "has received round=4" in str(end)
        before = total(federation)
        assert len(caught_up(federation)) == 1
        with federation.ledger("berlin") as ledger:
            assert ledger.account().records[0].rounds == 4
            assert ledger.total() > before


@pytest.mark.parametrize("end", ["oslo answers", "all answer with nothing"])
def test_one_neighbour_that_tells_is_enough_to_stop(federation, end):
    """The ledger alone is put back, in a new run: of three sites one is honest, or none."""
    world = LyingWorld()
    play(federation.finish(world))
    Backup(federation)
    next_run(federation)
    for file in federation.folder.glob("berlin.ledger*"):
        file.unlink()
    silent = NAMES[2:] if end == "oslo answers" else NAMES[1:]
    for name in silent:
        (federation.folder / f"heads-{name}").unlink()
    ends = play(federation.all(LyingWorld()))
    if end == "oslo answers":
        assert isinstance(ends["berlin"], BehindError)
        assert "a report of site='oslo' on 1 run that it lacks" in str(ends["berlin"])
        assert code_of(ends["berlin"]) == 13
    else:
        assert ends["berlin"].rounds == ROUNDS  # what nobody tells, nobody knows


# -- across runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age", [0, 1, 3, 5])
def test_a_ledger_of_any_age_is_refused_in_the_next_run_and_can_be_caught_up(federation, age):
    """A whole run, then another one with the ledger as it was after `age` rounds of the first."""
    world = LyingWorld()

    async def first():
        others = [asyncio.ensure_future(federation.site(name, world)) for name in NAMES[1:]]
        if age == 0:
            backup = Backup(federation)
        else:
            await dies(federation, world, "checkpointed", age)
            backup = Backup(federation)
        await federation.site("berlin", world)
        await asyncio.gather(*others)
        return backup

    backup = play(first())
    whole = total(federation)
    next_run(federation)
    backup.restore()
    for file in federation.folder.glob("berlin.journal*"):
        file.unlink()
    second = LyingWorld()
    if age == ROUNDS:
        # The copy lacks nothing that costs: it goes on, whatever its last entry is.
        assert all(end.rounds == ROUNDS for end in play(federation.finish(second)).values())
        return
    ends = play(federation.all(second))
    assert isinstance(ends["berlin"], BehindError), ends
    assert all(isinstance(ends[name], LostNeighbourError) for name in NAMES[1:])
    assert words_of(second) == {}
    with federation.ledger("berlin") as ledger:
        assert len(ledger.reservations()) == age
    assert len(caught_up(federation)) == 1
    assert total(federation) == pytest.approx(whole, rel=1e-9)
    assert not heard_path(federation.folder / "berlin.ledger").exists()
    ends = play(federation.finish(second))
    assert all(end.rounds == ROUNDS for end in ends.values())
    # The two runs count, and others now hold the newer books: nothing is lacking any more.
    assert total(federation) > 1.3 * whole
    with federation.ledger("berlin") as ledger, Heads(federation.folder / "heads-oslo") as heads:
        books = Books(ledger, federation.keys["berlin"], rows_digest_of(federation))
        told = heads.last(federation.keys["berlin"].public, books.data_set)
        assert len(told) == 2
        assert books.lacking({"oslo": told}) is None


def rows_digest_of(federation, name="berlin"):
    from sottovoce.federation.site.commitment import rows_digest

    return rows_digest(federation.sites([name]))


def test_a_second_ledger_for_the_same_rows_is_found_and_counts_both(federation):
    """Another folder, with runs of its own among others: the books of both are one after it has caught up."""
    play(federation.finish(LyingWorld()))
    first = total(federation)
    next_run(federation)
    for file in federation.folder.glob("berlin.ledger*"):
        shutil.move(file, federation.folder / f"moved-{file.name}")
    with federation.ledger("berlin") as ledger:
        for k in range(1, 6):
            ledger.reserve("elsewhere", k, Gaussian(30.0), 1e-40)
        alone = ledger.total()
    ends = play(federation.all(LyingWorld()))
    assert isinstance(ends["berlin"], BehindError)
    assert len(caught_up(federation)) == 1
    assert total(federation) > max(first, alone)
    world = LyingWorld()
    play(federation.finish(world))
    # And the first one, if it is used again, is now the one that is behind: by this run, and by what is elsewhere.
    for file in federation.folder.glob("berlin.ledger*"):
        file.unlink()
    for file in federation.folder.glob("moved-berlin.ledger*"):
        shutil.move(file, federation.folder / file.name.removeprefix("moved-"))
    whole = total(federation)
    next_run(federation)
    ends = play(federation.all(LyingWorld()))
    assert isinstance(ends["berlin"], BehindError)
    assert len(caught_up(federation)) == 2
    assert total(federation) > whole


def test_what_others_have_seen_may_leave_no_room_for_the_next_run(federation):
    play(federation.finish(LyingWorld()))
    spent = total(federation)
    next_run(federation)
    for file in federation.folder.glob("berlin.ledger*"):
        file.unlink()
    federation.cap = 1.1 * spent  # one run alone would fit
    assert isinstance(play(federation.all(LyingWorld()))["berlin"], BehindError)
    caught_up(federation)
    with pytest.raises(BudgetError, match=f"of {ROUNDS} rounds"):
        play(federation.site("berlin", LyingWorld()))


def test_another_data_set_of_the_same_site_has_books_of_its_own(federation):
    play(federation.finish(LyingWorld()))
    next_run(federation)
    for file in federation.folder.glob("berlin.ledger*"):
        file.unlink()
    federation.features[0] = federation.features[0] * 0.5
    if federation.agreement.sites[0].data_commitment is not None:
        federation.commit_rows()
    assert play(federation.finish(LyingWorld()))["berlin"].rounds == ROUNDS


class OtherFolder(Federation):
    """Another run of the same sites, from other state folders: berlin with the same rows, the others with rows of
    another file. What they hear of others they keep in one place.
    """

    def __init__(self, first):
        self.__dict__ |= first.__dict__
        next_run(self)

    def ledger(self, name, cap=None):
        path = self.folder / f"other-{name}.ledger"
        return Ledger.open(path) if path.exists() else Ledger.create(path, name, cap or self.cap, 1e-3)

    def journal(self, name):
        return super().journal(name, f"other-{name}.journal")

    def seat(self, name, stack, noise=None, **changes):
        return super().seat(
            name, stack, noise, **({} if name == "berlin" else {"source": Source(bytes(32))}), **changes
        )


def test_two_folders_that_begin_at_the_same_time_are_found_out_at_their_end(federation):
    """Neither can know of the other when it begins. Both together would pass the cap that each keeps to."""
    alone = made("masked sums" if federation.masked else "own noise")
    with alone:
        play(alone.finish(LyingWorld()))
        federation.cap = 1.05 * total(alone)
    other, worlds = OtherFolder(federation), (LyingWorld(), LyingWorld())

    def waits(reader, slot, data):
        """Nobody hears the last round but one before all have spoken for it in both runs: on a busy machine, one run
        could end before its neighbours have heard enough of the other.
        """
        late = slot.number == ROUNDS - 1 and slot.kind in (Kind.MODEL, Kind.SUM) and slot.site != reader
        return None if late and not all(len(spoken(world)) == len(NAMES) for world in worlds) else data

    def spoken(world):
        said = {slot for slot, _ in world.sent if slot.kind in (Kind.MODEL, Kind.SUM)}
        return {slot.site for slot in said if slot.number == ROUNDS - 1}

    for world in worlds:
        world.shows = waits

    async def scene():
        return await asyncio.gather(federation.all(worlds[0]), other.all(worlds[1]))

    for ends in play(scene()):
        assert isinstance(ends["berlin"], BehindError), ends
        assert "on 1 run that it lacks" in str(ends["berlin"])
        assert all(isinstance(ends[name], LostNeighbourError) for name in NAMES[1:])
    for world in worlds:  # the last words were not said, and not paid for
        assert set(words_of(world)) == set(range(1, ROUNDS))
    for one in (federation, other):
        assert len({record.run for record in caught_up(one)}) == 1  # neighbours may have heard of different rounds
        assert total(one) > federation.cap
        with pytest.raises(BudgetError):
            play(one.site("berlin", LyingWorld()))


def test_a_ledger_that_is_full_hears_of_another_before_the_run_is_refused(federation, monkeypatch):
    play(federation.finish(LyingWorld()))
    other = OtherFolder(federation)
    with monkeypatch.context() as patch:
        patch.setattr(Heads, "last", lambda *_: ())  # as if both had begun, and ended, at the same time
        play(other.finish(LyingWorld()))
    spent = total(federation)
    next_run(federation)
    federation.cap, whole = 1.1 * spent, Ledger.check_rounds

    def full(ledger, run, costs, **options):
        return whole(ledger, run, costs * (40 if "berlin" in run else 1), **options)

    monkeypatch.setattr(Ledger, "check_rounds", full)
    with pytest.raises(BudgetError) as refused:
        play(federation.site("berlin", LyingWorld()))
    assert refused.value.__notes__[0].startswith("Not asked whether more was spent on these rows from another folder: "
                                                 "oslo, paris.")  # fmt: skip
    world = LyingWorld()
    ends = play(federation.all(world))
    assert isinstance(ends["berlin"], BehindError), ends
    assert code_of(ends["berlin"]) == 13
    assert words_of(world) == {}
    assert len(caught_up(federation)) == 1
    assert total(federation) > 1.3 * spent
    ends = play(federation.all(LyingWorld()))  # now they know nothing more
    assert isinstance(ends["berlin"], BudgetError)
    assert not hasattr(ends["berlin"], "__notes__")


# -- bad neighbours, and a bad relay ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", ["noise", "another's", "of another data set", "changed"])
def test_a_neighbour_cannot_make_up_books(federation, lie, monkeypatch):
    """What was not said by the site itself, of these rows, counts for nothing: nobody is stopped by it."""
    play(federation.finish(LyingWorld()))
    key, other = federation.keys["berlin"], SigningKey.generate()
    with federation.ledger("berlin") as ledger:
        data = rows_digest_of(federation)
        ledger.reserve("never", 1, Gaussian(9.0), 1e-40)  # so that it would lack something
        told = {
            "noise": os.urandom(BOOKS_BYTES),
            "another's": Books(ledger, other, data).statement(),
            "of another data set": Books(ledger, key, bytes(32)).statement(),
            "changed": _flipped(Books(ledger, key, data).statement()),
        }[lie]
    for file in federation.folder.glob("berlin.ledger*"):
        file.unlink()
    monkeypatch.setattr(Heads, "last", lambda *_: (told,))
    next_run(federation)
    assert play(federation.finish(LyingWorld()))["berlin"].rounds == ROUNDS


def _flipped(statement, at=-1):
    changed = bytearray(statement)
    changed[at] ^= 1
    return bytes(changed)


def test_old_answers_do_not_count_so_a_relay_can_only_stop_a_site(federation):
    """The relay shows what oslo answered before it had heard anything: the nonce is another's."""
    first = LyingWorld()
    play(federation.finish(first))
    old = {(slot.site, slot.to): data for slot, data in first.sent if slot.kind is Kind.ANSWER}
    next_run(federation)
    for file in federation.folder.glob("berlin.ledger*"):
        file.unlink()
    world = LyingWorld(lambda reader, slot, data: old.get((slot.site, slot.to), data)
                       if (reader, slot.kind) == ("berlin", Kind.ANSWER) and data else data)  # fmt: skip
    ends = play(federation.all(world))
    assert isinstance(ends["berlin"], LostNeighbourError)
    assert words_of(world) == {}


# -- what a statement tells, and to whom ------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "rows.ledger", "hmac-sha256:secret", 5.0, 1e-5) as ledger:
        yield ledger


def test_a_statement_is_always_as_long_and_opens_for_its_site_alone(ledger):
    key, data = SigningKey.generate(), hashlib.sha256(b"rows").digest()
    books = Books(ledger, key, data)
    for i in range(40):
        ledger.reserve(f"run {i}", 1, Gaussian(50.0 + i), 1e-40)
        statement = books.statement()
        assert len(statement) == BOOKS_BYTES
        opened = Sealing(key).open(statement)
        assert (opened.height, opened.head.hex()) == (ledger.height, ledger.head.hash)
    assert statement == books.statement()  # the same books, the same bytes
    assert Sealing(SigningKey.generate()).open(statement) is None
    assert Sealing(key).open(NO_BOOKS) is None
    assert Sealing(key).open(statement[:-1]) is None
    for at in (0, 31, 32, 39, 40, 60, 300, -1):
        assert Sealing(key).open(_flipped(statement, at)) is None


def test_a_statement_says_nothing_that_can_be_guessed(ledger):
    """Neither the head hash, nor the rows, nor what was spent is in it; who guesses rows has nothing to try with."""
    key, rows = SigningKey.generate(), b"age,ill\n30,yes\n"
    data = hashlib.sha256(rows).digest()
    statements, ends = [], b""
    for i in range(60):
        ledger.reserve("run", i + 1, Gaussian(200.0), 1e-40)
        statement = Books(ledger, key, data).statement()
        assert bytes.fromhex(ledger.head.hash) not in statement
        assert data not in statement
        statements.append(statement)
        ends += statement[40:]
    assert len({s[:32] for s in statements}) == 1  # the same rows: this, and the number of entries, may be seen
    assert [int.from_bytes(s[32:40], "little") for s in statements] == list(range(1, 61))
    counts = np.bincount(np.frombuffer(ends, np.uint8), minlength=256)
    expected = len(ends) / 256
    chi = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi - 255) < 6 * np.sqrt(2 * 255)
    names = {Books(ledger, SigningKey.generate(), data).data_set for _ in range(5)}
    assert len(names) == 5  # of the same file at another site: nobody can tell
    assert Books(ledger, key, hashlib.sha256(rows + b"\n").digest()).data_set != statements[0][:32]


def test_every_message_of_a_run_carries_its_senders_books(federation):
    world = LyingWorld()
    play(federation.finish(world))
    for name in NAMES:
        said = {slot.number: data for slot, data in world.sent if slot.site == name and slot.kind in (
            Kind.MODEL, Kind.SUM)}  # fmt: skip
        opened = [Sealing(federation.keys[name]).open(books_of(said[k])) for k in range(1, ROUNDS + 1)]
        # Reserve and bind are an entry each; a message is sealed between the two.
        assert [o.height for o in opened] == [2 * k - 1 for k in range(1, ROUNDS + 1)]
        assert [o.account.records[0].rounds for o in opened] == list(range(1, ROUNDS + 1))


# -- what is kept of others -------------------------------------------------------------------------------------------


def statement(data_set=b"d" * 32, height=1, fill=b"x"):
    return data_set + height.to_bytes(8, "little") + fill * (BOOKS_BYTES - 40)


def test_heads_are_kept_by_run_and_those_with_most_entries_are_handed_out(tmp_path):
    one, other = SigningKey.generate().public, SigningKey.generate().public
    with Heads(tmp_path / "heads") as heads:
        for i, height in enumerate((4, 9, 7)):
            heads.hear(one, f"run {i}", 1, statement(height=height - 1))
            heads.hear(one, f"run {i}", 2, statement(height=height))
            heads.hear(one, f"run {i}", 1, statement(height=99))  # an earlier round, heard once more
        heads.hear(one, "another data set", 1, statement(b"e" * 32, 50))
        heads.hear(other, "run 0", 1, statement(height=60))
        heads.hear(one, "says nothing", 5, NO_BOOKS)
        assert heads.last(one, b"d" * 32) == (statement(height=9), statement(height=7))
    with Heads(tmp_path / "heads") as heads:
        heads.hear(one, "run 1", 2, statement(height=98))  # heard again after a restart
        heads.hear(one, "run 0", 3, statement(height=2**64 - 1))
        assert heads.last(one, b"d" * 32) == (statement(height=2**64 - 1), statement(height=9))
        assert heads.last(other, b"d" * 32) == (statement(height=60),)
        assert heads.last(other, b"f" * 32) == ()
    assert HANDED == 2


def test_two_copies_that_are_used_at_the_same_time_find_each_other(tmp_path):
    """Each speaks in a run of its own, and both are heard by one neighbour: whichever starts next lacks the other."""
    key, data = SigningKey.generate(), bytes(32)
    with Ledger.create(tmp_path / "one.ledger", "rows", 5.0, 1e-5) as ledger:
        ledger.reserve("before", 1, Gaussian(50.0), 1e-40)
    for end in ("ledger", "ledger.head"):
        shutil.copy(tmp_path / f"one.{end}", tmp_path / f"two.{end}")
    with (
        Ledger.open(tmp_path / "one.ledger") as one,
        Ledger.open(tmp_path / "two.ledger") as two,
        Heads(tmp_path / "heads") as heads,
    ):
        books = {"first": Books(one, key, data), "second": Books(two, key, data)}
        for k in range(1, 8):  # by turns, the second one is ahead in entries from the third round on
            for run, ledger in (("first", one), ("second", two)):
                if run == "second" or k < 3:
                    ledger.reserve(run, k, Gaussian(60.0), 1e-40)
                    heads.hear(key.public, run, k, books[run].statement())
        told = {"oslo": heads.last(key.public, books["first"].data_set)}
        assert isinstance(books["first"].lacking(told), BehindError)
        assert isinstance(books["second"].lacking(told), BehindError)
        for ledger, own in ((one, books["first"]), (two, books["second"])):
            keep_heard(ledger.path, told["oslo"])
            catch_up(ledger, key)
            assert own.lacking(told) is None
        assert one.total() == pytest.approx(two.total(), rel=1e-9)


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "heads").write_bytes(b"no database" * 100)
    with pytest.raises(DamagedError, match="what others say of their books"):
        Heads(tmp_path / "heads")


WRITER = """
import sys
from sottovoce.federation.agreement.identity import PublicKey
from sottovoce.federation.site.heads import Heads
heads, member = Heads(sys.argv[1]), PublicKey(bytes(32))
for k in range(1, 10**6):
    heads.hear(member, "run", k, b"d" * 32 + k.to_bytes(8, "little") + bytes(660))
    heads.flush()
    print(k, flush=True)
"""


def test_what_was_flushed_survives_a_kill_at_any_time(tmp_path):
    from sottovoce.federation.agreement.identity import PublicKey

    r, place, member = random.Random(4), tmp_path / "heads", PublicKey(bytes(32))
    last = 0
    for _ in range(6):
        if place.exists():
            place.unlink()
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(place)], stdout=subprocess.PIPE, text=True)
        try:
            told = int(process.stdout.readline())
            for _ in range(r.randrange(1, 30)):
                told = int(process.stdout.readline())
        finally:
            os.kill(process.pid, signal.SIGKILL)
            rest = process.stdout.read().split()
            process.wait()
            process.stdout.close()
        told = int(rest[-1]) if rest else told
        with Heads(place) as heads:
            (found,) = heads.last(member, b"d" * 32)
        height = int.from_bytes(found[32:40], "little")
        assert told <= height <= told + 1
        last = max(last, height)
    assert last > 10


# -- catching up, by command ------------------------------------------------------------------------------------------


@pytest.fixture
def behind(tmp_path, ledger):
    """A ledger, its key, and what others have seen of a newer one."""
    key, data = SigningKey.generate(), bytes(32)
    key.save(tmp_path / "signing.pem")
    with Ledger.create(tmp_path / "newer.ledger", "other", 5.0, 1e-5) as newer:
        for k in range(1, 8):
            newer.reserve("run", k, Gaussian(15.0), 1e-40)
        newest = Books(newer, key, data).statement()
        spent = newer.total()
    refused = Books(ledger, key, data).lacking({"oslo": (newest,)})
    assert isinstance(refused, BehindError)
    ledger.close()
    return Path(ledger.path), tmp_path / "signing.pem", spent


def test_the_command_books_what_others_have_seen(behind, capsys):
    path, key, spent = behind
    assert main(["ledger", "catch-up", str(path), "--key", str(key)]) == 0
    out = capsys.readouterr().out
    assert "what 1 run(s) had spent" in out
    with Ledger.open(path) as ledger:
        assert ledger.total() == pytest.approx(spent, rel=1e-9)
    assert main(["ledger", "catch-up", str(path), "--key", str(key)]) == 6
    assert "run that first" in capsys.readouterr().err
    assert main(["ledger", "show", str(path)]) == 0
    assert "Caught up with what others had seen of 1 run(s)" in " ".join(capsys.readouterr().out.split())


def test_catching_up_again_after_a_crash_books_nothing_more(behind, monkeypatch):
    path, key, spent = behind

    def crash(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, Ledger.open(path) as ledger:
        patch.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            catch_up(ledger, SigningKey.load(key))
    assert main(["ledger", "catch-up", str(path), "--key", str(key)]) == 0
    with Ledger.open(path) as ledger:
        assert ledger.total() == pytest.approx(spent, rel=1e-9)
        assert ledger.head.entries == 1


def test_another_key_opens_nothing_and_nothing_is_thrown_away(behind, tmp_path, capsys):
    path, _, _ = behind
    SigningKey.generate().save(tmp_path / "other.pem")
    assert main(["ledger", "catch-up", str(path), "--key", str(tmp_path / "other.pem")]) == 6
    assert "Give the key that the runs were signed with" in " ".join(capsys.readouterr().err.split())
    assert heard_path(path).exists()


def test_what_was_heard_before_is_not_forgotten(behind):
    path, _, _ = behind
    before = heard_path(path).read_bytes()
    keep_heard(path, [before, statement()])
    assert heard_path(path).read_bytes() == before + statement()


# -- raising the cap, by command --------------------------------------------------------------------------------------


def test_a_cap_is_raised_by_the_sites_key_and_everyone_can_see_it(tmp_path, ledger, capsys):
    key = SigningKey.generate()
    key.save(tmp_path / "signing.pem")
    ledger.reserve("run", 1, Gaussian(20.0), 1e-40)
    ledger.close()
    command = ["ledger", "raise-cap", str(ledger.path), "--key", str(tmp_path / "signing.pem"), "--epsilon"]
    other, before = SigningKey.generate(), ledger.path.read_bytes()
    assert main([*command, "7"]) == 2
    assert "rows.ledger.key', got no such file" in capsys.readouterr().err
    with Ledger.open(ledger.path) as opened:  # as every run does
        claim(opened, other.public)
    assert main([*command, "7"]) == 2
    assert f"Expected the key {other.public.fingerprint} of the site" in capsys.readouterr().err
    assert ledger.path.read_bytes() == before
    with Ledger.open(ledger.path) as opened:
        assert (opened.head.entries, opened.raises()) == (1, ())
        claim(opened, key.public)
    assert main([*command, "7"]) == 0
    assert main([*command, "6"]) == 2
    assert "above 7.0" in capsys.readouterr().err
    assert main(["ledger", "show", str(ledger.path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "of 7, at delta" in shown
    assert f"signed by {key.public}" in shown
    with Ledger.open(ledger.path) as again:
        check_raises(again, key.public)
        with pytest.raises(DamagedError, match="without a signature of that key"):
            claim(again, other.public)
        assert str(key.public) in owner_path(ledger.path).read_text()


def test_a_raise_that_was_signed_for_another_place_is_found(tmp_path, ledger):
    """The signature of a raise in one ledger does not hold in another, nor behind another entry."""
    key = SigningKey.generate()
    claim(ledger, key.public)
    raised = raise_cap(ledger, 6.0, key)
    with Ledger.create(tmp_path / "other.ledger", "other", 5.0, 1e-5) as other:
        other._chain.append("", 0, "cap", {"epsilon": 6.0, "signer": raised.signer, "signature": raised.signature})
    with Ledger.open(tmp_path / "other.ledger") as other, pytest.raises(DamagedError, match="entry=1"):
        check_raises(other, key.public)
