"""Every SDK podium builds on, in one process: kubeflow-katib asks for protobuf < 5 and kfp for ≥ 6."""

from importlib.metadata import requires, version

import pytest
from packaging.requirements import Requirement
from packaging.version import Version


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_all_sdks_import_in_one_process_and_a_katib_message_survives_a_round_trip() -> None:
    import kfp
    import kfp.kubernetes
    import minio
    import torch
    import torchvision
    from kubeflow import katib, training
    from kubeflow.katib import katib_api_pb2 as katib_proto

    assert all((kfp.compiler, kfp.kubernetes.use_secret_as_env, minio.Minio, torch.Tensor, torchvision.datasets))
    assert katib.KatibClient
    assert training.TrainingClient

    log = katib_proto.ObservationLog(
        metric_logs=[
            katib_proto.MetricLog(
                time_stamp="2026-01-02T03:04:05Z", metric=katib_proto.Metric(name="accuracy", value="0.9834")
            )
        ]
    )
    again = katib_proto.ReportObservationLogRequest.FromString(
        katib_proto.ReportObservationLogRequest(trial_name="t", observation_log=log).SerializeToString()
    )
    assert again.trial_name == "t"
    assert again.observation_log.metric_logs[0].metric.value == "0.9834"


def test_the_override_in_pyproject_is_still_needed_and_still_holds() -> None:
    wanted = {
        Requirement(line).name: Requirement(line).specifier
        for package in ("kubeflow-katib",)
        for line in requires(package) or []
    }
    installed = Version(version("protobuf"))
    assert installed not in wanted["protobuf"], "kubeflow-katib accepts this protobuf: drop the override"
    for line in requires("kfp") or []:
        requirement = Requirement(line)
        if requirement.name == "protobuf":
            assert installed in requirement.specifier
