"""What intra-op threads and worker processes give: whole commands, one after the other.

python -m benchmarks.threads

One run with a thread and with two; five seeds and a sweep with a worker and with two; in rounds.
Needs MNIST, CIFAR-100 and two cores. CPU seconds say more than wall seconds on a busy machine.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 3
DENSE = ["--method=nccl_ring", "--dataset=permuted_mnist"]
CASES = {
    "dense, 5 tasks": [*DENSE, "--max_tasks=5"],
    "ResNet, 2 tasks of 1500": [
        "--method=nccl_ring", "--dataset=split_cifar100", "--max_tasks=2",
        "--examples_per_task=1500",
    ],
}  # fmt: skip
THREADS = {f"{n} thread{'s' * (n > 1)}": [f"--threads={n}"] for n in (1, 2)}
WORKERS = {f"{n} worker{'s' * (n > 1)}": [f"--workers={n}"] for n in (1, 2)}
SEEDS = {
    "dense, 20 tasks, 5 seeds": [*DENSE, "--seeds=0,1,2,3,4"],
    "8 small trials": [
        "sweep", "--method=er_ring", "--dataset=split_digits", "--seeds=0,1",
        "--sweep=learning_rate:0.01,0.03,0.1,0.3",
    ],
}  # fmt: skip


def measure(flags: list[str]) -> dict[str, float | list[str]]:
    """Seconds of a command, and those that its records say, summed over the seeds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "run.py", *flags, f"--output_dir={folder}"]
        subprocess.run(command, check=True, capture_output=True)
        wall = time.perf_counter() - start
        paths = sorted(Path(folder).rglob("result.json"))
        records = [json.loads(path.read_text()) for path in paths]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    names = ("train_seconds", "compile_seconds", "eval_seconds")
    booked = {name: sum(record[name] for record in records) for name in names}
    return {"wall": wall, "cpu": cpu, **booked, "bits": [r["state_sha256"] for r in records]}


def main() -> None:
    """Measure and print."""
    result: dict[str, dict] = {"load before": dict(enumerate(os.getloadavg()))}
    for cases, choices in ((CASES, THREADS), (SEEDS, WORKERS)):
        for case, flags in cases.items():
            rounds = [
                {choice: measure([*flags, *more]) for choice, more in choices.items()}
                for _ in range(ROUNDS)
            ]
            print(f"{case:<26}{'wall':>8}{'CPU':>8}{'train':>8}{'compile':>9}{'eval':>7} s")
            for choice in choices:
                runs = [each[choice] for each in rounds]
                names = [name for name in runs[0] if name != "bits"]
                medians = {n: statistics.median(run[n] for run in runs) for n in names}
                result.setdefault(case, {})[choice] = medians
                cells = zip(medians.values(), (8, 8, 8, 9, 7), strict=True)
                print(f"  {choice:<24}" + "".join(f"{x:>{width}.1f}" for x, width in cells))
            bits = [run["bits"] for each in rounds for run in each.values()]
            result[case]["same bits"] = all(each == bits[0] for each in bits)
            print(f"  same bits: {result[case]['same bits']}", flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
