"""A server of one model on a cluster: `podium serve` as a Deployment, or as an InferenceService of KServe."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.errors import InvalidInput, require
from podium.manifests.conditions import Manifest
from podium.manifests.fields import integer
from podium.manifests.labels import (
    INFERENCE_SERVICE,
    INSTANCE,
    KSERVE_AUTOSCALER,
    KSERVE_MODE,
    MANAGED_BY,
    NAME,
    SCRAPE,
    SCRAPE_PORT,
)
from podium.manifests.names import is_dns_1035, is_dns_1123
from podium.manifests.placement import Pods
from podium.manifests.pod_security import secure
from podium.manifests.resource import Resource

IMAGE = "podium-serve:0.1.0"

DRAIN = 10
"""Seconds that a pod still answers after SIGTERM: until then proxies and clients have found the others."""

ANSWER = 60
"""Seconds for an answer, `podium serve --timeout`."""

START = 300
"""Seconds from a pod's start to its first answer: the image is there, the model is read from the bucket."""

ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
PORT = 8080
KEYS = "/etc/podium/store"
"""Where the keys of the bucket are mounted: as files, so that keys that are replaced need no new pods."""

PREDICTOR = "-predictor"
"""Behind the name of an InferenceService: KServe's Deployment and Service of it (kserve v0.20.0: pkg/constants)."""


