"""The page of `site watch` as HTML: rounds, who waits for whom, what was spent, and whether all heard the same.

It shows the clock, the agreed numbers, what was said, with its noise, and what the ledger of the rows has booked; a log
holds nothing else. Names and words in a log are not trusted: they are escaped, and the page may run no script but its
own.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple, final

from sottovoce import __version__
from sottovoce.cli.watch.chart import MOST_LINES, Chart, chart
from sottovoce.cli.watch.story import SiteStory, common_run, compared
from sottovoce.document import NOTHING, Part, Table
from sottovoce.federation.site.events import MASKED, OWN_NOISE
from sottovoce.numerals import down, exactly, up
from sottovoce.privacy.observers import against
from sottovoce.studies.report.rendering import render_page, source

PARTS = ("spoken", "facts", "status", "waits", "heard", "sums", "pace", "guarantee", "news")
_MOST_ROWS = 300
_ALL = "all sites"  # of which the same is true


@final
@dataclass(frozen=True)
class PageTerms:
    """What an agreement says that logs do not: names, way of speaking, and against whom it holds.

    Args:
        digest: of the agreement. Logs of another one get nothing of this.
        name: what the sites call it.
        way: how its runs speak.
        guarantee: of the whole run to every site, as `privacy.words.guarantee` describes it.
    """

    digest: str
    name: str
    way: str
    guarantee: Sequence[Part]


def page(
    stories: Sequence[SiteStory], terms: PageTerms | None, now: float, *, live: bool, remarks: Sequence[str]
) -> str:
    """The whole page as HTML. A live page has a script that takes in changes; a written one has no script."""
    name = f": {terms.name}" if terms is not None and terms.name else ""
    return render_page(
        "watch.html.j2",
        title=f"Site {stories[0].name}{name}" if len(stories) == 1 else f"{len(stories)} sites{name}",
        parts=parts(stories, terms, now, live=live, remarks=remarks),
        live=live,
        style=_style(),
        script=_script(),
        policy=None
        if live
        else f"default-src 'none'; style-src {_hash(_style())}; base-uri 'none'; form-action 'none'",
        version=__version__,
    )


def security_policy() -> str:
    """Content-Security-Policy of the live page: its own script and style, and connections to its own server only."""
    return (
        f"default-src 'none'; script-src {_hash(_script())}; style-src {_hash(_style())}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _style() -> str:
    return f"\n{source('style.css')}{source('watch.css')}"


def _script() -> str:
    return f"\n{source('watch.js')}"


def _hash(text: str) -> str:
    """Hash by which a security policy allows a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def parts(
    stories: Sequence[SiteStory], terms: PageTerms | None, now: float, *, live: bool, remarks: Sequence[str]
) -> dict[str, str]:
    """The parts of the page that may change, by their ids, as HTML.

    Args:
        stories: the sites, at least one.
        terms: what was agreed, if it is known.
        now: the time for which it is drawn, in seconds since 1970.
        live: True if the page goes on; otherwise clocks stand where the logs end.
        remarks: what else is to be said of the logs.
    """
    at = [now if live else (story.last or now) for story in stories]
    way, several = _way(stories, terms), len(stories) > 1
    # Read aloud to those who do not see the page, whenever it changes: so it is without seconds.
    spoken = [f"{story.name} {_doing(story, now)[0]}" for story, now in zip(stories, at, strict=True)]
    content: dict[str, dict[str, object]] = {
        "spoken": {"words": "; ".join(spoken[:20])},
        "facts": {"facts": _facts(stories, terms), "remarks": [*_remarks(stories, terms), *remarks]},
        "status": {"sites": [_status(story, now) for story, now in zip(stories, at, strict=True)], "several": several},
        "waits": {"table": _waits(stories, at), "done": all(story.doing == "done" for story in stories)},
        "heard": {"comparison": compared(stories), "table": _digests(stories), "several": several,
                  "whole": way == MASKED},
        "sums": {"chart": _sums(stories), "words": _OPENED.get(way, "")},
        "pace": {"chart": _pace(stories)},
        "guarantee": {"terms": _fitting(stories, terms)},
        "news": {"news": _news(stories), "several": several},
    }  # fmt: skip
    return {name: render_page("watch_parts.html.j2", part=name, **content[name]) for name in PARTS}


