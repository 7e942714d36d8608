"""`train --engine mpi --ranks R`: the same command again, in R processes that speak MPI."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from sottovoce.cli.demo.processes import end_all, ending_gently, undisturbed
from sottovoce.cli.output import Stopped
from sottovoce.errors import InputError, expect
from sottovoce.launched import launched
from sottovoce.problem.share import MOST_BLOCKS, share_bounds

_RULE = re.compile(r"^-{40,}$")  # Open MPI frames what it has to say itself by these
_ENDED = (
    "interrupted; all processes were ended, and nothing is kept. If rounds had begun, the whole run counts as spent: "
    "budgets were charged for all of them."
)
_PATIENCE = 1.0  # seconds
# More processes than cores are fine: those that wait let others work.
_OPEN_MPI = ("--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")


def joined(engine: str, ranks: int | None, nodes: int | None, given: Mapping[str, Any]) -> int | None:
    """Whether this process is one of those that work together: its number, 0 if it works alone. None where it has
    started them itself, and they are done.

    Args:
        engine: "local" or "mpi".
        ranks: how many were asked for; None: as many as there are.
        nodes: of the network, where that is known before rows are read.
        given: the command's options, to be handed on.
    """
    if engine != "mpi":
        expect(ranks is None, "engine='mpi' with --ranks (add --engine mpi)", engine=engine)
        return 0
    if ranks is not None:
        share_bounds(MOST_BLOCKS if nodes is None else nodes, ranks)  # refuses too many before any of them starts
    from sottovoce.simulation import mpi

    if not launched() and ranks is not None and ranks > 1:
        _launch(ranks, options(given))
        return None
    comm = mpi.joined()
    expect(ranks in (None, comm.size), f"--ranks {comm.size}, as many as were started, or none", ranks=ranks)
    return int(comm.rank)


def options(given: Mapping[str, Any]) -> list[str]:
    """Options as they are written on a command line."""
    found = []
    for name, value in given.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            found += [f"--{flag}", str(value)]
    return found


def _launch(ranks: int, arguments: list[str]) -> None:
    """Start them, wait, and pass on what they say; raises if they fail."""
    command = [*_dying_with_us(), *launcher(ranks), sys.executable, "-m", "sottovoce.cli", "train", *arguments]
    with ending_gently(), subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        try:
            said, own = relayed(started.stderr, sys.stderr)
            code = started.wait()
        except KeyboardInterrupt:
            _end(started)
            raise Stopped(_ENDED) from None
    if code and said:
        raise SystemExit(code)  # one of them has said why
    if code:
        raise InputError(f"Expected {ranks} processes that finish, got exit code {code}: {' '.join(own) or 'no word'}")


def _end(started: "subprocess.Popen[str]") -> None:
    """Wait for the end of the launcher, and so of all that it has started."""
    with undisturbed():
        try:
            started.wait(_PATIENCE)  # Ctrl-C in a terminal was told to it, too; a second signal would cut its work off
        except subprocess.TimeoutExpired:
            end_all([started])


def _dying_with_us() -> list[str]:
    """What has the launcher ended by the system, and so all that it has started, if this process is killed and can say
    nothing any more. Linux knows how; elsewhere nobody does.
    """
    found = shutil.which("setpriv") if sys.platform == "linux" else None
    return [] if found is None else [found, "--pdeathsig", "TERM"]


def launcher(ranks: int) -> list[str]:
    """What starts so many processes: the mpirun beside this Python, or else the system's."""
    found = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        raise InputError("Expected mpirun for --ranks, got none. Install one with: pip install 'sottovoce[mpi]'")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    own = _OPEN_MPI if "Open MPI" in version or "OpenRTE" in version else ()
    root = ("--allow-run-as-root",) if own and os.geteuid() == 0 else ()  # Open MPI refuses it unless it is said
    return [found, *own, *root, "-n", str(ranks)]


def relayed(lines: Iterable[str], to: TextIO) -> tuple[bool, list[str]]:
    """Pass lines on, but for those that the launcher frames: whether any was passed on, and those that were not."""
    said, framed, own = False, False, []
    for line in lines:
        text = line.rstrip("\n")
        if _RULE.match(text):
            framed = not framed
        elif framed:
            own += [text.strip()] if text.strip() else []
        elif text.strip():
            print(text, file=to, flush=True)
            said = True
    return said, own
