"""The page of a run: all of it there, self-contained, and drawn by a real browser where there is one."""

import math
import re
import shutil
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from io import BytesIO

import numpy as np
import pytest
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg

from helpers.browser import BROWSER, DESK, PHONE, SEEN, Browser, fits
from sottovoce.cli import main
from sottovoce.document import Document, Words
from sottovoce.errors import InputError
from sottovoce.files.models.apply import weights_digest
from sottovoce.files.models.inference import Inference, line_of
from sottovoce.studies import folder
from sottovoce.studies.config import TrainConfig
from sottovoce.studies.report.rendering import page_of
from sottovoce.studies.report.run_figures import by_site, disagreement, forest, learning, spending
from sottovoce.studies.report.run_page import run_page
from sottovoce.studies.run import train
from sottovoce.tally import Terms, evaluate_privately

SCHEMA = """
version = 1
unreviewed = []
row_norm = "bound"

[label]
column = "label"
classes = ["0", "1"]

[[columns]]
name = "age"
kind = "numeric"
bounds = [20, 80]
scale = "symmetric"

[[columns]]
name = "smoker"
kind = "boolean"
"""
SECTIONS = ("guarantee", "learning", "spending", "sites", "coefficients", "settings")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small run, as `train --out` leaves it."""
    out = tmp_path_factory.mktemp("runs") / "run"
    config = TrainConfig(nodes=5, rounds=6, local_steps=2, runs=2, rho=1e-3, diameter=80.0, split="official")
    folder.add_scores(train(config, keep=lambda trained: folder.write(trained, out)), out)
    assert main(["report", str(out)]) == 0
    return out


class Seen(HTMLParser):
    """Ids, addresses and tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.addresses, self.tags = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "data", "action"):
                self.addresses.append(value)


def test_everything_is_there_and_nothing_is_fetched(run):
    text = (run / "report.html").read_text()
    seen = Seen(text)
    assert set(SECTIONS) <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))
    assert seen.addresses
    assert all(address.startswith("#") for address in seen.addresses)
    assert {address[1:] for address in seen.addresses} <= set(seen.ids)
    assert "script" not in seen.tags
    assert not re.search(r"url\((?!#)", text)
    for words in ("site-5", "differential privacy with epsilon = 1 ", "computed from the rows"):
        assert words.replace("&", "&amp;") in text, words


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """A run with masked sums, inference and evaluation on rows from a file, as `train --out` leaves it."""
    out = tmp_path_factory.mktemp("runs") / "masked"
    draws = np.random.default_rng(5)
    rows = draws.integers(20, 80, 3000), draws.integers(0, 2, 3000)
    chance = 1 / (1 + np.exp(1 - rows[0] / 40 - rows[1]))
    lines = [f"{a},{s},{y}" for a, s, y in zip(*rows, (draws.random(3000) < chance).astype(int), strict=True)]
    (out.parent / "rows.csv").write_text("\n".join(["age,smoker,label", *lines]))
    (out.parent / "schema.toml").write_text(SCHEMA)
    given = ("--data", out.parent / "rows.csv", "--schema", out.parent / "schema.toml", "--nodes", 5)
    how = ("--algorithm", "masked", "--colluding", 1, "--epsilon", 8, "--inference", "--evaluate", 0.2, "--out", out)
    assert main([str(word) for word in ("train", *given, *how)]) == 0
    assert main(["report", str(out)]) == 0
    return out


def test_where_the_guarantee_depends_on_who_colludes_that_is_drawn(run, masked):
    seen = Seen((masked / "report.html").read_text())
    assert {*SECTIONS, "colluding"} <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))
    assert "colluding" not in Seen((run / "report.html").read_text()).ids


def test_the_guarantee_is_a_table_and_its_full_text_is_folded(run, masked):
    for out in (run, masked):
        text, privacy = (out / "report.html").read_text(), folder.read(out).model.privacy
        section = text[text.index('<section id="guarantee">') :].split("</section>")[0]
        table, folded = section.split("<details><summary>The whole statement</summary>")
        for name in ("protected", "against", "epsilon", "assumed public", "not covered"):
            assert f'<td class="strong">{name}</td>' in table, name
        for words in (*privacy.notes, *privacy.not_covered, *privacy.public):
            assert words in shown(table)
        assert privacy.prose() in shown(folded)
        assert privacy.prose() not in shown(table)


def shown(html):
    """What a reader sees of it, on one line."""
    return unescape(" ".join(re.sub(r"<[^>]*>", "", html).split()))


