import json
import sqlite3

import pytest
import typer

from sottovoce.cli.ledger import ledger_app
from sottovoce.errors import InputError, PrivacyError
from sottovoce.privacy import Gaussian
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.settings import plain


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.ledger"
    with Ledger.create(path, "digest", 2.0, 1e-5) as ledger:
        for k in (1, 2):
            ledger.reserve("run 1", k, Gaussian(10.0))
        ledger.bind_message("run 1", 1, "ab")
        ledger.reserve("[bold]run 2", 1, Gaussian(20.0))
    return path


@pytest.fixture
def say(capsys):
    def run(*argv):
        typer.main.get_command(ledger_app).main([str(part) for part in argv], standalone_mode=False)
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


def test_show(path, say):
    out = say("show", path)
    with Ledger.open(path) as ledger:
        total, head = ledger.total(), ledger.head
    said = float(out.split("epsilon = ")[1].split()[0])
    assert total <= said < total * (1 + 1e-5)
    assert "of 2, at delta = 1e-05" in out
    assert "Takes: after the first round, plain Gaussians only." in out
    assert f"4 entries, head {head.hash}" in out
    assert [line.split()[:4] for line in out.splitlines() if "run 1" in line] == [["run", "1", "2", "1"]]
    assert "[bold]run 2" in out


def test_show_json(path, say):
    data = json.loads(say("show", path, "--json"))
    assert [(r["run"], r["rounds"], r["released"]) for r in data["runs"]] == [("run 1", 2, 1), ("[bold]run 2", 1, 0)]
    with Ledger.open(path) as ledger:
        assert data["total"]["epsilon"] == ledger.total()


def test_verify(path, say):
    data = json.loads(say("verify", path, "--json"))
    assert data["ok"] is True
    assert say("verify", path) == f"OK: 4 entries, head {data['hash']}\n"
    with Ledger.open(path) as ledger:
        ledger.note("later")
    assert "OK: 5 entries" in say("verify", path, "--head", data["hash"])
    with pytest.raises(PrivacyError, match="goes on from the head"):
        say("verify", path, "--head", "0" * 64)


def test_verify_names_the_first_broken_entry(path, say):
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("UPDATE entries SET run = 'x' WHERE idx >= 2")
    for _, sql in triggers:
        connection.execute(sql)
    connection.close()
    for command in ("show", "verify", "export"):
        with pytest.raises(PrivacyError, match="entry 2 was changed"):
            say(command, path)


def test_export(path, say, tmp_path):
    data = json.loads(say("export", path, "--json"))
    with Ledger.open(path) as ledger:
        assert data == json.loads(json.dumps(plain(ledger)))
    lines = [line.split("\t") for line in say("export", path).splitlines()]
    assert lines[0][:3] == ["entry", "time", "kind"]
    assert [line[-1] for line in lines[1:-1]] == [e["hash"] for e in data["entries"]]
    assert lines[-1] == ["head", "4", data["head"]["hash"]]
    assert say("export", path, "--json", "--out", tmp_path / "copy.json") == ""
    assert json.loads((tmp_path / "copy.json").read_text()) == data
    with pytest.raises(FileExistsError):
        say("export", path, "--out", tmp_path / "copy.json")


def test_no_ledger(tmp_path, say):
    with pytest.raises(InputError, match="which is no file"):
        say("show", tmp_path / "none.ledger")
    assert not list(tmp_path.iterdir())
