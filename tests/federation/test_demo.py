"""The demonstration: five processes and a server, from nothing to models as good as the simulator's."""

import csv
import json
import math
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

import numpy as np
import pytest
from scipy import stats

from helpers.laws import NEVER
from sottovoce import models
from sottovoce.cli import main
from sottovoce.cli.demo import demo as command
from sottovoce.cli.demo import processes, scoring
from sottovoce.cli.demo.demo import NAMES
from sottovoce.cli.demo.processes import FailedError, Programs
from sottovoce.federation.agreement.signed_text import read_signed
from sottovoce.federation.site.events import MASKED, OWN_NOISE
from sottovoce.files.datasets import adult_csv
from sottovoce.files.models.apply import weights_digest
from sottovoce.numerals import up
from sottovoce.privacy.books.ledger import Ledger
from sottovoce.tables.pairs import ReleasedMoments

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
ROUNDS, RUNS = 12, 30
KERNELS = ("Haswell", "Sandybridge", "Nehalem", "Prescott", "Zen")  # of OpenBLAS: they round differently


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


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A short demonstration of both ways of speaking, at sites that play different processors; what it printed as text,
    and its folder.
    """
    processes.server_program()
    start, kernels = Programs.start, dict(zip(NAMES, KERNELS, strict=True))

    def elsewhere(self, name, program, output):
        with pytest.MonkeyPatch.context() as around:
            around.setenv("OPENBLAS_CORETYPE", kernels.get(name, ""))
            start(self, name, program, output)

    out = tmp_path_factory.mktemp("both") / "out"
    with pytest.MonkeyPatch.context() as patch:
        printed, told, trials = StringIO(), StringIO(), []
        patch.setattr(Programs, "start", elsewhere)
        patch.setattr(sys, "stdout", printed)
        patch.setattr(sys, "stderr", told)
        show = scoring.show
        patch.setattr(scoring, "show", lambda found: (trials.extend(found), show(found)))
        code = main(["federation", "demo", "--both", "--out", str(out), "--rounds=6", "--runs=20"])
    assert code == 0, told.getvalue()
    return printed.getvalue(), trials, out


def furthest(runs):
    """In sample standard deviations of so many runs: where one more run of the same kind is never, by Student's law."""
    return stats.t.isf(NEVER / 2, runs - 1) * math.sqrt(1 + 1 / runs)


def test_masked_sums_end_with_one_model_as_good_as_the_simulator_says(both):
    _, (_, masked), out = both
    scores, simulated = masked.scores, masked.scores.simulated
    assert abs(scores.accuracy - simulated.accuracy) < furthest(simulated.runs) * simulated.spread
    assert simulated.accuracy > scores.majority + 0.05
    assert {(site.rounds, site.agreement) for site in scores.sites} == {(6, 1.0)}
    assert all(site.epsilon <= 1.0 for site in scores.sites)
    ends = [models.load(out / "masked" / name / "model.safetensors").weights for name in NAMES]
    np.testing.assert_allclose(ends, np.broadcast_to(ends[0], np.shape(ends)), rtol=0, atol=1e-10)
    assert not list(out.glob("*/*/seed"))
    kept = [ReleasedMoments.load(out / "masked" / name) for name in NAMES]
    assert len({(one.half.tobytes(), one.std, one.rows) for one in kept}) == 1
    assert all(one.model == weights_digest(models.load(out / "masked" / name / "model.safetensors"))
               for one, name in zip(kept, NAMES, strict=True))  # fmt: skip


def test_both_ways_are_shown_side_by_side_with_who_may_collude(both):
    text, trials, out = both
    for trial in trials:
        (row,) = (line.split() for line in text.splitlines() if line.strip().startswith(f"{trial.way} "))
        assert row[2:4] == [f"{100 * trial.scores.accuracy:.2f}", "%"]
        assert row[8:10] == ["6", f"{trial.seconds:.1f}"]
        assert trial.seconds > 0
    assert "Epsilon of own noise: against the server and all other sites together." in text
    assert "Epsilon of masked sums: against the server and 1 colluding site." in text
    assert [trial.way for trial in trials] == [OWN_NOISE, MASKED]
    table = [
        line.split()
        for line in text.partition("Epsilon of masked sums, by number of colluding sites:")[2].splitlines()[4:9]
    ]
    observers = trials[1].privacy.observers
    marks = {1: ["assumed"]}
    assert table == [[str(o.colluding), up(o.epsilon), *marks.get(o.colluding, [])] for o in observers]
    assert len(observers) == 5
    told = scoring.as_json(out, trials, 1.0)
    assert [way["exchanges"] for way in told["ways"]] == [6, 6]
    read = json.loads(json.dumps(told, allow_nan=False))
    assert [way["accuracy"] for way in read["ways"]] == [trial.scores.accuracy for trial in trials]
    assert [len(way["observers"]) for way in read["ways"]] == [len(trial.privacy.observers) for trial in trials]


def test_a_demonstration_can_be_looked_at_afterwards(both, tmp_path):
    _, _, out = both
    for way, words in (
        ("masked", "and the transcripts are the same"),
        ("own", "all sites that received a message received the same"),
    ):
        assert main(["federation", "watch", str(out / way), "--out", str(tmp_path / "page.html")]) == 0
        page = (tmp_path / "page.html").read_text()
        assert words in page
        assert "in rounds 1 to 6" in page
        assert page.count('<p class="good">done</p>') == 5
        assert ("colluding sites, with the message server" in page) == (way == "masked")


def test_the_models_are_as_good_as_the_simulator_says(demo):
    found, _ = demo
    simulated = found["simulated"]
    assert (simulated["runs"], len(found["sites"])) == (RUNS, 5)
    assert abs(found["accuracy"] - simulated["accuracy"]) < furthest(RUNS) * simulated["spread"]
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
