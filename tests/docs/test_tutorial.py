"""The tutorial's commands, run as they stand: a page that promises something must keep it."""

import csv
import io
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from sottovoce import models
from sottovoce.cli import main

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands():
    text = (TUTORIAL / "first-model.md").read_text(encoding="utf-8")
    return [shlex.split(line) for block in BLOCK.findall(text) for line in block.splitlines()]


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The folder of someone who has followed the tutorial."""
    place = tmp_path_factory.mktemp("tutorial")
    shutil.copy(TUTORIAL / "adult-schema.toml", place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for program, *arguments in commands():
            assert program == "sottovoce"
            assert main(arguments) == 0, arguments
    return place


def test_it_leaves_what_it_says(followed):
    names = {path.name for path in followed.iterdir()}
    assert names == {"train.csv", "test.csv", "draft.toml", "adult-schema.toml", "run", "predictions.csv"}
    assert (followed / "run" / "report.html").stat().st_size > 50_000
    with (followed / "predictions.csv").open() as file:
        assert sum(1 for _ in csv.reader(file)) == 16_281 + 1


def test_the_model_is_as_good_and_as_private_as_it_says(followed):
    summary = json.loads((followed / "run" / "summary.json").read_text())
    assert summary["test"]["accuracy"]["consensus"] > 0.83
    model = models.load(followed / "run" / "model.safetensors")
    assert model.privacy.epsilon <= 1
    assert model.schema is not None
    assert str(followed) not in json.dumps(model.provenance)


def test_every_file_that_the_tutorial_points_to_is_there():
    text = (TUTORIAL / "first-model.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (TUTORIAL / target).exists(), target


def test_the_review_prints_what_the_page_shows(followed, capsys, monkeypatch):
    page = (TUTORIAL / "first-model.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n\$ sottovoce (schema review .*?)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    answers = re.findall(r"(?<= > ).*$", shown[1], re.MULTILINE)
    monkeypatch.chdir(followed)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(answers)))
    before = Path("draft.toml").read_text()
    assert main(shlex.split(shown[0])) == 0
    Path("draft.toml").write_text(before)
    came, place = " ".join(capsys.readouterr().out.split()), 0
    # Lines break where the terminal is narrow, and what is typed is not printed.
    for part in re.sub(r"(?<= > ).*$", "", shown[1], flags=re.MULTILINE).split("\n...\n"):
        assert " ".join(part.split()) in came[place:]
        place = came.index(" ".join(part.split()), place)
    assert came.endswith("All is reviewed.")


def test_the_draft_would_be_refused(followed, capsys):
    given = ["--data", "train.csv", "--schema", "draft.toml", "--nodes", "10"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(followed)
        assert main(["train", *given]) == 2
    assert "Expected a reviewed schema" in capsys.readouterr().err
