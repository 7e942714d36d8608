"""Tables at real sites: what is agreed on, what is refused, one table at all sites, also after a crash or a loss."""

from contextlib import ExitStack
from dataclasses import replace
from math import inf

import numpy as np
import pytest

import sottovoce as sv
from helpers.network_worlds import MemoryWorld, play
from helpers.site_runs import dies_and_comes_back
from helpers.table_sites import CLASSES, LARGE, TERMS, TIMES, StudySites, bound, study
from sottovoce.cli.site.results import keeping_what_was_found, results_in
from sottovoce.errors import InputError, PrivacyError, SottovoceError
from sottovoce.federation.agreement import toml_file
from sottovoce.federation.agreement.agreement import LostNeighbour
from sottovoce.federation.site.runner import result_of, so_far
from sottovoce.federation.site.stops import LostNeighbourError
from sottovoce.files.models.from_site import statement_of
from sottovoce.files.schema import Schema
from sottovoce.oracle.row_sums import RowSums
from sottovoce.privacy import Gaussian, Unit
from sottovoce.settings import plain
from sottovoce.sums.questions import Totals
from sottovoce.tables.analyses import (
    CrossTableAnalysis,
    DescriptionAnalysis,
    SurvivalAnalysis,
    TableColumn,
    columns_of,
)

SCHEMA = Schema.loads(TIMES)


def described(epsilon=1.0, parts=None, **terms):
    told = columns_of(SCHEMA, "arm", None, parts or {})
    return bound(DescriptionAnalysis(**TERMS | {"epsilon": epsilon, "columns": told, "by": "arm"} | terms), TIMES)


def crossed(epsilon=1.0, **terms):
    return CrossTableAnalysis(**TERMS | {"epsilon": epsilon, "columns": ("arm", "smokes")} | terms)


def survived(epsilon=1.0, **terms):
    return SurvivalAnalysis(**TERMS | {"epsilon": epsilon, "by": "arm"} | terms)


KINDS = {"describe": described, "cross": crossed, "survival": survived}
ON_ONE = {
    "describe": lambda path: sv.describe(path, SCHEMA, epsilon=inf, by="arm", force=True),
    "cross": lambda path: sv.cross_table(path, SCHEMA, ("arm", "smokes"), epsilon=inf, force=True),
    "survival": lambda path: sv.survival(path, SCHEMA, epsilon=inf, by="arm", force=True),
}


def table(federation, end, name="rome"):
    """What a site makes of the end of its run."""
    a = federation.agreement
    return a.table.answer(a.encoding, end.opened, statement_of(a, name), a.unit, len(a.sites))


# -- what is agreed on -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_agreement_holds_all_of_it(kind):
    with StudySites(KINDS[kind](parts={"age": 0.4}) if kind == "describe" else KINDS[kind]()) as federation:
        a = federation.agreement
        text = toml_file.dumps(a)
        assert toml_file.loads(text) == a
        assert toml_file.loads(text).digest() == a.digest()
        assert f'name = "{kind}"' in text
        # Nothing is left to a default: a later version must not read other settings.
        for line in ("colluding = 1", "least_sites = 5", "spare = 0"):
            with pytest.raises(InputError, match=r"got no|in full"):
                toml_file.loads(text.replace(line, ""))
        with pytest.raises(InputError, match="Expected"):
            toml_file.loads(text.replace("spare = 0", "spare = 0\nrounds = 1"))


def test_a_changed_column_part_bin_or_group_is_another_agreement():
    with StudySites(described(parts={"age": 0.4})) as federation:
        a = federation.agreement
        first, *others = a.table.columns
        assert (first.name, first.bins) == ("age", 8)
        finer = replace(a.table, columns=(replace(first, bins=9), *others))
        swapped = replace(a.table, columns=(*others, first))
        turned = replace(first, part=others[0].part), replace(others[0], part=first.part)
        moved = replace(a.table, columns=(*turned, *others[1:]))
        whole = replace(a.table, by=None)
        digests = {a.digest()}
        for changed in (finer, swapped, moved, whole):
            shape = changed.shape(a.encoding)
            if shape.features != a.features:  # a file with one of the two changed is refused
                with pytest.raises(InputError, match="which the schema makes"):
                    replace(a, algorithm=changed)
            digests.add(replace(a, algorithm=changed, features=shape.features).digest())
        assert len(digests) == 5


