"""`make docs`: the pages as a site."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)"
)


def stage(folder: Path) -> Path:
    """Write what the site is built from, as `make docs` does, and return where it is."""
    staged = folder / "build/docs-source"
    subprocess.run([sys.executable, ROOT / "scripts/stage-docs", staged], check=True)
    return staged


def test_staged_pages_link_to_nothing_outside_the_site(tmp_path: Path) -> None:
    staged = stage(tmp_path)
    twins = {f"{page.name}.txt" for page in (ROOT / "docs").glob("*.md")}
    pages = {page.name for page in (ROOT / "docs").iterdir()}
    assert {page.name for page in staged.iterdir()} == {*pages, *twins, "llms.txt"}
    assert [page.name for page in staged.glob("*.md") if "](../" in page.read_text()] == []
    assert "in a notebook (`examples/first-model.ipynb`)" in (staged / "index.md").read_text()


def test_a_list_names_each_page_and_what_it_says(tmp_path: Path) -> None:
    staged = stage(tmp_path)
    listed = re.findall(
        r"- \[.+\]\((\S+)\): \w.+", (staged / "llms.txt").read_text().replace("`", "")
    )
    assert sorted(listed) == sorted(page.name for page in staged.glob("*.md.txt"))


@pytest.mark.whole
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="needs zensical, which make docs installs")
    staged = stage(tmp_path)
    (staged / "api").mkdir()
    (staged / "api/podium.html").write_text("pdoc's")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {page.stem: page.read_text() for page in (tmp_path / "build/docs").glob("*.html")}
    assert pages.keys() == {page.stem for page in (ROOT / "docs").glob("*.md")} | {"404"}
    assert {name: found for name, page in pages.items() if (found := LOADED.findall(page))} == {}
    sheets = (tmp_path / "build/docs").rglob("*.css")
    assert [
        sheet.name
        for sheet in sheets
        if re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text())
    ] == []
