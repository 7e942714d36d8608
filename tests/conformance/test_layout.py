"""Where a test lies: in the folder of the room of the library that it is about. CONTRIBUTING.md says the principle."""

from pathlib import Path

import sottovoce

TESTS, ROOT = Path(__file__).parents[1], Path(sottovoce.__file__).parent
# What holds across rooms, what is no room, and what several folders share.
ACROSS = {"conformance", "sensitivity", "statistical", "docs", "package", "benchmarks", "helpers"}


def test_every_folder_is_a_room_or_a_law_across_rooms():
    rooms = {path.parent.name for path in ROOT.rglob("__init__.py")}
    folders = {
        path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py") if path != TESTS / "conftest.py"
    }
    assert folders <= rooms | ACROSS
    assert len(folders & rooms) > 8


def test_files_that_go_first_are_there(pytestconfig):
    named = pytestconfig.pluginmanager.getplugin(str(TESTS / "conftest.py")).LONGEST
    assert [name for name in named if not (TESTS / name).exists()] == []


def test_every_file_is_a_test_or_lies_beside_the_tests_that_it_helps():
    for path in TESTS.rglob("*.py"):
        helps = path.parent.name == "helpers" or path.name == "conftest.py"
        if not (helps or path.name.startswith("test_")):
            name = path.stem
            users = [user for user in path.parent.glob("*.py") if user != path and name in user.read_text()]
            assert users, f"{path.relative_to(TESTS)} helps nobody in its folder: move it to helpers, or delete it"
