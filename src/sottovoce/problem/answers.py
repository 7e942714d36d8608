"""The meaning of labels and outputs, and the loss that fits them. All of it is public."""

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, final

from sottovoce.arrays import Floats
from sottovoce.errors import InputError, expect
from sottovoce.problem import losses
from sottovoce.problem.losses import Loss, PiecewiseExponential, Reals, Signs

if TYPE_CHECKING:
    from sottovoce.files.schema import Schema


@final
@dataclass(frozen=True)
class Answers:
    """The meaning of labels and outputs, and the loss that fits them. All of it is public.

    A label that is a number is learnt as (label - offset) / scale, which lies in [-1, 1]: losses and steps then do not
    depend on its unit. In the label's own unit the weights are scale * weights, and offset is added to the output.

    A count is learnt as label / scale, in [0, 1]. The model predicts the logarithm of its mean: the weights are the
    same in the count's own unit, and ln(scale) is added to the output. Where rows have exposures, which are learnt
    relative to their public bound, the mean is that of one unit of exposure, and ln(scale / bound) is added.

    A time to an event is learnt in intervals, and the model predicts the logarithm of the hazard in each.
    """

    classes: tuple[str, ...] | None = ("-1", "+1")  # None: the label is a number
    offset: float = 0.0
    scale: float = 1.0
    counts: bool = False  # True if the label is a count
    exposure: float = 1.0  # the bound on exposures, where the label is a count
    ends: tuple[float, ...] | None = None  # of intervals, from 0 on, where the label is a time to an event

    @classmethod
    def of(cls, schema: "Schema | None", outputs: int = 1) -> "Answers":
        """The answers that a schema declares. Without one: signs or, with several outputs, numbers of classes."""
        if schema is None:
            return cls(tuple(map(str, range(outputs)))) if outputs > 1 else cls()
        from sottovoce.files.schema import NumberLabel
        from sottovoce.files.schema.survival import SurvivalLabel

        label = schema.label
        if isinstance(label, SurvivalLabel):
            constant = schema.intercept > 0
            expect(constant, "an intercept to learn times to an event, for the hazards of a bin", intercept=False)
            return cls.timed(label.ends)
        if not isinstance(label, NumberLabel):
            return cls(schema.classes)
        exposed = 1.0 if schema.exposure is None else schema.exposure.bound
        return cls.counting(label.bounds[1], exposed) if label.counts else cls.between(*label.bounds)

    @classmethod
    def counting(cls, most: float, exposure: float = 1.0) -> "Answers":
        """Answers that are counts up to a public bound, with exposures up to another."""
        return cls(None, 0.0, losses.Poisson(most).most, counts=True, exposure=exposure)

    @classmethod
    def timed(cls, ends: tuple[float, ...]) -> "Answers":
        """Answers that are times to an event, with the ends of their intervals, the first of which begins at 0."""
        return cls(None, ends=ends)

    @classmethod
    def between(cls, low: float, high: float, *, centred: bool = True) -> "Answers":
        """Answers that are numbers within public bounds. The offset is the middle, or 0 if not centred."""
        offset, half = (low / 2 + high / 2, high / 2 - low / 2) if centred else (0.0, max(high, -low))
        return cls(None, offset, half or 1.0)  # if the bounds are equal, any unit will do

    def learnt(self, labels: Floats) -> Floats:
        """Labels as the loss takes them. One may round to an ulp beyond 1; no bound depends on that."""
        return labels if (self.offset, self.scale) == (0.0, 1.0) else (labels - self.offset) / self.scale

    def model(self, weights: Floats) -> tuple[Floats, float]:
        """The weights and the intercept of the same model for labels in their own unit."""
        return (weights, self._log_unit) if self.counts else (self.scale * weights, self.offset)

    @property
    def _log_unit(self) -> float:
        """For counts: ln(mean of one unit of exposure) minus the output that was learnt."""
        return log(self.scale) - log(self.exposure)

    def outputs(self, z: Floats) -> Floats:
        """Outputs of what was learnt, from outputs in the labels' own unit: the inverse of `model`."""
        return z - self._log_unit if self.counts else self.learnt(z)

    def loss_of(self, loss: Loss) -> Loss:
        """The loss in the labels' own unit: Poisson up to the largest count for counts, else the loss as it is."""
        return losses.Poisson(self.scale) if self.counts else loss

    def classes_of(self, loss: Loss) -> tuple[str, ...] | None:
        """The classes that this loss decides among; None if it predicts a number."""
        return None if isinstance(loss.labels, Reals) else self.classes

    def loss(self, name: str | None, positive_weight: float | None = None) -> Loss | None:
        """The loss of that name, or without a name the one that fits the labels; None leaves the choice to the
        algorithm. With a weight, the second of two classes counts that many times. A loss that does not fit the labels
        is refused.
        """
        if positive_weight is not None:
            count = None if self.classes is None else len(self.classes)
            if count != 2 or name not in (None, losses.Logistic.name):
                raise InputError(
                    f"Expected two classes and the logistic loss with positive_weight={positive_weight!r}, got "
                    f"classes={count}, loss={name!r}. Leave one of them out."
                )
            return losses.WeightedLogistic(positive_weight)
        if self.ends is not None:
            own = PiecewiseExponential.name
            if name not in (None, own):
                raise InputError(
                    f"Expected loss={own!r} for a label of times to an event, got loss={name!r}. Leave it out, or "
                    "give the schema a label that is a class or a number."
                )
            return PiecewiseExponential(self.ends)
        if self.classes is None and self.counts:
            if name not in (None, losses.Poisson.name):
                raise InputError(
                    f"Expected loss='poisson' for a label that counts, got loss={name!r}. Leave it out, or take counts "
                    "= true out of the schema's label to learn it as any number."
                )
            return losses.Poisson()
        if self.classes is None:
            return _loss_for_numbers(name or losses.Huber.name)
        if (several := len(self.classes)) > 2:
            if name not in (None, losses.Softmax.name):
                raise InputError(
                    f"Expected loss='softmax' for {several} classes, got loss={name!r}. Leave it out: all classes are "
                    "learnt together, under one budget."
                )
            return losses.Softmax(several)
        if name is None:
            return None
        # The model of a loss for numbers could not be interpreted.
        fits = [known for known in losses.NAMES if isinstance(losses.by_name(known).labels, Signs)]
        if name not in fits:
            raise InputError(
                f"Expected a loss among {', '.join(fits)} for a label of two classes, got loss={name!r}. Use logistic, "
                "or declare the label's bounds instead of its classes to learn a number."
            )
        return losses.by_name(name)


def _loss_for_numbers(name: str) -> Loss:
    """The loss of that name for labels that are numbers; any other loss is refused."""
    if name == losses.Poisson.name:
        raise InputError(
            "Expected a label that counts for loss='poisson', got a number. Say counts = true in the schema's "
            "label, with bounds from 0 to the largest count."
        )
    fits = [known for known in losses.NAMES if isinstance(losses.by_name(known).labels, Reals)]
    if name not in fits:
        raise InputError(
            f"Expected a loss among {', '.join(fits)} for a label that is a number, got loss={name!r}. Leave it "
            "out, or declare the label's classes in the schema."
        )
    return losses.by_name(name)
