"""`plan`: settings for IPADMM from public numbers only, and what to expect of them.

Neither rows nor anything computed from them may enter: the settings are public, and so is all that they follow from.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, final

import numpy as np

from sottovoce.algorithms.ipadmm import IPADMM
from sottovoce.errors import InputError, PrivacyError, expect
from sottovoce.plan import predict, speaking
from sottovoce.plan.choose import Setting, as_algorithm, choose, choose_weights
from sottovoce.plan.joining import Gain, advice, kinds
from sottovoce.plan.predict import PredictedInterval, Prediction
from sottovoce.plan.surrogate import Surrogate
from sottovoce.plan.synthetic import Belief
from sottovoce.plan.task import Task, batch_for
from sottovoce.privacy import ROW, Unit
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.graphs import Graph
from sottovoce.problem.losses import Counts, Logistic, Loss
from sottovoce.problem.regularisers import L2, Regulariser
from sottovoce.progress import Progress
from sottovoce.settings import written_as
from sottovoce.settings.supplied import Supplied

EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
# Settings of the algorithm that are arguments of `plan`: what is promised and minimised is not for it to choose.
PROMISED = ("epsilon", "delta", "lam", "loss", "regulariser", "max_grad_norm")
FIXABLE = tuple(field.name for field in fields(IPADMM) if field.name not in PROMISED)


@final
@dataclass(frozen=True, eq=False)
class Plan:
    """The planned settings, and on demand the losses that are predicted for them.

    `settings` is ready at once. `predicted`, `gains`, `trade_off` and `joining_helps` run simulations when first asked
    for.
    """

    task: Task
    setting: Setting
    stand_in: Dataset | None
    notes: tuple[str, ...]
    colluding: int | None = None
    progress: Progress | None = None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The planned settings by name, as `IPADMM` takes them; what was fixed is among them."""
        algorithm = self.algorithm()
        return {name: getattr(algorithm, name) for name in FIXABLE}

    def algorithm(self) -> IPADMM:
        """`IPADMM` with the planned settings."""
        return as_algorithm(self.task, self.setting)

    @cached_property
    def predicted(self) -> Prediction:
        """Mean loss of joining, in both ways, of a single site's model, of training alone and of no model, with 90 %
        intervals.
        """
        return self._outcome(self.task, self.setting)

    @cached_property
    def trade_off(self) -> tuple[Prediction, ...]:
        """Predicted losses over a range of epsilons, each with a plan of its own.

        Who may spend more could always spend less, so a larger epsilon is never predicted to do worse: where
        simulation noise says otherwise, the better outcome of the smaller epsilon stands.
        """
        epsilons = sorted({*EPSILONS, self.task.epsilon} - {math.inf})
        found: list[Prediction] = []
        for done, epsilon in enumerate(epsilons):
            if self.progress is not None:
                self.progress(done, len(epsilons))
            task = replace(self.task, epsilon=epsilon)
            outcome = self.predicted if epsilon == self.task.epsilon else self._outcome(task, self._setting_of(task))
            found.append(_no_worse(outcome, found[-1] if found else None))
        return tuple(found)

    def _setting_of(self, task: Task) -> Setting:
        return _choose(task, self.stand_in)

    def _outcome(self, task: Task, setting: Setting) -> Prediction:
        data = predict.tables(task, self.stand_in)
        joined, single = predict.risks(task, as_algorithm(task, setting), data)
        sums = predict.masked(task, self.colluding)
        summed = None if sums is None else predict.interval(predict.risks(task, sums, data)[0])
        lonely = predict.risk_alone(predict.alone(task), self._setting_of, data)
        nothing = np.array([predict.no_model(one, task.loss) for one in data])
        own = [predict.interval(values) for values in (joined, single, lonely)]
        return Prediction(task.epsilon, own[0], own[1], own[2], summed, predict.interval(nothing))

    @cached_property
    def gains(self) -> tuple[Gain, ...]:
        """Predicted loss together and alone for sites of every size, largest first."""
        found, together = kinds(self.task), self.predicted.together.mean
        if len(found) == 1:
            return (Gain(found[0], together, self.predicted.alone.mean),)
        gains, data = list[Gain](), predict.tables(self.task, self.stand_in)
        for kind in found:
            alone = predict.risk_alone(predict.alone(self.task, kind.rows), self._setting_of, data)
            gains.append(Gain(kind, together, float(np.mean(alone))))
        return tuple(gains)

    @property
    def way(self) -> Literal["masked", "local"]:
        """The default: "masked" wherever masked sums are possible, else "local". `ways` compares predicted losses."""
        return "local" if predict.why_not(self.task) else "masked"

    @property
    def ways(self) -> str:
        """Sentences on what masked sums and local noise assume, which is the default, and their predicted losses."""
        return speaking.advice(self.task, self.predicted, self.colluding)

    @property
    def joining_helps(self) -> bool:
        """True if sites of every size are predicted to do better together than alone."""
        return all(gain.helps for gain in self.gains)

    @property
    def reason(self) -> str:
        """The figures behind `joining_helps`, in words."""
        gains, at = self.gains, f"at epsilon={self.task.epsilon:g}"
        together = f"mean loss {gains[0].together:.4f} together"
        against = [gain for gain in gains if not gain.helps]
        if len(gains) == 1:
            verdict = "Joining does not help" if against else "Joining helps"
            return f"{verdict}: {together}, {gains[0].alone:.4f} alone, {at}."
        shown = ", ".join(f"{gain.alone:.4f} alone with {gain.kind.rows} rows" for gain in against or gains)
        if not against:
            return f"Joining helps sites of every size: {together}, {shown}, {at}."
        who = "nobody" if len(against) == len(gains) else "not all"
        return f"Joining helps {who}: {together}, {shown}, {at}. Advise sites of such sizes not to join."


