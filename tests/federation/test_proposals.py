"""Masked sums among sites that do not round alike: one proposes where a sum is taken, and what a bad one can do."""

import asyncio
from contextlib import ExitStack

import numpy as np
import pytest

import sottovoce as sv
from helpers.network_worlds import LyingWorld, MemoryWorld, play
from helpers.site_runs import FIVE, Backup, Died, Federation, dies, dying
from sottovoce.errors import InputError
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.letters import read_point, read_sum
from sottovoce.federation.site.mail import Pace
from sottovoce.federation.site.masks import Past, Turn
from sottovoce.federation.site.stops import ForkedError, SpoiledError, UsedTwiceError
from sottovoce.federation.site.summing import Summing
from sottovoce.federation.transport.wire import Envelope, Kind, Slot, seal, unseal
from sottovoce.sums.questions import Gradient

SIZES = (30, 200, 17, 80, 25)
STOP, GO_ON = (
    LostNeighbour(policy="stop", wait_seconds=30.0),
    LostNeighbour(policy="go-on", wait_seconds=6.0, go_on_after_round=0),
)
BRISK = Pace(slice=0.3, server=5.0)

POINT = 5 + 15 + 1  # numbers of a model of five features, and of the whitening of its gradient


def made(lost=STOP, rounds=4, **terms):
    given = {"rounds": rounds, "epsilon": 1.5, "delta": 1e-5, "colluding": 1, "least_sites": 4 if terms else 5}
    algorithm = sv.MaskedNewton(**(given | terms))
    return Federation(sv.graphs.complete(5), SIZES, algorithm, lost_neighbour=lost)


def rounding(size):
    """`Summing.open` where no two processors round alike: every number is off by up to `size` of it."""
    read, seen = Summing.open, {}

    def off(self, context, question, said):
        opened = read(self, context, question, said)
        i = seen.setdefault(id(self), len(seen))
        r = np.random.default_rng((i, context.turn.release))
        return opened._replace(value=opened.value * (1 + r.uniform(-size, size, size=opened.value.shape)))

    return off


def opened(federation, slot, data):
    """What a site has proposed."""
    a = federation.agreement
    place = Envelope(a.run, a.digest(), slot, format_of(a).proposal(slot.number))
    return place, read_point(unseal(data, place, a.member(slot.site).public_key), slot.number, len(a.sites))


def proposing(federation, name, k, change, to=None):
    """A relay and a member together: what that site proposes for sum k is changed, for one reader or for all."""

    def shows(reader, slot, data):
        if data is None or slot != Slot(k, name, Kind.POINT) or reader == name or to not in (None, reader):
            return data
        place, point = opened(federation, slot, data)
        return seal(place, point._replace(proposal=change(point.proposal)).to_bytes(), federation.keys[name])

    return shows


def pointing(federation, name, k, change):
    """A member that signs what it likes: all that it says with its proposal for sum k is changed, for all readers."""

    def shows(reader, slot, data):
        if data is None or slot != Slot(k, name, Kind.POINT) or reader == name:
            return data
        place, point = opened(federation, slot, data)
        return seal(place, change(point).to_bytes(), federation.keys[name])

    return shows


def shifted(by):
    return lambda proposal: proposal._replace(point=proposal.point + by)


def words_of(federation, world, name):
    """By number, the different masked messages that a site has ever sent: the bytes."""
    found = {}
    for slot, data in world.sent:
        if (slot.site, slot.kind) == (name, Kind.SUM):
            found.setdefault(slot.number, set()).add(data)
    return found


INFERRING = {"inference": True, "rounds": 8}


@pytest.mark.parametrize("terms", [{}, INFERRING, INFERRING | {"focus": (0,)}, {"evaluate": 0.3, "rounds": 6}])
def test_sites_that_round_differently_end_with_one_model_up_to_rounding(monkeypatch, terms):
    monkeypatch.setattr(Summing, "open", rounding(1e-14))
    with made(**terms, least_sites=5) as federation:
        ends = play(federation.finish(MemoryWorld()))
        models = [end.model for end in ends.values()]
        assert "evaluate" in terms or len({model.tobytes() for model in models}) > 1
        np.testing.assert_allclose(models, np.broadcast_to(models[0], np.shape(models)), rtol=1e-9)


