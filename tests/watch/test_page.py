"""The page of a run of real sites: what it says, that strangers' words stay words, and that a browser draws it."""

import re
import time
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO

import pytest
from matplotlib import image

import sottovoce as sv
from helpers.browser import BROWSER, DESK, PHONE, Browser, fits
from helpers.federations import agreement, masked_members
from sottovoce.cli import main
from sottovoce.cli.watch.command import WatchedSite, read_terms
from sottovoce.cli.watch.page import PARTS, PageTerms, page, parts
from sottovoce.cli.watch.serving import LivePage, PageServer, serving
from sottovoce.cli.watch.story import SiteStory, clean
from sottovoce.document import Folded, Table, Words
from sottovoce.federation.agreement import toml_file
from sottovoce.privacy.observers import Sight
from sottovoce.privacy.words import observers
from watch.logs import AGREEMENT, HOSTILE, began, digest, done, line
from watch.test_story import three, told

SIGHTS = (Sight(0, 2.0, 0.5), Sight(1, 1.0, 1.0), Sight(4, 0.5, 2.5))
TERMS = PageTerms(
    AGREEMENT,
    "Income",
    "masked sums",
    [Words("epsilon = 1"), *observers(SIGHTS)],
)
EDGES = (("berlin", "oslo"), ("oslo", "paris"), ("berlin", "paris"))
NOW = 1767355200.0  # noon of the logs