def test_one_warning_stands_before_all_figures(run, masked):
    text = (masked / "report.html").read_text()
    assert text.count('class="banner') == 1
    assert text.count("without noise") == 1
    assert text.index('class="banner') < text.index("without noise") < min(text.index("<table"), text.index("<svg"))
    public = (run / "report.html").read_text()
    assert 'class="banner' not in public
    assert "These rows are public" in public
    # A folder that does not say is taken for one of private rows.
    read = folder.read(run)
    unsaid = run_page(replace(read, summary={k: v for k, v in read.summary.items() if k != "holder_only"}))
    assert "keep it to yourself" in unsaid


def test_no_figure_shows_what_is_zero_up_to_rounding(run, masked):
    """Sums are opened to all alike, so the distance between sites is some 1e-15; with noise of its own it is not."""
    read = folder.read(masked)
    rounding = np.full_like(read.history["disagreement"], 1e-15)
    assert max(read.history["disagreement"]) < 1e-12
    same = run_page(replace(read, history={**read.history, "disagreement": rounding}))
    apart = (run / "report.html").read_text()
    assert 'id="disagreement-' in apart
    assert 'id="disagreement-' not in same
    assert "All sites have the same model in every round." in same
    assert "All sites have the same model" not in apart
    assert "accuracy %, own" in apart
    assert "accuracy %, own" not in same


def test_coefficients_have_intervals_or_are_not_shown(run, masked):
    bare, known = ((out / "report.html").read_text() for out in (run, masked))
    assert "Not shown here. These coefficients have no standard errors" in bare
    assert 'id="coefficients-' not in bare  # nor is there a figure of them
    assert 'id="coefficients-' in known
    assert "All standard errors" in known


def test_without_noise_no_epsilon_is_drawn(tmp_path):
    trained = train(TrainConfig(nodes=3, rounds=2, local_steps=2, runs=1, rho=1e-3, epsilon=math.inf, diameter=80.0))
    folder.write(trained, tmp_path / "open")
    folder.add_scores(trained, tmp_path / "open")
    text = run_page(folder.read(tmp_path / "open"))
    assert "No epsilon is drawn" in text
    assert 'id="spent-' not in text
    assert '<p class="banner bad">NOT PRIVATE' in text


def test_numbers_are_those_of_the_run(run):
    text, summary = (run / "report.html").read_text(), folder.read(run).summary
    assert f"{summary['risk']['consensus']:.4f}" in text
    assert f"{100 * summary['test']['accuracy']['last']:.2f}" in text


def test_what_comes_from_outside_stays_text(run):
    hostile = "<script>alert(1)</script>"
    read = folder.read(run)
    model = replace(read.model, names=(hostile, *read.model.names[1:]))
    sites = {**read.sites, "site": [hostile, *read.sites["site"][1:]]}
    text = run_page(
        replace(read, config=hostile, model=model, sites=sites, summary={**read.summary, "dataset": hostile})
    )
    assert "script" not in Seen(text).tags
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 4  # title, heading, site, settings


@pytest.mark.skipif(not BROWSER, reason="needs Chromium, which is not a Python package")
def test_a_browser_draws_it_wide_and_narrow(run, masked, tmp_path):
    with Browser(tmp_path / "profile") as browser:
        for out, figures in ((run, 5), (masked, 8)):
            for width in (PHONE, DESK):
                seen = browser.look((out / "report.html").as_uri(), width)
                assert fits(seen, width), seen
                assert seen["figures"] == figures
            drawn = image.imread(BytesIO(browser.picture()))[..., :3]
            ink = (drawn < drawn.max() - 0.1).any(axis=2)
            # There is something to see in every fifth of the page, and most of it is paper.
            for fifth in np.array_split(ink, 5):
                assert 0.002 < fifth.mean() < 0.5
        # What is too wide is seen, and so is what is too small to be read.
        browser.value("document.querySelector('h2').style.width = '2000px'")
        assert "H2" in browser.value(SEEN)
        assert not fits({"page": PHONE, "out": [], "letters": 6.0}, PHONE)


