"""The tutorial's commands, run as they stand: a page that promises something must keep it."""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from sottovoce import models
from sottovoce.cli import main

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
REVIEW = re.compile(r"^```text\n\$ sottovoce (schema review .*?)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGE = (TUTORIAL / "first-model.md").read_text(encoding="utf-8")


def commands():
    return [shlex.split(line) for block in BLOCK.findall(PAGE) for line in block.splitlines()]


def answers():
    """What is typed in the review, by line."""
    ((_, shown),) = REVIEW.findall(PAGE)
    return re.findall(r"(?<= > ).*$", shown, re.MULTILINE)


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The folder of someone who has followed the tutorial, and what each command printed."""
    place, said = tmp_path_factory.mktemp("tutorial"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for program, *arguments in commands():
            assert program == "sottovoce"
            patch.setattr(
                "sys.stdin", io.StringIO("\n".join(answers()) if arguments[:2] == ["schema", "review"] else "")
            )
            with contextlib.redirect_stdout(io.StringIO()) as out:
                assert main(arguments) == 0, arguments
            said[" ".join(arguments[:2])] = out.getvalue()
    return place, said


def test_it_takes_no_more_commands_than_it_says():
    assert len(commands()) == 8
    assert "eight commands" in PAGE.split("## 1.")[0]


def test_it_leaves_what_it_says(followed):
    place, _ = followed
    assert {path.name for path in place.iterdir()} == {"train.csv", "test.csv", "schema.toml", "run"}
    assert {"model.safetensors", "evaluation.json", "privacy.txt"} <= {path.name for path in (place / "run").iterdir()}


def test_the_model_is_as_good_and_as_private_as_it_says(followed):
    place, _ = followed
    summary = json.loads((place / "run" / "summary.json").read_text())
    assert summary["test"]["accuracy"]["consensus"] > 0.82
    model = models.load(place / "run" / "model.safetensors")
    assert model.privacy.epsilon <= 2
    assert model.schema is not None
    assert str(place) not in json.dumps(model.provenance)


def test_a_coefficient_has_an_interval(followed):
    place, said = followed
    inference = models.load(place / "run" / "model.safetensors").inference
    known = [row for row in inference.lines if row.identified]
    assert known
    assert all(row.low < row.estimate < row.high for row in known)
    assert f"Identified: {len(known)} of 49" in " ".join(said["coefficients run/model.safetensors"].split())


def test_the_evaluation_is_near_the_truth(followed):
    place, _ = followed
    truth = json.loads((place / "run" / "summary.json").read_text())["test"]["accuracy"]["consensus"]
    told = json.loads((place / "run" / "evaluation.json").read_text())
    accuracy = told["answer"]["figures"]["accuracy"]
    # Seven times as far as the interval reaches, which is of the sampling error too: never by chance.
    assert abs(accuracy["value"] - truth) < 3.5 * (accuracy["high"] - accuracy["low"])


def test_the_first_line_is_the_one_on_the_page(followed):
    _, said = followed
    (line,) = re.findall(r"^Algorithm: .*$", PAGE, re.MULTILINE)
    assert said["train --data"].splitlines()[0] == line


def test_every_file_that_the_tutorial_points_to_is_there():
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE):
        assert (TUTORIAL / target).exists(), target


def test_the_review_prints_what_the_page_shows(followed):
    ((_, shown),) = REVIEW.findall(PAGE)
    came, place = " ".join(followed[1]["schema review"].split()), 0
    # Lines break where the terminal is narrow, and what is typed is not printed.
    for part in re.sub(r"(?<= > ).*$", "", shown, flags=re.MULTILINE).split("\n...\n"):
        assert " ".join(part.split()) in came[place:]
        place = came.index(" ".join(part.split()), place)
    assert came.endswith("All is reviewed.")


def test_the_draft_would_be_refused(followed, tmp_path, capsys):
    data = str(followed[0] / "train.csv")
    assert main(["schema", "draft", data, "--label", "income", "--out", str(tmp_path / "draft.toml")]) == 0
    assert main(["train", "--data", data, "--schema", str(tmp_path / "draft.toml"), "--nodes", "10"]) == 2
    assert "Expected a reviewed schema" in capsys.readouterr().err
