"""The pages of parity: one for each stream, the counts of verdicts, and the sentences on NCCL."""

import pytest

from docs.make.parity_pages import put_nccl, put_parity
from nccl_tf.commands.paper.parity import select_cells
from nccl_tf.errors import UserError
from tests.commands.paper.test_parity import find_cell, record

CELLS = select_cells(None)
MARKS = "<!-- parity:begin -->\n<!-- parity:end -->\n"


@pytest.fixture
def runs():
    """Records of two cells of T9: one agrees, one differs."""
    return [
        record(find_cell("T9", method), seed, accuracy)
        for method, accuracy in (("nccl_ring", 0.838), ("er_ring", 0.9))
        for seed in range(3)
    ]


def test_a_folder_has_a_page_for_each_stream(runs, tmp_path):
    pages = {tmp_path / f"{name}.md" for name in ("index", "permuted_mnist", "rotated_mnist")}
    for page in pages:
        page.write_text(MARKS)
    assert put_parity(tmp_path, CELLS, runs, check=True) == dict.fromkeys(pages, False)
    assert all(page.read_text() == MARKS for page in pages)
    assert put_parity(tmp_path, CELLS, runs, check=False) == dict.fromkeys(pages, False)
    assert put_parity(tmp_path, CELLS, runs, check=True) == dict.fromkeys(pages, True)
    index, permuted, rotated = (page.read_text() for page in sorted(pages))
    # Of T9's 38 cells 19 are doubtful, ER-Ring's among them; NCCL + Ring has runs.
    title = "T9: permuted MNIST, 10,000 examples a task"
    assert (
        f"| [permuted_mnist](permuted_mnist.md), {title} | 1 | 1 | 0 | 0 | 17 | 0 | 19 |" in index
    )
    # T1, T5 and T9 print numbers of the same runs.
    totals = {
        name: [int(n) for n in row.split("|")[2:-1]]
        for row in index.splitlines()
        for name in ("all cells", "all numbers, each once")
        if row.startswith(f"| {name} ")
    }
    assert sum(totals["all cells"]) == 337 + 16
    assert all(once <= n for n, once in zip(*totals.values(), strict=True))
    assert sum(totals["all numbers, each once"]) < 337
    assert "| split_cifar10, T12: split CIFAR-10, memory of 500 | 0 | 0 | 0 | 0 | 6 | 4 |" in index
    assert "### T9: " in permuted and "split_mnist" not in permuted
    assert "| memory | method | metric |" in permuted and "data set" not in permuted
    assert "No run of ours" in rotated
    permuted_page = tmp_path / "permuted_mnist.md"
    permuted_page.write_text(permuted.replace("agrees", "differs"))
    assert not put_parity(tmp_path, CELLS, runs, check=True)[permuted_page]


def test_sentences_on_nccl_are_put_between_their_marks(runs, tmp_path):
    marks = "".join(
        f"<!-- nccl_{n}:begin -->\n<!-- nccl_{n}:end -->\n" for n in ("table", "verdicts")
    )
    page = tmp_path / "README.md"
    page.write_text(f"# Title\n{marks}my own text\n")
    assert put_nccl(page, CELLS, runs, check=True) is False
    assert put_nccl(page, CELLS, runs, check=False) is False
    assert put_nccl(page, CELLS, runs, check=True) is True
    text = page.read_text()
    assert "**permuted MNIST**: accuracy agrees in 1 of 1" in text and "### T9" not in text
    assert text.endswith("my own text\n")
    page.write_text(text.replace("<!-- nccl_table:end -->", ""))
    with pytest.raises(UserError, match="nccl_table"):
        put_nccl(page, CELLS, runs, check=False)
    page.write_text("no marks\n")
    assert put_nccl(page, CELLS, runs, check=False) is None


def test_the_index_of_a_folder_has_them_too(runs, tmp_path):
    for name in ("index", "permuted_mnist"):
        (tmp_path / f"{name}.md").write_text(MARKS)
    index = tmp_path / "index.md"
    index.write_text(f"<!-- nccl_verdicts:begin -->\n<!-- nccl_verdicts:end -->\n{MARKS}")
    put_parity(tmp_path, CELLS, runs, check=False)
    assert put_parity(tmp_path, CELLS, runs, check=True)[index]
    index.write_text(index.read_text().replace("agrees in 1 of 1", "agrees in 2 of 2"))
    assert not put_parity(tmp_path, CELLS, runs, check=True)[index]


def test_a_stream_with_runs_has_to_have_a_page(runs, tmp_path):
    (tmp_path / "index.md").write_text(MARKS)
    with pytest.raises(UserError, match="runs of permuted_mnist but no page"):
        put_parity(tmp_path, CELLS, runs, check=False)
    assert (tmp_path / "index.md").read_text() == MARKS
