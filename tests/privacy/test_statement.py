"""Statements say the guarantee, and say loudly when there is none."""

import json
import math
from dataclasses import replace

import dp_accounting
import pytest

from sottovoce.errors import InputError
from sottovoce.privacy import Gaussian, NonPrivate, PrivacyStatement, PureRelease, Repeated, epsilon
from sottovoce.privacy.observers import Sight
from sottovoce.settings import plain


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
    assert json.loads(made.to_json()) == plain(made)
    assert plain(made)["event"] == plain(made.event)
    assert isinstance(made.dp_event(), dp_accounting.DpEvent)


def test_the_prose_holds_what_a_reader_needs():
    prose = PRIVATE.prose()
    assert "\n" not in prose
    parts = ["one row of one site replaced", "epsilon = ", "delta = 1e-05", "one in 100,000", "100 noisy models"]
    timing = "how long a run takes and when its messages are sent"
    for part in [*parts, "the graph", "Not covered", "floating-point", "tuned", timing, "Simulated."]:
        assert part in prose


def test_a_printed_epsilon_is_never_rounded_down():
    for event in (Repeated(Gaussian(118.0), n) for n in range(1, 200, 7)):
        prose = statement(event).prose()
        printed = float(prose.split("with epsilon = ")[1].split(" ")[0])
        assert epsilon(event, 1e-5) <= printed <= epsilon(event, 1e-5) * 1.001 + 1e-12


def test_a_non_private_run_says_so():
    assert not NAKED.private
    assert NAKED.prose().startswith("NOT PRIVATE")
    assert plain(NAKED)["epsilon"] is None


def test_runs_on_the_same_rows_are_counted_together():
    ten = PRIVATE.of_runs(10)
    # Ten times as many Gaussian steps are as good as one with a sigma smaller by sqrt(10 * 1000).
    assert ten.epsilon == pytest.approx(epsilon(Gaussian(118.0 / math.sqrt(10_000)), 1e-5), rel=1e-9)
    assert ten.epsilon > 3 * PRIVATE.epsilon
    assert (ten.runs, ten.target_epsilon, ten.sigma) == (10, 1.0, 118.0)
    assert (ten.promised, PRIVATE.promised) == (ten.epsilon, 1.0)
    assert "for all 10 runs together, each of which was asked to stay within epsilon = 1" in ten.prose()
    assert "Released: in each of 10 runs, 100 noisy models." in ten.prose()
    assert PRIVATE.of_runs(1) == PRIVATE
    assert not NAKED.of_runs(3).private
    for wrong in (lambda: PRIVATE.of_runs(0), lambda: ten.of_runs(2)):
        with pytest.raises(InputError, match="statement of one run"):
            wrong()


@pytest.mark.parametrize("made", [PRIVATE, PRIVATE.of_runs(10), NAKED], ids=["private", "runs", "not"])
def test_a_statement_is_read_back_and_priced_anew(made):
    data = json.loads(made.to_json())
    assert PrivacyStatement.from_dict(data) == made
    for runs in (0, 2.0, True, None, "2"):
        with pytest.raises(InputError, match=r"a whole number for runs|runs >= 1"):
            PrivacyStatement.from_dict(data | {"runs": runs})
    if made.private:
        with pytest.raises(InputError, match="which its event costs"):
            PrivacyStatement.from_dict(data | {"epsilon": made.epsilon / 2})


def test_a_statement_from_before_runs_were_counted_is_read():
    data = json.loads(PRIVATE.to_json())
    del data["runs"]
    assert PrivacyStatement.from_dict(data) == PRIVATE


def test_a_pure_total_is_read_back():
    pure = PrivacyStatement(PureRelease(0.5), 0.5, 0.5, 0.0, "paper", 2.0, "a model")
    assert PrivacyStatement.from_dict(plain(pure)) == pure
    assert pure.of_runs(4).epsilon == pytest.approx(2.0)
    with pytest.raises(InputError, match="which its event costs"):
        PrivacyStatement.from_dict(plain(pure) | {"epsilon": 0.4})


def test_a_note_is_taken_once():
    assert PRIVATE.noting("One.", "Two.", "One.").noting("Two.").notes == ("Simulated.", "One.", "Two.")
    assert PRIVATE.noting() == PRIVATE


def test_what_is_assumed_comes_first():
    """Noise of its own at every site is as much as one honest site's share: 2 sigma of what 4 such shares add up to."""
    table = (Sight(0, 1.2, 0.8), Sight(5, 1.0, 1.0), Sight(8, 0.5, 2.3456))
    made = replace(PRIVATE, observers=table)
    assert made.assumed == (
        "This holds if at most 5 of the 9 sites collude. Noise of its own at every site needs no such "
        "assumption, and would be about 2 times as large."
    )
    assert made.prose().startswith(f"{made.assumed} Protected: every single row.")
    nobody = replace(PRIVATE, observers=(Sight(0, 1.0, 1.0), Sight(1, 0.5, 2.0)))
    assert nobody.assumed.startswith("This holds if none of the 2 sites collude.")
    for n, others in ((2, "the other site colludes"), (4, "all 3 other sites collude")):
        everybody = tuple(Sight(k, 1.5 if k < n - 1 else 1.0, 1.0) for k in range(n))
        assert replace(PRIVATE, observers=everybody).assumed == f"This holds even if {others}."
    for unsaid in (PRIVATE, replace(PRIVATE, observers=(Sight(4, 1.0, 1.0),)), replace(NAKED, observers=table)):
        assert unsaid.assumed == ""


def test_the_assumption_fits_into_a_line():
    alone, everybody = (replace(PRIVATE, observers=(Sight(k, 1.0, 1.0),)) for k in (0, 4))
    table = replace(PRIVATE, observers=(Sight(0, 1.2, 0.8), Sight(1, 1.0, 1.0), Sight(2, 0.5, 2.3456)))
    assert alone.assumption() == "holds against all who do not hold the rows"
    assert everybody.assumption() == "holds against all 4 other sites"
    assert table.assumption() == "holds against 1 colluding sites; epsilon 2.346 against all 2"
    assert PRIVATE.assumption() == NAKED.assumption() == ""
