"""Options: fields of a dataclass with a help text, and those of them that are settings of algorithms.

An algorithm's settings are the fields of its class, and their defaults are there. What people may give of them, in a
file or on a command line, has its name, its type and its help text here, once: `sottovoce train`, its files and
`sottovoce federation new` take it from here. Algorithms take a second to import, and a command line must know its
options at once; so this module imports none of them.
"""

from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

PRIVACY, ALGORITHM = "Privacy", "Algorithm"  # panels of a help page


def option(default: T, panel: str, text: str) -> T:
    """A field that knows its help text and the panel of the help page that it is shown in."""
    made: T = field(default=default, metadata={"panel": panel, "help": text})
    return made


@dataclass(frozen=True, kw_only=True)
class AlgorithmOptions:
    """An algorithm by its name, and the settings that simulations and real sites may give it.

    None is a setting that was not given: the algorithm's own default then holds, or the planner's choice. What the
    settings mean is said by the algorithms' classes; which of them an algorithm has, by its fields.
    """

    epsilon: float | None = option(None, PRIVACY, "Total budget of every site, over all rounds.")
    delta: float | None = option(None, PRIVACY, "Chance of failure that the guarantee allows for.")
    max_grad_norm: float | None = option(None, PRIVACY, "Clip every record's gradient to this norm.")
    colluding: int | None = option(None, PRIVACY, "Masked sums: sites that may collude, with the message server.")
    least_sites: int | None = option(None, PRIVACY, "Masked sums: least number of sites in a sum. Default: all.")
    spare: int | None = option(None, PRIVACY, "Masked sums: repeats paid for in advance, if sites are lost.")
    worst_case_epsilon: float | None = option(
        None, PRIVACY, "Masked sums: largest epsilon if all other sites collude. Default: no limit."
    )
    inference: bool | None = option(
        None, PRIVACY, "Masked sums, least squares, hazards: standard errors of coefficients."
    )
    focus: tuple[str, ...] | None = option(
        None, PRIVACY, "With --inference: a column whose coefficients are asked for. The others' are less sure. Repeat."
    )
    evaluate: float | None = option(
        None, PRIVACY, "Masked sums: share of the budget, such as 0.1, for a private evaluation of the model."
    )
    hold_out: int | None = option(
        None, PRIVACY, "With --evaluate: evaluate on one row in this many, chosen in secret, and learn from the others."
    )

    moments: float | None = option(
        None,
        PRIVACY,
        "IPADMM: part of the budget for a head start from moments; 0: none. Default, but for packaged data: planned.",
    )

    algorithm: str | None = option(
        None,
        ALGORITHM,
        "What sites run: masked, least-squares, hazards, ipadmm, dpadmm, ryu-kim, dp-dsgd. Default: masked if it can "
        "be had, hazards of times to an event, else ipadmm.",
    )
    rounds: int | None = option(
        None, ALGORITHM, "Rounds of messages, or noisy sums: with --algorithm. Default: planned."
    )
    local_steps: int | None = option(None, ALGORITHM, "Noisy steps per round, l. Default: planned.")
    rho: float | None = option(None, ALGORITHM, "Penalty of ADMM. Default: planned.")
    lam: float | None = option(None, ALGORITHM, "Weight of the regulariser beside the mean loss.")
    weights: str | None = option(
        None, ALGORITHM, "Weights of sites: equal, or by rows or squared rows. Default: planned."
    )
    loss: str | None = option(None, ALGORITHM, "Loss of one row. Default: the one that fits the schema's label.")
    regulariser: str | None = option(None, ALGORITHM, "Penalty on the model.")
    diameter: float | None = option(
        None, ALGORITHM, "Diameter of the set of models; scales the steps. Default: planned."
    )
    schedule: str | None = option(None, ALGORITHM, "How the steps shrink.")
    batch_size: int | None = option(None, ALGORITHM, "Rows of a stochastic gradient. Default: all rows.")
    sampling: str | None = option(None, ALGORITHM, "How a batch is drawn.")
    radius: float | None = option(None, ALGORITHM, "Project models onto this ball. Default: no projection.")
