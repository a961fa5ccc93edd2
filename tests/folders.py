"""Folders that lie deep in one another."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def inside(folder: Path, depth: int) -> Iterator[None]:
    """The innermost of so many folders within one another as the current one.

    They are gone afterwards: `shutil.rmtree` calls itself for each.
    """
    before = os.getcwd()
    os.chdir(folder)
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    try:
        yield
    finally:
        for name in os.listdir():
            os.remove(name)
        for _ in range(depth):
            os.chdir("..")
            os.rmdir("d")
        os.chdir(before)
