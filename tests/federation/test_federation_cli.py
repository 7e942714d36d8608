"""From keys to a running server, by the commands that people type."""

import tracemalloc
from importlib import import_module
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from helpers.federations import MessageServer
from sottovoce.cli.federation import federation_app
from sottovoce.cli.site.keys import site_keygen
from sottovoce.errors import InputError, SottovoceError
from sottovoce.federation.agreement import signing, toml_file
from sottovoce.federation.agreement.identity import PublicKey, SigningKey

SITES = ["--site", "berlin=berlin.pub:300", "--site", "paris=paris.pub:200", "--site", "rome=rome.pub:250"]
PRIVACY = ["--epsilon", "1", "--delta", "1e-5"]
STEPS = ["--rounds", "5", "--local-steps", "2", "--rho", "0.01", "--diameter", "20"]
ARRAYS = ["--features", "5", "--data-norm", "1"]
ENOUGH = [*SITES, *PRIVACY, *STEPS, *ARRAYS, "--graph", "ring"]
SCHEMA = """
version = 1
[label]
column = "kind"
classes = ["a", "b", "c"]
[[columns]]
name = "age"
kind = "numeric"
bounds = [0, 100]
scale = "unit"
"""

app = typer.Typer()
app.add_typer(federation_app, name="federation")
site_app = typer.Typer()
site_app.command("keygen")(site_keygen)


@site_app.callback()
def _site():
    """A group, so that keygen keeps its name."""


app.add_typer(site_app, name="site")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in a fresh folder with the keys of three sites; errors come out as they were raised."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*argv):
        result = CliRunner().invoke(app, [str(part) for part in argv])
        if isinstance(result.exception, Exception):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    for site in ("berlin", "paris", "rome"):
        run("site", "keygen", site)
    return run


def test_keygen(run, tmp_path):
    said = run("site", "keygen", "oslo", "--out", tmp_path)
    key = SigningKey.load(tmp_path / "oslo.signing.pem")
    assert PublicKey.load(tmp_path / "oslo.pub") == key.public
    assert key.public.fingerprint in said
    for name, message in (("oslo", "Expected no key of oslo yet"), ("Oslo", "a site's name")):
        with pytest.raises(SottovoceError, match=message):
            run("site", "keygen", name)
    assert SigningKey.load(tmp_path / "oslo.signing.pem").public == key.public


def test_reading_an_agreement_costs_the_same_however_many_rows_there_are(run, tmp_path):
    """What an agreement says follows from the numbers of rows: no row is made up for it."""
    sites = [part.replace(".pub:", ".pub:99999") for part in SITES]
    run("federation", "new", *sites, *PRIVACY, *STEPS, *ARRAYS, "--graph", "ring", "--policy", "stop")
    run("federation", "show", "federation.toml")  # what is imported is not counted below
    tracemalloc.start()
    try:
        told = run("federation", "show", "federation.toml")
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert "99999300" in told


def test_all_the_way_to_a_server(run, tmp_path):
    run("federation", "new", *ENOUGH, "--name", "Heart study", "--policy", "stop", "--wait-seconds", "60")
    agreement = toml_file.load(tmp_path / "federation.toml")
    assert agreement.names == ("berlin", "paris", "rome")
    assert len(agreement.edges) == 3
    assert (agreement.algorithm.rounds, agreement.algorithm.epsilon, agreement.features) == (5, 1.0, 5)

    told = run("federation", "show", "federation.toml")
    assert "Not agreed yet: berlin, paris, rome." in told
    for site in ("berlin", "paris", "rome"):
        run("federation", "sign", "federation.toml", "--site", site, "--key", f"{site}.signing.pem")
    signing.verify_signatures(agreement, tmp_path / "federation.toml")
    told = run("federation", "show", "federation.toml")
    assert "All sites have signed exactly this." in told
    for fact in ("Heart study", agreement.run, agreement.digest().hex(), "epsilon = 1, delta = 1e-05", "300", "signed"):
        assert fact in told
    assert "in each of 5 rounds, the average of 2 noisy local models" in told
    assert agreement.member("rome").public_key.fingerprint in told

    run("federation", "certificates", "federation.toml")
    run("federation", "server-config", "federation.toml", "--host", "127.0.0.1", "--port", "4999")
    config = (tmp_path / "nats.conf").read_text()
    # The port is taken from what is free, the rest is as written.
    free = config.replace("port: 4999", f'port: -1\nports_file_dir: "{tmp_path}"')
    assert free != config
    with MessageServer(tmp_path, free) as server:
        assert server.port > 0


