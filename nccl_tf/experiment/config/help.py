"""The help text: every flag by topic with its symbol, unit and default, 80 columns wide."""

import textwrap

from nccl_tf.experiment.config.flag_table import all_flags
from nccl_tf.experiment.config.setting import Setting

WIDTH = 80

_HEAD = """\
Continual learning with NCCL and its relatives.

usage: python run.py [train] [--flag=value ...]   train, task by task
       python run.py tables [--output_dir=DIR]    finished runs in Markdown
       python run.py methods [--docs=FILE]        methods and where they run
       python run.py data [--dataset=NAME]        prepare and describe data
       python run.py figures [--figure=2]         pictures of the paper's theory
       python run.py sweep --flagfile=FILE        a grid, on the tuning tasks
       python run.py parity [--table=T9]          beside the paper's numbers
       python run.py report [--format=html]       runs as one HTML page
       python run.py publish [--publish_dir=DIR]  a line a run, to keep
       python run.py study --plan=FILE            systems under one protocol

Without flags, trains nccl_ring on permuted_digits (scikit-learn's handwritten
digits) with seed 0. --flagfile=FILE reads flags from a file, one a line.
"""

_VALUES = {
    "int": "=N",
    "float": "=X",
    "ints": "=N,N,...",
    "names": "=NAME,...",
    "text": "=NAME",
    "choice": "=NAME",
    "bool": "",
    "sweep": "=FLAG:V,V,...",
}


def help_text() -> str:
    """The whole text, every line at most 80 columns."""
    lines = [_HEAD]
    topic = ""
    for row in all_flags():
        if row.topic != topic:
            topic = row.topic
            lines.append(f"{topic}:")
        lines.append(_entry(row))
    return "\n".join(lines)


def _entry(row: Setting) -> str:
    facts = [f"symbol {row.symbol}"] if row.symbol else []
    facts += [f"unit: {row.unit}"] if row.unit else []
    facts.append(f"default: {row.describe_default()}")
    indent = " " * 6
    body = textwrap.fill(
        f"{row.describe()} [{'; '.join(facts)}]",
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return f"  --{row.name}{_VALUES[row.kind]}\n{body}"
