"""Notices that another rank is gone, whatever the backend notices.

gloo does not always see the end of a process that it waits for, and would wait for half an hour. So
each rank counts up a number in the store every second, rank 0 looks at the numbers of all others,
and they look at its. Silence is counted in rounds of one's own, not in seconds: who was stopped or
starved himself takes nobody for lost.
"""

import os
import sys
import threading
from typing import Self

import torch.distributed as dist

from podium.errors import PodiumError
from podium.trainer.ranks import Ranks

BEAT_SECONDS = 1.0
"""Between two signs of life."""

LOST_BEATS = 15
"""Rounds without a sign after which a rank is lost; the largest of what a step may hold up Python's
threads."""

GRACE_SECONDS = 5.0
"""In which a rank that waits for another ends by itself, before it is ended: it saves its state
then."""

OVER = "over"
"""Number in the store that is not 0 once a rank has begun again: the attempt is over for all."""


def beat(store: dist.Store, rank: int) -> int:
    """Give a sign of life; return how many that rank has given."""
    return int(store.add(f"beat-{rank}", 1))


class PeerLost(PodiumError):
    """Another rank is gone; starting again resumes from the checkpoint."""

    exit_code = 144  # 128..255: restartPolicy ExitCode starts such a replica again

    @classmethod
    def because(cls, reason: str) -> Self:
        """Return it with the reason for which a rank is taken for lost."""
        hint = "start the job again: it resumes from its last checkpoint"
        return cls(f"another process of the training is gone ({reason})", hint)


class Pulse:
    """The signs of life of one rank, and its look at those of others.

    Args:
        own: This rank.
        store: A connection of its own: what blocks another one must not silence this rank.
    """

    def __init__(self, own: Ranks, store: dist.Store) -> None:
        watched = range(1, own.size) if own.rank == 0 else range(1)
        self.lost = ""
        """Why the attempt is over; empty while nobody is missed."""

        self.needs_others = True
        """False for one that goes on alone: it gives signs of life and misses nobody."""

        self._own, self._store, self._ended = own, store, threading.Event()
        self._beats, self._silence = dict.fromkeys(watched, 0), dict.fromkeys(watched, 0)
        self._unanswered, self._said = 0, ""

    def __enter__(self) -> Self:
        for work in (self._beat, self._watch):
            threading.Thread(target=work, name="podium-pulse", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Watch no longer: nothing waits for another rank any more."""
        self._ended.set()

    def _beat(self) -> None:
        try:
            while True:
                self._exchange()
                if self._ended.wait(BEAT_SECONDS):
                    return
        except RuntimeError:  # all that torch raises where a connection ends
            self._said = "rank 0 and its store are away"

    def _exchange(self) -> None:
        beat(self._store, self._own.rank)
        for rank, before in self._beats.items():
            beats = self._store.add(f"beat-{rank}", 0)
            if beats != before:
                self._beats[rank], self._silence[rank] = beats, 0
        self._unanswered = 0
        if self._store.add(OVER, 0):
            self._said = "a rank was started again"

    def _watch(self) -> None:
        while not self.lost:
            if self._ended.wait(BEAT_SECONDS):
                return
            self.lost = (self._said or self._missed()) if self.needs_others else ""
        if not self._ended.wait(GRACE_SECONDS):
            print(f"error: {PeerLost.because(self.lost)}", file=sys.stderr, flush=True)
            os._exit(PeerLost.exit_code)

    def _missed(self) -> str:
        self._unanswered += 1
        if self._unanswered >= LOST_BEATS:
            return "the store of rank 0 does not answer"
        for rank, beats in self._beats.items():
            self._silence[rank] += beats > 0  # one that was never heard of has not come yet
            if self._silence[rank] >= LOST_BEATS:
                return f"nothing is heard of rank {rank}"
        return ""
