"""What holds for all tests: no outcome depends on chance, nor on how busy the machine is."""

import pytest
from hypothesis import HealthCheck, settings

from helpers import draws

_CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("same", derandomize=True, **_CALM)
settings.register_profile("new", derandomize=False, print_blob=True, **_CALM)


def pytest_addoption(parser):
    parser.addoption("--new-draws", action="store_true", help="other draws and other examples than last time")


def pytest_configure(config):
    settings.load_profile("new" if config.getoption("new_draws") else "same")
    if not config.getoption("new_draws"):
        draws.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with draws.drawn_for(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    if fixturedef.scope == "function":
        return (yield)
    with draws.drawn_for(f"{request.node.nodeid} {fixturedef.argname} {getattr(request, 'param', '')}"):
        return (yield)
