"""The how-to for organisations, followed: every command of the page, but for the server's address and fewer rounds."""

import re
import shlex
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sottovoce import models
from sottovoce.cli import main
from sottovoce.cli.demo import processes
from sottovoce.federation.agreement import signing
from sottovoce.files.datasets.adult_csv import write_csv

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "how-to" / "federation.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
ROWS = {"berlin": 1200, "oslo": 900, "paris": 2000, "rome": 1500, "wien": 800}


def commands():
    """As they stand, with lines that go on put together."""
    text = PAGE.read_text(encoding="utf-8")
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


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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
    agreement = signing.load(place / "federation.toml")
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
