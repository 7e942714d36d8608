"""Faults of one line each in code that privacy rests on, and the test that kills each.

A fault that no test notices could come in by mistake and stay. So each of these is made, alone, in a copy of the tree,
and the one test named with it must fail there:

    python scripts/mutants.py                   all of them, minutes
    python scripts/mutants.py --part 2/6        the second of six parts
    python scripts/mutants.py --only masks      those whose name or file has this in it

Before that, all named tests must pass on the copy as it is. Survivors are listed at the end, and the exit code is 1 if
there are any. Faults of CUDA code are not judged where there is no GPU, and listed as well (`--only GPU`: those alone).
tests/conformance/test_mutants.py checks in a second that every line and every test named here exist.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCES = Path("src/sottovoce")
COPIED = ("src", "tests", "benchmarks", "docs", "scripts", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile",
          "LICENSE", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff")  # fmt: skip
LONGEST = 600  # seconds that a test may take
FAILED = 1  # pytest's exit code where a test has failed


class Mutant(NamedTuple):
    """A fault, and what notices it.

    Args:
        name: what is wrong then.
        file: where, within src/sottovoce.
        old: a part of the file that occurs in it exactly once, of which one line is changed.
        new: what stands there instead.
        test: the id of a test that fails then.
        gpu: whether that test needs a GPU. Without one, the mutant is not judged but listed.
    """

    name: str
    file: str
    old: str
    new: str
    test: str
    gpu: bool = False


_LAW = (
    "tests/algorithms/test_rival_noise_law.py::"
    "test_a_release_carries_the_declared_noise_and_two_thirds_would_be_found_out"
)
_MASKED = "tests/algorithms/test_masked_privacy.py"
_AHEAD = "tests/federation/test_head_start.py"
_QUESTIONS = "tests/sums/test_questions.py::test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much"
_TERMS = "tests/schema/test_terms.py"
_PAIRS = "tests/tables/test_pairs.py"
_RELEASES = "tests/auditing/test_releases.py::test_every_release_stands_and_its_tables_move_it_by_all_that_is_allowed"
_DEVICES = "tests/conformance/test_devices.py"
_SOFTMAX = "tests/losses/test_softmax_devices.py"
# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a private data set prints how many rows have which label",
        "problem/dataset.py",
        'labels = [] if self.private else [("Labels", _label_words(self.labels))]',
        'labels = [("Labels", _label_words(self.labels))]',
        "tests/conformance/test_shown.py::test_private_rows_change_nothing_that_is_shown",
    ),
    Mutant(
        "a result on private rows prints its scores",
        "simulation/engine.py",
        'Words(_UNSHOWN, "soft") if self.private else self._scores()',
        "self._scores()",
        "tests/conformance/test_shown.py::test_a_result_on_private_rows_shows_no_score_and_no_time",
    ),
    Mutant(
        "what a notebook shows of an object is not escaped",
        "document/html.py",
        """return _tag(tag, prose(text), **{"class": " ".join(classes)})""",
        """return _tag(tag, text, **{"class": " ".join(classes)})""",
        "tests/document/test_layouts.py::test_a_strangers_text_is_text_everywhere",
    ),
    Mutant(
        "a search shows a bar for each of its fits, whose number is secret",
        "estimators/search.py",
        "verbose=False,",
        "verbose=self.estimator.verbose,",
        "tests/simulation/test_progress.py::test_fits_show_one_and_searches_none",
    ),
    Mutant(
        "a real site's Poisson batch is too large",
        "noise/secure.py",
        "return (uniform_below(stream, rows, rows) < batch)",
        "return (uniform_below(stream, rows, rows) <= batch)",
        "tests/noise/test_secure.py::test_a_row_is_drawn_for_exactly_batch_of_rows_numbers",
    ),
    Mutant(
        "a statement says that more sites may collude than were assumed to",
        "privacy/statement.py",
        "if line.noise >= 1)",
        "if line.noise > 0)",
        "tests/privacy/test_statement.py::test_what_is_assumed_comes_first",
    ),
    Mutant(
        "a step's noise can be drawn twice",
        "noise/secure.py",
        "if (k, r) <= self._last:",
        "if (k, r) < (0, 0):",
        "tests/noise/test_secure.py::test_noise_for_a_step_is_drawn_once",
    ),
    Mutant(
        "another value gets the same noise",
        "noise/secure.py",
        "scale, grid, self.d, value_digest(value))",
        "scale, grid, self.d)",
        "tests/noise/test_secure.py::test_a_label_holds_what_the_proof_says",
    ),
    Mutant(
        "any noise will do at a real site",
        "noise/secure.py",
        "if not isinstance(noise, SecureNoise) and not for_tests:",
        "if False and not for_tests:",
        "tests/noise/test_secure.py::test_the_guard",
    ),
    Mutant(
        "noise is reused between rounds at real sites",
        "noise/secure.py",
        "kind, self._context, int(k), int(r), *rest))",
        "kind, self._context, 0, int(r), *rest))",
        "tests/noise/test_secure.py::test_a_label_holds_what_the_proof_says",
    ),
    Mutant(
        "noise is reused between steps at real sites",
        "noise/secure.py",
        "kind, self._context, int(k), int(r), *rest))",
        "kind, self._context, int(k), 0, *rest))",
        "tests/noise/test_secure.py::test_no_two_draws_share_a_label",
    ),
    Mutant(
        "real sites do not pay for rounding",
        "noise/secure.py",
        "paid = sigma * (sensitivity + 2 * grid * sqrt(self.d) + sums) * (1 + 1e-12)",
        "paid = sigma * sensitivity",
        "tests/noise/test_secure.py::test_rounding_can_move_every_coordinate_by_the_whole_grid",
    ),
    Mutant(
        "real sites draw for half the scale",
        "noise/secure.py",
        "noise = discrete_gaussian(stream, scale, self.d)",
        "noise = discrete_gaussian(stream, max(scale // 2, 1), self.d)",
        "tests/noise/test_secure.py::test_releases_carry_the_declared_noise_and_two_thirds_of_it_would_be_found_out[None]",
    ),
    Mutant(
        "normals and batches share their counters",
        "noise/sources.py",
        "self.normal_key, self.batch_key = (words[0], words[1]), (words[2], words[3])",
        "self.normal_key, self.batch_key = (words[0], words[1]), (words[0], words[1])",
        "tests/kernels/test_batches.py::test_batches_and_normals_share_no_counter[0]",
    ),
    Mutant(
        "plain noise is scaled",
        "noise/sources.py",
        "noisy: Array = gradient - sigma * sensitivity * self.normals(k, r)",
        "noisy: Array = gradient - 0.67 * sigma * sensitivity * self.normals(k, r)",
        f"{_LAW}[dpadmm]",
    ),
    Mutant(
        "seeded noise is reused between rounds",
        "noise/sources.py",
        "random.fill_normals(out, *self.normal_key, k, r, s.first_node, s.first_run)",
        "random.fill_normals(out, *self.normal_key, 1, r, s.first_node, s.first_run)",
        "tests/conformance/test_devices.py::test_double_precision[full-more-csr-cpu]",
    ),
    Mutant(
        "the system's Poisson batch is too large",
        "noise/sources.py",
        "reshape(rows, runs) < batch",
        "reshape(rows, runs) <= batch",
        "tests/kernels/test_system_batches.py::test_poisson_takes_each_row_on_its_own_with_chance_batch_over_rows",
    ),
    Mutant(
        "the system's normals are scaled",
        "noise/sources.py",
        "normals: Array = scipy.special.ndtri(uniform).reshape(nodes, s.d, s.runs)",
        "normals: Array = 0.67 * scipy.special.ndtri(uniform).reshape(nodes, s.d, s.runs)",
        "tests/auditing/test_audit.py::test_right_claims_raise_no_alarm[ipadmm, tight, the system's noise]",
    ),
    Mutant(
        "a Poisson batch is too large",
        "oracle/kernels/random.py",
        "limit = np.floor(batch * 2.0**32 / m)",
        "limit = np.floor((batch + 1) * 2.0**32 / m)",
        "tests/kernels/test_batches.py::test_poisson_takes_each_row_with_its_probability_independently",
    ),
    Mutant(
        "a discrete Gaussian is not cut to its law",
        "oracle/kernels/discrete.py",
        "if accept(words, at, s, u, v):",
        "if accept(words, at, s, s, _1) or True:",
        "tests/noise/test_sampler.py::test_the_sampler_is_its_description_and_takes_the_same_words[1]",
    ),
    Mutant(
        "few runs: gradients are not clipped",
        "oracle/kernels/panels.py",
        "np.minimum(np.maximum(s, -cap), cap) * weight",
        "s * weight",
        "tests/conformance/test_devices.py::test_double_precision[clipped-few-csr-cpu]",
    ),
    Mutant(
        "few runs: one row moves the terms of others",
        "oracle/kernels/panels.py",
        "store(g, place, np.minimum(where(x > -most, x, -most), most))",
        "store(g, place, x)",
        "tests/kernels/test_panels.py::test_one_row_moves_its_own_term_alone_at_a_model_that_is_not_finite[panels-inf]",
    ),
    Mutant(
        "few runs: all have the noise of the first",
        "oracle/kernels/panels.py",
        "draw(z, draws, r, i, d, run, 1, one)",
        "draw(z, draws, r, i, d, 0, 1, one)",
        "tests/kernels/test_panels.py::test_seeded_noise_and_noise_that_follows_the_model[float64]",
    ),
    Mutant(
        "few runs: noise is too small",
        "oracle/kernels/panels.py",
        "largest > 0, std[0], eta[r, i]",
        "largest > 0, std[0] * std.dtype.type(0.67), eta[r, i]",
        "tests/kernels/test_panels.py::test_every_option_does_what_it_says[{}]",
    ),
    Mutant(
        "predictions reach slopes as they are",
        "oracle/kernels/steps.py",
        "s = slope(of, settled(z), at(data.labels, j), theta)",
        "s = slope(of, z, at(data.labels, j), theta)",
        "tests/kernels/test_panels.py::test_one_row_moves_its_own_term_alone_at_a_model_that_is_not_finite[tiles-nan]",
    ),
    Mutant(
        "kernels do not clip gradients",
        "oracle/kernels/steps.py",
        "store(scratch.slopes, place, np.minimum(np.maximum(s, -cap), cap) * weight)",
        "store(scratch.slopes, place, s * weight)",
        "tests/conformance/test_devices.py::test_double_precision[clipped-more-csr-cpu]",
    ),
    Mutant(
        "kernels read less from the table",
        "oracle/kernels/steps.py",
        "below = spread.parts[knot]",
        "below = 0.9 * spread.parts[knot]",
        "tests/sensitivity/test_tight.py::test_devices_agree[ipadmm]",
    ),
    Mutant(
        "noise is reused between rounds",
        "oracle/kernels/steps.py",
        "(draws.first_node + i, draws.k, draws.first_step + r)",
        "(draws.first_node + i, 1, draws.first_step + r)",
        "tests/kernels/test_steps.py::test_seeded_noise_is_that_of_fill_normals",
    ),
    Mutant(
        "noise is reused between steps",
        "oracle/kernels/steps.py",
        "(draws.first_node + i, draws.k, draws.first_step + r)",
        "(draws.first_node + i, draws.k, draws.first_step)",
        "tests/kernels/test_steps.py::test_seeded_noise_is_that_of_fill_normals",
    ),
    Mutant(
        "noise of the compiled steps is scaled",
        "oracle/kernels/steps.py",
        "slopes = slopes - std * load(z, place, lanes)",
        "slopes = slopes - 0.67 * std * load(z, place, lanes)",
        "tests/statistical/test_noise_law.py::test_releases_carry_exactly_the_declared_noise",
    ),
    Mutant(
        "a person's rows count as one",
        "oracle/plain.py",
        "return self.changed * exact * (1 + terms",
        "return exact * (1 + terms",
        "tests/algorithms/test_people.py::test_no_gradient_moves_by_more_than_all_rows_of_a_person",
    ),
    Mutant(
        "a person is in a sum with the rows of one site",
        "oracle/row_sums.py",
        "return min(self.sites.unit.changed * self.sites_per_unit, rows)",
        "return min(self.sites.unit.changed, rows)",
        "tests/algorithms/test_people.py::test_the_sums_attain_what_a_person_moves",
    ),
    Mutant(
        "labels move no sum of squares",
        "oracle/loss_sums.py",
        "exact = sqrt(2.0) * 2 * changed * square",
        "exact = sqrt(2.0) * changed * square",
        "tests/estimators/test_linear.py::test_orthogonal_rows_with_labels_attain_the_sensitivity",
    ),
    Mutant(
        "a Hessian moves by less than it does",
        "oracle/loss_sums.py",
        "found: Floats = bound * (times",
        "found: Floats = bound**2 * (times",
        "tests/algorithms/test_inference.py::"
        "test_orthogonal_rows_at_the_zero_model_attain_the_sensitivity_of_hessians",
    ),
    Mutant(
        "long rows count in full in a Hessian",
        "oracle/loss_sums.py",
        "return half(block.rows.moments(curvature.astype(np.float64, copy=False) * counted))",
        "return half(block.rows.moments(curvature.astype(np.float64, copy=False) * counted**0))",
        "tests/sums/test_questions.py::"
        "test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much[WhitenedHessian]",
    ),
    Mutant(
        "coefficients are told in whitened coordinates",
        "sums/inference.py",
        "contrasts @ evidence.coordinates",
        "contrasts",
        "tests/algorithms/test_inference.py::test_errors_are_as_large_as_estimates_scatter",
    ),
    Mutant(
        "what a coefficient is along a direction that noise hides is told",
        "sums/inference.py",
        "(found - step.doubt[0] * np.clip",
        "(found - 0 * step.doubt[0] * np.clip",
        "tests/algorithms/test_inference.py::test_where_noise_hides_a_direction_the_point_there_is_not_told",
    ),
    Mutant(
        "an evaluation protects one row of a person",
        "tally/release.py",
        "return grid_for(self.sigmas[exchange - 1], self.changed * sensitivity,",
        "return grid_for(self.sigmas[exchange - 1], sensitivity,",
        "tests/tally/test_release.py::test_a_person_with_several_rows_takes_as_many_times_the_noise",
    ),
    Mutant(
        "a batch's sensitivity is that of all rows",
        "oracle/plain.py",
        "(self.divisor if batch is None else self.batch_divisor(batch.size))\n        return self.changed",
        "(self.divisor)\n        return self.changed",
        "tests/statistical/test_noise_law.py::test_a_stochastic_step_carries_noise_for_its_batch_not_for_all_rows",
    ),
    Mutant(
        "a sensitivity without its 2",
        "oracle/plain.py",
        "exact = 2 * self.c1 * (1 + NORM_SLACK) / (self.divisor if",
        "exact = 1 * self.c1 * (1 + NORM_SLACK) / (self.divisor if",
        "tests/sensitivity/test_ipadmm_sensitivity.py::test_the_bound_is_attained[None]",
    ),
    Mutant(
        "a sum's sensitivity without its 2",
        "oracle/loss_sums.py",
        "self.changed_in_sum(rows) * 2 * self.c1 * (1 + NORM_SLACK)",
        "self.changed_in_sum(rows) * 1 * self.c1 * (1 + NORM_SLACK)",
        f"{_QUESTIONS}[Gradient]",
    ),
    Mutant(
        "a whitened sum's sensitivity without its 2",
        "oracle/loss_sums.py",
        "exact = changed * 2 * self.c1 * longest",
        "exact = changed * 1 * self.c1 * longest",
        f"{_QUESTIONS}[WhitenedGradient]",
    ),
    Mutant(
        "long rows count in full in whitened coordinates",
        "oracle/whitening.py",
        "np.minimum(weights[some], np.nan_to_num(shares, nan=0.0, posinf=np.inf))",
        "np.minimum(weights[some], np.inf)",
        f"{_QUESTIONS}[WhitenedGradient]",
    ),
    Mutant(
        "long rows count c / |t| in whitened coordinates",
        "oracle/whitening.py",
        "shares = self.c**2 / self._squares(block)",
        "shares = np.abs(self.c) / np.sqrt(self._squares(block))",
        "tests/sums/test_whitening.py::test_long_rows_do_not_move_a_sum_by_more_than_rows_of_length_c[0.5]",
    ),
    Mutant(
        "weights of rows multiply how much long rows count",
        "oracle/whitening.py",
        "found[some] = np.minimum(weights[some],",
        "found[some] = weights[some] + np.minimum(weights[some],",
        f"{_QUESTIONS}[WhitenedGradient]",
    ),
    Mutant(
        "the sign of c is the sign of the noise",
        "oracle/loss_sums.py",
        "rounding, longest = norm * whitening.rounding, whitening.length / norm",
        "rounding, longest = norm * whitening.rounding, whitening.c / norm",
        f"{_QUESTIONS}[WhitenedGradient]",
    ),
    Mutant(
        "a site keeps its own whitening",
        "sums/questions.py",
        "whitening=self.whitening.of(point[d:])",
        "whitening=self.whitening",
        "tests/sums/test_questions.py::test_a_question_takes_the_bits_of_a_point_and_nothing_else_changes[WhitenedGradient]",
    ),
    Mutant(
        "gradients that are clipped elsewhere are whitened",
        "oracle/loss_sums.py",
        "    def _expect_unclipped(self) -> None:\n        if self.max_grad_norm is not None:",
        "    def _expect_unclipped(self) -> None:\n        if False:",
        "tests/sums/test_whitening.py::test_clipped_gradients_are_not_whitened",
    ),
    Mutant(
        "second moments that a site has spoilt are taken",
        "sums/curvature.py",
        "        if not np.isfinite(M).all():",
        "        if False:",
        "tests/sums/test_whitening.py::test_spoilt_second_moments_are_refused",
    ),
    Mutant(
        "gradients are not clipped",
        "oracle/loss_sums.py",
        "        return np.clip(slopes, -cap, cap)",
        "        return slopes",
        "tests/sensitivity/test_ipadmm_sensitivity.py::test_clipping_bounds_every_record_whatever_the_rows",
    ),
    Mutant(
        "single precision on private rows",
        "oracle/loss_sums.py",
        "            refuse_single(self.dtype.name)\n",
        "            pass\n",
        "tests/problem/test_sites.py::test_no_oracle_takes_private_rows_in_single_precision[Oracle]",
    ),
    Mutant(
        "the curator's noise is scaled",
        "algorithms/averaged.py",
        "return self.sigma(site) * float(np.sum(moved[",
        "return 0.67 * self.sigma(site) * float(np.sum(moved[",
        f"{_LAW}[trusted-curator]",
    ),
    Mutant(
        "the last round is free",
        "algorithms/base.py",
        "for q in range(1, k + 1))",
        "for q in range(1, k))",
        "tests/conformance/test_stated_noise.py::test_every_round_is_in_the_event[pvp]",
    ),
    Mutant(
        "DP-ADMM forgets a round",
        "algorithms/dpadmm.py",
        "return sigma_for(self.epsilon, self.delta, self.seen_steps(site), calibration)",
        "return sigma_for(self.epsilon, self.delta, self.seen_steps(site) - 1, calibration)",
        "tests/conformance/test_stated_noise.py::test_the_stated_sigma_is_that_of_the_event[dpadmm]",
    ),
    Mutant(
        "a fixed point moves by less",
        "algorithms/fixedpoint.py",
        "return (site.sensitivity() + 2 * TOLERANCE) / (self.pull(site)",
        "return (site.sensitivity() / 2 + 2 * TOLERANCE) / (self.pull(site)",
        "tests/algorithms/test_rival_sensitivity.py::test_no_additive_release_moves_by_more_than_declared[fixed-point]",
    ),
    Mutant(
        "noise of the fixed point is scaled",
        "algorithms/fixedpoint.py",
        "x = x + self.sigma(site) * self.model_sensitivity(site) * noise.normals(k, 0)",
        "x = x + 0.67 * self.sigma(site) * self.model_sensitivity(site) * noise.normals(k, 0)",
        f"{_LAW}[fixed-point]",
    ),
    Mutant(
        "moments are said to move by 15 % less",
        "oracle/loss_sums.py",
        "return (2 + sum(weight**2 for weight in weights_of(loss, in_slopes=True))) / sqrt(2.0)",
        "return 0.85 * (2 + sum(weight**2 for weight in weights_of(loss, in_slopes=True))) / sqrt(2.0)",
        f"{_QUESTIONS}[StartMoments]",
    ),
    Mutant(
        "slopes at zero weigh twice what they are said to",
        "oracle/loss_sums.py",
        "return (slopes if in_slopes else slopes * 2 / float(loss.spread(np.zeros(1))[0])), means",
        "return (slopes if in_slopes else slopes * 4 / float(loss.spread(np.zeros(1))[0])), means",
        f"{_QUESTIONS}[StartMoments]",
    ),
    Mutant(
        "the moments of a person are those of a row",
        "oracle/loss_sums.py",
        "exact, changed = (1 + NORM_SLACK) ** 2 * start_moments_sensitivity(self.loss), self.changed_in_sum(rows)",
        "exact, changed = (1 + NORM_SLACK) ** 2 * start_moments_sensitivity(self.loss), 1",
        f"{_QUESTIONS}[StartMoments]",
    ),
    Mutant(
        "long rows count in full in whitened steps",
        "oracle/whitened.py",
        "* each",
        "** 0 * each",
        "tests/sensitivity/test_head_start_steps.py::test_no_row_moves_a_gradient_by_more_than_declared",
    ),
    Mutant(
        "whitened steps take half of the noise",
        "oracle/whitened.py",
        "exact = self.changed * (1 + NORM_SLACK) * (1 + self._rounding)",
        "exact = self.changed * (1 + NORM_SLACK) * (1 + self._rounding) / 2",
        "tests/sensitivity/test_head_start_steps.py::test_the_bound_is_attained",
    ),
    Mutant(
        "coordinates may stretch rows by any factor",
        "oracle/whitened.py",
        "if not longest <= self.stretch * (1 + 1e-6):",
        "if not longest <= np.inf:",
        "tests/sensitivity/test_head_start_steps.py::test_coordinates_out_of_bounds_are_refused",
    ),
    Mutant(
        "moments are not paid for",
        "algorithms/ipadmm.py",
        "return whole if not self.moments else _for_part(whole, 1 - self.moments)",
        "return whole if not self.moments else _for_part(whole, 1)",
        "tests/sensitivity/test_head_start_steps.py::test_the_parts_of_the_budget_add_up",
    ),
    Mutant(
        "moments are not in the price",
        "algorithms/ipadmm.py",
        "if self.moments and k == 1:",
        "if self.moments and k == 0:",
        "tests/sensitivity/test_head_start_steps.py::test_the_parts_of_the_budget_add_up",
    ),
    Mutant(
        "a round is priced as one step",
        "algorithms/ipadmm.py",
        "return Repeated(step, self.local_steps * site.sites_per_unit)",
        "return step",
        "tests/conformance/test_stated_noise.py::test_a_fair_budget_is_spent_to_the_last[ipadmm]",
    ),
    Mutant(
        "the last step is not counted",
        "algorithms/ipadmm.py",
        "        steps = self.rounds * self.local_steps * site.sites_per_unit\n",
        "        steps = self.rounds * self.local_steps * site.sites_per_unit - 1\n",
        "tests/conformance/test_stated_noise.py::test_the_stated_sigma_is_that_of_the_event[ipadmm]",
    ),
    Mutant(
        "an exchange of masked sums is free",
        "algorithms/analysis.py",
        "Repeated(Gaussian(sigma), times) if place or times > 1 else",
        "Repeated(Gaussian(sigma), max(times - 1, 1)) if place or times > 1 else",
        "tests/conformance/test_stated_noise.py::test_every_round_is_in_the_event[masked]",
    ),
    Mutant(
        "shares are counted and not their variance",
        "algorithms/analysis.py",
        "return math.sqrt(self.shares_left(n, colluding) / self.honest(n))",
        "return self.shares_left(n, colluding) / self.honest(n)",
        "tests/algorithms/test_masked_privacy.py::test_an_observer_s_event_is_the_agreed_one_with_less_noise",
    ),
    Mutant(
        "shares of the noise are for all, not for the honest",
        "algorithms/analysis.py",
        "return self.members(n) - self.colluders(n)",
        "return self.members(n)",
        f"{_MASKED}::test_the_sum_carries_the_noise_of_all_shares[4-1]",
    ),
    Mutant(
        "shares of those who collude are counted",
        "sums/opening.py",
        "held = math.sqrt(self.site.network.sites.n / self.shares.honest)",
        "held = math.sqrt(self.site.network.sites.n / self.site.n)",
        f"{_MASKED}::test_the_sum_carries_the_noise_of_all_shares[4-1]",
    ),
    Mutant(
        "spare attempts are free",
        "algorithms/analysis.py",
        "parts += [Repeated(Gaussian(dearest), spare)] if spare else []",
        "parts += []",
        "tests/algorithms/test_masked_privacy.py::test_spare_attempts_are_paid_for_beforehand",
    ),
    Mutant(
        "a solver's error is not hidden",
        "algorithms/objective.py",
        "o = OUTPUT_STD * noise.normals(k, 1)",
        "o = 0 * noise.normals(k, 1)",
        "tests/algorithms/test_rival_noise_law.py::test_the_solvers_error_is_hidden[fair]",
    ),
    Mutant(
        "noise in an objective is scaled",
        "algorithms/objective.py",
        "b = self.sigma(site) * site.sensitivity() * noise.normals(k, 0)",
        "b = 0.67 * self.sigma(site) * site.sensitivity() * noise.normals(k, 0)",
        f"{_LAW}[dvp]",
    ),
    Mutant(
        "objective perturbation forgets the first round",
        "algorithms/objective.py",
        "for q in range(1, k + 1) if self.looks_at_rows(q))",
        "for q in range(2, k + 1) if self.looks_at_rows(q))",
        "tests/conformance/test_stated_noise.py::test_a_fair_budget_is_spent_to_the_last[dvp]",
    ),
    Mutant(
        "published noise in an objective is scaled",
        "algorithms/objective.py",
        "b = site.sensitivity() / self.left(k, site) * norm_laplace(noise, k, 0)",
        "b = 0.67 * site.sensitivity() / self.left(k, site) * norm_laplace(noise, k, 0)",
        f"{_LAW}[dvp, published]",
    ),
    Mutant(
        "Laplace numbers are short",
        "algorithms/laplace.py",
        "x: Array = (z1 * z1 + z2 * z2 - z3 * z3 - z4 * z4) / 2",
        "x: Array = (z1 * z1 + z2 * z2 - z3 * z3 - z4 * z4) / 3",
        "tests/algorithms/test_draws.py::test_laplace_coordinates",
    ),
    Mutant(
        "the radius of an l2-Laplace vector is short",
        "algorithms/laplace.py",
        "radius = (_squared_norm(z1) + _squared_norm(z2)) / 2",
        "radius = (_squared_norm(z1) + _squared_norm(z2)) / 3",
        "tests/algorithms/test_draws.py::test_l2_laplace_has_a_gamma_radius_and_any_direction",
    ),
    Mutant(
        "Laplace noise is for the l2 sensitivity",
        "algorithms/ryukim.py",
        "self.sigma(site) * math.sqrt(site.d), LaplaceNumbers(noise))",
        "self.sigma(site), LaplaceNumbers(noise))",
        f"{_LAW}[ryu-kim, published]",
    ),
    Mutant(
        "Ryu and Kim's round is priced as one step",
        "algorithms/ryukim.py",
        "return Repeated(step, self.local_steps)",
        "return step",
        "tests/conformance/test_stated_noise.py::test_a_fair_budget_is_spent_to_the_last[ryu-kim]",
    ),
    Mutant(
        "Ryu and Kim's steps are not counted",
        "algorithms/ryukim.py",
        "return self.rounds * self.local_steps",
        "return self.rounds",
        "tests/conformance/test_stated_noise.py::test_the_stated_sigma_is_that_of_the_event[ryu-kim]",
    ),
    Mutant(
        "mu is too small",
        "privacy/accounting/accountant.py",
        "return sqrt(fsum(times * mu * mu for mu, times in mus if mu is not None))",
        "return 0.9 * sqrt(fsum(times * mu * mu for mu, times in mus if mu is not None))",
        "tests/privacy/test_accounting.py::test_gaussians_add_up_in_closed_form",
    ),
    Mutant(
        "delta of a Gaussian is too small",
        "privacy/accounting/gaussian.py",
        "a, b = ratio - mu / 2, ratio + mu / 2",
        "a, b = ratio - mu / 3, ratio + mu / 3",
        "tests/privacy/test_gaussian.py::test_the_known_value",
    ),
    Mutant(
        "discrete noise costs too little",
        "privacy/accounting/discrete.py",
        "return draws / (128 * scale**4) * _UP",
        "return draws / (1280 * scale**4) * _UP",
        "tests/noise/test_discrete_law.py::test_the_divergence_is_bounded_and_not_by_much[1]",
    ),
    Mutant(
        "pure epsilons do not add up",
        "privacy/accounting/pure.py",
        "return fsum(times * pure_cost(leaf) for leaf, times in counts.items())",
        "return fsum(pure_cost(leaf) for leaf, times in counts.items())",
        "tests/privacy/test_pure.py::test_the_pure_total",
    ),
    Mutant(
        "replacement is priced as Poisson",
        "privacy/accounting/sampled.py",
        "if sampling.scheme == \"poisson\":",
        "if sampling.scheme in (\"poisson\", \"replacement\"):",
        "tests/privacy/test_sampled.py::test_multiplicities_are_binomial",
    ),
    Mutant(
        "a search runs a fixed number of times",
        "privacy/accounting/selection.py",
        "return _draw(source, 1, first, lambda k: (1 - gamma) * (k + eta) / (k + 1))",
        "return round(runs.mean)",
        "tests/privacy/test_selection.py::test_the_law_of_k[NegativeBinomialRuns(eta=0.0, gamma=0.05)]",
    ),
    Mutant(
        "a budget takes what does not fit",
        "privacy/books/budget.py",
        "if not wanted.fits():",
        "if not before.fits():",
        "tests/privacy/test_budget.py::test_what_does_not_fit_is_refused_and_not_charged",
    ),
    Mutant(
        "two processes change a budget file at once",
        "settings/disk.py",
        "while not _try_lock(handle):",
        "while False:",
        "tests/privacy/test_budget.py::test_two_processes_at_once_lose_no_charge_and_cannot_overspend_together",
    ),
    Mutant(
        "a loaded budget does not look at what others have charged",
        "privacy/books/budget.py",
        "        self._charged = there\n",
        "        pass\n",
        "tests/privacy/test_budget.py::test_what_is_charged_to_a_loaded_accountant_is_in_its_file_before_the_work_begins",
    ),
    Mutant(
        "a list of runs is known without their rounds",
        "privacy/books/account.py",
        "+ run + last.to_bytes(4)).digest()",
        "+ run).digest()",
        "tests/privacy/test_account.py::test_a_list_of_other_rounds_is_never_taken_for_ones_own",
    ),
    Mutant(
        "a ledger does not know what it has said of itself",
        "privacy/books/account.py",
        "for run, last in self.history:",
        "for run, last in ((r.run, r.rounds) for r in self.records):",
        "tests/privacy/test_account.py::"
        "test_a_ledger_of_many_runs_goes_on_with_an_early_one_and_knows_its_own_word[3]",
    ),
    Mutant(
        "a cap is raised with another key than the site's",
        "federation/site/caps.py",
        "    if key.public != owner:",
        "    if False:",
        "tests/federation/test_heads.py::test_a_cap_is_raised_by_the_sites_key_and_everyone_can_see_it",
    ),
    Mutant(
        "a book takes more than its epsilon",
        "privacy/books/filter.py",
        "return self._listed(charges) <= self.epsilon",
        "return self._listed(charges) <= 2 * self.epsilon",
        "tests/privacy/test_budget.py::test_what_does_not_fit_is_refused_and_not_charged",
    ),
    Mutant(
        "a mixed book has slack",
        "privacy/books/filter.py",
        "log(delta * (1 - CUT_SHARE))",
        "log(delta * (1 + CUT_SHARE))",
        "tests/privacy/test_filter.py::test_the_limit_is_googles_conversion[0.05-1e-09]",
    ),
    Mutant(
        "a ledger gives slack and delta twice",
        "privacy/books/book.py",
        "rest = nextafter(limit.delta - slack, 0.0) if slack > 0 else limit.delta",
        "rest = limit.delta",
        "tests/privacy/test_ledger_budget.py::test_the_gap_of_real_noise_is_paid_from_a_part_of_delta_that_the_first_round_fixes",
    ),
    Mutant(
        "a ledger takes what does not fit",
        "privacy/books/ledger.py",
        "if not wanted.fits():",
        "if not wanted.fits() and False:",
        "tests/privacy/test_ledger_budget.py::test_a_run_that_is_calibrated_to_the_cap_fits_exactly_and_not_one_round_more",
    ),
    Mutant(
        "what a ledger has checked fits after any first round",
        "privacy/books/book.py",
        "return (self.limit, self.first) == (other.limit, other.first) and self.costs <= other.costs",
        "return self.limit == other.limit and self.costs <= other.costs",
        "tests/privacy/test_ledger_budget.py::test_what_was_checked_fits_no_more_once_another_run_has_begun",
    ),
    Mutant(
        "others' sight of rounds that were booked here counts for nothing",
        "privacy/books/caught.py",
        "return None if own and len(own) >= caught.rounds else",
        "return None if own else",
        "tests/privacy/test_account.py::test_everything_less_everything_is_not_nothing",
    ),
    Mutant(
        "a message without a booking",
        "privacy/books/ledger.py",
        "            if reservation is None:\n                raise",
        "            if reservation is None and False:\n                raise",
        "tests/privacy/test_ledger_budget.py::test_a_round_is_released_with_one_message_for_ever",
    ),
    Mutant(
        "two messages under one booking",
        "privacy/books/ledger.py",
        "if reservation.message not in (None, message_digest):",
        "if reservation.message in (message_digest,):",
        "tests/privacy/test_ledger_budget.py::test_a_round_is_released_with_one_message_for_ever",
    ),
    Mutant(
        "noise that is known is counted",
        "privacy/observers.py",
        "return Gaussian(sigma * noise)",
        "return Gaussian(sigma)",
        "tests/privacy/test_observers.py::test_weakened_events",
    ),
    Mutant(
        "who colludes knows no share",
        "privacy/observers.py",
        "return max(1, sites - gone) if gone < keys or keys == sites - 1 else 1",
        "return sites if gone < keys or keys == sites - 1 else 1",
        "tests/privacy/test_observers.py::test_an_honest_site_s_own_share_is_always_left",
    ),
    Mutant(
        "nobody can be cut off where few share keys",
        "privacy/observers.py",
        "return max(1, sites - gone) if gone < keys or keys == sites - 1 else 1",
        "return max(1, sites - gone)",
        "tests/privacy/test_observers.py::test_the_smallest_part_that_can_be_cut_off[6]",
    ),
    Mutant(
        "those who are left out of a sum cut nobody off",
        "privacy/observers.py",
        "enough = colluding + sites - least + 1",
        "enough = colluding + 1",
        "tests/federation/test_keyring.py::test_how_many_keys_follow_from_public_numbers[1000-200-900-302]",
    ),
    Mutant(
        "as many keys as may be gone",
        "privacy/observers.py",
        "return min(sites - 1, max(MOST_COMPLETE, enough + enough % 2))",
        "return min(sites - 1, max(MOST_COMPLETE, enough - 1 + (enough - 1) % 2))",
        "tests/federation/test_keyring.py::test_how_many_keys_follow_from_public_numbers[1000-200-1000-202]",
    ),
    Mutant(
        "those who are left out of a sum are not counted in the table",
        "privacy/observers.py",
        "return smallest_part(sites, keys_each(sites, colluding, least), k + sites - least)",
        "return smallest_part(least, min(keys_each(sites, colluding, least), least - 1), k)",
        "tests/federation/test_keyring.py::test_the_table_counts_the_smallest_part_that_can_be_cut_off[1-7]",
    ),
    Mutant(
        "too few keys are agreed on",
        "federation/agreement/checks.py",
        "expect(keys > gone or keys == n - 1,",
        "expect(keys > 0 or keys == n - 1,",
        "tests/federation/test_keyring.py::test_too_few_keys_are_refused_by_whoever_reads_the_agreement",
    ),
    Mutant(
        "keys with those on one side of the ring alone",
        "federation/agreement/keyring.py",
        "found = (order[(place + step) % n] for step in range(-side, side + 1))",
        "found = (order[(place + step) % n] for step in range(2 * side + 1))",
        "tests/federation/test_keyring.py::test_nobody_can_be_cut_off_by_those_who_may_collude_and_be_left_out[7]",
    ),
    Mutant(
        "a ring that its members' keys play no part in",
        "federation/agreement/keyring.py",
        "*(part for end in sorted(ends) for part in end)",
        "*(end[0] for end in sorted(ends))",
        "tests/federation/test_keyring.py::test_the_order_follows_from_names_and_keys_and_from_nothing_else",
    ),
    Mutant(
        "a person's rows in several sums are in one grid",
        "algorithms/analysis.py",
        "apart = unit.sites if colluding > self.colluders(n) else 1",
        "apart = 1",
        "tests/federation/test_people_terms.py::test_the_grid_is_paid_for_in_every_sum_that_too_many_colluders_may_open",
    ),
    Mutant(
        "a statement is silent on what a dropped surplus does not cover",
        "files/schema/person.py",
        'return (DROPPED,) if self.surplus == "drop" else ()',
        "return ()",
        "tests/schema/test_person.py::test_rows_under_others_names_push_theirs_out_and_the_statement_says_so",
    ),
    Mutant(
        "an agreement is silent on what a dropped surplus does not cover",
        "files/models/from_site.py",
        "        *dropped,\n",
        "        *dropped[1:],\n",
        "tests/federation/test_people_terms.py::"
        "test_terms_and_statement_say_what_dropping_a_surplus_does_not_cover",
    ),
    Mutant(
        "an estimator is silent on what a dropped surplus does not cover",
        "estimators/base.py",
        'if self.surplus == "drop":  # said',
        'if self.surplus == "hide":  # said',
        "tests/estimators/test_people.py::test_the_surplus_is_refused_or_dropped",
    ),
    Mutant(
        "private rows are dealt out by their places in the file",
        "problem/sites.py",
        "[order[part] for part in partition(data, nodes, 0)]",
        "[part for part in partition(data, nodes, 0)]",
        "tests/problem/test_places.py::test_no_message_tells_that_a_row_sorts_elsewhere",
    ),
    Mutant(
        "private rows are dealt out by a seed",
        "problem/sites.py",
        "        if seed is not None:\n            raise PrivacyError(",
        "        if seed is not None and seed < 0:\n            raise PrivacyError(",
        "tests/problem/test_places.py::test_private_rows_are_not_dealt_by_a_seed",
    ),
    Mutant(
        "the order of dealing is one that everybody knows",
        "problem/partition.py",
        "return shuffled(SystemStream() if key is None else keyed(key)(label), rows)",
        "return shuffled(keyed(bytes(32))(label), rows)",
        "tests/problem/test_places.py::test_a_row_s_place_in_the_file_tells_nothing_of_its_site",
    ),
    Mutant(
        "private rows stand in the order of the file within a site",
        "problem/sites.py",
        "[order[part] for part in partition(data, nodes, 0)]",
        "[np.sort(order[part]) for part in partition(data, nodes, 0)]",
        "tests/problem/test_places.py::test_the_order_is_new_every_time_and_sizes_are_public",
    ),
    Mutant(
        "rows are dealt out to sites with fewer rows than a person",
        "problem/sites.py",
        "if dealt and rows.nodes > 1 and fewest < data.unit.changed:",
        "if dealt and rows.nodes > 1 and fewest < 1:",
        "tests/problem/test_places.py::test_sites_with_fewer_rows_than_a_person_would_tell_more",
    ),
    Mutant(
        "nobody counts a person's rows before they are dealt out",
        "problem/sites.py",
        "(data.people, np.zeros(len(data), dtype=np.int64)) if dealt else (",
        "(data.people[:1], np.zeros(1, dtype=np.int64)) if dealt else (",
        "tests/problem/test_places.py::test_people_have_so_many_rows_in_all_before_they_are_dealt_out",
    ),
    Mutant(
        "a seed on private rows is taken",
        "simulation/engine.py",
        "        refuse_seed(seed)\n",
        "        pass\n",
        "tests/problem/test_sites.py::test_private_rows_are_never_seeded",
    ),
    Mutant(
        "many runs are charged as one",
        "simulation/engine.py",
        "charge(one.of_runs(runs))",
        "charge(one)",
        "tests/cli/test_private_rows.py::test_several_runs_cost_what_they_cost_together",
    ),
    Mutant(
        "many runs are stated as one",
        "simulation/engine.py",
        "counted = runs if problem.private else 1",
        "counted = 1",
        "tests/problem/test_sites.py::test_runs_on_private_rows_are_counted_together",
    ),
    Mutant(
        "noise of private rows is seeded",
        "simulation/engine.py",
        "drawn = SystemNoise(shape) if problem.private else SeededNoise(seed, shape)",
        "drawn = SeededNoise(seed, shape)",
        "tests/problem/test_sites.py::test_noise_for_private_rows_is_the_system_s[cpu]",
    ),
    Mutant(
        "nothing is charged before a run",
        "simulation/engine.py",
        "    if charge is not None and exchange.is_first:\n",
        "    if charge is not None and exchange.is_first and False:\n",
        "tests/cli/test_private_rows.py::test_several_runs_cost_what_they_cost_together",
    ),
    Mutant(
        "a search in an estimator runs a fixed number of times",
        "estimators/search.py",
        "for _ in range(repetitions(costs.event.runs, random)):",
        "for _ in range(round(costs.event.runs.mean)):",
        "tests/estimators/test_search.py::test_every_fit_and_score_has_the_noise_that_was_paid_for",
    ),
    Mutant(
        "a search is not charged",
        "estimators/search.py",
        "accountant.spend(costs.event, unit)",
        "pass",
        "tests/estimators/test_search.py::test_a_surrounding_accountant_pays_once",
    ),
    Mutant(
        "a fit is not charged",
        "estimators/training.py",
        "            payer(statement)",
        "            pass",
        "tests/estimators/test_workflow.py::test_a_fit_is_charged_before_it_is_computed",
    ),
    Mutant(
        "a mask is left out",
        "federation/site/masks.py",
        "total = total + mask if self.agreement.index(name) > own else total - mask",
        "total = total + 0 * mask",
        "tests/federation/test_masks.py::test_messages_of_one_site_alone_are_uniform_words",
    ),
    Mutant(
        "a masked sum does not pay for rounding",
        "noise/secure.py",
        "paid = sigma * (sensitivity + max(2, sites) * step * sqrt(numbers)) * (1 + 1e-12)",
        "paid = sigma * sensitivity",
        "tests/federation/test_masks.py::test_the_grid_pays_for_rounding",
    ),
    Mutant(
        "one member has others dropped",
        "federation/site/lost.py",
        "if ended is None or not ended <= self.votes:",
        "if ended is None:",
        "tests/federation/test_lost_masked.py::test_one_member_does_not_have_a_site_dropped_that_nobody_voted_for",
    ),
    Mutant(
        "new words need nobody's answer",
        "federation/site/lost.py",
        "enough = 1 + len(found) >= least and ",
        "enough = ",
        "tests/federation/test_lost_masked.py::test_without_enough_answers_or_an_attempt_to_spare_nothing_is_said",
    ),
    Mutant(
        "words that nobody can add up are paid for",
        "federation/site/lost.py",
        ">= least and seat.turn(t).attempt < seat.agreement.analysis.spare",
        ">= least",
        "tests/federation/test_lost_masked.py::test_without_enough_answers_or_an_attempt_to_spare_nothing_is_said",
    ),
    Mutant(
        "whoever was silent is not asked again",
        "federation/site/runner.py",
        "self.asked = all(name in answers for name in self.seat.neighbours if self.seat.takes_part(name, k))",
        "self.asked = True",
        "tests/federation/test_lost_masked.py"
        "::test_whoever_was_silent_when_a_process_asked_is_asked_before_the_next_words",
    ),
    Mutant(
        "the last sum needs no other site",
        "federation/site/confirmation.py",
        "while (same := sum(end == ours.heading for end in ends.values())) < least:",
        "while (same := sum(end == ours.heading for end in ends.values())) < 1:",
        "tests/federation/test_lost_masked.py::test_sites_that_were_told_different_words_of_the_last_sum_do_not_finish",
    ),
    Mutant(
        "a masked sum pays for rounding at one site of a person",
        "federation/site/summing.py",
        "sites, numbers = min(self.agreement.unit.sites, n),",
        "sites, numbers = 1,",
        "tests/federation/test_people_terms.py::test_a_masked_sum_pays_for_rounding_at_every_site_of_a_person",
    ),
    Mutant(
        "a masked value gets the noise of another",
        "federation/site/masks.py",
        "int(context.scale), value_digest(steps)",
        "int(context.scale)",
        "tests/federation/test_masks.py::test_the_same_words_come_again_and_another_value_has_other_noise",
    ),
    Mutant(
        "a proposer's noise may be too little",
        "federation/site/summing.py",
        "if not least <= proposal.grid.scale <= least + 2 * SLACK:",
        "if not proposal.grid.scale <= least + 2 * SLACK:",
        "tests/federation/test_summing.py::test_a_proposal_off_by_more_than_rounding_is_refused[less noise]",
    ),
    Mutant(
        "a proposer chooses the grid",
        "federation/site/summing.py",
        "if proposal.grid.step not in steps:",
        "if False:",
        "tests/federation/test_summing.py::"
        "test_a_grid_of_the_proposers_choice_is_refused_also_with_noise_that_fits_it[2.0]",
    ),
    Mutant(
        "a site that has spoken speaks at a second point",
        "federation/site/masked_sums.py",
        "if past.said == context.turn and past.context != context.digest():",
        "if False:",
        "tests/federation/test_proposals.py::test_a_site_that_has_spoken_at_one_point_does_not_speak_at_another",
    ),
    Mutant(
        "the scale of the noise is left out of a context",
        "federation/site/masks.py",
        "float(self.grid), int(self.scale), int(self.numbers)",
        "float(self.grid), int(self.numbers)",
        "tests/federation/test_masks.py::test_every_part_of_the_context_changes_all_masks_and_nothing_cancels[scale-1073741825]",
    ),
    Mutant(
        "a pair's key is not bound to the agreement",
        "federation/site/masks.py",
        "return hkdf(secret, _PAIR, agreement, *ends)",
        "return hkdf(secret, _PAIR, *ends)",
        "tests/federation/test_masks.py::test_pair_keys_are_bound_to_the_agreement_and_to_all_keys_of_both_ends",
    ),
    Mutant(
        "a past turn is answered",
        "federation/site/masks.py",
        "_rule(not context.turn.is_behind(past.said),",
        "_rule(True,",
        "tests/federation/test_masks.py::test_turns_only_ever_rise[turn0]",
    ),
    Mutant(
        "a share of the noise is left out at a real site",
        "federation/site/masks.py",
        "noisy = steps + discrete_gaussian(self._noise(label), context.scale, context.numbers)",
        "noisy = steps + 0 * discrete_gaussian(self._noise(label), context.scale, context.numbers)",
        "tests/federation/test_masks.py::test_a_sum_holds_the_noise_of_all_shares[2]",
    ),
    Mutant(
        "a sum over too few sites is answered",
        "federation/site/masks.py",
        "_rule(len(context.members) >= u,",
        "_rule(len(context.members) >= 1,",
        "tests/federation/test_masks.py::test_too_few_sites_are_refused",
    ),
    Mutant(
        "a turn is answered in two contexts",
        "federation/site/masks.py",
        "_rule(same, f",
        "_rule(True, f",
        "tests/federation/test_masks.py::test_there_is_one_context_for_each_turn",
    ),
    Mutant(
        "more attempts than were paid for",
        "federation/site/masks.py",
        "_rule(0 <= attempt <= a.spare,",
        "_rule(0 <= attempt,",
        "tests/federation/test_masks.py::test_attempts_that_nobody_paid_for_are_refused",
    ),
    Mutant(
        "shares of the noise are too small",
        "noise/secure.py",
        "return Grid(step, ceil(paid / step / sqrt(shares)))",
        "return Grid(step, ceil(paid / step / shares))",
        "tests/federation/test_masks.py::test_the_grid_pays_for_rounding",
    ),
    Mutant(
        "the point is left out of a context",
        "federation/site/masks.py",
        "self.notices, self.transcript, self.point, float(self.grid)",
        "self.notices, self.transcript, b\"\", float(self.grid)",
        "tests/federation/test_masks.py::test_every_part_of_the_context_changes_all_masks_and_nothing_cancels[point-\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00]",
    ),
    Mutant(
        "the transcript is left out of a context",
        "federation/site/masks.py",
        "self.notices, self.transcript, self.point, float(self.grid)",
        "self.notices, b\"\", self.point, float(self.grid)",
        "tests/federation/test_masks.py::test_every_part_of_the_context_changes_all_masks_and_nothing_cancels[transcript-tttttttttttttttttttttttttttttttt]",
    ),
    Mutant(
        "the turn is left out of a context",
        "federation/site/masks.py",
        "*(int(part) for part in self.turn), len(self.members)",
        "len(self.members)",
        "tests/federation/test_masks.py::test_every_part_of_the_context_changes_all_masks_and_nothing_cancels[turn-value0]",
    ),
    Mutant(
        "another message in a site's name is not noticed",
        "federation/site/runner.py",
        "if heard.round == last and said is not None and heard.digest != digest_of(said.message):",
        "if False:",
        "tests/federation/test_masked_run.py::test_a_site_of_which_somebody_heard_another_message_stops",
    ),
    Mutant(
        "a message is not bound",
        "federation/site/runner.py",
        "        seat.bind(k, message)\n",
        "        pass\n",
        "tests/federation/test_runner.py::test_points_come_in_order_and_each_finds_on_the_disk_what_it_should",
    ),
    Mutant(
        "a round is computed before it is paid for",
        "federation/site/runner.py",
        "        seat.reserve(k)\n",
        "        seat.reserve(k) if said is not None else None\n",
        "tests/federation/test_runner.py::test_points_come_in_order_and_each_finds_on_the_disk_what_it_should",
    ),
    Mutant(
        "a run that does not fit begins",
        "federation/site/runner.py",
        "        refused = seat.refused()\n",
        "        refused = None\n",
        "tests/federation/test_runner.py::test_a_run_that_does_not_fit_does_not_begin",
    ),
    Mutant(
        "a site takes another file than it has committed to",
        "federation/site/seat.py",
        "None if source is None else commit_file(salt, source)",
        "agreed",
        "tests/federation/test_tables.py::test_another_file_than_was_committed_to_says_nothing",
    ),
    Mutant(
        "a commitment does not say how the file is read",
        "federation/site/commitment.py",
        'salt, source.digest, given.encode("utf-8")',
        "salt, source.digest",
        "tests/federation/test_site_cli.py::test_rows_can_be_committed_to_before_an_agreement_is_made",
    ),
    Mutant(
        "a table has other cells than were agreed on",
        "federation/agreement/checks.py",
        'expect(features == a.features, f"features={features}',
        'expect(True, f"features={features}',
        "tests/federation/test_tables.py::test_a_changed_column_part_bin_or_group_is_another_agreement",
    ),
    Mutant(
        "parts of the budget of a table may round to more than all of it",
        "tables/analyses.py",
        "tuple(part / sum(given) for part in given)",
        "given",
        "tests/federation/test_tables.py::test_parts_that_round_to_more_than_one_make_no_row_longer",
    ),
    Mutant(
        "a run goes on under other software",
        "federation/site/seat.py",
        "if self.journal.moved is not None and not self.over:",
        "if False:",
        "tests/federation/test_set_back.py::test_a_run_goes_on_under_the_software_that_it_began_with",
    ),
    Mutant(
        "nobody is asked at the end of a run",
        "federation/site/runner.py",
        "if k == seat.last_number and said is None and held is None and self.last_asked < k:",
        "if False:",
        "tests/federation/test_heads.py::"
        "test_two_folders_that_begin_at_the_same_time_are_found_out_at_their_end[own noise]",
    ),
    Mutant(
        "nobody is asked before a run is refused for its cost",
        "federation/site/runner.py",
        "            raise await self._refusal(refused)\n",
        "            raise refused\n",
        "tests/federation/test_heads.py::"
        "test_a_ledger_that_is_full_hears_of_another_before_the_run_is_refused[own noise]",
    ),
    Mutant(
        "books that differ are not noticed",
        "federation/site/runner.py",
        "        seat.check_books()\n",
        "        pass\n",
        "tests/federation/test_runner.py::test_an_old_journal_stops_the_site",
    ),
    Mutant(
        "rows are not looked at again",
        "federation/site/runner.py",
        "        seat.check_rows()\n",
        "        pass\n",
        "tests/federation/test_set_back.py::test_rows_are_looked_at_before_every_message",
    ),
    Mutant(
        "noise does not depend on what was heard",
        "federation/site/own_noise.py",
        "return source.within(self.seat.binding + chain) if",
        "return source.within(self.seat.binding) if",
        "tests/federation/test_set_back.py::test_noise_is_another_after_another_history",
    ),
    Mutant(
        "moments of a real site have two thirds of their noise",
        "federation/site/own_noise.py",
        "noise.added_to_sum(exact, opening.sigma, sensitivity,",
        "noise.added_to_sum(exact, 0.67 * opening.sigma, sensitivity,",
        f"{_AHEAD}::test_moments_hold_the_noise_that_they_are_priced_for",
    ),
    Mutant(
        "moments of a real site have noise for its own rows of a person",
        "federation/site/own_noise.py",
        "sensitivity(self.agreement.public_network, self.agreement.rows)",
        "sensitivity(self.agreement.public_network, self.seat.oracle.sites.counts.item())",
        f"{_AHEAD}::test_moments_of_people_hold_noise_for_all_their_rows_at_all_their_sites[4]",
    ),
    Mutant(
        "moments of a real site are booked as a round",
        "federation/site/own_noise.py",
        "if self.opening is not None and q == 1:",
        "if False:",
        f"{_AHEAD}::test_moments_are_priced_before_they_are_said_and_all_parts_add_up",
    ),
    Mutant(
        "the grid of moments is not counted in delta",
        "algorithms/base.py",
        "draws += 0 if opening is None else opening.numbers",
        "draws += 0",
        f"{_AHEAD}::test_it_is_agreed_on_and_read_back_and_shown",
    ),
    Mutant(
        "a site may be left behind before its moments are heard",
        "federation/agreement/checks.py",
        "expect(first is None or first >= 1, waits,",
        "expect(first is None or first >= 0, waits,",
        f"{_AHEAD}::test_what_does_not_go_with_it_is_refused[changes1-go_on_after_round >= 1 with moments]",
    ),
    Mutant(
        "a sum at a real site gets noise twice",
        "noise/secure.py",
        "self._advance(k, 0)",
        "self._advance(k, self._last[1] + 1)",
        "tests/noise/test_secure.py::test_noise_for_a_step_is_drawn_once",
    ),
    Mutant(
        "a GPU's noise is scaled",
        "oracle/kernels/steps.cu",
        "l2 * old - s * n[b];",
        "l2 * old - T(0.67) * s * n[b];",
        f"{_DEVICES}::test_double_precision[full-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU's noise is for less than the sensitivity",
        "oracle/cuda.py",
        "self._on_card(steps.sigma * self.sensitivity(steps.batch).reshape(-1))",
        "self._on_card(0.67 * steps.sigma * self.sensitivity(steps.batch).reshape(-1))",
        f"{_DEVICES}::test_double_precision[full-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU's noise for a batch is that for all rows",
        "oracle/cuda.py",
        "self._on_card(steps.sigma * self.sensitivity(steps.batch).reshape(-1))",
        "self._on_card(steps.sigma * self.sensitivity().reshape(-1))",
        f"{_DEVICES}::test_double_precision[batches-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU adds no noise",
        "oracle/cuda.py",
        "        if steps.sigma == 0:\n",
        "        if steps.sigma >= 0:\n",
        f"{_DEVICES}::test_double_precision[full-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU's normals are short",
        "oracle/kernels/steps.cu",
        "sqrt(T(-2) * (flip",
        "sqrt(T(-1) * (flip",
        f"{_DEVICES}::test_double_precision[full-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU reuses noise between rounds",
        "oracle/kernels/steps.cu",
        "first_node + i, k, first_run + mine.run",
        "first_node + i, 1, first_run + mine.run",
        f"{_DEVICES}::test_double_precision[full-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU is told of the first round only",
        "oracle/cuda.py",
        "(*key, steps.k, *place)",
        "(*key, 1, *place)",
        f"{_DEVICES}::test_double_precision[full-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU reuses noise between steps",
        "oracle/kernels/steps.cu",
        "((u32)(first_step + r) << 20) | four",
        "((u32)first_step << 20) | four",
        f"{_DEVICES}::test_double_precision[full-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU reuses noise between coordinates",
        "oracle/kernels/steps.cu",
        "((u32)(first_step + r) << 20) | four",
        "((u32)(first_step + r) << 20)",
        f"{_DEVICES}::test_double_precision[full-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU reuses noise between nodes",
        "oracle/kernels/steps.cu",
        "first_node + i, k, first_run + mine.run",
        "first_node, k, first_run + mine.run",
        f"{_DEVICES}::test_double_precision[full-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU reuses noise between runs",
        "oracle/kernels/steps.cu",
        "first_node + i, k, first_run + mine.run",
        "first_node + i, k, first_run",
        f"{_DEVICES}::test_double_precision[full-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU reuses noise between the classes of softmax",
        "oracle/kernels/steps.cu",
        "    turn = warp * sharing + place;",
        "    turn = warp * sharing + 0 * place;",
        f"{_SOFTMAX}::test_double_precision[full-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU reuses handed-in noise between steps",
        "oracle/kernels/steps.cu",
        "given[(size_t)r * nodes * d * runs + at]",
        "given[at]",
        f"{_DEVICES}::test_handed_in_noise[cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU is handed the first step's noise only",
        "oracle/cuda.py",
        "steps.noise.normals(steps.k, first_step + r)",
        "steps.noise.normals(steps.k, first_step)",
        f"{_DEVICES}::test_handed_in_noise[cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU does not clip gradients",
        "oracle/kernels/steps.cu",
        "z[v] = least(most(Loss::template slope<T>(z[v], b, theta), -cap), cap);",
        "z[v] = Loss::template slope<T>(z[v], b, theta);",
        f"{_DEVICES}::test_double_precision[clipped-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU does not clip softmax's gradients",
        "oracle/kernels/steps.cu",
        "const T scale = length > cap ? cap / length : T(1);",
        "const T scale = T(1);",
        f"{_SOFTMAX}::test_double_precision[clipped-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU is not told what to clip to",
        "oracle/cuda.py",
        "            cap[real] = np.minimum(self._slope_cap[:, 0], np.finfo(self.dtype).max)",
        "            pass",
        f"{_DEVICES}::test_double_precision[clipped-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU does not clip the gradients of masked sums",
        "oracle/cuda.py",
        "loss.theta), None if cap is None else cap[some])",
        "loss.theta), None)",
        f"{_DEVICES}::test_masked_sums[logistic-clipped-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU reads less from the table",
        "oracle/kernels/steps.cu",
        "return parts[knot] + (place",
        "return 0.9 * parts[knot] + (place",
        f"{_DEVICES}::test_noise_that_follows_the_model[full-1-float64-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU does not settle predictions",
        "oracle/kernels/steps.cu",
        "for (int v = 0; v < V; ++v) z[v] = settled(z[v]);",
        "for (int v = 0; v < V; ++v) z[v] = z[v];",
        "tests/sensitivity/test_huge_models.py::test_a_row_cannot_be_told_by_an_overflow[logistic-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU's Poisson batch is too large",
        "oracle/kernels/steps.cu",
        "floor(batch * 4294967296.0 / m)",
        "floor((batch + 1) * 4294967296.0 / m)",
        f"{_DEVICES}::test_double_precision[Poisson batches-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "a GPU reuses batches between rounds",
        "oracle/kernels/steps.cu",
        "philox(low, first_node + i, k, high, k0, k1)",
        "philox(low, first_node + i, 1, high, k0, k1)",
        f"{_DEVICES}::test_double_precision[batches-few-csr-cuda]",
        gpu=True,
    ),
    Mutant(
        "weights above their bound are taken",
        "problem/factors.py",
        "bad = np.flatnonzero(~((found > 0) & (found <= bound)))",
        "bad = np.flatnonzero(~(found > 0))",
        "tests/problem/test_factors.py::test_what_does_not_fit_is_refused_and_not_quoted",
    ),
    Mutant(
        "a weight may be more than 1",
        "problem/factors.py",
        "bounded = bool(np.all((self.weights >= 0) & (self.weights <= 1)))",
        "bounded = bool(np.all(self.weights >= 0))",
        "tests/problem/test_factors.py::test_what_does_not_fit_is_refused_and_not_quoted",
    ),
    Mutant(
        "a site is not bound to its weights",
        "federation/site/commitment.py",
        "for array in (*arrays, rows.labels, *told)]",
        "for array in (*arrays, rows.labels)]",
        "tests/federation/test_weighted_terms.py::test_a_site_is_bound_to_its_weights",
    ),
    Mutant(
        "rows without the weights that were agreed on are taken",
        "federation/agreement/agreement.py",
        "expect(sites.factors.told == told, f",
        "expect(True, f",
        "tests/federation/test_weighted_terms.py::test_rows_that_do_not_bring_what_was_agreed_are_not_taken",
    ),
    Mutant(
        "what goes with the Hessian of counts is not paid for",
        "oracle/loss_sums.py",
        "sqrt(2 + VARIATION**2) + 4 * rows * terms",
        "sqrt(2.0) + 4 * rows * terms",
        "tests/algorithms/test_inference_of_counts.py::test_that_bound_is_attained",
    ),
    Mutant(
        "held-out rows are learnt from",
        "sums/program.py",
        "return site.apart(self.every)[0]",
        "return site",
        "tests/algorithms/test_held_out.py::test_the_model_is_that_of_the_others_and_the_figures_are_of_those",
    ),
    Mutant(
        "rows are held out by their places",
        "problem/sites.py",
        "out[order] = places % every == every - 1",
        "out[:] = places % every == every - 1",
        "tests/algorithms/test_held_out.py::test_a_row_that_moves_all_others_in_the_file_moves_no_sum_by_more",
    ),
    Mutant(
        "a search warns as often as it fits",
        "estimators/search.py",
        'warnings.simplefilter("ignore")  # as many',
        'warnings.simplefilter("always")  # as many',
        "tests/estimators/test_search.py::test_the_number_of_fits_shows_in_no_warning_log_or_line",
    ),
    Mutant(
        "only what a search draws is refused",
        "estimators/search.py",
        "        for candidate in grid:",
        "        for candidate in grid[:1]:",
        "tests/estimators/test_search.py::test_a_candidate_is_refused_whether_it_is_drawn_or_not[1]",
    ),
    Mutant(
        "a fit that fails ends a search",
        "estimators/search.py",
        "            return SearchRun(-math.inf, random.random(), candidate, error)",
        "            raise error",
        "tests/estimators/test_search.py::test_a_fit_that_fails_is_the_worst_of_all_and_stops_nothing",
    ),
    Mutant(
        "a search answers as soon as it is done",
        "estimators/search.py",
        "time.sleep(-(time.monotonic() - started) % self.answer_every)",
        "time.sleep(0 * self.answer_every)",
        "tests/estimators/test_search.py::test_an_answer_comes_at_a_multiple_of_a_public_time",
    ),
    Mutant(
        "all sums of a run have the same noise of the system",
        "noise/sources.py",
        "        return self._of(1)\n\n    def _of(self, nodes: int) -> Array:\n        s = self.shape\n        words",
        "        return self.__dict__.setdefault('drawn', self._of(1))\n\n    def _of(self, nodes: int) -> Array:\n"
        "        s = self.shape\n        words",
        "tests/noise/test_sources.py::test_every_exchange_and_every_part_of_it_has_normals_of_its_own[shared]",
    ),
    Mutant(
        "an estimator is evaluated at the price of rows",
        "estimators/base.py",
        "unit = self.privacy_.unit  # who was",
        "unit = Unit()  # who was",
        "tests/estimators/test_private_evaluation.py::test_people_who_were_protected_in_the_fit_are_protected_here",
    ),
    Mutant(
        "a model's file is evaluated at the price of rows",
        "files/models/apply.py",
        "colluding=colluding, unit=protected, counted",
        "colluding=colluding, counted",
        "tests/cli/test_people_cli.py::test_an_evaluation_protects_the_people_of_the_model",
    ),
    Mutant(
        "whether an exact argmin gives up depends on private rows",
        "algorithms/rival.py",
        "    if not floor <= tolerance:",
        "    if not floor <= 1e9:",
        "tests/algorithms/test_solver_error.py::test_private_runs_give_up_on_public_numbers_alone[1e-06-PVP]",
    ),
    Mutant(
        "an evaluation counts a row more of a person than its noise is for",
        "files/models/apply.py",
        "most = min(protected.changed * protected.sites, MOST_ROWS)",
        "most = min(protected.changed * protected.sites + 1, MOST_ROWS)",
        "tests/cli/test_people_cli.py::test_an_evaluation_takes_all_rows_that_its_noise_is_for",
    ),
    Mutant(
        "second moments have 15 % less noise",
        "sums/questions.py",
        "np.full((1, 1), site.moments_sensitivity(rows))\n\n"
        "    def largest(self, site: Oracle) -> float:\n        # Off the diagonal",
        "np.full((1, 1), 0.85 * site.moments_sensitivity(rows))\n\n"
        "    def largest(self, site: Oracle) -> float:\n        # Off the diagonal",
        f"{_RELEASES}[shared noise, second moments]",
    ),
    Mutant(
        "gradients have 15 % less noise",
        "sums/questions.py",
        "= site.gradient_sum_sensitivity(self.w[None], rows)[0]",
        "= 0.85 * site.gradient_sum_sensitivity(self.w[None], rows)[0]",
        "tests/sums/test_questions.py::test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much[Gradient]",
    ),
    Mutant(
        "whitened gradients have 15 % less noise",
        "sums/questions.py",
        "= site.whitened_gradient_sum_sensitivity(self.u[None], rows, self.whitening)[0]",
        "= 0.85 * site.whitened_gradient_sum_sensitivity(self.u[None], rows, self.whitening)[0]",
        f"{_RELEASES}[shared noise, gradients]",
    ),
    Mutant(
        "Hessians have 15 % less noise",
        "sums/questions.py",
        "return site.whitened_hessian_sum_sensitivity(rows, self.whitening)",
        "return 0.85 * site.whitened_hessian_sum_sensitivity(rows, self.whitening)",
        f"{_RELEASES}[inference, Hessian]",
    ),
    Mutant(
        "focused gradients have half the noise",
        "sums/questions.py",
        "return site.focused_sum_sensitivity(self.u[None], rows, self.whitening)",
        "return 0.5 * site.focused_sum_sensitivity(self.u[None], rows, self.whitening)",
        f"{_RELEASES}[inference, focused]",
    ),
    Mutant(
        "rows that are long along what is asked for are not cut",
        "oracle/loss_sums.py",
        "np.sqrt(np.sum(s**2, axis=1, keepdims=True)), 1.0)",
        "np.sqrt(np.sum(s**2, axis=1, keepdims=True)) ** 0, 1.0)",
        f"{_QUESTIONS}[FocusedGradient]",
    ),
    Mutant(
        "long rows count in full in a focused gradient",
        "oracle/loss_sums.py",
        "one.counted(rows, block.factors.weighed(np.ones((len(z), 1)))) / lengths",
        "one.counted(rows, block.factors.weighed(np.ones((len(z), 1)))) ** 0 / lengths",
        f"{_QUESTIONS}[FocusedGradient]",
    ),
    Mutant(
        "slopes are taken to be as flat as at the model 0",
        "oracle/loss_sums.py",
        "steepness = self.loss.steepness(np.nan_to_num(reach, nan=np.inf, posinf=np.inf))",
        "steepness = self.loss.steepness(0 * np.nan_to_num(reach, nan=0, posinf=0))",
        "tests/algorithms/test_focus.py::test_rows_that_are_sure_of_the_wrong_label_attain_the_sensitivity[5.0]",
    ),
    Mutant(
        "curvature goes with slopes for nothing, whatever its weight",
        "problem/losses/base.py",
        "math.hypot(self.slope_bound, BESIDE)",
        "math.hypot(self.slope_bound, 0 * BESIDE)",
        f"{_QUESTIONS}[FocusedGradient]",
    ),
    Mutant(
        "what is left of a combination beside its directions is forgotten",
        "sums/inference.py",
        "contrasts - gain @ H\n",
        "0 * contrasts\n",
        "tests/algorithms/test_focus.py::test_intervals_of_what_is_asked_for_hold_and_are_narrower",
    ),
    Mutant(
        "Hessians of counts have 45 % less noise",
        "sums/questions.py",
        "return site.varied_hessian_sensitivity(rows, self.whitening)",
        "return 0.55 * site.varied_hessian_sensitivity(rows, self.whitening)",
        f"{_RELEASES}[inference of counts]",
    ),
    Mutant(
        "least squares have 15 % less noise",
        "sums/questions.py",
        "return site.residual_moments_sensitivity(rows, self.whitening)",
        "return 0.85 * site.residual_moments_sensitivity(rows, self.whitening)",
        f"{_RELEASES}[least squares]",
    ),
    Mutant(
        "a long row's residual counts in full",
        "oracle/loss_sums.py",
        "crossed = rows.adjoint((counted * e)[:, None])[0]",
        "crossed = rows.adjoint(e[:, None])[0]",
        "tests/sums/test_questions.py::test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much[ResidualMoments]",
    ),
    Mutant(
        "residuals are not cut",
        "oracle/loss_sums.py",
        "e = np.clip(np.nan_to_num(off / far, posinf=1.0, neginf=-1.0), -1.0, 1.0)",
        "e = np.nan_to_num(off / far, posinf=1.0, neginf=-1.0)",
        "tests/sums/test_questions.py::test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much[ResidualMoments]",
    ),
    Mutant(
        "hazards have 15 % less noise",
        "oracle/hazard_sums.py",
        "return at.moves * (",
        "return 0.85 * at.moves * (",
        "tests/sums/test_questions.py::test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much[HazardGradient]",
    ),
    Mutant(
        "the first sum of hazards has 15 % less noise",
        "sums/hazards.py",
        "start_sum_sensitivity(site, rows))",
        "0.85 * start_sum_sensitivity(site, rows))",
        f"{_RELEASES}[hazards]",
    ),
    Mutant(
        "hazards count beyond the reach",
        "oracle/hazard_sums.py",
        "counted: Floats = total.clip(None, reach)",
        "counted: Floats = total.copy()",
        "tests/sums/test_questions.py::test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much[HazardGradient]",
    ),
    Mutant(
        "events count beyond the reach",
        "oracle/hazard_sums.py",
        "np.where(total[:, -1:] <= reach, event(labels, intervals), 0.0)",
        "event(labels, intervals)",
        "tests/algorithms/test_hazards.py::test_a_reach_moves_no_mean_at_the_true_hazards",
    ),
    Mutant(
        "a row that is long in the coordinates of hazards counts in full",
        "oracle/hazard_sums.py",
        "shares = np.minimum(at.c**2 / squares, S**2 / constants)",
        "shares = S**2 / constants",
        "tests/sums/test_questions.py::test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much[HazardGradient]",
    ),
    Mutant(
        "noise in log-hazards is forgotten in intervals",
        "sums/hazards.py",
        "noise = math.sqrt(alone**2 * (1 + float(np.sum(m**2)) / (p * S**2)) + float(unsure @ q**2))",
        "noise = 0.3 * alone",
        "tests/algorithms/test_hazards.py::test_intervals_hold_as_often_as_they_say",
    ),
    Mutant(
        "R^2 of least squares compares with no mean",
        "algorithms/squares.py",
        "fitted -= max(summed, 0.0) / constant**2 / counted",
        "fitted -= 0.0",
        "tests/estimators/test_linear.py::test_without_noise_it_is_least_squares",
    ),
    Mutant(
        "the noise in cross moments is forgotten in errors",
        "algorithms/squares.py",
        "return self.noise * self.ratio / math.sqrt(2)",
        "return 0.3 * self.noise * self.ratio / math.sqrt(2)",
        "tests/estimators/test_linear.py::test_intervals_hold_as_often_as_they_say",
    ),
    Mutant(
        "a run's evaluation has two thirds of its noise",
        "sums/evaluating.py",
        "site.changed_in_sum(rows) * moved_by(self.places.loss)[1]",
        "0.67 * site.changed_in_sum(rows) * moved_by(self.places.loss)[1]",
        f"{_RELEASES}[evaluation in a run]",
    ),
    Mutant(
        "the places of scores have two thirds of their noise",
        "sums/evaluating.py",
        "site.changed_in_sum(rows) * moved_by(self.loss)[0]",
        "0.67 * site.changed_in_sum(rows) * moved_by(self.loss)[0]",
        f"{_RELEASES}[evaluation in a run]",
    ),
    Mutant(
        "a curator's sum has the noise of another",
        "sums/opening.py",
        "self.shares.multipliers[k - 1]",
        "self.shares.multipliers[-1]",
        f"{_MASKED}::test_the_sum_carries_the_noise_of_all_shares[4-1]",
    ),
    Mutant(
        "a real site's sum has the noise of another",
        "federation/site/summing.py",
        "grid_for(a.multipliers(n)[q - 1],",
        "grid_for(a.multipliers(n)[-1],",
        "tests/federation/test_summing.py::test_the_noise_that_is_taken_is_never_less_than_a_site_needs[1]",
    ),
    Mutant(
        "held-out rows are those that everyone knows",
        "algorithms/analysis.py",
        "order=cache(partial(noise.order, site.sites.rows.offsets))",
        "order=lambda: np.arange(len(site.sites.labels))",
        "tests/algorithms/test_held_out.py::test_the_model_is_that_of_the_others_and_the_figures_are_of_those",
    ),
    Mutant(
        "an evaluation of held-out rows is of all",
        "sums/program.py",
        "return site.apart(self.every)[1]",
        "return site",
        "tests/algorithms/test_held_out.py::test_the_model_is_that_of_the_others_and_the_figures_are_of_those",
    ),
    Mutant(
        "the last sum is free",
        "algorithms/analysis.py",
        "for sigma in sigmas[:k]]",
        "for sigma in sigmas[: max(k - 1, 1)]]",
        "tests/conformance/test_stated_noise.py::test_every_round_is_in_the_event[masked]",
    ),
    Mutant(
        "sums may miss their epsilon by a rounding error",
        "algorithms/analysis.py",
        "enough = epsilon(made, delta) <= target",
        "enough = True",
        "tests/algorithms/test_inference.py::test_the_budget_is_dealt_out_whole_and_never_overdrawn[4]",
    ),
    Mutant(
        "sums may miss their worst case by a rounding error",
        "algorithms/analysis.py",
        "if enough and (worst is None or",
        "if enough and (True or",
        "tests/algorithms/test_masked.py::test_neither_total_is_passed_by_a_rounding_error[2]",
    ),
    Mutant(
        "the grid of spare attempts is free",
        "algorithms/analysis.py",
        "draws = (sum(sizes) + self.spare * max(sizes)) * apart",
        "draws = sum(sizes) * apart",
        "tests/federation/test_masked_terms.py::test_the_grid_is_paid_for_in_every_attempt",
    ),
    Mutant(
        "every sum is booked at the price of the first",
        "federation/site/masked_sums.py",
        "Cost(analysis.cost(q, self.seat.oracle,",
        "Cost(analysis.cost(1, self.seat.oracle,",
        "tests/federation/test_evaluated.py::test_it_is_paid_for_in_the_same_books_and_the_same_bytes_at_all_sites",
    ),
    Mutant(
        "spare attempts need no room under the cap",
        "federation/site/masked_sums.py",
        "return [each] * (analysis.spare - len(self.partings()))",
        "return [each] * 0",
        "tests/federation/test_lost_masked.py::test_spare_attempts_are_paid_for_before_the_first_sum",
    ),
    Mutant(
        "masked sums take noise from elsewhere",
        "federation/site/masked_sums.py",
        "expect(noise is None, ",
        "expect(True, ",
        "tests/federation/test_masked_run.py::test_noise_from_elsewhere_is_refused",
    ),
    Mutant(
        "a proposal of another history is taken",
        "federation/site/masked_sums.py",
        "if came.heading != own.heading:",
        "if False:",
        "tests/federation/test_proposals.py::test_whatever_a_bad_proposer_says_with_its_point_it_wastes_one_sum[transcript]",
    ),
    Mutant(
        "words in another context are added up",
        "federation/site/masked_sums.py",
        "            _refuse_other(k, name, words.heading, ours, by)\n",
        "            pass\n",
        "tests/federation/test_masked_run.py::test_a_member_that_was_told_something_else_is_named_and_nothing_opens",
    ),
    Mutant(
        "a model that runs away is sent",
        "federation/site/own_noise.py",
        "if not norm_of(words.vector) <= reach:",
        "if False:",
        "tests/federation/test_forks.py::test_a_site_whose_own_models_run_away_says_so",
    ),
    Mutant(
        "second moments of wide tables have 15 % less noise",
        "sums/questions.py",
        "np.full((1, 1), site.moments_sensitivity(rows))\n\n"
        "    def largest(self, site: Oracle) -> float:\n        return",
        "np.full((1, 1), 0.85 * site.moments_sensitivity(rows))\n\n"
        "    def largest(self, site: Oracle) -> float:\n        return",
        "tests/sums/test_questions.py::"
        "test_no_unit_moves_a_sum_by_more_and_some_by_nearly_as_much[DiagonalMoments]",
    ),
    Mutant(
        "all sums of a curator have the same noise",
        "noise/sources.py",
        "parts.append(self.shared(k, drawn)[0])",
        "parts.append(self.shared(1, drawn)[0])",
        "tests/sums/test_opening.py::test_no_number_of_a_sum_and_no_sum_has_the_noise_of_another",
    ),
    Mutant(
        "numbers of a curator's sum have the same noise",
        "noise/sources.py",
        "parts.append(self.shared(k, drawn)[0])",
        "parts.append(self.shared(k, 0)[0])",
        "tests/sums/test_opening.py::test_no_number_of_a_sum_and_no_sum_has_the_noise_of_another",
    ),
    Mutant(
        "a sum says that it holds the noise of a lost site",
        "federation/site/summing.py",
        "math.sqrt(len(context.members))",
        "math.sqrt(len(self.agreement.sites))",
        "tests/sums/test_opening.py::test_a_sum_without_a_lost_site_says_its_rows_and_its_noise[1]",
    ),
    Mutant(
        "an evaluation takes nothing off the other sums",
        "algorithms/masked.py",
        "first, descent, hessian, last = ((1 - (self.evaluate or 0.0)) * part for part in self._dealt)",
        "first, descent, hessian, last = (part for part in self._dealt)",
        "tests/algorithms/test_evaluating.py::test_its_share_is_taken_off_the_rest[0.1-False]",
    ),
    Mutant(
        "an opened sum that was changed on the disk is read",
        "federation/site/journal.py",
        'self._check(digest, f"the sum of round {k}", b"%d" % k, content)',
        "pass",
        "tests/federation/test_journal.py::test_changes_are_noticed"
        "[UPDATE sums SET content = x'00'-the sum of round 0 was changed]",
    ),
    Mutant(
        "a program is run again on a sum at another point",
        "federation/site/masked_sums.py",
        'asked = summing.with_point(question, arrays["point"])',
        'asked = question.at(arrays["point"][:, None])',
        "tests/federation/test_masked_run.py::test_a_program_is_not_run_again_on_other_sums[another point]",
    ),
    Mutant(
        "a program is run again on fewer sums than were opened",
        "federation/site/masked_sums.py",
        "if len(sums) != wanted:",
        "if len(sums) > wanted:",
        "tests/federation/test_masked_run.py::test_a_program_is_not_run_again_on_other_sums[one too few]",
    ),
    Mutant(
        "everyone knows which rows a site holds out",
        "federation/site/masked_sums.py",
        "order=lambda: self.masks.order(len(oracle.sites.labels))",
        "order=lambda: np.arange(len(oracle.sites.labels))",
        "tests/federation/test_masked_run.py::test_which_rows_a_site_holds_out_follows_from_its_seed",
    ),
    Mutant(
        "a proposer may choose any point with the same sensitivity",
        "federation/site/summing.py",
        "if not apart <= most:",
        "if not apart < np.inf:",
        "tests/federation/test_summing.py::test_a_proposal_off_by_more_than_rounding_is_refused[one as long]",
    ),
    Mutant(
        "a table's rows may take away as well as add",
        "problem/rows.py",
        "np.maximum(self.values[first : first + _BLOCK], 0.0).sum(axis=0)",
        "self.values[first : first + _BLOCK].sum(axis=0)",
        f"{_QUESTIONS}[Totals]",
    ),
    Mutant(
        "a sparse table's rows may take away as well as add",
        "problem/rows.py",
        "np.add.at(total, self.matrix.indices, np.maximum(self.matrix.data, 0.0))",
        "np.add.at(total, self.matrix.indices, self.matrix.data)",
        "tests/problem/test_sites.py::test_totals_take_what_is_negative_as_nothing[csr]",
    ),
    Mutant(
        "a row of a table that is replaced is only taken out",
        "oracle/row_sums.py",
        "return bound * (sqrt(2.0) * changed",
        "return bound * (1.0 * changed",
        f"{_QUESTIONS}[Totals]",
    ),
    Mutant(
        "a person in a table is one row",
        "oracle/row_sums.py",
        "bound, changed = self.sites.data_norm * (1 + NORM_SLACK), self.changed_in_sum(rows)",
        "bound, changed = self.sites.data_norm * (1 + NORM_SLACK), 1",
        "tests/simulation/test_asking.py::test_a_person_costs_as_many_rows_as_they_have",
    ),
    Mutant(
        "all runs of a statistic are charged as one",
        "simulation/asking.py",
        "charge(one.of_runs(runs))",
        "charge(one)",
        "tests/simulation/test_asking.py::test_what_a_budget_refuses_is_never_computed",
    ),
    Mutant(
        "all runs of a statistic are stated as one",
        "simulation/asking.py",
        "runs if problem.private else 1",
        "1",
        "tests/simulation/test_asking.py::test_it_has_the_noise_that_it_says_and_that_its_price_is_for[True]",
    ),
    Mutant(
        "statistics of private rows take a seed",
        "simulation/asking.py",
        "refuse_seed(seed)",
        "pass",
        "tests/simulation/test_asking.py::test_the_same_seed_is_the_same_noise_and_private_rows_take_none",
    ),
    Mutant(
        "statistics of private rows have noise that can be drawn again",
        "simulation/asking.py",
        "SystemNoise(shape) if problem.private else SeededNoise(drawn, shape)",
        "SeededNoise(drawn, shape)",
        "tests/simulation/test_asking.py::test_noise_of_private_rows_is_the_operating_system_s",
    ),
    Mutant(
        "numbers in a table are longer than is paid for",
        "tables/coding.py",
        "np.sqrt(f * np.array(self.shares))) / norms",
        "np.sqrt(f * np.array(self.shares)))",
        "tests/tables/test_coding.py::test_replacing_a_row_moves_the_sum_by_the_square_root_of_two_times_the_bound",
    ),
    Mutant(
        "a part of the budget counts without its root",
        "tables/coding.py",
        "np.sqrt(f * np.array(self.shares))) / norms",
        "f * np.array(self.shares)) / norms",
        "tests/tables/test_coding.py::test_replacing_a_row_moves_the_sum_by_the_square_root_of_two_times_the_bound",
    ),
    Mutant(
        "a table has the noise of a smaller price",
        "tables/release.py",
        "wanted = asked(epsilon=epsilon,",
        "wanted = asked(epsilon=2 * epsilon,",
        "tests/cli/test_describe.py::test_it_is_charged_kept_and_shown",
    ),
    Mutant(
        "a time in a survival curve is longer than is paid for",
        "tables/follow_up.py",
        "return sqrt(1 + ALPHA**2)",
        "return 1.0",
        "tests/tables/test_follow_up.py::test_replacing_a_row_moves_the_sum_by_the_square_root_of_two_at_most",
    ),
    Mutant(
        "events count beyond the time until which all are watched",
        "tables/follow_up.py",
        "np.where(beyond, 2 * bins, np.where(died, which, bins + which))",
        "np.where(died, which, np.where(beyond, 2 * bins, bins + which))",
        "tests/tables/test_follow_up.py::test_a_row_is_in_one_cell",
    ),
    Mutant(
        "times below 0 are taken for 0",
        "files/schema/survival.py",
        "np.where(x < 0, Finding.NEGATIVE, encoded.finding)",
        "np.where(x < 0, Finding.CLIPPED, encoded.finding)",
        "tests/tables/test_survival.py::test_rows_that_do_not_fit_are_refused_before_anything_is_charged",
    ),
    Mutant(
        "terms do not count in the norm of a row",
        "files/schema/schema.py",
        "return sqrt(len(self.columns) + len(self.joined) + self.intercept**2)",
        "return sqrt(len(self.columns) + self.intercept**2)",
        f"{_TERMS}::test_no_row_is_longer_than_data_norm_whatever_an_enemy_writes",
    ),
    Mutant(
        "an agreement has effects of other sites",
        "federation/agreement/checks.py",
        "if sorted(known) != sorted(a.names):",
        "if not known:",
        "tests/cli/test_site_effects.py::test_effects_of_other_sites_than_those_that_agree_are_refused",
    ),
    Mutant(
        "a spline is not divided by its reach",
        "files/schema/terms.py",
        "value = made.values(share) / made.reach * (side.place == 0)[:, None]",
        "value = made.values(share) * (side.place == 0)[:, None]",
        f"{_TERMS}::test_no_row_is_longer_than_data_norm_whatever_an_enemy_writes",
    ),
    Mutant(
        "the reach of a curve is its largest norm at the knots",
        "files/schema/curve.py",
        "grid = np.append(grid, 1.0)",
        "grid = self.knots",
        f"{_TERMS}::test_the_curve_is_the_natural_cubic_spline_and_its_reach_bounds_it_closely",
    ),
    Mutant(
        "tables of pairs forget what noise reference levels gather",
        "tables/pairs.py",
        "noise = np.maximum(np.diag(covariance), 0.0)",
        "noise = np.full(len(cells), np.diag(covariance).min())",
        f"{_PAIRS}::test_intervals_cover_the_population_and_the_noise_in_a_cell_is_as_large_as_they_say",
    ),
    Mutant(
        "tables of pairs take margins for as sure as cells",
        "tables/pairs.py",
        "told.append((cells, counts[p, p], 2.0))",
        "told.append((cells, counts[p, p], 1.0))",
        f"{_PAIRS}::test_counts_and_their_noise_are_those_of_least_squares_on_all_numbers_with_the_total_kept",
    ),
    Mutant(
        "a survival curve forgets the noise in those at risk",
        "tables/curve.py",
        "of_cells = -((each * q) @ self.watched[:told])",
        "of_cells = -((0 * each * q) @ self.watched[:told])",
        "tests/tables/test_curve.py::test_the_noise_in_curves_and_means_is_as_large_as_they_say",
    ),
    Mutant(
        "the log-rank test forgets the noise",
        "tables/log_rank.py",
        "spread: Floats = self.together * usual + noise",
        "spread: Floats = self.together * usual",
        "tests/tables/test_curve.py::test_the_noise_in_the_log_rank_test_is_as_large_as_it_says",
    ),
    Mutant(
        "tables with one curve are drawn without noise",
        "tables/log_rank.py",
        "cells += np.sqrt(self.cell_noise) * random.standard_normal(cells.shape)",
        "pass",
        "tests/tables/test_survival_coverage.py::test_the_test_rejects_one_in_twenty_groups_with_one_curve_and_not_more",
    ),
)
# fmt: on


class Outcome(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    killed: bool
    seconds: float
    tail: str  # of pytest's output


def copied(folder: Path) -> Path:
    """A copy of the tree that can be broken."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.pyc"))  # with what is compiled
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


