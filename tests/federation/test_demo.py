"""The demonstration: five processes and a server, from nothing to models as good as the simulator's."""

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from sottovoce import models
from sottovoce.cli import main
from sottovoce.cli.demo import demo as command
from sottovoce.cli.demo import processes
from sottovoce.cli.demo.demo import NAMES
from sottovoce.cli.demo.processes import FailedError, Programs
from sottovoce.cli.demo.view import LiveTable, Overview, Progress, SiteLines, watching_sites
from sottovoce.federation.transport.transport import read_signed
from sottovoce.files.datasets import adult_csv
from sottovoce.privacy.books.ledger import Ledger

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
ROUNDS, RUNS = 12, 30


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A short demonstration; what it printed, and its folder."""
    processes.server_program()
    out = tmp_path_factory.mktemp("demo") / "out"
    with pytest.MonkeyPatch.context() as patch:
        printed, told = StringIO(), StringIO()
        patch.setattr(sys, "stdout", printed)
        patch.setattr(sys, "stderr", told)
        code = main(["federation", "demo", "--out", str(out), "--rounds", str(ROUNDS), "--runs", str(RUNS), "--json"])
    assert code == 0, told.getvalue()
    return json.loads(printed.getvalue()), out


def test_the_masked_way_ends_with_one_model_as_good_as_the_simulator_says(tmp_path, capsys):
    processes.server_program()
    out = tmp_path / "out"
    assert main(["federation", "demo", "--masked", "--out", str(out), "--rounds=6", "--runs=20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    simulated = found["simulated"]
    assert abs(found["accuracy"] - simulated["accuracy"]) < 5 * simulated["spread"]
    assert simulated["accuracy"] > found["majority"] + 0.05
    assert {(site["rounds"], site["agreement"]) for site in found["sites"]} == {(6, 1.0)}
    assert all(site["epsilon"] <= 1.0 for site in found["sites"])
    assert len({models.load(out / name / "model.safetensors").weights.tobytes() for name in NAMES}) == 1
    assert not list(out.glob("*/seed"))


def test_the_models_are_as_good_as_the_simulator_says(demo):
    found, _ = demo
    simulated = found["simulated"]
    assert (simulated["runs"], len(found["sites"])) == (RUNS, 5)
    # Five standard deviations: the noise is fresh, and nobody looks at a failure in ten thousand.
    assert abs(found["accuracy"] - simulated["accuracy"]) < 5 * simulated["spread"]
    assert 1e-4 < simulated["spread"] < 0.01
    assert simulated["accuracy"] > found["majority"] + 0.05
    for site in found["sites"]:
        assert site["epsilon"] <= 1.0
        assert site["rounds"] == ROUNDS
        assert site["accuracy"] > found["majority"] + 0.03
        assert 0.9 < site["agreement"] < 1.0  # on a ring nobody hears everybody
    assert found["test_rows"] == 16_281


def test_every_site_has_its_own_rows_and_together_they_are_the_official_ones(demo, tmp_path):
    found, out = demo
    adult_csv.write_csv(tmp_path / "whole.csv", "train")
    header, *whole = (tmp_path / "whole.csv").read_text().splitlines()
    dealt = []
    for site in found["sites"]:
        first, *rows = (out / site["site"] / "rows.csv").read_text().splitlines()
        assert (first, len(rows)) == (header, site["rows"])
        dealt += rows
    assert dealt == whole
    with (out / "test.csv").open() as file:
        assert sum(1 for _ in csv.reader(file)) == 16_281 + 1


def test_it_leaves_five_models_statements_ledgers_and_logs(demo):
    found, out = demo
    for name in NAMES:
        model = models.load(out / name / "model.safetensors")
        assert (model.provenance["site"], model.provenance["run"]) == (name, found["run"])
        statement = read_signed((out / name / "statement.txt").read_text())
        assert " ".join(statement.text.split()).endswith(model.privacy.prose())
        assert (statement.site, str(statement.key)) == (name, model.signed_by)
        with Ledger.open(out / name / "state" / "rows.ledger") as ledger:
            assert len(ledger.reservations()) == ROUNDS
        events = [json.loads(line) for line in (out / name / "site.log").read_text().splitlines()]
        assert events[-1]["event"] == "finished"
        assert {line["level"] for line in events} == {"INFO"}
    assert not list(out.glob("train.csv"))


def test_the_server_is_gone(demo):
    _, out = demo
    port = int(re.search(r"Listening for client connections on 127\.0\.0\.1:(\d+)", log_of(out)).group(1))
    with socket.socket() as caller:
        assert caller.connect_ex(("127.0.0.1", port)) != 0


def log_of(out):
    return (out / "server" / "server.log").read_text()


def test_the_demo_and_the_tutorial_share_a_schema():
    packaged = Path(adult_csv.__file__).with_name("adult-schema.toml")
    assert packaged.read_bytes() == (TUTORIAL / "adult-schema.toml").read_bytes()


# -- ended early ------------------------------------------------------------------------------------------------------


def alive(out):
    """Processes that have to do with this folder."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if str(out) in line]


