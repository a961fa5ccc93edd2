"""How far two runs of the same settings part, with --deterministic and without, whole and resumed.

python -m benchmarks.determinism

Each pair is two processes. The second one runs through, or is killed in mid-task and resumed. The
steps' records (mean loss over windows of steps) show how early the two part, and the accuracy
matrices how far they end apart.
"""

import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = [
    sys.executable, "run.py", "--method=nccl_reservoir", "--dataset=split_digits", "--max_tasks=3",
    "--checkpoint_every=0.2", "--record_every=5", "--steps_per_execution=5",
]  # fmt: skip
NETWORKS = {"dense": ["--hidden=256,256", "--epochs=5"], "ResNet": ["--network=resnet18_reduced"]}


def run(folder: Path, flags: list[str], kill: bool) -> tuple[dict, list[list[float]]]:
    """The record and the rows of steps.csv of a run, killed once on the way if asked to be."""
    command = [*COMMAND, f"--output_dir={folder}", *flags]
    if kill:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not list(folder.rglob("*.checkpoint")):
            time.sleep(0.02)
        time.sleep(1.0)
        process.kill()
        process.wait()
        if list(folder.rglob("result.json")):
            raise SystemExit("the run had ended before it was killed: give it more work")
    subprocess.run(command, check=True, capture_output=True)
    (result,) = folder.rglob("result.json")
    with (result.parent / "steps.csv").open() as file:
        rows = [[float(x or "nan") for x in row] for row in list(csv.reader(file))[1:]]
    return json.loads(result.read_text()), rows


def difference(one: tuple[dict, list], other: tuple[dict, list]) -> dict[str, object]:
    """Whether two runs end in the same bits, where their losses part and how far apart they end."""
    losses = [(a[0], abs(a[1] - b[1])) for a, b in zip(one[1], other[1], strict=True)]
    parted = [step for step, gap in losses if gap > 0]
    cells = [
        abs(a - b)
        for rows in zip(one[0]["accuracy_matrix"], other[0]["accuracy_matrix"], strict=True)
        for a, b in zip(*rows, strict=True)
        if a is not None
    ]
    return {
        "same_bits": one[0]["state_sha256"] == other[0]["state_sha256"],
        "steps": one[0]["steps"],
        "first_window_that_differs_ends_at_step": min(parted, default=None),
        "largest_loss_difference": max(gap for _, gap in losses),
        "largest_accuracy_difference": max(cells),
    }


def main() -> None:
    """Measure and print."""
    found = {}
    for network, flags in NETWORKS.items():
        for name, extra in (("--deterministic", ["--deterministic"]), ("default", [])):
            with tempfile.TemporaryDirectory() as folder:
                runs = [
                    run(Path(folder) / str(number), [*flags, *extra], kill=number == 2)
                    for number in range(3)
                ]
            found[f"{network}, {name}, two runs"] = difference(runs[0], runs[1])
            found[f"{network}, {name}, killed and resumed"] = difference(runs[0], runs[2])
    for name, row in found.items():
        print(name, *(f"  {key}: {value}" for key, value in row.items()), sep="\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
