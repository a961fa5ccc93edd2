"""A case of the soak: a run undisturbed, the same run with faults, and what differs."""

import dataclasses
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.options import OPTIONS, resolve_options
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.record import FILE_NAME, read_record
from tests.soak import faults
from tests.soak.compare import differences
from tests.soak.draw import Flags, as_words, draw_flags, parse_words
from tests.soak.processes import Ended, Signal, run_forked, run_whole

ALWAYS: Flags = {"deterministic": "true", "threads": 1, "progress": "none"}
MOST_MOMENTS = 60
MOST_RUNS = 8  # More would be no progress: none of them is disturbed.
AFTER_RECORD = "after the record was written"
ENDS = {
    "none": (0,), "kill": (0, -signal.SIGKILL), "term": (0, 143, -signal.SIGTERM), "int": (0, 130),
    "two signals": (0, 130, 143, -signal.SIGTERM), "disk": (0, 2), "inodes": (0, 2),
    "limit": (0, 2), "remove": (0, 2),
}  # fmt: skip
"""The exit codes of a run that a fault befell, by its first word."""


class Fault(NamedTuple):
    """What befalls a run while it runs: a strike at a moment, or a signal after some seconds."""

    kind: str
    strike: Callable[[], object] | None = None
    moment: int = 0
    later: Signal | None = None

    @property
    def codes(self) -> tuple[int, ...]:
        return ENDS.get(self.kind) or ENDS[self.kind.split()[0]]


NONE = Fault("none")


