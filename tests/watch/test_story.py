"""What the lines of a log add up to, also if somebody else has written them."""

import json
from datetime import datetime

import pytest

from sottovoce.cli.site.view import PlainLines
from sottovoce.cli.watch import story as stories
from sottovoce.cli.watch.reading import LoggedEvent
from sottovoce.cli.watch.story import Difference, SiteStory, clean, common_run, compared
from sottovoce.federation.site.events import ServerAway, ServerBack, ServerSilent
from watch.logs import HOSTILE, began, digest, done, line


def told(*lines, name="file"):
    story = SiteStory(name)
    for text in lines:
        fields = json.loads(text)
        story.take(LoggedEvent(datetime.fromisoformat(fields["time"]).timestamp(), fields["event"], fields))
    return story


def test_a_run_from_its_beginning_to_its_end():
    lines = [began(second=0)]
    assert (told(*lines).doing, told(*lines).left) == ("computing", 1.6)
    lines += [line("published", 1, round=1, again=False)]
    assert told(*lines).doing == "listening"
    lines += [line("waiting", 2, round=1, silent={"rome": 1.0, "oslo": 7.0})]
    now = told(*lines).last
    assert told(*lines).awaited(now) == {"oslo": 7.0}
    assert told(*lines).awaited(now + 5) == {"oslo": 12.0, "rome": 6.0}
    lines += [done(1, 3)]
    assert told(*lines).awaited(now + 99) == {}
    lines += [
        line("refused", 4, round=2, sender="rome", reason="forged"),
        line("dropped", 5, round=2, neighbour="rome"),
    ]
    lines += [*(done(k, 5 + k) for k in range(2, 9)), line("finished", 20, rounds=8, absent={"rome": 2})]
    story = told(*lines)
    assert (story.name, story.round, story.rounds, story.doing, story.absent) == ("berlin", 8, 8, "done", ("rome",))
    assert (story.spent, story.left, story.over) == (1.0, 1.1, True)
    assert [news.words for news in story.news] == [
        "refused a message of rome in round 2: forged", "going on without rome since round 2",
    ]  # fmt: skip


def test_a_silent_server_is_told_in_the_same_words_here_and_on_a_terminal(capsys):
    silence = ServerSilent(72.0), ServerAway("message server tls://x:1 does not answer (timed out)", 61.5), ServerBack()
    watcher = PlainLines()
    for event in silence:
        watcher.tell(event)
    terminal = capsys.readouterr().err.splitlines()
    here = [news.words for news in told(*(line(event.name, **event.fields()) for event in silence)).news]
    assert here == [
        "the message server has not answered for 0:01:12",
        "message server tls://x:1 does not answer (timed out); trying again, giving up in 62 s",
        "the message server answers again",
    ]
    assert terminal == [f"sottovoce: {words}" for words in here]


def test_a_run_that_is_resumed_goes_on_and_another_begins_anew():
    story = told(began(), done(1), line("interrupted", kind="KeyboardInterrupt"), began(done=1), done(2))
    assert (list(story.done), story.round, story.doing) == ([1, 2], 2, "computing")
    story = told(began(), done(1), line("stopped", reason="lost"), began(run="ee" * 16), name="x")
    assert (story.done, list(story.news), story.round, story.way) == ({}, [], 0, "")


def test_a_log_that_begins_in_the_middle_is_told_as_far_as_it_goes():
    story = told(done(7), name="rome")
    assert (story.name, story.begun, story.round, story.rounds, story.spent) == ("rome", False, 7, None, 0.9375)


BAD = (None, True, -1, "7", [], {}, 10**400, "x" * 10**5, float("1e308"), HOSTILE)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: str(bad)[:12])
def test_a_field_that_is_not_what_it_should_be_counts_as_missing(bad):
    """Whatever is put in any field, the story is told, and what it holds is short and clean."""
    for make in (began, lambda **fields: done(1, **fields)):
        for field in json.loads(make()):
            if field not in ("time", "event", "logger"):
                story = told(began(), make(**{field: bad}), line("waiting", round=bad, silent=bad))
                for number in (story.spent, story.cap, story.epsilon, story.delta, story.left):
                    assert number is None or 0 <= number <= 1e300
                assert isinstance(story.round, int)
                for words in (story.name, story.run, story.policy, *story.neighbours):
                    assert len(words) <= 401
                    assert words.isprintable()


def test_words_hold_nothing_that_turns_or_hides_others():
    assert clean("a\u202eb\x1b[31m\n\u200bc") == "a b [31m  c"
    assert clean("x" * 500) == "x" * 400 + "…"
    assert clean(7) == ""


def test_memory_is_bounded_however_long_the_log_is(monkeypatch):
    monkeypatch.setattr(stories, "MOST_ROUNDS", 10)
    assert list(told(*(done(k) for k in range(1, 30))).done) == list(range(20, 30))
    monkeypatch.setattr(stories, "MOST_DIGESTS", 12)  # three a round
    story = told(*(done(k) for k in range(1, 30)), done(29))
    assert list(story.done) == [26, 27, 28, 29]
    many = [line("noticed", sender="rome", text=str(i)) for i in range(200)]
    assert len(told(*many).news) == stories.MOST_NEWS
    assert len(told(line("waiting", silent={f"s{i}": 1.0 for i in range(5000)})).waits) == stories.MOST_NAMES


# -- several ----------------------------------------------------------------------------------------------------------


def three(**changes):
    """Three sites after four rounds; what one of them heard may be changed."""
    lines = {name: [began(name), *(done(k) for k in range(1, 5))] for name in ("berlin", "oslo", "rome")}
    for name, text in changes.items():
        lines[name].append(text)
    return [told(*found) for found in lines.values()]


def test_sites_that_heard_the_same_agree():
    found = compared(three())
    assert (found.rounds, found.first, found.latest, found.differences) == (4, 1, 4, ())


def test_a_message_that_one_site_heard_differently_is_named():
    other = {name: digest(300 + i) for i, name in enumerate(("berlin", "oslo"))} | {"rome": digest(999)}
    found = compared(three(oslo=done(3, heard=other)))
    assert found.differences == (
        Difference(3, "rome", {digest(302): ("berlin", "rome"), digest(999): ("oslo",)}),
    )  # fmt: skip


def test_transcripts_are_compared_where_everyone_hears_everyone_and_only_there():
    found = compared(three(oslo=done(3, transcript=digest(77))))
    assert [(one.round, one.sender, len(one.heard)) for one in found.differences] == [(3, "", 2)]
    alone = [
        told(began(name), done(1, way="own noise", transcript=digest(i), heard={name: digest(i)}))
        for i, name in enumerate(("berlin", "oslo"))
    ]
    assert compared(alone).differences == ()
    assert compared(alone).rounds == 0


def test_sites_in_another_run_are_not_compared():
    among = three()
    among.append(told(began("wien", run="ee" * 16), done(1, transcript=digest(5), heard={"rome": digest(6)})))
    assert common_run(among) == among[0].run
    assert compared(among).differences == ()
