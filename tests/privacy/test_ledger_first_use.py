"""The ledger of a site's rows: made on first use, once, and never in the place of one that was lost."""

import pytest

from sottovoce.cli.exit_codes import code_of
from sottovoce.cli.site.files import Cap, data_digest, open_ledger
from sottovoce.errors import BudgetError, InputError
from sottovoce.federation.site.stops import DamagedError
from sottovoce.privacy import Gaussian, SampledGaussian, Sampling

CAP = Cap(1.0, 1e-5)


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("age,ill\n30,no\n")
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "rows.ledger"


def beside(path, end):
    return path.with_name(path.name + end)


def test_a_ledger_without_entries_binds_nobody(path, data):
    """A run that is refused, for its cap or its kind, must not fix that cap."""
    with open_ledger(path, data, CAP) as ledger, pytest.raises(BudgetError):
        ledger.check_run("run", Gaussian(1.0), 10)
    batches = SampledGaussian(5.0, Sampling("poisson", 100, 5))
    with open_ledger(path, data, Cap(2.0, 1e-5)) as ledger, pytest.raises(BudgetError, match="--cap-mixed"):
        ledger.check_run("run", batches, 10)
    with open_ledger(path, data, Cap(2.0, 1e-5, mixed=True)) as ledger:
        assert ledger.header.epsilon == 2.0
        ledger.check_run("run", batches, 10)
    # Without a cap it is taken as it is.
    with open_ledger(path, data, Cap(None, None)) as ledger:
        assert (ledger.header.epsilon, ledger.header.order is None) == (2.0, False)
        ledger.reserve("run", 1, batches)
    for cap in (CAP, Cap(2.0, 1e-5)):
        with pytest.raises(InputError, match=r"the cap that the ledger was made with, epsilon=2, .* mixed=True"):
            open_ledger(path, data, cap)
    open_ledger(path, data, Cap(2.0, 1e-5, mixed=True)).close()


def test_a_first_use_needs_a_cap(path, data):
    with pytest.raises(InputError, match="a ledger of these rows at"):
        open_ledger(path, data, Cap(None, None))
    assert not path.parent.exists()
    with pytest.raises(InputError, match="--cap-mixed together with"):
        Cap(None, None, mixed=True)


@pytest.mark.parametrize("gone", [("",), ("", ".head")])
@pytest.mark.parametrize("cap", [CAP, Cap(None, None)])
def test_a_lost_ledger_is_not_made_anew(path, data, gone, cap):
    with open_ledger(path, data, CAP) as ledger:
        ledger.reserve("run", 1, Gaussian(50.0))
    for end in gone:
        beside(path, end).unlink()
    with pytest.raises(DamagedError, match=r"What was spent stays spent: restore it.*remove the salt") as raised:
        open_ledger(path, data, cap)
    assert code_of(raised.value) == 6
    assert not path.exists()


def test_a_cut_off_ledger_is_not_taken_for_an_unfinished_one(path, data):
    with open_ledger(path, data, CAP) as ledger:
        ledger.reserve("run", 1, Gaussian(50.0))
    path.write_bytes(b"")
    with pytest.raises(DamagedError, match="What was spent stays spent"):
        open_ledger(path, data, CAP)
    beside(path, ".salt").unlink()
    with pytest.raises(DamagedError, match=r"tells of 1 entries\. What was spent stays spent"):
        open_ledger(path, data, CAP)


def test_the_salt_is_whole_secret_and_needed(path, data):
    with open_ledger(path, data, CAP) as ledger:
        ledger.reserve("run", 1, Gaussian(50.0))
        assert ledger.header.data_digest == data_digest(path, data)
    salt = beside(path, ".salt")
    content = salt.read_bytes()
    assert (len(content), salt.stat().st_mode & 0o777) == (32, 0o600)
    for other in (b"", content[:31], content + b"0"):
        salt.write_bytes(other)
        with pytest.raises(DamagedError, match=rf"a salt of 32 bytes, got {len(other)} bytes"):
            open_ledger(path, data, CAP)
    salt.unlink()
    with pytest.raises(DamagedError, match="Expected the salt of the ledger"):
        open_ledger(path, data, CAP)
    salt.write_bytes(content)
    salt.chmod(0o600)
    open_ledger(path, data, CAP).close()
    data.write_text("age,ill\n31,no\n")
    with pytest.raises(InputError, match="got that of another file"):
        open_ledger(path, data, CAP)
