"""`sottovoce site run`: three sites, a real server with TLS, files in and files out; and what it refuses."""

import asyncio
import json
import logging
import math
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import sottovoce as sv
from helpers.federations import MessageServer, agreement, members
from helpers.guarded_server import GuardedServer, federation_of, program_of
from sottovoce import models
from sottovoce.algorithms import IPADMM
from sottovoce.cli import draft as drafts
from sottovoce.cli import main
from sottovoce.cli.exit_codes import EXIT_CODES, code_of, epilog
from sottovoce.cli.site import files
from sottovoce.cli.site import run as command
from sottovoce.cli.site.run import site_run
from sottovoce.cli.site.view import LiveTable, PlainLines
from sottovoce.errors import BudgetError, InputError, PrivacyError
from sottovoce.federation.agreement import certificates, signing, toml_file
from sottovoce.federation.agreement.certificates import TLSFiles
from sottovoce.federation.agreement.signed_text import read_signed
from sottovoce.federation.operator.opening import room_for
from sottovoce.federation.operator.server import Hosting, server_config
from sottovoce.federation.site import caps, events, stops
from sottovoce.federation.site.events import OWN_NOISE, RunFacts, Spending, Taken
from sottovoce.federation.site.log import JsonLines, LogFile, LogWatcher
from sottovoce.federation.site.seat import booked_as
from sottovoce.federation.site.watchers import Watcher, Watchers
from sottovoce.federation.transport import transport
from sottovoce.federation.transport.jetstream import create_stream
from sottovoce.files.schema import Schema
from sottovoce.numerals import duration
from sottovoce.privacy import Gaussian
from sottovoce.privacy.books.ledger import Ledger

SCHEMA = """
version = 1
[label]
column = "ill"
classes = ["no", "yes"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
[[columns]]
name = "sex"
kind = "categorical"
categories = ["f", "m"]
"""
NAMES, SIZES = ("berlin", "paris", "rome"), (30, 20, 25)
ALGORITHM = IPADMM(rounds=2, local_steps=1, epsilon=1.5, delta=1e-5, diameter=10.0)
CAP = {"cap_epsilon": 2.0, "cap_delta": 1e-4}


def csv(rows, seed):
    rng = np.random.default_rng(seed)
    lines = [f"{rng.integers(0, 100)},{rng.choice(['f', 'm'])},{rng.choice(['no', 'yes'])}" for _ in range(rows)]
    return "\n".join(["age,sex,ill", *lines]) + "\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Keys, rows, a signed agreement, certificates, and a server that carries the run."""
    folder = tmp_path_factory.mktemp("federation")
    keys, sites = members(NAMES, SIZES)
    schema = Schema.loads(SCHEMA)
    algorithm = IPADMM(rounds=4, local_steps=2, epsilon=1.5, delta=1e-5, diameter=10.0)
    agreed = agreement(sites, features=schema.d, schema=SCHEMA, algorithm=algorithm)
    toml_file.save(agreed, folder / "federation.toml")
    certificates.create_authority(folder)
    certificates.issue_server(folder)
    certificates.issue_operator(folder)
    for seed, (name, rows) in enumerate(zip(NAMES, SIZES, strict=True)):
        keys[name].save(folder / f"{name}.signing.pem")
        certificates.issue_site(folder, name)
        signing.write_signature(agreed, name, keys[name], folder / f"federation.{name}.sig")
        (folder / f"{name}.csv").write_text(csv(rows, seed))
    hosting = Hosting(tls=TLSFiles.within(folder, "server"), store=folder / "store", host="127.0.0.1", port=-1,
                      ports_folder=folder)  # fmt: skip
    room = room_for(agreed)
    with MessageServer(folder, server_config([agreed], hosting)) as server:
        operator = TLSFiles.within(folder, "operator").context()
        made = create_stream(server.url, agreed.run, room.size, max_messages=room.messages, tls=operator)
        asyncio.run(made)
        yield SimpleNamespace(folder=folder, url=server.url, agreement=agreed, keys=keys)


