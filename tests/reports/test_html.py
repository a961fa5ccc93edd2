"""The report: complete, self-contained, safe against what records hold, and right in a browser."""

import csv
import io
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from nccl_tf.cli import main
from nccl_tf.experiment.run.record import write_record
from nccl_tf.reports.figures.style import method_style
from nccl_tf.reports.html import report_page, report_tables
from nccl_tf.reports.table import as_csv, as_latex, escaped
from tests.experiment import sample
from tests.reports.paper.test_parity import find_cell
from tests.reports.paper.test_parity import record as record_of_cell

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
VOID = {"meta", "img", "br", "hr", "link", "input"}


@pytest.fixture(scope="module")
def records():
    """Two seeds of NCCL, two rates of ER, a joint method, a trial of a sweep, and a cell of T9."""
    matrices = {
        "nccl_ring": [[0.9, 0.1, np.nan], [0.8, 0.9, 0.1], [0.7, 0.8, 0.9]],
        "er_ring": [[0.6, 0.2, np.nan], [0.5, 0.6, 0.2], [0.4, 0.5, 0.6]],
        "multi_task": [[np.nan] * 3, [np.nan] * 3, [0.95] * 3],
    }
    made = [sample.record(matrices["nccl_ring"], seed, method="nccl_ring") for seed in (1, 0)]
    made += [
        sample.record(matrices["er_ring"], 0, method="er_ring", learning_rate=rate)
        for rate in (0.1, 0.01)
    ]
    made.append(sample.record(matrices["multi_task"], 0, method="multi_task"))
    made.append(sample.record([[0.123]], 0, method="nccl_ring", tasks="tuning"))
    cell = find_cell("T9", "er_ring")
    return [*made, *(record_of_cell(cell, seed, 0.87) for seed in range(3))]


@pytest.fixture(scope="module")
def html(records):
    return report_page(records)


class Page(HTMLParser):
    """Reads a page: its text, addresses and anchors; fails where tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.words, self.addresses, self.anchors, self.tags, self.counts = [], [], [], [], {}
        self.feed(text)
        assert self.tags == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.addresses += [v for k, v in attrs.items() if k in ("src", "href")]
        self.anchors += [attrs["id"]] if "id" in attrs else []
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in VOID:
            self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.tags.pop() == tag

    def handle_data(self, data):
        self.words += data.split()

    @property
    def text(self):
        return " ".join(self.words)


def test_the_page_holds_everything_and_needs_nothing_else(html):
    page = Page(html)
    for address in page.addresses:
        assert address.startswith("data:image/svg+xml;base64,") or address[1:] in page.anchors
    assert len(set(page.anchors)) == len(page.anchors)
    assert "script" not in page.counts and "@import" not in html and "url(" not in html
    assert page.counts["img"] == 3 * 2  # Three pictures of each of two streams.
    assert "Continual learning: 8 runs" in page.text  # Without the trial of a sweep.
    for words in ("80.0 ± 0.0", "forgetting", "T9: permuted MNIST", "smoothness: 1.0", "keras 3",
                  "10 tasks: 0 held out for tuning", "NCCL + Ring, learning rate 0.1"):  # fmt: skip
        assert words in page.text, words
    assert "12.3" not in page.text
    assert page.counts["h3"] >= 5


def test_the_same_records_give_the_same_bytes(records, html):
    assert report_page(records) == html


def test_what_records_hold_is_text_and_no_markup(records):
    bad = '<script>alert("x")</script>'
    hostile = [{**r, "commit": bad[:12], "versions": {"python": bad}} for r in records[:2]]
    html = report_page(hostile)
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    Page(html)


def test_matrices_show_every_evaluated_cell(records):
    html = report_page([record for record in records if record["method"] == "nccl_ring"][:2])
    cells = [part.split("</td>")[0] for part in html.split('<td style="color')[1:]]
    assert [int(cell.split(">")[1]) for cell in cells] == [90, 10, 80, 90, 10, 70, 80, 90]


def test_csv_and_latex_have_the_cells_of_the_tables(records):
    tables = report_tables(records)
    assert [table.name for table in tables] == ["results", "T4", "T9", "T9_last_task"]
    latex = as_latex(tables)
    for table in tables:
        rows = list(csv.reader(io.StringIO(as_csv(table))))
        assert rows == [list(table.names), *map(list, table.rows)]
        for row in table.rows:
            assert " & ".join(map(escaped, row)) in latex
    assert latex.count("\\begin{longtable}") == latex.count("\\end{longtable}") == len(tables)


@pytest.fixture
def folder(records, tmp_path):
    for number, record in enumerate(records):
        write_record(record, tmp_path / "runs" / str(number))
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "files"),
    [
        ([], ["report.html"]),
        (["--format=latex"], ["tables.tex"]),
        (["--format=csv"], ["T4.csv", "T9.csv", "T9_last_task.csv", "results.csv"]),
        (["--format=csv", "--dataset=permuted_digits"], ["results.csv"]),
    ],
)
def test_the_command_writes_the_files(folder, argv, files, capsys):
    with pytest.raises(SystemExit) as end:
        main(["run.py", "report", f"--output_dir={folder / 'runs'}",
              f"--report_dir={folder / 'out'}", *argv])  # fmt: skip
    assert not end.value.code
    assert sorted(path.name for path in (folder / "out").iterdir()) == files
    assert capsys.readouterr().out.count("see ") == len(files)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--format=pdf"], "unknown --format 'pdf'"),
        (["--method=gem"], "no record below"),
        (["--report_dir=/dev/null/x"], "choose another --report_dir"),
    ],
)
def test_bad_input(folder, argv, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(["run.py", "report", f"--output_dir={folder / 'runs'}", *argv])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_without_a_network_shows_and_prints_it(html, tmp_path):
    (tmp_path / "report.html").write_text(html, encoding="utf-8")

    def browse(*argv):
        subprocess.run(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
             f"--user-data-dir={tmp_path / 'profile'}", "--host-resolver-rules=MAP * ~NOTFOUND",
             "--hide-scrollbars", *argv, (tmp_path / "report.html").as_uri()],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip

    browse("--window-size=1200,5000", f"--screenshot={tmp_path / 'page.png'}")
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("RGB")).reshape(-1, 3)
    assert 0.5 < (pixels == 255).all(1).mean() < 0.99
    for method in ("nccl_ring", "er_ring"):  # The lines of the pictures are there.
        look = method_style(method)["color"].lstrip("#")
        color = [int(look[i : i + 2], 16) for i in (0, 2, 4)]
        assert (np.abs(pixels.astype(int) - color).max(1) < 4).sum() > 50, method
    browse(f"--print-to-pdf={tmp_path / 'page.pdf'}")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
