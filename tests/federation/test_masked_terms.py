"""Agreements on masked sums: what they rest on is written down, shown before anyone signs, and checked."""

import re
from contextlib import nullcontext
from dataclasses import fields, replace
from math import inf, isinf

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import sottovoce as sv
from helpers.federations import agreement, masked_agreement, masked_members, members
from helpers.site_runs import FIVE
from sottovoce.algorithms.analysis import MOST_NUMBERS
from sottovoce.cli import main
from sottovoce.cli.federation import federation_app
from sottovoce.errors import InputError, PrivacyError, SottovoceError
from sottovoce.federation.agreement import toml_file
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.agreement.checks import MOST_SITES
from sottovoce.federation.agreement.exchange import MaskKey, Seed
from sottovoce.federation.operator import server
from sottovoce.federation.site.letters import sum_size
from sottovoce.federation.transport.wire import LONGEST_PAYLOAD, MOST_NUMBER, Kind, Slot, sealed_size
from sottovoce.files.models.from_site import statement_of
from sottovoce.privacy.accounting.discrete import shared_delta
from sottovoce.privacy.observers import seen
from sottovoce.settings import plain

GO_ON = LostNeighbour(policy="go-on", wait_seconds=60, go_on_after_round=0)
FIVE_SITES = masked_members(FIVE, (30, 20, 25, 40, 10))[2]
SPARING = {"colluding": 1, "least_sites": 4, "spare": 2}


# -- one content ------------------------------------------------------------------------------------------------------


def test_a_file_holds_all_of_it():
    a = masked_agreement(FIVE_SITES, algorithm=SPARING | {"worst_case_epsilon": 4.0}, lost_neighbour=GO_ON)
    text = toml_file.dumps(a)
    assert toml_file.loads(text) == a
    assert toml_file.loads(text).digest() == a.digest()
    assert "[messages]" not in text
    for line in ("colluding = 1", "least_sites = 4", "spare = 2", "worst_case_epsilon = 4.0"):
        assert line in text


def test_everything_that_the_promise_rests_on_changes_the_digest():
    a = masked_agreement(FIVE_SITES, algorithm=SPARING, run="ab" * 16, lost_neighbour=GO_ON)
    values = {
        "rounds": 5, "lam": 0.2, "loss": sv.losses.SmoothedHinge(), "max_grad_norm": 1.0, "epsilon": 2.0,
        "delta": 1e-6, "colluding": 2, "spare": 3, "worst_case_epsilon": 3.0, "inference": True,
        "evaluate": 0.1,
    }  # fmt: skip
    # Held-out rows: tests/algorithms/test_held_out.py.
    fixed = {"regulariser", "calibration", "weights", "least_sites", "hold_out", "focus", "division"}
    assert set(values) | fixed == {f.name for f in fields(sv.MaskedNewton)}
    variants = [replace(a, algorithm=replace(a.algorithm, **{key: value})) for key, value in values.items()]
    digests = {a.digest(), *(variant.digest() for variant in variants)}
    inferring = {"inference": True, "rounds": 9}
    for listed in ({}, {"focus": (0,)}, {"focus": (1, 0)}, {"division": (0.1, 0.2, 0.3, 0.4)}):
        variant = replace(a, algorithm=replace(a.algorithm, **inferring, **listed))
        assert toml_file.loads(toml_file.dumps(variant)) == variant
        digests.add(variant.digest())
    assert len(digests) == 5 + len(variants)


@pytest.fixture(scope="module")
def seven():
    return masked_members([f"site-{i}" for i in range(7)], range(10, 17))[2]


def test_how_many_sites_a_sum_must_hold_changes_the_digest(seven):
    digests = {
        masked_agreement(seven, algorithm={"least_sites": u, "spare": 1}, lost_neighbour=GO_ON, run="cd" * 16).digest()
        for u in (5, 6)
    }
    assert len(digests) == 2


