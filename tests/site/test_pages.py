"""Pages of the repository on the site, the README first."""

import re
from pathlib import Path

import pytest

from docs.site.build import PAGES, with_links_of_the_site
from tests.site.conftest import ROOT

TEXT = (
    "[a](docs/tutorial.md#own) [b](examples) ![c](docs/images/x.png) [d](SECURITY.md) "
    "[e](setup.cfg) [f](https://example.org/docs/a.md) [g](#here)"
)


def test_links_lead_to_pages_of_the_site():
    assert with_links_of_the_site(TEXT, Path()) == (
        "[a](tutorial.md#own) [b](examples.md) ![c](images/x.png) [d](security.md) "
        "e [f](https://example.org/docs/a.md) [g](#here)"
    )
    above = with_links_of_the_site("[a](../docs/scale.md) [b](../README.md)", Path("benchmarks"))
    assert above == "[a](scale.md) [b](index.md)"


def test_every_study_is_a_page():
    readmes = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("studies/*/README.md")}
    assert len(readmes) > 3 and readmes <= PAGES.keys()
    linked = with_links_of_the_site("[a](../studies/passes/README.md)", Path("docs"))
    assert linked == "[a](study_passes.md)"
    picture = with_links_of_the_site("![a](../../docs/images/x.png)", Path("studies/pretrained"))
    assert picture == "![a](images/x.png)"


@pytest.mark.pages
@pytest.mark.xdist_group("site")
def test_the_build_leaves_out_messages_of_tensorflow(build):
    assert [line for line in build.stderr.splitlines() if "absl" in line or ".cc:" in line] == []


@pytest.mark.pages
@pytest.mark.xdist_group("site")
def test_the_first_page_is_the_readme(site):
    page = (site / "index.html").read_text()
    readme = (ROOT / "README.md").read_text()
    headings = re.findall(r"^## (.*)$", readme, re.MULTILINE)
    assert len(headings) > 3 and all(f">{text}<" in page for text in headings)
    assert len(re.findall(r"^!?\[|[^!]\[[^\]]*\]\(", readme, re.MULTILINE)) > 15
    assert all((site / name).with_suffix(".html").exists() for name in PAGES.values())
    missing = [label for label, target in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", readme)
               if "images" not in target and f">{label}</a>" not in page]  # fmt: skip
    assert missing == []
