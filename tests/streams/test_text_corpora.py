"""Folders of text as streams of rows of tokens."""

from pathlib import Path

import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from tests.folders import inside


@pytest.fixture
def folder(tmp_path):
    for corpus, files in {
        "law": {"a.txt": "abcdefghij" * 3, "sub/b.txt": "klm"},
        "code": {"x.py": "def f(): return 0\n" * 3},
    }.items():
        for name, text in files.items():
            path = tmp_path / corpus / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (tmp_path / "law" / ".hidden").write_text("secret" * 100)
    return tmp_path


@pytest.mark.parametrize("depth", [1_500, 3_000])
def test_folders_lie_as_deep_as_paths_are_long(folder, depth):
    """1,500 levels were Python's RecursionError; 3,000 are no path of Linux."""
    before = nccl_tf.load_stream(f"text:{folder}", length=4)[1].num_train
    with inside(folder / "law", depth):
        Path("deep.txt").write_bytes(b"abcdefghij" * 4)
        if depth == 1_500:
            after = nccl_tf.load_stream(f"text:{folder}", length=4)[1].num_train
            assert after > before
        else:
            with pytest.raises(UserError, match="File name too long"):
                nccl_tf.load_stream(f"text:{folder}", length=4)


def test_all_files_together_are_bounded_before_one_is_read(folder):
    """By a sparse file, which holds no block of the disk."""
    with (folder / "law" / "sparse.txt").open("wb") as file:
        file.truncate(20 * 2**30)
    with pytest.raises(UserError, match=r"sparse\.txt has 21,474,836,480: expected"):
        nccl_tf.load_stream(f"text:{folder}", length=4)
    nccl_tf.load_stream(f"text:{folder}", length=4, max_tasks=1)  # of the other corpus


def test_links_are_followed_and_those_that_lead_out_are_named(folder, tmp_path_factory, caplog):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "notes.txt").write_text("abcdefghij")
    (elsewhere / "inner").mkdir()
    (elsewhere / "inner" / "more.txt").write_text("klmnopqrst")
    plain = nccl_tf.load_stream(f"text:{folder}", length=4)[1].num_train
    assert not caplog.messages
    (folder / "law" / "itself").symlink_to(folder / "law")
    (folder / "law" / "z.txt").symlink_to(elsewhere / "notes.txt")
    (folder / "law" / "zz").symlink_to(elsewhere / "inner")
    (folder / "poems").symlink_to(elsewhere)
    stream = nccl_tf.load_stream(f"text:{folder}", length=4)
    assert stream[1].num_train > plain and stream[2].num_train
    (said,) = caplog.messages
    assert "3 links that lead out" in said and f"law/z.txt to {elsewhere}/notes.txt" in said
    (folder / "law" / "all").symlink_to("/")
    with pytest.raises(UserError, match="all is a link to /, in which"):
        nccl_tf.load_stream(f"text:{folder}", length=4)


class Letters:
    """A tokenizer of letters: a is 97."""

    end_token_id = 0

    def vocabulary_size(self):
        return 200

    def __call__(self, text):
        return [ord(letter) for letter in text]


@pytest.mark.parametrize("number", [200, -3, 2**40])
def test_ids_beyond_the_vocabulary_are_refused(folder, number):
    class Beyond(Letters):
        def __call__(self, text):
            return [*super().__call__(text), number]

    with pytest.raises(UserError, match=f"of 200 tokens that makes {number}"):
        nccl_tf.load_stream(f"text:{folder}", length=4, tokenizer=Beyond())


def test_an_empty_file_has_no_tokens(folder):
    before = nccl_tf.load_stream(f"text:{folder}", length=4, tokenizer=Letters(), max_tasks=1)
    (folder / "code" / "empty.py").write_text("")
    after = nccl_tf.load_stream(f"text:{folder}", length=4, tokenizer=Letters(), max_tasks=1)
    assert before[0].num_train == after[0].num_train


