"""Kills sites and their server as a plan says, and looks at what each death leaves behind.

Each site is a process of its own (`network_crash_site`), with the real runner, ledger, journal and TLS, on a server
with the configuration that real ones have.
"""

import asyncio
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from helpers.federations import open_words
from helpers.network_server import NatsServer
from helpers.network_worlds import play
from helpers.site_runs import scratch
from sottovoce.cli.exit_codes import LEFT_BEHIND
from sottovoce.federation.agreement import certificates, toml_file
from sottovoce.federation.agreement.certificates import TLSFiles
from sottovoce.federation.agreement.identity import OPERATOR
from sottovoce.federation.agreement.key_files import write_secret
from sottovoce.federation.operator.opening import room_for
from sottovoce.federation.operator.server import Hosting, server_config
from sottovoce.federation.site.formats import format_of
from sottovoce.federation.site.journal import Journal
from sottovoce.federation.site.seat import committing, digest, owner_of
from sottovoce.federation.transport.connection import Pushes, Server
from sottovoce.federation.transport.jetstream import JetStreamTransport, create_stream
from sottovoce.federation.transport.link import Link
from sottovoce.federation.transport.subjects import inbox, mailbox, stream_name
from sottovoce.federation.transport.wire import Slot
from sottovoce.privacy.books.ledger import Ledger

DRIVER = Path(__file__).parent / "network_crash_site.py"
KILLED = -9
# Seconds for everything: far more than it takes, so that only what hangs fails.
PATIENCE = 300.0


class RealServer(NatsServer):
    """With the configuration that `sottovoce federation server-config` writes."""

    def __init__(self, folder, agreement):
        super().__init__(folder)
        tls = TLSFiles.within(folder, "server")
        hosting = Hosting(tls=tls, store=folder / "store", host="127.0.0.1", port=self.port)
        self._file.write_text(f'{server_config([agreement], hosting)}log_file: "{self.log}"\n')


def lay_out(federation, folder):
    """Every file that sites and server need."""
    agreement = federation.agreement
    toml_file.save(agreement, folder / "federation.toml")
    certificates.create_authority(folder)
    certificates.issue_server(folder)
    certificates.issue_operator(folder)
    for i, name in enumerate(federation.names):
        certificates.issue_site(folder, name)
        federation.keys[name].save(folder / f"{name}.signing.pem")
        np.savez(folder / f"{name}.npz", features=federation.features[i], labels=federation.labels[i])
        if federation.masked:
            federation.seeds[name].save(folder / f"{name}.seed")
            write_secret(folder / f"{name}.salt", federation.salts[name])


# -- the plan ---------------------------------------------------------------------------------------------------------


@dataclass
class Blow:
    """A site, or the server for None, is killed some time after a site has finished a round.

    `again`: its next lives are killed too, so many seconds after they began.
    """

    round: int
    site: str | None
    after: float = 0.0
    again: list[float] = field(default_factory=list)


@dataclass
class Plan:
    deaths: dict[str, list[tuple[str, int]]]  # at points
    blows: list[Blow] = field(default_factory=list)  # at times
    newborn: dict[str, list[float]] = field(default_factory=dict)  # so many seconds into the first lives
    for_good: tuple[str, ...] = ()  # do not come back


def deaths_at_points(rng, names, rounds, times, points):
    """Every point so often, at random sites in random rounds."""
    deaths = {name: set() for name in names}
    for point in points:
        for _ in range(times):
            deaths[rng.choice(names)].add((point, rng.randrange(1, rounds - 4)))
    return {name: sorted(places) for name, places in deaths.items()}


# -- what sites have said ---------------------------------------------------------------------------------------------


