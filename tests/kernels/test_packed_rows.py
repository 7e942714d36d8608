"""Rows as a GPU reads them are the rows, however they are cut up. Needs no GPU."""

import numpy as np
import pytest
import scipy.sparse as sp

import sottovoce as sv
from sottovoce.oracle.cuda import CudaOracle
from sottovoce.oracle.packing import MOST_DENSE, ROWS_AT_ONCE, pack


def unpacked(packed, d):
    """The rows again, padding left out, from groups and dense columns."""
    rows = np.zeros((len(packed.ids), d + 1))
    for j, (first, last) in enumerate(zip(packed.starts[:-1], packed.starts[1:], strict=True)):
        for entry in packed.entries[first * packed.group : last * packed.group]:
            rows[j, entry["column"]] += entry["value"]
    np.add.at(rows, (slice(None), packed.columns), packed.dense)
    assert not rows[:, d].any()  # the padding's column
    assert not rows[packed.ids < 0].any()
    return rows[packed.ids >= 0, :d]


@pytest.mark.parametrize("density", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("d", [1, 3, 9, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_is_lost(density, d, dtype):
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(23, d)).astype(dtype) * (rng.random((23, d)) < density)
    offsets = np.array([0, 3, 3 + 4, 23])
    packed = pack(sp.csr_array(dense), offsets, np.dtype(dtype))
    np.testing.assert_array_equal(unpacked(packed, d), dense)
    np.testing.assert_array_equal(packed.ids[packed.ids >= 0], np.arange(23))
    assert not (packed.offsets % ROWS_AT_ONCE).any()
    assert packed.dense.shape == (len(packed.ids), len(packed.columns))
    assert len(packed.columns) in range(0, MOST_DENSE + 1, 4)


def test_what_makes_the_widest_rows_wide_is_taken_out():
    """All rows of Adult have four numbers and eight categories, and a few one number more: two rare columns would pad
    all rows to ten. Without them eight are enough.
    """
    sites = sv.Sites.split(sv.datasets.adult(), 100, seed=0)
    packed = pack(sites.rows.matrix, sites.rows.offsets, np.dtype(np.float32))
    assert (packed.group, len(packed.columns)) == (8, 8)
    assert np.all(np.diff(packed.starts) == 1)


@pytest.mark.parametrize(("loss", "most"), [(sv.losses.Logistic(), 1_677_720), (sv.losses.Softmax(40), 838_859)])
def test_models_that_the_kernel_cannot_address_are_refused_at_the_start(loss, most):
    """Before anything is charged, and before CuPy is asked for anything."""
    wide = sp.csr_array(([1.0], ([0], [0])), shape=(1, most + 1))
    algorithm = sv.IPADMM(loss=loss, rounds=1)
    site = algorithm.oracle(sv.Sites([wide], [[1.0]]), sv.graphs.complete(1), CudaOracle)
    with pytest.raises(sv.InputError, match=rf"at most {most} features with device='cuda'.*features={most + 1}"):
        algorithm.start(site, 1)