def test_a_draft_says_the_same_and_options_win(run, tmp_path):
    (tmp_path / "draft.toml").write_text(
        'site = ["berlin=berlin.pub:300", "paris=paris.pub:200"]\nedge = ["berlin:paris"]\nfeatures = 5\n'
        'data-norm = 1\nepsilon = 1\ndelta = 1e-5\nalgorithm = "dp-dsgd"\nrounds = 7\ndiameter = 3\n'
    )
    run("federation", "new", "--draft", "draft.toml", "--epsilon", "0.5", "--out", "a.toml")
    algorithm = toml_file.load(tmp_path / "a.toml").algorithm
    assert (type(algorithm).__name__, algorithm.epsilon, algorithm.rounds) == ("DPDSGD", 0.5, 7)
    assert algorithm.largest_degree == 1
    (tmp_path / "draft.toml").write_text("epsilom = 1\n")
    with pytest.raises(SottovoceError, match="settings of a draft, got 'epsilom'"):
        run("federation", "new", "--draft", "draft.toml")


def test_a_schema_decides_shape_and_loss(run, tmp_path):
    (tmp_path / "schema.toml").write_text(SCHEMA)
    run("federation", "new", *SITES, *PRIVACY, *STEPS, "--graph", "star", "--schema", "schema.toml")
    agreement = toml_file.load(tmp_path / "federation.toml")
    assert (agreement.features, agreement.data_norm, agreement.algorithm.loss.name) == (2, 1.0, "softmax")
    assert agreement.encoding.classes == ("a", "b", "c")
    assert "schema" in run("federation", "show", "federation.toml")


@pytest.mark.parametrize(
    ("label", "loss", "message"),
    [
        ('classes = ["a", "b"]', "huber", "for a label of two classes, got loss='huber'"),
        ('classes = ["a", "b"]', "softmax", "for a label of two classes, got loss='softmax'"),
        ('classes = ["a", "b", "c"]', "huber", "loss='softmax' for 3 classes, got loss='huber'"),
        ("bounds = [0, 1]", "logistic", "for a label that is a number, got loss='logistic'"),
        ("bounds = [0, 1]", "poisson", "a label that counts for loss='poisson', got a number"),
        ("bounds = [0, 9]\ncounts = true", "huber", "for a label that counts, got loss='huber'"),
    ],
)
def test_a_draft_refuses_a_loss_that_does_not_go_with_its_schema(run, tmp_path, label, loss, message):
    (tmp_path / "schema.toml").write_text(SCHEMA.replace('classes = ["a", "b", "c"]', label))
    argv = [*SITES, *PRIVACY, *STEPS, "--graph", "star", "--schema", "schema.toml", "--loss", loss]
    with pytest.raises(SottovoceError, match=message):
        run("federation", "new", *argv)


def test_settings_of_ipadmm_choose_it_and_that_is_said(run, tmp_path):
    said = run("federation", "new", *ENOUGH)
    assert (
        "Algorithm: ipadmm, not masked sums, the default: not every two sites exchange messages (graph=ring)." in said
    )
    said = run("federation", "new", *ENOUGH[: ENOUGH.index("--graph")], "--graph", "complete", "--out", "whole.toml")
    assert "not masked sums, the default: local_steps, rho and diameter are settings of ipadmm." in said
    assert "Algorithm:" not in run("federation", "new", *ENOUGH, "--algorithm", "ipadmm", "--out", "named.toml")


def test_what_the_schema_supplies_is_planned_with(run, tmp_path, monkeypatch):
    asked = {}

    def plan(**public):
        asked.update(public)
        return SimpleNamespace(
            settings={"rounds": 3, "local_steps": 2, "rho": 1.0, "diameter": 7.0, "weights": "rows", "moments": 0.0}
        )

    monkeypatch.setattr(import_module("sottovoce.plan"), "plan", plan)
    (tmp_path / "schema.toml").write_text(SCHEMA + "[supplied]\nbase_rate = [0.5, 0.3, 0.2]\n")
    run("federation", "new", *SITES, *PRIVACY, "--graph", "star", "--schema", "schema.toml")
    assert asked["base_rate"] == (0.5, 0.3, 0.2)


