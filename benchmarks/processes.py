"""Contenders in processes of their own: started once, then asked in turn, so that a slow spell hits all alike."""

import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".venv-bench"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class NotMeasuredError(Exception):
    """Says why."""


def python(environment):
    if not environment:
        return sys.executable
    path = ENVIRONMENTS / environment / "bin" / "python"
    if not path.exists():
        raise NotMeasuredError(f"no environment {path.parent.parent.name}; `make bench` makes it")
    return str(path)


def variables(spec, variant, threads, **extra):
    blas = 1 if variant in spec.pooled else threads
    wide = {"XLA_FLAGS": "--xla_cpu_prefer_vector_width=512"} if variant.endswith("wide") else {}
    numba = {"NUMBA_NUM_THREADS": str(threads)}
    return os.environ | dict.fromkeys(THREAD_VARIABLES, str(blas)) | numba | wide | extra


def command(spec, variant, threads, problem, *more):
    worker = [python(spec.environment), str(HERE / "worker.py")]
    return [*worker, spec.module, variant, str(threads), str(problem), *more]


class Worker:
    """One contender, in one variant, with one number of threads."""

    def __init__(self, spec, variant, threads, problem, limit):
        self.spec, self.variant, self.threads, self.limit = spec, variant, threads, limit
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command(spec, variant, threads, problem), env=variables(spec, variant, threads),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip

    def check(self):
        """How far its numbers are from the library's, for the same noise."""
        error = self._answer()["error"]
        if not error <= self.spec.tolerance:
            raise NotMeasuredError(
                f"its numbers differ by {error:.1e} of the largest, more than {self.spec.tolerance:.0e}"
            )
        return error

    def seconds(self, runs, rounds):
        try:
            self.process.stdin.write(json.dumps({"runs": runs, "rounds": rounds}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise NotMeasuredError(self._last_words()) from None
        return self._answer()["seconds"]

    def _answer(self):
        ready, _, _ = select.select([self.process.stdout], [], [], self.limit)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            raise NotMeasuredError(self._last_words() if ready else f"took more than {self.limit:.0f} s")
        return json.loads(line)

    def _last_words(self):
        self.process.wait(timeout=10)
        self.errors.seek(0)
        return last_line(self.errors.read())

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "ended without a word"


def call(arguments, limit, env=None):
    """Run to the end; its last line of output as JSON."""
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # a session of its own, so that its own children end with it
        process.communicate()
        raise NotMeasuredError(f"took more than {limit:.0f} s") from None
    if process.returncode or not out.strip():
        raise NotMeasuredError(last_line(errors))
    return json.loads(out.strip().splitlines()[-1])


def first_call(spec, variant, threads, problem, runs, limit):
    """Seconds to import and to do the first round, with an empty compilation cache and then with a filled one."""
    with tempfile.TemporaryDirectory() as cache:
        env = variables(
            spec, variant, threads,
            NUMBA_CACHE_DIR=cache, JAX_COMPILATION_CACHE_DIR=cache, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
            JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
        )  # fmt: skip
        arguments = command(spec, variant, threads, problem, "--first", str(runs))
        return {name: call(arguments, limit, env) for name in ("cold", "warm")}
