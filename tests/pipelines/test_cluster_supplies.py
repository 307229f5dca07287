"""Secrets, volumes and other things of a cluster that a pipeline asks for: served or refused."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from test_control_flow import run
from test_own_pipelines import written
from test_podium_run import podium

import podium as podium_api
from podium.errors import InvalidInput
from podium.kfp.compiling import compile_pipeline
from podium.kfp.definition import Definition

pytestmark = pytest.mark.whole

ASKING = dedent("""\
    from kfp import dsl, kubernetes

    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def show():
        import os
        print(os.environ["TOKEN"], os.environ["LR"], os.environ["NAME"], os.environ["TEAM"])
        print(open("/data/rows.csv").read(), os.listdir("/etc/settings"), os.environ.get("NO"))

    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def keep():
        open("/scratch/kept", "w").write("kept")

    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def read() -> str:
        return open("/scratch/kept").read()

    @dsl.pipeline
    def asking(secret: str = "hf") -> str:
        task = show()
        kubernetes.use_secret_as_env(task, secret, {"token": "TOKEN"})
        kubernetes.use_secret_as_env(task, "absent", {"no": "NO"}, optional=True)
        kubernetes.use_config_map_as_env(task, "settings", {"lr": "LR"})
        kubernetes.use_config_map_as_volume(task, "settings", "/etc/settings")
        kubernetes.use_field_path_as_env(task, "NAME", "metadata.name")
        kubernetes.add_pod_label(task, "team", "vision")
        kubernetes.use_field_path_as_env(task, "TEAM", "metadata.labels['team']")
        kubernetes.mount_pvc(task, "rows", "/data")
        kubernetes.add_node_selector(task, "disk", "ssd")
        claim = kubernetes.CreatePVC(
            pvc_name_suffix="-work", access_modes=["ReadWriteOnce"], size="1Gi", storage_class_name="")
        first = keep()
        kubernetes.mount_pvc(first, claim.outputs["name"], "/scratch")
        second = read().after(first)
        kubernetes.mount_pvc(second, claim.outputs["name"], "/scratch")
        kubernetes.DeletePVC(pvc_name=claim.outputs["name"]).after(second)
        return second.output
    """)


TWO_ASK = dedent("""\
    from kfp import dsl, kubernetes

    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def show():
        pass

    @dsl.pipeline
    def asking():
        kubernetes.use_secret_as_env(show(), "hf", {"token": "TOKEN"})
        kubernetes.mount_pvc(show(), "rows", "/data")
        with dsl.ParallelFor(["one", "two"]) as name:
            with dsl.If(name != "three"):
                kubernetes.use_secret_as_env(show(), name, {"token": "TOKEN"})
    """)


def places(folder: Path) -> list[str]:
    """Return the options that serve the pipeline."""
    (folder / "keys.env").write_text("token=hush\n")
    for name, key, text in (("settings", "lr", "0.5"), ("rows", "rows.csv", "1,2")):
        (folder / name).mkdir()
        (folder / name / key).write_text(text)
    return [
        *("--secret", f"hf={folder}/keys.env", "--config-map", f"settings={folder}/settings"),
        *("--volume", f"rows={folder}/rows"),
    ]


def test_places_are_named_in_python_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    file = written(tmp_path, TWO_ASK.replace('["one", "two"]', '["hf"]'))
    (tmp_path / "keys.env").write_text("token=hush\n")
    secrets = {"hf": "keys.env"}
    with pytest.raises(InvalidInput, match="no 'secrets' has a place on this machine"):
        podium_api.run(file, places={"secrets": secrets})
    with pytest.raises(InvalidInput, match="'rows'"):
        podium_api.run(file, places={"secret": secrets})
    run = podium_api.run(file, places={"secret": secrets, "volume": {"rows": tmp_path}})
    assert run.state == "succeeded"
    assert run.record.places["secret"] == {"hf": str(tmp_path / "keys.env")}, "for a resume"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a=b"], "places: must be a dict with names, but got list"),
        ({"secret": "hush"}, "secret: must be a dict with names, but got str"),
        ({"secret": None}, "secret: must be a dict with names, but got NoneType"),
        ({"secret": {7: "keys.env"}}, "secret: must be a dict with names, but got dict"),
        ({"volume": {"a": 7}}, "volume a: must be a path, but got int"),
    ],
)
def test_places_of_another_shape_are_refused_in_words(
    given: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    file = written(tmp_path, TWO_ASK)
    with pytest.raises(InvalidInput) as refused:
        podium_api.run(file, places=given)
    assert refused.value.message == said
    assert refused.value.hint
    assert not (tmp_path / "home").exists()


def test_secrets_and_volumes_come_from_named_places(tmp_path: Path) -> None:
    outcome, record = run(tmp_path, ASKING, *places(tmp_path))
    assert outcome["outputs"] == {"Output": "kept"}
    assert record.log("show").read_text() == "hush 0.5 show vision\n1,2 ['lr'] None\n"
    assert "hush" not in (record.directory / "run.json").read_text()
    (gone,) = (record.directory / "volumes").iterdir()
    assert "-work.deleted-" in gone.name


@pytest.mark.parametrize(
    ("left_out", "sentence", "hint"),
    [
        (
            0,
            "step show, use_secret_as_env: there is no secret 'hf' on this machine",
            "--secret hf=",
        ),
        (2, "step show, use_config_map_as_env: there is no config map 'settings'", "--config-map"),
        (4, "step show, mount_pvc: there is no volume 'rows' on this machine", "--volume rows=DIR"),
    ],
)
def test_a_missing_place_is_named_before_the_first_step(
    tmp_path: Path, left_out: int, sentence: str, hint: str
) -> None:
    given = places(tmp_path)
    del given[left_out : left_out + 2]
    done = podium(tmp_path / "home", written(tmp_path, ASKING), *given)
    assert done.returncode == 2
    assert f"error: {sentence}" in done.stderr
    assert f"hint: {hint}" in done.stderr
    assert not (tmp_path / "home").exists()


def test_every_place_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    done = podium(tmp_path / "home", written(tmp_path, TWO_ASK))
    (hint,) = [line for line in done.stderr.splitlines() if line.startswith("hint: ")]
    named = [part.partition("=")[0] for part in hint.removeprefix("hint: ").split("; ")]
    assert sorted(named) == ["--secret hf", "--secret one", "--secret two", "--volume rows"]


def test_a_mount_that_no_code_names_is_logged(tmp_path: Path) -> None:
    (tmp_path / "keys.env").write_text("token=hush\n")
    keys = f"{tmp_path}/keys.env"
    secrets = [word for name in ("hf", "one", "two") for word in ("--secret", f"{name}={keys}")]
    file = written(tmp_path, TWO_ASK)
    done = podium(tmp_path / "home", file, *secrets, "--volume", f"rows={tmp_path}")
    assert done.returncode == 0, done.stderr
    logs = [file.read_text() for file in tmp_path.glob("home/runs/*/logs/show*.log")]
    assert "nothing is mounted at /data: its code does not name that path\n" in logs


def test_a_compiled_file_runs_with_its_platform_settings(tmp_path: Path) -> None:
    asking = Definition.load(written(tmp_path, ASKING))
    documents = [asking.spec, asking.platform]
    (tmp_path / "asking.yaml").write_text(yaml.safe_dump_all(documents))
    file, given = str(tmp_path / "asking.yaml"), places(tmp_path)
    refused = podium(tmp_path / "home", file, "secret=other", *given)
    assert "there is no secret 'other'" in refused.stderr
    done = podium(tmp_path / "home", file, *given)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_served_is_refused_by_name(tmp_path: Path) -> None:
    asking = Definition.load(written(tmp_path, ASKING))
    executor = asking.platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"][
        "exec-show"
    ]
    executor["initContainers"] = [{"image": "busybox"}]
    text = yaml.safe_dump_all([asking.spec, asking.platform])
    (tmp_path / "asking.yaml").write_text(text)
    done = podium(tmp_path / "home", str(tmp_path / "asking.yaml"), *places(tmp_path))
    assert "step show: this machine cannot serve the setting initContainers" in done.stderr


OF_VERTEX = """\
pipelineSpec:
  schemaVersion: 2.0.0
  sdkVersion: kfp-1.8.22
  pipelineInfo: {name: old}
  root: {inputDefinitions: {parameters: {rows: {type: STRING}}}, dag: {tasks: {}}}
