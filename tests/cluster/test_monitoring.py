"""deploy/monitoring: what its alerts and its dashboard ask for is what podium's own pages say."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import World
from test_reap import read

from podium.cli.model_serving import _champions
from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.reap import Reaper
from podium.errors import InvalidInput
from podium.models import open_registry
from podium.system import exposition
from podium.system.exposition import serve

MONITORING = Path(__file__).parents[2] / "deploy/monitoring"
SAMPLE = re.compile(r"^(podium_\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
CASES = Path(__file__).with_name("alerts.yaml")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((MONITORING / "rule.yaml").read_text())["spec"]["groups"]
    return list(group["rules"])


def queries() -> Iterator[str]:
    """Yield every query of the alerts and of the dashboard."""
    yield from (rule["expr"] for rule in rules())
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def samples(page: str) -> dict[str, dict[str, float]]:
    """Return the values of a page by name, and by their labels as written."""
    found: dict[str, dict[str, float]] = {}
    for name, labels, value in SAMPLE.findall(page):
        found.setdefault(name, {})[labels] = float(value)
    return found


def workflow(world: World, name: str, phase: str, hours: float = 1, **labels: str) -> None:
    """Put the Workflow of a run there that began some hours ago."""
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - hours * 3600))
    if phase:
        labels["workflows.argoproj.io/phase"] = phase
    world.put(
        "workflows", {"metadata": {"name": name, "creationTimestamp": began, "labels": labels}}
    )


@pytest.fixture
def registry(tmp_path: Path) -> str:
    """A storage with a model that has a champion, and one that has none."""
    storage = str(tmp_path / "store")
    for name in ("mnist", "never-promoted"):
        open_registry(storage).model(name).upload({"model.onnx": b"x"}, {"run_id": "run-1"})
    open_registry(storage).model("mnist").set_champion("run-1", {}, expect=None)
    return storage


def round_of(reaper: Reaper) -> dict[str, dict[str, float]]:
    """Let the reaper make one round; what it then says."""
    reaper._round()
    return samples(reaper.metrics)


def test_runs_of_a_day_are_counted_by_phase(cluster: KubernetesCluster, world: World) -> None:
    run = {"pipeline/runid": "any"}
    for number, phase in enumerate(["Failed", "Failed", "Error", "Succeeded", "Running", ""]):
        workflow(world, f"wf-{number}", phase, **run)
    workflow(world, "of-the-day-before", "Failed", hours=25, **run)
    workflow(world, "of-no-pipeline", "Failed")
    counted = {"Failed": 2, "Error": 1, "Succeeded": 1, "Running": 1, "Pending": 1}
    said = round_of(Reaper(cluster, 10, print))
    assert said["podium_runs"] == {f'phase="{phase}"': count for phase, count in counted.items()}


def test_a_cluster_without_a_run_is_counted_too(cluster: KubernetesCluster) -> None:
    assert set(round_of(Reaper(cluster, 10, print))["podium_runs"].values()) == {0}


def test_runs_are_counted_once_a_minute_without_their_steps(
    cluster: KubernetesCluster, world: World
) -> None:
    reaper = Reaper(cluster, 10, print)
    for _ in range(3):
        reaper._round()
    counts = [
        request
        for request in world.requests
        if "workflows?labelSelector=pipeline%2Frunid" in request
    ]
    assert len([request for request in counts if request.endswith("runid")]) == 1
    assert any("PartialObjectMetadataList" in accept for accept in world.accepted)


def test_counts_that_cannot_be_had_are_an_error(cluster: KubernetesCluster, world: World) -> None:
    workflow(world, "wf", "Failed", **{"pipeline/runid": "any"})
    reaper = Reaper(cluster, 10, print)
    assert round_of(reaper)["podium_runs"]['phase="Failed"'] == 1
    world.forbidden.add("workflows")
    reaper.counted = 0.0
    said = round_of(reaper)
    assert "podium_runs" not in said, "a count that is no longer true is not repeated"
    assert said["podium_reaper_errors_total"] == {"": 1}


def test_a_cluster_without_argo_has_no_runs(cluster: KubernetesCluster, world: World) -> None:
    world.plurals -= {"workflows"}
    said = round_of(Reaper(cluster, 10, print))
    assert "podium_runs" not in said
    assert said["podium_reaper_errors_total"] == {"": 0}


def test_a_champion_is_as_old_as_its_promotion(registry: str) -> None:
    (ages,) = samples(_champions(open_registry(registry))).values()
    assert ages.keys() == {'model="mnist"', 'model="never-promoted"'}
    assert abs(ages['model="mnist"'] - time.time()) < 60
    assert ages['model="never-promoted"'] == 0


def test_a_rollback_makes_an_old_champion_new(registry: str) -> None:
    model = open_registry(registry).model("mnist")
    model.upload({"model.onnx": b"y"}, {"run_id": "run-2"})
    model.set_champion("run-2", {}, expect="run-1")
    (before,) = samples(_champions(open_registry(registry))).values()
    model.rollback()
    (after,) = samples(_champions(open_registry(registry))).values()
    assert after['model="mnist"'] > before['model="mnist"']


def test_the_command_prints_the_page(typed: Callable[..., Any], registry: str) -> None:
    done = typed("models", "metrics", "--storage", registry)
    assert done[0] == 0
    assert 'podium_champion_since_timestamp_seconds{model="never-promoted"} 0\n' in done[1]


def test_the_command_answers_on_a_port(registry: str) -> None:
    words = [
        Path(sys.executable).with_name("podium"),
        "models",
        "metrics",
        "--storage",
        registry,
        "--port",
        "0",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().removeprefix("listening on port "))
        before = samples(read(port, "metrics"))
        model = open_registry(registry).model("never-promoted")
        model.set_champion("run-1", {}, expect=None)
        after = samples(read(port, "metrics"))
        process.terminate()
    (change,) = set(after["podium_champion_since_timestamp_seconds"].items()) - set(
        before["podium_champion_since_timestamp_seconds"].items()
    )
    assert change[0] == 'model="never-promoted"'
    assert process.returncode == 143


def test_a_storage_that_is_away_answers_with_503(registry: str) -> None:
    def away() -> str:
        raise InvalidInput("the store is away", "bring it back")

    port = serve(0, away).server_address[1]
    with pytest.raises(OSError, match="503"):
        read(port, "metrics")
    assert read(port, "healthz") == "ok\n"


def test_a_silent_client_of_the_metrics_holds_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "PATIENCE", 0.1)
    port = serve(0, str).server_address[1]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as silent:
        assert silent.recv(1) == b"", "it hangs up"


def test_alerts_and_dashboard_name_metrics_there_are(
    cluster: KubernetesCluster, registry: str
) -> None:
    served = {
        **round_of(Reaper(cluster, 10, print)),
        **samples(_champions(open_registry(registry))),
    }
    texts = list(queries())
    asked = {name for text in texts for name in re.findall(r"podium_\w+", text)}
    assert asked <= served.keys()
    assert served.keys() - asked == set(), "a metric that nobody looks at"
    for text in texts:
        for name, chosen in re.findall(r"(podium_\w+)\{([^}]*)\}", text):
            labels = {label for known in served[name] for label in re.findall(r"(\w+)=", known)}
            assert set(re.findall(r"(\w+)\s*[=!]", chosen)) <= labels, text


def test_alerts_say_what_to_do_in_the_docs() -> None:
    page = (MONITORING.parents[1] / "docs/cluster-operations.md").read_text()
    for rule in rules():
        assert f"| `{rule['alert']}` |" in page
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_pods_that_are_scraped_serve_metrics() -> None:
    monitor = yaml.safe_load((MONITORING / "pods.yaml").read_text())["spec"]
    (chosen,) = monitor["selector"]["matchExpressions"]
    reaper = list(yaml.safe_load_all((MONITORING.parent / "base/reaper.yaml").read_text()))[-1]
    exporter = yaml.safe_load((MONITORING / "champions.yaml").read_text())
    for deployment in (reaper, exporter):
        template = deployment["spec"]["template"]
        assert template["metadata"]["labels"][chosen["key"]] in chosen["values"]
        (container,) = template["spec"]["containers"]
        (port,) = container["ports"]
        assert [port["name"]] == [endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]]
        assert container["command"][-2:] == ["--port", str(port["containerPort"])]


def test_kustomize_is_given_every_file_and_the_label_of_grafana() -> None:
    reported = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())
    (dashboard,) = reported["configMapGenerator"]
    files = {*reported["resources"], *dashboard["files"], "kustomization.yaml"}
    assert files == {path.name for path in MONITORING.iterdir()}
    assert dashboard["options"]["labels"] == {"grafana_dashboard": "1"}


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool (Debian's package prometheus)"
)
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump(yaml.safe_load((MONITORING / "rule.yaml").read_text())["spec"])
    )
    asked = [text.replace("$__rate_interval", "5m") for text in queries()]
    recorded = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(asked)]
    dashboard = {
        "groups": [{"name": "dashboard", "rules": recorded}]
    }  # of its own: a month of it takes minutes
    (tmp_path / "dashboard.yaml").write_text(yaml.safe_dump(dashboard))
    shutil.copy(CASES, tmp_path)
    for words in (["check", "rules", "dashboard.yaml"], ["test", "rules", CASES.name]):
        done = subprocess.run(["promtool", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    tested = {
        case["alertname"]
        for test in yaml.safe_load(CASES.read_text())["tests"]
        for case in test["alert_rule_test"]
    }
    assert tested == {rule["alert"] for rule in rules()}