written_as(
    Plan,
    lambda plan: {
        "settings": plan.settings, "predicted": plan.predicted, "joining_helps": plan.joining_helps,
        "by_size": plan.gains, "reason": plan.reason, "way": plan.way, "ways": plan.ways, "trade_off": plan.trade_off,
        "notes": plan.notes,
    },
)  # fmt: skip


def plan(
    *,
    sizes: Sequence[int],
    d: int,
    graph: Graph,
    epsilon: float,
    delta: float = 1e-5,
    loss: Loss | None = None,
    regulariser: Regulariser | None = None,
    lam: float = 1e-6,
    data_norm: float = 1.0,
    max_grad_norm: float | None = None,
    fixed: Mapping[str, Any] | None = None,
    max_rounds: int = 200,
    base_rate: float | tuple[float, ...] | None = None,
    predictability: str | float | None = None,
    label_spread: float | None = None,
    exposed: bool = False,
    colluding: int | None = None,
    stand_in: Dataset | None = None,
    unit: Unit = ROW,
    progress: Progress | None = None,
) -> Plan:
    """Choose the settings that were not given, from public numbers only.

    Args:
        sizes: rows at each site.
        d: features.
        graph: which sites exchange messages.
        epsilon: the budget over all rounds.
        delta: the chance of failure that the guarantee allows for.
        loss: of one row; logistic if not given.
        regulariser: L2 if not given.
        lam: its weight beside the mean loss, however many sites there are.
        data_norm: declared bound on the norm of a row.
        max_grad_norm: clip every record's gradient to this norm.
        fixed: settings of `IPADMM` that stay as they are, by name.
        max_rounds: how many rounds of messages the sites can afford.
        base_rate: how frequent the rarer label is, or the shares of all classes, from knowledge that does not come
            from private rows; of counts, their mean over the largest. None: it is left open.
        predictability: how well the features predict the label: "hardly", "somewhat", "well" or "almost", or
            the share of the loss of no model that the best model takes off, such as 0.3, or "auc=0.8".
        label_spread: standard deviation of labels that are numbers, in half-widths of their bounds.
        exposed: True if counts have exposures. Predictions are then of rows observed for unequal times.
        colluding: how many sites may collude, for the prediction of masked sums. None: fewer than
            half of them, but at least one.
        stand_in: a public data set of the same columns, to plan on instead of made-up tables. It is taken to be public:
            nothing about it is protected.
        unit: what is protected: rows, or people with so many rows at so many sites.
        progress: called with (steps done, steps in all).
    """
    loss = loss or Logistic()
    expect(d >= 1, "d >= 1", d=d)
    supplied = Supplied(base_rate=base_rate, predictability=predictability, label_spread=label_spread)
    given = fixed or {}
    for name in given:
        expect(name in FIXABLE, f"a setting among {', '.join(FIXABLE)}", fixed=name)
    kept = {name: value for name, value in given.items() if value is not None}
    # People are protected without batches only.
    batch = batch_for(sizes, d, loss.outputs) if "batch_size" not in given and unit.single else None
    task = Task(
        tuple(int(m) for m in sizes), d, graph, float(epsilon), float(delta), loss, regulariser or L2(), float(lam),
        float(data_norm), max_grad_norm, max_rounds, kept if batch is None else {**kept, "batch_size": batch},
        Belief.of(supplied, loss), unit, exposed,
    )  # fmt: skip
    wanted = "a loss for counts with exposed=True"
    expect(not exposed or isinstance(loss.labels, Counts), wanted, "Leave it out", loss=loss.name)
    expect(colluding is None or 0 <= colluding < task.n, f"colluding in 0 .. {task.n - 1}", colluding=colluding)
    _check(task, stand_in)
    task = choose_weights(task, lambda: _problems(task, stand_in), lambda t: _choose(t, stand_in))
    return Plan(task, _choose(task, stand_in), stand_in, _notes(task, stand_in, supplied), colluding, progress)