@dataclasses.dataclass
class Case:
    """One case, and what became of it.

    Args:
        seed: Of the soak.
        number: Of the case.
        disk: A folder for its runs, a file system of its own where `has_disk`.
        logs: A folder for what they print.
        has_disk: Whether the disk may be filled.
        whole_processes: Whether its runs are processes of their own.
    """

    seed: int
    number: int
    disk: Path
    logs: Path
    has_disk: bool
    whole_processes: bool = False
    runs: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng((self.seed, self.number))
        self.flags: Flags = {}
        self.options: Flags = {}
        self.output = self.disk / "disturbed"
        self.every: int | None = None
        self.seconds = 0.0
        self.backup: bytes | None = None
        self.may_refuse, self.must_warn = False, ""
        self.next_words: list[str] = []
        self.was_refused_to_resume = False

    def run(self) -> None:
        """Run it, and gather what is wrong with it in `problems`."""
        whole = self._run_undisturbed()
        self._draw_options()
        self.every = int(str(self.options["record_every"]))
        wanted = int(self.random.integers(5, 15))
        while len(self.faults) < wanted and not self.is_finished and not self.problems:
            if self.runs > 1 and self.random.random() < 0.5:
                self._disturb_between()
            self._run(self._draw_fault())
            if self.runs > 3 * wanted:
                break
        for _ in range(MOST_RUNS):
            if self.is_finished or self.problems:
                break
            self._run(NONE)
        if not self.problems:
            found = [] if self.is_finished else ["it does not end"]
            self.problems += found or differences(whole, self.folder, self.every)

    @property
    def folder(self) -> Path:
        """The folder of the disturbed run."""
        cell = Path(f"{self.settings.dataset}-{self.settings.head}", self.settings.method)
        return self.output / cell / self.settings.digest()[:8] / f"seed{self.flags['seeds']}"

    @property
    def is_finished(self) -> bool:
        """Whether the disturbed run has a record and rows, and is not to be run again."""
        files = all((self.folder / name).exists() for name in (FILE_NAME, "steps.csv"))
        return files and not self.next_words

    def as_json(self) -> dict[str, object]:
        """What became of it, as JSON values."""
        return {
            "seed": self.seed, "case": self.number, "runs": self.runs, "faults": self.faults,
            "whole_processes": self.whole_processes, "flags": " ".join(as_words(self.flags)),
            "problems": self.problems,
        }  # fmt: skip

    def _run_undisturbed(self) -> Path:
        """The folder of the whole run, of the first drawn flags that go together."""
        while True:
            seeds = int(self.random.integers(3))
            self.flags = {**draw_flags(self.random), **ALWAYS, "seeds": seeds}
            options = {"record_every": 1, "steps_per_execution": self._one(1, 3, 100)}
            words = [*as_words(self.flags | options), f"--output_dir={self.disk / 'whole'}"]
            try:
                values = parse_words(words)
                self.settings = resolve(values)
                resolve_options(values)
            except UserError:
                continue
            ended = self._start(words, NONE)
            self.seconds = ended.seconds
            if ended.code in (2, 3):  # What only the data, the network or the steps tell.
                continue
            self._check(ended, NONE, self.disk / "whole")
            (record,) = (self.disk / "whole").rglob(FILE_NAME)
            return record.parent

    def _run(self, fault: Fault) -> None:
        """Run, or go on with, the disturbed run, and see to what its messages ask for."""
        words = as_words(self.flags | self.options)
        resumes = (self.folder / "run.json").exists() and self.random.random() < 0.25
        if resumes and not self.was_refused_to_resume:
            kept = {name: value for name, value in self.flags.items() if name in OPTIONS}
            kept = {name: value for name, value in kept.items() if name != "seeds"}
            words = [*as_words(kept | self.options), f"--resume={self.folder}"]
        words += [f"--output_dir={self.output}", *self.next_words]
        begins_again, self.next_words = bool(self.next_words), []
        self.was_refused_to_resume = False
        ended = self._start(words, fault)
        faults.make_room(self.disk)
        struck = (self.logs / "struck").exists() or ended.code not in (0, 2)
        self._check(ended, fault, self.output, self.may_refuse and not begins_again)
        if ended.code == 0:
            if self.must_warn not in ended.err and not begins_again and not struck:
                self.problems.append(f"no warning {self.must_warn!r}: {ended.err[-300:]!r}")
            if begins_again:
                self.every = int(str(self.options["record_every"]))
            self.may_refuse = False
        elif begins_again:
            self.every = None
        self.must_warn = ""
        if struck:
            self.faults.append(fault.kind)
            if fault.kind in ("remove steps.csv", "remove seed folder", "remove output folder"):
                self.may_refuse, self.backup = True, None
            if fault.kind == "remove steps.csv" and self._read_mark() == AFTER_RECORD:
                self.next_words = ["--overwrite"]  # No run can tell.
        if ended.code == 2 and not struck:
            self._heal(ended.err)

    def _start(self, words: list[str], fault: Fault) -> Ended:
        self.runs += 1
        (self.logs / "struck").unlink(missing_ok=True)
        if self.whole_processes:
            return run_whole(words, self.logs, fault.later)
        hook = None
        if fault.strike:
            hook = faults.Moment(self.output, fault.moment, self._marked(fault.strike))
        return run_forked(words, self.logs, hook, fault.later)

    def _marked(self, strike: Callable[[], object]) -> Callable[[], None]:
        def mark_and_strike() -> None:
            has_record = (self.folder / FILE_NAME).exists()
            (self.logs / "struck").write_text(AFTER_RECORD if has_record else "")
            strike()

        return mark_and_strike

    def _read_mark(self) -> str:
        mark = self.logs / "struck"
        return mark.read_text() if mark.exists() else ""

    def _check(self, ended: Ended, fault: Fault, output: Path, may_refuse: bool = False) -> None:
        """Hold the end of a run to the promises."""
        said = ended.out + ended.err
        codes = (*fault.codes, 2) if may_refuse else fault.codes
        if ended.code not in codes or "Traceback" in said:
            # The stack of a run that was aborted, since it did not end, comes first.
            shown = said if len(said) < 4000 else f"{said[:2000]} ... {said[-2000:]}"
            self.problems.append(
                f"code {ended.code} after {fault.kind}, {ended.seconds:.0f} s: {shown}"
            )
        lines = [line for line in ended.err.splitlines() if line.startswith("error: ")]
        if ended.code == 2 and (len(lines) != 1 or len(lines[0]) > 1100):
            self.problems.append(f"no sentence after {fault.kind}: {ended.err[-2000:]}")
        for path in output.rglob(FILE_NAME):
            try:
                read_record(path)
            except UserError as error:
                self.problems.append(f"partial record after {fault.kind}: {error}")

    def _heal(self, message: str) -> None:
        """Do as a refusal advises: leave --resume out, restore what was damaged, start again."""
        if "--resume=" in message:
            self.was_refused_to_resume = True
            return
        if "with --overwrite" not in message:
            self.problems.append(f"refused without advice: {message[-300:]!r}")
        if self.backup is not None and self.random.random() < 0.5:
            (self.folder / "steps.csv").write_bytes(self.backup)
            self.may_refuse = False
        else:
            self.next_words = ["--overwrite"]

    def _draw_options(self) -> None:
        self.options = {
            "record_every": self._one(1, 3, 7, 50),
            "steps_per_execution": self._one(1, 2, 5, 100),
            "checkpoint_every": self._one(1e-9, 1e-9, 0.05, 60),
        }

    def _one(self, *values):
        return values[self.random.integers(len(values))]

    def _draw_fault(self) -> Fault:
        kind = self._one("kill", "kill", "term", "int")
        if self.whole_processes or self.random.random() < 0.2:
            seconds = float(self.random.uniform(0.3, 1) * self.seconds)
            return Fault(kind, later=Signal(faults.SIGNALS[kind], seconds))
        moment = int(np.exp(self.random.uniform(0, np.log(MOST_MOMENTS))))
        if self.random.random() < 0.4:
            return Fault(kind, lambda: faults.send(faults.SIGNALS[kind]), moment)
        left = faults.PAGE * int(self.random.integers(20))
        few, disk = int(self.random.integers(4)), self.disk
        strikes: dict[str, Callable[[], object]] = {
            "two signals": lambda: faults.send(signal.SIGTERM, signal.SIGINT),
            "limit": lambda: faults.limit_files(2 * faults.PAGE + left),
            **{f"remove {name}": self._removal(name) for name in self._removable()},
        }
        if self.has_disk:
            strikes |= {
                "disk": lambda: faults.fill_disk(disk, left),
                "inodes": lambda: faults.take_inodes(disk, few),
            }
        kind = self._one(*strikes, *["disk"] * 2 * self.has_disk)
        return Fault(kind, strikes[kind], moment)

    def _removable(self) -> dict[str, Path]:
        folder = self.folder
        return {
            "steps.csv": folder / "steps.csv", "seed folder": folder, "lock": folder / "lock",
            "output folder": self.output, "checkpoints": folder / "checkpoints",
            "run.json": folder / "run.json",
        }  # fmt: skip

    def _removal(self, name: str) -> Callable[[], None]:
        path = self._removable()[name]
        return lambda: faults.remove(path)

    def _disturb_between(self) -> None:
        """Damage or change something while nothing runs."""
        steps, saved = self.folder / "steps.csv", faults.checkpoints(self.folder)
        run_file, random = self.folder / "run.json", self.random
        kinds: dict[str, Callable[[], object]] = {"options": self._change_options}
        if not self.may_refuse and steps.exists() and steps.stat().st_size:
            content = steps.read_bytes()
            cut = content[: random.integers(len(content))]
            kinds |= {
                "flip steps.csv": lambda: faults.flip_bit(steps, random),
                "cut steps.csv": lambda: steps.write_bytes(cut),
                "append to steps.csv": lambda: steps.write_bytes(content + b"9,9\r\n"),
                "remove steps.csv": lambda: faults.remove(steps),
            }
            self.backup = content
        if saved and not self.may_refuse:
            kinds |= {
                "flip checkpoint": lambda: faults.flip_bit(saved[-1], random),
                "flip all checkpoints": lambda: [faults.flip_bit(p, random) for p in saved],
                "cut checkpoint": lambda: saved[-1].write_bytes(saved[-1].read_bytes()[:-9]),
                "remove checkpoint": lambda: faults.remove(saved[-1]),
                "remove checkpoints": lambda: faults.remove(saved[-1].parent),
                "remove seed folder": lambda: faults.remove(self.folder),
            }
        if run_file.exists():
            kinds |= {
                "flip run.json": lambda: faults.flip_bit(run_file, random),
                "remove run.json": lambda: faults.remove(run_file),
            }
        kind = self._one(*kinds, "options")
        kinds[kind]()
        self.faults.append(kind)
        if kind in ("flip checkpoint", "flip all checkpoints", "cut checkpoint"):
            self.must_warn = "torn or damaged"
        if kind.endswith(("steps.csv", "run.json")):
            self.may_refuse = True

    def _change_options(self) -> None:
        before = self.options["record_every"]
        self._draw_options()
        if self.options["record_every"] != before:
            self.every = None


def clean(disk: Path) -> None:
    """Remove what a case left."""
    faults.make_room(disk)
    for path in disk.iterdir():
        shutil.rmtree(path)
