"""Versions in the forms of other programs, opened by those programs."""

import hashlib
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import SHAPES, shapes_model
from onnx import TensorProto, helper

from podium.errors import Damaged, InvalidInput, Untrusted
from podium.files.documents import load_yaml
from podium.models import Model, open_registry
from podium.models.export import export

PICTURES = np.stack([np.zeros((28, 28), np.uint8)] * 2)
PICTURES[0, 13:15, 2:26], PICTURES[1, 2:26, 13:15] = 255, 255
THEIR_WARNINGS = pytest.mark.filterwarnings("default")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """v1, a graph, which is champion; a command; and a graph with odd tensors."""
    monkeypatch.setenv("PODIUM_STORAGE", str(tmp_path / "store"))
    model = open_registry(tmp_path / "store").model("shapes")
    described = json.dumps(SHAPES).encode()
    model.upload(
        {"model.onnx": shapes_model(), "preprocessing.json": described, "report/a.json": b"{}"},
        {"run_id": "v1"},
    )
    model.set_champion("v1", {}, expect=None)
    model.upload(
        {"model.json": b'{"predict": ["python", "predict.py"]}', "predict.py": b""},
        {"run_id": "command"},
    )
    model.upload({"model.onnx": odd_model()}, {"run_id": "odd"})
    return model


def odd_model() -> bytes:
    """A fixed first axis, a text, a number for each item and a scalar, with a name that needs quotes."""
    tensors = [
        ("words", TensorProto.STRING, [3]),
        ('a "b"', TensorProto.INT64, []),
        ("half", TensorProto.FLOAT16, ["n", 4, "m"]),
    ]
    inputs = [helper.make_tensor_value_info(*tensor) for tensor in tensors]
    outputs = [
        helper.make_tensor_value_info(f"{name} out", kind, shape) for name, kind, shape in tensors
    ]
    nodes = [
        helper.make_node("Identity", [given.name], [taken.name])
        for given, taken in zip(inputs, outputs, strict=True)
    ]
    graph = helper.make_graph(nodes, "odd", inputs, outputs)
    opset = [helper.make_opsetid("", 18)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())


def logits(model: Model) -> np.ndarray:
    return model.champion.opened.model.run({"images": PICTURES})["logits"]  # type: ignore[union-attr]


@THEIR_WARNINGS
def test_mlflow_opens_what_was_exported_to_it(
    model: Model, tmp_path: Path, typed: Callable[..., Any]
) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("pandas")
    import mlflow.onnx
    import mlflow.pyfunc

    assert (
        typed("models", "export", "shapes", "--to", "mlflow", "-o", tmp_path / "out").returncode
        == 0
    )
    opened = mlflow.pyfunc.load_model(str(tmp_path / "out"))
    assert np.array_equal(opened.predict({"images": PICTURES})["logits"], logits(model))
    assert opened.metadata.signature.inputs.input_names() == ["images"]
    assert opened.metadata.metadata["podium.version"] == "v1"
    assert mlflow.onnx.load_model(str(tmp_path / "out")).SerializeToString() == shapes_model()


