"""Masked sums over a relay in bad hands, alone or with a member. Whatever they do: no sum opens that was not paid for,
none opens twice, and whoever stops says what did not fit.
"""

import asyncio
import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from helpers.network_worlds import LyingWorld, play
from helpers.site_runs import FIVE, Backup, Died, Federation, dies, dying
from sottovoce.federation.agreement.agreement import LostNeighbour, new_run
from sottovoce.federation.site.events import Refused
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.letters import NOTICE_BYTES, About, Heard, Notice, read_notice, read_sum
from sottovoce.federation.site.mail import Pace
from sottovoce.federation.site.runner import Finished
from sottovoce.federation.site.seat import digest
from sottovoce.federation.site.stops import ForkedError, LeftBehindError, LostNeighbourError, SpoiledError
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.transport.wire import BadMessageError, Envelope, Kind, Slot, seal, unseal

SIZES = (30, 200, 17, 80, 25)
WAIT = 0.8
PACE = Pace(slice=0.13, server=20.0)
ROUNDS = 4


def many(n, least, spare, wait):
    """n sites, of which so many may be lost."""
    algorithm = sv.MaskedNewton(rounds=ROUNDS, epsilon=1.5, delta=1e-5, colluding=1, least_sites=least, spare=spare)
    lost = LostNeighbour(policy="go-on", wait_seconds=wait, go_on_after_round=0)
    names = tuple(f"site-{i}" for i in range(n))
    return Federation(sv.graphs.complete(n), (20,) * n, algorithm, names=names, lost_neighbour=lost)


def made(policy="stop", wait=WAIT):
    lossy = policy == "go-on"
    algorithm = sv.MaskedNewton(rounds=ROUNDS, epsilon=1.5, delta=1e-5, colluding=1, least_sites=4 if lossy else 5,
                                spare=2 if lossy else 0)  # fmt: skip
    lost = LostNeighbour(policy=policy, wait_seconds=wait, go_on_after_round=0 if lossy else None)
    return Federation(sv.graphs.complete(5), SIZES, algorithm, lost_neighbour=lost)


class Refusals(Watcher):
    """What was refused, by sender."""

    def __init__(self):
        self.seen = defaultdict(set)

    def tell(self, event):
        if isinstance(event, Refused):
            self.seen[event.sender].add(event.reason)


def opened(a, name, k, data):
    """What a message for a sum holds, whichever release it is for."""
    for release in range(k, max(k - 5, 0), -1):
        place = Envelope(a.run, a.digest(), Slot(k, name, Kind.SUM), format_of(a).payload(release))
        try:
            return place, read_sum(unseal(data, place, a.member(name).public_key), k, len(a.sites))
        except BadMessageError:
            continue
    raise AssertionError


def expect_paid(federation, world, liars=()):
    """What those who look on can open, of all that was ever said: of every turn one sum at most, over u sites or more,
    and every message of an honest site is the one that its ledger has booked for that number.
    """
    a, contexts = federation.agreement, defaultdict(dict)
    for slot, data in world.sent:
        if slot.kind is Kind.SUM and not federation.is_end(slot, data):
            words = opened(a, slot.site, slot.number, data)[1]
            contexts[words.heading.turn, words.heading.context][slot.site] = words.words
    honest = [name for name in federation.names if name not in liars]
    for name in honest:
        said = {(slot.number, digest(data)) for slot, data in world.sent
                if (slot.site, slot.kind) == (name, Kind.SUM) and not federation.is_end(slot, data)}  # fmt: skip
        with federation.ledger(name) as ledger:
            booked = {r.round: r.message for r in ledger.reservations()}
        assert len({k for k, _ in said}) == len(said)
        assert all(booked[k] == message for k, message in said)
        assert len(booked) <= ROUNDS + federation.algorithm.spare
    least = federation.algorithm.least_sites - len(liars)
    open_sums = defaultdict(int)
    for (turn, _), said in contexts.items():
        if len([name for name in said if name in honest]) >= least:
            open_sums[turn] += 1
    assert all(times == 1 for times in open_sums.values()), open_sums
    return set(open_sums)


def run(federation, world, **options):
    return play(federation.all(world, pace=PACE, **options))


def is_vote(slot):
    """A notice behind the first, which is the question that every process asks."""
    return slot.kind is Kind.NOTICE and slot.number > 1