"""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\n", "was compiled by KFP 1"),
        (OF_VERTEX, "was compiled by kfp-1.8.22, in a schema that KFP 2 does not read"),
    ],
)
def test_a_file_of_kfp_1_is_named_as_such(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "old.yaml").write_text(text)
    done = podium(tmp_path / "home", str(tmp_path / "old.yaml"))
    assert f"old.yaml {named}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("pipelineInfo: {}\nroot: {dag: {tasks: {}}}\n", "name"),
        ("pipelineInfo: {name: p}\nroot: {dag: {}}\n", "tasks"),
        (
            "pipelineInfo: {name: p}\n"
            "root: {dag: {tasks: {a: {componentRef: {name: comp-a}}}}}\n"
            "components: {comp-a: {executorLabel: exec-a}}\n",
            "exec-a",
        ),
    ],
)
def test_compiled_yaml_that_lacks_a_part_is_refused(
    tmp_path: Path, text: str, missing: str
) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(InvalidInput, match=f"p.yaml is not a whole pipeline: '{missing}'"):
        Definition.load(str(tmp_path / "p.yaml"))


def test_compiled_yaml_is_not_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("pipelineInfo: {name: p}\nroot: {dag: {tasks: {}}}\n")
    with pytest.raises(InvalidInput, match="is compiled already"):
        compile_pipeline(str(tmp_path / "p.yaml"))


@pytest.mark.parametrize(
    "line",
    [
        "dsl.ContainerOp(name='a')",
        "from kfp.components import func_to_container_op",
        "from kfp import onprem",
    ],
)
def test_source_for_kfp_1_is_named_as_such(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidInput, match="is of KFP 1, and this kfp is version 2"):
        Definition.load(written(tmp_path, f"from kfp import dsl\n{line}\n"))
