"""What the pages show works: Python blocks are run page by page, commands are parsed, and quick ones are run.

A comment before a block says what it needs: `<!-- snippet: uses NAME -->` gives it something of `GIVEN`, and
`<!-- snippet: skip because ... -->` leaves it out. The tutorial, the how-to for federations and the one for algorithms
have tests of their own, which follow them to the end.
"""

import ast
import re
import shlex
import warnings
from io import StringIO
from pathlib import Path
from shutil import copy

import numpy as np
import pandas as pd
import pytest
import typer
from matplotlib import pyplot as plt

from sottovoce import IPADMM
from sottovoce.cli import main
from sottovoce.cli.app import app
from sottovoce.estimators import PrivateLogisticRegression
from sottovoce.files.datasets.adult_csv import write_csv
from sottovoce.files.schema import Categorical, Numeric, Schema, SurvivalLabel

ROOT = Path(__file__).parents[2]
PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
         for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])}  # fmt: skip
BLOCK = re.compile(
    r"(?:<!-- snippet: (?P<told>.*?) -->\s*)?^```(?P<kind>[\w{}-]*)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE
)
INDENTED = re.compile(r"^    ((?:sottovoce|make) .*)$", re.MULTILINE)
INLINE = re.compile(r"`((?:sottovoce|make) [^`]+)`")
# Fewer rounds and fewer sites than the page shows: the same calls in less time.
SMALLER = {
    "README.md": {
        "nodes=100": "nodes=5",
        "complete(100)": "complete(5)",
        "rounds=100": "rounds=3",
        "runs=10": "runs=2",
    },
    "docs/how-to/simulate.md": {
        "nodes=100": "nodes=5",
        "complete(100)": "complete(5)",
        "colluding=20": "colluding=1",
        "runs=10": "runs=2",
    },
    "docs/explanation/planner.md": {"[450] * 100": "[450] * 4", "d=104": "d=8", "ring(100)": "ring(4)"},
}
SKIPPED = {
    "docs/design.md": ["it is the shape of an interface, without bodies"],
    "docs/how-to/large-networks.md": ["it is run by mpirun", "it is run by mpirun"],
    "docs/how-to/add-an-algorithm.md": ["it is one line of a table; tests/docs/test_add_an_algorithm.py puts it there"],
    "docs/how-to/add-an-analysis.md": 2 * ["it needs the file above; tests/docs/test_add_an_analysis.py puts it there"],
}


def rows_and(labels):
    draws = np.random.default_rng(0)
    X = draws.normal(size=(300, 4))
    X /= np.linalg.norm(X, axis=1)[:, None]
    return {"X": X, "y": np.asarray(labels)[(X[:, 0] > 0).astype(int)]}


def fitted():
    given = rows_and([0, 1])
    model = PrivateLogisticRegression(
        data_norm=1.0, classes=[0, 1], algorithm=IPADMM(rounds=2, local_steps=1, rho=0.1, diameter=1.0)
    )
    return {"model": model.fit(given["X"], given["y"])}


def study():
    """Some rows of Adult and the tutorial's schema of them."""
    draws, schema = np.random.default_rng(0), Schema.load(ROOT / "docs" / "tutorial" / "adult-schema.toml")
    rows = pd.DataFrame(
        {
            name: draws.integers(*map(int, column.bounds), 300)
            if isinstance(column, Numeric)
            else draws.choice(list(column.level_words), 300)
            for name, column in schema.described.items()
        }
    )
    return {"rows": rows, "schema": schema}


def lives():
    """Some times to an event, and their schema."""
    draws = np.random.default_rng(0)
    months, arm = draws.exponential(30.0, 600), Categorical(name="arm", categories=("new", "old"))
    rows = pd.DataFrame({"months": months, "died": draws.integers(0, 2, 600), "arm": draws.choice(["new", "old"], 600)})
    return {"rows": rows, "schema": Schema((arm,), SurvivalLabel(time="months", event="died", until=60.0, bins=12))}


