"""How often an Experiment is parsed on its way from the shell to the trial loop and back."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_experiment_engine import experiment

from podium.cli import app
from podium.files.yaml_loader import dump
from podium.manifests.experiment import Experiment


def test_no_state_of_an_experiment_is_parsed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, parsed = Experiment.parse.__func__, list[str]()  # type: ignore[attr-defined]

    def counted(cls: type[Experiment], manifest: Any) -> Experiment:
        parsed.append(json.dumps(manifest, sort_keys=True, default=str))
        return parse(cls, manifest)

    monkeypatch.setattr(Experiment, "parse", classmethod(counted))
    file = tmp_path / "sweep.yaml"
    file.write_text(dump(experiment("print('loss=1')", maxTrialCount=5)))
    words = [
        "experiment",
        "run",
        str(file),
        "--max-trials",
        "2",
        "--set",
        "a=1",
        "--output",
        str(tmp_path / "models"),
    ]
    done = CliRunner().invoke(app, [*words, "--dir", str(tmp_path / "cluster")])
    assert done.exit_code == 0, done.output
    assert len(set(parsed)) == len(parsed)
    # As read and as changed; then those states that the one who waits for its end has met.
    assert ["uid" in state for state in parsed[:3]] in ([False, False], [False, False, True])
