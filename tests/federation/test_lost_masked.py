"""Masked sums that lose a site for good: the others make the sum again without it, all of them or none, and pay."""

import asyncio
import re
from contextlib import ExitStack

import numpy as np
import pytest

import sottovoce as sv
from helpers.network_worlds import LyingWorld, MemoryWorld, play
from helpers.site_runs import FIVE, Backup, Died, Federation, dies, dying
from sottovoce import models
from sottovoce.cli.site.results import keeping_what_was_found, results_in
from sottovoce.errors import BudgetError
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.letters import NOTICE_BYTES, About, Heading, Sighting, SumWords, read_notice, read_sum
from sottovoce.federation.site.mail import Pace
from sottovoce.federation.site.masks import members_digest
from sottovoce.federation.site.runner import Finished, so_far
from sottovoce.federation.site.stops import ForkedError, LeftBehindError, LostNeighbourError, UsedTwiceError
from sottovoce.federation.transport.wire import BOOKS_BYTES, Envelope, Kind, Slot, seal, unseal
from sottovoce.privacy import Gaussian, Sequence, epsilon
from sottovoce.sums.questions import Gradient

SIZES = (30, 200, 17, 80, 25)
WAIT = 0.9  # seconds
PACE = Pace(slice=0.15, server=20.0)


def made(rounds=4, sizes=SIZES, least=4, spare=2, wait=WAIT, first=0, **terms):
    n = len(sizes)
    algorithm = sv.MaskedNewton(
        rounds=rounds, epsilon=1.5, delta=1e-5, colluding=1, least_sites=least, spare=spare, **terms
    )
    lost = LostNeighbour(policy="go-on", wait_seconds=wait, go_on_after_round=first)
    names = FIVE if n == 5 else tuple(f"site-{i}" for i in range(n))
    return Federation(sv.graphs.complete(n), sizes, algorithm, names=names, lost_neighbour=lost)


async def without(federation, world, deaths, **options):
    """All sites run; those in `deaths` end at (point, round) and do not come back. What became of all."""

    async def one(name):
        probe = dying(*deaths[name]) if name in deaths else None
        return await federation.site(name, world, pace=PACE, probe=probe, **options)

    ends = await asyncio.gather(*map(one, federation.names), return_exceptions=True)
    return dict(zip(federation.names, ends, strict=True))


def is_vote(data):
    """Whether a notice says that its sender would go on without somebody."""
    return read_notice(data[-64 - NOTICE_BYTES : -64]).about is About.GONE


def is_question(data):
    """Whether a notice asks what was last heard of its sender."""
    return read_notice(data[-64 - NOTICE_BYTES : -64]).about is About.QUESTION


def booked(federation, name):
    with federation.ledger(name) as ledger:
        return [reservation.cost.event for reservation in ledger.reservations()]


def said(federation, world, name):
    """By number, the different bytes that a site has put for sums."""
    found = {}
    for slot, data in world.sent:
        if (slot.site, slot.kind) == (name, Kind.SUM) and not federation.is_end(slot, data):
            found.setdefault(slot.number, set()).add(data)
    return found


@pytest.mark.parametrize(("point", "at"), [("reserved", 1), ("checkpointed", 1), ("in outbox", 3), ("published", 4)])
def test_the_others_make_the_sum_again_and_finish_with_one_model(point, at):
    with made() as federation:
        world = LyingWorld()
        ends = play(without(federation, world, {"wien": (point, at)}))
        left = FIVE[:4]
        assert isinstance(ends["wien"], Died)
        assert all(isinstance(ends[name], Finished) for name in left), ends
        assert len({ends[name].model.tobytes() for name in left}) == 1
        lost_at = at + (point in ("published", "checkpointed"))  # the first of which its words are missing
        sigmas = [Gaussian(sigma) for sigma in federation.algorithm.multipliers(5)]
        for name in left:
            if lost_at > 4:  # it had said all that it had to say
                assert ends[name].absent == {}
                assert booked(federation, name) == sigmas
                continue
            assert ends[name].absent == {"wien": lost_at}
            again = [*sigmas[:lost_at], *sigmas[lost_at - 1 :]]
            assert booked(federation, name) == again
            words = said(federation, world, name)
            assert sorted(words) == [1, 2, 3, 4, 5]
            assert all(len(versions) == 1 for versions in words.values())


