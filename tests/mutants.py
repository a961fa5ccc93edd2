"""Mutants: each changes a line of the package, and the tests have to notice.

python -m tests.mutants [--only=NAME,...]

The tree is copied; each mutant in turn is applied to the copy, and the tests that are suspected to
catch it run. Then, for each that has survived, all tests of the numerical parts run.
tests/mutants.json holds who caught each one, null for a survivor, as the command wrote it. A change
of the tests must not let the number of survivors grow. A mutant is found by its text, wherever it
stands in the package, and it stands there once. After a rewrite of the code, write the text of a
mutant anew and let its meaning be.
"""
# ruff: noqa: E402

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

# As tests/conftest.py, which comes too late: TensorFlow is imported once for all runs.
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

import hypothesis  # noqa: F401
import keras  # noqa: F401
import pytest
import scipy.optimize  # noqa: F401
import tensorflow as tf  # noqa: F401

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_suffix(".json")
WIDE = (
    "tests/test_step_sizes.py tests/test_gradients.py tests/test_metrics.py tests/theory "
    "tests/test_variables.py tests/memories tests/streams tests/methods tests/learner tests/session"
)


class Mutant(NamedTuple):
    """A text of the package that occurs once, another one, and tests that are likely to fail."""

    old: str
    new: str
    suspected: str


