"""`podium serve` asked by kserve's own client, in an environment of its own: its pins of pandas and psutil are not podium's."""

import json
import subprocess
from pathlib import Path

import pytest
from handmade import TABLE, rows_model
from servers import serving

HERE = Path(__file__).parent
KSERVE = HERE.parents[1] / ".venv/rivals/kserve/bin/python"


@pytest.mark.skipif(not KSERVE.exists(), reason="make test-kserve installs it")
def test_kserves_own_client_gets_what_the_model_says(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/model.onnx").write_bytes(rows_model())
    (tmp_path / "rows/preprocessing.json").write_text(json.dumps(TABLE))
    with serving(tmp_path / "rows") as server:
        words = [KSERVE, HERE / "kserve_client.py", server.url, "rows"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    logits = [[-1.5, 101.5], [2.0, -2.0]]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "live": True, "ready": True, "model ready": True,
        "json": ["json", "rows", "logits", logits], "binary": ["binary", "rows", "logits", logits],
    }  # fmt: skip
