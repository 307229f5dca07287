"""The interface of objects that run something in the background."""

from typing import Protocol


class Supervisor(Protocol):
    """Runs one object in the background."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Ask for the end of everything it runs, without waiting; safe to call twice."""

    def wake(self) -> None:
        """Ask for a check of the object: it may have to be deleted."""

    def join(self, timeout: float | None = None) -> bool:
        """Wait until nothing is running; return whether that is so."""
