"""The log-rank test between groups, from noisy counts by bin: it accounts for the noise.

With d_gj the events of group g in bin j, m_gj the rows at risk, D_j and M_j those of all groups,

    Z_g = sum_j d_gj - m_gj D_j / M_j           events, less those that are expected if all curves are one
    X   = Z' (V + W)^- Z

V is the usual (hypergeometric) covariance of Z, and W that of the noise, to first order. Without noise, X is the usual
statistic. How X is distributed where all curves are one is found by drawing: tables with the hazards of all groups
together, the censoring of each group and noise of their own. The draws are made from released numbers alone, with a
fixed seed, so they cost nothing and the same table has the same p.
"""

from dataclasses import dataclass
from typing import final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.tables.curve import clear, watched
from sottovoce.tally.intervals import nearest_counts

DRAWS, SEED = 4000, 0


@final
@dataclass(frozen=True)
class LogRank:
    """A test of whether the curves of all groups are one.

    Args:
        statistic: X; None where the noise hides who is at risk, so that nothing can be tested.
        p: how often X is as large where they are one; 1 where nothing can be tested.
        freedom: degrees of freedom of the usual statistic without noise.
        draws: that p was found from.
        until: end of the last bin that is compared.
    """

    statistic: float | None
    p: float
    freedom: int
    draws: int
    until: float


@final
@dataclass(frozen=True, eq=False)
class GroupedTables:
    """The noisy counts of all groups.

    Args:
        cells: (G, 2 K + 1), of `LifeTable`, which add up to `rows`.
        lost: (G, K).
        cell_noise: variance of the noise in a cell, before the table was made to add up.
        lost_noise: variance of the noise in what is lost.
        rows: N.
        together: how many rows may be alike since they belong together.
    """

    cells: Floats
    lost: Floats
    cell_noise: float
    lost_noise: float
    rows: int
    together: int = 1

    @property
    def bins(self) -> int:
        """K."""
        return int(self.lost.shape[1])

    def log_rank(self, times: Floats, draws: int = DRAWS) -> LogRank:
        """Test whether the curves of all groups are one.

        Args:
            times: where the first bin begins, and where all end.
            draws: of tables with one curve.
        """
        groups, late = len(self.cells), watched(self.bins)
        own = late[:-1].sum(axis=1)
        whole = (late[:-1] @ self.cells.T).sum(axis=1) - self.lost.sum(axis=0)
        noise = self.cell_noise * (groups * own - (groups * own) ** 2 / self.cells.size) + groups * self.lost_noise
        told = clear(whole, noise)
        until = float(times[told])
        if told == 0:
            return LogRank(None, 1.0, groups - 1, 0, until)
        likely = nearest_counts(self.cells.reshape(1, -1), float(self.rows)).reshape(self.cells.shape)
        lost = np.clip(self.lost, 0.0, likely[:, self.bins : 2 * self.bins])
        weight = np.linalg.pinv(self._spread(likely, lost, told), hermitian=True)
        found = _apart(self.cells[None], self.lost[None], told)[0]
        statistic = float(found @ weight @ found)
        drawn = self._alike(likely, lost, draws)
        under = _apart(*drawn, told)
        # Equal up to rounding counts as equal: tables without noise come out the same again and again.
        as_far = np.einsum("ig,gh,ih->i", under, weight, under) >= statistic * (1 - 1e-9)
        return LogRank(statistic, (1 + int(np.count_nonzero(as_far))) / (1 + draws), groups - 1, draws, until)

    def _spread(self, likely: Floats, lost: Floats, told: int) -> Floats:
        """V + W."""
        late, groups, eye = watched(self.bins)[:told], len(likely), np.eye(len(likely))
        m, d = likely @ late.T - lost[:, :told], likely[:, :told]
        whole = np.maximum(m.sum(axis=0), 1e-9)
        parts, hazard = m / whole, np.clip(d.sum(axis=0) / whole, 0.0, 1.0)
        # One row at risk has an event, or has not: it varies no more.
        fewer = np.where(whole > 1, whole * (1 - hazard) / np.maximum(whole - 1, 1e-9), 0.0)
        usual = np.einsum("j,gj,ghj->gh", whole * hazard * fewer, parts, eye[:, :, None] - parts[None])
        # What one more in a cell (h, cell), or in what is lost (h, j), adds to Z_g.
        by_group = eye[:, :, None] - parts[:, None, :]  # (g, h, j)
        of_cells = -np.einsum("ghj,jc->ghc", by_group * hazard, late)
        of_cells[:, :, :told] += by_group
        flat, of_lost = of_cells.reshape(groups, -1), (by_group * hazard).reshape(groups, -1)
        sums = flat.sum(axis=1)
        noise = self.cell_noise * (flat @ flat.T - np.outer(sums, sums) / flat.shape[1])
        spread: Floats = self.together * usual + noise + self.lost_noise * of_lost @ of_lost.T
        return spread

    def _alike(self, likely: Floats, lost: Floats, draws: int) -> tuple[Floats, Floats]:
        """Noisy tables of groups with one curve: cells and what is lost, (draws, G, ...) each."""
        bins, late, random = self.bins, watched(self.bins), np.random.default_rng(SEED)
        n = likely @ late.T
        m = np.maximum(n[:, :-1] - lost, 0.0)
        hazard = np.clip(likely[:, :bins].sum(axis=0) / np.maximum(m.sum(axis=0), 1e-9), 0.0, 1.0)
        censored = likely[:, bins : 2 * bins]
        leave = np.clip(censored / np.maximum(n[:, :-1], 1e-9), 0.0, 1.0)
        lacks = lost / np.maximum(censored, 1e-9)
        chances, left = np.zeros_like(likely), np.maximum(n[:, 0], 0.0) / max(float(n[:, 0].sum()), 1e-9)
        for j in range(bins):
            die = hazard[j] * (1 - leave[:, j] * lacks[:, j])
            gone = np.minimum(leave[:, j], 1 - die)
            chances[:, j], chances[:, bins + j] = left * die, left * gone
            left = left * np.maximum(1 - die - gone, 0.0)
        chances[:, -1] = left
        flat = chances.reshape(-1) / chances.sum()
        cells = self.together * random.multinomial(max(self.rows // self.together, 1), flat, size=draws).astype(float)
        not_watched = cells.reshape(draws, *likely.shape)[:, :, bins : 2 * bins] * lacks
        cells += np.sqrt(self.cell_noise) * random.standard_normal(cells.shape)
        cells -= (cells.sum(axis=1, keepdims=True) - self.rows) / cells.shape[1]  # as all tables are made to
        not_watched += np.sqrt(self.lost_noise) * random.standard_normal(not_watched.shape)
        return cells.reshape(draws, *likely.shape), not_watched


def _apart(cells: Floats, lost: Floats, told: int) -> Floats:
    """Z of tables: (tables, G)."""
    late = watched(lost.shape[2])[:told]
    m, d = cells @ late.T - lost[:, :, :told], cells[:, :, :told]
    whole = m.sum(axis=1, keepdims=True)
    expected = m * d.sum(axis=1, keepdims=True) / np.where(whole > 0, whole, np.inf)
    apart: Floats = (d - expected).sum(axis=2)
    return apart
