"""Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror & Shaw 2011), and normals and batches made from it.

A block of 128 random bits is a function of a 128-bit counter and a 64-bit key. There is no state, so draws can be made
in any order, by any process, on any device. The counter encodes the purpose of the draw:

    word 0 = r << 20 | block mod 2^20       local step r (so r < 4096), block of four coordinates or draws
    word 1 = node,  word 2 = round k
    word 3 = block / 2^20 << 20 | run       more than 2^20 blocks leave room for 2^20 runs; `expect_room` refuses more

Hence the numbers depend neither on threads nor on how many runs are computed at a time. Seeded noise is for
simulation: Philox is not a cryptographic generator, and a site that guards real rows must not use it.
"""

from typing import Any

import numpy as np

from sottovoce.arrays import Array, Ints
from sottovoce.errors import expect
from sottovoce.oracle.kernels.elementary import log_of, sincos, split
from sottovoce.oracle.kernels.simd import (
    Lanes,
    broadcast,
    convert,
    count_up,
    fma,
    kernel,
    lesser,
    part,
    piece,
    store,
    where,
    width,
)
from sottovoce.oracle.kernels.threads import claim, share_out

BLOCK_BITS = 20
MAX_STEPS = 1 << (32 - BLOCK_BITS)
MAX_BLOCKS = 1 << BLOCK_BITS
MAX_DRAWS = 1 << 32  # of one node in one step; words have 32 bits

# The multipliers and Weyl increments of Philox4x32, from the paper.
_MULTIPLY_0 = np.uint64(0xD2511F53)
_MULTIPLY_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

# One register of single precision; double precision takes two, which keeps both busy.
_WIDTH = 16
LANES = Lanes(_WIDTH)
_TURN = 2.0 * np.pi * 2.0**-24
_HIGH_QUARTER = np.uint32(0xC0000000)
_ANGLE = np.uint32(0x3FFFFF)
_SWAP = np.uint32(0x400000)
_NEGATE = np.uint32(0x800000)