def test_what_is_not_given_is_planned(run, tmp_path, monkeypatch):
    asked = {}

    def plan(**public):
        asked.update(public)
        planned = {
            "rounds": 9,
            "local_steps": 3,
            "rho": 0.5,
            "diameter": 7.0,
            "lam": 1.0,
            "weights": "rows",
            "moments": 0.1,
        }
        return SimpleNamespace(settings=planned)

    monkeypatch.setattr(import_module("sottovoce.plan"), "plan", plan)
    new = ["federation", "new", *SITES, *PRIVACY, *ARRAYS, "--rounds", "9", "--lam", "0.3"]
    run(*new, "--graph", "complete", "--algorithm", "ipadmm")
    algorithm = toml_file.load(tmp_path / "federation.toml").algorithm
    assert (algorithm.rounds, algorithm.local_steps, algorithm.rho, algorithm.diameter) == (9, 3, 0.5, 7.0)
    assert (algorithm.weights, algorithm.moments) == ("rows", 0.1)
    assert (algorithm.lam, asked["lam"], asked["fixed"]) == (0.3, 0.3, {"sensitivity": "plain", "rounds": 9})
    assert (asked["sizes"], asked["d"], list(asked["graph"].degrees)) == ([300, 200, 250], 5, [2, 2, 2])
    # Sites that may be lost in the first exchange could not begin together.
    with pytest.raises(InputError, match="go_on_after_round >= 1 with moments"):
        run(*new, "--graph", "complete", "--algorithm", "ipadmm", "--policy", "go-on", "--go-on-after-round", "0",
            "--out", "other.toml")  # fmt: skip
    assert asked["fixed"]["moments"] == 0.0


def test_a_head_start_is_planned_by_the_rule_of_train(run, tmp_path):
    many = [text.replace(":", ":100") for text in SITES]
    steps = ["--rounds", "9", "--local-steps", "1", "--rho", "0.01"]
    for graph, moments in (("complete", 0.1), ("path", 0.0)):
        run("federation", "new", *many, *PRIVACY, *steps, *ARRAYS, "--graph", graph, "--algorithm", "ipadmm",
            "--out", f"{graph}.toml")  # fmt: skip
        planned = toml_file.load(tmp_path / f"{graph}.toml").algorithm
        assert (planned.moments, planned.sensitivity) == (moments, "plain")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*SITES, *STEPS, *ARRAYS, "--graph", "ring"], "Expected --epsilon: people must decide how much privacy"),
        ([*SITES, *PRIVACY, *STEPS, *ARRAYS], r"either --graph or --edge, got graph=None, edges=0\. Graphs: complete"),
        ([*ENOUGH, "--edge", "berlin:rome"], "either --graph or --edge, got graph='ring', edges=1"),
        ([*SITES, *PRIVACY, *STEPS, *ARRAYS, "--edge", "berlin"], "--edge as a pair of sites"),
        ([*SITES, *PRIVACY, *STEPS, *ARRAYS, "--edge", "berlin:oslo"], "edges between sites of this federation"),
        ([*SITES, *PRIVACY, *STEPS, "--graph", "ring"], "or else --features and --data-norm, got no features"),
        ([*ENOUGH, "--site", "oslo=berlin.pub"], "Expected --site NAME=PUBLIC_KEY_FILE:ROWS"),
        ([*ENOUGH, "--site", "oslo=berlin.pub:7"], "got one key for berlin, oslo"),
        ([*ENOUGH, "--epsilon", "much"], "a number for --epsilon, got 'much'"),
        ([*ENOUGH, "--algorithm", "pvp"], "its noise has no exact discrete form here"),
        ([*ENOUGH, "--algorithm", "dpadmm"], "settings of algorithm='dpadmm', got local_steps=2. Leave it out"),
        ([*ENOUGH, "--sampling", "poisson"], "a batch_size with sampling='poisson'"),
        ([*ENOUGH, "--policy", "go-on", "--go-on-after-round", "5"], "go_on_after_round < rounds=5"),
        ([*ENOUGH, "--loss", "softmax"], "--schema with --loss softmax"),
        ([*ENOUGH, "--data-norm", "inf"], "a finite number for data_norm"),
    ],
)  # fmt: skip
def test_odd_wishes_are_refused_and_nothing_is_written(run, tmp_path, argv, message):
    with pytest.raises(SottovoceError, match=message):
        run("federation", "new", *argv)
    assert not (tmp_path / "federation.toml").exists()


def test_files_are_never_replaced(run, tmp_path):
    run("federation", "new", *ENOUGH)
    run("federation", "certificates", "federation.toml", "--host", "nats.example.org")
    run("federation", "server-config", "federation.toml", "--identity", "berlin=data@berlin.example")
    assert 'user: "data@berlin.example"' in (tmp_path / "nats.conf").read_text()
    sign = ["sign", "federation.toml", "--site", "rome", "--key", "rome.signing.pem"]
    run("federation", *sign)
    for again in (["new", *ENOUGH], ["certificates", "federation.toml"], ["server-config", "federation.toml"], sign):
        with pytest.raises(SottovoceError, match="a file that does not exist yet"):
            run("federation", *again)
    with pytest.raises(SottovoceError, match="Expected --identity NAME=TEXT"):
        run("federation", "server-config", "federation.toml", "--identity", "berlin", "--out", "other.conf")
    with pytest.raises(SottovoceError, match="the key of site rome with fingerprint"):
        run("federation", "sign", "federation.toml", "--site", "rome", "--key", "paris.signing.pem")
