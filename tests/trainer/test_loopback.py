"""Ranks of one machine listen on the loopback interface alone. This file is also their program."""

import os
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

from podium.trainer import world as worlds
from podium.trainer.config import TrainConfig
from podium.trainer.ranks import Ranks

LISTENS = "0A"  # of the states in /proc/net/tcp


def listening_addresses() -> list[str]:
    """Return the addresses this process listens on, as /proc writes them."""
    sockets = {
        os.readlink(entry.path)
        for entry in os.scandir("/proc/self/fd")
        if os.path.islink(entry.path)
    }
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS and f"socket:[{fields[9]}]" in sockets:
                addresses.append(fields[1].partition(":")[0])
    return addresses


@pytest.mark.skipif(
    not Path("/proc/self/net/tcp").exists(), reason="reads the table of sockets from /proc"
)
def test_ranks_with_a_loopback_master_listen_on_loopback_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    for addresses in run_ranks(__file__, tmp_path, tmp_path):
        assert set(addresses) == {"0100007F"}, "127.0.0.1 in the order of /proc"


@pytest.mark.parametrize(
    ("address", "is_loopback"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("10.1.2.3", False),
        ("train-master-0", False),
    ],
)
def test_only_a_loopback_address_keeps_the_store_to_this_machine(
    address: str, is_loopback: bool
) -> None:
    assert worlds._is_loopback(address) is is_loopback


def test_a_taken_master_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with worlds.socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv(
            "GLOO_SOCKET_IFNAME", "lo"
        )  # _open_store sets it, which must not outlive this test
        with pytest.raises(worlds.PeerLost, match=f"rank 0 cannot listen on 127.0.0.1:{port}"):
            worlds._open_store(Ranks(size=2, address="127.0.0.1", port=port), {})


def test_a_restarted_rank_waits_for_the_new_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    old = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    own, met = Ranks(rank=1, size=2, address="127.0.0.1", port=old.port), list[dist.Store]()
    assert worlds._meet(own, {}, "attempt-0").get("beat-1") == b"1"
    restarted = threading.Thread(
        target=lambda: met.append(worlds._meet(own, {}, "attempt-0")), daemon=True
    )
    restarted.start()
    restarted.join(1)
    assert restarted.is_alive(), "the store of the attempt before is still served"
    del old
    new = dist.TCPStore("127.0.0.1", own.port, 2, is_master=True, wait_for_workers=False)
    restarted.join(30)
    assert met[0].get("beat-1") == b"1"
    assert dist.PrefixStore("attempt-0", new).check(["beat-1"])


if __name__ == "__main__":
    with worlds.join(TrainConfig(no_cuda=True)) as here:
        here.sum(torch.ones(1))
        torch.save(listening_addresses(), f"{sys.argv[2]}/{here.rank}")
        here.all(True)
