"""A step of published settings against one of experience replay: what the README's table shows.

python -m benchmarks.table_steps --settings=HASH,HASH,... [--output_dir=results] [--rounds=5]
"""

import argparse
import time
from pathlib import Path

import tensorflow as tf

from benchmarks.side_by_side import measure
from benchmarks.study_steps import second_task
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.experiment.run.files import write_file
from nccl_tf.reports.costs import FILE_NAME, REFERENCE, TABLE, costs_text
from nccl_tf.reports.records import Record, by_settings, of_settings, read_records


def settings_of(record: Record) -> Settings:
    """The settings of a record, for two tasks of its stream; today's default of what is newer."""
    kept = {"tasks": None, **record["settings"], "average_weights": None, "max_tasks": 2}
    usual = resolve({"method": record["method"], "dataset": record["dataset"]})
    kept["hyperparameters"] = {**usual.hyperparameters, **kept["hyperparameters"]}
    return Settings(**kept)


def main() -> None:
    """Measure, print and write the ratios beside the records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True)
    parser.add_argument("--output_dir", default="results")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    folder = Path(arguments.output_dir)
    asked = of_settings(read_records(folder)[0], arguments.settings.split(","))
    firsts = {group[0]["settings_hash"][:8]: group[0] for group in by_settings(asked)}
    streams = {f"{record['dataset']}-{record['head']}" for record in firsts.values()}
    plain = [name for name, record in firsts.items()
             if record["method"] == REFERENCE and not record["settings"].get("dark")]  # fmt: skip
    if len(streams) != 1 or len(plain) != 1:
        raise UserError(
            f"expected settings of one stream with plain {REFERENCE} once, whose step counts as 1; "
            f"received {len(streams)} streams and it {len(plain)} times"
        )
    sides = {name: second_task(settings_of(record)) for name, record in firsts.items()}
    seconds = measure(sides, arguments.rounds, time.process_time)
    ratios = {name: second / seconds[plain[0]] for name, second in seconds.items()}
    print({f"{firsts[name]['method']} {name}": f"{ratio:.2f}" for name, ratio in ratios.items()})
    write_file(folder / FILE_NAME, costs_text({streams.pop(): ratios}, TABLE).encode())


if __name__ == "__main__":
    main()