def test_a_proposal_is_made_of_public_numbers_and_signed_by_its_turn():
    """One for each sum, but for the first, before which everybody shows what it would propose."""
    with made() as federation:
        world = LyingWorld()
        play(federation.finish(world))
        points = sorted((slot.number, slot.site) for slot, _ in world.sent if slot.kind is Kind.POINT)
        assert points == [*((1, name) for name in FIVE), (2, "oslo"), (3, "paris"), (4, "rome")]
        for slot, data in world.sent:
            if slot.kind is Kind.POINT:
                _, point = opened(federation, slot, data)
                assert len(point.proposal.point) == (0 if slot.number == 1 else POINT)


def test_a_version_that_differs_stops_everybody_before_the_first_sum():
    """Whoever it is, nobody has said a word of its rows, and nothing is booked."""
    with made() as federation:
        world = LyingWorld()

        def shows(reader, slot, data):
            if data is None or slot != Slot(1, "wien", Kind.POINT) or reader == "wien":
                return data
            place, point = opened(federation, slot, data)
            return seal(place, point._replace(version="sottovoce 0.0.1 noise 1").to_bytes(), federation.keys["wien"])

        world.shows = shows
        ends = play(federation.all(world, pace=BRISK))
        for name in FIVE[:4]:
            assert isinstance(ends[name], InputError), ends[name]
            assert "got sottovoce 0.0.1 noise 1 at site='wien'. Nothing was sent in round=1" in str(ends[name])
            with federation.ledger(name) as ledger:
                assert not list(ledger.reservations())
        assert not [slot for slot, _ in world.sent if slot.kind is Kind.SUM and slot.site != "wien"]


def test_a_proposer_that_is_off_by_more_than_rounding_is_named_and_nothing_is_said():
    with made() as federation:
        world = LyingWorld(shows=proposing(federation, "paris", 3, shifted(1e-3)))
        ends = play(federation.all(world, pace=BRISK))
        for name in FIVE:
            assert sorted(words_of(federation, world, name)) == ([1, 2, 3] if name == "paris" else [1, 2])
            if name != "paris":
                assert isinstance(ends[name], SpoiledError), ends[name]
                assert "of site='paris' in round=3 what follows from all sums before" in str(ends[name])


def test_where_sites_may_be_dropped_a_bad_proposer_wastes_one_sum():
    """The others go on without it, and the next one proposes."""
    with made(GO_ON, spare=1) as federation:
        world = LyingWorld(shows=proposing(federation, "paris", 3, shifted(1e-3)))
        ends = play(federation.all(world, pace=BRISK))
        left = [name for name in FIVE if name != "paris"]
        assert len({ends[name].model.tobytes() for name in left}) == 1, ends
        for name in left:
            assert ends[name].absent == {"paris": 3}
            assert sorted(words_of(federation, world, name)) == [1, 2, 4, 5, 6]  # the last says that it holds the model
            with federation.ledger(name) as ledger:
                assert len(list(ledger.reservations())) == 5


@pytest.mark.parametrize(
    "lie",
    [
        lambda point: point._replace(version="sottovoce 0.0.1 noise 1"),
        lambda point: point._replace(heading=point.heading._replace(transcript=bytes(32))),
        lambda point: point._replace(heading=point.heading._replace(release=2, attempt=1)),
        lambda point: point._replace(heading=point.heading._replace(context=b"x" * 32)),
        lambda point: point._replace(proposal=point.proposal._replace(point=np.full(POINT, 1e308))),
    ],
    ids=["version", "transcript", "turn", "context", "overflow"],
)
def test_whatever_a_bad_proposer_says_with_its_point_it_wastes_one_sum(lie):
    """All but the last stopped everybody once."""
    with made(GO_ON, spare=1) as federation:
        world = LyingWorld(shows=pointing(federation, "paris", 3, lie))
        ends = play(federation.all(world, pace=BRISK))
        left = [name for name in FIVE if name != "paris"]
        assert all(getattr(ends[name], "absent", None) == {"paris": 3} for name in left), ends
        assert len({ends[name].model.tobytes() for name in left}) == 1