class Scene:
    """A federation's files, its server, and what can be seen from outside."""

    def __init__(self, federation, folder):
        self.federation, self.folder, self.agreement = federation, folder, federation.agreement
        lay_out(federation, folder)
        self.server = RealServer(folder, self.agreement)
        self.room, self.kind = room_for(self.agreement), format_of(self.agreement).kind

    def __enter__(self):
        self.server.start()
        operator = TLSFiles.within(self.folder, OPERATOR).context()
        size, most = self.room.size, self.room.messages
        play(create_stream(self.server.url, self.agreement.run, size, max_messages=most, tls=operator))
        return self

    def __exit__(self, *_):
        self.server.stop()

    def published(self, name="*"):
        """Messages on the server by (site, round), each with how many there are."""
        return play(self._published(name))

    async def _published(self, name):
        def ignore(_):
            raise AssertionError("nothing is pushed to an operator")

        tls = TLSFiles.within(self.folder, OPERATOR).context()
        pushes = Pushes((), ignore, lambda: None)
        link = Link(
            Server(self.server.url, tls, inbox(OPERATOR)), pushes, 1 << 20, lambda _: None
        )  # all subjects in one answer
        run, wanted = self.agreement.run, json.dumps({"subjects_filter": mailbox(self.agreement.run, "*", name)})
        deadline = asyncio.get_running_loop().time() + 20.0
        try:
            subject = f"$JS.API.STREAM.INFO.{stream_name(run)}"
            info = await link.request(subject, deadline, lambda m: json.loads(m.data), wanted.encode())
        finally:
            await link.close()
        found = {}
        for subject, count in (info["state"].get("subjects") or {}).items():
            _, _, token, site = subject.split(".")
            slot = Slot.of_token(token, site)
            if slot.kind is self.kind:
                found[site, slot.number] = count
        return found

    def messages(self, name, rounds):
        """The bytes in a site's mailboxes, as the site itself may read them."""

        async def read():
            tls = TLSFiles.within(self.folder, name).context()
            transport = await JetStreamTransport.connect(
                self.server.url, self.agreement.run, name, [], self.room.size, tls=tls
            )
            async with transport:
                return [await transport.get(Slot(k, name, self.kind), 10.0) for k in range(1, rounds + 1)]

        return play(read())

    def vectors(self, rounds):
        """What everyone said: {site: (rounds, d)}."""
        a = self.agreement
        return {
            name: np.array([
                open_words(a, k, name, data).vector
                for k, data in enumerate(self.messages(name, rounds), 1)
            ])
            for name in a.names
        }  # fmt: skip

    def books(self, name, folder, stack):
        """A dead site's ledger and journal; None for what was never made."""
        ledger, journal = folder / "rows.ledger", folder / self.agreement.run / "journal.sqlite"
        commit = committing(self.agreement, name, self.federation.sites([name]))
        owner = owner_of(self.agreement, name)
        return (
            stack.enter_context(Ledger.open(ledger, name)) if Ledger.exists(ledger) else None,
            stack.enter_context(Journal.open(journal, owner, commit)) if journal.exists() else None,
        )

    def examine(self, name):
        """What a death left behind, in a copy: opening the files would repair them."""
        with scratch() as copy, ExitStack() as stack:
            if not (self.folder / name).exists():
                return
            shutil.copytree(self.folder / name, copy, dirs_exist_ok=True)
            ledger, journal = self.books(name, Path(copy), stack)
            booked = {} if ledger is None else {r.round: r.message for r in ledger.reservations()}
            on_server = [k for (_, k) in self.published(name) if k <= self.agreement.algorithm.rounds]
            last = len(on_server)
            assert sorted(on_server) == list(range(1, last + 1))
            # Never below what was published, and above it by the reserved round at most.
            assert sorted(booked) == list(range(1, len(booked) + 1))
            assert last <= len(booked) <= last + 1
            assert all(booked[k] is not None for k in on_server)
            if journal is not None:
                assert journal.round <= last <= journal.round + 1
                for k in range(journal.round + 1, len(booked) + 1):
                    assert booked[k] is None or booked[k] == digest(journal.said(k).message)

    def deaths_at_points(self):
        """How often a site has died at each point, as the sites wrote down themselves."""
        deaths = (file.read_text().splitlines() for file in self.folder.glob("*.deaths"))
        return Counter(json.loads(death)[0] for lines in deaths for death in lines)

    def end(self, name):
        with np.load(self.folder / f"{name}.end.npz") as file:
            return dict(file)

    def log(self):
        return (self.folder / "sites.log").read_text()[-3000:]


