"""The code in the how-to and among the pitfalls runs as it stands, and the figures beside it are right."""

import os
import re
import warnings
from pathlib import Path

import pytest

from sottovoce import privacy

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


def test_code(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope = {}
    with warnings.catch_warnings():
        for block in [*blocks("how-to/estimators.md"), *blocks("explanation/pitfalls.md")]:
            exec(block, scope)
    assert "Protected: every single row" in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["model.safetensors"]
    assert scope["search"].privacy_.epsilon <= 2.0


def test_figures():
    half = privacy.Gaussian(privacy.sigma_for(0.5, 1e-5, 1))
    for times, total in ((2, 0.73), (10, 1.77)):
        assert privacy.epsilon(privacy.Repeated(half, times), 1e-5) == pytest.approx(total, abs=0.006)
    runs = privacy.NegativeBinomialRuns(0.0, privacy.gamma_for(10, 0.0))
    run = privacy.noise_for(
        lambda x: privacy.RepeatAndSelect(privacy.scored(privacy.Gaussian(x / 0.8**0.5), x / 0.2**0.5), runs), 1.0, 1e-5
    )
    assert run / 0.8**0.5 / privacy.sigma_for(1.0, 1e-5, 1) == pytest.approx(1.65, abs=0.006)