GIVEN = {
    "times to an event as a data frame, and their schema": lives,
    "rows as a data frame, and their schema": study,
    "rows with labels 0 and 1": lambda: rows_and([0, 1]),
    "rows with labels no and yes": lambda: rows_and(["no", "yes"]),
    "a fitted model": fitted,
}


def blocks(text, *kinds):
    """(what the comment before it says, the block) of these kinds, in order."""
    return [(found["told"] or "", found["code"]) for found in BLOCK.finditer(text) if found["kind"] in kinds]


def smaller(page, code):
    for old, new in SMALLER.get(page, {}).items():
        code = code.replace(old, new)
    return code


def ready(page):
    """The page's Python, block by block, made smaller; and what it is given."""
    given, codes = {}, []
    for told, code in blocks(PAGES[page], "python"):
        if told.startswith("skip because "):
            continue
        if told:
            assert told.startswith("uses "), f"{page}: expected 'uses ...' or 'skip because ...', got {told!r}"
            given |= GIVEN[told.removeprefix("uses ")]()
        codes.append(smaller(page, code))
    return codes, given


def shown_values(code, scope):
    """Lines such as `expression  # Budget(...)`: what came, and what the page says."""
    for line in code.splitlines():
        expression, mark, said = line.partition("  # Budget(")
        if mark:
            yield eval(expression, scope), [float(word.split("=")[1]) for word in said.rstrip(")").split(", ")]


WITH_PYTHON = [page for page, text in PAGES.items() if blocks(text, "python")]


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    codes, given = ready(page)
    scope = {"__name__": "snippet", **given}
    with warnings.catch_warnings():  # a page may turn warnings into errors
        for code in codes:
            ast.parse(code)
            exec(compile(code, page, "exec"), scope)
            for came, said in shown_values(code, scope):
                assert list(came) == pytest.approx(said, rel=1e-9), page
    plt.close("all")
    check = AFTER.get(page)
    if check is not None:
        check(scope, {path.name for path in tmp_path.iterdir()})


def after_estimators(scope, files):
    assert files == {"model.safetensors"}
    assert scope["search"].privacy_.epsilon <= 2.0
    assert "Protected: every single row" in scope["model"].privacy_.prose()


def after_readme(scope, files):
    assert files == set()
    assert scope["result"].privacy.epsilon <= 1.0


AFTER = {"docs/how-to/estimators.md": after_estimators, "README.md": after_readme}


def test_few_are_skipped_each_with_a_reason():
    told = {
        page: [told for told, _ in blocks(text, "python") if told.startswith("skip")] for page, text in PAGES.items()
    }
    assert {page: said for page, said in told.items() if said} == {
        page: [f"skip because {reason}" for reason in reasons] for page, reasons in SKIPPED.items()
    }
    assert set(WITH_PYTHON) >= {*SMALLER, *SKIPPED, *AFTER}
    for page, changes in SMALLER.items():
        for old in changes:
            assert any(old in code for _, code in blocks(PAGES[page], "python")), f"{old} is no longer on {page}"


def without_remark(line):
    return re.split(r"\s+#\s", line)[0].strip()


def whole(page):
    """The commands of a page that are shown to be typed, with lines that go on put together."""
    text = PAGES[page]
    fenced = [code for _, code in blocks(text, "console", "sh", "")]
    lines = [line for code in fenced for line in code.replace("\\\n", " ").splitlines()]
    lines += INDENTED.findall(BLOCK.sub("", text).replace("\\\n", " "))
    return [without_remark(line) for line in lines if without_remark(line)]


def mentioned(page):
    """Commands within a sentence, perhaps in part."""
    return [" ".join(found.split()) for found in INLINE.findall(BLOCK.sub("", PAGES[page]))]


def command(words):
    """The command that these words name, its own words, and the context that they are parsed in."""
    here, rest = typer.main.get_command(app), list(words)
    while hasattr(here, "commands"):
        if not rest or rest[0].startswith("-"):
            break
        assert rest[0] in here.commands, f"sottovoce has no command {' '.join(words)!r}"
        here = here.commands[rest.pop(0)]
    return here, rest