def test_the_noise_is_fresh_and_the_sum_is_that_of_those_who_are_left():
    """What the relay could open of both attempts: two sums whose difference is the lost site's part and noise of all
    the others twice, not one share.
    """
    with made(rounds=2) as federation:
        a, world = federation.agreement, LyingWorld()
        play(without(federation, world, {"wien": ("published", 1)}))  # says the first, dies, and never says the second
        from sottovoce.federation.site.summing import Summing

        def words(k, name):
            (data,) = said(federation, world, name)[k]
            place = Envelope(a.run, a.digest(), Slot(k, name, Kind.SUM), format_of(a).payload(2))
            return read_sum(unseal(data, place, a.member(name).public_key), k, 5)

        first, second = ({name: words(k, name) for name in FIVE[:4]} for k in (2, 3))
        assert {w.heading.turn for w in first.values()} == {(2, 0)}
        assert {w.heading.turn for w in second.values()} == {(2, 1)}
        assert len({w.heading.members for w in (*first.values(), *second.values())}) == 2
        summing = Summing(a, a.public_oracle("rome"))
        question = Gradient(np.zeros((5, 1)))
        made_here = summing.propose(2, question, FIVE[:4])
        context = summing.context(second["rome"].heading.turn, made_here, FIVE[:4], second["rome"].heading.notices,
                                  second["rome"].heading.transcript)  # fmt: skip
        total = np.sum([w.words for w in second.values()], axis=0, dtype=np.uint64).view(np.int64) * context.grid
        rows = np.concatenate([federation.features[i] * federation.labels[i][:, None] for i in range(4)])
        std = made_here.grid.step * made_here.grid.scale * 2
        assert np.abs(total + rows.sum(axis=0) / 2).max() < 6 * std
        # Without wien's words the first attempt stays shut: what is there of it are uniform words.
        opened = np.sum([w.words for w in first.values()], axis=0, dtype=np.uint64).view(np.int64) * context.grid
        assert np.abs(opened).max() > 1e6 * std


def test_two_sites_lost_at_once_cost_one_attempt():
    with made(sizes=(30, 20, 17, 80, 25, 40, 33), least=5, spare=1) as federation:
        names = federation.names
        ends = play(without(federation, LyingWorld(), {names[5]: ("checkpointed", 2), names[6]: ("reserved", 3)}))
        assert all(isinstance(ends[name], Finished) for name in names[:5]), ends
        assert len({ends[name].model.tobytes() for name in names[:5]}) == 1
        assert all(ends[name].absent == {names[5]: 3, names[6]: 3} for name in names[:5])
        assert all(len(booked(federation, name)) == 5 for name in names[:5])


def test_a_site_lost_while_the_notices_travel_goes_with_the_first():
    """oslo has spoken in the sum that wien is missing in, and dies before it says that it would go on without wien."""
    with made(sizes=(30, 20, 17, 80, 25, 40, 33), least=5, spare=1) as federation:
        names = federation.names
        wien, oslo = names[6], names[1]
        ends = play(without(federation, LyingWorld(), {wien: ("checkpointed", 1), oslo: ("published", 2)}))
        left = [name for name in names if name not in (wien, oslo)]
        assert all(isinstance(ends[name], Finished) for name in left), ends
        assert all(ends[name].absent == {wien: 2, oslo: 2} for name in left)
        assert len({ends[name].model.tobytes() for name in left}) == 1


