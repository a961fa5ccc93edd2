"""Files that once broke a reader are read, or refused in one sentence, in a moment."""

import time
from pathlib import Path

import pytest

from tests.readers import READERS, read_or_refuse

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(path for path in CORPUS.glob("*/*"))


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}-{path.name}" for path in FILES])
def test_files_that_broke_a_reader(tmp_path, path):
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    start = time.process_time()
    read_or_refuse(path.parent.name, copy)
    assert time.process_time() - start < 2


def test_every_reader_has_files_that_broke_it():
    assert {path.parent.name for path in FILES} <= set(READERS)
    assert len(FILES) >= 10
