# tests/sweeps/test_patience.py
from pathlib import Path

import podium


def test_a_sweep_ends_when_nothing_gets_better(tmp_path: Path) -> None:
    same = ["sh", "-c", "echo loss=1", "sh"]
    sweep = podium.tune(
        same,
        {"x": (0.0, 1.0)},
        objective="min:loss",
        trials=20,
        parallel=1,
        patience=3,
        cluster=tmp_path / "cluster",
        storage=tmp_path / "store",
    )
    assert len(sweep.results) == 4
    assert "3 trials were no better than the best" in sweep.experiment.state.message
