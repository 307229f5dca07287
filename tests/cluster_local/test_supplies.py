"""Secrets, ConfigMaps and volumes that a command names places for."""

from pathlib import Path

import pytest

from podium.cluster.local.supplies import Image, Supplies
from podium.errors import InvalidInput
from podium.sweeps import connect

MANIFEST = """\
apiVersion: v1
kind: Secret
metadata: {name: keys}
data: {token: aHVzaA==}
stringData: {user: me}
"""


@pytest.mark.parametrize(
    ("name", "text", "keys"),
    [
        ("keys.yaml", MANIFEST, {"token": "hush", "user": "me"}),
        ("folded.yaml", "kind: Secret\ndata:\n  token: |\n    aHV\n    zaA==\n", {"token": "hush"}),
        ("keys.env", "# mine\nexport token='hush'\nuser=a=b\n", {"token": "hush", "user": "a=b"}),
        ("config.yaml", "lr: 1\n", {"config.yaml": "lr: 1\n"}),
        ("keys.env", "a=it's'\n  # mine\nb=\"'c'\"\n", {"a": "it's'", "b": "'c'"}),
        ("token", "aHVzaA==\n", {"token": "aHVzaA==\n"}),
        ("empty.env", "HF_TOKEN=\n", {"HF_TOKEN": ""}),
        ("quoted.env", "K=''\nL=\n", {"K": "", "L": ""}),
    ],
)
def test_a_secret_is_read_from_a_file(
    tmp_path: Path, name: str, text: str, keys: dict[str, str]
) -> None:
    (tmp_path / name).write_text(text)
    supplies = Supplies(secret={"s": str(tmp_path / name)}).checked()
    assert supplies.values("secret", "s", field="x") == keys
    folder = supplies.folder("secret", "s", tmp_path / "mounted", field="x")
    assert {file.name: file.read_text() for file in folder.iterdir()} == keys
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in folder.iterdir())


def test_a_config_map_is_read_from_a_directory(tmp_path: Path) -> None:
    (tmp_path / "lr").write_text("0.5")
    supplies = Supplies(config_map={"c": str(tmp_path)}).checked()
    assert supplies.value("config_map", "c", "lr", field="x") == "0.5"
    assert supplies.folder("config_map", "c", tmp_path / "no", field="x") == tmp_path
    with pytest.raises(InvalidInput, match="has no key 'lt': it has lr"):
        supplies.value("config_map", "c", "lt", field="x")
    assert supplies.value("config_map", "c", "lt", field="x", optional=True) is None


def test_a_secret_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hush")
    supplies = Supplies(secret={"s": "env"}).checked()
    assert supplies.value("secret", "s", "token", field="x", variable="HF_TOKEN") == "hush"
    assert supplies.value("secret", "s", "HF_TOKEN", field="x") == "hush"


def test_what_no_option_names_is_refused_with_the_option() -> None:
    with pytest.raises(InvalidInput, match=r"^env\[0\]: there is no secret 's'") as caught:
        Supplies().value("secret", "s", "key", field="env[0]")
    assert caught.value.hint == "--secret s=FILE, a directory, or env"
    assert Supplies().values("secret", "s", field="x", optional=True) == {}
    with pytest.raises(InvalidInput, match="no volume 'data'") as caught:
        Supplies().directory("data", "volumes[0]")
    assert caught.value.hint == "--volume data=DIR"


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        Supplies(secret={"s": str(tmp_path / "none")}).checked()
    with pytest.raises(InvalidInput, match="is not a directory"):
        Supplies(volume={"v": str(tmp_path / "none")}).checked()
    (tmp_path / "bad.yaml").write_text("kind: Secret\ndata: {a: '%'}\n")
    with pytest.raises(InvalidInput, match=r"data\.a is not base64"):
        Supplies(secret={"s": str(tmp_path / "bad.yaml")}).checked()


def test_a_cluster_has_supplies_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"kubernetes://team has .* of its own, not --volume v"):
        connect("kubernetes://team", supplies=Supplies(volume={"v": str(tmp_path)}))


PROJECT = """
[project]
name = "acme"
scripts = {acme-train = "acme.cli:main"}
"""


@pytest.mark.parametrize(
    ("argv", "appears"),
    [
        (["python", "-m", "acme.train"], True),
        (["/venv/bin/acme-train", "--lr=0.1"], True),
        (["sh", "-c", "make train LR=0.1"], True),
        (["python", "-m", "other"], False),
        (["acme"], False),
        (["python", "-c", f"#{'a' * 300}"], False),
    ],
)
def test_a_command_of_the_project_sees_its_files(
    tmp_path: Path, argv: list[str], appears: bool
) -> None:
    (tmp_path / "src/acme").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "Makefile").touch()
    image = Image(name="any", root=None, workdir=tmp_path)
    image.furnish(tmp_path / "trial", argv)
    assert (tmp_path / "trial/src").is_symlink() is appears


def test_a_damaged_pyproject_names_no_command(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project")
    assert not Image(name="any", root=None, workdir=tmp_path).is_named(["acme-train"])
