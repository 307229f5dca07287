"""A server of one model on a cluster: `podium serve` as a Deployment, or as an InferenceService of
KServe."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.errors import InvalidInput, require
from podium.manifests.conditions import Manifest
from podium.manifests.fields import integer, mapping, quantity, texts
from podium.manifests.labels import (
    INFERENCE_SERVICE,
    INSTANCE,
    KSERVE_AUTOSCALER,
    KSERVE_MODE,
    MANAGED_BY,
    NAME,
    POD_DIGEST,
)
from podium.manifests.names import is_dns_1035, is_dns_1123
from podium.manifests.placement import Pods
from podium.manifests.pod_security import secure
from podium.manifests.resource import Resource

_IMAGE = "podium-serve:0.1.0"

DRAIN = 10
"""Seconds that a pod still answers after SIGTERM: until then proxies and clients have found the
others."""

ANSWER = 60
"""Seconds for an answer, `podium serve --timeout`."""

_START = 300
"""Seconds from a pod's start to its first answer: the image is there, the model is read from the
bucket."""

_CPU_TARGET = 80
"""Per cent of the pods' CPU request from which an autoscaler adds one."""

_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
_PORT = 8080
_MOUNTS = "/etc/podium"
"""Mount path of Secrets and the public key: files, so that new keys of the bucket need no new
pods."""

PREDICTOR = "-predictor"
"""Behind the name of an InferenceService: KServe's Deployment and Service of it (kserve v0.20.0:
pkg/constants)."""


