"""Experiments that a real Katib 0.19 ran end by podium-engine as they ended there."""

import time
from collections.abc import Iterator

import pytest
from engine_place import EngineThread, namespace
from katibcases import CASES, GOLDEN, experiment_of
from test_experiment_golden import RESUMED, SEARCH_DEPENDS, check_end

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.manifests.typed import typed

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("engine")
    (directory / "programs").symlink_to(GOLDEN / "programs")
    with pytest.MonkeyPatch.context() as patch, namespace(directory, patch):
        engine = EngineThread()
        yield str(directory / "programs")
        engine.stop()


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, case in CASES.items()
        if name not in RESUMED | SEARCH_DEPENDS and "refused" not in case.get("podium", {})
    ],
)
def test_the_engine_ends_an_experiment_as_katib_did(name: str, place: str) -> None:
    case = CASES[name]
    with KubernetesCluster("kubernetes://team") as cluster:
        cluster.create(typed(experiment_of(case, place)))
        for _ in cluster.watch("Experiment", name, timeout=60):
            pass
        end = time.monotonic() + 30
        while (status := dict(cluster.experiment(name).status)) and (
            status.get("trialsRunning")
            or status.get("trialsPending")
            or status.get("trials") != len(cluster.trials(name))
        ):
            assert time.monotonic() < end, "the counts never followed"
            time.sleep(0.1)
        trials = [dict(trial.manifest) for trial in cluster.trials(name)]
    check_end(name, status, trials)
