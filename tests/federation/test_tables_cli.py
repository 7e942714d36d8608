"""Five real sites, by the commands that people type: description, survival curves and hazards under one cap."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from helpers.network_server import free_port
from helpers.site_runs import FIVE
from helpers.table_sites import CLASSES, SIZES, TIMES, study
from sottovoce import models
from sottovoce.cli import main
from sottovoce.cli.demo import processes
from sottovoce.federation.agreement import toml_file
from sottovoce.privacy.books.ledger import Ledger

# Cross-tables come last, and no longer fit under the cap.
ASKED = {
    "describe": ("--analysis", "describe", "--by", "arm", "--schema", "times.toml", "--epsilon", "0.5"),
    "survival": ("--analysis", "survival", "--by", "arm", "--schema", "times.toml", "--epsilon", "0.8"),
    "hazards": ("--algorithm", "hazards", "--rounds", "3", "--schema", "kept.toml", "--epsilon", "0.6"),
    "cross": ("--analysis", "cross", "--column", "arm", "--column", "died", "--schema", "times.toml", "--epsilon", "2"),
}  # fmt: skip
CAP = 1.3


def cli(*words):
    return main([str(word) for word in words])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of five organisations: rows, keys, four signed agreements, and a server on which they are open."""
    place, port = tmp_path_factory.mktemp("tables"), free_port()
    with pytest.MonkeyPatch.context() as patch, processes.Programs() as programs:
        patch.chdir(place)
        Path("times.toml").write_text(TIMES)
        # A table counts rows that lack a number; a model keeps them only by a schema that says so.
        Path("kept.toml").write_text(TIMES.replace('missing = "row"', 'missing = "indicator"'))
        Path("classes.toml").write_text(CLASSES)
        lines = {}
        for seed, (site, rows) in enumerate(zip(FIVE, SIZES, strict=True)):
            Path(f"{site}.csv").write_text(study(rows, seed))
            assert cli("site", "keygen", site) == 0
            with patch.context() as aside, open(f"{site}.commitment", "w") as out:
                aside.setattr("sys.stdout", out)
                assert cli("site", "commit", "--data", f"{site}.csv", "--schema", "times.toml",
                           "--salt", f"{site}.salt") == 0  # fmt: skip
            lines[site] = f"{site}={site}.pub:{rows}:{Path(f'{site}.commitment').read_text().strip()}"
        for what, words in ASKED.items():
            Path(what).mkdir()
            for site in FIVE:
                assert cli("site", "seed", site, "--key", f"{site}.signing.pem", "--out", what) == 0
            who = [
                word for site in FIVE for word in ("--site", lines[site], "--mask-key", f"{site}={what}/{site}.mask")
            ]
            assert cli("federation", "new", *who, *words, "--colluding", "1", "--delta", "1e-5", "--policy", "stop",
                       "--wait-seconds", "60", "--out", f"{what}/federation.toml") == 0  # fmt: skip
            for site in FIVE:
                assert cli("federation", "sign", f"{what}/federation.toml", "--site", site,
                           "--key", f"{site}.signing.pem") == 0  # fmt: skip
        files = [f"{what}/federation.toml" for what in ASKED]
        assert cli("federation", "certificates", files[0], "--host", "127.0.0.1") == 0
        assert cli("federation", "server-config", *files, "--host", "127.0.0.1", "--port", port) == 0
        programs.start("server", [processes.server_program(), "--config", "nats.conf"], place / "server.log")
        at = ("--server", f"tls://127.0.0.1:{port}", "--certificates", "certificates")
        for file in files:
            assert cli("federation", "open", "--federation", file, *at) == 0

        def run(what, *more):
            def of(site):
                return cli(
                    "site", "run", "--federation", f"{what}/federation.toml", "--site", site,
                    "--key", f"{site}.signing.pem", "--seed", f"{what}/{site}.seed", "--salt", f"{site}.salt",
                    "--data", f"{site}.csv", *at, "--quiet",
                    "--state", f"{site}-state", "--cap-epsilon", CAP, "--cap-delta", "1e-4", *more,
                )  # fmt: skip

            with ThreadPoolExecutor(5) as pool:
                return list(pool.map(of, FIVE))

        yield run


def result(what, site):
    return Path(f"{site}-state") / toml_file.load(Path(what) / "federation.toml").run


def left(capsys):
    """What the books of rome say is left."""
    capsys.readouterr()
    assert cli("site", "status", "--state", "rome-state", "--json") == 0
    return min(run["left"] for run in json.loads(capsys.readouterr().out)["runs"])


def test_description_survival_and_hazards_one_after_another_under_one_cap(place, capsys):
    room = [CAP]
    for what in ("describe", "survival", "hazards"):
        assert cli("federation", "show", f"{what}/federation.toml") == 0
        told = " ".join(capsys.readouterr().out.split())
        assert ("What every site ends with, and may publish: one table of" in told) == (what != "hazards")
        assert place(what) == [0] * 5
        said = capsys.readouterr().out
        assert said.count("would fit under the cap of 1.3") == 5
        room.append(left(capsys))
        check_signed(what, capsys)
    assert all(after < before - 0.05 for before, after in pairwise(room)), room
    assert models.load(result("hazards", "oslo") / "model.safetensors").privacy.epsilon <= 0.6
    # What is left is less than the fourth would cost: all five refuse it, and their books stay as they are.
    assert room[-1] < 1.1
    assert place("cross", "--patience", "2") == [3] * 5
    assert left(capsys) == room[-1]
    assert not (result("cross", "rome") / "table.csv").exists()
    with Ledger.open(Path("rome-state/rows.ledger")) as ledger:
        assert len(ledger.reservations()) == 1 + 1 + 3
        assert ledger.total() <= CAP


