"""From how many steps on chunks save more time than compiling them takes, method by method.

python -m benchmarks.chunks_pay [--methods=er_ring,agem] [--rounds=3] [--compile_cache=DIR]

On a processor, one thread, with the dense network of `one_step`. `compile` is what the first chunk
takes beyond a later one, less what the first plain call does. With a folder of compiled programs
the second command of the same methods is warm. The rule of `nccl_tf/learner/execution.py` rests on
this table.
"""

import argparse
import time
from typing import Any

import keras

import nccl_tf
from benchmarks.one_step import BATCH, CLASSES, learner_of, two_tasks
from benchmarks.side_by_side import measure, table, take_threads
from nccl_tf.errors import UserError
from nccl_tf.learner.execution import STEPS_THAT_PAY
from nccl_tf.records.provenance import describe_devices

SHAPE, STEPS = (28, 28, 1), 600


def side(method: str, xla: bool) -> Any:
    """A call that fits the second task of a stream, once the first has ended, and its learner."""
    learner = learner_of(method, SHAPE, nccl_tf.networks.mlp(SHAPE, CLASSES))
    learner.compile(keras.optimizers.SGD(0.03), jit_compile=xla)
    tasks = two_tasks(SHAPE, STEPS)
    before = time.process_time()
    learner.fit(tasks[0], verbose=0)
    first = time.process_time() - before
    return first, lambda: learner.fit(tasks[1], batch_size=BATCH, end_task=False, verbose=0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(nccl_tf.METHODS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile_cache", help="folder that keeps programs of XLA")
    asked = parser.parse_args()
    take_threads(1)
    if asked.compile_cache:
        nccl_tf.use_compile_cache(asked.compile_cache)
    rows = []
    for method in asked.methods.split(","):
        keras.utils.set_random_seed(0)
        try:
            sides = {name: side(method, xla) for name, xla in (("plain", False), ("chunk", True))}
        except UserError as error:
            print(f"{method}: {error}")
            continue
        calls = {name: call for name, (_, call) in sides.items()}
        seconds = measure(calls, asked.rounds, time.process_time)
        first = {name: sides[name][0] - seconds[name] for name in sides}
        compiling = first["chunk"] - first["plain"]
        plain, chunk = (1e3 * seconds[name] / STEPS for name in ("plain", "chunk"))
        pays = f"{1e3 * compiling / (plain - chunk):,.0f}" if chunk < plain else "never"
        row = [f"`{method}`", f"{plain:.2f}", f"{chunk:.2f}", f"{compiling:.1f}", pays]
        print(*row, flush=True)
        rows.append(row)
    title = f"Milliseconds of a processor a step, seconds to compile, on {describe_devices()}"
    heads = "method", "plain", "chunk", "compile, s", "pays from steps"
    table(title, heads, rows)
    print(f"The rule: {STEPS_THAT_PAY:,} steps.")


if __name__ == "__main__":
    main()
