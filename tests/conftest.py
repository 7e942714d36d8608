"""What holds for all tests: no outcome depends on chance, nor on how busy the machine is."""

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before NumPy is loaded, as the command does it: several workers share the processors, and threads of linear algebra
# that wait for each other take five times as long there.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from helpers import draws, every

TESTS = Path(__file__).parent

_CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("same", derandomize=True, **_CALM)
settings.register_profile("new", derandomize=False, print_blob=True, **_CALM)


def pytest_addoption(parser):
    parser.addoption("--new-draws", action="store_true", help="other draws and other examples than last time")


def pytest_configure(config):
    # Whoever runs the tests in the background has it ignored, and so would every program that they start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("new" if config.getoption("new_draws") else "same")
    if not config.getoption("new_draws"):
        draws.start()


# Files that take longest, waiting included, in this order: whoever has time takes the next file, and a long one that
# is left to the end is waited for. Files that compile the same kernels are not next to each other.
LONGEST = (
    "auditing/test_audit.py",
    "federation/test_crashes.py",
    "auditing/test_releases.py",
    "sensitivity/test_huge_models.py",
    "problem/test_factors.py",
    "kernels/test_argmin.py",
    "docs/test_snippets.py",
    "simulation/test_mpi.py",
    "algorithms/test_inference.py",
    "federation/test_demo.py",
    "docs/test_site.py",
    "kernels/test_lanes.py",
    "conformance/test_devices.py",
    "plan/test_plan_command.py",
    "tables/test_survival_coverage.py",
    "cli/test_interrupted.py",
    "studies/test_reproduce.py",
    "privacy/test_ledger_crash.py",
    "sums/test_questions.py",
    "plan/test_bounds.py",
    "sensitivity/test_tight.py",
    "plan/test_plan.py",
    "plan/test_joining.py",
    "federation/test_heads.py",
    "privacy/test_sampled.py",
    "kernels/test_panels.py",
    "plan/test_widths.py",
    "algorithms/test_convergence.py",
    "models/test_onnx.py",
    "federation/test_lost_masked.py",
    "federation/test_hostile_server.py",
    "federation/test_masked_run.py",
    "federation/test_lost_neighbour.py",
    "federation/test_bad_peers.py",
    "federation/test_jetstream.py",
    "federation/test_site_cli.py",
    "federation/test_false_identities.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """In a fresh clone every file is compiled first: each worker begins with other folders, and finds the rest done."""
    report = yield
    if collector.path == TESTS and (worker := getattr(collector.config, "workerinput", None)):
        first = int(worker["workerid"].removeprefix("gw")) * len(report.result) // worker["workercount"]
        report.result = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    place = {TESTS / name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (place.get(item.path, len(place)), item.path))  # the same in every worker
    for_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if for_gpu and not config.option.collectonly and not every.has_gpu():
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
        config.stash[LEFT_OUT] = len(for_gpu)


LEFT_OUT = pytest.StashKey[int]()  # how many cases need a GPU, where there is none


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left out", 0)


def pytest_terminal_summary(terminalreporter, config):
    if count := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"{count} cases for CUDA were left out: there is no GPU here.")


def pytest_collection_finish():
    gc.freeze()  # thousands of tests and all modules stay to the end: no need to look through them again and again


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with draws.drawn_for(item.nodeid):
        return (yield)


MOST_SECONDS = 600  # of a test, before and after it: generous, and an end for what waits without one


def _ended(*_):
    pytest.fail(f"It took longer than {MOST_SECONDS} s.")


def _within_its_time():
    """Ends what hangs by an exception, on which whatever was started is ended too."""
    if not hasattr(signal, "SIGALRM"):
        return (yield)
    before = signal.signal(signal.SIGALRM, _ended)
    signal.alarm(MOST_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
    return (yield from _within_its_time())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    return (yield from _within_its_time())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    return (yield from _within_its_time())


@pytest.fixture
def few_tables(monkeypatch):
    """Plans and intervals are predicted on 3 small tables: for tests of what is said, and not of how good it is."""
    from sottovoce.plan import predict, widths

    made = predict._made_up_tables
    made.cache_clear()
    monkeypatch.setattr(predict, "TABLES", 3)
    monkeypatch.setattr(widths, "TABLES", 3)
    monkeypatch.setattr(widths, "ROWS", 4000)
    yield
    made.cache_clear()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    if fixturedef.scope == "function":
        return (yield)
    with draws.drawn_for(f"{request.node.nodeid} {fixturedef.argname} {getattr(request, 'param', '')}"):
        return (yield)
