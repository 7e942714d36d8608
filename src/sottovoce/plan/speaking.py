"""Words on local noise and masked sums: what each assumes of other sites, and how good it is predicted to be."""

from sottovoce.plan.predict import Prediction, masked, why_not
from sottovoce.plan.task import Task

LOCAL = "Local noise: every message is private by itself, whoever sees it and whoever colludes"


def advice(task: Task, predicted: Prediction, colluding: int | None) -> str:
    """Sentences that compare local noise with masked sums, and say which is the default."""
    local, sums = predicted.joined.mean, predicted.masked
    if sums is None:
        return f"{LOCAL}: mean loss {local:.4f}. Masked sums are not possible: {why_not(task)}. Take local noise."
    algorithm = masked(task, colluding)
    assert algorithm is not None  # it was tried
    if task.n == 1:
        return (
            f"There is one site: nothing is sent. The default is masked sums, of one site: mean loss {sums.mean:.4f}."
        )
    c, exchanges = algorithm.colluders(task.n), algorithm.rounds
    assumed = f"at most {c} of the {task.n} sites collude" if c else f"none of the {task.n} sites collude"
    better = "" if sums.mean < local else " Here local noise is predicted to do no worse: take it (--algorithm ipadmm)."
    return (
        f"Masked sums, the default: only the sum over all sites is seen, in {exchanges} exchanges. This assumes that "
        f"{assumed} (the message server may, too), and that the keys which two sites share are not broken: mean loss "
        f"{sums.mean:.4f}. {LOCAL}: mean loss {local:.4f}.{better}"
    )