@dataclass(frozen=True, kw_only=True)
class ModelServer:
    """Pods that answer with one model of a registry in a bucket, and follow its champion or another
    alias."""

    name: str
    """Name of the objects; a DNS label."""

    model: str
    """``NAME``, or ``NAME@VERSION`` with a version or alias."""

    storage: str
    namespace: str = ""
    """Namespace; empty for the one of the user who applies the manifests."""

    image: str = _IMAGE
    replicas: int | str = 2
    """Number of pods, or ``1..5``: as many as their CPU asks for."""

    cpu: str = "500m"
    memory: str = "1Gi"
    env: Sequence[Mapping[str, Any]] = ()
    """Environment variables that locate the bucket."""

    secret: str = ""
    """Secret with the bucket's keys as accesskey and secretkey; empty for a workload identity."""

    token_secret: str = ""
    """Secret with the clients' bearer token as token; empty for no authentication."""

    public_key: str = ""
    """PEM of the key that versions must be signed with; empty asks for no signature."""

    service_account: str = ""

    watch: bool = False
    """Whether it records statistics of the requests, for ``podium models drift``."""

    canary: str = ""
    """``VERSION=5%``: another version that answers a share of the requests; empty for none."""

    shadow: str = ""
    """Version that is asked too; empty for none."""

    record: str = ""
    """URI in a bucket that both answers are recorded in; empty for nowhere."""

    def __post_init__(self) -> None:
        longest = 63 - len(PREDICTOR)
        if not is_dns_1035(self.name) or len(self.name) > longest:
            hint = (
                f"--name takes lower case letters, digits and -, a letter first, at most {longest}"
            )
            raise InvalidInput(f"no server can be called {self.name!r}", hint)
        names = {
            "secret": self.secret,
            "token secret": self.token_secret,
            "service account": self.service_account,
            "namespace": self.namespace.replace(".", "_"),
        }
        for kind, name in names.items():
            if name and not is_dns_1123(name):
                raise InvalidInput(
                    f"no {kind} can be called {name!r}", "lower case letters, digits and -"
                )
        if not self.storage.startswith(("s3://", "minio://")):
            hint = "keep the models in a bucket: --storage s3://BUCKET/PREFIX"
            raise InvalidInput(
                f"pods cannot read the models in {self.storage}, a directory of this machine", hint
            )
        if self.record and not self.record.startswith(("s3://", "minio://")):
            raise InvalidInput(
                f"answers that are recorded in {self.record} are gone with the pod",
                "--record s3://BUCKET/PREFIX",
            )
        pod_range(self.replicas)
        Pods(cpu=self.cpu, memory=self.memory)  # refuses what is not an amount

    @property
    def _labels(self) -> dict[str, str]:
        return {NAME: "podium-serve", INSTANCE: self.name, MANAGED_BY: "podium"}

    def kubernetes(self) -> list[Manifest]:
        """Return a Deployment, its Service and its PodDisruptionBudget, and a ConfigMap if there is
        a public key."""
        selector = {INSTANCE: self.name, NAME: "podium-serve"}
        pod = self._pod("serve")
        metadata = {"labels": self._labels, "annotations": self._annotations(pod)}
        ports = [{"name": "http", "port": 80, "targetPort": "http"}]
        least, most = pod_range(self.replicas)
        deployment = {
            **({"replicas": least} if least == most else {}),  # else the autoscaler's
            "strategy": _ROLLING,
            "selector": {"matchLabels": selector},
            "progressDeadlineSeconds": _START + DRAIN + ANSWER,
            "template": {"metadata": metadata, "spec": pod},
        }
        return [
            *self._config(),
            self._object("v1", "Service", spec={"selector": selector, "ports": ports}),
            self._object("apps/v1", "Deployment", spec=deployment),
            *([self._autoscaler()] if least < most else []),
            self._budget(selector),
        ]

    def _autoscaler(self) -> Manifest:
        least, most = pod_range(self.replicas)
        target = {"type": "Utilization", "averageUtilization": _CPU_TARGET}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        }
        return self._object("autoscaling/v2", "HorizontalPodAutoscaler", spec=spec)

    def kserve(self) -> list[Manifest]:
        """Return an InferenceService with the same container, and a budget for the pods KServe
        makes of it.

        It has no ServingRuntime, and no storageUri for one: that is copied when a pod starts, so a
        promotion would need new pods. A runtime without storageUri counts as a multi-model server,
        which gets KServe's agent beside it (kserve v0.20.0:
        pkg/controller/v1beta1/inferenceservice/utils, IsMMSPredictor; observed). A canary is podium
        serve's: canaryTrafficPercent is read for Knative only, and spec.canary is refused without a
        storageUri (kserve v0.20.0; both observed).
        """
        least, most = pod_range(self.replicas)
        scaled = {"scaleMetric": "cpu", "scaleTarget": _CPU_TARGET} if least < most else {}
        pod = self._pod("kserve-container")
        # KServe limits a container that names no limit to one CPU, and then refuses requests above
        # it (kserve v0.20.0: inferenceservice-config; observed).
        if (quantity(self.cpu) or 0) > 1:
            pod["containers"][0]["resources"]["limits"]["cpu"] = self.cpu
        # A Deployment, not Knative, by the name that every KServe knows. KServe puts both on the pods.
        notes = {KSERVE_MODE: "RawDeployment", KSERVE_AUTOSCALER: "hpa" if scaled else "none"}
        predictor = {
            "annotations": self._annotations({**pod, **notes}),
            "minReplicas": least,
            "maxReplicas": most,
            **scaled,
            "deploymentStrategy": _ROLLING,
        }
        service = self._object(
            "serving.kserve.io/v1beta1",
            "InferenceService",
            spec={"predictor": {**predictor, **pod}},
        )
        service["metadata"]["annotations"] = notes
        return [*self._config(), service, self._budget({INFERENCE_SERVICE: self.name})]

    def _annotations(self, pod: Mapping[str, Any]) -> dict[str, str]:
        """Return what is on each pod: whether Prometheus reads it, and which pod it is."""
        digest = hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()
        # Prometheus sends no token.
        scrape = {"prometheus.io/scrape": "true", "prometheus.io/port": str(_PORT)}
        return {**({} if self.token_secret else scrape), POD_DIGEST: digest[:16]}

    def _object(self, version: str, kind: str, **content: Manifest) -> Manifest:
        namespace = {"namespace": self.namespace} if self.namespace else {}
        metadata = {"name": self.name, **namespace, "labels": self._labels}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}

    def _config(self) -> list[Manifest]:
        return (
            [self._object("v1", "ConfigMap", data={"key.pem": self.public_key})]
            if self.public_key
            else []
        )

    def _budget(self, selector: Mapping[str, str]) -> Manifest:
        # Of a pod that does not answer nothing is lost when its node is emptied.
        spec = {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector},
        }
        return self._object("policy/v1", "PodDisruptionBudget", spec=spec)

    def _mounted(self) -> dict[str, Manifest]:
        """Return the source of each read-only volume by its name; it is mounted at that name below
        /etc/podium."""
        sources = {
            "store": {"secret": {"secretName": self.secret}} if self.secret else None,
            "token": {"secret": {"secretName": self.token_secret}} if self.token_secret else None,
            "key": {"configMap": {"name": self.name}} if self.public_key else None,
        }
        return {name: source for name, source in sources.items() if source}

    def _container(self, name: str) -> Manifest:
        command = [
            "podium",
            "serve",
            self.model,
            "--storage",
            self.storage,
            "--host",
            "0.0.0.0",
            "--port",
            str(_PORT),
            "--timeout",
            str(ANSWER),
            "--drain",
            str(DRAIN),
        ]
        files = {
            "PODIUM_S3_CREDENTIALS_DIR": ("store", ""),
            "PODIUM_PUBLIC_KEY": ("key", "/key.pem"),
        }
        env = [
            {"name": variable, "value": f"{_MOUNTS}/{volume}{file}"}
            for variable, (volume, file) in files.items()
            if volume in self._mounted()
        ]
        mounts = [
            {"name": volume, "mountPath": f"{_MOUNTS}/{volume}", "readOnly": True}
            for volume in self._mounted()
        ]
        ready, live = (
            {"httpGet": {"path": f"/v2/health/{probe}", "port": "http"}}
            for probe in ("ready", "live")
        )
        return {
            "name": name,
            "image": self.image,
            "command": [
                *command,
                *(["--watch"] if self.watch else []),
                *(["--canary", self.canary] if self.canary else []),
                *(["--shadow", self.shadow] if self.shadow else []),
                *(["--record", self.record] if self.record else []),
                *(["--token-file", f"{_MOUNTS}/token/token"] if self.token_secret else []),
            ],
            "env": [*self.env, *env],
            "ports": [{"name": "http", "containerPort": _PORT, "protocol": "TCP"}],
            "startupProbe": {
                **ready,
                "periodSeconds": 2,
                "timeoutSeconds": 5,
                "failureThreshold": _START // 2,
            },
            "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 5},
            "livenessProbe": {
                **live,
                "periodSeconds": 10,
                "timeoutSeconds": 10,
                "failureThreshold": 6,
            },
            "resources": {
                "requests": {"cpu": self.cpu, "memory": self.memory},
                "limits": {"memory": self.memory},
            },
            "securityContext": {"readOnlyRootFilesystem": True},
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],
        }

    def _pod(self, container: str) -> Manifest:
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {INSTANCE: self.name}},
        }
        volumes = {"tmp": {"emptyDir": {}}, **self._mounted()}
        spec: Manifest = {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **({"serviceAccountName": self.service_account} if self.service_account else {}),
            "terminationGracePeriodSeconds": DRAIN + ANSWER + 5,
            "topologySpreadConstraints": [spread],
            "containers": [self._container(container)],
            "volumes": [{"name": name, **source} for name, source in volumes.items()],
        }
        secure(spec)
        return spec


