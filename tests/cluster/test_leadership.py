"""Leadership by a Lease: one leader at a time, also while two race, the server is away or a leader dies."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from api_server import ApiServer, World

from podium.cluster.kubernetes.api import Api
from podium.cluster.kubernetes.leadership import Leadership, is_led
from podium.errors import Denied
from podium.system.pod import load_configuration

SECONDS = 1.5


@pytest.fixture
def candidate(server: ApiServer) -> Iterator[Callable[[str], Leadership]]:
    """Makes candidates for one Lease, each with a connection of its own."""
    made: list[Leadership] = []

    def make(holder: str) -> Leadership:
        configuration, namespace = load_configuration()
        made.append(Leadership(Api(configuration, namespace), "engine", holder, SECONDS))
        return made[-1]

    yield make
    for leadership in made:
        leadership.release()


def test_one_of_many_that_race_leads(candidate: Callable[[str], Leadership]) -> None:
    everybody = [candidate(f"pod-{number}") for number in range(8)]
    won: list[bool] = []
    threads = [
        threading.Thread(target=lambda lease=lease: won.append(lease.acquire(timeout=0.5)))
        for lease in everybody
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(won) == 1
    assert sum(lease.is_held for lease in everybody) == 1


def test_a_leader_that_releases_is_followed_at_once(
    candidate: Callable[[str], Leadership], world: World
) -> None:
    first, second = candidate("pod-a"), candidate("pod-b")
    assert first.acquire(0)
    first.release()
    assert second.acquire(timeout=0.5)
    spec = world.objects["leases", "engine"]["spec"]
    assert spec["holderIdentity"] == "pod-b"
    assert spec["leaseTransitions"] == 2
    assert spec["acquireTime"].endswith("Z")


def test_who_gives_up_leaves_the_next_ones_lease(
    candidate: Callable[[str], Leadership], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = candidate("pod-a"), candidate("pod-b")
    assert first.acquire(0)
    delete = first._api.coordination.delete_namespaced_lease

    def delete_late(*args: Any, **options: Any) -> Any:
        assert second.acquire(0)
        return delete(*args, **options)

    monkeypatch.setattr(first._api.coordination, "delete_namespaced_lease", delete_late)
    first.delete()
    assert world.objects["leases", "engine"]["spec"]["holderIdentity"] == "pod-b"
    second.delete()
    assert ("leases", "engine") not in world.objects


def test_a_leader_stays_while_it_renews(candidate: Callable[[str], Leadership]) -> None:
    first, second = candidate("pod-a"), candidate("pod-b")
    assert first.acquire(0)
    assert not second.acquire(timeout=2 * SECONDS)
    assert first.is_held


def test_a_leader_that_died_is_followed_after_its_lease(
    candidate: Callable[[str], Leadership], server: ApiServer
) -> None:
    first, second = candidate("pod-a"), candidate("pod-b")
    assert first.acquire(0)
    first._closed.set()  # as a process that is killed: it neither renews nor releases
    began = time.monotonic()
    assert second.acquire(timeout=5 * SECONDS)
    assert time.monotonic() - began > SECONDS / 2


def test_a_leader_cut_off_stops_before_others_begin(
    candidate: Callable[[str], Leadership], server: ApiServer
) -> None:
    first = candidate("pod-a")
    assert first.acquire(0)
    server.stop()
    assert first.lost.wait(timeout=SECONDS)
    assert not first.is_held
    server.start()
    assert not candidate("pod-b").acquire(0)


def test_a_renewal_that_is_late_brings_no_leadership_back(
    candidate: Callable[[str], Leadership], server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = candidate("pod-a")
    assert first.acquire(0)
    request = first._api.coordination.read_namespaced_lease

    def slowly(*args: Any, **options: Any) -> Any:  # as through a network that hangs
        time.sleep(SECONDS)
        return request(*args, **options)

    monkeypatch.setattr(first._api.coordination, "read_namespaced_lease", slowly)
    until_lost = time.monotonic() + 3 * SECONDS
    while first.is_held:
        assert time.monotonic() < until_lost
        time.sleep(0.01)
    time.sleep(SECONDS)
    assert not first.is_held


def test_an_account_without_rights_is_refused_with_a_reason(
    candidate: Callable[[str], Leadership], world: World
) -> None:
    world.forbidden.add("leases")
    with pytest.raises(Denied, match="leases is forbidden"):
        candidate("pod-a").acquire(0)


@pytest.mark.parametrize("days", [1, -1])
def test_who_leads_is_seen_whatever_the_clock_says(
    candidate: Callable[[str], Leadership], monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    class Wall(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            looks = threading.current_thread() is threading.main_thread()  # another thread renews
            return datetime.now(tz) + timedelta(days=days * looks)

    configuration, namespace = load_configuration()
    first, api = candidate("pod-a"), Api(configuration, namespace)
    assert first.acquire(0)
    with monkeypatch.context() as stepped:
        stepped.setattr("podium.cluster.kubernetes.leadership.datetime", Wall)
        assert is_led(api, "engine", wait=SECONDS)
        first._closed.set()  # as a process that is killed
        time.sleep(SECONDS)
        assert not is_led(api, "engine", wait=SECONDS / 3)