# -- the supervisor ---------------------------------------------------------------------------------------------------


class Supervisor:
    """Starts sites, kills them, looks at what they left, and starts them again, until all have ended by themselves."""

    def __init__(self, scene, plan, seed):
        self.scene, self.plan = scene, plan
        self.ends, self.kills = {}, Counter()
        self._alive = set()
        self._blows = list(plan.blows)
        self._due = []  # (when, site)
        self._again = defaultdict(list)  # seconds into lives to come, by site
        case = {"url": scene.server.url, "seed": seed, "plan": plan.deaths}
        (scene.folder / "case.json").write_text(json.dumps(case))

    def __enter__(self):
        # One thread each: a fork copies no other.
        single = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with (self.scene.folder / "sites.log").open("wb") as log:
            self._nursery = subprocess.Popen(
                [sys.executable, str(DRIVER), str(self.scene.folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=single,
            )  # fmt: skip
        self._heard = b""
        return self

    def __exit__(self, *_):
        self._nursery.stdin.close()  # it ends all sites, and itself
        try:
            self._nursery.wait(20.0)
        finally:
            self._nursery.kill()
            self._nursery.wait()
            self._nursery.stdout.close()

    def run(self):
        """To the end; exit codes by site."""
        until = time.monotonic() + PATIENCE
        while len(self.ends) < len(self.scene.agreement.names):
            assert time.monotonic() < until, f"{self.ends}, {self.kills}, {self.scene.log()}"
            for event in self._events(0.005):
                getattr(self, f"_on_{event[0]}")(*event[1:])
            self._strike()
        at_points = self.scene.deaths_at_points()
        self.kills |= {**at_points, "at a time": self.kills["site"] - sum(at_points.values())}
        return self.ends

    def revive(self, name):
        """One more life of a site that is dead for good; its exit code."""
        del self.ends[name]
        self._start(name)
        return self.run()[name]

    def _say(self, word, name):
        self._nursery.stdin.write(json.dumps([word, name]).encode() + b"\n")
        self._nursery.stdin.flush()

    def _events(self, seconds):
        if not select.select([self._nursery.stdout], [], [], seconds)[0]:
            return []
        data = os.read(self._nursery.stdout.fileno(), 65536)
        assert data, f"the nursery has ended: {self.scene.log()}"
        *lines, self._heard = (self._heard + data).split(b"\n")
        return [json.loads(line) for line in lines]

    # -- what is heard ------------------------------------------------------------------------------------------------

    def _on_ready(self):
        for name in self.scene.agreement.names:
            self._again[name] += self.plan.newborn.get(name, [])
            self._start(name)

    def _on_round(self, name, k):
        for blow in [blow for blow in self._blows if blow.round <= k and blow.site in (name, None)]:
            self._blows.remove(blow)
            if blow.site is None:
                self._kill_server(blow.after)
            else:
                self._due.append((time.monotonic() + blow.after, name))
                self._again[name] += blow.again

    def _on_ended(self, name, status):
        self._alive.discard(name)
        assert status in (0, KILLED, LEFT_BEHIND), f"{name} ended with {status}: {self.scene.log()}"
        if status == KILLED:
            self.kills["site"] += 1
            self.scene.examine(name)
        if status != KILLED or name in self.plan.for_good:
            self.ends[name] = status
        else:
            self._start(name)

    # -- what is done -------------------------------------------------------------------------------------------------

    def _start(self, name):
        self._say("start", name)
        self._alive.add(name)
        if self._again[name]:
            self._due.append((time.monotonic() + self._again[name].pop(0), name))

    def _strike(self):
        for kill in [kill for kill in self._due if kill[0] <= time.monotonic() and kill[1] in self._alive]:
            self._due.remove(kill)
            self._say("kill", kill[1])

    def _kill_server(self, seconds):
        self.kills["server"] += 1
        self.scene.server.kill()
        time.sleep(seconds)
        self.scene.server.start()