REFUSED = {
    "a column that is not there": (lambda: described(columns=(TableColumn("height"),)), "Expected a column of the sch"),
    "a group that is not there": (lambda: survived(by="wing"), "Expected a column of the schema"),
    "a group without levels": (lambda: survived(by="months"), "not of the label"),
    "a column twice": (lambda: crossed(columns=("arm", "arm")), "every column once"),
    "one column crossed": (lambda: crossed(columns=("arm",)), "two or three columns"),
    "a number crossed": (lambda: crossed(columns=("arm", "months")), "a column with levels of a cross-table"),
    "a group that is described": (lambda: described(by="age"), "not described as well"),
    "a number without bins": (lambda: DescriptionAnalysis(**TERMS, columns=(TableColumn("age"),)), "bins for 'age'"),
    "bins of levels": (lambda: DescriptionAnalysis(**TERMS, columns=(TableColumn("smokes", 8),)), "bins for 'smokes'"),
    "too many bins": (lambda: DescriptionAnalysis(**TERMS, columns=(TableColumn("age", 65),)), "1 to 64 bins"),
    "half of the parts": (
        lambda: DescriptionAnalysis(**TERMS, columns=(TableColumn("age", 8, 0.5), TableColumn("smokes"))), "or of none",
    ),
    "parts beyond the budget": (
        lambda: DescriptionAnalysis(**TERMS, columns=(TableColumn("age", 8, 0.7), TableColumn("smokes", None, 0.7))),
        "which add up to 1",
    ),
    "no noise": (lambda: survived(inf), "a finite epsilon"),
    "nobody colludes": (lambda: survived(colluding=0), "colluding >= 1 at real sites"),
    "nobody said who colludes": (lambda: survived(colluding=None), "colluding"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_agreement_is_made_of(what):
    make, words = REFUSED[what]
    with pytest.raises(SottovoceError, match=words):
        StudySites(make())


def test_a_table_needs_a_schema_that_fits():
    with pytest.raises(InputError, match="Expected a label with a time and an event"):
        StudySites(survived(), CLASSES)
    with StudySites(survived()) as federation:
        with pytest.raises(InputError, match="a schema, by which the rows of a table are counted"):
            replace(federation.agreement, schema=None)
        with pytest.raises(PrivacyError, match="Expected a reviewed schema"):
            replace(federation.agreement, schema=f'unreviewed = ["label.until"]\n{TIMES}')
        with pytest.raises(InputError, match="Expected an agreement on a model"):
            _ = federation.agreement.learning


def test_weights_do_not_count_and_the_statement_says_so():
    weighed = f'[weight]\ncolumn = "w"\nbound = 4\n{TIMES}'
    with StudySites(survived(), weighed) as federation:
        a = federation.agreement
        assert a.public_oracle("rome").sites.factors.plain
        assert federation.sites(["rome"]).counts.tolist() == [17]  # whose file has no weights
        assert "whatever its weight in learning" in statement_of(a, "rome").prose()


def test_people_are_protected_in_a_table_wherever_their_rows_are():
    people = f'[person]\ncolumn = "patient"\nrows = 3\n{TIMES}'
    with StudySites(survived(), people, sites_per_person=2) as federation:
        a = federation.agreement
        (bare,) = (Totals().sensitivity(RowSums(a.public_oracle("rome").sites, 1), 78) / 3).flat
        assert Totals().sensitivity(a.public_oracle("rome"), 78).item() == pytest.approx(6 * bare)
        assert bare == pytest.approx(np.sqrt(2) * a.data_norm)
        assert statement_of(a, "rome").unit == Unit(3, 2)


def test_parts_that_round_to_more_than_one_make_no_row_longer():
    half = 0.5 + 4e-10
    asked = DescriptionAnalysis(**TERMS, columns=(TableColumn("smokes", None, half), TableColumn("arm", None, half)))
    with StudySites(asked) as federation:
        assert federation.sites(["rome"]).rows.norms().max() <= federation.agreement.data_norm * (1 + 1e-12)


# -- one table -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=KINDS)
def run(request):
    """A run of five sites: what was agreed on, and what each ended with."""
    asked = KINDS[request.param](LARGE)
    if request.param == "describe":  # with as many bins as one machine takes without noise
        bins = tuple(replace(one, bins=one.bins and 64) for one in asked.columns)
        asked = replace(asked, columns=bins)
    with StudySites(asked) as federation:
        yield federation, play(federation.finish(MemoryWorld())), ON_ONE[request.param]


def exact_sum(federation, names=None):
    """What sites add up, without noise."""
    return sum(federation.sites([name]).rows.totals() for name in names or federation.names)


def test_all_sites_end_with_one_table(run):
    federation, ends, _ = run
    found = {name: table(federation, end, name) for name, end in ends.items()}
    assert len({one.to_csv() for one in found.values()}) == 1
    assert len({str(plain(one)) for one in found.values()}) == 1
    assert found["rome"].rows == 78
    assert found["rome"].privacy.epsilon <= LARGE


def test_without_noise_it_is_the_table_of_one_machine_that_has_all_rows(run):
    federation, ends, on_one = run
    opened = ends["rome"].opened
    without = opened._replace(value=exact_sum(federation)[:, None], std=np.zeros((1, 1)))
    own, whole = table(federation, replace(ends["rome"], opened=without)), on_one(federation.pooled())
    for line, other in zip(own.lines(), whole.lines(), strict=True):
        assert line[:-3] == other[:-3]
        for ours, theirs in zip(line[-3:], other[-3:], strict=True):
            assert ours == (None if theirs is None else pytest.approx(theirs, rel=1e-9, abs=1e-9)), line


def test_its_noise_is_what_is_said_and_paid_for(run):
    federation, ends, _ = run
    a, opened = federation.agreement, ends["rome"].opened
    off = (opened.value[:, 0] - exact_sum(federation)) / opened.std.item()
    assert np.abs(off).max() < 5
    if len(off) > 30:
        assert 0.6 < np.sqrt(np.mean(off**2)) < 1.4
    (sigma,) = a.analysis.multipliers(5)
    assert opened.std.item() == pytest.approx(sigma * np.sqrt(2) * a.data_norm * np.sqrt(5 / 4), rel=1e-6)
    with federation.ledger("rome") as ledger:
        assert [r.cost.event for r in ledger.reservations()] == [Gaussian(sigma)]


@pytest.mark.parametrize(("point", "at"), [("reserved", 1), ("computed", 1), ("published", 1), ("absorbed", 1)])
def test_a_crash_changes_nothing_and_is_paid_for_once(point, at):
    with StudySites(survived()) as federation:
        ends = play(dies_and_comes_back(federation, MemoryWorld(), point, at))
        assert len({table(federation, end).to_csv() for end in ends.values()}) == 1
        with federation.ledger("berlin") as ledger:
            assert len(list(ledger.reservations())) == 1
        with ExitStack() as stack:  # the same command again reads the journal
            again = result_of(federation.seat("berlin", stack))
            assert table(federation, again).to_csv() == table(federation, ends["rome"]).to_csv()


GO_ON = LostNeighbour(policy="go-on", wait_seconds=1.0, go_on_after_round=0)


def test_a_site_that_is_lost_is_in_no_count_and_the_sum_is_paid_for_twice():
    with StudySites(survived(LARGE, least_sites=4, spare=1), lost_neighbour=GO_ON) as federation:
        left = [name for name in federation.names if name != "oslo"]
        ends = play(federation.finish(MemoryWorld(), names=left))
        assert len({table(federation, end).to_csv() for end in ends.values()}) == 1
        opened = ends["rome"].opened
        assert (ends["rome"].absent, opened.rows, table(federation, ends["rome"]).rows) == ({"oslo": 1}, 58, 58)
        off = (opened.value[:, 0] - exact_sum(federation, left)) / opened.std.item()
        assert np.abs(off).max() < 5
        with federation.ledger("rome") as ledger:
            assert len(list(ledger.reservations())) == 2


def test_a_run_that_stops_before_its_sum_leaves_no_table(tmp_path):
    with StudySites(survived(), lost_neighbour=LostNeighbour(policy="stop", wait_seconds=0.5)) as federation:
        ends = play(federation.all(MemoryWorld(), names=federation.names[1:]))
        assert all(isinstance(end, LostNeighbourError) for end in ends.values()), ends
        with ExitStack() as stack:
            seat = federation.seat("rome", stack)
            assert so_far(seat) is None
            with pytest.raises(LostNeighbourError), keeping_what_was_found(results_in(tmp_path / "out", seat)):
                raise ends["rome"]
        assert not (tmp_path / "out").exists()


def test_another_file_than_was_committed_to_says_nothing():
    with StudySites(survived()) as federation, ExitStack() as stack:
        federation.file("rome").write_text(study(17, 99))
        with pytest.raises(InputError, match="the rows and the salt that site rome has committed to"):
            federation.seat("rome", stack)