def options(world, name, state, **changes):
    given = {
        "federation": world.folder / "federation.toml", "site": name, "key": world.folder / f"{name}.signing.pem",
        "data": world.folder / f"{name}.csv", "server": world.url, "state": state, "certificates": world.folder,
        "patience": 20.0,
    }  # fmt: skip
    return given | CAP | changes


def test_three_sites_from_rows_to_models(world, tmp_path, capfd, caplog):
    caplog.set_level(logging.INFO, "sottovoce")  # the three share one logger here

    def run(name):
        log = tmp_path / "rome.log" if name == "rome" else None
        site_run(**options(world, name, tmp_path / name, log=log))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, NAMES))
    said = capfd.readouterr()
    assert said.out.count("model.safetensors and statement.txt") == 3
    assert said.err.count("all 4 rounds are done") == 3

    run_folder = world.agreement.run
    learnt = {name: models.load(tmp_path / name / run_folder / "model.safetensors") for name in NAMES}
    paris = learnt["paris"]  # hears both others: the consensus of all
    assert paris.names == ("age", "sex=f", "sex=m", "intercept")
    assert paris.classes == ("no", "yes")
    assert paris.provenance["run"] == world.agreement.run
    assert paris.provenance["agreement"] == world.agreement.digest().hex()
    assert (paris.provenance["site"], paris.provenance["absent"]) == ("paris", {})
    assert "discrete Gaussian numbers on a grid" in paris.privacy.prose()
    assert paris.privacy.epsilon <= 1.5
    text = (tmp_path / "paris" / run_folder / "statement.txt").read_text()
    signed = read_signed(text)
    assert " ".join(signed.text.split()).endswith(paris.privacy.prose())
    assert all(f in signed.text for f in (world.agreement.run, world.agreement.digest().hex(), "Site:       paris"))
    assert paris.signed_by == str(signed.key) == str(world.agreement.member("paris").public_key)
    with pytest.raises(InputError, match="got one that was changed since"):
        read_signed(text.replace("epsilon = 1.5", "epsilon = 0.5", 1))
    check_signed_files(world, tmp_path / "paris" / run_folder, capfd)
    check_results_that_cannot_be_written(world, tmp_path, capfd)
    assert not np.array_equal(learnt["berlin"].weights, learnt["rome"].weights)

    with Ledger.open(tmp_path / "rome" / "rows.ledger") as ledger:
        booked = booked_as(world.agreement, "rome")
        assert [(r.run, r.round) for r in ledger.reservations()] == [(booked, k) for k in (1, 2, 3, 4)]
        assert ledger.header.data_digest.startswith("hmac-sha256:")
        assert 0 < ledger.total() <= 2.0

    lines = [json.loads(line) for line in (tmp_path / "rome.log").read_text().splitlines()]
    events = [line["event"] for line in lines if line["logger"] == "sottovoce.site"]
    assert set(events) == {"began", "published", "round done", "finished"} | (set(events) & {"waiting"})
    assert events.count("round done") >= 4
    assert {"time", "level", "event", "run", "site", "rounds", "cap"} <= set(lines[0])

    # Again: the run is over, and says the same without the server.
    before = learnt["rome"].weights
    changes = {"server": "tls://127.0.0.1:1", "quiet": True, "out": tmp_path / "again", "cap_epsilon": None}
    site_run(**options(world, "rome", tmp_path / "rome", **changes, cap_delta=None))
    np.testing.assert_array_equal(models.load(tmp_path / "again" / "model.safetensors").weights, before)


# -- what is refused --------------------------------------------------------------------------------------------------


def changed_file(world, tmp_path, name, old, new):
    path = tmp_path / name
    path.write_text((world.folder / name).read_text().replace(old, new, 1))
    return path


def fewer_rows(world, tmp_path):
    path = tmp_path / "few.csv"
    path.write_text("".join((world.folder / "berlin.csv").read_text().splitlines(keepends=True)[:-1]))
    return {"data": path}


