"""Weights and exposures at real sites: agreed on by column and bound, refused before anything is said, and in the
numbers that a site sends and binds itself to.
"""

from dataclasses import replace

import numpy as np
import pytest

import sottovoce as sv
from federation.test_summing import SIZES, D, Sums, assert_same, run
from helpers.federations import agreement, masked_agreement
from sottovoce.cli.federation_view import _lines
from sottovoce.cli.site import files
from sottovoce.errors import InputError
from sottovoce.federation.agreement import signing
from sottovoce.federation.site.commitment import rows_digest
from sottovoce.federation.site.summing import _Everyone
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
    assert_same(sums.state.values())
    algorithm = replace(sums.agreement.algorithm, total_rows=None)
    oracle = algorithm.oracle(sv.Sites(sums.features, sums.labels, factors=own), sv.graphs.complete(5))
    alike = algorithm.oracle(sv.Sites(sums.features, sums.labels, factors=factors(1, counts)), sv.graphs.complete(5))
    for held, same in ((oracle, True), (alike, False)):
        state = algorithm.start(held, 1)
        for q, noise in enumerate(sums.noise, 1):
            total = algorithm.exact(q, state, held) + noise.reshape(1, -1, 1)
            state = algorithm.absorb(q, state, held, _Everyone(total))
        assert np.allclose(state.w, sums.state["rome"].w, rtol=1e-6, atol=1e-6) == same
    model = model_of(sums.agreement, "rome", sums.state["rome"].w[0, :, 0], {})
    assert model.exposed == counts


def test_they_are_agreed_on_and_read_back_and_shown():
    a = masked_agreement(schema=COUNTS, features=D, algorithm={"loss": sv.losses.Poisson()})
    assert signing.loads(signing.dumps(a)) == a
    other = replace(a, schema=COUNTS.replace("bound = 4", "bound = 5"))
    assert a.digest() != other.digest()
    shown = " ".join(_lines(a, statement_of(a, "berlin")))
    assert "Weights: column 'w' says how much a row counts" in shown
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
    with pytest.raises(InputError, match=r"count alike with inference, got weight.column='w'.*Leave inference or"):
        masked_agreement(schema=CLASSES, features=D, algorithm={"inference": True, "rounds": 6})
