"""A warm process that gives birth to sites, for tests that kill them.

    python network_crash_site.py FOLDER

Everything is imported once. Each life of a site is a fork, so that a kill hits that life only and the next one begins
within milliseconds. It listens on stdin and tells on stdout, one JSON list a line:

    ["start", site]     begin a life           ["round", site, k]          a site has finished round k
    ["kill", site]      end it, by SIGKILL     ["ended", site, status]     the exit code, or minus the signal

FOLDER holds `case.json`, the agreement, keys, rows and certificates. A life is that of `sottovoce site run`, but for
two things: noise may be handed in, and the site kills itself where its plan says. A plan is a list of [point, round]:
die when that point is first reached in that round or later. What was done is kept in FOLDER/SITE.deaths, so that the
next life does not die of the same.
"""

import asyncio
import json
import os
import select
import signal
import sys
import traceback
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np

from sottovoce.cli.exit_codes import code_of
from sottovoce.cli.site import files
from sottovoce.errors import SottovoceError
from sottovoce.federation.agreement import toml_file
from sottovoce.federation.agreement.certificates import TLSFiles
from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.federation.operator.opening import room_for
from sottovoce.federation.site.events import RoundBegan, RoundDone
from sottovoce.federation.site.mail import Pace
from sottovoce.federation.site.runner import run_site
from sottovoce.federation.site.seat import Seat
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.transport.jetstream import JetStreamTransport
from sottovoce.noise.sampler import discrete_gaussian, keyed
from sottovoce.noise.sources import GivenNoise, SeededNoise, Shape
from sottovoce.privacy.books.head import OpenHead
from sottovoce.privacy.books.ledger import Ledger

PACE = Pace(slice=1.0, server=60.0)
CAP = 10.0, 1e-3
TICK = 0.005  # seconds between two looks for the dead
# No points of the runner, but places where a crash leaves a trace: between an entry of the ledger and its head, and
# before the ledger says that both are written.
HEADLESS, UNSAID = "entry without head", "entry with head"


def report(*words):
    """One write, which is whole or not at all."""
    os.write(1, json.dumps(words).encode() + b"\n")


# -- one life ---------------------------------------------------------------------------------------------------------


class Fate(Watcher):
    """Tells the rounds, and dies where the plan says."""

    def __init__(self, folder, site, plan):
        self._site, self._deaths = site, folder / f"{site}.deaths"
        done = self._deaths.read_text().splitlines() if self._deaths.exists() else []
        self._left = [death for death in plan if json.dumps(death) not in done]
        self._round = 0

    def tell(self, event):
        match event:
            case RoundBegan(k):
                self._round = k
            case RoundDone(k):
                report("round", self._site, k)

    def probe(self, point, k):
        for death in self._left:
            if death[0] == point and death[1] <= k:
                with self._deaths.open("a") as file:
                    file.write(json.dumps(death) + "\n")
                os.kill(os.getpid(), signal.SIGKILL)

    def watch_heads(self):
        """Have points around the ledger's head."""
        overwrite = OpenHead.overwrite

        def probed(file, head):
            self.probe(HEADLESS, self._round)
            overwrite(file, head)
            self.probe(UNSAID, self._round)

        OpenHead.overwrite = probed


def given_noise(agreement, site, seed):
    """A site's share of `Federation.normals`."""
    i, d = agreement.index(site), agreement.model_size
    shape = 1, len(agreement.names), agreement.algorithm.draws_per_round, d

    def noise(k):
        return np.random.default_rng((seed, k)).normal(size=shape)[:, i : i + 1]

    return GivenNoise(noise, SeededNoise(0, Shape(1, d, 1, first_node=i)))


def open_ledger(path, site):
    return Ledger.open(path, site) if Ledger.exists(path) else Ledger.create(path, site, *CAP)


async def live(folder, case, site, stack, fate):
    agreement, data = toml_file.load(folder / "federation.toml"), folder / f"{site}.npz"
    run_folder = files.run_folder(folder / site, agreement)
    noise, rows = {}, files.rows_of(agreement, data)
    if case["seed"] is not None:
        noise = {"noise": given_noise(agreement, site, case["seed"]), "for_tests": True}
    masked = agreement.member(site).mask_key is not None
    secrets = (folder / f"{site}.salt", folder / f"{site}.seed") if masked else ()
    seat = Seat(
        agreement=agreement, site=site, rows=rows, **noise,
        key=SigningKey.load(folder / f"{site}.signing.pem"),
        ledger=stack.enter_context(open_ledger(folder / site / "rows.ledger", site)),
        journal=stack.enter_context(files.open_journal(run_folder, agreement, site, rows, *secrets)),
        heads=stack.enter_context(files.open_heads(folder / site)), source=files.source_of(data, None),
    )  # fmt: skip
    largest = room_for(agreement).size
    transport = await JetStreamTransport.connect(
        case["url"], agreement.run, site, seat.neighbours, largest, tls=TLSFiles.within(folder, site).context(),
        timeout=PACE.server,
    )  # fmt: skip
    async with transport:
        return await run_site(seat, transport, watcher=fate, probe=fate.probe, pace=PACE)


def life(folder, case, site, nursery):
    """The exit code of one life."""

    async def guarded():
        # Nobody outlives the nursery: its end of the pipe closes when it dies, however that happens.
        asyncio.get_running_loop().add_reader(nursery, os._exit, 1)
        with ExitStack() as stack:
            return await live(folder, case, site, stack, fate)

    try:
        fate = Fate(folder, site, case["plan"].get(site, []))
        fate.watch_heads()
        end = asyncio.run(guarded())
        fields = end.state._asdict()
        state = {f"state.{name}": array for name, array in fields.items() if isinstance(array, np.ndarray)}
        absent = json.dumps(end.absent)
        np.savez(folder / f"{site}.end.npz", model=end.model, own=end.own, absent=absent, **state)
    except SottovoceError as error:
        print(f"{site}: {error}", file=sys.stderr, flush=True)
        return code_of(error)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


# -- the nursery ------------------------------------------------------------------------------------------------------


class Nursery:
    def __init__(self, folder):
        self._folder = folder
        self._lives = {}  # by pid
        self._pipe = os.pipe()

    def start(self, site):
        case = json.loads((self._folder / "case.json").read_text())
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(self._pipe[1])
                os.close(0)
                code = life(self._folder, case, site, self._pipe[0])
            finally:
                os._exit(code)
        self._lives[child] = site

    def kill(self, site):
        for pid, name in self._lives.items():
            if name == site:
                os.kill(pid, signal.SIGKILL)  # a dead child keeps its number until it is reaped, below

    def reap(self):
        for pid in list(self._lives):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                report("ended", self._lives.pop(pid), os.waitstatus_to_exitcode(status))

    def close(self):
        for pid in self._lives:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main():
    nursery, heard = Nursery(Path(sys.argv[1])), b""
    discrete_gaussian(keyed(bytes(32))(b""), 1, 1)  # compiled before the forks, not in each of them
    with suppress(FileNotFoundError):
        # A fork copies one thread only; locks of the others would stay locked for ever.
        assert len(os.listdir("/proc/self/task")) == 1, "a nursery must have one thread"
    report("ready")
    while True:
        nursery.reap()
        if select.select([0], [], [], TICK)[0]:
            data = os.read(0, 4096)
            if not data:
                break
            *lines, heard = (heard + data).split(b"\n")
            for line in lines:
                word, site = json.loads(line)
                {"start": nursery.start, "kill": nursery.kill}[word](site)
    nursery.close()


if __name__ == "__main__":
    main()
