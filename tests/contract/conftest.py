"""The storages a contract test runs over."""

from collections.abc import Callable
from pathlib import Path

import pytest

from podium.storage import Storage, connect

KINDS = ("files", "moto", "moto-without-conditions", "racy", "minio")


@pytest.fixture(params=KINDS)
def storage(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    new_bucket: Callable[[str], str],
) -> Storage:
    """An empty storage of each kind: a directory, a bucket, a prefix in a bucket."""
    if request.param == "files":
        return connect(tmp_path / "a store")
    bucket = new_bucket(request.param)
    return connect(
        f"{bucket.replace('s3:', 'minio:')}/team/a" if request.param == "minio" else bucket
    )


@pytest.fixture
def reopen(storage: Storage) -> Callable[[str], Storage]:
    """Connect to another URL on the same server."""
    return connect
