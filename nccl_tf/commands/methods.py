"""The command `methods`: the page of the methods."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_tf.commands._output import print_file_status
from nccl_tf.errors import UserError
from nccl_tf.reports.generated_files import put_text, read_text
from nccl_tf.reports.method_docs import methods_page


def run(flag_values: Mapping[str, Any]) -> int:
    """Print the page of the methods, or write it into a file.

    Returns:
        1 if `--check` finds another page in the file, else 0.

    Raises:
        UserError: The file cannot be read or written.
    """
    if flag_values["docs"] is None:
        if flag_values["check"]:
            raise UserError("--check compares a file: give --docs=docs/methods.md too")
        print(methods_page(), end="")
        return 0
    path, check = Path(flag_values["docs"]), bool(flag_values["check"])
    current = read_text(path, "--docs") if os.path.exists(path) else None
    return print_file_status(
        path, put_text(path, current, methods_page(), flag="--docs", check=check), check
    )
