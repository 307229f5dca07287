"""A PyTorchJob and the TrainJob that podium migrate makes of it do the same on this machine."""

from pathlib import Path

import pytest
from livekubeflow import podium

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: sums}
spec:
  runPolicy: {activeDeadlineSeconds: 200, backoffLimit: 0}
  pytorchReplicaSpecs:
    Master: &replica
      replicas: 1
      template:
        spec:
          containers:
            - name: pytorch
              image: any
              command: [python, -u, -c]
              args:
                - |
                  import torch, torch.distributed as dist
                  dist.init_process_group("gloo")
                  value = torch.ones(1) + dist.get_rank()
                  dist.all_reduce(value)
                  print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", int(value))
    Worker: *replica
"""


def test_two_nodes_still_train_together_when_migrated(tmp_path: Path) -> None:
    (source := tmp_path / "pytorchjob.yaml").write_text(JOB)
    target = tmp_path / "trainjob.yaml"
    migrated = podium("migrate", str(source), "-o", str(target))
    assert migrated.returncode == 0, migrated.stderr
    said = set()
    for file, replicas in ((source, ("master-0", "worker-0")), (target, ("node-0", "node-1"))):
        where = tmp_path / file.stem
        done = podium("job", "run", str(file), "--dir", str(where))
        assert done.returncode == 0, done.stderr
        logs = [
            podium("job", "logs", "sums", "--replica", replica, "--dir", str(where))
            for replica in replicas
        ]
        said.add(tuple(log.stdout.strip().splitlines()[-1] for log in logs))
    assert said == {("rank 0 of 2 sum 3", "rank 1 of 2 sum 3")}