@pytest.mark.parametrize("point", ["in outbox", "published", "reserved"])
def test_a_lost_site_that_comes_back_with_its_old_outbox_says_nothing_more(point):
    with made() as federation:
        world = LyingWorld()

        def hides(reader, slot, data):
            others = reader == "wien" != slot.site
            return None if others and (slot.kind is Kind.NOTICE or slot.number > 2) else data

        async def scene():
            ends = await without(federation, world, {"wien": (point, 2)})
            before = said(federation, world, "wien")
            with pytest.raises(LeftBehindError, match="goes on without site='wien' since round="):
                await federation.site("wien", world, pace=PACE)
            assert said(federation, world, "wien") == before
            # And before a server that hides what was said of it: nobody answers one who was left.
            world.shows = hides
            with pytest.raises(LostNeighbourError):
                await federation.site("wien", world, pace=PACE)
            return ends

        ends = play(scene())
        assert all(isinstance(ends[name], Finished) for name in FIVE[:4])
        assert max(said(federation, world, "wien")) <= 2


@pytest.mark.parametrize("at", [2, 4])
def test_whoever_comes_late_but_has_been_heard_by_one_is_waited_for(at):
    """oslo has read wien's words, the others have not yet, and would go on without it: they find that oslo has gone on,
    or is done, and complete the sum as it did.
    """
    with made() as federation:
        world, hidden = LyingWorld(), True

        def shows(reader, slot, data):
            late = (slot.site, slot.number, slot.kind) == ("wien", at, Kind.SUM) and reader not in ("oslo", "wien")
            return None if late and hidden else data

        async def scene():
            nonlocal hidden
            world.shows = shows
            running = asyncio.ensure_future(federation.all(world, pace=PACE))
            while not any(slot.kind is Kind.NOTICE and slot.site == "rome" and is_vote(data)
                          for slot, data in world.sent):  # fmt: skip
                await asyncio.sleep(0.02)
            hidden = False
            return await running

        ends = play(scene())
        assert all(isinstance(end, Finished) for end in ends.values()), ends
        assert len({end.model.tobytes() for end in ends.values()}) == 1
        assert all(end.absent == {} for end in ends.values())
        assert all(len(booked(federation, name)) == 4 for name in FIVE)


def test_whoever_was_silent_when_a_process_asked_is_asked_before_the_next_words():
    """berlin comes back with its words of the second sum in its outbox, and would go on without wien. It asks the
    others first, without wien, who may be the one to know more. Then wien's words are there after all.
    """
    with made(wait=1.5) as federation:
        world, hidden = LyingWorld(), True

        def shows(reader, slot, data):
            late = reader == "berlin" and (slot.site, slot.number, slot.kind) == ("wien", 2, Kind.SUM)
            return None if late and hidden else data

        def notices(is_one):
            return [
                data for slot, data in world.sent if (slot.site, slot.kind) == ("berlin", Kind.NOTICE) and is_one(data)
            ]

        async def scene():
            nonlocal hidden
            world.shows = shows
            others = [asyncio.ensure_future(federation.site(name, world, pace=PACE)) for name in FIVE[1:]]
            await dies(federation, world, "published", 2)
            asked = len(notices(is_question))
            again = asyncio.ensure_future(federation.site("berlin", world, pace=PACE))
            while not notices(is_vote):
                await asyncio.sleep(0.02)
            assert len(notices(is_question)) == asked + 1
            hidden = False
            ends = await asyncio.gather(again, *others)
            assert len({end.model.tobytes() for end in ends}) == 1
            assert len(notices(is_question)) == asked + 3  # once more before its last words, as ever

        play(scene())


# -- when it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deaths", "dropped"),
    [
        ({"wien": ("checkpointed", 2), "rome": ("checkpointed", 3)}, {"wien"}),
        ({"wien": ("checkpointed", 2), "rome": ("checkpointed", 2)}, set()),
    ],
)
def test_too_few_sites_stop_cleanly_keep_what_was_learnt_and_go_on_when_they_are_back(deaths, dropped):
    with made() as federation:
        world = LyingWorld()

        async def scene():
            ends = await without(federation, world, deaths)
            left = [name for name in FIVE if name not in deaths]
            for name in left:
                assert isinstance(ends[name], LostNeighbourError), ends
                assert "without them 3 sites would be left of the 4" in str(ends[name])
                assert "the state folder keeps the seed" in str(ends[name])
                with ExitStack() as stack:
                    kept = so_far(federation.seat(name, stack))
                    assert kept is not None
                    assert kept.rounds == 2
                    assert np.abs(kept.model).max() > 0
            # All who were not dropped come back, and the run goes on to its end.
            back = [name for name in FIVE if name not in dropped]
            again = await asyncio.gather(*(federation.site(name, world, pace=PACE) for name in back))
            assert len({end.model.tobytes() for end in again}) == 1

        play(scene())


