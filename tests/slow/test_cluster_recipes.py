"""The lines for a cluster of docs/recipes.md and docs/from-launchers.md, typed as a reader would.

The nodes have podium-trainer:0.1.0 and podium-steps:0.1.0, deploy/ is applied. Pods need not reach MNIST's mirrors: its
files lie in the cluster's own bucket. Kinds and servers that the cluster lacks are skipped.
"""

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from datasets import synthetic_part, write_pictures
from livekubeflow import NAMESPACE, until
from recipes import RECIPES, ROOT, copy_recipes

from podium.cluster.kubernetes.cluster import KubernetesCluster
from podium.cluster.kubernetes.store_access import AccessByReference, grant_access
from podium.errors import PodiumError
from podium.manifests.job_editor import JobEditor, set_env
from podium.manifests.workload import Workload
from podium.storage import connect

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(1200)]
TRAINER = os.environ.get("PODIUM_TEST_TRAINER_IMAGE", "podium-trainer:0.1.0")


def block(page: str, words: str) -> str:
    """Return the block of commands of a page that has these words, for the tests' namespace."""
    blocks = re.findall(
        r"^```\w*\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL
    )
    (found,) = (each for each in blocks if words in each)
    return found.replace("kubernetes://team", f"kubernetes://{NAMESPACE}").replace(
        "-n team", f"-n {NAMESPACE}"
    )


