"""Whether classes weigh alike is chosen by trials on validation, in a metric that minds them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_threshold import table

pytestmark = pytest.mark.whole

PODIUM = str(Path(sys.executable).with_name("podium"))
SEARCH = """
apiVersion: kubeflow.org/v1beta1
kind: Experiment
metadata: {name: weights}
spec:
  objective: {type: maximize, objectiveMetricName: balanced_accuracy}
  algorithm: {algorithmName: grid}
  maxTrialCount: 2
  parallelTrialCount: 2
  parameters:
    - {name: balance, parameterType: categorical, feasibleSpace: {list: ["false", "true"]}}
  trialTemplate:
    primaryContainerName: train
    trialParameters: [{name: balance, reference: balance}]
    trialSpec:
      apiVersion: batch/v1
      kind: Job
      spec:
        template:
          spec:
            restartPolicy: Never
            containers:
              - name: train
                image: podium-trainer:0.1.0
                command: [python, -m, podium.trainer]
                args: ["--balance=${trialParameters.balance}"]
"""


def test_a_run_weighs_classes_where_that_is_better_on_validation(
    tmp_path: Path, clean_environment: None
) -> None:
    (tmp_path / "search.yaml").write_text(SEARCH)
    words = ["dataset=" + table(tmp_path), "target=label", "experiment=search.yaml"]
    settings = ["network=linear", "trial_epochs=15", "epochs=15", "workers=0", "max_trials=2"]
    done = subprocess.run(
        [PODIUM, "run", "tune_and_promote", "--json", *words, *settings],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "PODIUM_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    values = {trial["parameters"]["balance"]: trial["value"] for trial in run["sweep"]["trials"]}
    assert values["true"] > values["false"] + 0.1
    (best,) = run["candidates"]  # a training alike is not done again
    assert best["hyperparameters"]["balance"] == "true"
    assert run["decision"]["metric"]["name"] == "balanced_accuracy"
    assert run["decision"]["value"] > values["false"] + 0.1