# -- nothing odd gets in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "changes", "message"),
    [
        ({"colluding": None}, {}, "Expected colluding, which must be the same number at all sites"),
        ({"least_sites": None}, {}, "Expected least_sites, which must be"),
        ({"epsilon": inf}, {}, "a finite epsilon at real sites"),
        ({"colluding": 0}, {}, "colluding >= 1 at real sites, got colluding=0"),
        ({"loss": sv.losses.Softmax(40)}, {"features": 10**6}, "at most 8380416 numbers in a message"),
        ({"colluding": 3}, {}, r"colluding < least_sites=3, got colluding=3"),
        ({"least_sites": 4}, {}, "least_sites <= n=3 sites"),
        ({"least_sites": 2, "spare": 1}, {"lost_neighbour": GO_ON}, r"2 least_sites > n \+ colluding = 4, got"),
        ({"spare": 1}, {}, "policy='go-on', spare > 0 and least_sites < 3 together"),
        ({"spare": 1}, {"lost_neighbour": GO_ON}, "together with masked sums, or none of them"),
        ({}, {"lost_neighbour": GO_ON}, "together with masked sums, or none of them"),
        ({}, {"radius": 5.0}, "no radius with masked sums"),
        ({}, {"grid_bits": 31}, "grid_bits=30 with masked sums, got grid_bits=31"),
        ({}, {"edges": (("berlin", "paris"), ("paris", "rome"))}, "a complete graph for masked sums.*edges=2 of 3"),
    ],
)  # fmt: skip
def test_what_would_hide_less_is_refused(algorithm, changes, message):
    with pytest.raises(InputError, match=message):
        masked_agreement(algorithm=algorithm, **changes)


def test_losing_sites_without_an_attempt_to_spare_is_refused(seven):
    with pytest.raises(InputError, match=r"together with masked sums, or none of them, got .*least_sites=5"):
        masked_agreement(seven, algorithm={"least_sites": 5})


def test_an_epsilon_that_no_grid_can_hold_is_refused():
    """Rows of the largest site count, whichever it is."""
    names, rows = ("berlin", "paris", "rome"), (1, 10**8, 1)
    sites = masked_members(names, rows)[2]
    with pytest.raises(PrivacyError, match="Expected noise that a grid of 30 bits can hold, got epsilon=20"):
        masked_agreement(sites, algorithm={"epsilon": 20.0})
    masked_agreement(masked_members(names, (1, 10, 1))[2], algorithm={"epsilon": 20.0})


def test_mask_keys_go_with_masked_sums_and_only_with_them():
    _, _, sites = masked_members()
    with pytest.raises(InputError, match=r"a mask key of every site for masked sums, got none of paris\. Let each"):
        masked_agreement((sites[0], replace(sites[1], mask_key=None), sites[2]))
    with pytest.raises(InputError, match=r"mask keys where sums are masked, and only there, got sites=\['berlin'"):
        agreement(sites)


def test_every_site_commits_to_its_rows():
    """Else a copied seed could speak for two sets of rows under one mask."""
    _, _, sites = masked_members()
    with pytest.raises(InputError, match=r"a data_commitment of every site for masked sums, got none of paris\. Let"):
        masked_agreement((sites[0], replace(sites[1], data_commitment=None), sites[2]))


def test_the_longest_message_that_may_be_agreed_on_is_one_that_a_server_takes():
    """Its heading and its envelope fit beside the numbers, for as many sites as there may be."""
    size = sum_size(MOST_SITES, MOST_NUMBERS)
    longest = Slot(MOST_NUMBER, "x" * 40, Kind.SUM)
    assert size <= LONGEST_PAYLOAD
    assert sealed_size("f" * 32, longest, size) + server._HEADERS <= server._LARGEST_PAYLOAD
    fits = MOST_NUMBERS // 64
    for features, refused in ((fits, False), (fits + 1, True)):
        softmax = {"loss": sv.losses.Softmax(64)}
        with pytest.raises(InputError, match="numbers in a message") if refused else nullcontext():
            assert masked_agreement(features=features, algorithm=softmax).features == features


def test_a_radius_in_the_file_is_refused():
    text = toml_file.dumps(masked_agreement())
    with pytest.raises(InputError, match="a radius of messages in full, and none with masked sums, got radius=5"):
        toml_file.loads(text.replace("[lost_neighbour]", "[messages]\nradius = 5.0\n\n[lost_neighbour]"))


