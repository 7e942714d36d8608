"""The library, called as a user calls it; rounds are timed from one progress report to another, so that neither
set-up nor the scoring after the last round is counted.
"""

import inspect
from time import perf_counter

import sottovoce as sv


def simulate(*args, device="cpu", dtype="float64", **options):
    """`sv.simulate`; a version without devices runs its only one."""
    known = inspect.signature(sv.simulate).parameters
    extra = {name: value for name, value in (("device", device), ("dtype", dtype)) if name in known}
    return sv.simulate(*args, record=1, **extra, **options)


def has_devices():
    return "device" in inspect.signature(sv.simulate).parameters


def seconds_per_round(algorithm_for, sites, graph, rounds, wait=lambda: None, **options):
    """The mean over `rounds` rounds. The first round warms up, the last is scored: neither is counted.

    Args:
        algorithm_for: rounds in all -> algorithm.
        wait: returns when the device has done all it was asked to.
    """
    marks = {}

    def mark(k, _rounds):
        if k in (1, rounds + 1):
            wait()
            marks[k] = perf_counter()

    simulate(algorithm_for(rounds + 2), sites, graph, progress=mark, seed=0, **options)
    return (marks[rounds + 1] - marks[1]) / rounds