def _check(task: Task, stand_in: Dataset | None) -> None:
    expect(task.n >= 1 and min(task.sizes) >= 1, "at least one row at every site", sizes=task.sizes[:10])
    expect(task.graph.n == task.n, "one size for every node of the graph", nodes=task.graph.n, sizes=task.n)
    expect(task.max_rounds >= 1, "max_rounds >= 1", max_rounds=task.max_rounds)
    expect(task.data_norm > 0, "data_norm > 0", data_norm=task.data_norm)
    if not math.isfinite(task.c1):
        raise InputError(
            f"Expected a bound on every record's gradient, got data_norm={task.data_norm} and no max_grad_norm. "
            "Declare a finite data_norm, or clip gradients with max_grad_norm."
        )
    if stand_in is not None:
        expect(stand_in.d == task.d, f"a stand-in with d={task.d} columns", stand_in=stand_in.name, d=stand_in.d)
        if stand_in.private:
            raise PrivacyError(
                f"Expected a public stand-in, got the private rows of stand_in={stand_in.name!r}: settings that follow "
                "from them would reveal something about them. Leave it out; if anyone may see them: "
                "replace(stand_in, private=False)."
            )
        task.loss.labels.check(stand_in.labels)
    as_algorithm(task, Setting(1, 1, 1.0, 1.0))  # refuses what the algorithm would refuse


def _problems(task: Task, stand_in: Dataset | None) -> list[Surrogate]:
    if stand_in is not None:
        return [predict.stood_in(stand_in, task)]
    return predict.made_up(task.d, task.loss, task.loss_norm, task.ridge, task.max_grad_norm, task.belief)


_KEPT: dict[Any, Setting] = {}


def _choose(task: Task, stand_in: Dataset | None) -> Setting:
    if stand_in is not None:
        return choose(task, _problems(task, stand_in))
    shape = (task.graph.name, task.graph.n, task.graph.degrees.tobytes(), task.spectrum.values.tobytes())
    key = (*(getattr(task, f.name) for f in fields(task) if f.name not in ("graph", "fixed")), shape)
    key = (*key, tuple(sorted(task.fixed.items())))
    if key not in _KEPT:
        if len(_KEPT) >= 256:
            _KEPT.clear()
        _KEPT[key] = choose(task, _problems(task, stand_in))
    return _KEPT[key]


def _no_worse(found: Prediction, smaller: Prediction | None) -> Prediction:
    if smaller is None:
        return found

    def less(a: PredictedInterval, b: PredictedInterval) -> PredictedInterval:
        return min(a, b, key=lambda interval: interval.mean)

    sums = None if found.masked is None or smaller.masked is None else less(found.masked, smaller.masked)
    joined, single = less(found.joined, smaller.joined), less(found.single, smaller.single)
    return Prediction(found.epsilon, joined, single, less(found.alone, smaller.alone), sums, found.nothing)


def _notes(task: Task, stand_in: Dataset | None, supplied: Supplied) -> tuple[str, ...]:
    source = (
        "made-up tables of this shape: unequal categories, small numbers, correlated attributes; "
        + task.belief.words(task.loss)
        if stand_in is None
        else f"the public stand-in {stand_in.name!r}"
    )
    notes = [f"Planned on {source}. No private row was looked at.", "Sites are assumed to hold rows of the same kind."]
    if supplied.words:
        notes.append(f"Supplied, not computed from the rows: {supplied.words}.")
    if "batch_size" in task.fixed:
        notes.append(f"Gradients use batches of {task.fixed['batch_size']} rows.")
    if task.unit.people:
        notes.append(f"Protected: {task.unit}.")
    if math.isinf(task.epsilon):
        notes.append("epsilon=inf: nothing is protected.")
    return (*notes, *advice(task))
