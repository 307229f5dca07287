"""What a Ctrl-C leaves intact."""

import signal
import threading
from types import FrameType

import pytest

from podium.system.background import Background


def test_a_thread_still_runs_after_its_join_was_interrupted() -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    release = threading.Event()
    background = Background(lambda: assert_set(release), "waits")
    background.start()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            background.join(30)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not background.join(0.05)
    release.set()
    assert background.join(30)


def assert_set(event: threading.Event) -> None:
    assert event.wait(60)