def test_whoever_stops_writes_the_model_so_far_and_says_so(tmp_path):
    with made() as federation:
        ends = play(without(federation, LyingWorld(), {"wien": ("checkpointed", 3), "rome": ("checkpointed", 3)}))
        with ExitStack() as stack:
            seat = federation.seat("oslo", stack)
            with (
                pytest.raises(LostNeighbourError) as stopped,
                keeping_what_was_found(results_in(tmp_path / "out", seat)),
            ):
                raise ends["oslo"]
            kept = so_far(seat)
        assert any("The model of the first 3 sums" in note for note in stopped.value.__notes__)
        model = models.load(tmp_path / "out" / "model.safetensors")
        np.testing.assert_array_equal(model.weights[:, 0], kept.model)
        assert model.provenance["stopped_after"] == 3
        assert model.privacy.epsilon <= 1.5
        text = (tmp_path / "out" / "statement.txt").read_text()
        assert "Stopped:    after 3 of 4 sums. The promise is that of the whole run" in text
        with federation.journal("oslo") as journal:
            assert journal.seed.raw == federation.seeds["oslo"].raw  # kept, for when they are back


def test_before_the_second_sum_there_is_no_model_to_write(tmp_path):
    with made() as federation:
        ends = play(without(federation, LyingWorld(), {"wien": ("checkpointed", 1), "rome": ("checkpointed", 1)}))
        with ExitStack() as stack:
            seat = federation.seat("oslo", stack)
            with pytest.raises(LostNeighbourError), keeping_what_was_found(results_in(tmp_path / "out", seat)):
                raise ends["oslo"]
        assert not (tmp_path / "out").exists()


def test_spare_attempts_come_to_an_end():
    with made(sizes=(30, 20, 17, 80, 25, 40, 33), least=5, spare=1) as federation:
        names = federation.names
        ends = play(without(federation, LyingWorld(), {names[5]: ("checkpointed", 1), names[6]: ("checkpointed", 3)}))
        for name in names[:5]:
            assert isinstance(ends[name], LostNeighbourError), ends
            assert "all 1 spare attempts are used up" in str(ends[name])


def test_spare_attempts_are_paid_for_before_the_first_sum():
    """Four sums fit, and the two that may have to be made again do not."""
    with made(spare=2) as federation:
        sums = Sequence(tuple(Gaussian(sigma) for sigma in federation.algorithm.multipliers(5)))
        federation.cap = 1.01 * epsilon(sums, 1e-3)
        with pytest.raises(BudgetError, match="of 6 rounds"):
            play(federation.site("berlin", MemoryWorld()))


@pytest.mark.parametrize("point", ["dropped", "collected", "absorbed", "checkpointed", "in outbox", "published"])
def test_a_crash_while_a_site_is_lost_changes_nothing(point):
    """berlin dies around the turn in which wien is dropped, and comes back: one message for each number, one model."""
    with made(wait=1.5) as federation:
        world = LyingWorld()

        async def scene():
            async def twice():
                await dies(federation, world, point, 3 if point in ("in outbox", "published") else 2)
                return await federation.site("berlin", world, pace=PACE)

            async def once():
                with pytest.raises(Died):
                    await federation.site("wien", world, probe=dying("checkpointed", 1), pace=PACE)

            rest = (federation.site(name, world, pace=PACE) for name in FIVE[1:4])
            *_, end = await asyncio.gather(once(), *rest, twice())
            return _, end

        others, end = play(scene())
        assert {other.model.tobytes() for other in others[1:]} == {end.model.tobytes()}
        assert all(len(versions) == 1 for versions in said(federation, world, "berlin").values())
        assert len(booked(federation, "berlin")) == 5


