"""The names of the package: all load, all are shown, and a wrong one is refused as Python does."""

import pytest

import sottovoce


@pytest.mark.parametrize("name", sottovoce.__all__)
def test_every_public_name_loads(name):
    assert getattr(sottovoce, name).__name__.rpartition(".")[2] == name
    assert name in dir(sottovoce)


def test_the_names_that_people_were_told_are_there():
    told = {"IPADMM", "Sites", "simulate", "datasets", "graphs", "losses", "estimators", "PrivacyLeakWarning"}
    assert told <= set(sottovoce.__all__)


def test_another_name_is_refused():
    with pytest.raises(AttributeError, match=r"^module 'sottovoce' has no attribute 'IPADM'$"):
        _ = sottovoce.IPADM