@pytest.mark.parametrize("changes", [{"digest": b"x" * 32}, {"gone": True, "left": True}])
def test_what_a_proposer_testifies_of_another_site_sends_nobody_away(changes):
    """It says that rome has said something else, or that it goes on without rome: once that stopped rome, or all."""
    with made(GO_ON, spare=1) as federation:
        rome = FIVE.index("rome")

        def lie(point):
            told = list(point.testimony)
            told[rome] = told[rome]._replace(**changes)
            return point._replace(testimony=tuple(told))

        world = LyingWorld(shows=pointing(federation, "paris", 3, lie))
        ends = play(federation.finish(world, pace=BRISK))
        assert all(end.absent == {} for end in ends.values())


@pytest.mark.parametrize("lost", [STOP, GO_ON], ids=["stop", "go-on"])
def test_a_site_that_has_proposed_what_it_cannot_have_computed_is_used_twice(lost):
    """In its own mailbox lies another point that it has signed: another process, or another history."""
    with made(lost, **({} if lost is STOP else {"spare": 1})) as federation:
        world = LyingWorld()

        async def scene():
            others = [asyncio.ensure_future(federation.site(name, world)) for name in FIVE if name != "paris"]
            await dies(federation, world, "began", 3, "paris")
            place = Slot(3, "paris", Kind.POINT)
            envelope, point = opened(federation, place, world.post._held[place])
            off = point._replace(proposal=shifted(1e-3)(point.proposal))
            world.post._held[place] = seal(envelope, off.to_bytes(), federation.keys["paris"])
            with pytest.raises(UsedTwiceError, match=r"another signed message of round=3"):
                await federation.site("paris", world)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        play(scene())


@pytest.mark.parametrize("point", ["checkpointed", "began", "published"])
def test_a_proposer_that_is_gone_is_gone_on_without(point):
    """It dies before it proposes, after it has proposed, or after it has spoken: the rest end with one model."""
    with made(GO_ON, spare=1) as federation:
        world = LyingWorld()
        at = 2 if point == "checkpointed" else 3

        async def scene():
            others = [name for name in FIVE if name != "paris"]
            lost = asyncio.ensure_future(federation.site("paris", world, probe=dying(point, at)))
            ends = await asyncio.gather(*(federation.site(name, world) for name in others))
            with pytest.raises(Died):
                await lost
            return ends

        ends = play(scene())
        if point == "published":  # its words were there: the sum was read, and it is missed in the next
            assert {tuple(end.absent.items()) for end in ends} == {(("paris", 4),)}
        else:
            assert {tuple(end.absent.items()) for end in ends} == {(("paris", 3),)}
        assert len({end.model.tobytes() for end in ends}) == 1


def test_a_site_that_restarts_after_a_silent_attempt_goes_on():
    """paris dies before it proposes; the sum is given up, and berlin, which said nothing for it, is started again."""
    with made(GO_ON, spare=1) as federation:
        world = LyingWorld()

        async def berlin():
            await dies(federation, world, "checkpointed", 3)
            return await federation.site("berlin", world)

        async def scene():
            others = [name for name in FIVE if name not in ("paris", "berlin")]
            lost = asyncio.ensure_future(federation.site("paris", world, probe=dying("checkpointed", 2)))
            ends = await asyncio.gather(berlin(), *(federation.site(name, world) for name in others))
            with pytest.raises(Died):
                await lost
            return ends

        assert len({end.model.tobytes() for end in play(scene())}) == 1
        assert sorted(words_of(federation, world, "berlin")) == [1, 2, 4, 5, 6]