def test_a_corpus_is_a_task_of_rows_of_bytes_and_the_bytes_that_follow(folder):
    stream = nccl_tf.load_stream(f"text:{folder}", length=5)
    assert (len(stream), stream.num_classes, stream.head) == (2, 256, "single")
    assert stream.example_shape == {"token_ids": (5,), "padding_mask": (5,)}
    text = b"abcdefghij" * 3 + b"\n" + b"klm\n"  # 35 bytes: 6 rows of 5 with one that follows
    law = stream[1]
    parts = law.train, law.test
    assert [len(part.labels) for part in parts] == [4, 2]
    ids = np.concatenate([part.inputs["token_ids"] for part in parts])
    following = np.concatenate([part.labels for part in parts])
    assert bytes(ids.astype("uint8").reshape(-1)) == text[:30]
    assert bytes(following.astype("uint8").reshape(-1)) == text[1:31]
    assert law.train.inputs["padding_mask"].all()
    assert {c.dtype.name for c in law.train.columns()} == {"int32"}
    assert (law.classes, law.num_train) == ((), 4)


def test_a_tokenizer_cuts_each_file_and_ends_it(folder):
    stream = nccl_tf.load_stream(f"text:{folder}", length=4, tokenizer=Letters(), max_tasks=1)
    assert (len(stream), stream.num_tasks, stream.num_classes) == (1, 2, 200)
    nccl_tf.load_stream(f"text:{folder}", length=4, examples_per_task=2)
    (task,) = stream
    np.testing.assert_array_equal(task.train.inputs["token_ids"][0], list(b"def "))
    law = nccl_tf.load_stream(f"text:{folder}", length=4, tokenizer=Letters())[1]
    ids = np.concatenate([part.inputs["token_ids"] for part in (law.train, law.test)])
    np.testing.assert_array_equal(ids.reshape(-1), list(b"abcdefghij" * 3 + b"\0k"))


def test_a_number_of_rows_takes_the_first_ones(folder):
    stream = nccl_tf.load_stream(f"text:{folder}", length=4, examples_per_task=2)
    assert [task.num_train for task in stream] == [2, 2]
    assert [len(task.test.labels) for task in stream] == [3, 2]
    whole = nccl_tf.load_stream(f"text:{folder}", length=4)
    beyond = nccl_tf.load_stream(f"text:{folder}", length=4, examples_per_task=1000)
    for task, first, most in zip(whole, stream, beyond, strict=True):
        rows = task.train.inputs["token_ids"]
        np.testing.assert_array_equal(first.train.inputs["token_ids"], rows[:2])
        np.testing.assert_array_equal(most.train.inputs["token_ids"], rows)  # no test row


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"length": 0}, "length"),
        ({"length": 40}, "is held out: expected at least 2"),
        ({"num_tasks": 2}, "leave num_tasks out"),
        ({"tasks": "tuning"}, "leave tasks out"),
        ({"tokenizer": lambda text: text}, "vocabulary_size"),
    ],
)
def test_what_makes_no_stream_is_named(folder, arguments, said):
    with pytest.raises((UserError, AttributeError), match=said):
        nccl_tf.load_stream(f"text:{folder}", **arguments)


def test_folders_without_corpora_and_files_that_are_no_text_are_refused(folder):
    with pytest.raises(UserError, match="a folder without folders"):
        nccl_tf.load_stream(f"text:{folder / 'code'}")
    with pytest.raises(UserError, match="cannot read the folder"):
        nccl_tf.load_stream(f"text:{folder / 'nothing'}")
    (folder / "law" / "a.txt").write_bytes(b"ab\xff\xfe")
    with pytest.raises(UserError, match=r"a\.txt as UTF-8 .* byte 2"):
        nccl_tf.load_stream(f"text:{folder}", length=2, tokenizer=Letters())
    with pytest.raises(UserError, match="which is no text"):
        nccl_tf.load_stream("split_digits", length=3)
