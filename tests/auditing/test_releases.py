"""Releases of one process: each is played with rows that attain its claim, stands, and falls with too little noise."""

import json
from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.auditing import catalogue
from sottovoce.auditing.catalogue import everything
from sottovoce.auditing.releases import played
from sottovoce.auditing.subjects import subject
from sottovoce.cli import main
from sottovoce.noise.sources import SystemNoise
from sottovoce.oracle.plain import Oracle
from sottovoce.sums import evaluating
from sottovoce.tally.release import Terms

NAMES = [*everything()]
SLOW = [name for name in NAMES if "evaluation" in name or "held out" in name]  # they count run by run
ABOUT = {  # the sums whose whole sensitivity a subject's two tables attain
    "shared noise, second moments": (1,),
    "shared noise, gradients": (2, 3),
    "inference, Hessian": (1, 3),
    "inference, gradients": (2, 4),
    "inference, focused": (1,),
    "inference of counts": (1,),
    "evaluation in a run": (3, 4),
    "held out, a row that is learnt from": (1,),
    "held out, a row that is not": (3, 4),
    "people": (1,),
    "weights": (2, 3),
    "exposures": (2, 3),
    "least squares": (2, 3),
    "hazards": (1,),
    "table": (1,),
    "survival curves": (1,),
    "evaluation alone": (1, 2),
}


def runs_of(name, fast, slow):
    return slow if name in SLOW else fast


@pytest.mark.parametrize("name", NAMES)
def test_every_release_stands_and_its_tables_move_it_by_all_that_is_allowed(name):
    """Else a fault would have to be that much larger to be found."""
    release = everything(4.0)[name]
    found = played(release, runs_of(name, 1000, 100))
    assert not found.alarm
    assert found.claim.epsilon == found.stated.asked == 4.0
    assert found.lower > 0
    both = [release.play(world, 100) for world in (0, 1)]
    for k in ABOUT[name]:
        there = np.std(np.concatenate([sums[k - 1].head for sums in both], axis=1))
        assert np.mean(both[0][k - 1].moved) / release.prices[k - 1] > 0.85 * there  # of 400 numbers and more


@pytest.mark.parametrize("name", NAMES)
def test_noise_that_is_set_for_twice_the_epsilon_is_found_out(name):
    right, loud = everything(1.0)[name], everything(2.0)[name]
    wrong = replace(loud, claim=right.claim, stated=right.stated, prices=right.prices)
    found = played(wrong, runs_of(name, 400, 100))
    assert found.alarm
    assert found.noise.size == pytest.approx(0.54, abs=0.12)
    assert "THE CLAIM IS REFUTED" in found.prose()
    said = played(replace(right, stated=loud.stated._replace(asked=1.0)), 20)
    assert said.alarm  # and if it says so itself, that is enough


def test_one_draw_for_all_sums_is_found_out(monkeypatch):
    drawn = {}
    monkeypatch.setattr(SystemNoise, "shared", lambda self, *_: drawn.setdefault(id(self), (self, self._of(1)))[1])
    found = played(everything()["shared noise, gradients"], 200)
    assert found.alarm
    assert found.reused < 1e-9


@pytest.mark.parametrize(
    ("name", "sensitivity", "part"),
    [
        ("shared noise, second moments", "moments_sensitivity", 0.85),
        ("shared noise, gradients", "whitened_gradient_sum_sensitivity", 0.85),
        ("inference, Hessian", "whitened_hessian_sum_sensitivity", 0.85),
        ("inference, gradients", "whitened_gradient_sum_sensitivity", 0.85),
        ("inference, focused", "focused_sum_sensitivity", 0.5),  # these tables move it by 0.6 of it, in the mean
        ("inference of counts", "varied_hessian_sensitivity", 0.55),  # these tables move it by 0.7 of it, in the mean
        ("weights", "whitened_gradient_sum_sensitivity", 0.85),
        ("exposures", "whitened_gradient_sum_sensitivity", 0.85),
        ("least squares", "residual_moments_sensitivity", 0.85),
        ("table", "totals_sensitivity", 0.85),
    ],
)
def test_noise_for_less_than_the_sensitivity_is_found_out(monkeypatch, name, sensitivity, part):
    right, owner = getattr(Oracle, sensitivity), next(kind for kind in Oracle.__mro__ if sensitivity in vars(kind))
    monkeypatch.setattr(owner, sensitivity, lambda *given: part * right(*given))
    found = played(everything(4.0)[name], 1500)
    assert found.alarm
    assert found.noise.size < 1


def test_people_priced_as_rows_are_found_out(monkeypatch):
    monkeypatch.setattr(Oracle, "changed_in_sum", lambda *_: 1)
    found = played(everything()["people"], 200)
    assert found.alarm
    assert found.noise.size == pytest.approx(1 / 6, rel=0.2)


def test_evaluations_with_seven_tenths_of_their_noise_are_found_out(monkeypatch):
    moved, grid = evaluating.moved_by, Terms.grid
    monkeypatch.setattr(evaluating, "moved_by", lambda loss: tuple(0.7 * one for one in moved(loss)))
    monkeypatch.setattr(
        Terms, "grid", lambda *given: (g := grid(*given))._replace(scale=int(0.7 * g.scale))
    )  # fmt: skip
    for name in ("evaluation in a run", "held out, a row that is not", "evaluation alone"):
        assert played(everything()[name], 200).alarm


@pytest.mark.slow
def test_the_search_for_two_rows_does_not_find_what_releases_do(monkeypatch):
    """Second moments take 3 % of the budget: rows that can be told apart best move them hardly at all."""
    right = Oracle.moments_sensitivity
    monkeypatch.setattr(Oracle, "moments_sensitivity", lambda *given: 0.85 * right(*given))
    assert not sv.audit(subject("masked"), runs=1000, seed=1).alarm


def test_all_plays_releases_too(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sottovoce.auditing.subjects.everything", lambda _: {})
    kept = {name: one for name, one in everything(2.0).items() if name in ("people", "least squares")}
    monkeypatch.setattr(catalogue, "everything", lambda **_: kept)
    assert main(["audit", "--all", "--runs", "200", "--out", str(tmp_path / "out"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["people", "least squares"]
    assert told["people"]["claimed"] == 2.0
    page = (tmp_path / "out" / "audit.html").read_text()
    assert "least squares" in page
    assert "drawn afresh with p" in page
