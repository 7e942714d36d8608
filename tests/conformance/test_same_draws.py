"""Tests draw the same every time, whatever they draw with, and programs that they start do not."""

import os
import secrets
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

from helpers.draws import Stream
from sottovoce.federation.agreement.exchange import Seed
from sottovoce.federation.agreement.identity import SigningKey
from sottovoce.noise.sources import Shape, SystemNoise

TESTS = Path(__file__).parents[1]
FIRST = [
    lambda: os.urandom(9),
    lambda: secrets.token_hex(9),
    lambda: secrets.SystemRandom().random(),
    lambda: np.random.default_rng().random(),
    lambda: SigningKey.generate().public.raw,
    lambda: Seed.generate().raw,
    lambda: SystemNoise(Shape(2, 3, 4)).normals(1, 0).tobytes(),
]


@pytest.fixture(autouse=True)
def _asked_for(request):
    if request.config.getoption("new_draws"):
        pytest.skip("new draws were asked for")


@pytest.fixture(scope="module")
def shared():
    return [draw() for draw in FIRST]


def drawn_after(name, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("helpers.draws._streams", [Stream(name)])
        return [draw() for draw in FIRST]


def test_whatever_is_drawn_follows_from_the_test(request, monkeypatch):
    found = [draw() for draw in FIRST]
    assert found == drawn_after(request.node.nodeid, monkeypatch)
    assert not {*found}.intersection([draw() for draw in FIRST])  # nothing comes twice


def test_what_tests_share_does_not_depend_on_who_comes_first(shared, request, monkeypatch):
    assert shared == drawn_after(f"{request.node.parent.nodeid} shared ", monkeypatch)


def test_names_of_files_do_not_follow_from_the_test(request, monkeypatch):
    """Two processes with the same fixture would write one file of Numba's cache under one name."""
    with monkeypatch.context() as patch:
        patch.setattr("helpers.draws._streams", [Stream(request.node.nodeid)])
        first = uuid.uuid4()
        patch.setattr("helpers.draws._streams", [Stream(request.node.nodeid)])
        assert uuid.uuid4() != first


COPIED = """
import os
from helpers import draws

draws.start()
reader, writer = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.write(writer, os.urandom(9))
        os._exit(0)
    os.wait()
print(os.read(reader, 18).hex())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="copies itself")
def test_copies_of_a_process_draw_by_themselves():
    done = subprocess.run([sys.executable, "-c", COPIED], cwd=TESTS, capture_output=True, text=True, check=True)
    assert done.stdout[:18] != done.stdout[18:36]
