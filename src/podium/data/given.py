"""The data that trainings are given: what one of them wrote into the files is found at its end."""

import shutil
from pathlib import Path

from podium.data import artifact
from podium.errors import Failed, PodiumError
from podium.storage import local_path

_COPY = "let the trainer change a copy: np.load(file, mmap_mode='c')"


DAMAGED = ".damaged"
"""Behind the name of a directory with data that were set aside."""


class GivenData:
    """The files of a dataset on this machine; nothing is watched of one that is elsewhere.

    Only what changed since ``dataset.json`` was written, the last file of a dataset, is read again:
    an unchanged one costs a look at each file. That the files are read-only does not do: root
    writes all the same.

    Args:
        uri: The dataset's.
        run: The run whose trainings are given it, for the hint.

    Raises:
        Failed: A file is not what was prepared; the data are set aside.
    """

    def __init__(self, uri: str, run: str) -> None:
        self.run, self._directory = run, local_path(uri)
        self._whole: dict[str, tuple[int, ...]] = {}
        self._described = self._description()
        if name := self._changed():
            raise self._set_aside(
                f"{name} of {uri} is not what was prepared: something wrote into it", ""
            )

    def check(self, *trainings: str) -> None:
        """Refuse what was trained if a file has changed since the last look; the data are set
        aside.

        Args:
            trainings: What ran since then.

        Raises:
            Failed: One of them wrote into the data.
        """
        if name := self._changed():
            who = trainings[0] if len(trainings) == 1 else f"one of {', '.join(trainings)}"
            raise self._set_aside(
                f"{who} wrote into the data it was given: {name} is not what was prepared",
                f"{_COPY}; ",
            )

    def _changed(self) -> str:
        """Return the name of a file that is not what was prepared; empty if all are."""
        if self._directory is None:
            return ""
        name = "dataset.json"
        try:
            info, written = (
                artifact.describe(self._directory),
                (self._directory / name).stat().st_ctime_ns,
            )
            if self._description() != self._described:
                return name
            for file in info.given:
                name = file.file
                status = (self._directory / name).stat()
                stamp = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
                as_written = status.st_ctime_ns <= written and status.st_size == file.bytes
                if not as_written and self._whole.get(name) != stamp:
                    if not file.matches(self._directory / name):
                        return name
                    self._whole[name] = stamp
        except (OSError, PodiumError):
            return name
        return ""

    def _description(self) -> bytes:
        file = Path(self._directory or "", "dataset.json")
        return file.read_bytes() if self._directory and file.is_file() else b""

    def _set_aside(self, message: str, hint: str) -> Failed:
        """Set the data aside, so that the next run does not take them from the cache either."""
        assert self._directory
        aside = self._directory.with_name(self._directory.name + DAMAGED)
        shutil.rmtree(aside, ignore_errors=True)
        self._directory.rename(aside)
        again = f"they lie in {aside}; prepare them again: podium run --resume {self.run} --from prepare-data"
        return Failed(message, hint + again)