@THEIR_WARNINGS
def test_mlflow_registers_the_champion_once(
    model: Model, tmp_path: Path, typed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    import mlflow.pyfunc

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    for number in (1, 2):
        done = typed(
            "models",
            "export",
            "shapes",
            "--to",
            "mlflow",
            "-o",
            tmp_path / f"out{number}",
            "--tracking",
            uri,
        )
        assert done.returncode == 0, done.stderr
        assert "shapes version 1, alias champion" in done.stderr
    client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
    there = client.get_model_version_by_alias("shapes", "champion")
    assert (str(there.version), there.tags["podium.version"]) == ("1", "v1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    opened = mlflow.pyfunc.load_model("models:/shapes@champion")
    assert np.array_equal(opened.predict({"images": PICTURES})["logits"], logits(model))
    model.upload({"model.onnx": shapes_model()}, {"run_id": "v2"})
    done = typed(
        "models",
        "export",
        "shapes",
        "v2",
        "--to",
        "mlflow",
        "-o",
        tmp_path / "out3",
        "--tracking",
        uri,
    )
    assert "version 2; not champion here" in done.stderr
    assert str(client.get_model_version_by_alias("shapes", "champion").version) == "1"


def test_the_mlflow_directory_needs_no_mlflow(model: Model, tmp_path: Path) -> None:
    export(model.champion, "mlflow", tmp_path / "out")
    (described,) = load_yaml((tmp_path / "out/MLmodel").read_text(), "MLmodel")
    assert described["flavors"]["python_function"]["loader_module"] == "mlflow.onnx"
    (images,) = json.loads(described["signature"]["inputs"])
    assert images == {
        "name": "images",
        "type": "tensor",
        "tensor-spec": {"dtype": "uint8", "shape": [-1, 28, 28]},
    }
    assert (tmp_path / "out/requirements.txt").read_text().startswith("mlflow>=3\nonnx==")
    assert (tmp_path / "out/model.onnx").read_bytes() == shapes_model()


def triton_config(file: Path) -> Any:
    """Parse a config.pbtxt as the server does: by the messages of its protocol."""
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    return text_format.Parse(file.read_text(), model_config_pb2.ModelConfig())


def test_tritons_messages_parse_the_config(model: Model, tmp_path: Path) -> None:
    export(model.champion, "triton", tmp_path / "repository")
    files = sorted(
        path.relative_to(tmp_path / "repository").as_posix()
        for path in (tmp_path / "repository").rglob("*.*")
    )
    assert files == ["MODEL_CARD.md", "shapes/1/model.onnx", "shapes/config.pbtxt"]
    config = triton_config(tmp_path / "repository/shapes/config.pbtxt")
    assert (config.name, config.backend, config.max_batch_size) == ("shapes", "onnxruntime", 1024)
    assert config.HasField("dynamic_batching")
    (images,), (output,) = config.input, config.output
    assert (
        images.name,
        images.DESCRIPTOR.fields_by_name["data_type"]
        .enum_type.values_by_number[images.data_type]
        .name,
    ) == ("images", "TYPE_UINT8")
    assert list(images.dims) == [28, 28]
    assert (output.name, list(output.dims)) == ("logits", [2])


def test_odd_tensors_keep_their_names_types_and_shapes(model: Model, tmp_path: Path) -> None:
    from tritonclient.grpc import model_config_pb2

    export(model.version("odd"), "triton", tmp_path / "repository")
    config = triton_config(tmp_path / "repository/shapes/config.pbtxt")
    assert config.max_batch_size == 0
    kinds = model_config_pb2.DataType
    seen = [
        (given.name, kinds.Name(given.data_type), list(given.dims), given.HasField("reshape"))
        for given in config.input
    ]
    assert seen == [
        ("words", "TYPE_STRING", [3], False),
        ('a "b"', "TYPE_INT64", [1], True),
        ("half", "TYPE_FP16", [-1, 4, -1], False),
    ]
    assert [given.name for given in config.output] == [f"{name} out" for name, *_ in seen]


def test_triton_refuses_maps_in_a_sentence(model: Model, tmp_path: Path) -> None:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    rows = np.random.default_rng(1).normal(size=(20, 2)).astype(np.float32)
    fitted = LogisticRegression().fit(rows, np.arange(20) % 2)
    version = model.upload(
        {"model.onnx": to_onnx(fitted, rows[:1], target_opset=18).SerializeToString()}, {}, "maps"
    )
    with pytest.raises(InvalidInput, match=r"output_probability of seq\(map"):
        export(version, "triton", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["mlflow", "triton"])
def test_a_predict_command_is_no_graph(
    model: Model, tmp_path: Path, typed: Callable[..., Any], form: str
) -> None:
    done = typed("models", "export", "shapes", "command", "--to", form, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert f"shapes command predicts by a command, but {form} takes an ONNX graph" in done.stderr
    assert not (tmp_path / "out").exists()


def blob(layout: Path, descriptor: dict[str, Any], media_type: str) -> bytes:
    """Read a blob and hold it against its descriptor."""
    algorithm, digest = descriptor["digest"].split(":")
    content = (layout / "blobs" / algorithm / digest).read_bytes()
    assert hashlib.sha256(content).hexdigest() == digest
    assert (len(content), media_type) == (descriptor["size"], descriptor["mediaType"])
    return content


@pytest.mark.parametrize("ref", ["v1", "command"])
def test_an_image_follows_the_oci_image_spec(model: Model, tmp_path: Path, ref: str) -> None:
    layout, version = tmp_path / "image", model.version(ref)
    export(version, "oci", layout)
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    kind = "application/vnd.oci.image."
    top = json.loads((layout / "index.json").read_text())
    assert (top["schemaVersion"], top["mediaType"]) == (2, f"{kind}index.v1+json")
    (named,) = top["manifests"]
    assert named["annotations"] == {"org.opencontainers.image.ref.name": ref}
    index = json.loads(blob(layout, named, f"{kind}index.v1+json"))
    layers, used = [], {named["digest"]}
    for described in index["manifests"]:
        manifest = json.loads(blob(layout, described, f"{kind}manifest.v1+json"))
        assert (manifest["schemaVersion"], manifest["mediaType"]) == (2, f"{kind}manifest.v1+json")
        config = json.loads(blob(layout, manifest["config"], f"{kind}config.v1+json"))
        assert {name: config[name] for name in ("architecture", "os")} == described["platform"]
        (layer,) = manifest["layers"]
        assert config["rootfs"] == {
            "type": "layers",
            "diff_ids": [layer["digest"]],
        }  # an uncompressed layer: one digest
        used |= {described["digest"], manifest["config"]["digest"], layer["digest"]}
        layers.append(layer)
    assert layers[0] == layers[1]
    blob(layout, layers[0], f"{kind}layer.v1.tar")
    assert {f"sha256:{path.name}" for path in (layout / "blobs/sha256").iterdir()} == used
    with tarfile.open(layout / "blobs/sha256" / layers[0]["digest"].removeprefix("sha256:")) as tar:
        assert all(
            entry.uid == 0 and entry.mode == (0o755 if entry.isdir() else 0o644) for entry in tar
        )
        tar.extractall(tmp_path / "root", filter="data")
    unpacked = {
        path.relative_to(tmp_path / "root/models").as_posix()
        for path in (tmp_path / "root/models").rglob("*")
        if path.is_file()
    }
    assert unpacked == {*version.files, "metadata.json"}
    assert all(
        (tmp_path / "root/models" / file).read_bytes() == version.read(file)
        for file in version.files
    )


def test_the_same_version_makes_the_same_image(model: Model, tmp_path: Path) -> None:
    for name in ("one", "two"):
        export(model.champion, "oci", tmp_path / name)
    assert (tmp_path / "one/index.json").read_bytes() == (tmp_path / "two/index.json").read_bytes()


@pytest.mark.parametrize("form", ["mlflow", "triton", "oci"])
def test_a_damaged_or_unsigned_version_is_not_exported(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(InvalidInput, match="not an empty directory"):
        export(model.champion, form, tmp_path / "full")
    key = tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True
    )
    subprocess.run(
        ["openssl", "ec", "-in", key, "-pubout", "-out", tmp_path / "pub.pem"],
        check=True,
        capture_output=True,
    )
    monkeypatch.setenv("PODIUM_PUBLIC_KEY", str(tmp_path / "pub.pem"))
    with pytest.raises(Untrusted, match="shapes v1 is not signed"):
        export(model.champion, form, tmp_path / "out")
    monkeypatch.delenv("PODIUM_PUBLIC_KEY")
    (tmp_path / "store/models/shapes/versions/v1/model.onnx").write_bytes(odd_model())
    with pytest.raises(Damaged):
        export(model.champion, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["champion"], "needs one directory"),
        (["champion", "a", "-o", "b"], "needs one directory"),
        (["-o", "b", "--tracking", "http://127.0.0.1:5000"], "registers a model of MLflow"),
    ],
)
def test_export_says_what_is_missing(
    model: Model, typed: Callable[..., Any], words: list[str], said: str
) -> None:
    done = typed("models", "export", "shapes", *words)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["champion"], "podium models export shapes champion -o DIRECTORY"),
        (["my out"], "podium models export shapes -o 'my out'"),
        (["my out", "--to", "oci"], "podium models export shapes -o 'my out' --to oci"),
    ],
)
def test_export_takes_a_lone_directory_for_one(
    model: Model, tmp_path: Path, typed: Callable[..., Any], words: list[str], hint: str
) -> None:
    assert f"hint: {hint}\n" in typed("models", "export", "shapes", *words).stderr
    elsewhere = (tmp_path / "store").rename(tmp_path / "my models")
    said = typed("models", "export", "shapes", *words, "--storage", elsewhere).stderr
    assert f"hint: {hint} --storage '{elsewhere}'\n" in said


def test_export_without_a_form_writes_the_files(
    model: Model, tmp_path: Path, typed: Callable[..., Any]
) -> None:
    assert (
        typed("models", "export", "shapes", "champion", tmp_path / "old").stdout
        == f"{tmp_path / 'old'}\n"
    )
    assert typed("models", "export", "shapes", "-o", tmp_path / "new").returncode == 0
    names = [
        sorted(path.name for path in (tmp_path / place).rglob("*.*")) for place in ("old", "new")
    ]
    assert (
        names
        == [["MODEL_CARD.md", "a.json", "metadata.json", "model.onnx", "preprocessing.json"]] * 2
    )
