"""The command `methods`: every method with its memory, paper, hyperparameters and limits."""

from collections.abc import Mapping
from typing import Any

from nccl_tf.commands._command import Command


def run(flag_values: Mapping[str, Any]) -> int:
    """Print the page of the methods in Markdown.

    Returns:
        0.
    """
    from nccl_tf.reports.method_docs import methods_page

    print(methods_page(), end="")
    return 0


COMMAND = Command("methods", "", "methods and where they run", run)
