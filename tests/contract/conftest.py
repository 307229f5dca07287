"""The storages a contract test runs over."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
import servers

from podium.storage import Storage, connect

KINDS = ("files", "moto", "moto-without-conditions", "minio")


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Give the URL of a server of a kind; started at its first use, stopped at the end."""
    running: dict[str, str] = {}
    start: dict[str, Callable[[], AbstractContextManager[str]]] = {
        "moto": servers.moto,
        "moto-without-conditions": lambda: servers.moto(conditions=False),
        "minio": lambda: servers.minio(tmp_path_factory.mktemp("minio")),
    }
    with ExitStack() as stack:

        def get(kind: str) -> str:
            if kind == "minio" and not servers.minio_program():
                pytest.skip("no MinIO server here: `make minio` builds one where Go is present")
            if kind not in running:
                running[kind] = stack.enter_context(start[kind]())
            return running[kind]

        yield get


@pytest.fixture(params=KINDS)
def storage(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    endpoint: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Storage:
    """An empty storage of each kind: a directory, a bucket, a prefix in a bucket."""
    if request.param == "files":
        return connect(tmp_path / "a store")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint(request.param))
    for name, value in servers.KEYS.items():
        monkeypatch.setenv(name, value)
    bucket = f"podium-{uuid.uuid4().hex}"
    return connect(f"minio://{bucket}/team/a" if request.param == "minio" else f"s3://{bucket}", create=True)


@pytest.fixture
def reopen(storage: Storage) -> Callable[[str], Storage]:
    """Connect to another URL on the same server."""
    return connect