class Seen(HTMLParser):
    """Tags, ids and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.names, self.text = [], [], set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.text += f"{data} "


def drawn(stories, terms=TERMS, live=False, now=NOW, remarks=()):
    return parts(stories, terms, now, live=live, remarks=remarks)


def words(html):
    return " ".join(Seen(html).text.split())


def test_it_says_how_far_each_is_and_what_is_spent_and_left():
    found = drawn(three())
    said = "berlin computes round 4 of 8 ε spent at δ = 0.0001 0.75 of 2 a run that still fits under the cap: 1.35;"
    assert said in words(found["status"])
    assert words(found["status"]).count("0.75 of 2") == 3
    assert "noise masked sums run abababababab" in words(found["facts"])


def test_what_was_spent_is_never_rounded_down_and_what_is_left_never_up():
    story = told(began(spent=1.00000000001, left=0.99999999999, cap=2.0))
    assert "1.00001 of 2 a run that still fits under the cap: 0.999999;" in words(drawn([story])["status"])


def test_it_says_who_waits_for_whom():
    among = three(berlin=line("waiting", 9, round=5, silent={"oslo": 4.0, "rome": 8.0}),
                  oslo=line("waiting", 9, round=5, silent={"rome": 8.0}))  # fmt: skip
    assert words(drawn(among)["waits"]) == "silent awaited by for rome berlin, oslo 8 s oslo berlin 4 s"
    assert "rome berlin, oslo 1 min 8 s" in words(drawn(among, live=True, now=NOW + 69)["waits"])
    assert "berlin waits for oslo, rome" in words(drawn(among)["spoken"])
    assert words(drawn(three())["waits"]) == "Nobody has waited for more than a moment."
    # A finished log tells how it was at its end, however long ago that is.
    assert words(drawn(among, now=NOW + 10**6)["waits"]) == words(drawn(among)["waits"])


def test_it_says_whether_all_heard_the_same():
    assert "Yes : in rounds 1 to 4" in words(drawn(three())["heard"])
    bad = words(drawn(three(oslo=done(3, transcript=digest(7 << 240))))["heard"])
    assert bad.startswith("Not the same. Do not use this run's model")
    assert "round 3, the whole transcript: 0000000000000000 at berlin, rome; 0007000000000000 at oslo" in bad
    assert "Yes" not in words(drawn(three()[:1])["heard"])  # one log cannot tell
    assert "Not known yet" in words(drawn([told(began("berlin")), told(began("oslo"))])["heard"])


def test_transcripts_that_are_the_same_are_shown_once():
    same = words(drawn(three())["heard"])
    assert "round all sites 4 0000000000000000" in same
    apart = words(drawn(three(oslo=done(3, transcript=digest(7 << 240))))["heard"])
    assert "round berlin oslo rome 4" in apart


def test_it_draws_the_size_of_what_was_opened_and_says_it_in_numbers():
    found = drawn(three())["sums"]
    assert found.count('<path class="line') == 1  # the same at all
    assert "Size over rounds 1 to 4: 0.25 to 1." in words(found)
    assert "round all sites 4 0.25 3 0.3333 2 0.5 1 1" in words(found)
    apart = drawn(three(oslo=done(4, size=0.7)))["sums"]
    assert apart.count('<path class="line c') == 6  # three curves, and their signs below


def test_the_guarantee_is_that_of_the_agreement_of_these_logs_and_of_no_other():
    found = drawn(three())["guarantee"]
    assert "colluding sites, with the message server epsilon 0 0.5 1 1 assumed 4 2.5" in words(found)
    other = drawn(three(), replace(TERMS, digest="ee" * 32))
    assert "epsilon = 1" not in other["guarantee"]
    assert "2.5" not in other["guarantee"]
    assert "A log belongs to another agreement" in words(other["facts"])
    assert "--federation" in drawn(three(), None)["guarantee"]


def test_terms_are_read_off_an_agreement(tmp_path):
    _, _, sites = masked_members(("berlin", "oslo", "paris"), (30, 40, 50))
    algorithm = sv.MaskedNewton(rounds=3, epsilon=1.5, delta=1e-5, colluding=1, least_sites=3)
    made = agreement(sites, edges=EDGES, algorithm=algorithm)
    toml_file.save(made, tmp_path / "federation.toml")
    terms = read_terms(tmp_path / "federation.toml")
    assert terms.name == made.name
    assert (terms.digest, terms.way) == (made.digest().hex(), "masked sums")
    statement = algorithm.statement(made.public_oracle("berlin"))
    table, full, by_sites = terms.guarantee
    assert isinstance(table, Table)
    assert table.rows[1][1] == "whoever carries the messages together with at most 1 other site, as assumed"
    assert isinstance(full, Folded)
    assert "discrete Gaussian numbers on a grid" in full.parts[0].text  # as at a real site
    (lines,) = by_sites.parts
    assert [(row[0], row[2]) for row in lines.rows] == [("0", ""), ("1", "assumed"), ("2", "")]
    told = [line.epsilon for line in statement.observers]
    assert [float(row[1]) for row in lines.rows] == pytest.approx(told, rel=2e-5)  # six digits, rounded up


def test_what_does_not_fit_is_said():
    among = [*three(), told(began("wien", run="ee" * 16)), told(done(3), name="rom"), SiteStory("bern"), three()[0]]
    facts = words(drawn(among, None)["facts"])
    for text in ("wien is in another run", "The log of rom begins in the middle", "The log of bern has no line yet",
                 "Several logs are of a site with the name berlin"):  # fmt: skip
        assert text in facts


# -- strangers --------------------------------------------------------------------------------------------------------


def hostile_lines():
    """A log in which every word is somebody's who means harm."""
    return (
        began(HOSTILE, run=HOSTILE, agreement=HOSTILE, neighbours=[HOSTILE], policy=HOSTILE),
        done(1, heard={HOSTILE: digest(1), "rome": digest(2)}, way=HOSTILE, transcript=HOSTILE),
        line("waiting", round=2, silent={HOSTILE: 9.0}),
        line("refused", round=2, sender=HOSTILE, reason=HOSTILE, explanation=HOSTILE),
        line("noticed", sender=HOSTILE, text=HOSTILE),
        line("dropped", round=2, neighbour=HOSTILE),
        line("server away", reason=HOSTILE),
        done(2, heard={HOSTILE: digest(3), "rome": digest(4)}),
        line("stopped", kind=HOSTILE, reason=HOSTILE),
    )


