"""The pages of scripts/walks.yaml, as their readers type them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = yaml.safe_load((ROOT / "scripts/walks.yaml").read_text())

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_its_reader_sees(page: str) -> None:
    walk = [sys.executable, ROOT / "scripts/walk-docs", ROOT / "docs" / page]
    done = subprocess.run(walk, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
