"""What `train` promises of a private file: by its own statement, its figures, its files and its refusals."""

import errno
import itertools
import json
import math
import os
import re

import numpy as np
import pytest
from pyarrow import parquet
from scipy import optimize
from scipy.stats import norm

from cli.conftest import QUICK, TINY
from sottovoce import models, simulate
from sottovoce.errors import UnsupportedError
from sottovoce.noise import sources as noise_module
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import HOLDER_ONLY
from sottovoce.simulation import devices
from sottovoce.studies.build import bind
from sottovoce.studies.config import TrainConfig
from sottovoce.studies.run import train

ONLY = "for the holder of the rows only; not covered by the guarantee"


def gaussian_delta(mu, epsilon):
    """Of a Gaussian release whose mean moves by mu standard deviations; Balle and Wang's formula, by scipy alone."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def gaussian_mu(epsilon, delta=1e-5):
    return optimize.brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 1e-3, 50, xtol=1e-13)


def gaussian_epsilon(mu, delta=1e-5):
    return optimize.brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0, 100, xtol=1e-12)


@pytest.fixture
def given(clinic, tmp_path):
    """Local noise as in the paper: without a head start, every draw of noise is one of a step."""
    return ("train", "--data", clinic, "--schema", tmp_path / "schema.toml", *QUICK, "--moments", 0)


def words(text):
    return " ".join(text.split())


# -- who gets which row ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dealt", [("--nodes", 3), ("--site-column", "clinic")], ids=["nodes", "sites"])
@pytest.mark.parametrize(
    "partition", [("dirichlet",), ("dirichlet", "--partition-alpha", 0.1), ("column", "--partition-column", "age")]
)
def test_what_a_row_says_does_not_decide_whose_it_is(given, tmp_path, cli, dealt, partition):
    code, out, err = cli(*given, *dealt, "--partition", *partition, "--out", tmp_path / "run")
    assert (code, out, (tmp_path / "run").exists(), err.count("\n")) == (2, "", False, 1)
    assert "Expected a partition that does not read private rows" in err
    assert "--site-column" in err


def test_a_changed_row_moves_no_other(clinic, tmp_path, monkeypatch):
    def dealt():
        monkeypatch.setattr(noise_module, "_SYSTEM", Words(5))  # the same secret order
        config = TrainConfig(data=str(clinic), schema=str(tmp_path / "schema.toml"), nodes=4)
        sites = bind(config).problem.sites
        return sites.counts, sites.rows.matrix.toarray(), sites.labels

    counts, rows, labels = dealt()
    lines = clinic.read_text().splitlines()
    lines[7] = "3,True,no,south" if lines[7].split(",")[2] == "yes" else "97,False,yes,west"
    clinic.write_text("\n".join(lines) + "\n")
    counts_2, rows_2, labels_2 = dealt()
    assert np.array_equal(counts, counts_2)
    assert np.sum((rows != rows_2).any(axis=1) | (labels != labels_2)) == 1


# -- several runs ---------------------------------------------------------------------------------------------------


def test_several_runs_cost_what_they_cost_together(given, tmp_path, answer, cli):
    budget, out = tmp_path / "budget.json", tmp_path / "run"
    assert cli("budget", "new", budget, "--epsilon", 60)[0] == 0
    said = answer(*given, "--nodes", 3, "--runs", 5, "--epsilon", 2, "--budget", budget, "--out", out)
    one, together = 2.0, gaussian_epsilon(math.sqrt(5) * gaussian_mu(2.0))
    assert together > 2 * one
    assert said["privacy"]["epsilon"] == said["epsilon"] == pytest.approx(together, rel=1e-6)
    assert (said["privacy"]["runs"], said["privacy"]["target_epsilon"], said["runs"]) == (5, one, 5)
    model = models.load(out / "model.safetensors")
    assert model.privacy.epsilon == pytest.approx(together, rel=1e-6)
    assert answer("evaluate", out / "model.safetensors", given[2])["epsilon"] == pytest.approx(together, rel=1e-6)
    assert answer("budget", "show", budget)["spent"] == pytest.approx(together, rel=1e-6)
    history = parquet.read_table(out / "history.parquet").to_pydict()
    assert history["epsilon"][-5:] == pytest.approx([together] * 5, rel=1e-6)
    text = words((out / "privacy.txt").read_text())
    assert "for all 5 runs together, each of which was asked to stay within epsilon = 2" in text
    assert json.loads((out / "privacy.json").read_text()) == said["privacy"]
    assert "in each of 5 runs" in text
    assert cli("report", out)[0] == 0
    assert "for all 5 runs together" in (out / "report.html").read_text()


def test_the_table_counts_all_runs(given, cli):
    text = words(cli(*given, "--nodes", 3, "--runs", 5, "--epsilon", 2)[1])
    printed = float(re.search(r"Promised: epsilon = ([\d.]+),", text)[1])
    together = gaussian_epsilon(math.sqrt(5) * gaussian_mu(2.0))
    assert together <= printed < together * 1.0001
    assert "all 5 runs together; each was asked for epsilon = 2." in text
    assert "in each of 500 steps" in text


def test_one_run_is_said_as_it_was_asked_for(given, cli):
    text = words(cli(*given, "--nodes", 3)[1])
    assert "Promised: epsilon = 8, delta = 1e-05, for one row of one site replaced by any other row. Noise" in text


def test_runs_of_a_study_are_repetitions_of_one(answer):
    assert answer("train", *TINY)["privacy"]["epsilon"] == pytest.approx(1.0, rel=1e-6)


# -- noise ----------------------------------------------------------------------------------------------------------


class Words:
    """Stands in for the operating system's source, and remembers what it gave."""

    def __init__(self, seed):
        self._draws, self.given = np.random.default_rng(seed), []

    def take(self, count):
        self.given.append(self._draws.integers(0, 2**64, count, dtype=np.uint64))
        return self.given[-1]


