"""The notebook of the tutorial runs from its first cell to its last, and what is stored in it is what it puts out."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from sottovoce import models
from sottovoce.files.models import Model
from sottovoce.files.models.inference import Inference
from sottovoce.privacy import PrivacyStatement
from sottovoce.tally import PrivateEvaluation

ROOT = Path(__file__).parents[2]


def load():
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "scripts" / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load()
STORED = SCRIPT.read()


def code(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def forms(cell):
    """The kind of each output of a cell, and the words in it."""
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text")})
        words = re.findall(r"[A-Za-z_]{3,}", "".join(data.get("text/plain", [])))
        yield (output["output_type"], sorted(data)), set(words)


@pytest.fixture(scope="module", name="ran")
def _ran(tmp_path_factory):
    """The notebook after a run in an empty folder, the folder, and what its names stand for."""
    folder = tmp_path_factory.mktemp("notebook")
    scope = {}
    return SCRIPT.executed(STORED, folder, scope), folder, scope


def test_stored_outputs_are_those_of_its_cells(ran):
    """Numbers differ from run to run, and words are added where noise hides one; all else is the same. `make notebook`
    stores them anew.
    """
    notebook, _, _ = ran
    assert len(code(notebook)) > 8
    for stored, came in zip(code(STORED), code(notebook), strict=True):
        for (kind, words), (kind_now, words_now) in zip(forms(stored), forms(came), strict=True):
            assert kind == kind_now, "".join(stored["source"])
            assert words <= words_now, "".join(stored["source"])
        assert stored["execution_count"] == came["execution_count"]


def test_it_ends_with_all_that_it_promises(ran):
    _, folder, scope = ran
    model, table, evaluation = (scope[name] for name in ("model", "table", "evaluation"))
    assert isinstance(table, Inference)
    assert [line.name for line in table.lines] == [*scope["X"].columns, "intercept"]
    assert isinstance(evaluation, PrivateEvaluation)
    assert 0.7 < evaluation.answer.figures["accuracy"].value < 0.9
    assert isinstance(model.privacy_, PrivacyStatement)
    assert model.leaks_ == ()  # nothing was computed from the rows that the guarantee does not cover
    assert model.privacy_.epsilon <= 2.0
    assert scope["budget"].total().epsilon <= 3.0
    received = models.load(folder / "model.safetensors")
    assert isinstance(received, Model)
    assert received.inference == table


def test_only_its_first_output_shows_rows(ran):
    """Later cells show releases and public facts alone, as the text says."""
    _, _, scope = ran
    secrets = {str(number) for number in scope["people"]["fnlwgt"].head(200)}
    for cell in code(STORED)[1:]:
        text = json.dumps([output.get("data", {}).get("text/html", "") for output in cell["outputs"]])
        assert not secrets & set(re.findall(r"\d+", text))


def test_it_is_a_notebook():
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.reads(json.dumps(STORED), as_version=4))
    assert not any("error" in output["output_type"] for cell in code(STORED) for output in cell["outputs"])


def test_a_cell_that_fails_is_an_error(tmp_path):
    cell = {"cell_type": "code", "source": ["1 / 0"], "metadata": {}, "outputs": [], "execution_count": None}
    with pytest.raises(ZeroDivisionError):
        SCRIPT.executed({"cells": [cell]}, tmp_path, {})


def test_what_is_printed_shown_and_hidden(tmp_path):
    def cell(*lines):
        return {"cell_type": "code", "source": ["\n".join(lines)], "metadata": {}}

    cells = [
        cell("x = 1", "print('said')", "x + 1"), cell("x;"), cell("None"), cell("def f():", "    return 3"),
        cell("import matplotlib.pyplot as plt", "plt.plot([0, 1]);"), {"cell_type": "markdown", "source": "# a"},
    ]  # fmt: skip
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.figure()  # as another test leaves one open
    found = [cell.get("outputs") for cell in SCRIPT.executed({"cells": cells}, tmp_path, {})["cells"]]
    assert [output["output_type"] for output in found[0]] == ["stream", "execute_result"]
    assert found[0][0]["text"] == ["said\n"]
    assert found[0][1]["data"] == {"text/plain": ["2"]}
    assert found[1:4] == [[], [], []]
    assert [list(output["data"]) for output in found[4]] == [["image/png"]]
    assert found[5] is None
