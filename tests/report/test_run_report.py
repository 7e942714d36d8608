"""The page of a run: all of it there, self-contained, and drawn by a real browser where there is one."""

import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from jinja2 import UndefinedError
from matplotlib import image
from matplotlib.backends.backend_agg import FigureCanvasAgg

from sottovoce.cli import main
from sottovoce.document import Document
from sottovoce.errors import InputError
from sottovoce.files.models.apply import weights_digest
from sottovoce.studies import folder
from sottovoce.studies.config import TrainConfig
from sottovoce.studies.report.rendering import page_of
from sottovoce.studies.report.run_figures import spending
from sottovoce.studies.report.run_page import run_page
from sottovoce.studies.run import train
from sottovoce.tally import Terms, evaluate_privately

SECTIONS = ("guarantee", "learning", "spending", "sites", "coefficients", "settings")
BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)


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
    model = folder.read(run).model
    for words in (*model.names[:5], "site-5", "differential privacy with epsilon = 1 ", "computed from the rows"):
        assert words.replace("&", "&amp;") in text, words


def test_where_the_guarantee_depends_on_who_colludes_that_is_drawn(run, tmp_path):
    config = TrainConfig(algorithm="masked", nodes=5, colluding=1, rounds=3, runs=1, record=1)
    trained = train(config)
    folder.write(trained, tmp_path / "masked")
    folder.add_scores(trained, tmp_path / "masked")
    seen = Seen(run_page(folder.read(tmp_path / "masked")))
    assert {*SECTIONS, "colluding"} <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))
    assert "colluding" not in Seen((run / "report.html").read_text()).ids


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
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5  # title, heading, site, feature, settings


@pytest.mark.skipif(not BROWSER, reason="needs Chromium, which is not a Python package")
def test_a_browser_draws_it(run, tmp_path):
    shot = tmp_path / "shot.png"
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--hide-scrollbars",
             f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1100,2600")  # fmt: skip
    page = (run / "report.html").as_uri()
    subprocess.run([BROWSER, *flags, f"--screenshot={shot}", page], check=True, capture_output=True, timeout=120)
    drawn = image.imread(shot)[..., :3]
    ink = (drawn < drawn.max() - 0.1).any(axis=2)
    # There is something to see in every fifth of the page but the last, and most of it is paper.
    for part in range(4):
        fifth = ink[part * len(ink) // 5 : (part + 1) * len(ink) // 5]
        assert 0.002 < fifth.mean() < 0.5
    dom = subprocess.run([BROWSER, *flags, "--dump-dom", page], check=True, capture_output=True, timeout=120, text=True)
    assert dom.stdout.count("<svg") == 4


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
        axes = figure.axes[1]
        (label,) = (text for text in axes.texts if text.get_text() == "promised")
        box = label.get_window_extent(canvas.get_renderer())
        line = axes.lines[0]
        dense = np.linspace(1, 10, 500)
        points = axes.transData.transform(np.column_stack([dense, np.interp(dense, rounds, line.get_ydata())]))
        assert not any(box.contains(*point) for point in points)
        assert box.y1 <= axes.get_window_extent(canvas.get_renderer()).y1  # nor does it leave the axes


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
    with pytest.raises(UndefinedError, match="unknown_part"):
        page_of(Document("Title", [object()]))