@dataclass(frozen=True, kw_only=True)
class ModelServer:
    """Pods that answer with one model of a registry in a bucket, and follow its champion or another alias."""

    name: str
    """Of the objects; a DNS label."""

    model: str
    """``NAME``, or ``NAME@VERSION`` with a version or alias."""

    storage: str
    """URL of the registry."""

    namespace: str = ""
    """Empty for that of whoever applies the manifests."""

    image: str = IMAGE
    replicas: int = 2
    cpu: str = "500m"
    """Request; more is used where the node has it."""

    memory: str = "1Gi"
    """Request and limit."""

    env: Sequence[Mapping[str, Any]] = ()
    """Where the bucket is."""

    secret: str = ""
    """Secret with the bucket's keys, the files accesskey and secretkey; empty for a workload identity."""

    token_secret: str = ""
    """Secret with the bearer token that clients send, under the key token; empty asks for none."""

    public_key: str = ""
    """PEM of the key that versions must be signed with; empty asks for no signature."""

    service_account: str = ""

    def __post_init__(self) -> None:
        hint = "lower case letters, digits and -, a letter first: add --name mnist"
        if not is_dns_1035(self.name):
            raise InvalidInput(f"no object of a cluster can be called {self.name!r}", hint)
        longest = 63 - len(PREDICTOR)
        require(len(self.name) <= longest, f"len(name) <= {longest}", "add --name with a shorter one", name=self.name)
        labels = {"namespace": self.namespace.replace(".", "_"), "secret": self.secret,
                  "token secret": self.token_secret, "service account": self.service_account}  # fmt: skip
        for what, given in labels.items():
            if given and not is_dns_1123(given):
                raise InvalidInput(f"no {what} is called {given!r}", "lower case letters, digits and -")
        if not self.storage.startswith(("s3://", "minio://")):
            hint = "keep the models in a bucket: --storage s3://BUCKET/PREFIX"
            raise InvalidInput(f"pods cannot read the models in {self.storage}, a directory of this machine", hint)
        require(self.replicas >= 1, "replicas >= 1", replicas=self.replicas)
        if not self.image or any(letter.isspace() for letter in self.image):
            raise InvalidInput(f"no image is called {self.image!r}", f"for example {IMAGE}")
        Pods(cpu=self.cpu, memory=self.memory)  # refuses what is not an amount

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all objects."""
        return {NAME: "podium-serve", INSTANCE: self.name, MANAGED_BY: "podium"}

    def kubernetes(self) -> list[Manifest]:
        """Return a Deployment, its Service and its PodDisruptionBudget, and a ConfigMap if there is a public key."""
        selector = {NAME: "podium-serve", INSTANCE: self.name}
        template: Manifest = {"metadata": {"labels": self.labels}, "spec": self._pod(self._container("serve"))}
        if not self.token_secret:  # a scraper would be asked for the token
            template["metadata"]["annotations"] = {SCRAPE: "true", SCRAPE_PORT: str(PORT)}
        ports = [{"name": "http", "port": 80, "targetPort": "http"}]
        return [
            *self._config(),
            self._object("v1", "Service", {"selector": selector, "ports": ports}),
            self._object("apps/v1", "Deployment", {
                "replicas": self.replicas, "strategy": ROLLING, "progressDeadlineSeconds": START + DRAIN + ANSWER,
                "selector": {"matchLabels": selector}, "template": template,
            }),
            self._budget(selector),
        ]  # fmt: skip

    def kserve(self) -> list[Manifest]:
        """Return an InferenceService with the same container, and a budget for the pods KServe makes of it.

        It has no ServingRuntime, and no storageUri for one: that is copied when a pod starts, so a promotion would need
        new pods. A runtime without storageUri counts as a multi-model server, which gets KServe's agent beside it
        (kserve v0.20.0: pkg/controller/v1beta1/inferenceservice/utils, IsMMSPredictor; observed).
        """
        pods = {"minReplicas": self.replicas, "maxReplicas": self.replicas, "deploymentStrategy": ROLLING}
        predictor = {**pods, **self._pod(self._container("kserve-container"))}
        service = self._object("serving.kserve.io/v1beta1", "InferenceService", {"predictor": predictor})
        # A Deployment, not Knative, by the name that every KServe knows.
        service["metadata"]["annotations"] = {KSERVE_MODE: "RawDeployment", KSERVE_AUTOSCALER: "none"}
        return [*self._config(), service, self._budget({INFERENCE_SERVICE: self.name})]

    def _object(self, version: str, kind: str, spec: Manifest) -> Manifest:
        namespace = {"namespace": self.namespace} if self.namespace else {}
        metadata = {"name": self.name, **namespace, "labels": self.labels}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}

    def _config(self) -> Iterator[Manifest]:
        """Yield the ConfigMap of the public key, if there is one."""
        if self.public_key:
            made = self._object("v1", "ConfigMap", {})
            del made["spec"]
            yield {**made, "data": {"key.pem": self.public_key}}

    def _budget(self, selector: Mapping[str, str]) -> Manifest:
        # Of a pod that does not answer nothing is lost when its node is emptied.
        spec = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": selector}}
        return self._object("policy/v1", "PodDisruptionBudget", spec)

    def _mounts(self) -> dict[str, tuple[str, Manifest]]:
        """Return path and source of each volume by its name."""
        mounts: dict[str, tuple[str, Manifest]] = {"tmp": ("/tmp", {"emptyDir": {}})}
        if self.secret:
            mounts["store"] = (KEYS, {"secret": {"secretName": self.secret}})
        if self.token_secret:
            mounts["token"] = ("/etc/podium/token", {"secret": {"secretName": self.token_secret}})
        if self.public_key:
            mounts["key"] = ("/etc/podium/key", {"configMap": {"name": self.name}})
        return mounts

    def _container(self, name: str) -> Manifest:
        mounts = self._mounts()
        command = ["podium", "serve", self.model, "--storage", self.storage, "--host", "0.0.0.0", "--port", str(PORT),
                   "--timeout", str(ANSWER), "--drain", str(DRAIN)]  # fmt: skip
        env = [*self.env]
        if self.secret:
            env.append({"name": "PODIUM_S3_CREDENTIALS_DIR", "value": KEYS})
        if self.token_secret:
            command += ["--token-file", f"{mounts['token'][0]}/token"]
        if self.public_key:
            env.append({"name": "PODIUM_PUBLIC_KEY", "value": f"{mounts['key'][0]}/key.pem"})
        ready, live = ({"httpGet": {"path": f"/v2/health/{what}", "port": "http"}} for what in ("ready", "live"))
        paths = [(volume, path) for volume, (path, _) in mounts.items()]
        return {
            "name": name, "image": self.image, "command": command, "env": env,
            "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
            "startupProbe": {**ready, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": START // 2},
            "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 5},
            "livenessProbe": {**live, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
            "resources": {"requests": {"cpu": self.cpu, "memory": self.memory}, "limits": {"memory": self.memory}},
            "securityContext": {"readOnlyRootFilesystem": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumeMounts": [
                {"name": volume, "mountPath": path, **({} if volume == "tmp" else {"readOnly": True})}
                for volume, path in paths
            ],
        }  # fmt: skip

    def _pod(self, container: Manifest) -> Manifest:
        """Return the spec of the pods, fit for Pod Security "restricted"."""
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                  "labelSelector": {"matchLabels": {INSTANCE: self.name}}}  # fmt: skip
        spec: Manifest = {
            "automountServiceAccountToken": False, "enableServiceLinks": False,
            "terminationGracePeriodSeconds": DRAIN + ANSWER + 5, "containers": [container],
            "volumes": [{"name": name, **source} for name, (_, source) in self._mounts().items()],
            "topologySpreadConstraints": [spread],
        }  # fmt: skip
        if self.service_account:
            spec["serviceAccountName"] = self.service_account
        secure(spec)
        return spec


FORMS: dict[str, Callable[[ModelServer], list[Manifest]]] = {
    "kubernetes": ModelServer.kubernetes,
    "kserve": ModelServer.kserve,
}


def rolled_out(deployment: Resource) -> bool:
    """Return whether all pods of a Deployment are those of its present template, and answer."""
    want, status = deployment.spec.get("replicas", 1), deployment.status
    pods = all(status.get(field) == want for field in ("replicas", "updatedReplicas", "availableReplicas"))
    return pods and is_current(deployment)


def is_current(stored: Resource) -> bool:
    """Return whether the status of an object is of its present spec."""
    return (integer(stored.status.get("observedGeneration")) or 0) >= (integer(stored.metadata.get("generation")) or 0)
