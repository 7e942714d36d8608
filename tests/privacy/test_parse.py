"""Events from data: round trips, and what a stranger might send."""

import json
from math import inf, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sottovoce.errors import InputError
from sottovoce.privacy import (
    Event,
    Gaussian,
    GaussianObjective,
    Laplace,
    NegativeBinomialRuns,
    NonPrivate,
    NormLaplace,
    NormLaplaceObjective,
    PoissonRuns,
    PureRelease,
    RepeatAndSelect,
    Repeated,
    SampledGaussian,
    Sampling,
    Sequence,
    event_from_dict,
)
from sottovoce.privacy.parsing import DEEPEST, MOST_PARTS, MOST_RELEASES
from sottovoce.settings import plain

POSITIVE = st.floats(1e-300, 1e300)
COUNT = st.integers(1, 10**9)
KAPPA = st.floats(0, 1e6)
SAMPLINGS = st.one_of(
    st.builds(Sampling, st.just("replacement"), COUNT, COUNT),
    st.tuples(COUNT, COUNT).map(lambda pair: Sampling("poisson", max(pair), min(pair))),
)
RUNS = st.one_of(
    st.builds(NegativeBinomialRuns, st.floats(-1, 50, exclude_min=True), st.floats(1e-9, 1)),
    st.builds(PoissonRuns, st.floats(1e-3, 1e6)),
)
LEAVES = st.one_of(
    st.just(NonPrivate()),
    st.builds(Gaussian, POSITIVE | st.integers(1, 9)),
    st.builds(SampledGaussian, POSITIVE, SAMPLINGS),
    st.builds(PureRelease, POSITIVE),
    st.builds(Laplace, POSITIVE),
    st.builds(NormLaplace, POSITIVE, COUNT),
    st.builds(GaussianObjective, POSITIVE, KAPPA),
    st.builds(NormLaplaceObjective, POSITIVE, COUNT, KAPPA, st.booleans()),
)
EVENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Repeated, inner, st.integers(0, 9)),
        st.lists(inner, max_size=4).map(lambda events: Sequence(tuple(events))),
        st.builds(RepeatAndSelect, inner, RUNS),
    ),
    max_leaves=8,
)


def concrete(base):
    for kind in base.__subclasses__():
        if kind.__module__.startswith("sottovoce."):
            yield kind
            yield from concrete(kind)


def test_every_kind_of_event_is_among_those_drawn_here():
    drawn = {NonPrivate, Gaussian, SampledGaussian, PureRelease, Laplace, NormLaplace, GaussianObjective}
    drawn |= {NormLaplaceObjective, Repeated, Sequence, RepeatAndSelect}
    assert set(concrete(Event)) == drawn


@given(EVENTS)
@example(Repeated(SampledGaussian(2.0, Sampling("poisson", 100, 10)), 0))
@example(RepeatAndSelect(Gaussian(2.0), PoissonRuns(3.0)))
def test_there_and_back(event):
    assert event_from_dict(plain(event)) == event
    assert event_from_dict(json.loads(json.dumps(plain(event), allow_nan=False))) == event


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(EVENTS, st.randoms(use_true_random=False), JUNK)
def test_whatever_is_changed_is_refused_or_is_another_event(event, random, junk):
    """One value somewhere in the tree becomes junk. Never another error than InputError, never a lie."""
    data = json.loads(json.dumps(plain(event)))
    place = data
    while True:
        key = random.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list) or not place[key] or random.random() < 0.5:
            break
        place = place[key]
    place[key] = junk
    try:
        read = event_from_dict(data)
    except InputError:
        return
    assert json.loads(json.dumps(plain(read))) == data