def built_from(given, **more):
    settings = {name[2:].replace("-", "_"): value for name, value in zip(given[1::2], given[2::2], strict=True)}
    config = TrainConfig.read(settings | {"data": str(given[2]), "schema": str(given[4]), **more})
    problem, algorithm = bind(config)
    assert problem.sites.private
    return algorithm, problem.sites, problem.graph


def test_the_system_s_words_are_the_system_s(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: bytes(range(count)))
    assert noise_module._SYSTEM.take(2).tobytes() == bytes(range(16))


@pytest.mark.parametrize("dealt", [{"nodes": 3}, {"site_column": "clinic"}], ids=["nodes", "sites"])
def test_noise_is_the_system_s(given, answer, monkeypatch, dealt):
    """What comes out follows from the system's words alone, by the normal quantile of another library."""
    words = Words(5)
    monkeypatch.setattr(noise_module, "_SYSTEM", words)
    options = [(f"--{name.replace('_', '-')}", value) for name, value in dealt.items()]
    said = answer(*given, "--runs", 2, *itertools.chain(*options))
    order = 1 if "nodes" in dealt else 0  # rows that are dealt out take a word each, before all noise
    drawn = words.given[order:]
    assert [len(part) for part in drawn] == [3 * 7 * 2] * 100  # 20 rounds of 5 steps: nodes, coordinates, runs

    def noise(k):
        steps = [norm.ppf(((part >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53) for part in drawn]
        return np.stack([z.reshape(3, 7, 2).transpose(2, 0, 1) for z in steps[5 * (k - 1) : 5 * k]], axis=2)

    monkeypatch.setattr(noise_module, "_SYSTEM", Words(5))
    again = simulate(*built_from(given, **dealt), runs=2, noise=noise)
    for name, value in again.risk().items():
        assert said["risk"][name] == pytest.approx(value, rel=1e-12)
    assert again.seed is None


@pytest.mark.parametrize("sampling", ["replacement", "poisson"])
def test_batches_are_the_system_s(given, answer, monkeypatch, sampling):
    def risk(seed, run):
        monkeypatch.setattr(noise_module, "_SYSTEM", Words(seed))
        return run()["consensus"]

    more = {"batch_size": 30, "sampling": sampling}
    options = ["--nodes", 3, "--batch-size", 30, "--sampling", sampling, "--runs", 2]
    said = risk(5, lambda: answer(*given, *options)["risk"])
    again = risk(5, lambda: simulate(*built_from(given, nodes=3, **more), runs=2).risk())
    other = risk(6, lambda: simulate(*built_from(given, nodes=3, **more), runs=2).risk())
    assert said == pytest.approx(again, rel=1e-12)
    assert said != pytest.approx(other, rel=1e-6)


def test_the_stated_sigma_is_what_the_promise_needs(given, answer, cli):
    said = answer(*given, "--nodes", 3)
    mu = math.sqrt(20 * 5) / said["sigma"]
    assert gaussian_delta(mu, 8.0) == pytest.approx(1e-5, rel=1e-5)
    assert said["privacy"]["sigma"] == said["sigma"]
    printed = float(re.search(r"sigma = ([\d.]+)", words(cli(*given, "--nodes", 3)[1]))[1])
    assert said["sigma"] <= printed <= said["sigma"] * 1.0001


# -- what was read off the rows -------------------------------------------------------------------------------------


def test_whatever_tells_of_a_row_is_marked(given, clinic, tmp_path, answer, monkeypatch):
    """Two neighbouring files and one and the same noise: what then differs was read off the rows, or is a model."""

    def run():
        draws = np.random.default_rng(3)
        monkeypatch.setattr(os, "urandom", draws.bytes)
        return answer(*given, "--nodes", 3, "--test-data", clinic, "--yardstick")

    one = run()
    lines = clinic.read_text().splitlines()
    age, smoker, ill, site = lines[5].split(",")
    lines[5] = ",".join([age, smoker, "no" if ill == "yes" else "yes", site])
    clinic.write_text("\n".join(lines) + "\n")
    other = run()
    differs = {name for name in one if one[name] != other[name]} - {"model"}
    assert {"risk", "majority_accuracy", "metrics", "optimum_risk", "test"} <= differs
    assert differs <= set(one["holder_only"]["fields"])
    assert set(one["holder_only"]["fields"]) <= set(one)
    assert ONLY in one["holder_only"]["why"]


def test_files_and_pages_and_tables_say_so(given, tmp_path, cli):
    out = tmp_path / "run"
    _, shown, _ = cli(*given, "--nodes", 3, "--out", out)
    text = words(shown)
    assert text.index("majority") < text.index(ONLY) < text.index("Promised")
    for name in ("history.parquet", "sites.parquet"):
        assert parquet.read_schema(out / name).metadata == {b"holder_only": HOLDER_ONLY.encode()}
    assert json.loads((out / "summary.json").read_text())["holder_only"]["why"] == HOLDER_ONLY
    assert cli("report", out)[0] == 0
    page = (out / "report.html").read_text()
    assert page.count("It is for the holder of the rows only") == 1
    assert page.index("It is for the holder of the rows only") < page.index("accuracy %")
    assert ONLY not in json.dumps(dict(models.load(out / "model.safetensors").provenance))


def test_public_rows_need_no_mark(answer, cli, tmp_path):
    out = tmp_path / "run"
    assert answer("train", *TINY, "--out", out)["holder_only"] is None
    assert not parquet.read_schema(out / "history.parquet").metadata
    assert ONLY not in words(cli("train", *TINY)[1])
    assert cli("report", out)[0] == 0
    assert "keep it to yourself" not in (out / "report.html").read_text()


def test_scores_on_a_file_are_marked_too(given, tmp_path, answer, cli):
    out = tmp_path / "run"
    cli(*given, "--nodes", 3, "--out", out)
    said = answer("evaluate", out / "model.safetensors", given[2])
    assert said["holder_only"]["why"] == HOLDER_ONLY
    assert {"risk", "accuracy", "majority", "confusion"} <= set(said["holder_only"]["fields"])


# -- an accepted leak -----------------------------------------------------------------------------------------------


def test_an_accepted_leak_goes_with_the_model(given, tmp_path, cli, answer):
    schema, out = tmp_path / "schema.toml", tmp_path / "run"
    schema.write_text('unreviewed = ["columns.age.bounds"]\n' + schema.read_text())
    with pytest.warns(UserWarning, match="does not cover this"):
        _, shown, _ = cli(*given, "--nodes", 3, "--unreviewed", "accept", "--out", out)
    model = out / "model.safetensors"
    (note,) = models.load(model).privacy.notes
    assert "columns.age.bounds" in note
    assert "The guarantee does not cover this." in note
    assert note in words(shown)
    assert note in words((out / "privacy.txt").read_text())
    assert json.loads((out / "privacy.json").read_text())["notes"] == [note]
    assert models.load(model).provenance["settings"]["unreviewed"] == "accept"
    assert note in words(cli("evaluate", model, given[2])[1])
    assert answer("evaluate", model, given[2])["notes"] == [note]
    assert note in words(cli("predict", model, given[2], "--out", tmp_path / "p.csv")[1])
    assert cli("report", out)[0] == 0
    assert note in words((out / "report.html").read_text())


def test_a_reviewed_schema_leaves_no_note(given, tmp_path, cli):
    out = tmp_path / "run"
    assert "Note:" not in cli(*given, "--nodes", 3, "--out", out)[1]
    assert models.load(out / "model.safetensors").privacy.notes == ()


# -- precision ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "plain", "cuda"])
def test_single_precision_is_refused_before_anything_is_charged(given, tmp_path, cli, answer, device):
    budget = tmp_path / "budget.json"
    cli("budget", "new", budget, "--epsilon", 20)
    code, out, err = cli(*given, "--nodes", 3, "--dtype", "float32", "--device", device, "--budget", budget)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Expected dtype='float64' with private rows, got dtype='float32'" in err
    assert answer("budget", "show", budget)["spent"] == 0


def test_a_device_that_refuses_costs_nothing(given, tmp_path, cli, answer, monkeypatch):
    def refuse(*_):
        raise UnsupportedError("Expected a device that works, got none. Use another.")

    budget = tmp_path / "budget.json"
    cli("budget", "new", budget, "--epsilon", 20)
    monkeypatch.setattr(devices.Cpu, "oracle", refuse)
    code, out, err = cli(*given, "--nodes", 3, "--budget", budget, "--out", tmp_path / "run")
    assert (code, out, err.count("\n"), (tmp_path / "run").exists()) == (2, "", 1, False)
    assert answer("budget", "show", budget)["spent"] == 0


def test_everything_is_made_once(given, tmp_path, cli, monkeypatch):
    made = []
    for kind in (Oracle, TrainConfig):
        check = kind.__post_init__
        monkeypatch.setattr(kind, "__post_init__", lambda self, check=check: (made.append(type(self)), check(self)))
    cli("budget", "new", tmp_path / "budget.json", "--epsilon", 20)
    assert cli(*given, "--nodes", 3, "--budget", tmp_path / "budget.json", "--out", tmp_path / "run")[0] == 0
    assert made == [TrainConfig, CompiledOracle]


def test_a_pure_total_is_counted_and_can_be_read_back(given, clinic, tmp_path, answer):
    """A published rival states delta = 0; ten of its runs cost ten times as much."""
    settings = {"algorithm": "pvp", "form": "published", "rounds": 3, "epsilon": 5.0, "runs": 10, "nodes": 3}
    trained = train(TrainConfig(data=str(clinic), schema=str(tmp_path / "schema.toml"), **settings))
    assert trained.result.privacy.delta == 0
    assert trained.result.privacy.epsilon == pytest.approx(50, rel=1e-6)
    models.save(trained.model(), tmp_path / "model.safetensors")
    assert models.load(tmp_path / "model.safetensors").privacy == trained.result.privacy


# -- a disk that fills up -------------------------------------------------------------------------------------------


def test_a_model_that_cannot_be_written_is_printed(given, tmp_path, cli, monkeypatch):
    def no_room(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", no_room)
    code, out, err = cli(*given, "--nodes", 3, "--out", tmp_path / "run")
    assert (code, (tmp_path / "run").exists()) == (2, False)
    assert "No space left on device" in err
    assert "keep what was printed" in err
    printed = json.loads(out)
    model = printed["model"]
    assert len(model["weights"]) == len(model["features"])
    assert printed["privacy"]["epsilon"] <= 8
