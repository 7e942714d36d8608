"""Statements say the guarantee, and say loudly when there is none."""

import json
import math

import dp_accounting
import pytest

from sottovoce.privacy import Gaussian, NonPrivate, PrivacyStatement, Repeated, epsilon


def statement(event, target=1.0, delta=1e-5):
    return PrivacyStatement(
        event=event,
        epsilon=epsilon(event, delta),
        target_epsilon=target,
        delta=delta,
        calibration="exact",
        sigma=118.0,
        released="100 noisy models",
        notes=("Simulated.",),
    )


PRIVATE = statement(Repeated(Gaussian(118.0), 1000))
NAKED = statement(NonPrivate(), target=math.inf)


@pytest.mark.parametrize("made", [PRIVATE, NAKED], ids=["private", "not"])
def test_json_round_trips(made):
    assert json.loads(made.to_json()) == made.to_dict()
    assert made.to_dict()["event"] == made.event.to_dict()
    assert isinstance(made.dp_event(), dp_accounting.DpEvent)


def test_the_prose_holds_what_a_reader_needs():
    prose = PRIVATE.prose()
    assert "\n" not in prose
    parts = ["one row of one site replaced", "epsilon = ", "delta = 1e-05", "one in 100,000", "100 noisy models"]
    for part in [*parts, "the graph", "Not covered", "floating-point", "tuned", "Simulated."]:
        assert part in prose


def test_a_printed_epsilon_is_never_rounded_down():
    for event in (Repeated(Gaussian(118.0), n) for n in range(1, 200, 7)):
        prose = statement(event).prose()
        printed = float(prose.split("with epsilon = ")[1].split(" ")[0])
        assert epsilon(event, 1e-5) <= printed <= epsilon(event, 1e-5) * 1.001 + 1e-12


def test_a_non_private_run_says_so():
    assert not NAKED.private
    assert NAKED.prose().startswith("NOT PRIVATE")
    assert NAKED.to_dict()["epsilon"] is None
