"""Runs benchmarks and keeps what they measured, which the table of benchmarks/README.md shows.

python -m benchmarks.keep evaluation "floor --rounds 9"   # measured anew, on a machine that rests
python -m benchmarks.keep [--check]                       # the table alone: written, or compared
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from nccl_tf.experiment.run.machine import count_cores
from nccl_tf.reports.generated_files import put_between_marks
from nccl_tf.reports.table import markdown_table

FILE = Path(__file__).with_name("measured.json")
PAGE = Path(__file__).with_name("README.md")


def table(kept: dict[str, Any]) -> str:
    """The ratios of each benchmark beside their targets, in Markdown.

    Args:
        kept: What `report` wrote, by the commands of benchmarks.
    """
    rows = []
    for command, found in kept.items():
        for number, (ratio, row) in enumerate(found["ratios"].items()):
            target = "-" if row["target"] is None else f"{row['target']:g}"
            first = f"`{command}`" if number == 0 else ""
            rows.append((first, ratio, f"{row['ratio']:.2f}", target))
    machines = sorted({found["machine"] for found in kept.values()})
    most = max((found["load"] for found in kept.values()), default=0.0)
    about = f"Measured on {' and '.join(machines)}; load before a benchmark at most {most:.1f}."
    names = ("command (`python -m benchmarks.`)", "what", "measured", "target")
    return f"{markdown_table(names, rows, names[2:])}\n{about}\n"


def measure(command: str) -> dict[str, Any]:
    """What a benchmark prints as its JSON line, and the machine that it ran on.

    Args:
        command: Name of the benchmark and its arguments.

    Raises:
        SystemExit: There is no such benchmark, or it prints no ratios.
    """
    name, *arguments = command.split()
    if importlib.util.find_spec(f"benchmarks.{name}") is None:
        raise SystemExit(f"there is no benchmark {name}: name a file of benchmarks/")
    load = os.getloadavg()[0]
    words = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="")
    found = json.loads(done.stdout.splitlines()[-1])
    if "ratios" not in found:
        raise SystemExit(f"{name} prints no ratios, which the table is made of")
    frameworks = ("tensorflow", "keras")
    versions = ", ".join(f"{each} {importlib.metadata.version(each)}" for each in frameworks)
    machine = f"{_processor()}, {count_cores()} cores, {versions}"
    return {**found, "machine": machine, "load": round(load, 2)}


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    rows = dict(line.split(":", 1) for line in lines if ":" in line)
    fields = {name.strip(): value.strip() for name, value in rows.items()}
    vectors = "AVX-512" if "avx512f" in fields["flags"].split() else "AVX2"
    return f"{fields['model name']} with {vectors}"


def main() -> None:
    """Measure what is named, and write or compare the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs="*")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    for command in asked.commands:
        kept[command] = measure(command)
        FILE.write_text(json.dumps(kept, indent=1) + "\n")
    current = put_between_marks(PAGE, "measured", table(kept), check=asked.check)
    if asked.check and not current:
        raise SystemExit(f"{PAGE.name} is not up to date: run python -m benchmarks.keep")


if __name__ == "__main__":
    main()