def no_signature(world, tmp_path):
    for name in NAMES[:2]:
        shutil.copy(world.folder / f"federation.{name}.sig", tmp_path)
    return {"signatures": tmp_path}


REFUSED = {
    "a row less": (fewer_rows, InputError, 2, "rows=30 at site berlin, as agreed, got rows=29"),
    "a missing signature": (no_signature, InputError, 2, "Expected the signature of site rome"),
    "another's key": (lambda w, _: {"key": w.folder / "rome.signing.pem"}, InputError, 2, "the key of site berlin"),
    "an unknown site": (lambda *_: {"site": "oslo"}, InputError, 2, "a site of this federation"),
    "no cap": (lambda *_: {"cap_epsilon": None, "cap_delta": None}, InputError, 2, "a ledger of these rows at"),
    "half a cap": (lambda *_: {"cap_delta": None}, InputError, 2, "--cap-epsilon and --cap-delta together"),
    "no certificates": (lambda *_: {"certificates": None}, InputError, 2, "--certificates FOLDER, or else"),
    "a cap that is too small": (
        lambda *_: {"cap_epsilon": 1.0, "patience": 0.3}, BudgetError, 3, "Expected to stay within the cap",
    ),
    "a server that is not there": (
        lambda *_: {"server": "tls://127.0.0.1:1", "patience": 0.3}, transport.UnreachableError, 7, "an answer",
    ),
    "another's certificate": (
        lambda w, _: {"certificates": None, "ca": w.folder / "ca.cert.pem", "cert": w.folder / "rome.cert.pem",
                      "tls_key": w.folder / "rome.key.pem", "patience": 5.0},
        transport.RefusedError, 7, "Expected the server to let us use",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(world, tmp_path, what):
    change, kind, code, message = REFUSED[what]
    with pytest.raises(kind, match=message) as raised:
        site_run(**options(world, "berlin", tmp_path / "state", quiet=True, **change(world, tmp_path)))
    assert code_of(raised.value) == code
    ledger = tmp_path / "state" / "rows.ledger"
    if ledger.exists():
        with Ledger.open(ledger) as opened:
            assert opened.reservations() == ()


def test_a_run_with_another_key_does_not_let_that_key_raise_the_cap(world, tmp_path):
    """The same wrong key file twice: the run is refused, and so is the raise, which no run could take."""
    given, wrong = options(world, "berlin", tmp_path / "state", quiet=True, patience=0.3), world.keys["rome"]
    for server in ("tls://127.0.0.1:1", world.url):
        with pytest.raises(InputError, match="the key of site berlin"):
            site_run(**(given | {"key": world.folder / "rome.signing.pem", "server": server}))
        with Ledger.open(tmp_path / "state" / "rows.ledger") as ledger:
            with pytest.raises(InputError, match="of the site that this ledger belongs to"):
                caps.raise_cap(ledger, 3.0, wrong)
            assert ledger.cap == 2.0
        with pytest.raises(transport.UnreachableError):  # refused or not, a run with the right key says whose it is
            site_run(**(given | {"server": "tls://127.0.0.1:1"}))
    with Ledger.open(tmp_path / "state" / "rows.ledger") as ledger:
        caps.raise_cap(ledger, 3.0, world.keys["berlin"])


def check_signed_files(world, folder, capfd):
    """A stranger with the agreement checks model and statement; whatever was changed is refused."""
    verify = ["site", "verify", "--federation", str(world.folder / "federation.toml")]
    for file in ("model.safetensors", "statement.txt"):
        assert main([*verify, str(folder / file)]) == 0
        assert "signed by site paris under this agreement, and unchanged" in capfd.readouterr().out
    model = models.load(folder / "model.safetensors")
    models.save(model, folder / "unsigned.safetensors")
    models.save(model, folder / "forged.safetensors", world.keys["rome"])
    content = (folder / "model.safetensors").read_bytes()
    (folder / "changed.safetensors").write_bytes(content.replace(b"Assumed public", b"assumed public"))
    (folder / "turned.safetensors").write_bytes(content[:-8] + np.negative(np.frombuffer(content[-8:])).tobytes())
    (folder / "other.txt").write_text(
        (folder / "statement.txt").read_text().replace("Absent:     none", "Absent:     rome")
    )
    for file, words in {
        "unsigned.safetensors": "which nobody has signed",
        "forged.safetensors": "It was not made by that site",
        "changed.safetensors": "a model as its site signed it, got one that was changed since",
        "turned.safetensors": "a model as its site signed it, got one that was changed since",
        "other.txt": "got one that was changed since",
    }.items():
        assert main([*verify, str(folder / file)]) == 2
        assert words in capfd.readouterr().err


def check_results_that_cannot_be_written(world, folder, capfd):
    """The run is over: the error says so, and the same command with another folder needs no server any more."""
    (folder / "a-file").write_text("in the way")
    given = options(
        world, "rome", folder / "rome", quiet=True, server="tls://127.0.0.1:1", out=folder / "a-file" / "out"
    )
    command = ["site", "run", "--quiet", *(f"--{k.replace('_', '-')}={v}" for k, v in given.items() if k != "quiet")]
    assert main(command) == 9
    told = capfd.readouterr().err
    assert "Nothing is lost, and nothing will be drawn again" in told
    assert "Released in this run: rounds 1 to 4 of 4." in told
    assert main([*command[:-1], f"--out={folder / 'elsewhere'}"]) == 0
    assert (folder / "elsewhere" / "model.safetensors").exists()


def test_rows_can_be_committed_to_before_an_agreement_is_made(world, tmp_path, capsys):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    data, salt = world.folder / "berlin.csv", tmp_path / "berlin.salt"
    commit = ["site", "commit", f"--data={data}", f"--schema={tmp_path / 'schema.toml'}", f"--salt={salt}"]
    assert main(commit) == 0
    line = capsys.readouterr().out.strip()
    assert len(salt.read_bytes()) == 32
    member = drafts._member(f"berlin={world.keys['berlin'].public}:30:{line}")
    assert (member.rows, member.data_commitment) == (30, line)
    assert main(commit) == 2  # the salt is never replaced
    agreed = replace(
        world.agreement, sites=(replace(world.agreement.sites[0], data_commitment=line), *world.agreement.sites[1:])
    )
    rows = files.rows_of(agreed, data)
    with pytest.raises(InputError, match=r"Give the data file and the salt .*: --salt"):
        files.open_journal(tmp_path, agreed, "berlin", rows)
    source = files.source_of(data, None)
    with pytest.raises(InputError, match="got others"):
        files.open_journal(tmp_path, agreed, "berlin", rows, salt, source=source._replace(delimiter=";"))
    files.open_journal(tmp_path, agreed, "berlin", rows, salt, source=source).close()
    files.open_journal(tmp_path, agreed, "berlin", rows, source=source).close()  # the journal keeps the salt


def test_a_site_may_write_its_file_with_semicolons(world, tmp_path, capsys):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    data = tmp_path / "berlin.csv"
    data.write_text((world.folder / "berlin.csv").read_text().replace(",", ";"))
    commit = ["site", "commit", f"--data={data}", f"--schema={tmp_path / 'schema.toml'}", f"--salt={tmp_path / 'salt'}"]
    assert main(commit) == 2
    assert "separated by semicolons: say so with --delimiter" in capsys.readouterr().err
    assert main([*commit, "--delimiter=;"]) == 0
    asked = options(
        world, "berlin", tmp_path / "state", quiet=True, server="tls://127.0.0.1:1", patience=0.3, data=data
    )
    with pytest.raises(InputError, match="separated by semicolons: say so with --delimiter"):
        site_run(**asked)
    with pytest.raises(transport.UnreachableError):  # its rows are those that were agreed on
        site_run(**asked, delimiter=";")


def test_a_ledger_belongs_to_its_rows(world, tmp_path):
    state = tmp_path / "state"
    with pytest.raises(BudgetError):
        site_run(**options(world, "berlin", state, quiet=True, cap_epsilon=1.0, patience=0.3))
    # What was refused has fixed no cap.
    with pytest.raises(transport.UnreachableError):
        site_run(**options(world, "berlin", state, quiet=True, server="tls://127.0.0.1:1", patience=0.3))
    with Ledger.open(state / "rows.ledger") as ledger:
        assert ledger.header.epsilon == 2.0
        ledger.reserve("another run", 1, Gaussian(1e3))
    with pytest.raises(InputError, match=r"the cap that the ledger was made with, epsilon=2, delta=0\.0001"):
        site_run(**options(world, "berlin", state, quiet=True, cap_epsilon=1.0))
    other = changed_file(world, tmp_path, "berlin.csv", "m", "f")
    with pytest.raises(InputError, match=r"Expected the ledger of the rows in .* got that of another file"):
        site_run(**options(world, "berlin", tmp_path / "new", quiet=True, data=other, ledger=state / "rows.ledger"))
    with pytest.raises(InputError, match="put the data file back as it was"):
        site_run(**options(world, "berlin", state, quiet=True, data=other))
    (state / "rows.ledger.salt").unlink()
    with pytest.raises(stops.DamagedError, match="Expected the salt of the ledger") as raised:
        site_run(**options(world, "berlin", state, quiet=True))
    assert code_of(raised.value) == 6
    (state / "rows.ledger.head").unlink()
    with pytest.raises(stops.DamagedError, match="Expected the head of the ledger"):
        site_run(**options(world, "berlin", state, quiet=True))


def test_arrays_where_there_is_no_schema(tmp_path):
    from sottovoce.cli.site.files import rows_of

    agreed = agreement()
    features = np.random.default_rng(1).normal(size=(30, 5)) / 10
    np.savez(tmp_path / "rows.npz", features=features, labels=np.ones(30))
    assert rows_of(agreed, tmp_path / "rows.npz").counts.tolist() == [30]
    np.savez(tmp_path / "odd.npz", features=features)
    with pytest.raises(
        InputError, match=r"a matrix `features` and a vector `labels`, got file=.* arrays=\['features'\]"
    ):
        rows_of(agreed, tmp_path / "odd.npz")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"Expected an \.npz file of arrays"):
        rows_of(agreed, tmp_path / "rows.csv")


def test_a_file_that_changes_meanwhile(tmp_path):
    from sottovoce.cli.site.files import refusing_changes

    file = tmp_path / "rows.csv"
    file.write_text("a")

    def change():
        with refusing_changes(file):
            file.write_text("b")

    with pytest.raises(InputError, match="a data file that stays as it is"):
        change()


# -- exit codes, help, log, view --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("x"), 2), (PrivacyError("x"), 2), (BudgetError("x"), 3), (stops.LostNeighbourError("x"), 4),
        (stops.UsedTwiceError("x"), 5), (stops.DamagedError("x"), 6), (transport.UnreachableError("x"), 7),
        (transport.RefusedError("x"), 7), (stops.LeftBehindError("x"), 8),
        (stops.BehindError("x"), 13),
    ],
)  # fmt: skip
def test_exit_codes(error, code):
    assert code_of(error) == code
    assert code in EXIT_CODES


