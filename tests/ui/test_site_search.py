"""The site of `make docs`, opened as files."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from axe import violations

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first page of the built site."""
    pytest.importorskip("zensical", reason="needs zensical, which make docs installs")
    tmp_path = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    stage = [sys.executable, str(ROOT / "scripts/stage-docs"), "build/docs-source"]
    for command in (stage, [sys.executable, "-m", "zensical", "build"]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    return tmp_path / "build/docs/index.html"


def test_its_pages_violate_no_rule_of_axe(site: Path, browser: Any) -> None:
    said = []
    for name in ("index", "ui", "commands"):
        browser.goto(site.with_stem(name).as_uri())
        said += violations(browser, name, leave_out=".md-code__nav")  # the theme's, one a block
    assert not said, "\n".join(said)


def test_a_page_that_is_a_file_finds_words_of_others(site: Path, browser: Any) -> None:
    browser.goto(site.with_stem("install").as_uri())
    browser.get_by_role("button", name="Search").first.click()
    browser.get_by_placeholder("Search").last.fill("rendezvous")
    browser.get_by_text(re.compile(r"^[1-9] results?$")).wait_for()