# -- a relay alone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (lambda world, slot, _data: world.post._held.get(slot._replace(number=2)), "wrong round"),
        (lambda _world, _slot, data: data[:-1] + bytes([data[-1] ^ 1]), "forged"),
        (lambda world, slot, _data: world.post._held.get(slot._replace(site="rome")), "wrong sender"),
    ],
)
def test_old_rounds_changed_bytes_and_others_words_count_as_silence(shown, reason):
    with made() as federation:
        world, watcher = LyingWorld(), Refusals()

        def shows(reader, slot, data):
            bad = data is not None and reader != "wien" and (slot.site, slot.number, slot.kind) == ("wien", 3, Kind.SUM)
            return shown(world, slot, data) if bad else data

        world.shows = shows
        ends = run(federation, world, watcher=watcher)
        assert all(isinstance(end, LostNeighbourError) for name, end in ends.items() if name != "wien"), ends
        assert reason in watcher.seen["wien"]
        assert "the messages of wien in round=3" in str(ends["berlin"])
        assert expect_paid(federation, world) == {(1, 0), (2, 0), (3, 0)}  # the third was said, and paid for


def test_words_of_another_run_count_as_silence():
    """The same keys, rows and settings under another agreement: what was said there is of no use here."""
    with made() as federation:
        first, elsewhere = federation.agreement, LyingWorld()
        federation.agreement = replace(first, run=new_run())
        play(federation.finish(elsewhere))
        for file in federation.folder.iterdir():
            file.unlink()
        federation.agreement = first
        world, watcher = LyingWorld(), Refusals()

        def shows(reader, slot, data):
            swap = data is not None and reader != slot.site == "wien" and slot.kind is Kind.SUM
            return elsewhere.post._held[slot] if swap else data

        world.shows = shows
        ends = run(federation, world, watcher=watcher)
        assert all(isinstance(ends[name], LostNeighbourError) for name in FIVE[:4])
        assert "wrong run" in watcher.seen["wien"]
        expect_paid(federation, world)


def test_votes_that_are_kept_from_one_site_are_read_off_what_the_others_say_next():
    with made("go-on") as federation:
        world = LyingWorld(shows=lambda reader, slot, data: None if (
            reader == "rome" != slot.site and is_vote(slot)) else data)  # fmt: skip

        async def scene():
            async def dead():
                with pytest.raises(Died):
                    await federation.site("wien", world, pace=PACE, probe=dying("checkpointed", 1))

            return (await asyncio.gather(federation.all(world, names=FIVE[:4], pace=PACE), dead()))[0]

        ends = play(scene())
        assert all(isinstance(end, Finished) for end in ends.values()), ends
        assert len({end.model.tobytes() for end in ends.values()}) == 1
        assert all(end.absent == {"wien": 2} for end in ends.values())
        assert expect_paid(federation, world) == {(1, 0), (2, 0), (2, 1), (3, 1), (4, 1)}


@pytest.mark.parametrize("words", [False, True])
def test_one_site_whose_votes_are_kept_from_all_is_followed_or_the_run_stops(words):
    """rome has heard all others, who have not heard rome: what it says next tells them. If that is hidden too, too few
    are left for a sum without rome and wien.
    """

    def shows(reader, slot, data):
        hidden = is_vote(slot) or (words and slot.kind in (Kind.SUM, Kind.POINT) and slot.number > 3)
        return None if reader != slot.site == "rome" and hidden else data

    with made("go-on") as federation:
        world = LyingWorld(shows=shows)

        async def scene():
            async def dead():
                with pytest.raises(Died):
                    await federation.site("wien", world, pace=PACE, probe=dying("checkpointed", 2))

            return (await asyncio.gather(federation.all(world, names=FIVE[:4], pace=PACE), dead()))[0]

        ends = play(scene())
        assert all(isinstance(end, LostNeighbourError if words else Finished) for end in ends.values()), ends
        paid = {(1, 0), (2, 0), (3, 0)} | (set() if words else {(3, 1), (4, 1)})
        assert expect_paid(federation, world) == paid


@pytest.mark.parametrize("invented", ["berlin", "wien"])
def test_invented_notices_are_refused_and_false_votes_send_nobody_away(invented):
    """berlin's name under a stranger's signature; and wien's own, against everyone."""
    with made("go-on") as federation:
        a, watcher, signer = federation.agreement, Refusals(), federation.keys["wien"]

        def vote(slot, about):
            place = Envelope(a.run, a.digest(), slot, NOTICE_BYTES)
            return seal(place, Notice(About.GONE, 2, a.index(about)).to_bytes(), signer)

        def shows(reader, slot, data):
            invents = reader != slot.site == invented and slot.kind is Kind.NOTICE and 1 < slot.number < 6
            others = [name for name in FIVE if name != invented]
            return vote(slot, others[slot.number - 2]) if invents else data

        world = LyingWorld(shows=shows)
        ends = run(federation, world, watcher=watcher)
        assert all(isinstance(end, Finished) and end.absent == {} for end in ends.values()), ends
        assert len({end.model.tobytes() for end in ends.values()}) == 1
        assert expect_paid(federation, world) == {(k, 0) for k in range(1, 5)}
        assert ("forged" in watcher.seen["berlin"]) == (invented == "berlin")