GAUSSIAN = {"kind": "Gaussian", "sigma": 2.0}
LAW = {"law": "PoissonRuns", "rate": 2.0}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "a table for an event, got data=None"),
        ([GAUSSIAN], "a table for an event"),
        ({}, "an event in full, got no kind"),
        ({"kind": 3}, "text for kind, got kind=3"),
        ({"kind": "Oracle"}, "kind among NonPrivate, Gaussian, .* got kind='Oracle'"),
        ({"kind": "__class__"}, "kind among"),
        ({"kind": "Gaussian"}, "an event in full, got no sigma"),
        (GAUSSIAN | {"mu": 1}, "an event, got 'mu'. Known: sigma"),
        ({"kind": "NonPrivate", "sigma": 1.0}, "an event, got 'sigma'. Known: none"),
        ({"kind": "Gaussian", "sigma": "2"}, "a number for sigma, got sigma='2'"),
        ({"kind": "Gaussian", "sigma": True}, "a number for sigma, got sigma=True"),
        ({"kind": "Gaussian", "sigma": nan}, "a finite number for sigma, got sigma=nan"),
        ({"kind": "Gaussian", "sigma": inf}, "a finite number for sigma"),
        ({"kind": "Gaussian", "sigma": 10**5000}, "a float, or an int of at most .* got sigma=an int of 16610 bits"),
        ({"kind": "Gaussian", "sigma": -1.0}, "sigma to be positive"),
        ({"kind": "Repeated", "times": 2.0, "event": GAUSSIAN}, "a whole number for times, got times=2.0"),
        ({"kind": "Repeated", "times": True, "event": GAUSSIAN}, "a whole number for times"),
        ({"kind": "Repeated", "times": -1, "event": GAUSSIAN}, "times to be an int >= 0"),
        ({"kind": "Repeated", "times": 2**60, "event": GAUSSIAN}, "an int of at most 2.53, got times="),
        ({"kind": "Sequence", "events": GAUSSIAN}, "a list for events"),
        ({"kind": "Sequence", "events": [GAUSSIAN, 1]}, r"a table for events\[2\], got events\[2\]=1"),
        ({"kind": "NormLaplace", "scale": 1.0, "d": 0}, "d to be a positive int"),
        (
            {"kind": "NormLaplaceObjective", "scale": 1.0, "d": 2, "kappa": 0.0, "one_sided": 1},
            "true or false for one_sided, got one_sided=1",
        ),
        ({"kind": "SampledGaussian", "sigma": 1.0, "sampling": "poisson"}, "a table for sampling"),
        (
            {"kind": "SampledGaussian", "sigma": 1.0, "sampling": {"scheme": "shuffle", "rows": 9, "batch": 3}},
            "sampling.scheme among replacement, poisson",
        ),
        (
            {"kind": "SampledGaussian", "sigma": 1.0, "sampling": {"scheme": "poisson", "rows": 3, "batch": 9}},
            "batch <= rows",
        ),
        ({"kind": "RepeatAndSelect", "event": GAUSSIAN, "runs": LAW | {"law": "always 1"}}, "runs.law among Negative"),
        ({"kind": "RepeatAndSelect", "event": GAUSSIAN, "runs": LAW | {"rate": 0}}, "rate to be positive"),
        (
            {"kind": "RepeatAndSelect", "event": GAUSSIAN, "runs": LAW | {"mean": 2}},
            "keys of runs, got 'mean'. Known: rate",
        ),
    ],
)
def test_what_no_event_wrote_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        event_from_dict(data)


def test_absurd_trees_are_refused_before_they_hurt():
    deep = GAUSSIAN
    for _ in range(DEEPEST - 1):
        deep = {"kind": "Repeated", "times": 1, "event": deep}
    assert event_from_dict(deep).times == 1
    for _ in range(100_000):
        deep = {"kind": "Repeated", "times": 1, "event": deep}
    with pytest.raises(InputError, match=f"nested at most {DEEPEST} deep"):
        event_from_dict(deep)
    while isinstance(deep, dict):  # or Python takes it apart by recursion
        deep = deep.pop("event", None)
    with pytest.raises(InputError, match=f"at most {MOST_PARTS} events"):
        event_from_dict({"kind": "Sequence", "events": [GAUSSIAN] * (MOST_PARTS + 1)})
    many = {"kind": "Repeated", "times": 2**40, "event": {"kind": "Repeated", "times": 2**40, "event": GAUSSIAN}}
    with pytest.raises(InputError, match=f"at most {MOST_RELEASES} releases"):
        event_from_dict(many)


def test_a_refusal_is_short_however_long_the_data():
    for data in ("x" * 10**6, {"kind": "y" * 10**6}, {"kind": "Gaussian", "sigma": ["z" * 10**6] * 1000}):
        with pytest.raises(InputError) as refused:
            event_from_dict(data)
        assert len(str(refused.value)) < 1500
    with pytest.raises(InputError, match="got sigma=an int of"):
        event_from_dict({"kind": "Gaussian", "sigma": [10**5000]})
