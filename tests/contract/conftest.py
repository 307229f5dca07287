"""The storages a contract test runs over."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import s3servers

from podium.storage import Storage, connect

KINDS = ("files", "moto", "moto-without-conditions", "minio")


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
    for name, value in s3servers.KEYS.items():
        monkeypatch.setenv(name, value)
    bucket = f"podium-{uuid.uuid4().hex}"
    return connect(f"minio://{bucket}/team/a" if request.param == "minio" else f"s3://{bucket}", create=True)


@pytest.fixture
def reopen(storage: Storage) -> Callable[[str], Storage]:
    """Connect to another URL on the same server."""
    return connect
