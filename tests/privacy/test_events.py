"""Events: validation, export, JSON, words."""

import json
import subprocess
import sys

import dp_accounting
import pytest

from sottovoce.errors import InputError, UnsupportedError
from sottovoce.privacy import (
    Gaussian,
    GaussianObjective,
    Laplace,
    NonPrivate,
    NormLaplace,
    NormLaplaceObjective,
    PureRelease,
    Repeated,
    SampledGaussian,
    Sampling,
    Sequence,
)
from sottovoce.settings import plain

POISSON, REPLACEMENT = Sampling("poisson", 100, 10), Sampling("replacement", 100, 10)
ALL = [
    NonPrivate(),
    Gaussian(2.0),
    SampledGaussian(2.0, POISSON),
    SampledGaussian(2.0, REPLACEMENT),
    PureRelease(0.3),
    Laplace(2.0),
    NormLaplace(2.0, 9),
    GaussianObjective(2.0, 0.1),
    NormLaplaceObjective(2.0, 9, 0.1),
    NormLaplaceObjective(2.0, 9, 0.0, one_sided=True),
    Repeated(Gaussian(2.0), 7),
    Sequence((Gaussian(1.0), Repeated(SampledGaussian(3.0, POISSON), 2))),
]


@pytest.mark.parametrize("event", ALL, ids=str)
def test_every_event_speaks_json_google_and_english(event):
    data = json.loads(json.dumps(plain(event), allow_nan=False))
    assert data["kind"] == type(event).__name__
    assert isinstance(event.dp_event(), dp_accounting.DpEvent)
    assert event.words
    assert hash(event) == hash(event)
    fields = {k: v for k, v in data.items() if not isinstance(v, dict | list | str)}
    assert all(getattr(event, name) == value for name, value in fields.items())


def test_the_export_carries_our_multiplier():
    assert Gaussian(2.0).dp_event() == dp_accounting.GaussianDpEvent(2.0)
    sampled = SampledGaussian(2.0, POISSON).dp_event()
    assert sampled == dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(2.0))
    assert Repeated(Gaussian(2.0), 7).dp_event().count == 7
    assert Laplace(2.0).dp_event() == dp_accounting.LaplaceDpEvent(2.0)


@pytest.mark.parametrize(
    "event", [PureRelease(0.3), NormLaplace(2.0, 9), GaussianObjective(2.0, 0.1), NormLaplaceObjective(2.0, 9, 0.1)]
)
def test_what_google_cannot_say_is_exported_as_unsupported(event):
    assert event.dp_event() == dp_accounting.UnsupportedDpEvent()


def test_without_dp_accounting_only_the_export_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.delitem(sys.modules, "sottovoce.privacy.export", raising=False)
    with pytest.raises(UnsupportedError, match=r"dp_event\(\) needs dp-accounting.*'sottovoce\[dp-accounting\]'"):
        Repeated(Gaussian(2.0), 7).dp_event()


def test_the_library_does_not_wait_for_what_only_some_use():
    unused = "{'dp_accounting', 'networkx', 'scipy.stats'} & {*sys.modules}"
    code = f"import sys, sottovoce; sottovoce.IPADMM; sys.exit(str({unused} or ''))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("inf"), float("nan")])
def test_a_bad_sigma_is_refused(sigma):
    with pytest.raises(InputError, match="sigma to be positive and finite"):
        Gaussian(sigma)
    with pytest.raises(InputError, match="sigma to be positive and finite"):
        SampledGaussian(sigma, POISSON)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_noise_is_refused(bad):
    with pytest.raises(InputError, match="epsilon to be positive and finite"):
        PureRelease(bad)
    for event in (Laplace, lambda s: NormLaplace(s, 3), lambda s: NormLaplaceObjective(s, 3, 0.1)):
        with pytest.raises(InputError, match="scale to be positive and finite"):
            event(bad)
    with pytest.raises(InputError, match="sigma to be positive and finite"):
        GaussianObjective(bad, 0.1)


def test_a_bad_dimension_or_curvature_is_refused():
    for d in (0, -1, 2.0, True):
        with pytest.raises(InputError, match="d to be a positive int"):
            NormLaplace(1.0, d)
        with pytest.raises(InputError, match="d to be a positive int"):
            NormLaplaceObjective(1.0, d, 0.1)
    for kappa in (-0.1, float("inf"), float("nan")):
        with pytest.raises(InputError, match="kappa to be finite"):
            GaussianObjective(1.0, kappa)
        with pytest.raises(InputError, match="kappa to be finite"):
            NormLaplaceObjective(1.0, 3, kappa)
    with pytest.raises(InputError, match="one_sided to be True or False"):
        NormLaplaceObjective(1.0, 3, 0.1, 1)


def test_bad_sampling_is_refused():
    with pytest.raises(InputError, match="scheme to be one of"):
        Sampling("shuffle", 10, 1)
    with pytest.raises(InputError, match="rows to be a positive int"):
        Sampling("poisson", 0, 1)
    with pytest.raises(InputError, match="batch to be a positive int"):
        Sampling("replacement", 10, 1.5)
    with pytest.raises(InputError, match="batch <= rows"):
        Sampling("poisson", 10, 11)
    assert Sampling("replacement", 10, 11).batch == 11


def test_bad_composition_is_refused():
    with pytest.raises(InputError, match="times to be an int >= 0"):
        Repeated(Gaussian(1.0), -1)
    with pytest.raises(InputError, match="event to be an Event"):
        Repeated("gaussian", 1)
    with pytest.raises(InputError, match="events to be a tuple"):
        Sequence([Gaussian(1.0)])
    with pytest.raises(InputError, match="only Events"):
        Sequence((Gaussian(1.0), None))
