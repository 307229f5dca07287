"""The rules of docs/architecture.md, held against the code."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "components": "components",
    "experiments": "experiments",
    "pipelines": "pipelines",
    "trainer": "trainer",
}
HEAVY = {
    "torch",
    "torchvision",
    "kfp",
    "kubernetes",
    "kubeflow",
    "minio",
    "optuna",
    "onnx",
    "onnxruntime",
    "scipy",
}

BASE = {"errors", "display", "files", "system", "__version__"}
"""What every room may import; they import each other only."""

ALLOWED: dict[str, set[str]] = {
    "cli": {
        "api", "cluster", "data", "doctor", "kfp", "manifests", "models", "prediction", "runner",
        "metrics", "search", "serving", "storage", "sweeps", "scoring", "trainer", "training", "ui", "mcp",
    },
    "mcp": {"api", "manifests", "models", "runner"},
    "ui": {
        "api", "cluster", "kfp", "manifests", "models", "prediction", "reports", "runner", "search", "serving", "training",
    },
    "api": {
        "cluster", "code", "data", "doctor", "manifests", "metrics", "models", "prediction", "reports",
        "search", "trainer", "training", "storage", "sweeps",
    },
    "runner": {
        "api", "cluster", "code", "data", "kfp", "manifests", "models", "prediction", "reports", "storage", "trainer",
        "training",
    },
    "kfp": {
        "cluster", "code", "manifests", "pipelines", "models", "scoring", "training",
    },
    "pipelines": {"components"},
    "components": {"steps"},
    "steps": {
        "cluster", "code", "data", "doctor", "manifests", "models", "prediction", "reports", "scoring",
        "storage", "sweeps", "training",
    },
    "training": {
        "cluster", "code", "data", "manifests", "metrics", "models", "prediction", "scoring", "storage",
    },
    "code": {"data", "metrics", "scoring", "storage"},
    "doctor": {"cluster", "manifests", "metrics"},
    "sweeps": {"cluster", "manifests", "metrics", "search", "storage"},
    "cluster": {"manifests"},
    "manifests": {"metrics", "search", "trainer"},
    "search": set(),
    "models": {"data", "metrics", "prediction", "scoring", "storage"},
    "prediction": {"data", "scoring", "storage"},
    "projects": set(),
    "serving": {"data", "models", "prediction", "scoring"},
    "reports": set(),
    "trainer": {"data", "metrics", "scoring", "storage"},
    "data": {"storage"},
    "scoring": set(),
    "storage": set(),
    "metrics": set(),
    "experiments": set(),
}  # fmt: skip
"""Which rooms each room may import, besides itself and BASE."""

RAW_FIELDS = {
    "apiVersion", "metadata", "spec", "status", "conditions", "labels", "annotations", "ownerReferences", "template",
    "containers", "initContainers", "volumeMounts", "trialTemplate", "trialSpec", "runSpec", "pytorchReplicaSpecs",
    "tfReplicaSpecs", "xgbReplicaSpecs", "jaxReplicaSpecs", "mpiReplicaSpecs",
    "runPolicy",
}  # fmt: skip
"""Fields of a manifest that the typed objects of podium.manifests read."""

WIRE = {
    "cluster/kubernetes/api.py", "cluster/local/store.py", "runner/steps.py",
}  # fmt: skip
"""Where manifests are JSON: the API server's answers, and the files of the local cluster; and where KFP's artifacts
are, which have metadata of their own."""

LABELS = re.compile(r"[\w.-]*(?:kubeflow\.org|podium\.dev|x-k8s\.io|istio\.io)/[\w-]+")


def sources() -> Iterator[tuple[str, Path]]:
    """Yield (room, file): the room is the first name below podium."""
    for folder in FOLDERS:
        yield from ((folder, file) for file in (ROOT / folder).rglob("*.py"))
    for file in (ROOT / "src" / "podium").rglob("*.py"):
        yield file.relative_to(ROOT / "src" / "podium").with_suffix("").parts[0], file


@functools.cache
def nodes(file: Path) -> list[ast.AST]:
    """Return the syntax tree of a file, flat."""
    return list(ast.walk(ast.parse(file.read_text())))


def imported_modules(file: Path) -> set[str]:
    names: set[str] = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {
                f"{node.module}.{alias.name}" if node.module == "podium" else node.module
                for alias in node.names
            }
    return names


def imported_rooms(file: Path) -> set[str]:
    return {name.split(".")[1] for name in imported_modules(file) if name.startswith("podium.")}


def test_every_package_there_is_gets_installed() -> None:
    from setuptools import find_packages

    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]["find"]
    assert options == {"where": ["src"], "namespaces": False}
    found = {
        ".".join(file.parent.relative_to(ROOT / "src").parts)
        for file in (ROOT / "src").rglob("__init__.py")
    }
    for folder in FOLDERS:
        found |= {
            ".".join(["podium", *file.parent.relative_to(ROOT).parts])
            for file in (ROOT / folder).rglob("__init__.py")
        }
    assert set(find_packages(str(ROOT / "src"))) == found


def test_imports_go_one_way() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {room} imports podium.{other}"
        for room, file in sources()
        for other in imported_rooms(file)
        if other
        not in (
            BASE if room in BASE else ALLOWED.get(room, set(ALLOWED)) | {room} | BASE
        )  # podium itself exports from any room
    ]
    assert not wrong, "\n".join(wrong)


def test_every_room_is_known_and_no_rooms_form_a_circle() -> None:
    assert {room for room, _ in sources()} <= {*ALLOWED, *BASE, "__init__", "__main__"}
    left = {room: set(others) for room, others in ALLOWED.items()}
    while left:
        lowest = {room for room, others in left.items() if not others & set(left)}
        assert lowest, f"a circle among {sorted(left)}"
        left = {room: others for room, others in left.items() if room not in lowest}


def modules() -> dict[str, Path]:
    """Return each file by the name it is imported by."""
    roots = {"podium": ROOT / "src" / "podium"}
    roots |= {f"podium.{room}": ROOT / folder for folder, room in FOLDERS.items()}
    return {
        ".".join([package, *file.relative_to(root).with_suffix("").parts]).removesuffix(
            ".__init__"
        ): file
        for package, root in roots.items()
        for file in root.rglob("*.py")
    }


def needed_names(file: Path, *, at_once: bool = False) -> set[str]:
    """Return the modules, and perhaps names in them, that a file imports when it runs.

    Args:
        at_once: Only what it imports as it is imported itself.
    """
    names: set[str] = set()
    for node in statements(nodes(file)[0], at_once=at_once):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def statements(node: ast.AST, *, at_once: bool) -> Iterator[ast.AST]:
    """Yield the statements below a node that run, those of functions unless at once."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) or (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        ):
            continue
        if not (at_once and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield child
            yield from statements(child, at_once=at_once)


def test_no_files_import_each_other_in_a_circle() -> None:
    files = modules()
    needs = {name: needed_names(file) & files.keys() - {name} for name, file in files.items()}
    TopologicalSorter(needs).prepare()  # raises CycleError, which names the files


def packages_of(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def test_any_file_can_be_the_first_to_be_imported() -> None:
    files = modules()
    needs: dict[str, set[str]] = {}
    for name, file in files.items():
        imported = needed_names(file, at_once=True) & files.keys()
        run = imported.union(*map(packages_of, imported))  # with each file, those of its packages
        needs[name] = run - packages_of(name) - {name}
    TopologicalSorter(needs).prepare()


@pytest.mark.parametrize("step", ["evaluate", "upload_model", "promote"])
def test_a_step_that_judges_reaches_no_cluster(step: str) -> None:
    files = modules()
    reached, left = set[str](), [f"podium.steps.{step}"]
    while left:
        if (name := left.pop()) not in reached:
            reached.add(name)
            left += needed_names(files[name]) & files.keys() - {"podium"}
    rooms = {name.split(".")[1] for name in reached}
    assert not rooms & {"cluster", "sweeps", "search", "doctor", "trainer"}
    assert {name for name in reached if name.startswith("podium.manifests")} <= {
        "podium.manifests.labels"
    }


def test_labels_of_kubernetes_are_written_in_one_place() -> None:
    wrong = []
    for _, file in sources():
        if file.name == "labels.py" or (
            "manifests" in file.parts and file.name in ("admission.py", "schema.py")
        ):
            continue
        for node in nodes(file):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and LABELS.fullmatch(node.value)
            ):
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}: {node.value}")
    versions = {"kubeflow.org/v1", "kubeflow.org/v1beta1", "kubeflow.org/training-operator"}
    wrong = [line for line in wrong if line.rpartition(" ")[2] not in versions]
    assert not wrong, "\n".join(wrong)