def test_a_server_that_is_not_there_is_told_at_once_in_view_and_log(world, tmp_path, capsys):
    changes = {"server": "tls://127.0.0.1:1", "patience": 0.3, "log": tmp_path / "log"}
    with pytest.raises(transport.UnreachableError):
        site_run(**options(world, "berlin", tmp_path / "state", **changes))
    reason = "message server tls://127.0.0.1:1 does not answer (connection refused)"
    assert f"sottovoce: {reason}; trying again, giving up in 0 s\n" in capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    away = [line for line in lines if line["event"] == "server away"]
    assert [(line["level"], line["reason"]) for line in away] == [("WARNING", reason)]


# -- a full disk ------------------------------------------------------------------------------------------------------

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


@needs_full
def test_a_log_that_cannot_be_written_stops_nobody(capfd):
    logger = logging.getLogger("sottovoce.full")
    handler = LogFile(Path("/dev/full"))
    logger.addHandler(handler)
    try:
        for _ in range(3):
            logger.warning("published", extra={"fields": {"round": 1, "text": "x" * 10_000}})
    finally:
        logger.removeHandler(handler)
        handler.close()
    line = "sottovoce: cannot write the log /dev/full: No space left on device; going on without it\n"
    assert capfd.readouterr() == ("", line)


