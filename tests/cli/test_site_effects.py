"""An effect for each site: in simulations by a column of the file, at real sites by the name that they agreed on."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from helpers.federations import agreement, members
from helpers.network_worlds import MemoryWorld, play
from helpers.site_runs import Federation
from sottovoce.algorithms.squares import LeastSquares
from sottovoce.cli.plan import _shape
from sottovoce.cli.site.files import rows_of, source_of
from sottovoce.errors import InputError
from sottovoce.federation.agreement import toml_file
from sottovoce.federation.site.commitment import commit_file
from sottovoce.files import models
from sottovoce.files.models.from_site import model_of, names_of, statement_of
from sottovoce.files.schema import Schema, files
from sottovoce.problem.problem import encoded

SCHEMA = """
site_effects = true
[label]
column = "cost"
bounds = [-100, 200]
[[columns]]
name = "age"
kind = "numeric"
bounds = [20, 80]
scale = "symmetric"
"""
NAMES = ("berlin", "paris", "rome")
EFFECTS = {"berlin": 0.0, "paris": 30.0, "rome": -20.0}
GIVEN = ("--delta", 1e-6, "--algorithm", "least-squares", "--inference")


@pytest.fixture
def clinics(tmp_path):
    """A file of all sites, and one for each without a column of sites."""
    rng = np.random.default_rng(0)
    rows = [(name, round(float(rng.uniform(20, 80)), 1)) for name in rng.permutation(np.repeat(NAMES, (300, 200, 250)))]
    told = [(name, age, round(40 + 0.5 * age + EFFECTS[name] + float(rng.normal()), 2)) for name, age in rows]

    def write(file, heading, lines):
        with (tmp_path / file).open("w", newline="") as out:
            csv.writer(out).writerows([heading, *lines])

    write("all.csv", ["hospital", "age", "cost"], told)
    for site in NAMES:
        write(f"{site}.csv", ["age", "cost"], [(age, cost) for name, age, cost in told if name == site])
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path, told


def test_without_noise_each_site_has_its_intercept(clinics, answer, cli):
    folder, told = clinics
    data = ("--data", folder / "all.csv", "--schema", folder / "schema.toml", "--site-column", "hospital")
    out = folder / "run"
    answer("train", *data, *GIVEN, "--epsilon", "inf", "--force", "--lam", 0, "--out", out)
    design = np.array([[age, name == "paris", name == "rome", 1.0] for name, age, _ in told])
    usual, *_ = np.linalg.lstsq(design, np.array([cost for *_, cost in told]), rcond=None)
    lines = answer("coefficients", out / "model.safetensors")["lines"]
    found = {line["name"]: line["estimate"] for line in lines}
    names = ["age", "hospital=paris", "hospital=rome", "intercept"]
    assert found == pytest.approx(dict(zip(names, usual, strict=True)), rel=1e-5)
    # A new row needs the name of its site, and one of another site is refused.
    answer("predict", out / "model.safetensors", folder / "all.csv", "--out", folder / "p.csv")
    with (folder / "p.csv").open(newline="") as file:
        predicted = [float(line["prediction"]) for line in csv.DictReader(file)]
    np.testing.assert_allclose(predicted, design @ usual, rtol=1e-5)
    (folder / "new.csv").write_text("hospital,age\nlyon,50\n")
    code, _, err = cli("predict", out / "model.safetensors", folder / "new.csv", "--out", folder / "q.csv")
    assert code == 2
    assert "one of the categories berlin, paris, rome" in " ".join(err.split())
    assert "has an effect of its own" in models.load(out / "model.safetensors").privacy.prose()


def test_sites_that_nobody_names_are_refused_and_nothing_is_charged(clinics, cli):
    folder, _ = clinics
    assert cli("budget", "new", folder / "b.json", "--epsilon", 20, "--delta", 1e-4)[0] == 0
    data = ("--data", folder / "all.csv", "--schema", folder / "schema.toml", "--budget", folder / "b.json")
    code, _, err = cli("train", *data, "--nodes", 3, *GIVEN, "--epsilon", 1)
    assert code == 2
    assert "the names of the sites where site_effects = true" in " ".join(err.split())
    assert json.loads(cli("budget", "show", folder / "b.json", "--json")[1])["spent"] == 0


def test_a_site_encodes_its_rows_as_the_simulation_of_all_does(clinics):
    folder, _ = clinics
    schema = Schema.loads(SCHEMA)
    at_sites, together = schema.at_sites(NAMES), schema.at_sites(NAMES, "hospital")
    whole, owners = files.encode_by_site(folder / "all.csv", together, "hospital")
    for site in NAMES:
        own = encoded(folder / f"{site}.csv", at_sites, site=site)[0].features
        np.testing.assert_array_equal(own.toarray(), whole.features[np.flatnonzero(owners == site)].toarray())
        assert np.linalg.norm(own.toarray(), axis=1).max() <= at_sites.data_norm
    with pytest.raises(InputError, match="a column 'site' in file"):
        encoded(folder / "rome.csv", at_sites)


def test_an_agreement_names_the_sites_and_its_model_their_effects(clinics, cli, monkeypatch):
    folder, _ = clinics
    monkeypatch.chdir(folder)
    keys, _ = members(NAMES, (300, 200, 250))
    sites = [part for name, rows in zip(NAMES, (300, 200, 250), strict=True)
             for part in ("--site", f"{name}={keys[name].public}:{rows}")]  # fmt: skip
    given = ("--schema", "schema.toml", "--epsilon", 2, "--delta", 1e-5, "--loss", "huber", "--algorithm", "ipadmm",
             "--diameter", 10, "--local-steps", 2, "--rounds", 3, "--rho", 0.01, "--graph", "complete")  # fmt: skip
    code, _, err = cli("federation", "new", *sites, *given, "--out", "f.toml")
    assert code == 0, err
    agreed = toml_file.load(folder / "f.toml")
    assert agreed.features == 4
    assert names_of(agreed) == ("age", "site=paris", "site=rome", "intercept")
    assert "has an effect of its own" in statement_of(agreed, "rome").prose()
    rows = rows_of(agreed, folder / "paris.csv", site="paris").rows.block(0, 200).toarray()
    assert (rows[:, 1] > 0).all()
    assert (rows[:, 2] == 0).all()


def test_a_site_commits_to_its_file_before_anyone_names_the_sites(clinics, cli):
    folder, _ = clinics
    salt, given = folder / "salt", ("--data", folder / "rome.csv", "--schema", folder / "schema.toml")
    code, said, err = cli("site", "commit", *given, "--salt", salt)
    assert code == 0, err
    assert "250 rows" in err
    assert said.strip() == commit_file(salt.read_bytes(), source_of(folder / "rome.csv", None))


def test_real_sites_learn_their_effects_from_files_that_do_not_name_them(clinics):
    folder, _ = clinics
    schema = Schema.loads(SCHEMA).at_sites(NAMES)
    terms = {"epsilon": 20.0, "delta": 1e-5, "colluding": 1, "least_sites": 3, "rounds": 4, "inference": True}
    federation = Federation(sv.graphs.complete(3), (300, 200, 250), LeastSquares(**terms), d=schema.d, names=NAMES,
                            cap=50.0, schema=schema.dumps())  # fmt: skip
    rows = [encoded(folder / f"{site}.csv", schema, site=site)[0] for site in NAMES]
    federation.features = [own.features for own in rows]
    federation.labels = [own.labels for own in rows]
    federation.commit_rows()
    with federation:
        ends = play(federation.finish(MemoryWorld()))
    end = ends["rome"]
    model = model_of(federation.agreement, "rome", end.model, end.absent, evidence=end.evidence)
    told = {line.name: line for line in model.inference.lines}
    assert told["site=paris"].estimate == pytest.approx(EFFECTS["paris"], abs=2)
    assert told["site=rome"].estimate == pytest.approx(EFFECTS["rome"], abs=2)
    assert told["age"].estimate == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (Schema.loads(SCHEMA), "berlin, paris, rome, got none named"),
        (
            Schema.loads(SCHEMA).at_sites(("berlin", "paris", "lyon")),
            "berlin, paris, rome, got berlin, lyon, paris.*= true",
        ),
    ],
)
def test_effects_of_other_sites_than_those_that_agree_are_refused(schema, said):
    number = replace(schema, label=Schema.loads(SCHEMA.replace("bounds = [-100, 200]", 'classes = ["a", "b"]')).label)
    with pytest.raises(InputError, match=f"site_effects of the sites {said}"):
        agreement(features=number.d, schema=number.dumps())


def test_plans_count_the_effects(clinics):
    folder, _ = clinics
    shape = _shape(None, folder / "schema.toml", None, 4)
    assert (shape.d, shape.data_norm) == (5, 1.0)


def test_a_description_has_no_effects_to_tell_of(clinics):
    folder, _ = clinics
    found = sv.describe(folder / "all.csv", Schema.loads(SCHEMA), epsilon=1.0, delta=1e-5)
    assert [column.name for column in found.columns] == ["age", "cost"]
    assert "has an effect of its own" not in found.privacy.prose()


def test_what_site_effects_may_be():
    schema = Schema.loads(SCHEMA)
    assert Schema.loads(SCHEMA.replace("site_effects = true\n", "site_effects = false\n")).digest() == (
        Schema.loads(SCHEMA.replace("site_effects = true\n", "")).digest()
    )
    named = schema.at_sites(NAMES)
    assert Schema.loads(named.dumps()) == named
    assert named.at_sites(("x", "y")) == named
    assert len({schema.digest(), named.digest(), replace(named, site_effects=None).digest()}) == 3
    with pytest.raises(InputError, match="two sites or more"):
        schema.at_sites(["berlin"])
    for column in ("age", "city"):
        with pytest.raises(InputError, match="a categorical column whose categories are the sites"):
            Schema.loads(SCHEMA.replace("true", f'"{column}"'))