@pytest.mark.skipif(os.name != "posix", reason="asks ps")
def test_whoever_ends_it_ends_all_of_it(tmp_path, monkeypatch, capsys):
    """With sites that only sleep, so that nobody waits for them to begin."""
    out = tmp_path / "out"
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)", str(out)]
    monkeypatch.setattr(command, "_site_command", lambda *_: sleeper)
    seen = []

    def end():
        while sum("sleep" in line for line in seen) < 5:
            time.sleep(0.05)
            seen[:] = alive(out)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end).start()
    assert main(["federation", "demo", "--out", str(out), "--rounds", "3"]) == 130
    assert "sottovoce: interrupted; every process was ended." in capsys.readouterr().err
    assert len([line for line in seen if "nats-server" in line]) == 1
    assert alive(out) == []


def test_the_first_program_that_fails_ends_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "ENDING", 0.3)
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    stubborn = f"{ignores}; print('ready', flush=True); time.sleep(60)"
    programs = Programs()

    def run():
        with programs:
            programs.start("stubborn", [sys.executable, "-c", stubborn], tmp_path / "stubborn.txt")
            while "ready" not in (tmp_path / "stubborn.txt").read_text():
                time.sleep(0.02)
            programs.start("rome", [sys.executable, "-c", r"print('no\x07 luck'); exit(3)"], tmp_path / "rome.txt")
            while not programs.ended("rome"):
                time.sleep(0.02)

    with pytest.raises(FailedError, match=r"Expected rome to end well, got exit code 3: no\? luck\. All that it"):
        run()
    assert programs._running["stubborn"].returncode == -signal.SIGKILL


def test_refusals(tmp_path, capsys, monkeypatch):
    assert main(["federation", "demo", "--out", str(tmp_path)]) == 2
    assert "Expected a folder that does not exist yet" in capsys.readouterr().err
    out = tmp_path / "out"
    assert main(["federation", "demo", "--out", str(out), "--rounds", "0"]) == 2
    monkeypatch.setattr(processes.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["federation", "demo", "--out", str(out)]) == 2
    assert "Expected the program nats-server, got none. Install it with" in capsys.readouterr().err
    assert not out.exists()


# -- the view ---------------------------------------------------------------------------------------------------------


def line(event, **fields):
    return json.dumps({"time": "", "level": "INFO", "logger": "sottovoce.site", "event": event, **fields}) + "\n"


def test_progress_is_read_off_the_log_line_by_line(tmp_path):
    site = Progress(tmp_path / "log", rows=10, rounds=8)
    site.update()
    assert site.doing == "starting"
    text = line("began", done=2, spent=0.1, cap=2.0) + line("published", round=3)
    text += line("round done", round=3, spent=0.2, cap=2.0)
    parts = (text[:40], "starting", 0), (text[40:-5], "listening", 2), (text[-5:], "computing", 3)
    with (tmp_path / "log").open("w") as file:
        for part, doing, done in parts:
            file.write(part)
            file.flush()
            site.update()
            assert (site.doing, site.round) == (doing, done)
        for event, doing in (
            (line("waiting", round=4, silent={"rome": 1.0}), "listening"),
            (line("waiting", round=4, silent={"rome": 7.0, "oslo": 0.1}), "waiting for rome"),
            (line("refused", round=4, sender="rome"), "refused"),
            (line("finished", rounds=8), "done"),
        ):
            file.write(event)
            file.flush()
            site.update()
            assert site.doing == doing
    assert site.spent == 0.2


def test_the_table_and_the_lines(tmp_path, capsys):
    sites = {name: Progress(tmp_path / name, rows=6512, rounds=8) for name in ("berlin", "rome")}
    with watching_sites(sites, quiet=True) as shown:
        assert type(shown) is Overview
    with watching_sites(sites, quiet=False) as view:  # no terminal here
        assert isinstance(view, SiteLines)
        for k in range(1, 9):
            for name in sites:
                with (tmp_path / name).open("a") as file:
                    file.write(line("round done", round=k, spent=k / 8, cap=2.0))
            view.update()
    told = capsys.readouterr().err.splitlines()
    assert [text.split()[2] for text in told] == ["2/8", "4/8", "6/8", "8/8"]
    assert told[-1].endswith("is done at all 2 sites; epsilon spent so far: 1")
    console = Console(width=120)
    with console.capture() as shown:
        console.print(LiveTable(sites))
    for part in ("berlin", "6,512", "8/8", "1 of 2", "computing"):
        assert part in shown.get()
