"""Models times a matrix of each run: NumPy's product up to rounding, and the same bits for a node alone."""

import numpy as np
import pytest

from sottovoce.oracle.kernels.turn import rows_of, turned


def matrices(p, runs):
    A = np.random.default_rng(p).normal(size=(p, p, runs))
    return A + A.transpose(1, 0, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("p", "outputs", "runs"), [(1, 1, 1), (31, 2, 3), (32, 1, 2), (33, 3, 1), (70, 1, 5)])
def test_every_model_is_turned_by_the_matrix_of_its_run(p, outputs, runs, dtype):
    A, w = matrices(p, runs), np.random.default_rng(1).normal(size=(4, p * outputs, runs)).astype(dtype)
    found = turned(rows_of(A), w)
    assert found.dtype == dtype
    expected = np.einsum("cdr,ndkr->nckr", A, w.reshape(4, p, outputs, runs)).reshape(w.shape)
    np.testing.assert_allclose(found, expected, rtol=0, atol=np.finfo(dtype).eps * 8 * p * np.abs(A).max())


def test_the_bits_depend_on_no_other_node_and_no_other_run():
    A, w = matrices(37, 3), np.random.default_rng(2).normal(size=(5, 74, 3))
    whole = turned(rows_of(A), w)
    for node in range(5):
        for run in range(3):
            alone = turned(rows_of(A[..., run : run + 1]), w[node : node + 1, :, run : run + 1])
            np.testing.assert_array_equal(alone[0, :, 0], whole[node, :, run])