def test_a_relay_that_shows_half_of_the_sites_another_set_opens_nothing():
    """berlin and oslo never see wien's words of the second sum, paris and rome do. The first two would go on without
    wien; nobody else would, so they follow those who have read it, and wait. No sum is ever made over two sets.
    """
    with made("go-on") as federation:
        hidden = Slot(2, "wien", Kind.SUM)
        world = LyingWorld(
            shows=lambda reader, slot, data: None if reader in ("berlin", "oslo") and slot == hidden else data
        )
        ends = run(federation, world)
        assert all(isinstance(end, LostNeighbourError | LeftBehindError) for end in ends.values()), ends
        told = str(ends["berlin"])
        assert "the messages of wien in round=2, which others have read" in told
        assert expect_paid(federation, world) == {(1, 0), (2, 0)}


# -- a relay and a member ---------------------------------------------------------------------------------------------


def test_a_relay_with_a_member_that_parts_one_site_from_the_rest_opens_each_sum_once():
    """rome's words are kept from the others, who drop it; rome itself is shown all of theirs, and goes on with them."""
    with made("go-on") as federation:
        world = LyingWorld(shows=lambda reader, slot, data: None if (
            (reader != slot.site == "rome" and slot.number >= 2 and slot.kind is Kind.SUM)
            or (reader == "rome" != slot.site and is_vote(slot))) else data)  # fmt: skip
        ends = run(federation, world)
        left = [name for name in FIVE if name != "rome"]
        assert all(isinstance(ends[name], Finished) for name in left), ends
        assert len({ends[name].model.tobytes() for name in left}) == 1
        assert isinstance(ends["rome"], LeftBehindError | LostNeighbourError)
        turns = expect_paid(federation, world, liars=("wien",))
        assert turns == {(1, 0), (2, 0), (2, 1), (3, 1), (4, 1)}
        # rome has completed the second sum, and learns from what is proposed next that it was left: it says nothing.
        assert ("rome", 3, Kind.SUM) not in {(slot.site, slot.number, slot.kind) for slot, _ in world.sent}


def forging(federation, name, k, change):
    """`shows` of a relay to whom a member has given its key: another message of its own for every reader."""

    def shows(reader, slot, data):
        if data is None or (slot.site, slot.number, slot.kind) != (name, k, Kind.SUM) or reader == name:
            return data
        place, words = opened(federation.agreement, name, k, data)
        return seal(place, change(words, reader).to_bytes(), federation.keys[name])

    return shows


def test_a_member_that_tells_different_sites_different_words_is_named():
    """All sums differ after it, and so do all contexts: the next messages show it, and open nothing."""
    with made() as federation:
        world = LyingWorld(shows=forging(federation, "wien", 2, lambda words, reader: words._replace(
            words=words.words + np.uint64(FIVE.index(reader)))))  # fmt: skip
        ends = run(federation, world)
        honest = [end for name, end in ends.items() if name != "wien"]
        assert all(isinstance(end, ForkedError | LostNeighbourError) for end in honest), ends
        named = [str(end) for end in honest if isinstance(end, ForkedError)]
        assert any("site='wien' to send everyone the same in round=2" in text for text in named)
        assert (3, 0) not in expect_paid(federation, world, liars=("wien",))


@pytest.mark.parametrize("field", ["members", "notices", "transcript", "context"])
def test_what_does_not_fit_is_named(field):
    words_for = {"members": "over the same sites", "notices": "the same notices of who was dropped",
                 "transcript": "the same earlier messages",
                 "context": "the point that site='oslo' has proposed here"}  # fmt: skip
    with made() as federation:
        world = LyingWorld(shows=forging(federation, "wien", 2, lambda words, _: words._replace(
            heading=words.heading._replace(**{field: b"x" * 32}))))  # fmt: skip
        ends = run(federation, world)
        forked = [str(end) for end in ends.values() if isinstance(end, ForkedError)]
        assert any("site='wien' has masked" in text and words_for[field] in text for text in forked), ends
        assert expect_paid(federation, world, liars=("wien",)) <= {(1, 0), (2, 0)}


def test_a_sum_that_honest_sites_cannot_have_made_stops_the_run_with_what_was_learnt_before():
    with made() as federation:
        world = LyingWorld(shows=forging(federation, "wien", 3, lambda words, _: words._replace(
            words=words.words + np.uint64(2**62))))  # fmt: skip
        ends = run(federation, world)
        spoilt = [end for name, end in ends.items() if name != "wien" and isinstance(end, SpoiledError)]
        assert spoilt
        assert "release=3" in str(spoilt[0])
        assert "what was learnt before it stands" in str(spoilt[0])