def type_in(folder: Path, commands: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done


def metric_lines(text: str) -> list[str]:
    return re.findall(r" (accuracy=\S+ loss=\S+)", text)


@pytest.fixture
def reader(source: str, cluster: KubernetesCluster, tmp_path: Path) -> Iterator[Path]:
    """A copy of the recipes that take MNIST from the bucket, as the page says; what they launch is deleted."""
    changes = {
        r"(data prepare mnist)": rf"\1 --source {source}",
        r"(data, prepare, mnist)": rf"\1, --source, {source}",
    }
    for file in copy_recipes(tmp_path, changes).glob("*/*.yaml"):
        job = yaml.safe_load(file.read_text())
        if job.get("kind") in ("Job", "PyTorchJob", "TrainJob"):
            granted = grant_access(Workload.parse(job), AccessByReference()).changed_job(one_thread)
            file.write_text(yaml.safe_dump(granted.manifest, sort_keys=False))
    before = {kind: names(cluster, kind) for kind in ("Job", "PyTorchJob", "TrainJob")}
    yield tmp_path
    for kind, known in before.items():
        for name in names(cluster, kind) - known:
            cluster.delete(kind, name)


def one_thread(editor: JobEditor) -> None:
    """Give each process one thread: a test cluster may be one small node, where all of a job share its cores."""
    for _, container in editor.containers():
        set_env(container, [{"name": "OMP_NUM_THREADS", "value": "1"}])


def names(cluster: KubernetesCluster, kind: str) -> set[str]:
    try:
        return {job.name for job in cluster.list(kind)}
    except PodiumError:
        return set()


def test_master_and_worker_train_as_job_and_as_trainjob(
    reader: Path, cluster: KubernetesCluster
) -> None:
    job, trainjob = block("recipes.md", "two/trainjob.yaml --cluster").splitlines()
    ran = type_in(reader, job)
    assert len(metric_lines(ran.stdout)) == 2
    assert "worker-0" in ran.stderr
    if not cluster.api.serves("TrainJob"):
        pytest.skip("this cluster has no Kubeflow Trainer 2")
    ran_too = type_in(reader, trainjob)
    assert metric_lines(ran_too.stdout) == metric_lines(ran.stdout)


def test_the_notebook_runs_its_job_on_the_cluster(
    reader: Path, source: str, tmp_path: Path
) -> None:
    notebook = reader / (RECIPES / "notebook/job.ipynb").relative_to(ROOT)
    reference = json.dumps(AccessByReference().env())
    text = notebook.read_text()
    env = json.dumps(f"                \"env\": json.loads('{reference}'),\n")[1:-1]
    text = text.replace("import podium\\n", "import json\\n\\nimport podium\\n", 1)
    notebook.write_text(
        text.replace(
            '                \\"name\\": \\"pytorch\\",\\n',
            env + '                \\"name\\": \\"pytorch\\",\\n',
        )
    )
    import papermill  # two seconds of CPU, also for those who only collect this test

    executed = papermill.execute_notebook(
        str(notebook), str(tmp_path / "out.ipynb"), {"cluster": f"kubernetes://{NAMESPACE}", "limit": 2000,
            "dataset": f"mnist --source {source}"},
        cwd=str(tmp_path), kernel_name="python3", progress_bar=False,
    )  # fmt: skip
    shown = {
        cell.source: "".join(str(output.get("data", {}).get("text/plain")) for output in cell.outputs)
        for cell in executed.cells if cell.cell_type == "code"
    }  # fmt: skip
    assert "Succeeded" in shown["job.wait()"]
    assert len(metric_lines(shown["job.logs()"])) == 2
    assert metric_lines(shown['job.logs("worker-1")']) == []


@pytest.mark.parametrize("mode", ["ReadWriteMany", "ReadWriteOnce"])
def test_the_volume_is_a_claim(reader: Path, cluster: KubernetesCluster, mode: str) -> None:
    claim = reader / "examples/recipes/volume/claim.yaml"
    claim.write_text(re.sub(r"accessModes: \[\w+\]", f"accessModes: [{mode}]", claim.read_text()))
    for job in ("prepare", "train"):
        file = reader / f"examples/recipes/volume/{job}.yaml"
        file.write_text(
            re.sub(r"hostPath:\n +path: (\S+)", r"hostPath: {path: \1}", file.read_text())
        )
    try:
        ran = type_in(reader, block("recipes.md", "claim.yaml"))
        # A job ends with its master; the workers, all seen, may still be running then.
        assert "shared Succeeded: master-0 succeeded" in ran.stderr
        assert re.search(r"master-0 \w+, worker-0 \w+, worker-1 \w+, worker-2 \w+", ran.stderr)
        assert len(metric_lines(ran.stdout)) == 2
    finally:
        for name in ("prepare", "shared"):
            cluster.delete("Job" if name == "prepare" else "PyTorchJob", name)
        core = cluster.api.core
        core.delete_namespaced_persistent_volume_claim("recipes", NAMESPACE)
        by_name = {"field_selector": "metadata.name=recipes"}
        until(  # a claim stays until the pods that had it are gone
            lambda: not core.list_namespaced_persistent_volume_claim(NAMESPACE, **by_name).items,
            120,
        )


def test_a_pipeline_takes_data_and_leaves_models_in_a_bucket(
    server: str, store: str, tmp_path: Path
) -> None:
    bucket = f"{store.removesuffix('podium')}podium-test/{uuid.uuid4().hex[:8]}"
    sizes = {"train": (1, 3000), "validation": (2, 300), "test": (3, 300)}
    write_pictures(
        tmp_path / "drawn", {part: synthetic_part(*size) for part, size in sizes.items()}
    )
    storage = connect(bucket)
    for file in (
        file for file in tmp_path.glob("drawn*/**/*") if file.is_file()
    ):  # the test part lies beside the others
        storage.put(
            f"data/{file.relative_to(tmp_path)}".replace("drawn", "fashion-mnist"),
            file.read_bytes(),
        )
    folder = copy_recipes(tmp_path, {"s3://recipes": bucket}) / "buckets"
    (folder / "podium.yaml").write_text(
        (folder / "podium.yaml").read_text() + "pods: {cpu: 100m, env: {OMP_NUM_THREADS: '1'}}\n"
    )
    type_in(folder, block("recipes.md", "podium submit fashion"))
    assert any(
        entry.key.startswith("podium/models/fashion/versions/")
        for entry in storage.list("podium/models/")
    )


def test_both_launchers_run_on_the_cluster(
    server: str, cluster: KubernetesCluster, tmp_path: Path
) -> None:
    """The examples with an image that has torch and the script, which a ConfigMap brings."""
    if not cluster.api.serves("Experiment"):
        pytest.skip("this cluster has no Experiments: Katib, or deploy/engine")
    script = (ROOT / "examples/spirals.py").read_text()
    core = cluster.api.core
    core.create_namespaced_config_map(
        NAMESPACE, {"metadata": {"name": "spirals"}, "data": {"spirals.py": script}}
    )
    (tmp_path / "examples").mkdir()
    for name in ("launchers.py", "spirals-experiment.yaml", "spirals-pytorchjob.yaml"):
        text = (ROOT / "examples" / name).read_text().replace("python-with-torch", TRAINER)
        text = re.sub(
            r"^( +)containers:",
            r"\1volumes: [{name: code, configMap: {name: spirals}}]\n\1containers:",
            text,
            flags=re.M,
        )
        text = re.sub(
            r"^( +)image: (.*)$",
            r"\1image: \2\n\1volumeMounts: [{name: code, mountPath: /opt/podium/examples}]",
            text,
            flags=re.M,
        )
        (tmp_path / "examples" / name).write_text(text)
    try:
        ran = type_in(tmp_path, block("from-launchers.md", "podium submit launchers"))
        assert re.search(r"SUCCEEDED +launch-pytorchjob", ran.stdout + ran.stderr)
    finally:
        core.delete_namespaced_config_map("spirals", NAMESPACE)
        for kind in ("Experiment", "PyTorchJob"):
            for each in cluster.list(kind):
                if each.name.startswith("spirals"):
                    cluster.delete(kind, each.name)