# -- the last sum, after which no message shows how a turn ended -------------------------------------------------------


def last_sum_hidden(patience):
    """A relay that hides, for so many seconds each, wien's words of the last sum from the others, and from wien that
    they would go on without it, and what they say next.
    """
    first = {}

    def shows(reader, slot, data):
        votes = reader == "wien" != slot.site and slot.kind is Kind.NOTICE and data is not None and is_vote(data)
        words = reader != "wien" == slot.site and slot.kind is Kind.SUM and slot.number == 4
        behind = reader == "wien" != slot.site and slot.kind is Kind.SUM and slot.number > 4
        if data is None or not (votes or words or behind):
            return data
        now = asyncio.get_running_loop().time()
        return None if now < first.setdefault((reader, slot), now) + patience else data

    return shows


@pytest.mark.parametrize(
    ("patience", "stops"), [(1e9, LostNeighbourError), (1.5, (LostNeighbourError, LeftBehindError))]
)
def test_no_two_sites_finish_with_different_models(patience, stops):
    """wien has all words of the last sum, and the others make it again without wien: it does not finish."""
    with made() as federation:
        ends = play(without(federation, LyingWorld(shows=last_sum_hidden(patience)), {}))
        assert isinstance(ends["wien"], stops), ends
        assert all(isinstance(ends[name], Finished) for name in FIVE[:4]), ends
        assert len({ends[name].model.tobytes() for name in FIVE[:4]}) == 1
        if stops is LostNeighbourError:
            assert re.search(r"at least 4 sites to confirm that they have the same last sum, in round=4, got 1\b."
                             r"*another model.*run the same command again", str(ends["wien"]))  # fmt: skip
        with federation.journal("wien") as journal:
            assert journal.seed.raw == federation.seeds["wien"].raw  # not wound up


def test_a_site_that_nobody_confirmed_finishes_with_the_same_command_once_it_hears_of_the_others():
    with made() as federation:
        world = LyingWorld()

        async def scene():

            def deaf(reader, slot, data):
                return None if reader == "wien" != slot.site and slot.kind is Kind.SUM and slot.number == 5 else data

            world.shows = deaf
            ends = await without(federation, world, {})
            assert isinstance(ends["wien"], LostNeighbourError), ends
            before = said(federation, world, "wien")
            world.shows = lambda _reader, _slot, data: data
            assert (await federation.site("wien", world, pace=PACE)).model.tobytes() == ends["rome"].model.tobytes()
            assert said(federation, world, "wien") == before

        play(scene())


def test_what_is_told_of_the_last_sum_is_on_the_disk_first():
    """berlin has read the last sum and says so; then its process ends, and the relay hides wien's words from the next.
    It does not vote against wien, as it has said that it holds the sum: the others rely on it.
    """
    with made() as federation:
        world, hides = LyingWorld(), True

        def shows(reader, slot, data):
            late = slot.site == "wien" != reader and slot.kind is Kind.SUM and slot.number == 4
            # wien itself is cut off, so that it does not complete the sum
            cut_off = reader == "wien" != slot.site and slot.kind is Kind.SUM and slot.number >= 4
            return None if hides and ((late and (reader != "berlin" or told)) or cut_off) else data

        told = False

        async def scene():
            nonlocal told, hides
            world.shows = shows
            others = [asyncio.ensure_future(federation.site(n, world, pace=PACE)) for n in FIVE[1:]]
            first = asyncio.ensure_future(federation.site("berlin", world, pace=PACE))
            while not any(slot.site == "berlin" and federation.is_end(slot, data) for slot, data in world.sent):
                await asyncio.sleep(0.005)
            told = True
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            with federation.journal("berlin") as journal:
                assert journal.round == 4
            again = asyncio.ensure_future(federation.site("berlin", world, pace=PACE))
            await asyncio.sleep(2 * WAIT)
            hides = False
            return await asyncio.gather(again, *others, return_exceptions=True)

        ends = dict(zip(FIVE, play(scene()), strict=True))
        assert not any(
            slot.site == "berlin" and slot.kind is Kind.NOTICE and is_vote(data) for slot, data in world.sent
        )
        for name in FIVE:
            with federation.journal(name) as journal:
                assert journal.absent == {}, ends
        assert len({end.model.tobytes() for end in ends.values() if isinstance(end, Finished)}) <= 1


