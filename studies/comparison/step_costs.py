"""The cost of a step of each method, as a multiple of fine-tuning's: step_costs.json.

python -m studies.comparison.step_costs

Run it on a machine at rest. The file notes the commit; `.ci/release` measures again where what a
step runs has changed since.

It is the least processor time of some rounds, for beside other work, on the second task of split
digits with one head: a dense network of two layers of 256 units, batches of 10 from the stream and
from a memory of 5 examples a class. Methods that learn at the end of a task are left out, and so is
cumulative training, whose step is fine-tuning's.
"""

import json
import time
from pathlib import Path

import keras

from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_learner, build_stream
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.options import RunOptions
from nccl_tf.records.provenance import package_source

FILE = Path(__file__).parent / "step_costs.json"
LEFT_OUT = ("cn_dpm", "gdumb")
PASSES, ROUNDS = 5, 4


def seconds_of(method: str) -> float:
    """The least processor time of a step."""
    flags = {"method": method, "dataset": "split_digits", "head": "single", "batch_size": 10}
    settings = resolve({**flags, "max_tasks": 2, "epochs": 1})
    stream = build_stream(settings, RunOptions(), seed=0)
    learner = build_learner(settings, stream, seed=0)
    learner.fit(stream[0].train_batches(10), task_id=0, verbose=0)
    batches = stream[1].train_batches(10, passes=PASSES)
    times = []
    for _ in range(1 + ROUNDS):  # The first one traces.
        start = time.process_time()
        learner.fit(batches, task_id=1, end_task=False, verbose=0)
        times.append(time.process_time() - start)
    return min(times[1:]) / stream[1].steps(10, PASSES)


def read_costs() -> tuple[dict[str, float], str]:
    """The multiples by the methods' names, and the commit that they were measured at."""
    found = json.loads(FILE.read_text())
    return found["times"], found["commit"]


def main() -> None:
    """Measure and write."""
    source = package_source()
    if source["commit"] is None or source["package_modified"]:
        raise SystemExit(
            "the package differs from its commit, which the file is to note: commit first"
        )
    seconds: dict[str, float] = {}
    for name, method in METHODS.items():
        if not (method.joint or method.joins) and name not in LEFT_OUT:
            seconds[name] = seconds_of(name)
            print(f"{name} {1e3 * seconds[name]:.2f} ms", flush=True)
            keras.backend.clear_session()
    ratios = {name: round(value / seconds["finetune"], 1) for name, value in seconds.items()}
    FILE.write_text(json.dumps({"commit": source["commit"], "times": ratios}, indent=1) + "\n")


if __name__ == "__main__":
    main()