@pytest.mark.parametrize("live", [False, True])
def test_what_comes_from_outside_stays_text(live):
    waiting = told(*hostile_lines()[:3])
    among = [told(*hostile_lines()), waiting, told(*hostile_lines(), done(2, heard={HOSTILE: digest(9)}), name="x")]
    terms = replace(TERMS, name=clean(HOSTILE), guarantee=[Words(clean(HOSTILE))], digest=clean(HOSTILE))
    html = page(among, terms, NOW, live=live, remarks=[clean(HOSTILE)])
    seen = Seen(html)
    assert "img" not in seen.tags
    assert seen.tags.count("script") == live
    assert not {name for name in seen.names if name.startswith("on") or name in ("src", "style")}
    assert html.count("&lt;script&gt;alert(1)") >= 12  # title, heading, facts, cards, waits, digests, news, and more
    assert "\u202e" not in html
    assert len(seen.ids) == len(set(seen.ids))


def test_what_is_sent_to_a_live_page_is_escaped_too():
    for name, html in drawn([told(*hostile_lines()), told(*hostile_lines()[:3])], live=True).items():
        assert not {"script", "img"} & set(Seen(html).tags), name


def test_a_log_of_absurd_numbers_is_drawn_at_once():
    story = told(began(rounds=10**9, spent=1e300, cap=1e-300), *(done(10**k, size=10.0 ** (33 * k)) for k in range(10)))
    started = time.process_time()
    html = page([story], None, NOW, live=False, remarks=[])
    assert time.process_time() - started < 2
    assert "nan" not in html
    assert "inf" not in words(html).split()


def test_a_long_run_is_drawn_with_few_points_that_keep_its_peaks():
    sizes = dict.fromkeys(range(1, 5001), 1.0) | {2345: 9.0}
    story = told(began(rounds=5000), *(done(k, k / 10, size=size, heard={}) for k, size in sizes.items()))
    html = drawn([story])["sums"]
    path = re.search(r'<path class="line c0" d="([^"]+)"', html)[1]
    assert path.count("L") < 300
    heights = [float(point.split()[1]) for point in path[1:].split(" L")]
    assert min(heights) < 0.3 * max(heights)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Three sites' folders, as a demonstration leaves them."""
    for name in ("berlin", "oslo", "rome"):
        (tmp_path / "demo" / name).mkdir(parents=True)
        ending = line("finished", 30, rounds=8, absent={})
        text = began(name) + "".join(done(k, 3 * k) for k in range(1, 9)) + ending
        (tmp_path / "demo" / name / "site.log").write_text(text)
    return tmp_path / "demo"


def test_a_page_is_written_from_finished_logs(folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["federation", "watch", str(folder), "--out", str(out)]) == 0
    seen = Seen(out.read_text())
    assert set(PARTS) <= set(seen.ids)
    assert "script" not in seen.tags
    assert "3 sites" in seen.text
    assert "Content-Security-Policy" in out.read_text()
    assert capsys.readouterr().out == ""
    assert main(["site", "watch", str(folder / "oslo"), "--once"]) == 0
    assert "<h1>Site oslo</h1>" in capsys.readouterr().out
    logs = [str(folder / name / "site.log") for name in ("oslo", "rome")]
    assert main(["federation", "watch", *logs, "--once"]) == 0
    assert "<h1>2 sites</h1>" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["site", "watch", "{}/nowhere/site.log", "--once"], "Expected a log, or a folder that it will be in"),
        (["site", "watch", "{}/demo/none.log", "--once"], "Expected logs with lines of a site"),
        (["site", "watch", "{}/demo", "--once"], "Expected the log of one site"),
        (["federation", "watch", "{}", "--once"], "Expected a folder with site.log"),
        (["site", "watch", "{}/demo/rome", "--port", "70000"], "Expected 0 <= port <= 65535"),
        (["site", "watch", "{}/demo/rome", "--federation", "{}/demo/rome/site.log", "--once"], "Expected"),
    ],
)
def test_refusals(folder, tmp_path, capsys, given, expected):
    del folder
    assert main([text.format(tmp_path) for text in given]) == 2
    told = capsys.readouterr().err
    assert expected in told
    assert told.count("\n") == 1


