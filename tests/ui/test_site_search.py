"""The site of `make docs`, opened as files."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def test_a_page_that_is_a_file_finds_words_of_others(tmp_path: Path, browser: Any) -> None:
    pytest.importorskip("zensical", reason="needs zensical, which make docs installs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    stage = [sys.executable, str(ROOT / "scripts/stage-docs"), "build/docs-source"]
    for command in (stage, [sys.executable, "-m", "zensical", "build"]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    browser.goto((tmp_path / "build/docs/install.html").as_uri())
    browser.get_by_role("button", name="Search").first.click()
    browser.get_by_placeholder("Search").last.fill("rendezvous")
    browser.get_by_text(re.compile(r"^[1-9] results?$")).wait_for()
