"""Weights and exposures at real sites: agreed on by column and bound, refused before anything is said, and in the
numbers that a site sends and binds itself to.
"""

import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sottovoce as sv
from federation.test_summing import SIZES, D, Sums, assert_same, run, simulated
from helpers.federations import agreement, masked_agreement
from sottovoce.cli import main
from sottovoce.cli.agreement import _lines
from sottovoce.cli.demo import processes
from sottovoce.cli.site import files
from sottovoce.errors import InputError
from sottovoce.federation.agreement import toml_file
from sottovoce.federation.site.commitment import rows_digest
from sottovoce.files.models.from_site import model_of, statement_of
from sottovoce.files.schema import Schema
from sottovoce.problem.factors import Factors

COLUMNS = "".join(
    f'[[columns]]\nname = "x{i}"\nkind = "numeric"\nbounds = [0, 1]\nscale = "unit"\n' for i in range(D - 1)
)
WEIGHT = '[weight]\ncolumn = "w"\nbound = 4\n'
CLASSES = Schema.loads(f'[label]\ncolumn = "y"\nclasses = ["a", "b"]\n{WEIGHT}{COLUMNS}').dumps()
COUNTS = Schema.loads(
    f'[label]\ncolumn = "y"\nbounds = [0, 9]\ncounts = true\n{WEIGHT}[exposure]\ncolumn = "e"\nbound = 2\n{COLUMNS}'
).dumps()


def factors(seed=0, exposed=False):
    rng = np.random.default_rng(seed)
    return [
        Factors.of(
            weights=rng.uniform(0.1, 4, m), weight_bound=4.0, exposures=rng.uniform(0.1, 2, m) if exposed else None,
            exposure_bound=2.0,
        )
        for m in SIZES
    ]  # fmt: skip


@pytest.mark.parametrize("counts", [False, True])
def test_all_sites_end_with_the_model_of_a_simulation_with_the_same_noise(counts):
    own = factors(exposed=counts)
    terms = {"rounds": 5, "epsilon": 20.0} | ({"loss": sv.losses.Poisson(), "evaluate": 0.2} if counts else {})
    terms |= {"rounds": 7} if counts else {}
    sums = Sums(terms, factors=own, schema=COUNTS if counts else CLASSES)
    run(sums)
    assert_same(sums.session.values())
    algorithm = sums.agreement.algorithm
    oracle = algorithm.oracle(sv.Sites(sums.features, sums.labels, factors=own), sv.graphs.complete(5))
    alike = algorithm.oracle(sv.Sites(sums.features, sums.labels, factors=factors(1, counts)), sv.graphs.complete(5))
    session, _ = simulated(sums, oracle)
    np.testing.assert_allclose(session.answer.last, sums.model(), rtol=1e-6, atol=1e-6)
    with pytest.raises(AssertionError):
        simulated(sums, alike)  # it asks elsewhere
    model = model_of(sums.agreement, "rome", sums.model()[:, 0], {})
    assert model.exposed == counts


def test_they_are_agreed_on_and_read_back_and_shown():
    a = masked_agreement(schema=COUNTS, features=D, algorithm={"loss": sv.losses.Poisson()})
    assert toml_file.loads(toml_file.dumps(a)) == a
    other = replace(a, schema=COUNTS.replace("bound = 4", "bound = 5"))
    assert a.digest() != other.digest()
    shown = " ".join(_lines(a, statement_of(a, "berlin")))
    assert "Column 'w' has the weight of every row" in shown
    assert "above 0 and at most 2" in shown


def test_the_price_is_that_of_rows_without_weights():
    a, plain = masked_agreement(schema=CLASSES, features=D), masked_agreement(features=D)
    told = [x.algorithm.statement(x.public_oracle("berlin")) for x in (a, plain)]
    assert told[0] == told[1]


def test_a_file_with_a_weight_beyond_what_was_agreed_is_refused_before_anything_is_said(tmp_path):
    a = agreement(schema=CLASSES, features=D)
    names = [f"x{i}" for i in range(D - 1)]
    path = tmp_path / "rows.csv"

    def write(weight):
        lines = [",".join([*names, "y", "w"]), *(",".join(["0.5"] * (D - 1) + ["a", weight]) for _ in range(30))]
        path.write_text("\n".join(lines) + "\n")
        return path

    a.oracle_for("berlin", files.rows_of(a, write("4")))
    for bad in ("4.5", "0", "-2", "", "nan"):
        with pytest.raises(InputError, match="Expected a number above 0 and at most 4 in row 1, column 'w'"):
            files.rows_of(a, write(bad))


