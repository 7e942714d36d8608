"""Advice on local noise or masked sums: what each assumes of other sites, and which to take."""

from sottovoce.algorithms.masked import MaskedNewton
from sottovoce.plan.predict import Prediction, masked
from sottovoce.plan.task import Task

LOCAL = "Local noise: every message is private by itself, whoever sees it and whoever colludes"


def advice(task: Task, predicted: Prediction, colluding: int | None) -> str:
    """Sentences that compare local noise with masked sums and advise one of them."""
    local, sums = predicted.joined.mean, predicted.masked
    if task.n == 1:
        return "There is one site: nothing is sent."
    if sums is None:
        if task.loss.smoothness_bound is None:
            reason = f"the slope of loss={task.loss.name} jumps"
        elif task.regulariser.l1:
            reason = f"regulariser={task.regulariser.name} has a kink"
        elif MaskedNewton(colluding=colluding).colluders(task.n) >= task.n - 1:
            reason = "if all other sites may collude, only a site's own noise hides its rows"
        else:
            reason = "they need a bound on the norm of rows, and do not clip gradients"
        return f"{LOCAL}: mean loss {local:.4f}. Masked sums are not possible: {reason}. Take local noise."
    algorithm = masked(task, colluding)
    assert algorithm is not None  # it was tried
    c, exchanges = algorithm.colluders(task.n), algorithm.rounds
    assumed = "no site colludes with another" if c == 0 else f"at most {c} of {task.n} sites collude"
    take = "masked sums, if that can be assumed" if sums.mean < local else "local noise, which does no worse"
    return (
        f"{LOCAL}: mean loss {local:.4f}. Masked sums: only the sum over all sites is seen, in {exchanges} exchanges. "
        f"This assumes that {assumed} (the message server may, too), and that the keys which two sites "
        f"share are not broken: mean loss {sums.mean:.4f}. Take {take}."
    )