def raw_field(node: ast.AST) -> str | None:
    """Return the field of a manifest that an expression reads or writes by name."""
    if isinstance(node, ast.Subscript):
        key: ast.expr = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        key = node.args[0] if node.func.attr in ("get", "pop", "setdefault") else node
    else:
        return None
    return str(key.value) if isinstance(key, ast.Constant) and key.value in RAW_FIELDS else None


def test_manifests_are_read_as_typed_objects() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {raw_field(node)}"
        for room, file in sources()
        if room != "manifests" and not file.as_posix().endswith(tuple(WIRE))
        for node in nodes(file)
        if isinstance(node, ast.expr) and raw_field(node)
    ]
    assert not wrong, "\n".join(["read them through podium.manifests", *wrong])


def test_no_two_test_files_have_one_name() -> None:
    names = [path.name for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    assert (
        sorted({name for name in names if names.count(name) > 1}) == []
    )  # pytest collects only one of them


def test_names_of_tests_have_at_most_ten_words() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"(?m)^ *def test_(\w+)", file.read_text())
        if len(name.split("_")) > 10
    ]
    assert not wrong, "\n".join(wrong)


def test_help_loads_nothing_heavy() -> None:
    script = """if True:
        import sys
        from podium.cli import app
        try:
            app(["--help"])
        finally:
            print(*sys.modules, file=sys.stderr)
    """
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.split(".")[0] for name in result.stderr.split()}
    assert "Usage:" in result.stdout
    assert not loaded & (HEAVY | {"numpy", "rich", "plotly", "jinja2", "yaml"})


