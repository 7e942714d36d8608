"""Step lengths of the rivals that follow noisy gradients, by the same public rule as IPADMM's.

    eta^s = sqrt(2 s) G / D,        G_i^2 = c2_i^2 + d v_i,

c2_i = n omega_i c1 + lam Lip(phi) the norm of an exact gradient at most, v the variance per coordinate of the
gradient's noise, D the diameter: given, or the best for an assumed problem of the same public shape
(`sottovoce.algorithms.diameter`). So no rival has an edge through a knob that another lacks. v is that of the plain
sensitivity, with `sensitivity="tight"` too: steps are fixed beforehand, and the noise is never more than that.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from sottovoce.algorithms.base import State
from sottovoce.algorithms.diameter import COEFFICIENT, assumed_best_diameter, common_scale
from sottovoce.algorithms.rival import Rival
from sottovoce.arrays import Floats
from sottovoce.errors import UnsupportedError, expect
from sottovoce.oracle.kernels.spread import Sensitivity, check_sensitivity
from sottovoce.oracle.plain import Oracle, note_on_tight


@dataclass(frozen=True, kw_only=True)
class Stepping(Rival[State]):
    """A rival that follows noisy gradients.

    Args:
        diameter: D, which scales the steps. None: chosen from public numbers.
        sensitivity: what noise is for: "plain", 2 c1 whatever the model, or "tight", what two records' gradients can be
            apart at the step's own model (docs/proofs/ipadmm.md, Lemma 3). The price is the same.
    """

    diameter: float | None = None
    sensitivity: Sensitivity = "plain"

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.diameter is None or 0 < self.diameter < math.inf, "diameter > 0", diameter=self.diameter)
        check_sensitivity(self.sensitivity)
        if self.tight and self.form == "published":
            raise UnsupportedError(
                f"Expected sensitivity='plain' for {type(self).__name__} with form='published', got 'tight': its "
                "noise is that of its paper. Use form='fair'."
            )

    @property
    def tight(self) -> bool:
        """True if noise follows the sensitivity at the step's own model."""
        return self.sensitivity == "tight"

    def notes(self, site: Oracle) -> tuple[str, ...]:
        """Adds whether the tight sensitivity, if it was asked for, was below the plain one."""
        return (*super().notes(site), *note_on_tight(self.tight, site))

    @property
    def draws_per_round(self) -> int:
        """One normal vector for each node. Override where a round takes more."""
        return 1

    @abstractmethod
    def variance(self, site: Oracle) -> Floats:
        """v_i, per coordinate, of the noise in the gradient that a step follows: (nodes, 1, 1)."""

    def averaged_variance(self, site: Oracle) -> float:
        """Variance of that noise, averaged over nodes."""
        return float(np.mean(self.variance(site))) / site.n

    def steepest(self, site: Oracle) -> Floats:
        """Bound on the norm of the data's part of the gradient that a step follows: (nodes, 1, 1)."""
        return site.c1 * site.importance

    def gradient_scale(self, site: Oracle) -> Floats:
        """G_i, the root mean square norm of a noisy gradient: (nodes, 1, 1)."""
        c2 = self.steepest(site) + site.lam * self.regulariser.lipschitz(self.diameter_for(site), site.d)
        return np.sqrt(c2**2 + site.d * self.variance(site))

    def eta(self, s: float, site: Oracle) -> Floats:
        """eta^s at every node, (nodes, 1, 1). A larger eta is a shorter step."""
        return math.sqrt(2 * s) * self.gradient_scale(site) / self.diameter_for(site)

    def diameter_for(self, site: Oracle) -> float:
        """D: given, or the best for an assumed problem of this shape."""
        if self.diameter is not None:
            return self.diameter
        site = site.network  # all nodes take the same D
        # Without a declared norm, clipping makes rows act as if there were one.
        norm = site.sites.data_norm if math.isfinite(site.sites.data_norm) else site.c1 / self.loss.slope_bound
        return assumed_best_diameter(
            d=site.d,
            steps=self.private_steps,
            scale=common_scale(site, self.steepest(site), self.variance(site)),
            noise=self.averaged_variance(site),
            curvature=self.loss.smoothness(norm) or site.c1 * norm,
            signal=COEFFICIENT / norm,
        )
