"""Records with diagnostics, made without training."""

import csv
import json

import numpy as np

from nccl_tf.reports.figures.steps import PANELS
from tests.experiment import sample


def record(method="nccl_ring", seed=0, tasks=3, form="two_gradients", **given):
    """A record whose diagnostics are random numbers of the right form, L = 1."""
    rng = np.random.default_rng((seed, len(method)))
    made = sample.record(sample.matrix(tasks, seed), seed, method=method, **given)
    rows = [_row(rng, k) for k in range(tasks)]
    diagnostics = {
        "extent": "full", "subset": None, "gamma_every": 1, "form": form,
        "shadow_slots_per_class": None, "plain_sgd": True, "seconds": 1.0, "tasks": rows,
    }  # fmt: skip
    return sample.changed(made, diagnostics=diagnostics, task_steps=[10] * tasks)


def write_run(folder, record):
    """Write a record and a steps.csv of four windows, of which the first measured nothing.

    Returns:
        The other three, as the file has them: [3, columns].
    """
    columns = ["step"] + [
        f"{name}_{part}" for name, *_ in PANELS for part in ("mean", "min", "max")
    ]
    rows = np.arange(3 * len(columns)).reshape(3, -1) / 50
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(record.as_json()))
    with (folder / "steps.csv").open("w", newline="") as file:
        csv.writer(file).writerows([columns, ["50", *[""] * (len(columns) - 1)], *rows.tolist()])
    return rows


def _row(rng, k):
    at_0, slope = (sorted(rng.uniform(0, 1, 4)) for _ in range(2))
    draws = {name: rng.normal(size=10).tolist() for name in (
        "overfitting", "overfitting_slope", "gamma_raw", "gamma_surrogate", "gamma_surrogate_slope",
    )}  # fmt: skip
    draws |= {name: rng.uniform(0.1, 0.2, 10).tolist() for name in ("error_squared", "beta_h")}
    draws["alpha_h"] = [0.05] * 10
    return {
        "task": k, "steps": 10 * k, "gamma_raw": k * (at_0[0] + slope[0]),
        "gamma_surrogate": k * (at_0[1] + slope[1]), "gamma_raw_at_0": k * at_0[0],
        "gamma_surrogate_at_0": k * at_0[1], "gamma_raw_slope": k * slope[0],
        "gamma_surrogate_slope": k * slope[1], "share_beta_not_below_alpha": 0.5,
        "share_alpha_above_limit": 0.0, "alpha": 0.1, "smoothness": 1.0,
        "first_task": dict(zip(
            ("gradient_norm", "loss", "test_loss"), rng.uniform(0.5, 2, 3).tolist(), strict=True,
        )),
        "previous": {"gradient_norm": 1.0 + k, "loss": 0.5, "examples": 100 * k},
        "seen": {"gradient_norm": 2.0 + k, "loss": 0.7, "examples": 100 * (k + 1)},
        "draws": draws if k else None, "step_bound": 3.0 * k if k else None,
    }  # fmt: skip
