"""Programs that tests start: each is ended with its block, and none is waited for without an end."""

import subprocess
from contextlib import contextmanager
from threading import Timer

LONGEST = 300.0  # seconds, after which it hangs


@contextmanager
def started(command, **how):
    """A program that runs at most as long as the block, and is killed if that takes too long."""
    with subprocess.Popen(command, **how) as program:
        timer = Timer(LONGEST, program.kill)
        timer.start()
        try:
            yield program
        finally:
            timer.cancel()
            program.kill()  # where it has ended, this does nothing; leaving the block waits for it
