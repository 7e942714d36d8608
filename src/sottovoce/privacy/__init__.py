"""Events, what they cost, the noise a target needs, and the statement that goes with a model."""

from sottovoce.privacy.accounting import composed, delta, epsilon
from sottovoce.privacy.calibration import CALIBRATIONS, Calibration, sigma_for, steps_for
from sottovoce.privacy.composition import Composed
from sottovoce.privacy.events import (
    Event,
    Gaussian,
    NonPrivate,
    Repeated,
    SampledGaussian,
    Sampling,
    Scheme,
    Sequence,
)
from sottovoce.privacy.gaussian import delta_of_mu, epsilon_of_mu, mu_for
from sottovoce.privacy.sampled import profile
from sottovoce.privacy.statement import PrivacyStatement

__all__ = [
    "CALIBRATIONS",
    "Calibration",
    "Composed",
    "Event",
    "Gaussian",
    "NonPrivate",
    "PrivacyStatement",
    "Repeated",
    "SampledGaussian",
    "Sampling",
    "Scheme",
    "Sequence",
    "composed",
    "delta",
    "delta_of_mu",
    "epsilon",
    "epsilon_of_mu",
    "mu_for",
    "profile",
    "sigma_for",
    "steps_for",
]