# -- what it costs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("site", FIVE)
def test_the_statement_of_a_site_is_that_of_a_simulation_of_all(site):
    """The same price against every number of colluding sites, whichever site states it."""
    a = masked_agreement(FIVE_SITES, algorithm=SPARING, lost_neighbour=GO_ON)
    said = a.algorithm.statement(a.public_oracle(site))
    whole = sv.Sites([np.zeros((m.rows, 5)) for m in a.sites], [np.ones(m.rows) for m in a.sites])
    simulated = a.algorithm.statement(a.algorithm.oracle(whole, sv.graphs.complete(5)))
    assert said.observers == simulated.observers
    assert (said.epsilon, said.sigma, said.event) == (simulated.epsilon, simulated.sigma, simulated.event)
    assert said.epsilon <= 1.5
    assert not any("simulation" in note for note in said.notes)
    assert any("simulation" in note for note in simulated.notes)


def test_the_grid_is_paid_for_in_every_attempt():
    a = masked_agreement(FIVE_SITES, algorithm=SPARING, lost_neighbour=GO_ON)
    numbers = 15 + 3 * 5  # second moments of five features, and three gradients
    assert a.grid_delta == shared_delta(numbers + 2 * 15, 2.0**30, 3, 1.5)
    assert 0 < a.grid_delta < 1e-9 * a.algorithm.delta


def test_every_line_of_a_site_s_statement_pays_for_its_own_grid():
    a = masked_agreement(FIVE_SITES, algorithm={"epsilon": 4.0, "worst_case_epsilon": 9.0})
    numbers, n = 15 + 3 * 5, 5
    shares = [max(1, n - k) for k in range(n)]
    own = [a.grid_delta_against(k, 7.0) for k in range(n)]
    assert own == [shared_delta(numbers, 2.0**30, m, 7.0) for m in shares]
    assert own[-1] == pytest.approx(4 * own[1], rel=1e-9, abs=0)
    # What is reserved is enough for both promises: that against one colluding site, and that against all others.
    assert (
        a.grid_delta == max(a.grid_delta_against(1, 4.0), a.grid_delta_against(4, 9.0)) > a.grid_delta_against(1, 4.0)
    )
    told = statement_of(a, "rome")
    for line in told.observers:
        left = told.delta - a.grid_delta_against(line.colluding, line.epsilon)
        assert seen(told.event, line.noise, left) <= line.epsilon
    assert told.observers[-1].epsilon <= 9.0


def test_a_line_whose_grid_takes_all_of_delta_promises_nothing():
    """A large epsilon against one share: even 2^30 steps of noise are too coarse for it."""
    a = masked_agreement(FIVE_SITES, algorithm={"epsilon": 30.0, "delta": 1e-7, "colluding": 1})
    last = statement_of(a, "rome").observers[-1]
    assert a.algorithm.statement(a.public_oracle("rome")).observers[-1].epsilon > 50
    assert isinf(last.epsilon)
    assert plain(last)["epsilon"] is None


def test_a_worst_case_holds_against_all_others():
    a = masked_agreement(FIVE_SITES, algorithm={"worst_case_epsilon": 2.0})
    site = a.public_oracle("berlin")
    table = a.algorithm.statement(site).observers
    assert [line.colluding for line in table] == [0, 1, 2, 3, 4]
    assert table[-1].epsilon <= 2.0
    free = masked_agreement(FIVE_SITES).algorithm
    assert free.statement(site).observers[-1].epsilon > 2.0
    assert a.algorithm.noise_left(site.n, 4) == pytest.approx(0.5)


# -- by the commands that people type ---------------------------------------------------------------------------------

app = typer.Typer()
app.add_typer(federation_app, name="federation")
ARRAYS = ["--features", "5", "--data-norm", "1", "--epsilon", "1", "--delta", "1e-5"]


