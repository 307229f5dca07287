"""What `podium models deploy` writes: pods that podium serve, Pod Security and the protocol accept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podium.cli.serve import serve
from podium.cluster.kubernetes.rollout import _rolled_out
from podium.cluster.kubernetes.store_access import AccessByReference
from podium.errors import InvalidInput
from podium.files.documents import load_yaml
from podium.files.yaml_loader import dump
from podium.manifests.conditions import Manifest
from podium.manifests.pod_security import violations
from podium.manifests.resource import Resource
from podium.manifests.serving import ANSWER, DRAIN, FORMS, ModelServer
from podium.manifests.workload import Pod

FULL: dict[str, Any] = {
    "token_secret": "token", "public_key": "-----BEGIN PUBLIC KEY-----\n", "namespace": "team", "replicas": 3,
    "service_account": "server", "image": "registry.example/serve:1",
}  # fmt: skip
either = pytest.mark.parametrize("form", FORMS)


def server(**changes: Any) -> ModelServer:
    env = AccessByReference(secret="").env()
    given = {
        "name": "mnist",
        "model": "mnist",
        "storage": "s3://models/podium",
        "secret": "keys",
        "env": env,
    }
    return ModelServer(**{**given, **changes})


def written(form: str, **changes: Any) -> dict[str, Manifest]:
    """Return the objects by kind, as kubectl reads them."""
    text = "---\n".join(map(dump, FORMS[form](server(**changes))))
    assert "&" not in text
    return {manifest["kind"]: manifest for manifest in load_yaml(text, "the manifests")}


def pod_of(objects: dict[str, Manifest]) -> dict[str, Any]:
    if "InferenceService" in objects:
        return dict(objects["InferenceService"]["spec"]["predictor"])
    return dict(objects["Deployment"]["spec"]["template"]["spec"])


@either
def test_pods_fit_restricted_with_a_root_that_is_read_only(form: str) -> None:
    pod = pod_of(written(form, **FULL))
    assert list(violations(Pod(manifest={"spec": pod}, path=""))) == []
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["tmp"] == {"name": "tmp", "emptyDir": {}}
    writable = [
        mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")
    ]
    assert writable == ["/tmp"]
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()


@either
@pytest.mark.parametrize(
    "changes",
    [
        {},
        FULL,
        {"model": "mnist@staging", "secret": "", "watch": True},
        {"canary": "v4=5%", "record": "s3://answers"},
        {"shadow": "v4"},
    ],
)
def test_podium_serve_takes_the_command(form: str, changes: dict[str, Any], tmp_path: Path) -> None:
    (container,) = pod_of(written(form, **changes))["containers"]
    program, command, *words = container["command"]
    assert (program, command) == ("podium", "serve")
    if "--token-file" in words:
        (token := tmp_path / "token").write_text("secret")  # one that exists here
        words[words.index("--token-file") + 1] = str(token)
    given = serve.make_context("serve", words).params
    assert given["models"] == (changes.get("model", "mnist"),)
    assert (given["storage"], given["host"]) == ("s3://models/podium", "0.0.0.0")
    assert [port["containerPort"] for port in container["ports"]] == [given["port"]]
    assert (given["drain"], given["timeout"]) == (DRAIN, ANSWER)
    assert given["watch"] == changes.get("watch", False)
    assert (given["canary"] + given["shadow"], given["record"]) == (
        tuple(changes[name] for name in ("canary", "shadow") if name in changes),
        changes.get("record"),
    )


@either
def test_a_pod_has_time_to_answer_what_is_under_way(form: str) -> None:
    pod = pod_of(written(form))
    assert pod["terminationGracePeriodSeconds"] > DRAIN + ANSWER + 1
    (container,) = pod["containers"]
    paths = {
        probe: container[probe]["httpGet"]["path"] for probe in container if probe.endswith("Probe")
    }
    assert paths == {
        "startupProbe": "/v2/health/ready", "readinessProbe": "/v2/health/ready", "livenessProbe": "/v2/health/live",
    }  # fmt: skip


def test_a_rollout_fails_only_after_a_slow_start() -> None:
    deployment = written("kubernetes")["Deployment"]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    start = probe["periodSeconds"] * probe["failureThreshold"]
    assert deployment["progressDeadlineSeconds"] >= start + DRAIN + ANSWER


@either
def test_keys_and_token_are_references_only(form: str) -> None:
    objects = written(form, **FULL)
    assert "Secret" not in objects
    pod = pod_of(objects)
    mounted = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert mounted == {"keys", "token"}
    (container,) = pod["containers"]
    plain = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert plain == {
        "PODIUM_S3_CREDENTIALS_DIR": mounts["store"], "PODIUM_PUBLIC_KEY": f"{mounts['key']}/key.pem",
    }  # fmt: skip
    assert container["command"][-2:] == ["--token-file", f"{mounts['token']}/token"]
    assert objects["ConfigMap"]["data"] == {"key.pem": FULL["public_key"]}


@either
def test_a_workload_identity_needs_no_secret(form: str) -> None:
    pod = pod_of(written(form, secret="", service_account="server"))
    assert pod["serviceAccountName"] == "server"
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]
    (container,) = pod["containers"]
    assert {entry["name"] for entry in container["env"]} == {"AWS_ENDPOINT_URL", "AWS_REGION"}


def test_service_and_budget_choose_the_deployments_pods() -> None:
    objects = written("kubernetes", **FULL)
    assert list(objects) == ["ConfigMap", "Service", "Deployment", "PodDisruptionBudget"]
    assert {item["metadata"]["namespace"] for item in objects.values()} == {"team"}
    spec = objects["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"].items()
    budget = objects["PodDisruptionBudget"]["spec"]
    for selector in (
        objects["Service"]["spec"]["selector"],
        spec["selector"]["matchLabels"],
        budget["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    assert (spec["replicas"], budget["maxUnavailable"]) == (3, 1)
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_a_range_of_pods_is_an_autoscaler() -> None:
    objects = written("kubernetes", replicas="2..8")
    assert "replicas" not in objects["Deployment"]["spec"], "applying it again must not scale"
    scaler = objects["HorizontalPodAutoscaler"]
    assert scaler["apiVersion"] == "autoscaling/v2"
    assert scaler["spec"] == {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "mnist"},
        "minReplicas": 2, "maxReplicas": 8,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
    }  # fmt: skip
    (container,) = pod_of(objects)["containers"]
    assert container["resources"]["requests"]["cpu"], "utilization is of the request"


def test_kserve_makes_the_autoscaler_of_a_range() -> None:
    service = written("kserve", replicas="2..8")["InferenceService"]
    predictor, notes = service["spec"]["predictor"], service["metadata"]["annotations"]
    assert (predictor["minReplicas"], predictor["maxReplicas"], predictor["scaleMetric"]) == (2, 8, "cpu")  # fmt: skip
    assert notes["serving.kserve.io/autoscalerClass"] == "hpa"
    fixed = written("kserve", replicas=2)["InferenceService"]["metadata"]["annotations"]
    assert fixed["serving.kserve.io/autoscalerClass"] == "none"


def test_kserve_gets_one_container_and_no_copy_of_the_model() -> None:
    objects = written("kserve", **FULL)
    assert list(objects) == ["ConfigMap", "InferenceService", "PodDisruptionBudget"]
    predictor = objects["InferenceService"]["spec"]["predictor"]
    assert [container["name"] for container in predictor["containers"]] == ["kserve-container"]
    assert (predictor["minReplicas"], predictor["maxReplicas"]) == (3, 3)
    assert not {"model", "storageUri", "storageUris"} & predictor.keys()
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == {
        "serving.kserve.io/inferenceservice": "mnist"
    }


@either
def test_a_server_that_asks_for_a_token_is_not_scraped(form: str) -> None:
    def annotations(**changes: Any) -> dict[str, str]:
        objects = written(form, **changes)
        if form == "kserve":
            return dict(objects["InferenceService"]["spec"]["predictor"]["annotations"])
        return dict(objects["Deployment"]["spec"]["template"]["metadata"].get("annotations", {}))

    assert annotations()["prometheus.io/port"] == "8080"
    assert "prometheus.io/scrape" not in annotations(token_secret="token")


@pytest.mark.parametrize(("cpu", "limit"), [("500m", None), ("1", None), ("2500m", "2500m")])
def test_kserves_limit_of_one_cpu_refuses_no_request(cpu: str, limit: str | None) -> None:
    (container,) = pod_of(written("kserve", cpu=cpu))["containers"]
    assert container["resources"]["limits"].get("cpu") == limit
    (container,) = pod_of(written("kubernetes", cpu=cpu))["containers"]
    assert "cpu" not in container["resources"]["limits"]


def test_kserve_makes_new_pods_for_other_pods_only() -> None:
    def digest(**changes: Any) -> str:
        predictor = written("kserve", **changes)["InferenceService"]["spec"]["predictor"]
        return str(predictor["annotations"]["podium.dev/pod-digest"])

    assert digest() == digest(replicas=3)
    assert digest(replicas="1..4") == digest(replicas="1..5")
    assert digest() != digest(replicas="1..4"), "KServe notes on the pods whether they are scaled"
    assert digest() != digest(memory="2Gi")


@pytest.mark.parametrize(("changes", "words"), [
    ({"name": "My_Model"}, "'My_Model'"), ({"name": "3d"}, "'3d'"), ({"name": "a" * 54}, "'aaa"),
    ({"namespace": "a.b"}, "namespace"), ({"secret": "Keys"}, "'Keys'"), ({"token_secret": "a/b"}, "'a/b'"),
    ({"storage": "file:///store"}, "file:///store"), ({"replicas": 0}, "replicas=0"),
    ({"replicas": "3..2"}, "replicas='3..2'"), ({"replicas": "a..b"}, "'a..b'"), ({"replicas": "1..-2"}, "'1..-2'"),
    ({"record": "answers/"}, "gone with the pod"), ({"cpu": "much"}, "'much'"), ({"memory": "1 GB"}, "'1 GB'"),
])  # fmt: skip
def test_what_no_cluster_takes_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        server(**changes)
    assert words in refused.value.message
    assert refused.value.hint or "must hold" in refused.value.message


@pytest.mark.parametrize(
    "words",
    [("--replicas", "x"), ("--canary", "v2"), ("--cpu", "much"), ("--secret", "A B")],
    ids="".join,
)
def test_a_setting_is_refused_before_the_registry_is_read(
    words: tuple[str, str], typed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if words[0] != "--replicas":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    storage = ("--storage", "s3://models")
    done = typed("models", "deploy", "mnist", "--to", "kubernetes", *storage, *words)
    assert (done.returncode, words[1] in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(("status", "done"), [
    ({}, False),
    ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, True),
    ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, False),
    ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3}, False),
    ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}, False),
])  # fmt: skip
def test_a_rollout_ends_with_the_last_old_pod(status: dict[str, int], done: bool) -> None:
    stored = Resource.parse(
        {
            "kind": "Deployment",
            "metadata": {"generation": 2},
            "spec": {"replicas": 2},
            "status": status,
        }
    )
    assert _rolled_out(stored) is done
