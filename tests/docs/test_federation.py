"""The how-to for organisations, followed: every command of the page, but for the server's address and fewer rounds."""

import re
import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from helpers.network_server import free_port
from sottovoce import models
from sottovoce.cli import main
from sottovoce.cli.demo import processes
from sottovoce.federation.agreement import toml_file
from sottovoce.files.datasets.adult_csv import write_csv

DOCS = Path(__file__).parents[2] / "docs"
PAGE, MASKED = DOCS / "how-to" / "federation.md", DOCS / "how-to" / "masked-federation.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
ROWS = {"berlin": 1200, "oslo": 900, "paris": 2000, "rome": 1500, "wien": 800}


def commands(page=PAGE):
    """As they stand, with lines that go on put together."""
    text = page.read_text(encoding="utf-8")
    return [line for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]


def adapted(line, port):
    """To this machine, and to the time that a test may take."""
    changes = {
        "nats.example.org:4222": f"127.0.0.1:{port}",
        "nats.example.org": "127.0.0.1",
        "--rounds 100": "--rounds 3",
    }
    for old, new in changes.items():
        line = line.replace(old, new)
    return shlex.split(line)


def deal_rows(place):
    """Each site's file, of the agreed length."""
    write_csv(place / "whole.csv", "train")
    header, *lines = (place / "whole.csv").read_text().splitlines(keepends=True)
    for site, rows in ROWS.items():
        (place / f"{site}.csv").write_text("".join([header, *lines[:rows]]))
        lines = lines[rows:]


def run_all(arguments):
    """The page shows one site's command. The others type the same with their own name."""
    with ThreadPoolExecutor(5) as pool:
        return list(pool.map(lambda site: main([word.replace("berlin", site) for word in arguments]), ROWS))


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The folder of five organisations in one, and what their programs ended with."""
    place, port, codes = tmp_path_factory.mktemp("federation"), free_port(), []
    shutil.copy(DOCS / "tutorial" / "adult-schema.toml", place)
    deal_rows(place)
    with pytest.MonkeyPatch.context() as patch, processes.Programs() as programs:
        patch.chdir(place)
        for line in commands():
            program, *arguments = adapted(line, port)
            if program == "nats-server":
                programs.start("server", [processes.server_program(), *arguments], place / "server.log")
                continue
            assert program == "sottovoce"
            if arguments[:2] == ["site", "run"]:
                codes = run_all(arguments)
            elif arguments[:2] == ["federation", "server-config"]:
                assert main([*arguments, "--host", "127.0.0.1", "--port", str(port)]) == 0
            else:
                assert main(arguments) == 0, line
    return place, codes


def test_every_site_ends_well_with_a_model(followed):
    place, codes = followed
    assert codes == [0] * 5
    agreement = toml_file.load(place / "federation.toml")
    assert {member.name: member.rows for member in agreement.sites} == ROWS
    for site in ROWS:
        folder = place / f"{site}-state" / agreement.run
        assert models.load(folder / "model.safetensors").privacy.epsilon <= 1
        assert "epsilon" in (folder / "statement.txt").read_text()


def test_the_page_leaves_nothing_out(followed):
    place, _ = followed
    said = PAGE.read_text(encoding="utf-8")
    words = {" ".join(shlex.split(line)[:3]) for line in commands()}
    for command in ("site keygen", "federation new", "federation show", "federation sign", "federation certificates",
                    "federation server-config", "federation open", "site run"):  # fmt: skip
        assert any(f"sottovoce {command}" in word for word in words), command
    for file in ("federation.berlin.sig", "nats.conf", "messages", "berlin-state/rows.ledger.salt"):
        assert (place / file).exists(), file
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", said):
        assert (PAGE.parent / target).exists(), target


def test_a_cap_of_just_the_agreed_epsilon_is_too_small_as_the_page_says(followed, capsys):
    place, _ = followed
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        line = next(line for line in commands() if "site run" in line)
        arguments = adapted(line, 1)[1:]
        arguments[arguments.index("--state") + 1] = "other-state"
        arguments[arguments.index("--cap-epsilon") + 1] = "1"
        assert main(arguments) == 3
    assert "Expected to stay within the cap" in capsys.readouterr().err


# -- masked sums ------------------------------------------------------------------------------------------------------

OF_ONE = (["site", "keygen"], ["site", "seed"], ["site", "commit"], ["federation", "sign"])


def typed(arguments):
    """What a shell does with > and $(cat ...)."""
    if ">" in arguments:
        *arguments, _, file = arguments
        with Path(file).open("w") as out, redirect_stdout(out):
            return main(arguments)
    shell = re.compile(r"\$\(cat (\S+)\)")
    return main([shell.sub(lambda found: Path(found[1]).read_text().strip(), word) for word in arguments])


@pytest.fixture(scope="module")
def followed_masked(tmp_path_factory):
    place, port, codes = tmp_path_factory.mktemp("masked"), free_port(), []
    shutil.copy(DOCS / "tutorial" / "adult-schema.toml", place)
    deal_rows(place)
    with pytest.MonkeyPatch.context() as patch, processes.Programs() as programs:
        patch.chdir(place)
        for line in commands(MASKED):
            program, *arguments = adapted(re.sub(r"(\S*\$\(cat \S+\))", r"'\1'", line), port)
            if program == "nats-server":
                programs.start("server", [processes.server_program(), *arguments], place / "server.log")
            elif arguments[:2] == ["site", "run"]:
                codes = run_all(arguments)
            elif arguments[:2] == ["federation", "server-config"]:
                assert main([*arguments, "--host", "127.0.0.1", "--port", str(port)]) == 0
            else:
                names = ROWS if arguments[:2] in OF_ONE else ("berlin",)
                for site in names:
                    assert typed([word.replace("berlin", site) for word in arguments]) == 0, line
    return place, codes


def test_the_masked_way_ends_with_one_model_too(followed_masked):
    place, codes = followed_masked
    assert codes == [0] * 5
    agreement = toml_file.load(place / "federation.toml")
    assert (agreement.algorithm.spare, agreement.algorithm.least_sites) == (2, 4)
    made = [models.load(place / f"{site}-state" / agreement.run / "model.safetensors") for site in ROWS]
    assert len({model.weights.tobytes() for model in made}) == 1
    assert not list(place.glob("*.seed"))
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", MASKED.read_text(encoding="utf-8")):
        assert (MASKED.parent / target).exists(), target
