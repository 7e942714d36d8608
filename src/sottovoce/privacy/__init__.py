"""Privacy accounting: events, their price, the noise that a target needs, and the statement of a model.

    events, releases    what happened to rows, without a price
    accounting          the price: epsilon at a delta, or delta at an epsilon; in it `calibration`, the way back: how
                        much noise a target needs
    books               what was ever spent on one data set: the rule for one more charge (`filter`), a budget in one
                        process, a ledger that survives crashes
    unit, strength      what is protected, a row or a person with all their rows; defaults, and doubtful targets
    observers           who sees the messages, and how much of the noise they know
    statement, words    the guarantee, as data and in words
    parsing, export     events from data, and as events of dp-accounting

Everywhere here one unit is replaced by any other, and `sigma` is a noise multiplier: a standard deviation over what
that moves at most in l2, a number without a unit. Nothing in this package touches a row, draws noise or knows an
algorithm.
"""

from sottovoce.privacy.accounting.accountant import composed, delta, epsilon, pure_epsilon, search_epsilon
from sottovoce.privacy.accounting.calibration import (
    CALIBRATIONS,
    Calibration,
    noise_for,
    pure_noise_for,
    sigma_for,
    steps_for,
)
from sottovoce.privacy.accounting.gaussian import delta_of_mu, epsilon_of_mu, mu_for
from sottovoce.privacy.accounting.losses import Composed
from sottovoce.privacy.accounting.sampled import profile
from sottovoce.privacy.accounting.selection import gamma_for, repetitions, scored
from sottovoce.privacy.books.budget import Budget, BudgetAccountant
from sottovoce.privacy.events import (
    Event,
    Gaussian,
    NegativeBinomialRuns,
    NonPrivate,
    PoissonRuns,
    RepeatAndSelect,
    Repeated,
    Runs,
    SampledGaussian,
    Sampling,
    Scheme,
    Sequence,
)
from sottovoce.privacy.parsing import event_from_dict
from sottovoce.privacy.releases import GaussianObjective, Laplace, NormLaplace, NormLaplaceObjective, PureRelease
from sottovoce.privacy.statement import HOLDER_ONLY, PrivacyStatement
from sottovoce.privacy.unit import ROW, Unit

__all__ = [
    "CALIBRATIONS",
    "HOLDER_ONLY",
    "ROW",
    "Budget",
    "BudgetAccountant",
    "Calibration",
    "Composed",
    "Event",
    "Gaussian",
    "GaussianObjective",
    "Laplace",
    "NegativeBinomialRuns",
    "NonPrivate",
    "NormLaplace",
    "NormLaplaceObjective",
    "PoissonRuns",
    "PrivacyStatement",
    "PureRelease",
    "RepeatAndSelect",
    "Repeated",
    "Runs",
    "SampledGaussian",
    "Sampling",
    "Scheme",
    "Sequence",
    "Unit",
    "composed",
    "delta",
    "delta_of_mu",
    "epsilon",
    "epsilon_of_mu",
    "event_from_dict",
    "gamma_for",
    "mu_for",
    "noise_for",
    "profile",
    "pure_epsilon",
    "pure_noise_for",
    "repetitions",
    "scored",
    "search_epsilon",
    "sigma_for",
    "steps_for",
]