# -- which run it is --------------------------------------------------------------------------------------------------


def _facts(stories: Sequence[SiteStory], terms: PageTerms | None) -> list[tuple[str, str]]:
    run = common_run(stories)
    first = next((story for story in stories if story.run == run), stories[0])
    ends = [story.last for story in stories if story.last is not None]
    begun = [story.first for story in stories if story.first is not None]
    return [
        ("noise", _WAYS.get(_way(stories, terms), NOTHING)),
        ("run", run[:12] or NOTHING),
        ("agreement", first.agreement[:12] or NOTHING),
        ("first line", _when(min(begun)) if begun else NOTHING),
        ("last line", _when(max(ends)) if ends else NOTHING),
    ]


_OPENED = {
    MASKED: "The norm of the gradient of the mean loss over all rows, as it was opened, in whitened coordinates, with "
    "their noise. The first sum, of second moments, is not drawn.",
    OWN_NOISE: "The norm of the mean of a site's own and its neighbours' models, as they were sent, with their noise.",
}
_WAYS = {MASKED: "masked sums", OWN_NOISE: "noise of its own at every site"}


def _way(stories: Sequence[SiteStory], terms: PageTerms | None) -> str:
    fitting = _fitting(stories, terms)
    return fitting.way if fitting is not None else next((story.way for story in stories if story.way), "")


def _fitting(stories: Sequence[SiteStory], terms: PageTerms | None) -> PageTerms | None:
    """The terms, unless a log speaks of another agreement: then nothing is promised here."""
    known = {story.agreement for story in stories if story.agreement}
    return terms if terms is not None and known <= {terms.digest} else None


def _remarks(stories: Sequence[SiteStory], terms: PageTerms | None) -> list[str]:
    """Sentences on what does not fit together."""
    run, remarks = common_run(stories), []
    if terms is not None and _fitting(stories, terms) is None:
        remarks.append("A log belongs to another agreement than the one that was given: no guarantee is shown.")
    remarks += [f"{s.name} is in another run, {s.run[:12]}." for s in stories if s.run and s.run != run]
    twice = [name for name, times in Counter(s.name for s in stories).items() if times > 1]
    remarks += [f"Several logs are of a site with the name {name}." for name in twice]
    unsaid = [s.name for s in stories if s.last is not None and not s.begun]
    remarks += [f"The log of {name} begins in the middle of a run." for name in unsaid]
    remarks += [f"The log of {s.name} has no line yet." for s in stories if s.last is None]
    return remarks


# -- where they stand -------------------------------------------------------------------------------------------------


class _Status(NamedTuple):
    """One site's row of the table, as text."""

    name: str
    round: int
    rounds: int | None
    doing: str
    reason: str  # why it stopped
    kind: str  # good, part, bad or nothing: the colour
    spent: str
    cap: str
    at: str  # which delta
    share: float  # of the cap that is spent, 0 to 1
    left: str
    promised: str


def _status(story: SiteStory, now: float) -> _Status:
    def at(delta: float | None) -> str:
        return _shown(delta, lambda value: f" at δ = {exactly(value)}", "")

    doing, kind = _doing(story, now)
    share = min(story.spent / story.cap, 1.0) if story.spent is not None and story.cap else 0.0
    return _Status(
        name=story.name,
        round=story.round,
        rounds=story.rounds,
        doing=doing,
        reason=story.reason,
        kind=kind,
        spent=_shown(story.spent, up),
        cap=_shown(story.cap, exactly),
        at=at(story.cap_delta) + against(story.colluding),
        share=share,
        left=_shown(story.left, down),
        promised=_shown(story.epsilon, exactly) + (at(story.delta) if story.epsilon is not None else ""),
    )


