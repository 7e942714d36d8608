"""A real message server with TLS and the configuration that we write for it: every certificate has its own rights."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from helpers.federations import seal_words
from helpers.network_server import NatsServer
from helpers.site_runs import Federation
from sottovoce.federation.agreement import certificates, signing, toml_file
from sottovoce.federation.agreement.certificates import TLSFiles
from sottovoce.federation.operator.opening import open_run, room_for
from sottovoce.federation.operator.server import Hosting, server_config
from sottovoce.federation.site.board import Board
from sottovoce.federation.site.events import Dropped, Refused, ServerSilent
from sottovoce.federation.site.heads import Heads
from sottovoce.federation.site.mail import Mail, Pace
from sottovoce.federation.site.watchers import Watcher
from sottovoce.federation.transport.jetstream import JetStreamTransport
from sottovoce.federation.transport.wire import Slot

LONG = 60.0  # seconds: ample, even on a busy machine
D = 5  # of the federations here


class GuardedServer(NatsServer):
    """May be killed and started again. Certificates are in `papers`, by name."""

    def __init__(self, folder, federations, strangers=()):
        super().__init__(folder)
        self.url = f"tls://127.0.0.1:{self.port}"
        self._agreements, self._strangers = [federation.agreement for federation in federations], tuple(strangers)
        self.certify(self.folder)

    def certify(self, folder):
        """A new authority, new certificates for all, and a configuration that knows no others."""
        self.papers = folder
        certificates.create_authority(folder)
        certificates.issue_server(folder)
        certificates.issue_operator(folder)
        for name in sorted({name for agreement in self._agreements for name in agreement.names}.union(self._strangers)):
            certificates.issue_site(folder, name)
        hosting = Hosting(tls=self.files("server"), store=self.folder / "store", host="127.0.0.1", port=self.port)
        self._file.write_text(f'{server_config(self._agreements, hosting)}\nlog_file: "{self.log}"\n')

    def __enter__(self):
        super().__enter__()
        try:
            asyncio.run(self._open())
        except BaseException:
            self.stop()
            raise
        return self

    async def _open(self):
        await asyncio.gather(*(open_run(agreement, self.url, self.files("operator")) for agreement in self._agreements))

    def files(self, name):
        return TLSFiles.within(self.papers, name)


class GuardedWorld:
    """A run on such a server, as `Federation` wants it."""

    def __init__(self, server, agreement):
        self.server, self.agreement = server, agreement

    async def site(self, name, neighbours=None, files=None):
        """The way of one site to its mailboxes, with its own certificate or another."""
        others = self.agreement.neighbours(name) if neighbours is None else neighbours
        tls = (files or self.server.files(name)).context()
        size = room_for(self.agreement).size
        return await JetStreamTransport.connect(
            self.server.url, self.agreement.run, name, others, size, tls=tls, timeout=LONG
        )


def federation_of(names, graph, algorithm, keys, rows=20, **changes):
    """A federation whose sites keep their keys from run to run, as one server wants it. New names get new keys."""
    made = Federation(graph, [rows] * len(names), algorithm, names=names, **changes)
    made.keys = {name: keys.setdefault(name, key) for name, key in made.keys.items()}
    sites = tuple(replace(site, public_key=keys[site.name].public) for site in made.agreement.sites)
    made.agreement = replace(made.agreement, sites=sites)
    return made


def program_of(federation, name, server, folder: Path):
    """The files of one site for `sottovoce site run`, and the arguments."""
    agreed, folder = folder / "federation.toml", folder / name
    if not agreed.exists():
        toml_file.save(federation.agreement, agreed)
        for site in federation.names:
            signing.write_signature(
                federation.agreement, site, federation.keys[site], agreed.with_name(f"federation.{site}.sig")
            )
    folder.mkdir()
    federation.keys[name].save(folder / "signing.pem")
    i = federation.names.index(name)
    np.savez(folder / "rows.npz", features=federation.features[i], labels=federation.labels[i])
    options = {
        "federation": agreed, "site": name, "key": folder / "signing.pem", "data": folder / "rows.npz",
        "server": server.url, "certificates": server.papers, "state": folder / "state", "log": folder / "log",
        "cap-epsilon": 10.0, "cap-delta": 1e-3, "patience": 20.0,
    }  # fmt: skip
    return [text for key, value in options.items() for text in (f"--{key}", str(value))]


def started(federation, name, server, folder):
    """The program of one site."""
    command = [sys.executable, "-m", "sottovoce.cli", "site", "run"]
    command += program_of(federation, name, server, folder)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(program):
    """Its exit code and its last words, once it has ended."""
    try:
        words = program.communicate(timeout=600)[0].splitlines()[-1]
    finally:
        end(program)
    return program.returncode, words


def end(program):
    """It is not left behind."""
    program.kill()
    program.wait()
    program.stdout.close()


def lines_of(path):
    """A log."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


# -- in one process --------------------------------------------------------------------------------------------------


class Seen(Watcher):
    def __init__(self):
        self.refusals, self.dropped_at, self.silences = [], {}, 0

    def tell(self, event):
        match event:
            case Refused(k, sender, reason):
                self.refusals.append((k, sender, reason))
            case Dropped(k, neighbour):
                self.dropped_at[neighbour] = k
            case ServerSilent():
                self.silences += 1


def said(federation, name, k=2, key=None, **changes):
    """A message as it should be, with some things changed."""
    return seal_words(federation.agreement, k, name, np.full(D, 0.1), key or federation.keys[name], **changes)


class Answering:
    """A member that answers its neighbours' questions. All else is its transport's."""

    def __init__(self, federation, name, transport):
        mail = Mail(federation.agreement, name, federation.keys[name], transport, Watcher(), Pace())
        self._transport, self._board = transport, Board(mail, {}, Heads(":memory:"))

    def __getattr__(self, name):
        return getattr(self._transport, name)

    def __setattr__(self, name, value):
        if name in ("_transport", "_board"):
            super().__setattr__(name, value)
        else:
            setattr(self._transport, name, value)

    async def answering(self):
        """From now on."""
        await self._board.__aenter__()
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self._board.__aexit__(*error)
        await self._transport.close()


async def first_round(federation, world, name):
    """Every bad member begins well. Returns its way to the server, on which it answers questions."""
    transport = await world.site(name, federation.agreement.neighbours(name))
    await transport.put_once(Slot(1, name), said(federation, name, k=1), LONG)
    return await Answering(federation, name, transport).answering()
