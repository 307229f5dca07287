"""The packages podium builds on: they agree with each other, and all SDKs work in one process."""

from collections.abc import Iterator
from importlib.metadata import distribution, requires, version

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

pytestmark = pytest.mark.whole


def required(name: str, extras: tuple[str, ...] = ()) -> Iterator[tuple[str, Requirement]]:
    """Yield (who asks, what for) of everything that a plain installation of a distribution takes along."""
    seen: set[tuple[str, str]] = set()
    waiting = [(name, extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for requirement in map(Requirement, distribution(name).requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                yield name, requirement
                waiting += [(requirement.name, extra) for extra in ("", *requirement.extras)]


@pytest.mark.parametrize("extra", ["", "tensorboard"])
def test_all_packages_of_a_plain_installation_agree_with_each_other(extra: str) -> None:
    wrong = [
        f"{name} asks for {requirement}, here is {version(requirement.name)}"
        for name, requirement in required("podium-ml", (extra,))
        if not requirement.specifier.contains(version(requirement.name), prereleases=True)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_all_sdks_import_together_and_a_katib_message_survives() -> None:
    import kfp
    import kfp.kubernetes
    import minio
    import torch
    import torchvision
    from kubeflow import katib, training
    from kubeflow.katib import katib_api_pb2 as katib_proto

    assert all(
        (
            kfp.compiler,
            kfp.kubernetes.use_secret_as_env,
            minio.Minio,
            torch.Tensor,
            torchvision.datasets,
        )
    )
    assert katib.KatibClient
    assert training.TrainingClient

    log = katib_proto.ObservationLog(
        metric_logs=[
            katib_proto.MetricLog(
                time_stamp="2026-01-02T03:04:05Z",
                metric=katib_proto.Metric(name="accuracy", value="0.9834"),
            )
        ]
    )
    again = katib_proto.ReportObservationLogRequest.FromString(
        katib_proto.ReportObservationLogRequest(
            trial_name="t", observation_log=log
        ).SerializeToString()
    )
    assert again.trial_name == "t"
    assert again.observation_log.metric_logs[0].metric.value == "0.9834"


def test_the_override_in_pyproject_is_still_needed() -> None:
    (wanted,) = [
        requirement
        for requirement in map(Requirement, requires("kubeflow-katib") or [])
        if requirement.name == "protobuf"
    ]
    assert Version(version("protobuf")) not in wanted.specifier, (
        "drop the override: kubeflow-katib takes this protobuf"
    )