@needs_full
def test_a_terminal_that_cannot_be_written_stops_nobody(monkeypatch):
    full = open("/dev/full", "w")  # noqa: SIM115
    monkeypatch.setattr(sys, "stderr", full)
    tell(PlainLines())
    with pytest.raises(OSError, match="No space left"):
        full.close()


@needs_full
def test_a_site_runs_to_the_end_on_a_full_disk(tmp_path):
    """Logs and words are lost, the model is not."""
    federation = federation_of(("berlin", "paris"), sv.graphs.complete(2), ALGORITHM, {})
    with federation, GuardedServer(tmp_path, [federation]) as server:
        programs, folder = [], tmp_path / "files"
        folder.mkdir()
        for name in federation.names:
            command = [sys.executable, "-m", "sottovoce.cli", "site", "run"]
            given = program_of(federation, name, server, folder)
            given[given.index("--log") + 1] = "/dev/full"
            programs.append(subprocess.Popen([*command, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        said = [program.communicate(timeout=120) for program in programs]
    for program, (out, err) in zip(programs, said, strict=True):
        assert program.returncode == 0
        assert b"model.safetensors and statement.txt" in out
        assert err.count(b"cannot write the log /dev/full: No space left on device; going on without it") == 1
        assert b"Traceback" not in err
        assert b"Logging error" not in err


def test_help_has_a_line_for_every_exit_code(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    app = typer.Typer(rich_markup_mode="rich")
    app.command("run", epilog=epilog())(site_run)
    app.command("other")(lambda: None)
    told = re.sub(r"\x1b\[[0-9;]*m", "", CliRunner().invoke(app, ["run", "--help"]).output)
    for code, text in EXIT_CODES.items():
        assert f"{code}  {text}." in told
    for option in ("--federation", "--cap-epsilon", "--certificates", "--tls-key", "--log"):
        assert option in told


def test_an_interruption_can_be_resumed(monkeypatch):
    from sottovoce.cli.study import Stopped

    async def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_run", interrupted)
    with pytest.raises(Stopped, match="run the same command again to go on"):
        command._finish(None, "", None, Watcher(), None)


FACTS = RunFacts("ab" * 16, "cd" * 32, "berlin", ("paris", "rome"), 20, 0, "wait", 60.0, 1.0, 1e-5)
SPENDING = Spending(0.4321, 1.25, 2.0, 1e-4)
TAKEN = Taken(OWN_NOISE, "ef" * 32, {"berlin": "12" * 32, "paris": "34" * 32}, 0.75, 0)


def tell(watcher):
    """A short life with everything in it."""
    watcher.tell(events.RunBegan(FACTS, SPENDING))
    watcher.tell(events.RoundBegan(1))
    watcher.tell(events.Published(1, False))
    watcher.tell(events.Waiting(1, {"rome": 7.0}))
    watcher.tell(events.Waiting(1, {"rome": 8.0}))
    watcher.tell(events.Refused(1, "rome", "forged", "it is not signed"))
    watcher.tell(events.ServerSilent(9.0))
    for left in (8.0, 7.0):
        watcher.tell(events.ServerAway(f"message server tls://x:1 does not answer (reason {left})", left))
    watcher.tell(events.ServerAway("the run is not open on message server tls://x:1 yet", None))
    watcher.tell(events.ServerBack())
    watcher.tell(events.ServerBack())
    watcher.tell(events.Noticed("paris", "waits for others in round 0"))
    watcher.tell(events.Dropped(1, "rome"))
    for k in range(1, 5):
        watcher.tell(events.RoundDone(k, SPENDING, TAKEN))
    watcher.tell(events.RunFinished(20, {"rome": 1}))
    watcher.tell(events.end_by(InputError("Expected\nless")))


def test_the_log_is_one_json_object_a_line(caplog):
    with caplog.at_level(logging.DEBUG, "sottovoce.site"):
        tell(Watchers(LogWatcher(), Watcher()))
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    assert [line["event"] for line in lines] == [
        "began", "round began", "published", "waiting", "refused", "server silent", "server away", "server away",
        "server back", "noticed", "dropped", *["round done"] * 4, "finished", "stopped",
    ]  # fmt: skip
    refused = lines[4]
    assert (refused["level"], refused["sender"], refused["round"], refused["reason"]) == (
        "WARNING",
        "rome",
        1,
        "forged",
    )
    assert (lines[6]["reason"], lines[6]["giving_up_in"]) == (
        "message server tls://x:1 does not answer (reason 8.0)",
        8.0,
    )
    assert lines[-1]["reason"] == "Expected less"


def test_a_number_that_json_does_not_know_is_none(caplog):
    def refuse(word):
        raise AssertionError(word)

    with caplog.at_level(logging.DEBUG, "sottovoce.site"):
        LogWatcher().tell(events.RoundDone(3, replace(SPENDING, spent=math.inf), replace(TAKEN, size=math.nan)))
        LogWatcher().tell(events.Waiting(3, {"rome": math.inf}))
    done, waiting = (json.loads(JsonLines().format(r), parse_constant=refuse) for r in caplog.records)
    assert (done["spent"], done["size"], done["cap"], waiting["silent"]) == (None, None, 2.0, {"rome": None})


def test_the_table_shows_what_matters():
    view, console = LiveTable(), Console(width=150, force_terminal=False)
    with console.capture() as empty:
        console.print(view)
    assert "getting ready" in empty.get()
    view.tell(events.ServerAway("message server tls://x:1 does not answer (connection refused)", 600.0))
    with console.capture() as early:
        console.print(view)
    assert "does not answer (connection refused); trying again, giving up in 600 s" in early.get()
    tell(view)
    view.tell(events.Waiting(5, {"rome": 65.0, "paris": 1.0}))
    with console.capture() as shown:
        console.print(view)
    text = shown.get()
    for part in (
        "berlin, run abababababab",
        "4/20",
        "time left",
        "rome (0:01:0",
        "0.4321 of 2 reserved",
        "going on without",
    ):
        assert part in text
    assert "paris (0" not in text  # not late yet
    assert "tls://x:1" not in text  # it is back
    view.tell(events.ServerAway("message server tls://x:1 does not answer (connection refused)", None))
    with console.capture() as shown:
        console.print(view)
    assert "does not answer (connection refused); trying again" in shown.get()


def test_without_a_terminal_there_are_a_few_lines(capsys):
    tell(PlainLines())
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["sottovoce"] * len(lines)
    text = "\n".join(lines)
    assert text.count("waiting for rome (0:00:07)") == 1
    assert "round 2/20" in text
    assert "round 3/20" not in text  # only every tenth of the way
    assert "all 20 rounds are done, without rome" in text
    assert text.count("does not answer (reason 8.0); trying again, giving up in 8 s") == 1
    assert "reason 7.0" not in text  # the same thing, said just before
    assert "the run is not open on message server tls://x:1 yet; trying again" in text
    assert text.count("the message server answers again") == 1
    assert duration(3725) == "1:02:05"
