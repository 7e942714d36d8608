"""A linear model with all that a user of it needs to know: how rows become features, what the outputs mean, what the
training promised, and where it came from.

    z = <w, a> + offset    one output: the sign says the class, or z is the predicted number
    z_c = <w_c, a>         several outputs: the largest says the class, or they are the log-hazards of intervals of time
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
from scipy import special

from sottovoce.arrays import Floats, Ints
from sottovoce.document import Folded, Part, Words
from sottovoce.document.shown import Shown
from sottovoce.errors import UnsupportedError, expect
from sottovoce.files.models.inference import Inference
from sottovoce.files.schema import review
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.words import in_short
from sottovoce.problem.losses import Counts, Logistic, Loss, PiecewiseExponential, Softmax, WeightedLogistic
from sottovoce.settings import written_as

if TYPE_CHECKING:
    from sottovoce.files.schema import Schema
    from sottovoce.problem.dataset import Features


@final
@dataclass(frozen=True, eq=False, repr=False)
class Model(Shown):
    """A linear model: weights, encoding, guarantee and provenance.

    Args:
        weights: (d, outputs).
        loss: what it was trained with; says what the outputs mean.
        names: of the d features.
        classes: what the outputs stand for: two or more names, or None in regression.
        privacy: the guarantee to the rows. It says so if the schema has unreviewed values.
        schema: how a row becomes features; None if it was trained on ready-made arrays.
        offset: added to the output of a regression; public, from the label's bounds.
        provenance: how it came about: settings, sites, versions, dates. Text and numbers only.
        inference: what is known of the coefficients, where that was asked for before training.
        signed_by: the public key of the site that has signed the file it was read from; None if it is not signed.
    """

    weights: Floats
    loss: Loss
    names: tuple[str, ...]
    classes: tuple[str, ...] | None
    privacy: PrivacyStatement
    schema: "Schema | None" = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    offset: float = 0.0
    inference: Inference | None = None
    signed_by: str | None = None

    def __post_init__(self) -> None:
        expect(self.weights.ndim == 2, "weights of shape (d, outputs)", shape=self.weights.shape)
        expect(bool(np.isfinite(self.weights).all()), "finite weights", weights="some NaN or infinity")
        d, outputs = self.weights.shape
        expect(outputs == self.loss.outputs, f"{self.loss.outputs} outputs for loss {self.loss.name}", outputs=outputs)
        expect(len(self.names) == d, f"a name for each of {d} features", names=len(self.names))
        if self.schema is not None:
            expect(self.schema.d == d, f"a schema with {d} features", d=self.schema.d)
            # A frozen object is set just once more, here: no way to make a model may forget this.
            object.__setattr__(self, "privacy", self.privacy.noting(*review.notes(self.schema)))
        expect(np.isfinite(self.offset) and (self.classes is None or self.offset == 0), "an offset in regression only",
               offset=self.offset)  # fmt: skip
        expected = None if self.classes is None else max(2, outputs)
        expect(expected in (None, len(self.classes or ())), f"{expected} classes", classes=self.classes)

    @property
    def d(self) -> int:
        """Number of features, the intercept included."""
        return int(self.weights.shape[0])

    def predicts(self) -> str:
        """A sentence on what the model predicts, and from what."""
        what = "the label" if self.schema is None else repr(self.schema.label.name)
        of = f"{self.d} features" if self.schema is None else f"{len(self.schema.columns)} columns ({self.d} features)"
        if self.timed is not None:
            until = f"{self.timed.ends[-1]:g}, with hazards in {self.timed.outputs} intervals"
            return f"Predicts the share without an event at times of {what} up to {until}, from {of}."
        if self.classes is None:
            number = "mean of the count" if isinstance(self.loss.labels, Counts) else "number"
            return f"Predicts the {number} {what} from {of}. Learnt with the loss {self.loss.name}."
        among = ", ".join(self.classes[:10]) + (", ..." if len(self.classes) > 10 else "")
        how = " with probabilities" if self.has_probabilities else ""
        return f"Predicts {what} among {among}{how}, from {of}. Learnt with the loss {self.loss.name}."

    def described(self) -> list[Part]:
        """What it predicts, its guarantee, and whether it has standard errors; in HTML, the coefficients, folded."""
        from sottovoce.files.models.coefficients import NO_ERRORS, described

        table, every = self.inference, list[Part]()
        if table is None:
            errors = "without standard errors"
            every = [Words(NO_ERRORS), *(part for k in self.told for part in described(self, k))]
        else:
            errors = f"with standard errors in `inference`; {len(table.lines) - len(table.unidentified)} identified"
            every = table.described()
        facts = ("Coefficients", errors), ("Signed by", self.signed_by or "nobody")
        return [Words(self.predicts()), *in_short(self.privacy, *facts), Folded("Coefficients", every)]

    def outputs(self, features: "Features", exposures: Floats | None = None) -> Floats:
        """Scores z of every row, (rows, outputs). Counts take exposures; None is one unit for every row."""
        expect(features.shape[1] == self.d, f"rows of {self.d} features", features=features.shape[1])
        z: Floats = np.asarray(features @ self.weights) + self.offset
        return z if exposures is None else z + np.log(exposures)[:, None]

    def decide(self, features: "Features", exposures: Floats | None = None) -> Ints | Floats:
        """The index of every row's class, or its predicted number. Counts are predicted as their mean at these
        exposures; without exposures, as the rate per unit. Of times to an event, it is the share without one until the
        last.
        """
        z = self.outputs(features, exposures)
        if self.timed is not None:
            return np.asarray(self.loss.predict(z), dtype=np.float64)
        if self.classes is not None:
            return self.loss.decide(z)
        if exposures is None and self.exposed:
            return np.exp(z[:, 0])  # the largest count bounds the mean of a row, and not a rate
        return np.asarray(self.loss.predict(z[:, 0]), dtype=np.float64)

    @property
    def timed(self) -> PiecewiseExponential | None:
        """The loss, if the model predicts times to an event; else None."""
        return self.loss if isinstance(self.loss, PiecewiseExponential) else None

    @property
    def told(self) -> range:
        """The outputs whose coefficients differ: the first alone where hazards are proportional."""
        return range(1 if self.timed is not None else self.weights.shape[1])

    def survival(self, features: "Features", times: Sequence[float]) -> Floats:
        """The share of rows like each without an event until each of these times, (rows, times). A model of anything
        but times to an event is refused, and so are times beyond those that it was learnt from.
        """
        if self.timed is None:
            raise UnsupportedError(
                f"Expected a model of times to an event, got loss={self.loss.name!r}. Leave the times out."
            )
        return self.timed.survival(self.outputs(features), times)

    @property
    def exposed(self) -> bool:
        """True if the schema has exposures, so that the model predicts counts per unit of exposure."""
        return self.schema is not None and self.schema.exposure is not None

    @cached_property
    def has_probabilities(self) -> bool:
        """True if the loss turns outputs into probabilities."""
        return isinstance(self.loss, Logistic | Softmax | WeightedLogistic)

    @property
    def tilt(self) -> float:
        """What class weights added to the log-odds; `probabilities` subtracts it."""
        return self.loss.tilt if isinstance(self.loss, WeightedLogistic) else 0.0

    def probabilities(self, features: "Features") -> Floats:
        """Probability of every class, (rows, classes)."""
        if not self.has_probabilities:
            raise UnsupportedError(
                f"Probabilities need the loss logistic or softmax, got loss={self.loss.name!r}. Use `decide`."
            )
        z = self.outputs(features) - self.tilt
        both = np.concatenate([np.zeros_like(z), z], axis=1) if z.shape[1] == 1 else z
        found: Floats = special.softmax(both, axis=1)
        return found


# Without guarantee, schema and provenance, which are shown beside it.
written_as(
    Model,
    lambda model: {
        "loss": model.loss.name, "classes": model.classes, "features": model.names, "weights": model.weights,
        "offset": model.offset,
    },
)  # fmt: skip
