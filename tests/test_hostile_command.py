"""Whatever the command is given, it ends in success or in one sentence, never in a traceback."""

import contextlib
import gc
import io
import shutil
import traceback
from pathlib import Path
from typing import NamedTuple

import keras
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorflow.python.framework.config import disable_op_determinism

from nccl_tf.cli import main
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.flag_table import all_flags
from nccl_tf.experiment.run import loop
from nccl_tf.experiment.run.record import FILE_NAME, read_record
from nccl_tf.methods.registry import METHODS

WORDS = (
    "train", "train", "tables", "methods", "parity", "report", "publish", "trian",
    "train tables", "\x00", "🦆",
)  # fmt: skip
PATHS = (
    "out", "new/a/b", "file", "file/below", "x" * 300, "d/" * 3000, "", ".", "/proc/none",
    "~nobody-there/x", "nul\x00nul", "ünï/çødé", "lone\udcff", "a\nb\x1b[2J", "/dev/null", "--",
)  # fmt: skip
USUAL = {
    "method": tuple(METHODS), "dataset": ("split_digits", "permuted_digits"),
    "head": ("single", "multi"), "num_tasks": (1, 2, 5, 10), "tuning_tasks": (0, 1),
    "max_tasks": (1,), "examples_per_task": (1, 2, 19, 20), "batch_size": (1, 3, 10, 64),
    "epochs": (1, 2), "network": ("mlp",), "hidden": ("4", "8,8", "1"), "mask": ("own", "union"),
    "memory_per_class": (1, 2), "memory_size": (1, 11, 60, 500), "memory_batch_size": (1, 3, 10),
    "reservoir": ("exact", "off_by_one"), "learning_rate": (0.1, 0.5, 1e-30, 1e30),
    "first_task_learning_rate": (0.01, 1e38), "schedule": ("constant", "inverse_sqrt"),
    "precision": ("float32", "mixed_bfloat16", "mixed_float16"),
    "progress": ("bar", "plain", "json", "none"), "device": ("auto", "cpu"),
    "steps_per_execution": (1, 2, 7, 100_000),
    "deterministic": ("true",), "overwrite": ("true",), "seeds": ("0", "3", "1,2"),
    "checkpoint_every": (0.001, 60), "record_every": (1, 3, 1000),
}  # fmt: skip
RARE = {
    "sweep": ("learning_rate:0.1,0.01", "head:multi"), "check": ("true", "false"),
    "conv_init": ("he",),
    **dict.fromkeys(("resume", "readme", "docs", "output_dir", "publish_dir"), PATHS),
}  # fmt: skip
# These would compile for long, write much, read data sets, or wait for the reader.
LEFT_OUT = ("jit_compile", "tensorboard", "data_dir", "manual_dir", "serve")
GARBAGE = st.one_of(
    st.sampled_from(
        ("", " ", "nan", "inf", "-inf", "1e400", "-1", "0", "-0.0", "1e-320", "0x10", "1_0", "٣",
         "1,", ",", "true", "None", "[]", "{}", "1;2", "$(id)", "%s%n", "../../x", "\x00", "\ud800",
         "9" * 5000, "a" * 100_000, "'", '"', "--batch_size=1", "🦆", "a\nb\rc", "2147483648",
         "9223372036854775808", "-2147483648")
    ),
    st.text(max_size=20),
    st.floats().map(repr),
    st.integers().filter(lambda n: abs(n) >= 2**31 or n < 1).map(str),
)  # fmt: skip
FOREIGN = st.one_of(
    st.sampled_from(
        ("--metod=er_ring", "--", "-", "--=", "--=1", "---x", "-x", "--flagfile", "--flagfile=",
         "--flagfile=.", "--flagfile=none", "--flagfile=nul\x00", "--flagfile=some.flags",
         "--undefok=a", "--undefok", "--run_with_pdb", "--pdb", "--run_with_profiling", "--helpxml",
         "--only_check_args", "--log_dir=none/none", "--verbosity=x", "--logger_levels=x", "-v=9",
         "--help=1", "--nohelp", "--stderrthreshold=x", "--learning_rat=1", "--method\n=x")
    ),
    st.text(max_size=12).map(lambda text: f"--{text}"),
)  # fmt: skip