MUTANTS = {
    "nccl: sign of the projection": Mutant(
        "alpha * (1.0 - projection_coefficient(",
        "alpha * (1.0 + projection_coefficient(",
        "tests/test_step_sizes.py",
    ),
    "nccl: Lambda = 0 is transfer": Mutant(
        "interference = lambda_ <= 0.0", "interference = lambda_ < 0.0", "tests/test_step_sizes.py"
    ),
    "nccl: beta_max is no bound": Mutant(
        "tf.clip_by_value(beta_star, 0.0, bound)", "tf.maximum(beta_star, 0.0)",
        "tests/test_step_sizes.py tests/methods/test_hand_steps.py",
    ),
    "nccl: beta* below 0": Mutant(
        "tf.clip_by_value(beta_star, 0.0, bound)", "tf.minimum(beta_star, bound)",
        "tests/test_step_sizes.py",
    ),
    "nccl: beta* without 1 - alpha L": Mutant(
        "(1.0 - alpha * smoothness) * lambda_ / denominator", "lambda_ / denominator",
        "tests/test_step_sizes.py",
    ),
    "A-GEM: sign": Mutant(
        "projected_alpha = -alpha * projection_coefficient",
        "projected_alpha = alpha * projection_coefficient",
        "tests/test_step_sizes.py",
    ),
    "squared norm: half": Mutant(
        "return 2.0 * tf.add_n(", "return tf.add_n(", "tests/test_gradients.py"
    ),
    "Gamma: sign of Lambda": Mutant(
        "quadratic - beta_h * (1.0 - alpha_h * smoothness)",
        "quadratic + beta_h * (1.0 - alpha_h * smoothness)",
        "tests/theory/test_forgetting.py",
    ),
    "logged cosine: one norm twice": Mutant(
        "tf.math.divide_no_nan(sums[0], norms[0] * norms[1])",
        "tf.math.divide_no_nan(sums[0], norms[0] * norms[0])",
        "tests/methods/test_hand_steps.py",
    ),
    "ring: keeps the first of a batch": Mutant(
        "tf.where(later < self.slots_per_class", "tf.where(rank < self.slots_per_class",
        "tests/memories/test_ring.py",
    ),
    "ring: examples of a batch share a slot": Mutant(
        "read_rows(self.counts, region) + rank", "read_rows(self.counts, region)",
        "tests/memories/test_ring.py",
    ),
    "ring: the open task is read": Mutant(
        "filled & tf.gather(ended, self._cells.tasks)[:, None]", "filled",
        "tests/memories/test_ring.py",
    ),
    "ring: the open task is read with all": Mutant(
        "readable = filled & self.ended.value[:, None]", "readable = filled",
        "tests/memories/test_ring.py",
    ),
    "reservoir: draws below n - 1": Mutant(
        'number - 1 if self.rule == "off_by_one" else number', "number - 1",
        "tests/memories/test_reservoir.py",
    ),
    "reservoir: the last slot is drawn for early": Mutant(
        "tf.where(number <= self.capacity, number - 1, overwritten)",
        "tf.where(number < self.capacity, number - 1, overwritten)",
        "tests/memories/test_reservoir.py",
    ),
    "reservoir: padding is counted": Mutant(
        "self.seen.value.assign_add(tf.reduce_sum(valid))",
        "self.seen.value.assign_add(tf.size(valid))",
        "tests/memories/test_reservoir.py",
    ),
    "past slots: one more than the set": Mutant(
        "(slots < self.capacity) & (where < before)", "(slots < self.capacity) & (where <= before)",
        "tests/memories/test_past_slots.py",
    ),
    "read: a repetition counts": Mutant(
        "tf.cast(index < stored, tf.float32)", "tf.cast(index <= stored, tf.float32)",
        "tests/memories/test_reservoir.py",
    ),
    "write: the first of equal slots stays": Mutant(
        "later = tf.less(index[:, None], index[None, :])",
        "later = tf.greater(index[:, None], index[None, :])",
        "tests/memories/test_reservoir.py",
    ),
    "balanced: a class grows beyond its share": Mutant(
        "tf.gather(self.counts.value, cells) < quota",
        "tf.gather(self.counts.value, cells) <= quota",
        "tests/memories/test_balanced.py -k gives_way",
    ),
    "GSS: low scores are replaced": Mutant(
        "tf.math.divide_no_nan(old, old + scores)", "tf.math.divide_no_nan(scores, old + scores)",
        "tests/memories/test_scored.py",
    ),
    "heads: padding adds a task": Mutant(
        "counted = keep if weights is None else keep & (weights > 0)[:, None]", "counted = keep",
        "tests/learner/test_task_model.py tests/learner/test_weights.py",
    ),
    "heads: all examples are of the first task": Mutant(
        "tf.gather(self._masks.read(), tasks)", "tf.gather(self._masks.read(), 0 * tasks)",
        "tests/learner/test_task_model.py",
    ),
    "heads: no mask in training": Mutant(
        "return self.heads.masked(logits, batch.tasks, batch.weights, value)",
        "return at_least_float32(logits)",
        "tests/methods/test_battery.py -k masked_classes",
    ),
    "single head: predicts unseen classes": Mutant(
        "select_logits(seen | tf.logical_not(tf.reduce_any(seen)), logits, value)",
        "at_least_float32(logits)",
        "tests/learner/test_task_model.py",
    ),
    "seen classes: those of padding too": Mutant(
        "labels = tf.where(batch.weights > 0, class_numbers(batch.labels), -1)",
        "labels = class_numbers(batch.labels)",
        "tests/learner/test_learner.py tests/learner/test_weights.py",
    ),
    "mean loss: over padding too": Mutant(
        "tf.reduce_sum(values * weights, axis=-1), tf.reduce_sum(weights, axis=-1)",
        "tf.reduce_sum(values * weights, axis=-1), tf.reduce_sum(tf.ones_like(weights), axis=-1)",
        "tests/learner/test_weights.py tests/learner/test_learner.py",
    ),
    "ER: scale of the stream's weights": Mutant(
        "with_mean_one(batch.weights) if has_weights", "batch.weights if True",
        "tests/learner/test_weights.py",
    ),
    "dark replay: logits of other heads": Mutant(
        "tf.ones_like(squares) if self.heads is None else self.heads.of(replay.tasks)",
        "tf.ones_like(squares)",
        "tests/learner/test_dark_replay.py -k other_heads",
    ),
    "EWC: absolute values for squares": Mutant(
        "squares = [tf.square(g) for g in step.gradients]",
        "squares = [tf.abs(g) for g in step.gradients]",
        "tests/methods/test_ewc.py",
    ),
    "penalty: half of the gradient": Mutant(
        "g + 2 * strength * f * (x - a)", "g + strength * f * (x - a)",
        "tests/methods/test_ewc.py tests/methods/test_si.py",
    ),
    "SI: sign of a contribution": Mutant(
        "contribution.assign_sub(gradient * (weight.value - old))",
        "contribution.assign_add(gradient * (weight.value - old))",
        "tests/methods/test_si.py",
    ),
    "MAS: signs of examples cancel": Mutant(
        "return [tf.abs(g) for g in stateless", "return [g for g in stateless",
        "tests/methods/test_mas.py",
    ),
    "LwF: no temperature for the old outputs": Mutant(
        "select_logits(units, before / temperature)", "select_logits(units, before)",
        "tests/methods/test_lwf.py",
    ),
    "DER++: alpha and beta in turn": Mutant(
        "self.der_alpha * logits_loss + self.der_beta * memory_loss",
        "self.der_beta * logits_loss + self.der_alpha * memory_loss",
        "tests/methods/test_der.py",
    ),
    "ER-ACE: no mask of the stream": Mutant(
        "return select_logits(keep, outputs)", "return outputs",
        "tests/methods/test_er_ace.py tests/learner/test_stream_mask.py",
    ),
    "MER: the other way of interpolation": Mutant(
        "return [e - (1 - fraction) * (e - s)", "return [e - fraction * (e - s)",
        "tests/methods/test_mer.py",
    ),
    "MER: no multiplier of the stream's step": Mutant(
        "here.gradients, self.multiplier * rate)", "here.gradients, rate)",
        "tests/methods/test_mer.py",
    ),
    "ORTHOG-SUBSPACE: only the first past task is drawn": Mutant(
        "tf.cumsum(past) > number", "tf.cumsum(past) > 0",
        "tests/methods/test_orthog_subspace.py",
    ),
    "GEM: without the margin": Mutant(
        "return solution + margin", "return solution", "tests/methods/test_gem.py"
    ),
    "MIR: sum of both losses": Mutant(
        "scores -= stateless.", "scores += stateless.", "tests/methods/test_mir.py"
    ),
    "a skipped step is stored": Mutant(
        "learned = batch._replace(weights=tf.where(is_learned, batch.weights, 0.0))",
        "learned = batch",
        "tests/learner/test_skipped_steps.py",
    ),
    "a skipped step moves statistics": Mutant(
        "return [*self._network.non_trainable_variables, *written]",
        "return written",
        "tests/learner/test_skipped_steps.py tests/learner/test_loss_scaling.py",
    ),
    "loss scale: stays in the gradient": Mutant(
        "gradients if scale is None else [g / tf.cast(scale, g.dtype) for g in gradients]",
        "gradients",
        "tests/learner/test_loss_scaling.py",
    ),
    "average: decay of the other share": Mutant(
        "share = tf.constant(1 - keep", "share = tf.constant(keep",
        "tests/learner/test_average.py -k by_hand",
    ),
    "stable SGD: the first task at the whole rate": Mutant(
        "self._tasks_ended.value + 1", "self._tasks_ended.value",
        "tests/learner/test_rate_decay.py",
    ),
    "stable SGD: momentum goes on": Mutant(
        "momentum.assign(tf.zeros_like(momentum.value))", "pass",
        "tests/learner/test_rate_decay.py",
    ),
    "forgetting: best with the last row": Mutant(
        "for row in a[j:-1]]", "for row in a[j:]]", "tests/test_metrics.py"
    ),
    "forward transfer: after the task": Mutant(
        "a[j - 1][j] - initial[j]", "a[j][j] - initial[j]", "tests/test_metrics.py"
    ),
    "growth: old values are lost": Mutant(
        "value[tuple(slice(0, side) for side in old.shape)] = old", "pass",
        "tests/methods/test_growth.py -k two_grows",
    ),
    "resume: one batch again": Mutant(
        "step = self._place.step + batch + 1", "step = self._place.step + batch",
        "tests/session/test_backup.py -k same_bits",
    ),
    "forward transfer: the first task too": Mutant(
        "a[j - 1][j] - initial[j] for j in range(1, len(a))",
        "a[j - 1][j] - initial[j] for j in range(len(a))", "tests/test_metrics.py",
    ),
    "backward transfer: from the first row": Mutant(
        "a[-1][j] - a[j][j] for j", "a[-1][j] - a[0][j] for j", "tests/test_metrics.py"
    ),
    "metrics: nan is no part of the best": Mutant(
        "return math.nan if any(map(math.isnan, values)) else max(values)", "return max(values)",
        "tests/test_metrics.py",
    ),
    "resume: callbacks begin anew": Mutant(
        "                callback.restore(state)", "                del state",
        "tests/session tests/experiment/run/test_resume.py",
    ),
    "resume: of another session": Mutant(
        "if there != here:", "if False:",
        "tests/session tests/experiment/run/test_resume.py",
    ),
    "resume: metrics begin anew": Mutant(
        "        assign_arrays(self._variables(), self._sums)\n", "",
        "tests/session tests/experiment/run/test_resume.py",
    ),
    "resume: an epoch again": Mutant(
        "self._place._replace(epoch=epoch + 1, step=0)", "self._place._replace(step=0)",
        "tests/session tests/experiment/run/test_resume.py",
    ),
    "resume: the matrix begins anew": Mutant(
        'self._evaluation.restore(meta["evaluation"])', "pass",
        "tests/session tests/experiment/run/test_resume.py",
    ),
    "checkpoints: a torn one is read": Mutant(
        'if header != _MAGIC + digest + b"\\n":', "if not header.startswith(_MAGIC):",
        "tests/records",
    ),
    "checkpoints: one is kept": Mutant("_NUM_KEPT = 2", "_NUM_KEPT = 1", "tests/records"),
    "records: the hash is not looked at": Mutant(
        "_hash_problem(record) or _contradiction(record)", "_contradiction(record)",
        "tests/records tests/reports/test_records.py",
    ),
    "records: the matrix is not looked at": Mutant(
        "abs(said - value) <= _ROUNDING", "True", "tests/records tests/reports/test_records.py"
    ),
    "records: defaults are in the hash": Mutant(
        "if name not in defaults or value != defaults[name]", "if True",
        "tests/records tests/experiment/config",
    ),
    "resolve: the rate of MNIST for all": Mutant(
        "method.learning_rates.of_family(dataset.family)",
        'method.learning_rates.of_family("mnist")', "tests/experiment/config",
    ),
    "resolve: tuning tasks are evaluated": Mutant(
        'if tasks == "tuning" and tuning_tasks else num_tasks - tuning_tasks',
        'if tasks == "tuning" and tuning_tasks else num_tasks', "tests/experiment/config",
    ),
    "resolve: alpha L = 1": Mutant(
        "if alpha * smoothness >= 1:", "if alpha * smoothness > 1:", "tests/experiment/config"
    ),
    "resolve: a number of another method": Mutant(
        "if name not in rows and flag_values.get(name) is not None:", "if False:",
        "tests/experiment/config",
    ),
    "parity: one standard error": Mutant(
        "return 2 * math.sqrt(published +", "return math.sqrt(published +", "tests/commands/paper"
    ),
    "parity: two seeds are enough": Mutant(
        "MIN_SEEDS = 3", "MIN_SEEDS = 2", "tests/commands/paper"
    ),
    "parity: times of other machines": Mutant(
        "(self.device, *side_by_side, bool(self.xla), kernels)",
        "(*side_by_side, bool(self.xla), kernels)",
        "tests/commands/paper",
    ),
    "batches: padding has weight 1": Mutant(
        "weights[: len(order)] = 1", "weights[:] = 1", "tests/streams/test_batches.py"
    ),
    "chunk: a rest of batches as a chunk": Mutant(
        "if count == self.steps == asked:", "if count > 1:",
        "tests/learner/test_chunk.py",
    ),
    "chunk: a batch of another size is not counted": Mutant(
        "                left -= 1\n", "                left -= 0\n", "tests/learner/test_chunk.py"
    ),
    "chunk: an update that is not finite stays": Mutant(
        "variable.assign(tf.where(accepted, variable.value, values[id(variable)]))",
        "variable.assign(variable.value)", "tests/learner/test_chunk.py",
    ),
    "chunk: a resumed run chooses anew": Mutant(
        "return None if resumed else False", "return None", "tests/learner/test_chunk.py"
    ),
    "chunk: compiling is training": Mutant(
        "return self.traces + len(self._compiled)", "return self.traces",
        "tests/learner/test_chunk.py",
    ),
    "chunk: an odd batch within a pass is lost": Mutant(
        "if left and bool(following.has_value()):", "if left > 1 and bool(following.has_value()):",
        "tests/learner/test_execution.py",
    ),
    "turns: the steps of a call are of all threads": Mutant(
        "self._thread.steps = steps", "self._thread.steps = self._steps = steps",
        "tests/learner/test_turns.py",
    ),
    "turns: who writes is not alone": Mutant(
        "barred = self._inside if alone else self._alone", "barred = self._alone",
        "tests/learner/test_turns.py",
    ),
    "turns: a verb runs beside another": Mutant(
        "if before is not None and before[0] != me:", "if before is not None and before[0] == -me:",
        "tests/learner/test_turns.py",
    ),
    "turns: weights are exchanged beside a step": Mutant(
        "with self._turns.take(alone=True):", "with self._turns.take():",
        "tests/learner/test_turns.py",
    ),
    "turns: a wrong task of a prediction is told to fit": Mutant(
        "self._base.wrong_at_test.find_tasks(", "self._base.wrong_label.find_tasks(",
        "tests/learner/test_turns.py",
    ),
    "fit: one order for all epochs": Mutant(
        "self.data.begin_epoch(epoch)", "self.data.begin_epoch(0)", "tests/learner/test_fit.py"
    ),
    "batches: the first example for all": Mutant(
        "tf.gather(column, rows), columns", "tf.gather(column, rows - rows), columns",
        "tests/streams",
    ),
    "sums under XLA: of squares": Mutant(
        "tf.ones_like(rows[0])", "rows[0]", "tests/test_gradients.py"
    ),
    "draws under XLA: wide seeds are cut": Mutant(
        "return 0 <= known[0] <= _NARROW", "return True", "tests/test_rng.py"
    ),
    "draws under XLA: a program cuts its seed": Mutant(
        "is_narrow = 0 <= seed <= _NARROW", "is_narrow = True", "tests/test_rng.py"
    ),
    "data in memory: the order of the first epoch for all": Mutant(
        "self._left = self.batches.order(self.batches.epoch)",
        "self._left = self.batches.order(0)", "tests/streams/test_batches.py",
    ),
    "first epoch: stored in all": Mutant(
        "self._store(epoch in self.first_pass)", "self._store(True)",
        "tests/learner/test_passes.py tests/learner/test_memories_of_learners.py",
    ),
    "arguments: lists change after all": Mutant(
        "self._values = {name: _copied(value) for name, value in values.items()}",
        "self._values = dict(values)", "tests/arguments/test_constructor_arguments.py",
    ),
    "a skipped step moves what layers assign": Mutant(
        "return [*self._network.non_trainable_variables, *written]",
        "return list(self._network.non_trainable_variables)",
        "tests/learner/test_layers_with_state.py tests/learner/test_skipped_steps.py",
    ),
    "loggers: epochs begin anew": Mutant(
        "verb(epoch + epochs, logs)", "verb(epoch, logs)", "tests/session/test_loggers.py"
    ),
    "records: a changed package is none": Mutant(
        "None if changes is None else bool(changes)", "None if changes is None else False",
        "tests/records/test_provenance.py",
    ),
    "records: no TensorFloat-32 on Ampere": Mutant(
        '"compute_capability", (0, 0)) >= (8, 0)', '"compute_capability", (0, 0)) > (8, 0)',
        "tests/experiment/run/test_devices.py",
    ),
    "backup: settings are no part of the identity": Mutant(
        "seen += [compiled, settings, [[", "seen += [compiled, [[", "tests/session/test_backup.py"
    ),
    "alignment: the factor of a class transposed": Mutant(
        "features[:] = features @ spread.T", "features[:] = features @ spread",
        "tests/learner/test_alignment.py",
    ),
    "alignment: covariances of the first classes": Mutant(
        "factor_of(self.covariance(k)).astype(np.float32) for k in seen",
        "factor_of(self.covariance(k)).astype(np.float32) for k in range(len(seen))",
        "tests/learner/test_alignment.py",
    ),
    "SLDA: padding between examples counts": Mutant(
        "number = seen + tf.cumsum(ones, exclusive=True)",
        "number = seen + tf.cumsum(tf.ones_like(ones), exclusive=True)",
        "tests/methods/test_slda.py",
    ),
    "SLDA: after a task steps solve as late as at its end": Mutant(
        "self.solved.assign([seen, seen + 1])", "self.solved.assign([seen, 2 * seen + 1])",
        "tests/methods/test_slda.py",
    ),
    "RanPAC: padding is among every fifth": Mutant(
        "number = self.seen.value + tf.cumsum(ones, exclusive=True)",
        "number = self.seen.value + tf.cumsum(tf.ones_like(ones), exclusive=True)",
        "tests/methods/test_ranpac.py",
    ),
    "FeCAM: classes to come lie at 0": Mutant(
        "centres[seen] = means[seen] @ whiteners[0]", "centres[:] = means @ whiteners[0]",
        "tests/methods/test_fecam.py",
    ),
    "InfLoRA: padding spans directions": Mutant(
        "                flat = tf.boolean_mask(flat, is_counted)\n", "",
        "tests/methods/test_inflora.py",
    ),
    "pass of a task: that at its beginning is that at its end": Mutant(
        "option.has_passed = when == END", "option.has_passed = True",
        "tests/methods/test_inflora.py tests/learner/test_alignment.py",
    ),
    "text: the end token 0 is none": Mutant(
        "tokens if end is None else np.append(tokens, end)",
        "tokens if not end else np.append(tokens, end)", "tests/streams/test_text_corpora.py",
    ),
    "text: test rows are trained on": Mutant(
        "else min(most, count - held_out)", "else min(most, count)",
        "tests/streams/test_text_corpora.py",
    ),
    "perplexity: NaN of padding": Mutant(
        "tf.reduce_sum(tf.where(weights > 0, weights * losses, 0))",
        "tf.reduce_sum(weights * losses)", "tests/session/test_perplexity.py",
    ),
    "forward transfer: of less is better the sign of the first row": Mutant(
        "self._gains(self.matrix), self._gains(self.initial)",
        "self._gains(self.matrix), self.initial", "tests/session/test_result.py",
    ),
    "GDumb: trains on from the weights of now": Mutant(
        "self.initial.take(tf.equal(self.progress.tasks_ended.value, 0))", "self.initial.take()",
        "tests/methods/test_gdumb.py",
    ),
    "cumulative: trains on from the weights of now": Mutant(
        "            self._first.put()\n", "            pass\n", "tests/methods/test_cumulative.py"
    ),
    "class weights: a share of class 1 is cut off": Mutant(
        "tf.round(numbers) if numbers.dtype.is_floating else numbers", "numbers",
        "tests/test_class_weights.py",
    ),
    "loss of places: further axes are summed": Mutant(
        "values = tf.reduce_mean(values, axis=axes[places.shape.rank - 1 :])",
        "values = tf.reduce_sum(values, axis=axes[places.shape.rank - 1 :])",
        "tests/learner/test_losses.py",
    ),
    "growth: heads lose their mask": Mutant(
        "HeadMasks(classes, self._learner.num_classes, heads.mask)",
        "HeadMasks(classes, self._learner.num_classes)", "tests/methods/test_growth.py",
    ),
}  # fmt: skip


