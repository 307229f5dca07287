"""The tutorials, block by block, as a reader would type them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def blocks(page: str) -> list[tuple[str, str]]:
    """Return language and text of each fenced block of a page."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def run(words: list[str], folder: Path, given: str = "") -> str:
    """Run a program as somebody who has activated the environment; return what it printed."""
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    env.pop("PODIUM_HOME")
    done = subprocess.run(
        words, cwd=folder, env=env, input=given, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_shell_tutorial_ends_with_a_champion(tmp_path: Path) -> None:
    printed: dict[str, str] = {}
    for language, text in blocks("tutorial.md"):
        if language == "python":
            (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
            continue
        for line in text.splitlines():
            assert line.startswith("$ "), line
            printed[line[2:]] = run(["bash", "-c", line[2:]], tmp_path)
    assert (tmp_path / "digits.png").stat().st_size > 1000
    tuned, shown = (next(text for line, text in printed.items() if line.startswith(f"podium {start}"))
                    for start in ("tune", "models show"))  # fmt: skip
    assert re.search(
        r"train with them: .*train\.py .*--lr=0\.\d+ --batch-size=\d+$", tuned, re.MULTILINE
    )
    assert re.search(
        r"seven\.png +7 ", next(text for line, text in printed.items() if "predict" in line)
    )
    assert shown.count("accuracy") >= 1
    assert len(list((tmp_path / "podium-work/store/models/digits/versions").iterdir())) == 2


def test_the_python_tutorial_ends_with_right_answers(tmp_path: Path) -> None:
    script = "\n".join(
        text for language, text in blocks("first-model-python.md") if language == "python"
    )
    script += "\nassert (answers.values.astype(int) == data.test.target[:8]).mean() > 0.7\nassert run.promoted"
    (tmp_path / "tutorial.py").write_text(script)
    run([sys.executable, "tutorial.py"], tmp_path)
    assert (tmp_path / "digits.png").stat().st_size > 1000