def test_a_notice_reads_back():
    notice = Notice(About.WAITING, 7)
    assert read_notice(notice.to_bytes()) == notice


def test_a_site_that_was_put_back_speaks_twice_for_a_number_and_still_no_sum_opens_twice():
    """A relay and paris against berlin, whose folder is put back to before paris was dropped. In its first life it
    spoke for the sum without paris, which the relay kept to itself; now it is shown paris's words, and speaks for the
    next sum with all five, for which paris proposes. Fewer than 2 u - n - c = 2 sites were put back: the other honest
    ones speak for one of the two only.
    """
    with made("go-on", wait=4.0) as federation:
        world, again = LyingWorld(), False

        def answer(slot):
            """paris has heard nothing of berlin, whenever it is asked."""
            question = world.post._held[Slot(slot.number, "berlin", Kind.NOTICE)]
            heard = Heard(read_notice(question[-64 - NOTICE_BYTES : -64]).nonce, 0, bytes(32)).to_bytes()
            place = Envelope(federation.agreement.run, federation.agreement.digest(), slot, len(heard))
            return seal(place, heard, federation.keys["paris"])

        def shows(reader, slot, data):
            if (reader, slot.site, slot.kind) == ("berlin", "paris", Kind.ANSWER):
                return answer(slot)
            if data is None:
                return None
            kept = {
                Slot(2, "paris", Kind.SUM): reader not in ("paris", "berlin") or (reader == "berlin" and not again),
                Slot(3, "berlin", Kind.SUM): again or reader != "berlin",
            }
            deaf = reader == "paris" or (again and reader == "berlin")
            vote = slot.kind is Kind.NOTICE and read_notice(data[-64 - NOTICE_BYTES : -64]).about is About.GONE
            late = deaf and slot.site != reader and (vote or (slot.kind is Kind.SUM and slot.number > 2))
            return None if late or kept.get(slot, False) else data

        world.shows = shows

        async def scene():
            nonlocal again
            others = [asyncio.ensure_future(federation.site(name, world, pace=PACE)) for name in FIVE[1:]]
            await dies(federation, world, "checkpointed", 1)
            backup = Backup(federation)
            with pytest.raises(Died):
                await federation.site("berlin", world, pace=PACE, probe=dying("published", 3))
            backup.restore()
            again = True
            world.takes = lambda slot, _: slot != Slot(3, "berlin", Kind.SUM)
            with pytest.raises(LostNeighbourError):
                await federation.site("berlin", world, pace=PACE)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        play(scene())
        a, contexts = federation.agreement, defaultdict(set)
        for slot, data in world.sent:
            if slot.kind is Kind.SUM:
                heading = opened(a, slot.site, slot.number, data)[1].heading
                contexts[heading.turn, heading.context].add(slot.site)
        berlin = {turn for (turn, _), said in contexts.items() if "berlin" in said}
        assert berlin == {(1, 0), (2, 0), (2, 1), (3, 0)}  # two of them are its third message
        whole = [turn for (turn, _), said in contexts.items() if said - {"paris"} == set(FIVE) - {"paris"}]
        assert sorted(whole) == [(1, 0), (2, 0), (2, 1)]
        with federation.ledger("berlin") as ledger:
            assert len(ledger.reservations()) == len(whole)


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 3))])
def test_whatever_comes_late_those_who_finish_hold_one_model_and_each_sum_opens_once(seed):
    """Every word and notice reaches every site after a time of its own, often longer than the silent are waited for."""
    rng = random.Random(seed)
    with many(9, 6, 3, wait=0.8) as federation:
        world, seen = LyingWorld(), {}

        def shows(reader, slot, data):
            if data is None or reader == slot.site or not (slot.kind is Kind.SUM or is_vote(slot)):
                return data  # questions are answered, or nothing would begin
            now = asyncio.get_running_loop().time()
            slow = rng.random() < (0.02 if slot.kind is Kind.SUM else 0.2)
            at = seen.setdefault((reader, slot), now + (rng.uniform(0.3, 2.5) if slow else 0.0))
            return data if now >= at else None

        world.shows = shows
        ends = run(federation, world)
        stops = (Finished, LostNeighbourError, LeftBehindError, ForkedError)
        assert all(isinstance(end, stops) for end in ends.values()), ends
        done = {name: end for name, end in ends.items() if isinstance(end, Finished)}
        assert len({end.model.tobytes() for end in done.values()}) <= 1
        assert all(name not in end.absent for name in done for end in done.values())
        expect_paid(federation, world)
