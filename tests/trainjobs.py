"""TrainJobs for tests."""

from typing import Any


def patch(manager: str, pod: Any, **metadata: Any) -> dict[str, Any]:
    """Write a runtimePatch that changes the nodes' pods."""
    template = {"spec": pod, **({"metadata": metadata} if metadata else {})}
    jobs = [{"name": "node", "template": {"spec": {"template": template}}}]
    return {
        "manager": manager,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }


def trainjob(
    *patches: dict[str, Any], name: str = "digits", spec: Any = None, **trainer: Any
) -> dict[str, Any]:
    """Write a TrainJob of three nodes unless trainer.numNodes says otherwise."""
    given = {
        "numNodes": 3,
        "image": "trainer:1",
        "command": ["python", "train.py"],
        "args": ["--lr=0.1"],
        **trainer,
    }
    whole = {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": given,
        "activeDeadlineSeconds": 60,
        **(spec or {}),
    }
    whole |= {"runtimePatches": list(patches)} if patches else {}
    metadata = {"name": name, "labels": {"team": "vision"}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": whole,
    }


def program(script: str, nodes: int = 1, name: str = "job", **spec: Any) -> dict[str, Any]:
    """Write a TrainJob whose nodes run a line of Python."""
    return trainjob(
        name=name, spec=spec, numNodes=nodes, command=["python3", "-u", "-c", script], args=[]
    )


POST = """
import json, os, ssl, sys
from datetime import datetime, timezone
from urllib import request
context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
token = open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]).read().strip()
def post(progress, **metrics):
    status = {"progressPercentage": progress, "lastUpdatedTime": datetime.now(timezone.utc).isoformat(),
              "metrics": [{"name": name, "value": str(value)} for name, value in metrics.items()]}
    sent = request.Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], json.dumps({"trainerStatus": status}).encode(),
                           {"Authorization": "Bearer " + token})
    return request.urlopen(sent, context=context).status
"""
"""Beginning of a script that posts a progress and metrics as Trainer's documentation shows."""
