"""Copies by an S3 server that checks no conditions on their source, as moto's does not, and large uploads."""

from collections.abc import Iterable
from typing import Any

import pytest
from minio.helpers import get_part_info
from s3servers import KEYS, Application, moto

from podium.storage import connect
from podium.storage.base import SourceChanged
from podium.storage.s3.storage import MOST_PARTS, _part_of

LARGE = b"a" * (9 << 20)


def test_a_source_that_changes_during_the_copy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def changing(application: Application) -> Application:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if "HTTP_X_AMZ_COPY_SOURCE" in environ:
                other.put("source", b"b" + LARGE)
            return application(environ, start_response)

        return call

    with moto(around=changing, threads=True) as url:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        storage, other = (
            connect("s3://podium-changing", create=True),
            connect("s3://podium-changing"),
        )
        entry = storage.put("source", LARGE)
        with pytest.raises(SourceChanged, match="source changed"):
            storage.copy("key", storage, "source", if_absent=True, source_etag=entry.etag)
        assert storage.head("key") is None
        assert [item.key for item in storage.list()] == ["source"]


@pytest.mark.parametrize("size", [1 << 20, 100 << 30, 5 << 40])
def test_objects_up_to_the_largest_of_s3_fit_into_parts(size: int) -> None:
    assert get_part_info(size, _part_of(size))[1] <= MOST_PARTS