def usual_values(method: str) -> dict[str, tuple]:
    """Values by flag that a run with the method may take, with those at the end of its ranges."""
    values = dict(USUAL, method=(method,))
    for row in METHODS[method].hyperparameters:
        ends = tuple(end for end in (row.ge, row.le) if end is not None)
        numbers = (1, 2, *map(int, ends)) if row.kind == "int" else (0.3, 1e-3, 1e-30, 1e30, *ends)
        values[row.name] = row.choices or numbers
    return values


@st.composite
def usual_flags(draw) -> list[str]:
    values = usual_values(draw(st.sampled_from(list(METHODS))))
    names = draw(st.lists(st.sampled_from(list(values)), max_size=6))
    return [f"--{name}={draw(st.sampled_from(values[name]))}" for name in names]


@st.composite
def hostile_flag(draw) -> list[str]:
    values = {row.name: () for row in all_flags() if row.name not in LEFT_OUT} | USUAL | RARE
    name = draw(st.sampled_from([*values, *RARE]))
    known = st.sampled_from(values[name]).map(str) if values[name] else GARBAGE
    value = draw(st.one_of(GARBAGE, known))
    shapes = ([f"--{name}={value}"], [f"-{name}={value}"], [f"--{name}", value], [f"--{name}"],
              [f"--no{name}"])  # fmt: skip
    return draw(st.sampled_from((shapes[0],) * 5 + shapes))


HOSTILE = st.lists(
    st.one_of(hostile_flag(), hostile_flag(), FOREIGN.map(lambda word: [word])), max_size=4
).map(lambda flags: [word for words in flags for word in words])


class Line(NamedTuple):
    """A command line, and what is in the file some.flags, which it may name."""

    argv: list[str]
    file: list[str]


@st.composite
def command_lines(draw) -> Line:
    hostile = st.one_of(st.just([]), HOSTILE)
    argv = [*draw(usual_flags()), *draw(hostile)]
    file = draw(st.one_of(st.just([]), hostile))
    if file or draw(st.integers(0, 9)) == 0:
        argv.append("--flagfile=some.flags")
    if draw(st.integers(0, 5)) == 0:
        argv += draw(st.sampled_from(WORDS)).split(" ")
    # Flags that come later win; these keep a run short.
    return Line(["--dataset=split_digits", "--max_tasks=1", "--examples_per_task=20", *argv], file)


class Ended(NamedTuple):
    """Exit code, or the traceback; what was printed."""

    code: int | str
    out: str
    err: str


def run(argv: list[str]) -> Ended:
    """The command in this process, with streams that encode as a terminal's do."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict")
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: int | str = main(["run.py", *argv]) or 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            code = traceback.format_exc()
    for stream in (out, err):
        stream.flush()
    return Ended(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())


def check(line: Line) -> Ended:
    """Run a command line in the current folder, and hold it to the promise."""
    Path("file").write_text("")
    Path("some.flags").write_bytes("\n".join(line.file).encode("utf-8", "surrogatepass"))
    ended = run(line.argv)
    given = " ".join([*line.argv, *line.file])
    assert ended.code in ((0, 1, 2, 3) if "check" in given else (0, 2, 3)), ended.code
    assert "Traceback" not in ended.out + ended.err
    if ended.code in (2, 3):
        sentences = [s for s in ended.err.splitlines() if not s.startswith("Warning: Hit circular")]
        assert len(sentences) == 1 and sentences[0].startswith("error: "), ended.err
        assert len(sentences[0]) < 1100
    for path in Path().rglob(FILE_NAME):
        read_record(path)
    assert not list(Path().rglob("*.tmp"))
    return ended


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """An empty current folder; what --deterministic switched on is switched off afterwards."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    disable_op_determinism()


few = settings(
    deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@settings(few, max_examples=2)
@given(line=command_lines())
def test_every_command_line_ends_well(own_folder, line):
    check(line)


@settings(few, max_examples=100)
@given(line=command_lines())
def test_every_command_line_is_read_well(own_folder, monkeypatch, line):
    """All that a run does before it trains, which takes long."""

    def refuse(*args, **kwargs):
        raise UserError("this one is not trained")

    monkeypatch.setattr(loop, "run_seed", refuse)
    check(line)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, database=None, print_blob=True,
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(line=command_lines())
def test_five_hundred_command_lines_end_well(own_folder, line):
    try:
        check(line)
    finally:
        for folder in own_folder.iterdir():
            shutil.rmtree(folder, ignore_errors=True)
        keras.utils.clear_session()
        gc.collect()