def tested(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Pytest's exit code and output for some tests in a copy of the tree."""
    path = os.pathsep.join(filter(None, (str(tree / "src"), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    most = LONGEST * len(tests)
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=most, check=False
        )
    except subprocess.TimeoutExpired:
        return FAILED, "it took too long"  # a fault that makes a test hang is noticed
    return done.returncode, done.stdout[-2000:]


def judge(tree: Path, mutant: Mutant) -> Outcome:
    """Make the fault, run its test, and mend it again."""
    path = tree / SOURCES / mutant.file
    right, when, started = path.read_text(encoding="utf-8"), path.stat(), time.perf_counter()
    if right.count(mutant.old) != 1:
        raise SystemExit(f"Expected {mutant.old!r} once in {mutant.file}, got {right.count(mutant.old)} times.")
    path.write_text(right.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        code, output = tested(tree, [mutant.test])
    finally:
        path.write_text(right, encoding="utf-8")
        os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))  # what was compiled before still fits
    if code not in (0, FAILED):
        raise SystemExit(f"Expected {mutant.test} to run, got exit code {code} from pytest:\n{output}")
    return Outcome(mutant, code == FAILED, time.perf_counter() - started, output)


def has_gpu() -> bool:
    """Whether tests that need a GPU can run here."""
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except Exception:  # whatever is missing
        return False


def part_of(mutants: Sequence[Mutant], part: str) -> list[Mutant]:
    """The k-th of n parts, as "k/n"."""
    number, _, of = part.partition("/")
    return list(mutants)[int(number) - 1 :: int(of)]


def main() -> int:
    """Judge all mutants, or some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="1/1", help="k/n: the k-th of n parts")
    parser.add_argument("--only", default="", help="those whose name or file has this in it")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests on the tree as it is first")
    given = parser.parse_args()
    chosen = [m for m in part_of(MUTANTS, given.part) if given.only in m.name or given.only in m.file]
    skipped = [] if has_gpu() else [mutant for mutant in chosen if mutant.gpu]
    chosen = [mutant for mutant in chosen if mutant not in skipped]
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        if chosen and not given.unchecked:
            code, output = tested(tree, sorted({mutant.test for mutant in chosen}))
            if code != 0:
                raise SystemExit(f"Expected all tests to pass without a fault, got exit code {code}:\n{output}")
        for number, mutant in enumerate(chosen, start=1):
            outcome = judge(tree, mutant)
            word = "killed" if outcome.killed else "SURVIVED"
            print(f"{number}/{len(chosen)} {word} in {outcome.seconds:.0f} s: {mutant.file}: {mutant.name}", flush=True)
            survivors += [] if outcome.killed else [mutant]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed.")
    for mutant in skipped:
        print(f"not judged, for want of a GPU: {mutant.file}: {mutant.name}")
    for mutant in survivors:
        print(f"survives: {mutant.file}: {mutant.name}, for all that {mutant.test} says")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