def test_a_port_that_is_taken_is_named(folder, capsys):
    with closing(WatchedSite([folder / "rome" / "site.log"], None)) as watched:
        server = PageServer(0, lambda: watched.page(live=True), LivePage(watched.parts()))
        with serving(server, watched.look):
            assert main(["site", "watch", str(folder / "rome"), "--port", str(server.server_port)]) == 2
    assert "Expected a port that is free" in capsys.readouterr().err


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not BROWSER, reason="needs Chromium, which is not a Python package")
def test_a_browser_draws_it_light_dark_and_narrow(folder, tmp_path):
    out = tmp_path / "page.html"
    assert main(["federation", "watch", str(folder), "--out", str(out)]) == 0
    with Browser(tmp_path / "profile") as browser:
        for width, dark in ((DESK, False), (DESK, True), (PHONE, False)):
            seen = browser.look(out.as_uri(), width, dark)
            assert fits(seen, width, letters=0), seen
            # A letter of a chart has a size of its own on narrow pages.
            letters = "parseFloat(getComputedStyle(document.querySelector('.chart text')).fontSize)"
            scale = "document.querySelector('.chart svg').getBoundingClientRect().width / 640"
            assert browser.value(f"{letters} * {scale}") >= 9.5
            drawn = image.imread(BytesIO(browser.picture()))[..., :3]
            paper = drawn[2, 2]
            assert (paper.mean() > 0.9) != dark
            ink = (abs(drawn - paper) > 0.15).any(axis=2)
            for part in range(4):
                fifth = ink[part * len(ink) // 5 : (part + 1) * len(ink) // 5]
                assert 0.002 < fifth.mean() < 0.5
        assert browser.complaints == []


@pytest.mark.skipif(not BROWSER, reason="needs Chromium, which is not a Python package")
def test_a_browser_follows_a_run_and_runs_nothing_of_a_strangers(tmp_path):
    """The served page, under its policy: it takes in what is logged later, and hostile words stay words."""
    log = tmp_path / "site.log"
    log.write_text(began("berlin") + done(1) + done(2))
    part, link = "document.getElementById('{}').textContent", "document.getElementById('link').textContent"
    with Browser(tmp_path / "profile") as browser, closing(WatchedSite([log], None)) as watched:
        server = PageServer(0, lambda: watched.page(live=True), LivePage(watched.parts()))
        with serving(server, watched.look):
            browser.open(server.url)
            browser.wait_for(f"{link} === 'live'")
            browser.value(
                "document.querySelector('#sums details').open = true; window.alerts = 0; alert = () => alerts++"
            )
            with log.open("a") as file:
                file.write("".join(hostile_lines()[3:7]) + done(3))
            browser.wait_for(f"/3 of 8/.test({part.format('status')})")
            assert browser.value("document.querySelector('#sums details').open") is True  # as its reader has left it
            assert browser.value(part.format("news")).count("<script>alert(1)</script>") >= 5
            assert browser.value("document.querySelectorAll('img, #news script').length") == 0
            assert browser.complaints == []
            # Whatever else got into the page would not be run, either.
            browser.value("document.getElementById('news').innerHTML = '<img src=x onerror=alert(1)>'")
            browser.value("document.body.append(Object.assign(document.createElement('script'), {text: 'alert(1)'}))")
            assert browser.value("alerts") == 0
            told = list(browser.complaints)
        browser.wait_for(f"/not connected/.test({link})")
    assert told
    assert all("Content Security Policy" in text for text in told)
