"""The benchmark of intervals runs, and writes what it has found."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "evaluation_coverage.py"


def test_quick(tmp_path):
    out = tmp_path / "found.json"
    subprocess.run([sys.executable, SCRIPT, "--quick", "--out", out], check=True, timeout=300)
    found = json.loads(out.read_text())
    assert {case["kind"] for case in found["cases"]} == {"two classes", "three classes", "numbers"}
    for case in found["cases"]:
        assert case["figures"]
        assert all(0 <= one["coverage"] <= 1 for one in case["figures"].values())


def test_what_was_measured_is_good_enough():
    """The figures that docs/proofs/evaluation.md quotes: of all that was told, intervals hold at least nine in ten."""
    found = json.loads(SCRIPT.with_suffix(".json").read_text())
    assert found["repetitions"] >= 300
    for case in found["cases"]:
        for name, one in case["figures"].items():
            if "not clipped" not in name:
                assert one["coverage"] > 0.9, (case["rows"], case["epsilon"], name, one)
