"""The two ways in which sites can speak, beside each other: what each assumes of others, and which to take."""

from sottovoce.algorithms.masked import MaskedNewton
from sottovoce.plan.choose import Task
from sottovoce.plan.predict import Outcome, masked

LOCAL = "Local noise: every message is private by itself, whoever looks on and whoever colludes"


def advice(task: Task, foretold: Outcome, colluding: int | None) -> str:
    """Which way to take, in words."""
    local, sums = foretold.joined.mean, foretold.masked
    if task.n == 1:
        return "There is one site: nothing is sent."
    if sums is None:
        return (
            f"{LOCAL}: mean loss {local:.4f}. Masked sums cannot be had: {_why_not(task, colluding)}. Take local noise."
        )
    algorithm = masked(task, colluding)
    assert algorithm is not None  # it was tried
    c, exchanges = algorithm.colluders(task.n), algorithm.rounds
    told = "no site colludes with another" if c == 0 else f"at most {c} of {task.n} sites collude"
    take = "masked sums, if that can be assumed" if sums.mean < local else "local noise, which does no worse"
    return (
        f"{LOCAL}: mean loss {local:.4f}. Masked sums: only the sum over all sites is seen, in {exchanges} exchanges. "
        f"That assumes that {told}, the relay with them, and that keys which two sites share are not broken: mean loss "
        f"{sums.mean:.4f}. Take {take}."
    )


def _why_not(task: Task, colluding: int | None) -> str:
    if task.loss.smoothness_bound is None:
        return f"the slope of loss={task.loss.name} jumps"
    if task.regulariser.l1:
        return f"regulariser={task.regulariser.name} has a kink"
    if MaskedNewton(colluding=colluding).colluders(task.n) >= task.n - 1:
        return "against all other sites together nothing is hidden but by a site's own noise"
    return "they need a bound on the norm of rows, and do not clip gradients"