def test_sites_that_were_told_different_words_of_the_last_sum_do_not_finish():
    """wien signs two messages of the last sum. Nothing follows that would show it, but what sites say of its end."""
    with made() as federation:
        a, slot4, made_up = federation.agreement, Slot(4, "wien", Kind.SUM), {}

        def shows(reader, slot, data):
            if data is None or slot != slot4 or reader not in ("berlin", "oslo"):
                return data
            if data not in made_up:
                place = Envelope(a.run, a.digest(), slot, format_of(a).payload(4))
                words = read_sum(unseal(data, place, a.member("wien").public_key), 4, 5)
                other = words._replace(words=words.words + np.uint64(1))
                made_up[data] = seal(place, other.to_bytes(), federation.keys["wien"], bytes(BOOKS_BYTES))
            return made_up[data]

        ends = play(without(federation, LyingWorld(shows=shows), {}))
        assert made_up
        assert not any(isinstance(end, Finished) for end in ends.values()), ends
        assert any(isinstance(end, ForkedError) and "of another transcript" in str(end) for end in ends.values()), ends


def test_one_member_does_not_have_a_site_dropped_that_nobody_voted_for():
    """wien is lost. oslo shows, in its own mailbox, that it has dropped paris, and says nothing against wien."""
    with made() as federation:
        a, slot3 = federation.agreement, Slot(3, "oslo", Kind.SUM)
        left = tuple(name for name in FIVE if name != "paris")
        heading = Heading(2, 1, members_digest(left), bytes(32), bytes(32), bytes(32))
        told = tuple(Sighting(1, bytes(32), name == "paris", name == "paris") for name in FIVE)
        words = SumWords(
            np.zeros(a.algorithm.schedule(a.features)[1].numbers, dtype=np.uint64), heading, bytes(32), told
        )
        place = Envelope(a.run, a.digest(), slot3, format_of(a).payload(2))
        lie = seal(place, words.to_bytes(), federation.keys["oslo"], bytes(BOOKS_BYTES))

        def shows(_reader, slot, data):
            hidden = slot.site == "oslo" and slot.kind is Kind.NOTICE and data is not None and is_vote(data)
            return lie if slot == slot3 else None if hidden else data

        play(without(federation, LyingWorld(shows=shows), {"wien": ("checkpointed", 1)}))
        for name in ("berlin", "rome"):
            with federation.journal(name) as journal:
                assert "paris" not in journal.absent
                assert "wien" in journal.votes(2)


# -- whoever does not answer ------------------------------------------------------------------------------------------


def test_a_site_that_never_starts_is_gone_on_without():
    with made() as federation:
        ends = play(federation.all(LyingWorld(), names=FIVE[:4], pace=PACE))
        assert all(isinstance(end, Finished) for end in ends.values()), ends
        assert len({end.model.tobytes() for end in ends.values()}) == 1
        assert all(end.absent == {"wien": 1} for end in ends.values())
        assert all(len(booked(federation, name)) == 5 for name in FIVE[:4])


