"""The lock for servers that ignore conditions, on a bucket that is a dictionary."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from podium.errors import PodiumError
from podium.storage.s3 import lock as s3lock


class Bucket:
    """Objects and when they were written, by a clock of its own."""

    def __init__(self, ahead: timedelta = timedelta(0)) -> None:
        self.written: dict[str, datetime] = {}
        self.ahead = ahead

    def put(self, key: str, content: bytes) -> None:
        self.written[key] = datetime.now(UTC) + self.ahead

    def listed(self, prefix: str) -> dict[str, datetime]:
        return {key: time for key, time in self.written.copy().items() if key.startswith(prefix)}

    def delete(self, key: str) -> None:
        self.written.pop(key, None)


def test_only_one_holds_the_lock_at_a_time() -> None:
    bucket, inside, most = Bucket(), [0], [0]

    def work() -> None:
        for _ in range(3):
            with s3lock.locked("key", bucket.put, bucket.listed, bucket.delete):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.002)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert bucket.written == {}


def test_two_keys_do_not_wait_for_each_other() -> None:
    bucket = Bucket()
    with (
        s3lock.locked("one", bucket.put, bucket.listed, bucket.delete),
        s3lock.locked("two", bucket.put, bucket.listed, bucket.delete),
    ):
        assert len(bucket.written) == 2


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=3), timedelta(hours=-3)])
def test_the_lock_of_a_dead_writer_is_taken_over(
    monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    monkeypatch.setattr(s3lock, "LEASE", 0.4)
    bucket = Bucket(ahead)
    with pytest.raises(KeyboardInterrupt):
        _die_holding(bucket)
    assert len(bucket.written) == 1
    begun = time.monotonic()
    with s3lock.locked("key", bucket.put, bucket.listed, bucket.delete):
        assert 0.3 < time.monotonic() - begun < 10
    assert bucket.written == {}


def _die_holding(bucket: Bucket) -> None:
    def no_delete(key: str) -> None:
        raise KeyboardInterrupt

    with s3lock.locked("key", bucket.put, bucket.listed, no_delete):
        raise KeyboardInterrupt


def test_a_holder_who_renews_keeps_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3lock, "LEASE", 0.5)
    monkeypatch.setattr(s3lock, "PATIENCE", 0.9)
    bucket, refused = Bucket(), []

    def intrude() -> None:
        try:
            with s3lock.locked("key", bucket.put, bucket.listed, bucket.delete):
                pass
        except PodiumError as error:
            refused.append(error.message)

    with s3lock.locked("key", bucket.put, bucket.listed, bucket.delete) as renew:
        intruder = threading.Thread(target=intrude)
        intruder.start()
        while intruder.is_alive():
            renew()
            time.sleep(0.02)
    assert len(refused) == 1
    assert "did not become free" in refused[0]


def test_a_holder_who_was_asleep_too_long_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3lock, "LEASE", 0.1)
    bucket = Bucket()
    with s3lock.locked("key", bucket.put, bucket.listed, bucket.delete) as renew:
        time.sleep(0.15)
        with pytest.raises(PodiumError, match="was not renewed for"):
            renew()
