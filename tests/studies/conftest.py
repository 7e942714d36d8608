import json

import pytest

from sottovoce.cli import main


@pytest.fixture
def cli(capsys):
    """Run the command line in this process: (exit code, stdout, stderr)."""

    def run(*argv):
        code = main([str(part) for part in argv])
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def answer(cli):
    """Run with --json; stdout is one strict JSON object and nothing else."""

    def run(*argv):
        code, out, err = cli(*argv, "--json")
        assert (code, err) == (0, "")
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return run