def test_rows_that_do_not_bring_what_was_agreed_are_not_taken():
    a = agreement(schema=CLASSES, features=D)
    bare = sv.Sites([np.zeros((30, D))], [np.ones(30)], data_norm=a.data_norm)
    with pytest.raises(InputError, match=r"rows with \('weights',\), as agreed, got told=\(\)"):
        a.oracle_for("berlin", bare)
    weighed = sv.Sites([np.zeros((30, D))], [np.ones(30)], data_norm=a.data_norm, factors=[Factors(np.ones(30))])
    a.oracle_for("berlin", weighed)
    with pytest.raises(InputError, match="rows with no weights, as agreed"):
        agreement(features=D).oracle_for("berlin", weighed)


def test_a_site_is_bound_to_its_weights():
    held = [sv.Sites([np.zeros((3, 2))], [np.ones(3)], factors=[f]) for f in (
        Factors(), Factors(np.ones(3)), Factors(np.array([1, 1, 0.5])), Factors(None, np.zeros(3)))]  # fmt: skip
    assert len({rows_digest(rows) for rows in held}) == 4


def test_standard_errors_are_not_agreed_on_with_weights():
    with pytest.raises(InputError, match=r"for inference, got one in which rows count by 'w'.*take \[weight\] out"):
        masked_agreement(schema=CLASSES, features=D, algorithm={"inference": True, "rounds": 6})


def test_by_the_commands_that_people_type(tmp_path, monkeypatch, capsys):
    """Three sites with files, weights, exposures and held-out rows, from keys to one model and one evaluation."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    names, rng = ("berlin", "oslo", "rome"), np.random.default_rng(2)
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(COUNTS)
    given = ["--algorithm=masked", "--colluding=1", "--rounds=7", "--epsilon=4", "--delta=1e-4", "--schema=schema.toml",
             "--policy=stop", "--wait-seconds=60", "--evaluate=0.3", "--hold-out=4"]  # fmt: skip
    with processes.Programs() as programs:
        for name in names:
            lines = [",".join([*(f"x{i}" for i in range(D - 1)), "y", "w", "e"])]
            for _ in range(50):
                cells = [*rng.uniform(0, 1, D - 1), rng.integers(0, 9), rng.uniform(0.1, 4), rng.uniform(0.1, 2)]
                lines.append(",".join(f"{float(cell):.3f}" for cell in cells))
            Path(f"{name}.csv").write_text("\n".join(lines) + "\n")
            assert main(["site", "keygen", name]) == main(["site", "seed", name, f"--key={name}.signing.pem"]) == 0
            capsys.readouterr()
            assert main(["site", "commit", f"--data={name}.csv", f"--salt={name}.salt", "--schema=schema.toml"]) == 0
            commitment = capsys.readouterr().out.strip()
            given += [f"--site={name}={name}.pub:50:{commitment}", f"--mask-key={name}={name}.mask"]
        assert main(["federation", "new", *given]) == 0, capsys.readouterr().err
        for name in names:
            sign = ["federation", "sign", "federation.toml", f"--site={name}", f"--key={name}.signing.pem"]
            assert main(sign) == 0
        assert main(["federation", "show", "federation.toml"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "Column 'e' has the exposure of every row" in shown
        assert "one of every 4 rows of each site, chosen at random" in shown
        assert main(["federation", "certificates", "federation.toml", "--host=127.0.0.1"]) == 0
        assert main(["federation", "server-config", "federation.toml", "--host=127.0.0.1", f"--port={port}"]) == 0
        programs.start("server", [processes.server_program(), "--config", "nats.conf"], tmp_path / "server.log")
        url = f"--server=tls://127.0.0.1:{port}"
        assert main(["federation", "open", "--federation=federation.toml", url]) == 0

        def run_site(name, data):
            return main(["site", "run", "--quiet", "--federation=federation.toml", f"--site={name}", url,
                         f"--key={name}.signing.pem", f"--data={data}", f"--state={name}-state", "--cap-epsilon=5",
                         "--cap-delta=1e-3", "--certificates=certificates", f"--salt={name}.salt",
                         f"--seed={name}.seed"])  # fmt: skip

        head, first, *rest = Path("rome.csv").read_text().splitlines()
        Path("heavy.csv").write_text("\n".join([head, first.rpartition(",")[0].rpartition(",")[0] + ",5,1", *rest]))
        assert run_site("rome", "heavy.csv") == 2
        assert "at most 4 in row 1, column 'w'" in " ".join(capsys.readouterr().err.split())
        with ThreadPoolExecutor(3) as pool:
            codes = list(pool.map(lambda name: run_site(name, f"{name}.csv"), names))
    assert codes == [0, 0, 0]
    agreement_ = toml_file.load(Path("federation.toml"))
    made = [sv.models.load(Path(f"{name}-state") / agreement_.run / "model.safetensors") for name in names]
    assert all(np.array_equal(one.weights, made[0].weights) for one in made)
    assert made[0].exposed
    told = {(Path(f"{name}-state") / agreement_.run / "evaluation.json").read_bytes() for name in names}
    assert len(told) == 1
    assert b'"rows": 36' in told.pop()