def check_pins(text: str) -> None:
    pins = text.replace(" \\\n    ", " ").splitlines()
    assert len(pins) > 30
    for pin in pins:
        assert re.match(
            r"^[\w.-]+(\[[\w,-]+\])?==[\w.+!]+( ; [^-]+)?( --hash=sha256:[0-9a-f]{64})+$", pin
        ), pin


def test_pins_are_exact_have_hashes_and_name_no_index() -> None:
    for file in (ROOT / "requirements/pins.txt", ROOT / "scripts/sbom/requirements-sbom.txt"):
        check_pins(file.read_text())


@pytest.mark.parametrize("subset", ["trainer", "steps", "serve"])
def test_an_image_has_a_subset_of_the_pins(subset: str) -> None:
    command = [sys.executable, ROOT / "scripts/pins", subset]
    check_pins(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f"scripts/pins {subset} >/tmp/pins.txt" in dockerfile
    assert f"pip install -c {subset}.txt $EXTRAS" in dockerfile, (
        "further packages keep the image's pins"
    )
    pins = [
        Requirement(line) for line in (ROOT / f"requirements/{subset}.txt").read_text().splitlines()
    ]
    assert (
        len(
            [
                pin
                for pin in pins
                if pin.name == "numpy" and (not pin.marker or pin.marker.evaluate())
            ]
        )
        == 1
    )


def test_yaml_is_loaded_in_one_module() -> None:
    loads = re.compile(r"\byaml\.(\w*load\w*|parse|scan|compose\w*|\w*Loader)\b|from yaml\b")
    wrong = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for _, file in sources()
        if file.stem != "yaml_loader"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if loads.search(line)
    ]
    assert not wrong, "\n".join(["use podium.files.documents.load_yaml", *wrong])


MOST_METHODS, MOST_LINES = 15, 60

LONG_FUNCTIONS = {
    "page": "a table of figures for Prometheus",
    "_container": "a manifest",
}
"""Functions of more than MOST_LINES lines below the docstring, with the reason."""


LARGE_CLASSES = {
    **dict.fromkeys(["Run", "Sweep", "Model"], "a noun: everything a person does with it"),
    **dict.fromkeys(["Experiment", "Trial", "Workload"], "fields of one manifest"),
    "JobEditor": "every change finds the pod templates of a kind",
    **dict.fromkeys(["Cluster", "KubernetesCluster", "LocalCluster"], "verbs of a cluster"),
    **dict.fromkeys(["NamespaceSweeps", "_Loops"], "verbs of a cluster, by kind of object"),
    "PoolStore": "both sides of one layout",
    "Api": "requests that share patience and budget",
}
"""Classes of more than MOST_METHODS public methods, with the reason."""


def test_a_class_of_many_methods_has_a_reason() -> None:
    large = {
        node.name
        for _, file in sources()
        for node in nodes(file)
        if isinstance(node, ast.ClassDef)
        and sum(
            isinstance(part, ast.FunctionDef) and not part.name.startswith("_")
            for part in node.body
        )
        > MOST_METHODS
    }
    assert large == LARGE_CLASSES.keys()


def lines_of(function: ast.FunctionDef) -> int:
    """Count the lines below a function's docstring."""
    first = function.body[1 if ast.get_docstring(function) and len(function.body) > 1 else 0]
    return (function.end_lineno or 0) - first.lineno + 1


def test_no_docstring_begins_with_what_of_or_how() -> None:
    documented = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    wrong = [
        f"{file.name}: {text.splitlines()[0]}"
        for _, file in sources()
        for node in nodes(file)
        if isinstance(node, documented)
        and re.match(r"(What|Of|How|Whoever) ", text := ast.get_docstring(node) or "")
    ]
    assert wrong == []


def test_long_functions_are_those_with_a_reason() -> None:
    long = {
        node.name
        for _, file in sources()
        for node in nodes(file)
        if isinstance(node, ast.FunctionDef) and lines_of(node) > MOST_LINES
    }
    assert long == LONG_FUNCTIONS.keys()
