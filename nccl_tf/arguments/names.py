"""Names in records, and in the files and folders that are named by them."""

import re

NAME = re.compile(r"\w[\w.:+-]{0,99}")
"""What a name in a record matches: letters, digits and _.:+-, a hundred at most."""
_NO_NAME = re.compile(r"[^\w.:+-]+")


def plain_name(text: str) -> str:
    """A text as such a name, of at most 60 characters: folders that are named by it can be made."""
    name = _NO_NAME.sub("_", text)[:60]
    return name if re.match(r"\w", name) else f"_{name}"[:60]