# -- two proposals for one sum ----------------------------------------------------------------------------------------


def test_a_proposer_that_signs_two_points_opens_nothing_and_is_named():
    """rome is shown another than the rest, within rounding: nobody's masks cancel with rome's."""
    with made() as federation:
        world = LyingWorld(shows=proposing(federation, "paris", 3, shifted(1e-12), to="rome"))
        ends = play(federation.all(world, pace=BRISK))
        assert not any(hasattr(end, "model") for end in ends.values())
        named = [str(end) for end in ends.values() if isinstance(end, ForkedError)]
        assert named
        assert all("paris has signed two for one sum" in text for text in named), named
        a, said = federation.agreement, {}
        for name in FIVE:
            (data,) = words_of(federation, world, name)[3]
            place = Envelope(a.run, a.digest(), Slot(3, name, Kind.SUM), format_of(a).payload(3))
            said[name] = read_sum(unseal(data, place, a.member(name).public_key), 3, 5)
        assert len({words.heading.context for words in said.values()}) == 2
        total = np.sum([words.words for words in said.values()], axis=0, dtype=np.uint64).view(np.int64)
        assert np.abs(total).max() > 2**55  # an honest one is below 2^40


def test_a_site_that_has_spoken_at_one_point_does_not_speak_at_another():
    """Started again, it is shown another proposal for the same sum, as good as the first: it says nothing more."""
    with made() as federation:
        world = LyingWorld()

        async def scene():
            others = [asyncio.ensure_future(federation.site(name, world)) for name in FIVE[1:]]
            await dies(federation, world, "published", 3)
            world.shows = proposing(federation, "paris", 3, shifted(1e-12), to="berlin")
            with pytest.raises(ForkedError, match=r"site='paris'\. It has signed two for one sum"):
                await federation.site("berlin", world)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        play(scene())
        assert all(len(sent) == 1 for sent in words_of(federation, world, "berlin").values())


@pytest.mark.parametrize("forgets", [False, True])
def test_a_folder_that_is_put_back_does_not_speak_at_a_second_point(forgets):
    """A relay plays with a bad proposer: berlin's folder is from before sum 3, and it is shown another point. Its own
    words are on the server; if they are hidden from it, the others know of them.
    """
    with made() as federation:
        world = LyingWorld()

        async def scene():
            others = [asyncio.ensure_future(federation.site(name, world)) for name in FIVE[1:]]
            await dies(federation, world, "checkpointed", 2)
            backup = Backup(federation)
            await dies(federation, world, "collected", 3)
            await asyncio.sleep(1.0)
            backup.restore()
            second = proposing(federation, "paris", 3, shifted(1e-12), to="berlin")

            def shows(reader, slot, data):
                hidden = forgets and reader == slot.site == "berlin" and slot.kind is Kind.SUM and slot.number > 2
                return None if hidden else second(reader, slot, data)

            world.shows = shows
            with pytest.raises(UsedTwiceError):
                await federation.site("berlin", world)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        play(scene())
        assert all(len(sent) == 1 for sent in words_of(federation, world, "berlin").values())


def test_words_at_two_points_share_no_mask_and_no_noise():
    """If all else fails, and a site that was put back answers both: what it says at one tells nothing of the other."""
    with made() as federation, ExitStack() as stack:
        seat = federation.seat("berlin", stack)
        summing, masks, past = seat.part.summing, seat.part.masks, Past()
        question = Gradient(np.zeros((5, 1)))
        said = []
        for by in (0.0, 1e-12):
            point = shifted(by)(summing.propose(2, question, FIVE))
            taken = summing.adopt(2, question, FIVE, point)
            context = summing.context(Turn(2, 0), point, FIVE, bytes(32), bytes(32))
            said.append(summing.words(context, taken, masks, past))
        apart = (said[0] - said[1]).view(np.int64)
        assert np.abs(apart).min() > 2**50  # noise of both shares together is 2^32