def _doing(story: SiteStory, now: float) -> tuple[str, str]:
    late = story.awaited(now)
    if story.doing == "done":
        without = f", without {', '.join(story.absent)}" if story.absent else ""
        return f"done{without}", "part" if story.absent else "good"
    if story.doing in ("stopped", "interrupted"):
        return story.doing, "bad" if story.doing == "stopped" else "part"
    if story.doing == "waiting":
        return (f"waits for {', '.join(late)}", "part") if late else ("listens", "")
    return {"computing": "computes", "listening": "listens"}.get(story.doing, "starts"), ""


def _waits(stories: Sequence[SiteStory], at: Sequence[float]) -> Table:
    """Who is awaited, by whom, and for how long; whoever is awaited by most comes first."""
    found: dict[str, dict[str, float]] = {}
    for story, now in zip(stories, at, strict=True):
        for name, seconds in story.awaited(now).items():
            found.setdefault(name, {})[story.name] = seconds
    order = sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    rows = [(name, ", ".join(by), _seconds(max(by.values()))) for name, by in order[:_MOST_ROWS]]
    return Table(("silent", "awaited by", "for"), rows, frozenset({2}))


# -- what they heard --------------------------------------------------------------------------------------------------


def _digests(stories: Sequence[SiteStory]) -> Table:
    """The newest rounds: the transcript of each site, or of all where they are the same."""
    run = common_run(stories)
    shown = [story for story in stories if story.run == run][:MOST_LINES]
    newest = sorted({k for story in shown for k in story.done}, reverse=True)[:12]
    columns = {story.name: [_digest(story, k) for k in newest] for story in shown}
    if len(columns) > 1 and len({tuple(cells) for cells in columns.values()}) == 1:
        columns = {_ALL: next(iter(columns.values()))}
    rows = [(str(k), *(cells[i] for cells in columns.values())) for i, k in enumerate(newest)]
    return Table(("round", *columns), rows, frozenset({0}))


def _digest(story: SiteStory, k: int) -> str:
    """The transcript of a round, as far as people read it to each other."""
    return story.done[k].transcript[:16] or NOTHING if k in story.done else NOTHING


# -- over the rounds --------------------------------------------------------------------------------------------------


def _sums(stories: Sequence[SiteStory]) -> Chart | None:
    run = common_run(stories)
    series = {
        story.name: {k: done.size for k, done in story.done.items() if done.size is not None}
        for story in stories
        if story.run == run
    }
    first = next(iter(series.values()), {})
    if len(series) > 1 and all(other == first for other in series.values()):
        series = {_ALL: first}
    return chart(series, "Size", lambda value: f"{value:.4g}")


def _pace(stories: Sequence[SiteStory]) -> Chart | None:
    """Chart of the seconds from the end of one round to that of the next, where no round between them is missing."""
    series = {}
    for story in stories:
        done = sorted(story.done.items())
        times = {k: max(now.time - then.time, 0.0) for (j, then), (k, now) in pairwise(done) if k == j + 1}
        series[story.name] = times
    return chart(series, "Seconds", lambda value: f"{value:.3g}")


# -- the rest ---------------------------------------------------------------------------------------------------------


def _news(stories: Sequence[SiteStory]) -> list[tuple[str, str, bool, str]]:
    """Time, site, True if it is bad, and words of the 50 newest events, the newest first."""
    found = [(news.time, story.name, news.bad, news.words) for story in stories for news in story.news]
    return [(_when(time), name, bad, words) for time, name, bad, words in sorted(found, reverse=True)[:50]]


def _when(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _seconds(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60} min"


def _shown(value: float | None, words: Callable[[float], str], nothing: str = NOTHING) -> str:
    return nothing if value is None else words(value)