def check_names(words):
    """The command exists, and so does every option that is named."""
    here, rest = command(words)
    known = {name for option in here.params for name in [*option.opts, *option.secondary_opts]} | {"--help", "-h"}
    for word in rest:
        if word.startswith("-"):
            assert word.split("=")[0] in known, f"sottovoce {' '.join(words)}: no option {word}"


def check_command(line, complete):
    # What the shell does with it: what another command says stands for a value, and where it goes is no argument.
    program, *words = shlex.split(re.sub(r"\$\([^)]*\)", "said", line).partition(" > ")[0])
    match Path(program).name:
        case "sottovoce":
            check_names(words)
            here, rest = command(words)
            if complete and "..." not in words and "--help" not in words:
                here.make_context("sottovoce", rest)  # every argument is there, and every value is of its type
        case "make":
            targets = (ROOT / "Makefile").read_text()
            assert re.search(rf"^{re.escape(words[0])}:", targets, flags=re.MULTILINE), line
        case "python" | "pytest":
            files = [word for word in words if word.endswith(".py")]
            assert files, line
            assert all((ROOT / word).exists() for word in files), line
        case "mpirun":
            check_command(line.partition(words[1])[2].strip(), complete)  # after -n and how many
        case "git" | "pip" | "nats-server" | "cd":
            pass
        case other:
            pytest.fail(f"a command of a program that this test does not know: {other}: {line}")


COMMANDS = [(page, line, True) for page in PAGES for line in whole(page)]
COMMANDS += [(page, line, False) for page in PAGES for line in mentioned(page)]


@pytest.mark.parametrize(("page", "line", "complete"), COMMANDS, ids=[f"{page}: {line}" for page, line, _ in COMMANDS])
def test_commands_exist_with_their_options(page, line, complete):
    check_command(line, complete)


@pytest.mark.parametrize(
    "line", ["sottovoce trian", "sottovoce train --epsilom 1", "sottovoce ledger show", "make tea"]
)
def test_wrong_commands_are_seen(line):
    with pytest.raises(Exception, match=r"no command|no option|Missing parameter|make tea"):
        check_command(line, complete=True)


@pytest.fixture(name="patients")
def _patients(tmp_path, monkeypatch):
    """A folder with a few rows of Adult under the names that the pages use."""
    monkeypatch.chdir(tmp_path)
    write_csv(Path("whole.csv"), "train")
    header, *lines = Path("whole.csv").read_text().splitlines()[:601]
    towns = ["hospital", *(("north", "south", "west")[n % 3] for n in range(len(lines)))]
    Path("rows.csv").write_text("".join(f"{line},{town}\n" for line, town in zip([header, *lines], towns, strict=True)))
    Path("new.csv").write_text("\n".join([header, *lines[:20]]) + "\n")
    copy(ROOT / "docs" / "tutorial" / "adult-schema.toml", "schema.toml")
    Path("patients.csv").write_text("\n".join([header.replace("income", "outcome"), *lines]) + "\n")
    return tmp_path


def test_the_front_page_from_a_file_to_predictions(patients):
    lines = [
        line for line in whole("docs/index.md") if "rows.csv" in line or "run" in line.split()[-1] or "predict" in line
    ]
    assert [line.split()[1] for line in lines] == ["schema", "train", "report", "show", "predict"]
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, line
    assert (patients / "run" / "report.html").exists()
    assert len((patients / "predictions.csv").read_text().splitlines()) == 21


def test_the_schema_page(patients, monkeypatch):
    Path("schema.toml").unlink()
    monkeypatch.setattr("sys.stdin", StringIO("\ny\n"))  # the answers to the review
    for line in whole("docs/how-to/schema.md"):
        assert main(shlex.split(line)[1:]) == 0, line


def test_account_as_the_budget_page_says(capsys):
    (line,) = [line for line in mentioned("docs/how-to/budget.md") if line.startswith("sottovoce account")]
    assert main(shlex.split(line)[1:]) == 0
    assert "sigma" in capsys.readouterr().out
