"""`sottovoce export`: models for other programs."""

import joblib
import numpy as np
import onnxruntime
import pytest

from sottovoce import models


@pytest.fixture
def model(cli, clinic, tmp_path):
    given = ("--data", clinic, "--schema", tmp_path / "schema.toml", "--nodes", 2, "--algorithm", "masked")
    code, _, err = cli("train", *given, "--delta", "1e-5", "--epsilon", 8, "--out", tmp_path / "run")
    assert code == 0, err
    return tmp_path / "run" / "model.safetensors"


def test_a_trained_model_goes_into_a_graph_that_takes_raw_columns(cli, model, tmp_path):
    out = tmp_path / "m.onnx"
    code, said, err = cli("export", model, "--to", "onnx", "--out", out)
    assert code == 0, err
    assert "a graph from 2 columns to scores, probabilities, label, valid" in " ".join(said.split())
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    new = tmp_path / "new.csv"
    new.write_text("age,smoker\n70,yes\n10,no\n45,true\n")
    assert cli("predict", model, new, "--out", tmp_path / "p.csv")[0] == 0
    lines = [line.split(",") for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    feed = {"age": np.array([[70.0], [10.0], [45.0]]), "smoker": np.array([["yes"], ["no"], ["true"]], dtype=object)}
    label, probabilities = session.run(["label", "probabilities"], feed)
    assert label.tolist() == [line[1] for line in lines]
    np.testing.assert_allclose(probabilities, np.array([line[2:] for line in lines], dtype=float), atol=1e-6)
    code, said, _ = cli("export", model, "--to", "onnx", "--inputs", "features", "--out", tmp_path / "f.onnx")
    assert (code, "features to scores" in " ".join(said.split())) == (0, True)


def test_a_trained_model_becomes_scikit_learn_s_own(cli, model, tmp_path):
    out = tmp_path / "m.joblib"
    code, said, err = cli("export", model, "--to", "sklearn", "--out", out)
    assert code == 0, err
    assert "opening it runs the code in it" in " ".join(said.split())
    own, made = models.load(model), joblib.load(out)
    x = np.random.default_rng(0).normal(size=(40, own.d))
    np.testing.assert_allclose(made.predict_proba(x), own.probabilities(x), rtol=1e-9, atol=1e-12)
    assert made.privacy_["epsilon"] == own.privacy.epsilon


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--to", "pmml"), "to"),
        (("--to", "onnx", "--inputs", "cells"), "inputs among columns, features"),
        (("--to", "sklearn", "--inputs", "columns"), "Expected --inputs with --to onnx only"),
    ],
)
def test_what_makes_no_sense_is_refused(cli, model, tmp_path, options, words):
    code, _, err = cli("export", model, *options, "--out", tmp_path / "x")
    assert (code, err.count("\n"), (tmp_path / "x").exists()) == (2, 1, False)
    assert words in err


def test_nothing_is_written_over(cli, model):
    code, _, err = cli("export", model, "--to", "onnx", "--out", model)
    assert code == 2
    assert "which exists" in err