def sources(root: Path, text: str) -> list[Path]:
    """The files of the package that hold a text, one for each occurrence."""
    paths = sorted((root / "nccl_tf").rglob("*.py"))
    return [path for path in paths for _ in range(path.read_text().count(text))]


def first_failure(root: Path, tests: str) -> str | None:
    """The test that fails first, or None where all pass.

    They run in a fork of this process, which has imported TensorFlow and nothing of the package.

    Raises:
        RuntimeError: They do not run.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        child = os.fork()
        if not child:
            for stream in (1, 2):
                os.dup2(output.fileno(), stream)
            os.chdir(root)
            os.environ["PYTHONPATH"] = sys.path[0] = str(root)
            for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
                del sys.modules[name]
            options = ["-n0", "-x", "-q", "-rfE", "-p", "no:cacheprovider"]
            os._exit(int(pytest.main([*options, *tests.split()])))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        said = output.read()
    if code == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
    if code != 1 or not failed:
        raise RuntimeError(f"{tests}: exit {code}\n{said[-3000:]}")
    return failed[1]


def caught_by(root: Path, mutant: Mutant, tests: str) -> str | None:
    """The test that catches a mutant in a copy of the tree; None where it survives."""
    (path,) = sources(root, mutant.old)
    before = path.read_text()
    path.write_text(before.replace(mutant.old, mutant.new))
    try:
        return first_failure(root, tests)
    finally:
        path.write_text(before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(MUTANTS))
    asked = parser.parse_args()
    counts = {name: len(sources(ROOT, MUTANTS[name].old)) for name in asked.only}
    lost = [f"{name}: its text occurs {n} times" for name, n in counts.items() if n != 1]
    print("\n".join(lost) or f"{len(counts)} mutants")
    if lost:
        return 1
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = {name: results[name] for name in MUTANTS if name in results}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", "build", "runs")
        shutil.copytree(ROOT, root, ignore=ignored, symlinks=True)
        for wide in (False, True):
            for name in [name for name in asked.only if not wide or results[name] is None]:
                start, mutant = time.monotonic(), MUTANTS[name]
                results[name] = caught_by(root, mutant, WIDE if wide else mutant.suspected)
                print(f"{name}: {results[name]} ({time.monotonic() - start:.0f} s)", flush=True)
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    survivors = [name for name in results if results[name] is None]
    print(f"{len(results) - len(survivors)} of {len(results)} caught; survivors: {survivors}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