@piece
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Ten rounds of Philox4x32 on words held in uint64, scalars or vectors. The high halves of the result are noise."""
    for _ in range(10):
        p0 = _MULTIPLY_0 * (c0 & _LOW)
        p1 = _MULTIPLY_1 * (c2 & _LOW)
        c0 = (p1 >> _32) ^ c1 ^ k0
        c1 = p1
        c2 = (p0 >> _32) ^ c3 ^ k1
        c3 = p0
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


@piece
def normal_pair(high: Any, low: Any, zero: Any) -> Any:
    """Two standard normals from two words (vectors of uint32), in the precision of the scalar `zero`: Box-Muller.

        u      = (x + 1/2) 2^-40         x = high and the top 8 bits of low; the radius sqrt(-2 ln u) reaches 7.5
        angle  = (a + 1/2) 2 pi 2^-24    a = the next 22 bits less 2^21, within pi/4 of 0
        pair   = radius (cos, sin)       the cosine's sign and the order of the two are the 2 bits between

    From u = 3/4 on, ln u is taken as ln(1 - v) with v = 1 - u from the flipped bits: single precision then loses
    nothing there, and both precisions give the same numbers up to rounding.
    """
    flip = -(high >= _HIGH_QUARTER)
    coarse = convert(high ^ flip, zero)
    fine = convert((low ^ flip) >> 24, zero)
    u = fma(coarse, 2.0**-32, fma(fine, 2.0**-40, 2.0**-41))
    m, k = split(u)
    log = log_of(where(flip, -u, m - 1), where(flip, 0, k))
    # At most 7.5 standard deviations: 40 bits cannot give rarer values. Real sites use an exact law instead.
    radius = np.sqrt(-2 * log)
    centred = convert(low & _ANGLE, zero) - (2.0**21 - 0.5)
    sin, cos = sincos(centred * _TURN)
    cos = where(low & _NEGATE, -cos, cos)
    swap = low & _SWAP
    return radius * where(swap, sin, cos), radius * where(swap, cos, sin)


@piece
def normals(c0: Any, node: Any, k: Any, run: Any, key: Any, zero: Any) -> Any:
    """The four standard normals of each block; c0 and run are vectors of uint64, node and k scalars."""
    lanes, word = Lanes(_WIDTH), np.uint32(0)
    x = philox(c0, broadcast(np.uint64(node), lanes), broadcast(np.uint64(k), lanes), run, key[0], key[1])
    z0, z1 = normal_pair(convert(x[0], word), convert(x[1], word), zero)
    z2, z3 = normal_pair(convert(x[2], word), convert(x[3], word), zero)
    return z0, z1, z2, z3


@part
def run_normals(out: Any, d: int, width_: int, first_run: int, runs: int, key: Any, counter: Any) -> None:
    """`tile_normals` where lanes are runs."""
    lanes, zero = Lanes(_WIDTH), out.dtype.type(0)
    base = np.uint64(counter[2]) << np.uint64(BLOCK_BITS)
    for block in range((d + 3) // 4):
        c0 = broadcast(base | np.uint64(block), lanes)
        for q in range(0, runs, width(lanes)):
            z = normals(c0, counter[0], counter[1], count_up(np.uint64(first_run + q), lanes), key, zero)
            place = 4 * block * width_ + q
            store(out, place, z[0])
            store(out, place + width_, z[1])
            store(out, place + 2 * width_, z[2])
            store(out, place + 3 * width_, z[3])


@part
def block_normals(out: Any, d: int, width_: int, first_run: int, runs: int, key: Any, counter: Any) -> None:
    """`tile_normals` where lanes are blocks of coordinates."""
    lanes, zero = Lanes(_WIDTH), out.dtype.type(0)
    size = width(lanes)
    base = np.uint64(counter[2]) << np.uint64(BLOCK_BITS)
    # Normals come block by block, and are stored coordinate by coordinate through this buffer.
    few = np.empty(4 * _WIDTH, out.dtype)
    for q in range(runs):
        run = broadcast(np.uint64(first_run + q), lanes)
        for block in range(0, (d + 3) // 4, size):
            z = normals(count_up(base | np.uint64(block), lanes), counter[0], counter[1], run, key, zero)
            store(few, 0, z[0])
            store(few, size, z[1])
            store(few, 2 * size, z[2])
            store(few, 3 * size, z[3])
            for c in range(4 * block, lesser(d, 4 * (block + size))):
                out[c * width_ + q] = few[(c & 3) * size + (c >> 2) - block]


@part
def tile_normals(out: Any, d: int, width_: int, first_run: int, runs: int, key: Any, counter: Any) -> None:
    """Normals of one node for `runs` consecutive runs, into out[coordinate * width_ + run].

    `out` is flat and has room for whole vectors of runs and whole blocks of coordinates; elements beyond d and runs are
    overwritten with arbitrary numbers. `counter` is (node, k, r).
    """
    # With few runs most lanes of a vector of runs would be wasted, so lanes are blocks instead.
    if 2 * runs > _WIDTH or width_ % _WIDTH == 0:
        run_normals(out, d, width_, first_run, runs, key, counter)
    else:
        block_normals(out, d, width_, first_run, runs, key, counter)


@kernel
def _fill(counter: Any, items: int, out: Any, key: Any, k: int, r: int, first_node: int, first_run: int,
          _lanes: Any) -> None:  # fmt: skip
    """Normals of all nodes; an item is a node."""
    _, d, runs = out.shape
    # As `tile_normals` wants it: whole vectors of runs, or few runs and lanes that are blocks.
    padded = runs if 2 * runs <= _WIDTH else (runs + _WIDTH - 1) // _WIDTH * _WIDTH
    scratch = np.empty((d + 3) // 4 * 4 * padded, out.dtype)
    i = claim(counter)
    while i < items:
        tile_normals(scratch, d, padded, first_run, runs, key, (first_node + i, k, r))
        for c in range(d):
            for q in range(runs):
                out[i, c, q] = scratch[c * padded + q]
        i = claim(counter)


def fill_normals(out: Array, k0: int, k1: int, k: int, r: int, first_node: int, first_run: int) -> None:
    """Standard normals of round k and local step r, for all (node, coordinate, run) of `out`.

    Args:
        out: (nodes, d, runs), overwritten; its precision is that of the normals.
        k0: the low word of the key.
        k1: its high word.
        k: the round.
        r: the local step, below 4096.
        first_node: the number of out's first node, for a stack that is a part of a larger one.
        first_run: the number of its first run.
    """
    share_out(_fill, len(out), out, (np.uint64(k0), np.uint64(k1)), k, r, first_node, first_run, LANES)


def expect_room(offsets: Ints, batch: int, first_run: int, runs: int) -> None:
    """Refuse batches with more draws than there are counters, which would repeat."""
    most = max(int(np.diff(offsets).max(initial=0)), batch)
    expect(most <= MAX_DRAWS, f"at most {MAX_DRAWS} rows and draws at a node", rows=most)
    roomy = most <= 4 * MAX_BLOCKS or first_run + runs <= MAX_BLOCKS
    expect(roomy, f"at most {MAX_BLOCKS} runs where a node has {most} rows", runs=first_run + runs)


@piece
def low_word(block: Any, r: Any) -> Any:
    """Word 0 of a counter: the step, and the low 20 bits of the block."""
    return np.uint64((r << BLOCK_BITS) | (block & (MAX_BLOCKS - 1)))


@piece
def high_word(block: Any, run: Any) -> Any:
    """Word 3 of a counter: the run, and the high bits of the block above it."""
    return np.uint64((block >> BLOCK_BITS << BLOCK_BITS) | run)


@part
def _words(c0: Any, c1: Any, c2: Any, c3: Any, key: Any) -> Any:
    """The four words of one block."""
    words = philox(c0, c1, c2, c3, key[0], key[1])
    return words[0] & _LOW, words[1] & _LOW, words[2] & _LOW, words[3] & _LOW


@kernel
def _count(counter: Any, items: int, out: Any, offsets: Any, batch: int, key: Any, k: int, r: int, first_node: int,
           first_run: int, _lanes: Any) -> None:  # fmt: skip
    """Draws with replacement of all nodes; an item is a node."""
    i = claim(counter)
    while i < items:
        m = np.uint64(offsets[i + 1] - offsets[i])
        # Only a multiple of m of the 2^32 words is used, so that all rows are drawn equally often. Any other word is
        # replaced: the words of its block are the next counter.
        left_over = (np.uint64(1) << _32) % m
        for q in range(out.shape[1]):
            for block in range((batch + 3) // 4):
                node, run = np.uint64(first_node + i), high_word(block, first_run + q)
                words = _words(low_word(block, r), node, np.uint64(k), run, key)
                for j in range(min(4, batch - 4 * block)):
                    chosen = words
                    while ((chosen[j] * m) & _LOW) < left_over:
                        chosen = _words(chosen[0], chosen[1], chosen[2], chosen[3], key)
                    out[offsets[i] + np.int64((chosen[j] * m) >> _32), q] += 1
        i = claim(counter)


def count_with_replacement(
    out: Array, offsets: Ints, batch: int, k0: int, k1: int, k: int, r: int, first_node: int, first_run: int
) -> None:
    """Add to `out` (rows, runs) how often a row is among its node's `batch` uniform draws, with replacement."""
    expect_room(offsets, batch, first_run, out.shape[1])
    key = (np.uint64(k0), np.uint64(k1))
    share_out(_count, len(offsets) - 1, out, offsets, batch, key, k, r, first_node, first_run, LANES)