@pytest.fixture
def place(tmp_path, monkeypatch, capsys):
    """A folder with keys and mask keys of four sites."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for site in FIVE[:4]:
        assert main(["site", "keygen", site]) == 0
        assert main(["site", "seed", site, "--key", f"{site}.signing.pem"]) == 0
    said = capsys.readouterr().out
    assert "berlin.seed. Keep it here, as secret as the rows, for one agreement." in said
    return tmp_path


def run(*argv):
    result = CliRunner().invoke(app, ["federation", *argv])
    if isinstance(result.exception, Exception):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def sites_given(names=FIVE[:4], masked=FIVE[:4]):
    given = [part for name in names for part in ("--site", f"{name}={name}.pub:300:sha256:{'7' * 64}")]
    return given + [part for name in masked for part in ("--mask-key", f"{name}={name}.mask")]


def test_seeds_and_lines_belong_together(place, capsys):
    seed, line = Seed.load(place / "berlin.seed"), MaskKey.load(place / "berlin.mask")
    assert seed.is_of(line)
    assert (place / "berlin.seed").stat().st_mode & 0o777 == 0o600
    assert main(["site", "seed", "berlin", "--key", "berlin.signing.pem"]) == 2
    assert "Every agreement has one of its own: choose another folder." in capsys.readouterr().err
    (place / "berlin.mask").unlink()
    assert main(["site", "seed", "berlin", "--key", "berlin.signing.pem"]) == 2
    assert Seed.load(place / "berlin.seed").raw == seed.raw
    assert not (place / "berlin.mask").exists()


def test_from_keys_to_a_table_of_observers_and_signatures(place):
    run("new", "--algorithm", "masked", "--colluding", "1", *sites_given(), *ARRAYS)
    a = toml_file.load(place / "federation.toml")
    assert (a.algorithm.colluding, a.algorithm.least_sites, a.algorithm.spare) == (1, 4, 0)
    assert (sum(site.rows for site in a.sites), len(a.edges)) == (1200, 6)
    told = run("show", "federation.toml")
    table = a.algorithm.statement(a.public_oracle("rome")).observers
    shown = dict(re.findall(r"^ +(\d+) +([\d.]+) *(?:assumed)? *$", told, re.MULTILINE))
    assert list(shown) == ["0", "1", "2", "3"]
    for line in table:
        assert line.epsilon <= float(shown[str(line.colluding)]) <= line.epsilon * 1.0001
    for fact in ("Promise to every site, if at most 1 sites collude", "every sum includes at least 4 sites",
                 "one of at least 3 shares",
                 a.member("rome").mask_key.fingerprint, a.member("rome").public_key.fingerprint):  # fmt: skip
        assert fact in told.replace("\n", " "), fact
    for name in a.names:
        run("sign", "federation.toml", "--site", name, "--key", f"{name}.signing.pem")
    assert "All sites have signed exactly this." in run("show", "federation.toml")


def test_masked_sums_are_the_default(place):
    """Whoever says how many may collude, or hands in mask keys, need not name the algorithm."""
    said = run("new", "--colluding", "1", *sites_given(), *ARRAYS)
    a = toml_file.load(place / "federation.toml").algorithm
    assert (type(a).__name__, a.colluding) == ("MaskedNewton", 1)
    assert "Algorithm:" not in said


@pytest.mark.usefixtures("few_tables")
def test_intervals_are_predicted_before_anyone_signs(place):
    schema = '[label]\ncolumn = "ill"\nclasses = ["no", "yes"]\n[[columns]]\nname = "smoker"\nkind = "boolean"\n'
    (place / "schema.toml").write_text("version = 1\n" + schema + "shares = [0.3, 0.7]\n")
    given = [*sites_given(), "--inference", "--colluding", "1", "--schema", "schema.toml", "--delta", "1e-5"]
    said = run("new", *given, "--epsilon", "8")
    a = toml_file.load(place / "federation.toml")
    assert a.algorithm.inference
    assert a.encoding.columns[0].shares == (0.3, 0.7)
    words = "Predicted at epsilon 8 with 1,200 rows: the 95 % interval tells an odds ratio of 3 from 1 for 1 of 1"
    assert words in said
    assert words in " ".join(run("show", "federation.toml").split())
    hopeless = run("new", *given, "--epsilon", "0.05", "--out", "other.toml")
    assert "Until the first coefficient does" in hopeless or "would do" in hopeless


def test_attempts_are_told_before_anyone_signs(place):
    given = ["--policy", "go-on", "--go-on-after-round", "0", "--wait-seconds", "60"]
    masked = ["--algorithm", "masked", "--colluding", "1", "--least-sites", "3", "--spare", "2"]
    run("new", *masked, *sites_given(), *ARRAYS, *given, "--worst-case-epsilon", "3")
    told = run("show", "federation.toml").replace("\n", " ")
    assert "after 60 s, make the sum again without it, with fresh noise, at most 2 times in all" in told
    assert "and with at least 3 sites; then stop" in told
    given[3] = "2"
    run("new", *masked, *sites_given(), *ARRAYS, *given, "--out", "later.toml")
    assert "wait in the first 2 exchanges; later, after 60 s, make" in run("show", "later.toml").replace("\n", " ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--algorithm", "masked", *sites_given()], "Expected --colluding with masked sums: how many"),
        (sites_given(), "Expected --colluding with masked sums, the default: .* --algorithm ipadmm assumes nothing"),
        (["--rounds", "9", *sites_given(masked=())], "Expected an algorithm with rounds=9, got none"),
        (["--algorithm", "masked", "--colluding", "1", *sites_given(masked=FIVE[:3])], "got none of rome"),
        (["--algorithm", "masked", "--colluding", "1", *sites_given(masked=(*FIVE[:4], "oslo"))], "once for each site"),
        (["--algorithm", "masked", "--colluding", "1", *sites_given(masked=("x",))], "once for each site"),
        (["--algorithm", "masked", "--colluding", "4", *sites_given()], "colluding < least_sites=4"),
        (["--algorithm", "masked", "--colluding", "1", "--graph", "ring", *sites_given()], "a complete graph"),
        (["--algorithm", "dp-dsgd", "--diameter", "3", "--graph", "ring", *sites_given()], "and only there"),
        (["--algorithm", "dp-dsgd", "--diameter", "3", "--graph", "ring", "--colluding", "1", *sites_given(masked=())],
         "colluding"),
    ],
)  # fmt: skip
def test_drafts_that_leave_something_open_are_refused(place, argv, message):
    with pytest.raises(SottovoceError, match=message):
        run("new", *argv, *ARRAYS)
    assert not (place / "federation.toml").exists()


def test_an_agreement_holds_the_number_of_exchanges_that_a_draft_found(place):
    run("new", "--algorithm", "masked", "--colluding", "1", *sites_given(), *ARRAYS)
    text = (place / "federation.toml").read_text()
    a = toml_file.loads(text)
    open_ = replace(a.algorithm, rounds=None)
    found = open_.exchanges(sum(site.rows for site in a.sites), a.features, len(a.sites))
    assert a.algorithm.rounds == found
    assert f"\nrounds = {found}\n" in text
    with pytest.raises(SottovoceError, match="Expected rounds, which must be the same number at all sites"):
        replace(a, algorithm=open_)
    with pytest.raises(SottovoceError, match="Expected rounds, which must be the same number at all sites"):
        toml_file.loads(text.replace(f"\nrounds = {found}\n", "\n"))


def test_what_is_asked_for_and_the_parts_of_the_budget_are_agreed_on_by_name(place):
    given = ["--algorithm", "masked", "--colluding", "1", *sites_given(), *ARRAYS, "--inference"]
    run("new", *given, "--focus", "x1", "--focus", "x0")
    assert toml_file.load(place / "federation.toml").algorithm.focus == (1, 0)
    told = run("show", "federation.toml").replace("\n", " ")
    assert "focus = x1 and x0" in told
    assert "40 % for the focused gradient" in told
    run("new", *given, "--out", "all.toml")
    assert sum(toml_file.load(place / "all.toml").algorithm.division) == pytest.approx(1)
    with pytest.raises(SottovoceError, match=r"Expected focus among x0, x1.*got focus='age'"):
        run("new", *given, "--focus", "age")
    with pytest.raises(SottovoceError, match="inference with focus"):
        run("new", *given[:-1], "--focus", "x1")


def test_members_without_masks_stay_as_they_were():
    _, sites = members()
    assert "mask" not in toml_file.dumps(agreement(sites))