def pod_range(replicas: int | str) -> tuple[int, int]:
    """Return the least and the most pods.

    Raises:
        InvalidInput: They are not numbers, or there may be none.
    """
    least, _, most = str(replicas).partition("..")
    if not (least.isdecimal() and (most or least).isdecimal()):
        raise InvalidInput(f"no number of pods: {replicas!r}", "--replicas 2, or 1..5")
    low, high = int(least), int(most or least)
    require(1 <= low <= high, "1 <= replicas", "--replicas 1..5", replicas=replicas)
    return low, high


FORMS = {"kubernetes": ModelServer.kubernetes, "kserve": ModelServer.kserve}


def pod_digest(server: Resource) -> str:
    """Return the digest of the pods that a Deployment or an InferenceService asks for; empty where
    podium did not write it."""
    template = mapping(server.spec.get("template")).get("metadata")
    kept = mapping(template or server.spec.get("predictor"))
    return texts(kept.get("annotations")).get(POD_DIGEST, "")


def is_made_of(deployment: Resource, service: Resource) -> bool:
    """Return whether KServe's Deployment is that of the InferenceService as it is now.

    Its observedGeneration does not say so: it is that of the Deployment (kserve v0.20.0:
    pkg/apis/serving/v1beta1, PropagateRawStatus).
    """
    predictor = mapping(service.spec.get("predictor"))
    least, most = (integer(predictor.get(key)) or 0 for key in ("minReplicas", "maxReplicas"))
    replicas = integer(deployment.spec.get("replicas")) or 0
    return pod_digest(deployment) == pod_digest(service) and least <= replicas <= most