@pytest.mark.parametrize("late", [0.1, 0.8])
@pytest.mark.parametrize("point", ["checkpointed", "computed", "in outbox"])
def test_a_site_that_dies_while_another_restarts_is_gone_on_without(point, late):
    """berlin is back before it is given up on, and asks; wien, who does not answer, is not coming back."""
    with made() as federation:
        world, at = LyingWorld(), 2 if point == "checkpointed" else 3

        async def scene():
            async def restarts():
                await dies(federation, world, point, at)
                await asyncio.sleep(late * WAIT)
                return await federation.site("berlin", world, pace=PACE)

            async def lost():
                with pytest.raises(Died):
                    await federation.site("wien", world, probe=dying("checkpointed", 2), pace=PACE)

            rest = (federation.site(name, world, pace=PACE) for name in FIVE[1:4])
            return await asyncio.gather(restarts(), *rest, lost(), return_exceptions=True)

        *ends, _ = play(scene())
        assert all(isinstance(end, Finished) for end in ends), ends
        assert len({end.model.tobytes() for end in ends}) == 1
        assert all(end.absent == {"wien": 3} for end in ends)
        assert all(len(versions) == 1 for versions in said(federation, world, "berlin").values())


def test_whoever_starts_late_is_waited_for_as_long_as_was_agreed():
    with made() as federation:
        world = LyingWorld()

        async def scene():
            async def late():
                await asyncio.sleep(0.9 * WAIT)
                return await federation.site("wien", world, pace=PACE)

            rest = (federation.site(name, world, pace=PACE) for name in FIVE[:4])
            return await asyncio.gather(*rest, late())

        ends = play(scene())
        assert all(end.absent == {} for end in ends)


async def stopped_before_words(federation, world, at, gone=None):
    """All have stopped where it is known where sum `at` is taken, and nobody has spoken for it; some died before."""
    await without(federation, world, dict.fromkeys(federation.names, ("began", at)) | (gone or {}))


@pytest.mark.parametrize(
    ("sizes", "terms", "gone", "back"),
    [
        pytest.param(SIZES, {}, {}, 3, id="too few answer"),
        pytest.param((30, 20, 17, 80, 25, 40, 33), {"least": 5, "spare": 1}, {"site-5": ("reserved", 1)}, 5,
                     id="no attempt is left"),
    ],
)  # fmt: skip
def test_without_enough_answers_or_an_attempt_to_spare_nothing_is_said(sizes, terms, gone, back):
    with made(sizes=sizes, **terms) as federation:
        names, world = federation.names[:back], LyingWorld()

        def spent():
            return {name: (booked(federation, name), said(federation, world, name)) for name in names}

        async def scene():
            await stopped_before_words(federation, world, 3, gone)
            return spent(), await federation.all(world, names=names, pace=PACE)

        before, ends = play(scene())
        assert spent() == before
        for end in ends.values():
            assert isinstance(end, LostNeighbourError), ends
            assert "on what it last received from us, got none" in str(end)


def test_up_to_the_agreed_round_everyone_must_answer():
    with made(first=3) as federation:
        world = LyingWorld()

        async def scene():
            await stopped_before_words(federation, world, 3)
            running = asyncio.ensure_future(federation.all(world, names=FIVE[:4], pace=PACE))
            await asyncio.sleep(10 * WAIT)
            assert not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        play(scene())
        assert all(max(said(federation, world, name)) == 2 for name in FIVE[:4])


def test_a_site_that_was_set_back_hears_of_it_though_one_is_silent():
    """The server hides berlin's own words from it, and wien is gone: the others have heard them."""
    with made() as federation:
        world = LyingWorld()

        async def scene():
            rest = [asyncio.ensure_future(federation.site(name, world, pace=PACE)) for name in FIVE[1:4]]
            gone = asyncio.ensure_future(federation.site("wien", world, pace=PACE, probe=dying("published", 3)))
            await dies(federation, world, "checkpointed", 1)
            backup = Backup(federation)
            await dies(federation, world, "published", 3)
            backup.restore()
            world.shows = lambda reader, slot, data: None if reader == slot.site == "berlin" else data
            with pytest.raises(UsedTwiceError, match="that it has received round="):
                await federation.site("berlin", world, pace=PACE)
            for task in (*rest, gone):
                task.cancel()
            await asyncio.gather(*rest, gone, return_exceptions=True)

        play(scene())
        assert all(len(versions) == 1 for versions in said(federation, world, "berlin").values())
