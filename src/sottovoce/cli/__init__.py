"""The command line. `main` is the one place where errors become one line and an exit code.

0    done
1    `account` was asked whether a budget holds, and it does not; `schema check` found problems
2    something about the input is wrong
3    a budget would be overdrawn; nothing was computed
4-13 why a site stopped, see `exit_codes`
130  interrupted; what is kept is said: of `train --out` what was released, of `reproduce` and `compare` what is done
"""

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from typing import Any

from sottovoce.errors import SottovoceError

BAD_INPUT, INTERRUPTED = 2, 130
# How many threads the usual linear algebra libraries take, read when NumPy is loaded.
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
# New objects before Python looks for cycles among them: more than all imports of a command make.
_MANY_OBJECTS = 200_000
# Bytes of the largest array whose memory glibc keeps, a little below its limit of 32 MiB.
_LARGEST_KEPT = 33_000_000
# Which extra brings a package that a command needs.
_EXTRA = {
    **dict.fromkeys(("typer", "rich", "pyarrow", "safetensors"), "cli"),
    **dict.fromkeys(("cryptography", "threadpoolctl"), "site"),
    **dict.fromkeys(("matplotlib", "jinja2"), "cli,plots"),  # jinja2 also comes with site
    "sklearn": "estimators",
}
# Options that people look for under another command's name.
_CALLED = {("train", "--sites"): "--nodes, or --site-column if a column says whose row it is"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. argv=None: the arguments of this process, which ends after it."""
    try:
        if argv is None:
            _leave_modules_alone()
            _keep_memory()
        _leave_cores_alone()
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()  # a full disk should be noticed here, not while Python shuts down
        return code
    except KeyboardInterrupt:
        return _say_interrupted()
    except SottovoceError as error:
        from sottovoce.cli.exit_codes import code_of

        return _refuse(_with_notes(error, str(error)), code_of(error))
    except OSError as error:
        words = f"{error.strerror or error}: {error.filename}." if error.filename else str(error)
        return _refuse(_with_notes(error, words))
    except MemoryError:
        return _refuse("Expected a problem that fits into memory. Ask for fewer nodes or runs.")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        return _refuse(
            f"This command needs {error.name}. Install it with: pip install 'sottovoce[{_EXTRA[error.name]}]'"
        )


def _leave_modules_alone() -> None:
    """Look for garbage less often, and not at all when the process ends.

    What modules are made of stays until the end, and is looked through in vain again and again while they are loaded: a
    third of a second of `train`. Memory of what is no longer in use comes back as ever; only cycles wait longer.
    """
    gc.set_threshold(_MANY_OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)


def _keep_memory() -> None:
    """Have memory that is free again kept for the next array, instead of given back and fetched anew, page by page.

    glibc does so for arrays up to the size of the largest that it was ever given back. So one of its largest is, which
    nobody has touched: that costs nothing, and `train` has two thirds fewer page faults. Elsewhere nothing happens.
    """
    bytes(_LARGEST_KEPT)


def _leave_cores_alone() -> None:
    """Have linear algebra done on one thread, unless the environment says otherwise.

    Our matrices are small: on several threads such a library mostly waits for itself, at the cost of all cores. What is
    large has kernels with threads of their own.
    """
    if "numpy" not in sys.modules:
        for name in _THREADS:
            os.environ.setdefault(name, "1")


def _run(argv: list[str]) -> int:
    # Imported here, so that a missing typer is reported like any other problem.
    import typer

    from sottovoce.cli.app import app
    from sottovoce.cli.output import Stopped

    # Newer versions of typer carry their own copy of click. The base of all parsing errors, click's ClickException,
    # is reached through a class that every version exports.
    parsing_error: Any = typer.BadParameter.__mro__[2]
    try:
        code = typer.main.get_command(app).main(argv or ["--help"], prog_name="sottovoce", standalone_mode=False)
    except typer.Abort:
        return _say_interrupted()
    except Stopped as stop:
        return _say_interrupted(_with_notes(stop, str(stop)))
    except parsing_error as error:
        context: Any = getattr(error, "ctx", None)
        asked = (getattr(context, "info_name", None), getattr(error, "option_name", None))
        if asked in _CALLED:
            return _refuse(f"No such option: {asked[1]}. Give {_CALLED[asked]}. See {context.command_path} --help.")
        message = error.format_message().rstrip(".")
        end = "" if message.endswith("?") else "."
        return _refuse(f"{message}{end} See {'sottovoce' if context is None else context.command_path} --help.")
    return _say_interrupted() if code == INTERRUPTED else int(code or 0)


def _with_notes(error: BaseException, words: str) -> str:
    """`words` of the error, and the notes that were added to it."""
    return " ".join([words, *getattr(error, "__notes__", ())])


def _say_interrupted(message: str = "interrupted; an unfinished run writes nothing") -> int:
    print(f"sottovoce: {message}", file=sys.stderr)
    return INTERRUPTED


def _refuse(message: str, code: int = BAD_INPUT) -> int:
    line = f"sottovoce: error: {' '.join(message.split())}"
    mpi = sys.modules.get("sottovoce.simulation.mpi")
    if mpi is not None and mpi.among_others():  # they would wait for this one for ever
        mpi.fail(line, code)
    print(line, file=sys.stderr)
    return code
