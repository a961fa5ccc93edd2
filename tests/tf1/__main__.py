"""`python -m tests.tf1`: see the package."""

import argparse
import sys

import tensorflow as tf

from tests.tf1 import compare
from tests.tf1.mutations import MUTATIONS, caught

PARITY = ("method", "network", "steps", "interference", *compare.QUANTITIES)
SINGLE = ("method", "steps", "apart", "with ties", "apart with ties", "farthest from 0")
MOVING = ("passes", "test logits apart", "equal predictions of 40")
FEW = ("method", "stored", "weights apart after a step")
BROKEN = ("rule", "broken by", "noticed by")


def cell(value):
    """A value in a table."""
    if value is None:
        return "-"
    return f"{value:.0e}" if isinstance(value, float) else str(value)


def show(head, rows, align="---:"):
    """Print a Markdown table, a row when it is there."""
    print(f"| {' | '.join(head)} |\n| --- |{f' {align} |' * (len(head) - 1)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(map(cell, row))} |", flush=True)
    print()


def parity(pairs, above):
    """Rows of the first table; the names of those above a bound are added to a list."""
    for pair in pairs:
        row = compare.follow(*pair)
        if not row.agrees:
            above.append(f"{row.method} ({row.network})")
        numbers = (row.differences.get(name) for name in compare.QUANTITIES)
        yield row.method, row.network, row.steps, row.interference, *numbers


def main(words):
    """Print the tables; returns what is above its bound."""
    parser = argparse.ArgumentParser("python -m tests.tf1")
    parser.add_argument("words", nargs="*", help="of names of methods, networks or broken rules")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--short", action="store_true", help="small networks, few steps")
    form.add_argument("--mutations", action="store_true", help="who notices a broken rule")
    given = parser.parse_args(words)

    def chosen(find):
        for word in given.words:
            if not find([word]):
                parser.error(f"{word!r} is in no name: choose words of a name in the table")
        return find(given.words)

    if given.mutations:
        rules = chosen(lambda words: [
            m for m in MUTATIONS if not words or any(word in m.rule for word in words)
        ])  # fmt: skip
        show(BROKEN, map(caught, rules), "---")
        return ""
    pairs, above = chosen(lambda words: compare.pairs(given.short, words)), []
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    show(PARITY, parity(pairs, above))
    if not given.short and not given.words:
        rows = [compare.single_steps(case, compare.resnet()) for case in compare.RESNET]
        above += [f"{row.method} (float32)" for row in rows if not row.agrees]
        show(SINGLE, rows)
        show(MOVING, compare.moving_variances())
        show(FEW, compare.few_stored())
    return f"above its bound: {'; '.join(above)}" if above else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or None)
