"""What podium migrate writes is admitted by Trainer's CRD and webhooks on a live cluster; nothing is created."""

import subprocess
from pathlib import Path

import pytest
from livekubeflow import NAMESPACE, podium

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

ROOT = Path(__file__).parent.parent.parent


FULL = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: full, labels: {kueue.x-k8s.io/queue-name: team}}
spec:
  nprocPerNode: "2"
  runPolicy: {activeDeadlineSeconds: 600, suspend: true, ttlSecondsAfterFinished: 60}
  pytorchReplicaSpecs:
    Master: &replica
      replicas: 1
      restartPolicy: Never
      template:
        metadata: {labels: {team: a}, annotations: {note: b}}
        spec:
          hostIPC: true
          nodeSelector: {disk: fast}
          tolerations: [{key: gpu, operator: Exists}]
          terminationGracePeriodSeconds: 60
          securityContext: {runAsNonRoot: true}
          imagePullSecrets: [{name: registry}]
          volumes: [{name: shm, emptyDir: {medium: Memory}}]
          initContainers: [{name: fetch, image: "busybox:1"}]
          containers:
            - name: pytorch
              image: train:1
              command: [python, train.py]
              envFrom: [{secretRef: {name: keys}}]
              env: [{name: PET_NNODES, value: "2"}, {name: A, value: "1"}]
              resources: {requests: {cpu: 50m}, limits: {memory: 64Mi}}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
              securityContext: {allowPrivilegeEscalation: false}
            - {name: logs, image: "fluentd:1"}
    Worker: *replica
"""


def kubectl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["kubectl", "--namespace", NAMESPACE, *words], capture_output=True, text=True, timeout=60
    )


@pytest.fixture(scope="module", autouse=True)
def trainer() -> None:
    """Skip without Kubeflow Trainer and its runtime for PyTorch."""
    if kubectl(
        "get", "clustertrainingruntimes.trainer.kubeflow.org", "torch-distributed"
    ).returncode:
        pytest.skip(
            "this cluster has no Kubeflow Trainer 2 (ClusterTrainingRuntime torch-distributed)"
        )


@pytest.mark.parametrize(
    "name", ["experiments/pytorchjob.yaml", "examples/spirals-pytorchjob.yaml", "full.yaml"]
)
def test_a_migrated_job_is_admitted_by_trainer(name: str, tmp_path: Path) -> None:
    source, output = ROOT / name, tmp_path / "trainjob.yaml"
    if not source.exists():
        source = tmp_path / name
        source.write_text(FULL)
    done = podium("migrate", str(source), "-o", str(output))
    assert done.returncode == 0, done.stderr
    done = kubectl("apply", "--dry-run=server", "-f", str(output))
    assert "trainjob.trainer.kubeflow.org/" in done.stdout, done.stderr