def check_signed(what, capsys):
    """All sites have one table, and anyone can check whose it is; a changed one is found out."""
    if what == "hazards":
        return
    tables = [(result(what, site) / "table.csv").read_text() for site in FIVE]
    assert len(set(tables)) == 1
    assert "arm" in tables[0] or "new" in tables[0]
    folder, agreed = result(what, "rome"), ("--federation", f"{what}/federation.toml")
    found = json.loads((folder / "table.json").read_text())
    assert found["rows"] == sum(SIZES)
    assert found["privacy"]["epsilon"] <= {"describe": 0.5, "survival": 0.8}[what]
    page = (folder / "table.html").read_text()
    assert ("<svg" in page) == (what == "survival")
    for name in ("table.csv", "table.json", "table.html", "statement.txt"):
        assert cli("site", "verify", folder / name, *agreed) == 0
    (folder / "table.csv").write_text(tables[0].replace("0", "1", 1))
    capsys.readouterr()
    assert cli("site", "verify", folder / "table.csv", *agreed) == 2
    assert "It was changed since" in capsys.readouterr().err
    other = "survival" if what == "describe" else "describe"
    assert cli("site", "verify", folder / "statement.txt", "--federation", f"{other}/federation.toml") == 2


BAD = {
    "a time below 0": ("-3.00", "0", "a time of 0 or more"),
    "a time that is missing": ("", "0", "months"),
    "an event that is no 0 or 1": ("3.00", "2", "died"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_that_does_not_fit_is_refused_before_anything_is_charged(place, what, tmp_path, capsys):
    months, died, words = BAD[what]
    text = Path("rome.csv").read_text().splitlines()
    text[3] = ",".join([*text[3].split(",")[:3], months, died])
    (tmp_path / "rome.csv").write_text("\n".join(text) + "\n")
    capsys.readouterr()
    given = ("--data", tmp_path / "rome.csv", "--schema", "times.toml", "--salt", tmp_path / "salt")
    assert cli("site", "commit", *given) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "salt").exists()
    assert cli(
        "site", "run", "--federation", "survival/federation.toml", "--site", "rome", "--key", "rome.signing.pem",
        "--salt", "rome.salt", "--data", tmp_path / "rome.csv", "--server", "tls://127.0.0.1:1",
        "--certificates", "certificates", "--state", tmp_path / "state", "--cap-epsilon", "2", "--cap-delta", "1e-4",
    ) == 2  # fmt: skip
    assert words in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


NEW = {
    "no such analysis": (("--analysis", "describ", "--schema", "times.toml"), "Did you mean 'describe'"),
    "no schema": (("--analysis", "survival"), "Expected --schema"),
    "no classes' label": (("--analysis", "survival", "--schema", "classes.toml"), "a time and an event in the schema"),
    "nobody said who colludes": (("--analysis", "survival", "--schema", "times.toml"), "Expected --colluding"),
    "learning": (("--analysis", "survival", "--schema", "times.toml", "--rounds", "3"), "no --rounds with --analysis"),
    "no algorithm": (("--algorithm", "describe", "--schema", "times.toml"), "--analysis describe"),
    "an algorithm": (("--analysis", "cross", "--schema", "times.toml", "--algorithm", "masked"), "no --algorithm"),
    "groups of a cross-table": (("--analysis", "cross", "--schema", "times.toml", "--by", "arm"), "no --by"),
    "parts of curves": (("--analysis", "survival", "--schema", "times.toml", "--part", "age=1"), "no --part"),
    "columns of a model": (("--algorithm", "masked", "--schema", "classes.toml", "--column", "age"), "with --analysis"),
    "a column twice": (
        ("--analysis", "cross", "--schema", "times.toml", "--column", "arm", "--column", "arm"), "every column once",
    ),
    "no such group": (("--analysis", "describe", "--schema", "times.toml", "--by", "wing"), "a column of the schema"),
}  # fmt: skip


@pytest.mark.parametrize("what", NEW)
@pytest.mark.usefixtures("place")
def test_drafts_of_tables_that_are_refused(what, tmp_path, capsys):
    words, told = NEW[what]
    more = () if what == "nobody said who colludes" else ("--colluding", "1")
    who = [word for site in FIVE for word in ("--site", f"{site}={site}.pub:20", "--mask-key",
                                              f"{site}=describe/{site}.mask")]  # fmt: skip
    capsys.readouterr()
    out = ("--out", tmp_path / "federation.toml")
    assert cli("federation", "new", *who, *words, *more, "--epsilon", "1", "--delta", "1e-5", *out) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "federation.toml").exists()
