import inspect
from dataclasses import fields
from importlib import import_module
from pkgutil import iter_modules

import pytest

from sottovoce import algorithms
from sottovoce.algorithms import Method, registry
from sottovoce.algorithms.registry import COMMON, REGISTRY, Entry
from sottovoce.errors import InputError
from sottovoce.studies import cells
from sottovoce.studies.cells import ProblemSpec, cell
from sottovoce.studies.panels import QUICK, Panel, add_point


@pytest.mark.parametrize("name", REGISTRY)
def test_every_line_fits_its_class_and_has_twenty_points(name):
    line = REGISTRY[name]
    assert len(line.points()) == 20
    assert line.colour.startswith("#")
    for form in line.forms:
        for point in line.points():
            made = registry.make(name, registry.settings_of(name, form, {"rounds": 3}, point))
            assert isinstance(made, line.kind)
            assert made.rounds == point["rounds"]


def test_every_algorithm_of_the_library_has_a_line_and_every_line_an_algorithm():
    files = [import_module(f"sottovoce.algorithms.{file.name}") for file in iter_modules(algorithms.__path__)]
    there = {
        kind
        for file in files
        for kind in vars(file).values()
        if inspect.isclass(kind) and issubclass(kind, Method) and not inspect.isabstract(kind)
    }
    assert {line.kind for line in REGISTRY.values()} == there
    assert len(there) == len(REGISTRY) >= 14


@pytest.mark.parametrize("at", ["ipadmn.IPADMM", "ipadmm.IPADMN", "ipadmm", "ipadmm.IPADMMState", "ipadmm.math"])
def test_a_line_that_leads_nowhere_is_refused_by_name(at):
    line = Entry(at=at, label="Odd", colour="#000000", group="beyond", grid={"rounds": (1,)})
    with pytest.raises(InputError, match=f"a file in sottovoce/algorithms, a dot, .* got at='{at}'"):
        _ = line.kind


def test_labels_and_colours_are_different():
    assert len({line.label for line in REGISTRY.values()}) == len(REGISTRY)
    assert len({line.colour for line in REGISTRY.values()}) == len(REGISTRY)


def test_a_setting_that_an_algorithm_does_not_have_is_refused_by_name(monkeypatch):
    line = Entry(at="admm.ADMM", label="Odd", colour="#000000", group="beyond", grid={"momentum": (1.0,)})
    monkeypatch.setitem(REGISTRY, "odd", line)
    panel = Panel(name="x", title="", caption="", xlabel="", shape="sweep")
    add_point(panel, QUICK, "odd", x=1.0, epsilon=1.0, own=line.points()[0])
    assert panel.points == []
    assert "momentum" in panel.notes[0]


def made(name="ipadmm", problem=None, own=None, **changes):
    common = {"epsilon": 1.0, "delta": 1e-5, "rounds": 5, "rho": 0.1, "lam": 0.1}
    return cell(name, problem or ProblemSpec(nodes=4), common, own, **{"runs": 2, "seed": 0, **changes})


def test_a_content_hash_depends_on_all_that_matters():
    keys = {
        made().key,
        made(own={"diameter": 3.0}).key,
        made(runs=3).key,
        made(seed=1).key,
        made(record=(1, 2)).key,
        made(form="published").key,
        made(problem=ProblemSpec(nodes=5)).key,
    }
    assert len(keys) == 7
    assert made().key == made().key == made(record=()).key


def test_what_an_algorithm_does_not_have_is_no_part_of_its_name():
    """ADMM has no epsilon and no chance: one run at one epsilon serves all."""
    assert {"epsilon", "delta"} & {name for name, _ in made("admm").settings} == set()
    assert made("admm").runs == 1
    assert set(COMMON) <= {f.name for f in fields(algorithms.IPADMM)}


def test_fields_that_no_cell_names_are_part_of_the_hash(monkeypatch):
    """Most fields are left at their defaults. What these are is in the result all the same, and so is the class."""
    monkeypatch.setattr(cells, "fingerprint", lambda *_: "the same code")
    before = made().key
    monkeypatch.setattr(registry, "make", lambda name, given: REGISTRY[name].kind(**given, radius=5.0))
    assert made().key != before
