"""The command `publish`: finished runs as lines of the files of published records."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_tf.arguments.parameters import OUTPUT, Setting
from nccl_tf.commands._command import ALL, FILTERS, OF_RECORDS, Command
from nccl_tf.commands._output import read_asked
from nccl_tf.records.options import resolve_options

_PUBLISH_DIR = Setting(
    "publish_dir", "text", "results", topic=OUTPUT,
    help=(
        "folder of published records, to which those below --output_dir of --dataset, --method and "
        "--seeds are added"
    ),
)  # fmt: skip


def run(flag_values: Mapping[str, Any]) -> int:
    """Put the records of the finished runs below `--output_dir` into `--publish_dir`.

    Raises:
        UserError: There are no fitting records, one is published with another content and
            `--overwrite` is not given, or a file cannot be written. Broken records are left out,
            and named on stderr.
    """
    from nccl_tf.reports.record_lines import publish

    options = resolve_options(flag_values)
    records = read_asked(flag_values).records
    modified = sum(bool(record.package_modified) for record in records)
    if modified:
        print(
            f"{modified} of {len(records)} records come from a package whose files differed from "
            "the commit that they name (package_modified)",
            file=sys.stderr,
        )
    folder = Path(_PUBLISH_DIR.value(flag_values))
    for path, counts in publish(records, folder, overwrite=options.overwrite).items():
        print(
            f"{path}: {counts.added} added, {counts.replaced} replaced, "
            f"{counts.unchanged} unchanged"
        )
    return 0


COMMAND = Command(
    "publish", "[--publish_dir=DIR]", "a line a run, to keep", run,
    first=("publish_dir", *OF_RECORDS, "overwrite"),
    flags=(_PUBLISH_DIR,),
    defaults=ALL,
    helps={**FILTERS, "overwrite": "replace records that are published already"},
)  # fmt: skip