@kernel
def _choose(counter: Any, items: int, out: Any, offsets: Any, batch: int, key: Any, k: int, r: int, first_node: int,
            first_run: int, lanes: Any) -> None:  # fmt: skip
    """Poisson batches of all nodes; an item is a node."""
    runs, size, zero = out.shape[1], width(lanes), out.dtype.type(0)
    flags = np.empty(4 * size, out.dtype)
    i = claim(counter)
    while i < items:
        m = offsets[i + 1] - offsets[i]
        limit = np.floor(batch * 2.0**32 / m)  # rounded down: no row may be drawn more often than is accounted for
        node, round_ = broadcast(np.uint64(first_node + i), lanes), broadcast(np.uint64(k), lanes)
        for block in range((m + 3) // 4):
            c0 = broadcast(low_word(block, r), lanes)
            for first in range(0, runs, size):
                run = count_up(high_word(block, first_run + first), lanes)
                words = philox(c0, node, round_, run, key[0], key[1])
                store(flags, 0, convert(convert(words[0] & _LOW, 0.0) < limit, zero))
                store(flags, size, convert(convert(words[1] & _LOW, 0.0) < limit, zero))
                store(flags, 2 * size, convert(convert(words[2] & _LOW, 0.0) < limit, zero))
                store(flags, 3 * size, convert(convert(words[3] & _LOW, 0.0) < limit, zero))
                for j in range(min(4, m - 4 * block)):
                    for q in range(min(size, runs - first)):
                        out[offsets[i] + 4 * block + j, first + q] = flags[j * size + q]
        i = claim(counter)


def choose_poisson(
    out: Array, offsets: Ints, batch: int, k0: int, k1: int, k: int, r: int, first_node: int, first_run: int
) -> None:
    """Into `out` (rows, runs), 1 where a row is in the batch, else 0: each on its own, with probability batch / m_i."""
    expect_room(offsets, batch, first_run, out.shape[1])
    key = (np.uint64(k0), np.uint64(k1))
    share_out(_choose, len(offsets) - 1, out, offsets, batch, key, k, r, first_node, first_run, LANES)
