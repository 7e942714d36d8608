"""`sottovoce site status`: where a run stands, while it runs and afterwards."""

import json
import os
from dataclasses import replace

import pytest

import sottovoce as sv
from helpers.federations import COMMON
from helpers.network_worlds import MemoryWorld, play
from helpers.site_runs import Died, Federation, dying
from sottovoce.algorithms import IPADMM
from sottovoce.cli import main
from sottovoce.errors import InputError
from sottovoce.federation.site import events
from sottovoce.federation.site.events import MASKED, RunFacts, Spending, Taken
from sottovoce.federation.site.status import FILE, StatusFile, is_running, read_status
from sottovoce.federation.site.stops import LostNeighbourError
from sottovoce.privacy.observers import against

FACTS = RunFacts("run-1", "a" * 64, "berlin", ("oslo", "rome"), 9, 2, "wait", 60.0, 1.5, 1e-5)
SPENDING = Spending(0.4, 1.25, 2.0, 1e-4)
TAKEN = Taken(MASKED, "ef" * 32, {}, None, 0)


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "state" / "run-1"
    place.mkdir(parents=True)
    return place


def test_what_a_site_says_while_it_runs(folder, capsys):
    watcher = StatusFile(folder)
    assert read_status(folder) is None
    watcher.tell(events.RoundBegan(1))  # nothing is known yet, so nothing is said
    assert read_status(folder) is None
    watcher.tell(events.RunBegan(FACTS, SPENDING))
    watcher.tell(events.RoundBegan(3))
    watcher.tell(events.Published(3, False))
    watcher.tell(events.Dropped(3, "rome"))
    watcher.tell(events.Waiting(3, {"oslo": 12.34}))
    status = read_status(folder)
    assert (status.done, status.rounds, status.waiting, status.absent) == (2, 9, {"oslo": 12.3}, {"rome": 3})
    assert is_running(status)
    assert main(["site", "status", "--state", str(folder.parent)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "run-1, site berlin", "round 2 of 9", "waiting in round 3", "waiting for oslo (silent for 0:00:12)",
        "without rome since round 3", "spent epsilon 0.4 of 2 at delta", "a run of epsilon 1.25",
    ):  # fmt: skip
        assert words in shown, shown
    watcher.tell(events.ServerSilent(12.0))
    assert read_status(folder).doing == "the message server has not answered for 0:00:12"
    watcher.tell(events.RoundDone(3, Spending(0.5, 1.1, 2.0, 1e-4), TAKEN))
    assert (read_status(folder).done, read_status(folder).spent, read_status(folder).waiting) == (3, 0.5, {})
    watcher.tell(events.RunFinished(9, {"rome": 3}))
    assert main(["site", "status", "--state", str(folder.parent), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["doing"], run["running"], run["left"]) == ("finished", False, 1.1)


def test_whom_it_holds_against_and_what_was_made_again_is_said(folder, capsys):
    watcher = StatusFile(folder)
    watcher.tell(events.RunBegan(FACTS, SPENDING))
    watcher.tell(events.RoundDone(10, replace(SPENDING, colluding=1), replace(TAKEN, given_up=1)))
    assert (read_status(folder).done, read_status(folder).given_up, read_status(folder).colluding) == (9, 1, 1)
    assert main(["site", "status", "--state", str(folder.parent)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "round 9 of 9, 1 made again" in shown
    assert f"at delta 0.0001{against(1)}, all runs" in shown


def test_a_process_that_was_killed_is_not_said_to_run(folder, capsys):
    StatusFile(folder).tell(events.RunBegan(FACTS, SPENDING))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    data = json.loads((folder / FILE).read_text())
    (folder / FILE).write_text(json.dumps(data | {"process": child}))
    assert main(["site", "status", "--state", str(folder.parent)]) == 0
    assert "it ended without a message" in " ".join(capsys.readouterr().out.split())


def test_why_it_stopped_is_said_and_an_infinite_total_is_none(folder):
    watcher = StatusFile(folder)
    watcher.tell(events.RunBegan(FACTS, Spending(float("inf"), 0.0, 2.0, 1e-4)))
    watcher.tell(events.end_by(LostNeighbourError("Expected oslo,\ngot nothing.")))
    status = read_status(folder)
    assert (status.spent, status.doing, status.process) == (None, "stopped: Expected oslo, got nothing.", None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": 3}', '{"odd": 1}'])
def test_another_file_is_refused_in_one_line(folder, text, capsys):
    (folder / FILE).write_text(text)
    with pytest.raises(InputError, match=FILE):
        read_status(folder)
    assert main(["site", "status", "--state", str(folder.parent)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_without_runs_is_refused(tmp_path, capsys):
    assert main(["site", "status", "--state", str(tmp_path)]) == 2
    assert "a site that has run" in capsys.readouterr().err


def test_a_full_disk_stops_nobody(folder):
    watcher = StatusFile(folder / "gone")
    watcher.tell(events.RunBegan(FACTS, SPENDING))
    watcher.tell(events.RunFinished(9, {}))


def test_a_real_site_tells_its_rounds_and_what_is_left(folder):
    algorithm = IPADMM(**COMMON, local_steps=2)
    with Federation(sv.graphs.complete(2), (12, 9), algorithm, cap=3.0) as federation:
        world, seen = MemoryWorld(), []

        async def scene():
            import asyncio

            oslo = asyncio.ensure_future(federation.site("oslo", world))
            with pytest.raises(Died):
                await federation.site("berlin", world, watcher=StatusFile(folder), probe=dying("absorbed", 2))
            seen.append(read_status(folder))
            await federation.site("berlin", world, watcher=StatusFile(folder))
            await oslo

        play(scene())
        seen.append(read_status(folder))
    died, ended = seen
    assert (died.done, died.doing, ended.done, ended.doing) == (1, "stopped: interrupted", 3, "finished")
    assert 0 < died.spent < ended.spent < ended.cap == 3.0
    assert died.left > ended.left > 0
