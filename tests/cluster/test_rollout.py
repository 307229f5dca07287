"""`podium models deploy`: printed, and applied to an API server until the pods answer or cannot."""

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from api_server import World

import podium
from podium.api.deploy import Deployment
from podium.cluster.kubernetes import cluster
from podium.cluster.kubernetes.api import Api, Waits
from podium.errors import Failed, InvalidInput, NotFound, UnknownKind, Untrusted
from podium.files.documents import load_yaml
from podium.models import Model, open_registry

pytestmark = pytest.mark.whole

LABELS = {"app.kubernetes.io/name": "podium-serve", "app.kubernetes.io/instance": "mnist"}


@dataclass(frozen=True, kw_only=True)
class Impatient(Waits):
    image_grace: float = 0.0
    refused_grace: float = 0.0


@pytest.fixture
def model(new_bucket: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model with a champion, in a bucket."""
    url = new_bucket("moto")
    monkeypatch.setenv("PODIUM_STORAGE", url)
    model = open_registry(url).model("mnist")
    model.upload({"model.onnx": b"x"}, {"run_id": "v1"})
    model.upload({"model.json": b'{"predict": ["python", "predict.py"]}'}, {"run_id": "v2"})
    model.set_champion("v1", {}, expect=None)
    return model


@pytest.fixture
def there(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A cluster that knows what servers consist of; nothing is waited for longer than it must be."""
    world.plurals |= {"deployments", "services", "poddisruptionbudgets", "configmaps"}
    monkeypatch.setattr(cluster, "Waits", Impatient)
    return world


def status(world: World, **counts: Any) -> None:
    """Play the controller: write a Deployment's status once it is there."""

    def write() -> None:
        while ("deployments", "mnist") not in world.objects:
            time.sleep(0.02)
        world.put("deployments", {**world.objects["deployments", "mnist"], "status": counts})

    threading.Thread(target=write, daemon=True).start()


def pod(
    world: World, state: dict[str, Any], restarts: int = 0, *, present: bool = True, **more: Any
) -> None:
    """Put a pod of the template that is applied, or of one before."""
    container = {
        "name": "serve",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": restarts,
        "state": state,
    }
    world.pod("mnist-1", LABELS, phase="Pending", containerStatuses=[{**container, **more}])
    (deployment,) = (one for one in podium.deploy("mnist").manifests if one["kind"] == "Deployment")
    notes = deployment["spec"]["template"]["metadata"]["annotations"] if present else {}
    world.objects["pods", "mnist-1"]["metadata"]["annotations"] = notes


def refusal(timeout: float = 20) -> Failed:
    with pytest.raises(Failed) as failed:
        podium.deploy("mnist").apply(timeout)
    return failed.value


def test_the_command_prints_what_python_writes(model: Model, typed: Callable[..., Any]) -> None:
    printed = typed("models", "deploy", "mnist", "--to", "kubernetes", "--replicas", "3")
    assert printed.returncode == 0, printed.stderr
    assert load_yaml(printed.stdout, "printed") == podium.deploy(model, replicas=3).manifests
    as_json = typed("models", "deploy", "mnist", "--to", "kserve", "--json")
    assert json.loads(as_json.stdout) == podium.deploy("mnist", to="kserve").manifests
    assert "podium-secret" not in printed.stdout + as_json.stdout


def test_an_alias_is_followed_in_place_of_the_champion(model: Model) -> None:
    model.alias("staging", "v2")
    (deployment,) = (
        item for item in podium.deploy(model, "staging").manifests if item["kind"] == "Deployment"
    )
    assert "mnist@staging" in deployment["spec"]["template"]["spec"]["containers"][0]["command"]


def test_a_command_is_said_to_need_an_image(model: Model, typed: Callable[..., Any]) -> None:
    printed = typed("models", "deploy", "mnist", "v2", "--to", "kubernetes")
    assert "v2 is a command: --image must contain the programs it runs" in printed.stderr
    assert "command" not in typed("models", "deploy", "mnist", "--to", "kubernetes").stderr


@pytest.mark.parametrize(("words", "code", "said"), [
    (("nobody", "--to", "kubernetes"), 1, "there is no model nobody"),
    (("mnist", "v9", "--to", "kubernetes"), 1, "no version v9"),
    (("mnist", "--to", "nomad"), 2, "kserve"),
    (("mnist",), 2, "--to"),
    (("mnist", "--to", "kserve", "--name", "My_Model"), 2, "hint: --name takes lower case letters"),
    (("mnist", "--to", "kserve", "--memory", "lots"), 2, "memory is an amount of a resource, not 'lots'"),
])  # fmt: skip
def test_a_wrong_word_is_an_error_with_a_hint(
    words: tuple[str, ...], code: int, said: str, model: Model, typed: Callable[..., Any]
) -> None:
    done = typed("models", "deploy", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_that_deploy_lacks_is_refused(model: Model) -> None:
    with pytest.raises(InvalidInput, match="deploy has no setting 'replica'") as refused:
        podium.deploy(model, replica=3)
    assert refused.value.hint == "did you mean replicas?"


def test_a_second_version_of_another_model_is_refused(model: Model) -> None:
    with pytest.raises(InvalidInput, match="mnist is deployed, but churn@v2 is of another model"):
        podium.deploy(model, canary="churn@v2=5%")


def test_models_on_this_machine_are_not_deployed(tmp_path: Path) -> None:
    open_registry(tmp_path).model("mnist").upload({"model.onnx": b"x"}, {"run_id": "v1"})
    with pytest.raises(InvalidInput, match="a directory of this machine") as refused:
        podium.deploy("mnist", "v1", storage=tmp_path)
    assert refused.value.hint == "keep the models in a bucket: --storage s3://BUCKET/PREFIX"


def test_python_refuses_an_unknown_place(model: Model) -> None:
    with pytest.raises(InvalidInput, match="'kubernets'") as refused:
        podium.deploy("mnist", to="kubernets")
    assert refused.value.hint == "did you mean kubernetes?"
    with pytest.raises(NotFound):
        podium.deploy("nobody")


def test_with_a_public_key_only_a_signed_version_is_deployed(model: Model, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    from podium.models import signature

    private, public = tmp_path / "key.pem", tmp_path / "pub.pem"
    key = ec.generate_private_key(ec.SECP256R1())
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_text(signature.PublicKey(key.public_key()).pem)
    with pytest.raises(Untrusted):
        podium.deploy("mnist", key=public)
    signature.sign(model.champion, private)
    (config, *_) = podium.deploy("mnist", key=public).manifests
    assert (config["kind"], config["data"]) == ("ConfigMap", {"key.pem": public.read_text()})
    with pytest.raises(InvalidInput, match="does not hold a public key"):
        podium.deploy("mnist", key=private)


def test_apply_returns_the_address_once_pods_answer(
    model: Model, there: World, typed: Callable[..., Any]
) -> None:
    status(there, replicas=2, updatedReplicas=2, availableReplicas=2)
    done = typed("models", "deploy", "mnist", "--to", "kubernetes", "--apply")
    assert re.fullmatch(r"http://mnist\.[\w-]+\.svc/v2/models/mnist\n", done.stdout), done.stderr
    kinds = {kind for kind, _ in there.objects}
    assert kinds == {"services", "deployments", "poddisruptionbudgets"}
    applied = [request for request in there.requests if request.startswith("PATCH")]
    assert all(
        "fieldManager=podium" in request and "fieldValidation=Strict" in request
        for request in applied
    )
    assert any(request.startswith("PATCH /api/v1/namespaces/") for request in applied)


def kserve(world: World, deployment: Deployment, **made: Any) -> None:
    """Play KServe and its Deployment, whose pods are ready: of the objects as applied, but for what
    is given."""
    world.plurals |= {"inferenceservices"}
    (asked,) = (one for one in deployment.manifests if one["kind"] == "InferenceService")
    predictor = asked["spec"]["predictor"]
    given = {
        "replicas": 2,
        "annotations": predictor["annotations"],
        "address": None,
        "said": {},
        **made,
    }
    replicas = given["replicas"]
    pods = {"replicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas}
    template = {"metadata": {"annotations": given["annotations"]}}
    stored = {
        "metadata": {"name": "mnist-predictor", "generation": 1},
        "spec": {"replicas": replicas, "template": template},
        "status": {"observedGeneration": 1, **pods},
    }
    # Of the InferenceService KServe knows no generation, but writes that of the Deployment.
    said = {"type": "Ready", "status": "True", **given["said"]}
    ready = {"conditions": [said], "observedGeneration": 1}
    if given["address"]:
        ready["address"] = {"url": given["address"]}

    def write() -> None:
        while ("inferenceservices", "mnist") not in world.objects:
            time.sleep(0.02)
        service = world.objects["inferenceservices", "mnist"]
        seen = {**service["metadata"], "generation": 3}
        world.put("inferenceservices", {**service, "metadata": seen, "status": ready})
        world.put("deployments", stored)

    threading.Thread(target=write, daemon=True).start()


def test_kserve_answers_at_the_predictor_once_both_are_ready(model: Model, there: World) -> None:
    kserve(there, deployment := podium.deploy("mnist", to="kserve"))
    address = deployment.apply(20)
    assert re.fullmatch(r"http://mnist-predictor\.[\w-]+\.svc/v2/models/mnist", address)


def test_the_address_is_the_one_that_kserve_gives(model: Model, there: World) -> None:
    said = "http://mnist-predictor.team.svc.cluster.local:8080"
    kserve(there, deployment := podium.deploy("mnist", to="kserve"), address=said)
    assert deployment.apply(20) == f"{said}/v2/models/mnist"


@pytest.mark.parametrize("made", [{"annotations": {}}, {"replicas": 3}])
def test_kserve_is_waited_for_while_it_has_earlier_pods(
    made: dict[str, Any], model: Model, there: World
) -> None:
    kserve(there, deployment := podium.deploy("mnist", to="kserve"), **made)
    with pytest.raises(Failed, match="InferenceService mnist is not ready after"):
        deployment.apply(3)


def test_what_keeps_kserve_from_making_the_pods_is_quoted(model: Model, there: World) -> None:
    message = 'fails to reconcile predictor: "mnist-predictor" is forbidden: exceeded quota: few'
    said = {"status": "False", "reason": "ReconcileFailed", "message": message}
    kserve(there, deployment := podium.deploy("mnist", to="kserve"), said=said, annotations={})
    with pytest.raises(Failed) as failed:
        deployment.apply(20)
    assert failed.value.message == (
        f"InferenceService mnist is not ready: ReconcileFailed ({message})"
    )
    assert "a quota" in str(failed.value.hint)


def test_an_autoscaler_may_have_chosen_another_number(model: Model, there: World) -> None:
    kserve(there, deployment := podium.deploy("mnist", to="kserve", replicas="1..4"), replicas=3)
    assert deployment.apply(20)


def test_an_autoscaler_without_figures_is_warned_of(
    model: Model, there: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there.plurals |= {"horizontalpodautoscalers"}
    status(there, replicas=1, updatedReplicas=1, availableReplicas=1)
    scaled = podium.deploy("mnist", replicas="1..3")
    scaled.apply(20)
    assert caplog.messages == []
    monkeypatch.setattr(Api, "serves", lambda self, kind: kind != "PodMetrics")
    scaled.apply(20)
    assert caplog.messages == ["mnist is not scaled: this cluster has no metrics-server"]


def test_an_image_that_is_not_there_is_named(model: Model, there: World) -> None:
    pod(
        there,
        {
            "waiting": {
                "reason": "ImagePullBackOff",
                "message": 'Back-off pulling image "podium-serve:9"',
            }
        },
    )
    error = refusal()
    assert error.message.startswith("Deployment mnist is not ready: pod mnist-1: ImagePullBackOff")
    assert "check the image's name" in str(error.hint)


def ends_again(world: World, restarts: int, later: int) -> None:
    """Put a pod that has ended so often, and once it was seen oftener."""
    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    pod(world, {"waiting": {"reason": "CrashLoopBackOff"}}, restarts, lastState=ended)
    world.logs["mnist-1"] = ["error: there is no bucket models", "hint: check the address"]

    def end() -> None:
        while sum("/pods?" in request for request in world.requests) < 2:
            time.sleep(0.02)
        pod(world, {"waiting": {"reason": "CrashLoopBackOff"}}, later, lastState=ended)

    threading.Thread(target=end, daemon=True).start()


@pytest.mark.parametrize(("restarts", "later"), [(0, 2), (9, 10)])
def test_a_server_that_ends_again_and_again_shows_its_log(
    restarts: int, later: int, model: Model, there: World
) -> None:
    ends_again(there, restarts, later)
    error = refusal()
    assert "pod mnist-1: Error (container serve, exit code 1)" in error.message
    assert error.message.endswith(
        "  | error: there is no bucket models\n  | hint: check the address"
    )


def test_a_pod_that_waits_to_begin_again_may_do_so(model: Model, there: World) -> None:
    ends_again(there, 9, 9)
    assert "is not ready after" in refusal(timeout=3).message


def test_broken_pods_from_before_do_not_fail_the_next_deploy(model: Model, there: World) -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    pod(there, waiting, restarts=9, present=False, lastState=ended)
    status(there, replicas=2, updatedReplicas=2, availableReplicas=2)
    assert podium.deploy("mnist").apply(20)


def test_a_secret_that_is_not_there_is_named(model: Model, there: World) -> None:
    pod(there, {"waiting": {"reason": "ContainerCreating"}})
    there.event("pods", "mnist-1", "FailedMount", 'secret "keys" not found')
    error = refusal()
    assert 'pod mnist-1: FailedMount (secret "keys" not found)' in error.message
    assert "does not exist in this namespace" in str(error.hint)


def test_a_quota_that_refuses_pods_is_quoted(model: Model, there: World) -> None:
    message = 'pods "mnist-1" is forbidden: exceeded quota: small'
    failure = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": message,
    }
    status(there, conditions=[failure])
    error = refusal()
    assert message in error.message
    assert "a quota" in str(error.hint)


def test_waiting_ends_with_what_the_controller_says(model: Model, there: World) -> None:
    slow = {
        "type": "Available",
        "status": "False",
        "reason": "MinimumReplicasUnavailable",
        "message": "no minimum",
    }
    status(there, conditions=[slow], replicas=2)
    error = refusal(timeout=0.5)
    assert error.message == "Deployment mnist is not ready after 0.5 s; Available: no minimum"
    assert str(error.hint).startswith("kubectl -n ")


def test_a_cluster_without_kserve_says_so(model: Model, there: World) -> None:
    with pytest.raises(UnknownKind, match="does not know the kind InferenceService") as unknown:
        podium.deploy("mnist", to="kserve").apply()
    assert "--to kubernetes" in str(unknown.value.hint)