def test_a_damaged_or_missing_run_is_named(run, tmp_path):
    with pytest.raises(InputError, match=r"config\.toml: No such file"):
        folder.read(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    for name in ("history.parquet", "summary.json", "model.safetensors"):
        kept = (copy / name).read_bytes()
        (copy / name).write_bytes(b"junk, no doubt")
        assert main(["report", str(copy)]) == 2
        (copy / name).write_bytes(kept)


def test_the_promised_epsilon_is_written_where_no_curve_is():
    """The label and the curve are drawn; no point of the curve may lie in the label's box."""
    rounds = list(range(1, 11))
    history = {"round": rounds, "disagreement": [1.0] * 10, "epsilon": [2 * (k / 10) ** 0.5 for k in rounds]}
    for cost in (history["epsilon"], [2.0] * 10):
        figure = spending({**history, "epsilon": cost}, 2.0)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        (axes,) = figure.axes
        (label,) = (text for text in axes.texts if text.get_text() == "promised")
        box = label.get_window_extent(canvas.get_renderer())
        line = axes.lines[0]
        dense = np.linspace(1, 10, 500)
        points = axes.transData.transform(np.column_stack([dense, np.interp(dense, rounds, line.get_ydata())]))
        assert not any(box.contains(*point) for point in points)
        assert box.y1 <= axes.get_window_extent(canvas.get_renderer()).y1  # nor does it leave the axes


def test_no_text_of_a_figure_is_cut_off_whatever_its_names_and_numbers():
    long, dear = "a-rather-long-name-of-a-hospital-in-a-large-city=$" * 2, "cost in $ and $"
    rounds = [1, 2, 3]
    numbers = {name: [0.0162519, 0.0047, 0.0003] for name in ("risk_last", "risk_average", "risk_consensus")}
    history = {"round": rounds, **numbers, "disagreement": [0.0162519, 0.0047, 0.0003], "epsilon": [1234.5, 2e4, 3e4]}
    sites = {"site": [long, dear, "c"], **{f"accuracy_{one}": [0.815, 0.8175, 0.82] for one in ("last", "consensus")}}
    lines = tuple(line_of(name, x, 0.1, "logistic") for name, x in ((long, 0.5), (dear, -1.0), ("age", 2.0)))
    figures = {
        "learning": learning(history, "risk", ("last", "average", "consensus"), (0.3, "all rows pooled, no privacy")),
        "disagreement": disagreement(history),
        "spending": spending(history, 3e4),
        "sites": by_site(sites, same=False),
        "forest": forest(Inference("logistic", 100, lines, {})),
    }
    for name, figure in figures.items():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        drawn, (width, height) = figure.get_tightbbox(canvas.get_renderer()), figure.get_size_inches()
        assert drawn.x0 >= -0.01, name
        assert drawn.y0 >= -0.01, name
        assert drawn.x1 <= width + 0.01, name
        assert drawn.y1 <= height + 0.01, name


def test_options_and_numbers_stay_on_a_line_and_all_is_escaped_all_the_same():
    text = page_of(Document("Title", [Words("Train with --algorithm masked --<b>, delta = 1.5e-05; Ann-e-7.")]))
    assert (
        '<span class="whole">--algorithm</span> masked --&lt;b&gt;, delta = <span class="whole">1.5e-05</span>; '
        in text
    )
    assert "Ann-e-7." in text


def test_a_private_evaluation_is_drawn_and_told_apart(run, tmp_path):
    """From noisy sums: marked as such, with curves and its own guarantee; of another model, it is refused."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    model = folder.read(run).model
    draws = np.random.default_rng(0)
    z = draws.normal(size=(2000, 1))
    labels = np.where(draws.random(2000) < 1 / (1 + np.exp(-z[:, 0])), 1.0, -1.0)
    found = evaluate_privately(model.loss, z, labels, Terms(epsilon=1.0, delta=1e-5), classes=model.classes)
    replace(found, model=weights_digest(model)).save(copy / "evaluation.json")
    assert main(["report", str(copy)]) == 0
    text = (copy / "report.html").read_text()
    seen = Seen(text)
    assert "evaluation" in seen.ids
    assert len(seen.ids) == len(set(seen.ids))
    assert any(name.startswith("roc-") for name in seen.ids)
    assert any(name.startswith("calibration-") for name in seen.ids)
    assert "covered by the guarantee that goes with it" in text
    assert "the private evaluation and the settings was computed from the rows" in " ".join(text.split())
    assert "evaluation" not in Seen((run / "report.html").read_text()).ids
    (copy / "evaluation.json").unlink()
    found.save(copy / "evaluation.json")  # it does not say whose it is
    assert main(["report", str(copy)]) == 2


def test_a_part_that_no_page_knows_is_an_error():
    """It would be left out of the page otherwise, and nobody would notice."""
    with pytest.raises(TypeError, match="a part of a document, got object"):
        page_of(Document("Title", [object()]))
